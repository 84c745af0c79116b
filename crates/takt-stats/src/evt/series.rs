//! Conditions for extrapolating the tail of a series: its large values must come one by one (or be
//! declustered), at an even rate, and without drift.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Exceedances of a threshold grouped into clusters, each with its greatest value.
#[derive(Clone, Debug)]
pub(crate) struct Clusters {
    /// Number of values above the threshold.
    pub(crate) exceedances: usize,
    /// Extremal index: 1 when exceedances come independently, 1/m when they come in bursts of m.
    pub(crate) index: f64,
    /// Greatest value of each cluster with its place in the series, in time order.
    pub(crate) peaks: Vec<(usize, u64)>,
}

impl Clusters {
    /// Groups the values above `threshold` by the intervals estimator (Ferro & Segers, J. R.
    /// Statist. Soc. B 65:545, 2003): of N exceedances the ⌊θN⌋ widest intervals between them
    /// separate clusters. An index that chance could have moved from 1 (below by less than 1.64
    /// standard errors, 1/√N) counts as 1: nothing is thrown away then.
    pub(crate) fn above(series: &[u64], threshold: u64) -> Self {
        let places: Vec<usize> =
            series.iter().enumerate().filter(|&(_, &v)| v > threshold).map(|(i, _)| i).collect();
        let n = places.len();
        let gaps: Vec<usize> = places.windows(2).map(|w| w[1] - w[0]).collect();
        let raw = intervals_estimate(&gaps);
        let index = if raw > 1.0 - 1.64 / (n.max(1) as f64).sqrt() { 1.0 } else { raw };
        let mut peaks: Vec<(usize, u64)> = Vec::new();
        // A gap of at least this many samples separates two clusters.
        let separating = if index >= 1.0 {
            0
        } else {
            let mut widest = gaps.clone();
            widest.sort_unstable_by(|a, b| b.cmp(a));
            let between = ((index * n as f64) as usize).min(widest.len());
            // One more than the widest gap inside a cluster, so that equal gaps are treated
            // equally.
            widest.get(between).map_or(0, |inside| inside + 1)
        };
        for (i, &place) in places.iter().enumerate() {
            let joins = i > 0 && gaps[i - 1] < separating;
            match peaks.last_mut() {
                Some(peak) if joins => {
                    if series[place] > peak.1 {
                        *peak = (place, series[place]);
                    }
                }
                _ => peaks.push((place, series[place])),
            }
        }
        Self { exceedances: n, index, peaks }
    }
}

/// Ferro and Segers' estimate from the intervals between exceedances; 1 where there are too few to
/// report.
fn intervals_estimate(gaps: &[usize]) -> f64 {
    let n = gaps.len() as f64;
    let sum = |f: &dyn Fn(f64) -> f64| gaps.iter().map(|&g| f(g as f64)).sum::<f64>();
    let (above, below) = if gaps.iter().all(|&g| g <= 2) {
        (2.0 * sum(&|t| t).powi(2), n * sum(&|t| t * t))
    } else {
        (2.0 * sum(&|t| t - 1.0).powi(2), n * sum(&|t| (t - 1.0) * (t - 2.0)))
    };
    if gaps.len() < 2 || below <= 0.0 { 1.0 } else { (above / below).clamp(0.0, 1.0) }
}

/// p-value of events at these places of a series of `length` coming at an even rate: χ² of their
/// numbers in equal parts of the run, at least ten expected in each.
pub(crate) fn even_rate_p_value(places: impl ExactSizeIterator<Item = usize>, length: usize) -> f64 {
    let events = places.len();
    let parts = (events / 10).min(10);
    if parts < 2 || length == 0 {
        return 1.0;
    }
    let mut counts = vec![0usize; parts];
    places.for_each(|p| counts[((p as u128 * parts as u128 / length as u128) as usize).min(parts - 1)] += 1);
    let expected = events as f64 / parts as f64;
    let chi2: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    ChiSquared::new((parts - 1) as f64).map_or(1.0, |d| 1.0 - d.cdf(chi2))
}

/// Mann and Kendall's test for a monotonic trend: the normal deviate of the number of rising less
/// falling pairs, ties counted as neither. 0 for fewer than 10 values.
pub(crate) fn trend_deviate(values: &[f64]) -> f64 {
    let n = values.len();
    if n < 10 {
        return 0.0;
    }
    let mut score = 0i64;
    for (i, a) in values.iter().enumerate() {
        score += values[i + 1..].iter().map(|b| i64::from(b > a) - i64::from(b < a)).sum::<i64>();
    }
    let n = n as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    score as f64 / deviation
}

/// Maxima of consecutive blocks of `length` values; what is left at the end is in no block.
pub(crate) fn block_maxima(series: &[u64], length: usize) -> Vec<f64> {
    series.chunks_exact(length.max(1)).filter_map(|block| block.iter().max().map(|&m| m as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;
    use proptest::prelude::*;
    use rand::RngExt;

    fn independent(n: usize, seed: u64) -> Vec<u64> {
        let mut rng = generator(seed);
        (0..n).map(|_| rng.random_range(0..1_000_000u64)).collect()
    }

    #[test]
    fn independent_values_are_left_alone() {
        let clusters = Clusters::above(&independent(50_000, 1), 990_000);
        assert_eq!(clusters.index, 1.0);
        assert_eq!(clusters.peaks.len(), clusters.exceedances);
    }

    #[test]
    fn bursts_become_clusters() {
        // The maximum over five neighbours: each large value is seen five times in a row, the index
        // is 1/5.
        let base = independent(100_000, 2);
        let series: Vec<u64> = base.windows(5).filter_map(|w| w.iter().max().copied()).collect();
        let threshold = 999_000;
        let clusters = Clusters::above(&series, threshold);
        assert!((clusters.index - 0.2).abs() < 0.05, "{}", clusters.index);
        let true_clusters = base.iter().filter(|&&v| v > threshold).count();
        assert!((clusters.peaks.len() as f64 / true_clusters as f64 - 1.0).abs() < 0.25);
    }

    #[test]
    fn uneven_rates_and_trends_are_seen() {
        let even: Vec<usize> = (0..200).map(|i| i * 50).collect();
        let early: Vec<usize> = (0..200).map(|i| i * 25).collect();
        assert!(even_rate_p_value(even.into_iter(), 10_000) > 0.5);
        assert!(even_rate_p_value(early.into_iter(), 10_000) < 1e-6);
        let climbing: Vec<f64> = (0..50).map(f64::from).collect();
        assert!(trend_deviate(&climbing) > 5.0);
        let noise: Vec<f64> = independent(100, 3).iter().map(|&v| v as f64).collect();
        assert!(trend_deviate(&noise).abs() < 3.0);
    }

    proptest! {
        #[test]
        fn clusters_hold_every_exceedance_once(
            series in proptest::collection::vec(0u64..100, 0..500), u in 0u64..100
        ) {
            let c = Clusters::above(&series, u);
            prop_assert_eq!(c.exceedances, series.iter().filter(|&&v| v > u).count());
            prop_assert!(c.peaks.len() <= c.exceedances && (c.exceedances == 0 || !c.peaks.is_empty()));
            prop_assert!(c.peaks.windows(2).all(|w| w[0].0 < w[1].0));
            prop_assert!(c.peaks.iter().all(|&(place, value)| series[place] == value && value > u));
            if let Some(max) = series.iter().max().filter(|&&m| m > u) {
                prop_assert!(c.peaks.iter().any(|p| p.1 == *max));
            }
        }
    }
}
