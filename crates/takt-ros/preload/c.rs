//! What the probe calls of the C library, and texts without allocation: it lives in other people's
//! programs.

use std::ffi::{c_char, c_int, c_long, c_void};

unsafe extern "C" {
    pub fn getenv(name: *const c_char) -> *const c_char;
    pub fn getpid() -> c_int;
    pub fn gettid() -> c_int;
    pub fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    pub fn close(fd: c_int) -> c_int;
    pub fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize;
    pub fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize;
    pub fn unlink(path: *const c_char) -> c_int;
    pub fn mmap(at: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    pub fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    pub fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    pub fn posix_fallocate(fd: c_int, offset: i64, bytes: i64) -> c_int;
    pub fn clock_gettime(clock: c_int, to: *mut Timespec) -> c_int;
    pub fn prctl(option: c_int, ...) -> c_int;
    pub fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    pub fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_EXCL: c_int = 0o200;
pub const O_CLOEXEC: c_int = 0o2000000;
pub const PROT_BOTH: c_int = 3;
pub const MAP_SHARED: c_int = 1;
pub const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
pub const MAP_POPULATE: c_int = 0x8000;
pub const MADV_DONTFORK: c_int = 10;
pub const MADV_WIPEONFORK: c_int = 18;
pub const PR_GET_NAME: c_int = 16;
pub const CLOCK_MONOTONIC: c_int = 1;
pub const CLOCK_THREAD_CPUTIME: c_int = 3;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

#[inline]
pub fn clock(which: c_int) -> u64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { clock_gettime(which, &mut now) };
    (now.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(now.nanoseconds as u64)
}

/// Longest line on stderr.
const MAX_LINE: usize = 1024;

/// One line on stderr, and the program runs on unobserved.
pub fn complain(what: &[u8]) {
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let mut line = [0; MAX_LINE];
    let mut to = Appender { to: &mut line, used: 0 };
    to.bytes(b"takt probe: process ");
    // SAFETY: takes nothing.
    to.number(unsafe { getpid() } as u64, 10);
    to.bytes(b" is not observed, or not wholly: ");
    to.bytes(what);
    to.bytes(b" (error ");
    to.number(error as u64, 10);
    to.bytes(b")\n");
    let used = to.used;
    // SAFETY: the bytes are there.
    unsafe { write(2, line.as_ptr().cast(), used) };
}

/// Bytes of a C string; none of a null pointer.
///
/// # Safety
///
/// `text` is null or ends in zero.
pub unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    match text.is_null() {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes(),
    }
}

pub fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Start time of this process in clock ticks since boot: field 22 of `/proc/self/stat`.
pub fn start_ticks() -> u64 {
    let mut bytes = [0u8; 1024];
    // SAFETY: reads at most what the buffer holds.
    let count = unsafe {
        let fd = open(c"/proc/self/stat".as_ptr(), O_CLOEXEC, 0);
        if fd < 0 {
            return 0;
        }
        let count = read(fd, bytes.as_mut_ptr().cast(), bytes.len());
        close(fd);
        count
    };
    let read = bytes.get(..usize::try_from(count).unwrap_or(0)).unwrap_or(&[]);
    // The name in parentheses may contain anything; the rest starts with field 3.
    let Some(end) = read.iter().rposition(|&byte| byte == b')') else { return 0 };
    read[end + 1..]
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty())
        .nth(19)
        .and_then(number)
        .unwrap_or(0)
}

/// Puts bytes and numbers together without allocating; what does not fit is left out.
pub struct Appender<'a> {
    pub to: &'a mut [u8],
    pub used: usize,
}

impl Appender<'_> {
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // The last byte stays zero.
            if self.used + 1 < self.to.len() {
                self.to[self.used] = byte;
                self.used += 1;
            }
        }
    }

    pub fn number(&mut self, mut value: u64, base: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(value % base) as usize];
            value /= base;
            if value == 0 {
                break;
            }
        }
        self.bytes(&digits[first..]);
    }
}
