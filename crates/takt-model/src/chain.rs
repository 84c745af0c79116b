//! Measured end-to-end latencies of chains: what the bounds are held against.
//!
//! The extractor follows every message from the first callback of a watched chain to the end of the
//! last one, through the time stamps that join publications and takes. A chain's latency runs from
//! the **release** of its first callback (a timer's expiry, the publication of the message that
//! activates it, a source's publication), as the goals count it, to the **end** of its last.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Spread;

/// Instances under way that are remembered. More than this wait in no queue that ROS 2 has by
/// default (depth 10, a few callbacks).
const PENDING: usize = 1024;
/// Completions kept until they are drained: eleven minutes of a chain at 100 Hz.
const UNDRAINED: usize = 65_536;
const LOWEST_NS: u64 = 1000;
const HIGHEST_NS: u64 = 1 << 40;

/// A chain to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainSpec {
    /// Its name for people.
    pub name: String,
    /// Its callbacks, by their names in the model ([`crate::Callback::name`]).
    pub path: Vec<String>,
    /// Its goal; without one nothing is a violation.
    pub goal_ns: Option<u64>,
}

/// One instance that came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The release of its first callback, CLOCK_MONOTONIC nanoseconds.
    pub began_ns: u64,
    /// The end of its last.
    pub ended_ns: u64,
}

/// Releases of a timer that never ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The first of them, CLOCK_MONOTONIC nanoseconds.
    pub first_ns: u64,
    /// From one to the next.
    pub period_ns: u64,
    pub count: u64,
}

impl Skip {
    /// Those from `from_ns` on.
    pub(crate) fn since(self, from_ns: u64) -> Self {
        let before = from_ns.saturating_sub(self.first_ns).div_ceil(self.period_ns.max(1)).min(self.count);
        let first_ns = self.first_ns.saturating_add(before.saturating_mul(self.period_ns));
        Self { first_ns, count: self.count - before, ..self }
    }
}

/// A latency above the bound that had been promised for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    pub instance: Completion,
    /// The guaranteed bound.
    pub bound_ns: u64,
    /// So many instances, since this was last taken; the one reported here was the longest.
    pub times: u64,
}

impl Exceeded {
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        self.instance.ended_ns.saturating_sub(self.instance.began_ns)
    }
}

/// Promises remembered: instances take no longer than the time between this many plans.
const PROMISES: usize = 8;
/// Skips remembered until they are drained.
const SKIPS: usize = 1024;

/// A watched chain of one extractor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub usize);

/// Measurements of a chain.
#[derive(Debug, Clone)]
pub struct ChainStats {
    spec: ChainSpec,
    /// Releases of the first callback.
    pub began: u64,
    /// Instances that came to the end.
    pub completions: u64,
    /// Further ends of an instance that had one already (two messages from one activation).
    pub repeated: u64,
    /// Ends, repeated ones included, later than the goal.
    pub violations: u64,
    /// Instances that a later one passed: their message was dropped from a queue, or a callback did
    /// not publish.
    pub dropped: u64,
    /// Activations of the first callback that were not followed, because when their messages were
    /// published cannot be known.
    pub unmeasured: u64,
    /// The longest latency.
    pub worst_ns: u64,
    /// The last latency.
    pub last_ns: Option<u64>,
    /// Completions that nobody drained in time.
    pub undrained: u64,
    /// The release of the last instance that came to its end.
    pub last_began_ns: Option<u64>,
    /// When an instance last came to its end.
    pub last_ended_ns: Option<u64>,
    /// The longest time between two ends.
    pub longest_gap_ns: u64,
    /// Its jitter.
    pub spread: Spread,
    /// Its latencies are true to so much: it begins on another machine. An instance is late only
    /// beyond that.
    pub clock_error_ns: u64,
    /// The greatest of these under which a latency was measured.
    pub most_clock_error_ns: u64,
    /// Ends, repeated ones included, so close to the goal that the clocks' error leaves open
    /// whether they were late.
    pub in_doubt: u64,
    /// Releases of the first callback's timer that never ran, because the one before ran so late.
    pub skipped: u64,
    /// Instances under way when the recording stopped for a while, of which the end was not
    /// recorded and that were not late by then.
    pub unjudged: u64,
    /// The same of those that were late by then.
    pub late_at_gap: u64,
    /// Instances that began so long ago that the goal had passed, of which there were too many to
    /// be remembered.
    pub never_ended: u64,
    /// The longest unbroken run of instances that came late or never ran.
    pub longest_late_run: u64,
    late_run: u64,
    /// Instances go another way: what begins here is not awaited.
    retired: bool,
    /// The longest latency since the last call of [`ChainStats::take_recent`].
    recent_worst_ns: Option<u64>,
    /// Bounds that were promised, with the releases from which on: the oldest first.
    promises: VecDeque<(u64, Option<u64>)>,
    exceeded: Option<Exceeded>,
    skips: VecDeque<Skip>,
    latencies: Histogram<u64>,
    /// Sum of the latencies: five centuries of them.
    total_ns: u64,
    pending: VecDeque<u64>,
    /// Those under way at the last gap, and whether each is counted among [`Self::late_at_gap`].
    interrupted: VecDeque<(u64, bool)>,
    ended: VecDeque<Completion>,
}

