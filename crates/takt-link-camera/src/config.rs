//! What a configuration file says about one camera. Unknown keys are errors; every key has its
//! unit.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Intrinsics;
use crate::synthetic::SyntheticConfig;

/// One camera, by its backend.
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

impl CameraConfig {
    /// The backend as the configuration names it; also part of the driver thread's name.
    pub fn backend(&self) -> &'static str {
        match self {
            Self::Replay(_) => "replay",
            Self::Synthetic(_) => "synthetic",
            Self::Realsense(_) => "realsense",
        }
    }

    /// Frames per second that the camera has to deliver; `None` for a recording that is paced by
    /// its own time stamps.
    pub fn rate_fps(&self) -> Option<f64> {
        match self {
            Self::Replay(replay) => replay.rate_fps,
            Self::Synthetic(scene) => Some(scene.rate_fps),
            Self::Realsense(camera) => Some(f64::from(camera.rate_fps)),
        }
    }

    /// Whether kernel or library receive the frames of this camera: whoever wants one need only
    /// wait for it. Recordings and the synthetic scene need a thread that stands in for them.
    pub(crate) fn has_own_threads(&self) -> bool {
        matches!(self, Self::Realsense(_))
    }
}

/// A camera of an MCAP recording: one of Takt's own, of Foxglove's tools (protobuf or JSON), or of
/// ROS 2 (rosbag2 with MCAP storage).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayConfig {
    /// The MCAP file, or the folder of a rosbag2 recording, whose files are read as one.
    pub path: PathBuf,
    /// Topic prefix of the camera: `/cam0` stands for the topics `/cam0/color`, `/cam0/depth` and
    /// `/cam0/calibration`, and where the recording has none of that name, for those of ROS 2's
    /// camera drivers: `/cam0/color/image_raw` (or `image_rect`, `…/compressed`),
    /// `/cam0/aligned_depth_to_color/image_raw` (or `…/compressedDepth`) and
    /// `/cam0/color/camera_info`.
    pub topic: String,
    /// Other name of the colour topic: `foxglove.CompressedImage` (JPEG, PNG), `foxglove.RawImage`
    /// or `sensor_msgs/msg/Image` (rgb8, bgr8, rgba8, bgra8, mono8), or
    /// `sensor_msgs/msg/CompressedImage` (JPEG, PNG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color_topic: Option<String>,
    /// Other name of the depth topic, of colour's size and aligned to it: `foxglove.RawImage` or
    /// `sensor_msgs/msg/Image` (16UC1 or mono16: millimetres; 32FC1: metres), or
    /// `sensor_msgs/msg/CompressedImage` (compressedDepth, or a 16-bit PNG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_topic: Option<String>,
    /// Other name of the calibration topic (`foxglove.CameraCalibration` or
    /// `sensor_msgs/msg/CameraInfo`); without, ROS 2's `camera_info` beside the colour topic
    /// counts, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_topic: Option<String>,
    /// Intrinsics; without, the recording's calibration is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intrinsics: Option<Intrinsics>,
    /// Frames per second to replay at; without, the recorded time stamps pace the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_fps: Option<f64>,
    /// Start again at the end.
    #[serde(default, rename = "loop")]
    pub looped: bool,
    /// Starts that many seconds (of the recording) after its beginning; a loop returns to the
    /// beginning.
    #[serde(default)]
    pub start_offset_s: f64,
    /// Replay a colour-only recording; depth is then 0, "no measurement", everywhere.
    #[serde(default)]
    pub color_only: bool,
    /// Replay a file whose end is missing (its recorder was killed) up to where it breaks off.
    #[serde(default)]
    pub allow_truncated: bool,
    /// Colour and depth belong together when their time stamps differ by at most this,
    /// milliseconds, 0 to 1000. An image without a partner counts as a dropped frame.
    #[serde(default = "default_pairing_ms")]
    pub pairing_ms: f64,
}

/// Accepted values of `pairing_ms`.
pub(crate) const PAIRING_MS: std::ops::RangeInclusive<f64> = 0.0..=1000.0;

fn default_pairing_ms() -> f64 {
    5.0
}

impl ReplayConfig {
    /// Replays a camera with recorded pacing, once.
    pub fn new(path: impl Into<PathBuf>, topic: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            topic: topic.into(),
            color_topic: None,
            depth_topic: None,
            calibration_topic: None,
            intrinsics: None,
            rate_fps: None,
            looped: false,
            start_offset_s: 0.0,
            color_only: false,
            allow_truncated: false,
            pairing_ms: default_pairing_ms(),
        }
    }
}

/// Accepted values of `latency_offset_ms`.
pub(crate) const LATENCY_OFFSETS_MS: std::ops::RangeInclusive<f64> = 0.0..=1000.0;

/// A RealSense D4xx: colour, and depth aligned to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealsenseConfig {
    /// Serial number as `rs-enumerate-devices -s` prints it; without, the first camera found. With
    /// several cameras every one needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Width of colour and depth.
    #[serde(default = "default_width")]
    pub width: u32,
    /// Height of colour and depth.
    #[serde(default = "default_height")]
    pub height: u32,
    /// Frames per second.
    #[serde(default = "default_fps")]
    pub rate_fps: u32,
    /// Longest wait for a frame, milliseconds, before the camera counts as lost.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// How much later than the exposure the camera's stamps are, milliseconds, 0 to 1000: captures
    /// are dated back by it. Without: 0 where the library dates the exposure itself (domain "global
    /// time"), and one frame period where it dates the arrival (domains "system time" and, by its
    /// least delay, "hardware clock"), because exposure, readout and transfer take up to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_offset_ms: Option<f64>,
}

fn default_fps() -> u32 {
    30
}

fn default_timeout_ms() -> u64 {
    1000
}

fn default_width() -> u32 {
    424
}

fn default_height() -> u32 {
    240
}
