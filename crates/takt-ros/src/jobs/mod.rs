//! Job records of Takt's own robots as a source of events.
//!
//! A robot's task says of every job when it was released, started and ended ([`Kind::Job`]). From a
//! finished run the rows of its sample files are handed over as iterators, one for each task
//! ([`from_tasks`]); this crate need not know the files. A robot that runs writes its jobs
//! ([`JobFile`]) to the session that the preload probe's processes write to as well, so that a
//! reader sees one kind of process.

mod live;

pub use live::{Job, JobFile, JobFileError, JobWriter};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use crate::event::{Event, Kind, Source};

/// Events handed out by one poll.
const PORTION: usize = 1 << 16;

/// One job, as a run's samples have it. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub task: Arc<str>,
    /// Its process; 0 where the samples do not say.
    pub pid: u32,
    /// Its thread; `None` where the samples do not say: tasks are then numbered in the order in
    /// which they appear.
    pub tid: Option<u32>,
    /// Number of the release.
    pub index: u64,
    /// Releases that the task skipped before this one.
    pub skipped: u64,
    /// Planned release.
    pub released_ns: u64,
    /// The job's work began.
    pub started_ns: u64,
    /// The job's work ended.
    pub ended_ns: u64,
    /// CPU time used; `None` where the samples do not say: then the time from start to end stands
    /// for it, which is never less.
    pub used_ns: Option<u64>,
}

impl JobRow {
    /// Whether its times can be those of a job.
    fn is_possible(&self) -> bool {
        self.released_ns <= self.started_ns && self.started_ns <= self.ended_ns
    }
}

/// Knowledge about a task.
#[derive(Debug)]
struct Task {
    tid: u32,
    /// Number of its last release.
    index: Option<u64>,
    /// Its name has been reported.
    named: bool,
}

/// Rows of several tasks, merged by the times at which their jobs ended.
#[derive(Debug)]
pub struct Rows<I: Iterator<Item = JobRow>> {
    tasks: HashMap<Arc<str>, Task>,
    sources: Vec<(I, Option<JobRow>)>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    impossible: u64,
}

/// Jobs of all tasks in one iterator, in the order in which they ended.
pub fn from_rows<I: Iterator<Item = JobRow>>(rows: I) -> Rows<I> {
    from_tasks(vec![rows])
}

/// Jobs of several tasks, an iterator for each, in the order in which each task's jobs ended.
pub fn from_tasks<I: Iterator<Item = JobRow>>(tasks: Vec<I>) -> Rows<I> {
    let sources: Vec<_> = tasks.into_iter().map(|rows| (rows, None)).collect();
    let mut rows = Rows { tasks: HashMap::new(), sources, queue: BinaryHeap::new(), impossible: 0 };
    for at in 0..rows.sources.len() {
        rows.queue_next(at);
    }
    rows
}

impl<I: Iterator<Item = JobRow>> Rows<I> {
    /// Rows left out because no job can have such times (ended before it started, started before
    /// its release).
    pub fn impossible(&self) -> u64 {
        self.impossible
    }

    /// Queues the next possible row of a source.
    fn queue_next(&mut self, at: usize) {
        let Some((rows, next)) = self.sources.get_mut(at) else { return };
        *next = rows.by_ref().find(|row| {
            let possible = row.is_possible();
            self.impossible += u64::from(!possible);
            possible
        });
        if let Some(row) = next {
            self.queue.push(Reverse((row.ended_ns, at)));
        }
    }

    fn emit(&mut self, row: JobRow, sink: &mut dyn FnMut(Event)) -> usize {
        let number = u32::try_from(self.tasks.len() + 1).unwrap_or(u32::MAX);
        let tid = row.tid.unwrap_or(number);
        let task = self.tasks.entry(Arc::clone(&row.task)).or_insert(Task { tid, index: None, named: false });
        let tid = row.tid.unwrap_or(task.tid);
        let mut made = 1;
        let mut send = |cpu_ns, kind| sink(Event { at_ns: row.ended_ns, cpu_ns, pid: row.pid, tid, kind });
        if !std::mem::replace(&mut task.named, true) {
            made += 1;
            send(None, Kind::ThreadName { name: Arc::clone(&row.task) });
        }
        // Numbers missing between two rows were skipped by the task or lost on the way here.
        let missing = task.index.map_or(0, |last| row.index.saturating_sub(last.saturating_add(1)));
        let count = missing.saturating_sub(row.skipped);
        if count > 0 {
            made += 1;
            send(None, Kind::Lost { count });
        }
        task.index = Some(row.index);
        let used_ns = row.used_ns.unwrap_or(row.ended_ns - row.started_ns);
        let (released_ns, started_ns) = (row.released_ns, row.started_ns);
        send(None, Kind::Job { task: Arc::clone(&row.task), released_ns, started_ns, used_ns });
        made
    }
}

