//! Options of an examination.

use std::path::PathBuf;
use std::time::Duration;

/// Options of an examination.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Root folder of `/proc`, `/sys` and `/dev`. Default `/`. In any other folder (a copy from
    /// another machine) nothing is measured or tried.
    pub root: PathBuf,
    /// Measuring time, 0 to 3600 seconds. Default 3, a time that users wait for. 0 measures
    /// nothing.
    pub seconds: f64,
    /// Threshold of a hardware gap, see [`GapOptions`](crate::doctor::GapOptions::threshold).
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
