//! Bringing events of several threads into the order of time.
//!
//! A source hands out what it finds, buffer after buffer: a message can be taken in one poll and
//! its publication come in the next. Events that the extractor joins across threads should come in
//! order, so events are held back until all older ones must have come.

use takt_ros::event::Event;

/// Sorts events by time, each thread's own order kept, and holds the newest back for a while.
#[derive(Debug, Default)]
pub struct Reorder {
    hold_ns: u64,
    held: Vec<Event>,
    released_ns: u64,
    late: u64,
}

/// Default time for which events are held back. 50 ms: polls are a few milliseconds apart, and a
/// source that was kept from polling for longer costs a few joins.
pub const HOLD_NS: u64 = 50_000_000;

impl Reorder {
    /// Holds events back for `hold_ns` ([`HOLD_NS`]).
    #[must_use]
    pub fn new(hold_ns: u64) -> Self {
        Self { hold_ns, ..Self::default() }
    }

    /// Takes an event in.
    pub fn push(&mut self, event: Event) {
        self.late += u64::from(event.at_ns < self.released_ns);
        self.held.push(event);
    }

    /// Hands out, in order, all events that are older than the holding time at `now_ns`.
    pub fn release(&mut self, now_ns: u64, mut sink: impl FnMut(&Event)) {
        // Stable, and linear in the runs that a poll consists of.
        self.held.sort_by_key(|event| event.at_ns);
        let until_ns = now_ns.saturating_sub(self.hold_ns);
        let ready = self.held.partition_point(|event| event.at_ns <= until_ns);
        for event in self.held.drain(..ready) {
            self.released_ns = self.released_ns.max(event.at_ns);
            sink(&event);
        }
    }

    /// Hands out everything, at the end of a recording.
    pub fn finish(&mut self, sink: impl FnMut(&Event)) {
        self.release(u64::MAX, sink);
    }

    /// Events that came after younger ones had been handed out.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Events held back now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use takt_ros::event::Kind;

    use super::*;

    proptest! {
        #[test]
        fn all_come_out_in_order(stamps in proptest::collection::vec((0u64..1000, 0u32..4), 0..100), polls in 1usize..10) {
            let mut reorder = Reorder::new(1000);
            let mut seen = Vec::new();
            // Two polls apart at most one holding time.
            for (i, chunk) in stamps.chunks(polls).enumerate() {
                for &(at, tid) in chunk {
                    let at_ns = i as u64 * 10 + at;
                    reorder.push(Event { at_ns, cpu_ns: None, pid: 1, tid, kind: Kind::ExecutorNextReady });
                }
                reorder.release(i as u64 * 10 + 1000, |event| seen.push(event.at_ns));
            }
            reorder.finish(|event| seen.push(event.at_ns));
            prop_assert_eq!(seen.len(), stamps.len());
            prop_assert!(seen.is_sorted());
            prop_assert_eq!((reorder.late(), reorder.held()), (0, 0));
        }
    }
}
