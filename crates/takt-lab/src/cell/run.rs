//! One run of the cell, from a configuration to a sealed run directory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_perception_process::EventKind;
use takt_report::verdict::of_run;
use takt_robot_cell::Cell;
use takt_robot_cell::cell::{StartOptions, ViewPorts};
use takt_rt::census::{CensusEntry, Role};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{self, Reader};
use takt_rt::policy::Policy;
use takt_rt::thread;
use takt_rundir::{CpuShare, Measure, RUN_FILE, RunDir, RunHeader};
use takt_view::terminal::TerminalView;
use takt_view::{CameraSource, CellStatus, ThreadSummary, Urgency, ViewServer, ViewSources};

use super::collector::{Board, Collected, Collector, TROUBLES_FILE, Troubles};
use super::losses::missing;
use super::rows::{FRAMES, JOBS, PERCEPTION_RESPONSE, REACTION, REACTIONS, SSM_LATENESS, SSM_RESPONSE};
use super::summary::{RunFacts, besides, summarise};
use super::tally::{CameraRule, Rules, TALLY_FILE, Tally};
use super::verdict::Found;
use super::watch::Watch;
use super::worker_rows::{WorkerFactsShort, WorkerSummary};
use super::{CellFile, CellSummary, scale};
use crate::LabError;
use crate::keeper::Window;
use crate::options::{RunOptions, Target, View};
use crate::session::{self, Session};

/// Time between the start of the last thread, or of the noise, and the measured window: the first frames, the first
/// detections, and the noise threads' way onto the CPUs.
const SETTLE: Duration = Duration::from_millis(1000);

/// Shortest window of a part of a run that goes on.
const SHORTEST: Duration = Duration::from_millis(200);

/// How long perception may take over its last frames under full interference.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

/// How often a view's census is renewed.
const CENSUS_SHOWN_EVERY: Duration = Duration::from_secs(2);

/// How often the main thread looks after the run.
const TICK: Duration = Duration::from_millis(50);

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// Something takes long before the first frame.
    Preparing {
        /// What.
        what: &'a str,
    },
    /// All threads run; the measured window begins soon.
    Started {
        /// The run directory.
        dir: &'a RunDir,
        /// Address of the page.
        url: Option<String>,
        /// Inference engine in use, and why.
        engine: &'a str,
        /// What was asked and not granted.
        not_granted: &'a [String],
    },
    /// Every so often.
    Tick {
        /// Time since the window began.
        elapsed: Duration,
        /// How the cell is doing.
        status: &'a CellStatus,
    },
}

/// A run while it goes on.
struct Running {
    session: Session,
    cell: Cell,
    facts: RunFacts,
    watch: Watch,
    names: Vec<String>,
}

impl Running {
    /// Writes `run.json` anew. Asks /proc for every thread: not while noise threads run.
    fn write(&mut self) -> Result<(), LabError> {
        let Self { session, cell, facts, watch, .. } = self;
        watch.turn(cell);
        session.note("facts", &facts)?;
        session.note("engine", &cell.engine())?;
        if let Some(worker) = cell.worker() {
            session.note("perception_process", &worker)?;
        }
        session.note("spin_margin", &cell.spin_margin())?;
        session.note("threads", &cell.threads())?;
        session.note("census", &cell.census()?)?;
        session
            .note("feeds", &cell.feeds().iter().map(|f| format!("{:?}", f.status())).collect::<Vec<_>>())?;
        session.note("robot_link", &watch.events)?;
        session.note("protective_distance", &cell.protective_distance())?;
        session.note("dashboard_stops", &cell.dashboard_stops())?;
        session.note("mission", &cell.mission().map(|m| format!("{m:?}")))?;
        session.write()
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// What reports read: reactions, joined from frames and jobs, and the response times of the tasks that have a deadline.
pub(crate) fn measures(file: &CellFile) -> Vec<Measure> {
    let (ssm, perception) = (&file.tasks.ssm, &file.tasks.perception);
    let ssm_measure = |name, title, column| {
        Measure::new(name, title, JOBS, column)
            .since("planned_ns")
            .deadline_ns(ssm.deadline().as_nanos() as u64)
            .rate_hz(1e3 / ssm.period_ms)
    };
    vec![
        Measure::new(
            REACTION,
            "Reaction time, frame arrival to end of the SSM job",
            REACTIONS,
            "answered_ns",
        )
        .since("arrival_ns")
        .deadline_ns(ns(file.tasks.reaction_deadline_ms))
        .unit("reactions")
        .judged(),
        ssm_measure(SSM_LATENESS, "Wake-up lateness of the SSM task", "wake_ns"),
        ssm_measure(SSM_RESPONSE, "Response time of the SSM task", "end_ns").judged(),
        Measure::new(
            PERCEPTION_RESPONSE,
            "Response time of the perception tasks, frame arrival to publication",
            FRAMES,
            "published_ns",
        )
        .since("arrival_ns")
        .deadline_ns(perception.deadline().as_nanos() as u64)
        .unit("frames")
        .judged(),
    ]
}

/// What records are measured against.
fn rules(file: &CellFile) -> Rules {
    let camera = |camera: &takt_robot_cell::config::CellCamera| CameraRule {
        name: camera.name.clone(),
        period_ns: camera
            .source
            .rate_fps()
            .filter(|rate| *rate > 0.0)
            .map(|rate| (1e9 / rate).round() as u64),
    };
    Rules {
        reaction_deadline_ns: ns(file.tasks.reaction_deadline_ms),
        ssm_period_ns: file.tasks.ssm.period().as_nanos() as u64,
        ssm_deadline_ns: file.tasks.ssm.deadline().as_nanos() as u64,
        perception_deadline_ns: file.tasks.perception.deadline().as_nanos() as u64,
        cameras: file.cameras.iter().map(camera).collect(),
    }
}

/// Time until `at_ns`, CLOCK_MONOTONIC.
fn until(at_ns: u64) -> Duration {
    Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))
}

