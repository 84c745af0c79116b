//! Runs ONNX networks: ONNX Runtime where its library is found, else an embedded pure-Rust engine.
//!
//! A [`Network`] takes one float tensor and gives float tensors; its buffers are reused. The engine
//! behind it may allocate and may own helper threads: both engines do, and the thread census of the
//! runtime finds them.

mod bound;
mod builtin;
mod embedded;
mod onnx;
mod onnxruntime;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use bound::{Bound, Placement, engine_folder};
pub use builtin::{BUILTIN_MODELS, BuiltinModel, builtin_model};
pub use onnx::OnnxError;
pub(crate) use onnx::{Facts, Task};

/// Engine of the networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// ONNX Runtime where its library is found, else the embedded engine. The choice is in
    /// [`Engine::description`].
    #[default]
    Auto,
    /// The embedded pure-Rust engine, CPU only.
    Embedded,
    /// ONNX Runtime; not finding its library is an error.
    Onnxruntime,
}

/// Device on which ONNX Runtime computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    #[default]
    Cpu,
    /// An NVIDIA GPU through CUDA; needs a GPU build of ONNX Runtime, CUDA and cuDNN.
    Cuda,
    /// An NVIDIA GPU through TensorRT; needs a GPU build of ONNX Runtime and TensorRT. The first
    /// start builds the engine, which takes minutes.
    Tensorrt,
}

/// Settings of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    pub backend: Backend,
    /// The ONNX Runtime library; else `ORT_DYLIB_PATH`, else the usual places.
    pub library: Option<PathBuf>,
    /// Device on which ONNX Runtime computes. Devices other than the CPU exclude the embedded
    /// engine.
    pub provider: Provider,
    /// GPU number.
    pub device: i32,
    /// Threads of one inference. 1: cameras already run beside each other, and helper threads of an
    /// inference would need a real-time policy of their own.
    pub threads: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { backend: Backend::Auto, library: None, provider: Provider::Cpu, device: 0, threads: 1 }
    }
}

/// A model: compiled in, or a file. Written `builtin:NAME` or as a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    Builtin(String),
    /// An ONNX file.
    File(PathBuf),
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl From<&str> for ModelSource {
    fn from(text: &str) -> Self {
        match text.strip_prefix("builtin:") {
            Some(name) => Self::Builtin(name.into()),
            None => Self::File(text.into()),
        }
    }
}

impl Serialize for ModelSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Self::from(String::deserialize(deserializer)?.as_str());
        if let Self::Builtin(name) = &source
            && builtin_model(name).is_none()
        {
            return Err(serde::de::Error::custom(EngineError::unknown_builtin(name)));
        }
        Ok(source)
    }
}

/// A dense float tensor, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensor {
    /// Name in the model (the embedded engine may rename outputs; their order is the model's).
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub data: Vec<f32>,
}

/// A loaded network.
pub trait Network: Send {
    fn input_shape(&self) -> &[usize];

    /// Runs the network on `input` (row-major, as many values as the shape holds). The outputs stay
    /// until the next run.
    ///
    /// # Errors
    /// [`EngineError::InputLength`] or [`EngineError::Run`].
    fn run(&mut self, input: &[f32]) -> Result<&[Tensor], EngineError>;
}

