//! Recorders: curves from streams of events, in bounded memory and with no allocation once warm.
//!
//! Both curves are extremes over windows of consecutive events. A recorder keeps the last values of
//! a growing quantity (time, or execution time so far) and compares each new value with all of
//! them: `O(N)` per event, a loop without branches over two short arrays.
//!
//! **Forgetting.** A robot leaves the city for the countryside, and its model should follow.
//! Extremes are therefore kept in two generations: one that fills and one that is full; a curve
//! covers both. With a horizon `H`, nothing is forgotten before `H` and nothing kept beyond `2 H`
//! of activity.
//!
//! **Gaps.** After lost events no window may reach across: it would hold fewer events than really
//! happened, and the curve would be too good. [`ArrivalRecorder::gap`] and [`CostRecorder::gap`]
//! begin anew there and keep the extremes.

use crate::guard::{CostLimit, SpanLimit};
use crate::{ArrivalCurve, CostCurve};

/// A stamp that is earlier than the last one by more than this is a step of the clock and not
/// disorder among threads, whose events are read within milliseconds of each other.
pub const STEP_NS: u64 = 1_000_000_000;

/// Values of which the last `entries` stay contiguous: written twice as long as needed, moved down
/// when full.
#[derive(Debug, Clone)]
struct Tail {
    values: Vec<u64>,
    entries: usize,
}

impl Tail {
    fn new(entries: usize) -> Self {
        Self { values: Vec::new(), entries }
    }

    fn push(&mut self, value: u64) {
        if self.values.len() >= 2 * self.entries {
            let from = self.values.len() - (self.entries - 1);
            self.values.copy_within(from.., 0);
            self.values.truncate(self.entries - 1);
        }
        self.values.push(value);
    }

    fn last(&self) -> &[u64] {
        &self.values[self.values.len().saturating_sub(self.entries)..]
    }
}

/// Extremes of differences in two generations.
#[derive(Debug, Clone)]
struct Extremes {
    tail: Tail,
    filling: Vec<u64>,
    full: Vec<u64>,
    since_ns: u64,
}

impl Extremes {
    fn new(entries: usize, since_ns: u64) -> Self {
        Self { tail: Tail::new(entries.max(1)), filling: Vec::new(), full: Vec::new(), since_ns }
    }

    /// Compares `value` with those before it and remembers it.
    #[inline]
    fn push(&mut self, value: u64, better: impl Fn(u64, u64) -> u64) {
        let before = self.tail.last();
        let known = self.filling.len().min(before.len());
        for (extreme, &old) in self.filling.iter_mut().zip(before.iter().rev()) {
            *extreme = better(*extreme, value - old);
        }
        self.filling.extend(before.iter().rev().skip(known).map(|&old| value - old));
        self.tail.push(value);
    }

    fn turn(&mut self, now_ns: u64, horizon_ns: Option<u64>) {
        self.since_ns = self.since_ns.min(now_ns);
        if horizon_ns.is_some_and(|horizon| now_ns.saturating_sub(self.since_ns) >= horizon) {
            std::mem::swap(&mut self.filling, &mut self.full);
            self.filling.clear();
            self.since_ns = now_ns;
        }
    }

    fn merged(&self, better: impl Fn(u64, u64) -> u64) -> Vec<u64> {
        let entries = self.filling.len().max(self.full.len());
        (0..entries)
            .filter_map(|i| match (self.filling.get(i), self.full.get(i)) {
                (Some(&a), Some(&b)) => Some(better(a, b)),
                (a, b) => a.or(b).copied(),
            })
            .collect()
    }
}

/// Records when events happen: the shortest span of every number of consecutive events up to
/// `events`.
#[derive(Debug, Clone)]
pub struct ArrivalRecorder {
    extremes: Extremes,
    horizon_ns: Option<u64>,
    started_ns: u64,
    last_ns: Option<u64>,
    seen: u64,
    backwards: u64,
    limit: Option<Box<SpanLimit>>,
}

impl ArrivalRecorder {
    /// Spans of up to `events` events, observed from `started_ns` on.
    #[must_use]
    pub fn new(events: usize, horizon_ns: Option<u64>, started_ns: u64) -> Self {
        let extremes = Extremes::new(events.max(2) - 1, started_ns);
        Self { extremes, horizon_ns, started_ns, last_ns: None, seen: 0, backwards: 0, limit: None }
    }

