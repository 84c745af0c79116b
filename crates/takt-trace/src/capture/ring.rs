//! The ring buffer that the kernel shares with the reader (perf_event_open(2), "MMAP layout").

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

/// A mapped ring buffer. The kernel writes at the head; we read and move the tail.
#[derive(Debug)]
pub(super) struct Ring {
    page: NonNull<perf_event_mmap_page>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping is shared with the kernel alone, and `drain` takes `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `data_bytes` (a power of two, whole pages) of the event `fd`.
    pub(super) fn map(fd: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes();
        // SAFETY: a new shared mapping of a descriptor that is open; nothing is replaced.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address) {
            Some(page) if address != libc::MAP_FAILED => {
                Ok(Self { page: page.cast(), page_bytes, data_bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped while `self` lives; the kernel and we use this word as an atomic.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as in `head`.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) }
    }

    /// Bytes that wait to be read.
    pub(super) fn waiting(&self) -> usize {
        let waiting = self.head().load(Ordering::Acquire).wrapping_sub(self.tail().load(Ordering::Relaxed));
        usize::try_from(waiting).unwrap_or(0).min(self.data_bytes)
    }

    /// Appends what waits to `out` and frees it: whole records, oldest first.
    pub(super) fn drain(&mut self, out: &mut Vec<u8>) {
        let tail = self.tail().load(Ordering::Relaxed);
        let count = self.waiting();
        let start = (tail % self.data_bytes as u64) as usize;
        let first = count.min(self.data_bytes - start);
        // SAFETY: the data area begins one page after the header and has `data_bytes`; the kernel does not write
        // between tail and head, which was loaded with acquire.
        let (front, back) = unsafe {
            let data = self.page.as_ptr().cast::<u8>().add(self.page_bytes);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, count - first),
            )
        };
        out.extend_from_slice(front);
        out.extend_from_slice(back);
        self.tail().store(tail + count as u64, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made, and nobody holds a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

/// The size of a page.
pub(super) fn page_bytes() -> usize {
    // SAFETY: takes an integer, returns one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
