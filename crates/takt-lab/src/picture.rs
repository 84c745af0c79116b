//! The Perfetto files of a traced run: which tracks a robot has, and what goes onto them.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufWriter};
use std::path::Path;

use takt_rt::jobs::JobRecord;
use takt_trace::perfetto::{Argument, PerfettoError, Task, Writer};
use takt_trace::{Event, Kind, Trace, TraceReport};

use crate::LabError;

/// Kept of everything around a late release in a flight recorder's file, before and after.
const MARGIN_NS: u64 = 5_000_000;

/// Work of a device during the window, as separate tracks.
pub trait Device: fmt::Debug {
    /// Writes the tracks.
    ///
    /// # Errors
    /// The write error.
    fn write(&self, writer: &mut Writer<&mut dyn io::Write>) -> Result<(), PerfettoError>;

    /// The part of it for which `meets` says yes of its times from and to.
    fn within(&self, meets: &dyn Fn(u64, u64) -> bool) -> Box<dyn Device>;
}

/// Contents of the picture besides the kernel's events.
#[derive(Debug)]
pub struct Picture {
    /// The critical task first.
    tasks: Vec<(Task, Vec<JobRecord>)>,
    device: Option<Box<dyn Device>>,
}

impl Picture {
    /// One task and nothing else.
    pub(crate) fn of_task(task: Task, jobs: Vec<JobRecord>) -> Self {
        Self { tasks: vec![(task, jobs)], device: None }
    }

    /// Several tasks, the critical one first, and what a device did.
    pub fn of(tasks: Vec<(Task, Vec<JobRecord>)>, device: Option<Box<dyn Device>>) -> Self {
        Self { tasks, device }
    }

    /// Writes everything to `path`; the causes of the worst late releases are marked at the first
    /// task.
    pub fn write(&self, path: &Path, trace: &Trace, report: &TraceReport) -> Result<(), LabError> {
        let out = BufWriter::new(takt_files::create_output(path).map_err(LabError::io(path))?);
        self.export(out, trace, report)
            .map_err(|error| LabError::Config(format!("{}: {error}", path.display())))
    }

    fn export(
        &self,
        mut out: impl io::Write,
        trace: &Trace,
        report: &TraceReport,
    ) -> Result<(), PerfettoError> {
        let declared: Vec<Task> = self.tasks.iter().map(|task| task.0.clone()).collect();
        let out: &mut dyn io::Write = &mut out;
        let mut writer = Writer::new(out, trace, &declared)?;
        writer.events(&trace.events)?;
        for (index, (_, jobs)) in self.tasks.iter().enumerate() {
            writer.jobs(index, jobs)?;
        }
        if let Some(device) = &self.device {
            device.write(&mut writer)?;
        }
        for late in report.windows.iter().filter(|_| !self.tasks.is_empty()) {
            let name = format!("late: {}", late.cause.title());
            let arguments = [
                ("who", Argument::Text(late.who.clone())),
                ("release", Argument::Number(i64::try_from(late.index).unwrap_or(i64::MAX))),
                ("share_percent", Argument::Number((100.0 * late.share) as i64)),
            ];
            writer.mark(0, late.planned_ns, &name, &arguments)?;
        }
        writer.finish().map(drop)
    }

    /// Keeps the worst windows for a person to look at: everything else of a long run's trace would
    /// be megabytes of nothing. No file where there is no late release.
    pub(crate) fn write_late(
        &self,
        path: &Path,
        mut trace: Trace,
        report: &TraceReport,
    ) -> Result<(), LabError> {
        let spans = Spans::around(report);
        trace.events = spans.cut(&trace.events);
        if trace.events.is_empty() {
            return Ok(());
        }
        let jobs_within = |jobs: &[JobRecord]| {
            jobs.iter().filter(|job| spans.meet(job.planned_ns, job.end_ns)).copied().collect()
        };
        let tasks = self.tasks.iter().map(|(task, jobs)| (task.clone(), jobs_within(jobs))).collect();
        let device = self.device.as_ref().map(|device| device.within(&|from, to| spans.meet(from, to)));
        Picture { tasks, device }.write(path, &trace, report)
    }
}

/// Times to keep, in the order of their begins.
struct Spans(Vec<(u64, u64)>);

impl Spans {
    fn around(report: &TraceReport) -> Self {
        let around =
            |from_ns: u64, to_ns: u64| (from_ns.saturating_sub(MARGIN_NS), to_ns.saturating_add(MARGIN_NS));
        let mut spans: Vec<(u64, u64)> =
            report.windows.iter().map(|late| around(late.planned_ns, late.end_ns)).collect();
        spans.sort_unstable();
        // Windows may overlap: ends in the order of begins, each at least the one before.
        let mut latest = 0;
        for span in &mut spans {
            latest = latest.max(span.1);
            span.1 = latest;
        }
        Self(spans)
    }

    /// Whether any of them lies, in part, between the two.
    fn meet(&self, from_ns: u64, to_ns: u64) -> bool {
        let begun = self.0.partition_point(|span| span.0 <= to_ns);
        begun.checked_sub(1).is_some_and(|last| self.0[last].1 >= from_ns)
    }

    /// The events within. If events of a CPU are left out, a mark keeps slices from running
    /// through.
    fn cut(&self, events: &[Event]) -> Vec<Event> {
        let mut left_out = BTreeSet::new();
        let mut kept = Vec::new();
        for event in events {
            if !self.meet(event.time_ns, event.time_ns) {
                left_out.insert(event.cpu);
                continue;
            }
            if left_out.remove(&event.cpu) {
                kept.push(Event { tid: 0, kind: Kind::Lost { count: 0 }, ..*event });
            }
            kept.push(*event);
        }
        kept
    }
}
