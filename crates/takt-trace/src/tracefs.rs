//! tracefs, wherever it is: mounted, or opened for us alone.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use takt_files::rights::reading;
use takt_rt::mount;

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
            match reading(|| fs::metadata(Path::new(root).join("events"))) {
                Ok(_) => return Ok(Self { root: root.into(), _detached: None }),
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TraceError::refused("open tracefs", "", 0, source));
                }
                Err(_) => {}
            }
        }
        let mount = mount::detached(c"tracefs").map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TraceError::refused("fsopen(tracefs)", "", 0, source),
            _ => TraceError::NoTracefs { source },
        })?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        if let Err(source) = reading(|| fs::metadata(root.join("events"))) {
            return Err(TraceError::NoTracefs { source });
        }
        Ok(Self { root, _detached: Some(mount) })
    }

    /// The text of a file below the root.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        reading(|| fs::read_to_string(self.root.join(path)))
    }

    /// Events or tracers that another user of ftrace has switched on.
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
