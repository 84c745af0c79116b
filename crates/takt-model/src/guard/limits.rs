//! Limits that hold every event against a curve.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Beyond, Excess};

/// Set by whichever of the limits that share it has something to report, so that nobody asks them
/// all while none has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Noticed(Arc<AtomicBool>);

impl Noticed {
    /// There is something to report.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether there was since the last call.
    pub(crate) fn take(&self) -> bool {
        // Limits and the one who asks are of one extractor, so that the order is that of its
        // thread.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// The last values of a growing quantity, as many as the curve has entries.
#[derive(Debug, Clone)]
struct Recent {
    values: Vec<u64>,
    entries: usize,
}

impl Recent {
    fn new(entries: usize) -> Self {
        let entries = entries.max(1);
        Self { values: Vec::with_capacity(2 * entries), entries }
    }

    fn push(&mut self, value: u64) {
        if self.values.len() == 2 * self.entries {
            self.values.copy_within(self.entries + 1.., 0);
            self.values.truncate(self.entries - 1);
        }
        self.values.push(value);
    }

    /// The newest first.
    fn last(&self) -> impl Iterator<Item = u64> + '_ {
        self.values.iter().rev().take(self.entries).copied()
    }

    /// Whether more than `most` has been added up to `total` since any of these: one pass over two
    /// slices, for the many times that none has.
    #[inline]
    fn grew_beyond(&self, total: u64, most: &[u64]) -> bool {
        let from = self.values.len().saturating_sub(self.entries);
        self.values[from..].iter().rev().zip(most).any(|(before, most)| total.saturating_sub(*before) > *most)
    }
}

/// Spans between arrivals that must not become shorter.
#[derive(Debug, Clone)]
pub struct SpanLimit {
    /// Entry `i`: the shortest span of `i + 2` events. Empty: there are no events.
    least_ns: Vec<u64>,
    recent: Recent,
    excess: Option<Excess>,
    noticed: Noticed,
}

impl SpanLimit {
    /// Entry `i` of `least_ns`: the shortest span of `i + 2` consecutive events; empty: none ever
    /// come.
    #[must_use]
    pub fn new(least_ns: Vec<u64>) -> Self {
        let recent = Recent::new(least_ns.len());
        Self { recent, least_ns, excess: None, noticed: Noticed::default() }
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// One event.
    #[inline]
    pub fn see(&mut self, at_ns: u64) {
        if self.excess.is_none() {
            let spans = self.recent.last().map(|before| at_ns.saturating_sub(before));
            let left = spans.zip(&self.least_ns).position(|(span, least)| span < *least);
            if let Some(index) = left {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| at_ns.saturating_sub(before));
                let assumed_ns = self.least_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 2, assumed_ns, seen_ns, at_ns });
                self.noticed.set();
            } else if self.least_ns.is_empty() {
                self.excess = Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns });
                self.noticed.set();
            }
        }
        self.recent.push(at_ns);
    }

    /// Events may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// More is not kept between two looks: whoever leaves a curve so often leaves it for good.
const MOST_BEYOND: usize = 256;

/// Execution times of consecutive activations that must not become longer.
#[derive(Debug, Clone)]
pub struct CostLimit {
    /// Entry `i`: of `i + 1` activations.
    most_ns: Vec<u64>,
    recent: Recent,
    total_ns: u64,
    excess: Option<Excess>,
    /// Goes to an account instead; what is beyond the curve is left out of what later activations
    /// are held against.
    beyond: Option<Vec<Beyond>>,
    noticed: Noticed,
    /// More activations take no less.
    rises: bool,
}

