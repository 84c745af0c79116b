//! Keeps the job records of a task as a sample file.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_rt::jobs::{JobRecord, JobSink, TaskId};
use takt_rundir::{RunDir, SampleFile};

/// A kill loses at most this much.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

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

/// Writes every task's records to the sample file of its name.
#[derive(Debug)]
pub struct Journal {
    dir: RunDir,
    files: Vec<SampleFile>,
    flushed: Instant,
    /// Records lost so far, all tasks.
    pub lost: u64,
}

impl Journal {
    /// A journal in `dir`.
    pub fn new(dir: &RunDir) -> Self {
        Self { dir: dir.clone(), files: Vec::new(), flushed: Instant::now(), lost: 0 }
    }
}

fn io_error(error: takt_rundir::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl JobSink for Journal {
    fn task(&mut self, _: TaskId, name: &str) -> io::Result<()> {
        self.files.push(self.dir.samples(name).map_err(io_error)?);
        Ok(())
    }

    fn records(&mut self, task: TaskId, records: &[JobRecord]) -> io::Result<()> {
        let Some(file) = self.files.get_mut(task.0 as usize) else { return Ok(()) };
        for record in records {
            let JobRecord { index, planned_ns, wake_ns, start_ns, end_ns, skipped, .. } = *record;
            file.push(&JobRow { index, planned_ns, wake_ns, start_ns, end_ns, skipped }).map_err(io_error)?;
        }
        Ok(())
    }

    fn lost(&mut self, _: TaskId, total: u64) -> io::Result<()> {
        self.lost = total;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.flushed.elapsed() >= FLUSH_EVERY {
            self.flushed = Instant::now();
            self.close()?;
        }
        Ok(())
    }
}

impl Journal {
    /// Hands everything to the kernel now.
    ///
    /// # Errors
    /// The system's.
    pub fn close(&mut self) -> io::Result<()> {
        self.files.iter_mut().try_for_each(|file| file.flush().map_err(io_error))
    }
}
