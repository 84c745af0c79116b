//! A robot's run with the kernel traced meanwhile: how its critical thread was activated, and why it was late.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::jobs::{JobRecord, MAX_INPUTS};
use takt_rundir::RunDir;
use takt_trace::overhead::{self, Overhead};
use takt_trace::perfetto::{self, Input, Task};
use takt_trace::{Thresholds, Trace, TraceOptions, TraceReport, Tracer, analyse_with};

use crate::LabError;
use crate::options::RunOptions;
use crate::robot::{Event, RobotFile};
use crate::summary::RunSummary;

/// File of the trace's report in the run directory.
pub const TRACE_FILE: &str = "trace.json";

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
    /// Seconds for which tracing off, on and with full rings are compared after the run; 0 leaves that out.
    pub overhead_rounds: u32,
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
    let run = file.run(options, observe)?;
    let untraced = |why: String, run| Ok(Traced { trace: None, untraced: Some(why), run });
    let trace = match tracer.map(Tracer::stop) {
        Ok(Ok(trace)) => trace,
        Ok(Err(error)) => return untraced(error.to_string(), run),
        Err(why) => return untraced(why, run),
    };
    let dir = RunDir::open(Path::new(&run.run_dir))?;
    let jobs = jobs(&dir, &critical)?;
    // By id: other programs may have threads of the same name.
    let Some(tid) = granted_tid(&dir, critical.thread)?.or_else(|| thread_of(&trace, critical.thread)) else {
        return untraced(
            format!("the trace names no thread \"{}\": nothing of it was recorded", critical.thread),
            run,
        );
    };
    let deadline_ns = dir.header()?.measures.first().and_then(|measure| measure.deadline_ns);
    let own = Task { name: critical.thread.to_owned(), tid: Some(tid), deadline_ns, ..Task::default() };
    let tasks = match file {
        RobotFile::Cell(cell) => {
            let names: Vec<String> = cell.cameras.iter().map(|camera| camera.name.clone()).collect();
            with_cameras(&dir, own, jobs.clone(), &names)?
        }
        _ => vec![(own, jobs.clone())],
    };
    write_perfetto(request, &trace, &tasks)?;
    let report = match analyse_with(&trace, tid, &jobs, &request.thresholds) {
        Ok(report) => report,
        Err(error) => return untraced(error.to_string(), run),
    };
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
    write_perfetto(request, trace, &tasks)?;
    analyse_with(trace, tid, &tasks[0].1, &request.thresholds)
        .map_err(|error| LabError::Config(error.to_string()))
}

fn write_perfetto(
    request: &TraceRequest,
    trace: &Trace,
    tasks: &[(Task, Vec<JobRecord>)],
) -> Result<(), LabError> {
    let Some(path) = &request.perfetto else { return Ok(()) };
    let out = BufWriter::new(File::create(path).map_err(LabError::io(path))?);
    let tasks: Vec<(Task, &[JobRecord])> =
        tasks.iter().map(|(task, jobs)| (task.clone(), jobs.as_slice())).collect();
    perfetto::export(out, trace, &tasks)
        .map(drop)
        .map_err(|error| LabError::Config(format!("{}: {error}", path.display())))
}

/// The report that an earlier traced run left.
///
/// # Errors
/// [`LabError::Files`] for a run without one.
pub fn earlier(run: &Path) -> Result<TraceReport, LabError> {
    Ok(RunDir::open(run)?.read_json(TRACE_FILE)?)
}

/// Jobs of the measured window.
fn jobs(dir: &RunDir, critical: &Critical) -> Result<Vec<JobRecord>, LabError> {
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
    let all = (0..columns[0].len()).map(row);
    Ok(all.filter(|job| (from..to).contains(&job.planned_ns)).collect())
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
