//! One run of the cell, from a configuration to a sealed run directory.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_lab::jobs::Task;
use takt_lab::keeper::Window;
use takt_lab::options::{RunOptions, Target, View};
use takt_lab::picture::{Device, Picture};
use takt_lab::robot::{
    Conclusion, Critical, End, Event, NoCriticalThread, Observe, Robot, RobotKind, Running, Scaled, Scaling,
};
use takt_lab::{Collecting, ConfigError, LabError, RobotFile, Session};
use takt_report::verdict::of_run;
use takt_rt::clock::monotonic_ns;
use takt_rt::config::SettingError;
use takt_rt::exchange::{self, Reader};
use takt_rt::jobs::JobRecord;
use takt_rundir::{CpuShare, Measure, RUN_FILE, RunDir};
use takt_trace::perfetto::Task as Track;

use super::collector::{Board, CellCollector, Collected, TROUBLES_FILE, Troubles};
use super::device::{DeviceTracks, with_cameras};
use super::header::{fill_header, measures, rules};
use super::report::Paper;
use super::rows::{FRAMES, JOBS};
use super::summary::{RunFacts, besides, summarise};
use super::tally::{TALLY_FILE, Tally};
use super::verdict::Found;
use super::views::{Views, count_threads};
use super::watch::Watch;
use super::worker_rows::WorkerFactsShort;
use super::{CellFile, CellSummary, scale};
use crate::Cell;
use crate::cell::{StartOptions, ViewPorts};
use crate::view::{CellStatus, ThreadSummary};

/// Time between the start of the last thread, or of the noise, and the measured window: the first
/// frames, the first detections, and the noise threads' way onto the CPUs.
const SETTLE: Duration = Duration::from_millis(1000);

/// Shortest window of a part of a run that goes on.
const SHORTEST: Duration = Duration::from_millis(200);

/// Time that perception may take for its last frames under full interference.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

/// Period at which a view's census is renewed.
const CENSUS_SHOWN_EVERY: Duration = Duration::from_secs(2);

/// Period at which the main thread checks the run.
const TICK: Duration = Duration::from_millis(50);

/// Thread of the monitor.
const SSM_THREAD: &str = "ssm";

/// The paper's matrix.
pub(super) const CAMPAIGN: &str = include_str!("../../../../campaigns/sentryrt1.toml");

/// The safety cell as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    campaigns: &[
        ("sentryrt1", CAMPAIGN),
        ("sentryrt1-gpu", include_str!("../../../../campaigns/sentryrt1-gpu.toml")),
        ("sentryrt1-kernels", include_str!("../../../../campaigns/sentryrt1-kernels.toml")),
    ],
    factors: &[
        ("policy", "tasks.policy"),
        ("timer_slack", "tasks.timer_slack_ns"),
        ("idle", "tasks.hold_cpu_awake"),
        ("lock_memory", "tasks.lock_memory"),
        ("reclaim", "tasks.reclaim"),
        ("visualisation", "tasks.visualisation"),
    ],
    has_views: true,
    tasks: &[&SSM_TASK, &PERCEPTION_TASK],
    questions: Some(super::questions::answers),
    report: Some(&Paper),
    scaled_text: Some(|scaled| scaled.get::<scale::Scaled>().map(|scaled| scaled.text())),
    ..RobotKind::new("cell", SHIPPED, |text, name, folder| {
        CellFile::parse(text, name, folder).map(RobotFile::of)
    })
};

/// The cell as it is demonstrated, as its paper has it, without recordings, and with cameras.
const SHIPPED: &[(&str, &str)] = &[
    ("cell", super::DEMO),
    ("demo", super::DEMO),
    ("sentryrt1", super::SENTRYRT1),
    ("synthetic", super::SYNTHETIC),
    ("live", super::LIVE),
];

/// The monitor, for the latency manager.
pub(super) static SSM_TASK: Task = Task {
    name: "ssm",
    thread: SSM_THREAD,
    file: JOBS,
    columns: ["planned_ns", "wake_ns", "end_ns"],
    number: None,
};

/// Perception, one task for each camera: released by a frame's arrival.
pub(super) static PERCEPTION_TASK: Task = Task {
    name: "perception-",
    thread: "perception-",
    file: FRAMES,
    columns: ["arrival_ns", "start_ns", "published_ns"],
    number: Some("camera"),
};

