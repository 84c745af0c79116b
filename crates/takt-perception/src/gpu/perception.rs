//! One camera on a stream of its own, or several on one.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use takt_gpu::{Clock, Gpu, Priority, SpanRecorder, Stream, Wait};
use takt_link_camera::Intrinsics;

use super::network::{BoundNetwork, Budget, DeviceNetwork, HostNetwork};
use super::rig::{CameraPlan, Networks, Rig, Row};
use super::stages::{CameraState, Run};
use super::times::{self, Parts};
use super::{DeviceTimes, GpuPerceptionError, Resident};
use crate::config::{DetectorSchedule, PerceptionConfig};
use crate::detector::{DetectionSet, DetectorHandle};
use crate::device::{Device, GpuWait};
use crate::engine::{
    Backend, Engine, EngineConfig, EngineError, ModelSource, Placement, Provider, engine_folder, read,
};
use crate::judge::Judge;
use crate::mount::FramePose;
use crate::overlay::Overlay;
use crate::result::Detections;
use crate::view::FrameView;

/// What the start is doing: TensorRT builds an engine for minutes, and nobody should take that for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A network is being loaded.
    Loading {
        /// The model.
        model: &'a str,
    },
    /// Its engine is being built; said every second.
    Building {
        /// The model.
        model: &'a str,
        /// Since when.
        elapsed: Duration,
        /// Where the engine will be kept.
        folder: &'a Path,
    },
    /// A network is ready.
    Ready {
        /// The model.
        model: &'a str,
        /// How long it took.
        elapsed: Duration,
    },
}

/// A frame for the device.
#[derive(Clone, Copy, Debug)]
pub struct GpuFrame<'a> {
    /// The frame.
    pub view: FrameView<'a>,
    /// Where the device finds the same pixels by itself; `None`: they are copied.
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
/// After the first frames nothing is allocated, on the host or on the device; the inference library may.
#[derive(Debug)]
pub struct GpuPerception {
    // Before the rig, whose memory its graphs and buffers are of.
    camera: CameraState,
    rig: Rig,
    judge: Judge,
    settings: Settings,
}

/// What every frame needs of the configuration.
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
    /// Prepares perception of one camera on `gpu`: stream, kernels, memory, networks. `detector` is its handle of a
    /// shared detector; with `detector.schedule = "every-frame"`, which a GPU can afford, the detector runs on the
    /// camera's own stream.
    ///
    /// On the emulated device networks run on the CPU: copied out and in, or, with `engine.backend = "onnxruntime"`,
    /// bound to its memory as on a GPU.
    ///
    /// # Errors
    /// What is wrong with configuration, device, libraries or models.
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

    /// Judges one frame: as [`Perception::process`](crate::Perception::process), and waits no longer than the frame's
    /// deadline. After an error `out` says [`InferenceFailed`](crate::FrameHealth::InferenceFailed).
    ///
    /// # Errors
    /// Why the device did not answer; [`GpuPerceptionError::severity`] says what it means for the next frame.
    pub fn process(
        &mut self,
        frame: &GpuFrame,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), GpuPerceptionError> {
        let detections = self.judge.take_detections();
        self.process_with_detections(frame, detections.as_ref(), out, overlay)
    }

    /// [`process`](Self::process) with given detections in place of what a shared detector found meanwhile.
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

    /// Records what the device did for the last frame, as frame `index`, on CLOCK_MONOTONIC by `clock`. A frame that was
    /// given up has only the parts that were waited for.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn record_spans(
        &self,
        clock: &Clock,
        index: u64,
        recorder: &mut SpanRecorder,
    ) -> Result<(), GpuPerceptionError> {
        let camera = u16::try_from(self.judge.camera()).unwrap_or(u16::MAX);
        Ok(times::record(&self.rig.marks, self.camera.parts, clock, (camera, index), recorder)?)
    }

    /// What the device did for the last frame.
    pub fn device_times(&self) -> DeviceTimes {
        self.camera.times
    }

    /// Bytes of the device's memory in use, without what an inference library takes.
    pub fn device_bytes(&self) -> usize {
        self.rig.arena.bytes()
    }
}

/// A camera's part of a batch.
#[derive(Debug)]
pub struct BatchFrame<'a> {
    /// Place of the camera in the batch.
    pub camera: usize,
    /// The frame.
    pub frame: GpuFrame<'a>,
    /// What is seen.
    pub out: &'a mut Detections,
    /// What the view draws.
    pub overlay: Option<&'a mut Overlay>,
    /// Set to why this frame was not judged, by a camera's own trouble.
    pub failed: Option<GpuPerceptionError>,
}

