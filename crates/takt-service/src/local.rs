//! The time of day where the machine stands: an operator asks for 14:03, and means local time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 from which events are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(pub u64);

/// A moment in the parts that people write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    year: i32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

fn local(seconds: i64) -> Option<(Parts, i64)> {
    // SAFETY: `tm` is plain data, for which zero is valid; the pointer in it is not followed here.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    let seconds: libc::time_t = seconds;
    // SAFETY: both point to valid values of their types, and localtime_r(3) may be called by any
    // thread.
    if unsafe { libc::localtime_r(&seconds, &mut tm) }.is_null() {
        return None;
    }
    let part = |value: i32| u32::try_from(value).unwrap_or(0);
    let parts = Parts {
        year: tm.tm_year.saturating_add(1900),
        month: part(tm.tm_mon) + 1,
        day: part(tm.tm_mday),
        hour: part(tm.tm_hour),
        minute: part(tm.tm_min),
        second: part(tm.tm_sec),
    };
    Some((parts, tm.tm_gmtoff))
}

/// Seconds since 1970 of a local time; the kernel's idea of summer time decides where the clock was
/// put back.
fn from_local(parts: Parts) -> Option<i64> {
    // SAFETY: as in `local`.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    let part = |value: u32| i32::try_from(value).ok();
    tm.tm_year = parts.year.checked_sub(1900)?;
    tm.tm_mon = part(parts.month)?.checked_sub(1)?;
    tm.tm_mday = part(parts.day)?;
    tm.tm_hour = part(parts.hour)?;
    tm.tm_min = part(parts.minute)?;
    tm.tm_sec = part(parts.second)?;
    tm.tm_isdst = -1;
    // SAFETY: points to a valid value, which mktime(3) may normalise.
    let seconds = unsafe { libc::mktime(&mut tm) };
    (seconds != -1).then_some(seconds)
}

/// A moment as local time, `14:03:12.500`, with the date before it where that is not `today_of`'s.
pub fn clock_text(wall_ns: u64, today_of_ns: u64) -> String {
    let seconds = |ns: u64| i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    let ms = wall_ns / 1_000_000 % 1000;
    let Some((at, _)) = local(seconds(wall_ns)) else { return format!("{wall_ns} ns") };
    let today = local(seconds(today_of_ns)).map(|(now, _)| (now.year, now.month, now.day));
    let time = format!("{:02}:{:02}:{:02}.{ms:03}", at.hour, at.minute, at.second);
    match today == Some((at.year, at.month, at.day)) {
        true => time,
        false => format!("{:04}-{:02}-{:02} {time}", at.year, at.month, at.day),
    }
}

/// A text that is no moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinceError {
    /// What was written.
    pub received: String,
}

impl std::fmt::Display for SinceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "expected a time of day (14:00, 14:00:30), a date (2026-11-29, \"2026-11-29 14:00\", both local; 2026-11-29T14:00:00Z for \
             UTC), or how long ago (30s, 15min, 2h, 3d)",
        )
    }
}

impl std::error::Error for SinceError {}

/// A moment as an operator writes it: a time of day (of today, or of yesterday where that is still
/// to come), a date with or without a time, or how long ago.
///
/// # Errors
/// [`SinceError`], which says what is expected.
pub fn parse_since(text: &str, now: SystemTime) -> Result<Since, SinceError> {
    let now_s = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
    let text = text.trim();
    let found = ago(text).map(|ago_s| now_s.saturating_sub(ago_s)).or_else(|| moment(text, now_s));
    let seconds = found.ok_or_else(|| SinceError { received: text.to_owned() })?;
    Ok(Since(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000)))
}

fn ago(text: &str) -> Option<i64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let each_s = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "min" | "m" | "minutes" => 60,
        "h" | "hours" | "hour" => 3600,
        "d" | "days" | "day" => 86_400,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(each_s)
}

