//! Why a callback was off the CPU: because it waited for something, or because others ran.
//!
//! Wall time less CPU time of an activation says that it was. The kernel counts how often a thread gave the CPU up by itself
//! (`ru_nvcsw`): not once in the activation, and it was preempted, throttled, or waited for its turn. That count has to be read at the start
//! and at the end, and a system call at each start is too much for callbacks that never wait. So it is read
//! - at the start of each of a thread's first [`LEARNT`] activations, and of those callbacks that were once off the CPU for more than
//!   [`OFF_CPU_NS`]: a filter of 256 bits remembers them, in which two can meet, which costs a read too many and no more;
//! - at the end when the activation was off the CPU for so long. The first such activation of a callback that never was before has no count to
//!   compare with, and says that it does not know.
//!
//! Of a callback that was seen to suspend itself, the time for which it was ready to run all the same (`run_delay` of
//! `/proc/thread-self/schedstat`) is read, too, so that preemption and waiting for the CPU after a wake-up do not count as suspension.

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::ring::{OFF_CPU_NS, UNKNOWN};

unsafe extern "C" {
    fn getrusage(who: c_int, to: *mut Usage) -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize;
    fn close(fd: c_int) -> c_int;
}

const RUSAGE_THREAD: c_int = 1;
const O_CLOEXEC: c_int = 0o2000000;
/// Stands for the callback of work without events; no object has this address.
pub const UNTRACED: u64 = 1;
/// Activations of a thread at the start of which the count is read whatever came before. 256: the first seconds of a robot's thread, after which
/// nearly all of what waits has been seen to.
const LEARNT: u32 = 256;

#[repr(C)]
struct Usage {
    /// Two times of two words, twelve counters, and then the two of switches.
    before: [c_long; 4 + 12],
    voluntary: c_long,
    involuntary: c_long,
}

/// How often the calling thread gave the CPU up by itself.
fn voluntary_switches() -> u64 {
    let mut usage = Usage { before: [0; 16], voluntary: 0, involuntary: 0 };
    // SAFETY: the kernel writes one `struct rusage`, whose layout this is.
    match unsafe { getrusage(RUSAGE_THREAD, &mut usage) } {
        0 => u64::try_from(usage.voluntary).unwrap_or(UNKNOWN),
        _ => UNKNOWN,
    }
}

/// For how long the calling thread has waited for a CPU since it began: the second number of its `schedstat`.
fn run_delay() -> u64 {
    let mut bytes = [0_u8; 96];
    // SAFETY: reads at most what the buffer holds. Opened each time: a descriptor kept open could have been closed, or replaced.
    let count = unsafe {
        let fd = open(c"/proc/thread-self/schedstat".as_ptr(), O_CLOEXEC, 0);
        if fd < 0 {
            return UNKNOWN;
        }
        let count = read(fd, bytes.as_mut_ptr().cast(), bytes.len());
        close(fd);
        count
    };
    let read = bytes.get(..usize::try_from(count).unwrap_or(0)).unwrap_or(&[]);
    let mut numbers = read.split(|byte| byte.is_ascii_whitespace());
    let number = numbers.nth(1).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.unwrap_or(UNKNOWN)
}

fn clock() -> u64 {
    crate::process::clock(crate::process::CLOCK_MONOTONIC)
}

/// Which callbacks, approximately: whoever was put in is found.
struct Filter([u64; 4]);

impl Filter {
    fn place(callback: u64) -> (usize, u64) {
        let hash = (callback >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }

    fn has(&self, callback: u64) -> bool {
        let (word, bit) = Self::place(callback);
        self.0[word] & bit != 0
    }

    fn put(&mut self, callback: u64) {
        let (word, bit) = Self::place(callback);
        self.0[word] |= bit;
    }
}

/// What a thread keeps of its activations.
pub struct Course {
    /// The one under way; 0: none. Of callbacks within callbacks the innermost.
    callback: u64,
    at_ns: u64,
    cpu_ns: Option<u64>,
    switches: u64,
    ready_ns: u64,
    /// When `ready_ns` was read.
    read_ns: u64,
    activations: u32,
    /// Callbacks that were off the CPU for long.
    gone: Filter,
    /// Callbacks that suspended themselves.
    suspended: Filter,
}

impl Course {
    pub const NEW: Self = Self {
        callback: 0,
        at_ns: 0,
        cpu_ns: None,
        switches: UNKNOWN,
        ready_ns: UNKNOWN,
        read_ns: 0,
        activations: 0,
        gone: Filter([0; 4]),
        suspended: Filter([0; 4]),
    };

