//! The activation path of a release, its segments, and the table of the paper (UAV, Table 6).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;
use takt_stats::Summary;

use crate::event::Trace;

/// Waker of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// A timer, expired in the interrupt itself: the direct path.
    Timer,
    /// A timer, expired in the software interrupt (in `ktimers` on PREEMPT_RT): the deferred path.
    DeferredTimer,
    /// Another thread or a device.
    Event,
    /// Nothing: the release found the thread awake.
    Awake,
}

/// The thread that ran the software interrupt of a deferred timer: `ktimers`, `ksoftirqd`, or
/// whichever enabled software interrupts again first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handler {
    pub tid: i32,
    /// Its wake-up, where there was one after the software interrupt was raised.
    pub waking_ns: Option<u64>,
    /// It got the CPU.
    pub switch_in_ns: u64,
}

/// Activation path of one release. Times are the trace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Waker of the thread.
    pub activation: Activation,
    /// Expiry that the timer was programmed for.
    pub programmed_ns: Option<u64>,
    /// Entry of the interrupt.
    pub irq_ns: Option<u64>,
    /// The software interrupt was raised.
    pub raise_ns: Option<u64>,
    /// The thread that the CPU was then given to; None where the one that had it ran the software
    /// interrupt.
    #[serde(default)]
    pub handler: Option<Handler>,
    /// The timer's function began.
    pub expire_ns: Option<u64>,
    /// The wake-up began.
    pub waking_ns: u64,
    /// The thread got the CPU.
    pub switch_in_ns: Option<u64>,
    /// Context switches from the interrupt to the thread, with the one to the thread.
    pub switches: u32,
    /// CPU of the wake-up.
    pub cpu: u16,
    /// The thread that the wake-up came from, or that its interrupt interrupted.
    pub waker: i32,
    #[serde(skip)]
    pub(super) switches_before: u64,
}

impl Path {
    pub(super) fn awake(since_ns: u64) -> Self {
        Self {
            activation: Activation::Awake,
            programmed_ns: None,
            irq_ns: None,
            raise_ns: None,
            handler: None,
            expire_ns: None,
            waking_ns: since_ns,
            switch_in_ns: Some(since_ns),
            switches: 0,
            cpu: 0,
            waker: 0,
            switches_before: 0,
        }
    }
}

/// Names of the segments, in the order of the path.
const SEGMENTS: [(&str, &str); 10] = [
    ("slack", "release to the timer's programmed expiry"),
    ("timer", "programmed expiry to the interrupt's entry"),
    ("softirq", "software interrupt raised to the timer's function (deferred path)"),
    ("expiry", "interrupt's entry to the timer's function"),
    ("wakeup", "timer's function to the wake-up"),
    ("switch", "wake-up to the switch to the thread"),
    ("resume", "switch to the thread being awake in its own code"),
    ("inputs", "awake to the start of the job"),
    ("execution", "start to end of the job"),
    ("execution_on_cpu", "start to end of the job, without interrupts and other threads"),
];

/// The distribution of one segment, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Short name.
    pub name: String,
    /// From what to what.
    pub title: String,
    /// Its distribution.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Collects segments.
#[derive(Debug, Default)]
pub(super) struct Segments([Vec<f64>; SEGMENTS.len()]);

impl Segments {
    pub(super) fn add(&mut self, job: &JobRecord, path: &Path, own_ns: u64) {
        let mut add = |name: &str, from_ns: Option<u64>, to_ns: Option<u64>| {
            let index = SEGMENTS.iter().position(|segment| segment.0 == name);
            if let (Some(index), Some(from_ns), Some(to_ns)) = (index, from_ns, to_ns) {
                self.0[index].push(to_ns.saturating_sub(from_ns) as f64 / 1e3);
            }
        };
        if path.activation != Activation::Awake {
            add("slack", Some(job.planned_ns), path.programmed_ns);
            add("timer", path.programmed_ns, path.irq_ns);
            add("softirq", path.raise_ns, path.expire_ns);
            add("expiry", path.irq_ns, path.expire_ns);
            add("wakeup", path.expire_ns.or(path.irq_ns), Some(path.waking_ns));
            add("switch", Some(path.waking_ns), path.switch_in_ns);
            add("resume", path.switch_in_ns, Some(job.wake_ns));
        }
        add("inputs", Some(job.wake_ns), Some(job.start_ns));
        add("execution", Some(job.start_ns), Some(job.end_ns));
        add("execution_on_cpu", Some(0), Some(own_ns));
    }

