//! Limits of losses between the cell and its cameras and controller.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within};
use takt_rundir::Loss;

use super::summary::CellSummary;

/// Reason of a missing judgement for a frame that its camera never delivered.
pub(super) const NOT_DELIVERED: &str = "not-delivered";

/// Limits of losses within the measured window; more losses fail the run, and permitted ones are
/// listed nevertheless. The monitor does not use them: it stops the robot whenever an input is
/// stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CellLosses {
    /// Frames that cameras should have delivered and did not, all cameras together. 0: nobody
    /// looked at what they would have shown.
    pub max_missing_frames: u64,
    /// Commands that could not be handed to the robot link whole (RTDE). 0: each is a job of the
    /// SSM task that did not reach the robot.
    pub max_unsent_commands: u64,
    /// Number of times that the robot link (RTDE) may be lost and come back. 0.
    pub max_link_losses: u64,
}

impl CellLosses {
    /// Refuses limits that judge nothing.
    ///
    /// # Errors
    /// The first limit outside its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let keys = [
            ("max_missing_frames", self.max_missing_frames as f64, 0.0, Loss::MAX_ALLOWED),
            ("max_unsent_commands", self.max_unsent_commands as f64, 0.0, Loss::MAX_ALLOWED),
            ("max_link_losses", self.max_link_losses as f64, 0.0, Loss::MAX_ALLOWED),
        ];
        all_within("losses.", &keys)
    }

    /// Whether no more frames are missing than is allowed.
    pub(super) fn allow_missing(&self, summary: &CellSummary) -> bool {
        missing(summary) <= self.max_missing_frames
    }

    /// Losses next to the limits; `link_losses`: number of losses of the robot link.
    pub(super) fn judge(&self, summary: &CellSummary, link_losses: u64) -> Vec<Loss> {
        let missing = missing(summary);
        let delivered: u64 = summary
            .per_camera
            .iter()
            .map(|camera| camera.frames + camera.dropped + camera.unjudged.values().sum::<u64>())
            .sum();
        vec![
            Loss::new(
                "missing_frames",
                "camera frames",
                [missing, missing.saturating_add(delivered)],
                ("losses.max_missing_frames", self.max_missing_frames),
            ),
            Loss::new(
                "unsent_commands",
                "commands to the robot",
                [summary.ssm.not_sent, summary.ssm.jobs],
                ("losses.max_unsent_commands", self.max_unsent_commands),
            ),
            Loss::new(
                "link_losses",
                "connections to the robot",
                [link_losses, 0],
                ("losses.max_link_losses", self.max_link_losses),
            ),
        ]
    }
}

/// Frames that were never delivered.
pub(super) fn missing(summary: &CellSummary) -> u64 {
    summary.losses.get(NOT_DELIVERED).copied().unwrap_or(0)
}
