//! Numbers, times and intervals as a sentence has them.

use super::{Counted, SeriesEvidence, stolen_words};
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

pub(super) fn met(e: &SeriesEvidence) -> String {
    format!(
        "all {} {} met the {} deadline; worst {}",
        e.samples,
        e.unit,
        time(e.deadline_ns),
        time(e.worst_ns)
    )
}

pub(super) fn missed(e: &SeriesEvidence, counted: &Counted) -> String {
    let in_a_row = match e.longest_run {
        0 | 1 => String::new(),
        run => format!(", up to {run} in a row"),
    };
    format!(
        "{} of {} {} missed the {} deadline{in_a_row}; worst {}{}",
        counted.missed,
        counted.due,
        e.unit,
        time(e.deadline_ns),
        if e.unfinished_late > 0 { "of the others " } else { "" },
        time(e.worst_ns)
    )
}

pub(super) fn unfinished_note(e: &SeriesEvidence) -> Option<String> {
    (e.unfinished_late > 0).then(|| {
        format!(
            "{} of them were skipped, dropped or unanswered, or not over when the run ended",
            e.unfinished_late
        )
    })
}

/// What keeps any evidence from a PASS.
pub(super) fn incomplete(e: &SeriesEvidence) -> impl Iterator<Item = String> + use<> {
    let lost = (e.records_lost > 0)
        .then(|| format!("{} records were lost, so that a miss may be among them", e.records_lost));
    let refused = (e.not_granted > 0)
        .then(|| format!("{} settings that were asked for were not granted by the kernel", e.not_granted));
    lost.into_iter().chain(refused)
}

/// What was shown, without a claim.
pub(super) fn shown(upper: f64, confidence: f64) -> String {
    let percent = percent(confidence);
    if upper >= 0.5 {
        return format!("too few to say at {percent} confidence how rarely one misses");
    }
    format!("less than one miss in {} at {percent} confidence", (1.0 / upper).floor() as u64)
}

/// What was shown, and that it is less than a PASS needs where nothing is claimed.
pub(super) fn too_few(e: &SeriesEvidence, counted: &Counted, upper: f64, confidence: f64) -> String {
    if e.samples == 0 {
        return format!("no {} were measured", e.unit);
    }
    let shown = if upper >= 0.5 {
        "nothing of how rarely one misses".to_owned()
    } else {
        format!("less than one miss in {}", (1.0 / upper).floor() as u64)
    };
    format!(
        "{}, but at {} confidence that shows {shown}{}; a PASS without a claim shows less than one in 100",
        met(e),
        percent(confidence),
        burst_note(e, counted)
    )
}

/// Says so where jobs are no trials each.
pub(super) fn burst_note(e: &SeriesEvidence, counted: &Counted) -> String {
    if counted.burst < 1.5 {
        return String::new();
    }
    let jobs = counted.burst.ceil() as u64;
    let span = counted.rate_hz.map(|rate| format!(" of {}", time((counted.burst / rate * 1e9) as u64)));
    format!(", where a burst{} may take {jobs} {}", span.unwrap_or_default(), e.unit)
}

pub(super) fn stolen_note(e: &SeriesEvidence) -> Option<String> {
    stolen_words(e.stolen?)
}
