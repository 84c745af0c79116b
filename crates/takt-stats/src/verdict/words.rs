//! Numbers, times and intervals as a sentence has them.

use super::{Counted, SeriesEvidence, stolen_words};
use crate::evt::Estimate;
use crate::percent;

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

/// The probability of a miss within an hour, by the fitted tail. An interval from nearly 0 to
/// nearly 1 holds no information, and says so.
pub(super) fn tail_words(p: &Estimate, confidence: f64) -> String {
    let (percent, low, high) = (percent(confidence), probability(p.low), probability(p.high));
    if p.low < 0.05 && p.high > 0.95 {
        return format!(
            "the data cannot say whether a miss will occur within an hour (fitted tail, {percent} interval: {low} to {high})"
        );
    }
    format!(
        "by the fitted tail, the probability of a miss within an hour of this load is {} ({percent}: {low} to {high})",
        probability(p.value)
    )
}

fn probability(p: f64) -> String {
    if p <= 0.0 { "0".to_owned() } else { number(p) }
}

/// A time in the unit that reads best.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

pub(super) fn met(e: &SeriesEvidence) -> String {
    let (deadline, worst) = (time(e.deadline_ns), time(e.worst_ns));
    format!("all {} {} met the {deadline} deadline (worst {worst})", e.samples, e.unit)
}

pub(super) fn missed(e: &SeriesEvidence, counted: &Counted) -> String {
    let in_a_row = match e.longest_run {
        0 | 1 => String::new(),
        run => format!(", up to {run} in a row"),
    };
    format!(
        "{} of {} {} missed the {} deadline{in_a_row} (worst {}{})",
        counted.missed,
        counted.due,
        e.unit,
        time(e.deadline_ns),
        if e.unfinished_late > 0 { "completed " } else { "" },
        time(e.worst_ns)
    )
}

pub(super) fn unfinished_note(e: &SeriesEvidence) -> Option<String> {
    let misses = match e.unfinished_late {
        0 => return None,
        1 => "one miss".to_owned(),
        many => format!("{many} misses"),
    };
    Some(format!("{misses} never completed (skipped, dropped, unanswered, or still running at the end)"))
}

/// Reasons that keep any evidence from a PASS.
pub(super) fn incomplete(e: &SeriesEvidence) -> impl Iterator<Item = String> + use<> {
    let lost = match e.records_lost {
        0 => None,
        1 => Some("one record was lost, which may hide a miss".to_owned()),
        many => Some(format!("{many} records were lost, which may hide misses")),
    };
    let refused = match e.not_granted {
        0 => None,
        1 => Some("one requested setting was not granted".to_owned()),
        many => Some(format!("{many} requested settings were not granted")),
    };
    lost.into_iter().chain(refused)
}

/// The bound on the miss rate that the count gives.
pub(super) fn shown(e: &SeriesEvidence, counted: &Counted, upper: f64, confidence: f64) -> String {
    let (percent, trials) = (percent(confidence), trials(e, counted));
    if upper >= 0.5 {
        return format!("{trials}too few to bound the miss rate ({percent} confidence)");
    }
    format!("{trials}miss rate below 1 in {} ({percent} confidence)", (1.0 / upper).floor() as u64)
}

/// The bound is weaker than a PASS needs where nothing is claimed.
pub(super) fn too_few(e: &SeriesEvidence, counted: &Counted, upper: f64, confidence: f64) -> String {
    if e.samples == 0 {
        return format!("no {} were measured", e.unit);
    }
    format!(
        "{}, but {}; without a claim, a PASS needs a miss rate below 1 in 100",
        met(e),
        shown(e, counted, upper, confidence)
    )
}

/// Number of independent trials that the jobs count as, placed before a bound on their miss rate;
/// empty if each is one.
pub(super) fn trials(e: &SeriesEvidence, counted: &Counted) -> String {
    if counted.burst < 1.5 {
        return String::new();
    }
    let (due, unit) = (counted.due, &e.unit);
    match (due as f64 / counted.burst).round() as u64 {
        0 | 1 => format!("{due} {unit} count as one independent trial: "),
        trials => format!("{due} {unit} count as about {trials} independent trials: "),
    }
}

pub(super) fn stolen_note(e: &SeriesEvidence) -> Option<String> {
    stolen_words(e.stolen?)
}
