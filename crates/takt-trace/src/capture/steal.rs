//! Readings of the CPUs' counters of stolen time, beside the events.

use std::collections::{BTreeMap, VecDeque};

use takt_rt::clock::monotonic_ns;
use takt_rt::procfs::CpuTime;

use crate::event::StealReading;

/// Between two readings: the counters move in steps of 10 ms, and reading them costs some 50 us.
const PERIOD_NS: u64 = 100_000_000;

/// Readings kept: hours of changes.
const MOST: usize = 200_000;

/// The changes of all counters, with the last reading before each.
#[derive(Debug, Default)]
pub(super) struct StealLog {
    guest: bool,
    read_ns: u64,
    last: BTreeMap<u16, StealReading>,
    log: VecDeque<StealReading>,
}

impl StealLog {
    /// Without a hypervisor, nothing is read, because nothing is stolen. The same holds in a guest
    /// whose time is counted in its own instructions.
    pub(super) fn new(guest: bool) -> Self {
        Self { guest: guest && !is_counted(), ..Self::default() }
    }

    /// Reads the counters if it is time, or at once if it must.
    pub(super) fn read(&mut self, must: bool) {
        let now_ns = monotonic_ns();
        if !self.guest || !must && now_ns.saturating_sub(self.read_ns) < PERIOD_NS {
            return;
        }
        self.read_ns = now_ns;
        for (cpu, time) in CpuTime::read_by_cpu() {
            let Ok(cpu) = cpu.try_into() else { continue };
            self.note(StealReading { cpu, time_ns: now_ns, stolen_ns: time.steal_ns() });
        }
    }

    fn note(&mut self, reading: StealReading) {
        match self.last.insert(reading.cpu, reading) {
            Some(before) if before.stolen_ns == reading.stolen_ns => return,
            Some(before) if self.log.back() != Some(&before) => self.log.push_back(before),
            _ => {}
        }
        self.log.push_back(reading);
        while self.log.len() > MOST {
            self.log.pop_front();
        }
    }

    /// Readings since the last call, with the last readings of all: the next part continues from
    /// these.
    pub(super) fn hand_out(&mut self) -> Vec<StealReading> {
        let log = std::mem::take(&mut self.log);
        Self { log, last: self.last.clone(), ..Self::default() }.readings()
    }

    /// Readings, oldest first, with the last readings of all.
    pub(super) fn readings(mut self) -> Vec<StealReading> {
        self.log.extend(self.last.into_values());
        let mut readings: Vec<StealReading> = self.log.into();
        readings.sort_by_key(|reading| (reading.time_ns, reading.cpu));
        readings.dedup();
        readings
    }
}

/// Whether this is a guest of `takt kernels` in counted time, by its boot parameters.
fn is_counted() -> bool {
    let parameters = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    ["takt.guest", "no_timer_check"]
        .iter()
        .all(|known| parameters.split_whitespace().any(|one| one == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_kept_with_what_was_before() {
        let mut log = StealLog::new(true);
        let at = |time_ns, stolen_ns| StealReading { cpu: 1, time_ns, stolen_ns };
        for (time_ns, stolen_ns) in [(1, 5), (2, 5), (3, 5), (4, 6), (5, 7), (6, 7), (7, 7)] {
            log.note(at(time_ns, stolen_ns));
        }
        assert_eq!(log.readings(), [at(1, 5), at(3, 5), at(4, 6), at(5, 7), at(7, 7)]);
    }
}
