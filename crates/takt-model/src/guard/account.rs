//! Execution of activations beyond their curves, counted over windows for all callbacks of an
//! account.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Excess;

/// Permitted execution of activations beyond their curves, all callbacks of one account together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowance {
    /// So much at most,
    pub most_ns: u64,
    /// in any interval of this length.
    pub window_ns: u64,
}

/// Recent execution beyond curves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    allowance: Allowance,
    /// By time.
    recent: VecDeque<Taken>,
}

/// Execution of one activation beyond its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The callback, in execution or suspended.
    pub callback: usize,
    pub suspended: bool,
    pub beyond: Beyond,
}

/// More are not kept: whoever leaves curves so often has used up any allowance.
const MAX_TAKEN: usize = 1024;
/// Events of different threads are read in turns, so that one may come late by this many windows.
const LATE_WINDOWS: u64 = 2;

impl Account {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, ..Self::default() }
    }

    /// Adds the execution of an activation beyond its curve. Returns the sum and the allowance if
    /// any window that contains it exceeds the allowance.
    pub(crate) fn take(&mut self, taken: Taken) -> Option<(u64, Allowance)> {
        self.keep(taken);
        let window_ns = self.allowance.window_ns;
        let at_ns = taken.beyond.excess.at_ns;
        let time = |one: &Taken| one.beyond.excess.at_ns;
        // Each window of interest ends with one of them.
        let ends = self.recent.iter().map(time).filter(|end_ns| at_ns <= *end_ns);
        let ends = ends.take_while(|end_ns| *end_ns <= at_ns.saturating_add(window_ns));
        let sum_until = |end_ns: u64| {
            let from = self.recent.partition_point(|one| time(one).saturating_add(window_ns) < end_ns);
            let held = self.recent.iter().skip(from).take_while(|one| time(one) <= end_ns);
            held.map(|one| one.beyond.more_ns).fold(0, u64::saturating_add)
        };
        let sum_ns = ends.map(sum_until).max()?;
        (sum_ns > self.allowance.most_ns || self.recent.len() == MAX_TAKEN)
            .then_some((sum_ns, self.allowance))
    }

    /// It counts, but nobody asks yet.
    pub(crate) fn keep(&mut self, taken: Taken) {
        let time = |one: &Taken| one.beyond.excess.at_ns;
        let last_ns = self.recent.back().map_or(0, time).max(time(&taken));
        let kept_ns = self.allowance.window_ns.saturating_mul(1 + LATE_WINDOWS);
        while self.recent.front().is_some_and(|one| time(one).saturating_add(kept_ns) < last_ns)
            || self.recent.len() >= MAX_TAKEN
        {
            self.recent.pop_front();
        }
        let place = self.recent.partition_point(|one| time(one) <= time(&taken));
        self.recent.insert(place, taken);
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = Taken> + '_ {
        self.recent.iter().copied()
    }
}

impl Taken {
    /// The same held against another curve; `None`: it is within that.
    pub(crate) fn against(mut self, most_ns: &[u64]) -> Option<Self> {
        let excess = self.beyond.excess;
        let index = usize::try_from(excess.events.saturating_sub(1)).unwrap_or(usize::MAX);
        let allowed_ns = most_ns.get(index).copied().unwrap_or(0);
        self.beyond.more_ns = self.beyond.more_ns.min(excess.seen_ns.saturating_sub(allowed_ns));
        (self.beyond.more_ns > 0).then_some(self)
    }
}

/// Execution of an activation beyond its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub excess: Excess,
    /// The least by which the activation must have been shorter, so that its curve was not left.
    pub more_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(at_ns: u64, more_ns: u64) -> Taken {
        let excess = Excess { events: 1, assumed_ns: Some(10), seen_ns: 10 + more_ns, at_ns };
        Taken { callback: 0, suspended: false, beyond: Beyond { excess, more_ns } }
    }

    #[test]
    fn an_account_counts_over_a_window_and_no_longer() {
        let mut account = Account::new(Allowance { most_ns: 10, window_ns: 100 });
        let mut take = |at_ns, more_ns| account.take(taken(at_ns, more_ns)).map(|(sum, _)| sum);
        assert_eq!(take(0, 6), None);
        assert_eq!(take(50, 4), None);
        // The first is a window away, and counts still.
        assert_eq!(take(100, 1), Some(11));
        assert_eq!(take(101, 5), None);
        assert_eq!(take(151, 5), Some(11));
    }

    #[test]
    fn what_is_read_late_counts_in_its_own_window() {
        let mut account = Account::new(Allowance { most_ns: 10, window_ns: 100 });
        let mut take = |at_ns, more_ns| account.take(taken(at_ns, more_ns)).map(|(sum, _)| sum);
        assert_eq!((take(0, 6), take(190, 6)), (None, None));
        // Of another thread, read after what came later.
        assert_eq!(take(95, 3), None);
        assert_eq!(take(99, 2), Some(11));
    }

    #[test]
    fn what_was_taken_is_carried_over_as_far_as_the_next_curve_does_not_have_it() {
        assert_eq!(taken(0, 6).against(&[16, 20]), None);
        assert_eq!(taken(0, 6).against(&[13]).map(|one| one.beyond.more_ns), Some(3));
        // A curve that became narrower makes no more of it than was reported.
        assert_eq!(taken(0, 6).against(&[1]).map(|one| one.beyond.more_ns), Some(6));
    }

    proptest::proptest! {
        /// In any order in which they are read, some window is too full exactly where one is.
        #[test]
        fn an_account_equals_brute_force(mut all in proptest::collection::vec((0u64..150, 1u64..8), 1..30), turns in 0usize..30) {
            let allowance = Allowance { most_ns: 20, window_ns: 60 };
            all.sort_unstable();
            let full = all.iter().any(|(end, _)| all.iter().filter(|(at, _)| at <= end && at + 60 >= *end).map(|(_, more)| more).sum::<u64>() > 20);
            let middle = turns.min(all.len());
            all.rotate_left(middle);
            let mut account = Account::new(allowance);
            let reported = all.iter().filter(|(at, more)| account.take(taken(*at, *more)).is_some()).count() > 0;
            proptest::prop_assert_eq!(reported, full);
        }
    }
}
