//! Why a callback was off the CPU: because it waited for something, or because others ran.
//!
//! The kernel counts how often a thread gave the CPU up by itself (`ru_nvcsw`). Each such switch
//! can cost a thread with a reservation the wait for its next budget, however short it is, so each
//! counts. The count is read
//! - when an executor begins to run something, so that what it does before the callback starts, as
//!   taking a message, counts, too;
//! - at every start, before the clocks are;
//! - at the end, unless the activation had the CPU for all of its time but less than
//!   [`MIN_AWAY_NS`]: no switch to another thread and back is as short as that. The bound is
//!   exact: CPU time is read between two readings of the clock, and the later one is taken.
//!
//! Preemption, throttling and waiting for a turn do not count there; neither does `sched_yield`,
//! which is counted by itself ([`crate::process::yields`]): under `SCHED_DEADLINE` it gives the
//! rest of the budget away.
//!
//! Of a callback that suspended itself for more than [`WORTH_NS`], the time for which it was ready
//! to run all the same (`run_delay` of `/proc/thread-self/schedstat`) is read for its next
//! activations, too, so that preemption and waiting for the CPU after a wake-up do not count as
//! suspension. Below, all of the time off the CPU does.

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
/// Less than any switch to another thread and back: two runs of the scheduler and a wake-up take a
/// microsecond where processors are fastest (1.9 measured between two of one virtual machine).
/// Reading the two clocks takes 0.6 there, so that most ends need no reading of the count.
const MIN_AWAY_NS: u64 = 800;
/// Suspensions from here on are worth the system calls that distinguish them from preemption: 50
/// microseconds, about ten times what these take.
const WORTH_NS: u64 = 50_000;
/// For so many activations after such a suspension it is asked for.
const ASKED: u8 = 64;
/// Callbacks within callbacks that are followed.
const DEEPEST: usize = 4;

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

/// For how long the calling thread has waited for a CPU since it began: the second number of its
/// `schedstat`.
fn run_delay() -> u64 {
    let mut bytes = [0_u8; 96];
    // SAFETY: reads at most what the buffer holds. Opened each time: a descriptor kept open could
    // have been closed, or replaced.
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
    crate::c::clock(crate::c::CLOCK_MONOTONIC)
}

fn since(before: u64, now: u64) -> u64 {
    if before == UNKNOWN || now == UNKNOWN { UNKNOWN } else { now.saturating_sub(before) }
}

/// What a thread had done when an executor began to run something.
#[derive(Clone, Copy)]
struct Execution {
    at_ns: u64,
    switches: u64,
}

/// An activation under way, and what its end is compared with.
#[derive(Clone, Copy)]
struct Activation {
    callback: u64,
    at_ns: u64,
    cpu_ns: Option<u64>,
    switches: u64,
    yields: u64,
    ready_ns: u64,
    /// When `ready_ns` was read.
    read_ns: u64,
    /// How often its executor gave the CPU up before its start, and for how long it had it under
    /// way then.
    early: u64,
    early_ns: u64,
}

/// When an activation ended: the two clocks, and the first one again after the second.
#[derive(Clone, Copy)]
pub struct End {
    pub at_ns: u64,
    pub cpu_ns: Option<u64>,
    pub after_ns: u64,
}

/// What is reported of an activation that was off the CPU.
#[derive(Clone, Copy)]
pub struct OffCpu {
    /// How often it gave the CPU up.
    pub switches: u64,
    /// For how long it was ready all the same.
    pub ready_ns: u64,
    /// How often it yielded.
    pub yields: u64,
    /// For how long it may have been off the CPU before its start.
    pub early_ns: u64,
}

/// What a thread keeps of its activations.
pub struct Course {
    under_way: [Activation; DEEPEST],
    depth: usize,
    execution: Option<Execution>,
    /// Of callbacks, approximately: how many more of their activations are asked how long they were
    /// ready. Two can meet, which costs readings.
    asked: [u8; 256],
    /// Work without events took time.
    untraced: bool,
    /// Its executor reports the end of all that it runs.
    pub reports_ends: bool,
}

impl Course {
    pub const NEW: Self = Self {
        under_way: [Activation {
            callback: 0,
            at_ns: 0,
            cpu_ns: None,
            switches: UNKNOWN,
            yields: 0,
            ready_ns: UNKNOWN,
            read_ns: 0,
            early: 0,
            early_ns: 0,
        }; DEEPEST],
        depth: 0,
        execution: None,
        asked: [0; 256],
        untraced: false,
        reports_ends: false,
    };

