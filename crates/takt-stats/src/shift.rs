//! Distance between two sets of independent values, whatever their distribution: Hodges and
//! Lehmann's estimate with the interval that inverts the rank test of Mann and Whitney.
//!
//! The unit is the run, not the sample: one value of each (the logarithm of its P99). Under no
//! difference every order of the runs is as likely as any other, so that the error of the interval
//! is exact for any distribution, however long its tail: a run of ten that met a backup job moves
//! neither end far. It holds only as far as the runs are interchangeable; what drifts is for the
//! caller to see.

use std::cmp::Ordering;

use rand::RngExt;

use crate::random::generator;

/// Differences that are made one by one; of more, only those around what is looked for.
const MAX_MADE: usize = 1 << 14;
/// Cells of the table of the exact distribution, beyond which ranks are taken as normal: they are,
/// to three digits, by far.
const MAX_EXACT: usize = 30_000_000;
/// Draws for a power.
const DRAWS: usize = 400;
/// Share of the draws in which an effect must be found: 19 of 20.
const POWER: f64 = 0.95;
/// Most values on each side of a comparison that is drawn to find how many are needed.
const SIMULATED: usize = 64;

/// A shift, after less before, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Median of all differences between a value after and one before.
    pub estimate: f64,
    /// Lower end of its interval; `None` where there are too few values for the asked error.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// The shift from `before` to `after`, with an interval that either end of which misses the true
/// one with probability `tail` at most. Infinite values stand for "beyond all others". `None`
/// without values, or with one that is no number.
pub fn shift(before: &[f64], after: &[f64], tail: f64) -> Option<Shift> {
    shift_within(before, after, rank(before.len(), after.len(), tail)?)
}

/// As [`shift`], with the [`rank`] of so many values: it takes long to find, and is the same for
/// every figure of the same runs.
pub fn shift_within(before: &[f64], after: &[f64], rank: usize) -> Option<Shift> {
    if before.is_empty() || after.is_empty() || before.iter().chain(after).any(|value| value.is_nan()) {
        return None;
    }
    let count = before.len() * after.len();
    if count > MAX_MADE {
        let sorted = Differences::new(before, after);
        return Some(of_differences(count, rank, |index| sorted.at(index)));
    }
    let differences = after.iter().flat_map(|a| before.iter().map(move |b| difference(*a, *b)));
    let mut differences: Vec<f64> = differences.collect();
    let at = |index: usize| *differences.select_nth_unstable_by(index, f64::total_cmp).1;
    Some(of_differences(count, rank, at))
}

/// Equal infinite values do not differ.
fn difference(after: f64, before: f64) -> f64 {
    if after == before { 0.0 } else { after - before }
}

/// From the differences in their order: `at` reports the one at a place.
fn of_differences(count: usize, rank: usize, mut at: impl FnMut(usize) -> f64) -> Shift {
    let (left, right) = (at((count - 1) / 2), at(count / 2));
    let estimate = if left == right { left } else { (left + right) / 2.0 };
    let (low, high) = match rank {
        0 => (None, None),
        rank => (Some(at(rank - 1)), Some(at(count - rank))),
    };
    Shift { estimate: if estimate.is_nan() { 0.0 } else { estimate }, low, high }
}

/// The differences of all pairs in their order, without making them: those of 50,000 runs with as
/// many others are too many. Sorted values make a table whose rows and columns ascend, and of each
/// row a stretch is left that may hold what is looked for.
struct Differences {
    /// Ascending.
    after: Vec<f64>,
    /// Descending.
    before: Vec<f64>,
}

impl Differences {
    fn new(before: &[f64], after: &[f64]) -> Self {
        let (mut before, mut after) = (before.to_vec(), after.to_vec());
        before.sort_unstable_by(|a, b| b.total_cmp(a));
        after.sort_unstable_by(f64::total_cmp);
        Self { after, before }
    }

    fn of(&self, row: usize, column: usize) -> f64 {
        difference(self.after[row], self.before[column])
    }

    /// Of each row, how many of its first differences are `within`, which holds up to a value.
    fn counts(&self, within: impl Fn(f64) -> bool) -> Vec<usize> {
        let mut column = self.before.len();
        let rows = 0..self.after.len();
        rows.map(|row| {
            while column > 0 && !within(self.of(row, column - 1)) {
                column -= 1;
            }
            column
        })
        .collect()
    }

