//! Releases that did not run, in a loop without a grid of its own: its deadline is the period of
//! the control loop that the edges stand for, and a time of several deadlines without an edge is as
//! many releases without control.

use serde::{Deserialize, Serialize};

use crate::DaqConfig;
use crate::EdgeRecord;

/// A loop without an edge for so long stood still, which is reported beside the misses; as in
/// [`takt_lab::releases`].
const STOOD_STILL_NS: u64 = 250_000_000;

/// Knowledge about the time between edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Standing {
    /// Releases without an edge, beside the edges that were late or lost.
    pub skipped: u64,
    /// Longest time without an edge, nanoseconds, beyond the pauses that were asked for.
    pub longest_ns: u64,
    /// Longest row of misses, skipped releases included.
    pub longest_row: u64,
    row: u64,
    deadline_ns: Option<u64>,
    wait_ns: u64,
    timeout_ns: u64,
    /// When the edge before came.
    #[serde(skip)]
    last_ns: Option<u64>,
}

impl Standing {
    /// Of a loop that `file` describes.
    pub fn new(file: &DaqConfig) -> Self {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            deadline_ns: file.deadline_ns().filter(|deadline_ns| *deadline_ns > 0),
            wait_ns: ns(file.pulse.wait),
            timeout_ns: ns(file.pulse.timeout),
            ..Self::default()
        }
    }

    /// Takes an edge.
    pub fn edge(&mut self, edge: &EdgeRecord) {
        // The pauses that the configuration asks for are none of the loop's fault.
        let asked_ns = self.wait_ns.saturating_add(if edge.arrived { 0 } else { self.timeout_ns });
        let last_ns = self.last_ns.replace(edge.received_ns).unwrap_or(edge.sent_ns);
        let stood_ns = edge.received_ns.saturating_sub(last_ns).saturating_sub(asked_ns);
        if !edge.arrived {
            // After a lost edge the loop brings its output low, for as long as that takes.
            self.last_ns = None;
        }
        let late = self.deadline_ns.is_some_and(|deadline_ns| edge.arrived && edge.latency_ns > deadline_ns);
        self.stood(stood_ns, late, late || !edge.arrived);
    }

    /// The loop ended, or the window did, at `end_ns`: nothing came since the last edge.
    pub fn finish(&mut self, end_ns: u64) {
        if let Some(last_ns) = self.last_ns.take() {
            self.stood(end_ns.saturating_sub(last_ns).saturating_sub(self.wait_ns), false, false);
        }
    }

    /// So long nothing came, until an edge that was `late`, or `missed`, if any.
    fn stood(&mut self, stood_ns: u64, late: bool, missed: bool) {
        self.longest_ns = self.longest_ns.max(stood_ns);
        let Some(deadline_ns) = self.deadline_ns else { return };
        // Of the releases that passed, a late edge is one itself.
        let skipped = (stood_ns / deadline_ns).saturating_sub(u64::from(late));
        self.skipped = self.skipped.saturating_add(skipped);
        let missed = skipped.saturating_add(u64::from(missed));
        self.row = if missed > 0 { self.row.saturating_add(missed) } else { 0 };
        self.longest_row = self.longest_row.max(self.row);
    }

    /// The loop was killed and goes on: the time between is none of its.
    pub fn goes_on(&mut self) {
        self.last_ns = None;
    }

    /// A sentence that the loop stood still, if it did.
    pub fn stood_still(&self) -> Option<String> {
        let skipped = match self.deadline_ns {
            Some(deadline_ns) => {
                format!(": {} releases of {} ms never ran", self.skipped, deadline_ns as f64 / 1e6)
            }
            None => String::new(),
        };
        (self.longest_ns >= STOOD_STILL_NS)
            .then(|| format!("the loop stood still for {:.1} ms{skipped}", self.longest_ns as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn standing(text: &str) -> Standing {
        let file: DaqConfig = toml::from_str(text).unwrap();
        file.validate().unwrap();
        Standing::new(&file)
    }

    fn edge(sent_ns: u64, received_ns: u64, latency_ns: u64) -> EdgeRecord {
        EdgeRecord { sent_ns, received_ns, latency_ns, arrived: true, ..EdgeRecord::default() }
    }

    #[test]
    fn a_loop_that_stands_still_misses_every_release_of_that_time() {
        let mut seen = standing("deadline_us = 1000\npulse.wait = '50us'");
        let begin = 5_000_000 * MS;
        // Counted from arrival to arrival, the freeze is in the latency; counted from the write it
        // is between two edges.
        for stamped in [true, false] {
            let mut at = begin;
            for index in 0..100u64 {
                let stood = if index == 50 { 600 * MS } else { MS / 10 };
                let (sent, received) = (at + stood, at + stood + MS / 100);
                seen.edge(&edge(sent, received, if stamped { received - at } else { received - sent }));
                at = received;
            }
            // One of the 599 whole deadlines is the late edge itself, where the latency has it.
            let expected = if stamped { 598 } else { 599 };
            assert_eq!((seen.skipped, seen.longest_row), (expected, 599), "{stamped}");
            assert!(seen.stood_still().unwrap().contains(&format!("{expected} releases of 1 ms")));
            seen = standing("deadline_us = 1000\npulse.wait = '50us'");
        }
    }

    #[test]
    fn what_was_asked_for_is_no_standstill() {
        let mut seen = standing("deadline_us = 1000\npulse.wait = '20ms'\npulse.timeout = '100ms'");
        seen.edge(&edge(0, MS / 10, MS / 10));
        // A pause that was asked for, a lost edge that was waited for, and the way back to the low
        // level.
        seen.edge(&edge(20 * MS, 20 * MS + MS / 10, MS / 10));
        seen.edge(&EdgeRecord { arrived: false, ..edge(40 * MS, 140 * MS, 100 * MS) });
        seen.edge(&edge(900 * MS, 900 * MS + MS / 10, MS / 10));
        assert_eq!((seen.skipped, seen.longest_row), (0, 1));
        // A kill and a resumption.
        seen.goes_on();
        seen.edge(&edge(9000 * MS, 9000 * MS + MS / 10, MS / 10));
        assert_eq!((seen.skipped, seen.stood_still()), (0, None));
        // A freeze while it waits for an edge, which is then lost.
        seen.edge(&EdgeRecord { arrived: false, ..edge(9020 * MS, 9720 * MS, 700 * MS) });
        assert_eq!((seen.skipped, seen.longest_row), (599, 600));
        // One that came after the window, or was under way when the loop ended, is none; a freeze
        // until then is.
        seen.goes_on();
        seen.edge(&edge(9800 * MS, 9800 * MS + MS / 10, MS / 10));
        seen.finish(9820 * MS);
        assert_eq!((seen.skipped, seen.longest_row), (599, 600));
        seen.edge(&edge(9800 * MS, 9800 * MS, MS / 10));
        seen.finish(9870 * MS);
        assert_eq!((seen.skipped, seen.longest_row), (649, 600));
        // Times that cannot be end nothing, and without a deadline nothing is due.
        seen.edge(&edge(u64::MAX, 0, u64::MAX));
        let mut free = standing("");
        free.edge(&edge(0, 600 * MS, 600 * MS));
        assert_eq!((free.skipped, free.longest_row), (0, 0));
        assert_eq!(free.stood_still().unwrap(), "the loop stood still for 600.0 ms");
    }
}