    fn place(callback: u64) -> usize {
        ((callback >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }

    fn last(&self) -> Option<&Activation> {
        self.under_way.get(..self.depth)?.last()
    }

    /// An executor begins to run something. What that does before a callback starts, as taking a
    /// message, counts with it.
    #[inline]
    pub fn execution_begins(&mut self, at_ns: u64) {
        self.reports_ends = true;
        self.execution = Some(Execution { at_ns, switches: voluntary_switches() });
    }

    /// An activation begins: reads what its end is compared with, then calls `clocks`, so that what
    /// this costs stays out of its time.
    #[inline]
    pub fn begin(&mut self, callback: u64, yields: u64, clocks: impl FnOnce() -> (u64, Option<u64>)) {
        if self.last().is_some_and(|open| open.callback == UNTRACED) {
            self.depth -= 1;
        }
        // A callback does not run inside itself: the end of the earlier one is missing.
        let stale = self.under_way.iter().take(self.depth).position(|open| open.callback == callback);
        self.depth = stale.unwrap_or(if self.depth == DEEPEST { 0 } else { self.depth });
        let mut begun = Activation { callback, yields, ..Self::NEW.under_way[0] };
        if self.asked.get(Self::place(callback)).is_some_and(|&left| left > 0) {
            self.ask(&mut begun);
        }
        begun.switches = voluntary_switches();
        (begun.at_ns, begun.cpu_ns) = clocks();
        if let Some(execution) = self.execution.take() {
            begun.early = match since(execution.switches, begun.switches) {
                UNKNOWN => 0,
                early => early,
            };
            if begun.early > 0 {
                begun.early_ns = begun.at_ns.saturating_sub(execution.at_ns);
            }
        }
        if let Some(place) = self.under_way.get_mut(self.depth) {
            *place = begun;
            self.depth += 1;
        }
    }

    #[cold]
    fn ask(&mut self, begun: &mut Activation) {
        if let Some(left) = self.asked.get_mut(Self::place(begun.callback)) {
            *left -= 1;
        }
        begun.read_ns = clock();
        begun.ready_ns = run_delay();
    }

    /// Whether work without events took time before.
    #[inline]
    pub fn asks_untraced(&self) -> bool {
        self.untraced
    }

    /// Work without events may begin.
    #[inline]
    pub fn begin_untraced(&mut self, yields: u64, at_ns: u64, cpu_ns: Option<u64>) {
        if self.depth > 0 {
            return;
        }
        match self.untraced {
            true => self.begin(UNTRACED, yields, || (at_ns, cpu_ns)),
            false => {
                self.under_way[0] = Activation { callback: UNTRACED, at_ns, cpu_ns, ..Self::NEW.under_way[0] };
                self.depth = 1;
            }
        }
    }

    /// What came after a selection was no work without events.
    #[inline]
    pub fn selected(&mut self) {
        if self.last().is_some_and(|open| open.callback == UNTRACED) {
            self.depth -= 1;
        }
    }

    /// The same as [`Self::end`] of work without events, which is asked for from the first time on
    /// that it took time.
    #[inline]
    pub fn end_untraced(&mut self, yields: u64, end: End) -> Option<OffCpu> {
        let open = *self.last().filter(|open| open.callback == UNTRACED)?;
        if end.at_ns.saturating_sub(open.at_ns) > OFF_CPU_NS {
            self.untraced = true;
        }
        self.end(UNTRACED, yields, end)
    }

    /// What an executor ran is over: how often it gave the CPU up, if nothing else reported
    /// it.
    #[inline]
    pub fn execution_ends(&mut self, at_ns: u64) -> Option<OffCpu> {
        let execution = self.execution.take()?;
        let switches = since(execution.switches, voluntary_switches());
        let short = at_ns.saturating_sub(execution.at_ns) <= WORTH_NS;
        Some(OffCpu { switches, ready_ns: if short { 0 } else { UNKNOWN }, yields: 0, early_ns: 0 })
    }

    /// Of an activation that was off the CPU: how often it gave the CPU up, and how long it was
    /// ready.
    #[inline]
    pub fn end(&mut self, callback: u64, yields: u64, end: End) -> Option<OffCpu> {
        let place = self.under_way.iter().take(self.depth).rposition(|open| open.callback == callback)?;
        self.depth = place;
        let open = *self.under_way.get(place)?;
        let used_ns = end.cpu_ns?.saturating_sub(open.cpu_ns?);
        let off_ns = end.at_ns.saturating_sub(open.at_ns).saturating_sub(used_ns);
        let away_ns = off_ns.saturating_add(end.after_ns.saturating_sub(end.at_ns));
        let yields = yields.wrapping_sub(open.yields);
        let within = if away_ns < MIN_AWAY_NS { 0 } else { since(open.switches, voluntary_switches()) };
        let switches = if within == UNKNOWN { UNKNOWN } else { within + open.early };
        let worth_reporting = switches > 0 || yields > 0 || off_ns > OFF_CPU_NS;
        let reported = OffCpu { switches, ready_ns: 0, yields, early_ns: open.early_ns };
        worth_reporting.then(|| self.explain(&open, off_ns, reported, end.at_ns))
    }

    #[cold]
    fn explain(&mut self, open: &Activation, off_ns: u64, reported: OffCpu, at_ns: u64) -> OffCpu {
        if reported.switches == 0 || reported.switches == UNKNOWN {
            return OffCpu { ready_ns: UNKNOWN, ..reported };
        }
        let mut ready_ns = 0;
        if reported.switches == open.early {
            // All of it was before the start.
            ready_ns = off_ns;
        } else if off_ns > WORTH_NS {
            if let Some(left) = self.asked.get_mut(Self::place(open.callback)) {
                *left = ASKED;
            }
            ready_ns = match open.ready_ns {
                UNKNOWN => UNKNOWN,
                before => {
                    let ready_ns = since(before, run_delay());
                    // Preempted between a reading and the activation: that is no time in the
                    // activation.
                    let outside = open.at_ns.saturating_sub(open.read_ns) + clock().saturating_sub(at_ns);
                    if ready_ns == UNKNOWN { UNKNOWN } else { ready_ns.saturating_sub(outside) }
                }
            };
        }
        OffCpu { ready_ns, ..reported }
    }
}
