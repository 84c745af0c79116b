//! The real events on the segment and their times, to measure a master's latencies against.

use serde::{Deserialize, Serialize};
use takt_rt::clock::monotonic_ns;
use takt_rt::ring::{Consumer, Producer, ring};

/// One fact, in the time that the segment is given (CLOCK_MONOTONIC in the fronts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Truth {
    /// A physical event at an event probe.
    Event {
        /// The probe's place on the segment.
        device: u16,
        /// The counter's value with this event.
        count: u16,
        /// When it happened.
        at_ns: u64,
        /// When the micro-controller sampled it; from then on it is in the device's memory.
        sampled_ns: u64,
    },
    /// A probe has taken a new command number.
    Applied {
        /// The probe's place on the segment.
        device: u16,
        /// The number.
        value: u16,
        /// When the micro-controller took it.
        at_ns: u64,
    },
    /// A frame with process data has been through the devices.
    Passed {
        /// The low 32 bits of the number of its cycle, where the master's frames carry it
        /// ([`frame::cycle`](crate::frame::cycle)).
        cycle: Option<u32>,
        /// Address of its first process data in the logical address space, which distinguishes
        /// frames of one cycle.
        address: u32,
        /// Duration of its stay in the segment, and the reason.
        #[serde(flatten)]
        stay: Stay,
    },
}

/// A frame's time in the segment, by the segment's own stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stay {
    /// When it came to the segment.
    pub at_ns: u64,
    /// When it left.
    pub left_ns: u64,
    /// For how much of that the segment kept it on purpose: a delay that it was given.
    pub held_ns: u64,
    /// CPU time that the segment's thread got while it worked on the frame; absent where that took
    /// no time worth asking for, or the segment has no thread.
    pub ran_ns: Option<u64>,
    /// Longest time between two readings of the clock in that work, which are a few devices apart:
    /// some 1 us, unless the thread stood still. Absent likewise.
    pub still_ns: Option<u64>,
}

impl Stay {
    /// Of a frame that was kept on purpose for `held_ns` (0: not), and left at once otherwise.
    pub fn held(at_ns: u64, held_ns: u64) -> Self {
        Self { at_ns, left_ns: at_ns.saturating_add(held_ns), held_ns, ran_ns: None, still_ns: None }
    }
}

/// Devices from one reading of the clock to the next.
const DEVICES_APART: usize = 8;

/// The clock, read again and again while a frame is worked on.
#[derive(Debug)]
pub(super) struct Pulse {
    last_ns: u64,
    longest_ns: u64,
}

impl Pulse {
    /// Work begins.
    pub(super) fn begin() -> Self {
        Self { last_ns: monotonic_ns(), longest_ns: 0 }
    }

    /// Work has come to device `index`.
    pub(super) fn at_device(pulse: &mut Option<Self>, index: usize) {
        if let Some(pulse) = pulse
            && index.is_multiple_of(DEVICES_APART)
        {
            pulse.beat();
        }
    }

    fn beat(&mut self) {
        let now_ns = monotonic_ns();
        self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
    }

    /// The longest time between two readings until now.
    pub(super) fn end(mut self) -> u64 {
        self.beat();
        self.longest_ns
    }
}

/// Destination of facts; none until requested.
#[derive(Debug, Default)]
pub(super) struct Log(Option<Producer<Truth>>);

impl Log {
    /// Opens the log; an earlier reader gets nothing more.
    pub(super) fn open(&mut self, capacity: usize) -> Consumer<Truth> {
        let (producer, consumer) = ring(capacity);
        self.0 = Some(producer);
        consumer
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn push(&mut self, truth: Truth) {
        if let Some(producer) = &mut self.0 {
            producer.push(truth);
        }
    }
}
