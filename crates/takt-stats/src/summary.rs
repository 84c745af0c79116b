//! Moments and order statistics of a sample.

use serde::{Deserialize, Serialize};

use crate::moments::Moments;
use crate::quantile;

/// Moments and order statistics of one sample, in the unit of the sample. Everything is 0 for an
/// empty one; written as JSON, its figures are null then, for nothing was measured that could be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); 0 for fewer than two values, and null in JSON.
    pub stddev: f64,
    /// Least value.
    pub min: f64,
    /// 50 % quantile.
    pub median: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// 99.9 % quantile.
    pub p999: f64,
    /// Greatest value ("worst"), never an estimate.
    pub worst: f64,
}

/// A summary as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    count: u64,
    mean: Option<f64>,
    stddev: Option<f64>,
    min: Option<f64>,
    median: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    worst: Option<f64>,
}

impl From<Summary> for Written {
    fn from(s: Summary) -> Self {
        let some = |value| (s.count > 0).then_some(value);
        Self {
            count: s.count,
            mean: some(s.mean),
            stddev: (s.count > 1).then_some(s.stddev),
            min: some(s.min),
            median: some(s.median),
            p90: some(s.p90),
            p99: some(s.p99),
            p999: some(s.p999),
            worst: some(s.worst),
        }
    }
}

impl From<Written> for Summary {
    fn from(t: Written) -> Self {
        let value = Option::unwrap_or_default;
        Self {
            count: t.count,
            mean: value(t.mean),
            stddev: value(t.stddev),
            min: value(t.min),
            median: value(t.median),
            p90: value(t.p90),
            p99: value(t.p99),
            p999: value(t.p999),
            worst: value(t.worst),
        }
    }
}

impl Summary {
    /// Summarises `values`, which get sorted. Quantiles are nearest-rank: a value that was really
    /// measured, never one interpolated between two. Whole numbers (nanoseconds) are summed
    /// exactly, so that [`crate::Recorder`] gives the same mean and deviation on the same data.
    pub fn of(values: &mut [f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let (mean, stddev) = match Moments::of_whole(values) {
            Some(moments) => (moments.mean(), moments.stddev()),
            None => mean_and_deviation(values),
        };
        let rank = |q: f64| values[quantile::rank(q, count as u64) as usize - 1];
        Self {
            count: count as u64,
            mean,
            stddev,
            min: values[0],
            median: rank(0.5),
            p90: rank(0.9),
            p99: rank(0.99),
            p999: rank(0.999),
            worst: values[count - 1],
        }
    }
}

impl Summary {
    /// In another unit: every value over `by`.
    #[must_use]
    pub fn over(self, by: f64) -> Self {
        Self {
            count: self.count,
            mean: self.mean / by,
            stddev: self.stddev / by,
            min: self.min / by,
            median: self.median / by,
            p90: self.p90 / by,
            p99: self.p99 / by,
            p999: self.p999 / by,
            worst: self.worst / by,
        }
    }
}

/// Two passes, the second about the mean.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// By how much `now` is lower than `before`, in percent of `before` (negative: higher).
/// `None` where `before` is not a positive number.
pub fn reduction(before: f64, now: f64) -> Option<f64> {
    (before > 0.0 && now.is_finite()).then(|| 100.0 * (before - now) / before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_sample() {
        // 1..=1000: mean 500.5, sd = sqrt(1000 * 1001 / 12), nearest-rank quantiles are exact.
        let mut values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let s = Summary::of(&mut values);
        assert_eq!((s.count, s.min, s.median, s.p90, s.p99, s.p999, s.worst), {
            (1000, 1.0, 500.0, 900.0, 990.0, 999.0, 1000.0)
        });
        assert!((s.mean - 500.5).abs() < 1e-9);
        assert!((s.stddev - (1000.0f64 * 1001.0 / 12.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn empty_and_single() {
        assert_eq!(Summary::of(&mut []), Summary::default());
        let s = Summary::of(&mut [7.0]);
        assert_eq!((s.count, s.mean, s.stddev, s.median, s.worst), (1, 7.0, 0.0, 7.0, 7.0));
    }

    #[test]
    fn what_was_not_measured_is_written_as_null_and_never_as_0() {
        let empty = serde_json::to_value(Summary::default()).unwrap();
        let figures = ["mean", "stddev", "min", "median", "p90", "p99", "p999", "worst"];
        assert!(figures.iter().all(|name| empty[name].is_null()) && empty["count"] == 0, "{empty}");
        assert_eq!(serde_json::from_value::<Summary>(empty).unwrap(), Summary::default());
        let some = Summary::of(&mut [0.0, 3.0]);
        let written = serde_json::to_value(some).unwrap();
        assert_eq!((&written["min"], &written["worst"]), (&0.0.into(), &3.0.into()));
        assert_eq!(serde_json::from_value::<Summary>(written).unwrap(), some);
    }

    #[test]
    fn reduction_in_percent() {
        assert_eq!(reduction(400.0, 100.0), Some(75.0));
        assert_eq!(reduction(10.0, 20.0), Some(-100.0));
        assert_eq!(reduction(0.0, 1.0), None);
    }

    proptest! {
        #[test]
        fn order_holds(mut values in proptest::collection::vec(0.0f64..1e9, 1..400)) {
            let s = Summary::of(&mut values);
            prop_assert!(s.min <= s.median && s.median <= s.p90 && s.p90 <= s.p99);
            prop_assert!(s.p99 <= s.p999 && s.p999 <= s.worst);
            prop_assert!(s.mean >= s.min - 1e-6 && s.mean <= s.worst + 1e-6);
            prop_assert!(values.contains(&s.p99));
        }
    }
}
