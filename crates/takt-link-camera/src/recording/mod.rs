//! Recordings: MCAP files that Foxglove opens, replayed as cameras and written from any camera.
//!
//! One camera is a topic prefix, for example `/cam0`. The recorder writes
//!
//! | topic | type | content |
//! |---|---|---|
//! | `/cam0/color` | `foxglove.CompressedImage` | JPEG |
//! | `/cam0/depth` | `foxglove.RawImage` | `16UC1`, millimetres along the optical axis, 0 = no measurement |
//! | `/cam0/calibration` | `foxglove.CameraCalibration` | intrinsics, at the beginning |
//! | `/cam0/transform` | `foxglove.FrameTransform` | pose in the robot base frame, where known |
//!
//! all protobuf-encoded in compressed chunks (<https://mcap.dev/spec>,
//! <https://docs.foxglove.dev/docs/sdk/schemas>). Depth is stored losslessly. Replay also reads
//! what others write: Foxglove's messages in JSON, and ROS 2's in CDR (the types are in
//! [`ReplayConfig`]).
//!
//! A file is read in layers: `contents` knows where chunks are, `chunk` decompresses one, `log` has
//! the messages of a topic in the order of their log times, `parts` goes from file to file where a
//! recording has several (`bag` finds them), `formats` and `pixels` know what is in them, `source`
//! pairs colour with depth, and `replay` paces. Limits on the demands of a file are in `limits`.

mod bag;
mod chunk;
mod config;
mod contents;
mod fault;
mod formats;
mod limits;
mod log;
mod messages;
mod pairing;
mod parts;
mod pixels;
mod recorder;
mod records;
mod replay;
mod source;
mod topics;

pub(crate) use config::PAIRING_MS;
pub use config::ReplayConfig;
pub use recorder::{Recorder, RecorderOptions};
use replay::check;
pub use replay::{FrameReader, ReplayCamera};
