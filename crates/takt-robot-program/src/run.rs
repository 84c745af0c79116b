//! A program as a robot of the lab.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_lab::keeper::Window;
use takt_lab::robot::{
    Conclusion, Critical, End, Event, NoCriticalThread, Observe, Robot, RobotKind, Running,
};
use takt_lab::summary::summarise;
use takt_lab::{Collecting, ConfigError, LabError, RunOptions, RunSummary, Session};
use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;
use takt_rt::procfs;
use takt_rt::settings::Granted;
use takt_rundir::{Measure, RUN_FILE, RunDir};
use takt_watch::declared::{Follower, Scanner};
use takt_watch::target::offspring;
use takt_watch::{LoopReport, Report, look_ahead};

use crate::ProgramError;
use crate::agreement::Compared;
use crate::collector::{Collected, Collector, Progress, RHYTHM_CYCLES, measures_of, rhythm_time};
use crate::config::{Loop, ProgramFile, SHIPPED, StopConfig, read};
use crate::declared::{Outcome, StageSummary};
use crate::keeper::{Program, Start, State, find};
use crate::output::Output;
use crate::ready::{Found, Ready};

/// The program as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    factors: &[("policy", "loop.policy"), ("placement", "loop.cpus"), ("cpus", "loop.cpus")],
    values: Some("values"),
    ..RobotKind::new("program", &[("program", SHIPPED)], read)
};

/// The key of `run.json` with the loops.
const LOOPS: &str = "loops";

/// A period that differs by more than this from the file's is another one.
const OTHER_PERIOD: f64 = 0.05;

/// After the window's end a cycle that began within it may take so long to be counted.
const LAST_CYCLE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// Source of a loop's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel's events: nothing was added to the program.
    Seen,
    /// The program's own records, compared with the kernel's events.
    Declared,
}

/// A loop of a run, in `run.json` and in the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopSummary {
    /// Its name in the robot's file.
    pub name: String,
    /// Source of its rows.
    pub source: Source,
    /// Its sample file.
    pub file: String,
    /// Its thread.
    pub tid: i32,
    /// The thread's process.
    pub pid: i32,
    /// The name of that process.
    pub process: String,
    /// The period of the robot's file, microseconds.
    pub period_us: f64,
    /// The period that was seen; null where none was.
    pub seen_period_us: Option<f64>,
    /// The deadline, microseconds.
    pub deadline_us: f64,
    /// Its policy, read back; null where it could not be read.
    pub policy: Option<String>,
    /// Its CPUs, read back; null likewise.
    pub cpus: Option<String>,
    /// The policy that the file asks for; null where it leaves the thread alone.
    pub asked_policy: Option<String>,
    /// The CPUs that the file asks for; null likewise.
    pub asked_cpus: Option<String>,
    /// The period that the program declares; absent of a loop that is seen, or driven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_period_us: Option<f64>,
    /// Declared jobs against the kernel's events; absent of a loop that is seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// Stages of its jobs; absent where it declares none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageSummary>,
}

/// The summary of a run: what every run has, and the loops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramSummary {
    /// Common part of every run.
    #[serde(flatten)]
    pub run: RunSummary,
    /// The loops.
    pub loops: Vec<LoopSummary>,
}

/// Sums up a run directory.
///
/// # Errors
/// [`LabError::Files`] for a directory that is none of a program's.
pub fn program_summary(dir: &RunDir) -> Result<ProgramSummary, LabError> {
    let mut run: serde_json::Value = dir.read_json(RUN_FILE)?;
    let loops = serde_json::from_value(run[LOOPS].take()).map_err(|error| {
        LabError::damaged(dir.path().join(RUN_FILE), error.to_string(), "a list of loops")
    })?;
    Ok(ProgramSummary { run: summarise(dir)?, loops })
}

impl ProgramFile {
    fn start_of(&self) -> Result<Start, LabError> {
        Ok(Start {
            command: self.filled_command()?,
            folder: self.folder.clone(),
            environment: self.filled_environment()?,
        })
    }

    /// The one policy that all loops are given.
    fn policy_in_words(&self) -> String {
        let mut given: Vec<String> = self
            .loops
            .iter()
            .map(|one| one.policy.map_or_else(|| "own policy".to_owned(), |policy| policy.to_string()))
            .collect();
        given.dedup();
        given.join("+")
    }
}

