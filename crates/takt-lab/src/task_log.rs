//! The jobs of one task on their way into a run directory: the first ones as rows of a sample file,
//! all of them in the recorders of its measures, in its releases, and to the manager that may have
//! started the run. Collectors have one for each task with a period.

use std::time::Duration;

use serde::Serialize;
use takt_rt::jobs::JobRecord;
use takt_rundir::{Draft, Measure, RunDir};

use crate::LabError;
use crate::collect::{Recorders, Rows, Sample};
use crate::jobs::{JobReporter, Task};
use crate::keeper::Window;
use crate::releases::{Job, Releases, Seen};

/// When a job was to run, and ran: CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up.
    pub wake_ns: u64,
    /// Beginning of its execution time for a manager.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Releases passed over since the job before.
    pub skipped: u64,
}

/// A record that says when its job ran.
pub trait Timed {
    /// When.
    fn times(&self) -> Times;
}

impl Timed for JobRecord {
    fn times(&self) -> Times {
        let Self { planned_ns, wake_ns, start_ns, end_ns, skipped, .. } = *self;
        Times { planned_ns, wake_ns, start_ns, end_ns, skipped: skipped.into() }
    }
}

#[derive(Debug)]
pub struct TaskLog<R> {
    task: &'static Task,
    window: Window,
    rows: Rows,
    recorders: Recorders<R>,
    /// Measures whose rows of misses are followed.
    followed: Vec<(String, Sample<R>)>,
    /// Records that found their ring full, of which the manager knows.
    lost: u64,
    /// The releases of the window.
    pub releases: Releases,
}

impl<R: Timed> TaskLog<R> {
    /// Of a task with that period. `sample` says what of a record a measure is, where the measure
    /// is one of this task; those of `measures` then name their recorders' files.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn new(
        dir: &RunDir,
        task: &'static Task,
        period: Duration,
        measures: &mut [Measure],
        window: &Window,
        sample: impl Fn(&Measure) -> Option<Sample<R>>,
    ) -> Result<Self, LabError> {
        // A deadline counts from the release: what has one may be missed by releases that never
        // ran.
        let due = measures.iter().filter(|measure| measure.deadline_ns.is_some());
        let followed: Vec<(String, Sample<R>)> =
            due.filter_map(|measure| Some((measure.name.clone(), sample(measure)?))).collect();
        let names: Vec<&str> = followed.iter().map(|(name, _)| name.as_str()).collect();
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            task,
            window: window.clone(),
            rows: Rows::new(dir, task.file)?,
            releases: Releases::new(period_ns, window, measures, &names),
            recorders: Recorders::open(dir, measures, window, sample)?,
            followed,
            lost: 0,
        })
    }

    /// Goes on counting after a resumption.
    pub fn going_on(mut self, before: Option<&Seen>) -> Self {
        self.releases = self.releases.going_on(before);
        self
    }

    /// Takes a job; its row is made only where it is kept.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn push<T: Serialize>(
        &mut self,
        reporter: &mut JobReporter,
        record: &R,
        row: impl FnOnce() -> T,
    ) -> Result<(), LabError> {
        let Times { planned_ns, wake_ns, start_ns, end_ns, skipped } = record.times();
        reporter.job(self.task, 0, [planned_ns, start_ns, end_ns]);
        let followed = &self.followed;
        self.releases.job(Job { planned_ns, wake_ns, skipped }, |measure| {
            followed.iter().find(|(name, _)| name == measure).map(|(_, sample)| sample(record).1)
        });
        self.recorders.push(record);
        if self.window.keeps(planned_ns) { self.rows.push(row) } else { Ok(()) }
    }

    /// So many records of this part of the run have found their ring full.
    pub fn lost(&mut self, reporter: &mut JobReporter, total: u64) {
        if total > self.lost {
            reporter.lost(self.task, total - self.lost);
            self.lost = total;
        }
    }

    /// Puts its state into a checkpoint, all rows handed to the kernel before.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn keep(&mut self, draft: &mut Draft) -> Result<(), LabError> {
        self.rows.keep(draft)?;
        self.recorders.keep(draft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_stats::Streamed;

    static TASK: Task = Task { name: "t", thread: "t", file: "jobs", columns: ["", "", ""], number: None };

    #[derive(Serialize)]
    struct Row {
        index: u64,
    }

    fn sample(measure: &Measure) -> Option<Sample<JobRecord>> {
        match measure.name.as_str() {
            "lateness" => Some(|job| (job.planned_ns, job.lateness_ns())),
            "response" => Some(|job| (job.planned_ns, job.response_ns())),
            _ => None,
        }
    }

    /// Forty days at 1 kHz take too long, but the bounds do not depend on the length: rows and
    /// files stop growing.
    #[test]
    fn a_run_of_any_length_keeps_its_first_rows_and_counts_all() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let mut measures = [
            Measure::new("lateness", "L", "jobs", "wake_ns").since("planned_ns").deadline_ns(400),
            Measure::new("response", "R", "jobs", "end_ns").since("planned_ns"),
        ];
        let window = Window::default();
        let period = Duration::from_micros(1);
        let mut log = TaskLog::new(&dir, &TASK, period, &mut measures, &window, sample).unwrap();
        assert_eq!(measures[0].recorder.as_deref(), Some("recorder-lateness.json"));
        log.rows = Rows::bounded(&dir, "jobs", 1000).unwrap();
        window.open(5000);
        let record = |index: u64| JobRecord {
            index,
            planned_ns: 1000 * index,
            wake_ns: 1000 * index + index % 500,
            end_ns: 1000 * index + 600,
            skipped: if index % 1000 == 7 { 3 } else { 0 },
            ..JobRecord::default()
        };
        let mut sizes = Vec::new();
        for part in 0..20u64 {
            for index in part * 5000..(part + 1) * 5000 {
                log.push(&mut JobReporter::default(), &record(index), || Row { index }).unwrap();
            }
            let mut draft = window.draft();
            log.keep(&mut draft).unwrap();
            dir.checkpoint(&draft).unwrap();
            let size = |name: &str| dir.path().join(name).metadata().unwrap().len();
            sizes.push((size("samples/jobs.csv"), size("checkpoint.json")));
        }
        // At 7, 1007, 2007 ...; of the two skipped before job 7, at 7 us, both lie in the window
        // that opened at 5 us.
        assert_eq!(log.releases.skipped, 2 + 99 * 3);
        log.releases.count_in(&mut measures);
        assert_eq!((measures[0].longest_miss_run, measures[1].longest_miss_run), (Some(99), None));
        let lateness: Streamed = dir.read_json("recorder-lateness.json").unwrap();
        let lateness = lateness.recorder;
        assert_eq!((lateness.count(), lateness.max_ns()), (100_000 - 5, 499));
        assert_eq!(lateness.misses().misses, (401..500).len() as u64 * 200);
        assert_eq!(sizes[1].0, sizes[19].0, "the sample file goes on growing");
        assert!(sizes[19].1 < sizes[1].1 + 100_000, "the recorder grows with the run: {sizes:?}");
        let rows = dir.columns("jobs", &["index"]).unwrap();
        assert_eq!(rows[0], (0..1000).collect::<Vec<u64>>());
    }
}