/// Reason why a network cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No ONNX Runtime library was found.
    #[error(
        "no ONNX Runtime library found (looked in: {looked}). Install it (for example `pip install onnxruntime`), \
         set `engine.library` or ORT_DYLIB_PATH to its libonnxruntime.so, or use backend = \"embedded\""
    )]
    LibraryNotFound { looked: String },
    /// The library could not be used.
    #[error(
        "ONNX Runtime library {path} cannot be used: {reason}. It must be version 1.17 or newer for this \
         processor; set `engine.library` to another one, or use backend = \"embedded\""
    )]
    Library { path: String, reason: String },
    /// A GPU was asked for and the embedded engine cannot give it.
    #[error(
        "provider = \"{provider:?}\" needs ONNX Runtime, and backend = \"embedded\" computes on the CPU only; \
         use backend = \"onnxruntime\" or provider = \"cpu\""
    )]
    ProviderNeedsOnnxruntime { provider: Provider },
    /// The provider is not in this build of ONNX Runtime, or its libraries are missing.
    #[error(
        "ONNX Runtime at {library} cannot use provider = \"{provider:?}\": {reason}. Install a GPU build \
         (`pip install onnxruntime-gpu`) with its CUDA libraries (TensorRT too for \"tensorrt\"), or use \
         provider = \"cpu\""
    )]
    Provider { provider: Provider, library: String, reason: String },
    /// There is no built-in model of that name.
    #[error("no built-in model `{name}`; the built-in models: {known}")]
    UnknownBuiltin { name: String, known: String },
    /// The file cannot be read.
    #[error("cannot read model {path}: {source}")]
    ReadModel { path: String, source: std::io::Error },
    /// The file is not handed to an engine.
    #[error("model {model} is not loaded: {source}")]
    Onnx { model: String, source: OnnxError },
    /// The detector does not find people where they are.
    #[error(
        "model {model} does not fit: it does not find the people in Takt's own pictures ({tried}). Accepted: a \
         detector whose class {person_class} is a person, at the threshold {threshold}. Set `person_class`, \
         `threshold`, `input_size` or `layout` of [perception.detector] as the model needs them; \
         `accept_unproved = true` runs it without this proof"
    )]
    Unproved { model: String, tried: String, person_class: usize, threshold: f32 },
    /// Several layouts are possible, and no proof decides.
    #[error(
        "model {model} does not fit: its outputs can be {found}; choose one with `layout`, or let the proof on pictures decide \
         (`accept_unproved = false`)"
    )]
    Ambiguous { model: String, found: String },
    /// The engine refuses the model.
    #[error("model {model} cannot be loaded by {engine}: {reason}")]
    Load { model: String, engine: &'static str, reason: String },
    /// The engine loads the model and cannot compute it.
    #[error(
        "model {model} does not fit: its first inference fails ({reason}). Export it again for the engine in use \
         (`takt check` names it), with opset 17 or older"
    )]
    Fails { model: String, reason: String },
    /// Inputs or outputs are not those of a model of this role.
    #[error("model {model} does not fit: expected {expected}; found {found}")]
    Interface { model: String, expected: String, found: String },
    /// The input has the wrong length.
    #[error("network input has {found} values, expected {expected}")]
    InputLength {
        /// Product of the input shape.
        expected: usize,
        found: usize,
    },
    /// The inference failed.
    #[error("inference failed: {0}")]
    Run(String),
    /// A thread of the detector could not be started.
    #[error("detector thread: {0}")]
    Thread(#[source] takt_rt::Error),
    /// An exchange was made without its reader.
    #[error("internal: an exchange has no reader")]
    NoReader,
}

impl EngineError {
    /// The error of a model whose inputs and outputs are not those of its role.
    pub(crate) fn misfit(
        model: &str,
        input: &[usize],
        outputs: &[(String, Vec<usize>)],
        expected: impl Into<String>,
    ) -> Self {
        let outputs = outputs.iter().map(|(name, shape)| format!("{name} {shape:?}"));
        let outputs = outputs.collect::<Vec<_>>().join(", ");
        let found = format!("input {input:?} and outputs {outputs}");
        Self::Interface { model: model.into(), expected: expected.into(), found }
    }

    /// The same, of an inference that is made to prove the model: whoever names the file must read
    /// which one it is.
    pub(crate) fn of_model(self, model: &str) -> Self {
        match self {
            Self::Run(reason) => Self::Fails { model: model.into(), reason },
            other => other,
        }
    }

    /// The failure of an inference whose answer cannot be one.
    pub(crate) fn nonsense(found: String) -> Self {
        Self::Run(format!("the network returns {found}"))
    }

    pub(crate) fn unknown_builtin(name: &str) -> Self {
        let known = BUILTIN_MODELS.iter().map(|model| format!("builtin:{}", model.name));
        Self::UnknownBuiltin { name: name.into(), known: known.collect::<Vec<_>>().join(", ") }
    }
}

