//! Quantiles with distribution-free confidence intervals.
//!
//! The q-quantile of n values is their ⌈qn⌉-th smallest (nearest rank): a value that was really
//! measured. Its confidence interval is a pair of order statistics (David & Nagaraja, Order
//! Statistics, 3rd ed. 2003, section 7.1): the number of values below the true quantile is
//! Binomial(n, q), so that [X(l), X(u)] with P(B ≤ l - 1) ≤ α/2 and P(B ≥ u) ≤ α/2 covers it with
//! at least 1 - α, whatever the distribution.
//!
//! This holds for independent values. Latencies that come in bursts carry less information than
//! their number suggests, and the interval is then too narrow; [`crate::bootstrap`] resamples
//! blocks and is not.

use serde::{Deserialize, Serialize};

/// A quantile of a sample and what the sample says about the quantile of what it was drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The quantile: 0.99 for the 99 % quantile.
    pub q: f64,
    /// Probability with which the interval covers the true quantile, at least.
    pub confidence: f64,
    /// The quantile of the sample, a measured value.
    pub value: f64,
    /// Lower end of the interval; `None` where the sample is too short to give one.
    pub low: Option<f64>,
    /// Upper end of the interval; `None` where the sample is too short to give one.
    pub high: Option<f64>,
}

/// The rank, from 1, of the `q`-quantile among `count` values: ⌈q·count⌉, at least 1, at most
/// `count`. A product that only rounding lifted above a whole number (0.07 × 100) counts as that
/// number.
pub(crate) fn rank(q: f64, count: u64) -> u64 {
    let exact = q * count as f64;
    let whole = exact.round();
    let rank = if (exact - whole).abs() <= 4.0 * f64::EPSILON * exact { whole } else { exact.ceil() };
    (rank as u64).clamp(1, count.max(1))
}

/// The nearest-rank `q`-quantile of an ascending sample; `None` for an empty one, and for a `q`
/// outside 0..=1.
pub fn of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    sorted.get(rank(q, sorted.len() as u64) as usize - 1).copied()
}

/// Estimates the `q`-quantile from an ascending sample, with its interval at `confidence`. `None`
/// for an empty sample, and for a `q` or `confidence` that is not strictly between 0 and 1.
pub fn estimate(sorted: &[f64], q: f64, confidence: f64) -> Option<Quantile> {
    estimate_by_rank(sorted.len() as u64, q, confidence, |rank| sorted[rank as usize - 1])
}

/// The same from anything that knows its value of each rank (1..=count).
pub(crate) fn estimate_by_rank(
    count: u64,
    q: f64,
    confidence: f64,
    value_of: impl Fn(u64) -> f64,
) -> Option<Quantile> {
    let inside = |p: f64| p > 0.0 && p < 1.0;
    if count == 0 || !inside(q) || !inside(confidence) {
        return None;
    }
    let (low, high) = ranks(count, q, confidence);
    Some(Quantile {
        q,
        confidence,
        value: value_of(rank(q, count)),
        low: low.map(&value_of),
        high: high.map(&value_of),
    })
}

/// Ranks of the two ends of the interval.
fn ranks(count: u64, q: f64, confidence: f64) -> (Option<u64>, Option<u64>) {
    let tail = (1.0 - confidence) / 2.0;
    let binomial = Binomial::new(count, q);
    // Greatest l with P(B ≤ l - 1) ≤ tail, least u with P(B ≥ u) ≤ tail.
    let low = binomial.greatest_with_lower_tail(tail).map(|k| k + 1);
    let high = binomial.least_with_upper_tail(tail).filter(|&k| k <= count);
    (low, high)
}

/// The binomial distribution around its mode, normalised by its own sum: no special function, and
/// accurate where continued fractions for the incomplete beta function stop converging (n = 10^7
/// and beyond). Weights below 1e-30 of the mode are left out, which no tail that anyone asks for
/// can notice.
struct Binomial {
    first: u64,
    weights: Vec<f64>,
}

impl Binomial {
    fn new(n: u64, p: f64) -> Self {
        const NEGLIGIBLE: f64 = 1e-30;
        let mode = (((n as f64 + 1.0) * p).floor() as u64).min(n);
        let odds = p / (1.0 - p);
        let mut below = Vec::new();
        let (mut k, mut weight) = (mode, 1.0);
        while k > 0 {
            weight *= k as f64 / ((n - k + 1) as f64 * odds);
            if weight < NEGLIGIBLE {
                break;
            }
            k -= 1;
            below.push(weight);
        }
        let first = k;
        let mut weights: Vec<f64> = below.into_iter().rev().collect();
        weights.push(1.0);
        (k, weight) = (mode, 1.0);
        while k < n {
            weight *= (n - k) as f64 * odds / (k + 1) as f64;
            if weight < NEGLIGIBLE {
                break;
            }
            k += 1;
            weights.push(weight);
        }
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
        Self { first, weights }
    }

