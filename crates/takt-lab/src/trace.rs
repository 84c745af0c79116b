//! A robot's run with the kernel traced meanwhile: how its critical thread was activated, and why
//! it was late.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, RunDir};
use takt_trace::analysis::{analyse_observed, observed_releases};
use takt_trace::overhead::{self, Overhead};
use takt_trace::perfetto::Task;
use takt_trace::{Thresholds, Trace, TraceOptions, TraceReport, Tracer, analyse_with};

use crate::LabError;
use crate::late_watch::{LateWatch, PLANNED};
use crate::options::RunOptions;
use crate::picture::Picture;
use crate::robot::{Critical, Observe, Robot};
use crate::run::Ran;
use crate::session::Session;
use crate::summary::RunSummary;

/// File of the trace's report in the run directory.
pub const TRACE_FILE: &str = "trace.json";

/// File of a flight recorder's worst windows in the run directory, which ui.perfetto.dev opens.
pub const LATE_FILE: &str = "late.perfetto-trace";

/// Request for a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceRequest {
    pub options: TraceOptions,
    /// Thresholds of lateness.
    pub thresholds: Thresholds,
    /// Perfetto file to write.
    pub perfetto: Option<PathBuf>,
    /// A flight recorder: only the last seconds and the windows of late releases are in memory, and
    /// the worst of these stay in the run directory as [`LATE_FILE`].
    pub flight: bool,
    /// Seconds for which tracing off, on and with full rings are compared after the run; 0 leaves
    /// that out.
    pub overhead_rounds: u32,
}

impl TraceRequest {
    /// A flight recorder for runs of any length. 64 MiB hold some 700,000 events of the present,
    /// and four times as many around late releases, which are packed.
    pub fn flight(thresholds: Thresholds) -> Self {
        let options = TraceOptions { memory_bytes: 64 << 20, ..TraceOptions::default() };
        Self { options, thresholds, flight: true, ..Self::default() }
    }
}

/// Content of `trace.json` for a run that could not be traced.
#[derive(Debug, Serialize)]
struct UntracedFile<'a> {
    untraced: &'a str,
}

/// `trace.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceFile {
    /// The trace's report.
    #[serde(flatten)]
    pub report: TraceReport,
    /// Cost of tracing on this machine, if it was measured.
    #[serde(default)]
    pub overhead: Option<Overhead>,
}

/// A traced run.
#[derive(Clone, Debug, Serialize)]
pub struct Traced<R = Ran> {
    /// The trace's report; null when the run continued without a trace.
    #[serde(flatten)]
    pub trace: Option<TraceFile>,
    /// Reason why there is no trace, with the way out; null when there is one.
    pub untraced: Option<String>,
    pub run: R,
}

impl Traced {
    /// With the common summary, also of a robot that has one of its own.
    ///
    /// # Errors
    /// As [`Ran::into_summary`].
    pub fn with_summary(self) -> Result<Traced<RunSummary>, LabError> {
        Ok(Traced { trace: self.trace, untraced: self.untraced, run: self.run.into_summary()? })
    }
}

