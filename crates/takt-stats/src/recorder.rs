//! A recorder for runs of weeks: 1 kHz for 40 days is 3.5e9 values, and nothing here grows with
//! their number.
//!
//! An HDR histogram (Gil Tene) with 4 significant digits: values up to 32.767 µs are exact to the
//! nanosecond, those above to 2^-14 (0.0061 %), up to 73 minutes; 475,136 counters of 64 bits, 3.6
//! MiB. Five digits would cost 26 MiB for a precision below the noise of any clock. Count, mean,
//! standard deviation, least and greatest value are kept beside it as exact integers, misses and
//! runs of misses likewise: they equal [`Summary`] over the same values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as HdrReader, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

use crate::low::{LowRow, Running, SHARES_PERCENT};
use crate::misses::Misses;
use crate::moments::Moments;
use crate::quantile::{self, Quantile};
use crate::summary::Summary;

/// Greatest value that the histogram distinguishes: 2^42 - 1 ns, 73 minutes. Values beyond it are
/// counted, and are in the mean, the deviation and the maximum.
pub const RANGE_NS: u64 = (1 << 42) - 1;

/// Significant decimal digits of the histogram.
const DIGITS: u8 = 4;

/// Those of a compact recorder: exact to the nanosecond below 2.048 us, to 0.05 % above, in 0.3
/// MiB.
const COMPACT_DIGITS: u8 = 3;

/// Reason why recorders could not be joined or read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecorderError {
    /// Their misses count against different deadlines.
    #[error(
        "recorders with different deadlines cannot be merged (this one: {ours:?} ns, the other: {theirs:?} ns). Fix: \
         merge only recorders of the same measure"
    )]
    Deadlines {
        /// The deadline of the recorder that was to take in the other.
        ours: Option<u64>,
        /// The other's.
        theirs: Option<u64>,
    },
    /// A checkpoint does not hold what a recorder wrote.
    #[error(
        "a recorder's checkpoint is damaged: {what}. Fix: resume from an older checkpoint, or start again"
    )]
    Damaged {
        /// The damage that was found.
        what: String,
    },
    /// The histogram could not be made: out of memory or a fault of this crate.
    #[error("cannot make a histogram: {what}")]
    Histogram {
        /// The histogram's error.
        what: String,
    },
}

/// Records values in constant memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    deadline_ns: Option<u64>,
    moments: Moments,
    misses: Misses,
    beyond: u64,
    histogram: Histogram<u64>,
}

impl Recorder {
    /// A recorder that counts misses against a deadline, where there is one. All its memory is
    /// allocated here.
    pub fn new(deadline_ns: Option<u64>) -> Result<Self, RecorderError> {
        Self::with_digits(deadline_ns, DIGITS)
    }

