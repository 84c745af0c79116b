//! The system calls of this crate, each in one place. `takt-rt` has more of them; this crate stands
//! alone, because programs of others are linked with it.

use std::ffi::CStr;
use std::ptr::NonNull;

use crate::error::{Error, errno};

/// `MFD_NOEXEC_SEAL` of linux/memfd.h: kernels from 6.3 on warn without it.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

/// CLOCK_MONOTONIC, nanoseconds. Reads the clock without entering the kernel where the machine's
/// clock can be read so.
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a timespec that lives here; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Never negative: it counts from the boot.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Sleeps until `at_ns` of CLOCK_MONOTONIC; a signal does not end it.
pub(crate) fn sleep_until(at_ns: u64) {
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    let sleep = || {
        // SAFETY: reads a timespec that outlives the call; the time is absolute, so nothing is
        // written.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const at,
                std::ptr::null_mut(),
            )
        }
    };
    while sleep() == libc::EINTR {}
}

/// The calling thread, as this process numbers it.
pub(crate) fn own_tid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Registers handlers of fork(2).
pub(crate) fn at_fork(
    before: extern "C" fn(),
    in_the_parent: extern "C" fn(),
    in_the_child: extern "C" fn(),
) -> Result<(), Error> {
    // SAFETY: three functions that live as long as the library; a library that is unloaded takes
    // its handlers with it (`__dso_handle`).
    let outcome = unsafe { libc::pthread_atfork(Some(before), Some(in_the_parent), Some(in_the_child)) };
    match outcome {
        0 => Ok(()),
        errno => Err(Error::Memory { what: "pthread_atfork", errno }),
    }
}

/// An anonymous file of `bytes` bytes that can neither shrink nor grow.
pub(crate) fn sealed_memory(name: &CStr, bytes: usize) -> Result<libc::c_int, Error> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let mut file = unsafe { libc::memfd_create(name.as_ptr(), flags | MFD_NOEXEC_SEAL) };
    if file < 0 && errno() == libc::EINVAL {
        // SAFETY: as above.
        file = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    }
    if file < 0 {
        return Err(Error::Memory { what: "memfd_create", errno: errno() });
    }
    let failed = |what| {
        let errno = errno();
        close(file);
        Err(Error::Memory { what, errno })
    };
    // SAFETY: changes the size of a file that is this function's own.
    if unsafe { libc::ftruncate(file, bytes as libc::off_t) } != 0 {
        return failed("ftruncate");
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: adding seals touches no memory.
    if unsafe { libc::fcntl(file, libc::F_ADD_SEALS, seals) } != 0 {
        return failed("sealing the memory");
    }
    Ok(file)
}

/// Maps a part of a file, shared.
pub(crate) fn map(file: libc::c_int, offset: usize, bytes: usize) -> Result<NonNull<u8>, Error> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, offset as libc::off_t)
    };
    match NonNull::new(base.cast::<u8>()) {
        Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(base),
        _ => Err(Error::Memory { what: "mmap", errno: errno() }),
    }
}

/// Puts empty pages of this process alone in the place of a mapping. Called in a forked child.
pub(crate) fn empty(base: *mut u8, bytes: usize) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the range is a mapping that this crate made, which holds atomics alone: whoever has a
    // reference into it finds zeros, which are valid.
    unsafe { libc::mmap(base.cast(), bytes, protection, flags, -1, 0) };
}

/// Device and inode of an open file; `None` where it is none.
pub(crate) fn identity(file: libc::c_int) -> Option<(u64, u64)> {
    let mut data = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the structure outlives the call.
    if unsafe { libc::fstat(file, data.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it in.
    let data = unsafe { data.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "these have other types on other machines")]
    Some((data.st_dev as u64, data.st_ino as u64))
}

/// Closes a descriptor of this crate's own.
pub(crate) fn close(file: libc::c_int) {
    // SAFETY: the caller owns it and uses it no more.
    unsafe { libc::close(file) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_and_a_sleep_is_never_short() {
        let begin = now_ns();
        sleep_until(begin + 2_000_000);
        assert!(now_ns() >= begin + 2_000_000);
        sleep_until(0);
    }

    #[test]
    fn the_memory_is_sealed() {
        let file = sealed_memory(c"test", 4096).unwrap();
        // SAFETY: a descriptor of this test.
        assert_ne!(unsafe { libc::ftruncate(file, 0) }, 0);
        // SAFETY: as above.
        assert_ne!(unsafe { libc::ftruncate(file, 8192) }, 0);
        assert!(map(file, 0, 4096).is_ok() && identity(file).is_some());
        close(file);
        assert!(identity(file).is_none() && map(-1, 0, 4096).is_err());
    }
}
