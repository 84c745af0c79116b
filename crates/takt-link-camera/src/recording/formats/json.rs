//! Foxglove's messages in JSON: of its JSON schemas, and as protobuf's own mapping to JSON writes
//! them.
//!
//! Nesting is bounded by the parser (128), sizes by the length of the message.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Calibration, Front, Layout};

/// `{"sec": …, "nsec": …}` by the schema, an RFC 3339 text by protobuf's mapping.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stamp<'a> {
    Parts { sec: i64, nsec: u32 },
    Text(#[serde(borrow)] Cow<'a, str>),
}

#[derive(Deserialize)]
struct Image<'a> {
    #[serde(borrow)]
    timestamp: Option<Stamp<'a>>,
    #[serde(default, alias = "frameId", borrow)]
    frame_id: Cow<'a, str>,
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
    #[serde(default, borrow)]
    encoding: Cow<'a, str>,
    #[serde(default)]
    step: u32,
    #[serde(default, borrow)]
    format: Cow<'a, str>,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CameraCalibration {
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
    #[serde(default, rename = "D", alias = "d")]
    d: Vec<f64>,
    #[serde(default, rename = "K", alias = "k")]
    k: Vec<f64>,
    #[serde(default, rename = "P", alias = "p")]
    p: Vec<f64>,
}

fn parsed<'a, M: Deserialize<'a>>(data: &'a [u8]) -> Result<M, String> {
    serde_json::from_slice(data).map_err(|e| format!("not a JSON message of its type: {e}"))
}

/// Decodes the image in `buffer`, which holds its pixels afterwards.
pub(super) fn image(raw: bool, buffer: &mut Vec<u8>) -> Result<Front, String> {
    let mut pixels = Vec::new();
    let front = {
        let image: Image<'_> = parsed(buffer)?;
        STANDARD
            .decode_vec(image.data.as_bytes(), &mut pixels)
            .map_err(|e| format!("`data` is not base64: {e}"))?;
        let layout = match raw {
            true => {
                Layout::Rows { width: image.width, height: image.height, step: image.step, big_endian: false }
            }
            false => Layout::Encoded,
        };
        Front {
            stamp_ns: image.timestamp.as_ref().map(stamp_ns).transpose()?,
            frame_id: image.frame_id.into_owned(),
            encoding: if raw { image.encoding } else { image.format }.into_owned(),
            layout,
        }
    };
    *buffer = pixels;
    Ok(front)
}

pub(super) fn calibration(data: &[u8]) -> Result<Calibration, String> {
    let CameraCalibration { width, height, d, k, p } = parsed(data)?;
    Ok(Calibration { width, height, k, d, p, ..Calibration::default() })
}

fn stamp_ns(stamp: &Stamp<'_>) -> Result<u64, String> {
    let (ns, shown) = match stamp {
        Stamp::Parts { sec, nsec } => {
            let ns = u64::try_from(*sec).ok().and_then(|sec| sec.checked_mul(1_000_000_000));
            (ns.and_then(|ns| ns.checked_add(u64::from(*nsec))), format!("{sec} s {nsec} ns"))
        }
        Stamp::Text(text) => (rfc3339_ns(text), takt_files::quoted(text)),
    };
    ns.ok_or_else(|| format!("impossible time stamp {shown}"))
}

/// Nanoseconds since 1970 of `2026-11-28T21:33:00.5Z`, the form that protobuf's mapping writes.
fn rfc3339_ns(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse::<u64>().ok() } else { None }
    };
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut whole = whole.splitn(3, ':').map(number);
    let (hour, minute, second) = (whole.next()??, whole.next()??, whole.next()??);
    let valid = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && (1..=9).contains(&fraction.len());
    if !valid {
        return None;
    }
    // Days of the civil calendar, years beginning in March (H. Hinnant, days_from_civil).
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let seconds = (days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second;
    let nanos = number(fraction)? * 10u64.pow(9 - fraction.len() as u32);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_time_are_read() {
        // date -d 2026-11-28T21:33:00Z +%s
        assert_eq!(rfc3339_ns("2026-11-28T21:33:00.25Z"), Some(1_795_901_580_250_000_000));
        assert_eq!(rfc3339_ns("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339_ns("2000-02-29T23:59:59.000000001Z"), Some(951_868_799_000_000_001));
        for wrong in
            ["", "Z", "2026-11-28", "2026-13-01T00:00:00Z", "2026-11-28T21:33:00.Z", "+026-11-28T21:33:00Z"]
        {
            assert_eq!(rfc3339_ns(wrong), None, "{wrong}");
        }
        let parts = |sec, nsec| stamp_ns(&Stamp::Parts { sec, nsec });
        assert_eq!(parts(2, 5).unwrap(), 2_000_000_005);
        assert!(parts(-1, 0).is_err() && parts(i64::MAX, 0).is_err());
    }

    #[test]
    fn nesting_and_broken_base64_are_errors() {
        let nested = |key: &str| {
            let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
            format!("{{\"data\":\"\",\"{key}\":{open}{close}}}").into_bytes()
        };
        assert!(image(true, &mut nested("timestamp")).err().unwrap().contains("recursion limit"));
        assert!(image(true, &mut nested("unknown")).is_ok(), "passed over without recursion");
        let mut wrong = br#"{"data":"a$"}"#.to_vec();
        assert!(image(true, &mut wrong).err().unwrap().contains("base64"));
    }
}
