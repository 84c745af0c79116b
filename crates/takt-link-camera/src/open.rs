//! Opens the camera that a configuration names.

use crate::backend::Surroundings;
use crate::camera::Camera;
use crate::config::CameraConfig;
use crate::error::CameraError;

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
    let camera = config.open(surroundings)?;
    // Whatever said them: a recording, the library, a configuration.
    camera.intrinsics().check()?;
    Ok(camera)
}
