//! Every threshold of perception, with its default and the reason for it.

#![deny(missing_docs)]

mod bounds;

pub(crate) use bounds::FARTHEST_M;

use std::path::PathBuf;

use nalgebra::Point3;
use serde::{Deserialize, Serialize};
use takt_link_camera::Intrinsics;

use crate::detector::DetectorLayout;
use crate::device::{Device, GpuConfig};
use crate::engine::{EngineConfig, ModelSource};
use crate::occupancy::{Capsule, StaticBox, Volume};
use crate::sensor::SensorConfig;
use crate::unseen::UnseenConfig;

/// Settings of perception, one for all cameras of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PerceptionConfig {
    /// Judge of the frames.
    pub device: Device,
    /// The GPU and how it is kept under control; without effect where the CPU judges.
    pub gpu: GpuConfig,
    /// Engine of the networks on the CPU.
    pub engine: EngineConfig,
    /// When a frame counts as blind.
    pub health: HealthConfig,
    /// The monitored volume and what stands out in it.
    pub occupancy: OccupancyConfig,
    /// When missing depth counts as occupied.
    pub unseen: UnseenConfig,
    /// The depth sensor of each camera, in the order of the cameras; a camera without an entry has
    /// the defaults. In a cell's file each camera has its own `sensor` instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sensors: Vec<SensorConfig>,
    /// The person detector.
    pub detector: DetectorConfig,
    /// The person segmenter.
    pub segmenter: SegmenterConfig,
    /// Carries people from one detection to the next.
    pub tracking: TrackingConfig,
}

/// When a frame counts as blind. A blind camera stops the robot, so these bounds are wide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Least standard deviation of the grey values (0..255) of a usable colour image. Sensor noise
    /// alone gives more than the default 2.0; a covered lens or a dead imager gives less.
    pub min_grey_deviation: f32,
    /// Nearest depth that the sensors can measure, millimetres. Unset: that of each camera's model
    /// at its resolution (a D435: 105 mm at 424×240, 195 mm at 848×480). Nearer is no measurement,
    /// and no free space either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_depth_mm: Option<u16>,
    /// Farthest depth taken as a measurement, millimetres. Depth noise grows with its square; 10 m
    /// is the D435's stated limit. Farther samples count as unseen: raise it if a camera looks
    /// across a hall.
    pub max_depth_mm: u16,
    /// Least share of valid depth samples, 0..1. Stereo depth in a textured cell gives 0.7 and
    /// more; below 0.3 somebody could stand in the holes.
    pub min_valid_depth: f32,
    /// Most samples that may be non-zero but outside the sensor's range, as a share of all samples.
    pub max_impossible_depth: f32,
    /// Time for which a tile of the image (a sixteenth) may show the very same depth samples, or
    /// the whole image the very same colours, before the camera counts as frozen, milliseconds, 50
    /// to 60000. 80: two equal frames at 30 FPS, as a library repeats them when a sensor is late,
    /// stay below; three do not. The noise of a living sensor changes some of a tile's 400 samples
    /// in every frame. A frame that repeats anything is as old as what it repeats, so that
    /// `ssm.stale_after_ms` bounds what a longer time would let through.
    pub frozen_after_ms: u32,
    /// Whether depth without noise is believed, for recordings with reconstructed depth. A tile
    /// then counts as alive when its depth or its colour changes: depth that freezes alone goes
    /// unnoticed. `false`: every depth sensor has noise.
    pub depth_without_noise: bool,
    /// Farthest that the captures of colour and depth may lie apart, milliseconds, 1 to 1000. 60:
    /// free-running sensors at 30 FPS are up to 17 ms apart, and libraries repeat the image of a
    /// sensor that missed a frame, which adds 33 ms; beyond, one of the two has stalled.
    pub max_stream_gap_ms: f32,
    /// Largest distance of a timestamp into the future, milliseconds, 0 to 100. 2: as
    /// `ssm.future_tolerance_ms`.
    pub future_tolerance_ms: f32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            min_grey_deviation: 2.0,
            min_depth_mm: None,
            max_depth_mm: 10_000,
            min_valid_depth: 0.3,
            max_impossible_depth: 0.5,
            frozen_after_ms: 80,
            depth_without_noise: false,
            max_stream_gap_ms: 60.0,
            future_tolerance_ms: 2.0,
        }
    }
}

