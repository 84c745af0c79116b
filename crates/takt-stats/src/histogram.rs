//! Histograms as cyclictest prints them (`--histogram`): bins of 1 µs, values beyond the last bin
//! counted apart, so that the plotting scripts of that tool read Takt's runs.

use serde::{Deserialize, Serialize};

use crate::recorder::Recorder;

/// Width of a bin: cyclictest's.
const BIN_NS: u64 = 1000;

/// Overflowing values listed by number; the others are counted. cyclictest lists as many as it has
/// bins.
const OVERFLOWS_LISTED: usize = 10_000;

/// Counts in bins of 1 µs from 0; a value is in the bin of its whole microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Values in bin i: from i to below i + 1 µs.
    pub counts: Vec<u64>,
    /// Values beyond the last bin.
    pub overflows: u64,
    /// Numbers (from 0, in time order) of the first of them; empty where the order is not known.
    pub overflow_cycles: Vec<u64>,
    /// Least value, whole microseconds.
    pub min_us: u64,
    /// Mean, whole microseconds.
    pub avg_us: u64,
    /// Greatest value, whole microseconds.
    pub max_us: u64,
}

impl Histogram {
    /// The histogram of a series in time order.
    pub fn of(values_ns: &[u64], bins: usize) -> Self {
        let mut h = Self { counts: vec![0; bins], min_us: u64::MAX, ..Self::default() };
        let mut sum_ns = 0u128;
        for (cycle, &value_ns) in (0..).zip(values_ns) {
            let us = value_ns / BIN_NS;
            sum_ns += u128::from(value_ns);
            h.min_us = h.min_us.min(us);
            h.max_us = h.max_us.max(us);
            match usize::try_from(us).ok().and_then(|bin| h.counts.get_mut(bin)) {
                Some(count) => *count += 1,
                None => {
                    h.overflows += 1;
                    if h.overflow_cycles.len() < OVERFLOWS_LISTED {
                        h.overflow_cycles.push(cycle);
                    }
                }
            }
        }
        if values_ns.is_empty() {
            h.min_us = 0;
        } else {
            h.avg_us = (sum_ns / values_ns.len() as u128 / u128::from(BIN_NS)) as u64;
        }
        h
    }

    /// The histogram of a recorder. Above 32 µs a recorder's own bins may lie across the border of
    /// two of these by 0.0061 % of the value: they count in the lower one. Which cycles overflowed
    /// is not known.
    pub fn of_recorder(recorder: &Recorder, bins: usize) -> Self {
        let mut h = Self {
            counts: vec![0; bins],
            min_us: recorder.min_ns() / BIN_NS,
            avg_us: (recorder.mean_ns() / BIN_NS as f64) as u64,
            max_us: recorder.max_ns() / BIN_NS,
            ..Self::default()
        };
        for bucket in recorder.buckets() {
            let bin = usize::try_from(bucket.first_ns / BIN_NS).unwrap_or(usize::MAX);
            match h.counts.get_mut(bin) {
                Some(count) => *count += bucket.count,
                None => h.overflows += bucket.count,
            }
        }
        h
    }

    /// Values in the bins.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "# Histogram")?;
        for (us, count) in self.counts.iter().enumerate() {
            writeln!(f, "{us:06} {count:06}")?;
        }
        writeln!(f, "# Total: {:09}", self.total())?;
        writeln!(f, "# Min Latencies: {:05}", self.min_us)?;
        writeln!(f, "# Avg Latencies: {:05}", self.avg_us)?;
        writeln!(f, "# Max Latencies: {:05}", self.max_us)?;
        writeln!(f, "# Histogram Overflows: {:05}", self.overflows)?;
        writeln!(f, "# Histogram Overflow at cycle number:")?;
        write!(f, "# Thread 0:")?;
        for cycle in &self.overflow_cycles {
            write!(f, " {cycle:05}")?;
        }
        let others = self.overflows.saturating_sub(self.overflow_cycles.len() as u64);
        if others > 0 {
            write!(f, " # {others:05} others")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_as_cyclictest_does() {
        let text = Histogram::of(&[1500, 1999, 2000, 900_000, 2100], 4).to_string();
        let expected = "# Histogram\n000000 000000\n000001 000002\n000002 000002\n000003 000000\n# Total: 000000004\n\
                        # Min Latencies: 00001\n# Avg Latencies: 00181\n# Max Latencies: 00900\n\
                        # Histogram Overflows: 00001\n# Histogram Overflow at cycle number:\n# Thread 0: 00003\n";
        assert_eq!(text, expected);
        assert!(Histogram::of(&[], 2).to_string().contains("# Total: 000000000\n# Min Latencies: 00000\n"));
    }

    proptest! {
        #[test]
        fn every_value_counts_once(
            values in proptest::collection::vec(0u64..2_000_000, 0..300), bins in 0usize..1500
        ) {
            let h = Histogram::of(&values, bins);
            prop_assert_eq!(h.total() + h.overflows, values.len() as u64);
            let mut recorder = Recorder::new(None).unwrap();
            values.iter().for_each(|&v| recorder.record(v));
            let r = Histogram::of_recorder(&recorder, bins);
            prop_assert_eq!(r.total() + r.overflows, values.len() as u64);
            prop_assert_eq!((r.min_us, r.avg_us, r.max_us), (h.min_us, h.avg_us, h.max_us));
            let exact = bins.min(32);
            prop_assert_eq!(&r.counts[..exact], &h.counts[..exact]);
        }
    }
}
