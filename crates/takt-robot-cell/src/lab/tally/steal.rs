//! Misses that fell into intervals in which the hypervisor gave the CPUs to others.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Intervals that are kept: what is older has been matched with its records long ago.
const KEPT: usize = 256;

/// Longest interval between two readings that says anything: in a longer one something is stolen
/// anyway.
const LONGEST_NS: u64 = 250_000_000;

/// Stolen time, and the misses that coincided with it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StealTally {
    /// Misses that fell into an interval in which time was stolen, all tasks.
    pub misses: u64,
    /// All misses that were looked at.
    pub of: u64,
    /// When and what was read last: nanoseconds, ticks.
    #[serde(skip)]
    last: Option<(u64, u64)>,
    #[serde(skip)]
    intervals: VecDeque<[u64; 2]>,
}

impl StealTally {
    /// The kernel counts `stolen` ticks at `now_ns`.
    pub fn reading(&mut self, now_ns: u64, stolen: u64) {
        if let Some((before_ns, before)) = self.last
            && stolen > before
            && now_ns.saturating_sub(before_ns) <= LONGEST_NS
        {
            if self.intervals.len() >= KEPT {
                self.intervals.pop_front();
            }
            self.intervals.push_back([before_ns, now_ns]);
        }
        self.last = Some((now_ns, stolen));
    }

    /// `count` misses between two times.
    pub(super) fn miss(&mut self, from_ns: u64, to_ns: u64, count: u64) {
        self.of += count;
        if self.intervals.iter().any(|[from, to]| from_ns < *to && *from < to_ns) {
            self.misses += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_the_hypervisors_where_it_took_time_meanwhile() {
        const MS: u64 = 1_000_000;
        let mut steal = StealTally::default();
        for (at, ticks) in [(0, 5), (50, 5), (100, 7), (150, 7), (1000, 9)] {
            steal.reading(at * MS, ticks);
        }
        steal.miss(10 * MS, 40 * MS, 1);
        steal.miss(60 * MS, 62 * MS, 3);
        steal.miss(40 * MS, 55 * MS, 1);
        // Nobody looked for so long that something is stolen anyway.
        steal.miss(500 * MS, 502 * MS, 1);
        assert_eq!((steal.misses, steal.of), (4, 6));
        (0..10_000u64).for_each(|i| steal.reading((2000 + i) * MS, 10 + i));
        assert!(steal.intervals.len() <= KEPT);
    }
}
