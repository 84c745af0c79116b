//! Jobs and slices as the kernel saw them: for threads that keep no job records, and for pictures
//! of a window.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;

use crate::event::{Kind, Trace};
use crate::follow::{Activation, Followed, Follower};

/// The jobs of any thread, from one sleep to the next: released when it asked to be woken (what its
/// timer was set to, without the slack that the kernel adds), or when somebody began to wake it;
/// awake and started with the switch to it; ended when it goes to sleep.
pub fn observed_jobs(trace: &Trace, tid: i32) -> Vec<JobRecord> {
    let mut follower = Follower::default();
    follower.threads.insert(tid, Followed::default());
    trace.events.iter().for_each(|event| follower.see(event));
    let activations = follower.threads.remove(&tid).map(|thread| thread.activations).unwrap_or_default();
    let job = |(index, one): (u64, Activation)| JobRecord {
        index,
        planned_ns: one.planned_ns,
        wake_ns: one.awake_ns,
        start_ns: one.awake_ns,
        end_ns: one.end_ns,
        ..JobRecord::default()
    };
    (0..).zip(activations).map(job).collect()
}

/// Number of releases of each of `tids` in the trace, as [`observed_jobs`] finds them, in one pass.
pub fn observed_releases(trace: &Trace, tids: &[i32]) -> Vec<usize> {
    let mut follower = Follower::default();
    for &tid in tids {
        follower.threads.insert(tid, Followed::default());
    }
    trace.events.iter().for_each(|event| follower.see(event));
    let found = |tid: &i32| follower.threads.get(tid).map_or(0, |thread| thread.activations.len());
    tids.iter().map(found).collect()
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

/// Activity of every CPU from `from_ns` to `to_ns`: the picture of a late window.
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
