//! The ring buffer in which the kernel hands over events (perf_event_open(2), "MMAP layout"), read
//! without a system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets of the two positions in the first page, as the kernel's ABI defines them
/// (`struct perf_event_mmap_page`).
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
    /// The kernel refuses: `EPERM` beyond the memory that a user may lock, `EINVAL` where the event
    /// has no buffer.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map_as(fd, bytes, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps the buffer of the event `fd`, in which the newest events overwrite the oldest: a flight
    /// recorder, read by [`Self::newest`]. The event is one with `write_backward`.
    ///
    /// # Errors
    ///
    /// As [`Self::map`].
    pub fn map_overwritten(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        // The read-only mapping informs the kernel that the tail cannot be written.
        Self::map_as(fd, bytes, libc::PROT_READ)
    }

    fn map_as(fd: BorrowedFd<'_>, bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        let (page_bytes, data_bytes) = (page_bytes(), buffer_bytes(bytes));
        let whole = page_bytes.checked_add(data_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new shared mapping of a descriptor that is open; nothing is replaced.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), whole, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
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
        // SAFETY: the page is mapped while `self` lives, is longer than both places and aligned for
        // them; the kernel and we use these words as atomics.
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
        // SAFETY: the data area begins one page after the header and has `data_bytes`; the kernel
        // does not write between tail and head, which was loaded with acquire.
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

    /// Of a ring that is overwritten: whether the oldest records are gone.
    #[must_use]
    pub fn has_forgotten(&self) -> bool {
        self.position(HEAD).load(Ordering::Acquire).wrapping_neg() > self.data_bytes as u64
    }

    /// Of a ring that is overwritten: puts a copy into `out`, newest record first, in pieces, until
    /// `enough` of what is there or all is. The last record may be torn. True where `enough` ended
    /// it; false where the ring holds no more.
    pub fn newest(&self, out: &mut Vec<u8>, enough: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        /// The kernel writes ahead of the head that it reports, by the records of an interrupt in
        /// an interrupt at most.
        const AHEAD: u64 = 16 << 10;
        const PIECE: u64 = 32 << 10;
        out.clear();
        let size = self.data_bytes as u64;
        let head = self.position(HEAD).load(Ordering::Acquire);
        // It began at 0 and goes down.
        let there = head.wrapping_neg().min(size);
        let mut at = 0;
        while at < there {
            let start = head.wrapping_add(at) % size;
            let count = PIECE.min(there - at).min(size - start);
            out.reserve(count as usize);
            // SAFETY: the data area begins one page after the header and has `data_bytes`, within
            // which `start` and `count` stay. The kernel may write there meanwhile; what it may
            // have written is cut off below, before anybody reads it.
            unsafe {
                let from = self.page.as_ptr().add(self.page_bytes + start as usize);
                std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), count as usize);
                out.set_len(out.len() + count as usize);
            }
            std::sync::atomic::fence(Ordering::Acquire);
            let written = head.wrapping_sub(self.position(HEAD).load(Ordering::Acquire));
            let kept = size.saturating_sub(written.saturating_add(AHEAD));
            at += count;
            if kept < at {
                out.truncate(usize::try_from(kept).unwrap_or(0));
                return enough(out);
            }
            if enough(out) {
                return true;
            }
        }
        false
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
        assert_eq!(u64::from_ne_bytes(tail), head, "the kernel is informed what is free");
        // A head beyond all sense reads no further than the buffer.
        file.write_all_at(&u64::MAX.to_ne_bytes(), HEAD as u64).unwrap();
        let before = read.len();
        ring.drain(&mut read);
        assert_eq!(read.len() - before, ring.data_bytes());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn a_ring_that_is_overwritten_is_read_from_its_newest_end() {
        let (page, size) = (4096_u64, 256 << 10);
        let file = file(page + size);
        let ring = PerfRing::map_overwritten(file.as_fd(), size as usize).unwrap();
        let mut read = Vec::new();
        assert!(!ring.newest(&mut read, &mut |_| false));
        assert!(read.is_empty(), "nothing was written yet");
        // Records of 8 bytes that hold their number, as the kernel writes them: backward from 0 on.
        let mut head = 0_u64;
        let mut whole = vec![0; size as usize];
        let count = 3 * size / 8 / 2;
        for number in 0..count {
            head = head.wrapping_sub(8);
            let place = (head % size) as usize;
            whole[place..place + 8].copy_from_slice(&number.to_ne_bytes());
        }
        file.write_all_at(&whole, page).unwrap();
        file.write_all_at(&head.to_ne_bytes(), HEAD as u64).unwrap();
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
        };
        assert!(ring.newest(&mut read, &mut |read| read.len() >= 100));
        assert_eq!(numbers(&read[..24]), [count - 1, count - 2, count - 3]);
        // All but what the kernel may be writing over.
        assert!(!ring.newest(&mut read, &mut |_| false));
        let all = numbers(&read);
        assert_eq!(all.len() as u64, (size - (16 << 10)) / 8);
        assert!(all.windows(2).all(|pair| pair[0] == pair[1] + 1));
        // The kernel goes on writing while it is read: what it may have overwritten is left out.
        let ended = ring.newest(&mut read, &mut |_| {
            file.write_all_at(&head.wrapping_sub(100 << 10).to_ne_bytes(), HEAD as u64).unwrap();
            false
        });
        assert!(!ended && read.len() as u64 <= size - (116 << 10), "{}", read.len());
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
