//! Run directory of a watch, as of every other run: cycles of each thread, the report, the worst
//! windows for ui.perfetto.dev.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, NumberFile, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE, utc_now};
use takt_trace::analysis::{CauseRow, Late, Thresholds, keep_worst};
use takt_trace::perfetto::{Argument, PerfettoError, Task, Writer};

use crate::error::WatchError;
use crate::history::History;
use crate::report::{LoopKind, LoopReport, Report, Total};
use crate::session::{Found, Keep};

/// The report in the run directory.
pub const WATCH_FILE: &str = "watch.json";
/// The worst windows, as a flight recorder leaves them.
pub const LATE_FILE: &str = "late.perfetto-trace";
/// Analysis of all late threads together, in the form of `takt trace`'s, which reports show.
pub const TRACE_FILE: &str = "trace.json";

/// Rows that are written of one thread: 10 hours of 1 kHz take some 1.5 GB. Further cycles are only
/// in the report's figures.
const MAX_ROWS: u64 = 36_000_000;
/// Threads whose cycles are written.
const MAX_THREADS: usize = 64;
/// Fewest cycles of a thread without a period that are a measure.
pub(crate) const FEWEST_CYCLES: u64 = 100;
/// Threads that are named together.
const MAX_NAMES: usize = 3;

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
    /// Reason why it is incomplete: measuring continues without it.
    failed: Option<WatchError>,
    rows_lost: u64,
}

impl Recording {
    /// A new one below `root`, or exactly `at`; `label` is what is watched, in words that are the
    /// same the next time ([`label`](crate::label)).
    ///
    /// # Errors
    /// [`WatchError::Files`].
    pub fn create(root: &Path, at: Option<&Path>, label: &str) -> Result<Self, WatchError> {
        let made = match at {
            Some(path) => RunDir::create_at(path),
            None => RunDir::create(root, "watch"),
        };
        // A disk that is full now, or later, ends no watch.
        let dir = made.or_else(RunDir::in_memory)?;
        dir.keep_in_memory();
        let header = RunHeader::new("watch", label);
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

    /// Path of the run directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The run directory, with the data that is only in memory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    fn write_header(&self) -> Result<(), WatchError> {
        let mut all = self.extra.clone();
        if let Ok(Value::Object(header)) = serde_json::to_value(&self.header) {
            all.extend(header);
        }
        Ok(self.dir.write_json(RUN_FILE, &all)?)
    }

    /// Reason why it could not be written completely, such as a full disk. The report is whole all
    /// the same.
    pub fn failed(&self) -> Option<&WatchError> {
        self.failed.as_ref()
    }

    fn keep(&mut self, tid: i32, jobs: &[JobRecord]) -> Result<(), WatchError> {
        if !self.rows {
            return Ok(());
        }
        let space = self.files.len() < MAX_THREADS;
        let file = match self.files.entry(tid) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) if space => {
                entry.insert(self.dir.numbers(&file_name(tid), &COLUMNS)?)
            }
            std::collections::btree_map::Entry::Vacant(_) => return Ok(()),
        };
        for job in jobs {
            if file.rows() >= MAX_ROWS {
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

    fn write_all(&mut self, found: &Found<'_>) -> Result<(), WatchError> {
        let report = found.report;
        self.header.finished_utc = Some(utc_now());
        self.header.records_lost = report.lost_events + self.rows_lost;
        self.header.problems.clone_from(&report.notes);
        self.header.doubts.clone_from(&report.doubts);
        if let Some(error) = &self.failed {
            let rows = self.rows_lost;
            self.header.problems.push(format!("the last {rows} cycles were not written: {error}"));
        }
        self.header.problems.extend(self.dir.unwritten().map(|unwritten| unwritten.to_string()));
        let any_periodic = report.threads.iter().any(|thread| is_own(thread.kind));
        for thread in &report.threads {
            let Some(file) = self.files.get_mut(&thread.tid) else { continue };
            let (name, first) = (format!("thread-{}", thread.label), file_name(thread.tid));
            file.flush()?;
            let named = !thread.label.is_empty() && self.dir.rename_samples(&first, &name).is_ok();
            let file = if named { &name } else { &first };
            // The loops of the program, where it has any: whether a thread that somebody else wakes
            // is seen to have a period may differ from run to run. Whether one that is hardly ever
            // awake has a cycle at all differs from run to run.
            if thread.period_us.is_none() && thread.releases < FEWEST_CYCLES {
                continue;
            }
            let judged = is_judged(thread.kind, any_periodic);
            self.header.measures.extend(measures(thread, file, judged));
        }
        self.extra.insert("watched".to_owned(), Value::String(report.target.clone()));
        self.write_header()?;
        self.dir.write_json(SUMMARY_FILE, report)?;
        found.leave(&self.dir)?;
        for file in self.files.values_mut() {
            file.flush()?;
        }
        Ok(self.dir.seal()?)
    }
}

impl Keep for Recording {
    /// After a failure no others are kept: a hole would not be seen later.
    fn jobs(&mut self, tid: i32, jobs: &[JobRecord]) {
        if self.failed.is_some() {
            self.rows_lost += jobs.len() as u64;
        } else if let Err(error) = self.keep(tid, jobs) {
            self.rows_lost += jobs.len() as u64;
            self.failed = Some(error);
        }
    }

    /// Writes everything else and seals it; as far as it can be.
    fn finish(&mut self, found: &Found<'_>) {
        if let Err(error) = self.write_all(found) {
            self.failed.get_or_insert(error);
        }
    }
}

impl Found<'_> {
    /// Leaves the report, the causes and the worst windows in a run directory.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn leave(&self, dir: &RunDir) -> Result<(), WatchError> {
        let report = self.report;
        dir.write_json(WATCH_FILE, report)?;
        if !report.threads.is_empty() {
            dir.write_json(TRACE_FILE, &analysis(report))?;
        }
        let Some(history) = self.history.filter(|history| !history.windows.is_empty()) else { return Ok(()) };
        let path = dir.path().join(LATE_FILE);
        if let Err(error) = picture(&path, history, report) {
            // Half of a picture is none.
            let _ = std::fs::remove_file(&path);
            let Some(shelter) = dir.shelter() else { return Err(error) };
            picture(&shelter.join(LATE_FILE), history, report)?;
        }
        Ok(())
    }
}

