//! Time that the firmware takes from all CPUs at once (system management interrupts, SMI), and that
//! no kernel sees: it is charged to whatever ran, and would be reported as "the job itself".
//!
//! Two witnesses, on bare metal alone (a hypervisor lets its guest see neither): the CPUs' own
//! count of SMIs (Intel), read by perf's `msr` events or through `/dev/cpu/N/msr`; where it cannot
//! be read, a thread on a CPU that nobody needs reads the clock in a loop, as the kernel's
//! `osnoise` and `hwlat` tracers do. A jump of the clock without any event of its CPU is a gap of
//! the hardware, and an SMI stops all CPUs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use takt_rt::clock::monotonic_ns;
use takt_rt::cpus::MachineCpus;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;
use takt_rt::thread::Handle;

use super::awake::{IdleThreadError, spawn_below_all};
use crate::event::{Event, Firmware, Kind, SmiReading, Span};

/// Counter of system management interrupts of Intel CPUs since Nehalem (MSR_SMI_COUNT).
const MSR_SMI_COUNT: u64 = 0x34;
/// Reason why the firmware's time is not counted.
const NO_COUNT: &str = if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
    "the count of system management interrupts (SMI) cannot be read (perf's `msr/smi/`, or /dev/cpu/*/msr: `modprobe msr`, Intel only)"
} else {
    "this processor does not count its firmware's interruptions"
};
/// A jump of the clock beyond this is written down: the shortest SMI takes some 10 us.
const GAP_NS: u64 = 10_000;
/// Jumps that are kept, the newest: hours of a busy CPU.
const MAX_GAPS: usize = 1 << 18;
/// Readings that are kept.
const MAX_READINGS: usize = 1 << 20;

/// Method of reading the count of SMIs. One CPU's counter is enough, because an SMI stops all CPUs.
#[derive(Debug)]
enum Counter {
    Perf(File),
    Msr(File),
}

impl Counter {
    fn open(cpu: u16) -> Option<Self> {
        let counter = Self::perf(cpu).or_else(|| Self::msr(cpu))?;
        counter.read()?;
        Some(counter)
    }

