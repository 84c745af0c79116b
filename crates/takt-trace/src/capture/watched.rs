//! Job records on their way, late ones marked.

use takt_rt::jobs::{JobRecord, JobSink, TaskId};

use super::Marker;

/// A sink that hands job records on and keeps the windows of late releases.
#[derive(Debug)]
pub struct Watched<S> {
    /// The sink behind.
    pub inner: S,
    marker: Marker,
    lateness_ns: u64,
    response_ns: u64,
}

impl<S> Watched<S> {
    /// Keeps the window of every job whose wake-up is later than `lateness_ns`, or whose end is
    /// later than `response_ns` after its release.
    pub fn new(inner: S, marker: Marker, lateness_ns: u64, response_ns: u64) -> Self {
        Self { inner, marker, lateness_ns, response_ns }
    }
}

impl<S: JobSink> JobSink for Watched<S> {
    fn task(&mut self, task: TaskId, name: &str) -> std::io::Result<()> {
        self.inner.task(task, name)
    }

    fn records(&mut self, task: TaskId, records: &[JobRecord]) -> std::io::Result<()> {
        for job in records {
            if job.lateness_ns() > self.lateness_ns || job.response_ns() > self.response_ns {
                let weight_ns = job.lateness_ns().max(job.response_ns());
                self.marker.mark_job(job.planned_ns, job.end_ns, weight_ns);
            }
        }
        self.inner.records(task, records)
    }

    fn lost(&mut self, task: TaskId, total: u64) -> std::io::Result<()> {
        self.inner.lost(task, total)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