/// The monitored volume and what stands out in it: the geometric half of perception, which needs no
/// network and notices a new person on the next frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OccupancyConfig {
    /// Sampling grid in pixels. At 4 px and a focal length of 350 px, samples at 3 m lie 34 mm
    /// apart: finer than a hand, at a sixteenth of the cost. Distances always use every pixel of
    /// what was found.
    pub step_px: u32,
    /// The monitored volume, base frame, metres. Default: the cube of 8 m around the base.
    pub volume: Volume,
    /// Height of the floor in the base frame, metres (negative when the robot stands on a table).
    pub floor_m: f32,
    /// Points lower than this above the floor are floor, metres. 0.15: stereo noise at 4 m stays
    /// below, a foot in front of a leg does not change the distance by more than the foot.
    pub min_height_m: f32,
    /// Fixtures that always stand in the volume. Objects inside are not seen: keep the shapes
    /// tight.
    pub static_boxes: Vec<StaticBox>,
    /// Space of the robot itself. Objects inside are not seen: keep the shapes tight. Default: the
    /// tool, from the TCP 0.25 m back along its axis, 0.12 m around.
    pub robot: Vec<Capsule>,
    /// Neighbouring samples farther apart than this are different things, metres. 0.30 keeps a
    /// person in one piece and splits two people who overlap in the image.
    pub link_m: f32,
    /// Least samples of a thing that counts.
    pub min_samples: u32,
    /// Least seen area of a thing that counts, square metres. 0.008 is less than a hand (about
    /// 0.015).
    pub min_area_m2: f32,
    /// The least distance is that of the k-th nearest pixel, so that single wrong pixels do not
    /// stop the robot.
    pub nearest_rank: usize,
}

impl Default for OccupancyConfig {
    fn default() -> Self {
        Self {
            step_px: 4,
            volume: Volume { min_m: Point3::new(-4.0, -4.0, -2.0), max_m: Point3::new(4.0, 4.0, 4.0) },
            floor_m: 0.0,
            min_height_m: 0.15,
            static_boxes: Vec::new(),
            robot: vec![Capsule::tool()],
            link_m: 0.30,
            min_samples: 4,
            min_area_m2: 0.008,
            nearest_rank: 8,
        }
    }
}

/// When the detector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DetectorSchedule {
    /// In one thread that all cameras share, at `interval_ms` and when something unexplained
    /// appears.
    #[default]
    Shared,
    /// On every frame, in the camera's own thread. For networks that are fast enough (a GPU). Masks
    /// of a segmenting detector are used directly.
    EveryFrame,
}

/// The person detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DetectorConfig {
    /// Off: everything in the volume is unexplained, and still stops the robot.
    pub enabled: bool,
    /// `builtin:nanodet_g_416`, or a file: NanoDet, YOLOv5 to YOLO26, YOLOX or RT-DETR, with or
    /// without masks.
    pub model: ModelSource,
    /// Layout of the model's outputs. `auto` determines it from their shapes, the file's metadata,
    /// and the model's results on pictures.
    pub layout: DetectorLayout,
    /// Input height and width, for models that leave them open and whose file does not say them.
    pub input_size: Option<[usize; 2]>,
    /// Runs a model that does not find the people in Takt's own pictures. `false`: such a model is
    /// refused, because a model that is misread finds nobody and says nothing. For cameras whose
    /// pictures look different (from straight above, infrared); try the model on your own
    /// recordings then.
    pub accept_unproved: bool,
    /// Class index of a person (COCO: 0).
    pub person_class: usize,
    /// Least score, 0..1. 0.35 found nearly everyone in real footage.
    pub threshold: f32,
    /// Boxes that overlap more than this (intersection over union) are the same person.
    pub nms_iou: f32,
    /// When it runs.
    pub schedule: DetectorSchedule,
    /// Longest time between two detections of one camera, milliseconds, when the thread can keep
    /// up.
    pub interval_ms: u32,
    /// Least time between two detections of one camera when something unexplained appears,
    /// milliseconds.
    pub urgent_interval_ms: u32,
    /// Most of one core that the shared thread uses, 0..1: after each inference it rests
    /// accordingly.
    pub max_duty: f32,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            model: ModelSource::Builtin("nanodet_g_416".into()),
            layout: DetectorLayout::Auto,
            input_size: None,
            accept_unproved: false,
            person_class: 0,
            threshold: 0.35,
            nms_iou: 0.5,
            schedule: DetectorSchedule::Shared,
            interval_ms: 500,
            urgent_interval_ms: 200,
            max_duty: 0.4,
        }
    }
}

