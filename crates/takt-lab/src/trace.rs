//! A robot's run with the kernel traced meanwhile: how its critical thread was activated, and why it was late.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::jobs::{JobRecord, MAX_INPUTS};
use takt_rundir::{Measure, RunDir};
use takt_trace::overhead::{self, Overhead};
use takt_trace::perfetto::{Argument, DeviceWork, Input, PerfettoError, Task, Writer};
use takt_trace::{Kind, Marker, Thresholds, Trace, TraceOptions, TraceReport, Tracer, analyse_with};

use crate::LabError;
use crate::options::RunOptions;
use crate::robot::{Event, RobotFile};
use crate::summary::RunSummary;

/// File of the trace's report in the run directory.
pub const TRACE_FILE: &str = "trace.json";

/// File of a flight recorder's worst windows in the run directory, which ui.perfetto.dev opens.
pub const LATE_FILE: &str = "late.perfetto-trace";

/// Kept of the kernel's events around a late release in [`LATE_FILE`], before and after.
const MARGIN_NS: u64 = 5_000_000;

/// Tells a tracer which windows to keep while a robot runs.
#[derive(Clone, Debug)]
pub struct LateWatch {
    marker: Marker,
    /// Sample file of the critical thread's jobs.
    file: &'static str,
    lateness_ns: u64,
}

impl LateWatch {
    /// From what value on this measure's are late; None for measures that do not count from a release of the
    /// critical thread.
    pub(crate) fn limit_ns(&self, measure: &Measure) -> Option<u64> {
        if measure.file != self.file || measure.since_column.as_deref() != Some(PLANNED) {
            return None;
        }
        if measure.column == WAKE { Some(self.lateness_ns) } else { measure.deadline_ns }
    }

    /// A release planned at `planned_ns` was late by `value_ns`, or ended so much after it.
    pub(crate) fn late(&self, planned_ns: u64, value_ns: u64) {
        self.marker.mark_job(planned_ns, planned_ns.saturating_add(value_ns), value_ns);
    }
}

/// Columns that measures of releases count from and to.
const PLANNED: &str = "planned_ns";
const WAKE: &str = "wake_ns";

/// The critical thread of a robot, and where its jobs are kept.
struct Critical {
    /// Name of the thread.
    thread: &'static str,
    /// Sample file.
    file: &'static str,
    /// Columns of planned release, wake-up, start and end of the work.
    columns: [&'static str; 4],
}

fn critical(file: &RobotFile) -> Result<Critical, LabError> {
    let start_end =
        |thread, file| Critical { thread, file, columns: ["planned_ns", "wake_ns", "start_ns", "end_ns"] };
    match file {
        RobotFile::Cell(_) => Ok(start_end("ssm", crate::cell::rows::JOBS)),
        RobotFile::Cyclic(_) => Ok(start_end("takt-cyclic", "cyclic")),
        RobotFile::Uav(_) => Ok(Critical {
            thread: "uav-attitude",
            file: crate::uav::ATTITUDE,
            columns: ["planned_ns", "wake_ns", "control_start_ns", "control_end_ns"],
        }),
        RobotFile::Humanoid(_) => Ok(Critical {
            thread: "humanoid",
            file: crate::humanoid::CYCLES,
            columns: ["planned_ns", "wake_ns", "wake_ns", "end_ns"],
        }),
        RobotFile::Daq(_) => Err(LabError::Config(
            "the DAQ loop polls without releases, so there is no activation to trace; its edges are in its samples".to_owned(),
        )),
        RobotFile::Ros(_) => Err(LabError::Config(
            "a ROS 2 system has many critical threads: trace one of them while it runs, with --thread NAME".to_owned(),
        )),
    }
}

/// What is wanted of a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceRequest {
    /// How to trace.
    pub options: TraceOptions,
    /// What counts as late.
    pub thresholds: Thresholds,
    /// Perfetto file to write.
    pub perfetto: Option<PathBuf>,
    /// A flight recorder: only the last seconds and the windows of late releases are in memory, and the worst of these stay
    /// in the run directory as [`LATE_FILE`].
    pub flight: bool,
    /// Seconds for which tracing off, on and with full rings are compared after the run; 0 leaves that out.
    pub overhead_rounds: u32,
}

