//! What a configuration file says about a RealSense.

use serde::{Deserialize, Serialize};
use takt_rt::config::all_within;

use crate::backend::{CameraBackend, CameraDevice, CameraSample};
use crate::bounds::{GREATEST_SIDE, MIN_SIZE, RATE_FPS, TIMEOUT_MS};
use crate::{Camera, CameraError, Surroundings};

/// Accepted values of `latency_offset_ms`.
pub(super) const LATENCY_OFFSETS_MS: std::ops::RangeInclusive<f64> = 0.0..=1000.0;

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
    /// Delay of the camera's timestamps after the exposure, milliseconds, 0 to 1000: captures are
    /// dated back by it. Without: 0 where the library dates the exposure itself (domain "global
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

impl CameraBackend for RealsenseConfig {
    fn name(&self) -> &'static str {
        "realsense"
    }

    fn is_built(&self) -> Result<(), CameraError> {
        if cfg!(feature = "realsense") {
            Ok(())
        } else {
            Err(CameraError::NotBuilt { backend: "realsense", feature: "realsense" })
        }
    }

    #[cfg(feature = "realsense")]
    fn open(&self, _: Option<Surroundings>) -> Result<Box<dyn Camera>, CameraError> {
        Ok(Box::new(super::RealsenseCamera::open(self)?))
    }

    #[cfg(not(feature = "realsense"))]
    fn open(&self, _: Option<Surroundings>) -> Result<Box<dyn Camera>, CameraError> {
        Err(CameraError::NotBuilt { backend: "realsense", feature: "realsense" })
    }

    fn validate(&self) -> Result<(), CameraError> {
        let offset_ms = self.latency_offset_ms.unwrap_or(0.0);
        Ok(all_within(
            "",
            &[
                ("width", self.width.into(), MIN_SIZE.0, GREATEST_SIDE),
                ("height", self.height.into(), MIN_SIZE.1, GREATEST_SIDE),
                ("rate_fps", self.rate_fps.into(), RATE_FPS.0, RATE_FPS.1),
                ("timeout_ms", self.timeout_ms as f64, TIMEOUT_MS.0, TIMEOUT_MS.1),
                ("latency_offset_ms", offset_ms, *LATENCY_OFFSETS_MS.start(), *LATENCY_OFFSETS_MS.end()),
            ],
        )?)
    }

    fn rate_fps(&self) -> Option<f64> {
        Some(f64::from(self.rate_fps))
    }

    /// It has whole rates only, and few of them: the driver refuses others.
    fn set_rate_fps(&mut self, rate: f64) {
        self.rate_fps = rate.round().clamp(1.0, 300.0) as u32;
    }

    fn sample(&self, _: usize) -> Result<CameraSample, CameraError> {
        Ok(CameraSample::of_size(self.width, self.height))
    }

    fn inspect(&self) -> Result<String, CameraError> {
        let which = self.serial.as_deref().unwrap_or("the first one found");
        let missing = match self.is_built() {
            Ok(()) => "not opened by a check".to_owned(),
            Err(error) => format!("`takt run` of this build will refuse it: {error}"),
        };
        Ok(format!("RealSense ({which}); {missing}"))
    }

    fn device(&self) -> Option<CameraDevice<'_>> {
        Some(CameraDevice {
            kind: "RealSense",
            serial: self.serial.as_deref(),
            advice: "`rs-enumerate-devices -s` prints them",
        })
    }
}
