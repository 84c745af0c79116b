//! Processor counters of one thread: cycles, instructions, misses of the caches
//! (perf_event_open(2)). They are opened and read from outside, so the thread itself does nothing
//! for them. An unavailable counter has a reason instead of a zero.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

/// Something that the processor counts: its type and number for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Short name: `llc_misses`.
    pub name: &'static str,
    /// For people, plural.
    pub title: &'static str,
    kind: u32,
    config: u64,
}

/// `config` of a cache event: which cache, read, missed.
const fn read_misses(cache: u32) -> u64 {
    cache as u64
        | (b::PERF_COUNT_HW_CACHE_OP_READ as u64) << 8
        | (b::PERF_COUNT_HW_CACHE_RESULT_MISS as u64) << 16
}

/// Events counted for a payload that memory may slow down.
pub const COUNTERS: [Counter; 5] = [
    Counter {
        name: "cycles",
        title: "cycles",
        kind: b::PERF_TYPE_HARDWARE,
        config: b::PERF_COUNT_HW_CPU_CYCLES as u64,
    },
    Counter {
        name: "instructions",
        title: "instructions",
        kind: b::PERF_TYPE_HARDWARE,
        config: b::PERF_COUNT_HW_INSTRUCTIONS as u64,
    },
    Counter {
        name: "l1d_misses",
        title: "misses of the first-level data cache",
        kind: b::PERF_TYPE_HW_CACHE,
        config: read_misses(b::PERF_COUNT_HW_CACHE_L1D),
    },
    Counter {
        name: "llc_misses",
        title: "misses of the last-level cache",
        kind: b::PERF_TYPE_HW_CACHE,
        config: read_misses(b::PERF_COUNT_HW_CACHE_LL),
    },
    Counter {
        name: "cache_misses",
        title: "cache misses that went to memory",
        kind: b::PERF_TYPE_HARDWARE,
        config: b::PERF_COUNT_HW_CACHE_MISSES as u64,
    },
];

/// Value of a counter, and the part of the time for which it counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    count: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Held {
    /// From what the kernel writes (PERF_FORMAT_TOTAL_TIME_ENABLED |
    /// PERF_FORMAT_TOTAL_TIME_RUNNING).
    fn parse(bytes: &[u8; 24]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Self { count: word(0), enabled_ns: word(8), running_ns: word(16) }
    }

    /// The count since `before`. If more counters were requested than the processor has, each has
    /// counted for a part of the time and is scaled to the whole.
    fn since(self, before: Self) -> Result<u64, String> {
        let enabled_ns = self.enabled_ns.saturating_sub(before.enabled_ns);
        let running_ns = self.running_ns.saturating_sub(before.running_ns);
        let count = self.count.saturating_sub(before.count);
        if running_ns == 0 {
            let why = match enabled_ns {
                0 => "the thread did not run",
                _ => "other programs used the processor's counters all the time",
            };
            return Err(why.to_owned());
        }
        Ok((count as f64 * (enabled_ns as f64 / running_ns as f64)).round() as u64)
    }
}

/// A counter of a thread, or why it is not there.
#[derive(Debug)]
struct Open {
    counter: Counter,
    file: Result<(File, Held), String>,
}

/// Counters of one thread, in its own code: the kernel's is left out.
#[derive(Debug)]
pub struct ThreadCounters(Vec<Open>);

/// Result of a counter, or the reason why it is not available here.
pub type Count = (Counter, Result<u64, String>);

impl ThreadCounters {
    /// Opens [`COUNTERS`] of the thread `tid`; they count from now on, also across its end.
    #[must_use]
    pub fn open(tid: i32) -> Self {
        let open = |counter: Counter| Open { counter, file: open(counter, tid).and_then(at_start) };
        Self(COUNTERS.map(open).into_iter().collect())
    }

    /// Counts from now on.
    pub fn restart(&mut self) {
        for open in &mut self.0 {
            if let Ok((file, before)) = &mut open.file {
                match held(file) {
                    Ok(now) => *before = now,
                    Err(why) => open.file = Err(why),
                }
            }
        }
    }

