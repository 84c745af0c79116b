//! When a frame of a paced source is due, and which frames are skipped when the source falls
//! behind.

/// Due times of a source with a constant frame rate, or with recorded time stamps.
///
/// Time is planned from a fixed origin, so a late frame never shifts the ones after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacer {
    origin_ns: u64,
    rate_fps: Option<f64>,
}

impl Pacer {
    /// Paces to `rate_fps`, or, without, to the time stamps of the source.
    pub fn new(rate_fps: Option<f64>) -> Self {
        Self { origin_ns: 0, rate_fps }
    }

    /// Sets when frame 0 (with source offset 0) is due.
    pub fn start_at(&mut self, origin_ns: u64) {
        self.origin_ns = origin_ns;
    }

    /// Whether frames are paced at a set rate rather than by the recorded time stamps.
    pub(crate) fn has_rate(&self) -> bool {
        self.rate_fps.is_some()
    }

    /// Whether [`start_at`](Self::start_at) was called.
    pub fn started(&self) -> bool {
        self.origin_ns != 0
    }

    /// When the frame with the given index (from 0, counting skipped ones) is due.
    /// `source_offset_ns` is its time stamp relative to the first frame's, growing over loops.
    pub fn due_ns(&self, index: u64, source_offset_ns: u64) -> u64 {
        let offset_ns = match self.rate_fps {
            // From the index, not by adding periods: rounding does not accumulate.
            Some(rate) => (index as f64 * 1e9 / rate).round() as u64,
            None => source_offset_ns,
        };
        self.origin_ns.saturating_add(offset_ns)
    }

    /// Whether the frame is to be skipped: the time at which its successor is due has passed too,
    /// so a camera would have overwritten it by now.
    pub(crate) fn is_stale(&self, now_ns: u64, next_due_ns: u64) -> bool {
        self.started() && now_ns >= next_due_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift_at_a_rate_without_exact_period() {
        let mut pacer = Pacer::new(Some(30.0));
        pacer.start_at(1_000);
        assert_eq!(pacer.due_ns(0, 0), 1_000);
        assert_eq!(pacer.due_ns(1, 0), 33_334_333);
        assert_eq!(pacer.due_ns(30 * 3600 * 24, 0), 1_000 + 24 * 3600 * 1_000_000_000);
    }

    #[test]
    fn recorded_time_stamps_are_kept() {
        let mut pacer = Pacer::new(None);
        pacer.start_at(500);
        assert_eq!(pacer.due_ns(7, 123), 623);
    }

    #[test]
    fn a_frame_is_stale_when_its_successor_is_due() {
        let mut pacer = Pacer::new(Some(10.0));
        assert!(!pacer.is_stale(u64::MAX, 0), "nothing is stale before the start");
        pacer.start_at(1);
        assert!(!pacer.is_stale(99, 100));
        assert!(pacer.is_stale(100, 100));
    }
}
