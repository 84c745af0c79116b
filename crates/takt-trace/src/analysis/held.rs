//! What held a thread up in spans of time that are no jobs of its own: a part of the way of something that it handles.

use takt_rt::jobs::JobRecord;

use super::{Late, Thresholds, analyse_with};
use crate::error::TraceError;
use crate::event::{Span, Trace};

/// Where thread `tid` spent its time in each of `spans`, with the cause that took most, in their order. Spans that overlap are one
/// piece of time and have its cause in common.
///
/// # Errors
/// [`TraceError::Clock`] where the trace counts another clock than CLOCK_MONOTONIC.
pub fn held_up(trace: &Trace, tid: i32, spans: &[Span]) -> Result<Vec<Option<Late>>, TraceError> {
    let mut sorted = spans.to_vec();
    sorted.retain(|span| span.from_ns < span.to_ns);
    sorted.sort_by_key(|span| span.from_ns);
    let mut pieces: Vec<Span> = Vec::new();
    for span in sorted {
        match pieces.last_mut() {
            Some(last) if last.to_ns >= span.from_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => pieces.push(span),
        }
    }
    let mut jobs = Vec::with_capacity(2 * pieces.len());
    for (index, piece) in (0..).zip(&pieces) {
        let job = |planned_ns: u64, end_ns: u64, index| JobRecord {
            index,
            planned_ns,
            wake_ns: end_ns,
            start_ns: end_ns,
            end_ns,
            ..JobRecord::default()
        };
        // Nothing is owed from before a piece: a job that was over when it began.
        let begun_ns = piece.from_ns.saturating_sub(1);
        jobs.extend([job(begun_ns, begun_ns, u64::MAX), job(piece.from_ns, piece.to_ns, index)]);
    }
    let all = Thresholds { lateness_ns: 0, response_ns: Some(u64::MAX), windows: jobs.len() };
    let report = analyse_with(trace, tid, &jobs, &all)?;
    let found = |span: &Span| {
        let piece = pieces.partition_point(|piece| piece.from_ns <= span.from_ns).checked_sub(1)? as u64;
        report.windows.iter().find(|late| late.index == piece && span.from_ns < span.to_ns).cloned()
    };
    Ok(spans.iter().map(found).collect())
}
