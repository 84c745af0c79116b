//! Development of the maximum and the mean over a run: the DAQ paper's Figs. 3 to 5, in bounded
//! memory.

use serde::{Deserialize, Deserializer, Serialize};

/// Most points a maximum keeps. A series of independent values raises its maximum about ln n times
/// (22 for 3.5e9); only one that climbs for weeks comes near this.
const MAX_POINTS: usize = 4096;

/// Most points a mean keeps; between half of it and all of it once that many samples were seen.
const MEAN_POINTS: usize = 1024;

/// A point at which the maximum grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxPoint {
    /// Time since the start of the run.
    pub elapsed_ns: u64,
    /// Number of values up to and with this one.
    pub count: u64,
    /// The new maximum.
    pub max_ns: u64,
}

/// The maximum as it grew. If it grew more often than the bound, every other point is left out: the
/// first and the newest stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxTrend {
    count: u64,
    #[serde(deserialize_with = "bounded_max")]
    points: Vec<MaxPoint>,
    left_out: u64,
}

impl Default for MaxTrend {
    fn default() -> Self {
        Self { count: 0, points: Vec::with_capacity(MAX_POINTS), left_out: 0 }
    }
}

impl MaxTrend {
    /// Takes the next value; says whether it was the greatest so far. Allocates nothing.
    #[inline]
    pub fn push(&mut self, elapsed_ns: u64, value_ns: u64) -> bool {
        self.count = self.count.saturating_add(1);
        if self.points.last().is_some_and(|p| value_ns <= p.max_ns) {
            return false;
        }
        if self.points.len() >= MAX_POINTS {
            let before = self.points.len();
            thin(&mut self.points);
            self.left_out = self.left_out.saturating_add((before - self.points.len()) as u64);
        }
        self.points.push(MaxPoint { elapsed_ns, count: self.count, max_ns: value_ns });
        true
    }

    /// The points, in time order: the value is the maximum from its point to the next.
    pub fn points(&self) -> &[MaxPoint] {
        &self.points
    }

    /// Number of values seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Points left out by the bound; 0 in all but strange runs.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The mean of all values up to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanPoint {
    /// Time since the start of the run.
    pub elapsed_ns: u64,
    /// Number of values up to this moment.
    pub count: u64,
    /// Their mean.
    pub mean_ns: f64,
}

/// The mean of all values so far, at evenly spaced numbers of values. The spacing starts at 1 and
/// doubles whenever the points reach their bound, every other one being left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanTrend {
    count: u64,
    sum: [u64; 2],
    spacing: u64,
    last_elapsed_ns: u64,
    #[serde(deserialize_with = "bounded_mean")]
    points: Vec<MeanPoint>,
}

impl Default for MeanTrend {
    fn default() -> Self {
        Self {
            count: 0,
            sum: [0; 2],
            spacing: 1,
            last_elapsed_ns: 0,
            points: Vec::with_capacity(MEAN_POINTS),
        }
    }
}

impl MeanTrend {
    /// Takes the next value. Allocates nothing.
    #[inline]
    pub fn push(&mut self, elapsed_ns: u64, value_ns: u64) {
        let (low, carry) = self.sum[0].overflowing_add(value_ns);
        self.sum = [low, self.sum[1].wrapping_add(u64::from(carry))];
        self.count = self.count.saturating_add(1);
        self.last_elapsed_ns = elapsed_ns;
        if self.count.is_multiple_of(self.spacing.max(1)) {
            if self.points.len() >= MEAN_POINTS {
                // Points lie at 1, 2, 3, … spacings: keep 2, 4, 6, ….
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 0
                });
                self.spacing = self.spacing.saturating_mul(2);
            }
            // After a thinning this count need not lie on the new, coarser grid.
            if self.count.is_multiple_of(self.spacing.max(1)) {
                self.points.push(self.now());
            }
        }
    }

    fn now(&self) -> MeanPoint {
        let sum = u128::from(self.sum[0]) | u128::from(self.sum[1]) << 64;
        let n = u128::from(self.count.max(1));
        let mean_ns = (sum / n) as f64 + (sum % n) as f64 / n as f64;
        MeanPoint { elapsed_ns: self.last_elapsed_ns, count: self.count, mean_ns }
    }

    /// The evenly spaced points, in time order.
    pub fn points(&self) -> &[MeanPoint] {
        &self.points
    }

    /// The points, and the newest value's as the last one.
    pub fn finish(&self) -> Vec<MeanPoint> {
        let mut points = self.points.clone();
        if self.count > 0 && points.last().is_none_or(|p| p.count != self.count) {
            points.push(self.now());
        }
        points
    }
}

