//! Tasks and their jobs.

use std::io::Write;

use takt_rt::jobs::{JobRecord, MAX_INPUTS};

use super::proto::{self, DebugAnnotation, TrackDescriptor};
use super::writer::{Argument, PerfettoError, Writer, Written, argument, named, number};
use crate::event::Trace;

/// Source of a task's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The slot in [`JobRecord::input_sequences`].
    pub slot: usize,
    /// The task that publishes it, by its place in the list of tasks; its `output_sequence` is what
    /// the slot holds.
    pub from: usize,
}

/// A task to be shown. Whatever leaves records with sequence numbers can be one: a camera's frames
/// are jobs that were planned at capture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Task {
    pub name: String,
    /// Its thread, shown with every job.
    pub tid: Option<i32>,
    /// Deadline after the planned release.
    pub deadline_ns: Option<u64>,
    /// Sources of its inputs: arrows are drawn for these.
    pub inputs: Vec<Input>,
    /// Its jobs are those that the trace itself shows, so that they are of the trace's clock,
    /// whichever that is.
    pub observed: bool,
}

#[derive(Debug)]
pub(super) struct TaskState {
    task: Task,
    jobs: u64,
    releases: u64,
    deadlines: Option<u64>,
    lateness: u64,
    marks: Option<u64>,
    group: u64,
    /// Tasks that take what this one publishes.
    consumers: Vec<usize>,
    /// The newest value seen in each slot: only the first job that takes a value gets its arrow.
    seen: [u64; MAX_INPUTS],
    last_end_ns: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn declare_tasks(&mut self, tasks: &[Task]) -> Result<(), PerfettoError> {
        if tasks.is_empty() {
            return Ok(());
        }
        for task in tasks {
            if let Some(input) =
                task.inputs.iter().find(|input| input.from >= tasks.len() || input.slot >= MAX_INPUTS)
            {
                return Err(PerfettoError::Producer {
                    task: task.name.clone(),
                    slot: input.slot,
                    received: input.from,
                    tasks: tasks.len(),
                });
            }
        }
        let root = self.track(TrackDescriptor {
            name: Some("Tasks".to_owned()),
            child_ordering: Some(3),
            ..TrackDescriptor::default()
        })?;
        for (index, task) in tasks.iter().enumerate() {
            let group = self.track(TrackDescriptor {
                name: Some(task.name.clone()),
                parent_uuid: Some(root),
                child_ordering: Some(3),
                sibling_order_rank: i32::try_from(index).ok(),
                ..TrackDescriptor::default()
            })?;
            let state = TaskState {
                task: task.clone(),
                group,
                releases: self.child(group, "releases", 0)?,
                jobs: self.child(group, "jobs", 1)?,
                deadlines: match task.deadline_ns {
                    Some(_) => Some(self.child(group, "deadlines", 2)?),
                    None => None,
                },
                lateness: self.counter_track(group, "lateness", 3)?,
                marks: None,
                consumers: (0..tasks.len())
                    .filter(|&consumer| tasks[consumer].inputs.iter().any(|input| input.from == index))
                    .collect(),
                seen: [0; MAX_INPUTS],
                last_end_ns: 0,
            };
            self.tasks.push(state);
        }
        Ok(())
    }

    fn check_task(&self, task: usize) -> Result<(), PerfettoError> {
        match task < self.tasks.len() {
            true => Ok(()),
            false => Err(PerfettoError::NoTask { received: task, tasks: self.tasks.len() }),
        }
    }

    /// Writes jobs of a task (its place in the list of tasks), oldest first.
    pub fn jobs(&mut self, task: usize, jobs: &[JobRecord]) -> Result<(), PerfettoError> {
        self.check_task(task)?;
        for job in jobs {
            self.job(task, job)?;
        }
        Ok(())
    }