    /// A recorder of a twelfth of the memory, for figures that are one of many: its quantiles are
    /// exact to 0.05 %; count, mean, deviation, extremes and misses stay exact.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn compact(deadline_ns: Option<u64>) -> Result<Self, RecorderError> {
        Self::with_digits(deadline_ns, COMPACT_DIGITS)
    }

    fn with_digits(deadline_ns: Option<u64>, digits: u8) -> Result<Self, RecorderError> {
        let histogram = Histogram::new_with_bounds(1, RANGE_NS, digits)
            .map_err(|e| RecorderError::Histogram { what: e.to_string() })?;
        Ok(Self { deadline_ns, moments: Moments::default(), misses: Misses::default(), beyond: 0, histogram })
    }

    /// Records the next value in time order. Allocates nothing, waits for nothing.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.moments.push(value_ns);
        if let Some(deadline_ns) = self.deadline_ns {
            self.misses.push(value_ns > deadline_ns);
        }
        if value_ns > RANGE_NS || self.histogram.record(value_ns).is_err() {
            self.beyond += 1;
        }
    }

    /// Adds what was recorded after this one, with the same deadline.
    pub fn merge(&mut self, later: &Self) -> Result<(), RecorderError> {
        if self.deadline_ns != later.deadline_ns {
            return Err(RecorderError::Deadlines { ours: self.deadline_ns, theirs: later.deadline_ns });
        }
        self.histogram
            .add(&later.histogram)
            .map_err(|e| RecorderError::Histogram { what: format!("{e:?}") })?;
        self.moments.merge(&later.moments);
        self.misses.merge(&later.misses);
        self.beyond = self.beyond.saturating_add(later.beyond);
        Ok(())
    }

    /// The deadline that misses are counted against.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.moments.count()
    }

    /// Values beyond [`RANGE_NS`]: in the count, mean, deviation and maximum, but no quantile
    /// distinguishes them.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Misses and runs of misses; nothing is counted where there is no deadline.
    pub fn misses(&self) -> Misses {
        self.misses
    }

    /// Least value; 0 when nothing was recorded.
    pub fn min_ns(&self) -> u64 {
        self.moments.min()
    }

    /// Greatest value; 0 when nothing was recorded.
    pub fn max_ns(&self) -> u64 {
        self.moments.max()
    }

    /// Mean of all values; 0 when nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        self.moments.mean()
    }

    /// Bytes that this recorder holds, however many values it saw.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.histogram.distinct_values() * size_of::<u64>()
    }

    /// Width of the values around `value_ns` that are not distinguished; 1 up to 32,767.
    pub fn resolution_ns(&self, value_ns: u64) -> u64 {
        self.histogram.equivalent_range(value_ns.min(RANGE_NS))
    }

    /// Moments and quantiles of all values, as [`Summary::of`] gives them: quantiles to the stated
    /// resolution, the rest exactly.
    pub fn summary(&self) -> Summary {
        if self.count() == 0 {
            return Summary::default();
        }
        let quantile = |q| self.value_at(quantile::rank(q, self.count()));
        Summary {
            count: self.count(),
            mean: self.moments.mean(),
            stddev: self.moments.stddev(),
            min: self.moments.min() as f64,
            median: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            worst: self.moments.max() as f64,
        }
    }

    /// The nearest-rank `q`-quantile, rounded up to the resolution; `None` when nothing was
    /// recorded or `q` lies outside 0..=1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        (self.count() > 0 && (0.0..=1.0).contains(&q)).then(|| self.value_at(quantile::rank(q, self.count())))
    }

    /// The same with its confidence interval, as [`quantile::estimate`].
    pub fn quantile_estimate(&self, q: f64, confidence: f64) -> Option<Quantile> {
        quantile::estimate_by_rank(self.count(), q, confidence, |rank| self.value_at(rank))
    }

    /// The paper's table, as [`crate::low::table`]: the row "100 %" exactly, the others to the
    /// resolution.
    pub fn low_table(&self) -> Vec<LowRow> {
        let count = self.count();
        if count == 0 {
            return Vec::new();
        }
        let min = self.moments.min() as f64;
        let mut buckets = self.buckets();
        let mut current: Option<(f64, u64)> = None;
        let mut running = Running::default();
        let mut done = 0;
        let mut rows = Vec::with_capacity(SHARES_PERCENT.len());
        for percent in SHARES_PERCENT {
            let end = quantile::rank(percent / 100.0, count);
            while done < end {
                let Some((centre, left)) =
                    current.filter(|c| c.1 > 0).or_else(|| buckets.next().map(|b| (b.centre(), b.count)))
                else {
                    break;
                };
                let taken = left.min(end - done);
                running.push(centre, taken);
                current = Some((centre, left - taken));
                done += taken;
            }
            rows.push(if end == count {
                LowRow {
                    percent,
                    count,
                    min,
                    max: self.moments.max() as f64,
                    mean: self.moments.mean(),
                    stddev: self.moments.stddev(),
                }
            } else {
                LowRow { count: end, ..running.row(percent, min, self.value_at(end)) }
            });
        }
        rows
    }

    /// The value of a rank (from 1), rounded up to the resolution and never beyond the least and
    /// greatest value.
    fn value_at(&self, rank: u64) -> f64 {
        let (min, max) = (self.moments.min(), self.moments.max());
        if rank <= 1 {
            return min as f64;
        }
        let mut seen = 0;
        for bucket in self.buckets() {
            seen += bucket.count;
            if seen >= rank {
                return if rank == self.count() { max } else { bucket.last_ns.clamp(min, max) } as f64;
            }
        }
        max as f64
    }

    /// The counts, ascending, in one pass; the values beyond the range come last.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let inside = self.histogram.iter_recorded().map(|item| {
            let value = item.value_iterated_to();
            Bucket {
                first_ns: self.histogram.lowest_equivalent(value),
                last_ns: self.histogram.highest_equivalent(value),
                count: item.count_at_value(),
            }
        });
        let beyond = Bucket { first_ns: RANGE_NS + 1, last_ns: self.moments.max(), count: self.beyond };
        inside.chain((self.beyond > 0).then_some(beyond))
    }
}

