//! Numbers, times and intervals as a sentence has them.

use crate::evt::Estimate;

/// A number in the notation that reads best.
pub(super) fn number(value: f64) -> String {
    match value {
        v if (0.01..10_000.0).contains(&v) => {
            let text = format!("{v:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        v => {
            let text = format!("{v:.1e}");
            text.replace(".0e", "e")
        }
    }
}

pub(super) fn percent(confidence: f64) -> String {
    let text = format!("{:.4}", 100.0 * confidence);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

pub(super) fn interval(p: &Estimate, confidence: f64) -> String {
    format!("{:.2e} ({}: {:.2e} to {:.2e})", p.value, percent(confidence), p.low, p.high)
}

/// A time in the unit that reads best.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A duration in the unit that reads best, rounded up.
pub(super) fn duration(seconds: f64) -> String {
    let up = |value: f64, unit: &str| format!("{:.1} {unit}", (value * 10.0).ceil() / 10.0);
    match seconds {
        s if s < 120.0 => up(s, "s"),
        s if s < 7200.0 => up(s / 60.0, "min"),
        s if s < 172_800.0 => up(s / 3600.0, "h"),
        s => up(s / 86_400.0, "days"),
    }
}