    /// The difference at a place in their order, from 0.
    fn at(&self, place: usize) -> f64 {
        let few = (4 * (self.after.len() + self.before.len())).max(MAX_MADE / 4);
        let mut left: Vec<[usize; 2]> = vec![[0, self.before.len()]; self.after.len()];
        let mut rng = generator(place as u64);
        loop {
            let candidates: usize = left.iter().map(|[from, to]| to - from).sum();
            if candidates <= few {
                let rows = left.iter().enumerate();
                let made = rows.flat_map(|(row, [from, to])| (*from..*to).map(move |c| self.of(row, c)));
                let (mut made, below): (Vec<f64>, usize) =
                    (made.collect(), left.iter().map(|[from, _]| from).sum());
                return *made.select_nth_unstable_by(place - below, f64::total_cmp).1;
            }
            let mut any = rng.random_range(0..candidates);
            let row = left.iter().position(|[from, to]| {
                let is_here = any < to - from;
                any -= if is_here { 0 } else { to - from };
                is_here
            });
            let row = row.unwrap_or_default();
            let pivot = self.of(row, left[row][0] + any);
            let (less, not_more) = (self.counts(|d| d < pivot), self.counts(|d| d <= pivot));
            if place < less.iter().sum() {
                left.iter_mut().zip(less).for_each(|([from, to], less)| *to = less.clamp(*from, *to));
            } else if place >= not_more.iter().sum() {
                left.iter_mut().zip(not_more).for_each(|([from, to], most)| *from = most.clamp(*from, *to));
            } else {
                return pivot;
            }
        }
    }
}

/// Place of the lower end among the sorted differences, from 1: the greatest rank with P(U < rank)
/// ≤ `tail`; 0 if even the least says too much. `None` without values.
pub fn rank(before: usize, after: usize, tail: f64) -> Option<usize> {
    let (few, many) = (before.min(after), before.max(after));
    if few == 0 {
        return None;
    }
    let pairs = few * many;
    let reach = pairs / 2 + 1;
    if (few + 1).saturating_mul(many).saturating_mul(reach) > MAX_EXACT {
        let sigma = (pairs as f64 * (few + many + 1) as f64 / 12.0).sqrt();
        let normal = statrs::distribution::Normal::standard();
        let z = statrs::distribution::ContinuousCDF::inverse_cdf(&normal, tail);
        // P(U ≤ rank - 1), with the correction for continuity.
        return Some((pairs as f64 / 2.0 + z * sigma + 0.5).floor().max(0.0) as usize);
    }
    let mut sum = 0.0;
    for (rank, probability) in distribution(few, many, reach).into_iter().enumerate() {
        sum += probability;
        if sum > tail {
            return Some(rank);
        }
    }
    Some(reach)
}

/// Probabilities of U = 0, 1, …, `reach` - 1: the number of pairs in which the value of the one
/// side is the lesser. The greatest of all values belongs to a side with the probability of its
/// share; without it, the rest is the same question (Mann and Whitney 1947).
fn distribution(few: usize, many: usize, reach: usize) -> Vec<f64> {
    // Of i values of the side of few, for each number of the other side.
    let start: Vec<f64> = (0..reach).map(|u| f64::from(u8::from(u == 0))).collect();
    let mut rows: Vec<Vec<f64>> = vec![start.clone(); many + 1];
    for i in 1..=few {
        for j in 1..=many {
            let share = i as f64 / (i + j) as f64;
            let row: Vec<f64> = (0..reach)
                .map(|u| {
                    let beyond = if u >= j { rows[j][u - j] } else { 0.0 };
                    share * beyond + (1.0 - share) * rows[j - 1][u]
                })
                .collect();
            rows[j] = row;
        }
    }
    rows.swap_remove(many)
}

/// Distance from the middle of `values` that one more value exceeds on either side with probability
/// `tail`: Student's prediction interval. `None` with fewer than two values, or if one is not
/// finite.
pub fn one_more(values: &[f64], tail: f64) -> Option<f64> {
    let n = values.len() as f64;
    if n < 2.0 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let scatter = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let student = statrs::distribution::StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let t = statrs::distribution::ContinuousCDF::inverse_cdf(&student, 1.0 - tail);
    Some(t * scatter * (1.0 + 1.0 / n).sqrt())
}

/// Values that were measured around one middle each side, from which further ones are drawn: what a
/// power is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    residuals: Vec<f64>,
}

impl Spread {
    /// Around the median of each side. `None` with fewer than three finite values, or sides that
    /// are infinite at their middle.
    pub fn of(sides: &[&[f64]]) -> Option<Self> {
        let mut residuals = Vec::new();
        for side in sides.iter().filter(|side| !side.is_empty()) {
            let mut sorted = side.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            let middle = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
            if !middle.is_finite() {
                return None;
            }
            // A median takes up a part of what few values scatter.
            let widen = (sorted.len() as f64 / (sorted.len() as f64 - 1.0).max(1.0)).sqrt();
            residuals.extend(sorted.iter().map(|v| (v - middle) * widen).filter(|r| r.is_finite()));
        }
        (residuals.len() >= 3).then_some(Self { residuals })
    }