/// The configuration that a killed run settled on, if it was asked with `file`: what the machine carries is measured once for a run.
fn settled_before(path: &Path, file: &CellFile) -> Result<CellFile, LabError> {
    let run: serde_json::Value = RunDir::open(path)?.read_json(RUN_FILE)?;
    let damaged =
        |found: String| LabError::damaged(path.join(RUN_FILE), found, "the configuration of a cell");
    let before: CellFile = serde_json::from_value(run.get("asked").cloned().unwrap_or_default())
        .map_err(|error| damaged(error.to_string()))?;
    if before.scale != file.scale || before.name != file.name {
        return Err(LabError::Config(format!(
            "--resume {}: it was asked with another \"scale\" or \"name\"; go on with the same configuration, or start a new run",
            path.display()
        )));
    }
    Ok(before)
}

/// Runs the cell and leaves a sealed run directory.
///
/// # Errors
/// [`LabError`]. What was measured until then stays in the run directory.
pub fn run(
    file: &CellFile,
    options: &RunOptions,
    observe: &mut dyn FnMut(RunEvent<'_>),
) -> Result<CellSummary, LabError> {
    // A run that goes on was settled when it began.
    let settled = match (&options.target, &file.scale) {
        (Target::Resume(path), Some(_)) if file.scaled.is_none() => Some(settled_before(path, file)?),
        _ => None,
    };
    let file = settled.as_ref().unwrap_or(file);
    // A bench or campaign has decided for all of its runs; a run alone decides for itself.
    let settled = match file.scaled {
        None if file.scale.is_some() => {
            observe(RunEvent::Preparing { what: "measuring what a frame costs here" });
            let mut settled = file.clone();
            scale::settle(&mut settled)?;
            Some(settled)
        }
        _ => None,
    };
    let file = settled.as_ref().unwrap_or(file);
    if let Some(scaled) = &file.scaled {
        observe(RunEvent::Preparing { what: &scaled.text() });
    }
    let mut session = Session::create("cell", file.tasks.policy.name(), file, options)?;
    session.header.verdict = file.verdict.clone();
    let started = Cell::start(
        &file.cell(),
        StartOptions {
            masks: options.view == View::Web,
            worker: None,
            progress: Some(&mut |what| observe(RunEvent::Preparing { what })),
            stop: Some(&options.stop),
        },
    );
    let mut cell = match started {
        Ok(cell) => cell,
        Err(error) => {
            session.discard();
            return Err(error.into());
        }
    };
    let before: Option<Tally> = session.restored(TALLY_FILE)?;
    let troubles_before: Vec<String> = session.restored(TROUBLES_FILE)?.unwrap_or_default();
    let troubles: Troubles = Arc::new(Mutex::new(troubles_before.clone()));
    session.header.measures = measures(file);
    let facts = RunFacts {
        policy: file.tasks.policy.name().to_owned(),
        noise: options.interference.noise,
        cameras: file.cameras.len() as u32,
        deadline_ms: file.tasks.reaction_deadline_ms,
        window_ns: [u64::MAX; 2],
        before_ns: session.before().as_nanos() as u64,
        records_lost: 0,
        not_granted: cell.not_granted(),
        cpu: CpuShare::default(),
        scaled: file.scaled.clone(),
        failures: troubles_before.clone(),
        doubts: Vec::new(),
        longest_still_ms: 0.0,
        losses: file.losses,
        link_losses: 0,
        detector_runs: 0,
        worker: cell.worker().as_ref().map(WorkerFactsShort::from),
    };
    let records = cell.take_records().ok_or_else(|| LabError::internal("records"))?;
    let ports = cell.take_view().ok_or_else(|| LabError::internal("view ports"))?;
    let (status, status_readers) = exchange::latest(2, CellStatus::default);
    let mut status_readers = status_readers.into_iter();
    let mut watched = status_readers.next().ok_or_else(|| LabError::internal("status reader"))?;
    let shown = status_readers.next().ok_or_else(|| LabError::internal("status reader"))?;
    let threads = Arc::new(Mutex::new(ThreadSummary::default()));
    let ViewPorts { cameras, robot } = ports;
    let board = Board {
        status,
        robot,
        policy: facts.policy.clone(),
        ssm: file.ssm.clone(),
        tasks: file.tasks.clone(),
        facts: cell.robot_facts(),
        deadline_ms: facts.deadline_ms,
        cameras: file.cameras.len(),
        threads: Arc::clone(&threads),
    };
    let window = session.new_window(options.watch.clone());
    let (dir, teller) = (session.dir().clone(), session.teller());
    let collector = Collector::new(&dir, records, board, rules(file), &mut session.header.measures, &window)?
        .going_on(before, &troubles)
        .telling(teller);
    let stop_collector = Arc::new(AtomicBool::new(false));
    let collecting = {
        let stop = Arc::clone(&stop_collector);
        thread::spawn_exempt("takt-collector", "keeps the samples", move || collector.run(&stop))
            .map_err(takt_robot_cell::CellError::from)?
    };
    let views = Views::start(file, options.view, cameras, shown)?;
    session.header.not_granted.clone_from(&facts.not_granted);
    let names = file.cameras.iter().map(|camera| camera.name.clone()).collect();
    let watch = Watch::new(file.cameras.len());
    let mut running = Running { session, cell, facts, watch, names };
    running.write()?;
    observe(RunEvent::Started {
        dir: running.session.dir(),
        url: views.url(),
        engine: running.cell.engine(),
        not_granted: &running.facts.not_granted,
    });

    std::thread::sleep(SETTLE.saturating_sub(session::SETTLE));
    running.session.start_load(&options.interference)?;
    // What was measured before counts; a part is never empty, so that it has a window.
    let measured_ns = running.facts.before_ns;
    let length_ns = options.seconds.map(|seconds| {
        ((seconds * 1e9).ceil() as u64).saturating_sub(measured_ns).max(SHORTEST.as_nanos() as u64)
    });
    let from_ns = running.open(&window, length_ns)?;
    let (measured, begun) = (Duration::from_nanos(measured_ns), Instant::now());
    let mut counted: Option<Instant> = None;
    running.watch.begin();
    while !options.stop.load(Ordering::Acquire) && !views.user_quit() {
        let left = length_ns.map(|length_ns| until(from_ns.saturating_add(length_ns)));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        running.watch.punctual_turn(&running.cell);
        let so_far =
            running.watch.so_far(&running.cell, &running.names, running.facts.losses.most_link_losses);
        *troubles.lock().unwrap_or_else(PoisonError::into_inner) =
            troubles_before.iter().cloned().chain(so_far).collect();
        let ended = running.cell.ended_threads();
        if !ended.is_empty() {
            running.fail(format!("ended before their time: {}", ended.join(", ")));
            break;
        }
        // A run that nobody records any more proves nothing: why is in the collector's result.
        if collecting.is_finished() {
            running.fail("the collector of the samples ended before its time".to_owned());
            break;
        }
        // Counting reads /proc: for views only, and seldom.
        if options.view != View::None && counted.is_none_or(|at| at.elapsed() >= CENSUS_SHOWN_EVERY) {
            *threads.lock().unwrap_or_else(PoisonError::into_inner) = count_threads(&running.cell)?;
            counted = Some(Instant::now());
        }
        observe(RunEvent::Tick { elapsed: measured + begun.elapsed(), status: watched.read().value });
        std::thread::sleep(left.map_or(TICK, |left| TICK.min(left)));
    }
    running.watch.punctual_turn(&running.cell);
    running.close(&window);
    running.session.end_load()?;
    running.facts.not_granted = running.cell.not_granted();
    running.session.header.not_granted.clone_from(&running.facts.not_granted);
    // Until here problems are those of the interference and of whoever is told of jobs.
    running.facts.doubts = std::mem::take(&mut running.session.header.problems);
    let Running { watch, cell, facts, names, .. } = &mut running;
    facts.failures.extend(watch.troubles(cell, names, facts.losses.most_link_losses));
    facts.link_losses = watch.lost;
    facts.longest_still_ms = watch.longest_still.as_secs_f64() * 1e3;
    let stops = cell.dashboard_stops();
    facts.failures.extend(stops.iter().map(|stop| {
        format!(
            "the robot did not obey ({}); the dashboard's stop was tried: {}",
            stop.cause.kind.text(),
            stop.answer
        )
    }));
    // Facts of the living: census and feeds are read before anything ends.
    running.write()?;
    finish(running, views, collecting, &stop_collector)
}

impl Running {
    /// Opens the window, which closes by itself where the length of the run is known. Returns its beginning.
    fn open(&mut self, window: &Window, length_ns: Option<u64>) -> Result<u64, LabError> {
        let mut to_ns = u64::MAX;
        let from_ns = self.session.begin_window(window, |from_ns| {
            to_ns = length_ns.map_or(u64::MAX, |length_ns| from_ns.saturating_add(length_ns));
            window.close(to_ns);
            window.open(from_ns);
        })?;
        self.facts.window_ns = [from_ns, to_ns];
        self.facts.detector_runs = self.cell.detector_runs();
        self.session.window(self.facts.window_ns);
        self.session.note("facts", &self.facts)?;
        self.session.write()?;
        Ok(from_ns)
    }

    /// Closes the window now, unless it is closed already.
    fn close(&mut self, window: &Window) {
        let [from_ns, end_ns] = self.facts.window_ns;
        let now_ns = self.session.end_window(window, |now_ns| window.close(end_ns.min(now_ns)));
        self.facts.window_ns = [from_ns, end_ns.min(now_ns)];
        self.session.window(self.facts.window_ns);
        self.facts.cpu = self.session.header.cpu;
        self.facts.detector_runs = self.cell.detector_runs().saturating_sub(self.facts.detector_runs);
    }

    /// What fails the run whatever was measured.
    fn fail(&mut self, why: String) {
        self.facts.failures.push(why);
    }
}

/// Ends everything in order: cameras, perception and SSM, views, collector; then sums up and seals. The noise has ended
/// with the window, so that the few frames still under way are answered sooner than under noise: that can only
/// make a policy look better that was late anyway.
fn finish(
    running: Running,
    views: Views,
    collecting: thread::Handle<Result<Collected, LabError>>,
    stop_collector: &AtomicBool,
) -> Result<CellSummary, LabError> {
    let Running { cell, mut session, mut facts, .. } = running;
    let protective_distance = cell.protective_distance();
    facts.failures.extend(cell.stop(DRAIN_PATIENCE));
    views.stop();
    stop_collector.store(true, Ordering::Release);
    match collecting.join() {
        Ok(Ok(collected)) => facts.records_lost = collected.lost,
        Ok(Err(error)) => return Err(error),
        Err(error) => facts.failures.push(format!("collector: {error}")),
    }
    session.header.records_lost = facts.records_lost;
    session.header.problems.extend(facts.failures.iter().chain(&facts.doubts).cloned());
    session.note("facts", &facts)?;
    session.write()?;
    let mut summary = summarise(session.dir())?;
    summary.protective_distance = protective_distance;
    let Found { failures, doubts } = besides(session.dir(), &summary)?;
    (session.header.failures, session.header.doubts) = (failures, doubts);
    tell_header(&mut session.header, &summary, &facts);
    // The header says all now that the verdict needs; the sentence is that of reports.
    let judged = |dir: &RunDir| {
        summary.tell(of_run(dir)?.report);
        Ok(summary)
    };
    Ok(session.seal_with(judged)?.1)
}

/// What reports and comparisons read of the summary.
fn tell_header(header: &mut RunHeader, summary: &CellSummary, facts: &RunFacts) {
    let skipped: u64 = summary.tasks.iter().skip(1).map(|task| task.skipped).sum();
    let lost: u64 = summary.losses.values().sum();
    // What is allowed to be missing is named, and no miss.
    let allowed = if facts.losses.allow_missing(summary) { missing(summary) } else { 0 };
    let unanswered = lost.saturating_sub(allowed);
    header.losses = facts.losses.judge(summary, facts.link_losses);
    for measure in &mut header.measures {
        // A skipped release is a job that never was, and a frame that nobody judged a reaction that never came.
        measure.never = match measure.name.as_str() {
            REACTION => {
                summary.unanswered_late.saturating_add(summary.dropped_late).saturating_add(unanswered)
            }
            PERCEPTION_RESPONSE => skipped.saturating_add(unanswered),
            _ => summary.ssm.skipped,
        };
        if summary.seconds > 0.0 && [REACTION, PERCEPTION_RESPONSE].contains(&measure.name.as_str()) {
            let count = if measure.name == REACTION { summary.reaction_ms.count } else { summary.frames };
            measure.rate_hz = Some(count as f64 / summary.seconds);
        }
    }
    header.work = summary.work.header();
    header.figures.insert("frames_dropped".to_owned(), summary.frames_dropped as f64);
    header.figures.insert("frames_lost".to_owned(), lost as f64);
    header.figures.insert("stops".to_owned(), summary.stops as f64);
    if let Some(scaled) = &summary.scaled {
        header.figures.insert("scaled_cameras".to_owned(), f64::from(scaled.cameras));
        header.figures.insert("scaled_rate_fps".to_owned(), scaled.rate_fps);
    }
    if let Some(worker) = &summary.worker {
        header.figures.extend(worker_figures(worker));
    }
}

/// Figures of the perception process that campaigns compare.
fn worker_figures(worker: &WorkerSummary) -> impl Iterator<Item = (String, f64)> {
    let answer = worker.answer_ms;
    let figures = [
        ("gpu_answered", worker.answered as f64),
        ("gpu_answer_mean_ms", answer.mean),
        ("gpu_answer_p999_ms", answer.p999),
        ("gpu_answer_worst_ms", answer.worst),
        ("gpu_overruns", worker.count(EventKind::Overrun) as f64),
        ("gpu_late", worker.count(EventKind::Late) as f64),
        ("gpu_breaker_opened", worker.count(EventKind::BreakerOpen) as f64),
        ("gpu_restarts", worker.count(EventKind::Restarted) as f64),
    ];
    figures.into_iter().filter(|(_, value)| value.is_finite()).map(|(name, value)| (name.to_owned(), value))
}

fn count_threads(cell: &Cell) -> Result<ThreadSummary, LabError> {
    let Some(report) = cell.census()? else { return Ok(ThreadSummary::default()) };
    let living = || report.threads.iter().filter(|t| !t.ended);
    let realtime = |t: &&CensusEntry| t.policy_after.is_some_and(|p| !matches!(p, Policy::Other { .. }));
    Ok(ThreadSummary {
        total: living().count() as u32,
        realtime: living().filter(realtime).count() as u32,
        fallback: living().filter(|t| t.role == Role::Subthread).count() as u32,
        deviating: cell.threads().iter().filter(|t| !t.granted.is_complete()).count() as u32,
    })
}

/// The views of a run.
enum Views {
    None,
    Web(ViewServer),
    Terminal(TerminalView),
}

impl Views {
    fn start(
        file: &CellFile,
        view: View,
        cameras: Vec<takt_robot_cell::cell::CameraPorts>,
        status: Reader<CellStatus>,
    ) -> Result<Self, LabError> {
        let names: Vec<String> = file.cameras.iter().map(|c| c.name.clone()).collect();
        Ok(match view {
            View::None => Self::None,
            View::Web => {
                let cameras = cameras
                    .into_iter()
                    .zip(names)
                    .map(|(ports, name)| CameraSource {
                        name,
                        frames: ports.frames,
                        detections: ports.detections,
                        masks: ports.overlays,
                    })
                    .collect();
                let sources = ViewSources { cameras, status };
                Self::Web(ViewServer::start(file.view.clone(), sources, &file.name)?)
            }
            View::Terminal => {
                Self::Terminal(TerminalView::start(status, &file.name, &names, Urgency::default())?)
            }
        })
    }

    fn url(&self) -> Option<String> {
        match self {
            Self::Web(server) => Some(server.url()),
            _ => None,
        }
    }

    fn user_quit(&self) -> bool {
        matches!(self, Self::Terminal(view) if view.has_ended())
    }

    fn stop(self) {
        match self {
            Self::None => {}
            Self::Web(server) => server.stop(),
            // How it ended does not matter any more; the terminal is restored either way.
            Self::Terminal(view) => drop(view.stop()),
        }
    }
}