impl Robot for ProgramFile {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        Self::validate(self)
    }

    fn inspect(&self) -> Result<Vec<String>, LabError> {
        let found = find(&self.start_of()?)?;
        Ok(vec![format!("the command is {}", found.display())])
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(self.filled_loops()?.iter().flat_map(measures_of).collect())
    }

    fn label(&self) -> String {
        // Runs of two programs are two series.
        format!("{}, {}", self.envelope.name, self.policy_in_words())
    }

    fn describe(&self) -> String {
        let loops = self.filled_loops().unwrap_or_default();
        let loops: Vec<String> =
            loops.iter().map(|one| format!("{} at {} Hz", one.name, one.rate_hz())).collect();
        format!("{}, {}", loops.join(", "), self.policy_in_words())
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn rate_hz(&self) -> Option<f64> {
        self.filled_loops().ok()?.first().map(Loop::rate_hz)
    }

    fn make_strict(&mut self) {
        self.strict = true;
    }

    fn set_policy(&mut self, policy: &str) -> Result<(), ConfigError> {
        let policy: Policy = policy.parse()?;
        self.loops.iter_mut().for_each(|one| one.policy = Some(policy));
        Ok(())
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let why = "`takt run` of a program already follows its loops with kernel events and reports the causes of late cycles: run it \
             without a trace, then `takt report` its run directory";
        Err(NoCriticalThread(why))
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let (start, loops) = (self.start_of()?, self.filled_loops()?);
        find(&start)?;
        session.header.measures = self.measures().map_err(LabError::robot)?;
        let window = session.new_window(None);
        let ready = Ready::before(&self.ready, &self.folder);
        observe(Event::Preparing { what: "Waiting until the command is ready" });
        let (program, pipe) = Program::start(&start)?;
        let output = Output::read(pipe, session.dir().path(), self.ready.line.as_deref())?;
        let mut scanner = Scanner::default();
        let found = ready.wait(&program, &output, &loops, &options.stop, &mut scanner)?;
        let ahead = look_ahead(&takt_watch::Target::Offspring(program.keeper_pid()));
        let is_traced = ahead.untraced.is_none();
        if let Some(why) = ahead.untraced {
            let fixes: Vec<String> =
                ahead.missing.iter().map(|one| format!("{}; fix: {}", one.what, one.fix)).collect();
            let why = [vec![why], fixes].concat().join("; ");
            if !found.iter().all(|found| found.declared.is_some()) {
                return Err(ProgramError::Untraced(why).into());
            }
            session.header.problems.push(format!(
                "the declared rows are compared with nothing, and late cycles have no causes: the kernel's events cannot be had: {why}"
            ));
        }
        let bound: Vec<Bound> =
            loops.into_iter().zip(found).map(|(one, found)| Bound::grant(one, found, self.strict)).collect();
        title(&mut session.header.measures, &bound);
        bound.iter().try_for_each(|bound| bound.granted.check(&bound.config.name))?;
        let not_granted = bound.iter().flat_map(Bound::not_granted);
        session.header.not_granted.extend(not_granted);
        let followed: Vec<(Loop, i32)> =
            bound.iter().map(|bound| (bound.config.clone(), bound.found.tid)).collect();
        let mut collector = Collector::new(session, &followed, program.keeper_pid(), &window)?;
        let follow = |bound: &Bound| bound.found.declared.as_ref().map(|one| one.follow()).transpose();
        let followers = bound.iter().map(follow).collect::<Result<Vec<Option<Follower>>, _>>();
        let followers = followers.map_err(ProgramError::from)?.into_iter().zip(&bound);
        let declared = followers.map(|(follower, bound)| bound.found.declared.as_ref().zip(follower));
        collector.declare(declared.collect())?;
        if !is_traced {
            collector.untraced();
        }
        let progress = collector.progress();
        let patience = rhythm_time(&followed.iter().map(|(one, _)| one.clone()).collect::<Vec<Loop>>());
        let why = "follows the loops of the program";
        let collecting = Collecting::start("takt-collector", why, move |end| collector.run(end))?;
        Ok(Box::new(RunningProgram {
            window,
            length: options.length(self.seconds),
            program,
            output,
            stop: self.stop.clone(),
            bound,
            progress,
            collecting,
            scanner,
            ready_by: Instant::now() + patience,
            bounds_ns: [u64::MAX; 2],
            died: None,
        }))
    }
}

