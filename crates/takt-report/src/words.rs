//! Texts for people: units, numbers, durations, names from files.

/// The unit in which a measure is shown. One per measure, so that a table never mixes two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds: scheduling latencies (the quadrotor's and the DAQ paper's tables).
    Micro,
    /// Milliseconds: reaction times of perception (SentryRT-1's figures).
    Milli,
}

impl Unit {
    /// Milliseconds where the typical value is at least one, else microseconds.
    pub(crate) fn for_typical(typical_ns: f64) -> Self {
        if typical_ns >= 1e6 { Self::Milli } else { Self::Micro }
    }

    pub fn sign(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
        }
    }

    pub(crate) fn of_ns(self, ns: f64) -> f64 {
        match self {
            Self::Micro => ns / 1e3,
            Self::Milli => ns / 1e6,
        }
    }

    /// A number in this unit, without the sign.
    pub fn number(self, ns: f64) -> String {
        match self {
            Self::Micro => format!("{:.2}", self.of_ns(ns)),
            Self::Milli => format!("{:.3}", self.of_ns(ns)),
        }
    }
}

/// A time on an axis or in a sentence, in the unit that suits it: `250 ns`, `4 ms`, `1.5 s`.
pub fn time(ns: f64) -> String {
    let (scale, sign) = match ns.abs() {
        v if v < 1e3 => (1.0, "ns"),
        v if v < 1e6 => (1e3, "µs"),
        v if v < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {sign}", short(ns / scale))
}

/// At most three decimals, no trailing zeros.
pub fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Any figure to about six digits: neither `0.000` for small ones nor twenty digits for great ones.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:.4e}");
    }
    let decimals = match size {
        v if v >= 1e4 => 1,
        v if v >= 1.0 => 4,
        _ => 6,
    };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A probability: `1.2e-9`, `0.013`.
pub fn probability(value: f64) -> String {
    if value == 0.0 || value >= 1e-3 { short(value) } else { format!("{value:.1e}") }
}

/// A duration as people say it: `12 s`, `5 min 20 s`, `3 h 5 min`, `40 d 2 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    if seconds < 60.0 {
        return format!("{} s", short((seconds * 10.0).round() / 10.0));
    }
    let s = seconds.round() as u64;
    let pair = |a: u64, unit_a: &str, b: u64, unit_b: &str| {
        if b == 0 { format!("{a} {unit_a}") } else { format!("{a} {unit_a} {b} {unit_b}") }
    };
    match s {
        0..3600 => pair(s / 60, "min", s % 60, "s"),
        3600..86_400 => pair(s / 3600, "h", s % 3600 / 60, "min"),
        _ => pair(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// A duration as the DAQ paper writes it, with seconds because software tests may be short:
/// `dd:hh:mm:ss`.
pub(crate) fn days_hours_minutes(seconds: f64) -> String {
    let s = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    format!("{:02}:{:02}:{:02}:{:02}", s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60)
}

/// A text from a file made fit for one line of a page: control characters and direction marks
/// become spaces, for they are not allowed in SVG and can make a page read backwards.
pub fn clean(text: &str) -> String {
    let hostile = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
                | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if hostile(c) { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// At most `limit` characters; what is left out in the middle is marked.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    let keep = limit.saturating_sub(1).max(2);
    let (head, tail) = (keep - keep / 2, keep / 2);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// The first digits of a hash, enough to find it again.
pub(crate) fn short_hash(hash: &str) -> String {
    clean(hash).chars().take(12).collect()
}

/// `1 run`, `2 runs`.
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_suits() {
        assert_eq!(time(250.0), "250 ns");
        assert_eq!(time(4e6), "4 ms");
        assert_eq!(time(1.5e9), "1.5 s");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!(Unit::for_typical(54_000.0).number(58_530.0), "58.53");
        assert_eq!(Unit::for_typical(17e6).number(37_300_000.0), "37.300");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(0.5), "0.5 s");
        assert_eq!(duration(320.0), "5 min 20 s");
        assert_eq!(duration(86_400.0 * 40.0), "40 d");
        assert_eq!(days_hours_minutes(3.0 * 86_400.0 + 5.0 * 3600.0 + 61.0), "03:05:01:01");
        assert_eq!(duration(f64::NAN), "unknown");
    }

    #[test]
    fn figures_keep_their_digits() {
        assert_eq!(figure(0.0123456), "0.012346");
        assert_eq!(figure(250.0), "250");
        assert_eq!(figure(1.5e-9), "1.5000e-9");
        assert_eq!(figure(0.0), "0");
        assert_eq!(short(-0.0001), "0");
    }

    #[test]
    fn hostile_names_are_tamed() {
        assert_eq!(clean("a\nb\0\u{202e}c "), "a b  c");
        assert_eq!(shorten("abcdefghij", 5), "ab…ij");
        assert_eq!(shorten("abc", 5), "abc");
        assert_eq!(shorten("äöüäöüäöü", 4).chars().count(), 4);
    }
}
