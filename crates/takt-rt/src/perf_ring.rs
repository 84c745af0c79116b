//! The ring buffer in which the kernel hands over events (perf_event_open(2), "MMAP layout"), read without a system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the kernel's ABI puts the two positions in the first page (`struct perf_event_mmap_page`).
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// A mapped ring buffer. The kernel writes at the head; we read and move the tail.
#[derive(Debug)]
pub struct PerfRing {
    page: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping is shared with the kernel alone, and `drain` takes `&mut self`.
unsafe impl Send for PerfRing {}

fn page_bytes() -> usize {
    // SAFETY: takes an integer, returns one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The size of a buffer of at least `bytes`: a power of two of whole pages, as the kernel wants it.
#[must_use]
pub fn buffer_bytes(bytes: usize) -> usize {
    bytes.max(page_bytes()).checked_next_power_of_two().unwrap_or(usize::MAX)
}

impl PerfRing {
    /// Maps the buffer of the event `fd`, of [`buffer_bytes`].
    ///
    /// # Errors
    ///
    /// The kernel refuses: `EPERM` beyond the memory that a user may lock, `EINVAL` where the event has no buffer.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let (page_bytes, data_bytes) = (page_bytes(), buffer_bytes(bytes));
        let whole = page_bytes.checked_add(data_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new shared mapping of a descriptor that is open; nothing is replaced.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
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

    /// Size of the buffer.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped while `self` lives, is longer than both places and aligned for them; the kernel and we use
        // these words as atomics.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().add(at).cast()) }
    }

    /// Bytes that wait to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let waiting = head.wrapping_sub(self.position(TAIL).load(Ordering::Relaxed));
        usize::try_from(waiting).unwrap_or(usize::MAX).min(self.data_bytes)
    }

    /// Appends what waits to `out` and frees it: whole records, oldest first.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        let count = self.waiting();
        let start = (tail % self.data_bytes as u64) as usize;
        let first = count.min(self.data_bytes - start);
        // SAFETY: the data area begins one page after the header and has `data_bytes`; the kernel does not write
        // between tail and head, which was loaded with acquire.
        let (front, back) = unsafe {
            let data = self.page.as_ptr().add(self.page_bytes);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, count - first),
            )
        };
        out.extend_from_slice(front);
        out.extend_from_slice(back);
        self.position(TAIL).store(tail.wrapping_add(count as u64), Ordering::Release);
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made, and nobody holds a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file in memory in the place of the kernel.
    fn file(bytes: u64) -> File {
        // SAFETY: the name is a C string; the descriptor is ours.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0)) };
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn what_was_written_is_read_once_and_in_order_round_the_end() {
        let page = 4096;
        let file = file(page + page);
        let mut ring = PerfRing::map(file.as_fd(), 100).unwrap();
        assert_eq!(ring.data_bytes() as u64, page);
        let mut head: u64 = 0;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for round in 0..20_u8 {
            let record = [round; 1000];
            for byte in record {
                file.write_all_at(&[byte], page + head % page).unwrap();
                head += 1;
            }
            file.write_all_at(&head.to_ne_bytes(), HEAD as u64).unwrap();
            written.extend(record);
            assert_eq!(ring.waiting(), 1000);
            ring.drain(&mut read);
            assert_eq!(ring.waiting(), 0);
        }
        assert_eq!(read, written);
        let mut tail = [0; 8];
        file.read_exact_at(&mut tail, TAIL as u64).unwrap();
        assert_eq!(u64::from_ne_bytes(tail), head, "the kernel is told what is free");
        // A head beyond all sense reads no further than the buffer.
        file.write_all_at(&u64::MAX.to_ne_bytes(), HEAD as u64).unwrap();
        let before = read.len();
        ring.drain(&mut read);
        assert_eq!(read.len() - before, ring.data_bytes());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn what_cannot_be_mapped_is_an_error() {
        let file = file(4096);
        assert!(PerfRing::map(file.as_fd(), usize::MAX).is_err());
        let directory = File::open("/").unwrap();
        assert!(PerfRing::map(directory.as_fd(), 4096).is_err());
    }
}