/// Perception of several cameras on one stream: frames that arrived together go up and through geometry and decoding in
/// one launch each. The built-in models have a fixed batch of one, so inferences follow each other on the stream.
#[derive(Debug)]
pub struct GpuBatch {
    cameras: Vec<CameraState>,
    rig: Rig,
    judges: Vec<Judge>,
    settings: Settings,
}

impl GpuBatch {
    /// Prepares perception of cameras with these numbers and intrinsics, each with its handle of a shared detector.
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

    /// Judges frames of several cameras, at most one of each; cameras without a frame are left out. The latest of the
    /// deadlines bounds what is done together, each frame's own the rest.
    ///
    /// # Errors
    /// What concerns all of them; then every `out` says [`InferenceFailed`](crate::FrameHealth::InferenceFailed). One
    /// camera's trouble is in [`BatchFrame::failed`].
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

    /// What the device did for the last frame of a camera; what was done together counts for each.
    pub fn device_times(&self, camera: usize) -> Option<DeviceTimes> {
        self.cameras.get(camera).map(|camera| camera.times)
    }
}

/// A stream and networks for so many cameras.
fn prepare(
    gpu: &Gpu,
    config: &PerceptionConfig,
    cameras: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Stream, Networks, u64), GpuPerceptionError> {
    config.check()?;
    let priority = if config.gpu.priorities { Priority::Critical } else { Priority::Normal };
    let stream = gpu.stream(priority)?;
    let loader = Loader::new(gpu, &stream, config, progress)?;
    let own = config.detector.enabled && config.detector.schedule == DetectorSchedule::EveryFrame;
    let detector = if own {
        Some(loader.load(&config.detector.model, config.detector.input_size, cameras)?)
    } else {
        None
    };
    let mut networks = Networks::new(detector, None, config.detector.person_class)?;
    // A detector that segments on every frame makes the segmenter idle.
    let masks = networks.detector.as_ref().is_some_and(|(_, decoder, _)| decoder.mask_size().is_some());
    if config.segmenter.enabled && !masks {
        let slots = cameras * config.segmenter.max_per_frame.clamp(1, crate::judge::MAX_PEOPLE);
        let segmenter = loader.load(&config.segmenter.model, None, slots)?;
        let with = Networks::new(None, Some(segmenter), config.detector.person_class)?;
        networks.segmenter = with.segmenter;
    }
    let segment_every = match config.segmenter.every_frames {
        Some(frames) => u64::from(frames.max(1)),
        None if loader.on_host && loader.engine.is_embedded() => 3,
        None => 1,
    };
    Ok((stream, networks, segment_every))
}

