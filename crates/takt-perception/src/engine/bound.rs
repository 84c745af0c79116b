//! A network in ONNX Runtime that reads and writes memory of a device, on a stream of the caller's.

use std::ffi::{CString, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use ort::AsPointer;
use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, NoSelectedOutputs, RunOptions, Session};
use ort::value::{Shape, TensorRef, TensorRefMut};

use super::onnxruntime::{self, Library, declared_input};
use super::{EngineConfig, EngineError, Facts, Provider, fix_shape};

/// Device and memory of a bound network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement<'a> {
    /// The stream, a `CUstream`; null for the provider `cpu`.
    pub(crate) stream: *mut c_void,
    /// Folder in which TensorRT keeps the engines that it builds: one for this GPU, driver, library
    /// and model only.
    pub(crate) engines: Option<&'a Path>,
    /// Whether inferences can be submitted without waiting, to be captured as CUDA graphs
    /// ([`Bound::submit`]). For the provider `cuda`; a network of which a part runs on the CPU is
    /// refused then.
    pub(crate) graphs: bool,
}

/// A session and what it is bound to, one binding for each slot.
pub(crate) struct Bound {
    // Before the session.
    bindings: Vec<Binding>,
    session: Session,
    facts: Facts,
    model: String,
    memory: MemoryInfo<'static>,
    on_host: bool,
    graphs: bool,
    shape: [usize; 4],
    input: CString,
    outputs: Vec<(String, Vec<usize>)>,
    output_names: Vec<CString>,
}

struct Binding {
    binding: IoBinding,
    options: RunOptions<NoSelectedOutputs>,
    /// Of runs that are not waited for, where they can be.
    unsynchronised: Option<RunOptions<NoSelectedOutputs>>,
    /// Bound values; it owns no memory.
    _values: Vec<TensorRefMut<'static, f32>>,
}

// SAFETY: the handles may be used from any thread, by one at a time, which `&mut` sees to; the
// values own nothing.
unsafe impl Send for Binding {}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("model", &self.model).field("outputs", &self.outputs).finish()
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run(onnxruntime::plain(&error.to_string()))
}

/// The run option that names a graph of the library's own, and its value for none. Its own graphs
/// are made for each thread anew, and threads that capture at the same time spoil each other's
/// (seen on an H200); so the library is only made ready for graphs, and the caller captures.
const GRAPH: &str = "gpu_graph_id";
const NO_GRAPH: &str = "-1";

fn run_options(graphs: bool) -> Result<RunOptions<NoSelectedOutputs>, EngineError> {
    let mut options = RunOptions::new().map_err(failed)?;
    if graphs {
        options.set(GRAPH, NO_GRAPH).map_err(failed)?;
    }
    Ok(options)
}

impl Bound {
    /// Loads a network and runs it once on zeros: output shapes are known then, and TensorRT's
    /// engine is there.
    ///
    /// # Safety
    /// The stream outlives what is returned.
    pub(super) unsafe fn load(
        library: &Library,
        config: &EngineConfig,
        model: &str,
        bytes: &[u8],
        facts: Facts,
        size: Option<[usize; 2]>,
        placement: Placement,
    ) -> Result<Self, EngineError> {
        let stream = placement.stream.cast::<()>();
        // Full precision, so that people are found where the CPU finds them; and no more memory
        // than is asked for, as every camera has sessions of its own.
        let graphs = placement.graphs;
        let mut cuda = ep::CUDA::default()
            .with_device_id(config.device)
            .with_cuda_graph(graphs)
            .with_tf32(false)
            .with_arena_extend_strategy(ep::ArenaExtendStrategy::SameAsRequested);
        if !stream.is_null() {
            // SAFETY: the stream outlives the session, says the caller.
            cuda = unsafe { cuda.with_compute_stream(stream) };
        }
        let providers = match config.provider {
            Provider::Cpu => vec![],
            Provider::Cuda => vec![cuda.build().error_on_failure()],
            Provider::Tensorrt => {
                let mut tensorrt = ep::TensorRT::default().with_device_id(config.device);
                if !stream.is_null() {
                    // SAFETY: as above.
                    tensorrt = unsafe { tensorrt.with_compute_stream(stream) };
                }
                if let Some(folder) = placement.engines {
                    let folder = folder.display().to_string();
                    tensorrt = tensorrt
                        .with_engine_cache(true)
                        .with_engine_cache_path(&folder)
                        .with_timing_cache(true)
                        .with_timing_cache_path(folder);
                }
                vec![tensorrt.build().error_on_failure(), cuda.build().error_on_failure()]
            }
        };
        let mut session = onnxruntime::session(library, config, model, bytes, providers)?;
        let shape = fix_shape(model, &declared_input(model, &session)?, size)?;

        let zeros = vec![0.0f32; shape.iter().product()];
        let input = session.inputs()[0].name().to_owned();
        let mut outputs = Vec::new();
        let options = run_options(graphs)?;
        let zeros = ort::inputs![TensorRef::from_array_view((shape, zeros.as_slice())).map_err(failed)?];
        let results = session.run_with_options(zeros, &options).map_err(failed)?;
        for (name, value) in results.iter() {
            let (shape, _) = value.try_extract_tensor::<f32>().map_err(failed)?;
            outputs.push((name.to_owned(), shape.iter().map(|&d| d as usize).collect()));
        }
        drop(results);

        let on_host = config.provider == Provider::Cpu;
        let device = if on_host { AllocationDevice::CPU } else { AllocationDevice::CUDA };
        let memory = MemoryInfo::new(
            device,
            if on_host { 0 } else { config.device },
            AllocatorType::Device,
            MemoryType::Default,
        );
        let name = |name: &str| CString::new(name).map_err(|error| EngineError::Run(error.to_string()));
        Ok(Self {
            bindings: Vec::new(),
            graphs,
            model: model.to_owned(),
            memory: memory.map_err(failed)?,
            on_host,
            shape,
            input: name(&input)?,
            output_names: outputs
                .iter()
                .map(|(output, _): &(String, _)| name(output))
                .collect::<Result<_, _>>()?,
            outputs,
            session,
            facts,
        })
    }

