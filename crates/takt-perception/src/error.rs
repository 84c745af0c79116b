//! Why perception cannot start.

use takt_link_camera::Intrinsics;

use crate::config::ConfigError;
use crate::engine::EngineError;

/// Why perception cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PerceptionError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A network cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The intrinsics make no sense.
    #[error(
        "camera {camera}: intrinsics {intrinsics:?} are unusable; accepted: width and height above 0 and finite \
         fx, fy above 0, cx, cy"
    )]
    Intrinsics { camera: u32, intrinsics: Intrinsics },
}
