//! What really happened on the segment and when, to measure a master's latencies against.

use serde::{Deserialize, Serialize};
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
        /// Where its first process data lie in the logical address space: reports frames of one
        /// cycle apart.
        address: u32,
        /// When it came to the segment.
        at_ns: u64,
        /// When it left.
        left_ns: u64,
    },
}

/// Where facts go; nowhere until somebody asks for them.
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