    /// One event. A stamp a little before the last one is disorder: it counts as simultaneous with
    /// it, which makes spans shorter. One that is more than [`STEP_NS`] earlier is a step of the
    /// clock: no span reaches across.
    pub fn record(&mut self, at_ns: u64) {
        let mut at_ns = at_ns;
        if let Some(last_ns) = self.last_ns.filter(|&last_ns| at_ns < last_ns) {
            self.backwards += 1;
            if last_ns - at_ns > STEP_NS {
                self.gap();
            } else {
                at_ns = last_ns;
            }
        }
        self.last_ns = Some(at_ns);
        self.seen += 1;
        self.extremes.turn(at_ns, self.horizon_ns);
        self.extremes.push(at_ns, u64::min);
        self.hold_against(at_ns);
    }

    /// Holds an event against the limit that is not one of the curve.
    pub(crate) fn hold_against(&mut self, at_ns: u64) {
        if let Some(limit) = &mut self.limit {
            limit.see(at_ns);
        }
    }

    /// Holds every event from now on against these spans, those before it in the same window
    /// included; `None`: no longer.
    pub fn limit(&mut self, limit: Option<SpanLimit>) {
        let before = self.limit.take();
        self.limit = limit.map(|limit| {
            Box::new(match &before {
                Some(before) => limit.after(before),
                None => limit.after_events(self.extremes.tail.last().iter().copied()),
            })
        });
    }

    /// First excess since the last call.
    pub fn excess(&mut self) -> Option<crate::guard::Excess> {
        self.limit.as_mut()?.take()
    }

    /// Events may be missing here.
    pub fn gap(&mut self) {
        self.extremes.tail.values.clear();
        if let Some(limit) = &mut self.limit {
            limit.gap();
        }
    }

    /// One like it that has seen nothing.
    #[must_use]
    pub fn empty(&self) -> Self {
        Self::new(self.extremes.tail.entries + 1, self.horizon_ns, self.started_ns)
    }

    /// Observation begins no sooner than at `at_ns`; without effect once something was seen.
    pub(crate) fn observed_from(&mut self, at_ns: u64) {
        if self.seen == 0 {
            self.started_ns = self.started_ns.max(at_ns);
        }
    }

    /// Events seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// When the last event was.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.last_ns
    }

    /// The median time between the last events; `None` before the second.
    #[must_use]
    pub(crate) fn median_gap_ns(&self) -> Option<u64> {
        let mut gaps: Vec<u64> = self.extremes.tail.last().windows(2).map(|w| w[1] - w[0]).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    }

    /// Stamps that stepped back.
    #[must_use]
    pub fn backwards(&self) -> u64 {
        self.backwards
    }

    /// The curve at `now_ns`.
    ///
    /// Two rare events in short succession must not look periodic: so few were seen since the
    /// start, and one more takes at least as long as all that time (section V.c). The paper counts
    /// the start as an event like any other; here it is one only in the window that holds all
    /// events seen, or the first event soon after the start would pass for a burst.
    #[must_use]
    pub fn curve(&self, now_ns: u64) -> ArrivalCurve {
        let mut least_span_ns = self.extremes.merged(u64::min);
        let all_in_one_window = self.seen == least_span_ns.len() as u64 + 1;
        if let Some(last_ns) = self.last_ns.filter(|_| all_in_one_window)
            && least_span_ns.len() < self.extremes.tail.entries
        {
            let least_ns = least_span_ns.last().copied().unwrap_or(0);
            least_span_ns.push(last_ns.saturating_sub(self.started_ns).max(least_ns));
        }
        ArrivalCurve { least_span_ns, seen: self.seen, observed_ns: now_ns.saturating_sub(self.started_ns) }
    }
}

/// Records execution times: the most that every number of consecutive activations up to
/// `activations` took together.
#[derive(Debug, Clone)]
pub struct CostRecorder {
    extremes: Extremes,
    horizon_ns: Option<u64>,
    total_ns: u64,
    seen: u64,
    cpu_time: bool,
    limit: Option<Box<CostLimit>>,
}

impl CostRecorder {
    /// Sums of up to `activations` activations.
    #[must_use]
    pub fn new(activations: usize, horizon_ns: Option<u64>, started_ns: u64) -> Self {
        let mut extremes = Extremes::new(activations.max(1), started_ns);
        extremes.tail.push(0);
        Self { extremes, horizon_ns, total_ns: 0, seen: 0, cpu_time: true, limit: None }
    }

    /// One activation that ended at `at_ns` and took `took_ns`, by the thread's CPU clock or
    /// (`cpu_time` false) by the wall clock.
    pub fn record(&mut self, at_ns: u64, took_ns: u64, cpu_time: bool) {
        self.cpu_time &= cpu_time;
        self.seen += 1;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.extremes.turn(at_ns, self.horizon_ns);
        self.extremes.push(self.total_ns, u64::max);
        if let Some(limit) = &mut self.limit {
            limit.see(at_ns, took_ns);
        }
    }

