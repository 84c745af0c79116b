//! One camera on a stream of its own, or several on one.

use takt_gpu::{Clock, Gpu, SpanRecorder, Wait};
use takt_link_camera::Intrinsics;

use super::load::{Progress, prepare};
use super::network::Budget;
use super::plan::CameraPlan;
use super::rig::{Rig, Row};
use super::stages::Run;
use super::state::CameraState;
use super::times::{self, Parts};
use super::{DeviceTimes, GpuPerceptionError, Resident};
use crate::config::PerceptionConfig;
use crate::detector::{DetectionSet, DetectorHandle};
use crate::device::GpuWait;
use crate::judge::Judge;
use crate::mount::FramePose;
use crate::overlay::Overlay;
use crate::result::Detections;
use crate::view::FrameView;

/// A frame for the device.
#[derive(Clone, Copy, Debug)]
pub struct GpuFrame<'a> {
    pub view: FrameView<'a>,
    /// Place of the same pixels in memory that the device reads itself; `None`: they are copied.
    pub resident: Option<Resident<'a>>,
    /// Camera and tool at capture, where known.
    pub pose: Option<&'a FramePose>,
    /// When the thread began to work on it, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// When it gives up waiting for the device, CLOCK_MONOTONIC nanoseconds.
    pub deadline_ns: u64,
}

/// Perception of one camera on a device, on a stream of its own. One thread owns it.
///
/// After the first frames nothing is allocated, on the host or on the device; the inference library
/// may.
#[derive(Debug)]
pub struct GpuPerception {
    // Before the rig, whose memory its graphs and buffers are of.
    camera: CameraState,
    rig: Rig,
    judge: Judge,
    settings: Settings,
}

/// Configuration that every frame needs.
#[derive(Clone, Copy, Debug)]
struct Settings {
    wait: Wait,
    crop_factor: f32,
    nms_iou: f32,
}

impl Settings {
    fn new(config: &PerceptionConfig) -> Self {
        Self {
            wait: waiting(config.gpu.wait),
            crop_factor: config.segmenter.crop_factor,
            nms_iou: config.detector.nms_iou,
        }
    }
}

/// The device's word for a configured way of waiting.
fn waiting(wait: GpuWait) -> Wait {
    match wait {
        GpuWait::Spin => Wait::Spin,
        GpuWait::Yield => Wait::Yield,
        GpuWait::Block => Wait::Block,
    }
}

impl GpuPerception {
    /// Prepares perception of one camera on `gpu`: stream, kernels, memory, networks. `detector` is
    /// its handle of a shared detector; with `detector.schedule = "every-frame"`, which a GPU can
    /// afford, the detector runs on the camera's own stream.
    ///
    /// On the emulated device, and with `engine.backend = "embedded"`, networks run on the CPU:
    /// copied out and in, or, with `engine.backend = "onnxruntime"`, bound to its memory as on a
    /// GPU.
    ///
    /// # Errors
    /// The fault of configuration, device, libraries or models.
    pub fn new(
        gpu: &Gpu,
        config: &PerceptionConfig,
        camera: u32,
        intrinsics: Intrinsics,
        detector: Option<DetectorHandle>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, GpuPerceptionError> {
        let (stream, networks, segment_every) = prepare(gpu, config, 1, progress)?;
        let judge = Judge::new(config, camera, intrinsics, detector, segment_every)?;
        let plan = [CameraPlan { intrinsics, scene: judge.scene() }];
        let mut rig = Rig::new(gpu, stream, config, &plan, networks)?;
        let camera = CameraState::new(&rig, 0)?;
        if config.gpu.graphs {
            rig.capture(&[(&camera.down, camera.report_place())])?;
        }
        Ok(Self { camera, rig, judge, settings: Settings::new(config) })
    }

    /// Judges one frame: as [`Perception::process`](crate::Perception::process), and waits no
    /// longer than the frame's deadline. After an error `out` says
    /// [`InferenceFailed`](crate::FrameHealth::InferenceFailed).
    ///
    /// # Errors
    /// Reason why the device did not answer; [`GpuPerceptionError::severity`] gives its consequence
    /// for the next frame.
    pub fn process(
        &mut self,
        frame: &GpuFrame,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        let detections = self.judge.take_detections();
        self.process_with_detections(frame, detections.as_ref(), out, overlay)
    }

    /// [`process`](Self::process) with given detections in place of what a shared detector found
    /// meanwhile.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn process_with_detections(
        &mut self,
        frame: &GpuFrame,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        let budget = Budget { deadline_ns: frame.deadline_ns, wait: self.settings.wait };
        self.camera.times = DeviceTimes::default();
        self.camera.parts = Parts::default();
        if let Err(error) = self.rig.clear_way(&budget) {
            self.judge.give_up(&frame.view, frame.start_ns, out);
            return Err(error);
        }
        let Settings { crop_factor, nms_iou, .. } = self.settings;
        let mut run = Run {
            rig: &mut self.rig,
            camera: &mut self.camera,
            budget,
            resident: frame.resident.as_ref(),
            crop_factor,
            nms_iou,
        };
        let result =
            self.judge.process(&mut run, &frame.view, frame.pose, frame.start_ns, detections, out, overlay);
        result.map_err(|error| {
            self.rig.unsettled = true;
            self.camera.forget();
            self.rig.explain(error)
        })
    }