    fn perf(cpu: u16) -> Option<Self> {
        let device = "/sys/bus/event_source/devices/msr";
        let text = |name: &str| std::fs::read_to_string(format!("{device}/{name}")).ok();
        let config = text("events/smi")?;
        let config = u64::from_str_radix(config.trim().strip_prefix("event=0x")?, 16).ok()?;
        let mut attr = b::perf_event_attr {
            type_: text("type")?.trim().parse().ok()?,
            size: u32::try_from(size_of::<b::perf_event_attr>()).ok()?,
            config,
            ..Default::default()
        };
        // SAFETY: the attributes are whole, and their size is the structure's.
        let fd = unsafe {
            perf::perf_event_open(&mut attr, -1, i32::from(cpu), -1, b::PERF_FLAG_FD_CLOEXEC.into())
        };
        // SAFETY: the kernel has just made this descriptor for us.
        (fd >= 0).then(|| Self::Perf(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    fn msr(cpu: u16) -> Option<Self> {
        File::open(format!("/dev/cpu/{cpu}/msr")).ok().map(Self::Msr)
    }

    fn read(&self) -> Option<u64> {
        let mut value = [0; 8];
        match self {
            Self::Perf(file) => {
                let mut file = file;
                file.read_exact(&mut value).ok()?;
                Some(u64::from_ne_bytes(value))
            }
            Self::Msr(file) => {
                file.read_exact_at(&mut value, MSR_SMI_COUNT).ok()?;
                // The upper half is reserved.
                Some(u64::from_ne_bytes(value) & 0xffff_ffff)
            }
        }
    }
}

/// State of the watch on the firmware while the trace runs.
#[derive(Debug, Default)]
pub(super) struct Watch {
    counter: Option<Counter>,
    readings: VecDeque<SmiReading>,
    witness: Option<Witness>,
}

impl Watch {
    /// `cpus`: those that are traced. In a guest nothing is watched.
    pub(super) fn start(guest: bool, cpus: &[u16], notes: &mut Vec<String>) -> Self {
        let (false, Some(&first)) = (guest, cpus.first()) else { return Self::default() };
        if let Some(counter) = Counter::open(first) {
            return Self { counter: Some(counter), ..Self::default() };
        }
        let isolated = MachineCpus::read().map(|machine| machine.isolated).unwrap_or(CpuSet::EMPTY);
        let free = cpus.iter().rev().find(|&&cpu| !isolated.contains(usize::from(cpu)));
        match free.filter(|_| cpus.len() > 1).map(|&cpu| Witness::start(cpu)) {
            Some(Ok(witness)) => {
                notes.push(format!(
                    "{NO_COUNT}, so a SCHED_IDLE thread on CPU {} looks for hardware gaps; that CPU is never idle",
                    witness.cpu
                ));
                Self { witness: Some(witness), ..Self::default() }
            }
            other => {
                let why = other.and_then(Result::err);
                let why = why.map_or("no CPU is free for it".to_owned(), |error| error.to_string());
                notes.push(format!(
                    "firmware gaps cannot be distinguished from the job itself: {NO_COUNT}, and no thread looks for gaps ({why})"
                ));
                Self::default()
            }
        }
    }

    /// Reads the counter.
    pub(super) fn read(&mut self) {
        let Some(count) = self.counter.as_ref().and_then(Counter::read) else { return };
        let reading = SmiReading { time_ns: monotonic_ns(), count };
        // Of readings that agree, the first and the last report all.
        let agree = self.readings.iter().rev().take(2).filter(|last| last.count == count).count() == 2;
        if agree {
            self.readings.pop_back();
        }
        self.readings.push_back(reading);
        if self.readings.len() > MAX_READINGS {
            self.readings.pop_front();
        }
    }

    /// Findings since the last call. `events`: those since then, in the order of time.
    pub(super) fn hand_out(&mut self, events: &[Event]) -> Firmware {
        let mut firmware =
            Firmware { readings: self.readings.iter().copied().collect(), ..Firmware::default() };
        // The next part goes on from the last ones.
        self.readings.drain(..self.readings.len().saturating_sub(2));
        if let Some(witness) = &mut self.witness {
            let (from_ns, to_ns) = (witness.since_ns, monotonic_ns());
            let jumps: Vec<Span> =
                witness.jumps.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
            (firmware.gaps, firmware.watched) = judge(witness.cpu, from_ns, to_ns, &jumps, events);
            witness.since_ns = to_ns;
        }
        firmware
    }

    /// All findings. `events`: those of the trace, in the order of time.
    pub(super) fn finish(self, events: &[Event]) -> Firmware {
        let mut firmware = Firmware { readings: self.readings.into(), ..Firmware::default() };
        if let Some(witness) = self.witness {
            let (cpu, from_ns) = (witness.cpu, witness.since_ns);
            let jumps = witness.stop();
            (firmware.gaps, firmware.watched) = judge(cpu, from_ns, monotonic_ns(), &jumps, events);
        }
        firmware
    }
}

/// Of the jumps that the witness on `cpu` saw between `from_ns` and `to_ns`: those that no event of
/// its CPU explains, and the times in which it saw everything.
fn judge(cpu: u16, from_ns: u64, to_ns: u64, jumps: &[Span], events: &[Event]) -> (Vec<Span>, Vec<Span>) {
    let here: Vec<u64> = events.iter().filter(|event| event.cpu == cpu).map(|event| event.time_ns).collect();
    // From the last event before a loss to the loss: whatever was in between may explain a jump.
    let mut holes: Vec<Span> = Vec::new();
    let mut before_ns = 0;
    for event in events.iter().filter(|event| event.cpu == cpu) {
        if let Kind::Lost { .. } = event.kind {
            holes.push(Span { from_ns: before_ns, to_ns: event.time_ns });
        }
        before_ns = event.time_ns;
    }
    // An interrupt is over a little after the clock goes on.
    const EDGE_NS: u64 = 1000;
    let (mut gaps, mut watched) = (Vec::new(), Vec::new());
    let mut since_ns = from_ns;
    for jump in jumps {
        let first = here.partition_point(|&time_ns| time_ns < jump.from_ns.saturating_sub(EDGE_NS));
        let hole = holes.partition_point(|hole| hole.to_ns < jump.from_ns);
        let lost = holes.get(hole).is_some_and(|hole| hole.from_ns <= jump.to_ns);
        let event_ns = here.get(first).copied().filter(|&time_ns| time_ns <= jump.to_ns + EDGE_NS);
        // An interrupt that had to wait for the end of a gap comes with it: most of the jump is
        // silent then. One that makes a jump comes at its begin.
        let silent_to_ns = event_ns.unwrap_or(jump.to_ns).clamp(jump.from_ns, jump.to_ns);
        let silent_ns = silent_to_ns - jump.from_ns;
        let ends_it = event_ns.is_some_and(|event_ns| event_ns > jump.to_ns);
        let long = silent_ns >= GAP_NS && 2 * silent_ns >= jump.to_ns - jump.from_ns;
        let gap = !lost && !ends_it && long;
        if gap {
            gaps.push(Span { from_ns: jump.from_ns, to_ns: silent_to_ns });
        }
        if !gap || event_ns.is_some() {
            watched.push(Span { from_ns: since_ns, to_ns: if gap { silent_to_ns } else { jump.from_ns } });
            since_ns = jump.to_ns;
        }
    }
    watched.push(Span { from_ns: since_ns, to_ns });
    watched.retain(|span| span.from_ns < span.to_ns);
    (gaps, watched)
}

/// A thread that reads the clock in a loop, below every other thread.
#[derive(Debug)]
struct Witness {
    cpu: u16,
    since_ns: u64,
    stop: Arc<AtomicBool>,
    jumps: Arc<Mutex<VecDeque<Span>>>,
    thread: Option<Handle<()>>,
}

impl Witness {
    fn start(cpu: u16) -> Result<Self, IdleThreadError> {
        let stop = Arc::new(AtomicBool::new(false));
        let jumps = Arc::new(Mutex::new(VecDeque::new()));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&jumps));
        let look = move || {
            let mut last_ns = monotonic_ns();
            while !stopped.load(Ordering::Relaxed) {
                let now_ns = monotonic_ns();
                if now_ns - last_ns >= GAP_NS {
                    let mut jumps = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    if jumps.len() == MAX_GAPS {
                        jumps.pop_front();
                    }
                    jumps.push_back(Span { from_ns: last_ns, to_ns: now_ns });
                    drop(jumps);
                    // Time spent on recording it does not count as a jump.
                    last_ns = monotonic_ns();
                } else {
                    last_ns = now_ns;
                }
            }
        };
        let why = "looks for hardware gaps during the trace";
        let thread = spawn_below_all(&format!("takt-gaps/{cpu}"), why, cpu, look)?;
        Ok(Self { cpu, since_ns: monotonic_ns(), stop, jumps, thread: Some(thread) })
    }

    fn stop(mut self) -> Vec<Span> {
        self.end();
        let mut jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest ones were forgotten: before them, nothing is known.
        if jumps.len() == MAX_GAPS
            && let Some(first) = jumps.front_mut()
        {
            first.from_ns = self.since_ns;
        }
        jumps.drain(..).collect()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Real-time threads may leave it no time where it is.
            let _ = Policy::default().apply(thread.tid());
            let _ = placement::online().and_then(|cpus| placement::set_affinity(thread.tid(), &cpus));
            let _ = thread.join();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Span {
        Span { from_ns, to_ns }
    }

    #[test]
    fn a_jump_without_events_is_a_gap_of_the_hardware() {
        let event = |time_ns, cpu| Event { time_ns, tid: 1, cpu, kind: Kind::CpuIdle { state: None } };
        // The tick at 150,000 explains the first jump; what happens on the other CPU meanwhile
        // explains nothing.
        let events = [event(150_000, 3), event(450_000, 0), event(900_000, 3)];
        let jumps = [span(140_000, 170_000), span(400_000, 500_000), span(880_000, 899_500)];
        let (gaps, watched) = judge(3, 1000, 1_000_000, &jumps, &events);
        assert_eq!(gaps, [span(400_000, 500_000)]);
        assert_eq!(watched, [span(1000, 140_000), span(170_000, 880_000), span(899_500, 1_000_000)]);
    }

    #[test]
    fn what_lost_events_may_explain_is_no_gap() {
        let event = |time_ns, cpu, kind| Event { time_ns, tid: 1, cpu, kind };
        let idle = Kind::CpuIdle { state: None };
        // Between 200,000 and 700,000 events of CPU 3 were lost; those lost on CPU 0 say nothing of
        // CPU 3.
        let events = [
            event(200_000, 3, idle),
            event(700_000, 3, Kind::Lost { count: 5 }),
            event(800_000, 3, idle),
            event(990_000, 0, Kind::Lost { count: 5 }),
        ];
        let jumps =
            [span(100_000, 150_000), span(300_000, 350_000), span(400_000, 450_000), span(900_000, 950_000)];
        let (gaps, watched) = judge(3, 1000, 1_000_000, &jumps, &events);
        assert_eq!(gaps, [span(100_000, 150_000), span(900_000, 950_000)]);
        // Time in which gaps could not be recognised does not count as watched.
        assert_eq!(watched, [span(1000, 300_000), span(350_000, 400_000), span(450_000, 1_000_000)]);
    }

    #[test]
    fn an_interrupt_that_waited_for_the_end_of_a_gap_does_not_explain_it() {
        let idle = Kind::CpuIdle { state: None };
        let events = [145_000, 300_500].map(|time_ns| Event { time_ns, tid: 7, cpu: 3, kind: idle });
        let jumps = [span(100_000, 150_000), span(300_000, 350_000)];
        let (gaps, watched) = judge(3, 1000, 1_000_000, &jumps, &events);
        assert_eq!(gaps, [span(100_000, 145_000)]);
        assert_eq!(watched, [span(1000, 145_000), span(150_000, 300_000), span(350_000, 1_000_000)]);
    }

    #[test]
    fn a_witness_looks_and_ends() {
        let witness = Witness::start(0).unwrap();
        let tid = witness.thread.as_ref().unwrap().tid();
        // SAFETY: takes an integer.
        assert_eq!(unsafe { libc::sched_getscheduler(tid) }, libc::SCHED_IDLE);
        let jumps = witness.stop();
        assert!(jumps.iter().all(|jump| jump.to_ns - jump.from_ns >= GAP_NS));
        assert!(jumps.is_sorted_by_key(|jump| jump.from_ns));
    }

    #[test]
    fn readings_that_agree_keep_the_first_and_the_last() {
        let mut watch = Watch::default();
        watch.read();
        assert!(watch.finish(&[]).readings.is_empty(), "without a counter nothing is read");
        // A guest is not watched: its hypervisor hides both.
        let watch = Watch::start(true, &[0, 1], &mut Vec::new());
        assert!(watch.counter.is_none() && watch.witness.is_none());
    }
}