    pub(super) fn finish(mut self) -> Vec<Segment> {
        SEGMENTS
            .iter()
            .zip(&mut self.0)
            .filter(|(_, values)| !values.is_empty())
            .map(|((name, title), values)| Segment {
                name: (*name).to_owned(),
                title: (*title).to_owned(),
                summary: Summary::of(values),
            })
            .collect()
    }
}

/// One row of the activation sequence: an event, and when it came after the interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The kernel's event.
    pub event: String,
    /// Share of the releases that have it.
    pub share: f64,
    /// Median microseconds after the interrupt's entry.
    pub median_us: f64,
    /// 99 % quantile.
    pub p99_us: f64,
    /// Greatest.
    pub worst_us: f64,
}

/// The activation sequence from the interrupt to the job's end, over all releases that a timer
/// woke.
pub(super) fn sequence(trace: &Trace, task: &str, paths: &[(JobRecord, Path)]) -> Vec<Step> {
    let timed: Vec<_> = paths.iter().filter_map(|(job, path)| Some((job, path, path.irq_ns?))).collect();
    let mut steps = Vec::new();
    let mut step = |event: String, time: &dyn Fn(&JobRecord, &Path) -> Option<u64>| {
        let after = |&(job, path, irq_ns): &(&JobRecord, &Path, u64)| {
            time(job, path).map(|time_ns| time_ns.saturating_sub(irq_ns) as f64 / 1e3)
        };
        let mut times: Vec<f64> = timed.iter().filter_map(after).collect();
        if times.is_empty() {
            return;
        }
        let share = times.len() as f64 / timed.len() as f64;
        let summary = Summary::of(&mut times);
        steps.push(Step {
            event,
            share,
            median_us: summary.median,
            p99_us: summary.p99,
            worst_us: summary.worst,
        });
    };
    step("interrupt entry".into(), &|_, path| path.irq_ns);
    step("softirq_raise (HRTIMER)".into(), &|_, path| path.raise_ns);
    if let Some(name) = usual_handler(trace, paths) {
        let handler = |path: &Path| path.handler.filter(|handler| trace.name(handler.tid) == name);
        step(format!("sched_waking ({name})"), &|_, path| handler(path)?.waking_ns);
        step(format!("sched_switch (to {name})"), &|_, path| Some(handler(path)?.switch_in_ns));
    }
    step("hrtimer_expire_entry".into(), &|_, path| path.expire_ns);
    step(format!("sched_waking ({task})"), &|_, path| Some(path.waking_ns));
    step(format!("sched_switch (to {task})"), &|_, path| path.switch_in_ns);
    step("task execution begins".into(), &|job, _| Some(job.start_ns));
    step("task execution ends".into(), &|job, _| Some(job.end_ns));
    steps
}

/// The thread that ran most of the software interrupts: a sequence is of one way, and the rows'
/// shares report how common it is.
fn usual_handler(trace: &Trace, paths: &[(JobRecord, Path)]) -> Option<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for handler in paths.iter().filter_map(|(_, path)| path.handler) {
        *counts.entry(trace.name(handler.tid)).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
}

/// The paper's Table 6 as Markdown: two sequences side by side.
pub fn table(titles: [&str; 2], sequences: [&[Step]; 2]) -> String {
    let mut text = format!("| Δt (µs) | {} | Δt (µs) | {} |\n|---:|---|---:|---|\n", titles[0], titles[1]);
    for row in 0..sequences[0].len().max(sequences[1].len()) {
        let step = |steps: &[Step]| match steps.get(row) {
            Some(step) => format!("{:.1} | {}", step.median_us, step.event),
            None => "- | -".to_owned(),
        };
        let _ = writeln!(text, "| {} | {} |", step(sequences[0]), step(sequences[1]));
    }
    text
}