/// A loop and its thread.
struct Bound {
    config: Loop,
    found: Found,
    granted: Granted,
    seen_period_us: Option<f64>,
    /// When its thread was found to be gone.
    gone_ns: Option<u64>,
    /// Under which other name it was seen.
    renamed: Option<String>,
    /// What its rows came to, where the program declares it.
    outcome: Option<Outcome>,
}

impl Bound {
    fn grant(config: Loop, found: Found, strict: bool) -> Self {
        let granted = Granted::to_thread(found.tid, config.policy, config.cpus, strict);
        Self { config, found, granted, seen_period_us: None, gone_ns: None, renamed: None, outcome: None }
    }

    fn not_granted(&self) -> impl Iterator<Item = String> {
        self.granted.differences.iter().map(|difference| format!("{}: {difference}", self.config.name))
    }

    /// Looks whether the thread is still there, and still has its name.
    fn look(&mut self) {
        match procfs::thread_name(self.found.pid, self.found.tid) {
            None => {
                self.gone_ns.get_or_insert_with(monotonic_ns);
            }
            Some(name) if self.found.declared.is_none() && name != self.config.thread_name() => {
                self.renamed = Some(name);
            }
            Some(_) => {}
        }
    }

    fn summary(&self) -> LoopSummary {
        let Self { config, found, granted, seen_period_us, outcome, .. } = self;
        LoopSummary {
            name: config.name.clone(),
            source: if found.declared.is_some() { Source::Declared } else { Source::Seen },
            file: crate::collector::file_of(config),
            tid: found.tid,
            pid: found.pid,
            process: found.process.clone(),
            period_us: config.period_ns as f64 / 1e3,
            seen_period_us: *seen_period_us,
            deadline_us: config.deadline_ns as f64 / 1e3,
            policy: granted.effective.policy.map(|policy| policy.to_string()),
            cpus: granted.effective.cpus.map(|cpus| cpus.to_string()),
            asked_policy: config.policy.map(|policy| policy.to_string()),
            asked_cpus: config.cpus.map(|cpus| cpus.to_string()),
            declared_period_us: found.declared.as_ref().and_then(|one| Some(one.period_ns? as f64 / 1e3)),
            compared: outcome.as_ref().map(|outcome| outcome.compared),
            stages: outcome.as_ref().map(|outcome| outcome.stages.clone()).unwrap_or_default(),
        }
    }

    /// Contradiction between its run and the file: another period.
    fn doubt(&mut self, report: Option<&LoopReport>) -> Option<String> {
        self.seen_period_us = report.and_then(seen_period_us);
        let seen_ns = self.seen_period_us? * 1e3;
        let (name, ns) = (&self.config.name, self.config.period_ns as f64);
        ((seen_ns / ns - 1.0).abs() > OTHER_PERIOD).then(|| {
            format!(
                "loop \"{name}\" ran every {:.3} ms, but the file says {:.3} ms: correct `period`, or the program's rate",
                seen_ns / 1e6,
                ns / 1e6
            )
        })
    }
}

/// The median distance of its releases, where they come one by one: the watch does not look for a
/// period that it was given.
fn seen_period_us(report: &LoopReport) -> Option<f64> {
    let intervals = report.release_interval_us.as_ref()?;
    (!intervals.uneven).then_some(intervals.median)
}

/// A program that runs.
struct RunningProgram {
    window: Window,
    length: Duration,
    program: Program,
    output: Output,
    stop: StopConfig,
    bound: Vec<Bound>,
    progress: Vec<Arc<Progress>>,
    collecting: Collecting<Collected>,
    scanner: Scanner,
    ready_by: Instant,
    bounds_ns: [u64; 2],
    /// It has ended by itself, with nothing left of it.
    died: Option<State>,
}

/// The command's part of `run.json`.
#[derive(Debug, Serialize)]
struct CommandNote {
    pid: i32,
    exit_status: Option<i32>,
    exit_signal: Option<i32>,
    ended_by_itself: bool,
    was_killed: bool,
    printed_bytes: u64,
}

