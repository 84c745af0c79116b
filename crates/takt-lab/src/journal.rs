//! Keeps the job records of a task: the first ones as a sample file, all of them in the recorders of its measures.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::jobs::{JobRecord, JobSink, TaskId};
use takt_rundir::{Measure, RunDir};

use crate::LabError;
use crate::collect::{FLUSH_PERIOD, Recorders, Rows, Sample};
use crate::jobs::{Task, Teller};
use crate::keeper::{MOST_ROWS, Window, rows_kept};
use crate::releases::{Job, Releases, Seen};

/// File of what the journal counts besides its recorders.
pub const JOURNAL_FILE: &str = "journal.json";

/// One line: the times of a job. CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Serialize)]
struct JobRow {
    index: u64,
    planned_ns: u64,
    wake_ns: u64,
    start_ns: u64,
    end_ns: u64,
    skipped: u32,
}

/// What a journal counts besides its recorders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records lost.
    pub lost: u64,
    /// Releases within the window.
    releases: Option<Seen>,
}

/// Writes the records of the tasks that it is told of.
#[derive(Debug)]
pub struct Journal {
    dir: RunDir,
    rows: Option<Rows>,
    most_rows: u64,
    recorders: Recorders<JobRecord>,
    flushed: Instant,
    window: Window,
    /// The releases of the window.
    pub releases: Releases,
    /// What else it has counted.
    pub counts: Counts,
    /// Records lost before this part of the run.
    lost_before: u64,
    told: Option<(Teller, &'static Task)>,
}

/// What the columns of a [`JobRow`] say of a measure that counts from the planned release.
fn sample(measure: &Measure) -> Option<Sample<JobRecord>> {
    match (measure.column.as_str(), measure.since_column.as_deref()) {
        ("wake_ns", Some("planned_ns")) => Some(|record| (record.planned_ns, record.lateness_ns())),
        ("end_ns", Some("planned_ns")) => Some(|record| (record.planned_ns, record.response_ns())),
        ("end_ns", Some("start_ns")) => Some(|record| (record.planned_ns, record.execution_ns())),
        _ => None,
    }
}

impl Journal {
    /// A journal of one task with this period in `dir`, with a recorder for each of `measures`, whose files the measures then name.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn new(
        dir: &RunDir,
        measures: &mut [Measure],
        window: &Window,
        period: Duration,
    ) -> Result<Self, LabError> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            dir: dir.clone(),
            rows: None,
            most_rows: rows_kept(MOST_ROWS)?,
            releases: Releases::new(period_ns, window, measures, &["lateness", "response"]),
            recorders: Recorders::open(dir, measures, window, sample)?,
            flushed: Instant::now(),
            window: window.clone(),
            counts: Counts::default(),
            lost_before: 0,
            told: None,
        })
    }

    /// Goes on counting after a resumption.
    pub fn going_on(mut self, counts: Option<Counts>) -> Self {
        self.counts = counts.unwrap_or_default();
        self.lost_before = self.counts.lost;
        self.releases = self.releases.going_on(self.counts.releases.as_ref());
        self
    }

    /// Also tells the jobs to a manager.
    pub fn telling(mut self, teller: Teller, task: &'static Task) -> Self {
        self.told = Some((teller, task));
        self
    }

    /// Hands everything to the kernel now, with a checkpoint.
    ///
    /// # Errors
    /// The system's.
    pub fn close(&mut self) -> io::Result<()> {
        let mut draft = self.window.draft();
        if let Some(rows) = &mut self.rows {
            rows.keep(&mut draft).map_err(io_error)?;
        }
        self.recorders.keep(&mut draft).map_err(io_error)?;
        self.counts.releases = Some(self.releases.seen());
        draft.file(JOURNAL_FILE, &self.counts).map_err(io_error)?;
        self.dir.checkpoint(&draft).map_err(io_error)
    }
}

fn io_error(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl JobSink for Journal {
    fn task(&mut self, _: TaskId, name: &str) -> io::Result<()> {
        self.rows = Some(Rows::bounded(&self.dir, name, self.most_rows).map_err(io_error)?);
        Ok(())
    }

    fn records(&mut self, _: TaskId, records: &[JobRecord]) -> io::Result<()> {
        for record in records {
            let JobRecord { planned_ns, wake_ns, .. } = *record;
            let job = Job { planned_ns, wake_ns, skipped: record.skipped.into() };
            self.releases.job(job, |measure| match measure {
                "lateness" => Some(record.lateness_ns()),
                _ => Some(record.response_ns()),
            });
            if let Some((teller, task)) = &mut self.told {
                teller.job(task, 0, [record.planned_ns, record.start_ns, record.end_ns]);
            }
            self.recorders.push(record);
            let JobRecord { index, planned_ns, wake_ns, start_ns, end_ns, skipped, .. } = *record;
            let row = || JobRow { index, planned_ns, wake_ns, start_ns, end_ns, skipped };
            if let Some(rows) = self.rows.as_mut().filter(|_| self.window.keeps(planned_ns)) {
                rows.push(row).map_err(io_error)?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, _: TaskId, total: u64) -> io::Result<()> {
        if let Some((teller, task)) = &mut self.told {
            teller.lost(task, total.saturating_sub(self.counts.lost - self.lost_before));
        }
        self.counts.lost = self.lost_before + total;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            self.flushed = Instant::now();
            self.close()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_stats::Streamed;

    /// Forty days at 1 kHz take too long, but the bounds do not depend on the length: rows and files stop growing.
    #[test]
    fn a_run_of_any_length_keeps_its_first_rows_and_counts_all() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let mut measures = [
            Measure::new("lateness", "L", "cyclic", "wake_ns").since("planned_ns").deadline_ns(400),
            Measure::new("response", "R", "cyclic", "end_ns").since("planned_ns"),
        ];
        let window = Window::default();
        let mut journal = Journal::new(&dir, &mut measures, &window, Duration::from_micros(1)).unwrap();
        assert_eq!(measures[0].recorder.as_deref(), Some("recorder-lateness.json"));
        journal.most_rows = 1000;
        window.open(5000);
        journal.task(TaskId(0), "cyclic").unwrap();
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
            let records: Vec<JobRecord> = (part * 5000..(part + 1) * 5000).map(record).collect();
            journal.records(TaskId(0), &records).unwrap();
            journal.close().unwrap();
            let size = |name: &str| dir.path().join(name).metadata().unwrap().len();
            sizes.push((size("samples/cyclic.csv"), size("checkpoint.json")));
        }
        // At 7, 1007, 2007 ...; of the two skipped before job 7, at 7 us, both lie in the window that opened at 5 us.
        assert_eq!(journal.releases.never, 2 + 99 * 3);
        let lateness: Streamed = dir.read_json("recorder-lateness.json").unwrap();
        let lateness = lateness.recorder;
        assert_eq!((lateness.count(), lateness.max_ns()), (100_000 - 5, 499));
        assert_eq!(lateness.misses().misses, (401..500).len() as u64 * 200);
        assert_eq!(sizes[1].0, sizes[19].0, "the sample file goes on growing");
        assert!(sizes[19].1 < sizes[1].1 + 100_000, "the recorder grows with the run: {sizes:?}");
        let rows = dir.columns("cyclic", &["index"]).unwrap();
        assert_eq!(rows[0], (0..1000).collect::<Vec<u64>>());
    }
}
