//! Arrival curves and cumulative execution-time curves, as plain numbers.

use serde::{Deserialize, Serialize};

/// An arrival curve, as its inverse: the shortest time in which so many events were ever seen
/// (*ROS-Llama*, section II.d). Concave extrapolation beyond the last entry is the analysis'
/// business.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArrivalCurve {
    /// Entry `i`: the shortest time from the first to the last of `i + 2` consecutive events,
    /// nanoseconds, not decreasing. The start of the system counts as one event where all events
    /// seen lie in one window (section V.c), so that a few rare events do not look periodic.
    pub least_span_ns: Vec<u64>,
    /// Events seen, without the virtual one.
    pub seen: u64,
    /// From the start of observation to the end of it.
    pub observed_ns: u64,
}

impl ArrivalCurve {
    /// Both curves hold: the shorter span of each number of events.
    #[must_use]
    pub fn denser(&self, other: &Self) -> Self {
        let entries = self.least_span_ns.len().max(other.least_span_ns.len());
        let mut span_ns = 0;
        let least = |i: usize| {
            let spans = [&self.least_span_ns, &other.least_span_ns].map(|spans| spans.get(i).copied());
            // Curves of a file may decrease: no window is shorter than a part of it.
            span_ns = spans.into_iter().flatten().min().unwrap_or(0).max(span_ns);
            span_ns
        };
        Self {
            least_span_ns: (0..entries).map(least).collect(),
            seen: self.seen.max(other.seen),
            observed_ns: self.observed_ns.max(other.observed_ns),
        }
    }
}

/// A cumulative execution-time curve `ET+(n)`: the greatest execution time that `n` consecutive
/// activations ever took together (*ROS-Llama*, section V.b).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CostCurve {
    /// Entry `i`: for `i + 1` consecutive activations, nanoseconds, not decreasing.
    pub most_ns: Vec<u64>,
    /// Activations seen.
    pub seen: u64,
    /// Execution time of all of them.
    pub total_ns: u64,
    /// From the thread's CPU clock; otherwise from wall time, which contains preemption.
    pub cpu_time: bool,
}
