//! Jobs and slices as the kernel saw them: for threads that keep no job records, and for pictures of a window.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;

use crate::event::{Kind, State, Trace};

/// An expiry further from the events than this is of another clock than theirs.
const SAME_CLOCK_NS: u64 = 60_000_000_000;

/// The jobs of any thread, from one sleep to the next: released when its timer was programmed for, or when somebody
/// began to wake it; awake and started with the switch to it; ended when it goes to sleep.
pub fn observed_jobs(trace: &Trace, tid: i32) -> Vec<JobRecord> {
    let mut jobs = Vec::new();
    let mut timer: Option<(u64, u64)> = None;
    // The CPU that runs this timer's function; on another one, or nested in it, others may expire meanwhile.
    let mut expiring_on: Option<u16> = None;
    let mut planned: Option<u64> = None;
    let mut job: Option<JobRecord> = None;
    for event in &trace.events {
        let now_ns = event.time_ns;
        match event.kind {
            Kind::TimerStart { timer: address, expires_ns, .. } if event.tid == tid => {
                timer = Some((address, expires_ns));
            }
            Kind::TimerExpireEntry { timer: address, .. }
                if timer.is_some_and(|timer| timer.0 == address) =>
            {
                expiring_on = Some(event.cpu);
            }
            Kind::TimerExpireExit { timer: address } if timer.is_some_and(|timer| timer.0 == address) => {
                expiring_on = None;
            }
            Kind::Waking { tid: woken, .. } if woken == tid && job.is_none() => {
                let due = timer.filter(|_| expiring_on == Some(event.cpu));
                let due_ns = due.map(|timer| timer.1).filter(|ns| now_ns.abs_diff(*ns) < SAME_CLOCK_NS);
                planned = Some(due_ns.unwrap_or(now_ns).min(now_ns));
            }
            // What is pending may be over, and another may have begun.
            Kind::Lost { .. } => {
                (timer, expiring_on, planned, job) = (None, None, None, None);
            }
            Kind::Switch { prev_tid, prev_state, next_tid, .. } => {
                if prev_tid == tid
                    && prev_state != State::Runnable
                    && let Some(job) = job.take()
                {
                    jobs.push(JobRecord { index: jobs.len() as u64, end_ns: now_ns, ..job });
                }
                if next_tid == tid
                    && let Some(planned_ns) = planned.take()
                {
                    job = Some(JobRecord {
                        planned_ns,
                        wake_ns: now_ns,
                        start_ns: now_ns,
                        ..JobRecord::default()
                    });
                }
            }
            _ => {}
        }
    }
    jobs
}

/// Something that had a CPU for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub cpu: u16,
    /// Begin, in the trace's clock.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Thread, interrupt or software interrupt.
    pub what: String,
    /// The thread's id; None for interrupts, which lie over the slices of threads.
    pub tid: Option<i32>,
}

/// What every CPU did from `from_ns` to `to_ns`: the picture of a late window.
pub fn timeline(trace: &Trace, from_ns: u64, to_ns: u64) -> Vec<Slice> {
    let mut slices = Vec::new();
    let mut running: HashMap<u16, (i32, u64)> = HashMap::new();
    let mut open: HashMap<(u16, String), u64> = HashMap::new();
    // The last event of each CPU, and whether events are missing after it.
    let mut last: HashMap<u16, u64> = HashMap::new();
    for event in trace.between(from_ns, to_ns) {
        let (cpu, now_ns) = (event.cpu, event.time_ns);
        let last_ns = last.insert(cpu, now_ns);
        if let Kind::Lost { .. } = event.kind {
            // Nobody knows who ran meanwhile.
            open.retain(|(of, _), _| *of != cpu);
            if let (Some((tid, since_ns)), Some(last_ns)) = (running.remove(&cpu), last_ns)
                && since_ns < last_ns
            {
                slices.push(Slice {
                    cpu,
                    from_ns: since_ns,
                    to_ns: last_ns,
                    what: trace.name(tid),
                    tid: Some(tid),
                });
            }
            continue;
        }
        let since_ns = if last_ns.is_some() { now_ns } else { from_ns };
        running.entry(cpu).or_insert((event.tid, since_ns));
        let irq = |irq: u32| trace.irqs.get(&irq).cloned().unwrap_or_else(|| format!("irq {irq}"));
        let mut close = |name: String| {
            if let Some(since_ns) = open.remove(&(cpu, name.clone())) {
                slices.push(Slice { cpu, from_ns: since_ns, to_ns: now_ns, what: name, tid: None });
            }
        };
        match event.kind {
            Kind::VectorExit(vector) => close(vector.name().to_owned()),
            Kind::IrqExit { irq: number } => close(irq(number)),
            Kind::SoftirqExit(softirq) => close(format!("softirq {}", softirq.name())),
            Kind::VectorEntry(vector) => {
                open.insert((cpu, vector.name().to_owned()), now_ns);
            }
            Kind::IrqEntry { irq: number } => {
                open.insert((cpu, irq(number)), now_ns);
            }
            Kind::SoftirqEntry(softirq) => {
                open.insert((cpu, format!("softirq {}", softirq.name())), now_ns);
            }
            Kind::Switch { prev_tid, next_tid, .. } => {
                if let Some((_, since_ns)) = running.insert(cpu, (next_tid, now_ns)) {
                    let what = trace.name(prev_tid);
                    slices.push(Slice { cpu, from_ns: since_ns, to_ns: now_ns, what, tid: Some(prev_tid) });
                }
            }
            _ => {}
        }
    }
    for (cpu, (tid, since_ns)) in running {
        slices.push(Slice { cpu, from_ns: since_ns, to_ns, what: trace.name(tid), tid: Some(tid) });
    }
    slices.sort_by_key(|slice| (slice.cpu, slice.from_ns, slice.to_ns));
    slices
}