    /// The least shift that a comparison of so many values would have found in 19 of 20
    /// repetitions: its lower end above 0 and its estimate above `least`. `None` where no shift
    /// would be found.
    pub fn minimum_detectable(
        &self,
        before: usize,
        after: usize,
        tail: f64,
        least: f64,
        seed: u64,
    ) -> Option<f64> {
        let rank = rank(before, after, tail).filter(|rank| *rank > 0)?;
        let mut rng = generator(seed);
        let mut draw = |count: usize| -> Vec<f64> {
            (0..count).map(|_| self.residuals[rng.random_range(0..self.residuals.len())]).collect()
        };
        let mut needed: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                // A shift moves estimate and interval by itself: what is missing to either
                // condition is what it must be.
                let found = shift_within(&draw(before), &draw(after), rank)?;
                Some((-found.low?).max(least - found.estimate))
            })
            .collect();
        needed.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        needed.get((DRAWS as f64 * POWER) as usize).copied()
    }

    /// The least number of values on each side with which a shift of `wanted` would be found in 19
    /// of 20. `None` where that is none at all, or more than `most`.
    pub fn values_needed(&self, wanted: f64, tail: f64, least: f64, most: usize, seed: u64) -> Option<usize> {
        let of = |count: usize, least: f64| self.minimum_detectable(count, count, tail, least, seed);
        let enough = |count: usize| of(count, least).is_some_and(|found| found <= wanted);
        if !enough(SIMULATED) {
            // Beyond, what is detectable falls with the root of the number.
            let there = of(SIMULATED, f64::NEG_INFINITY)?;
            // And so does what an estimate falls short by, which must not reach `least`.
            let far = 1e6;
            let short = of(SIMULATED, far)? - far;
            let shares = (there / wanted).max(short / (wanted - least));
            let count = (SIMULATED as f64 * shares.powi(2)).ceil();
            return (wanted > least && count <= most as f64).then_some((count as usize).max(SIMULATED + 1));
        }
        let (mut low, mut high) = (1, SIMULATED);
        while low < high {
            let middle = (low + high) / 2;
            if enough(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Critical values of U at 0.005 and 0.01, one-sided (Mann and Whitney 1947; Hollander and
        // Wolfe, table A.6).
        assert_eq!(rank(5, 5, 0.005), Some(1));
        assert_eq!(rank(10, 10, 0.005), Some(17));
        assert_eq!(rank(20, 20, 0.005), Some(106));
        assert_eq!(rank(10, 10, 0.01), Some(20));
        assert_eq!(rank(8, 20, 0.005), Some(31));
        assert_eq!(rank(20, 8, 0.005), Some(31));
        // One order of 252 is more than one of a thousand.
        assert_eq!(rank(5, 5, 0.001), Some(0));
        assert_eq!(rank(0, 5, 0.001), None);
    }

    #[test]
    fn the_normal_ranks_meet_the_exact_ones() {
        for (few, many) in [(30, 60), (50, 60)] {
            let exact = rank(few, many, 0.001).unwrap() as f64;
            let pairs = (few * many) as f64;
            let sigma = (pairs * (few + many + 1) as f64 / 12.0).sqrt();
            let normal = pairs / 2.0 - 3.090 * sigma + 0.5;
            assert!((exact - normal).abs() < 0.03 * pairs, "{few} {many}: {exact} {normal}");
        }
        assert!(rank(200, 200, 0.001).unwrap() > 15_000);
    }

    #[test]
    fn probabilities_of_all_ranks_are_one() {
        let all = distribution(6, 9, 55);
        let (sum, middle) = (all.iter().sum::<f64>(), all[27]);
        // Symmetric around 27: the ranks from 28 on are those up to 26.
        assert!((2.0 * all[..27].iter().sum::<f64>() + middle - 1.0).abs() < 1e-12, "{sum}");
        assert!((all[0] - 1.0 / 5005.0).abs() < 1e-12);
    }

    #[test]
    fn one_more_value_lies_within_students_prediction() {
        // t of 0.001 at 4 degrees of freedom is 7.173 (Fisher and Yates, table III).
        let found = one_more(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.001).unwrap();
        assert!((found - 7.173 * 2.5f64.sqrt() * 1.2f64.sqrt()).abs() < 0.01, "{found}");
        assert_eq!(one_more(&[2.0; 5], 0.001), Some(0.0));
        assert_eq!((one_more(&[1.0], 0.001), one_more(&[1.0, f64::INFINITY], 0.001)), (None, None));
    }

    #[test]
    fn an_estimate_must_be_above_what_drifts() {
        let values: Vec<f64> = (0..100).map(|i| 0.2 * (f64::from(i * 37 % 100) / 50.0 - 1.0)).collect();
        let spread = Spread::of(&[&values]).unwrap();
        let needed = |least: f64| spread.values_needed(0.2, 0.001, least, 5000, 1);
        let (far, near) = (needed(0.1).unwrap(), needed(0.19).unwrap());
        assert!(near > 10 * far && near > SIMULATED, "{far} {near}");
        // So many do find it.
        assert!(spread.minimum_detectable(near, near, 0.001, 0.19, 1).unwrap() <= 0.202);
        assert_eq!(needed(0.2), None);
    }

    #[test]
    fn a_value_beyond_all_others_moves_no_end_far() {
        let before: Vec<f64> = (0..20).map(f64::from).collect();
        let mut after: Vec<f64> = (0..20).map(|v| f64::from(v) + 30.0).collect();
        let plain = shift(&before, &after, 0.001).unwrap();
        assert_eq!(plain.estimate, 30.0);
        after[3] = f64::INFINITY;
        let found = shift(&before, &after, 0.001).unwrap();
        assert!((found.estimate - plain.estimate).abs() < 3.0, "{found:?}");
        assert!(found.high.unwrap() < 60.0 && found.low.unwrap() > 15.0, "{found:?}");
        let all = [f64::INFINITY; 20];
        assert_eq!(shift(&all, &all, 0.001).unwrap().estimate, 0.0);
        assert_eq!(shift(&before, &all, 0.001).unwrap().low, Some(f64::INFINITY));
        assert_eq!(shift(&before, &[f64::NAN], 0.001), None);
    }

    #[test]
    fn differences_that_are_not_made_have_the_same_order() {
        let mut rng = generator(3);
        // Many are equal, and some are beyond all others.
        let mut values = |count: usize, of: u32| -> Vec<f64> {
            let value = |n: u32| if n == 0 { f64::INFINITY } else { f64::from(n % 97).ln_1p() };
            (0..count).map(|_| value(rng.random_range(0..of))).collect()
        };
        for (before, after, of) in [(200, 150, 1000), (301, 97, 5), (1, 30_000, 300), (170, 170, 1)] {
            let (before, after) = (values(before, of), values(after, of));
            let mut all: Vec<f64> =
                after.iter().flat_map(|a| before.iter().map(|b| difference(*a, *b))).collect();
            all.sort_unstable_by(f64::total_cmp);
            let table = Differences::new(&before, &after);
            let places = [0, 1, all.len() / 40, all.len() / 2, all.len() - 2, all.len() - 1];
            for place in places.into_iter().chain((0..40).map(|n| n * all.len() / 40)) {
                assert_eq!(table.at(place), all[place], "{place} of {}", all.len());
            }
        }
    }

    #[test]
    fn what_is_detectable_is_found_in_nineteen_of_twenty() {
        let mut rng = generator(7);
        let mut normal = |count: usize| -> Vec<f64> {
            (0..count).map(|_| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0).collect()
        };
        let (before, after) = (normal(200), normal(200));
        let spread = Spread::of(&[&before, &after]).unwrap();
        let least = spread.minimum_detectable(20, 10, 0.001, 0.0, 1).unwrap();
        // Normal theory: (3.09 + 1.645) √(1/20 + 1/10) / √(3/π).
        assert!((1.6..2.4).contains(&least), "{least}");
        let found = (0..300)
            .filter(|_| {
                let after: Vec<f64> = normal(10).iter().map(|v| v + least).collect();
                shift(&normal(20), &after, 0.001).unwrap().low.unwrap() > 0.0
            })
            .count();
        assert!(found >= 275, "{found} of 300");
        // Normal theory: 2 ((3.09 + 1.645) / 1.5)² / (3/π).
        let needed = spread.values_needed(1.5, 0.001, 0.0, 200, 1).unwrap();
        assert!((18..30).contains(&needed), "{needed}");
        let needed = spread.values_needed(0.5, 0.001, 0.0, 1000, 1).unwrap();
        assert!((150..260).contains(&needed), "{needed}");
        assert_eq!(spread.values_needed(0.01, 0.001, 0.0, 1000, 1), None);
    }

    proptest! {
        #[test]
        fn what_moves_one_side_moves_the_estimate_and_both_ends(
            before in proptest::collection::vec(-1e3f64..1e3, 5..20),
            after in proptest::collection::vec(-1e3f64..1e3, 5..20),
            by in -100i32..100,
        ) {
            let by = f64::from(by);
            let moved: Vec<f64> = after.iter().map(|v| v + by).collect();
            let (plain, moved) = (shift(&before, &after, 0.01).unwrap(), shift(&before, &moved, 0.01).unwrap());
            prop_assert!((moved.estimate - plain.estimate - by).abs() < 1e-9);
            prop_assert_eq!(plain.low.is_some(), moved.low.is_some());
            if let (Some(a), Some(b)) = (plain.low, moved.low) {
                prop_assert!((b - a - by).abs() < 1e-9 && a <= plain.estimate);
            }
        }
    }
}
