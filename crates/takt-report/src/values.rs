//! All values of a configuration, and what figures need of their distribution.

use takt_stats::INTERVAL_CONFIDENCE;
use takt_stats::low::{self, LowRow};
use takt_stats::quantile::{self, Quantile};
use takt_stats::recorder::Recorder;

/// Bins of a distribution per factor of ten.
const BINS_PER_DECADE: f64 = 40.0;
/// Points of a curve of shares, per factor of ten of the rank.
const POINTS_PER_DECADE: f64 = 40.0;

/// All values of a configuration.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Each of them, ascending.
    Sorted(Vec<f64>),
    /// Counted by size.
    Recorded(Box<Recorder>),
}

impl Values {
    pub(crate) fn estimate(&self, q: f64) -> Option<Quantile> {
        match self {
            Self::Sorted(sorted) => quantile::estimate(sorted, q, INTERVAL_CONFIDENCE),
            Self::Recorded(recorder) => recorder.quantile_estimate(q, INTERVAL_CONFIDENCE),
        }
    }

    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        match self {
            Self::Sorted(sorted) => quantile::of_sorted(sorted, q),
            Self::Recorded(recorder) => recorder.quantile(q),
        }
    }

    pub(crate) fn low(&self) -> Vec<LowRow> {
        match self {
            Self::Sorted(sorted) => low::table(sorted),
            Self::Recorded(recorder) => recorder.low_table(),
        }
    }

    pub(crate) fn resolution(&self) -> Option<String> {
        let Self::Recorded(recorder) = self else { return None };
        let worst = recorder.max_ns();
        Some(format!(
            "counted during the run; quantiles near {} are exact to {}",
            crate::words::time(worst as f64),
            crate::words::time(recorder.resolution_ns(worst) as f64)
        ))
    }

    /// Values at ranks that are dense towards both ends, with the number of samples that are not
    /// above them; ascending.
    fn ranks(&self) -> Vec<(f64, u64)> {
        let count = match self {
            Self::Sorted(sorted) => sorted.len() as u64,
            Self::Recorded(recorder) => recorder.count(),
        };
        let mut ranks = Vec::new();
        let mut beyond = 0u64;
        while beyond < count {
            ranks.extend([count - beyond, beyond + 1]);
            beyond = ((beyond as f64 * 10f64.powf(1.0 / POINTS_PER_DECADE)) as u64).max(beyond + 1);
        }
        ranks.sort_unstable();
        ranks.dedup();
        match self {
            Self::Sorted(sorted) => {
                ranks.into_iter().filter_map(|rank| Some((*sorted.get(rank as usize - 1)?, rank))).collect()
            }
            // One pass over the buckets serves all ranks, which rise too.
            Self::Recorded(recorder) => {
                let (least, greatest) = (recorder.min_ns(), recorder.max_ns());
                let mut wanted = ranks.into_iter().peekable();
                let mut found = Vec::new();
                let mut seen = 0;
                for bucket in recorder.buckets() {
                    seen += bucket.count;
                    while let Some(rank) = wanted.next_if(|rank| *rank <= seen) {
                        let value =
                            if rank == count { greatest } else { bucket.last_ns.clamp(least, greatest) };
                        found.push((value as f64, rank));
                    }
                }
                found
            }
        }
    }

    /// Counts in bins of equal ratio.
    pub(crate) fn bins(&self) -> Vec<(f64, f64, u64)> {
        let bin_of = |value: f64| (value.max(1.0).log10() * BINS_PER_DECADE + 1e-9).floor();
        let edge = |bin: f64| 10f64.powf(bin / BINS_PER_DECADE);
        let mut bins: Vec<(f64, f64, u64)> = Vec::new();
        let mut add = |bin: f64, count: u64| match bins.last_mut() {
            Some(last) if last.0 == edge(bin) => last.2 += count,
            _ => bins.push((edge(bin), edge(bin + 1.0), count)),
        };
        match self {
            Self::Sorted(sorted) => {
                let mut from = 0;
                while let Some(&value) = sorted.get(from) {
                    let bin = bin_of(value);
                    let to = from + sorted[from..].partition_point(|v| bin_of(*v) <= bin).max(1);
                    add(bin, (to - from) as u64);
                    from = to;
                }
            }
            Self::Recorded(recorder) => {
                recorder.buckets().for_each(|bucket| add(bin_of(bucket.first_ns as f64), bucket.count));
            }
        }
        bins
    }

    /// The share of samples above a value.
    pub(crate) fn above(&self) -> Vec<(f64, f64)> {
        let ranks = self.ranks();
        let count = ranks.last().map_or(1, |r| r.1).max(1);
        ranks.iter().map(|&(value, rank)| (value, (count - rank) as f64 / count as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // A recorder takes some megabytes: fewer cases than usual.
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn bins_and_curves_hold_every_value(mut values in proptest::collection::vec(0u64..=1_000_000_000_000, 1..3000)) {
            let mut recorder = Recorder::new(None).unwrap();
            values.iter().for_each(|v| recorder.record(*v));
            values.sort_unstable();
            let sorted: Vec<f64> = values.iter().map(|v| *v as f64).collect();
            let (least, greatest) = (sorted[0], sorted[sorted.len() - 1]);
            for all in [Values::Sorted(sorted.clone()), Values::Recorded(Box::new(recorder))] {
                let bins = all.bins();
                prop_assert_eq!(bins.iter().map(|b| b.2).sum::<u64>(), sorted.len() as u64);
                prop_assert!(bins.is_sorted_by(|a, b| a.1 <= b.0 * (1.0 + 1e-9)));
                let above = all.above();
                prop_assert!(above.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
                prop_assert_eq!(above.last().copied(), Some((greatest, 0.0)));
                prop_assert!(above[0].0 <= least * (1.0 + 1e-3) && above.len() < 600, "{}", above.len());
            }
            // Of kept values the share is exact.
            for (value, share) in Values::Sorted(sorted.clone()).above() {
                let rank = sorted.partition_point(|v| *v <= value);
                prop_assert!(share >= (sorted.len() - rank) as f64 / sorted.len() as f64 - 1e-12);
            }
        }
    }
}