impl CostLimit {
    /// Entry `i` of `most_ns`: the most that `i + 1` consecutive activations take together.
    #[must_use]
    pub fn new(most_ns: Vec<u64>) -> Self {
        let (recent, noticed) = (Recent::new(most_ns.len()), Noticed::default());
        let rises = most_ns.is_sorted();
        let mut limit = Self { recent, most_ns, total_ns: 0, excess: None, beyond: None, noticed, rises };
        limit.gap();
        limit
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// What is beyond the curve is reported by [`Self::take_beyond`] instead.
    pub(crate) fn with_account(mut self) -> Self {
        self.beyond = Some(Vec::new());
        self
    }

    /// What was beyond the curve since the last call.
    pub(crate) fn take_beyond(&mut self) -> Vec<Beyond> {
        self.beyond.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn see_beyond(&mut self, at_ns: u64) {
        let total_ns = self.total_ns;
        if !self.recent.grew_beyond(total_ns, &self.most_ns) {
            return;
        }
        let over = |(index, (before, most)): (usize, (u64, &u64))| {
            let sum_ns = total_ns.saturating_sub(before);
            sum_ns.checked_sub(*most).filter(|over| *over > 0).map(|over| (over, index, sum_ns, *most))
        };
        // Of equal ones the shortest row.
        let worst = self.recent.last().zip(&self.most_ns).enumerate().filter_map(over);
        let worst = worst.max_by_key(|(over, index, ..)| (*over, std::cmp::Reverse(*index)));
        let Some((more_ns, index, seen_ns, most_ns)) = worst else { return };
        let excess = Excess { events: index as u64 + 1, assumed_ns: Some(most_ns), seen_ns, at_ns };
        self.total_ns = total_ns.saturating_sub(more_ns);
        self.noticed.set();
        match &mut self.beyond {
            Some(beyond) if beyond.len() < MOST_BEYOND => beyond.push(Beyond { excess, more_ns }),
            _ => self.excess = self.excess.or(Some(excess)),
        }
    }

    /// One activation that ended at `at_ns`.
    #[inline]
    pub fn see(&mut self, at_ns: u64, took_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(took_ns);
        // No window that ends with nothing is beyond its entry without one that ended before: most
        // callbacks never suspend themselves.
        let adds = took_ns > 0 || !self.rises;
        if adds && self.beyond.is_some() {
            self.see_beyond(at_ns);
        } else if adds && self.excess.is_none() && self.recent.grew_beyond(self.total_ns, &self.most_ns) {
            let total_ns = self.total_ns;
            let sums = self.recent.last().map(|before| total_ns - before);
            if let Some(index) = sums.zip(&self.most_ns).position(|(sum, most)| sum > *most) {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| total_ns - before);
                let assumed_ns = self.most_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 1, assumed_ns, seen_ns, at_ns });
                self.noticed.set();
            }
        }
        self.recent.push(self.total_ns);
    }

    /// Activations may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
        self.recent.push(self.total_ns);
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// Messages of consecutive activations, to one topic, that must not become more.
#[derive(Debug, Clone)]
pub struct CountLimit {
    /// Entry `i`: of `i + 1` activations.
    most: Vec<u64>,
    /// Activations that sent any, with the messages before each.
    recent: VecDeque<(u64, u64)>,
    total: u64,
    excess: Option<Excess>,
    noticed: Noticed,
}

impl CountLimit {
    /// Entry `i` of `most`: the most messages that `i + 1` consecutive activations send together;
    /// empty: none ever come.
    #[must_use]
    pub fn new(mut most: Vec<u64>) -> Self {
        if most.is_empty() {
            most.push(0);
        }
        let recent = VecDeque::with_capacity(most.len() + 1);
        Self { recent, most, total: 0, excess: None, noticed: Noticed::default() }
    }

    /// Reports there that something is to be reported.
    pub(crate) fn noticed_by(mut self, noticed: &Noticed) -> Self {
        self.noticed = noticed.clone();
        self
    }