    /// Facts from its file.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    pub(crate) fn input_shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn outputs(&self) -> &[(String, Vec<usize>)] {
        &self.outputs
    }

    /// Whether "device" memory is the host's, and a run is over when it returns.
    pub(crate) fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// Adds a slot: device addresses of its input and outputs.
    ///
    /// # Safety
    /// There is memory for floats of the network's shapes at each address, until this is dropped
    /// and its last run has ended; on the device that the network was loaded for.
    pub(crate) unsafe fn bind(&mut self, input: u64, outputs: &[u64]) -> Result<(), EngineError> {
        if outputs.len() != self.outputs.len() {
            let (expected, found) = (self.outputs.len(), outputs.len());
            return Err(EngineError::Run(format!("{found} outputs to bind, expected {expected}")));
        }
        let mut binding = self.session.create_binding().map_err(failed)?;
        let mut values = Vec::with_capacity(outputs.len() + 1);
        let tensor = |address: u64, shape: &[usize]| {
            let shape = Shape::new(shape.iter().map(|&side| side as i64));
            // SAFETY: there is memory for that shape, says the caller.
            unsafe { TensorRefMut::<f32>::from_raw(self.memory.clone(), address as *mut c_void, shape) }
                .map_err(failed)
        };
        values.push(tensor(input, &self.shape)?);
        for (&address, (_, shape)) in outputs.iter().zip(&self.outputs) {
            values.push(tensor(address, shape)?);
        }
        let names = std::iter::once(&self.input).chain(&self.output_names);
        for (index, (name, value)) in names.zip(&values).enumerate() {
            let api = ort::api();
            let bind = if index == 0 { api.BindInput } else { api.BindOutput };
            // The library's own `bind_input` copies borrowed tensors; what lies on the device must
            // be read in place. SAFETY: all three are alive, and the name ends with NUL.
            let status = unsafe { bind(binding.ptr_mut(), name.as_ptr(), value.ptr()) };
            // SAFETY: a status that is returned is the caller's.
            unsafe { ort::Error::result_from_status(status) }.map_err(failed)?;
        }
        let unsynchronised = self.graphs.then(|| {
            let mut options = run_options(true)?;
            // Only with a library made ready for graphs: else it releases host memory of kernels'
            // arguments in a callback of the stream, and a session that is dropped behind such a
            // run ends the process (seen with ONNX Runtime 1.27 and 1.31: `cudaFreeHost` is refused
            // there).
            options.disable_device_sync().map_err(failed)?;
            Ok::<_, EngineError>(options)
        });
        let (options, unsynchronised) = (run_options(self.graphs)?, unsynchronised.transpose()?);
        self.bindings.push(Binding { binding, options, unsynchronised, _values: values });
        Ok(())
    }

    /// Runs an inference of that slot on the stream. It is over when this returns.
    pub(crate) fn run(&mut self, slot: usize) -> Result<(), EngineError> {
        self.run_with(slot, |binding| Some(&binding.options))
    }

    /// Puts an inference of that slot on the stream and does not wait for it. For a capture, behind
    /// a [`run`](Self::run) of this thread: the library takes its memory and chooses its algorithms
    /// there. Only where the placement asked for graphs.
    pub(crate) fn submit(&mut self, slot: usize) -> Result<(), EngineError> {
        self.run_with(slot, |binding| binding.unsynchronised.as_ref())
    }

    fn run_with(
        &mut self,
        slot: usize,
        options: impl FnOnce(&Binding) -> Option<&RunOptions<NoSelectedOutputs>>,
    ) -> Result<(), EngineError> {
        let Some(binding) = self.bindings.get(slot) else {
            return Err(EngineError::Run(format!("slot {slot} of {}", self.bindings.len())));
        };
        let Some(options) = options(binding) else {
            return Err(EngineError::Run(format!("{} was not loaded for graphs", self.model)));
        };
        // SAFETY: session, options and binding are alive and belong together; `&mut self` keeps
        // others away.
        let status = unsafe {
            (ort::api().RunWithBinding)(self.session.ptr().cast_mut(), options.ptr(), binding.binding.ptr())
        };
        // SAFETY: a status that is returned is the caller's.
        unsafe { ort::Error::result_from_status(status) }.map_err(failed)
    }
}