impl RunningProgram {
    fn note_loops(&self, session: &mut Session) -> Result<(), LabError> {
        let loops: Vec<LoopSummary> = self.bound.iter().map(Bound::summary).collect();
        session.note(LOOPS, &loops)
    }

    /// Time since the window began, seconds.
    fn since_begin_s(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.bounds_ns[0]) as f64 / 1e9
    }

    /// Judges the threads and the command within the window.
    fn judge_threads(&self, session: &mut Session) {
        if let Some(state) = self.died {
            let how = state.how();
            let at_ns = state.ended.map_or_else(monotonic_ns, |ended| ended.at_ns);
            session.header.failures.push(format!(
                "the command ended {how} {:.3} s after the window began. {} A program that ends by itself must run for longer than the \
                 window (--seconds)",
                self.since_begin_s(at_ns),
                self.output.words()
            ));
            return;
        }
        for one in &self.bound {
            let (name, tid) = (&one.config.name, one.found.tid);
            if let Some(at_ns) = one.gone_ns {
                session.header.failures.push(format!(
                    "loop \"{name}\": its thread {tid} ended {:.1} s after the window began; the command continued",
                    self.since_begin_s(at_ns)
                ));
            } else if let Some(other) = &one.renamed {
                session.header.problems.push(format!(
                    "loop \"{name}\": its thread {tid} is now named \"{}\"; Takt followed it by its id",
                    takt_files::quoted(other)
                ));
            }
        }
    }
}

impl Running for RunningProgram {
    fn window(&self) -> &Window {
        &self.window
    }

    fn note(&mut self, session: &mut Session) -> Result<(), LabError> {
        self.note_loops(session)
    }

    fn notes(&self) -> Vec<String> {
        let state = self.program.state();
        let left = state.ended.filter(|_| !state.gone);
        left.map(|ended| {
            format!("The command ended {} but left processes behind, which Takt follows", ended.how())
        })
        .into_iter()
        .collect()
    }

    fn is_ready(&self) -> bool {
        let known = |one: &Arc<Progress>| one.cycles.load(Ordering::Acquire) >= RHYTHM_CYCLES;
        self.progress.iter().all(known) || Instant::now() >= self.ready_by
    }

    fn open(&mut self, from_ns: u64) {
        self.bounds_ns[0] = from_ns;
        self.window.open(from_ns);
    }

    fn close(&mut self, to_ns: u64) {
        self.bounds_ns[1] = to_ns;
        self.window.close(to_ns);
    }

    fn tick(&mut self, _session: &mut Session, open: bool) -> Result<(), LabError> {
        let state = self.program.state();
        if state.gone {
            if !open {
                return Err(self.program.ended_early(state, &self.output, "the window began").into());
            }
            self.output.finish();
            self.died.get_or_insert(state);
        } else if open {
            self.bound.iter_mut().for_each(Bound::look);
        }
        Ok(())
    }

    fn line(&mut self) -> String {
        let cycles = |(one, progress): (&Bound, &Arc<Progress>)| {
            format!("{} {} cycles", one.config.name, progress.cycles.load(Ordering::Acquire))
        };
        self.bound.iter().zip(&self.progress).map(cycles).collect::<Vec<_>>().join(", ")
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, elapsed: Duration) -> bool {
        self.died.is_some() || self.collecting.is_finished() || elapsed >= self.length
    }

