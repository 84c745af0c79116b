//! Job records: what every job of a task did and when, carried from the real-time thread to a
//! collector that never holds it up.
//!
//! The task pushes one [`JobRecord`] per job through a wait-free [ring](crate::ring); the
//! collector's best-effort thread drains the rings of all tasks in batches into a [`JobSink`]. A
//! full ring loses records, counts them, and says so to the sink; the gap is where
//! [`JobRecord::index`] jumps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::periodic::Release;
use crate::ring::{Consumer, Producer, ring};
use crate::signal::Signal;
use crate::thread::{self, Handle};

/// Inputs that one record can name: five cameras, a robot, and two more.
pub const MAX_INPUTS: usize = 8;

/// One job of a task. Times are nanoseconds of CLOCK_MONOTONIC. Plain data of fixed size (120
/// bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(C)]
pub struct JobRecord {
    /// Number of the release (periodic) or of the event.
    pub index: u64,
    /// Planned release; for an event-driven job, the time stamp of the event.
    pub planned_ns: u64,
    /// The thread was awake.
    pub wake_ns: u64,
    /// The job's work began (inputs taken).
    pub start_ns: u64,
    /// The job's work ended (outputs published).
    pub end_ns: u64,
    /// Sequence number of the value consumed from each input, in the order that the task declares;
    /// 0 for an input that has delivered nothing, or that does not exist.
    pub input_sequences: [u64; MAX_INPUTS],
    /// Releases skipped since the job before.
    pub skipped: u32,
    /// The task's own outcome code.
    pub outcome: u32,
    /// Sequence number of what the job published; 0 for nothing.
    pub output_sequence: u64,
}

impl JobRecord {
    /// The record of a job of `release`, its times of work and its inputs still to be filled in.
    pub fn of(release: &Release) -> Self {
        Self {
            index: release.index,
            planned_ns: release.planned_ns,
            wake_ns: release.wake_ns,
            skipped: u32::try_from(release.skipped).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    /// Wake-up after the planned release.
    pub fn lateness_ns(&self) -> u64 {
        self.wake_ns.saturating_sub(self.planned_ns)
    }

    /// End after the planned release: the response time.
    pub fn response_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.planned_ns)
    }

