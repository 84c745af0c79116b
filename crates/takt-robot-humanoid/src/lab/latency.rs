//! Latencies in cycles: what really happened on the segment against what the controller saw and
//! did.
//!
//! The probe counts physical events; the controller echoes the count as its command; the probe
//! applies the command. The segment shows when events happened and commands took effect, the
//! controller's records when they were seen and decided.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use takt_link_ethercat::segment::Truth;

use crate::run::CycleRecord;

/// One event from its happening to the reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// The probe's count.
    pub count: u16,
    /// The event happened.
    pub event_ns: u64,
    /// The device sampled it.
    pub sampled_ns: u64,
    /// The cycle began in which the controller saw it, and decided on its command.
    pub seen_ns: u64,
    /// The device applied the command.
    pub applied_ns: u64,
}

/// Least, mean and greatest of a latency, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cycles {
    /// Events.
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

/// The latencies of all events of a run, in constant size.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// Sensor, command, reaction.
    all: [Spread; 3],
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Spread {
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Latencies {
    /// Takes in an event.
    pub fn push(&mut self, row: &LatencyRow) {
        let times =
            [(row.event_ns, row.seen_ns), (row.seen_ns, row.applied_ns), (row.event_ns, row.applied_ns)];
        for (spread, (from_ns, to_ns)) in self.all.iter_mut().zip(times) {
            let ns = to_ns.saturating_sub(from_ns);
            spread.min_ns = if spread.count == 0 { ns } else { spread.min_ns.min(ns) };
            spread.max_ns = spread.max_ns.max(ns);
            spread.sum_ns += u128::from(ns);
            spread.count += 1;
        }
    }

    /// Sensor, command and reaction latency in cycles of `period_ns`.
    pub(crate) fn in_cycles(&self, period_ns: f64) -> [Option<Cycles>; 3] {
        self.all.map(|Spread { count, min_ns, max_ns, sum_ns }| {
            (count > 0).then(|| Cycles {
                count,
                min: min_ns as f64 / period_ns,
                mean: sum_ns as f64 / count as f64 / period_ns,
                max: max_ns as f64 / period_ns,
            })
        })
    }
}

/// Facts kept while their counterparts are waited for.
const MAX_WAITING: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    count: u16,
    event_ns: u64,
    sampled_ns: u64,
    seen_ns: Option<u64>,
}

/// Joins both sides as they come, in any order between the two.
#[derive(Debug, Default)]
pub struct Joiner {
    events: VecDeque<Waiting>,
    seen: VecDeque<(u16, u64)>,
    applied: VecDeque<(u16, u64)>,
    last_seen: Option<u16>,
}

impl Joiner {
    /// A fact from the segment.
    pub fn truth(&mut self, truth: &Truth) {
        match *truth {
            Truth::Event { count, at_ns, sampled_ns, .. } => {
                bounded(&mut self.events, Waiting { count, event_ns: at_ns, sampled_ns, seen_ns: None });
            }
            Truth::Applied { value, at_ns, .. } => bounded(&mut self.applied, (value, at_ns)),
            Truth::Passed { .. } => {}
        }
    }

    /// A cycle of the controller.
    pub fn cycle(&mut self, record: &CycleRecord) {
        if self.last_seen != Some(record.events) {
            // Events before the first record were not seen now.
            if self.last_seen.is_some() {
                bounded(&mut self.seen, (record.events, record.wake_ns));
            }
            self.last_seen = Some(record.events);
        }
    }

