//! The emulated device, for tests: a driver library in which device memory is host memory, streams
//! are threads, and kernels are the same text compiled by `c++`. It does in order and in parallel
//! what a GPU would, so that everything on the host's side (uploads, graphs, events, budgets, lost
//! devices) runs where no GPU is. It says nothing about a GPU's speed, and nothing chooses it by
//! itself: a test calls [`Emulator::use_here`], or starts a child with [`Emulator::environment`].
//!
//! ```
//! let Some((gpu, emulator)) = takt_gpu::testing::open() else { return };
//! assert!(gpu.info().emulated);
//! emulator.plant("lost=1");
//! // The next kernel poisons the context.
//! # emulator.plant("reset=1");
//! ```
//!
//! Kernels may use what `emulator/device.h` has of CUDA C: no `__syncthreads`, no warp functions.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;
use sha2::{Digest, Sha256};

use crate::gpu::Gpu;
use crate::library::{CUDA_LIBRARY_VARIABLE, NVRTC_LIBRARY_VARIABLE, set_libraries};

const SOURCES: [(&str, &str); 3] = [
    ("libcuda.cpp", include_str!("../emulator/libcuda.cpp")),
    ("nvrtc.cpp", include_str!("../emulator/nvrtc.cpp")),
    ("device.h", include_str!("../emulator/device.h")),
];

/// Stand-ins for the driver's tools.
const TOOLS: [(&str, &str); 2] = [
    ("nvidia-cuda-mps-control", include_str!("../emulator/tools/nvidia-cuda-mps-control")),
    ("nvidia-smi", include_str!("../emulator/tools/nvidia-smi")),
];

/// File in which the emulated device notes each program that opens it, with what MPS would have
/// reported it: `PID mps pipe=… share=… memory=…`, or `alone` where there is no service.
pub const CLIENTS_VARIABLE: &str = "TAKT_EMULATOR_CLIENTS";

/// Environment variable in which a child's faults are planted; what it takes is in
/// `emulator/libcuda.cpp`.
pub const FAULTS_VARIABLE: &str = "TAKT_EMULATOR";

/// The compiled emulated device.
#[derive(Debug)]
pub struct Emulator {
    folder: PathBuf,
    library: OnceLock<Library>,
}

/// Reason why there is no emulated device.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// No compiler, or it could not be run.
    #[error("c++: {0}")]
    NoCompiler(std::io::Error),
    /// The compiler refused the source.
    #[error("c++ {source_file}: {output}")]
    NotCompiled { source_file: &'static str, output: String },
    /// A file beside the tests could not be written.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// Compiles the emulated device, once for all processes.
///
/// # Errors
/// Reason why it cannot be compiled here.
pub fn emulator() -> Result<&'static Emulator, &'static EmulatorError> {
    static EMULATOR: OnceLock<Result<Emulator, EmulatorError>> = OnceLock::new();
    EMULATOR.get_or_init(|| Ok(Emulator { folder: build()?, library: OnceLock::new() })).as_ref()
}

/// Opens the emulated device in this process. `None`, with the reason printed, where it cannot be
/// compiled.
///
/// # Panics
/// It cannot be compiled although `TAKT_REQUIRE_OUTSIDE=1` requires it, or it compiles but cannot
/// be opened.
pub fn open() -> Option<(Gpu, &'static Emulator)> {
    let emulator = match emulator() {
        Ok(emulator) => emulator,
        Err(reason) => {
            assert!(
                std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|v| v != "1"),
                "emulated device: {reason}"
            );
            eprintln!("SKIPPED: emulated device: {reason}");
            return None;
        }
    };
    emulator.use_here();
    match Gpu::open(0) {
        Ok(gpu) => Some((gpu, emulator)),
        Err(error) => panic!("the emulated device cannot be opened: {error}"),
    }
}

