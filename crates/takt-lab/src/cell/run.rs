//! One run of the cell, from a configuration to a sealed run directory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_load::noise::NoiseThreads;
use takt_robot_cell::Cell;
use takt_robot_cell::cell::{ThreadReport, ViewPorts};
use takt_robot_cell::tasks::PolicyMix;
use takt_rt::census::{CensusEntry, CensusReport, Role};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{self, Reader};
use takt_rt::periodic::Margin;
use takt_rt::policy::Policy;
use takt_rt::thread;
use takt_view::terminal::TerminalView;
use takt_view::{CameraSource, CellStatus, ThreadSummary, Urgency, ViewServer, ViewSources};

use super::collector::{Board, Collected, Collector};
use super::summary::{RunFacts, summarise};
use super::{CellFile, CellSummary};
use crate::LabError;
use takt_rundir::{CpuShare, CpuTime, Machine};
use takt_rundir::{RUN_FILE, RunDir, SUMMARY_FILE, utc_now};

/// Time between the start of the last thread, or of the noise, and the measured window: the first frames, the first
/// detections, and the noise threads' way onto the CPUs.
const SETTLE: Duration = Duration::from_millis(1000);

/// How long perception may take over its last frames under full interference.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

/// How often a view's census is renewed.
const CENSUS_SHOWN_EVERY: Duration = Duration::from_secs(2);

/// How often the main thread looks after the run.
const TICK: Duration = Duration::from_millis(50);

/// What shows the cell while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Nothing: no thread, no work.
    #[default]
    None,
    /// The web page.
    Web,
    /// The terminal screen.
    Terminal,
}

/// Where the run directory goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// A new folder below this one, named after the time.
    Below(PathBuf),
    /// This very folder, which must not exist.
    Exactly(PathBuf),
}

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Length of the measured window, seconds; until stopped when absent.
    pub seconds: Option<f64>,
    /// Noise threads (SentryRT-1, section V.B).
    pub noise: u32,
    /// Where the run directory goes.
    pub target: Target,
    /// What shows the cell.
    pub view: View,
    /// Ends the run early, in order.
    pub stop: Arc<AtomicBool>,
}

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum RunEvent<'a> {
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

/// `run.json`.
#[derive(Debug, Serialize)]
struct RunFile<'a> {
    format: u32,
    takt: &'static str,
    robot: &'static str,
    started_utc: &'a str,
    finished_utc: Option<String>,
    machine: &'a Machine,
    asked: &'a CellFile,
    facts: &'a RunFacts,
    engine: &'a str,
    spin_margin: Option<Margin>,
    threads: &'a [ThreadReport],
    census: Option<CensusReport>,
    noise: Option<NoiseReport>,
    feeds: Vec<String>,
    robot_link: Vec<String>,
    mission: Option<String>,
    problems: &'a [String],
}

/// Proof that the noise was running.
#[derive(Clone, Copy, Debug, Serialize)]
struct NoiseReport {
    threads: usize,
    threads_that_ran: usize,
    operations: u64,
    cpu_s: f64,
}

/// A run while it goes on.
struct Running<'a> {
    asked: &'a CellFile,
    dir: RunDir,
    cell: Cell,
    machine: Machine,
    started_utc: String,
    facts: RunFacts,
    problems: Vec<String>,
    /// What `run.json` holds now.
    file: serde_json::Value,
}

impl Running<'_> {
    /// Writes `run.json` anew. Asks /proc for every thread: not while noise threads run.
    fn write(&mut self, noise: Option<NoiseReport>) -> Result<(), LabError> {
        let file = RunFile {
            format: 1,
            takt: env!("CARGO_PKG_VERSION"),
            robot: "cell",
            started_utc: &self.started_utc,
            finished_utc: None,
            machine: &self.machine,
            asked: self.asked,
            facts: &self.facts,
            engine: self.cell.engine(),
            spin_margin: self.cell.spin_margin(),
            threads: self.cell.threads(),
            census: self.cell.census()?,
            noise,
            feeds: self.cell.feeds().iter().map(|f| format!("{:?}", f.status())).collect(),
            robot_link: self.cell.link_events().iter().map(|e| format!("{e:?}")).collect(),
            mission: self.cell.mission().map(|m| format!("{m:?}")),
            problems: &self.problems,
        };
        self.file = json(&file, &self.dir)?;
        Ok(self.dir.write_json(RUN_FILE, &self.file)?)
    }

    /// Renews the facts alone.
    fn write_facts(&mut self) -> Result<(), LabError> {
        self.file["facts"] = json(&self.facts, &self.dir)?;
        Ok(self.dir.write_json(RUN_FILE, &self.file)?)
    }
}

/// The thread that times the run has the lowest real-time priority while noise threads compete for the CPUs:
/// else a window of five seconds becomes one of ten. It wakes up twenty times a second for some microseconds.
struct Punctual;