    /// Reads what the activation's end will be compared with, where it may be needed.
    #[inline]
    pub fn prepare(&mut self, callback: u64) {
        (self.switches, self.ready_ns) = (UNKNOWN, UNKNOWN);
        let fresh = self.activations < LEARNT && callback != UNTRACED;
        if fresh || self.gone.has(callback) {
            self.read(callback);
        }
    }

    #[cold]
    fn read(&mut self, callback: u64) {
        self.activations = self.activations.saturating_add(1);
        self.switches = voluntary_switches();
        if self.suspended.has(callback) {
            self.read_ns = clock();
            self.ready_ns = run_delay();
        }
    }

    #[inline]
    pub fn begin(&mut self, callback: u64, at_ns: u64, cpu_ns: Option<u64>) {
        (self.callback, self.at_ns, self.cpu_ns) = (callback, at_ns, cpu_ns);
    }

    /// Whether work without events was off the CPU before.
    #[inline]
    pub fn asks_untraced(&self) -> bool {
        self.gone.has(UNTRACED)
    }

    /// What came after a selection was no work without events.
    #[inline]
    pub fn selected(&mut self) {
        if self.callback == UNTRACED {
            self.callback = 0;
        }
    }

    /// The same as [`Self::end`] of work without events, which is asked for from the first time on that it took long.
    #[inline]
    pub fn end_untraced(&mut self, at_ns: u64, cpu_ns: Option<u64>) -> Option<(u64, u64)> {
        if self.callback != UNTRACED {
            return None;
        }
        if at_ns.saturating_sub(self.at_ns) > OFF_CPU_NS && self.cpu_ns.is_none() {
            self.gone.put(UNTRACED);
        }
        self.end(UNTRACED, at_ns, cpu_ns)
    }

    /// Of an activation that was off the CPU for long: how often it gave the CPU up, and how long it was ready.
    #[inline]
    pub fn end(&mut self, callback: u64, at_ns: u64, cpu_ns: Option<u64>) -> Option<(u64, u64)> {
        let open = std::mem::replace(&mut self.callback, 0);
        let used_ns = cpu_ns?.saturating_sub(self.cpu_ns?);
        let off_ns = at_ns.saturating_sub(self.at_ns).saturating_sub(used_ns);
        (open == callback && off_ns > OFF_CPU_NS).then(|| self.explain(callback, at_ns))
    }

    #[cold]
    fn explain(&mut self, callback: u64, at_ns: u64) -> (u64, u64) {
        self.gone.put(callback);
        let known = |before: u64, now: u64| match before == UNKNOWN || now == UNKNOWN {
            true => UNKNOWN,
            false => now.saturating_sub(before),
        };
        let switches = match self.switches {
            UNKNOWN => UNKNOWN,
            before => known(before, voluntary_switches()),
        };
        let ready_ns = match self.ready_ns {
            UNKNOWN => UNKNOWN,
            before => {
                let ready_ns = known(before, run_delay());
                // Preempted between a reading and the activation: that is no time in the activation.
                let outside = self.at_ns.saturating_sub(self.read_ns) + clock().saturating_sub(at_ns);
                if ready_ns == UNKNOWN { UNKNOWN } else { ready_ns.saturating_sub(outside) }
            }
        };
        if switches != UNKNOWN && switches > 0 {
            self.suspended.put(callback);
        }
        (switches, ready_ns)
    }
}