    /// Counts since [`restart`](Self::restart).
    pub fn read(&mut self) -> Vec<Count> {
        let read = |open: &mut Open| {
            let count = match &mut open.file {
                Ok((file, before)) => held(file).and_then(|now| now.since(*before)),
                Err(why) => Err(why.clone()),
            };
            (open.counter, count)
        };
        self.0.iter_mut().map(read).collect()
    }
}

fn at_start(mut file: File) -> Result<(File, Held), String> {
    let now = held(&mut file)?;
    Ok((file, now))
}

fn held(file: &mut File) -> Result<Held, String> {
    let mut bytes = [0; 24];
    file.read_exact(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    Ok(Held::parse(&bytes))
}

fn open(counter: Counter, tid: i32) -> Result<File, String> {
    let mut attr = b::perf_event_attr {
        type_: counter.kind,
        size: u32::try_from(size_of::<b::perf_event_attr>()).unwrap_or(b::PERF_ATTR_SIZE_VER5),
        config: counter.config,
        read_format: u64::from(b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING),
        ..Default::default()
    };
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    // SAFETY: the attributes are whole, and their size is the structure's.
    let fd = unsafe { perf::perf_event_open(&mut attr, tid, -1, -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(reason(&io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Reason why the kernel refuses a counter, with the way out where there is one.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            "this processor does not offer it, or the hypervisor hides it (a virtual machine without a PMU)"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted. Fix: run as root, or sudo sysctl kernel.perf_event_paranoid=1".to_owned()
        }
        Some(libc::ENOSYS) => "this kernel counts no events (CONFIG_PERF_EVENTS)".to_owned(),
        Some(libc::ESRCH) => "the thread has ended".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_scaled_to_the_time_that_it_was_asked_for() {
        let mut bytes = [0; 24];
        for (at, value) in [100_u64, 80, 40].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let now = Held::parse(&bytes);
        assert_eq!(now, Held { count: 100, enabled_ns: 80, running_ns: 40 });
        let zero = Held { count: 0, enabled_ns: 0, running_ns: 0 };
        assert_eq!(now.since(zero), Ok(200));
        assert_eq!(now.since(Held { count: 50, enabled_ns: 60, running_ns: 20 }), Ok(50));
    }

    #[test]
    fn what_never_counted_is_no_zero() {
        let zero = Held { count: 0, enabled_ns: 0, running_ns: 0 };
        assert!(zero.since(zero).unwrap_err().contains("did not run"));
        let waited = Held { count: 0, enabled_ns: 9, running_ns: 0 };
        assert!(waited.since(zero).unwrap_err().contains("other programs"));
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let of = |number| reason(&io::Error::from_raw_os_error(number));
        assert!(of(libc::ENOENT).contains("virtual machine"));
        assert!(of(libc::EACCES).contains("perf_event_paranoid"));
        assert!(of(libc::EINVAL).contains("Invalid argument"));
    }

    /// Whatever this machine is: each counter has a count that grows with the work, or a reason.
    #[test]
    fn every_counter_counts_or_says_why_not() {
        // SAFETY: takes nothing, returns a number.
        let tid = unsafe { libc::gettid() };
        let mut counters = ThreadCounters::open(tid);
        counters.restart();
        let mut sum = 0_u64;
        for number in 0..1_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        let counts = counters.read();
        assert_eq!(counts.len(), COUNTERS.len());
        for (counter, count) in counts {
            match count {
                Ok(count) if counter.name == "instructions" => assert!(count > 1_000_000, "{count}"),
                Ok(_) => {}
                Err(why) => {
                    assert!(!why.is_empty());
                    takt_witness::skip!("in part: {}: {why}", counter.name);
                }
            }
        }
        // A thread that is not there has no counts.
        assert!(ThreadCounters::open(i32::MAX).read().iter().all(|(_, count)| count.is_err()));
    }
}
