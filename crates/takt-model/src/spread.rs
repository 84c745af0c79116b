//! Measured jitter of a chain: how far its latencies, and the times between its ends, are apart.
//!
//! **Jitter** is the longest less the shortest latency (absolute response-time jitter: Buttazzo,
//! *Hard Real-Time Computing Systems*, section 1.2). With strictly periodic releases, no two
//! consecutive ends are further from one period apart than that. **Period jitter** is the longest
//! less the shortest time between two consecutive ends, which a device at the end of the chain
//! sees, lost instances included.

use std::collections::VecDeque;

use crate::chain::{Completion, Exceeded};

/// Promises remembered: as for bounds.
const PROMISES: usize = 8;

/// Shortest and longest of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub shortest_ns: u64,
    pub longest_ns: u64,
}

impl Range {
    /// Of one value.
    #[must_use]
    pub fn of(ns: u64) -> Self {
        Self { shortest_ns: ns, longest_ns: ns }
    }

    /// Distance between them.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.longest_ns.saturating_sub(self.shortest_ns)
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            shortest_ns: self.shortest_ns.min(other.shortest_ns),
            longest_ns: self.longest_ns.max(other.longest_ns),
        }
    }

    /// Adds what was seen, if anything was.
    pub fn widen(known: &mut Option<Self>, seen: Option<Self>) {
        *known = match (*known, seen) {
            (Some(known), Some(seen)) => Some(known.with(seen)),
            (known, seen) => known.or(seen),
        };
    }
}

/// Measurements of a chain's jitter.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// Latencies since the chain is watched.
    pub latencies: Option<Range>,
    /// Times between two consecutive ends.
    pub gaps: Option<Range>,
    recent: Option<Range>,
    last_ended_ns: Option<u64>,
    /// Best cases that were promised, with the releases from which on: the oldest first.
    promises: VecDeque<(u64, Option<u64>)>,
    below: Option<Exceeded>,
}

impl Spread {
    /// From `since_ns` on, instances are promised to take no less than `best_ns`; `None`: nothing
    /// is promised any more.
    pub fn promise(&mut self, since_ns: u64, best_ns: Option<u64>) {
        if self.promises.back().is_none_or(|(_, last_ns)| *last_ns != best_ns) {
            if self.promises.len() == PROMISES {
                self.promises.pop_front();
            }
            self.promises.push_back((since_ns, best_ns));
        }
    }

    /// Latencies since the last call.
    pub fn take_recent(&mut self) -> Option<Range> {
        self.recent.take()
    }

    /// The shortest latency below what was promised, since the last call; `bound_ns` is the best
    /// case that was promised.
    pub fn take_below(&mut self) -> Option<Exceeded> {
        self.below.take()
    }

    /// For a new phase of measurement.
    pub(crate) fn afresh(&self) -> Self {
        Self { promises: self.promises.clone(), last_ended_ns: self.last_ended_ns, ..Self::default() }
    }

    /// Ends may be missing here.
    pub(crate) fn gap(&mut self) {
        self.last_ended_ns = None;
    }

    /// An instance came to its end; `repeated`: not for the first time.
    pub(crate) fn ended(&mut self, instance: Completion, repeated: bool) {
        let latency_ns = instance.ended_ns.saturating_sub(instance.began_ns);
        let latency = Some(Range::of(latency_ns));
        Range::widen(&mut self.latencies, latency);
        Range::widen(&mut self.recent, latency);
        if !repeated && let Some(before_ns) = self.last_ended_ns.replace(instance.ended_ns) {
            Range::widen(&mut self.gaps, Some(Range::of(instance.ended_ns.saturating_sub(before_ns))));
        }
        let promised = self.promises.iter().rev().find(|(since_ns, _)| *since_ns <= instance.began_ns);
        let Some((_, Some(best_ns))) = promised.copied() else { return };
        if latency_ns >= best_ns {
            return;
        }
        let times = self.below.map_or(0, |known| known.times) + 1;
        self.below = Some(match self.below {
            Some(known) if known.latency_ns() <= latency_ns => Exceeded { times, ..known },
            _ => Exceeded { instance, bound_ns: best_ns, times },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(spread: &mut Spread, began_ns: u64, latency_ns: u64) {
        spread.ended(Completion { began_ns, ended_ns: began_ns + latency_ns }, false);
    }

    #[test]
    fn latencies_and_gaps_are_ranges() {
        let mut spread = Spread::default();
        for (began_ns, latency_ns) in [(100, 30), (200, 50), (300, 20)] {
            end(&mut spread, began_ns, latency_ns);
        }
        // A second end of one instance is another latency, and no other period.
        spread.ended(Completion { began_ns: 300, ended_ns: 325 }, true);
        assert_eq!(spread.latencies.unwrap(), Range { shortest_ns: 20, longest_ns: 50 });
        assert_eq!(spread.gaps.unwrap(), Range { shortest_ns: 70, longest_ns: 120 });
        assert_eq!((spread.take_recent().unwrap().width_ns(), spread.take_recent()), (30, None));
        let mut fresh = spread.afresh();
        end(&mut fresh, 400, 10);
        assert_eq!((fresh.latencies.unwrap().width_ns(), fresh.gaps.unwrap().longest_ns), (0, 90));
    }

    #[test]
    fn latencies_below_the_best_case_are_held_against_it() {
        let mut spread = Spread::default();
        spread.promise(100, Some(20));
        end(&mut spread, 90, 5);
        end(&mut spread, 100, 20);
        assert_eq!(spread.take_below(), None);
        end(&mut spread, 200, 19);
        end(&mut spread, 300, 12);
        end(&mut spread, 400, 15);
        let below = spread.take_below().unwrap();
        assert_eq!((below.latency_ns(), below.bound_ns, below.times), (12, 20, 3));
        spread.promise(500, None);
        end(&mut spread, 500, 1);
        assert_eq!(spread.take_below(), None);
    }
}