/// The configuration that a killed run settled on, if it was asked with `file`: what the machine
/// carries is measured once for a run.
fn settled_before(path: &Path, file: &CellFile) -> Result<CellFile, LabError> {
    let run: serde_json::Value = RunDir::open(path)?.read_json(RUN_FILE)?;
    let damaged =
        |found: String| LabError::damaged(path.join(RUN_FILE), found, "the configuration of a cell");
    let before: CellFile = serde_json::from_value(run.get("asked").cloned().unwrap_or_default())
        .map_err(|error| damaged(error.to_string()))?;
    if before.scale != file.scale || before.envelope.name != file.envelope.name {
        return Err(LabError::Config(format!(
            "--resume {}: it was started with another \"scale\" or \"name\"; resume it with the same configuration, or start a new run",
            path.display()
        )));
    }
    Ok(before)
}

/// Runs the cell and leaves a sealed run directory.
///
/// # Errors
/// [`LabError`]. Data measured until then stays in the run directory.
pub fn run(file: &CellFile, options: &RunOptions, observe: Observe<'_>) -> Result<CellSummary, LabError> {
    Session::run(file, options, observe)?.own().ok_or(LabError::Internal("the summary of a cell"))
}

impl Robot for CellFile {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate().map_err(ConfigError::robot)
    }

    fn inspect(&self) -> Result<Vec<String>, LabError> {
        super::inspect::inspect(self).map_err(LabError::robot)
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        self.tasks.policy.name().to_owned()
    }

    fn describe(&self) -> String {
        format!("{} cameras, {}", self.cameras.len(), self.tasks.policy)
    }

    fn expected_seconds(&self) -> Option<f64> {
        None
    }

    fn make_strict(&mut self) {
        self.tasks.strict = true;
    }

    fn set_policy(&mut self, policy: &str) -> Result<(), ConfigError> {
        self.tasks.policy = policy.parse().map_err(|error: SettingError| error.within_section("--"))?;
        Ok(self.tasks.validate()?)
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let columns = ["planned_ns", "wake_ns", "start_ns", "end_ns"];
        Ok(Critical { thread: SSM_THREAD, file: JOBS, columns })
    }

    fn scaling(&self) -> Scaling {
        match (&self.scaled, &self.scale) {
            (Some(scaled), _) => Scaling::Decided(Scaled::of(scaled)),
            (None, Some(_)) => Scaling::Open,
            (None, None) => Scaling::Fixed,
        }
    }

    fn settle(&mut self) -> Result<(), LabError> {
        scale::settle(self)
    }

    fn settled(&self, options: &RunOptions, observe: Observe<'_>) -> Result<Option<RobotFile>, LabError> {
        if self.scale.is_none() || self.scaled.is_some() {
            return Ok(None);
        }
        // A run that goes on was settled when it began.
        let mut settled = match &options.target {
            Target::Resume(path) => settled_before(path, self)?,
            _ => self.clone(),
        };
        // A bench or campaign has decided for all of its runs; a run alone decides for itself.
        if settled.scaled.is_none() {
            observe(Event::Preparing { what: "measuring the cost of a frame on this machine" });
            scale::settle(&mut settled)?;
        }
        Ok(Some(RobotFile::of(settled)))
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        Ok(Box::new(Working::start(self, session, options, observe)?))
    }

    /// The cameras, and the perception process, beside the monitor.
    fn picture(&self, dir: &RunDir, own: Track, jobs: &[JobRecord]) -> Result<Picture, LabError> {
        let names: Vec<String> = self.cameras.iter().map(|camera| camera.name.clone()).collect();
        let device = DeviceTracks::read(dir, &names)?.map(|tracks| Box::new(tracks) as Box<dyn Device>);
        Ok(Picture::of(with_cameras(dir, own, jobs.to_vec(), &names)?, device))
    }
}

/// A cell at work.
struct Working {
    cell: Cell,
    facts: RunFacts,
    watch: Watch,
    names: Vec<String>,
    window: Window,
    length: Option<Duration>,
    /// Length of this part of the run.
    part_ns: Option<u64>,
    view: View,
    views: Views,
    status: Reader<CellStatus>,
    /// Threads shown by a view, and the time of their count.
    threads: Arc<Mutex<ThreadSummary>>,
    counted: Option<Instant>,
    troubles: Troubles,
    troubles_before: Vec<String>,
    collecting: Collecting<Collected>,
    /// It broke.
    ended: bool,
}

