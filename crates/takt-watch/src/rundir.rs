//! What a watch leaves behind, as every other run: cycles of each thread, the report, the worst
//! windows for ui.perfetto.dev.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, NumberFile, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE, utc_now};
use takt_trace::analysis::Thresholds;
use takt_trace::perfetto::{Argument, PerfettoError, Task, Writer};

use crate::error::WatchError;
use crate::history::History;
use crate::report::{LoopReport, Report};

/// The report in the run directory.
pub const WATCH_FILE: &str = "watch.json";
/// The worst windows, as a flight recorder leaves them.
pub const LATE_FILE: &str = "late.perfetto-trace";
/// Analysis of the thread with the most lateness, in the form of `takt trace`'s, which reports
/// show.
pub const TRACE_FILE: &str = "trace.json";

/// Rows that are written of one thread: 10 hours of 1 kHz take some 1.5 GB. What is beyond is in
/// the report's figures alone.
const MOST_ROWS: u64 = 36_000_000;
/// Threads whose cycles are written.
const MOST_THREADS: usize = 64;

/// Rows are handed to the kernel so often.
const FLUSHED: Duration = Duration::from_secs(1);

/// Columns of a thread's file.
const COLUMNS: [&str; 4] = ["index", "planned_ns", "wake_ns", "end_ns"];

/// A run directory that is being written.
#[derive(Debug)]
pub struct Recording {
    dir: RunDir,
    header: RunHeader,
    extra: Map<String, Value>,
    files: BTreeMap<i32, NumberFile>,
    rows: bool,
    flushed: Instant,
    /// Why it is not whole: what is measured goes on without it.
    failed: Option<WatchError>,
    rows_lost: u64,
}

impl Recording {
    /// A new one below `root`, or exactly `at`.
    ///
    /// # Errors
    /// [`WatchError::Files`].
    pub fn create(root: &Path, at: Option<&Path>, target: &str) -> Result<Self, WatchError> {
        let dir = match at {
            Some(path) => RunDir::create_at(path)?,
            None => RunDir::create(root, "watch")?,
        };
        let header = RunHeader::new("watch", target);
        let mut extra = Map::new();
        extra.insert(takt_rundir::COMMAND_KEY.to_owned(), Value::String(takt_rundir::command_line()));
        let recording = Self {
            dir,
            header,
            extra,
            files: BTreeMap::new(),
            rows: true,
            flushed: Instant::now(),
            failed: None,
            rows_lost: 0,
        };
        recording.write_header()?;
        Ok(recording)
    }

    /// Keeps no row for each cycle: figures and the worst windows alone, which do not grow with
    /// time (a flight recorder, for days).
    pub fn without_rows(mut self) -> Self {
        self.rows = false;
        self
    }

    /// Takes it away: nothing was measured.
    pub fn discard(self) {
        self.dir.discard();
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write_header(&self) -> Result<(), WatchError> {
        let mut all = self.extra.clone();
        if let Ok(Value::Object(header)) = serde_json::to_value(&self.header) {
            all.extend(header);
        }
        Ok(self.dir.write_json(RUN_FILE, &all)?)
    }

    /// Why it could not be written as a whole: a disk that is full, say. The report is whole all
    /// the same.
    pub fn failed(&self) -> Option<&WatchError> {
        self.failed.as_ref()
    }

    /// Cycles of a thread. After a failure no others are kept: a hole would not be seen later.
    pub(crate) fn jobs(&mut self, tid: i32, jobs: &[JobRecord]) {
        if self.failed.is_some() {
            self.rows_lost += jobs.len() as u64;
        } else if let Err(error) = self.keep(tid, jobs) {
            self.rows_lost += jobs.len() as u64;
            self.failed = Some(error);
        }
    }

    fn keep(&mut self, tid: i32, jobs: &[JobRecord]) -> Result<(), WatchError> {
        if !self.rows {
            return Ok(());
        }
        let space = self.files.len() < MOST_THREADS;
        let file = match self.files.entry(tid) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) if space => {
                entry.insert(self.dir.numbers(&file_name(tid), &COLUMNS)?)
            }
            std::collections::btree_map::Entry::Vacant(_) => return Ok(()),
        };
        for job in jobs {
            if file.rows() >= MOST_ROWS {
                break;
            }
            let &JobRecord { index, planned_ns, wake_ns, end_ns, .. } = job;
            file.push(&[index, planned_ns, wake_ns, end_ns])?;
        }
        // A kill loses no more than the second under way. More often would cost a system call for
        // each thread every time.
        if self.flushed.elapsed() >= FLUSHED {
            self.flushed = Instant::now();
            for file in self.files.values_mut() {
                file.flush()?;
            }
        }
        Ok(())
    }

    /// Writes everything else and seals it; as far as it can be.
    pub(crate) fn finish(&mut self, report: &Report, history: Option<&History>) {
        if let Err(error) = self.write_all(report, history) {
            self.failed.get_or_insert(error);
        }
    }

    fn write_all(&mut self, report: &Report, history: Option<&History>) -> Result<(), WatchError> {
        self.header.finished_utc = Some(utc_now());
        self.header.records_lost = report.lost_events + self.rows_lost;
        self.header.problems.clone_from(&report.notes);
        if let Some(error) = &self.failed {
            let rows = self.rows_lost;
            self.header.problems.push(format!("the last {rows} cycles have no row: {error}"));
        }
        for thread in &report.threads {
            if self.files.contains_key(&thread.tid) {
                self.header.measures.extend(measures(thread));
            }
        }
        self.extra.insert("watched".to_owned(), Value::String(report.target.clone()));
        self.write_header()?;
        self.dir.write_json(WATCH_FILE, report)?;
        self.dir.write_json(SUMMARY_FILE, report)?;
        if let Some(worst) = report.threads.iter().max_by(|a, b| lateness(a).total_cmp(&lateness(b))) {
            self.dir.write_json(TRACE_FILE, &analysis(worst, report))?;
        }
        if let Some(history) = history.filter(|history| !history.windows.is_empty()) {
            let path = self.dir.path().join(LATE_FILE);
            picture(&path, history, report)?;
        }
        for file in self.files.values_mut() {
            file.flush()?;
        }
        Ok(self.dir.seal()?)
    }
}

