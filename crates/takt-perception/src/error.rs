//! Errors of starting perception.

use takt_rt::config::SettingError;

use crate::config::ConfigError;
use crate::engine::EngineError;

/// Reason why perception cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PerceptionError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A network cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The intrinsics cannot be those of a camera with that image.
    #[error("camera {camera}: {source}. They come from the camera, its recording or its configuration")]
    Intrinsics { camera: u32, source: SettingError },
}