/// Runs `robot` with the kernel traced. If it cannot be traced, the run continues and gives the
/// reason.
///
/// # Errors
/// [`LabError`] of the run, and for a Perfetto file that cannot be written.
pub fn trace(
    robot: &dyn Robot,
    options: &RunOptions,
    request: &TraceRequest,
    observe: Observe<'_>,
) -> Result<Traced, LabError> {
    // One that polls has no releases, and late edges instead.
    let (thread, critical) = match robot.polls() {
        Some(thread) => (thread, None),
        None => {
            let critical = robot.critical()?;
            (critical.thread, Some(critical))
        }
    };
    let tracer = match Tracer::start(&request.options) {
        Ok(tracer) => Ok(tracer),
        Err(error) => Err(error.to_string()),
    };
    let mut options = options.clone();
    if let Ok(tracer) = &tracer {
        let lateness_ns = request.thresholds.lateness_ns;
        let file = critical.as_ref().map_or("", |critical| critical.file);
        options.watch = Some(LateWatch::new(tracer.marker(), file, lateness_ns));
    }
    let run = Session::run_anyway(robot, &options, observe)?;
    if let Some(unwritten) = run.dir().unwritten() {
        return Ok(Traced { trace: None, untraced: Some(unwritten.to_string()), run });
    }
    // The run is good without a trace, and labelled.
    let untraced = |why: String, run: Ran| {
        run.dir().write_json(TRACE_FILE, &UntracedFile { untraced: &why })?;
        robot.explain(run.dir(), Err(&why))?;
        run.dir().seal()?;
        Ok(Traced { trace: None, untraced: Some(why), run })
    };
    let trace = match tracer.map(Tracer::stop) {
        Ok(Ok(trace)) => trace,
        Ok(Err(error)) => return untraced(error.to_string(), run),
        Err(why) => return untraced(why, run),
    };
    let dir = run.dir().clone();
    // By id: other programs may have threads of the same name.
    let Some(tid) = granted_tid(&dir, thread)?.or_else(|| thread_of(&trace, thread)) else {
        return untraced(
            format!("no thread named \"{thread}\" is in the trace: nothing of it was recorded"),
            run,
        );
    };
    let own = |deadline_ns| Task { name: thread.to_owned(), tid: Some(tid), deadline_ns, ..Task::default() };
    let (picture, report) = match &critical {
        Some(critical) => {
            let deadline_ns = deadline_ns(&dir.header()?.measures, critical);
            let response_ns = request.thresholds.response_ns.or(deadline_ns);
            let thresholds = Thresholds { response_ns, ..request.thresholds };
            let jobs = jobs(&dir, critical, &trace, &thresholds)?;
            let picture = robot.picture(&dir, own(deadline_ns), &jobs)?;
            let report = match analyse_with(&trace, tid, &jobs, &thresholds) {
                Ok(report) => report,
                Err(error) => return untraced(error.to_string(), run),
            };
            robot.explain(&dir, Ok(&trace))?;
            (picture, report)
        }
        None => {
            robot.explain(&dir, Ok(&trace))?;
            let report = robot.polled(&dir, &trace)?;
            (robot.picture(&dir, own(None), &late_jobs(&report))?, report)
        }
    };
    if let Some(path) = &request.perfetto {
        picture.write(path, &trace, &report)?;
    }
    if request.flight {
        picture.write_late(&dir.path().join(LATE_FILE), trace, &report)?;
    }
    let overhead = match request.overhead_rounds {
        0 => None,
        // The machine's CPUs are numbered from 0, and there is at least one.
        rounds => Some(overhead::measure(rounds, 0)?),
    };
    let file = TraceFile { report, overhead };
    dir.write_json(TRACE_FILE, &file)?;
    // The run was sealed without it.
    dir.seal()?;
    Ok(Traced { trace: Some(file), untraced: None, run })
}

/// The late edges of a robot that polls, as the jobs of a picture.
fn late_jobs(report: &TraceReport) -> Vec<JobRecord> {
    let mut jobs: Vec<JobRecord> = report
        .windows
        .iter()
        .map(|late| JobRecord {
            index: late.index,
            planned_ns: late.planned_ns,
            wake_ns: late.planned_ns,
            start_ns: late.planned_ns,
            end_ns: late.end_ns,
            ..JobRecord::default()
        })
        .collect();
    jobs.sort_by_key(|job| job.planned_ns);
    jobs
}

/// The deadline of the critical thread's jobs, after their release.
fn deadline_ns(measures: &[Measure], critical: &Critical) -> Option<u64> {
    let response = measures.iter().find(|measure| {
        let since_release = measure.since_column.as_deref() == Some(PLANNED);
        measure.file == critical.file && since_release && measure.column == critical.columns[3]
    });
    response.and_then(|measure| measure.deadline_ns)
}

/// Analyses a trace that `perf record` or `trace-cmd record` made, here or elsewhere. `thread` is a
/// name or an id; its jobs are what the trace shows of it, since there are no records. `instance`
/// is the trace instance of a `trace.dat` that is wanted.
///
/// # Errors
/// [`LabError::Recorded`] for a file that is no trace, [`LabError::Config`] for a thread that it
/// does not know, or a name that several threads have.
pub fn recorded(
    path: &Path,
    instance: Option<&str>,
    thread: &str,
    request: &TraceRequest,
) -> Result<TraceReport, LabError> {
    let trace = takt_trace::offline::read_instance(path, instance)?;
    of_thread(&trace, &path.display().to_string(), thread, request)
}