/// The person segmenter, run on crops around tracked people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SegmenterConfig {
    /// Off: the foreground depth inside each person's box is used.
    pub enabled: bool,
    /// `builtin:selfie_square_256`, `builtin:selfie_landscape_144x256`, or a file with the same
    /// interface: RGB in 0..1 to a mask in 0..1 of the same size.
    pub model: ModelSource,
    /// Runs a model whose masks do not cover the people in Takt's own pictures. `false`: such a
    /// model is refused.
    pub accept_unproved: bool,
    /// Most people segmented per frame, those nearest to the tool first; the others are measured by
    /// depth alone.
    pub max_per_frame: usize,
    /// Every how many frames of a camera people are segmented; in between depth alone measures
    /// them, and is no less careful. Unset: every frame with ONNX Runtime, every third frame with
    /// the embedded engine, which takes five times as long for a mask: five cameras at 30 FPS then
    /// need about one core.
    pub every_frames: Option<u32>,
    /// Segments the whole image where nobody was found, so that every frame costs a mask, as it
    /// does a network that detects and segments in one pass (SentryRT-1). `false`: such a mask
    /// explains nobody.
    pub empty_frames: bool,
    /// Side of the crop over the longer side of the box. 1.25 gives clean masks (on the whole frame
    /// the network misses and smears people).
    pub crop_factor: f32,
    /// Mask values from here on are person, 0..1.
    pub threshold: f32,
    /// Least share of the box that the mask covers, else the detection is not believed: real people
    /// had 0.28 and more, a constant false positive had 0.00.
    pub min_coverage: f32,
    /// Least share of the foreground in the box that the mask covers; below, the mask is not used
    /// for distance.
    pub min_agreement: f32,
    /// A detection is dropped after so many masks in a row below `min_coverage`.
    pub reject_after: u32,
}

impl Default for SegmenterConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            model: ModelSource::Builtin("selfie_landscape_144x256".into()),
            accept_unproved: false,
            max_per_frame: 1,
            every_frames: None,
            empty_frames: false,
            crop_factor: 1.25,
            threshold: 0.5,
            min_coverage: 0.10,
            min_agreement: 0.30,
            reject_after: 3,
        }
    }
}

/// Carries people from one detection to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackingConfig {
    /// Least intersection over union for a blob to continue a track from one frame to the next.
    pub min_iou: f32,
    /// Least intersection over union for a detection to confirm a track; also met when the
    /// detection holds `min_containment` of the track's blob.
    pub detection_iou: f32,
    /// Share of a blob that must lie inside a detection for the two to belong together: blobs lack
    /// the feet and what has no depth, so they are smaller than the box.
    pub min_containment: f32,
    /// A track without blob and without detection ends after this time, milliseconds.
    pub timeout_ms: u32,
    /// A person whom the detector has not seen again for this time becomes unexplained,
    /// milliseconds. Safety treats both alike.
    pub confirm_timeout_ms: u32,
    /// Weight of the newest displacement in the box velocity, 0..1.
    pub velocity_gain: f32,
    /// Margin around a person's box in which depth still belongs to the person, as a share of the
    /// box.
    pub box_margin: f32,
    /// Least share of valid depth on a detected person; below, the person is reported at the least
    /// distance that the line of sight allows, because where they stand is unknown.
    pub min_person_depth: f32,
}

impl Default for TrackingConfig {
    fn default() -> Self {
        Self {
            min_iou: 0.2,
            detection_iou: 0.3,
            min_containment: 0.6,
            timeout_ms: 1_500,
            confirm_timeout_ms: 5_000,
            velocity_gain: 0.4,
            box_margin: 0.10,
            min_person_depth: 0.10,
        }
    }
}

impl PerceptionConfig {
    /// The depth sensor of a camera.
    pub fn sensor(&self, camera: u32) -> SensorConfig {
        self.sensors.get(camera as usize).cloned().unwrap_or_default()
    }

    /// Nearest and farthest depth that are measurements of a camera, millimetres.
    pub(crate) fn depth_range_mm(&self, camera: u32, intrinsics: &Intrinsics) -> (u16, u16) {
        let sensor = self.sensor(camera);
        let least = sensor.min_depth_mm.or(self.health.min_depth_mm);
        let least = least.unwrap_or_else(|| sensor.model.least_mm(intrinsics.width, intrinsics.height));
        // 0 is "no measurement", whatever is configured.
        (least.max(1), self.health.max_depth_mm)
    }

