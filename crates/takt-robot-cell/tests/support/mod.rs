//! Common parts of the tests of the whole cell: its configuration, and a cell that runs while
//! everything is recorded.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../takt-perception/tests/rig/stand_in.rs"]
mod stand_in;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use takt_link_camera::CameraConfig;
use takt_link_camera::synthetic::PersonConfig;
use takt_link_rtde::sim::{SimState, Simulator};
use takt_perception::process::{Program, Record, judges, worker};
use takt_robot_cell::cell::{Records, StartOptions, ViewPorts};
use takt_robot_cell::lab::CellFile;
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_robot_cell::tasks::PolicyMix;
use takt_robot_cell::{Cell, CellConfig};

/// Longest wait for an event that must happen. Nothing is measured by it: it only ends a test that
/// hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which the running cell is examined.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The shipped synthetic cell with its first `cameras` cameras, for a slow and busy machine:
/// without networks (whatever stands in the volume counts, person or not), and with so much
/// patience that only what a test does on purpose is stale.
pub fn config(cameras: usize) -> CellConfig {
    let text = include_str!("../../../../robots/synthetic.toml");
    let file = CellFile::parse(text, "synthetic.toml", Path::new("")).expect("the shipped file");
    let CellConfig { name, cameras: all, mut perception, mut ssm, mut tasks, mut robot } = file.cell();
    perception.detector.enabled = false;
    perception.segmenter.enabled = false;
    ssm.stale_after_ms = 1000.0;
    ssm.robot_stale_after_ms = 1000.0;
    ssm.robot_state_age_ms = 1000.0;
    ssm.ack_after_ms = 1000.0;
    ssm.send_failures = 500;
    ssm.recover_after_s = 0.3;
    ssm.resume_after_s = 0.1;
    tasks.policy = PolicyMix::RrRr;
    tasks.strict = false;
    tasks.lock_memory = false;
    tasks.hold_cpu_awake = false;
    let simulator = robot.simulator.as_mut().expect("it has a simulated robot");
    simulator.watchdog_min_hz = 2.0;
    // Patient with a busy test machine: a simulated controller in the same process may wait for a
    // CPU or a disk.
    robot.rtde.connect_timeout_ms = 10_000;
    // What the tests compare with knows of people alone, not of an arm that hides a part of them.
    simulator.drawn = false;
    let cameras = all.into_iter().take(cameras).collect();
    CellConfig { name, cameras, perception, ssm, tasks, robot }
}

/// Set for the processes that [`worker`] starts.
pub const IS_WORKER: &str = "TAKT_TEST_IS_WORKER";

/// The perception process of a cell that was started with [`worker`]. It does nothing unless a test
/// started it.
#[test]
fn worker_process() {
    if let Some(kind) = std::env::var_os(IS_WORKER) {
        let code = if kind == "device" { worker::run(&judges) } else { worker::run(&stand_in::judges) };
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

/// Perception processes are the test program itself with its test `worker_process` selected. This
/// one judges on the device that the configuration names.
pub fn on_device() -> Program {
    let mut program = worker("");
    program.variables.push((IS_WORKER.into(), "device".into()));
    program
}

/// The same without a device.
pub fn worker(fault: &str) -> Program {
    Program {
        path: std::env::current_exe().expect("the test program"),
        arguments: ["support::worker_process", "--exact", "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .into(),
        variables: vec![
            (IS_WORKER.into(), "stand-in".into()),
            (takt_perception::process::FAULT_VARIABLE.into(), fault.into()),
        ],
    }
}

/// Sets the people who walk in the scene of every camera.
pub fn set_people(config: &mut CellConfig, people: &[PersonConfig]) {
    for camera in &mut config.cameras {
        let CameraConfig::Synthetic(synthetic) = &mut camera.source else { panic!("a synthetic camera") };
        synthetic.scene.people = people.to_vec();
    }
}

/// One cell at a time: they would take each other's processor time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running cell and everything that it has recorded so far.
pub struct Running {
    pub cell: Cell,
    pub view: ViewPorts,
    records: Records,
    pub jobs: Vec<SsmJob>,
    pub frames: Vec<FrameRecord>,
    pub worker: Vec<Record>,
}

/// Remains of a stopped cell.
pub struct Finished {
    pub jobs: Vec<SsmJob>,
    pub frames: Vec<FrameRecord>,
    pub worker: Vec<Record>,
}

impl Running {
    pub fn start(config: &CellConfig) -> Self {
        Self::with_fault(config, "")
    }

    /// With a fault planted in the perception process.
    pub fn with_fault(config: &CellConfig, fault: &str) -> Self {
        Self::with_worker(config, worker(fault))
    }

    /// With this perception process.
    pub fn with_worker(config: &CellConfig, worker: Program) -> Self {
        let options = StartOptions { worker: Some(worker), ..StartOptions::default() };
        let mut cell = Cell::start(config, options).expect("the cell starts");
        let view = cell.take_view().expect("the first to ask");
        let records = cell.take_records().expect("the first to ask");
        assert!(cell.take_view().is_none() && cell.take_records().is_none(), "each is handed out once");
        Self { cell, view, records, jobs: Vec::new(), frames: Vec::new(), worker: Vec::new() }
    }

    /// Takes what the rings hold.
    pub fn collect(&mut self) {
        collect(&mut self.records, &mut self.jobs, &mut self.frames, &mut self.worker);
    }

    /// Waits until `done`, which gets the jobs from index `from` of [`Self::jobs`] on.
    pub fn until(&mut self, what: &str, from: usize, mut done: impl FnMut(&Cell, &[SsmJob]) -> bool) {
        let begin = Instant::now();
        loop {
            self.collect();
            if done(&self.cell, &self.jobs[from..]) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}: {:#?}", self.jobs.last());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for this many more jobs and returns them.
    pub fn more_jobs(&mut self, count: usize) -> &[SsmJob] {
        self.collect();
        let from = self.jobs.len();
        self.until("jobs have run", from, |_, jobs| jobs.len() >= count);
        &self.jobs[from..]
    }

    /// The state of the cell's own simulated robot.
    pub fn robot(&self) -> SimState {
        self.cell.simulator().map(Simulator::state).expect("the cell has a simulated robot")
    }

    /// Stops the cell; what it did last is in the records.
    pub fn stop(self) -> Finished {
        let Self { cell, mut records, mut jobs, mut frames, mut worker, .. } = self;
        assert_eq!(cell.ended_threads(), Vec::<String>::new(), "no critical thread ended by itself");
        assert_eq!(cell.stop(PATIENCE), Vec::<String>::new(), "every thread ended when asked to");
        collect(&mut records, &mut jobs, &mut frames, &mut worker);
        assert_eq!(records.jobs.lost(), 0, "every job is recorded");
        assert!(records.frames.iter().all(|ring| ring.lost() == 0), "every frame is recorded");
        Finished { jobs, frames, worker }
    }
}

fn collect(
    records: &mut Records,
    jobs: &mut Vec<SsmJob>,
    frames: &mut Vec<FrameRecord>,
    worker: &mut Vec<Record>,
) {
    // Frames after jobs: a frame's record is there before a job can have consumed the frame.
    records.jobs.take_into(jobs, usize::MAX);
    for ring in &mut records.frames {
        ring.take_into(frames, usize::MAX);
    }
    for ring in &mut records.worker {
        ring.take_into(worker, usize::MAX);
    }
}

/// Waits for something that is no part of a cell.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
