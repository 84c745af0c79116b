//! Starts the cell's threads, connects them, and ends them in an order that loses nothing.

mod judging;
mod place;
mod prepare;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use takt_host::reserve::rt_group::RtGroup;
use takt_link_camera::{Acquisition, CameraFeed, Frame, StartGate};
use takt_link_rtde::RobotState;
use takt_link_rtde::arm::registers as reg;
use takt_link_rtde::arm::{MissionProgress, MissionThread};
use takt_link_rtde::client::{Link, LinkEvent, Opened, StateHistory};
use takt_link_rtde::kinematics::Arm;
use takt_link_rtde::sim::{SimConfig, Simulator};
use takt_perception::process::{Program, Record, Supervisor, WorkerFacts};
use takt_perception::{Detections, DetectorService, FrameWatch, Overlay};
use takt_rt::census::{CensusKeeper, CensusReport};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{self, Reader};
use takt_rt::latency::DmaLatency;
use takt_rt::periodic::{Calibration, Margin, Periodic, SleepStrategy, calibrate_margin};
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{self, ThreadReport};

use crate::arm::ArmShape;
use crate::config::CellConfig;
use crate::error::{CellConfigError, CellError};
use crate::guard::{Alarm, DashboardStop, DashboardStopper, SsmFacts};
use crate::records::{FrameRecord, SsmJob};
use crate::ssm::{Monitor, ProtectiveTerm, ReactionTime, terms};
use crate::tasks::{Role, SsmSleep};
use crate::threads::{
    Judging, PerceptionPorts, PerceptionTask, SsmPorts, SsmTask, VisualisationPorts, VisualisationTask,
};
use judging::{Prepared, prepare_judging};
pub use place::{Grouped, Placed};
use prepare::{open_feeds, prepare_machine, prepare_shape, settings, simulate};

/// Records that a starving collector may fall behind: a minute of SSM jobs at 500 Hz and more.
const RING_CAPACITY: usize = 1 << 16;

/// Time that the program on the robot may take to prove its watchdog: several challenges, half a
/// second each.
const PROOF_PATIENCE: Duration = Duration::from_secs(5);

/// Period of the search for new threads of libraries.
const CENSUS_PERIOD: Duration = Duration::from_millis(500);

/// Time that a cell that is dropped, not stopped, waits for its SSM task to command the stop.
const LAST_STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Time between the last thread's start and the first frame.
const START_DELAY_NS: u64 = 200_000_000;

/// Records left by the cell's threads.
#[derive(Debug)]
pub struct Records {
    pub jobs: Consumer<SsmJob>,
    /// Every judged frame, a ring per camera.
    pub frames: Vec<Consumer<FrameRecord>>,
    /// Answers and events of the perception process; empty without one.
    pub worker: Vec<Consumer<Record>>,
}

/// Options for starting a cell.
#[derive(Default)]
pub struct StartOptions<'a> {
    /// Whether perception draws masks for a view: a little more work per frame.
    pub masks: bool,
    /// The program of the perception process; without, this very program with its hidden
    /// subcommand.
    pub worker: Option<Program>,
    /// Is called with what takes long before the first frame.
    pub progress: Option<&'a mut dyn FnMut(&str)>,
    /// Ends the start: networks and devices may take minutes until they are ready. Set later, it
    /// makes the next SSM job command the robot to stop, and all after it.
    pub stop: Option<&'a Arc<AtomicBool>>,
}

/// The stop of those who have none.
static NO_STOP: AtomicBool = AtomicBool::new(false);

/// Ends the start where that is asked for.
fn unless_stopped(stop: &AtomicBool) -> Result<(), CellError> {
    if stop.load(Ordering::Acquire) { Err(CellError::Stopped) } else { Ok(()) }
}

/// Data of one camera for a view.
#[derive(Debug)]
pub struct CameraPorts {
    pub frames: Reader<Frame>,
    /// Results.
    pub detections: Reader<Detections>,
    /// Masks; absent when the cell was started without.
    pub overlays: Option<Reader<Overlay>>,
}

/// Data for a view and a collector. Reading never delays a writer.
#[derive(Debug)]
pub struct ViewPorts {
    pub cameras: Vec<CameraPorts>,
    pub robot: Reader<RobotState>,
}

