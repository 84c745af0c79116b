//! Times in which nothing was recorded.
//!
//! A gap says nothing: neither that something ran, nor that it did not. So no window of a curve
//! reaches across, no release within it is judged, and an instance that was under way is judged
//! only where it was late already, or where its end was recorded. That a release ran late, or
//! never, is still known of those before the gap; see
//! `TimerGrid::gap`.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use takt_ros::event::GapCause;

use super::Extractor;

/// Gaps that are kept one by one; of more, the length alone.
const MAX_GAPS: usize = 1024;
/// A session that is started holds the observed processes up while it reaches each of them: 40 ms
/// were seen, in which no timer ran. What is released before that is over is not judged.
const STARTS_NS: u64 = 100_000_000;
/// A message was stamped a moment before its event.
const TOLERANCE_NS: u64 = 1_000_000;

/// A time in which nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    pub to_ns: u64,
    pub why: GapCause,
}

impl Gap {
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The gaps of a recording, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gaps {
    /// The first 1024.
    pub listed: Vec<Gap>,
    pub count: u64,
    /// All together; time that several gaps share counts once.
    pub total_ns: u64,
    pub longest_ns: u64,
    until_ns: u64,
}

impl Gaps {
    fn add(&mut self, gap: Gap) {
        self.count += 1;
        self.longest_ns = self.longest_ns.max(gap.length_ns());
        self.total_ns =
            self.total_ns.saturating_add(gap.to_ns.saturating_sub(gap.from_ns.max(self.until_ns)));
        self.until_ns = self.until_ns.max(gap.to_ns);
        if self.listed.len() < MAX_GAPS {
            self.listed.push(gap);
        }
    }

    /// How much of the time from `from_ns` to `to_ns` was recorded.
    #[must_use]
    pub fn recorded_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let (mut at_ns, mut recorded_ns) = (from_ns, 0_u64);
        for gap in self.listed.iter().filter(|gap| gap.to_ns > from_ns && gap.from_ns < to_ns) {
            recorded_ns = recorded_ns.saturating_add(gap.from_ns.saturating_sub(at_ns));
            at_ns = at_ns.max(gap.to_ns);
        }
        recorded_ns.saturating_add(to_ns.saturating_sub(at_ns))
    }

    /// Whether something that is due at `from_ns` and judged at `to_ns` was recorded whole.
    #[must_use]
    pub fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        !self.listed.iter().any(|gap| gap.from_ns < to_ns && gap.to_ns > from_ns)
    }
}

impl Extractor {
    /// What was not recorded so far.
    #[must_use]
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Nothing was recorded from `from_ns` to `to_ns`.
    pub(super) fn gap(&mut self, from_ns: u64, to_ns: u64, why: GapCause) {
        let from_ns = from_ns.min(to_ns);
        self.gaps.add(Gap { from_ns, to_ns, why });
        self.counters.gaps += 1;
        // A session that is stopped reaches one process after the other: of each, what came after
        // its last event is unknown already.
        let stopped = matches!(why, GapCause::Paused);
        let mut last_events: FxHashMap<u32, u64> = FxHashMap::default();
        for (_, thread) in &self.tables.threads {
            let last_ns = last_events.entry(thread.pid).or_default();
            *last_ns = (*last_ns).max(thread.last_ns);
        }
        let until_ns = |pid: u32| {
            last_events.get(&pid).filter(|_| stopped).map_or(from_ns, |last_ns| from_ns.min(*last_ns))
        };
        let recently = |last_ns: &&u64| from_ns.saturating_sub(**last_ns) < SETTLED_NS;
        let first_ns = last_events.values().filter(recently).min().filter(|_| stopped);
        let first_ns = first_ns.map_or(from_ns, |first_ns| from_ns.min(*first_ns));
        let starts = matches!(why, GapCause::Paused | GapCause::NotYet);
        self.judged_from_ns =
            self.judged_from_ns.max(if starts { to_ns.saturating_add(STARTS_NS) } else { to_ns });
        self.forget_courses(None);
        for (_, thread) in &mut self.tables.threads {
            thread.waited_ns = None;
        }
        for (_, callback) in &mut self.tables.callbacks {
            callback.arrivals.observed_from(to_ns);
            if let Some(grid) = &mut callback.grid {
                grid.gap(until_ns(callback.pid), to_ns);
            }
        }
        for topic in &mut self.tables.topics {
            topic.arrivals.observed_from(to_ns);
        }
        for watch in &mut self.watches {
            watch.gap(first_ns);
        }
    }

    /// Whether a message with this source stamp was published while nothing was recorded.
    pub(super) fn in_a_gap(&self, stamp: i64) -> bool {
        let Some(gap) = self.gaps.listed.last() else { return false };
        match self.clocks.sent_ns(stamp) {
            Some(sent_ns) => self.gaps.listed.iter().rev().take(8).any(|gap| {
                (gap.from_ns.saturating_sub(TOLERANCE_NS)..=gap.to_ns.saturating_add(TOLERANCE_NS))
                    .contains(&sent_ns)
            }),
            // Nothing was published yet by what was recorded.
            None => self.now_ns.saturating_sub(gap.to_ns) < SETTLED_NS,
        }
    }
}

/// After a gap, a message whose stamp cannot be placed may be of within it for so long.
const SETTLED_NS: u64 = 1_000_000_000;
