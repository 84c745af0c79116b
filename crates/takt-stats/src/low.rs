//! The "Low" tables of the humanoid paper (2009): the best 99 %, 99.9 %, … of the values, each with
//! its maximum, mean and standard deviation. "Low 99.9 %" shows what is left when the worst
//! thousandth is looked away from; the row "100 %" shows everything. The maximum of "Low p %" is
//! the p % quantile.

use serde::{Deserialize, Serialize};

use crate::quantile::rank;

/// The shares of the paper's tables, percent.
pub const SHARES_PERCENT: [f64; 5] = [99.0, 99.9, 99.99, 99.999, 100.0];

/// The lowest `percent` of a sample, in the unit of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowRow {
    /// The share, percent.
    pub percent: f64,
    /// Number of values in it: ⌈share × count⌉.
    pub count: u64,
    /// Least of them.
    pub min: f64,
    /// Greatest of them.
    pub max: f64,
    /// Their arithmetic mean.
    pub mean: f64,
    /// Their standard deviation (n - 1).
    pub stddev: f64,
}

impl LowRow {
    /// "Low 99.9 %", as the paper calls the row.
    pub fn label(&self) -> String {
        format!("Low {} %", self.percent)
    }
}

/// The table of an ascending sample, a row for each of [`SHARES_PERCENT`]; empty for an empty
/// sample.
pub fn table(sorted: &[f64]) -> Vec<LowRow> {
    let Some(&min) = sorted.first() else { return Vec::new() };
    let mut rows = Vec::with_capacity(SHARES_PERCENT.len());
    let mut running = Running::default();
    let mut done = 0;
    for percent in SHARES_PERCENT {
        let end = rank(percent / 100.0, sorted.len() as u64) as usize;
        sorted[done..end].iter().for_each(|&v| running.push(v, 1));
        done = end;
        rows.push(running.row(percent, min, sorted[end - 1]));
    }
    rows
}

/// Welford's mean and variance: one pass, stable far from zero. (Welford 1962, Technometrics 4:419;
/// weights: West 1979, Comm. ACM 22:532.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Running {
    #[inline]
    pub(crate) fn push(&mut self, value: f64, times: u64) {
        if times == 0 {
            return;
        }
        self.count += times;
        let delta = value - self.mean;
        self.mean += delta * times as f64 / self.count as f64;
        self.squares += delta * (value - self.mean) * times as f64;
    }

    pub(crate) fn row(&self, percent: f64, min: f64, max: f64) -> LowRow {
        let degrees = self.count.saturating_sub(1);
        let stddev = if degrees == 0 { 0.0 } else { (self.squares / degrees as f64).max(0.0).sqrt() };
        LowRow { percent, count: self.count, min, max, mean: self.mean, stddev }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Summary, quantile};
    use proptest::prelude::*;

    #[test]
    fn known_table() {
        let sorted: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let rows = table(&sorted);
        assert_eq!(
            rows.iter().map(|r| (r.count, r.max)).collect::<Vec<_>>(),
            [
                (99_000, 99_000.0),
                (99_900, 99_900.0),
                (99_990, 99_990.0),
                (99_999, 99_999.0),
                (100_000, 100_000.0)
            ]
        );
        assert!((rows[0].mean - 49_500.5).abs() < 1e-6);
        assert_eq!(rows[1].label(), "Low 99.9 %");
        assert!(table(&[]).is_empty());
        assert_eq!(table(&[3.0]).len(), 5);
    }

    proptest! {
        #[test]
        fn last_row_is_the_summary_and_maxima_are_quantiles(
            mut values in proptest::collection::vec(0.0f64..1e9, 1..500)
        ) {
            let s = Summary::of(&mut values);
            let rows = table(&values);
            let all = rows[4];
            prop_assert_eq!((all.count, all.min, all.max), (s.count, s.min, s.worst));
            prop_assert!((all.mean - s.mean).abs() <= 1e-9 * s.mean.max(1.0));
            prop_assert!((all.stddev - s.stddev).abs() <= 1e-7 * s.stddev.max(1.0));
            for row in &rows {
                prop_assert_eq!(Some(row.max), quantile::of_sorted(&values, row.percent / 100.0));
            }
        }
    }
}