/// Traces a thread that runs already, of whatever program, for `seconds` or until `stop` is set.
/// `thread` is a name or an id; its jobs are what the trace shows of it, from one sleep to the
/// next.
///
/// # Errors
/// [`LabError::Trace`] where the kernel cannot be traced, [`LabError::Config`] where no such thread
/// was seen.
pub fn live(
    thread: &str,
    seconds: f64,
    stop: &AtomicBool,
    request: &TraceRequest,
) -> Result<TraceReport, LabError> {
    let tracer = Tracer::start(&request.options)?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until && !stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let trace = tracer.stop()?;
    of_thread(&trace, "the last seconds", thread, request)
}

fn of_thread(
    trace: &Trace,
    what: &str,
    thread: &str,
    request: &TraceRequest,
) -> Result<TraceReport, LabError> {
    let (tid, others) = named(trace, what, thread)?;
    let (mut report, jobs) = analyse_observed(trace, tid, &request.thresholds);
    if !others.is_empty() {
        report.notes.push(format!(
            "further threads named \"{}\", without a release: {}",
            report.task,
            ids(&others, MAX_LISTED)
        ));
    }
    if let Some(path) = &request.perfetto {
        let task = Task { name: trace.name(tid), tid: Some(tid), observed: true, ..Task::default() };
        Picture::of_task(task, jobs).write(path, trace, &report)?;
    }
    Ok(report)
}

/// The thread with the name or the id `thread`, and the others of that name. Of several threads
/// none is chosen, unless one alone has releases: an analysis of the wrong one looks as good.
fn named(trace: &Trace, what: &str, thread: &str) -> Result<(i32, Vec<i32>), LabError> {
    let by_id = thread.parse().ok().filter(|tid| trace.threads.contains_key(tid));
    if let Some(tid) = by_id {
        return Ok((tid, Vec::new()));
    }
    let tids = trace.tids(thread);
    let thread = takt_files::quoted(thread);
    let releases = observed_releases(trace, &tids);
    let active: Vec<i32> =
        tids.iter().zip(&releases).filter(|(_, releases)| **releases > 0).map(|(&tid, _)| tid).collect();
    match (tids.as_slice(), active.as_slice()) {
        ([], _) => {
            let mut names: Vec<&str> =
                trace.threads.values().map(|t| t.name.as_str()).filter(|n| !n.is_empty()).collect();
            names.sort_unstable();
            names.dedup();
            let near = takt_files::closest(&thread, names.iter().copied(), MAX_NEAR);
            // A file can give a thread any name.
            let near: Vec<String> = near.into_iter().map(takt_files::quoted).collect();
            Err(LabError::NoThread { what: what.to_owned(), thread, near, seen: names.len() })
        }
        (&[only], _) | (_, &[only]) => Ok((only, tids.into_iter().filter(|&tid| tid != only).collect())),
        _ => {
            let mut list: Vec<(i32, usize)> = tids.iter().copied().zip(releases).collect();
            list.sort_by_key(|&(tid, releases)| (std::cmp::Reverse(releases), tid));
            let first = list.first().map_or(0, |one| one.0);
            let (with, without): (Vec<_>, Vec<_>) = list.into_iter().partition(|one| one.1 > 0);
            let more = with.len().saturating_sub(MAX_LISTED);
            let mut listed: Vec<String> = with
                .iter()
                .take(MAX_LISTED)
                .map(|(tid, releases)| format!("{tid} ({releases} releases)"))
                .collect();
            if more > 0 {
                listed.push(format!("{more} more"));
            }
            if !without.is_empty() {
                let without: Vec<i32> = without.iter().map(|one| one.0).collect();
                // One list has one bound, whatever it is made of.
                let left = MAX_LISTED.saturating_sub(with.len()).max(1);
                listed.push(format!("without a release {}", ids(&without, left)));
            }
            Err(LabError::Config(format!(
                "{what}: {} threads are named \"{thread}\": {}. Pass the id of one of them, for example `--thread {first}`",
                tids.len(),
                listed.join(", "),
            )))
        }
    }
}

