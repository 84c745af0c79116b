//! File systems of the kernel that are mounted for this process alone.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A file system of this kind (`tracefs`) that no directory of the system shows: `fsopen`,
/// `fsconfig`, `fsmount` (Linux 5.2). It is at `/proc/self/fd/N` while the descriptor is open.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; what the system says.
pub fn detached(kind: &CStr) -> io::Result<OwnedFd> {
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
    // SAFETY: the kind is a string with a NUL; the call writes nothing.
    let context = fd(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
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
