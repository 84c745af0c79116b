//! Records of the cell's threads: one per SSM job, one per judged frame. Plain values without
//! pointers, pushed through wait-free rings.

use serde::{Deserialize, Serialize};
use takt_link_rtde::client::SendOutcome;
use takt_perception::FrameHealth;

use crate::ssm::{Decision, MAX_CAMERAS};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsmJob {
    /// Index of the release on the grid; a gap is a skipped release.
    pub index: u64,
    /// Planned release, CLOCK_MONOTONIC nanoseconds.
    pub planned_ns: u64,
    /// When the thread woke up.
    pub wake_ns: u64,
    /// When the inputs were read.
    pub start_ns: u64,
    /// When the command was handed to the kernel: the job's end.
    pub end_ns: u64,
    /// Frame sequence number consumed from each camera.
    pub input_sequences: [u64; MAX_CAMERAS],
    pub decision: Decision,
    /// Number of this job's command.
    pub heartbeat: i32,
    /// Outcome of the command.
    pub sent: SendOutcome,
    /// Newest command number that the controller has echoed by now.
    pub echo: i32,
    /// When the packet with that echo was received, CLOCK_MONOTONIC nanoseconds.
    pub echo_received_ns: u64,
}

/// One frame that perception took up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameRecord {
    /// Index of the camera.
    pub camera: u32,
    /// Sequence number at the source.
    pub sequence: u64,
    /// Capture, CLOCK_MONOTONIC nanoseconds.
    pub capture_ns: u64,
    /// Arrival in memory.
    pub arrival_ns: u64,
    /// Perception began.
    pub start_ns: u64,
    /// Inference done.
    pub inferred_ns: u64,
    /// Distances known.
    pub projected_ns: u64,
    /// Result published.
    pub published_ns: u64,
    /// Whether the frame could be judged.
    pub health: FrameHealth,
    /// People seen.
    pub people: u32,
    /// Objects that nothing explained, and holes in which something could be.
    pub unexplained: u32,
    /// Least distance, metres; infinite when nobody was seen.
    pub nearest_m: f32,
    /// Whether a detector ran on this frame before its result was published.
    #[serde(default)]
    pub detected: bool,
    /// Masks that a network made of this frame.
    #[serde(default)]
    pub masks: u32,
    /// Frames of this camera between the previous record and this one that were never taken up.
    pub dropped: u64,
}

impl FrameRecord {
    /// Whether the picture was judged. All else is a camera that is blind: the robot stops for it,
    /// but nobody has looked, so that it is no reaction to what stood before the camera.
    pub(crate) fn is_judged(&self) -> bool {
        self.health == FrameHealth::Ok
    }

    /// Whether a network ran on this frame before its result was published.
    pub(crate) fn used_networks(&self) -> bool {
        self.detected || self.masks > 0
    }
}
