//! Anonymous memory that two processes share.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping of a whole shared memory. It can neither shrink nor grow, so that no access can fail
/// later.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory that lives as long as this value; who may touch which part
// when is the business of those who take pointers into it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Under miri, which cannot follow shared memory, this is memory of this process alone: miri checks
/// accesses to its parts, which are the same.
#[cfg(miri)]
impl Memory {
    pub fn create(bytes: usize) -> io::Result<Self> {
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).map_err(io::Error::other)?;
        // SAFETY: the layout is not empty; whoever makes a memory needs some.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, file: File::open("/dev/null")?.into() })
    }

    fn release(&mut self) {
        if let Ok(layout) = std::alloc::Layout::from_size_align(self.bytes, 4096) {
            // SAFETY: allocated above with this layout, and whoever holds pointers into it holds
            // this value as well.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

#[cfg(not(miri))]
impl Memory {
    /// New memory of zeros.
    pub fn create(bytes: usize) -> io::Result<Self> {
        // SAFETY: the name is a C string; the flags are those of memfd_create(2).
        let fd = unsafe {
            libc::memfd_create(c"takt-perception".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes as u64)?;
        // The size is final: a process that shortens it would kill the other one with SIGBUS.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: adding seals touches no memory.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = Self::map(file.into(), bytes)?;
        // Every page exists before a real-time thread touches it.
        // SAFETY: the mapping is this many bytes long and nobody else knows of it yet.
        unsafe { memory.base.as_ptr().write_bytes(0, bytes) };
        Ok(memory)
    }

    fn release(&mut self) {
        // SAFETY: the range is the mapping's own, and whoever holds pointers into it holds this
        // value as well.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Memory {
    /// The memory behind a descriptor, whole.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        // SAFETY: asks for the seals; touches no memory.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a sealed shared memory"));
        }
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(file.into(), bytes)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open for
        // reading and writing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        // A refusal is no error: locking needs a right that a run without real time does without.
        // SAFETY: the range is the mapping's own.
        unsafe { libc::mlock(base.as_ptr().cast(), bytes) };
        Ok(Self { base, bytes, file })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Another descriptor of it, for a child.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// The address of `bytes` bytes at `offset`, aligned to 64 bytes; `None` outside of the memory.
    pub fn at(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes || !offset.is_multiple_of(64) {
            return None;
        }
        // SAFETY: within the mapping, as just checked.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_bytes_and_nobody_can_cut_them_off() {
        let memory = Memory::create(8192).unwrap();
        let other = Memory::open(memory.descriptor().unwrap()).unwrap();
        // SAFETY: one byte within the mapping; this test is the only one to touch it.
        unsafe { memory.at(64, 1).unwrap().write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { other.at(64, 1).unwrap().read_volatile() }, 7);
        assert!(File::from(other.descriptor().unwrap()).set_len(4096).is_err());
        assert!(memory.at(8192, 1).is_none() && memory.at(usize::MAX - 63, 64).is_none());
        assert!(memory.at(1, 1).is_none());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Memory::open(File::open("/proc/self/exe").unwrap().into()).is_err());
    }
}