impl Punctual {
    fn become_one() -> Self {
        // Where that is not permitted, the window is longer than asked, and its true length is recorded.
        let _ = Policy::RoundRobin { priority: 1 }.apply(0);
        Self
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        let _ = Policy::Other { nice: 0 }.apply(0);
    }
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
    let dir = match &options.target {
        Target::Below(root) => RunDir::create(root, &label("cell", file.tasks.policy, options.noise))?,
        Target::Exactly(path) => RunDir::create_at(path)?,
    };
    let mut cell =
        Cell::start(&file.cell(), options.view == View::Web).inspect_err(|_| dir.discard_empty())?;
    let facts = RunFacts {
        policy: file.tasks.policy.name().to_owned(),
        noise: options.noise,
        cameras: file.cameras.len() as u32,
        deadline_ms: file.tasks.reaction_deadline_ms,
        ssm_deadline_ns: file.tasks.ssm.deadline().as_nanos() as u64,
        // Until the window is known, everything counts: a run that is killed early can still be summed up.
        window_ns: [0, u64::MAX],
        records_lost: 0,
        not_granted: cell.not_granted(),
        cpu: CpuShare::default(),
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
        deadline_ms: facts.deadline_ms,
        cameras: file.cameras.len(),
        threads: Arc::clone(&threads),
    };
    let collector = Collector::new(&dir, records, board)?;
    let stop_collector = Arc::new(AtomicBool::new(false));
    let collecting = {
        let stop = Arc::clone(&stop_collector);
        thread::spawn_exempt("takt-collector", "keeps the samples", move || collector.run(&stop))
            .map_err(takt_robot_cell::CellError::from)?
    };
    let views = Views::start(file, options.view, cameras, shown)?;
    let mut running = Running {
        asked: file,
        dir,
        cell,
        machine: Machine::read(),
        started_utc: utc_now(),
        facts,
        problems: Vec::new(),
        file: serde_json::Value::Null,
    };
    running.write(None)?;
    observe(RunEvent::Started {
        dir: &running.dir,
        url: views.url(),
        engine: running.cell.engine(),
        not_granted: &running.facts.not_granted,
    });

    let noise = NoiseThreads::start(options.noise as usize).map_err(|e| LabError::Load(e.to_string()))?;
    let punctual = (options.noise > 0).then(Punctual::become_one);
    std::thread::sleep(SETTLE);
    let cpu_before = CpuTime::read();
    running.facts.window_ns = [monotonic_ns(), u64::MAX];
    running.write_facts()?;
    let begun = Instant::now();
    let length = options.seconds.map(Duration::from_secs_f64);
    let mut counted: Option<Instant> = None;
    while !options.stop.load(Ordering::Acquire) && !views.user_quit() {
        let elapsed = begun.elapsed();
        if length.is_some_and(|length| elapsed >= length) {
            break;
        }
        let ended = running.cell.ended_threads();
        if !ended.is_empty() {
            running.problems.push(format!("ended before their time: {}", ended.join(", ")));
            break;
        }
        // Counting reads /proc: for views only, and seldom.
        if options.view != View::None && counted.is_none_or(|at| at.elapsed() >= CENSUS_SHOWN_EVERY) {
            *threads.lock().unwrap_or_else(PoisonError::into_inner) = count_threads(&running.cell)?;
            counted = Some(Instant::now());
        }
        observe(RunEvent::Tick { elapsed, status: watched.read().value });
        std::thread::sleep(length.map_or(TICK, |length| TICK.min(length.saturating_sub(elapsed))));
    }
    running.facts.window_ns[1] = monotonic_ns();
    running.facts.cpu = CpuTime::read().since(&cpu_before);
    let noise = proof(noise);
    drop(punctual);
    running.facts.not_granted = running.cell.not_granted();
    // Facts of the living: census and feeds are read before anything ends.
    running.write(Some(noise))?;
    finish(running, views, collecting, &stop_collector)
}

/// Ends everything in order: cameras, perception and SSM, views, collector; then sums up and seals. The noise has ended
/// with the window, so that the few frames still under way are answered sooner than under noise: that can only
/// make a policy look better that was late anyway.
fn finish(
    running: Running<'_>,
    views: Views,
    collecting: thread::Handle<Result<Collected, LabError>>,
    stop_collector: &AtomicBool,
) -> Result<CellSummary, LabError> {
    let Running { cell, dir, mut facts, mut problems, mut file, .. } = running;
    problems.extend(cell.stop(DRAIN_PATIENCE));
    views.stop();
    stop_collector.store(true, Ordering::Release);
    match collecting.join() {
        Ok(Ok(collected)) => facts.records_lost = collected.lost,
        Ok(Err(error)) => return Err(error),
        Err(error) => problems.push(format!("collector: {error}")),
    }
    file["facts"] = json(&facts, &dir)?;
    file["problems"] = problems.clone().into();
    file["finished_utc"] = utc_now().into();
    dir.write_json(RUN_FILE, &file)?;
    let mut summary = summarise(&dir)?;
    summary.reasons.extend(problems);
    dir.write_json(SUMMARY_FILE, &summary)?;
    dir.seal()?;
    Ok(summary)
}

fn json<T: Serialize>(value: &T, dir: &RunDir) -> Result<serde_json::Value, LabError> {
    serde_json::to_value(value).map_err(|error| {
        LabError::damaged(dir.path().join(RUN_FILE), error.to_string(), "values that JSON can hold")
    })
}

fn label(robot: &str, policy: PolicyMix, noise: u32) -> String {
    format!("{robot}-{}-noise{noise}", policy.name().replace('+', "-"))
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

/// Ends the noise and proves that it was running.
fn proof(noise: NoiseThreads) -> NoiseReport {
    let threads = noise.len();
    let work = noise.stop();
    NoiseReport {
        threads,
        threads_that_ran: work.iter().filter(|w| w.operations > 0).count(),
        operations: work.iter().map(|w| w.operations).sum(),
        cpu_s: work.iter().map(|w| w.cpu_ns as f64 / 1e9).sum(),
    }
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