    fn closed(&mut self, _session: &mut Session) -> Result<(), LabError> {
        // A cycle is counted when the next one has begun.
        let slowest_ns = self.bound.iter().map(|one| one.config.period_ns).max().unwrap_or(0);
        let patience = Duration::from_nanos(3 * slowest_ns).clamp(LAST_CYCLE[0], LAST_CYCLE[1]);
        let until = Instant::now() + patience;
        let to_ns = self.bounds_ns[1];
        let is_behind = |one: &Arc<Progress>| one.planned_ns.load(Ordering::Acquire) >= to_ns;
        while !self.progress.iter().all(is_behind)
            && !self.program.state().gone
            && !self.collecting.is_finished()
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The watch may know of the end before the keeper reports it.
        let until = Instant::now() + LAST_CYCLE[0];
        while self.collecting.is_finished() && !self.program.state().gone && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let state = self.program.state();
        if state.gone && state.ended.is_none_or(|ended| ended.at_ns < to_ns) {
            self.output.finish();
            self.died.get_or_insert(state);
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        if self.died.is_none() {
            self.bound.iter_mut().for_each(Bound::look);
        }
        for one in self.bound.iter_mut().filter(|one| one.gone_ns.is_none()) {
            let before = one.granted.differences.len();
            one.granted.reread();
            if one.granted.differences.len() > before && self.died.is_none() {
                let changed: Vec<String> = one.not_granted().collect();
                session.header.not_granted.extend(changed);
            }
        }
        self.judge_threads(session);
        let Self { program, output, stop, bound, collecting, mut scanner, died, .. } = *self;
        // Those that began after the command was ready.
        scanner.scan(offspring(program.keeper_pid()));
        let collected = collecting.end();
        let pid = program.pid;
        let (state, was_killed) = program.end(stop.signal.number(), stop.within.0)?;
        output.finish();
        if was_killed {
            let within = takt_rt::duration::format(stop.within.0);
            session.header.problems.push(format!(
                "the command did not end within {within} of {} and was killed: let it handle the signal, or change `stop`",
                stop.signal.name()
            ));
        }
        let ended = state.ended;
        let note = CommandNote {
            pid,
            exit_status: ended.and_then(|ended| ended.status),
            exit_signal: ended.and_then(|ended| ended.signal),
            ended_by_itself: died.is_some(),
            was_killed,
            printed_bytes: output.bytes(),
        };
        session.note("program", &note)?;
        note_declarations(session, &scanner);
        conclude(session, bound, collected?)?;
        Ok(Conclusion::own(program_summary))
    }
}

/// The rows of declared loops end where the program says so, not where the thread sleeps.
fn title(measures: &mut [Measure], bound: &[Bound]) {
    for (one, own) in bound.iter().zip(measures.chunks_mut(2)) {
        if let (Some(_), Some(response)) = (&one.found.declared, own.first_mut()) {
            response.title = format!("Release to end of {}", one.config.name);
        }
    }
}

/// What the program declared in vain, and what could not be read.
fn note_declarations(session: &mut Session, scanner: &Scanner) {
    let refusals = scanner.refusals();
    for (at, refusal) in refusals.iter().enumerate() {
        // A program that tries again and again is reported once.
        if !refusals[..at].contains(refusal) {
            session.header.problems.push(refusal.to_string());
        }
    }
    session.header.problems.extend(scanner.problems().iter().cloned());
}

/// Fills in what was measured of the loops.
fn conclude(session: &mut Session, mut bound: Vec<Bound>, collected: Collected) -> Result<(), LabError> {
    let Collected { mut releases, report, declared } = collected;
    let lost_events = report.as_ref().map_or(0, |report| report.lost_events);
    // Events are the evidence of loops that are seen; of the others they are the check.
    if bound.iter().any(|one| one.found.declared.is_none()) {
        session.header.records_lost = lost_events;
    }
    session.header.problems.extend(report.iter().flat_map(|report| report.notes.iter().cloned()));
    for ((one, releases), declared) in bound.iter_mut().zip(&mut releases).zip(declared) {
        releases.finish();
        session.releases(releases, &format!("the loop {}", one.config.name));
        let own = report
            .as_ref()
            .and_then(|report: &Report| report.threads.iter().find(|thread| thread.tid == one.found.tid));
        session.header.doubts.extend(one.doubt(own));
        if let Some(outcome) = declared {
            session.header.records_lost = session.header.records_lost.saturating_add(outcome.lost);
            session.header.problems.extend(outcome.problems.iter().cloned());
            session.header.doubts.extend(outcome.doubts.iter().cloned());
            // Cycles that the tracer lost are no untruth of the program's.
            let disagreement = outcome.compared.doubt(&one.config.name).filter(|_| lost_events == 0);
            session.header.doubts.extend(disagreement);
            one.outcome = Some(outcome);
        }
    }
    let loops: Vec<LoopSummary> = bound.iter().map(Bound::summary).collect();
    session.note(LOOPS, &loops)
}
