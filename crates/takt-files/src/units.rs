//! Units at the end of a key's name: what they are called, and how one is turned into another.

use std::f64::consts::PI;

/// A unit: how it ends the name of a key, how it is written, which quantity it measures, and how
/// many of the quantity's first unit it is.
struct Unit {
    ending: &'static str,
    symbol: &'static str,
    quantity: u8,
    factor: f64,
}

const fn unit(ending: &'static str, symbol: &'static str, quantity: u8, factor: f64) -> Unit {
    Unit { ending, symbol, quantity, factor }
}

/// Those with a longer ending first: `_m_s` is no `_s`. Of one quantity, those that are mistaken
/// for each other most often first.
const UNITS: [Unit; 28] = [
    unit("rad_s2", "rad/s²", 0, 1.0),
    unit("deg_s2", "°/s²", 0, PI / 180.0),
    unit("rad_s", "rad/s", 1, 1.0),
    unit("deg_s", "°/s", 1, PI / 180.0),
    unit("mm_s", "mm/s", 2, 1e-3),
    unit("m_s2", "m/s²", 3, 1.0),
    unit("m_s", "m/s", 2, 1.0),
    unit("m2", "m²", 4, 1.0),
    unit("rad", "rad", 5, 1.0),
    unit("degrees", "°", 5, PI / 180.0),
    unit("deg", "°", 5, PI / 180.0),
    unit("mm", "mm", 6, 1e-3),
    unit("cm", "cm", 6, 1e-2),
    unit("m", "m", 6, 1.0),
    unit("ms", "ms", 7, 1e-3),
    unit("us", "µs", 7, 1e-6),
    unit("ns", "ns", 7, 1e-9),
    unit("sec", "s", 7, 1.0),
    unit("s", "s", 7, 1.0),
    unit("khz", "kHz", 8, 1e3),
    unit("mhz", "MHz", 8, 1e6),
    unit("hz", "Hz", 8, 1.0),
    unit("kg", "kg", 9, 1.0),
    unit("mv", "mV", 10, 1e-3),
    unit("v", "V", 10, 1.0),
    unit("gib", "GiB", 11, 1024.0),
    unit("mib", "MiB", 11, 1.0),
    unit("kib", "KiB", 11, 1.0 / 1024.0),
];

/// A name without its unit, and the unit.
fn split(name: &str) -> Option<(&str, &'static Unit)> {
    // `period` and `seconds` are no units of anything: a unit stands behind `_`.
    UNITS.iter().find_map(|unit| Some((name.strip_suffix(unit.ending)?.strip_suffix('_')?, unit)))
}

/// The unit of the value of `key`, by the end of its name; keys with sections and notes
/// (`a.b_m, height`) have one, too.
pub fn unit_of(key: &str) -> Option<&'static str> {
    Some(split(bare(key))?.1.symbol)
}

fn bare(key: &str) -> &str {
    let last = key.rsplit(['.', ' ']).find(|part| part.contains('_')).unwrap_or(key);
    last.trim_matches(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The key of `known` with the name of `given` and another unit, and by how much a value is
/// multiplied.
pub(crate) fn other_unit<'a>(given: &str, known: &[&'a str]) -> Option<(&'a str, f64)> {
    let (name, unit) = split(given)?;
    known.iter().find_map(|other| {
        let (other_name, other_unit) = split(other)?;
        let same =
            other_name == name && other_unit.quantity == unit.quantity && other_unit.ending != unit.ending;
        same.then(|| (*other, unit.factor / other_unit.factor))
    })
}

/// Value of `key` without the unit behind it: `500 Hz` for `rate_hz` is 500, `0.5kHz`, too.
pub(crate) fn without_unit(key: &str, value: &str) -> Option<String> {
    let (_, unit) = split(bare(key))?;
    let end = value.find(|c: char| c.is_alphabetic() || c == '°')?;
    let (amount, written) = value.split_at(end);
    let amount: f64 = amount.trim().parse().ok()?;
    let written = written.trim().to_lowercase().replace('/', "_");
    let same = |other: &&Unit| written == other.ending || written == other.symbol.to_lowercase();
    let given = UNITS.iter().filter(|other| other.quantity == unit.quantity).find(same)?;
    Some(number(amount * given.factor / unit.factor))
}