    fn job(&mut self, task: usize, job: &JobRecord) -> Result<(), PerfettoError> {
        let state = &mut self.tasks[task];
        // Slices of one track must nest: a damaged record may be shown too short, but must not tear
        // up the others.
        let wake_ns = job.wake_ns.max(state.last_end_ns);
        let start_ns = job.start_ns.max(wake_ns);
        let end_ns = job.end_ns.max(start_ns);
        state.last_end_ns = end_ns;
        let missed = state.task.deadline_ns.is_some_and(|deadline_ns| job.response_ns() > deadline_ns);

        let mut slice =
            named(state.jobs, proto::BEGIN, if missed { "job (deadline missed)" } else { "job" }, Vec::new());
        slice.debug_annotations = details(&state.task, job);
        if missed {
            slice.categories.push("missed".to_owned());
        }
        if job.output_sequence != 0 {
            slice.flow_ids = state
                .consumers
                .iter()
                .map(|&consumer| flow_id(task, consumer, job.output_sequence))
                .collect();
        }
        for input in &state.task.inputs {
            let sequence = job.input_sequences[input.slot];
            if sequence != state.seen[input.slot] {
                state.seen[input.slot] = sequence;
                if sequence != 0 {
                    slice.terminating_flow_ids.push(flow_id(input.from, task, sequence));
                }
            }
        }
        let (jobs, releases, deadlines) = (state.jobs, state.releases, state.deadlines);
        let (lateness, deadline_ns) = (state.lateness, state.task.deadline_ns);
        self.written.jobs += 1;
        self.written.missed += u64::from(missed);

        let index = || vec![number("index", job.index)];
        self.instant(releases, job.planned_ns, "release", index())?;
        if job.skipped > 0 {
            let details = vec![number("count", job.skipped.into())];
            self.instant(releases, job.planned_ns, "releases skipped before", details)?;
        }
        self.event(wake_ns, slice)?;
        self.begin(jobs, start_ns, "work", Vec::new())?;
        self.end(jobs, end_ns)?;
        self.end(jobs, end_ns)?;
        if let (Some(track), Some(deadline_ns)) = (deadlines, deadline_ns) {
            let name = if missed { "deadline missed" } else { "deadline" };
            self.instant(track, job.planned_ns.saturating_add(deadline_ns), name, index())?;
        }
        self.counter(lateness, wake_ns, i64::try_from(job.lateness_ns()).unwrap_or(i64::MAX))
    }

    /// Marks a moment of a task: why a release was late, a change of mode.
    pub fn mark(
        &mut self,
        task: usize,
        time_ns: u64,
        name: &str,
        arguments: &[(&str, Argument)],
    ) -> Result<(), PerfettoError> {
        self.check_task(task)?;
        let track = match self.tasks[task].marks {
            Some(track) => track,
            None => {
                let track = self.child(self.tasks[task].group, "marks", 4)?;
                *self.tasks[task].marks.insert(track)
            }
        };
        let arguments = arguments.iter().map(|(name, value)| argument(name, value.clone())).collect();
        self.instant(track, time_ns, name, arguments)
    }
}

fn details(task: &Task, job: &JobRecord) -> Vec<DebugAnnotation> {
    let mut list = vec![
        number("index", job.index),
        number("planned_ns", job.planned_ns),
        number("lateness_ns", job.lateness_ns()),
        number("response_ns", job.response_ns()),
        number("execution_ns", job.execution_ns()),
        number("outcome", job.outcome.into()),
    ];
    if let Some(tid) = task.tid {
        list.push(argument("tid", Argument::Number(tid.into())));
    }
    if job.skipped > 0 {
        list.push(number("skipped", job.skipped.into()));
    }
    if job.output_sequence != 0 {
        list.push(number("output_sequence", job.output_sequence));
    }
    for (slot, &sequence) in job.input_sequences.iter().enumerate().filter(|(_, sequence)| **sequence != 0) {
        list.push(number(&format!("input_{slot}"), sequence));
    }
    list
}

/// One number for one value on its way from one task to another (the finaliser of SplitMix64 over
/// the three).
fn flow_id(from: usize, to: usize, sequence: u64) -> u64 {
    takt_rt::random::mix(sequence ^ ((from as u64) << 56) ^ ((to as u64) << 48))
}

/// Writes a whole trace with the jobs of its tasks to `out` (give it a `BufWriter`).
pub fn export(
    out: impl Write,
    trace: &Trace,
    tasks: &[(Task, &[JobRecord])],
) -> Result<Written, PerfettoError> {
    let declared: Vec<Task> = tasks.iter().map(|(task, _)| task.clone()).collect();
    let mut writer = Writer::new(out, trace, &declared)?;
    writer.events(&trace.events)?;
    for (index, (_, jobs)) in tasks.iter().enumerate() {
        writer.jobs(index, jobs)?;
    }
    Ok(writer.finish()?.1)
}
