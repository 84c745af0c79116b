//! Finding and opening the driver and the run-time compiler.
//!
//! Both are opened here, not by a binding crate: those that load on their own panic where a library
//! or a function is missing, know no version newer than themselves, and take the driver's answer as
//! an enumeration, which a newer driver's number breaks.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libloading::Library;
use libloading::os::unix::{self, RTLD_LOCAL, RTLD_NOW};
use takt_files::environment;

use crate::api::{Api, NEEDED};
use crate::error::{CudaVersion, GpuError};

/// Names a driver library in place of the system's. For tests on the emulated device, and drivers
/// in unusual places.
pub(crate) const CUDA_LIBRARY_VARIABLE: &str = "TAKT_CUDA_LIBRARY";
/// Names an NVRTC library in place of the system's.
pub(crate) const NVRTC_LIBRARY_VARIABLE: &str = "TAKT_NVRTC_LIBRARY";

/// Search paths of the driver: the loader's path, WSL, and images that mount it.
const DRIVERS: &[&str] =
    &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"];

/// Newest first; the one in use must not be of a newer major version than the driver, which
/// [`crate::Compiler`] sees to.
const COMPILERS: &[&str] = &[
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so",
    "/usr/local/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda/lib64/libnvrtc.so",
];

#[derive(Debug, Default)]
struct Paths {
    cuda: Option<PathBuf>,
    nvrtc: Option<PathBuf>,
}

static PATHS: Mutex<Paths> = Mutex::new(Paths { cuda: None, nvrtc: None });
static DRIVER: Mutex<Option<&'static Api>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Names the libraries for this process, before the environment's and the system's. Once the driver
/// is open, this is without effect on it: a process has one driver.
pub fn set_libraries(cuda: Option<PathBuf>, nvrtc: Option<PathBuf>) {
    *lock(&PATHS) = Paths { cuda, nvrtc };
}

fn candidates(chosen: Option<PathBuf>, variable: &str, usual: &[&str]) -> Vec<PathBuf> {
    match chosen
        .or_else(|| environment::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from))
    {
        Some(path) => vec![path],
        None => usual.iter().map(PathBuf::from).collect(),
    }
}

/// Opens the first of `paths` that there is, or shows what was said of each.
pub(crate) fn open_first(paths: &[PathBuf]) -> Result<Library, Vec<String>> {
    open_checked(paths, environment::check_library)
}

/// As [`open_first`]: what `check` returns is opened, and never the path that it was asked about,
/// which may lead elsewhere by then.
fn open_checked(
    paths: &[PathBuf],
    check: impl Fn(&Path) -> std::io::Result<PathBuf>,
) -> Result<Library, Vec<String>> {
    let mut looked = Vec::new();
    for path in paths {
        // A plain name is the dynamic linker's to find, which believes nobody in a program with
        // capabilities from its file.
        let found = match path.components().count() {
            0 | 1 => Ok(path.clone()),
            _ => check(path),
        };
        let path = match found {
            Ok(checked) => checked,
            Err(error) => {
                let missing = error.kind() == std::io::ErrorKind::NotFound;
                looked.push(if missing { path.display().to_string() } else { error.to_string() });
                continue;
            }
        };
        // SAFETY: the driver and NVRTC are meant to be opened so; their initialisers have no
        // conditions.
        match unsafe { unix::Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library.into()),
            Err(error) => {
                let text =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                let path = path.display().to_string();
                // A missing library is not worth a message; a missing dependency of it, or a broken
                // file, is.
                let missing = text.starts_with(&path) && text.contains("No such file");
                looked.push(if missing { path } else { format!("{path} ({text})") });
            }
        }
    }
    Err(looked)
}

pub(crate) fn compilers() -> Vec<PathBuf> {
    let chosen = lock(&PATHS).nvrtc.clone();
    let mut paths = candidates(chosen, NVRTC_LIBRARY_VARIABLE, COMPILERS);
    // A Python environment in use: `pip install nvidia-cuda-nvrtc-cu12` puts it there.
    if paths.len() > 1
        && let Some(environment) = environment::var_os("VIRTUAL_ENV")
        && let Ok(versions) = std::fs::read_dir(PathBuf::from(environment).join("lib"))
    {
        for version in versions.flatten() {
            let nvidia = version.path().join("site-packages/nvidia");
            paths.push(nvidia.join("cu13/lib/libnvrtc.so.13"));
            paths.push(nvidia.join("cuda_nvrtc/lib/libnvrtc.so.12"));
        }
    }
    paths
}

