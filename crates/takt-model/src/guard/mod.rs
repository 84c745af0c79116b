//! Assumptions held against every event: what an analysis took from measured curves, watched while
//! the system goes on.
//!
//! A curve is an extreme over the past. A bound that is built on one assumes that the future stays
//! within it; a limit here reports at once when it does not. It keeps a tail of its own, so that
//! what the recorder forgets or leaves out of its curve changes nothing here, and allocates nothing
//! after it was set.

use serde::{Deserialize, Serialize};

mod account;
mod assumed;
mod limits;

pub use account::Allowance;
pub(crate) use account::{Account, Beyond, Taken};
pub use assumed::{Assumed, Breach, Broken};
pub(crate) use limits::Noticed;
pub use limits::{CostLimit, CountLimit, SpanLimit};

/// A curve that was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// Consecutive events in which it was left.
    pub events: u64,
    /// Assumed value for so many: the most execution time, or the shortest span; `None`: that there
    /// are none.
    pub assumed_ns: Option<u64>,
    pub seen_ns: u64,
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
}
