//! The interface that every backend implements.

use std::sync::Arc;

use nalgebra::Isometry3;

use crate::error::CameraError;
use crate::{Frame, Intrinsics, Unpaired};

/// Pose of the camera's optical frame in the robot base frame at a CLOCK_MONOTONIC time in
/// nanoseconds. For cameras on the robot, the robot's pose history composed with the mounting.
pub type PoseSource = Arc<dyn Fn(u64) -> Isometry3<f64> + Send + Sync>;

/// A source of frames.
pub trait Camera: Send {
    /// Intrinsics of every frame this camera delivers.
    fn intrinsics(&self) -> Intrinsics;

    /// Whether depth is measured. Without, every depth is 0, "no measurement", and a consumer that
    /// needs depth must treat the camera as blind.
    fn has_depth(&self) -> bool {
        true
    }

    /// Images of a recording that are not replayed because no image of the other kind was taken at
    /// about the same time, until now; `None` where that cannot be.
    fn unpaired(&self) -> Option<Unpaired> {
        None
    }

    /// Sets when a paced backend (replay, synthetic) delivers its first frame: at
    /// `origin_ns + phase_ns` (CLOCK_MONOTONIC). Cameras with the same origin show the same moment
    /// of a common scene. Live cameras have their own clock and ignore it.
    fn start_at(&mut self, origin_ns: u64, phase_ns: u64) {
        let _ = (origin_ns, phase_ns);
    }

    /// Blocks until the next frame is due or there, and fills `frame` wholly. Buffers of the right
    /// size ([`Frame::new`] with the intrinsics' size) are reused; others are resized.
    ///
    /// Paced backends decode before the frame is due and then sleep, so that the work does not
    /// count as reaction; a frame that is decoded too late is delivered late, and the ones that
    /// were due meanwhile are skipped, which shows as a gap in `sequence`.
    ///
    /// # Errors
    /// [`CameraError::Ended`] after the last frame; anything else means that the camera is lost
    /// until it is opened again. `frame` is then meaningless.
    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError>;
}