impl Emulator {
    /// The driver library.
    pub fn cuda(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    /// The run-time compiler.
    pub fn nvrtc(&self) -> PathBuf {
        self.folder.join("libnvrtc.so")
    }

    /// Folder with stand-ins for `nvidia-cuda-mps-control` and `nvidia-smi`, for a child's PATH.
    pub fn tools(&self) -> PathBuf {
        self.folder.join("tools")
    }

    /// Makes it this process's driver, if none is open yet.
    pub fn use_here(&self) {
        set_libraries(Some(self.cuda()), Some(self.nvrtc()));
    }

    /// Environment for a child process that is to use it, with `faults` planted from the start
    /// (`""`: none).
    pub fn environment(&self, faults: &str) -> [(&'static str, OsString); 3] {
        [
            (CUDA_LIBRARY_VARIABLE, self.cuda().into()),
            (NVRTC_LIBRARY_VARIABLE, self.nvrtc().into()),
            (FAULTS_VARIABLE, faults.into()),
        ]
    }

    /// Plants faults in this process's device: `"hang=*:200"`, `"lost=3,slow=2.5"`, `"reset=1"`. A
    /// handle that has seen the device lost stays so; open another after a reset.
    ///
    /// # Panics
    /// When the library does not load.
    pub fn plant(&self, faults: &str) {
        let text = CString::new(faults).unwrap_or_default();
        // SAFETY: the type is that of the source; the text ends with NUL.
        unsafe {
            match self.library().get::<unsafe extern "C" fn(*const c_char)>(b"takt_emulator_plant\0") {
                Ok(plant) => plant(text.as_ptr()),
                Err(error) => panic!("emulated device: {error}"),
            }
        }
    }

    /// Counter of this process's device: `launches`, `graph_launches`, `kernels`, `copies`,
    /// `copied_bytes`, `used_bytes`, `allocations`, `host_memory`, `streams`, `contexts`, `waiting`
    /// (kernels that wait for the engine), `holding` (kernels that hang).
    ///
    /// # Panics
    /// When the library does not load, or for a count that there is not.
    pub fn count(&self, name: &str) -> u64 {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: as in `plant`.
        let count = unsafe {
            match self.library().get::<unsafe extern "C" fn(*const c_char) -> u64>(b"takt_emulator_count\0") {
                Ok(count) => count(text.as_ptr()),
                Err(error) => panic!("emulated device: {error}"),
            }
        };
        assert_ne!(count, u64::MAX, "the emulated device does not count `{name}`");
        count
    }

    fn library(&self) -> &Library {
        self.library.get_or_init(|| {
            // SAFETY: our own library; its initialiser reads an environment variable.
            match unsafe { Library::new(self.cuda()) } {
                Ok(library) => library,
                Err(error) => panic!("emulated device: {error}"),
            }
        })
    }
}

fn build() -> Result<PathBuf, EmulatorError> {
    let mut hash = Sha256::new();
    SOURCES.iter().chain(&TOOLS).for_each(|(_, text)| hash.update(text));
    let short: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    // Beside the tests: of the same user, and gone with them.
    let program = std::env::current_exe()
        .map_err(|source| EmulatorError::Io { path: "/proc/self/exe".into(), source })?;
    let base = program.parent().unwrap_or(Path::new(".")).join("takt-emulated-device");
    let folder = base.join(&short);
    if folder.join("libnvrtc.so").exists() {
        return Ok(folder);
    }
    let stamp = takt_rt::clock::monotonic_ns();
    let draft = base.join(format!("{short}-{}-{stamp}", std::process::id()));
    let io = |source| EmulatorError::Io { path: draft.clone(), source };
    std::fs::create_dir_all(&draft).map_err(io)?;
    for (name, text) in SOURCES {
        std::fs::write(draft.join(name), text).map_err(io)?;
    }
    let tools = draft.join("tools");
    std::fs::create_dir_all(&tools).map_err(io)?;
    for (name, text) in TOOLS {
        let path = tools.join(name);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::write(&path, text).and_then(|()| std::fs::set_permissions(&path, executable)).map_err(io)?;
    }
    for (source, library) in [("libcuda.cpp", "libcuda.so.1"), ("nvrtc.cpp", "libnvrtc.so")] {
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-o", library, source, "-ldl"]);
        let output = command.current_dir(&draft).output().map_err(EmulatorError::NoCompiler)?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(EmulatorError::NotCompiled { source_file: source, output });
        }
    }
    // Whole or not at all; of two that build at once, the second finds the first's.
    if let Err(source) = std::fs::rename(&draft, &folder) {
        let _ = std::fs::remove_dir_all(&draft);
        if !folder.join("libnvrtc.so").exists() {
            return Err(EmulatorError::Io { path: folder, source });
        }
    }
    Ok(folder)
}
