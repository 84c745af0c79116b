//! A timer whose file descriptor becomes readable at a time of CLOCK_MONOTONIC, for event loops
//! whose own timers are rounded to a millisecond.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyclass(frozen, module = "takt._core")]
pub struct Timer(Mutex<Option<OwnedFd>>);

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        // Nothing that waits or calls Python is done while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, call: impl FnOnce(i32) -> PyResult<T>) -> PyResult<T> {
        match &*self.lock() {
            Some(fd) => call(fd.as_raw_fd()),
            None => Err(PyValueError::new_err("the timer is closed")),
        }
    }
}

#[pymethods]
impl Timer {
    #[new]
    fn new() -> PyResult<Self> {
        // SAFETY: it takes no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the call before has made it, and nobody else has it.
        Ok(Self(Mutex::new(Some(unsafe { OwnedFd::from_raw_fd(fd) }))))
    }

    fn fileno(&self) -> PyResult<i32> {
        self.with(Ok)
    }

    /// Readable from `at_ns` on, at once where that has passed.
    fn set(&self, at_ns: u64) -> PyResult<()> {
        // A time of zero would disarm it.
        let at_ns = at_ns.max(1);
        let at = libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
        };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = libc::itimerspec { it_interval: once, it_value: at };
        self.with(|fd| {
            // SAFETY: the first pointer is of a value that outlives the call, and no old one is
            // asked for.
            match unsafe { libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &time, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error().into()),
            }
        })
    }

    /// Not readable until the next time.
    fn clear(&self) -> PyResult<()> {
        let mut count = [0_u8; 8];
        self.with(|fd| {
            // SAFETY: the buffer has the 8 bytes that a timer gives.
            let read = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
            let error = io::Error::last_os_error();
            // Not yet readable is what was asked for.
            if read == 8 || error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error.into()) }
        })
    }

    fn close(&self) {
        *self.lock() = None;
    }
}