/// A chosen engine, ready to load networks.
#[derive(Clone, Debug)]
pub struct Engine {
    choice: Choice,
    config: EngineConfig,
}

#[derive(Clone, Debug)]
enum Choice {
    Embedded { because: String },
    Onnxruntime(onnxruntime::Library),
}

impl Engine {
    /// Chooses the engine after the configuration.
    ///
    /// ONNX Runtime is loaded once per process: the first library wins.
    ///
    /// # Errors
    /// The missing part, and the way to get it.
    pub fn open(config: &EngineConfig) -> Result<Self, EngineError> {
        let choice = match (config.backend, config.provider) {
            (Backend::Embedded, Provider::Cpu) => Choice::Embedded { because: "configured".into() },
            (Backend::Embedded, provider) => return Err(EngineError::ProviderNeedsOnnxruntime { provider }),
            (Backend::Auto, Provider::Cpu) => match onnxruntime::Library::open(config.library.as_deref()) {
                Ok(library) => Choice::Onnxruntime(library),
                // A library that was named is meant; one that was only found may be unusable.
                Err(error) if config.library.is_some() => return Err(error),
                Err(EngineError::LibraryNotFound { .. }) => {
                    Choice::Embedded { because: "no ONNX Runtime library found".into() }
                }
                Err(error) => Choice::Embedded { because: error.to_string() },
            },
            (Backend::Auto | Backend::Onnxruntime, _) => {
                Choice::Onnxruntime(onnxruntime::Library::open(config.library.as_deref())?)
            }
        };
        Ok(Self { choice, config: config.clone() })
    }

    /// The choice and its reason, for people and for the run directory.
    pub fn description(&self) -> String {
        match &self.choice {
            Choice::Embedded { because } => format!("{} ({because})", embedded::NAME),
            Choice::Onnxruntime(library) => {
                format!("ONNX Runtime {}, provider {:?}", library.path().display(), self.config.provider)
            }
        }
    }

    /// Whether the embedded engine was chosen.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.choice, Choice::Embedded { .. })
    }

    /// Loads a network with one input of shape [1, 3, height, width] and runs it once on zeros, so
    /// that the output shapes are known and buffers are warm. `size` fills height and width where
    /// the model leaves them open.
    ///
    /// # Errors
    /// [`EngineError::Load`], [`EngineError::Interface`] and what reading the file gives.
    pub fn load(&self, source: &ModelSource, size: Option<[usize; 2]>) -> Result<LoadedNetwork, EngineError> {
        let bytes = read(source)?;
        let model = source.to_string();
        let onnx::Checked { bytes: checked, facts } = check(&model, &bytes, size)?;
        let (bytes, size) = (checked.as_ref(), size.or(facts.size));
        let mut network: Box<dyn Network> = match &self.choice {
            Choice::Embedded { .. } => {
                Box::new(embedded::Embedded::load(&model, bytes, size, self.config.threads)?)
            }
            Choice::Onnxruntime(library) => {
                Box::new(onnxruntime::OrtNetwork::load(library, &self.config, &model, bytes, size)?)
            }
        };
        let zeros = vec![0.0; network.input_shape().iter().product()];
        let answer = network.run(&zeros).map_err(|error| error.of_model(&model))?;
        let outputs = answer.iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
        Ok(LoadedNetwork { model, network, outputs, facts, identity: fingerprint(&[bytes]) })
    }
}

/// Reads a file's structure before an engine does.
fn check<'a>(
    model: &str,
    bytes: &'a [u8],
    size: Option<[usize; 2]>,
) -> Result<onnx::Checked<'a>, EngineError> {
    onnx::check(bytes, size).map_err(|source| EngineError::Onnx { model: model.into(), source })
}

/// FNV-1a of 128 bits over parts: a name, no seal.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> u128 {
    let mut hash = 0x6c62272e07bb014262b821756295c58du128;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000000001000000000000000000013b);
        }
    }
    hash
}

