//! The steps of every run around its robot: run directory, machine, interference, measured window,
//! seal.
//!
//! ```text
//! create ─► (the robot starts) ─► write ─► start_load ─► begin_window ─► … ─► end_window ─► end_load ─► seal
//! ```
//!
//! An interruption between two steps leaves a run directory with everything known until then.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use takt_load::{Load, LoadReport};
use takt_report::Figures;
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_rt::cpus::MachineCpus;
use takt_rt::placement::{affinity, set_affinity};
use takt_rt::policy::Policy;
use takt_rt::ran_on;
use takt_rt::settings::Granted;
use takt_rundir::{Claim, CpuTime, Draft, Measure, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE, utc_now};

use crate::LabError;
use crate::keeper::Window;
use crate::late_watch::LateWatch;
use crate::live::{LiveMeasures, LiveSeries};
use crate::options::{Interference, RunOptions, Target};
use crate::releases::Releases;
use crate::resume::{Durable, RESUMPTIONS, Resumed};
use crate::sched_ext::SchedExt;
use crate::{notices, stopped};

/// Time between the start of the interference, or of the robot, and the measured window.
pub const SETTLE: Duration = Duration::from_millis(500);

/// Least time between two looks at where threads run.
const LOOK: Duration = Duration::from_secs(1);

/// Lead with which the ends of the window are reported, so that they lie after everything judged
/// before the report.
const AHEAD_NS: u64 = 5_000_000;

/// Folder in the run directory for what disk stress writes; empty and gone afterwards.
const SCRATCH: &str = "scratch";

/// The machine's CPUs, and where each thread of the run was to run, may run and ran: `placement` of
/// `run.json`.
#[derive(Debug, Serialize)]
struct Placement {
    machine: Option<MachineCpus>,
    threads: Vec<ran_on::ThreadCpus>,
}

/// A run from its first file to its seal.
#[derive(Debug)]
pub struct Session {
    dir: RunDir,
    /// The run's header; the robot adds its own part.
    pub header: RunHeader,
    extra: Map<String, Value>,
    cpu_before: CpuTime,
    /// Number of SIGCONT signals at the beginning of the window.
    went_on: Option<u64>,
    threads: ran_on::Watch,
    looked: Option<Instant>,
    load: Option<Load>,
    punctual: Option<Punctual>,
    /// Whether the folder holds measured samples, or may.
    begun: bool,
    /// When the window began in this part of the run.
    part_from_ns: Option<u64>,
    resumed: Option<Resumed>,
    durable: Durable,
    live: Option<LiveMeasures>,
    /// The scheduler of ordinary threads, where the run has another than the kernel's.
    scheduler: Option<SchedExt>,
    // Held until the run is sealed: nobody else may write it.
    _claim: Claim,
}

/// The thread that times the run has the lowest real-time priority while interference competes for
/// the CPUs: else a window of five seconds becomes one of ten. It wakes up some times a second for
/// microseconds.
#[derive(Debug)]
pub(crate) struct Punctual;

impl Punctual {
    pub(crate) fn become_one() -> Self {
        // If that is not permitted, the window is longer than requested, and its true length is
        // recorded.
        let _ = Policy::RoundRobin { priority: 1 }.apply(0);
        Self
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        let _ = Policy::Other { nice: 0 }.apply(0);
    }
}

/// Starts the interference on the CPUs that it is kept on: threads and processes inherit them from
/// the caller.
///
/// # Errors
/// [`LabError::Load`], [`LabError::LoadPlacement`].
pub(crate) fn start_load(interference: &Interference, scratch: &Path) -> Result<Load, LabError> {
    let profile = interference.profile();
    let Some(cpus) = interference.cpus else { return Ok(Load::start(&profile, scratch)?) };
    let before = affinity(0).map_err(LabError::LoadPlacement)?;
    set_affinity(0, &cpus).map_err(LabError::LoadPlacement)?;
    let load = Load::start(&profile, scratch);
    set_affinity(0, &before).map_err(LabError::LoadPlacement)?;
    Ok(load?)
}