/// Loads networks for a stream.
struct Loader<'a> {
    gpu: &'a Gpu,
    stream: &'a Stream,
    engine: Engine,
    provider: Provider,
    /// Networks run on the CPU: the device is emulated.
    on_host: bool,
    /// On the emulated device: whether ONNX Runtime was asked for, which can be bound to its memory.
    bind: bool,
    cache: Option<PathBuf>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl<'a> Loader<'a> {
    fn new(
        gpu: &'a Gpu,
        stream: &'a Stream,
        config: &PerceptionConfig,
        progress: &'a (dyn Fn(Progress) + Sync),
    ) -> Result<Self, GpuPerceptionError> {
        let on_host = gpu.info().emulated;
        let provider = match config.device {
            _ if on_host => Provider::Cpu,
            Device::Tensorrt => Provider::Tensorrt,
            Device::Cpu | Device::Cuda | Device::Auto => Provider::Cuda,
        };
        let backend = if on_host { config.engine.backend } else { Backend::Onnxruntime };
        let device = i32::try_from(config.gpu.ordinal).unwrap_or(i32::MAX);
        let engine = EngineConfig { provider, backend, device, ..config.engine.clone() };
        let cache = config.gpu.engine_cache.clone().or_else(default_cache);
        let bind = config.engine.backend == Backend::Onnxruntime;
        Ok(Self { gpu, stream, engine: Engine::open(&engine)?, provider, on_host, bind, cache, progress })
    }

    fn load(
        &self,
        model: &ModelSource,
        size: Option<[usize; 2]>,
        slots: usize,
    ) -> Result<Box<dyn DeviceNetwork>, GpuPerceptionError> {
        let (start, name) = (Instant::now(), model.to_string());
        (self.progress)(Progress::Loading { model: &name });
        let network: Box<dyn DeviceNetwork> = if self.on_host && self.bind {
            let nowhere = Placement { stream: std::ptr::null_mut(), engines: None };
            // SAFETY: there is no stream.
            let bound = unsafe { self.engine.load_bound(model, size, nowhere)? };
            Box::new(BoundNetwork::new(self.gpu, bound, slots)?)
        } else if self.on_host {
            let network = self.engine.load(model, size)?;
            Box::new(HostNetwork::new(self.gpu, self.stream, network, slots)?)
        } else {
            self.gpu.bind()?;
            let bound = match self.engines(model)? {
                Some(folder) => self.load_cached(model, size, &name, &folder)?,
                // SAFETY: the rig drops its networks before its stream.
                None => unsafe { self.engine.load_bound(model, size, self.placement(None))? },
            };
            Box::new(BoundNetwork::new(self.gpu, bound, slots)?)
        };
        (self.progress)(Progress::Ready { model: &name, elapsed: start.elapsed() });
        Ok(network)
    }

    fn placement<'b>(&self, engines: Option<&'b Path>) -> Placement<'b> {
        Placement { stream: self.stream.raw(), engines }
    }

    /// The folder of engines of this model, where there are any.
    fn engines(&self, model: &ModelSource) -> Result<Option<PathBuf>, GpuPerceptionError> {
        let (Provider::Tensorrt, Some(base)) = (self.provider, &self.cache) else { return Ok(None) };
        let info = self.gpu.info();
        let library = self.engine.library();
        let stamp =
            library.and_then(|path| path.metadata().ok()).map(|data| (data.len(), data.modified().ok()));
        let identity = [
            info.name.clone(),
            format!("{:?}", info.compute_capability),
            info.driver_version.to_string(),
            format!("{library:?} {stamp:?}"),
        ];
        let identity: Vec<&str> = identity.iter().map(String::as_str).collect();
        let folder = engine_folder(base, &identity, &read(model)?);
        std::fs::create_dir_all(&folder).map_err(|error| GpuPerceptionError::Cache {
            path: folder.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Some(folder))
    }

    /// Loads with a cache, saying every second that it still builds; a cache that cannot be used is made anew, once.
    fn load_cached(
        &self,
        model: &ModelSource,
        size: Option<[usize; 2]>,
        name: &str,
        folder: &Path,
    ) -> Result<crate::engine::Bound, EngineError> {
        let there = engines_in(folder);
        let load = || {
            // SAFETY: the rig drops its networks before its stream.
            unsafe { self.engine.load_bound(model, size, self.placement(Some(folder))) }
        };
        if !there.is_empty() {
            match load() {
                Err(EngineError::Load { .. } | EngineError::Run(_)) => {
                    there.iter().for_each(|path| drop(std::fs::remove_file(path)));
                }
                loaded => return loaded,
            }
        }
        ticking(name, folder, self.progress, load)
    }
}

/// Does `work`, and says every second that it is still building.
fn ticking<T>(
    model: &str,
    folder: &Path,
    progress: &(dyn Fn(Progress) + Sync),
    work: impl FnOnce() -> T,
) -> T {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (end, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            progress(Progress::Building { model, elapsed: start.elapsed(), folder });
            while over.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress(Progress::Building { model, elapsed: start.elapsed(), folder });
            }
        });
        let result = work();
        drop(end);
        result
    })
}

fn engines_in(folder: &Path) -> Vec<PathBuf> {
    let files = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "engine")).collect()
}

fn default_cache() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    base.or_else(home).map(|base| base.join("takt/gpu"))
}

#[cfg(test)]
mod unit {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn building_is_said_at_once_and_ends_with_the_work() {
        let (begun, begins) = mpsc::channel();
        // A sender is for one thread; progress may come from any.
        let begun = Mutex::new(begun);
        let progress = |step: Progress| {
            assert!(matches!(step, Progress::Building { model: "m", .. }));
            begun.lock().unwrap().send(()).unwrap();
        };
        let result = ticking("m", Path::new("/x"), &progress, || {
            begins.recv_timeout(Duration::from_secs(30)).unwrap();
            7
        });
        assert_eq!(result, 7);
    }

    #[test]
    fn only_engines_are_engines() {
        let folder = std::env::temp_dir().join(format!("takt-engines-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.engine"), b"x").unwrap();
        std::fs::write(folder.join("a.timing"), b"x").unwrap();
        assert_eq!(engines_in(&folder), [folder.join("a.engine")]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(engines_in(&folder).is_empty());
    }
}
