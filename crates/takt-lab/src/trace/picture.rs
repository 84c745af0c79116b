//! The Perfetto files of a traced run: which tracks a robot has, and what goes onto them.

use std::collections::{BTreeSet, HashMap};
use std::io::BufWriter;
use std::path::Path;

use takt_rt::jobs::{JobRecord, MAX_INPUTS};
use takt_rundir::RunDir;
use takt_trace::perfetto::{Argument, Input, PerfettoError, Task, Writer};
use takt_trace::{Event, Kind, Trace, TraceReport};

use super::device::DeviceTracks;
use crate::LabError;
use crate::cell::rows::{FRAMES, JOBS};
use crate::robot::RobotFile;

/// Kept of everything around a late release in a flight recorder's file, before and after.
const MARGIN_NS: u64 = 5_000_000;

/// What is shown beside the kernel's events.
#[derive(Debug)]
pub(super) struct Picture {
    /// The critical task first.
    tasks: Vec<(Task, Vec<JobRecord>)>,
    device: Option<DeviceTracks>,
}

impl Picture {
    /// One task and nothing else.
    pub(super) fn of_task(task: Task, jobs: Vec<JobRecord>) -> Self {
        Self { tasks: vec![(task, jobs)], device: None }
    }

    /// What a robot's run has to show: its critical task, and of the safety cell its cameras and its perception process.
    pub(super) fn of_run(
        file: &RobotFile,
        dir: &RunDir,
        own: Task,
        jobs: &[JobRecord],
    ) -> Result<Self, LabError> {
        let RobotFile::Cell(cell) = file else { return Ok(Self::of_task(own, jobs.to_vec())) };
        let names: Vec<String> = cell.cameras.iter().map(|camera| camera.name.clone()).collect();
        Ok(Self {
            tasks: with_cameras(dir, own, jobs.to_vec(), &names)?,
            device: DeviceTracks::read(dir, &names)?,
        })
    }

    /// Writes everything to `path`; the causes of the worst late releases are marked at the first task.
    pub(super) fn write(&self, path: &Path, trace: &Trace, report: &TraceReport) -> Result<(), LabError> {
        let out = BufWriter::new(takt_files::create_output(path).map_err(LabError::io(path))?);
        self.export(out, trace, report)
            .map_err(|error| LabError::Config(format!("{}: {error}", path.display())))
    }

    fn export(
        &self,
        out: impl std::io::Write,
        trace: &Trace,
        report: &TraceReport,
    ) -> Result<(), PerfettoError> {
        let declared: Vec<Task> = self.tasks.iter().map(|task| task.0.clone()).collect();
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

    /// Keeps the worst windows for a person to look at: everything else of a long run's trace would be megabytes of nothing.
    /// No file where there is no late release.
    pub(super) fn write_late(
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
        let device = self.device.as_ref().map(|device| device.within(|from, to| spans.meet(from, to)));
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

    /// The events within. Where events of a CPU are left out, a mark keeps slices from running through.
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

/// The safety cell's cameras as tasks, whose frames flow into the SSM task's jobs.
fn with_cameras(
    dir: &RunDir,
    mut own: Task,
    jobs: Vec<JobRecord>,
    names: &[String],
) -> Result<Vec<(Task, Vec<JobRecord>)>, LabError> {
    let names: Vec<&String> = names.iter().take(MAX_INPUTS).collect();
    let inputs: Vec<String> = (0..names.len()).map(|camera| format!("input{camera}")).collect();
    let mut columns = vec!["index"];
    columns.extend(inputs.iter().map(String::as_str));
    let consumed = dir.columns(JOBS, &columns)?;
    let row_of: HashMap<u64, usize> =
        consumed[0].iter().enumerate().map(|(row, index)| (*index, row)).collect();
    let mut jobs = jobs;
    for job in &mut jobs {
        let Some(&row) = row_of.get(&job.index) else { continue };
        for (slot, column) in job.input_sequences.iter_mut().zip(&consumed[1..]) {
            *slot = column[row];
        }
    }
    own.inputs = (0..names.len()).map(|slot| Input { slot, from: slot + 1 }).collect();
    let frames = dir.columns(FRAMES, &["camera", "sequence", "arrival_ns", "start_ns", "published_ns"])?;
    let mut tasks = vec![(own, jobs)];
    for (camera, name) in names.iter().enumerate() {
        let mine = (0..frames[0].len()).filter(|&row| frames[0][row] == camera as u64);
        let records = mine.map(|row| JobRecord {
            index: frames[1][row],
            planned_ns: frames[2][row],
            wake_ns: frames[3][row],
            start_ns: frames[3][row],
            end_ns: frames[4][row],
            output_sequence: frames[1][row],
            ..JobRecord::default()
        });
        tasks.push((Task { name: format!("camera {name}"), ..Task::default() }, records.collect()));
    }
    Ok(tasks)
}
