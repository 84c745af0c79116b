//! Cycles of the loops on their way into the run directory: rows, recorders, releases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_lab::collect::{FLUSH_PERIOD, Recorders, Rows, Sample};
use takt_lab::keeper::Window;
use takt_lab::releases::{Job, Releases, Seen};
use takt_lab::{LabError, Session};
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, RunDir};
use takt_watch::declared::{Declared, Follower, Job as DeclaredJob, Row};
use takt_watch::{Expected, Found, Keep, Options, Report, Settings, Target, TraceOptions, watch};

use crate::ProgramError;
use crate::config::Loop;
use crate::declared::{Outcome, Own};
use crate::feed::{Batch, Feed};

/// File of what is counted beside the recorders, over all parts of a resumed run.
const COUNTS_FILE: &str = "loops.json";

/// Measures of one loop that reports read.
pub(crate) fn measures_of(one: &Loop) -> [Measure; 2] {
    let name = |what: &str| format!("{what}-{}", one.label);
    let measure = |what: &str, title: String, column| {
        Measure::new(&name(what), &title, &file_of(one), column)
            .since("planned_ns")
            .rate_hz(one.rate_hz())
            .unit("cycles")
    };
    let (lateness, response) =
        (format!("Wake-up lateness of {}", one.name), format!("Release to sleep of {}", one.name));
    [
        measure("response", response, "end_ns").deadline_ns(one.deadline_ns).judged(),
        measure("lateness", lateness, "wake_ns"),
    ]
}

/// Name of a loop's sample file.
pub(crate) fn file_of(one: &Loop) -> String {
    format!("loop-{}", one.label)
}

fn sample(measure: &Measure) -> Option<Sample<JobRecord>> {
    match measure.column.as_str() {
        "wake_ns" => Some(|job| (job.planned_ns, job.lateness_ns())),
        "end_ns" => Some(|job| (job.planned_ns, job.response_ns())),
        _ => None,
    }
}

/// One line of a loop's sample file. CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Serialize)]
struct CycleRow {
    index: u64,
    /// Expiry of its timer, or the time at which something else woke it.
    planned_ns: u64,
    /// It got a CPU.
    wake_ns: u64,
    /// It went to sleep.
    end_ns: u64,
    /// Releases of its period that did not come since the one before.
    skipped: u64,
}

/// One line of a declared loop's sample file. CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Serialize)]
struct JobRow {
    /// The program's own number of the job.
    index: u64,
    /// Its release.
    planned_ns: u64,
    /// It began.
    wake_ns: u64,
    /// It ended.
    end_ns: u64,
    /// Releases that were passed over since the job before.
    skipped: u64,
    /// Sequence number of the input that it consumed; 0 is none.
    input: u64,
    /// Its value of interest; 0 where it has none.
    value: f64,
}

/// Progress of a loop, for the thread that times the run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) cycles: AtomicU64,
    pub(crate) planned_ns: AtomicU64,
}

/// Counts of the loops, by their labels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counts {
    releases: BTreeMap<String, Seen>,
}

/// One loop.
struct Series {
    label: String,
    period_ns: u64,
    rows: Rows,
    recorders: Recorders<JobRecord>,
    response: String,
    last_planned_ns: Option<u64>,
    progress: Arc<Progress>,
    releases: Releases,
    /// What the program declares of it.
    own: Option<Own>,
}

impl Series {
    fn new(
        session: &mut Session,
        one: &Loop,
        window: &Window,
        before: Option<&Seen>,
    ) -> Result<Self, LabError> {
        let (dir, file) = (session.dir().clone(), file_of(one));
        let own = |measure: &Measure| if measure.file == file { sample(measure) } else { None };
        let measures = &mut session.header.measures;
        let response = measures_of(one)[0].name.clone();
        let releases = Releases::new(one.period_ns, window, measures, &[&response]).going_on(before);
        Ok(Self {
            label: one.label.clone(),
            period_ns: one.period_ns,
            rows: Rows::new(&dir, &file)?,
            recorders: Recorders::open(&dir, measures, window, own)?,
            response,
            last_planned_ns: None,
            progress: Arc::default(),
            releases,
            own: None,
        })
    }