impl ChainStats {
    pub(crate) fn new(spec: ChainSpec) -> Self {
        Self {
            spec,
            began: 0,
            completions: 0,
            repeated: 0,
            violations: 0,
            dropped: 0,
            unmeasured: 0,
            worst_ns: 0,
            last_ns: None,
            undrained: 0,
            last_began_ns: None,
            last_ended_ns: None,
            longest_gap_ns: 0,
            spread: Spread::default(),
            clock_error_ns: 0,
            most_clock_error_ns: 0,
            in_doubt: 0,
            skipped: 0,
            unjudged: 0,
            late_at_gap: 0,
            never_ended: 0,
            interrupted: VecDeque::new(),
            longest_late_run: 0,
            late_run: 0,
            retired: false,
            recent_worst_ns: None,
            promises: VecDeque::new(),
            exceeded: None,
            skips: VecDeque::new(),
            latencies: histogram(),
            total_ns: 0,
            pending: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    #[must_use]
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// Begins a new phase of measurement and returns the one that ends; instances under way count
    /// for the new one.
    pub fn take(&mut self) -> Self {
        let mut fresh = Self::new(self.spec.clone());
        fresh.pending = self.pending.clone();
        fresh.interrupted = self.interrupted.iter().map(|&(origin_ns, _)| (origin_ns, false)).collect();
        fresh.promises = self.promises.clone();
        fresh.spread = self.spread.afresh();
        fresh.clock_error_ns = self.clock_error_ns;
        fresh.retired = self.retired;
        std::mem::replace(self, fresh)
    }

    /// The ends since the last call, repeated ones included, oldest first. Without calls, the last
    /// 65,536 stay in memory.
    pub fn drain(&mut self) -> Vec<Completion> {
        self.ended.drain(..).collect()
    }

    /// Releases that never ran since the last call, oldest first.
    pub fn drain_skips(&mut self) -> Vec<Skip> {
        self.skips.drain(..).collect()
    }

    /// From `since_ns` on, instances are promised to take no longer than `bound_ns`; `None`:
    /// nothing is promised any more.
    pub fn promise(&mut self, since_ns: u64, bound_ns: Option<u64>) {
        if self.promises.back().is_none_or(|(_, last_ns)| *last_ns != bound_ns) {
            if self.promises.len() == PROMISES {
                self.promises.pop_front();
            }
            self.promises.push_back((since_ns, bound_ns));
        }
    }

    /// Latencies above what was promised, since the last call.
    pub fn take_exceeded(&mut self) -> Option<Exceeded> {
        self.exceeded.take()
    }

    /// The longest latency since the last call.
    pub fn take_recent(&mut self) -> Option<u64> {
        self.recent_worst_ns.take()
    }

    /// Whether instances are awaited at the end of this way. When that changes, those under way are
    /// forgotten: what began while they go another way never ends here.
    pub fn await_ends(&mut self, awaited: bool) {
        if self.retired == awaited {
            self.retired = !awaited;
            self.pending.clear();
            self.interrupted.clear();
        }
    }

    /// Instances under way for longer than the goal at `now_ns`.
    #[must_use]
    pub fn overdue(&self, now_ns: u64) -> usize {
        let Some(latest_ns) = self.latest_ns() else { return 0 };
        self.pending.iter().filter(|&&origin_ns| now_ns.saturating_sub(origin_ns) > latest_ns).count()
    }

    /// Latency above which an instance is certainly late.
    fn latest_ns(&self) -> Option<u64> {
        self.spec.goal_ns.map(|goal_ns| goal_ns.saturating_add(self.clock_error_ns))
    }

    /// Instances under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// A quantile of the latencies, to 0.1 %; `None` before the first.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        (!self.latencies.is_empty()).then(|| self.latencies.value_at_quantile(q).min(self.worst_ns))
    }

    /// Mean latency.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.latencies.len();
        (count > 0).then(|| self.total_ns as f64 / count as f64)
    }