fn moment(text: &str, now_s: i64) -> Option<i64> {
    let utc = text.strip_suffix('Z');
    let text = utc.unwrap_or(text);
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (Some(date), Some(time.trim())),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let (hour, minute, second) = time.map_or(Some((0, 0, 0)), clock)?;
    match date {
        Some(text) => {
            let (year, month, day) = calendar(text)?;
            let parts = Parts { year, month, day, hour, minute, second };
            match utc {
                Some(_) => Some(from_utc(parts)),
                None => from_local(parts),
            }
        }
        // A time of day with a Z, without a date, is nothing that anybody writes.
        None if utc.is_some() => None,
        None => {
            let (Parts { year, month, day, .. }, _) = local(now_s)?;
            let today = from_local(Parts { year, month, day, hour, minute, second })?;
            match today > now_s {
                true => from_local(Parts { year, month, day: day.checked_sub(1)?, hour, minute, second }),
                false => Some(today),
            }
        }
    }
}

fn clock(text: &str) -> Option<(u32, u32, u32)> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // Fractions of a second are dropped.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    if !digits(fraction) || !parts.iter().all(|part| digits(part) && part.len() <= 2) {
        return None;
    }
    let numbers: Vec<u32> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    let (hour, minute, second) = match numbers[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour <= 23 && minute <= 59 && second <= 60).then_some((hour, minute, second))
}

fn calendar(text: &str) -> Option<(i32, u32, u32)> {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return None };
    let (year, month, day) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 29,
        _ => 31,
    };
    ((1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day))
        .then_some((year, month, day))
}

/// Days since 1970 of a date in the Gregorian calendar, in years that begin in March.
fn from_utc(parts: Parts) -> i64 {
    let Parts { year, month, day, hour, minute, second } = parts;
    let year = i64::from(year) - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second)
}

/// RFC 3339 in UTC with milliseconds.
pub fn utc_text(wall_ns: u64) -> String {
    let (seconds, ms) = (wall_ns / 1_000_000_000, wall_ns / 1_000_000 % 1000);
    let (day, of_day) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{of_month:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn date(arguments: &[&str]) -> String {
        let output = Command::new("date").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn moments_are_those_of_another_program() {
        let now = at(1_795_960_992);
        for text in ["2026-11-29 14:00", "2026-11-29", "2024-02-29 23:59:59", "2026-07-01 00:00"] {
            let other: u64 = date(&["+%s", "-d", text]).parse().unwrap();
            assert_eq!(parse_since(text, now), Ok(Since(other * 1_000_000_000)), "{text}");
        }
        for text in ["2026-11-29T14:00:00Z", "2024-02-29T23:59:59Z", "1970-01-01T00:00:00Z"] {
            let other: u64 = date(&["-u", "+%s", "-d", text]).parse().unwrap();
            assert_eq!(parse_since(text, now), Ok(Since(other * 1_000_000_000)), "{text}");
            let shown = utc_text(other * 1_000_000_000 + 7_000_000);
            assert_eq!(shown, date(&["-u", "+%Y-%m-%dT%H:%M:%S.007Z", "-d", text]));
        }
    }

    #[test]
    fn a_time_of_day_is_the_last_one() {
        // Noon of a day, local time.
        let noon: u64 = date(&["+%s", "-d", "2026-11-29 12:00"]).parse().unwrap();
        let since = |text: &str| parse_since(text, at(noon)).unwrap().0 / 1_000_000_000;
        assert_eq!(noon - since("11:00"), 3600);
        assert_eq!(noon - since("11:59:30"), 30);
        assert_eq!(noon - since("13:00"), 23 * 3600, "of yesterday");
        assert_eq!(noon - since("90s"), 90);
        assert_eq!(noon - since("15min"), 900);
        assert_eq!(noon - since("2h"), 7200);
        assert_eq!(noon - since("3d"), 3 * 86_400);
        assert_eq!(clock_text(noon * 1_000_000_000 + 7_000_000, noon * 1_000_000_000), "12:00:00.007");
        let tomorrow = (noon + 86_400) * 1_000_000_000;
        assert_eq!(clock_text(noon * 1_000_000_000, tomorrow), "2026-11-29 12:00:00.000");
    }

    #[test]
    fn what_is_no_time_is_refused_with_examples() {
        for text in [
            "",
            "now",
            "14",
            "25:00",
            "14:60",
            "14:00:00:00",
            "14:00:99",
            "2026-13-01",
            "2026-02-30",
            "2026-1",
            "5 weeks",
            "-3h",
            "14:0x",
        ] {
            let error = parse_since(text, at(1_795_960_992)).unwrap_err().to_string();
            assert!(error.contains("14:00") && error.contains("2h"), "{text}: {error}");
        }
        assert!(parse_since("99999999999999999d", at(0)).is_err());
    }
}
