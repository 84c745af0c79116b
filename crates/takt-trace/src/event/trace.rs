//! Events with what is known beside them: names, readings of counters, where stolen time and
//! firmware were.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Clock, ClockMap, Event, KEEPER_NAME, Thread};

/// A span of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

/// A reading of the kernel's count of the time that the hypervisor took from one CPU
/// (`/proc/stat`). Between two readings of a CPU it is that of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StealReading {
    pub cpu: u16,
    /// When it was read.
    pub time_ns: u64,
    /// The count since boot, in steps of 10 ms.
    pub stolen_ns: u64,
}

/// A reading of the CPUs' count of system management interrupts (SMI). Between two equal readings
/// there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmiReading {
    /// When it was read.
    pub time_ns: u64,
    /// The count since the machine was switched on.
    pub count: u64,
}

/// Knowledge about the time that the firmware took (by SMIs), which no event shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Firmware {
    /// Readings of the count of SMIs, oldest first; empty where it cannot be read.
    pub readings: Vec<SmiReading>,
    /// Gaps in which the hardware ran none of this kernel, oldest first.
    pub gaps: Vec<Span>,
    /// The times in which all gaps beyond 10 us were seen, oldest first and apart from each other.
    pub watched: Vec<Span>,
}

/// Code interrupted by a wake-up's interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeStack {
    /// When.
    pub time_ns: u64,
    /// The CPU of the interrupt.
    pub cpu: u16,
    /// The thread that was woken.
    pub tid: i32,
    /// Place in [`Trace::stacks`].
    pub stack: u32,
}

/// Events in the order of time, and the names in them.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The events, oldest first; those of one CPU in the order that they happened.
    pub events: Vec<Event>,
    /// Names of threads by thread id.
    pub threads: BTreeMap<i32, Thread>,
    /// Names of interrupts by number.
    pub irqs: BTreeMap<u32, String>,
    /// Clock of `time_ns`.
    pub clock: Clock,
    /// Conversion to that clock; None if they were recorded by it.
    pub clock_map: Option<ClockMap>,
    /// Events lost on all CPUs.
    pub lost_events: u64,
    /// The spans of time that are recorded on every CPU, oldest first and apart from each other.
    /// Empty: from the first event to the last.
    pub spans: Vec<Span>,
    /// The kernel that was traced ran under a hypervisor, which may delay timers too.
    pub guest: bool,
    /// Readings of the CPUs' counters of stolen time, oldest first; empty where nobody read them.
    pub steal: Vec<StealReading>,
    /// CPUs that the tracer kept out of idle, because their idle time leaves no events
    /// ([`crate::capture::KeepAwake`]).
    pub kept_awake: Vec<u16>,
    /// Knowledge about the firmware's time.
    pub firmware: Firmware,
    /// Wake-ups of traced threads whose stack was taken, oldest first.
    pub wake_stacks: Vec<WakeStack>,
    /// The different stacks: the kernel's functions that were interrupted, innermost first; empty
    /// for user mode.
    pub stacks: Vec<Vec<String>>,
    /// Whatever a reader should know: tracepoints that were missing, other tracers at work, a torn
    /// end.
    pub notes: Vec<String>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            threads: BTreeMap::new(),
            irqs: BTreeMap::new(),
            clock: Clock::Monotonic,
            clock_map: None,
            lost_events: 0,
            spans: Vec::new(),
            guest: false,
            steal: Vec::new(),
            kept_awake: Vec::new(),
            firmware: Firmware::default(),
            wake_stacks: Vec::new(),
            stacks: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Trace {
    /// The thread's name, or `tid N`; the idle thread is `idle`.
    pub fn name(&self, tid: i32) -> String {
        match self.threads.get(&tid) {
            _ if tid == 0 => "idle".to_owned(),
            // The kernel's word for a thread that has ended, or that it does not name.
            _ if tid < 0 => "an unknown thread".to_owned(),
            Some(thread) if !thread.name.is_empty() => thread.name.clone(),
            _ => format!("tid {tid}"),
        }
    }

    /// Thread ids that have `name`.
    pub fn tids(&self, name: &str) -> Vec<i32> {
        self.threads.iter().filter(|(_, thread)| thread.name == name).map(|(&tid, _)| tid).collect()
    }

    /// The thread's name and id; only its id where it has no name, and words where it has no id.
    pub fn name_and_id(&self, tid: i32) -> String {
        match self.threads.get(&tid) {
            Some(thread) if tid > 0 && !thread.name.is_empty() => format!("{} (tid {tid})", thread.name),
            _ => self.name(tid),
        }
    }

    /// Whether the thread is one of the tracer's that keep CPUs awake: it never leaves user mode by
    /// itself.
    pub(crate) fn keeps_awake(&self, tid: i32) -> bool {
        !self.kept_awake.is_empty()
            && self.threads.get(&tid).is_some_and(|thread| thread.name.starts_with(KEEPER_NAME))
    }

    /// Kernel functions interrupted by the interrupt that woke `tid` at `time_ns` on `cpu`,
    /// innermost first.
    pub fn interrupted_by_wakeup(&self, tid: i32, cpu: u16, time_ns: u64) -> Option<&[String]> {
        // The stack is an event of its own, a moment before or after the other.
        const APART_NS: u64 = 50_000;
        let first = self.wake_stacks.partition_point(|one| one.time_ns + APART_NS < time_ns);
        let near = self.wake_stacks[first..].iter().take_while(|one| one.time_ns <= time_ns + APART_NS);
        let same = near.filter(|one| one.tid == tid && one.cpu == cpu);
        let found = same.min_by_key(|one| one.time_ns.abs_diff(time_ns))?;
        self.stacks.get(found.stack as usize).map(Vec::as_slice).filter(|stack| !stack.is_empty())
    }

    /// The events from `from_ns` up to and with `to_ns`.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> &[Event] {
        let start = self.events.partition_point(|event| event.time_ns < from_ns);
        let end = self.events.partition_point(|event| event.time_ns <= to_ns);
        &self.events[start..end.max(start)]
    }

    /// Whether everything from `from_ns` to `to_ns` was recorded, as far as nothing was lost.
    pub fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        if self.spans.is_empty() {
            return match (self.events.first(), self.events.last()) {
                (Some(first), Some(last)) => first.time_ns <= from_ns && to_ns <= last.time_ns,
                _ => false,
            };
        }
        let begun = self.spans.partition_point(|span| span.from_ns <= from_ns);
        begun.checked_sub(1).is_some_and(|last| to_ns <= self.spans[last].to_ns)
    }

    /// Brings events of several CPUs into the order of time; those with equal times keep the order
    /// they have.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time_ns);
    }
}
