//! Cameras: replay, synthetic scene, RealSense, and the MCAP recorder.
//!
//! Every backend implements [`Camera`], and the struct of its keys [`CameraBackend`]; [`open`]
//! opens the one that a [`CameraConfig`] names. A [`CameraFeed`] runs a camera in its driver thread
//! and publishes [`Frame`]s to consumers without copying; a [`recording::Recorder`] writes any of
//! them to an MCAP file that [`recording::ReplayCamera`] and Foxglove read.
//!
//! | backend | depth | pace |
//! |---|---|---|
//! | `replay` | recorded | the recording's time stamps, or a set rate |
//! | `synthetic` | exact, optional noise | a set rate |
//! | `realsense` (cargo feature) | measured, aligned to colour | the device |

#![deny(missing_docs)]

mod backend;
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
pub mod realsense;
pub mod recording;
pub mod synthetic;
mod unpaired;

pub use backend::{CameraBackend, CameraDevice, CameraSample, Surroundings};
pub use camera::{Camera, PoseSource};
pub use config::CameraConfig;
pub use error::CameraError;
pub use feed::{Acquisition, CameraFeed, FeedOptions, FeedState, FeedStatus};
pub use frame::{Frame, Intrinsics, StreamStamp, Streams};
pub use gate::StartGate;
pub use open::open;
pub use pacing::Pacer;
pub use realsense::RealsenseConfig;
pub use recording::ReplayConfig;
pub use synthetic::SyntheticConfig;
pub use unpaired::Unpaired;
