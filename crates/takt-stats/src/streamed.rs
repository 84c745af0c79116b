//! Everything that is kept of a series of any length, in constant memory.

use serde::{Deserialize, Serialize};

use crate::recorder::{Recorder, RecorderError};
use crate::trend::{MaxTrend, MeanTrend};

/// All values of a series by size, and how their maximum and mean developed. Of constant size, so
/// that it can be written to disk every second of a run of weeks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Streamed {
    /// All values.
    pub recorder: Recorder,
    /// Growth of their maximum.
    #[serde(default)]
    pub max_trend: MaxTrend,
    /// Development of their mean.
    #[serde(default)]
    pub mean_trend: MeanTrend,
    /// Time that was measured until the last value, nanoseconds. Time between a kill and the
    /// resumption does not count.
    #[serde(default)]
    pub elapsed_ns: u64,
}

impl Streamed {
    /// An empty one; values above `deadline_ns` will count as misses.
    ///
    /// # Errors
    /// As [`Recorder::new`].
    pub fn new(deadline_ns: Option<u64>) -> Result<Self, RecorderError> {
        Ok(Self {
            recorder: Recorder::new(deadline_ns)?,
            max_trend: MaxTrend::default(),
            mean_trend: MeanTrend::default(),
            elapsed_ns: 0,
        })
    }

    /// Takes the next value, measured `elapsed_ns` after the start of the measurement. Allocates
    /// nothing.
    #[inline]
    pub fn push(&mut self, elapsed_ns: u64, value_ns: u64) {
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        self.recorder.record(value_ns);
        self.max_trend.push(self.elapsed_ns, value_ns);
        self.mean_trend.push(self.elapsed_ns, value_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_and_read_back_goes_on_as_if_nothing_had_happened() {
        let mut whole = Streamed::new(Some(900)).unwrap();
        let mut parts = Streamed::new(Some(900)).unwrap();
        for i in 0..5000u64 {
            let value = i * 7919 % 1000;
            whole.push(i, value);
            if i % 700 == 0 {
                parts = serde_json::from_str(&serde_json::to_string(&parts).unwrap()).unwrap();
            }
            parts.push(i, value);
        }
        assert_eq!(whole.recorder.summary(), parts.recorder.summary());
        assert_eq!(whole.recorder.misses(), parts.recorder.misses());
        assert_eq!(whole.max_trend.points(), parts.max_trend.points());
        let (whole_means, means) = (whole.mean_trend.finish(), parts.mean_trend.finish());
        assert_eq!(whole_means.len(), means.len());
        for (a, b) in whole_means.iter().zip(&means) {
            // JSON readers may miss a fraction by its last bit; counts and times are whole numbers.
            assert_eq!((a.count, a.elapsed_ns), (b.count, b.elapsed_ns));
            assert!((a.mean_ns - b.mean_ns).abs() <= 1e-12 * a.mean_ns);
        }
        assert_eq!((parts.elapsed_ns, parts.recorder.count()), (4999, 5000));
    }
}
