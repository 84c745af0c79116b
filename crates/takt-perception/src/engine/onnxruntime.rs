//! ONNX Runtime, opened at run time with `dlopen`: nothing is linked, nothing is downloaded.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::environment::Environment;
use ort::ep;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::value::{TensorElementType, TensorRef, ValueType};

use takt_files::environment;

use super::{EngineConfig, EngineError, Network, Provider, Tensor, check_length, fix_shape};
use crate::config::list;

/// The library that this process uses; the first one that loads stays.
static LOADED: Mutex<Option<Library>> = Mutex::new(None);

/// A loaded ONNX Runtime.
#[derive(Clone)]
pub(super) struct Library {
    path: PathBuf,
    environment: Environment,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Library {
    /// Finds and loads the library.
    pub(super) fn open(configured: Option<&Path>) -> Result<Self, EngineError> {
        let mut loaded = LOADED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(library) = &*loaded {
            return Ok(library.clone());
        }
        let path = find(configured)?;
        let unusable = |reason: String| EngineError::Library { path: path.display().to_string(), reason };
        let checked = environment::check_library(&path).map_err(|error| unusable(error.to_string()))?;
        let environment = ort::init_from(&checked)
            .map_err(|error| unusable(error.to_string()))?
            .with_name("takt")
            .with_telemetry(false)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let library = Self { path: checked, environment };
        *loaded = Some(library.clone());
        Ok(library)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// CUDA libraries that providers need, as Python packages bring them (`nvidia/*/lib` beside the
/// package of the library): loaded ahead, in the order of their own needs, so that
/// `pip install onnxruntime-gpu[cuda,cudnn]` is all it takes. Missing or unloadable ones are left
/// to the provider, which then names them.
fn preload_cuda(library: &Library) {
    const IN_ORDER: [&str; 9] = [
        "libnvJitLink.so",
        "libcudart.so",
        "libnvrtc.so",
        "libcublasLt.so",
        "libcublas.so",
        "libcurand.so",
        "libcufft.so",
        "libcudnn",
        "libnvinfer",
    ];
    // site-packages/onnxruntime/capi/libonnxruntime.so
    let Some(packages) = library.path.ancestors().nth(3) else { return };
    let folders = [packages.join("nvidia"), packages.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    for package in folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
        let wanted = package.path().parent().is_some_and(|parent| parent.ends_with("nvidia"))
            || package.file_name().to_string_lossy().starts_with("tensorrt");
        for folder in [package.path().join("lib"), package.path()].iter().filter(|_| wanted) {
            files.extend(folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    files.sort();
    let name_of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    for start in IN_ORDER {
        for file in files.iter().filter(|file| name_of(file).is_some_and(|name| name.starts_with(start))) {
            if let Ok(checked) = environment::check_library(file) {
                let _ = ort::util::preload_dylib(&checked);
            }
        }
    }
}

/// Path of the library. A configured path must exist; the usual places are only tried.
fn find(configured: Option<&Path>) -> Result<PathBuf, EngineError> {
    let variable = environment::var_os("ORT_DYLIB_PATH").filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = configured.map(Path::to_path_buf).or(variable) {
        let found = if named.is_dir() { library_in(&named) } else { Some(named.clone()) };
        return match found.filter(|path| path.is_file()) {
            // dlopen resolves relative names after the executable's folder; the user means the
            // working folder.
            Some(path) => Ok(path.canonicalize().unwrap_or(path)),
            None => Err(EngineError::LibraryNotFound { looked: named.display().to_string() }),
        };
    }
    let places = usual_places();
    places
        .iter()
        .find_map(|place| library_in(place))
        .ok_or_else(|| EngineError::LibraryNotFound { looked: list(&places) })
}

/// The newest `libonnxruntime.so*` of a folder.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let files = folder.read_dir().ok()?.flatten().map(|entry| entry.path());
    files
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name == "libonnxruntime.so" || name.starts_with("libonnxruntime.so.")
        })
        .max()
}

/// Loader paths, system folders, and the `onnxruntime` package of the Pythons around.
fn usual_places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(paths) = environment::var_os("LD_LIBRARY_PATH") {
        places.extend(env::split_paths(&paths).filter(|path| path.is_absolute()));
    }
    for folder in ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/opt/onnxruntime/lib"] {
        places.push(folder.into());
    }
    places.push(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH).into());