    /// The same of one that says nothing about others: it is held against the limit, and is no part
    /// of the curve where there is one.
    pub(crate) fn record_apart(&mut self, at_ns: u64, took_ns: u64, cpu_time: bool) {
        if self.extremes.filling.is_empty() && self.extremes.full.is_empty() {
            return self.record(at_ns, took_ns, cpu_time);
        }
        self.seen += 1;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.extremes.tail.values.clear();
        self.extremes.tail.push(self.total_ns);
        self.hold_against(at_ns, took_ns);
    }

    /// Holds one against the limit that is not one of the curve.
    pub(crate) fn hold_against(&mut self, at_ns: u64, took_ns: u64) {
        if let Some(limit) = &mut self.limit {
            limit.see(at_ns, took_ns);
        }
    }

    /// Execution beyond the limit since the last call, if it goes to an account.
    pub(crate) fn beyond(&mut self) -> Vec<crate::guard::Beyond> {
        self.limit.as_mut().map(|limit| limit.take_beyond()).unwrap_or_default()
    }

    /// Holds every activation from now on against these execution times, together with those
    /// before it in a row; `None`: no longer.
    pub fn limit(&mut self, limit: Option<CostLimit>) {
        let before = self.limit.take();
        self.limit = limit.map(|limit| {
            Box::new(match &before {
                Some(before) => limit.after(before),
                None => limit.after_totals(self.extremes.tail.last().iter().copied()),
            })
        });
    }

    /// First excess since the last call.
    pub fn excess(&mut self) -> Option<crate::guard::Excess> {
        self.limit.as_mut()?.take()
    }

    /// Activations may be missing here.
    pub fn gap(&mut self) {
        self.extremes.tail.values.clear();
        self.extremes.tail.push(self.total_ns);
        if let Some(limit) = &mut self.limit {
            limit.gap();
        }
    }

    /// Activations seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Execution time of all of them.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    #[must_use]
    pub fn curve(&self) -> CostCurve {
        let mut most_ns = self.extremes.merged(u64::max);
        // After a gap or a turn of generations, long windows may be older than the longest single
        // activation: a window never takes less than a part of it.
        let mut most = 0;
        for entry in &mut most_ns {
            most = (*entry).max(most);
            *entry = most;
        }
        CostCurve {
            most_ns,
            seen: self.seen,
            total_ns: self.total_ns,
            cpu_time: self.cpu_time && self.seen > 0,
        }
    }
}

/// Records the greatest of some number, with the same forgetting.
#[derive(Debug, Clone, Copy, Default)]
pub struct GreatestRecorder {
    filling: u64,
    full: u64,
    since_ns: Option<u64>,
}

impl GreatestRecorder {
    /// One value, seen at `at_ns`.
    pub fn record(&mut self, at_ns: u64, value: u64, horizon_ns: Option<u64>) {
        let since_ns = self.since_ns.get_or_insert(at_ns);
        if horizon_ns.is_some_and(|horizon_ns| at_ns.saturating_sub(*since_ns) >= horizon_ns) {
            (self.full, self.filling, *since_ns) = (self.filling, 0, at_ns);
        }
        self.filling = self.filling.max(value);
    }