impl Working {
    fn start(
        file: &CellFile,
        session: &mut Session,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Self, LabError> {
        file.check_camera_mode()?;
        session.header.scaled = file.scaled.as_ref().map(scale::Scaled::text);
        if let Some(scaled) = &session.header.scaled {
            observe(Event::Preparing { what: scaled });
        }
        let mut cell = Cell::start(
            &file.cell(),
            StartOptions {
                masks: options.view == View::Web,
                worker: None,
                progress: Some(&mut |what| observe(Event::Preparing { what })),
                stop: Some(&options.stop),
            },
        )?;
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
            visualised: (cell.visualised().1 > 0).then_some(0),
            worker: cell.worker().as_ref().map(WorkerFactsShort::from),
        };
        let records = cell.take_records().ok_or(LabError::Internal("records"))?;
        let ports = cell.take_view().ok_or(LabError::Internal("view ports"))?;
        let (writer, status_readers) = exchange::latest(2, CellStatus::default);
        let mut status_readers = status_readers.into_iter();
        let status = status_readers.next().ok_or(LabError::Internal("status reader"))?;
        let shown = status_readers.next().ok_or(LabError::Internal("status reader"))?;
        let threads = Arc::new(Mutex::new(ThreadSummary::default()));
        let ViewPorts { cameras, robot } = ports;
        let board = Board {
            status: writer,
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
        let (dir, reporter) = (session.dir().clone(), session.reporter());
        let collector =
            CellCollector::new(&dir, records, board, rules(file), &mut session.header.measures, &window)?
                .going_on(before, &troubles)
                .reporting(reporter);
        let collecting = Collecting::start("takt-collector", "keeps the samples", |end| collector.run(end))?;
        let views = Views::start(file, options.view, cameras, shown)?;
        session.header.not_granted.clone_from(&facts.not_granted);
        // Earlier measurements count; a part is never empty, so that it has a window.
        let part_ns = options.seconds.map(|seconds| {
            let left_ns = ((seconds * 1e9).ceil() as u64).saturating_sub(facts.before_ns);
            left_ns.max(SHORTEST.as_nanos() as u64)
        });
        Ok(Self {
            cell,
            facts,
            watch: Watch::new(file.cameras.len()),
            names: file.cameras.iter().map(|camera| camera.name.clone()).collect(),
            window,
            length: options.seconds.map(Duration::from_secs_f64),
            part_ns,
            view: options.view,
            views,
            status,
            threads,
            counted: None,
            troubles,
            troubles_before,
            collecting,
            ended: false,
        })
    }

    /// Fails and ends the run, whatever was measured.
    fn fail(&mut self, why: String) {
        self.facts.failures.push(why);
        self.ended = true;
    }
}

impl Running for Working {
    fn window(&self) -> &Window {
        &self.window
    }

    /// Asks /proc for every thread: not while noise threads run.
    fn note(&mut self, session: &mut Session) -> Result<(), LabError> {
        let Self { cell, facts, watch, .. } = self;
        watch.turn(cell);
        session.note("facts", &facts)?;
        session.note("engine", &cell.engine())?;
        if let Some(worker) = cell.worker() {
            session.note("perception_process", &worker)?;
        }
        session.note("spin_margin", &cell.spin_margin())?;
        cell.fill_group();
        session.note("threads", &cell.threads())?;
        if let Some(placed) = cell.placed() {
            session.note("placed", placed)?;
        }
        if let Some(group) = cell.grouped() {
            session.note("group", &group)?;
        }
        match cell.census() {
            Ok(census) => session.note("census", &census)?,
            // Without descriptors nobody is counted; what was measured is judged all the same.
            Err(error) => session.header.problems.push(format!("the threads could not be counted: {error}")),
        }
        session
            .note("feeds", &cell.feeds().iter().map(|f| format!("{:?}", f.status())).collect::<Vec<_>>())?;
        session.note("robot_link", &watch.events)?;
        session.note("protective_distance", &cell.protective_distance())?;
        session.note("dashboard_stops", &cell.dashboard_stops())?;
        session.note("mission", &cell.mission().map(|m| format!("{m:?}")))
    }

    fn notes(&self) -> Vec<String> {
        let placed = self.cell.placed().map(|placed| placed.description.clone());
        let group = self.cell.grouped().map(|group| {
            let (runtime_us, period_us) = (group.runtime_us, group.period_us);
            format!(
                "one reservation for {} threads: {runtime_us} of {period_us} us of each CPU",
                group.threads.len()
            )
        });
        let inference = format!("Inference: {}", self.cell.engine());
        std::iter::once(inference).chain(placed).chain(group).collect()
    }

    fn url(&self) -> Option<String> {
        self.views.url()
    }

    fn settle(&mut self) {
        std::thread::sleep(SETTLE.saturating_sub(takt_lab::SETTLE));
    }

