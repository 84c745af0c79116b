//! Processes that write to a kernel setting: fanotify names the process, for a reader with
//! CAP_SYS_ADMIN.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Writes to one file from now on.
#[derive(Debug)]
pub(super) struct Writers(OwnedFd);

impl Writers {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: it takes numbers alone.
        let group = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u32) };
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened for nobody else.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        // SAFETY: the path ends with a zero and lives through the call.
        let marked = unsafe {
            libc::fanotify_mark(
                group.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_MODIFY,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(group)) }
    }

    /// The last other process that wrote since the last call; 0: one of another PID namespace.
    pub(super) fn last(&self) -> Option<i32> {
        const SIZE: usize = size_of::<libc::fanotify_event_metadata>();
        let mut last = None;
        let mut events = [0_u8; 64 * SIZE];
        loop {
            // SAFETY: the kernel fills at most the buffer.
            let length = unsafe { libc::read(self.0.as_raw_fd(), events.as_mut_ptr().cast(), events.len()) };
            let Some(mut rest) = usize::try_from(length).ok().and_then(|length| events.get(..length)) else {
                return last;
            };
            while rest.len() >= SIZE {
                // SAFETY: so many bytes are there, of a plain structure that any bytes make.
                let event = unsafe { rest.as_ptr().cast::<libc::fanotify_event_metadata>().read_unaligned() };
                if event.fd >= 0 {
                    // SAFETY: the kernel opened it for this event.
                    drop(unsafe { OwnedFd::from_raw_fd(event.fd) });
                }
                if event.pid != std::process::id().cast_signed() {
                    last = Some(event.pid);
                }
                rest =
                    rest.get(event.event_len as usize..).filter(|_| event.event_len > 0).unwrap_or_default();
            }
            if length == 0 {
                return last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_wrote_is_named_and_oneself_is_not() {
        let path = Path::new(crate::reserve::ADMISSION_FILE);
        let writers = match Writers::of(path) {
            Ok(writers) => writers,
            Err(error) => return takt_witness::skip!("fanotify: {error}"),
        };
        assert_eq!(writers.last(), None);
        // The existing value is written once more.
        let now = std::fs::read_to_string(path).unwrap();
        if let Err(error) = std::fs::write(path, now.trim()) {
            return takt_witness::skip!("{error}");
        }
        assert_eq!(writers.last(), None);
        let mut other = std::process::Command::new("sh")
            .args(["-c", &format!("cat {0} >/dev/null; echo {1} >{0}", path.display(), now.trim())])
            .spawn()
            .unwrap();
        let pid = other.id().cast_signed();
        assert!(other.wait().unwrap().success());
        assert_eq!((writers.last(), writers.last()), (Some(pid), None));
    }
}