/// Values that the histogram does not distinguish.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// The least of them.
    pub first_ns: u64,
    /// The greatest of them.
    pub last_ns: u64,
    /// Number of values.
    pub count: u64,
}

impl Bucket {
    fn centre(&self) -> f64 {
        self.first_ns as f64 + self.last_ns.saturating_sub(self.first_ns) as f64 / 2.0
    }
}

/// Written form of a recorder: the histogram in HdrHistogram's own V2 coding (zero runs folded,
/// variable-length counts; some kilobytes in practice), the rest as numbers.
#[derive(Serialize, Deserialize)]
struct Stored {
    deadline_ns: Option<u64>,
    moments: Moments,
    misses: Misses,
    beyond: u64,
    histogram: String,
}

impl Serialize for Recorder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.histogram, &mut bytes)
            .map_err(|e| serde::ser::Error::custom(format!("the histogram cannot be coded: {e:?}")))?;
        Stored {
            deadline_ns: self.deadline_ns,
            moments: self.moments,
            misses: self.misses,
            beyond: self.beyond,
            histogram: STANDARD.encode(bytes),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Recorder {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Stored::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<Stored> for Recorder {
    type Error = RecorderError;

    fn try_from(c: Stored) -> Result<Self, RecorderError> {
        let damaged = |what: String| RecorderError::Damaged { what };
        let bytes = STANDARD.decode(&c.histogram).map_err(|e| damaged(format!("its histogram: {e}")))?;
        let read: Histogram<u64> = HdrReader::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| damaged(format!("its histogram: {e:?}")))?;
        let digits = read.sigfig();
        if read.high() != RANGE_NS || ![DIGITS, COMPACT_DIGITS].contains(&digits) {
            return Err(damaged(format!(
                "a histogram to {} ns with {digits} digits, where {RANGE_NS} ns and {DIGITS} or {COMPACT_DIGITS} were \
                 expected",
                read.high(),
            )));
        }
        let mut recorder = Self::with_digits(c.deadline_ns, digits)?;
        let mut inside = 0u64;
        for item in read.iter_recorded() {
            inside = inside
                .checked_add(item.count_at_value())
                .ok_or_else(|| damaged("more values than a counter can hold".to_owned()))?;
        }
        if inside.checked_add(c.beyond) != Some(c.moments.count()) || !c.moments.plausible() {
            return Err(damaged(format!(
                "{inside} values in the histogram and {} beyond it, {} in the sums",
                c.beyond,
                c.moments.count()
            )));
        }
        let m = &c.misses;
        let counted = if c.deadline_ns.is_some() { inside + c.beyond } else { 0 };
        if m.samples != counted
            || m.misses > m.samples
            || m.longest_run > m.misses
            || m.current_run > m.longest_run
        {
            return Err(damaged(format!("its misses do not fit {counted} values: {m:?}")));
        }
        recorder.histogram.add(&read).map_err(|e| damaged(format!("{e:?}")))?;
        (recorder.moments, recorder.misses, recorder.beyond) = (c.moments, c.misses, c.beyond);
        Ok(recorder)
    }
}

#[cfg(test)]
mod tests;