fn file_name(tid: i32) -> String {
    format!("thread-{tid}")
}

/// Whether a loop's cycles begin by its own doing.
pub(crate) fn is_own(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Periodic | LoopKind::Spinning)
}

/// Whether the verdict is about a loop of this kind.
pub(crate) fn is_judged(kind: LoopKind, any_own: bool) -> bool {
    if any_own { is_own(kind) } else { kind == LoopKind::Driven }
}

/// Its measures, named so that those of another watch of the same programs have the same names.
fn measures(thread: &LoopReport, file: &str, judged: bool) -> [Measure; 2] {
    let label = if thread.label.is_empty() { thread.tid.to_string() } else { thread.label.clone() };
    let named = if thread.label.is_empty() { format!("{} ({label})", thread.name) } else { label.clone() };
    let name = |what: &str| format!("{what}-{label}");
    let rate_hz = thread.period_us.map(|us| 1e6 / us);
    let with_rate = |measure: Measure| match rate_hz {
        Some(rate_hz) => measure.rate_hz(rate_hz),
        None => measure,
    };
    let window_ns = thread.since_ns.map(|since_ns| [since_ns, u64::MAX]);
    let lateness = Measure::new(&name("lateness"), &format!("Wake-up lateness of {named}"), file, "wake_ns");
    let response = Measure::new(&name("response"), &format!("Release to sleep of {named}"), file, "end_ns");
    let response = match thread.deadline_us {
        Some(us) => response.deadline_ns((us * 1e3) as u64),
        None => response,
    };
    let mut response = with_rate(response.since("planned_ns")).unit("cycles");
    response.judged = judged && response.deadline_ns.is_some();
    response.skipped = thread.missed;
    let mut lateness = with_rate(lateness.since("planned_ns")).unit("cycles");
    (lateness.window_ns, response.window_ns) = (window_ns, window_ns);
    [lateness, response]
}

/// Late cycles that are shown one by one.
const MAX_WINDOWS: usize = 20;

/// Analysis in the form of `takt trace`, as far as it is known, over all loops that were late.
/// Causes are ordered as in the watch itself, by their lateness.
fn analysis(report: &Report) -> Value {
    let late: Vec<&LoopReport> = report.threads.iter().filter(|thread| thread.late > 0).collect();
    let loops: Vec<&LoopReport> = match late.as_slice() {
        [] => report.threads.iter().filter(|thread| thread.period_us.is_some()).collect(),
        late => late.to_vec(),
    };
    let sum = |pick: fn(&LoopReport) -> u64| loops.iter().map(|thread| pick(thread)).sum::<u64>();
    let task = match loops.as_slice() {
        [] => "no loop".to_owned(),
        [one] => one.name.clone(),
        several => {
            let names: Vec<&str> = several.iter().take(MAX_NAMES).map(|one| one.name.as_str()).collect();
            let more = several.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            names.join(", ") + &more
        }
    };
    let thresholds = loops.first().map(|first| Thresholds {
        lateness_ns: (first.late_beyond_us * 1e3) as u64,
        response_ns: first.deadline_us.map(|us| (us * 1e3) as u64),
        ..Thresholds::default()
    });
    // Of loops with different ones there are none in common.
    let is_one = loops.windows(2).all(|pair| {
        (pair[0].late_beyond_us, pair[0].deadline_us) == (pair[1].late_beyond_us, pair[1].deadline_us)
    });
    let mut windows: Vec<Late> = loops.iter().flat_map(|thread| thread.windows.iter().cloned()).collect();
    keep_worst(&mut windows, MAX_WINDOWS);
    let mut analysis = serde_json::json!({
        "task": task,
        "tid": loops.first().map(|thread| thread.tid),
        "releases": sum(|thread| thread.releases),
        "matched": sum(|thread| thread.releases),
        "kept_awake": report.kept_awake,
        "events": report.events,
        "lost_events": report.lost_events,
        "late": sum(|thread| thread.late),
        "causes": causes(&loops, &report.totals),
        "windows": windows,
        "notes": report.notes,
    });
    if let Some(thresholds) = thresholds.filter(|_| is_one) {
        analysis["thresholds"] = serde_json::json!(thresholds);
    }
    analysis
}