/// A running cell.
pub struct Cell {
    config: CellConfig,
    feeds: Vec<CameraFeed>,
    detector: Option<DetectorService>,
    detector_thread: Option<thread::Handle>,
    supervisor: Option<Supervisor>,
    threads: Vec<thread::Handle>,
    perception_count: usize,
    /// The paper's visualisation tasks, and how many frames they have drawn.
    visualisation: Vec<thread::Handle>,
    drawn: Arc<AtomicU64>,
    stop_visualisation: Arc<AtomicBool>,
    placed: Option<Placed>,
    group: Option<RtGroup>,
    reports: Vec<ThreadReport>,
    warnings: Vec<String>,
    census: Option<CensusKeeper>,
    link: Link,
    mission: Option<MissionThread>,
    simulator: Option<Simulator>,
    stop_perception: Arc<AtomicBool>,
    stop_ssm: Arc<AtomicBool>,
    /// From here on the SSM task commands nothing but the stop.
    ending: Arc<AtomicBool>,
    disobeyed: Arc<AtomicBool>,
    facts: Arc<SsmFacts>,
    without_watchdog: Arc<AtomicBool>,
    dashboard: Option<DashboardStopper>,
    spin_margin: Arc<OnceLock<Margin>>,
    records: Option<Records>,
    ports: Option<ViewPorts>,
    engine: String,
    arm: Option<Arc<ArmShape>>,
    _awake: Option<DmaLatency>,
}

