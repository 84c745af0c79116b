//! Time that a thread is charged with while its CPU did not run: a timer of that CPU was due, and
//! its interrupt did not come.

use std::collections::HashMap;

use crate::event::{Kind, Span, Trace, Vector};

/// An interrupt that comes later than this after its timer was due came late. Some 10 us are usual
/// in a virtual machine.
const LATE_NS: u64 = 100_000;

/// For how long in `span`, nanoseconds, thread `tid` had a CPU on which nothing happened though a
/// timer was due.
pub fn stood_still_ns(trace: &Trace, tid: i32, span: Span) -> u64 {
    // By its address: where it was set, and when it is due.
    let mut timers: HashMap<u64, (u16, u64)> = HashMap::new();
    // By CPU: the last event, and whose it was.
    let mut last: HashMap<u16, (u64, i32)> = HashMap::new();
    let mut ends = trace.spans.iter().map(|span| span.to_ns).peekable();
    let mut stood_ns = 0;
    // Events before the part of the trace that holds the span say nothing about it.
    let begun = trace.spans.iter().rev().find(|part| part.from_ns <= span.from_ns);
    let from_ns = begun.map_or(0, |part| part.from_ns);
    let first = trace.events.partition_point(|event| event.time_ns < from_ns);
    for event in
        trace.events[first..].iter().take_while(|event| event.time_ns <= span.to_ns.saturating_add(LATE_NS))
    {
        // The next events do not follow the last ones.
        while ends.next_if(|&end_ns| end_ns < event.time_ns).is_some() {
            timers.clear();
            last.clear();
        }
        let before = last.insert(event.cpu, (event.time_ns, event.tid));
        match event.kind {
            Kind::TimerStart { timer, expires_ns, .. } => {
                timers.insert(timer, (event.cpu, expires_ns));
            }
            Kind::TimerCancel { timer } | Kind::TimerExpireEntry { timer, .. } => {
                timers.remove(&timer);
            }
            Kind::Lost { .. } => timers.clear(),
            Kind::VectorEntry(Vector::LocalTimer) => {
                let due = timers.values().filter(|timer| timer.0 == event.cpu).map(|timer| timer.1).min();
                if let (Some(due_ns), Some((before_ns, who))) = (due, before)
                    && (who, event.tid) == (tid, tid)
                    && event.time_ns.saturating_sub(due_ns.max(before_ns)) >= LATE_NS
                {
                    let from_ns = due_ns.max(before_ns).max(span.from_ns);
                    stood_ns += event.time_ns.min(span.to_ns).saturating_sub(from_ns);
                }
            }
            _ => {}
        }
    }
    stood_ns
}
