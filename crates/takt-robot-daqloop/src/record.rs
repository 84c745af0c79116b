//! Records of the loop.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeRecord {
    /// Number of the edge, from 0.
    pub index: u64,
    /// When it was written to the output (CLOCK_MONOTONIC).
    pub sent_ns: u64,
    /// When it was seen at the input; for an edge that never came, when waiting for it ended.
    pub received_ns: u64,
    /// The paper's latency, by [`Stamp`](crate::Stamp): from the arrival of the previous edge, or
    /// from the write.
    pub latency_ns: u64,
    /// Execution time of the controller that ran before this edge was written; 0 without one.
    pub controller_ns: u64,
    /// The level that was sent, volts.
    pub level_v: f32,
    /// Number of times that the link sent it again.
    pub resends: u32,
    /// The longest time from one poll of the input to the next while this edge was waited for: the
    /// loop itself was held up then, and not the link. 0 where nobody recorded it.
    pub stall_ns: u64,
    /// When that began (CLOCK_MONOTONIC).
    pub stall_from_ns: u64,
    /// Whether it came. An edge that did not counts as a miss, never as a short latency.
    pub arrived: bool,
}

impl EdgeRecord {
    /// From the output's write to the arrival: output, wire and input alone.
    pub fn link_ns(&self) -> u64 {
        self.received_ns.saturating_sub(self.sent_ns)
    }
}

/// Reason of a loop's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
pub enum Ended {
    /// The configured time has passed.
    Duration,
    /// The configured number of edges has been sent.
    Edges,
    Asked,
    /// The link broke; its words.
    Link(String),
    /// Too many edges in a row did not come.
    NoAnswer(String),
}

impl Ended {
    /// The problem, if any.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Duration | Self::Edges | Self::Asked => None,
            Self::Link(reason) | Self::NoAnswer(reason) => Some(reason),
        }
    }
}

/// Sums that the acquisition task itself keeps: complete even where a ring was full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Edges that came.
    pub edges: u64,
    /// Edges that did not.
    pub lost_edges: u64,
    /// Levels that the link sent again.
    pub resends: u64,
    /// Least latency; `u64::MAX` without an edge.
    pub min_ns: u64,
    /// Greatest latency of the edges that came.
    pub max_ns: u64,
    /// Edges during which somebody set the clock that counts them; 0 under CLOCK_MONOTONIC.
    #[serde(default)]
    pub clock_steps: u64,
    /// Sum of the latencies.
    pub sum_ns: u128,
    /// Greatest execution time of the controller.
    pub controller_max_ns: u64,
    /// Sum of the controller's execution times.
    pub controller_sum_ns: u128,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            edges: 0,
            lost_edges: 0,
            resends: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            clock_steps: 0,
            sum_ns: 0,
            controller_max_ns: 0,
            controller_sum_ns: 0,
        }
    }
}

impl Totals {
    /// Takes an edge in.
    pub fn add(&mut self, edge: &EdgeRecord) {
        self.resends += u64::from(edge.resends);
        self.controller_max_ns = self.controller_max_ns.max(edge.controller_ns);
        self.controller_sum_ns += u128::from(edge.controller_ns);
        if !edge.arrived {
            self.lost_edges += 1;
            return;
        }
        self.edges += 1;
        self.min_ns = self.min_ns.min(edge.latency_ns);
        self.max_ns = self.max_ns.max(edge.latency_ns);
        self.sum_ns += u128::from(edge.latency_ns);
    }

    /// Mean latency.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.edges > 0).then(|| self.sum_ns as f64 / self.edges as f64)
    }

    /// Mean execution time of the controller.
    pub fn controller_mean_ns(&self) -> Option<f64> {
        let turns = self.edges + self.lost_edges;
        (turns > 0).then(|| self.controller_sum_ns as f64 / turns as f64)
    }
}

/// Quality of the control: by the account of the plant itself, each millisecond of its time; behind
/// a board by the readings of its sensors, each iteration of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracking {
    /// Number of error samples.
    pub steps: u64,
    /// Root of the mean squared error of the last half to three quarters of them (what came before
    /// may be transient); in the plant's unit.
    pub rms_error: f64,
    pub last_error: f64,
    /// Greatest error of the same steps.
    pub max_error: f64,
}

/// Forbidden events of the acquisition task, from its hundredth edge to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults served from storage.
    pub major_faults: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Allocations and frees; for tests, 0 unless `takt_rt::proof` counts them.
    #[serde(skip)]
    pub allocations: u64,
}