/// Names of other threads that a message lists where one does not exist.
const MAX_NEAR: usize = 5;

/// Ids that a message lists.
const MAX_LISTED: usize = 40;

fn ids(tids: &[i32], most: usize) -> String {
    let more = tids.len().saturating_sub(most);
    let listed: Vec<String> = tids.iter().take(most).map(i32::to_string).collect();
    if more > 0 { format!("{} and {more} more", listed.join(", ")) } else { listed.join(", ") }
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

/// Jobs of the measured window; where the trace has but windows of a long run, those in them and
/// the late ones.
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
    // Not every robot's jobs skip releases.
    names.push("skipped");
    let columns = dir.columns(critical.file, &names).or_else(|_| {
        names.pop();
        dir.columns(critical.file, &names)
    })?;
    let row = |at: usize| JobRecord {
        index: columns[0][at],
        planned_ns: columns[1][at],
        wake_ns: columns[2][at],
        start_ns: columns[3][at],
        end_ns: columns[4][at],
        skipped: columns.get(5).and_then(|column| u32::try_from(column[at]).ok()).unwrap_or(0),
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
    let jobs: Vec<JobRecord> = (0..columns[0].len()).map(row).collect();
    // The job after a late one knows of the releases between them that never ran.
    let knows =
        |at: usize| jobs[at].skipped > 0 && at.checked_sub(1).is_some_and(|before| wanted(&jobs[before]));
    Ok((0..jobs.len()).filter(|&at| wanted(&jobs[at]) || knows(at)).map(|at| jobs[at]).collect())
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

#[cfg(test)]
mod tests {
    use takt_trace::event::{State, Thread};
    use takt_trace::{Event, Kind};

    use super::*;

    /// Threads 5, 6 and 7 of one name, of which `active` wake up as often as they say; 8 has
    /// another.
    fn trace(active: &[(i32, u64)]) -> Trace {
        let mut trace = Trace::default();
        for (tid, name) in [(5, "control"), (6, "control"), (7, "control"), (8, "lonely")] {
            trace.threads.insert(tid, Thread { name: name.to_owned(), pid: None });
        }
        let mut time_ns = 0;
        for &(tid, times) in active {
            // The first sleep is seen, so that each wake-up after it is a release.
            for _ in 0..=times {
                for (prev_tid, next_tid) in [(0, tid), (tid, 0)] {
                    time_ns += 1000;
                    if next_tid == tid {
                        let kind = Kind::Waking { tid, prio: 50, target_cpu: 0 };
                        trace.events.push(Event { time_ns: time_ns - 500, tid: 0, cpu: 0, kind });
                    }
                    let prev_state = State::Sleeping;
                    let kind = Kind::Switch { prev_tid, prev_prio: 50, prev_state, next_tid, next_prio: 50 };
                    trace.events.push(Event { time_ns, tid: prev_tid, cpu: 0, kind });
                }
            }
        }
        trace
    }

    #[test]
    fn of_several_threads_of_a_name_none_is_chosen() {
        let both = trace(&[(5, 3), (7, 9)]);
        let error = named(&both, "x.dat", "control").unwrap_err().to_string();
        assert!(
            error.contains(
                "3 threads are named \"control\": 7 (10 releases), 5 (4 releases), without a release 6."
            ),
            "{error}"
        );
        assert!(error.contains("`--thread 7`"), "{error}");
        assert_eq!(named(&both, "x.dat", "5").unwrap(), (5, vec![]));
        // One alone has releases: the others are reported with it.
        assert_eq!(named(&trace(&[(6, 2)]), "x.dat", "control").unwrap(), (6, vec![5, 7]));
        assert_eq!(named(&both, "x.dat", "lonely").unwrap(), (8, vec![]));
        // None has any: that is not the same as one that never woke up.
        let error = named(&trace(&[]), "x.dat", "control").unwrap_err().to_string();
        assert!(error.contains("\"control\": without a release 5, 6, 7."), "{error}");
        let error = named(&both, "x.dat", &"A".repeat(5000)).unwrap_err().to_string();
        assert!(
            error.contains("(5000 characters)") && error.contains("lonely") && error.len() < 300,
            "{error}"
        );
    }
}