impl Drop for Cell {
    fn drop(&mut self) {
        // Unless `stop` has come before: an error or a panic of the thread that owns the cell. The
        // process may end next, so the task that commands the robot is waited for.
        self.ending.store(true, Ordering::Release);
        self.stop_perception.store(true, Ordering::Release);
        self.stop_visualisation.store(true, Ordering::Release);
        self.stop_ssm.store(true, Ordering::Release);
        let until = Instant::now() + LAST_STOP_PATIENCE;
        while self.threads.iter().any(|t| t.name() == SSM && !t.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Name of the SSM task's thread.
const SSM: &str = "ssm";

impl Cell {
    /// Starts everything.
    ///
    /// # Errors
    /// [`CellError`]; whatever was started is ended again. [`CellError::Stopped`] once
    /// [`StartOptions::stop`] is set.
    pub fn start(config: &CellConfig, options: StartOptions<'_>) -> Result<Self, CellError> {
        let masks = options.masks;
        let asked_to_stop = options.stop.cloned();
        let stop = options.stop.map_or(&NO_STOP, |stop| &**stop);
        config.validate()?;
        let mut warnings = Vec::new();
        let awake = prepare_machine(config, &mut warnings)?;
        let group = Self::make_group(&config.tasks, &mut warnings)?;
        let mut rtde = config.robot.rtde.clone();
        let mut dashboard_port = config.robot.dashboard_port;
        let simulated = config.robot.simulator.as_ref();
        let simulator = simulated.map(|sim| simulate(sim, &mut rtde, &mut dashboard_port)).transpose()?;
        let census = CensusKeeper::start(config.tasks.policy_of(Role::Subthread), CENSUS_PERIOD)?;
        // One history for each perception task, two for each scene that is rendered: its camera's
        // place, the arm in it.
        let histories = 3 * config.cameras.len();
        let Opened { link, commander, states, histories } =
            census.attribute("robot link", || Link::open(&rtde, 2, histories))?;
        let (mut states, mut histories) = (states.into_iter(), histories.into_iter());

        unless_stopped(stop)?;
        let arm = prepare_shape(config, &rtde, simulator.as_ref(), &mut warnings)?;
        unless_stopped(stop)?;
        let gate = StartGate::new();
        let (feeds, acquisitions, frame_readers) =
            census.attribute("cameras", || open_feeds(config, &gate, &mut histories))?;
        let Prepared { judging, detector, detector_thread, supervisor, worker_records, engine, note } =
            prepare_judging(config, &feeds, &census, options)?;
        unless_stopped(stop)?;
        warnings.extend(note);
        warnings.extend(unproved(config));

        let mut cell = Self {
            config: config.clone(),
            feeds,
            detector,
            detector_thread: None,
            supervisor,
            threads: Vec::new(),
            perception_count: 0,
            visualisation: Vec::new(),
            drawn: Arc::default(),
            stop_visualisation: Arc::default(),
            placed: None,
            group,
            reports: Vec::new(),
            warnings,
            census: Some(census),
            link,
            mission: None,
            simulator,
            stop_perception: Arc::default(),
            stop_ssm: Arc::default(),
            ending: Arc::default(),
            disobeyed: Arc::default(),
            facts: Arc::default(),
            without_watchdog: Arc::default(),
            dashboard: None,
            spin_margin: Arc::default(),
            records: None,
            ports: None,
            engine,
            arm,
            _awake: awake,
        };
        if let Some(handle) = detector_thread {
            cell.reports.push(handle.report());
            cell.detector_thread = Some(handle);
        }
        let ssm_robot = states.next().ok_or(CellError::NoReader("robot state"))?;
        let view_robot = states.next().ok_or(CellError::NoReader("robot state"))?;
        let wired = cell.start_perception(judging, acquisitions, frame_readers, &mut histories, masks)?;
        let (jobs_in, jobs) = ring(RING_CAPACITY);
        let (alarm, alarms) = Alarm::new();
        if dashboard_port != 0 {
            cell.dashboard = Some(DashboardStopper::start(rtde.host.clone(), dashboard_port, alarms)?);
        }
        let ports = SsmPorts {
            detections: wired.detections,
            alive: wired.alive,
            robot: ssm_robot,
            commander,
            records: jobs_in,
            ending: asked_to_stop.into_iter().chain([Arc::clone(&cell.ending)]).collect(),
            facts: Arc::clone(&cell.facts),
            alarm,
            without_watchdog: Arc::clone(&cell.without_watchdog),
        };
        cell.start_ssm(ports)?;
        cell.place_reservations()?;
        cell.fill_group();
        cell.records = Some(Records { jobs, frames: wired.frames, worker: worker_records });
        cell.ports = Some(ViewPorts { cameras: wired.views, robot: view_robot });
        if let Some(mission) = &config.robot.mission {
            cell.mission = Some(MissionThread::start(mission.clone(), rtde)?);
        }
        cell.prove_watchdog(stop)?;
        gate.open(monotonic_ns() + START_DELAY_NS);
        Ok(cell)
    }

    fn start_perception(
        &mut self,
        judging: Vec<Judging>,
        acquisitions: Vec<Option<Acquisition>>,
        frame_readers: Vec<Vec<Reader<Frame>>>,
        histories: &mut impl Iterator<Item = Reader<StateHistory>>,
        masks: bool,
    ) -> Result<Wired, CellError> {
        let mut wired = Wired::default();
        let mut settings = settings(&self.config, Role::Perception);
        if self.supervisor.is_some() {
            settings.policy = self.config.tasks.shared_perception_policy();
        }
        let cameras = self.config.cameras.clone();
        let cameras_in = judging.into_iter().zip(acquisitions).zip(frame_readers);
        for (index, ((judging, acquisition), readers)) in cameras_in.enumerate() {
            let mut readers = readers.into_iter();
            let mut frames = || readers.next().ok_or(CellError::NoReader("frames"));
            let visualised = self.config.tasks.visualisation;
            let (detections, results) = exchange::latest(2 + usize::from(visualised), Detections::default);
            let mut results = results.into_iter();
            let mut result = || results.next().ok_or(CellError::NoReader("detections"));
            let intrinsics = self.feeds[index].intrinsics();
            // In the paper the masks are what perception gives, and what is drawn.
            let (overlays, mut overlay_readers) = if masks || visualised {
                let new = || Overlay::new(intrinsics.width, intrinsics.height);
                let (writer, readers) = exchange::latest(2, new);
                (Some(writer), readers.into_iter())
            } else {
                (None, Vec::new().into_iter())
            };
            let (records_in, records) = ring(RING_CAPACITY);
            let alive = Arc::new(AtomicBool::new(true));
            let ports = PerceptionPorts {
                acquisition,
                frames: frames()?,
                signal: self.feeds[index].signal(),
                robot: histories.next().ok_or(CellError::NoReader("robot history"))?,
                detections,
                overlays,
                records: records_in,
                alive: Arc::clone(&alive),
                stop: Arc::clone(&self.stop_perception),
            };
            let watch = FrameWatch::new(&self.config.perception.health);
            let task = PerceptionTask::new(judging, cameras[index].mount, self.arm.clone(), watch, ports);
            let begun_with = place::before_placing(&settings);
            let handle = thread::spawn(&format!("perception-{index}"), &begun_with, move || task.run())?;
            self.keep(handle, settings.clone());
            self.perception_count += 1;
            let overlay_reader = overlay_readers.next().filter(|_| masks);
            if visualised {
                let ports = VisualisationPorts {
                    frames: frames()?,
                    signal: self.feeds[index].signal(),
                    detections: result()?,
                    overlays: overlay_readers.next(),
                    drawn: Arc::clone(&self.drawn),
                    stop: Arc::clone(&self.stop_visualisation),
                };
                self.visualisation.push(self.start_visualisation(index, ports)?);
            }
            wired.detections.push(result()?);
            wired.alive.push(alive);
            wired.frames.push(records);
            wired.views.push(CameraPorts {
                frames: frames()?,
                detections: result()?,
                overlays: overlay_reader,
            });
        }
        Ok(wired)
    }

    /// The arm by its kinematics, where it is known which one it is.
    fn known_arm(&self) -> Option<Arm> {
        let shape = self.arm.as_ref().map(|arm| *arm.body().arm());
        shape.or_else(|| self.config.robot.simulator.as_ref().map(SimConfig::arm))
    }

    fn start_ssm(&mut self, ports: SsmPorts) -> Result<(), CellError> {
        let config = &self.config;
        let monitor = Monitor::new(config.ssm.clone(), config.cameras.len())
            .map_err(CellConfigError::from)?
            .with_reaction(ReactionTime::of(&config.ssm, &config.tasks))
            .with_arm(self.known_arm());
        let mut task = SsmTask::new(monitor, ports, config.robot.light);
        let (sleep, period) = (config.tasks.ssm_sleep, config.tasks.ssm.period());
        let margin = Duration::from_secs_f64(config.tasks.spin_margin_us / 1e6);
        let calibrated = Arc::clone(&self.spin_margin);
        // Refused here, not in the thread: a period that the loop cannot have.
        Periodic::start_now(period, SleepStrategy::Kernel)?;
        let stop = Arc::clone(&self.stop_ssm);
        let disobeyed = Arc::clone(&self.disobeyed);
        let jobs_to_stand = jobs_to_stand(config);
        let asked = settings(config, Role::Ssm);
        let handle = thread::spawn(SSM, &place::before_placing(&asked), move || {
            let sleep = match sleep {
                SsmSleep::Kernel => SleepStrategy::Kernel,
                SsmSleep::Spin => SleepStrategy::Spin { margin },
                SsmSleep::SpinCalibrated => {
                    let found = *calibrated.get_or_init(|| calibrate_margin(&Calibration::default()));
                    SleepStrategy::Spin { margin: found.margin }
                }
            };
            let Ok(mut periodic) = Periodic::start_now(period, sleep) else { return };
            while !stop.load(Ordering::Acquire) {
                let release = periodic.next();
                task.job(&release);
            }
            // `ending` is set by now: these jobs command the stop.
            for _ in 0..jobs_to_stand {
                if task.stands_commanded() {
                    return;
                }
                task.job(&periodic.next());
            }
            disobeyed.store(true, Ordering::Release);
        })?;
        self.keep(handle, asked);
        Ok(())
    }

    /// τ_v_i: the paper's user interface of one camera, as load.
    fn start_visualisation(
        &self,
        index: usize,
        ports: VisualisationPorts,
    ) -> Result<thread::Handle, CellError> {
        let ssm = &self.config.ssm;
        let task = VisualisationTask::new(ports, ssm.stop_below_m, ssm.reduce_below_m);
        let why = "visualisation, best effort in every scheduler configuration";
        Ok(thread::spawn_exempt(&format!("visualise-{index}"), why, move || task.run())?)
    }

    /// Waits for the program on the robot to prove its watchdog. Strict runs do not start without;
    /// others go on, and say so.
    fn prove_watchdog(&mut self, stop: &AtomicBool) -> Result<(), CellError> {
        if !self.config.ssm.require_watchdog {
            self.warnings.push(
                "robot: ssm.require_watchdog = false: it is not proved that the robot stops when this computer fails"
                    .to_owned(),
            );
            return Ok(());
        }
        let until = Instant::now() + PROOF_PATIENCE;
        while !self.facts.watchdog_proved() && Instant::now() < until {
            unless_stopped(stop)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.facts.watchdog_proved() {
            return Ok(());
        }
        if self.config.tasks.strict {
            let found = self.ports.as_mut().map_or_else(String::new, |ports| {
                let robot = ports.robot.read().value;
                format!(
                    "program running: {}, output_int_register_{} = {}, expected {}",
                    robot.program_running,
                    reg::GUARD,
                    robot.script_guard,
                    reg::GUARD_ARMED
                )
            });
            return Err(CellError::NoWatchdog { waited_s: PROOF_PATIENCE.as_secs(), found });
        }
        self.without_watchdog.store(true, Ordering::Release);
        Ok(())
    }

    /// Missing part of the watchdog's proof, if any.
    fn watchdog_missing(&self) -> Option<String> {
        if !self.config.ssm.require_watchdog {
            return None;
        }
        let proved = self.facts.watchdog_proved();
        (!proved || self.facts.moved_without_proof()).then(|| {
            let answered = if proved {
                "answered Takt's watchdog only after the robot was allowed to move"
            } else {
                "never answered Takt's watchdog"
            };
            format!(
                "robot: the robot's program {answered}, so it does not stop when this computer fails: include \
                 takt_watchdog.script in it"
            )
        })
    }

    /// Keeps a thread that was started for settings that it may get from outside later.
    fn keep(&mut self, handle: thread::Handle, asked: ThreadSettings) {
        let mut report = handle.report();
        report.granted.requested = asked;
        self.reports.push(report);
        self.threads.push(handle);
    }

    /// The record rings; `None` when they were taken already.
    pub fn take_records(&mut self) -> Option<Records> {
        self.records.take()
    }

    /// Data for views; `None` if already taken.
    pub fn take_view(&mut self) -> Option<ViewPorts> {
        self.ports.take()
    }

    /// The critical threads and what the kernel granted them.
    pub fn threads(&self) -> &[ThreadReport] {
        &self.reports
    }

    /// Everything that was asked and not granted, a sentence each; empty for a run whose figures
    /// stand for what was asked.
    pub fn not_granted(&self) -> Vec<String> {
        let refused = self.reports.iter().flat_map(|report| {
            report.granted.differences.iter().map(move |difference| format!("{}: {difference}", report.name))
        });
        let census = self.census.as_ref().map(CensusKeeper::report);
        let threads = census.and_then(Result::ok).map_or_else(Vec::new, |report| report.threads);
        let fallback = threads.iter().filter(|thread| !thread.ended).filter_map(|thread| {
            thread.error.as_ref().map(|error| format!("{}: fallback policy: {error}", thread.name))
        });
        let worker = self.worker().map_or_else(Vec::new, |facts| judging::not_granted(&facts));
        self.warnings
            .iter()
            .cloned()
            .chain(self.watchdog_missing())
            .chain(refused)
            .chain(fallback)
            .chain(worker)
            .collect()
    }

    /// All threads of the process, with the policy that each has.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn census(&self) -> Result<Option<CensusReport>, CellError> {
        Ok(self.census.as_ref().map(CensusKeeper::report).transpose()?)
    }

    /// The spinning sleep's margin, once it has been calibrated.
    pub(crate) fn spin_margin(&self) -> Option<Margin> {
        self.spin_margin.get().copied()
    }

    /// The perception process, where there is one.
    pub fn worker(&self) -> Option<WorkerFacts> {
        self.supervisor.as_ref().map(Supervisor::facts)
    }

    /// The protective separation distance at full speed, each term with its source and this run's
    /// value so far.
    pub fn protective_distance(&self) -> Vec<ProtectiveTerm> {
        let facts = &self.facts;
        terms(&self.config.ssm, &self.config.tasks, facts.delays(), facts.capture_to_command_ns())
    }

    /// The SSM job's knowledge of the robot's link and program.
    pub fn robot_facts(&self) -> Arc<SsmFacts> {
        Arc::clone(&self.facts)
    }

    /// When the dashboard's stop was tried because the robot did not obey, and what came of it.
    pub fn dashboard_stops(&self) -> Vec<DashboardStop> {
        self.dashboard.as_ref().map_or_else(Vec::new, DashboardStopper::results)
    }

    /// The running inference engine, and the reason.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Inferences of the shared detector so far.
    pub fn detector_runs(&self) -> u64 {
        self.detector.as_ref().map_or(0, DetectorService::runs)
    }

    /// Frames that the visualisation tasks have drawn so far, and how many tasks there are.
    pub fn visualised(&self) -> (u64, usize) {
        (self.drawn.load(Ordering::Relaxed), self.visualisation.len())
    }

    /// The camera drivers.
    pub fn feeds(&self) -> &[CameraFeed] {
        &self.feeds
    }

    /// The camera drivers, to end one of them.
    pub fn feeds_mut(&mut self) -> &mut [CameraFeed] {
        &mut self.feeds
    }

    /// Progress of the arm's mission.
    pub fn mission(&self) -> Option<MissionProgress> {
        self.mission.as_ref().map(MissionThread::progress)
    }

    /// Rare events of the robot link.
    pub fn link_events(&self) -> Vec<LinkEvent> {
        self.link.events()
    }

    /// The simulated controller, where there is one: tests and demonstrations plant faults through
    /// it.
    pub fn simulator(&self) -> Option<&Simulator> {
        self.simulator.as_ref()
    }

    /// Names of critical threads that have ended. Empty while all is well.
    pub fn ended_threads(&self) -> Vec<String> {
        let all = self.threads.iter().chain(&self.detector_thread);
        all.filter(|t| t.is_finished()).map(|t| t.name().to_owned()).collect()
    }

    /// Stops the robot, ends the cameras, lets perception finish what has arrived and SSM answer
    /// it, and ends every thread. Returns what went wrong on the way, a sentence each.
    pub fn stop(mut self, patience: Duration) -> Vec<String> {
        let mut problems = Vec::new();
        self.ending.store(true, Ordering::Release);
        self.feeds.iter_mut().for_each(CameraFeed::stop);
        self.stop_perception.store(true, Ordering::Release);
        self.stop_visualisation.store(true, Ordering::Release);
        let until = Instant::now() + patience;
        let perceptions = &self.threads[..self.perception_count];
        while perceptions.iter().any(|t| !t.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A few periods more: the first job that processes the last frame, and its acknowledgement.
        std::thread::sleep(self.config.tasks.ssm.period() * 10);
        self.stop_ssm.store(true, Ordering::Release);
        for handle in self.visualisation.drain(..) {
            if let Err(error) = handle.join() {
                problems.push(error.to_string());
            }
        }
        // Nobody asks it any more.
        self.supervisor = None;
        // The inference library must not be in use when the process ends.
        self.detector = None;
        self.threads.extend(self.detector_thread.take());
        for handle in self.threads.drain(..) {
            let name = handle.name().to_owned();
            if !handle.is_finished() && Instant::now() >= until && name != SSM {
                problems
                    .push(format!("{name} did not end within {patience:?}; its last frame is not recorded"));
                continue;
            }
            if let Err(error) = handle.join() {
                problems.push(format!("{name}: {error}"));
            }
        }
        if self.disobeyed.load(Ordering::Acquire) {
            problems.push(format!(
                "the robot did not obey the last stop within {:?}: its target speed stayed above 0",
                self.config.tasks.ssm.period() * jobs_to_stand(&self.config)
            ));
        }
        problems
    }
}

/// Jobs after the wish to end within which the robot must show the stop: the time in which any
/// command must show, the controller's ramp included.
fn jobs_to_stand(config: &CellConfig) -> u32 {
    let period_ms = config.tasks.ssm.period_ms.max(0.1);
    (config.ssm.obey_within_ms() / period_ms).ceil().clamp(1.0, 100_000.0) as u32
}

/// Result of `start_perception`.
#[derive(Default)]
struct Wired {
    detections: Vec<Reader<Detections>>,
    alive: Vec<Arc<AtomicBool>>,
    frames: Vec<Consumer<FrameRecord>>,
    views: Vec<CameraPorts>,
}

/// Networks that run although they have not been proved to find people.
fn unproved(config: &CellConfig) -> impl Iterator<Item = String> {
    let perception = &config.perception;
    let networks = [
        ("detector", perception.detector.enabled && perception.detector.accept_unproved),
        ("segmenter", perception.segmenter.enabled && perception.segmenter.accept_unproved),
    ];
    networks.into_iter().filter(|(_, accepted)| *accepted).map(|(name, _)| {
        format!("perception.{name}.accept_unproved = true: the model has not been proved to find people")
    })
}