    /// The window closes by itself where the length of the run is known.
    fn open(&mut self, from_ns: u64) {
        let to_ns = self.part_ns.map_or(u64::MAX, |part_ns| from_ns.saturating_add(part_ns));
        self.window.close(to_ns);
        self.window.open(from_ns);
        self.facts.window_ns = [from_ns, to_ns];
    }

    fn begun(&mut self, session: &mut Session, _from_ns: u64) -> Result<(), LabError> {
        self.facts.detector_runs = self.cell.detector_runs();
        self.facts.visualised = self.facts.visualised.map(|_| self.cell.visualised().0);
        session.window(self.facts.window_ns);
        session.note("facts", &self.facts)?;
        session.write()?;
        self.watch.begin();
        Ok(())
    }

    fn pace(&self) -> Duration {
        TICK
    }

    fn tick(&mut self, _session: &mut Session, _open: bool) -> Result<(), LabError> {
        self.watch.punctual_turn(&self.cell);
        self.watch.report_cameras(&self.cell, &self.names);
        let so_far = self.watch.so_far(&self.cell, &self.names, self.facts.losses.max_link_losses);
        *self.troubles.lock().unwrap_or_else(PoisonError::into_inner) =
            self.troubles_before.iter().cloned().chain(so_far).collect();
        let ended = self.cell.ended_threads();
        if !ended.is_empty() {
            self.fail(format!("ended before their time: {}", ended.join(", ")));
        } else if self.collecting.is_finished() {
            // A run that nobody records any more proves nothing: why is in the collector's result.
            self.fail("the collector of the samples ended before its time".to_owned());
        } else if self.view != View::None && self.counted.is_none_or(|at| at.elapsed() >= CENSUS_SHOWN_EVERY)
        {
            // Counting reads /proc: for views only, and seldom. If they cannot be counted now, the
            // previous count stays.
            if let Ok(counted) = count_threads(&self.cell) {
                *self.threads.lock().unwrap_or_else(PoisonError::into_inner) = counted;
            }
            self.counted = Some(Instant::now());
        }
        Ok(())
    }

    fn line(&mut self) -> String {
        let status = self.status.read().value;
        let reaction = &status.reaction;
        let light = status.light;
        format!("{light:?}, reaction mean {:.1} ms, worst {:.1} ms", reaction.mean_ms, reaction.worst_ms)
    }

    fn length(&self) -> Option<Duration> {
        self.length
    }

    fn is_over(&mut self, _elapsed: Duration) -> bool {
        self.ended || self.views.user_quit() || monotonic_ns() >= self.facts.window_ns[1]
    }

    fn close(&mut self, to_ns: u64) {
        let [from_ns, end_ns] = self.facts.window_ns;
        self.facts.window_ns = [from_ns, end_ns.min(to_ns)];
        self.window.close(end_ns.min(to_ns));
    }

    fn closed(&mut self, session: &mut Session) -> Result<(), LabError> {
        session.window(self.facts.window_ns);
        self.facts.cpu = session.header.cpu;
        self.facts.detector_runs = self.cell.detector_runs().saturating_sub(self.facts.detector_runs);
        let drawn = self.cell.visualised().0;
        self.facts.visualised = self.facts.visualised.map(|before| drawn.saturating_sub(before));
        Ok(())
    }

    /// Ends everything in order: cameras, perception and SSM, views, collector. The noise has ended
    /// with the window, so that the few frames still under way are answered sooner than under
    /// noise: that can only make a policy look better that was late anyway.
    fn stop(mut self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        self.facts.not_granted = self.cell.not_granted();
        session.header.not_granted.clone_from(&self.facts.not_granted);
        // Until here problems are those of the interference and of whoever is informed of jobs.
        self.facts.doubts = std::mem::take(&mut session.header.problems);
        let Self { watch, cell, facts, names, .. } = &mut *self;
        facts.failures.extend(watch.troubles(cell, names, facts.losses.max_link_losses));
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
        self.note(session)?;
        session.write()?;
        let Self { cell, mut facts, views, collecting, .. } = *self;
        let protective_distance = cell.protective_distance();
        facts.failures.extend(cell.stop(DRAIN_PATIENCE));
        views.stop();
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
        fill_header(&mut session.header, &summary, &facts);
        // The header says all now that the verdict needs; the sentence is that of reports.
        Ok(Conclusion::own(move |dir| {
            summary.set_verdict(of_run(dir)?.report);
            Ok(summary)
        }))
    }
}