impl Engine {
    /// Loads a network that reads and writes memory of a device, and runs it once on zeros.
    ///
    /// # Safety
    /// The placement's stream outlives what is returned.
    pub(crate) unsafe fn load_bound(
        &self,
        source: &ModelSource,
        size: Option<[usize; 2]>,
        placement: Placement,
    ) -> Result<Bound, EngineError> {
        let bytes = read(source)?;
        let model = source.to_string();
        let onnx::Checked { bytes: checked, facts } = check(&model, &bytes, size)?;
        let size = size.or(facts.size);
        match &self.choice {
            Choice::Embedded { .. } => {
                Err(EngineError::ProviderNeedsOnnxruntime { provider: self.config.provider })
            }
            Choice::Onnxruntime(library) => {
                // SAFETY: the caller's word.
                unsafe { Bound::load(library, &self.config, &model, &checked, facts, size, placement) }
            }
        }
    }

    /// File of the ONNX Runtime library in use.
    pub(crate) fn library(&self) -> Option<&std::path::Path> {
        match &self.choice {
            Choice::Embedded { .. } => None,
            Choice::Onnxruntime(library) => Some(library.path()),
        }
    }
}

/// The bytes of a model.
pub(crate) fn read(source: &ModelSource) -> Result<Cow<'static, [u8]>, EngineError> {
    match source {
        ModelSource::Builtin(name) => match builtin_model(name) {
            Some(model) => Ok(model.bytes.into()),
            None => Err(EngineError::unknown_builtin(name)),
        },
        ModelSource::File(path) => match takt_files::read(path, onnx::limits::MAX_FILE_BYTES) {
            Ok(bytes) => Ok(bytes.into()),
            Err(source) => Err(EngineError::ReadModel { path: path.display().to_string(), source }),
        },
    }
}

/// A network that ran once, with what it is called and what it gives.
pub struct LoadedNetwork {
    /// The model, as configured.
    pub model: String,
    pub network: Box<dyn Network>,
    /// Names and shapes of its outputs.
    pub outputs: Vec<(String, Vec<usize>)>,
    /// Facts from its file.
    pub(crate) facts: Facts,
    /// A fingerprint of its file.
    pub(crate) identity: u128,
}

impl LoadedNetwork {
    /// The error of a model whose interface is not the expected one.
    pub(crate) fn misfit(&self, expected: &str) -> EngineError {
        EngineError::misfit(&self.model, self.network.input_shape(), &self.outputs, expected)
    }
}

impl fmt::Debug for LoadedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedNetwork").field("model", &self.model).field("outputs", &self.outputs).finish()
    }
}

/// Whether there are as many values as the shape holds.
fn check_length(shape: &[usize], input: &[f32]) -> Result<(), EngineError> {
    let expected = shape.iter().product();
    if input.len() == expected {
        return Ok(());
    }
    Err(EngineError::InputLength { expected, found: input.len() })
}

/// Fixes the shape [1, 3, height, width] of an input whose open dimensions are `None`.
fn fix_shape(
    model: &str,
    declared: &[Option<usize>],
    size: Option<[usize; 2]>,
) -> Result<[usize; 4], EngineError> {
    let misfit = |expected: &str| EngineError::Interface {
        model: model.into(),
        expected: expected.into(),
        found: format!(
            "input [{}]",
            declared.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect::<Vec<_>>().join(", ")
        ),
    };
    let &[batch, channels, height, width] = declared else {
        return Err(misfit("one input [1, 3, height, width]"));
    };
    if !matches!(batch, None | Some(1)) || !matches!(channels, None | Some(3)) {
        return Err(misfit("one input [1, 3, height, width]"));
    }
    let fix = |declared: Option<usize>, axis: usize| match (declared, size) {
        (Some(found), Some(wanted)) if wanted[axis] != found => {
            Err(misfit(&format!("the configured input size {wanted:?} (height, width)")))
        }
        (Some(found), _) if found > 0 => Ok(found),
        (None, Some(wanted)) if wanted[axis] > 0 => Ok(wanted[axis]),
        _ => Err(misfit("a fixed height and width; the model does not fix them, so configure `input_size`")),
    };
    Ok([1, 3, fix(height, 0)?, fix(width, 1)?])
}

#[cfg(test)]
mod tests;