    /// Number of latencies up to each of these bounds, as Prometheus counts (to 0.1 %).
    #[must_use]
    pub fn at_most(&self, bounds_ns: &[u64]) -> Vec<u64> {
        let mut order: Vec<usize> = (0..bounds_ns.len()).collect();
        order.sort_unstable_by_key(|&index| bounds_ns[index]);
        let mut counts = vec![0; bounds_ns.len()];
        // Each part of the histogram is summed up once, not once for every bound above it: it has
        // ten thousand places, and this is asked for every chain twice a second.
        let (mut count, mut from_ns) = (0, 0);
        for index in order {
            let bound_ns = bounds_ns[index];
            if bound_ns >= self.worst_ns {
                counts[index] = self.latencies.len();
                continue;
            }
            if bound_ns >= from_ns {
                count += self.latencies.count_between(from_ns, bound_ns);
                from_ns = self.latencies.next_non_equivalent(bound_ns);
            }
            counts[index] = count;
        }
        counts
    }

    /// The cumulative distribution: latency and share of ends up to it, for every latency seen (to
    /// 0.1 %).
    #[must_use]
    pub fn cdf(&self) -> Vec<(u64, f64)> {
        let all = self.latencies.len() as f64;
        let mut count = 0;
        self.latencies
            .iter_recorded()
            .map(|step| {
                count += step.count_at_value();
                (step.value_iterated_to().min(self.worst_ns), count as f64 / all)
            })
            .collect()
    }

    /// Positions of this callback in the path.
    pub(crate) fn positions(&self, name: &str) -> impl Iterator<Item = u32> {
        self.spec.path.iter().enumerate().filter(move |(_, step)| *step == name).map(|(i, _)| i as u32)
    }

    pub(crate) fn began(&mut self, origin_ns: u64) {
        if self.retired {
            return;
        }
        self.began += 1;
        if self.pending.len() >= PENDING
            && let Some(oldest_ns) = self.pending.pop_front()
        {
            match self.latest_ns().is_some_and(|latest_ns| origin_ns.saturating_sub(oldest_ns) > latest_ns) {
                true => self.never_ended += 1,
                false => self.dropped += 1,
            }
        }
        self.pending.push_back(origin_ns);
    }

    /// Nothing was recorded from `from_ns` on for a while. Instances under way are judged by that
    /// only if they were already late.
    pub(crate) fn gap(&mut self, from_ns: u64) {
        let latest_ns = self.latest_ns();
        for origin_ns in self.pending.drain(..) {
            let late = latest_ns.is_some_and(|latest_ns| from_ns.saturating_sub(origin_ns) > latest_ns);
            match late {
                true => self.late_at_gap += 1,
                false => self.unjudged += 1,
            }
            if self.interrupted.len() >= PENDING {
                self.interrupted.pop_front();
            }
            self.interrupted.push_back((origin_ns, late));
        }
        self.late_run = 0;
        self.last_ended_ns = None;
        self.spread.gap();
    }

    /// An instance that was under way at a gap came to its end after it; whether there is one.
    fn ends_after_gap(&mut self, origin_ns: u64) -> bool {
        let place = self.interrupted.iter().position(|(began_ns, _)| *began_ns == origin_ns);
        let Some((_, late)) = place.and_then(|place| self.interrupted.remove(place)) else { return false };
        let counted = if late { &mut self.late_at_gap } else { &mut self.unjudged };
        *counted = counted.saturating_sub(1);
        true
    }

    /// Releases that never ran. With `until_ns`, nothing was recorded from then on: the first may
    /// have run afterwards, and those that came after it passed by for certain.
    pub(crate) fn skipped(&mut self, skip: Skip, until_ns: Option<u64>) {
        let mut skip = skip;
        if let Some(until_ns) = until_ns
            && self.latest_ns().is_none_or(|latest_ns| until_ns.saturating_sub(skip.first_ns) <= latest_ns)
        {
            self.unjudged += 1;
            skip.first_ns = skip.first_ns.saturating_add(skip.period_ns);
            skip.count = skip.count.saturating_sub(1);
        }
        if skip.count == 0 {
            return;
        }
        self.skipped += skip.count;
        self.late_run += skip.count;
        self.longest_late_run = self.longest_late_run.max(self.late_run);
        if self.skips.len() == SKIPS {
            self.skips.pop_front();
        }
        self.skips.push_back(skip);
    }

