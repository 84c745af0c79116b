//! Limits of the stream.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

/// Limits (`[limits]`); the first excess stops the arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Fastest target, rad/s. Default 1.0: half of what a UR10e's slowest joint does. At most 3.2,
    /// what the script takes for motion.
    pub speed_rad_s: f64,
    /// Fastest change of that, rad/s². Default 5: between the pendant's 1.4 for movej and what
    /// upsets a light arm. At most 30.
    pub acceleration_rad_s2: f64,
    /// Largest distance of a joint from the newest target, rad. Default 0.2: twice what
    /// `lookahead_time` makes at full speed. The smallest accepted value follows from lookahead and
    /// speed limit.
    pub following_error_rad: f64,
    /// Control cycles that the newest state may be old. Default 5: 10 ms, half of what the robot's
    /// side waits.
    pub stale_cycles: u32,
    /// Releases that may be passed over at once. Default 5: the targets go on with time, so what
    /// was passed over is a step that the arm has to make up for.
    pub skipped_cycles: u32,
    /// Least speed fraction of the controller. Default 1: below, servoj takes longer than a cycle
    /// and targets are passed over.
    pub speed_fraction: f64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            speed_rad_s: 1.0,
            acceleration_rad_s2: 5.0,
            following_error_rad: 0.2,
            stale_cycles: 5,
            skipped_cycles: 5,
            speed_fraction: 1.0,
        }
    }
}
