//! One run of the cell, from a configuration to a sealed run directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_perception_process::EventKind;
use takt_robot_cell::Cell;
use takt_robot_cell::cell::{StartOptions, ViewPorts};
use takt_rt::census::{CensusEntry, Role};
use takt_rt::exchange::{self, Reader};
use takt_rt::policy::Policy;
use takt_rt::thread;
use takt_rundir::{CpuShare, Measure, RunDir};
use takt_view::terminal::TerminalView;
use takt_view::{CameraSource, CellStatus, ThreadSummary, Urgency, ViewServer, ViewSources};

use super::collector::{Board, Collected, Collector};
use super::rows::{JOBS, REACTIONS, SSM_LATENESS, SSM_RESPONSE};
use super::summary::{RunFacts, summarise};
use super::worker_rows::{WorkerFactsShort, WorkerSummary};
use super::{CellFile, CellSummary};
use crate::LabError;
use crate::keeper::Window;
use crate::options::{RunOptions, View};
use crate::session::{self, Session};

/// Time between the start of the last thread, or of the noise, and the measured window: the first frames, the first
/// detections, and the noise threads' way onto the CPUs.
const SETTLE: Duration = Duration::from_millis(1000);

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
}

impl Running {
    /// Writes `run.json` anew. Asks /proc for every thread: not while noise threads run.
    fn write(&mut self) -> Result<(), LabError> {
        let Self { session, cell, facts, .. } = self;
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
        session
            .note("robot_link", &cell.link_events().iter().map(|e| format!("{e:?}")).collect::<Vec<_>>())?;
        session.note("protective_distance", &cell.protective_distance())?;
        session.note("dashboard_stops", &cell.dashboard_stops())?;
        session.note("mission", &cell.mission().map(|m| format!("{m:?}")))?;
        session.write()
    }
}

/// What reports read: reactions, joined from frames and jobs at the end of the run, and the SSM task's own times.
fn measures(file: &CellFile) -> Vec<Measure> {
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    let ssm = &file.tasks.ssm;
    vec![
        Measure::new(
            "reaction",
            "Reaction time, frame arrival to end of the SSM job",
            REACTIONS,
            "answered_ns",
        )
        .since("arrival_ns")
        .deadline_ns(ns(file.tasks.reaction_deadline_ms)),
        Measure::new(SSM_LATENESS, "Wake-up lateness of the SSM task", JOBS, "wake_ns")
            .since("planned_ns")
            .deadline_ns(ssm.deadline().as_nanos() as u64)
            .rate_hz(1e3 / ssm.period_ms),
        Measure::new(SSM_RESPONSE, "Response time of the SSM task", JOBS, "end_ns")
            .since("planned_ns")
            .deadline_ns(ssm.deadline().as_nanos() as u64)
            .rate_hz(1e3 / ssm.period_ms),
    ]
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
    let mut session = Session::create("cell", file.tasks.policy.name(), file, options)?;
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
    session.header.measures = measures(file);
    let facts = RunFacts {
        policy: file.tasks.policy.name().to_owned(),
        noise: options.interference.noise,
        cameras: file.cameras.len() as u32,
        deadline_ms: file.tasks.reaction_deadline_ms,
        ssm_deadline_ns: file.tasks.ssm.deadline().as_nanos() as u64,
        // Until the window is known, everything counts: a run that is killed early can still be summed up.
        window_ns: [0, u64::MAX],
        records_lost: 0,
        not_granted: cell.not_granted(),
        cpu: CpuShare::default(),
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
        deadline_ms: facts.deadline_ms,
        cameras: file.cameras.len(),
        threads: Arc::clone(&threads),
    };
    let window = Window::watched(options.watch.clone());
    let (dir, teller) = (session.dir().clone(), session.teller());
    let collector = Collector::new(&dir, records, board, &session.header.measures, &window, teller)?;
    let stop_collector = Arc::new(AtomicBool::new(false));
    let collecting = {
        let stop = Arc::clone(&stop_collector);
        thread::spawn_exempt("takt-collector", "keeps the samples", move || collector.run(&stop))
            .map_err(takt_robot_cell::CellError::from)?
    };
    let views = Views::start(file, options.view, cameras, shown)?;
    session.header.not_granted.clone_from(&facts.not_granted);
    let mut running = Running { session, cell, facts };
    running.write()?;
    observe(RunEvent::Started {
        dir: running.session.dir(),
        url: views.url(),
        engine: running.cell.engine(),
        not_granted: &running.facts.not_granted,
    });

    std::thread::sleep(SETTLE.saturating_sub(session::SETTLE));
    running.session.start_load(&options.interference)?;
    running.facts.window_ns = [running.session.begin_window()?, u64::MAX];
    window.open(running.facts.window_ns[0]);
    running.session.note("facts", &running.facts)?;
    running.session.write()?;
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
            running.session.header.problems.push(format!("ended before their time: {}", ended.join(", ")));
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
    running.facts.window_ns[1] = running.session.end_window();
    window.close(running.facts.window_ns[1]);
    running.facts.cpu = running.session.header.cpu;
    running.session.end_load()?;
    running.facts.not_granted = running.cell.not_granted();
    running.session.header.not_granted.clone_from(&running.facts.not_granted);
    let stops = running.cell.dashboard_stops();
    running.session.header.problems.extend(stops.iter().map(|stop| {
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
    session.header.problems.extend(cell.stop(DRAIN_PATIENCE));
    views.stop();
    stop_collector.store(true, Ordering::Release);
    match collecting.join() {
        Ok(Ok(collected)) => facts.records_lost = collected.lost,
        Ok(Err(error)) => return Err(error),
        Err(error) => session.header.problems.push(format!("collector: {error}")),
    }
    session.header.records_lost = facts.records_lost;
    session.note("facts", &facts)?;
    session.write()?;
    let (mut summary, reactions) = summarise(session.dir())?;
    summary.protective_distance = protective_distance;
    let mut file = session.dir().samples(REACTIONS)?;
    reactions.iter().try_for_each(|row| file.push(row))?;
    file.flush()?;
    let header = &mut session.header;
    if let Some(reaction) = header.measures.first_mut() {
        reaction.never = summary.unanswered_late.saturating_add(summary.dropped_late);
        reaction.rate_hz =
            (summary.seconds > 0.0).then(|| summary.reaction_ms.count as f64 / summary.seconds);
    }
    // A skipped release is a job that never was.
    header.measures.iter_mut().skip(1).for_each(|measure| measure.never = summary.ssm.skipped);
    header.figures.insert("frames_dropped".to_owned(), summary.frames_dropped as f64);
    header.figures.insert("stops".to_owned(), summary.stops as f64);
    if let Some(worker) = &summary.worker {
        header.figures.extend(worker_figures(worker));
    }
    summary.reasons.extend(header.problems.iter().cloned());
    Ok(session.seal_with(|_| Ok(summary))?.1)
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
