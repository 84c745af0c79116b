//! Reports late releases to a tracer while a robot runs.

use takt_rundir::Measure;
use takt_trace::Marker;

/// Columns that measures of releases count from and to.
pub(crate) const PLANNED: &str = "planned_ns";
const WAKE: &str = "wake_ns";

/// Reports a tracer which windows to keep while a robot runs.
#[derive(Clone, Debug)]
pub struct LateWatch {
    marker: Marker,
    /// Sample file of the critical thread's jobs.
    file: &'static str,
    lateness_ns: u64,
}

impl LateWatch {
    /// Of releases in this sample file, whose wake-ups are late from `lateness_ns` on.
    pub(crate) fn new(marker: Marker, file: &'static str, lateness_ns: u64) -> Self {
        Self { marker, file, lateness_ns }
    }

    /// From what value on this measure's are late; None for measures that do not count from a
    /// release of the critical thread.
    pub fn limit_ns(&self, measure: &Measure) -> Option<u64> {
        if measure.file != self.file || measure.since_column.as_deref() != Some(PLANNED) {
            return None;
        }
        if measure.column == WAKE { Some(self.lateness_ns) } else { measure.deadline_ns }
    }

    /// Something else was late in this time.
    pub fn keep(&self, from_ns: u64, to_ns: u64) {
        self.marker.mark_job(from_ns, to_ns, to_ns.saturating_sub(from_ns));
    }

    /// A release planned at `planned_ns` was late by `value_ns`, or ended so much after it.
    pub fn late(&self, planned_ns: u64, value_ns: u64) {
        self.marker.mark_job(planned_ns, planned_ns.saturating_add(value_ns), value_ns);
    }
}