/// The causes of all these loops in one table, in the order of `totals`, which says who took most.
fn causes(loops: &[&LoopReport], totals: &[Total]) -> Vec<CauseRow> {
    let mut rows: Vec<CauseRow> = Vec::new();
    for row in loops.iter().flat_map(|thread| &thread.causes) {
        match rows.iter_mut().find(|known| known.cause == row.cause) {
            Some(known) => {
                known.count += row.count;
                known.never_ran += row.never_ran;
                known.worst_us = known.worst_us.max(row.worst_us);
                known.total_us += row.total_us;
            }
            None => rows.push(row.clone()),
        }
    }
    // Causes that took a part of some late cycles, and most of none.
    for total in totals.iter().filter(|total| total.us > 0.0) {
        match rows.iter_mut().find(|row| row.cause == total.cause) {
            Some(row) => row.who.clone_from(&total.who),
            None => rows.push(CauseRow {
                cause: total.cause,
                who: total.who.clone(),
                count: 0,
                never_ran: 0,
                worst_us: 0.0,
                total_us: 0.0,
            }),
        }
    }
    let place = |cause| totals.iter().position(|total| total.cause == cause).unwrap_or(usize::MAX);
    rows.sort_by_key(|row| place(row.cause));
    rows
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, Target, Watcher};
    use takt_trace::Cause;

    #[test]
    fn the_first_cause_of_the_run_is_the_one_that_took_most_of_all() {
        let row = |cause, count, total_us| CauseRow {
            cause,
            who: "somebody".to_owned(),
            count,
            never_ran: 0,
            worst_us: total_us,
            total_us,
        };
        let total =
            |cause, who: &str, us| Total { cause, who: who.to_owned(), us, share: us / 100.0, cycles: 1 };
        let mut report = Watcher::new(Target::Machine, Settings::default()).report();
        // Often and little in one thread, seldom and long in another.
        for (name, cause, count, us) in [("a", Cause::Softirq, 50, 20.0), ("b", Cause::Lock, 2, 70.0)] {
            let mut thread = crate::report::tests::thread();
            name.clone_into(&mut thread.name);
            thread.causes = vec![row(cause, count, us)];
            report.threads.push(thread);
        }
        report.totals = vec![
            total(Cause::Lock, "hog", 70.0),
            total(Cause::Softirq, "net_rx", 20.0),
            total(Cause::Steal, "", 10.0),
        ];
        let analysis = analysis(&report);
        let causes: Vec<CauseRow> = serde_json::from_value(analysis["causes"].clone()).unwrap();
        let found: Vec<(Cause, &str, u64)> =
            causes.iter().map(|row| (row.cause, row.who.as_str(), row.count)).collect();
        assert_eq!(found, [(Cause::Lock, "hog", 2), (Cause::Softirq, "net_rx", 50), (Cause::Steal, "", 0)]);
        assert_eq!((&analysis["task"], &analysis["late"]), (&"a, b".into(), &24.into()));
        assert!(!analysis["thresholds"].is_null());
        // With limits of their own there are none in common.
        report.threads[0].late_beyond_us = 100.0;
        assert!(super::analysis(&report)["thresholds"].is_null());
    }

    #[test]
    fn a_doubt_of_the_watch_is_one_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = Recording::create(folder.path(), None, "loop").unwrap();
        let mut report = Watcher::new(Target::Machine, Settings::default()).report();
        report.doubts = vec!["You passed another period".to_owned()];
        recording.finish(&Found { report: &report, history: None });
        assert!(recording.failed().is_none(), "{:?}", recording.failed());
        assert_eq!(recording.dir().header().unwrap().doubts, report.doubts);
    }
}
