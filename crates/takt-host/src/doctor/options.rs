//! How to examine.

use std::path::PathBuf;
use std::time::Duration;

/// How to examine.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Where `/proc`, `/sys` and `/dev` lie. Default `/`. In any other folder (a copy from another
    /// machine) nothing is measured or tried.
    pub root: PathBuf,
    /// How long to measure, 0 to 3600 seconds. Default 3: what somebody waits for. 0 measures
    /// nothing.
    pub seconds: f64,
    /// What counts as a hardware gap, see [`GapOptions`](crate::doctor::GapOptions::threshold).
    pub gap: Duration,
    /// SCHED_FIFO priority of what measures, see
    /// [`GapOptions`](crate::doctor::GapOptions::priority).
    pub priority: u8,
}

impl Default for Options {
    fn default() -> Self {
        let gaps = crate::doctor::GapOptions::default();
        Self { root: "/".into(), seconds: 3.0, gap: gaps.threshold, priority: gaps.priority }
    }
}
