//! tracefs, wherever it is: mounted, or opened for us alone.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// A tracefs to read.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    /// A mount that is attached nowhere and gone when this is closed.
    _detached: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds the mounted tracefs, or opens one without mounting it anywhere.
    pub(crate) fn open() -> Result<Self, TraceError> {
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            match fs::metadata(Path::new(root).join("events")) {
                Ok(_) => return Ok(Self { root: root.into(), _detached: None }),
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TraceError::refused("open tracefs", "", 0, source));
                }
                Err(_) => {}
            }
        }
        let mount = detached_mount().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TraceError::refused("fsopen(tracefs)", "", 0, source),
            _ => TraceError::NoTracefs { source },
        })?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        if let Err(source) = fs::metadata(root.join("events")) {
            return Err(TraceError::NoTracefs { source });
        }
        Ok(Self { root, _detached: Some(mount) })
    }

    /// The text of a file below the root.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.root.join(path))
    }

    /// What another user of ftrace has switched on.
    pub(crate) fn other_tracer(&self) -> Option<String> {
        let tracer = self.read("current_tracer").ok()?;
        if tracer.trim() != "nop" {
            return Some(format!("ftrace's tracer `{}` is on and adds its own latency", tracer.trim()));
        }
        let events = self.read("set_event").ok()?.lines().filter(|line| !line.starts_with('#')).count();
        (events > 0)
            .then(|| format!("another tracer records {events} ftrace events and adds its own latency"))
    }
}

/// `fsopen`, `fsconfig(CREATE)`, `fsmount` (Linux 5.2): no directory of the system changes.
fn detached_mount() -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    let fd = |rc: libc::c_long| -> io::Result<OwnedFd> {
        match libc::c_int::try_from(rc) {
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the name is a string with a NUL; the call writes nothing.
    let context = fd(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    let rc =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes integers alone.
    fd(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}
