//! A chain's record against its jitter goal.

use takt_model::{ChainStats, Exceeded, Range};

use super::ChainStatus;
use super::evidence::{Evidence, Observed};
use super::observations::Planned;
use crate::plan::ChainPlan;

/// Jitter of one chain over the run.
#[derive(Debug, Clone, Default)]
pub(super) struct Jitter {
    pub goal_ns: Option<u64>,
    /// Best case of the plan in force.
    pub best_ns: Option<u64>,
    bound_ns: Option<u64>,
    /// Latencies while it was not given up: what the verdict is about.
    pub counted: Option<Range>,
    /// A latency below the best case that no later plan has taken in.
    below: Option<Exceeded>,
}

impl Jitter {
    pub fn new(goal_ns: Option<u64>) -> Self {
        Self { goal_ns, ..Self::default() }
    }

    /// A plan is in force. Whether its best case takes in what was below the one before.
    pub fn planned(&mut self, plan: &ChainPlan) -> bool {
        self.best_ns = plan.jitter.as_ref().map(|jitter| jitter.best_ns);
        self.bound_ns = plan.jitter.as_ref().and_then(|jitter| jitter.bound_ns);
        let taken_in = self.below.is_some_and(|below| self.best_ns.is_none_or(|ns| ns <= below.latency_ns()));
        if taken_in {
            self.below = None;
        }
        taken_in
    }

    /// A latency was below the best case: the shortest counts.
    pub fn keep(&mut self, below: Exceeded) {
        if self.below.is_none_or(|known| known.latency_ns() > below.latency_ns()) {
            self.below = Some(below);
        }
    }

    /// How [`Assumption::Shortest`](super::Assumption::Shortest) stands.
    pub fn observed(&self, planned: &Planned) -> Observed<'_> {
        match self.below {
            Some(below) => Observed::Broken(Evidence::Below(below)),
            None => planned.measured(),
        }
    }

    /// Fills in what is said of it.
    pub fn fill(&self, status: &mut ChainStatus) {
        let ms = |ns: u64| ns as f64 / 1e6;
        status.jitter_goal_ms = self.goal_ns.map(ms);
        status.jitter_bound_ms = self.bound_ns.map(ms);
        status.best_case_ms = self.best_ns.map(ms);
        status.run.jitter_ms = self.counted.map(|range| ms(range.width_ns()));
    }
}

/// Measured jitter, over all paths that the chain took.
pub(super) fn measure(status: &mut ChainStatus, paths: &[&ChainStats]) {
    let all = |of: fn(&ChainStats) -> Option<Range>| {
        let mut range = None;
        paths.iter().for_each(|stats| Range::widen(&mut range, of(stats)));
        range
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let latencies = all(|stats| stats.spread.latencies);
    status.jitter_ms = latencies.map(|range| ms(range.width_ns()));
    status.best_ms = latencies.map(|range| ms(range.shortest_ns));
    status.period_jitter_ms = all(|stats| stats.spread.gaps).map(|range| ms(range.width_ns()));
}

/// Reason why the verdict on a chain is FAIL for its jitter.
pub(super) fn missed(status: &ChainStatus) -> Option<String> {
    let (goal_ms, jitter_ms) = (status.jitter_goal_ms?, status.run.jitter_ms?);
    (jitter_ms > goal_ms)
        .then(|| format!("its latencies were {jitter_ms:.3} ms apart, the jitter goal is {goal_ms:.3} ms"))
}

/// A line for each chain with a jitter goal, for people.
pub(super) fn lines(chains: &[ChainStatus]) -> String {
    let optional = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
    let lines = chains.iter().filter(|chain| chain.jitter_goal_ms.is_some()).map(|chain| {
        format!(
            "jitter of {}: goal {} ms, bound {}, measured {} (periods {})\n",
            chain.name,
            optional(chain.jitter_goal_ms),
            optional(chain.jitter_bound_ms),
            optional(chain.jitter_ms),
            optional(chain.period_jitter_ms),
        )
    });
    lines.collect()
}