impl<I: Iterator<Item = JobRow>> Source for Rows<I> {
    type Error = Infallible;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Infallible> {
        let mut made = 0;
        while made < PORTION {
            let Some(Reverse((_, at))) = self.queue.pop() else { break };
            if let Some(row) = self.sources.get_mut(at).and_then(|(_, next)| next.take()) {
                made += self.emit(row, sink);
            }
            self.queue_next(at);
        }
        Ok(made)
    }

    fn ended(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(task: &str, index: u64, released_ns: u64, ended_ns: u64) -> JobRow {
        JobRow {
            task: task.into(),
            pid: 7,
            tid: None,
            index,
            skipped: 0,
            released_ns,
            started_ns: released_ns,
            ended_ns,
            used_ns: None,
        }
    }

    fn all<I: Iterator<Item = JobRow>>(rows: &mut Rows<I>) -> Vec<Event> {
        let mut events = Vec::new();
        while !rows.ended() {
            rows.poll(&mut |event| events.push(event)).unwrap();
        }
        events
    }

    #[test]
    fn tasks_are_merged_named_and_distinguished() {
        let ssm = vec![row("ssm", 0, 0, 5), row("ssm", 1, 10, 14)];
        let wire = vec![row("wire", 0, 2, 4), row("wire", 1, 12, 20)];
        let events = all(&mut from_tasks(vec![ssm.into_iter(), wire.into_iter()]));
        let reported: Vec<_> = events
            .iter()
            .map(|event| match &event.kind {
                Kind::Job { task, used_ns, .. } => (event.at_ns, event.tid, format!("{task} {used_ns}")),
                Kind::ThreadName { name } => (event.at_ns, event.tid, name.to_string()),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (4, 1, "wire"),
            (4, 1, "wire 2"),
            (5, 2, "ssm"),
            (5, 2, "ssm 5"),
            (14, 2, "ssm 4"),
            (20, 1, "wire 8"),
        ];
        assert_eq!(reported, expected.map(|(at_ns, tid, text)| (at_ns, tid, text.to_owned())));
    }

    #[test]
    fn gaps_are_losses_unless_the_task_skipped() {
        let rows = [
            row("a", 3, 0, 1),
            JobRow { skipped: 2, ..row("a", 6, 10, 11) },
            JobRow { skipped: 1, ..row("a", 11, 20, 21) },
        ];
        let losses: Vec<_> = all(&mut from_rows(rows.into_iter()))
            .into_iter()
            .filter_map(|event| match event.kind {
                Kind::Lost { count } => Some((event.at_ns, count)),
                _ => None,
            })
            .collect();
        assert_eq!(losses, [(21, 3)]);
    }

    proptest! {
        #[test]
        fn whatever_the_rows_say_all_possible_jobs_come_in_order(
            times in prop::collection::vec(prop::collection::vec((any::<u8>(), 0_u64..200, 0_u64..200, 0_u64..200), 0..20), 0..4),
        ) {
            let mut possible = 0;
            let tasks: Vec<_> = times
                .iter()
                .enumerate()
                .map(|(number, rows)| {
                    let mut rows: Vec<_> = rows
                        .iter()
                        .map(|(index, released_ns, started_ns, ended_ns)| JobRow {
                            started_ns: *started_ns,
                            ..row(&format!("task {number}"), u64::from(*index), *released_ns, *ended_ns)
                        })
                        .collect();
                    rows.sort_by_key(|row| row.ended_ns);
                    possible += rows.iter().filter(|row| row.is_possible()).count();
                    rows.into_iter()
                })
                .collect();
            let mut rows = from_tasks(tasks);
            let events = all(&mut rows);
            prop_assert!(events.is_sorted_by_key(|event| event.at_ns));
            let jobs = events.iter().filter(|event| matches!(event.kind, Kind::Job { .. })).count();
            prop_assert_eq!(jobs, possible);
            let given: usize = times.iter().map(Vec::len).sum();
            prop_assert_eq!(rows.impossible() as usize, given - possible);
        }
    }
}
