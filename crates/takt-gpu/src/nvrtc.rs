//! The run-time compiler.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;

use libloading::Library;

use crate::error::{CudaVersion, GpuError};
use crate::library;
use crate::source::Source;

type Program = *mut c_void;

macro_rules! compiler_functions {
    ($($field:ident = $symbol:literal ($($type:ty),*);)*) => {
        #[derive(Debug)]
        struct Functions {
            $($field: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl Functions {
            fn resolve(library: &Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the type is that of NVRTC's documentation, unchanged since CUDA 11.2.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) -> u32>(concat!($symbol, "\0").as_bytes())
                    }
                    .map_err(|_| $symbol)?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

compiler_functions! {
    version = "nvrtcVersion"(*mut c_int, *mut c_int);
    architecture_count = "nvrtcGetNumSupportedArchs"(*mut c_int);
    architectures = "nvrtcGetSupportedArchs"(*mut c_int);
    create = "nvrtcCreateProgram"(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    compile = "nvrtcCompileProgram"(Program, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize"(Program, *mut usize);
    log = "nvrtcGetProgramLog"(Program, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize"(Program, *mut usize);
    cubin = "nvrtcGetCUBIN"(Program, *mut c_char);
    ptx_size = "nvrtcGetPTXSize"(Program, *mut usize);
    ptx = "nvrtcGetPTX"(Program, *mut c_char);
    destroy = "nvrtcDestroyProgram"(*mut Program);
}

/// NVRTC, opened.
#[derive(Debug)]
pub struct Compiler {
    functions: Functions,
    version: (i32, i32),
    architectures: Vec<u32>,
    emulated: bool,
    path: std::path::PathBuf,
    // Behind the functions that are in it.
    _library: Library,
}

/// A compiled kernel source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    bytes: Vec<u8>,
}

impl Compiled {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// A cubin, or PTX text where the compiler does not know the device.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// NVRTC is not instructed to be safe for concurrent use before CUDA 12; compiling is for the
/// start.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Compiler {
    /// The first compiler that is found.
    ///
    /// # Errors
    /// [`GpuError::NvrtcMissing`] with what was looked for.
    pub fn open() -> Result<Self, GpuError> {
        Self::first(|_| None)
    }

    /// The first compiler that is found and whose code `driver` takes.
    pub(crate) fn for_driver(driver: CudaVersion, emulated: bool) -> Result<Self, GpuError> {
        Self::first(|compiler| {
            let (major, minor) = compiler.version;
            if compiler.emulated != emulated {
                let of = |emulated| if emulated { "the emulated device" } else { "real GPUs" };
                return Some(format!(
                    "is for {}, but this program is for {}",
                    of(compiler.emulated),
                    of(emulated)
                ));
            }
            (major > driver.major())
                .then(|| format!("is for CUDA {major}.{minor}, but the driver supports {driver}"))
        })
    }

    /// All compilers that are found and compile for real GPUs, one of each version; those of the
    /// emulated device where it is named.
    pub fn all() -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for path in library::compilers() {
            let Ok(library) = library::open_first(std::slice::from_ref(&path)) else { continue };
            let Ok(compiler) = Self::of(library, &path) else { continue };
            if found.iter().all(|known| known.version != compiler.version) {
                found.push(compiler);
            }
        }
        found
    }

    fn first(refuse: impl Fn(&Self) -> Option<String>) -> Result<Self, GpuError> {
        let mut looked = Vec::new();
        for path in library::compilers() {
            let opened = library::open_first(std::slice::from_ref(&path)).and_then(|library| {
                let compiler = Self::of(library, &path)
                    .map_err(|reason| vec![format!("{} ({reason})", path.display())])?;
                match refuse(&compiler) {
                    None => Ok(compiler),
                    Some(reason) => Err(vec![format!("{} ({reason})", path.display())]),
                }
            });
            match opened {
                Ok(compiler) => return Ok(compiler),
                Err(reasons) => looked.extend(reasons),
            }
        }
        Err(GpuError::NvrtcMissing { looked })
    }

    fn of(library: Library, path: &std::path::Path) -> Result<Self, String> {
        let functions = Functions::resolve(&library)
            .map_err(|symbol| format!("has no {symbol}: older than CUDA 11.2"))?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: valid places for the answers.
        let codes = unsafe {
            [
                (functions.version)(&raw mut major, &raw mut minor),
                (functions.architecture_count)(&raw mut count),
            ]
        };
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: as long as the compiler said.
        let last = unsafe { (functions.architectures)(architectures.as_mut_ptr()) };
        if codes != [0, 0] || last != 0 {
            return Err(format!("does not report its version: NVRTC errors {codes:?}, {last}"));
        }
        let mut architectures: Vec<u32> =
            architectures.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
        architectures.sort_unstable();
        // SAFETY: only looked for, never read.
        let emulated = unsafe { library.get::<*const c_void>(b"takt_emulated_compiler\0") }.is_ok();
        let (version, path) = ((major, minor), path.to_owned());
        Ok(Self { functions, version, architectures, emulated, path, _library: library })
    }

    /// Its version, `(12, 4)`.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Its library, as it was opened.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// It is that of the emulated device.
    pub fn is_emulated(&self) -> bool {
        self.emulated
    }

    /// The option for a device of `capability`: machine code for that very device, or, where this
    /// compiler does not know it, PTX of the nearest older one, which the driver compiles.
    pub(crate) fn architecture(&self, (major, minor): (u32, u32)) -> Option<String> {
        let wanted = major * 10 + minor;
        let nearest = self.architectures.iter().rev().find(|&&known| known <= wanted)?;
        let kind = if *nearest == wanted { "sm" } else { "compute" };
        Some(format!("--gpu-architecture={kind}_{nearest}"))
    }

    /// Inputs of the outcome besides source and options.
    pub(crate) fn identity(&self) -> String {
        let (major, minor) = self.version;
        if self.emulated {
            // Its folder is named after what it was made from.
            return format!("emulated {}", self.path.display());
        }
        format!("{major}.{minor}")
    }

    /// Compiles `source` for a device of `capability`.
    ///
    /// # Errors
    /// [`GpuError::Compile`] with the compiler's log.
    pub fn compile(&self, source: &Source, capability: (u32, u32)) -> Result<Compiled, GpuError> {
        let failed = |log: String| GpuError::Compile { kernel: source.name.to_owned(), log };
        let architecture = self.architecture(capability).ok_or_else(|| {
            failed(format!(
                "the device has compute capability {}.{}, but NVRTC {} starts at {:?}. Fix: use an older NVRTC",
                capability.0,
                capability.1,
                self.identity(),
                self.architectures.first()
            ))
        })?;
        self.compile_as(source, &architecture)
    }

    /// Compiles `source` to PTX for devices of `capability` and newer, which the driver compiles to
    /// machine code.
    ///
    /// # Errors
    /// [`GpuError::Compile`] with the compiler's log.
    pub(crate) fn compile_ptx(
        &self,
        source: &Source,
        (major, minor): (u32, u32),
    ) -> Result<Compiled, GpuError> {
        self.compile_as(source, &format!("--gpu-architecture=compute_{}", major * 10 + minor))
    }

    fn compile_as(&self, source: &Source, architecture: &str) -> Result<Compiled, GpuError> {
        let failed = |log: String| GpuError::Compile { kernel: source.name.to_owned(), log };
        let text = |text: &str| CString::new(text).map_err(|_| failed("a NUL in the text".to_owned()));
        let (program_text, name) = (text(source.text)?, text(&format!("{}.cu", source.name))?);
        let mut options = vec![text(architecture)?, text("--std=c++17")?];
        for option in source.options {
            options.push(text(option)?);
        }
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();

        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut program = std::ptr::null_mut();
        // SAFETY: texts that end with NUL and outlive the call; no headers.
        let code = unsafe {
            (self.functions.create)(
                &raw mut program,
                program_text.as_ptr(),
                name.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        if code != 0 {
            return Err(failed(format!("NVRTC error {code} before compiling")));
        }
        // SAFETY: the program is there; the options outlive the call.
        let code = unsafe { (self.functions.compile)(program, options.len() as c_int, options.as_ptr()) };
        let log = self.read(program, self.functions.log_size, self.functions.log).unwrap_or_default();
        let bytes = if code != 0 {
            let log = String::from_utf8_lossy(&log);
            Err(failed(format!("NVRTC error {code}: {}", log.trim_end_matches(['\0', '\n']))))
        } else if architecture.contains("=sm_") {
            self.read(program, self.functions.cubin_size, self.functions.cubin)
                .map_err(|code| failed(format!("NVRTC error {code} for the cubin")))
        } else {
            self.read(program, self.functions.ptx_size, self.functions.ptx)
                .map_err(|code| failed(format!("NVRTC error {code} for the PTX")))
        };
        // SAFETY: made above, not used any more.
        unsafe { (self.functions.destroy)(&raw mut program) };
        bytes.map(Compiled::new)
    }

    fn read(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> u32,
        get: unsafe extern "C" fn(Program, *mut c_char) -> u32,
    ) -> Result<Vec<u8>, u32> {
        let mut bytes = 0;
        // SAFETY: a valid place for the answer; the program is there.
        match unsafe { size(program, &raw mut bytes) } {
            0 => {}
            code => return Err(code),
        }
        let mut data = vec![0u8; bytes];
        // SAFETY: as long as the compiler said.
        match unsafe { get(program, data.as_mut_ptr().cast()) } {
            0 => Ok(data),
            code => Err(code),
        }
    }
}