    /// Takes what the program has written down.
    fn take(&mut self, window: &Window, batch: Batch) -> Result<(), LabError> {
        let Some(mut own) = self.own.take() else { return Ok(()) };
        own.agreement.within(window.bounds());
        own.note(&batch);
        for row in batch.rows {
            match row {
                Row::Job(job) => {
                    own.agreement.declare(&job);
                    let lost = own.lost_before(&job);
                    self.push_job(window, &job, lost)?;
                }
                Row::Stage { job, stage, span_ns } => own.stage(window, job, stage, span_ns)?,
            }
        }
        self.own = Some(own);
        Ok(())
    }

    /// A declared job; `lost` records before it found no room.
    fn push_job(&mut self, window: &Window, job: &DeclaredJob, lost: u64) -> Result<(), LabError> {
        let &DeclaredJob { job: index, release_ns: planned_ns, begin_ns: wake_ns, end_ns, .. } = job;
        let record =
            JobRecord { index, planned_ns, wake_ns, start_ns: wake_ns, end_ns, ..JobRecord::default() };
        // A job whose record was lost is neither a miss nor in time: it is in `records_lost`.
        let skipped = self.count(&record, lost);
        if window.keeps(planned_ns) {
            let (input, value) = (job.input.unwrap_or(0), job.value.unwrap_or(0.0));
            self.rows.push(|| JobRow { index, planned_ns, wake_ns, end_ns, skipped, input, value })?;
        }
        self.progressed(planned_ns);
        Ok(())
    }

    fn push(&mut self, window: &Window, job: &JobRecord) -> Result<(), LabError> {
        let &JobRecord { index, planned_ns, wake_ns, end_ns, .. } = job;
        // A cycle that is caught up without a sleep is none that the kernel sees: its release is
        // one that did not come.
        let skipped = self.count(job, 0);
        if window.keeps(planned_ns) {
            self.rows.push(|| CycleRow { index, planned_ns, wake_ns, end_ns, skipped })?;
        }
        self.progressed(planned_ns);
        Ok(())
    }

    /// Counts a job in, and the releases since the one before that did not come; of `lost` of them
    /// it is not known whether they did.
    fn count(&mut self, job: &JobRecord, lost: u64) -> u64 {
        let &JobRecord { planned_ns, wake_ns, .. } = job;
        let periods = |last_ns: u64| planned_ns.saturating_sub(last_ns) as f64 / self.period_ns as f64;
        let skipped = self.last_planned_ns.map_or(0.0, |last_ns| (periods(last_ns).round() - 1.0).max(0.0));
        let skipped = (skipped as u64).saturating_sub(lost);
        self.last_planned_ns = Some(planned_ns);
        let response = &self.response;
        self.releases.job(Job { planned_ns, wake_ns, skipped }, |measure| {
            (measure == response).then(|| job.response_ns())
        });
        self.recorders.push(job);
        skipped
    }

    fn progressed(&self, planned_ns: u64) {
        self.progress.planned_ns.store(planned_ns, Ordering::Release);
        self.progress.cycles.fetch_add(1, Ordering::AcqRel);
    }
}

/// Takes what the watch sees.
pub(crate) struct Collector {
    dir: RunDir,
    window: Window,
    loops: Vec<Series>,
    configs: Vec<(Loop, i32)>,
    by_tid: BTreeMap<i32, usize>,
    options: Options,
    /// Of the declared loops.
    feed: Option<Feed>,
    /// Whether there are kernel events.
    is_traced: bool,
    saved: Instant,
    /// Its first error; nothing is kept after it.
    failed: Option<LabError>,
}

/// Records of declared loops are looked for so often where there are no kernel events.
const LOOK: Duration = Duration::from_millis(50);

/// Result of a collector.
pub(crate) struct Collected {
    /// The releases of each loop.
    pub(crate) releases: Vec<Releases>,
    /// The watch's report on all threads of the program; `None` without kernel events.
    pub(crate) report: Option<Report>,
    /// The declared part of each loop.
    pub(crate) declared: Vec<Option<Outcome>>,
}

