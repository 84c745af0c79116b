//! Additional measuring time needed for a verdict.

use super::{Counted, Longer, SeriesEvidence, VerdictReport};

/// Factor of the requested over the needed time: a run may begin a little late, and the next may be
/// a little slower.
const MARGIN: f64 = 1.02;

/// Longest time that `--seconds` accepts: 40 days.
const MAX_OPTION_S: f64 = 86_400.0 * 40.0;

/// No run takes longer (three centuries): what says so is no time.
pub(super) const MAX_MEASURED_S: f64 = 1e10;

/// Adds how much longer to measure, where that helps: until `needed` jobs were due.
pub(super) fn measure_more(
    mut report: VerdictReport,
    e: &SeriesEvidence,
    counted: &Counted,
    needed: f64,
) -> VerdictReport {
    let more = (needed.ceil() - counted.due as f64).max(0.0);
    if more < 1.0 || !more.is_finite() {
        return report;
    }
    let samples = more as u64;
    report.measure_more_samples = Some(samples);
    let without = format!("{} without a {}miss", e.unit, if counted.missed > 0 { "further " } else { "" });
    let Some(longer_s) = counted.rate_hz.map(|rate| more / rate).filter(|s| s.is_finite()) else {
        return asking(report, format!("measure {samples} more {without}"));
    };
    let known = |value: &f64| (0.0..=MAX_MEASURED_S).contains(value);
    let measured_s = e.measured_s.filter(known).filter(|_| longer_s <= MAX_MEASURED_S);
    let runs = e.runs.max(1);
    let (each, more_s, option) = match measured_s {
        // Repetitions share what is missing.
        Some(measured_s) => {
            let before_s = measured_s / runs as f64 + if known(&e.besides_s) { e.besides_s } else { 0.0 };
            let length_s = sensible((before_s + MARGIN * longer_s / runs as f64).max(1.0));
            let option = e.longer == Longer::Seconds && length_s <= MAX_OPTION_S;
            let option = if option { format!(": `--seconds {length_s}`") } else { String::new() };
            let more_s = length_s - before_s;
            let each = if runs > 1 { format!(" in each of {runs} runs") } else { String::new() };
            report.measure_more_s = Some(more_s * runs as f64);
            (each, more_s, option)
        }
        None => {
            report.measure_more_s = Some(longer_s);
            (String::new(), longer_s, String::new())
        }
    };
    let verb = if e.longer == Longer::Recording { "record" } else { "measure" };
    asking(report, format!("{verb} {} more{each} ({samples} {without}){option}", duration(more_s)))
}

fn asking(mut report: VerdictReport, instruction: String) -> VerdictReport {
    report.reasons.push(instruction.clone());
    report.measure_more = Some(instruction);
    report
}

/// A length that somebody types, not shorter than `seconds`: whole seconds, tens of seconds,
/// minutes, hours.
fn sensible(seconds: f64) -> f64 {
    let step = match seconds {
        s if s <= 120.0 => 1.0,
        s if s <= 900.0 => 10.0,
        s if s <= 14_400.0 => 60.0,
        _ => 3600.0,
    };
    (seconds / step).ceil() * step
}

/// A duration in the unit that reads best, rounded up.
pub(super) fn duration(seconds: f64) -> String {
    let up = |value: f64, unit: &str| {
        let tenths = (value * 10.0 - 1e-6).ceil();
        if tenths % 10.0 == 0.0 || value >= 20.0 {
            format!("{} {unit}", (tenths / 10.0).ceil())
        } else {
            format!("{:.1} {unit}", tenths / 10.0)
        }
    };
    match seconds {
        s if s < 120.0 => up(s, "s"),
        s if s < 7200.0 => up(s / 60.0, "min"),
        s if s < 172_800.0 => up(s / 3600.0, "h"),
        s => up(s / 86_400.0, "days"),
    }
}
