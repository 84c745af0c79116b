//! Analysis of a capture from any master: for each slow or missing frame its round trip, its
//! working counters, and the blamed part.
//!
//! ```text
//!   application ──send──► host stack ──► NIC, wire ──► devices ──► wire, NIC ──► host stack ──taken──► application
//!        │                    1                          2   3                       4                     │
//!        └ log of the run (sent, taken)          sightings of a capture                   log of the run ┘
//! ```
//!
//! A frame is recognised by its datagrams' commands, indices, addresses and lengths, which devices
//! leave alone (but for the device half of counted addresses). Whatever lies between two sightings
//! is charged to what lies there; what no sighting separates is said to be so, and never guessed.

mod app;
mod blame;
mod intervals;
mod late;
mod notes;
mod places;
mod probe;
mod report;
mod sends;
mod text;
mod ways;

#[cfg(test)]
mod tests;

pub use app::{AppCycle, AppLog, LogError};
pub use intervals::{Pattern, SendIntervals};
pub use late::{LateCause, LatePlace, LateWay, Usual};
pub use report::{Blame, Counter, Finding, FindingKind, Report, Spread};
pub use ways::{FrameTimes, PortFacts, Traffic};

/// From when on something is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Round trips longer than this are slow. Half the master's period where absent: the answer of
    /// a cycle that is not there by then is late for most masters.
    pub slow_ns: Option<u64>,
    /// Sends later than this after their time are late, and so much is too long in the host's
    /// stack. A quarter of the master's period where absent.
    pub late_ns: Option<u64>,
    /// The master's period, where it is known: sends are held against it.
    pub period_ns: Option<u64>,
}

/// Analyses `traffic`, with the application's own stamps where there are.
pub fn analyse(traffic: &Traffic, app: Option<&AppLog>, limits: &Limits) -> Report {
    blame::judge(traffic, app, limits)
}
