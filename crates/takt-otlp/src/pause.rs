//! When a kind of request is tried again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// Longest time between two tries where nothing is accepted, unless the collector asks for more.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Longest time that a collector may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Of one kind: the collector may take metrics and no logs, or the other way round.
#[derive(Debug)]
pub(crate) struct Pause {
    /// Time between two requests where all is well.
    interval: Duration,
    backoff: Option<Duration>,
    next: Instant,
}

impl Pause {
    pub fn new(interval: Duration) -> Self {
        Self { interval, backoff: None, next: Instant::now() + interval }
    }

    pub fn next(&self) -> Instant {
        self.next
    }

    /// It was accepted, or there was nothing to send.
    pub fn is_over(&mut self) {
        self.backoff = None;
        self.next = Instant::now() + self.interval;
    }

    /// It was not accepted; `after` is what the collector asks for. Returns how long it waits.
    pub fn grow(&mut self, after: Option<Duration>) -> Duration {
        let longer = self.backoff.map_or(self.interval, |backoff| backoff * 2).min(MAX_BACKOFF);
        self.backoff = Some(longer);
        let least = after.map_or(longer, |after| after.min(MAX_RETRY_AFTER)).max(self.interval);
        let wait = least + least.mul_f64(chance() / 2.0);
        self.next = Instant::now() + wait;
        wait
    }
}

/// A number from 0 up to 1, another each time and in each process: of a fleet that lost its
/// collector at once not all may come back at once.
fn chance() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_chance_and_is_never_shorter_than_asked() {
        let second = Duration::from_secs(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let mut pause = Pause::new(5 * second);
            for least in [5, 10, 20, 40, 60, 60] {
                let wait = pause.grow(None);
                assert!((least * second..least * second * 3 / 2).contains(&wait), "{least}: {wait:?}");
                seen.insert(wait);
            }
            for (asked, least) in [(0, 5), (30, 30), (9000, 300)] {
                let wait = pause.grow(Some(asked * second));
                assert!((least * second..least * second * 3 / 2).contains(&wait), "{asked}: {wait:?}");
            }
            pause.is_over();
            assert!(pause.grow(None) < 8 * second);
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }
}
