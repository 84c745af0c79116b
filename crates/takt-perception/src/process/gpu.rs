//! Judges on the GPU: each camera on a stream of its own, or all on one.

use crate::gpu::{
    BatchFrame, GpuBatch, GpuFrame, GpuPerception, GpuPerceptionError, Progress, Resident, Severity,
};
use crate::{Backend, Detections, DetectorSchedule, Device, FramePose, GpuWait, PerceptionConfig, Streams};
use takt_gpu::{Clock, CudaVersion, Gpu, GpuError, Info, Interfering, Pinned, SpanRecorder, Spans, Wait};
use takt_rt::census::CensusKeeper;
use takt_rt::clock::monotonic_ns;

use crate::process::channel::Taken;
use crate::process::frame_judge::{FrameJudge, JudgeError, PARTS, PixelMemory, Seen, StageSpans};
use crate::process::message::About;
use crate::process::region::Setup;
use crate::process::wire::Question;
use crate::process::worker::{BatchJudge, Judges, Outcomes, SetupError};

/// Facts about a device for a run directory.
fn about(info: &Info, device: Device, backend: Backend) -> About {
    let mut labels = Vec::new();
    if info.emulated {
        labels.push("the GPU is emulated, so its times say nothing about a real GPU".to_owned());
    }
    let engine = match device {
        _ if info.emulated => "networks on the CPU (emulated device)",
        _ if backend == Backend::Embedded => "networks on the CPU (embedded engine)",
        Device::Tensorrt => "ONNX Runtime, TensorRT",
        _ => "ONNX Runtime, CUDA",
    };
    About {
        device: format!("{} ({})", info.name, info.uuid),
        driver: format!("CUDA {}", CudaVersion(info.driver_version)),
        engine: engine.to_owned(),
        labels,
    }
}

/// Age of the relation between the device's clock and ours after which it is renewed: it drifts by
/// parts in a million.
const CLOCK_AGE_NS: u64 = 1_000_000_000;
/// Tries to look at it, and the longest time for them, nanoseconds.
const CLOCK_TRIES: u32 = 3;
const CLOCK_LIMIT_NS: u64 = 1_000_000;
/// Names that the pipeline gives the parts, in the order of [`StageSpans::NAMES`].
const SPANS: [&str; PARTS] = ["upload", "geometry", "detector", "decode", "masks", "distances"];

/// When the device did what, on this machine's clock.
struct Watch {
    clock: Clock,
    recorder: SpanRecorder,
    spans: Spans,
    taken: Vec<takt_gpu::Span>,
}

impl Watch {
    fn new(gpu: &Gpu) -> Result<Self, GpuPerceptionError> {
        let spare = 2 * PARTS;
        let (recorder, spans) = takt_gpu::spans::recorder(spare);
        Ok(Self { clock: Clock::new(gpu)?, recorder, spans, taken: Vec::with_capacity(2 * spare) })
    }

    /// Spans from the recorder that `record` fills. Missing times are left out: the answer counts
    /// without them.
    fn stages(
        &mut self,
        record: impl FnOnce(&Clock, &mut SpanRecorder) -> Result<(), GpuPerceptionError>,
    ) -> StageSpans {
        let mut stages = StageSpans::default();
        self.taken.clear();
        if record(&self.clock, &mut self.recorder).is_ok() {
            self.spans.take_into(&mut self.taken);
        }
        for span in &self.taken {
            if let Some(part) = SPANS.iter().position(|name| *name == span.name) {
                stages.spans[part] = [span.start_ns, span.end_ns];
                stages.error_ns = stages.error_ns.max(span.error_ns);
            }
        }
        stages
    }

    fn look(&mut self) {
        if self.clock.is_older(CLOCK_AGE_NS) {
            // A device that is busy or lost shows so with the next frame.
            let _ = self.clock.renew(CLOCK_TRIES, monotonic_ns() + CLOCK_LIMIT_NS);
        }
    }
}

