//! Causes that delayed a thread in spans of time that are not jobs of its own, but a part of the
//! path of something that it handles.

use std::collections::HashMap;

use takt_rt::jobs::JobRecord;

use super::cause::{TIMER_SLACK, main_cause};
use super::{Cause, Late, Thresholds, analyse_with};
use crate::error::TraceError;
use crate::event::{Span, Trace};

/// Most spans that are looked at of those that overlap at one moment; each costs a pass over the
/// trace. A loop that is late by more than this many cycles has long been abandoned.
const MAX_OVERLAPPING: usize = 64;

/// Use of thread `tid`'s time in each of `spans`, with the largest cause, in their order; each span
/// is judged on its own, even if others overlap it. `None` for an empty span, and for one that too
/// many others overlap. A thread that sleeps until a timer of its own is due waits
/// ([`Cause::Waited`]).
///
/// # Errors
/// [`TraceError::Clock`] where the trace counts another clock than CLOCK_MONOTONIC.
pub fn held_up(trace: &Trace, tid: i32, spans: &[Span]) -> Result<Vec<Option<Late>>, TraceError> {
    let mut found = woken_late(trace, tid, spans)?;
    for late in found.iter_mut().flatten() {
        // It is no release that the timer should have been set to.
        let mut slept = false;
        for part in late.parts.iter_mut().filter(|part| part.who == TIMER_SLACK) {
            (part.cause, part.who) = (Cause::Waited, "a timer of its own".to_owned());
            slept = true;
        }
        let judged = !matches!(late.cause, Cause::NotRecorded | Cause::EventsLost);
        if slept
            && judged
            && let Some((cause, who, share)) = main_cause(&late.parts)
        {
            (late.cause, late.who, late.share) = (cause, who.to_owned(), share);
        }
    }
    Ok(found)
}

/// As [`held_up`], for spans that begin when the thread was to be woken: a timer of its own that is
/// set to later than that is late ([`Cause::TimerLate`]).
///
/// # Errors
/// As [`held_up`].
pub fn woken_late(trace: &Trace, tid: i32, spans: &[Span]) -> Result<Vec<Option<Late>>, TraceError> {
    let mut sorted: Vec<Span> = spans.iter().copied().filter(|span| span.from_ns < span.to_ns).collect();
    sorted.sort_by_key(|span| (span.from_ns, span.to_ns));
    sorted.dedup();
    // A thread's jobs do not overlap: those that do are looked at in passes of their own.
    let mut passes: Vec<Vec<Span>> = Vec::new();
    for span in sorted {
        let is_free = |pass: &Vec<Span>| pass.last().is_none_or(|last| last.to_ns < span.from_ns);
        match passes.iter().position(is_free) {
            Some(free) => passes[free].push(span),
            None if passes.len() < MAX_OVERLAPPING => passes.push(vec![span]),
            None => {}
        }
    }
    let mut found = HashMap::new();
    for pass in passes {
        found.extend(judge(trace, tid, &pass)?);
    }
    Ok(spans.iter().map(|span| found.get(&(span.from_ns, span.to_ns)).cloned()).collect())
}

/// Judges spans that do not overlap, in their order.
fn judge(
    trace: &Trace,
    tid: i32,
    spans: &[Span],
) -> Result<impl Iterator<Item = ((u64, u64), Late)>, TraceError> {
    let job = |planned_ns: u64, end_ns: u64, index| JobRecord {
        index,
        planned_ns,
        wake_ns: end_ns,
        start_ns: end_ns,
        end_ns,
        ..JobRecord::default()
    };
    let mut jobs = Vec::with_capacity(2 * spans.len());
    for (index, span) in (0..).zip(spans) {
        // Nothing is owed from before a span: a job that was over when it began.
        let begun_ns = span.from_ns.saturating_sub(1);
        jobs.extend([job(begun_ns, begun_ns, u64::MAX), job(span.from_ns, span.to_ns, index)]);
    }
    let all = Thresholds { lateness_ns: 0, response_ns: Some(u64::MAX), windows: jobs.len() };
    let windows = analyse_with(trace, tid, &jobs, &all)?.windows;
    Ok(windows.into_iter().map(|late| ((late.planned_ns, late.end_ns), late)))
}