    /// Greatest k with P(B ≤ k) ≤ tail.
    fn greatest_with_lower_tail(&self, tail: f64) -> Option<u64> {
        let mut sum = 0.0;
        for (i, weight) in self.weights.iter().enumerate() {
            sum += weight;
            if sum > tail {
                return (self.first + i as u64).checked_sub(1);
            }
        }
        None
    }

    /// Least k with P(B ≥ k) ≤ tail.
    fn least_with_upper_tail(&self, tail: f64) -> Option<u64> {
        let mut sum = 0.0;
        for (i, weight) in self.weights.iter().enumerate().rev() {
            sum += weight;
            if sum > tail {
                return Some(self.first + i as u64 + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Pcg, generator};
    use proptest::prelude::*;
    use rand::RngExt;

    #[test]
    fn ranks_are_nearest_and_not_lifted_by_rounding() {
        assert_eq!(
            [rank(0.07, 100), rank(0.99, 150), rank(0.999, 1000), rank(0.99999, 1_000_000)],
            [7, 149, 999, 999_990]
        );
        assert_eq!([rank(0.0, 10), rank(1.0, 10), rank(0.5, 1)], [1, 10, 1]);
    }

    #[test]
    fn intervals_of_textbook_ranks() {
        // Median of 10: ranks 2 and 9 (97.9 %); of 100: 40 and 61 (Conover, Practical Nonparametric
        // Statistics).
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        let ten = estimate(&sorted[..10], 0.5, 0.95).unwrap();
        assert_eq!((ten.value, ten.low, ten.high), (5.0, Some(2.0), Some(9.0)));
        let hundred = estimate(&sorted, 0.5, 0.95).unwrap();
        assert_eq!((hundred.low, hundred.high), (Some(40.0), Some(61.0)));
    }

    #[test]
    fn a_short_sample_gives_no_bound() {
        let sorted: Vec<f64> = (1..=367).map(f64::from).collect();
        let p99 = estimate(&sorted, 0.99, 0.95).unwrap();
        assert_eq!((p99.high, p99.low.is_some()), (None, true));
        // P(all of n values below) = 0.99^n must be at most 0.025: n is 368 and more.
        let enough: Vec<f64> = (1..=368).map(f64::from).collect();
        assert_eq!(estimate(&enough, 0.99, 0.95).unwrap().high, Some(368.0));
        assert_eq!(estimate(&[7.0], 0.5, 0.95).map(|e| (e.value, e.low, e.high)), Some((7.0, None, None)));
        assert_eq!((estimate(&[], 0.5, 0.95), estimate(&[1.0], 1.5, 0.95)), (None, None));
    }

    #[test]
    fn huge_samples_agree_with_the_normal_limit() {
        // n = 10^7: the ranks lie at nq ± 1.96 sqrt(nq(1 - q)) to within a rank or two.
        let (low, high) = ranks(10_000_000, 0.999, 0.95);
        let half = 1.959_964 * (1e7 * 0.999 * 0.001_f64).sqrt();
        assert!((low.unwrap() as f64 - (9_990_000.0 - half)).abs() < 3.0);
        assert!((high.unwrap() as f64 - (9_990_000.0 + half)).abs() < 3.0);
    }

    #[test]
    fn covers_as_often_as_it_says() {
        // Exponential values, whose quantiles are known. 2000 repetitions: the standard error of an
        // observed coverage of 95 % is 0.5 %. The interval is conservative, since ranks are whole.
        let mut rng: Pcg = generator(20_261_121);
        for (count, q) in [(200usize, 0.5f64), (200, 0.9), (1000, 0.99)] {
            let truth = -(1.0 - q).ln();
            let (mut covered, repetitions) = (0, 2000);
            for _ in 0..repetitions {
                let mut values: Vec<f64> = (0..count).map(|_| -(1.0 - rng.random::<f64>()).ln()).collect();
                values.sort_unstable_by(f64::total_cmp);
                let e = estimate(&values, q, 0.95).unwrap();
                covered += usize::from(e.low.unwrap() <= truth && truth <= e.high.unwrap());
            }
            let coverage = covered as f64 / repetitions as f64;
            assert!((0.94..0.985).contains(&coverage), "n {count}, q {q}: {coverage}");
        }
    }

    proptest! {
        #[test]
        fn ordered_and_measured(mut values in proptest::collection::vec(0.0f64..1e9, 1..500),
                                q in 0.001f64..0.999, confidence in 0.5f64..0.999) {
            values.sort_unstable_by(f64::total_cmp);
            let e = estimate(&values, q, confidence).unwrap();
            prop_assert!(values.contains(&e.value));
            prop_assert!(e.low.is_none_or(|low| low <= e.value && values.contains(&low)));
            prop_assert!(e.high.is_none_or(|high| high >= e.value && values.contains(&high)));
            let wider = estimate(&values, q, confidence + (1.0 - confidence) / 2.0).unwrap();
            prop_assert!(wider.low.is_none() || wider.low <= e.low);
            prop_assert!(wider.high.is_none() || e.high.is_some() && wider.high >= e.high);
        }
    }
}