    /// Takes what is complete. If several events came in one cycle, the controller sees the count
    /// of the last, which represents the earlier ones: they were seen, and answered, with it.
    pub fn take(&mut self, mut row: impl FnMut(LatencyRow)) {
        for event in &mut self.events {
            if event.seen_ns.is_none() {
                let seen = self
                    .seen
                    .iter()
                    .find(|(count, at_ns)| reaches(*count, event.count) && *at_ns > event.event_ns);
                event.seen_ns = seen.map(|&(_, at_ns)| at_ns);
            }
        }
        let applied = &self.applied;
        self.events.retain(|event| {
            let Some(seen_ns) = event.seen_ns else { return true };
            let found =
                applied.iter().find(|(value, at_ns)| reaches(*value, event.count) && *at_ns > seen_ns);
            let Some(&(_, applied_ns)) = found else { return true };
            let Waiting { count, event_ns, sampled_ns, .. } = *event;
            row(LatencyRow { count, event_ns, sampled_ns, seen_ns, applied_ns });
            false
        });
    }
}

/// Whether a probe that shows `count` has counted event `event`; its 16 bits begin anew every
/// 65,536 events.
fn reaches(count: u16, event: u16) -> bool {
    count.wrapping_sub(event) < 1 << 15
}

fn bounded<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == MAX_WAITING {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(events: u16, wake_ns: u64) -> CycleRecord {
        CycleRecord { wake_ns, events, command: events, mode: 1, ..CycleRecord::default() }
    }

    #[test]
    fn both_sides_are_joined_whichever_comes_first() {
        let event = Truth::Event { device: 0, count: 7, at_ns: 100, sampled_ns: 150 };
        let applied = Truth::Applied { device: 0, value: 7, at_ns: 450 };
        for order in 0..2 {
            let mut joiner = Joiner::default();
            joiner.cycle(&record(6, 50));
            let mut rows = Vec::new();
            if order == 0 {
                joiner.truth(&event);
                joiner.truth(&applied);
                joiner.take(|row| rows.push(row));
                assert!(rows.is_empty());
                joiner.cycle(&record(7, 300));
            } else {
                joiner.cycle(&record(7, 300));
                joiner.truth(&applied);
                joiner.truth(&event);
            }
            joiner.cycle(&record(7, 400));
            joiner.take(|row| rows.push(row));
            joiner.take(|row| rows.push(row));
            let expected =
                LatencyRow { count: 7, event_ns: 100, sampled_ns: 150, seen_ns: 300, applied_ns: 450 };
            assert_eq!(rows, [expected]);
            let mut all = Latencies::default();
            rows.iter().for_each(|row| all.push(row));
            let [sensor, command, reaction] = all.in_cycles(100.0).map(Option::unwrap);
            assert_eq!((sensor.mean, command.mean, reaction.mean), (2.0, 1.5, 3.5));
        }
        assert_eq!(Latencies::default().in_cycles(100.0), [None; 3]);
    }

    /// While a controller is away, or frames are, several events come before its next cycle: each
    /// has waited as long as it has, and none is taken for the one that has its number 65,536
    /// events later.
    #[test]
    fn events_that_came_together_are_seen_with_the_last_and_never_with_a_later_round() {
        let mut joiner = Joiner::default();
        joiner.cycle(&record(65_533, 50));
        let event = |count: u16, at_ns| Truth::Event { device: 0, count, at_ns, sampled_ns: at_ns };
        let applied = |value: u16, at_ns| Truth::Applied { device: 0, value, at_ns };
        for (count, at_ns) in [(65_534, 100), (65_535, 200), (0, 300)] {
            joiner.truth(&event(count, at_ns));
        }
        joiner.cycle(&record(0, 400));
        joiner.truth(&applied(65_533, 420));
        joiner.truth(&applied(0, 450));
        let mut rows = Vec::new();
        joiner.take(|row| rows.push((row.count, row.seen_ns - row.event_ns, row.applied_ns - row.event_ns)));
        assert_eq!(rows, [(65_534, 300, 350), (65_535, 200, 250), (0, 100, 150)]);
        // A round later.
        joiner.cycle(&record(65_534, 9_000_000));
        joiner.truth(&applied(65_534, 9_000_100));
        joiner.take(|row| rows.push((row.count, row.seen_ns, 0)));
        assert_eq!(rows.len(), 3);
    }
}
