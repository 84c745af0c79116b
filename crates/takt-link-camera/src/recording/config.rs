//! What a configuration file says about a recording.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FrameReader, ReplayCamera, check};
use crate::backend::{CameraBackend, CameraSample};
use crate::{Camera, CameraError, Frame, Intrinsics, Surroundings};

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

impl CameraBackend for ReplayConfig {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn open(&self, _: Option<Surroundings>) -> Result<Box<dyn Camera>, CameraError> {
        Ok(Box::new(ReplayCamera::open(self)?))
    }

    fn validate(&self) -> Result<(), CameraError> {
        check(self)?;
        Ok(self.intrinsics.iter().try_for_each(crate::bounds::intrinsics)?)
    }

    fn rate_fps(&self) -> Option<f64> {
        self.rate_fps
    }

    fn set_rate_fps(&mut self, rate: f64) {
        self.rate_fps = Some(rate);
    }

    fn sample(&self, most: usize) -> Result<CameraSample, CameraError> {
        let mut reader = FrameReader::open(self)?;
        let intrinsics = reader.intrinsics();
        let mut frames = Vec::new();
        let mut frame = Frame::new(intrinsics.width, intrinsics.height);
        while frames.len() < most && reader.read(&mut frame)? {
            frames.push(frame.clone());
        }
        Ok(CameraSample { intrinsics, frames })
    }

    fn inspect(&self) -> Result<String, CameraError> {
        let CameraSample { intrinsics, frames } = self.sample(1)?;
        if frames.is_empty() {
            return Err(CameraError::Missing(
                "the recording has no frame after start_offset_s: choose a smaller one",
            ));
        }
        crate::bounds::intrinsics(&intrinsics)?;
        Ok(format!("recording, {}x{}", intrinsics.width, intrinsics.height))
    }

    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }
}