    // Beside a program that pip has installed: its environment need not be the active one.
    let program = env::current_exe().ok();
    let own = program.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf);
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| environment::var_os(name));
    let mut prefixes: Vec<PathBuf> = named.map(PathBuf::from).chain(own).collect();
    if let Some(paths) = environment::var_os("PATH") {
        for folder in env::split_paths(&paths) {
            if let Ok(python) = folder.join("python3").canonicalize()
                && let Some(prefix) = python.parent().and_then(Path::parent)
            {
                prefixes.push(prefix.into());
            }
        }
    }
    if let Some(home) = environment::var_os("HOME").map(PathBuf::from) {
        prefixes.push(home.join(".local"));
        let versions = home.join(".pyenv/versions");
        prefixes.extend(versions.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    prefixes.extend(["/usr/local".into(), "/usr".into()]);

    let mut seen = BTreeSet::new();
    for prefix in prefixes.into_iter().filter(|prefix| seen.insert(prefix.clone())) {
        let Ok(entries) = prefix.join("lib").read_dir() else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                for packages in ["site-packages", "dist-packages"] {
                    places.push(entry.path().join(packages).join("onnxruntime/capi"));
                }
            }
        }
    }
    places.retain(|place| place.is_dir());
    places
}

/// ONNX Runtime's message in one line: without the places in its own source, and with the missing
/// library first.
pub(super) fn plain(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let reported = match text.rsplit_once("[ONNXRuntimeError] : ") {
        // A number, a name, and then what it says.
        Some((_, rest)) => rest.splitn(3, " : ").last().unwrap_or(rest).to_owned(),
        None => text,
    };
    let reported = reported.trim_end_matches(['.', ' ']);
    let loading =
        reported.strip_prefix("Failed to load library ").and_then(|rest| rest.split_once(" with error: "));
    match loading.map(|(library, reason)| (library, reason.split_once(": "), reason)) {
        Some((library, Some((missing, why)), _)) if why.starts_with("cannot open shared object file") => {
            if missing == library || library.ends_with(missing) {
                format!("{missing} is missing")
            } else {
                format!("{missing}, which {library} needs, is missing")
            }
        }
        Some((library, _, reason)) => format!("{library} cannot be loaded: {reason}"),
        None => reported.to_owned(),
    }
}

/// A session on one thread of the caller's.
pub(super) fn session(
    library: &Library,
    config: &EngineConfig,
    model: &str,
    bytes: &[u8],
    providers: Vec<ep::ExecutionProviderDispatch>,
) -> Result<Session, EngineError> {
    if config.provider != Provider::Cpu {
        preload_cuda(library);
    }
    let refuse = |reason: String| EngineError::Load { model: model.into(), engine: "ONNX Runtime", reason };
    let refused = |error: ort::Error<SessionBuilder>| refuse(plain(&error.to_string()));
    let mut builder = Session::builder(&library.environment)
        .map_err(|error| refuse(error.to_string()))?
        .with_optimization_level(GraphOptimizationLevel::All)
        .map_err(refused)?
        .with_intra_threads(config.threads.max(1))
        .map_err(refused)?
        .with_inter_threads(1)
        .map_err(refused)?
        .with_intra_op_spinning(false)
        .map_err(refused)?
        .with_execution_providers(providers)
        .map_err(|error| EngineError::Provider {
            provider: config.provider,
            library: library.path.display().to_string(),
            reason: plain(&error.to_string()),
        })?;
    builder.commit_from_memory(bytes).map_err(|error| refuse(plain(&error.to_string())))
}