    /// Records what the device did for the last frame, as frame `index`, on CLOCK_MONOTONIC by
    /// `clock`. A frame that was given up has only the parts that were waited for.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn record_spans(
        &self,
        clock: &Clock,
        index: u64,
        recorder: &mut SpanRecorder,
    ) -> Result<(), GpuPerceptionError> {
        let camera = u16::try_from(self.judge.camera()).unwrap_or(u16::MAX);
        let marks = (&self.rig.marks, &self.camera.marks);
        Ok(times::record(marks, self.camera.parts, clock, (camera, index), recorder)?)
    }

    /// Waits in this way from the next frame on.
    pub fn set_wait(&mut self, wait: GpuWait) {
        self.settings.wait = waiting(wait);
    }

    /// Times of the device for the last frame.
    pub fn device_times(&self) -> DeviceTimes {
        self.camera.times
    }
}

/// A camera's part of a batch.
#[derive(Debug)]
pub struct BatchFrame<'a> {
    /// Place of the camera in the batch.
    pub camera: usize,
    pub frame: GpuFrame<'a>,
    /// The detections.
    pub out: &'a mut Detections,
    /// The view's drawing.
    pub overlay: Option<&'a mut Overlay>,
    /// Set to why this frame was not judged, by a camera's own trouble.
    pub failed: Option<GpuPerceptionError>,
}

/// Perception of several cameras on one stream: frames that arrived together go up and through
/// geometry and decoding in one launch each. The built-in models have a fixed batch of one, so
/// inferences follow each other on the stream.
#[derive(Debug)]
pub struct GpuBatch {
    cameras: Vec<CameraState>,
    rig: Rig,
    judges: Vec<Judge>,
    settings: Settings,
}

