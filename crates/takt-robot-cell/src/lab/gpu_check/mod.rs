//! Perception's part of `takt gpu check`: its answers against the CPU's, five cameras at their
//! rates, interference with and without what controls it, memory, and the perception process when
//! it is killed.

mod answers;
mod beside;
mod cameras;
mod interference;
mod scenes;
mod sharing;
mod worker;

use nalgebra::Isometry3;
use takt_gpu::check::step::{Step, StepError, hung};
use takt_gpu::{Gpu, GpuError};
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraConfig, Frame, Intrinsics};
use takt_perception::gpu::{GpuFrame, GpuPerceptionError};
use takt_perception::{Backend, DetectorSchedule, Device, EngineError, FramePose, PerceptionConfig};

pub use answers::{answers, network_answers};
pub use cameras::{geometry_cameras, network_cameras};
pub use interference::{interference, limits_child, turns_child};
pub use sharing::{Child, sharing, sharing_child};
pub use worker::{growth, killed_worker};

use super::CellFile;

fn failed(error: impl std::fmt::Display) -> StepError {
    StepError::Failed(error.to_string())
}

/// An error of perception as a step's: a library that is missing is no failure of the device.
fn of_perception(error: GpuPerceptionError) -> StepError {
    match error {
        GpuPerceptionError::Gpu(error) => StepError::Gpu(error),
        // Loaded, and then it did not run.
        GpuPerceptionError::Engine(error @ EngineError::Run(_)) => failed(error),
        GpuPerceptionError::Engine(error) => StepError::NotRun(error.to_string()),
        GpuPerceptionError::Overrun { stage } => StepError::Failed(hung(stage, PATIENCE_NS / 1_000_000_000)),
        error => failed(error),
    }
}

fn open(step: &mut Step<'_>) -> Result<Gpu, GpuError> {
    let gpu = Gpu::open(step.ordinal)?;
    step.device(gpu.info());
    Ok(gpu)
}

/// The demonstration's perception on the device: depth alone, or with its networks on every frame.
fn configuration(file: &CellFile, ordinal: u32, networks: bool) -> PerceptionConfig {
    let mut config = file.cell().perception_in_force();
    config.device = Device::Cuda;
    config.gpu.ordinal = ordinal;
    config.detector.schedule = DetectorSchedule::EveryFrame;
    config.segmenter.every_frames = Some(1);
    if !networks {
        config.detector.enabled = false;
        config.segmenter.enabled = false;
        config.engine.backend = Backend::Embedded;
    }
    config
}

/// One recorded view.
struct View {
    reader: FrameReader<std::fs::File>,
    intrinsics: Intrinsics,
    pose: FramePose,
}

/// The views of the shipped recording, which begin again at their end.
fn views(file: &CellFile) -> Result<Vec<View>, StepError> {
    let mut views = Vec::new();
    for camera in &file.cameras {
        let CameraConfig::Replay(replay) = &camera.source else { continue };
        let mut replay = replay.clone();
        replay.looped = true;
        let reader = FrameReader::open(&replay).map_err(failed)?;
        let pose = camera.mount.at(&Isometry3::translation(0.0, 0.0, 1.0));
        views.push(View { intrinsics: reader.intrinsics(), reader, pose });
    }
    if views.is_empty() {
        Err(failed("the shipped demonstration has no recorded cameras"))
    } else {
        Ok(views)
    }
}

impl View {
    fn next(&mut self, frame: &mut Frame, sequence: u64) -> Result<(), StepError> {
        self.reader.read(frame).map_err(failed)?;
        (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_333_333);
        Ok(())
    }

    /// The first `count` frames, so that reading them takes no time later.
    fn frames(&mut self, count: u64) -> Result<Vec<Frame>, StepError> {
        let frame = |sequence| {
            let mut frame = Frame::new(self.intrinsics.width, self.intrinsics.height);
            self.next(&mut frame, sequence)?;
            Ok(frame)
        };
        (1..=count).map(frame).collect()
    }
}

/// A frame for the device, with as much time as it takes.
fn patient<'a>(frame: &'a Frame, pose: &'a FramePose) -> GpuFrame<'a> {
    let start_ns = takt_rt::clock::monotonic_ns();
    GpuFrame {
        view: frame.into(),
        resident: None,
        pose: Some(pose),
        start_ns,
        deadline_ns: start_ns + PATIENCE_NS,
    }
}

/// Longest time for a frame before the device counts as hung.
const PATIENCE_NS: u64 = 10_000_000_000;