impl TraceRequest {
    /// A flight recorder for runs of any length. 64 MiB hold some 700,000 events of the present, and as many around late
    /// releases.
    pub fn flight(thresholds: Thresholds) -> Self {
        let options = TraceOptions { memory_bytes: 64 << 20, ..TraceOptions::default() };
        Self { options, thresholds, flight: true, ..Self::default() }
    }
}

/// What `trace.json` holds of a run that could not be traced.
#[derive(Debug, Serialize)]
struct UntracedFile<'a> {
    untraced: &'a str,
}

/// `trace.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceFile {
    /// What the trace says.
    #[serde(flatten)]
    pub report: TraceReport,
    /// What tracing costs on this machine, where it was measured.
    #[serde(default)]
    pub overhead: Option<Overhead>,
}

/// A traced run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// What the trace says; null when the run went on untraced.
    #[serde(flatten)]
    pub trace: Option<TraceFile>,
    /// Why there is no trace, with the way out; null when there is one.
    pub untraced: Option<String>,
    /// The run.
    pub run: RunSummary,
}

/// Runs `file` with the kernel traced. Where it cannot be traced, the run goes on and says why.
///
/// # Errors
/// [`LabError`] of the run, and for a Perfetto file that cannot be written.
pub fn trace(
    file: &RobotFile,
    options: &RunOptions,
    request: &TraceRequest,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Traced, LabError> {
    let critical = critical(file)?;
    let tracer = match Tracer::start(&request.options) {
        Ok(tracer) => Ok(tracer),
        Err(error) => Err(error.to_string()),
    };
    let mut options = options.clone();
    if let Ok(tracer) = &tracer {
        let lateness_ns = request.thresholds.lateness_ns;
        options.watch = Some(LateWatch { marker: tracer.marker(), file: critical.file, lateness_ns });
    }
    let run = file.run(&options, observe)?;
    // The run is good without a trace, and labelled.
    let untraced = |why: String, run: RunSummary| {
        let dir = RunDir::open(Path::new(&run.run_dir))?;
        dir.write_json(TRACE_FILE, &UntracedFile { untraced: &why })?;
        dir.seal()?;
        Ok(Traced { trace: None, untraced: Some(why), run })
    };
    let trace = match tracer.map(Tracer::stop) {
        Ok(Ok(trace)) => trace,
        Ok(Err(error)) => return untraced(error.to_string(), run),
        Err(why) => return untraced(why, run),
    };
    let dir = RunDir::open(Path::new(&run.run_dir))?;
    let thresholds = thresholds(&dir.header()?.measures, &critical, &request.thresholds);
    let jobs = jobs(&dir, &critical, &trace, &thresholds)?;
    // By id: other programs may have threads of the same name.
    let Some(tid) = granted_tid(&dir, critical.thread)?.or_else(|| thread_of(&trace, critical.thread)) else {
        return untraced(
            format!("the trace names no thread \"{}\": nothing of it was recorded", critical.thread),
            run,
        );
    };
    let deadline_ns = dir.header()?.measures.first().and_then(|measure| measure.deadline_ns);
    let own = Task { name: critical.thread.to_owned(), tid: Some(tid), deadline_ns, ..Task::default() };
    let mut device = Vec::new();
    let tasks = match file {
        RobotFile::Cell(cell) => {
            let names: Vec<String> = cell.cameras.iter().map(|camera| camera.name.clone()).collect();
            device = device_work(&dir, &names)?;
            with_cameras(&dir, own, jobs.clone(), &names)?
        }
        _ => vec![(own, jobs.clone())],
    };
    let report = match analyse_with(&trace, tid, &jobs, &thresholds) {
        Ok(report) => report,
        Err(error) => return untraced(error.to_string(), run),
    };
    write_perfetto(request, &trace, &tasks, &device, &report)?;
    if request.flight {
        write_late(&dir, trace, &report, &tasks, &device)?;
    }
    let overhead = match request.overhead_rounds {
        0 => None,
        // The machine's CPUs are numbered from 0, and there is at least one.
        rounds => Some(overhead::measure(rounds, 0).map_err(|error| LabError::Config(error.to_string()))?),
    };
    let file = TraceFile { report, overhead };
    dir.write_json(TRACE_FILE, &file)?;
    // The run was sealed without it.
    dir.seal()?;
    Ok(Traced { trace: Some(file), untraced: None, run })
}

/// What counts as late, with the robot's own deadline where the request has none.
fn thresholds(measures: &[Measure], critical: &Critical, asked: &Thresholds) -> Thresholds {
    let response = measures.iter().find(|measure| {
        let since_release = measure.since_column.as_deref() == Some(PLANNED);
        measure.file == critical.file && since_release && measure.column == critical.columns[3]
    });
    let response_ns = asked.response_ns.or_else(|| response.and_then(|measure| measure.deadline_ns));
    Thresholds { response_ns, ..*asked }
}

/// Keeps the worst windows for a person to look at: everything else of a long run's trace would be megabytes of nothing.
fn write_late(
    dir: &RunDir,
    mut trace: Trace,
    report: &TraceReport,
    tasks: &[(Task, Vec<JobRecord>)],
    device: &[(String, Vec<DeviceWork>)],
) -> Result<(), LabError> {
    let mut spans: Vec<(u64, u64)> = report
        .windows
        .iter()
        .map(|late| (late.planned_ns.saturating_sub(MARGIN_NS), late.end_ns.saturating_add(MARGIN_NS)))
        .collect();
    spans.sort_unstable();
    // Windows may overlap: ends in the order of begins, each at least the one before.
    let mut latest = 0;
    for span in &mut spans {
        latest = latest.max(span.1);
        span.1 = latest;
    }
    let within = |from_ns: u64, to_ns: u64| {
        let begun = spans.partition_point(|span| span.0 <= to_ns);
        begun.checked_sub(1).is_some_and(|last| spans[last].1 >= from_ns)
    };
    // Where events of a CPU are left out, a mark keeps slices from running through.
    let mut left_out = BTreeSet::new();
    let mut events = Vec::new();
    for event in &trace.events {
        if !within(event.time_ns, event.time_ns) {
            left_out.insert(event.cpu);
            continue;
        }
        if left_out.remove(&event.cpu) {
            events.push(takt_trace::Event { tid: 0, kind: Kind::Lost { count: 0 }, ..*event });
        }
        events.push(*event);
    }
    if events.is_empty() {
        return Ok(());
    }
    trace.events = events;
    let tasks: Vec<(Task, Vec<JobRecord>)> = tasks
        .iter()
        .map(|(task, jobs)| {
            let jobs = jobs.iter().filter(|job| within(job.planned_ns, job.end_ns)).copied();
            (task.clone(), jobs.collect())
        })
        .collect();
    let kept = |work: &&DeviceWork| within(work.start_ns, work.end_ns);
    let device: Vec<(String, Vec<DeviceWork>)> = device
        .iter()
        .map(|(name, work)| (name.clone(), work.iter().filter(kept).cloned().collect()))
        .collect();
    export(&dir.path().join(LATE_FILE), &trace, &tasks, &device, report)
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
    let consumed = dir.columns(crate::cell::rows::JOBS, &columns)?;
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
    let frames = dir.columns(
        crate::cell::rows::FRAMES,
        &["camera", "sequence", "arrival_ns", "start_ns", "published_ns"],
    )?;
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

/// What the perception process did on its device for each camera, by the device's own clock. Nothing where there was no such
/// process, or where it judged on the CPU and had no parts to tell of.
fn device_work(dir: &RunDir, names: &[String]) -> Result<Vec<(String, Vec<DeviceWork>)>, LabError> {
    const PARTS: [&str; takt_perception_process::PARTS] = takt_perception_process::Stages::NAMES;
    let file = crate::cell::worker_rows::GPU_FRAMES;
    let samples = dir.path().join(takt_rundir::SAMPLES_FOLDER).join(file);
    if !["csv", "parquet"].iter().any(|extension| samples.with_extension(extension).exists()) {
        return Ok(Vec::new());
    }
    let times: Vec<String> =
        PARTS.iter().flat_map(|part| [format!("{part}_start_ns"), format!("{part}_end_ns")]).collect();
    let mut columns = vec!["camera", "frame", "error_ns"];
    columns.extend(times.iter().map(String::as_str));
    let values = dir.columns(file, &columns)?;
    let mut cameras: Vec<(String, Vec<DeviceWork>)> =
        names.iter().map(|name| (format!("camera {name}"), Vec::new())).collect();
    for (row, &camera) in values[0].iter().enumerate() {
        let Some((_, work)) = usize::try_from(camera).ok().and_then(|at| cameras.get_mut(at)) else {
            continue;
        };
        for (part, name) in PARTS.iter().enumerate() {
            let (start_ns, end_ns) = (values[3 + 2 * part][row], values[4 + 2 * part][row]);
            if end_ns > start_ns && start_ns > 0 {
                let (name, index, error_ns) = ((*name).to_owned(), values[1][row], values[2][row]);
                work.push(DeviceWork { name, index, start_ns, end_ns, error_ns });
            }
        }
    }
    let any = cameras.iter().any(|(_, work)| !work.is_empty());
    Ok(if any { cameras } else { Vec::new() })
}

/// Analyses a trace that `perf record` or `trace-cmd record` made, here or elsewhere. `thread` is a name or an id; its
/// jobs are what the trace shows of it, since there are no records.
///
/// # Errors
/// [`LabError::Config`] for a file that is no trace, or a thread that it does not know.
pub fn recorded(path: &Path, thread: &str, request: &TraceRequest) -> Result<TraceReport, LabError> {
    let trace = takt_trace::offline::read(path).map_err(|error| LabError::Config(error.to_string()))?;
    of_thread(&trace, &path.display().to_string(), thread, request)
}

/// Traces a thread that runs already, of whatever program, for `seconds` or until `stop` is set. `thread` is a name or an
/// id; its jobs are what the trace shows of it, from one sleep to the next.
///
/// # Errors
/// [`LabError::Config`] where the kernel cannot be traced, or no such thread was seen.
pub fn live(
    thread: &str,
    seconds: f64,
    stop: &AtomicBool,
    request: &TraceRequest,
) -> Result<TraceReport, LabError> {
    let failed = |error: takt_trace::TraceError| LabError::Config(error.to_string());
    let tracer = Tracer::start(&request.options).map_err(failed)?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until && !stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let trace = tracer.stop().map_err(failed)?;
    of_thread(&trace, "the last seconds", thread, request)
}

fn of_thread(
    trace: &Trace,
    what: &str,
    thread: &str,
    request: &TraceRequest,
) -> Result<TraceReport, LabError> {
    let by_id = thread.parse().ok().filter(|tid| trace.threads.contains_key(tid));
    let Some(tid) = by_id.or_else(|| thread_of(trace, thread)) else {
        let mut names: Vec<&str> =
            trace.threads.values().map(|t| t.name.as_str()).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(40);
        return Err(LabError::Config(format!(
            "{what}: no thread \"{thread}\"; seen were {}",
            names.join(", ")
        )));
    };
    let jobs = takt_trace::analysis::observed_jobs(trace, tid);
    let task = Task { name: trace.name(tid), tid: Some(tid), ..Task::default() };
    let tasks = [(task, jobs)];
    let report = analyse_with(trace, tid, &tasks[0].1, &request.thresholds)
        .map_err(|error| LabError::Config(error.to_string()))?;
    write_perfetto(request, trace, &tasks, &[], &report)?;
    Ok(report)
}

fn write_perfetto(
    request: &TraceRequest,
    trace: &Trace,
    tasks: &[(Task, Vec<JobRecord>)],
    device: &[(String, Vec<DeviceWork>)],
    report: &TraceReport,
) -> Result<(), LabError> {
    match &request.perfetto {
        Some(path) => export(path, trace, tasks, device, report),
        None => Ok(()),
    }
}

/// Writes events, jobs and work on a device; the causes of the worst late releases are marked at the first task.
fn export(
    path: &Path,
    trace: &Trace,
    tasks: &[(Task, Vec<JobRecord>)],
    device: &[(String, Vec<DeviceWork>)],
    report: &TraceReport,
) -> Result<(), LabError> {
    let out = BufWriter::new(File::create(path).map_err(LabError::io(path))?);
    let failed = |error: PerfettoError| LabError::Config(format!("{}: {error}", path.display()));
    let declared: Vec<Task> = tasks.iter().map(|task| task.0.clone()).collect();
    let mut writer = Writer::new(out, trace, &declared).map_err(failed)?;
    writer.events(&trace.events).map_err(failed)?;
    for (index, (_, jobs)) in tasks.iter().enumerate() {
        writer.jobs(index, jobs).map_err(failed)?;
    }
    if !device.is_empty() {
        let names: Vec<String> = device.iter().map(|(name, _)| name.clone()).collect();
        let mut streams = writer.device("GPU", &names).map_err(failed)?;
        for (stream, (_, work)) in streams.iter_mut().zip(device) {
            writer.device_work(stream, work).map_err(failed)?;
        }
    }
    for late in report.windows.iter().filter(|_| !tasks.is_empty()) {
        let name = format!("late: {}", late.cause.title());
        let arguments = [
            ("who", Argument::Text(late.who.clone())),
            ("release", Argument::Number(i64::try_from(late.index).unwrap_or(i64::MAX))),
            ("share_percent", Argument::Number((100.0 * late.share) as i64)),
        ];
        writer.mark(0, late.planned_ns, &name, &arguments).map_err(failed)?;
    }
    writer.finish().map(drop).map_err(failed)
}

/// The report that an earlier traced run left.
///
/// # Errors
/// [`LabError::Files`] for a run without one, [`LabError::Config`] for one that went on untraced.
pub fn earlier(run: &Path) -> Result<TraceReport, LabError> {
    let dir = RunDir::open(run)?;
    let value: serde_json::Value = dir.read_json(TRACE_FILE)?;
    if let Some(why) = value["untraced"].as_str() {
        return Err(LabError::Config(format!("{} was not traced: {why}", run.display())));
    }
    Ok(dir.read_json(TRACE_FILE)?)
}

/// Jobs of the measured window; where the trace has but windows of a long run, those in them and the late ones.
fn jobs(
    dir: &RunDir,
    critical: &Critical,
    trace: &Trace,
    thresholds: &Thresholds,
) -> Result<Vec<JobRecord>, LabError> {
    let header = dir.header()?;
    let [from, to] = header.measures.first().and_then(|measure| measure.window_ns).unwrap_or([0, u64::MAX]);
    let mut names = vec!["index"];
    names.extend(critical.columns);
    let columns = dir.columns(critical.file, &names)?;
    let row = |at: usize| JobRecord {
        index: columns[0][at],
        planned_ns: columns[1][at],
        wake_ns: columns[2][at],
        start_ns: columns[3][at],
        end_ns: columns[4][at],
        ..JobRecord::default()
    };
    let response_ns = thresholds.response_ns.unwrap_or(u64::MAX);
    let wanted = |job: &JobRecord| {
        (from..to).contains(&job.planned_ns)
            && (trace.spans.len() < 2
                || trace.covers(job.planned_ns, job.end_ns)
                || job.lateness_ns() > thresholds.lateness_ns
                || job.response_ns() > response_ns)
    };
    Ok((0..columns[0].len()).map(row).filter(wanted).collect())
}

/// The thread that the run itself names in `run.json`, where it lists what each thread was granted.
fn granted_tid(dir: &RunDir, name: &str) -> Result<Option<i32>, LabError> {
    let run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE)?;
    let threads = run["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = threads.iter().find(|thread| thread["name"] == name).map(|thread| &thread["granted"]);
    // The cyclic task has one thread and no list of names.
    let granted = named.or_else(|| threads.first().filter(|thread| thread["name"].is_null()));
    let tid = granted.and_then(|granted| granted["effective"]["tid"].as_i64());
    Ok(tid.and_then(|tid| i32::try_from(tid).ok()))
}

/// The newest thread of this name: earlier runs of the same process had others.
fn thread_of(trace: &Trace, name: &str) -> Option<i32> {
    let mut of_name = trace.threads.iter().filter(|(_, thread)| thread.name == name);
    of_name.next_back().map(|(tid, _)| *tid)
}
