//! The interface that every backend implements, and how one is opened.

use std::sync::Arc;

use nalgebra::Isometry3;

use crate::config::CameraConfig;
use crate::error::CameraError;
use crate::synthetic::SolidSource;
use crate::{Frame, Intrinsics};

/// Where the camera is: the pose of its optical frame in the robot base frame at a CLOCK_MONOTONIC
/// time in nanoseconds. For cameras on the robot, the robot's pose history composed with the
/// mounting.
pub type PoseSource = Arc<dyn Fn(u64) -> Isometry3<f64> + Send + Sync>;

/// What a rendered scene is told of the world: where its camera is, and which bodies move in it.
#[derive(Clone)]
pub struct Surroundings {
    /// Where the camera is.
    pub pose: PoseSource,
    /// The bodies that move, for example the links of an arm; none without.
    pub solids: Option<SolidSource>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("solids", &self.solids.is_some()).finish_non_exhaustive()
    }
}

impl From<PoseSource> for Surroundings {
    fn from(pose: PoseSource) -> Self {
        Self { pose, solids: None }
    }
}

/// A source of frames.
pub trait Camera: Send {
    /// Intrinsics of every frame this camera delivers.
    fn intrinsics(&self) -> Intrinsics;

    /// Whether depth is measured. Without, every depth is 0, "no measurement", and a consumer that
    /// needs depth must treat the camera as blind.
    fn has_depth(&self) -> bool {
        true
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

/// Opens the camera that the configuration names.
///
/// `surroundings` are needed by the synthetic scene alone, which renders what is seen from there.
///
/// # Errors
/// Says what is missing or wrong and how to put it right; see [`CameraError`].
pub fn open(
    config: &CameraConfig,
    surroundings: Option<Surroundings>,
) -> Result<Box<dyn Camera>, CameraError> {
    Ok(match config {
        CameraConfig::Replay(replay) => Box::new(crate::recording::ReplayCamera::open(replay)?),
        CameraConfig::Synthetic(synthetic) => {
            let around = surroundings.ok_or(CameraError::Missing(
                "the synthetic camera needs a pose source: it renders what is seen from there",
            ))?;
            let camera = crate::synthetic::SyntheticCamera::new(synthetic, around.pose)?;
            match around.solids {
                Some(solids) => Box::new(camera.with_solids(solids)),
                None => Box::new(camera),
            }
        }
        #[cfg(feature = "realsense")]
        CameraConfig::Realsense(realsense) => Box::new(crate::realsense::RealsenseCamera::open(realsense)?),
        #[cfg(not(feature = "realsense"))]
        CameraConfig::Realsense(_) => {
            return Err(CameraError::NotBuilt { backend: "realsense", feature: "realsense" });
        }
    })
}
