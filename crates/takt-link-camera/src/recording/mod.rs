//! Recordings: MCAP files that Foxglove opens, replayed as cameras and written from any camera.
//!
//! One camera is a topic prefix, for example `/cam0`, with
//!
//! | topic | type | content |
//! |---|---|---|
//! | `/cam0/color` | `foxglove.CompressedImage` | JPEG |
//! | `/cam0/depth` | `foxglove.RawImage` | `16UC1`, millimetres along the optical axis, 0 = no measurement |
//! | `/cam0/calibration` | `foxglove.CameraCalibration` | intrinsics, at the beginning |
//! | `/cam0/transform` | `foxglove.FrameTransform` | pose in the robot base frame, where known |
//!
//! all protobuf-encoded in compressed chunks (<https://mcap.dev/spec>,
//! <https://docs.foxglove.dev/docs/sdk/schemas>). Depth is stored losslessly.

mod messages;
mod recorder;
mod replay;
mod source;

pub use recorder::{Recorder, RecorderOptions};
pub(crate) use replay::check;
pub use replay::{FrameReader, ReplayCamera};