/// The driver, opened at the first call; a failure is tried anew at the next.
pub(crate) fn driver() -> Result<&'static Api, GpuError> {
    let mut driver = lock(&DRIVER);
    if let Some(api) = *driver {
        return Ok(api);
    }
    let chosen = lock(&PATHS).cuda.clone();
    let paths = candidates(chosen, CUDA_LIBRARY_VARIABLE, DRIVERS);
    let library = open_first(&paths).map_err(|looked| GpuError::NoDriver { looked })?;
    let version = version_of(&library)?;
    if version < NEEDED {
        return Err(GpuError::DriverTooOld { has: version, needs: NEEDED, missing: None });
    }
    let api = Api::resolve(library, version)?;
    // Never closed: the driver keeps threads of its own.
    let api: &'static Api = Box::leak(Box::new(api));
    // SAFETY: initialising has no conditions.
    let code = Api::when_mps_is_ready(|| unsafe { (api.init)(0) });
    match code {
        0 => {}
        100 => return Err(GpuError::NoDevice { ordinal: 0, count: 0 }),
        _ => return Err(api.refused("cuInit", code)),
    }
    *driver = Some(api);
    Ok(api)
}

fn version_of(library: &Library) -> Result<CudaVersion, GpuError> {
    let mut version = 0;
    let too_old = |missing| GpuError::DriverTooOld { has: CudaVersion(0), needs: NEEDED, missing };
    // SAFETY: the type is that of the driver's documentation, unchanged since CUDA 2.2.
    let function = unsafe {
        library.get::<unsafe extern "C" fn(*mut i32) -> u32>(c"cuDriverGetVersion".to_bytes_with_nul())
    };
    let function = function.map_err(|_| too_old(Some("cuDriverGetVersion")))?;
    // SAFETY: `version` is valid for writing; the function may be called before `cuInit`.
    match unsafe { function(&raw mut version) } {
        0 => Ok(CudaVersion(version)),
        code => {
            Err(GpuError::Call { name: "cuDriverGetVersion", code, text: "before initialisation".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_the_only_candidate() {
        let chosen = candidates(Some("/x/libcuda.so".into()), "TAKT_NO_SUCH_VARIABLE", DRIVERS);
        assert_eq!(chosen, [PathBuf::from("/x/libcuda.so")]);
        assert_eq!(candidates(None, "TAKT_NO_SUCH_VARIABLE", DRIVERS).len(), DRIVERS.len());
    }

    #[test]
    fn what_was_looked_for_is_reported_and_a_broken_library_too() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libcuda.so.1");
        std::fs::write(&broken, "no library").unwrap();
        let looked = open_first(&[folder.path().join("missing.so"), broken]).unwrap_err();
        assert!(looked[0].ends_with("missing.so"), "{looked:?}");
        assert!(looked[1].contains("libcuda.so.1 ("), "{looked:?}");
    }

    #[test]
    fn what_was_checked_is_opened_though_the_path_leads_elsewhere_by_then() {
        // A library that this process has open anyway.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let library =
            library.map(Path::new).find(|path| path.ends_with("libc.so.6") || path.ends_with("libm.so.6"));
        let Some(library) = library else { return };
        let folder = tempfile::tempdir().unwrap();
        let (link, planted) = (folder.path().join("libcuda.so.1"), folder.path().join("planted.so"));
        std::fs::write(&planted, "no library: what is opened here fails").unwrap();
        let lead = |to: &Path| {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(to, &link).unwrap();
        };
        lead(library);
        let check = |path: &Path| {
            let checked = path.canonicalize()?;
            // In between somebody swaps it.
            lead(&planted);
            Ok(checked)
        };
        assert!(open_checked(std::slice::from_ref(&link), check).is_ok(), "what was checked is a library");
        assert!(open_checked(&[link], |path| Ok(path.to_path_buf())).is_err(), "what is there now is none");
    }
}