impl GpuBatch {
    /// Prepares perception of cameras with these numbers and intrinsics, each with its handle of a
    /// shared detector.
    ///
    /// # Errors
    /// As [`GpuPerception::new`].
    pub fn new(
        gpu: &Gpu,
        config: &PerceptionConfig,
        cameras: Vec<(u32, Intrinsics, Option<DetectorHandle>)>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, GpuPerceptionError> {
        let (stream, networks, segment_every) = prepare(gpu, config, cameras.len(), progress)?;
        let mut judges = Vec::with_capacity(cameras.len());
        let mut intrinsics = Vec::with_capacity(cameras.len());
        for (number, camera, handle) in cameras {
            judges.push(Judge::new(config, number, camera, handle, segment_every)?);
            intrinsics.push(camera);
        }
        let plans: Vec<CameraPlan> = judges
            .iter()
            .zip(&intrinsics)
            .map(|(judge, &intrinsics)| CameraPlan { intrinsics, scene: judge.scene() })
            .collect();
        let mut rig = Rig::new(gpu, stream, config, &plans, networks)?;
        let cameras: Vec<CameraState> =
            (0..plans.len()).map(|index| CameraState::new(&rig, index)).collect::<Result<_, _>>()?;
        if config.gpu.graphs {
            let downs: Vec<_> = cameras.iter().map(|camera| (&camera.down, camera.report_place())).collect();
            rig.capture(&downs)?;
        }
        Ok(Self { cameras, rig, judges, settings: Settings::new(config) })
    }

    /// Judges frames of several cameras, at most one of each; cameras without a frame are left out.
    /// The latest of the deadlines bounds what is done together, each frame's own the rest.
    ///
    /// # Errors
    /// An error of all frames; then every `out` says
    /// [`InferenceFailed`](crate::FrameHealth::InferenceFailed). The error of one camera is in
    /// [`BatchFrame::failed`].
    pub fn process(&mut self, frames: &mut [BatchFrame]) -> Result<(), GpuPerceptionError> {
        if let Err(error) = self.look(frames) {
            self.rig.unsettled = true;
            for job in frames {
                if let Some(judge) = self.judges.get(job.camera) {
                    judge.give_up(&job.frame.view, job.frame.start_ns, job.out);
                }
            }
            self.cameras.iter_mut().for_each(CameraState::forget);
            return Err(self.rig.explain(error));
        }
        for job in frames {
            job.failed = None;
            let (Some(camera), Some(judge)) =
                (self.cameras.get_mut(job.camera), self.judges.get_mut(job.camera))
            else {
                continue;
            };
            let Settings { wait, crop_factor, nms_iou } = self.settings;
            let budget = Budget { deadline_ns: job.frame.deadline_ns, wait };
            let detections = judge.take_detections();
            let resident = job.frame.resident.as_ref();
            let mut run = Run { rig: &mut self.rig, camera, budget, resident, crop_factor, nms_iou };
            let overlay = job.overlay.as_deref_mut();
            let GpuFrame { view, pose, start_ns, .. } = &job.frame;
            let done = judge.process(&mut run, view, *pose, *start_ns, detections.as_ref(), job.out, overlay);
            camera.forget();
            if let Err(error) = done {
                self.rig.unsettled = true;
                job.failed = Some(self.rig.explain(error));
            }
        }
        Ok(())
    }

    /// The first part of all frames at once.
    fn look(&mut self, frames: &mut [BatchFrame]) -> Result<(), GpuPerceptionError> {
        let deadline_ns = frames.iter().map(|job| job.frame.deadline_ns).max().unwrap_or(0);
        let budget = Budget { deadline_ns, wait: self.settings.wait };
        self.rig.clear_way(&budget)?;
        self.rig.stream.record(&self.rig.marks.start)?;
        for (index, (camera, judge)) in self.cameras.iter_mut().zip(&mut self.judges).enumerate() {
            camera.times = DeviceTimes::default();
            camera.parts = Parts::default();
            let job = frames.iter().find(|job| job.camera == index);
            match job.and_then(|job| Some((judge.preview(&job.frame.view, job.frame.pose)?, job))) {
                Some((question, job)) => {
                    camera.upload(&self.rig, &question, job.frame.resident.as_ref())?;
                    camera.takes_part = true;
                }
                None => {
                    camera.pass(&self.rig)?;
                    camera.takes_part = false;
                }
            }
        }
        let rig = &mut self.rig;
        rig.stream.record(&rig.marks.uploaded)?;
        match &rig.look_graph {
            Some(graph) => rig.stream.launch_graph(graph)?,
            None => rig.prepare_look(Row::All)?,
        }
        rig.stream.record(&rig.marks.prepared)?;
        for (index, _) in self.cameras.iter().enumerate().filter(|(_, camera)| camera.takes_part) {
            if let Some((network, ..)) = &mut rig.networks.detector {
                network.run(index, &rig.stream, &budget)?;
            }
        }
        rig.stream.record(&rig.marks.detected)?;
        rig.decode(Row::All)?;
        for camera in self.cameras.iter().filter(|camera| camera.takes_part) {
            camera.fetch_look(rig)?;
        }
        rig.stream.record(&rig.marks.looked)?;
        rig.wait(&budget, "geometry and detector of the batch")?;
        for camera in self.cameras.iter_mut().filter(|camera| camera.takes_part) {
            camera.times.add_look(&rig.marks)?;
            camera.parts.looked = true;
            camera.read_look(rig, &budget)?;
        }
        Ok(())
    }

    /// Records what the device did for the last frame of a camera, as
    /// [`GpuPerception::record_spans`]; what was done together counts for each. Nothing for a
    /// camera that is not there.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn record_spans(
        &self,
        camera: usize,
        clock: &Clock,
        index: u64,
        recorder: &mut SpanRecorder,
    ) -> Result<(), GpuPerceptionError> {
        let (Some(state), Some(judge)) = (self.cameras.get(camera), self.judges.get(camera)) else {
            return Ok(());
        };
        let number = u16::try_from(judge.camera()).unwrap_or(u16::MAX);
        let marks = (&self.rig.marks, &state.marks);
        Ok(times::record(marks, state.parts, clock, (number, index), recorder)?)
    }

    /// Waits in this way from the next frames on.
    pub fn set_wait(&mut self, wait: GpuWait) {
        self.settings.wait = waiting(wait);
    }

    /// Times of the device for the last frame of a camera; joint work counts for each.
    pub fn device_times(&self, camera: usize) -> Option<DeviceTimes> {
        self.cameras.get(camera).map(|camera| camera.times)
    }
}
