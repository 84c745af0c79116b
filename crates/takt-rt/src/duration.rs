//! Durations as people write them in configurations: `500us`, `2ms`, `33.3ms`, `1s`.
//!
//! Use `#[serde(with = "takt_rt::duration")]` on a [`Duration`] field.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

use crate::error::Error;

/// Units from the longest to the shortest, with their nanoseconds.
const UNITS: [(&str, u64); 5] =
    [("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Reads a decimal number with a unit of `ns`, `us` (or `µs`), `ms`, `s` or `min`. Exact: a part of
/// a nanosecond is an error.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let error = |reason| Error::InvalidDuration { given: text.to_owned(), reason };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = match unit.trim() {
        "" => return Err(error("it has no unit")),
        "µs" | "μs" => "us",
        unit => unit,
    };
    let &(_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| error("unknown unit"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(error("the number is malformed"));
    }
    let too_long = || error("longer than 584 years");
    let mut ns = match whole {
        "" => 0,
        whole => whole.parse::<u64>().map_err(|_| too_long())?.checked_mul(unit_ns).ok_or_else(too_long)?,
    };
    let mut place_ns = unit_ns;
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        if place_ns % 10 != 0 && digit != 0 {
            return Err(error("finer than a nanosecond"));
        }
        place_ns /= 10;
        ns = ns.checked_add(digit * place_ns).ok_or_else(too_long)?;
    }
    Ok(Duration::from_nanos(ns))
}

/// Writes a duration with the longest unit up to a second that needs no fraction; [`parse`] reads
/// it back unchanged.
pub fn format(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let (unit, unit_ns) = UNITS
        .into_iter()
        .skip(1)
        .find(|(_, unit_ns)| ns.is_multiple_of(u128::from(*unit_ns)))
        .filter(|_| ns != 0)
        .unwrap_or(("ns", 1));
    format!("{}{unit}", ns / u128::from(unit_ns))
}

/// For `serde(with)`.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// For `serde(with)`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    parse(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_decimals_and_units() {
        for (text, ns) in [
            ("500us", 500_000),
            ("33.3ms", 33_300_000),
            ("1s", 1_000_000_000),
            (" 2 ms ", 2_000_000),
            (".5µs", 500),
            ("7ns", 7),
            ("0.0000000010s", 1),
            ("0s", 0),
            ("1.5 min", 90_000_000_000),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_nanos(ns), "{text}");
        }
        for text in
            ["", "5", "ms", ".ms", "1.2.3s", "1.5ns", "-1ms", "1h", "99999999999999999999s", "20000000000s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(ns: u64) {
            let duration = Duration::from_nanos(ns);
            prop_assert_eq!(parse(&format(duration)).unwrap(), duration);
        }

        #[test]
        fn never_panics(text in "\\PC{0,12}") {
            let _ = parse(&text);
        }
    }
}
