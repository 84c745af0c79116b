//! Judging of the frames: by the cameras' own threads on the CPU, or by the GPU's worker process,
//! with a fallback in the cameras' threads.

use std::sync::atomic::AtomicBool;

use takt_link_camera::CameraFeed;
use takt_perception::process::{Program, Record, Setup, Started, Supervisor, WorkerError, WorkerFacts};
use takt_perception::{
    Backend, DetectorService, Device, Engine, EngineConfig, Fallback, Perception, PerceptionConfig,
};
use takt_rt::census::CensusKeeper;
use takt_rt::ring::Consumer;
use takt_rt::thread;

use super::prepare::{prepare_detector, settings};
use super::{NO_STOP, StartOptions, unless_stopped};
use crate::config::CellConfig;
use crate::error::CellError;
use crate::tasks::Role;
use crate::threads::Judging;

/// Result of `prepare_judging`.
pub(super) struct Prepared {
    pub judging: Vec<Judging>,
    pub detector: Option<DetectorService>,
    pub detector_thread: Option<thread::Handle>,
    pub supervisor: Option<Supervisor>,
    pub worker_records: Vec<Consumer<Record>>,
    /// The judge, in words.
    pub engine: String,
    /// Note that must be reported.
    pub note: Option<String>,
}

/// Prepares what `perception.device` asks for.
pub(super) fn prepare_judging(
    config: &CellConfig,
    feeds: &[CameraFeed],
    census: &CensusKeeper,
    options: StartOptions<'_>,
) -> Result<Prepared, CellError> {
    let device = config.perception.device;
    let stop = options.stop.map_or(&NO_STOP, |stop| &**stop);
    if !device.wants_gpu() {
        return here(config, feeds, census, stop);
    }
    match there(config, feeds, census, options) {
        Err(CellError::Worker { source, .. }) if device == Device::Auto => {
            let mut prepared = here(config, feeds, census, stop)?;
            prepared.note =
                Some(format!("perception.device = \"auto\": perception runs on the CPU, because: {source}"));
            Ok(prepared)
        }
        outcome => outcome,
    }
}

/// Perception of every camera in this process, on the CPU.
struct Local {
    perceptions: Vec<Perception>,
    detector: Option<DetectorService>,
    detector_thread: Option<thread::Handle>,
    engine: String,
}

fn local(
    config: &CellConfig,
    feeds: &[CameraFeed],
    census: &CensusKeeper,
    stop: &AtomicBool,
) -> Result<Local, CellError> {
    unless_stopped(stop)?;
    let engine = Engine::open(&config.perception.engine)?;
    unless_stopped(stop)?;
    let in_force = config.perception_in_force();
    let mut detector_thread = None;
    // Threads that the detector's engine spawns share its lower priority: no camera driver queues
    // behind them.
    let (detector, handles) = census.attribute_with("detector", config.tasks.detector_policy(), || {
        prepare_detector(config, &engine, feeds, &mut detector_thread)
    })?;
    let perceptions = census.attribute("perception", || {
        let cameras = handles.into_iter().zip(feeds).enumerate();
        cameras
            .map(|(index, (handle, feed))| {
                unless_stopped(stop)?;
                let index = index as u32;
                Ok(Perception::new(&in_force, index, feed.intrinsics(), &engine, handle)?)
            })
            .collect::<Result<_, CellError>>()
    })?;
    Ok(Local { perceptions, detector, detector_thread, engine: engine.description() })
}

fn here(
    config: &CellConfig,
    feeds: &[CameraFeed],
    census: &CensusKeeper,
    stop: &AtomicBool,
) -> Result<Prepared, CellError> {
    let Local { perceptions, detector, detector_thread, engine } = local(config, feeds, census, stop)?;
    Ok(Prepared {
        judging: perceptions.into_iter().map(|perception| Judging::Here(Box::new(perception))).collect(),
        detector,
        detector_thread,
        supervisor: None,
        worker_records: Vec::new(),
        engine,
        note: None,
    })
}

/// Depth alone: no network decides anything.
fn geometry(mut config: PerceptionConfig, feeds: &[CameraFeed]) -> Result<Vec<Perception>, CellError> {
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    let engine = Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() })?;
    let cameras = feeds.iter().enumerate();
    let made =
        cameras.map(|(index, feed)| Perception::new(&config, index as u32, feed.intrinsics(), &engine, None));
    Ok(made.collect::<Result<_, _>>()?)
}

fn there(
    config: &CellConfig,
    feeds: &[CameraFeed],
    census: &CensusKeeper,
    options: StartOptions<'_>,
) -> Result<Prepared, CellError> {
    let asked = config.perception.device;
    let stop = options.stop.map_or(&NO_STOP, |stop| &**stop);
    let failed = |source| match source {
        WorkerError::Stopped => CellError::Stopped,
        source => CellError::Worker { device: asked, source },
    };
    let device = match asked {
        // TensorRT builds its engines for minutes: not without being asked for by name.
        Device::Auto => Device::Cuda,
        named => named,
    };
    let worker_settings = {
        let mut worker = settings(config, Role::Perception);
        worker.policy = config.tasks.shared_perception_policy();
        worker
    };
    let setup = Setup {
        device,
        perception: config.perception_in_force(),
        cameras: feeds.iter().map(CameraFeed::intrinsics).collect(),
        threads: worker_settings,
        library_policy: config.tasks.policy_of(Role::Subthread),
    };
    let own = || Program::own().map_err(|source| WorkerError::Start { what: "this program".into(), source });
    let program = options.worker.map_or_else(own, Ok).map_err(failed)?;
    let mut silent = |_: &str| ();
    let progress = options.progress.unwrap_or(&mut silent);
    let (fallbacks, local) = match config.perception.gpu.fallback {
        Fallback::Drop => (feeds.iter().map(|_| None).collect(), None),
        Fallback::Geometry => {
            (geometry(config.perception_in_force(), feeds)?.into_iter().map(Some).collect(), None)
        }
        Fallback::Network => {
            let mut local = local(config, feeds, census, stop)?;
            let perceptions = std::mem::take(&mut local.perceptions);
            (perceptions.into_iter().map(Some).collect(), Some(local))
        }
    };
    let Started { supervisor, remotes, records } =
        Supervisor::start(setup, program, fallbacks, progress, stop).map_err(failed)?;
    let about = supervisor.facts().about;
    let engine =
        format!("{}, driver {}: {} (in a separate process)", about.device, about.driver, about.engine);
    let (detector, detector_thread) =
        local.map_or((None, None), |local| (local.detector, local.detector_thread));
    Ok(Prepared {
        judging: remotes.into_iter().map(|remote| Judging::There(Box::new(remote))).collect(),
        detector,
        detector_thread,
        supervisor: Some(supervisor),
        worker_records: records,
        engine,
        note: None,
    })
}

/// Settings that the worker was not granted, and other notes on it, one sentence each.
pub(super) fn not_granted(facts: &WorkerFacts) -> Vec<String> {
    let refused = facts.threads.iter().flat_map(|thread| {
        let differences = thread.granted.differences.iter();
        differences.map(move |difference| format!("{} (perception process): {difference}", thread.name))
    });
    let census = facts.census.iter().flat_map(|report| &report.threads);
    let fallback = census.filter(|thread| !thread.ended).filter_map(|thread| {
        let error = thread.error.as_ref()?;
        Some(format!("{} (perception process): fallback policy: {error}", thread.name))
    });
    facts.about.labels.iter().cloned().chain(refused).chain(fallback).collect()
}
