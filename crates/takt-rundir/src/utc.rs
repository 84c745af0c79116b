//! The wall clock as text. A clock that was never set may stand before 1970, and is read all the
//! same: a run must not end over it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, negative before it, and milliseconds within that second.
fn since_1970(time: SystemTime) -> (i64, u32) {
    let ms = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    (ms.div_euclid(1000), ms.rem_euclid(1000) as u32)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar: eras of 400
/// years that begin in March, so that the leap day is the last one.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, of_month)
}

/// RFC 3339 in UTC, with milliseconds where `fine`. Years without four digits are shown as the
/// nearest one that has.
pub(crate) fn rfc3339(time: SystemTime, fine: bool) -> String {
    let (seconds, ms) = since_1970(time);
    let (day, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, of_month) = date(day.clamp(-719_468, 2_932_896));
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = if fine { format!(".{ms:03}") } else { String::new() };
    format!("{year:04}-{month:02}-{of_month:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_another_program() {
        for second in
            [-2_208_988_800_i64, -86_401, -1, 0, 951_782_399, 951_782_400, 1_700_000_000, 4_107_542_400]
        {
            let span = Duration::from_secs(second.unsigned_abs());
            let time = if second < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span };
            let mut date = Command::new("date");
            let output = date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{second}")).output();
            let mut date = String::from_utf8(output.unwrap().stdout).unwrap();
            date.truncate(date.trim_end().len());
            assert_eq!(rfc3339(time, false), date, "{second}");
        }
    }

    #[test]
    fn a_clock_before_1970_and_one_beyond_all_years_panic_nowhere() {
        let early = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(rfc3339(early, true), "1969-12-31T23:59:59.999Z");
        let late = UNIX_EPOCH + Duration::from_secs(1 << 45);
        assert!(rfc3339(late, true).starts_with("9999-12-31T"), "{}", rfc3339(late, true));
        let first = UNIX_EPOCH - Duration::from_secs(1 << 45);
        assert!(rfc3339(first, true).starts_with("0000-03-01T"), "{}", rfc3339(first, true));
    }
}
