//! Report on a capture.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::intervals::SendIntervals;
use super::ways::PortFacts;

/// Part to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The application sent late, or its thread woke up late.
    Application,
    /// The frame waited in the host's network stack, on its way out or for being taken.
    HostStack,
    /// It was slow or lost between the sightings at both ends: network card, driver, cable, switch.
    Wire,
    /// The devices were slow, lost it, or did not take part.
    Device,
    /// Beyond the master's interface; a capture at one end alone cannot separate the wire from the
    /// devices.
    WireOrDevice,
}

impl Blame {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::HostStack => "host stack",
            Self::Wire => "wire or NIC",
            Self::Device => "device",
            Self::WireOrDevice => "wire, NIC or device",
        }
    }
}

/// Kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The answer never came.
    Missing,
    /// The answer took long.
    Slow,
    /// The frame left after its time.
    SentLate,
    /// The frame left before its time.
    SentEarly,
    /// The answer was there, and was taken late or never.
    TakenLate,
    /// A working counter other than usual.
    Counter,
    /// A probe on the wire saw that it was damaged.
    Damaged,
}

impl FindingKind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Slow => "slow",
            Self::SentLate => "sent late",
            Self::SentEarly => "sent early",
            Self::TakenLate => "taken late",
            Self::Counter => "counter",
            Self::Damaged => "damaged",
        }
    }
}

/// A datagram's working counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The command's name.
    pub command: &'static str,
    /// Its address: logical, or station in the low and register in the high half.
    pub address: u32,
    /// In this frame's answer.
    pub got: u16,
    /// In most answers to such frames.
    pub usual: u16,
}

/// A frame that something happened to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Number of its first sighting in the file, from 1, as Wireshark shows it; 0 for one that was
    /// never seen.
    pub frame: u64,
    /// Since the first frame of the capture, seconds.
    pub at_s: f64,
    /// Its kind.
    pub kind: FindingKind,
    /// The part to blame.
    pub blame: Blame,
    /// Round trip at the master's interface, microseconds; `None` where it never came back.
    pub round_trip_us: Option<f64>,
    /// Its excess over the usual time, or its lateness, microseconds.
    pub excess_us: Option<f64>,
    /// Working counters of its last sighting.
    pub working_counters: Vec<Counter>,
    /// The evidence.
    pub why: String,
}

/// Least, middle and greatest of a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Their number.
    pub n: usize,
    /// Least, microseconds.
    pub min_us: f64,
    /// Median, microseconds.
    pub median_us: f64,
    /// Exceeded by one in a hundred, microseconds.
    pub p99_us: f64,
    /// Greatest, microseconds.
    pub max_us: f64,
}

impl Spread {
    pub(super) fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let at = |share: f64| values.get(((values.len() - 1) as f64 * share) as usize).map(|&ns| micros(ns));
        let (min_us, max_us) = (micros(*values.first()?), micros(*values.last()?));
        Some(Self { n: values.len(), min_us, median_us: at(0.5)?, p99_us: at(0.99)?, max_us })
    }
}

/// Report on a capture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Frames, each counted once however often it was seen.
    pub frames: usize,
    /// Those with process data.
    pub cyclic_frames: usize,
    /// From the first to the last sighting, seconds.
    pub length_s: f64,
    /// The master's period: the time from its first send to its last one, divided by the sends
    /// between.
    pub period_us: Option<f64>,
    /// The period that lateness is counted by: the one that was given, else the median interval;
    /// the mean of a group where unequal intervals repeat in groups; the time divided by the sends
    /// where the sends have no common interval.
    pub judged_period_us: f64,
    /// From one cycle's send to the next one's, microseconds.
    pub send_interval_us: Option<SendIntervals>,
    /// Round trips of cyclic frames.
    pub round_trip: Option<Spread>,
    /// From the master's interface to the segment.
    pub outward: Option<Spread>,
    /// In the segment.
    pub in_segment: Option<Spread>,
    /// From the segment to the master's interface.
    pub homeward: Option<Spread>,
    /// From handing a frame to the system to its sighting at the interface.
    pub host_send: Option<Spread>,
    /// Round trips beyond this are slow, microseconds.
    pub slow_limit_us: f64,
    /// Lateness beyond this is reported, microseconds.
    pub late_limit_us: f64,
    /// Findings of each kind.
    pub kinds: BTreeMap<FindingKind, u64>,
    /// Findings by who is to blame.
    pub blames: BTreeMap<Blame, u64>,
    /// Frames that were sent late because the answer before was late or missing; that one is the
    /// finding.
    pub held_up: u64,
    /// Answers that nobody waited for: doubled on the way, or sent before the capture began.
    pub unasked: u64,
    /// Cycles of the application's log that a frame was found for; `None` without a log.
    pub cycles_found: Option<usize>,
    /// Ports of a probe on the wire, whose stamps are judged; empty without one.
    pub probe_ports: Vec<PortFacts>,
    /// Frames that the probe did not stamp, which are not judged.
    pub unstamped: u64,
    /// Notes on the limits of the capture's evidence.
    pub notes: Vec<String>,
    /// In the order of time.
    pub findings: Vec<Finding>,
}

pub(super) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