/// A folder for engines that nothing else can use: of this GPU, driver, library, provider and
/// model.
pub(crate) fn engine_folder(base: &Path, identity: &[&str], bytes: &[u8]) -> PathBuf {
    let parts: Vec<&[u8]> = identity.iter().map(|part| part.as_bytes()).chain([bytes]).collect();
    let hash = super::fingerprint(&parts);
    base.join(format!("engines-{hash:032x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Backend, Engine, ModelSource};

    #[test]
    fn engines_of_other_gpus_drivers_and_models_have_other_folders() {
        let base = Path::new("/cache");
        let one = engine_folder(base, &["GPU-1", "12040"], b"model");
        assert_eq!(one, engine_folder(base, &["GPU-1", "12040"], b"model"));
        for other in [
            engine_folder(base, &["GPU-2", "12040"], b"model"),
            engine_folder(base, &["GPU-1", "12060"], b"model"),
            engine_folder(base, &["GPU-112040", ""], b"model"),
            engine_folder(base, &["GPU-1", "12040"], b"other"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn bound_memory_gives_what_copies_give_and_is_used_in_place() {
        let config = EngineConfig { backend: Backend::Onnxruntime, ..EngineConfig::default() };
        let Ok(engine) = Engine::open(&config) else {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"));
            takt_witness::skip!("no ONNX Runtime here");
            return;
        };
        let model = ModelSource::from("builtin:selfie_landscape_144x256");
        let placement = Placement { stream: std::ptr::null_mut(), engines: None, graphs: false };
        // SAFETY: there is no stream.
        let mut bound = unsafe { engine.load_bound(&model, None, placement) }.unwrap();
        assert_eq!(bound.outputs().len(), 1);
        let mut plain = engine.load(&model, None).unwrap();
        let length: usize = bound.input_shape().iter().product();
        // A picture of something: on a plain one the mask is zero.
        let mut input: Vec<f32> = (0..length).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
        let mut outputs = [vec![-1.0f32; 144 * 256], vec![-1.0f32; 144 * 256]];
        let addresses = outputs.each_mut().map(|output| output.as_mut_ptr() as u64);
        for address in addresses {
            // SAFETY: the vectors outlive `bound`, which is dropped below.
            unsafe { bound.bind(input.as_mut_ptr() as u64, &[address]) }.unwrap();
        }
        bound.run(0).unwrap();
        assert!(outputs[0] == plain.network.run(&input).unwrap()[0].data);
        // SAFETY: nothing runs, and `input` is as long.
        let again = unsafe { std::slice::from_raw_parts_mut(input.as_mut_ptr(), length) };
        again.iter_mut().for_each(|value| *value = 1.0 - *value);
        bound.run(1).unwrap();
        assert!(outputs[1] == plain.network.run(&input).unwrap()[0].data);
        assert!(outputs[0] != outputs[1], "the second input was not looked at");
        assert!(bound.run(2).is_err());
        assert!(bound.submit(0).unwrap_err().to_string().contains("not loaded for graphs"));
        // SAFETY: refused before anything is bound.
        assert!(unsafe { bound.bind(0, &[]) }.is_err());
        drop(bound);
    }
}