    /// One message of the activation of this number.
    #[inline]
    pub fn see(&mut self, at_ns: u64, activation: u64) {
        if self.recent.back().is_none_or(|(last, _)| *last != activation) {
            self.recent.push_back((activation, self.total));
        }
        self.total += 1;
        let entries = self.most.len() as u64;
        while self.recent.front().is_some_and(|(first, _)| activation.wrapping_sub(*first) >= entries) {
            self.recent.pop_front();
        }
        if self.excess.is_some() {
            return;
        }
        for &(first, before) in self.recent.iter().rev() {
            let events = activation.wrapping_sub(first) + 1;
            let most = usize::try_from(events - 1).ok().and_then(|index| self.most.get(index));
            let sent = self.total - before;
            if let Some(&most) = most.filter(|most| sent > **most) {
                self.excess = Some(Excess { events, assumed_ns: Some(most), seen_ns: sent, at_ns });
                self.noticed.set();
                return;
            }
        }
    }

    /// Messages may be missing here.
    pub fn gap(&mut self) {
        self.recent.clear();
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_curve_is_distinguished_from_what_is_within() {
        let mut limit = CostLimit::new(vec![10, 15]).with_account();
        for (at, took) in [(1, 10), (2, 5), (3, 30), (4, 5), (5, 11), (6, 4)] {
            limit.see(at, took);
        }
        // 20 beyond one of 10; then 5 fit beside 10; 11 after 5 are 1 beyond both; 4 fit.
        let beyond: Vec<(u64, u64, u64)> =
            limit.take_beyond().iter().map(|b| (b.excess.at_ns, b.excess.events, b.more_ns)).collect();
        assert_eq!(beyond, [(3, 1, 20), (5, 1, 1)]);
        assert!(limit.take_beyond().is_empty() && limit.take().is_none());
        // Whatever is distinguished, the rest is within the curve: so often that it is no
        // disturbance, it is a broken curve.
        for at in 0..2 * MOST_BEYOND as u64 {
            limit.see(at + 10, 11);
        }
        assert!(limit.take().is_some());
    }

    proptest::proptest! {
        /// What is left of the activations is within the curve in every window, and nothing is
        /// reported that need not be left out.
        #[test]
        fn the_rest_is_within_the_curve(costs in proptest::collection::vec(0u64..30, 1..120), limits in proptest::collection::vec(5u64..15, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CostLimit::new(most.clone()).with_account();
            costs.iter().zip(0..).for_each(|(took, at)| limit.see(at, *took));
            let mut rest = costs.clone();
            for one in limit.take_beyond() {
                let at = usize::try_from(one.excess.at_ns).unwrap();
                proptest::prop_assert!(one.more_ns <= costs[at]);
                rest[at] -= one.more_ns;
            }
            for (at, n) in (0..rest.len()).flat_map(|at| (1..=most.len().min(at + 1)).map(move |n| (at, n))) {
                proptest::prop_assert!(rest[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]);
            }
            let within = (0..costs.len()).all(|at| (1..=most.len().min(at + 1)).all(|n| costs[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]));
            proptest::prop_assert_eq!(within, rest == costs);
        }
    }

    #[test]
    fn spans_are_held_against_every_event() {
        let mut limit = SpanLimit::new(vec![90, 190]);
        for at in [100, 200, 300, 390] {
            limit.see(at);
        }
        assert_eq!(limit.take(), None);
        // 80 ns after the one before, and three in 170.
        limit.see(470);
        let excess = Excess { events: 2, assumed_ns: Some(90), seen_ns: 80, at_ns: 470 };
        assert_eq!((limit.take(), limit.take()), (Some(excess), None));
        // Each pair is far enough apart, three together are not.
        let mut limit = SpanLimit::new(vec![90, 190]);
        [0, 92, 184].into_iter().for_each(|at| limit.see(at));
        let excess = limit.take().unwrap();
        assert_eq!((excess.events, excess.seen_ns, excess.assumed_ns), (3, 184, Some(190)));
        // No window across a gap.
        limit.gap();
        limit.see(185);
        assert_eq!(limit.take(), None);
    }

    #[test]
    fn what_should_never_come_is_reported_when_it_does() {
        let mut limit = SpanLimit::new(Vec::new());
        assert_eq!(limit.take(), None);
        limit.see(7);
        assert_eq!(limit.take(), Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns: 7 }));
    }