/// A value of `key` that lies outside `low..=high` and would lie inside if it was meant in another
/// unit: "25 mm are 0.025 m".
///
/// ```
/// use takt_files::in_other_unit;
///
/// assert_eq!(in_other_unit("margin_m", 25.0, 0.0, 0.1).as_deref(), Some("25 mm are 0.025 m"));
/// assert_eq!(in_other_unit("tilt_rad", 90.0, -6.3, 6.3).as_deref(), Some("90° are 1.5708 rad"));
/// assert_eq!(in_other_unit("margin_m", -1.0, 0.0, 0.1), None);
/// ```
pub fn in_other_unit(key: &str, value: f64, low: f64, high: f64) -> Option<String> {
    let (_, unit) = split(bare(key))?;
    let others = UNITS.iter().filter(|other| other.quantity == unit.quantity && other.factor != unit.factor);
    let mut fitting = others.filter_map(|other| {
        let converted = value * other.factor / unit.factor;
        (value != 0.0 && (low..=high).contains(&converted)).then_some((other, converted))
    });
    let (other, converted) = fitting.next()?;
    let space = if other.symbol.starts_with('°') { "" } else { " " };
    Some(format!("{}{space}{} are {} {}", number(value), other.symbol, number(converted), unit.symbol))
}

/// A number with at most five significant digits, without zeros at its end.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (4 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_end_of_the_keys_name() {
        for (key, symbol) in [
            ("robot.shape.margin_m", "m"),
            ("limits.speed_rad_s", "rad/s"),
            ("limits.acceleration_rad_s2", "rad/s²"),
            ("cameras (west): mount.position_m", "m"),
            ("mount.position_m, height", "m"),
            ("task.deadline_us", "µs"),
            ("rate_hz", "Hz"),
            ("most_mm_s", "mm/s"),
        ] {
            assert_eq!(unit_of(key), Some(symbol), "{key}");
        }
        for key in ["seconds", "limits.stale_cycles", "robots", "m", "repetitions", "held.output"] {
            assert_eq!(unit_of(key), None, "{key}");
        }
    }

    #[test]
    fn a_value_in_another_unit_is_converted() {
        for (key, value, low, high, words) in [
            ("reach_m", 850.0, 0.1, 3.0, "850 mm are 0.85 m"),
            ("pose_rad", -180.0, -6.3, 6.3, "-180° are -3.1416 rad"),
            ("limits.speed_rad_s", 60.0, 0.001, 3.2, "60°/s are 1.0472 rad/s"),
            ("timeout_s", 500.0, 0.0, 60.0, "500 ms are 0.5 s"),
            ("deadline_us", 0.5, 1.0, 1e6, "0.5 ms are 500 µs"),
        ] {
            assert_eq!(in_other_unit(key, value, low, high).as_deref(), Some(words), "{key}");
        }
        // Nothing fits, or there is no unit.
        assert_eq!(in_other_unit("reach_m", 1e9, 0.1, 3.0), None);
        assert_eq!(in_other_unit("count", 850.0, 0.1, 3.0), None);
        assert_eq!(in_other_unit("reach_m", f64::NAN, 0.1, 3.0), None);
    }

    #[test]
    fn a_unit_behind_a_value_is_no_part_of_it() {
        for (key, value, written) in [
            ("rate_hz", "500 Hz", "500"),
            ("rate_hz", "0.5kHz", "500"),
            ("deadline_ms", "500us", "0.5"),
            ("speed_rad_s", "1.5 rad/s", "1.5"),
        ] {
            assert_eq!(without_unit(key, value).as_deref(), Some(written), "{key} = {value}");
        }
        for (key, value) in [("rate_hz", "500 ms"), ("name", "5 m"), ("rate_hz", "fast"), ("rate_hz", "500")]
        {
            assert_eq!(without_unit(key, value), None, "{key} = {value}");
        }
    }

    #[test]
    fn a_key_with_another_unit_is_found() {
        let known = ["rate_hz", "deadline_ms", "work_us"];
        assert_eq!(other_unit("deadline_us", &known), Some(("deadline_ms", 1e-6 / 1e-3)));
        assert_eq!(other_unit("deadline_m", &known), None);
        assert_eq!(other_unit("work_us", &known), None);
        assert_eq!(other_unit("period_ms", &known), None);
    }
}