/// Leaves out every other point between the first and the last, in place.
fn thin<T>(points: &mut Vec<T>) {
    let (last, mut index) = (points.len().saturating_sub(1), 0);
    points.retain(|_| {
        let keep = index % 2 == 0 || index == last;
        index += 1;
        keep
    });
}

/// Reads points back into a vector of full capacity, so that a resumed trend allocates as little as
/// a new one.
fn bounded<'de, D, T>(deserializer: D, bound: usize) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read = Vec::<T>::deserialize(deserializer)?;
    if read.len() > bound {
        let what = format!("a trend of {} points; at most {bound} are kept", read.len());
        return Err(serde::de::Error::custom(what));
    }
    let mut points = Vec::with_capacity(bound);
    points.extend(read);
    Ok(points)
}

fn bounded_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MaxPoint>, D::Error> {
    bounded(deserializer, MAX_POINTS)
}

fn bounded_mean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MeanPoint>, D::Error> {
    bounded(deserializer, MEAN_POINTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_climbing_series_stays_bounded_and_keeps_its_ends() {
        let mut trend = MaxTrend::default();
        let capacity = trend.points.capacity();
        (0..100_000u64).for_each(|i| assert!(trend.push(i, i + 1)));
        assert_eq!(trend.points.capacity(), capacity);
        assert!(trend.points().len() <= MAX_POINTS && trend.left_out() > 0);
        assert_eq!(trend.points()[0].max_ns, 1);
        assert_eq!(trend.points().last().map(|p| (p.max_ns, p.count)), Some((100_000, 100_000)));
    }

    #[test]
    fn means_stay_bounded_and_evenly_spaced() {
        let mut trend = MeanTrend::default();
        let capacity = trend.points.capacity();
        (1..=1_000_000u64).for_each(|i| trend.push(i * 1000, 2 * i));
        assert_eq!(trend.points.capacity(), capacity);
        let counts: Vec<u64> = trend.points().iter().map(|p| p.count).collect();
        assert!((512..=MEAN_POINTS).contains(&counts.len()));
        assert!(counts.windows(2).all(|w| w[1] - w[0] == counts[0]));
        let finished = trend.finish();
        let last = finished.last().unwrap();
        assert_eq!((last.count, last.mean_ns, last.elapsed_ns), (1_000_000, 1_000_001.0, 1_000_000_000));
    }

    proptest! {
        #[test]
        fn maxima_are_the_records(values in proptest::collection::vec(any::<u64>(), 0..300), split in 0usize..300) {
            let mut trend = MaxTrend::default();
            let mut mean = MeanTrend::default();
            for (i, &v) in values.iter().enumerate() {
                if i == split {
                    trend = serde_json::from_str(&serde_json::to_string(&trend).unwrap()).unwrap();
                    mean = serde_json::from_str(&serde_json::to_string(&mean).unwrap()).unwrap();
                    prop_assert_eq!(trend.points.capacity(), MAX_POINTS);
                }
                let record = values[..i].iter().all(|&before| v > before);
                prop_assert_eq!(trend.push(i as u64, v), record);
                mean.push(i as u64, v);
            }
            prop_assert_eq!(trend.points().last().map(|p| p.max_ns), values.iter().max().copied());
            let expected = values.iter().map(|&v| v as f64).sum::<f64>() / values.len().max(1) as f64;
            if let Some(last) = mean.finish().last() {
                prop_assert!((last.mean_ns - expected).abs() <= 1e-9 * expected);
            }
        }
    }
}
