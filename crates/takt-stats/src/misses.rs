//! Deadline misses, and how many came in a row.
//!
//! One miss in a thousand and ten in a row are different failures: an actuator that holds its last
//! command bridges the first.

use serde::{Deserialize, Serialize};

/// Misses of a series in time order. A value misses when it is greater than the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// Values seen.
    pub samples: u64,
    /// Values later than the deadline.
    pub misses: u64,
    /// Length of the longest unbroken run of misses.
    pub longest_run: u64,
    /// Index (from 0) of the first value of that run; of the earliest one where several are equally
    /// long.
    pub longest_run_start: Option<u64>,
    /// Length of the run that the last value belongs to: 0 when it met its deadline.
    pub current_run: u64,
    /// Index (from 0) of the first miss.
    pub first_miss: Option<u64>,
}

impl Misses {
    /// Counts the misses of a series in time order.
    pub fn of(values_ns: &[u64], deadline_ns: u64) -> Self {
        let mut misses = Self::default();
        values_ns.iter().for_each(|&v| misses.push(v > deadline_ns));
        misses
    }

    /// Counts the next value.
    #[inline]
    pub fn push(&mut self, missed: bool) {
        if missed {
            self.misses += 1;
            self.current_run += 1;
            self.first_miss.get_or_insert(self.samples);
            if self.current_run > self.longest_run {
                self.longest_run = self.current_run;
                self.longest_run_start = Some(self.samples + 1 - self.current_run);
            }
        } else {
            self.current_run = 0;
        }
        self.samples += 1;
    }

    /// Adds a series that was measured after this one. Runs are not joined across the border: two
    /// runs are not one series.
    pub fn merge(&mut self, later: &Self) {
        let moved = |index: Option<u64>| index.map(|i| i.saturating_add(self.samples));
        if later.longest_run > self.longest_run {
            self.longest_run = later.longest_run;
            self.longest_run_start = moved(later.longest_run_start);
        }
        self.first_miss = self.first_miss.or(moved(later.first_miss));
        self.samples = self.samples.saturating_add(later.samples);
        self.misses = self.misses.saturating_add(later.misses);
        self.current_run = later.current_run;
    }

    /// Share of values that missed; 0 when nothing was seen.
    pub fn share(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.misses as f64 / self.samples as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_and_runs() {
        let m = Misses::of(&[1, 11, 10, 12, 13, 2, 14, 15], 10);
        assert_eq!((m.samples, m.misses, m.longest_run, m.longest_run_start), (8, 5, 2, Some(3)));
        assert_eq!((m.first_miss, m.current_run), (Some(1), 2));
        assert_eq!(Misses::of(&[10, 10], 10).first_miss, None);
    }

    #[test]
    fn merging_keeps_the_longer_run_and_moves_its_place() {
        let mut a = Misses::of(&[11, 1, 11], 10);
        a.merge(&Misses::of(&[11, 11, 1], 10));
        assert_eq!((a.samples, a.misses, a.longest_run, a.longest_run_start), (6, 4, 2, Some(3)));
        assert_eq!((a.first_miss, a.current_run), (Some(0), 0));
    }

    proptest! {
        #[test]
        fn agrees_with_splitting(missed in proptest::collection::vec(any::<bool>(), 0..300)) {
            let values: Vec<u64> = missed.iter().map(|&m| u64::from(m)).collect();
            let m = Misses::of(&values, 0);
            let longest = missed.split(|m| !m).map(<[bool]>::len).max().unwrap_or(0);
            prop_assert_eq!(m.longest_run, longest as u64);
            prop_assert_eq!(m.misses, missed.iter().filter(|m| **m).count() as u64);
            if let Some(start) = m.longest_run_start {
                prop_assert!(missed[start as usize..start as usize + longest].iter().all(|m| *m));
            }
        }
    }
}
