//! Chains that begin on another machine: what their latencies are true to, and what can be said of
//! them.

use takt_model::Outside;
use takt_ros::Source;
use takt_rt::clock::monotonic_ns;

use super::{ChainStatus, Live};
use crate::clocks::ClockError;
use crate::clocks::roundtrip::realtime_ns;
use crate::manager::{against, outside_topic};
use crate::plan::Plan;
use crate::system::Kernel;

/// Two readings of clocks take less than this where nothing comes between.
const NARROW_NS: u64 = 2_000;

/// Lead of the time-of-day clock over the monotonic one. A thread may be preempted between two
/// readings, so the narrowest of a few is used.
pub(super) fn ahead_ns() -> i64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..8 {
        let before_ns = monotonic_ns();
        let wall_ns = realtime_ns();
        let width_ns = monotonic_ns().saturating_sub(before_ns);
        if width_ns < best.0 {
            best = (width_ns, wall_ns.saturating_sub_unsigned(before_ns + width_ns / 2));
        }
        if width_ns < NARROW_NS {
            break;
        }
    }
    #[cfg(test)]
    let best = (best.0, best.1 + planted::SET_BY_NS.get());
    best.1
}

impl<S: Source, K: Kernel> Live<S, K> {
    /// The clocks as they are known now.
    pub(super) fn look_at_clocks(&mut self) {
        let Some(watch) = &self.clocks else { return };
        self.clock = watch.error();
        self.extractor.clock_error(self.clock.error_ns);
        if let Some(plan) = self.plan.take() {
            self.allow_for_clocks(&plan);
            self.plan = Some(plan);
        }
    }

    /// Reports the measurements of this plan's chains how far the clocks are apart.
    pub(super) fn allow_for_clocks(&mut self, plan: &Plan) {
        // When that is no longer known nothing more begins to be measured; what is under way began
        // when it was.
        let Some(error_ns) = self.clock.error_ns else { return };
        for index in 0..self.ledger.chains.len() {
            let foreign = self.begins_outside_by(plan, index).is_some();
            for id in self.watched.get(&index).into_iter().flatten().map(|watched| watched.id) {
                if let Some(stats) = self.extractor.watched_mut(id) {
                    stats.clock_error_ns = if foreign { error_ns } else { 0 };
                }
            }
        }
    }

    /// Knowledge about the messages from other machines with which a chain begins; `None`: it
    /// begins here.
    fn begins_outside(&self, index: usize) -> Option<Outside> {
        self.begins_outside_by(self.plan.as_ref()?, index)
    }

    fn begins_outside_by(&self, plan: &Plan, index: usize) -> Option<Outside> {
        self.clocks.as_ref()?;
        let path = &plan.chains.get(index)?.path;
        outside_topic(&self.model, path.first()?.0).map(|topic| topic.outside)
    }

    /// Reason why a chain is not guaranteed because it begins on another machine.
    pub(super) fn network_against(&self, index: usize) -> Option<String> {
        let outside = self.begins_outside(index)?;
        against(outside, self.manager.goals().network.as_ref()?.bound_ns)
    }

    /// Fills in what latencies of a chain are true to.
    pub(super) fn report_clock(&self, index: usize, status: &mut ChainStatus) {
        if self.begins_outside(index).is_some() {
            let measured = self.watch_ids(index).filter_map(|id| self.extractor.watched(id));
            let most_ns = measured.filter(|stats| stats.completions + stats.repeated > 0);
            // Its longest latency stands for the whole run, and so does the error.
            let most_ns = most_ns.map(|stats| stats.most_clock_error_ns).max();
            let reported_ns = self.clock.error_ns.max(most_ns);
            status.clock_error_ms = reported_ns.map(|ns| ns as f64 / 1e6);
            status.clock_error_by = match reported_ns == self.clock.error_ns {
                true => self.clock.by.clone(),
                false => format!("the greatest error in this run; now: {}", self.clock.by),
            };
        }
    }

    /// Bounds in a chain's measurement allow for the clock error, in both directions.
    pub(super) fn promise(&mut self, now_ns: u64) {
        for (&index, paths) in &self.watched {
            let bound_ns = self.ledger.promise(index);
            let best_ns = bound_ns.and(self.ledger.chains.get(index).and_then(|chain| chain.jitter.best_ns));
            for watched in paths {
                if let Some(stats) = self.extractor.watched_mut(watched.id) {
                    let error_ns = stats.clock_error_ns;
                    stats.promise(now_ns, bound_ns.map(|ns| ns.saturating_add(error_ns)));
                    stats.spread.promise(now_ns, best_ns.map(|ns| ns.saturating_sub(error_ns)));
                }
            }
        }
    }
}

/// A line for each chain that begins on another machine, for people.
pub(super) fn lines(chains: &[ChainStatus]) -> String {
    let foreign = chains.iter().filter(|chain| !chain.clock_error_by.is_empty());
    let lines = foreign.map(|chain| match chain.clock_error_ms {
        Some(error_ms) => format!(
            "{} begins on another machine: its latencies are accurate to {error_ms:.3} ms ({})\n",
            chain.name, chain.clock_error_by
        ),
        None => format!(
            "{} begins on another machine: its latencies are unknown ({})\n",
            chain.name, chain.clock_error_by
        ),
    });
    lines.collect()
}

/// The watch of the clocks that the goals ask for.
pub(super) fn watch(goals: &crate::Goals) -> (Option<crate::clocks::Watch>, ClockError) {
    let watch = goals.network.as_ref().map(crate::clocks::Watch::start);
    let error = watch.as_ref().map(crate::clocks::Watch::error).unwrap_or_default();
    (watch, error)
}

/// Steps of the day's clock, for tests.
#[cfg(test)]
pub(super) mod planted {
    use std::cell::Cell;

    thread_local! {
        /// By so much the day's clock was set on this thread.
        pub static SET_BY_NS: Cell<i64> = const { Cell::new(0) };
    }
}
