//! Order of the work of several *programs* on one device besides their own streams: the
//! Multi-Process Service, and time slices.
//!
//! To programs the driver gives the device by turns. Under MPS (`nvidia-cuda-mps-control -d`) their
//! work runs side by side, stream priorities count across programs, and a program can be held to a
//! share of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; NVIDIA, "Multi-Process
//! Service", sections 2.3 and 4.2). Both are read by the driver when a program makes its first
//! call, so they are environment of a process, never a setting of a running one.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Variable with which programs find the service.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Most of the multiprocessors that a program may use, per cent.
pub const SHARE_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// Most of the devices' memory that a program may take, such as `0=512M`.
pub const MEMORY_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// Variable for the folder of the service's logs.
pub(crate) const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";

/// All that a program is reported by.
pub const VARIABLES: [&str; 3] = [PIPE_VARIABLE, SHARE_VARIABLE, MEMORY_VARIABLE];

/// Default path.
const USUAL_PIPE: &str = "/tmp/nvidia-mps";

/// Whether the service can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mps {
    /// Its control pipe is there.
    Running(PathBuf),
    /// It is not.
    Absent(PathBuf),
}

impl fmt::Display for Mps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(pipe) => write!(f, "MPS runs ({})", pipe.display()),
            Self::Absent(pipe) => write!(
                f,
                "MPS is not running (no pipe {}/control). Fix: start `nvidia-cuda-mps-control -d` as the user of the runs, or set \
                 {PIPE_VARIABLE} if its pipe is elsewhere",
                pipe.display()
            ),
        }
    }
}

/// Whether programs started here would find the service.
pub fn look() -> Mps {
    let named = takt_files::environment::var_os(PIPE_VARIABLE).filter(|value| !value.is_empty());
    look_in(&named.map_or_else(|| PathBuf::from(USUAL_PIPE), PathBuf::from))
}

pub(crate) fn look_in(pipe: &Path) -> Mps {
    // A named pipe: a folder that was left behind has none, or a plain file.
    let control = std::fs::metadata(pipe.join("control"));
    match control.is_ok_and(|data| data.file_type().is_fifo() || data.file_type().is_socket()) {
        true => Mps::Running(pipe.to_owned()),
        false => Mps::Absent(pipe.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_left_behind_is_no_service() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(look_in(folder.path()), Mps::Absent(_)));
        std::fs::write(folder.path().join("control"), "").unwrap();
        let absent = look_in(folder.path()).to_string();
        assert!(absent.contains("nvidia-cuda-mps-control"), "{absent}");
        std::fs::remove_file(folder.path().join("control")).unwrap();
        let path = std::ffi::CString::new(folder.path().join("control").to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert!(matches!(look_in(folder.path()), Mps::Running(_)));
    }
}