/// A camera's frames as the device knows them.
fn register(gpu: &Gpu, memory: &PixelMemory) -> Result<Pinned<u8>, JudgeError> {
    // SAFETY: the memory is the camera's part of the shared region, which the worker keeps mapped
    // until the process ends; the cell writes into a slot only while the worker does not hold it,
    // and what a device may still read for a frame that was given up is never used.
    let registered = unsafe { gpu.register::<u8>(memory.start, memory.bytes) };
    registered.map_err(|e| JudgeError::Lost(e.to_string()))
}

/// One camera on a stream of its own.
struct GpuJudge {
    perception: GpuPerception,
    gpu: Gpu,
    watch: Watch,
    /// The frames' memory as the device knows it.
    memory: Option<Pinned<u8>>,
}

impl FrameJudge for GpuJudge {
    fn adopt(&mut self, memory: PixelMemory) -> Result<(), JudgeError> {
        self.memory = Some(register(&self.gpu, &memory)?);
        Ok(())
    }

    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<StageSpans, JudgeError> {
        let (rgb_at, depth_at) = (frame.rgb_at, frame.depth_at);
        let resident = self.memory.as_ref().map(|memory| Resident { memory, rgb_at, depth_at });
        let sequence = frame.view.sequence;
        let frame = GpuFrame { view: frame.view, resident, pose, start_ns, deadline_ns };
        self.perception.process(&frame, out, None).map_err(refused)?;
        let perception = &self.perception;
        Ok(self.watch.stages(|clock, recorder| perception.record_spans(clock, sequence, recorder)))
    }

    fn after(&mut self) {
        self.watch.look();
    }
}

/// All cameras on one stream.
struct GpuBatchJudge {
    batch: GpuBatch,
    gpu: Gpu,
    watch: Watch,
    memory: Vec<Pinned<u8>>,
    /// Kept between batches for its room.
    spare: Vec<BatchFrame<'static>>,
}

/// The room of an emptied list for elements of another lifetime: collecting what was consumed in
/// place keeps it.
fn emptied<'b>(mut list: Vec<BatchFrame<'_>>) -> Vec<BatchFrame<'b>> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

impl BatchJudge for GpuBatchJudge {
    fn adopt(&mut self, memory: &[PixelMemory]) -> Result<(), JudgeError> {
        for memory in memory {
            self.memory.push(register(&self.gpu, memory)?);
        }
        Ok(())
    }

    fn judge(&mut self, frames: &[Option<Taken<'_>>], outs: &mut [Detections], outcomes: &mut Outcomes) {
        let mut batch: Vec<BatchFrame<'_>> = emptied(std::mem::take(&mut self.spare));
        let cameras = frames.iter().zip(outs).zip(&self.memory).enumerate();
        for (camera, ((taken, out), memory)) in cameras {
            let Some(taken) = taken.as_ref().filter(|_| outcomes[camera].is_none()) else { continue };
            let seen = taken.seen();
            let resident = Some(Resident { memory, rgb_at: seen.rgb_at, depth_at: seen.depth_at });
            let Question { start_ns, deadline_ns, ref pose, .. } = taken.question;
            let frame = GpuFrame { view: seen.view, resident, pose: pose.as_ref(), start_ns, deadline_ns };
            batch.push(BatchFrame { camera, frame, out, overlay: None, failed: None });
        }
        if !batch.is_empty() {
            let all = self.batch.process(&mut batch).map_err(refused);
            for frame in &mut batch {
                let (batch, camera, sequence) = (&self.batch, frame.camera, frame.frame.view.sequence);
                outcomes[camera] = Some(match (&all, frame.failed.take()) {
                    (Err(error), _) => Err(error.clone()),
                    (Ok(()), Some(error)) => Err(refused(error)),
                    (Ok(()), None) => Ok(self
                        .watch
                        .stages(|clock, recorder| batch.record_spans(camera, clock, sequence, recorder))),
                });
            }
        }
        self.spare = emptied(batch);
    }

    fn after(&mut self) {
        self.watch.look();
    }
}

/// Consequence of a device error for the waiting cameras.
fn refused(error: GpuPerceptionError) -> JudgeError {
    let cause = error.to_string();
    match error.severity() {
        Severity::Frame => JudgeError::Frame(cause),
        Severity::Late => JudgeError::Overrun(cause),
        Severity::Lost | Severity::Setup => JudgeError::Lost(cause),
    }
}

/// Words for a start that takes long.
fn in_words(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Loading { .. } => None,
        Progress::Building { model, elapsed, folder } => Some(format!(
            "TensorRT is building its engine for {model} ({} s so far); it will be stored in {}",
            elapsed.as_secs(),
            folder.display()
        )),
        Progress::NoGraph { model, reason } => {
            Some(format!("{model} is launched kernel by kernel, which takes longer: {reason}"))
        }
        Progress::Ready { model, elapsed } if elapsed.as_secs() >= 5 => {
            Some(format!("{model} is ready after {} s", elapsed.as_secs()))
        }
        Progress::Ready { .. } => None,
    }
}