    /// Start to end.
    pub fn execution_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Number of a task within one collector, from 0 in the order of [`JobCollector::recorder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId(pub u32);

/// Destination of drained records. Called only from the collector's thread; may block and allocate.
pub trait JobSink: Send {
    /// A task began to record; comes before its records.
    fn task(&mut self, task: TaskId, name: &str) -> io::Result<()>;
    /// Records of one task, oldest first.
    fn records(&mut self, task: TaskId, records: &[JobRecord]) -> io::Result<()>;
    /// The task's ring was full: `total` records have been lost so far. Comes only when that grew.
    fn lost(&mut self, task: TaskId, total: u64) -> io::Result<()>;
    /// The rings have been drained for now, or (the last time) for good.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps every record in memory.
#[derive(Debug, Clone, Default)]
pub struct MemorySink {
    /// The tasks in the order of their ids.
    pub tasks: Vec<MemoryTask>,
}

/// A task's part of a [`MemorySink`].
#[derive(Debug, Clone, Default)]
pub struct MemoryTask {
    /// The task's name.
    pub name: String,
    /// Its records.
    pub records: Vec<JobRecord>,
    /// Records lost.
    pub lost: u64,
}

impl JobSink for MemorySink {
    fn task(&mut self, _: TaskId, name: &str) -> io::Result<()> {
        self.tasks.push(MemoryTask { name: name.into(), ..MemoryTask::default() });
        Ok(())
    }

    fn records(&mut self, task: TaskId, records: &[JobRecord]) -> io::Result<()> {
        if let Some(entry) = self.tasks.get_mut(task.0 as usize) {
            entry.records.extend_from_slice(records);
        }
        Ok(())
    }

    fn lost(&mut self, task: TaskId, total: u64) -> io::Result<()> {
        if let Some(entry) = self.tasks.get_mut(task.0 as usize) {
            entry.lost = total;
        }
        Ok(())
    }
}

/// The real-time side of a task's records.
#[derive(Debug)]
pub struct JobRecorder {
    task: TaskId,
    producer: Producer<JobRecord>,
}

impl JobRecorder {
    /// Hands a record to the collector. Wait-free, no allocation, no system call; false when the
    /// ring is full, and the record is lost and counted.
    pub fn push(&mut self, record: JobRecord) -> bool {
        self.producer.push(record)
    }

    /// Records lost so far.
    pub fn lost(&self) -> u64 {
        self.producer.lost()
    }

    /// The task's number.
    pub fn task(&self) -> TaskId {
        self.task
    }
}

/// Counts of a task's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTotals {
    /// The task's name.
    pub name: String,
    /// Records drained.
    pub records: u64,
    /// Records lost because the ring was full.
    pub lost: u64,
}

/// Result of a collector.
#[derive(Debug)]
#[must_use = "`error` shows whether records were drained and not saved"]
pub struct Collected<S> {
    /// The sink.
    pub sink: S,
    /// Every task, in the order of the ids.
    pub tasks: Vec<TaskTotals>,
    /// The sink's first error, if any ([`Error::Sink`]).
    pub error: Option<Error>,
}

struct Lane {
    task: TaskId,
    announced: bool,
    reported_lost: u64,
    totals: TaskTotals,
    consumer: Consumer<JobRecord>,
}

#[derive(Default)]
struct Control {
    /// Lanes that the collector has not taken over yet.
    incoming: Mutex<(u32, Vec<Lane>)>,
    stop: AtomicBool,
    signal: Signal,
}

/// The collector: drains the rings every period from a thread of its own (SCHED_OTHER).
#[derive(Debug)]
pub struct JobCollector<S: JobSink + 'static> {
    control: Arc<Control>,
    thread: Option<Handle<Collected<S>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl<S: JobSink + 'static> JobCollector<S> {
    /// Starts the thread, draining every `period` (10 ms suits rings of a second's records).
    ///
    /// # Errors
    /// [`Error::Spawn`].
    pub fn start(sink: S, period: Duration) -> Result<Self, Error> {
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        let body = move || Drain::new(sink).run(&shared, period);
        let thread = thread::spawn_exempt("takt-collector", "drains job records", body)?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Adds a task whose ring holds at least `capacity` records. Allocates: call it before the
    /// task's loop.
    pub fn recorder(&self, name: &str, capacity: usize) -> JobRecorder {
        let (producer, consumer) = ring(capacity);
        let mut incoming = self.control.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let task = TaskId(incoming.0);
        incoming.0 += 1;
        let totals = TaskTotals { name: name.into(), records: 0, lost: 0 };
        incoming.1.push(Lane { task, announced: false, reported_lost: 0, totals, consumer });
        JobRecorder { task, producer }
    }

    /// Drains what is left, ends the thread and returns the sink. End the recording tasks first:
    /// what they push later is gone.
    ///
    /// # Errors
    /// [`Error::Panicked`] when the sink panicked; its other failures are in [`Collected::error`].
    pub fn stop(mut self) -> Result<Collected<S>, Error> {
        self.request_stop();
        match self.thread.take() {
            Some(thread) => thread.join(),
            // Only `drop` takes the thread besides.
            None => Err(Error::Panicked { thread: "takt-collector".into(), message: "stopped twice".into() }),
        }
    }

    fn request_stop(&self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.signal.notify();
    }
}

impl<S: JobSink + 'static> Drop for JobCollector<S> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.request_stop();
            let _ = thread.join();
        }
    }
}

/// The state of the collector's thread.
struct Drain<S> {
    sink: S,
    lanes: Vec<Lane>,
    batch: Vec<JobRecord>,
    error: Option<io::Error>,
    unsaved: u64,
}

impl<S: JobSink> Drain<S> {
    fn new(sink: S) -> Self {
        Self { sink, lanes: Vec::new(), batch: vec![JobRecord::default(); 1024], error: None, unsaved: 0 }
    }

    fn run(mut self, control: &Control, period: Duration) -> Collected<S> {
        loop {
            let seen = control.signal.value();
            // Read before draining: what was pushed before the stop is drained in this round.
            let stop = control.stop.load(Ordering::Acquire);
            self.round(control);
            if stop {
                break;
            }
            control.signal.wait(seen, period);
        }
        let unsaved = self.unsaved;
        Collected {
            sink: self.sink,
            tasks: self.lanes.into_iter().map(|lane| lane.totals).collect(),
            error: self.error.map(|source| Error::Sink { source, unsaved }),
        }
    }

    fn round(&mut self, control: &Control) {
        let mut incoming = control.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        self.lanes.append(&mut incoming.1);
        drop(incoming);
        for lane in &mut self.lanes {
            let mut keep = |outcome: io::Result<()>| match outcome {
                Ok(()) => true,
                Err(error) => {
                    self.error.get_or_insert(error);
                    false
                }
            };
            if !lane.announced {
                lane.announced = true;
                keep(self.sink.task(lane.task, &lane.totals.name));
            }
            loop {
                let count = lane.consumer.take(&mut self.batch);
                if count == 0 {
                    break;
                }
                lane.totals.records += count as u64;
                // Draining goes on after a failure: the task must not see its ring fill up.
                if !keep(self.sink.records(lane.task, &self.batch[..count])) {
                    self.unsaved += count as u64;
                }
                if count < self.batch.len() {
                    break;
                }
            }
            lane.totals.lost = lane.consumer.lost();
            if lane.totals.lost > lane.reported_lost {
                lane.reported_lost = lane.totals.lost;
                keep(self.sink.lost(lane.task, lane.totals.lost));
            }
        }
        if let Err(error) = self.sink.flush() {
            self.error.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(index: u64) -> JobRecord {
        JobRecord { index, planned_ns: 10 * index, end_ns: 10 * index + 3, ..JobRecord::default() }
    }

    #[test]
    fn records_of_several_tasks_arrive_whole_and_in_order() {
        let collector = JobCollector::start(MemorySink::default(), Duration::from_micros(200)).unwrap();
        let tasks: Vec<_> = ["ssm", "camera-0"]
            .into_iter()
            .map(|name| {
                let mut recorder = collector.recorder(name, 1 << 14);
                std::thread::spawn(move || {
                    for index in 0..10_000 {
                        assert!(recorder.push(record(index)));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().unwrap();
        }
        let collected = collector.stop().unwrap();
        assert!(collected.error.is_none());
        for (task, name) in collected.sink.tasks.iter().zip(["ssm", "camera-0"]) {
            assert_eq!(task.name, name);
            assert_eq!(task.records, (0..10_000).map(record).collect::<Vec<_>>());
        }
        assert_eq!(collected.tasks[0], TaskTotals { name: "ssm".into(), records: 10_000, lost: 0 });
    }

    #[test]
    fn losses_are_counted_and_reported() {
        let collector = JobCollector::start(MemorySink::default(), Duration::from_secs(3600)).unwrap();
        let mut recorder = collector.recorder("flood", 4);
        // The first round may come before or after the pushes; either way all are drained or
        // counted.
        let kept = (0..100).filter(|&index| recorder.push(record(index))).count() as u64;
        assert_eq!(recorder.lost(), 100 - kept);
        let collected = collector.stop().unwrap();
        assert_eq!(collected.sink.tasks[0].records.len() as u64, kept);
        assert_eq!(collected.sink.tasks[0].lost, 100 - kept);
        assert!(kept < 100);
    }

    struct FullDisk;

    impl JobSink for FullDisk {
        fn task(&mut self, _: TaskId, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn records(&mut self, _: TaskId, _: &[JobRecord]) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn lost(&mut self, _: TaskId, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failing_sink_is_reported_and_does_not_hold_the_task_up() {
        let collector = JobCollector::start(FullDisk, Duration::from_millis(1)).unwrap();
        let mut recorder = collector.recorder("ssm", 16);
        for index in 0..10 {
            assert!(recorder.push(record(index)));
        }
        let collected = collector.stop().unwrap();
        let Some(Error::Sink { source, unsaved: 10 }) = collected.error else {
            panic!("{:?}", collected.error)
        };
        assert_eq!(source.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn a_record_measures_from_the_plan() {
        let release = Release { index: 4, planned_ns: 1000, wake_ns: 1010, skipped: 2 };
        let record = JobRecord { start_ns: 1012, end_ns: 1100, ..JobRecord::of(&release) };
        assert_eq!((record.lateness_ns(), record.response_ns(), record.execution_ns()), (10, 100, 88));
        assert_eq!((record.index, record.skipped), (4, 2));
        assert_eq!(size_of::<JobRecord>(), 120);
    }
}
