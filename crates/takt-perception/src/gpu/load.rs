//! Loading networks: on the device with a cache of engines, or on the CPU for the emulated device
//! and the embedded engine.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use takt_gpu::{Gpu, Priority, Stream};

use super::captured::CapturedNetwork;
use super::network::{BoundNetwork, DeviceNetwork, HostNetwork};
use super::rig::Networks;
use super::{GpuPerceptionError, Severity};
use crate::config::{DetectorSchedule, PerceptionConfig};
use crate::device::Device;
use crate::engine::{
    Backend, Engine, EngineConfig, EngineError, ModelSource, Placement, Provider, engine_folder, read,
};

/// Progress of the start: TensorRT builds an engine for minutes, which must not look like a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A network is being loaded.
    Loading { model: &'a str },
    /// Its engine is being built; said every second.
    Building {
        model: &'a str,
        /// Since when.
        elapsed: Duration,
        /// Destination folder of the engine.
        folder: &'a Path,
    },
    /// A network is launched kernel by kernel: its inference cannot be a CUDA graph.
    NoGraph { model: &'a str, reason: &'a str },
    /// A network is ready.
    Ready {
        model: &'a str,
        /// Time taken.
        elapsed: Duration,
    },
}

/// A stream and networks for so many cameras.
pub(super) fn prepare(
    gpu: &Gpu,
    config: &PerceptionConfig,
    cameras: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Stream, Networks, u64), GpuPerceptionError> {
    config.check()?;
    let priority = if config.gpu.priorities { Priority::Critical } else { Priority::Normal };
    let stream = if config.gpu.late_priorities {
        let mut stream = gpu.stream(Priority::Normal)?;
        stream.set_priority(priority)?;
        stream
    } else {
        gpu.stream(priority)?
    };
    let loader = Loader::new(gpu, &stream, config, progress)?;
    let own = config.detector.enabled && config.detector.schedule == DetectorSchedule::EveryFrame;
    let mut networks = Networks::default();
    if own {
        let detector = loader.load(&config.detector.model, config.detector.input_size, cameras)?;
        networks.set_detector(gpu, &stream, &config.detector, detector)?;
    }
    // A detector that segments on every frame makes the segmenter idle.
    if config.segmenter.enabled && networks.mask_size().is_none() {
        let slots = cameras * config.segmenter.max_per_frame.clamp(1, crate::judge::MAX_PEOPLE);
        let segmenter = loader.load(&config.segmenter.model, None, slots)?;
        networks.set_segmenter(gpu, &stream, &config.segmenter, segmenter)?;
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
    /// Networks run on the CPU: the device is emulated, or the embedded engine was asked for.
    on_host: bool,
    /// On the emulated device: whether ONNX Runtime was asked for, which can be bound to its
    /// memory.
    bind: bool,
    /// Inferences are captured and launched as CUDA graphs, where the library can.
    graphs: bool,
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
        // The embedded engine knows no GPU: who asks for it has networks on the CPU between kernels
        // on the device.
        let on_host = gpu.info().emulated || config.engine.backend == Backend::Embedded;
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
        let graphs = config.gpu.network_graphs && provider == Provider::Cuda;
        Ok(Self {
            gpu,
            stream,
            engine: Engine::open(&engine)?,
            provider,
            on_host,
            bind,
            graphs,
            cache,
            progress,
        })
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
            let nowhere = Placement { stream: std::ptr::null_mut(), engines: None, graphs: false };
            // SAFETY: there is no stream.
            let bound = unsafe { self.engine.load_bound(model, size, nowhere)? };
            Box::new(BoundNetwork::new(self.gpu, bound, slots)?)
        } else if self.on_host {
            let network = self.engine.load(model, size)?;
            Box::new(HostNetwork::new(self.gpu, self.stream, network, slots)?)
        } else {
            self.gpu.bind()?;
            match self.graphs.then(|| self.captured(model, size, slots)) {
                Some(Ok(network)) => network,
                // Kernel by kernel it may work: a network of which a part runs on the CPU, say.
                // A library's errors do not say that the device is lost: it is asked.
                Some(Err(error)) if error.severity() != Severity::Lost => {
                    self.stream.is_idle()?;
                    (self.progress)(Progress::NoGraph { model: &name, reason: &error.to_string() });
                    self.on_device(model, size, slots, &name)?
                }
                Some(Err(error)) => return Err(error),
                None => self.on_device(model, size, slots, &name)?,
            }
        };
        (self.progress)(Progress::Ready { model: &name, elapsed: start.elapsed() });
        Ok(network)
    }

    fn on_device(
        &self,
        model: &ModelSource,
        size: Option<[usize; 2]>,
        slots: usize,
        name: &str,
    ) -> Result<Box<dyn DeviceNetwork>, GpuPerceptionError> {
        let bound = match self.engines(model)? {
            Some(folder) => self.load_cached(model, size, name, &folder)?,
            // SAFETY: the rig drops its networks before its stream.
            None => unsafe { self.engine.load_bound(model, size, self.placement(None, false))? },
        };
        Ok(Box::new(BoundNetwork::new(self.gpu, bound, slots)?))
    }

    /// As a graph for each slot.
    fn captured(
        &self,
        model: &ModelSource,
        size: Option<[usize; 2]>,
        slots: usize,
    ) -> Result<Box<dyn DeviceNetwork>, GpuPerceptionError> {
        // SAFETY: the rig drops its networks before its stream.
        let bound = unsafe { self.engine.load_bound(model, size, self.placement(None, true))? };
        let network = BoundNetwork::new(self.gpu, bound, slots)?;
        Ok(Box::new(CapturedNetwork::new(self.gpu, self.stream, network)?))
    }

    fn placement<'b>(&self, engines: Option<&'b Path>, graphs: bool) -> Placement<'b> {
        Placement { stream: self.stream.raw(), engines, graphs }
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

    /// Loads with a cache, saying every second that it still builds; a cache that cannot be used is
    /// made anew, once.
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
            unsafe { self.engine.load_bound(model, size, self.placement(Some(folder), false)) }
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
    let base = takt_files::environment::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || takt_files::environment::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
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