/// The configured work that gets in the way, with its label. Begun once all else is ready: it must
/// not slow down the building of engines.
fn interfering(config: &PerceptionConfig, about: &mut About) -> Result<Option<Interfering>, GpuError> {
    let Some(interference) = &config.gpu.interference else { return Ok(None) };
    let interfering = Interfering::start(interference)?;
    about.labels.push(format!("GPU interference in the perception process: {interference:?}"));
    Ok(Some(interfering))
}

/// Judges on the GPU that the setup names.
///
/// # Errors
/// The device, its networks, or perception's settings.
pub fn judges(
    setup: &Setup,
    census: &CensusKeeper,
    progress: &(dyn Fn(String) + Sync),
) -> Result<Judges, SetupError> {
    let mut config = setup.perception.clone();
    config.device = setup.device;
    // A GPU affords the detector on every frame, on the camera's own stream.
    config.detector.schedule = DetectorSchedule::EveryFrame;
    let wait = match config.gpu.wait {
        GpuWait::Spin => Wait::Spin,
        GpuWait::Yield => Wait::Yield,
        GpuWait::Block => Wait::Block,
    };
    let progress_in_words = |what: Progress<'_>| in_words(&what).into_iter().for_each(progress);
    census.attribute("GPU", || {
        let gpu = Gpu::open_waiting(config.gpu.ordinal, wait)?;
        let mut about = about(gpu.info(), setup.device, setup.perception.engine.backend);
        if config.gpu.streams == Streams::Batch {
            let cameras = setup.cameras.iter().enumerate();
            let cameras: Vec<_> = cameras.map(|(index, camera)| (index as u32, *camera, None)).collect();
            let spare = Vec::with_capacity(cameras.len());
            let batch = GpuBatch::new(&gpu, &config, cameras, &progress_in_words)?;
            let watch = Watch::new(&gpu)?;
            let judge = GpuBatchJudge { batch, gpu: gpu.clone(), watch, memory: Vec::new(), spare };
            let keep = (gpu, interfering(&config, &mut about)?);
            return Ok(Judges::together(Box::new(judge), about, Box::new(keep)));
        }
        let judges = setup.cameras.iter().enumerate().map(|(index, camera)| {
            let perception =
                GpuPerception::new(&gpu, &config, index as u32, *camera, None, &progress_in_words)?;
            let watch = Watch::new(&gpu)?;
            Ok(Box::new(GpuJudge { perception, gpu: gpu.clone(), watch, memory: None })
                as Box<dyn FrameJudge>)
        });
        let judges = judges.collect::<Result<_, GpuPerceptionError>>()?;
        let keep = (gpu, interfering(&config, &mut about)?);
        Ok(Judges::new(judges, about, Box::new(keep)))
    })
}