    /// Checks ranges that types cannot express.
    ///
    /// # Errors
    /// The first setting out of range, with what is accepted.
    pub fn check(&self) -> Result<(), ConfigError> {
        let share = |name: &'static str, value: f32| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError { name, value: value.to_string(), accepted: "0 to 1" })
            }
        };
        let positive = |name: &'static str, value: f32| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(ConfigError { name, value: value.to_string(), accepted: "a number above 0" })
            }
        };
        bounds::check(self)?;
        self.gpu.validate()?;
        share("health.min_valid_depth", self.health.min_valid_depth)?;
        share("health.max_impossible_depth", self.health.max_impossible_depth)?;
        if let Some(least) = self.health.min_depth_mm
            && least >= self.health.max_depth_mm
        {
            return Err(ConfigError {
                name: "health.min_depth_mm",
                value: least.to_string(),
                accepted: "less than health.max_depth_mm",
            });
        }
        if !(50..=60_000).contains(&self.health.frozen_after_ms) {
            return Err(ConfigError {
                name: "health.frozen_after_ms",
                value: self.health.frozen_after_ms.to_string(),
                accepted: "50 to 60000",
            });
        }
        if !(1.0..=1000.0).contains(&self.health.max_stream_gap_ms) {
            return Err(ConfigError {
                name: "health.max_stream_gap_ms",
                value: self.health.max_stream_gap_ms.to_string(),
                accepted: "1 to 1000",
            });
        }
        if !(0.0..=100.0).contains(&self.health.future_tolerance_ms) {
            return Err(ConfigError {
                name: "health.future_tolerance_ms",
                value: self.health.future_tolerance_ms.to_string(),
                accepted: "0 to 100",
            });
        }
        self.unseen.check()?;
        self.sensors.iter().try_for_each(|sensor| sensor.check(self.health.max_depth_mm))?;
        let step = self.occupancy.step_px;
        if !(1..=32).contains(&step) {
            return Err(ConfigError {
                name: "occupancy.step_px",
                value: step.to_string(),
                accepted: "1 to 32",
            });
        }
        if !self.occupancy.volume.is_valid() {
            return Err(ConfigError {
                name: "occupancy.volume",
                value: format!("{:?}", self.occupancy.volume),
                accepted: "finite corners, min_m below max_m on every axis",
            });
        }
        if !(self.occupancy.floor_m.is_finite() && self.occupancy.min_height_m.is_finite()) {
            return Err(ConfigError {
                name: "occupancy.floor_m, min_height_m",
                value: format!("{}, {}", self.occupancy.floor_m, self.occupancy.min_height_m),
                accepted: "finite numbers",
            });
        }
        for fixture in &self.occupancy.static_boxes {
            if !fixture.is_valid() {
                return Err(ConfigError {
                    name: "occupancy.static_boxes",
                    value: format!("{fixture:?}"),
                    accepted: "finite corners, min_m below max_m on every axis",
                });
            }
        }
        for capsule in &self.occupancy.robot {
            if !capsule.is_valid() {
                return Err(ConfigError {
                    name: "occupancy.robot",
                    value: format!("{capsule:?}"),
                    accepted: "finite ends and a radius above 0",
                });
            }
        }
        positive("occupancy.link_m", self.occupancy.link_m)?;
        positive("occupancy.min_area_m2", self.occupancy.min_area_m2)?;
        let rank = self.occupancy.nearest_rank;
        if !(1..=MAX_NEAREST_RANK).contains(&rank) {
            return Err(ConfigError {
                name: "occupancy.nearest_rank",
                value: rank.to_string(),
                accepted: "1 to 64",
            });
        }
        share("detector.threshold", self.detector.threshold)?;
        share("detector.nms_iou", self.detector.nms_iou)?;
        positive("detector.max_duty", self.detector.max_duty)?;
        share("detector.max_duty", self.detector.max_duty)?;
        positive("segmenter.crop_factor", self.segmenter.crop_factor)?;
        share("segmenter.threshold", self.segmenter.threshold)?;
        share("segmenter.min_coverage", self.segmenter.min_coverage)?;
        share("segmenter.min_agreement", self.segmenter.min_agreement)?;
        share("tracking.min_iou", self.tracking.min_iou)?;
        share("tracking.detection_iou", self.tracking.detection_iou)?;
        share("tracking.min_containment", self.tracking.min_containment)?;
        share("tracking.velocity_gain", self.tracking.velocity_gain)?;
        share("tracking.min_person_depth", self.tracking.min_person_depth)?;
        share("tracking.box_margin", self.tracking.box_margin)
    }
}

/// Largest `occupancy.nearest_rank`.
pub const MAX_NEAREST_RANK: usize = 64;

/// A setting out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("perception setting `{name}` is {value}; accepted: {accepted}")]
pub struct ConfigError {
    /// Path of the setting.
    pub name: &'static str,
    /// The received value.
    pub value: String,
    /// The accepted values.
    pub accepted: &'static str,
}

/// Paths at which a file was sought; used by error messages.
pub(crate) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_accepted() {
        PerceptionConfig::default().check().unwrap();
    }

    #[test]
    fn a_value_out_of_range_is_named_with_what_is_accepted() {
        let mut config = PerceptionConfig::default();
        config.detector.threshold = 1.5;
        let message = config.check().unwrap_err().to_string();
        assert!(
            message.contains("detector.threshold") && message.contains("1.5") && message.contains("0 to 1")
        );
        let mut config = PerceptionConfig::default();
        config.occupancy.nearest_rank = 0;
        assert!(config.check().unwrap_err().to_string().contains("nearest_rank"));
        let mut config = PerceptionConfig::default();
        config.segmenter.min_coverage = f32::NAN;
        assert!(config.check().is_err());
    }
}
