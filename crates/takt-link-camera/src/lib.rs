//! Cameras: replay, synthetic scene, RealSense, and the MCAP recorder.
//!
//! Every backend implements [`Camera`] and is opened from a [`CameraConfig`] by [`open`]. A
//! [`CameraFeed`] runs a camera in its driver thread and publishes [`Frame`]s to consumers without
//! copying; a [`recording::Recorder`] writes any of them to an MCAP file that
//! [`recording::ReplayCamera`] and Foxglove read.
//!
//! | backend | depth | pace |
//! |---|---|---|
//! | `replay` | recorded | the recording's time stamps, or a set rate |
//! | `synthetic` | exact, optional noise | a set rate |
//! | `realsense` (cargo feature) | measured, aligned to colour | the device |

#![deny(missing_docs)]

mod bounds;
mod camera;
mod config;
mod error;
mod feed;
mod frame;
mod gate;
mod handover;
pub mod image;
mod open;
mod pacing;
#[cfg(feature = "realsense")]
pub mod realsense;
pub mod recording;
pub mod synthetic;
mod unpaired;

pub use camera::{Camera, PoseSource};
pub use config::{CameraConfig, RealsenseConfig, ReplayConfig};
pub use error::CameraError;
pub use feed::{Acquisition, CameraFeed, FeedOptions, FeedState, FeedStatus};
pub use frame::{Frame, Intrinsics, StreamStamp, Streams};
pub use gate::StartGate;
pub use open::{Surroundings, is_built, open};
pub use pacing::Pacer;
pub use synthetic::SyntheticConfig;
pub use unpaired::Unpaired;