fn file_name(tid: i32) -> String {
    format!("thread-{tid}")
}

fn lateness(thread: &LoopReport) -> f64 {
    thread.totals.iter().map(|total| total.us).sum()
}

fn measures(thread: &LoopReport) -> [Measure; 2] {
    let file = file_name(thread.tid);
    let named = format!("{} ({})", thread.name, thread.tid);
    let name = |what: &str| format!("{what}-{}", thread.tid);
    let rate_hz = thread.period_us.map(|us| 1e6 / us);
    let with_rate = |measure: Measure| match rate_hz {
        Some(rate_hz) => measure.rate_hz(rate_hz),
        None => measure,
    };
    let lateness = Measure::new(&name("lateness"), &format!("Wake-up lateness of {named}"), &file, "wake_ns");
    let response = Measure::new(&name("response"), &format!("Release to sleep of {named}"), &file, "end_ns");
    let response = match thread.deadline_us {
        Some(us) => response.deadline_ns((us * 1e3) as u64),
        None => response,
    };
    let mut response = with_rate(response.since("planned_ns")).unit("cycles");
    response.skipped = thread.missed;
    [with_rate(lateness.since("planned_ns")).unit("cycles"), response]
}

/// What `takt trace` would say of the thread, as far as it is known.
fn analysis(thread: &LoopReport, report: &Report) -> Value {
    let thresholds = Thresholds {
        lateness_ns: (thread.late_beyond_us * 1e3) as u64,
        response_ns: thread.deadline_us.map(|us| (us * 1e3) as u64),
        ..Thresholds::default()
    };
    serde_json::json!({
        "task": thread.name,
        "tid": thread.tid,
        "releases": thread.releases,
        "matched": thread.releases,
        "kept_awake": report.kept_awake,
        "events": report.events,
        "lost_events": report.lost_events,
        "late": thread.late,
        "thresholds": thresholds,
        "causes": thread.causes,
        "windows": thread.windows,
        "notes": report.notes,
    })
}

/// The worst windows of all threads, each late cycle marked at its thread.
fn picture(path: &Path, history: &History, report: &Report) -> Result<(), WatchError> {
    let out = takt_files::create_output(path)
        .map_err(|source| WatchError::File { path: path.to_owned(), source })?;
    let write = || -> Result<(), PerfettoError> {
        let trace = history.picture();
        let mut tids: Vec<i32> = history.windows.iter().map(|window| window.tid).collect();
        tids.sort_unstable();
        tids.dedup();
        let task = |&tid: &i32| {
            let deadline = report.threads.iter().find(|thread| thread.tid == tid)?.deadline_us;
            Some(Task {
                name: trace.name(tid),
                tid: Some(tid),
                deadline_ns: deadline.map(|us| (us * 1e3) as u64),
                ..Task::default()
            })
        };
        let tasks: Vec<Task> = tids
            .iter()
            .map(|tid| task(tid).unwrap_or_else(|| Task { tid: Some(*tid), ..Task::default() }))
            .collect();
        let mut writer = Writer::new(BufWriter::new(out), &trace, &tasks)?;
        writer.events(&trace.events)?;
        for (index, tid) in tids.iter().enumerate() {
            let mut windows: Vec<_> = history.windows.iter().filter(|window| window.tid == *tid).collect();
            windows.sort_by_key(|window| window.late.planned_ns);
            for window in windows {
                let late = &window.late;
                let wake_ns = late.planned_ns + (late.lateness_us * 1e3) as u64;
                let job = JobRecord {
                    index: late.index,
                    planned_ns: late.planned_ns,
                    wake_ns,
                    start_ns: wake_ns,
                    end_ns: late.end_ns,
                    ..JobRecord::default()
                };
                writer.jobs(index, &[job])?;
                let arguments = [
                    ("who", Argument::Text(late.who.clone())),
                    ("share_percent", Argument::Number((100.0 * late.share) as i64)),
                ];
                writer.mark(index, late.planned_ns, &format!("late: {}", late.cause.title()), &arguments)?;
            }
        }
        writer.finish().map(drop)
    };
    write().map_err(|source| WatchError::Picture { path: path.to_owned(), source })
}