    #[test]
    fn costs_are_held_against_every_activation() {
        let mut limit = CostLimit::new(vec![10, 15, 18]);
        for (at, took) in [(1, 10), (2, 5), (3, 3), (4, 2), (5, 10)] {
            limit.see(at, took);
        }
        assert_eq!(limit.take(), None);
        limit.see(6, 6);
        let excess = Excess { events: 2, assumed_ns: Some(15), seen_ns: 16, at_ns: 6 };
        assert_eq!(limit.take(), Some(excess));
        limit.gap();
        limit.see(7, 10);
        assert_eq!(limit.take(), None);
        limit.see(8, 11);
        assert_eq!(limit.take().map(|e| (e.events, e.seen_ns)), Some((1, 11)));
    }

    #[test]
    fn any_curve_can_be_held_against() {
        // Curves that fall are no curves, and still no reason to end.
        for with_account in [false, true] {
            let mut limit = CostLimit::new(vec![10, 3, 0]);
            if with_account {
                limit = limit.with_account();
            }
            for (at, took) in [(1, 9), (2, 0), (3, 4), (4, 0), (5, 0), (6, u64::MAX), (7, u64::MAX), (8, 0)] {
                limit.see(at, took);
            }
            assert!(limit.take().is_some() || !limit.take_beyond().is_empty());
        }
    }

    #[test]
    fn messages_are_held_against_every_window() {
        // Two at a time, three in two, three in three.
        let mut limit = CountLimit::new(vec![2, 3, 3]);
        for (at, activation) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 4), (6, 7)] {
            limit.see(at, activation);
        }
        assert_eq!(limit.take(), None);
        limit.see(7, 8);
        limit.see(8, 9);
        assert_eq!(limit.take(), None);
        limit.see(9, 9);
        assert_eq!(limit.take(), Some(Excess { events: 3, assumed_ns: Some(3), seen_ns: 4, at_ns: 9 }));
        limit.gap();
        limit.see(10, 10);
        limit.see(11, 10);
        assert_eq!(limit.take(), None);
        limit.see(12, 10);
        assert_eq!(limit.take().map(|excess| (excess.events, excess.seen_ns)), Some((1, 3)));
        let mut empty = CountLimit::new(Vec::new());
        empty.see(1, 5);
        assert_eq!(empty.take().map(|excess| excess.assumed_ns), Some(Some(0)));
    }

    proptest::proptest! {
        /// Found exactly where brute force finds it.
        #[test]
        fn counts_equal_brute_force(sent in proptest::collection::vec(0u64..4, 1..80), limits in proptest::collection::vec(0u64..4, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CountLimit::new(most.clone());
            let mut first = None;
            for (activation, &count) in sent.iter().enumerate() {
                (0..count).for_each(|_| limit.see(activation as u64, activation as u64));
                let left = (1..=most.len().min(activation + 1)).any(|n| sent[activation + 1 - n..=activation].iter().sum::<u64>() > most[n - 1]);
                if first.is_none() && left {
                    first = Some(activation as u64);
                }
            }
            proptest::prop_assert_eq!(limit.take().map(|e| e.at_ns), first);
        }

        /// Found exactly where brute force finds it, with tails moved down many times.
        #[test]
        fn equals_brute_force(costs in proptest::collection::vec(0u64..20, 1..200), limits in proptest::collection::vec(5u64..15, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CostLimit::new(most.clone());
            let mut first = None;
            for (at, &took) in costs.iter().enumerate() {
                limit.see(at as u64, took);
                let left = (1..=most.len().min(at + 1)).find(|n| costs[at + 1 - n..=at].iter().sum::<u64>() > most[n - 1]);
                if let (None, Some(n)) = (first, left) {
                    first = Some((n as u64, at as u64));
                }
            }
            proptest::prop_assert_eq!(limit.take().map(|e| (e.events, e.at_ns)), first);
        }
    }
}
