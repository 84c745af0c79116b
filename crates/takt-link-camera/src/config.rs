//! Configuration of one camera in a file, and the list of backends. Unknown keys are errors; every
//! key has its unit.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use crate::backend::CameraBackend;
use crate::realsense::RealsenseConfig;
use crate::recording::ReplayConfig;
use crate::synthetic::SyntheticConfig;

/// One camera, by its backend; what can be done with it whatever the backend is in
/// [`CameraBackend`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "backend", rename_all = "lowercase", deny_unknown_fields)]
pub enum CameraConfig {
    /// A recording.
    Replay(ReplayConfig),
    /// A rendered scene with exact ground truth.
    Synthetic(SyntheticConfig),
    /// An Intel RealSense D4xx depth camera.
    Realsense(RealsenseConfig),
}

impl Deref for CameraConfig {
    type Target = dyn CameraBackend;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Replay(replay) => replay,
            Self::Synthetic(scene) => scene,
            Self::Realsense(camera) => camera,
        }
    }
}

impl DerefMut for CameraConfig {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Replay(replay) => replay,
            Self::Synthetic(scene) => scene,
            Self::Realsense(camera) => camera,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each() -> [CameraConfig; 3] {
        [
            "backend = 'replay'\npath = 'x.mcap'\ntopic = '/cam0'",
            "backend = 'synthetic'",
            "backend = 'realsense'",
        ]
        .map(|text| toml::from_str(text).unwrap())
    }

    #[test]
    fn a_backend_has_the_name_that_files_have_for_it() {
        for camera in each() {
            let table = toml::Table::try_from(&camera).unwrap();
            assert_eq!(table["backend"].as_str(), Some(camera.name()));
        }
    }

    #[test]
    fn a_rate_that_is_set_is_the_rate() {
        for mut camera in each() {
            camera.set_rate_fps(7.0);
            assert_eq!(camera.rate_fps(), Some(7.0), "{}", camera.name());
            camera.validate().unwrap();
        }
    }

    #[test]
    fn cameras_on_a_cable_have_a_device_and_others_a_path_or_a_scene() {
        for mut camera in each() {
            let (name, has_device) = (camera.name(), camera.device().is_some());
            let ways = [has_device, camera.path_mut().is_some(), camera.needs_surroundings()];
            assert_eq!(ways.into_iter().filter(|way| *way).count(), 1, "{name}: {ways:?}");
            assert_eq!(has_device, name == "realsense");
        }
    }
}