    /// Holds an instance against what was promised for it.
    fn judge(&mut self, instance: Completion) {
        let promised = self.promises.iter().rev().find(|(since_ns, _)| *since_ns <= instance.began_ns);
        let Some((_, Some(bound_ns))) = promised.copied() else { return };
        let fresh = Exceeded { instance, bound_ns, times: 1 };
        if fresh.latency_ns() <= bound_ns {
            return;
        }
        self.exceeded = Some(match self.exceeded {
            Some(known) if known.latency_ns() >= fresh.latency_ns() => {
                Exceeded { times: known.times + 1, ..known }
            }
            Some(known) => Exceeded { times: known.times + 1, ..fresh },
            None => fresh,
        });
    }

    pub(crate) fn finished(&mut self, position: u32, origin_ns: u64, at_ns: u64) {
        if position as usize + 1 != self.spec.path.len() {
            return;
        }
        let latency_ns = at_ns.saturating_sub(origin_ns);
        self.latencies.saturating_record(latency_ns);
        self.total_ns = self.total_ns.saturating_add(latency_ns);
        self.worst_ns = self.worst_ns.max(latency_ns);
        self.last_ns = Some(latency_ns);
        self.recent_worst_ns = self.recent_worst_ns.max(Some(latency_ns));
        if let Some(before_ns) = self.last_ended_ns.replace(at_ns) {
            self.longest_gap_ns = self.longest_gap_ns.max(at_ns.saturating_sub(before_ns));
        }
        self.last_began_ns = self.last_began_ns.max(Some(origin_ns));
        self.judge(Completion { began_ns: origin_ns, ended_ns: at_ns });
        if self.ended.len() >= UNDRAINED {
            self.ended.pop_front();
            self.undrained += 1;
        }
        self.ended.push_back(Completion { began_ns: origin_ns, ended_ns: at_ns });
        let late = self.latest_ns().is_some_and(|latest_ns| latency_ns > latest_ns);
        self.most_clock_error_ns = self.most_clock_error_ns.max(self.clock_error_ns);
        let met_ns = self.spec.goal_ns.map(|goal_ns| goal_ns.saturating_sub(self.clock_error_ns));
        self.in_doubt += u64::from(!late && met_ns.is_some_and(|met_ns| latency_ns > met_ns));
        self.violations += u64::from(late);
        self.late_run = if late { self.late_run + 1 } else { 0 };
        self.longest_late_run = self.longest_late_run.max(self.late_run);
        let place = self.pending.iter().position(|&pending| pending == origin_ns);
        self.spread.ended(Completion { began_ns: origin_ns, ended_ns: at_ns }, place.is_none());
        match place {
            Some(before) => {
                self.dropped += before as u64;
                self.pending.drain(..=before);
                self.completions += 1;
            }
            None if self.ends_after_gap(origin_ns) => self.completions += 1,
            None => self.repeated += 1,
        }
    }
}