impl Collector {
    /// Of these loops and their threads, all of which are what `keeper` started.
    pub(crate) fn new(
        session: &mut Session,
        loops: &[(Loop, i32)],
        keeper: i32,
        window: &Window,
    ) -> Result<Self, LabError> {
        let counts: Counts = session.restored(COUNTS_FILE)?.unwrap_or_default();
        let series = loops.iter().map(|(one, _)| {
            let before = counts.releases.get(&one.label);
            Series::new(session, one, window, before)
        });
        let series = series.collect::<Result<Vec<Series>, LabError>>()?;
        let expected = loops.iter().map(|(one, tid)| {
            let expected = Expected { period_ns: one.period_ns as f64, deadline_ns: one.deadline_ns };
            (*tid, expected)
        });
        let options = Options {
            target: Target::Offspring(keeper),
            seconds: None,
            settings: Settings { live: false, ..Settings::default() },
            expected: expected.collect(),
            trace: TraceOptions::default(),
        };
        Ok(Self {
            dir: session.dir().clone(),
            window: window.clone(),
            loops: series,
            configs: loops.to_vec(),
            by_tid: loops.iter().enumerate().map(|(at, (_, tid))| (*tid, at)).collect(),
            options,
            feed: None,
            is_traced: true,
            saved: Instant::now(),
            failed: None,
        })
    }

    /// Takes the rows of these loops from what the program declares, each at its place.
    ///
    /// # Errors
    /// [`LabError`]: no file, no thread.
    pub(crate) fn declare(&mut self, declared: Vec<Option<(&Declared, Follower)>>) -> Result<(), LabError> {
        let mut followers = Vec::with_capacity(declared.len());
        for ((series, one), (config, _)) in self.loops.iter_mut().zip(declared).zip(&self.configs) {
            let Some((declared, follower)) = one else {
                followers.push(None);
                continue;
            };
            series.own = Some(Own::new(&self.dir, config, declared)?);
            followers.push(Some(follower));
        }
        self.feed = Some(Feed::start(followers)?);
        Ok(())
    }

    /// There are no kernel events: every loop is declared.
    pub(crate) fn untraced(&mut self) {
        self.is_traced = false;
    }

    /// Progress of each loop.
    pub(crate) fn progress(&self) -> Vec<Arc<Progress>> {
        self.loops.iter().map(|one| Arc::clone(&one.progress)).collect()
    }

    /// Collects until `end` is set, or nothing of the program runs any more.
    pub(crate) fn run(mut self, end: &AtomicBool) -> Result<Collected, LabError> {
        let options = self.options.clone();
        let report = if self.is_traced {
            Some(watch(&options, end, Some(&mut self), &mut |_| {}).map_err(ProgramError::from)?)
        } else {
            self.without_events(end);
            None
        };
        if let Some(error) = self.failed {
            return Err(error);
        }
        let all_declared = self.loops.iter().all(|one| one.own.is_some());
        if let Some(why) = report.as_ref().and_then(|report| report.untraced.clone())
            && !all_declared
        {
            return Err(ProgramError::Untraced(why).into());
        }
        let (releases, declared) =
            self.loops.into_iter().map(|one| (one.releases, one.own.map(Own::finish))).unzip();
        Ok(Collected { releases, report, declared })
    }

    fn without_events(&mut self, end: &AtomicBool) {
        loop {
            let is_last = end.load(Ordering::Acquire);
            if is_last {
                self.end_feed();
            }
            self.attempt(Self::take_declared);
            if is_last {
                return self.attempt(Self::save);
            }
            self.part();
            std::thread::sleep(LOOK);
        }
    }