/// The declared shape of a model's one input; open dimensions are `None`.
pub(super) fn declared_input(model: &str, session: &Session) -> Result<Vec<Option<usize>>, EngineError> {
    let declared: Vec<Option<usize>> = match session.inputs() {
        [input] => match input.dtype() {
            ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } => {
                shape.iter().map(|&d| usize::try_from(d).ok()).collect()
            }
            _ => vec![],
        },
        _ => vec![],
    };
    if declared.is_empty() {
        let found = session.inputs().iter().map(|input| format!("{} {}", input.name(), input.dtype()));
        return Err(EngineError::Interface {
            model: model.into(),
            expected: "one float32 input [1, 3, height, width]".into(),
            found: found.collect::<Vec<_>>().join(", "),
        });
    }
    Ok(declared)
}

/// A network in an ONNX Runtime session.
pub(super) struct OrtNetwork {
    session: Session,
    shape: [usize; 4],
    outputs: Vec<Tensor>,
}

impl OrtNetwork {
    pub(super) fn load(
        library: &Library,
        config: &EngineConfig,
        model: &str,
        bytes: &[u8],
        size: Option<[usize; 2]>,
    ) -> Result<Self, EngineError> {
        let providers = match config.provider {
            Provider::Cpu => vec![],
            Provider::Cuda => {
                vec![ep::CUDA::default().with_device_id(config.device).build().error_on_failure()]
            }
            Provider::Tensorrt => vec![
                ep::TensorRT::default().with_device_id(config.device).build().error_on_failure(),
                ep::CUDA::default().with_device_id(config.device).build().error_on_failure(),
            ],
        };
        let session = session(library, config, model, bytes, providers)?;
        let shape = fix_shape(model, &declared_input(model, &session)?, size)?;
        let outputs = session
            .outputs()
            .iter()
            .map(|output| Tensor { name: output.name().into(), ..Tensor::default() })
            .collect();
        Ok(Self { session, shape, outputs })
    }
}

impl Network for OrtNetwork {
    fn input_shape(&self) -> &[usize] {
        &self.shape
    }

    fn run(&mut self, input: &[f32]) -> Result<&[Tensor], EngineError> {
        check_length(&self.shape, input)?;
        let failed = |error: ort::Error| EngineError::Run(error.to_string());
        let view = TensorRef::from_array_view((self.shape, input)).map_err(failed)?;
        let results = self.session.run(ort::inputs![view]).map_err(failed)?;
        for (output, (_, value)) in self.outputs.iter_mut().zip(results.iter()) {
            let (shape, data) = value.try_extract_tensor::<f32>().map_err(failed)?;
            output.shape.clear();
            output.shape.extend(shape.iter().map(|&d| d as usize));
            output.data.clear();
            output.data.extend_from_slice(data);
        }
        Ok(&self.outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    /// Texts of ONNX Runtime 1.23.2.
    #[test]
    fn errors_of_the_library_become_one_line() {
        let missing = "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:1844 onnxruntime::Provider& \
                       onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
                       libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object \
                       file: No such file or directory\n";
        assert_eq!(
            plain(missing),
            "libcublasLt.so.12, which libonnxruntime_providers_cuda.so needs, is missing"
        );
        let other = "x.cc:1 [ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so \
                     with error: /x/libcublasLt.so.12: version `libcublasLt.so.12' not found";
        assert_eq!(
            plain(other),
            "libonnxruntime_providers_cuda.so cannot be loaded: /x/libcublasLt.so.12: version `libcublasLt.so.12' not found"
        );
        assert_eq!(
            plain("CUDA failure 35: CUDA driver version is\ninsufficient."),
            "CUDA failure 35: CUDA driver version is insufficient"
        );
        let gone = "[ONNXRuntimeError] : 1 : FAIL : Failed to load library /a/libx.so with error: /a/libx.so: cannot \
                    open shared object file: No such file or directory";
        assert_eq!(plain(gone), "/a/libx.so is missing");
    }
}