impl Session {
    /// Begins a run: makes its directory and reads the machine. `label` names the run in a few
    /// words; `asked` is the robot's whole configuration.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn create<C: Serialize>(
        robot: &str,
        label: &str,
        asked: &C,
        options: &RunOptions,
    ) -> Result<Self, LabError> {
        let interference = options.interference.label();
        let folder = file_name(robot, label);
        let label =
            if interference.is_empty() { label.to_owned() } else { format!("{label}, {interference}") };
        let asked = serde_json::to_value(asked)?;
        let (dir, claim, resumed) = match &options.target {
            Target::Resume(path) => {
                let (dir, claim, resumed) = Resumed::take_up(path, robot, &label, &asked)?;
                (dir, claim, Some(resumed))
            }
            target => {
                let dir = target.open(&folder)?;
                let claim = dir.claim()?;
                // A run without a checkpoint cannot go on.
                dir.checkpoint(&Draft::default())?;
                (dir, claim, None)
            }
        };
        let mut header =
            RunHeader { experiment: options.experiment.clone(), ..RunHeader::new(robot, &label) };
        let scheduler = options.machine.settle(&mut header);
        if let Some(guest) = &header.machine.virtual_machine {
            header.label = format!("{}, {}", header.label, guest.in_words());
        }
        let durable = Durable::start(&dir)?;
        let mut session = Self {
            dir,
            header,
            extra: Map::new(),
            cpu_before: CpuTime::default(),
            went_on: stopped::times(),
            threads: ran_on::Watch::begin(),
            looked: None,
            load: None,
            punctual: None,
            begun: resumed.is_some(),
            part_from_ns: None,
            resumed,
            durable,
            // Late values are told from what is shown live.
            live: options.live.clone().or_else(|| takt_service::is_on().then(LiveMeasures::default)),
            scheduler,
            _claim: claim,
        };
        notices::about(&session);
        // From here on a robot may move: the disk must not decide when it stops.
        session.dir.keep_in_memory();
        session.note("asked", &asked)?;
        session.note(takt_rundir::COMMAND_KEY, &takt_rundir::command_line())?;
        if let Some(resumed) = &session.resumed {
            session.header.started_utc.clone_from(&resumed.header.started_utc);
            session.header.problems.clone_from(&resumed.header.problems);
            session.header.problems.extend(resumed.machine_problems());
            let resumptions = resumed.resumptions.clone();
            session.note(RESUMPTIONS, &resumptions)?;
        }
        Ok(session)
    }

    /// The run directory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Number of times that the run was resumed.
    pub fn resumed(&self) -> u32 {
        self.resumed.as_ref().map_or(0, |resumed| resumed.checkpoint.resumed)
    }

    /// Time measured before this part of the run.
    pub fn before(&self) -> Duration {
        Duration::from_nanos(self.resumed.as_ref().map_or(0, |resumed| resumed.checkpoint.elapsed_ns))
    }

    /// Content of the accumulating file `name` at the checkpoint from which the run resumes; `None`
    /// in a run from its start.
    ///
    /// # Errors
    /// [`LabError::Files`] where it does not hold a `T`.
    pub fn restored<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LabError> {
        let there = self.resumed.as_ref().is_some_and(|resumed| resumed.checkpoint.files.contains_key(name));
        Ok(if there { Some(self.dir.read_json(name)?) } else { None })
    }

    /// A window for the measures of this part of the run.
    pub fn new_window(&self, watch: Option<LateWatch>) -> Window {
        let window = Window::watched(watch).reporting(self.live.clone());
        match &self.resumed {
            Some(resumed) => window.going_on(&resumed.checkpoint),
            None => window,
        }
    }

    /// Slot in which a robot without a [`Keeper`](crate::keeper::Keeper) for it shows the state of
    /// `measure`; `None` if telemetry is off.
    pub fn live_series(&self, measure: &Measure) -> Option<LiveSeries> {
        self.live.as_ref().map(|live| live.open(measure))
    }

    /// Puts a value of the robot's own into `run.json`, under a key that the header has not.
    ///
    /// # Errors
    /// [`LabError::Files`] for a value that JSON cannot hold.
    pub fn note<T: Serialize>(&mut self, key: &str, value: &T) -> Result<(), LabError> {
        let value = serde_json::to_value(value).map_err(|error| {
            LabError::damaged(self.dir.path().join(RUN_FILE), error.to_string(), "values that JSON can hold")
        })?;
        self.extra.insert(key.to_owned(), value);
        Ok(())
    }

    /// Reporter of the robot's jobs to the manager that started this run; without a manager it
    /// reports nothing. A manager that cannot be reached is a problem of the run, not of the robot.
    pub fn reporter(&mut self) -> crate::jobs::JobReporter {
        crate::jobs::JobReporter::from_environment().unwrap_or_else(|error| {
            self.header.problems.push(format!("jobs cannot be reported to the manager: {error}"));
            crate::jobs::JobReporter::default()
        })
    }

    /// Records the settings that the kernel granted the robot's threads, and those that it refused.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn granted(&mut self, threads: &[&Granted]) -> Result<(), LabError> {
        let differences = threads.iter().flat_map(|granted| &granted.differences);
        self.header.not_granted.extend(differences.map(ToString::to_string));
        self.note("threads", &threads)
    }

    /// The releases of `task`, in words: `the attitude loop`. Those that never ran are reported to
    /// the measures.
    pub fn releases(&mut self, releases: &Releases, task: &str) {
        releases.count_in(&mut self.header.measures);
        self.header.problems.extend(releases.stood_still(task));
    }

    /// Adds single figures.
    pub fn figures<N: Into<String>>(&mut self, figures: impl IntoIterator<Item = (N, f64)>) {
        self.header.figures.extend(figures.into_iter().map(|(name, value)| (name.into(), value)));
    }

    /// Writes `run.json` as it stands.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn write(&self) -> Result<(), LabError> {
        let header = serde_json::to_value(&self.header).map_err(|error| {
            LabError::damaged(self.dir.path().join(RUN_FILE), error.to_string(), "values that JSON can hold")
        })?;
        let mut all = self.extra.clone();
        if let Value::Object(header) = header {
            // The header's keys win: reports depend on them.
            all.extend(header);
        }
        Ok(self.dir.write_json(RUN_FILE, &all)?)
    }

    /// Starts the interference, if any, and lets it and the robot settle.
    ///
    /// # Errors
    /// [`LabError::Load`], [`LabError::LoadPlacement`].
    pub(crate) fn start_load(&mut self, interference: &Interference) -> Result<(), LabError> {
        if !interference.profile().is_off() {
            let scratch = self.dir.path().join(SCRATCH);
            std::fs::create_dir_all(&scratch).map_err(LabError::io(&scratch))?;
            self.load = Some(start_load(interference, &scratch)?);
            self.punctual = Some(Punctual::become_one());
        }
        std::thread::sleep(SETTLE);
        Ok(())
    }

    /// Looks where threads are, once a second, and not while interference is there: this thread has
    /// real-time priority then, and reading a file for each of a hundred noise threads would hold
    /// up a loop that has none.
    fn look_at_threads(&mut self) {
        let due = self.looked.is_none_or(|at| at.elapsed() >= LOOK);
        if due && self.punctual.is_none() {
            self.threads.look();
            self.looked = Some(Instant::now());
        }
    }

    /// Dead part of the interference, in a sentence.
    pub(crate) fn load_trouble(&mut self) -> Option<String> {
        self.look_at_threads();
        self.load.as_mut().and_then(|load| load.check().err()).map(|error| error.to_string())
    }

    /// The measured window begins. Returns when, CLOCK_MONOTONIC nanoseconds; it has begun by then.
    ///
    /// `open` shows those who count, once; until it has, they wait before they judge whether a
    /// value lies in `window`. Whatever is counted elsewhere is in the samples' window as well, and
    /// the other way round, however late this thread is. A run that claims what it has not is
    /// discarded.
    ///
    /// # Errors
    /// [`LabError::Claim`], [`LabError::Files`].
    pub fn begin_window(&mut self, window: &Window, open: impl FnOnce(u64)) -> Result<u64, LabError> {
        if let Err(claim) = self.header.judge_claims() {
            if self.resumed.is_none() {
                self.dir.discard();
            }
            return Err(claim.into());
        }
        self.begun = true;
        self.threads.look();
        self.cpu_before = CpuTime::read();
        self.went_on = stopped::times();
        let now_ns = bounded(window, open);
        takt_service::window_began(now_ns);
        self.window([now_ns, u64::MAX]);
        self.write()?;
        sleep_until(now_ns);
        Ok(now_ns)
    }

    /// The measured window ends. Returns when, CLOCK_MONOTONIC nanoseconds; it has ended by then.
    /// `close` is called as `open` of [`begin_window`](Self::begin_window).
    pub(crate) fn end_window(&mut self, window: &Window, close: impl FnOnce(u64)) -> u64 {
        let now_ns = bounded(window, close);
        sleep_until(now_ns);
        self.threads.look();
        self.header.cpu = CpuTime::read().since(&self.cpu_before);
        self.header.problems.extend(stopped::words(self.went_on, stopped::times()));
        if self.scheduler.as_ref().is_some_and(|scheduler| !scheduler.holds()) {
            self.header.problems.push("the kernel has removed the sched_ext scheduler".to_owned());
        }
        let from_ns = self.header.measures.first().and_then(|m| m.window_ns).map_or(0, |w| w[0]);
        self.window([from_ns, now_ns]);
        now_ns
    }

    /// Sets the bounds of the window for all measures. A resumed run's window is that of all its
    /// parts; after a reboot the clock began again.
    pub fn window(&mut self, [from_ns, to_ns]: [u64; 2]) {
        let first_ns = self.resumed.as_ref().and_then(|resumed| {
            let reported = resumed.header.measures.first().and_then(|measure| measure.window_ns);
            resumed.checkpoint.from_ns.or(reported.map(|[from_ns, _]| from_ns))
        });
        let window_ns = [first_ns.map_or(from_ns, |first_ns| first_ns.min(from_ns)), to_ns];
        // The end comes with the begin of the whole run.
        let part_ns = *self.part_from_ns.get_or_insert(from_ns);
        let measured_ns = self
            .resumed
            .as_ref()
            .filter(|_| to_ns != u64::MAX)
            .map(|resumed| resumed.checkpoint.elapsed_ns.saturating_add(to_ns.saturating_sub(part_ns)));
        for measure in self.header.measures.iter_mut().filter(|m| m.time_column.is_some()) {
            (measure.window_ns, measure.measured_ns) = (Some(window_ns), measured_ns);
        }
    }

    /// Ends the interference and keeps the proof that it was there. Parts that died are problems of
    /// the run.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub(crate) fn end_load(&mut self) -> Result<(), LabError> {
        if let Some(load) = self.load.take() {
            let report: LoadReport = load.stop();
            self.header.problems.extend(report.problems());
            self.note_load(&report);
        }
        self.punctual = None;
        // Empty by now, or it stays and shows what was left.
        let _ = std::fs::remove_dir(self.dir.path().join(SCRATCH));
        Ok(())
    }

    fn note_load(&mut self, report: &LoadReport) {
        // Plain numbers and texts, which JSON can hold.
        self.header.load = serde_json::to_value(report).unwrap_or_default();
    }

    /// Writes `run.json` for the last time and the summary, seals the run. A run that could not be
    /// written has its summary all the same, and [`RunDir::unwritten`] says so.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn seal(self) -> Result<(RunDir, crate::summary::RunSummary), LabError> {
        self.seal_with(crate::summary::summarise)
    }

    /// As [`seal`](Self::seal), with a summary of the robot's own.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub(crate) fn seal_with<S: Serialize>(
        mut self,
        summarise: impl FnOnce(&RunDir) -> Result<S, LabError>,
    ) -> Result<(RunDir, S), LabError> {
        self.header.finished_utc = Some(utc_now());
        // A part of the run that found the same problem as the one before shows it again.
        let mut reported = std::collections::HashSet::new();
        self.header.problems.retain(|problem| reported.insert(problem.clone()));
        if self.resumed() > 0 {
            self.header.figures.insert("resumed".to_owned(), f64::from(self.resumed()));
        }
        self.durable.stop();
        let placement = Placement { machine: MachineCpus::read().ok(), threads: self.threads.report() };
        let strayed = placement.threads.iter().filter_map(ran_on::ThreadCpus::strayed);
        self.header.problems.extend(strayed);
        self.note("placement", &placement)?;
        self.header.failures.extend(never_ran(&self.header));
        // The summary reports figures that cannot be read.
        let figures = |measure: &Measure| Figures::read(&self.dir, measure).ok();
        for (measure, sentence) in missed_besides(&self.header, figures) {
            match self.header.verdict.claim(&measure).limit {
                None => self.header.failures.push(sentence),
                Some(_) => self.header.problems.push(format!("{sentence}; the verdict is not about it")),
            }
        }
        let exceeded = self.header.losses.iter().filter(|loss| loss.is_exceeded());
        self.header.failures.extend(exceeded.filter_map(takt_rundir::Loss::sentence));
        self.write()?;
        if let Some(unwritten) = self.dir.unwritten() {
            self.header.problems.push(unwritten.to_string());
            self.write()?;
        }
        let summary = summarise(&self.dir)?;
        self.dir.write_json(SUMMARY_FILE, &summary)?;
        match self.dir.seal() {
            Err(error) if self.dir.unwritten().is_none() => return Err(error.into()),
            _ => {}
        }
        Ok((self.dir, summary))
    }

    /// Result of a robot's own part of the end; if a file cannot be written, the data measured
    /// until then is judged.
    pub(crate) fn despite_the_disk<T>(
        &mut self,
        outcome: Result<T, LabError>,
    ) -> Result<Option<T>, LabError> {
        match outcome {
            Err(LabError::Files(error)) if error.is_outside() => {
                self.header.problems.push(format!("not recorded: {error}"));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Takes away the directory of a run that measured nothing, because the robot could not start.
    /// The measured data stays.
    pub fn discard(self) {
        if !self.begun {
            self.dir.discard();
        }
    }
}

/// Reports a time to come. This thread may be late on the way, by any time: whoever asks for
/// `window` meanwhile waits, so that nobody judges a value of after that time without knowing it,
/// and nobody was ever reported another one.
fn bounded(window: &Window, note: impl FnOnce(u64)) -> u64 {
    let held = window.hold();
    let at_ns = monotonic_ns() + AHEAD_NS;
    note(at_ns);
    drop(held);
    at_ns
}

/// Releases that never ran of tasks that the verdict is not about: nothing else of it would report.
/// A task for which the robot's file claims something is one that it is about.
fn never_ran(header: &RunHeader) -> Vec<String> {
    let judged: Vec<&Measure> =
        takt_rundir::judged(&header.measures).into_iter().map(|index| &header.measures[index]).collect();
    let mut reported: Vec<&Measure> = Vec::new();
    for measure in header.measures.iter().filter(|measure| measure.skipped > 0) {
        if !judged.iter().chain(&reported).any(|known| known.file == measure.file) {
            reported.push(measure);
        }
    }
    reported.iter().map(|m| format!("{}: {} releases never ran", m.title, m.skipped)).collect()
}

/// Deadlines missed that the verdict is not about, as those of finishing where it is about waking
/// up: the measure's name and a sentence. Without a claim, any miss is one too many. Not reported
/// again: a task that the verdict finds to have missed at least as often.
fn missed_besides(
    header: &RunHeader,
    figures: impl Fn(&Measure) -> Option<Figures>,
) -> Vec<(String, String)> {
    let judged = takt_rundir::judged(&header.measures);
    let late = |figures: &Figures| figures.misses.map_or(0, |misses| misses.misses);
    let mut reported = Vec::new();
    for (index, measure) in header.measures.iter().enumerate() {
        let Some(deadline_ns) = measure.deadline_ns.filter(|_| !judged.contains(&index)) else { continue };
        let Some(own) = figures(measure).filter(|own| late(own) > 0) else { continue };
        let of_task =
            judged.iter().map(|&at| &header.measures[at]).filter(|other| other.file == measure.file);
        let known = of_task.filter_map(&figures).map(|other| late(&other)).max().unwrap_or(0);
        if late(&own) > known {
            let (title, count, deadline_ms) = (&measure.title, own.count(), deadline_ns as f64 / 1e6);
            let sentence =
                format!("{title}: {} of {count} missed the {deadline_ms:.3} ms deadline", late(&own));
            reported.push((measure.name.clone(), sentence));
        }
    }
    reported
}

/// A name for a folder: letters, digits, `.`, `-` and `_` alone.
pub fn file_name(robot: &str, label: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let mut name: String = format!("{robot}-{label}").chars().map(plain).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    name.truncate(120);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests;
