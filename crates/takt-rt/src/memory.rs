//! Memory that does not fault: locking, stack prefault, and a heap that keeps what it has.

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::{Cause, Error};
use crate::sys;

/// Memory of the process that stays resident (mlockall(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLock {
    /// Nothing is locked.
    #[default]
    Off,
    /// Memory that is mapped now; later mappings may fault.
    Current,
    /// Memory that is mapped now or later, made resident at once. Every later thread stack is
    /// resident whole: choose small ones.
    All,
    /// Memory that is mapped now or later, locked when first touched: the first touch still faults.
    OnFault,
}

impl MemoryLock {
    /// Locks the memory of the process, with the heap kept as in [`keep_heap`].
    ///
    /// # Errors
    /// [`Error::Refused`] naming RLIMIT_MEMLOCK or CAP_IPC_LOCK.
    pub fn apply(self) -> Result<(), Error> {
        let flags = match self {
            Self::Off => return Ok(()),
            Self::Current => libc::MCL_CURRENT,
            Self::All => libc::MCL_CURRENT | libc::MCL_FUTURE,
            Self::OnFault => libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT,
        };
        keep_heap();
        // SAFETY: mlockall takes flags alone and invalidates nothing.
        if unsafe { libc::mlockall(flags) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        let (cause, fix) = match source.raw_os_error() {
            Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) if !sys::has_capability(sys::CAP_IPC_LOCK) => {
                let value = sys::soft_limit(libc::RLIMIT_MEMLOCK);
                let needed = kib("VmSize:").unwrap_or(0) * 1024;
                (Cause::Limit { name: "RLIMIT_MEMLOCK", value, needed }, sys::memlock_fix())
            }
            Some(libc::ENOMEM) => (Cause::Unknown, "free memory, or lock with `on_fault`".to_owned()),
            _ => (sys::common_cause(&source), sys::memlock_fix()),
        };
        Err(Error::Refused { setting: format!("locking memory ({self:?})"), cause, fix, source })
    }
}

/// Whether all memory of this process could be locked: it is locked and given back.
///
/// # Errors
/// The system's error.
pub fn try_lock() -> io::Result<()> {
    // SAFETY: it takes flags alone and invalidates nothing.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    unlock();
    Ok(())
}

/// Undoes [`MemoryLock::apply`] for the whole process (munlockall(2)).
pub fn unlock() {
    // SAFETY: munlockall has no preconditions and invalidates nothing.
    unsafe { libc::munlockall() };
}

/// Memory of the process that is locked now, in bytes (`VmLck`); 0 where it cannot be read.
pub fn locked_bytes() -> u64 {
    kib("VmLck:").unwrap_or(0) * 1024
}

fn kib(key: &str) -> Option<u64> {
    sys::status_field(key)?.parse().ok()
}

/// Makes glibc's malloc keep freed memory and take large blocks from the heap as well, so that
/// freeing and allocating again does not fault again; and gives each thread an arena of its own, so
/// that no thread waits for malloc in a thread of lower urgency. Affects the whole process. Call it
/// before the first thread is started: glibc settles the number of arenas then. Nothing on other C
/// libraries.
pub fn keep_heap() {
    // Freed blocks and those of up to 32 MiB (the greatest threshold that glibc takes on 64 bits)
    // stay.
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt changes thresholds under malloc's own lock.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        // glibc shares 8 arenas per CPU among all threads. A SCHED_OTHER thread that is preempted
        // in malloc then holds the lock of a real-time thread's arena: with 128 noise threads on
        // two CPUs, stalls of 200 ms to 1 s in one inference of thousands. An arena is address
        // space, not memory.
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
    }
}

/// More threads than a robot's process has.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 4096;

const PAGE: usize = 4096;
const CHUNK: usize = 4 * PAGE;

/// Touches `bytes` of the calling thread's stack below the caller, so that using them later does
/// not fault. The stack must be at least that large.
pub fn prefault_stack(bytes: usize) {
    #[inline(never)]
    fn descend(left: usize) -> u8 {
        let mut chunk = [0u8; CHUNK];
        for page in chunk.chunks_mut(PAGE) {
            // SAFETY: a write within the array; volatile, so that it is not dropped.
            unsafe { std::ptr::write_volatile(&mut page[0], 1) };
        }
        // Adding to the result keeps this from becoming a loop that reuses one frame.
        let below = if left > CHUNK { descend(left - CHUNK) } else { 0 };
        std::hint::black_box(&chunk)[0].wrapping_add(below)
    }
    if bytes > 0 {
        std::hint::black_box(descend(bytes));
    }
}

/// Page faults of one thread since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Faults {
    /// Served without I/O.
    pub minor: u64,
    /// Served from storage.
    pub major: u64,
}

/// Context switches of one thread since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// The thread slept or waited.
    pub voluntary: u64,
    /// The thread was preempted.
    pub involuntary: u64,
}

fn usage() -> libc::rusage {
    // SAFETY: rusage is plain integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to write into.
    let rc = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    debug_assert_eq!(rc, 0);
    usage
}

/// Page faults of the calling thread (`getrusage(RUSAGE_THREAD)`).
pub fn thread_faults() -> Faults {
    let usage = usage();
    Faults { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
}

/// Context switches of the calling thread (`getrusage(RUSAGE_THREAD)`).
pub fn thread_switches() -> Switches {
    let usage = usage();
    Switches { voluntary: usage.ru_nvcsw as u64, involuntary: usage.ru_nivcsw as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefaulted_stack_does_not_fault_again() {
        #[inline(never)]
        fn use_stack() -> u8 {
            let mut space = [0u8; 256 << 10];
            for byte in space.iter_mut().step_by(PAGE) {
                *byte = std::hint::black_box(1);
            }
            std::hint::black_box(&space)[PAGE]
        }
        let run = |prefault: usize| {
            std::thread::Builder::new()
                .stack_size(2 << 20)
                .spawn(move || {
                    prefault_stack(prefault);
                    let before = thread_faults();
                    std::hint::black_box(use_stack());
                    let after = thread_faults();
                    after.minor + after.major - before.minor - before.major
                })
                .unwrap()
                .join()
                .unwrap()
        };
        assert_eq!(run(512 << 10), 0);
        // A fresh stack faults, unless the memory of the process is locked (and so resident)
        // already.
        assert!(run(0) > 0 || locked_bytes() > 0);
    }

    #[test]
    fn faults_are_counted() {
        let before = thread_faults();
        let mut fresh = vec![0u8; 64 << 20];
        for byte in fresh.iter_mut().step_by(PAGE) {
            *byte = std::hint::black_box(1);
        }
        assert!(thread_faults().minor > before.minor);
        let switches = thread_switches();
        crate::clock::sleep_until(crate::clock::monotonic_ns() + 100_000);
        assert!(thread_switches().voluntary > switches.voluntary);
    }
}