fn histogram() -> Histogram<u64> {
    // The bounds are constants that hdrhistogram accepts; its smallest histogram is a fallback that
    // cannot be needed.
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3).unwrap_or_else(|_| {
        let mut histogram = Histogram::new(1).unwrap_or_else(|_| unreachable!("one digit is in range"));
        histogram.auto(true);
        histogram
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> ChainStats {
        ChainStats::new(ChainSpec {
            name: "c".into(),
            path: vec!["a".into(), "b".into()],
            goal_ns: Some(5_000_000),
        })
    }

    #[test]
    fn passed_instances_are_dropped_and_late_ones_violate() {
        let mut stats = stats();
        for origin in [1, 2, 3, 4] {
            stats.began(origin * 1_000_000);
        }
        stats.finished(1, 1_000_000, 2_000_000);
        stats.finished(0, 2_000_000, 2_500_000);
        stats.finished(1, 3_000_000, 9_000_000);
        stats.finished(1, 3_000_000, 9_500_000);
        assert_eq!((stats.began, stats.completions, stats.repeated, stats.dropped), (4, 2, 1, 1));
        assert_eq!((stats.violations, stats.worst_ns, stats.under_way()), (2, 6_500_000, 1));
        assert_eq!((stats.overdue(8_000_000), stats.overdue(10_000_000)), (0, 1));
        assert_eq!(stats.at_most(&[500_000, 1_000_000, 7_000_000]), [0, 1, 3]);
        assert_eq!(stats.at_most(&[7_000_000, 1_000_000, 500_000, 1_000_000, 1_000_001]), [3, 1, 0, 1, 1]);
        let cdf = stats.cdf();
        assert_eq!(cdf.len(), 3);
        assert_eq!(cdf.last().unwrap(), &(6_500_000, 1.0));
        let ends = stats.drain();
        assert_eq!((ends.len(), ends[1]), (3, Completion { began_ns: 3_000_000, ended_ns: 9_000_000 }));
        assert!(stats.drain().is_empty());
        let before = stats.take();
        assert_eq!((before.completions, stats.completions, stats.under_way()), (2, 0, 1));
    }

    #[test]
    fn latencies_are_held_against_what_was_promised_at_their_release() {
        let mut stats = stats();
        stats.promise(100, Some(50));
        stats.promise(1000, Some(20));
        // Released before anything was promised, under the first promise, under the second.
        stats.finished(1, 90, 300);
        stats.finished(1, 990, 1039);
        stats.finished(1, 1000, 1020);
        assert_eq!(stats.take_exceeded(), None);
        stats.finished(1, 1100, 1125);
        stats.finished(1, 1200, 1230);
        stats.finished(1, 1300, 1321);
        let exceeded = stats.take_exceeded().unwrap();
        assert_eq!((exceeded.bound_ns, exceeded.latency_ns(), exceeded.times), (20, 30, 3));
        stats.promise(2000, None);
        stats.finished(1, 2000, 9000);
        assert_eq!(
            (stats.take_exceeded(), stats.take_recent(), stats.take_recent()),
            (None, Some(7000), None)
        );
    }

    #[test]
    fn releases_that_never_ran_are_a_row_with_the_late_ones() {
        let mut stats = stats();
        stats.finished(1, 0, 6_000_000);
        stats.skipped(Skip { first_ns: 7_000_000, period_ns: 1_000_000, count: 3 }, None);
        stats.finished(1, 11_000_000, 17_000_000);
        stats.finished(1, 20_000_000, 21_000_000);
        assert_eq!((stats.skipped, stats.longest_late_run, stats.violations), (3, 5, 2));
        assert_eq!(stats.drain_skips().len(), 1);
    }

    #[test]
    fn what_lies_within_the_clocks_error_of_the_goal_is_in_doubt() {
        let mut stats = stats();
        stats.finished(1, 0, 5_000_000);
        stats.finished(1, 0, 5_000_001);
        assert_eq!((stats.violations, stats.in_doubt), (1, 0), "one clock leaves no doubt");
        stats.clock_error_ns = 1_000_000;
        for latency_ns in [4_000_000, 4_000_001, 6_000_000, 6_000_001] {
            stats.finished(1, 0, latency_ns);
        }
        assert_eq!((stats.violations, stats.in_doubt), (2, 2));
        stats.clock_error_ns = 1000;
        stats.finished(1, 0, 1_000_000);
        assert_eq!((stats.in_doubt, stats.most_clock_error_ns), (2, 1_000_000));
    }

    #[test]
    fn nothing_is_overdue_on_a_way_that_is_gone() {
        let mut stats = stats();
        stats.began(1_000_000);
        stats.await_ends(true);
        assert_eq!(stats.overdue(10_000_000), 1);
        stats.await_ends(false);
        stats.began(2_000_000);
        assert_eq!((stats.overdue(10_000_000), stats.began), (0, 1));
        stats.await_ends(true);
        stats.began(3_000_000);
        assert_eq!((stats.overdue(10_000_000), stats.under_way()), (1, 1));
    }

    #[test]
    fn what_never_ends_takes_no_more_memory() {
        let mut stats = stats();
        for origin in 0..5000 {
            stats.began(origin);
        }
        assert_eq!((stats.under_way(), stats.dropped), (PENDING, 5000 - PENDING as u64));
        assert_eq!((stats.quantile_ns(0.5), stats.mean_ns()), (None, None));
    }
}
