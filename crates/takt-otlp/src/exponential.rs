//! Histograms with exponential buckets, as OpenTelemetry has them: bucket `i` of scale `s` holds
//! values in `(2^(i / 2^s), 2^((i + 1) / 2^s)]`, and as few scales are used up as 160 buckets need.

use takt_stats::Recorder;

/// Buckets at most: what OpenTelemetry's own libraries take.
const MAX_BUCKETS: usize = 160;

/// The scale to begin with: buckets that are 1 % wide, coarser than the recorder's.
const FINEST: i32 = 6;

/// A histogram in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Exponential {
    /// Resolution: 2^scale buckets for a factor of two.
    pub scale: i32,
    /// Index of the first of `counts`.
    pub offset: i32,
    /// Values in each bucket.
    pub counts: Vec<u64>,
    /// Values of 0.
    pub zeros: u64,
    /// All values.
    pub count: u64,
    /// Their sum, seconds.
    pub sum: f64,
    /// Least and greatest, seconds; absent where there is no value.
    pub range: Option<[f64; 2]>,
}

impl Default for Exponential {
    fn default() -> Self {
        Self { scale: FINEST, offset: 0, counts: Vec::new(), zeros: 0, count: 0, sum: 0.0, range: None }
    }
}

impl Exponential {
    /// Of all values that a recorder saw, as exact as it has them; sum, least and greatest are its
    /// own.
    pub fn of(recorder: &Recorder) -> Self {
        let mut all = Self::default();
        for bucket in recorder.buckets() {
            all.add(bucket.last_ns.min(recorder.max_ns()), bucket.count);
        }
        if recorder.count() > 0 {
            all.sum = recorder.mean_ns() * recorder.count() as f64 / 1e9;
            all.range = Some([recorder.min_ns() as f64 / 1e9, recorder.max_ns() as f64 / 1e9]);
        }
        all
    }

    /// Takes `count` values of `value_ns`.
    pub fn add(&mut self, value_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let value = value_ns as f64 / 1e9;
        self.count += count;
        self.sum += value * count as f64;
        self.range = Some(match self.range {
            Some([least, greatest]) => [least.min(value), greatest.max(value)],
            None => [value, value],
        });
        if value_ns == 0 {
            self.zeros += count;
            return;
        }
        if self.counts.is_empty() {
            self.offset = self.index(value);
            self.counts.push(count);
            return;
        }
        let mut index = self.index(value);
        loop {
            let last = self.offset + self.counts.len() as i32 - 1;
            let (from, to) = (self.offset.min(index), last.max(index));
            if (to - from) < MAX_BUCKETS as i32 {
                let before = (self.offset - from) as usize;
                self.counts.splice(0..0, std::iter::repeat_n(0, before));
                self.counts.resize((to - from + 1) as usize, 0);
                self.offset = from;
                break;
            }
            self.halve();
            index >>= 1;
        }
        self.counts[(index - self.offset) as usize] += count;
    }

    fn index(&self, value: f64) -> i32 {
        (value.log2() * f64::from(self.scale).exp2()).ceil() as i32 - 1
    }

    /// Puts two buckets each into one.
    fn halve(&mut self) {
        let from = self.offset >> 1;
        let last = (self.offset + self.counts.len() as i32 - 1) >> 1;
        let mut counts = vec![0; (last - from + 1) as usize];
        for (place, count) in self.counts.iter().enumerate() {
            counts[(((self.offset + place as i32) >> 1) - from) as usize] += count;
        }
        (self.scale, self.offset, self.counts) = (self.scale - 1, from, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition alone: each value must lie within its bucket.
    fn inside(all: &Exponential, value_ns: u64) -> bool {
        let value = value_ns as f64 / 1e9;
        let base = f64::from(-all.scale).exp2();
        let bucket = all.counts.iter().enumerate().find(|(place, count)| {
            let index = f64::from(all.offset + *place as i32);
            let (from, to) = ((index * base).exp2(), ((index + 1.0) * base).exp2());
            **count > 0 && value > from * (1.0 - 1e-9) && value <= to * (1.0 + 1e-9)
        });
        bucket.is_some()
    }

    #[test]
    fn every_value_lies_in_a_bucket_that_holds_it() {
        let mut all = Exponential::default();
        let mut values: Vec<u64> = (0..40).map(|power| 1 << power).collect();
        values.extend((1..2000).map(|n| n * n * 37));
        for &value in &values {
            all.add(value, 2);
            assert!(inside(&all, value) && all.counts.len() <= MAX_BUCKETS, "{value} {all:?}");
        }
        assert!(values.iter().all(|&value| inside(&all, value)));
        assert_eq!(all.counts.iter().sum::<u64>(), 2 * values.len() as u64);
        assert!(all.scale < FINEST);
        all.add(0, 5);
        assert_eq!((all.zeros, all.count), (5, 2 * values.len() as u64 + 5));
        assert_eq!(all.range, Some([0.0, (1u64 << 39) as f64 / 1e9]));
    }

    #[test]
    fn of_a_recorder_nothing_is_lost() {
        let mut recorder = Recorder::compact(None).unwrap();
        assert_eq!(Exponential::of(&recorder), Exponential::default());
        (0..10_000).for_each(|n| recorder.record(n * 1000));
        let all = Exponential::of(&recorder);
        assert_eq!((all.count, all.counts.iter().sum::<u64>() + all.zeros), (10_000, 10_000));
        assert!((all.sum - 49.995).abs() < 0.01, "{}", all.sum);
        let [least, greatest] = all.range.unwrap();
        assert!(least == 0.0 && (greatest - 0.009_999).abs() < 1e-5, "{greatest}");
    }
}