    fn end_feed(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.end();
        }
    }

    fn take_declared(&mut self) -> Result<(), LabError> {
        let Some(feed) = &self.feed else { return Ok(()) };
        let window = &self.window;
        let mut all = self.loops.iter_mut().enumerate();
        all.try_for_each(|(at, one)| one.take(window, feed.take(at)))
    }

    fn take(&mut self, tid: i32, jobs: &[JobRecord]) -> Result<(), LabError> {
        let Some(&at) = self.by_tid.get(&tid) else { return Ok(()) };
        let (one, window) = (&mut self.loops[at], &self.window);
        match &mut one.own {
            Some(own) => {
                own.agreement.see(jobs);
                Ok(())
            }
            None => jobs.iter().try_for_each(|job| one.push(window, job)),
        }
    }

    fn save(&mut self) -> Result<(), LabError> {
        self.saved = Instant::now();
        let mut draft = self.window.draft();
        let mut counts = Counts::default();
        for one in &mut self.loops {
            one.rows.keep(&mut draft)?;
            one.recorders.keep(&mut draft)?;
            if let Some(own) = &mut one.own {
                own.keep(&mut draft)?;
            }
            counts.releases.insert(one.label.clone(), one.releases.seen());
        }
        draft.file(COUNTS_FILE, &counts)?;
        Ok(self.dir.checkpoint(&draft)?)
    }

    fn attempt(&mut self, what: impl FnOnce(&mut Self) -> Result<(), LabError>) {
        if self.failed.is_none()
            && let Err(error) = what(self)
        {
            self.failed = Some(error);
        }
    }
}

impl Keep for Collector {
    fn jobs(&mut self, tid: i32, jobs: &[JobRecord]) {
        self.attempt(|this| this.take(tid, jobs));
    }

    fn part(&mut self) {
        self.attempt(Self::take_declared);
        if self.saved.elapsed() >= FLUSH_PERIOD {
            self.attempt(Self::save);
        }
    }

    fn finish(&mut self, found: &Found<'_>) {
        self.end_feed();
        self.attempt(|this| {
            this.take_declared()?;
            this.save()?;
            found.leave(&this.dir).map_err(ProgramError::from)?;
            Ok(())
        });
    }
}

/// Number of cycles after which a loop's rhythm is known: from then on the watch tells which
/// wake-ups begin one.
pub(crate) const RHYTHM_CYCLES: u64 = 24;

/// Longest time until then, for loops of these periods.
pub(crate) fn rhythm_time(loops: &[Loop]) -> Duration {
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(20);
    let slowest_ns = loops.iter().map(|one| one.period_ns).max().unwrap_or(0);
    Duration::from_nanos(slowest_ns.saturating_mul(2 * RHYTHM_CYCLES)).clamp(LEAST, MOST)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::Arc as Shared;
    use takt_lab::RunOptions;

    const MS: u64 = 1_000_000;

    fn control() -> Loop {
        Loop {
            name: "control".to_owned(),
            process: None,
            period_ns: 2 * MS,
            deadline_ns: 2 * MS,
            policy: None,
            cpus: None,
            label: "control".to_owned(),
        }
    }

    #[test]
    fn rows_measures_and_releases_are_those_of_the_cycles() {
        let root = tempfile::tempdir().unwrap();
        let options = RunOptions::below(root.path(), Shared::default());
        let mut session = Session::create("program", "test", &"asked", &options).unwrap();
        session.header.measures = measures_of(&control()).into();
        let window = session.new_window(None);
        let mut collector = Collector::new(&mut session, &[(control(), 7)], 1, &window).unwrap();
        window.open(100 * MS);
        let job = |index: u64, at_ms: u64, end_ns: u64| JobRecord {
            index,
            planned_ns: at_ms * MS,
            wake_ns: at_ms * MS + 5_000,
            end_ns: at_ms * MS + end_ns,
            ..JobRecord::default()
        };
        // One in time, one late that leaves no time for the two after it, one in time.
        let jobs = [job(0, 100, 500_000), job(1, 102, 5 * MS), job(2, 108, 300_000)];
        collector.jobs(7, &jobs);
        collector.jobs(8, &jobs);
        window.close(110 * MS);
        collector.save().unwrap();
        let dir = session.dir().clone();
        let rows = dir.columns("loop-control", &["planned_ns", "end_ns", "skipped"]).unwrap();
        assert_eq!(rows[0], [100 * MS, 102 * MS, 108 * MS]);
        assert_eq!(rows[2], [0, 0, 2]);
        let mut one = collector.loops.remove(0);
        one.releases.finish();
        assert_eq!((one.releases.jobs, one.releases.skipped), (3, 2));
        one.releases.count_in(&mut session.header.measures);
        let response = &session.header.measures[0];
        assert_eq!((response.skipped, response.longest_miss_run), (2, Some(3)));
        assert_eq!(one.progress.cycles.load(Ordering::Acquire), 3);
    }
}
