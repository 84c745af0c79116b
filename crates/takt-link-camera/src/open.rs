//! Opens the camera that a configuration names: the only place that knows every backend.

use crate::camera::{Camera, PoseSource};
use crate::config::CameraConfig;
use crate::error::CameraError;
use crate::synthetic::SolidSource;

/// What a rendered scene is given of the world: where its camera is, and which bodies move in
/// it.
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

/// Whether this build can open such a camera at all, without looking for it.
///
/// # Errors
/// [`CameraError::NotBuilt`], with what to build instead.
pub fn is_built(config: &CameraConfig) -> Result<(), CameraError> {
    match config {
        CameraConfig::Realsense(_) if !cfg!(feature = "realsense") => {
            Err(CameraError::NotBuilt { backend: "realsense", feature: "realsense" })
        }
        _ => Ok(()),
    }
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
    let camera: Box<dyn Camera> = match config {
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
    };
    // Whatever said them: a recording, the library, a configuration.
    camera.intrinsics().check()?;
    Ok(camera)
}