    #[must_use]
    pub fn most(&self) -> u64 {
        self.filling.max(self.full)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(stamps: &[u64], events: usize) -> Vec<u64> {
        (2..=events.min(stamps.len()))
            .map(|n| stamps.windows(n).map(|w| w[n - 1] - w[0]).min().unwrap())
            .collect()
    }

    fn sums(costs: &[u64], activations: usize) -> Vec<u64> {
        (1..=activations.min(costs.len()))
            .map(|n| costs.windows(n).map(|w| w.iter().sum()).max().unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn arrivals_equal_brute_force(gaps in proptest::collection::vec(0u64..1000, 0..200), events in 2usize..40) {
            let mut recorder = ArrivalRecorder::new(events, None, 5);
            let (mut stamps, mut at) = (vec![], 5);
            for gap in gaps {
                at += gap;
                stamps.push(at);
                recorder.record(at);
            }
            let curve = recorder.curve(10_000_000);
            let mut expected = spans(&stamps, events);
            if !stamps.is_empty() && stamps.len() < events {
                expected.push(at - 5);
            }
            prop_assert_eq!(&curve.least_span_ns, &expected);
            prop_assert_eq!(curve.seen, stamps.len() as u64);
        }

        #[test]
        fn costs_equal_brute_force(costs in proptest::collection::vec(0u64..1000, 0..200), n in 1usize..40) {
            let mut recorder = CostRecorder::new(n, None, 0);
            for (i, &cost) in costs.iter().enumerate() {
                recorder.record(i as u64, cost, true);
            }
            prop_assert_eq!(recorder.curve().most_ns, sums(&costs, n));
        }

        /// Whatever is forgotten, what happened within the horizon is covered.
        #[test]
        fn the_horizon_is_covered(
            events in proptest::collection::vec((1u64..50, 0u64..1000), 1..300), horizon in 20u64..2000, n in 2usize..20,
        ) {
            let mut arrivals = ArrivalRecorder::new(n, Some(horizon), 0);
            let mut costs = CostRecorder::new(n, Some(horizon), 0);
            let (mut now, mut seen) = (0, Vec::new());
            for (gap, cost) in events {
                now += gap;
                arrivals.record(now);
                costs.record(now, cost, true);
                seen.push((now, cost));
            }
            let recent: Vec<(u64, u64)> = seen.into_iter().filter(|&(at, _)| at + horizon >= now).collect();
            let stamps: Vec<u64> = recent.iter().map(|&(at, _)| at).collect();
            let took: Vec<u64> = recent.iter().map(|&(_, cost)| cost).collect();
            let (spans, least) = (spans(&stamps, n), arrivals.curve(now).least_span_ns);
            for (i, span) in spans.iter().enumerate() {
                prop_assert!(least[i] <= *span, "{} events: {} > {span}", i + 2, least[i]);
            }
            let (sums, most) = (sums(&took, n), costs.curve().most_ns);
            for (i, sum) in sums.iter().enumerate() {
                prop_assert!(most[i] >= *sum);
            }
            prop_assert!(least.is_sorted() && most.is_sorted());
        }
    }

    #[test]
    fn two_rare_events_do_not_look_periodic() {
        let mut recorder = ArrivalRecorder::new(64, None, 0);
        recorder.record(100_000_000_000);
        recorder.record(100_100_000_000);
        assert_eq!(recorder.curve(100_200_000_000).least_span_ns, [100_000_000, 100_100_000_000]);
    }

    #[test]
    fn what_is_kept_apart_is_in_no_window_and_held_against_the_limit() {
        let mut recorder = CostRecorder::new(3, None, 0);
        // Nothing else is known of it.
        recorder.record_apart(1, 5, true);
        assert_eq!(recorder.curve().most_ns, [5]);
        recorder.limit(Some(CostLimit::new(vec![10, 20])));
        recorder.record(2, 6, true);
        recorder.record_apart(3, 50, true);
        recorder.record(4, 7, true);
        recorder.record(5, 8, true);
        assert_eq!(recorder.curve().most_ns, [8, 15]);
        assert_eq!(recorder.excess().map(|excess| excess.seen_ns), Some(50));
        assert_eq!((recorder.seen(), recorder.total_ns()), (5, 76));
    }

    #[test]
    fn no_window_reaches_across_a_gap() {
        let mut recorder = ArrivalRecorder::new(8, None, 0);
        for at in [10, 20, 30] {
            recorder.record(at);
        }
        recorder.gap();
        recorder.record(31);
        assert_eq!(recorder.curve(40).least_span_ns, [10, 20]);
        recorder.record(33);
        assert_eq!(recorder.curve(40).least_span_ns, [2, 20]);
        let mut costs = CostRecorder::new(8, None, 0);
        for cost in [5, 6, 7] {
            costs.record(0, cost, true);
        }
        costs.gap();
        costs.record(0, 20, true);
        assert_eq!(costs.curve().most_ns, [20, 20, 20]);
    }

    #[test]
    fn a_stamp_that_steps_back_makes_spans_shorter() {
        let mut recorder = ArrivalRecorder::new(8, None, 0);
        recorder.record(10);
        recorder.record(9);
        assert_eq!((recorder.curve(20).least_span_ns, recorder.backwards()), (vec![0, 10], 1));
    }

    #[test]
    fn a_step_of_the_clock_is_a_gap() {
        let mut recorder = ArrivalRecorder::new(8, Some(50), 0);
        for at in [10, u64::MAX, 20, 27] {
            recorder.record(at);
        }
        assert_eq!(recorder.curve(30).least_span_ns[0], 7);
        assert_eq!(recorder.median_gap_ns(), Some(7));
        assert_eq!(recorder.backwards(), 1);
    }

    #[test]
    fn quiet_times_are_learnt() {
        let mut costs = CostRecorder::new(4, Some(1000), 0);
        costs.record(1, 1_000_000, true);
        for at in (100..3100).step_by(100) {
            costs.record(at, 10, true);
        }
        assert_eq!(costs.curve().most_ns, [10, 20, 30, 40]);
    }
}
