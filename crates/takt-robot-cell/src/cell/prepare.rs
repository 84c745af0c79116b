//! Prepares everything that the cell's own threads need: machine, robot, cameras, networks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nalgebra::Isometry3;
use takt_link_camera::synthetic::SolidSource;
use takt_link_camera::{Acquisition, CameraFeed, FeedOptions, Frame, PoseSource, StartGate, Surroundings};
use takt_link_rtde::client::{RtdeConfig, StateHistory};
use takt_link_rtde::kinematics::Body;
use takt_link_rtde::sim::{SimConfig, Simulator};
use takt_perception::{DetectorHandle, DetectorSchedule, DetectorService, Engine, Mount};
use takt_rt::census;
use takt_rt::exchange::Reader;
use takt_rt::latency::DmaLatency;
use takt_rt::memory::MemoryLock;
use takt_rt::settings::{ProcessSettings, ThreadSettings};
use takt_rt::thread;

use crate::arm::{ArmShape, drawn, prepare_arm};
use crate::config::{CellCamera, CellConfig};
use crate::error::CellError;
use crate::poses::{isometry, tool_poses};
use crate::tasks::{AcquiredBy, Role, TaskSet};

/// Stack that is touched before a critical thread begins.
const PREFAULT_STACK_BYTES: usize = 256 << 10;

/// The settings of a critical thread.
pub(super) fn settings(config: &CellConfig, role: Role) -> ThreadSettings {
    let tasks = &config.tasks;
    ThreadSettings {
        policy: tasks.policy_of(role),
        cpus: match role {
            Role::Ssm => tasks.ssm_cpus,
            Role::Perception => tasks.perception_cpus,
            Role::Subthread | Role::BestEffort => None,
        },
        timer_slack_ns: Some(tasks.timer_slack_ns).filter(|&slack_ns| slack_ns > 0),
        // Locked once, by `lock_memory`, before any thread starts.
        lock_memory: MemoryLock::Off,
        prefault_stack_bytes: if tasks.lock_memory { PREFAULT_STACK_BYTES } else { 0 },
        strict: tasks.strict,
    }
}

/// Memory and idle states, for the whole process.
pub(super) fn prepare_machine(
    config: &CellConfig,
    warnings: &mut Vec<String>,
) -> Result<Option<DmaLatency>, CellError> {
    let TaskSet { lock_memory, hold_cpu_awake, strict, .. } = config.tasks;
    Ok(ProcessSettings { lock_memory, hold_cpu_awake, strict }.apply(warnings)?)
}

/// Starts the simulated controller and points the link at it. Its threads stand for a computer of
/// their own, so the census leaves them alone.
pub(super) fn simulate(
    sim: &takt_link_rtde::sim::SimConfig,
    rtde: &mut RtdeConfig,
    dashboard_port: &mut u16,
) -> Result<Simulator, CellError> {
    let simulator = Simulator::start(sim.clone())?;
    let until = Instant::now() + Duration::from_secs(1);
    while simulator.thread_id() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    census::exempt(simulator.thread_id(), "replaces the robot controller's own computer");
    let address = simulator.rtde_address();
    rtde.host = address.ip().to_string();
    rtde.port = address.port();
    *dashboard_port = simulator.dashboard_address().port();
    Ok(simulator)
}

/// The robot's own shape, where one is configured.
pub(super) fn prepare_shape(
    config: &CellConfig,
    rtde: &RtdeConfig,
    simulator: Option<&Simulator>,
    warnings: &mut Vec<String>,
) -> Result<Option<Arc<ArmShape>>, CellError> {
    let Some(shape) = &config.robot.shape else { return Ok(None) };
    let port = simulator.map_or(shape.primary_port, |simulator| simulator.primary_address().port());
    let (shape, note) = prepare_arm(shape, &rtde.host, port)?;
    warnings.extend(note);
    Ok(Some(Arc::new(shape)))
}

/// The cameras, who of the perception tasks acquires itself, and the readers of frames.
pub(super) type Feeds = (Vec<CameraFeed>, Vec<Option<Acquisition>>, Vec<Vec<Reader<Frame>>>);

/// Opens the cameras; they begin together when the gate opens, spread over one period, as
/// unsynchronised cameras are.
pub(super) fn open_feeds(
    config: &CellConfig,
    gate: &StartGate,
    histories: &mut impl Iterator<Item = Reader<StateHistory>>,
) -> Result<Feeds, CellError> {
    let mut feeds = Vec::new();
    let mut acquisitions = Vec::new();
    let mut frames = Vec::new();
    for (index, camera) in config.cameras.iter().enumerate() {
        let options = FeedOptions {
            phase: config.tasks.perception.period() * index as u32 / config.cameras.len() as u32,
            gate: Some(gate.clone()),
            ..FeedOptions::default()
        };
        let around = surroundings(config, camera, histories)?;
        // Perception, a view, the visualisation task.
        let readers = 2 + usize::from(config.tasks.visualisation);
        let (number, source) = (index as u32, &camera.source);
        let started = match config.tasks.acquisition {
            AcquiredBy::DriverThread => CameraFeed::start(number, source, around, readers, options)
                .map(|(feed, readers)| (feed, None, readers)),
            AcquiredBy::InTask => CameraFeed::in_task(number, source, around, readers, options)
                .map(|(feed, acquisition, readers)| (feed, Some(acquisition), readers)),
        };
        let (feed, acquisition, readers) = started
            .map_err(|source| CellError::Camera { name: camera.name.clone(), source: Box::new(source) })?;
        feeds.push(feed);
        acquisitions.push(acquisition);
        frames.push(readers);
    }
    Ok((feeds, acquisitions, frames))
}

/// Surroundings of a rendered scene: the pose of its camera and, if requested, of the simulated
/// arm.
fn surroundings(
    config: &CellConfig,
    camera: &CellCamera,
    histories: &mut impl Iterator<Item = Reader<StateHistory>>,
) -> Result<Option<Surroundings>, CellError> {
    if !camera.source.needs_surroundings() {
        return Ok(None);
    }
    let mut history = || histories.next().ok_or(CellError::NoReader("robot history"));
    let pose = pose_source(camera.mount, history()?);
    let visible = config.robot.simulator.as_ref().filter(|simulator| simulator.drawn);
    let solids = visible.map(|sim| history().map(|reader| arm_source(config, sim, reader))).transpose()?;
    Ok(Some(Surroundings { pose, solids }))
}

/// Reports the synthetic scene where its camera is: the newest pose of the robot, through the
/// mounting.
fn pose_source(mount: Mount, reader: Reader<StateHistory>) -> PoseSource {
    // Only the camera's driver thread asks; the mutex makes that a `Fn`, nobody ever waits for it.
    let reader = Mutex::new(reader);
    Arc::new(move |at_ns| {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let states = reader.read().value;
        let newest = tool_poses(states).rev().find(|(t_ns, _)| *t_ns <= at_ns);
        let tcp_in_base =
            newest.or_else(|| tool_poses(states).next()).map_or(Isometry3::identity(), |(_, pose)| pose);
        mount.at(&tcp_in_base).camera_in_base
    })
}

/// Draws the simulated arm into the scene, where it truly is: its newest state, carried on by its
/// speed.
fn arm_source(config: &CellConfig, simulator: &SimConfig, reader: Reader<StateHistory>) -> SolidSource {
    let (arm, tcp) = (simulator.arm(), isometry(simulator.tcp));
    let body = Body::new(simulator.model, &arm);
    let shape = config.robot.shape.clone();
    let reader = Mutex::new(reader);
    Arc::new(move |at_ns, solids| {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let states = reader.read().value;
        let newest = states.iter().rev().find(|state| state.measured_ns <= at_ns).or_else(|| states.newest());
        let Some(state) = newest else { return };
        let on_s = at_ns.saturating_sub(state.measured_ns) as f64 / 1e9;
        let joints: [f64; 6] =
            std::array::from_fn(|joint| state.joints_rad[joint] + on_s * state.joint_speeds_rad_s[joint]);
        let tcp_in_base = arm.forward(&joints, &tcp);
        drawn(&body, shape.as_ref(), &joints, &tcp_in_base, state.digital_outputs, solids);
    })
}

pub(super) type Detector = (Option<DetectorService>, Vec<Option<DetectorHandle>>);

pub(super) fn prepare_detector(
    config: &CellConfig,
    engine: &Engine,
    feeds: &[CameraFeed],
    thread: &mut Option<thread::Handle>,
) -> Result<Detector, CellError> {
    let detector = &config.perception.detector;
    if !detector.enabled || detector.schedule == DetectorSchedule::EveryFrame {
        return Ok((None, feeds.iter().map(|_| None).collect()));
    }
    let sizes: Vec<_> = feeds.iter().map(|f| (f.intrinsics().width, f.intrinsics().height)).collect();
    let settings = ThreadSettings {
        policy: config.tasks.detector_policy(),
        strict: config.tasks.strict,
        ..ThreadSettings::default()
    };
    let (service, handles) = DetectorService::start(engine, detector, &sizes, |body| {
        *thread = Some(thread::spawn("detector", &settings, body)?);
        Ok(())
    })?;
    Ok((Some(service), handles.into_iter().map(Some).collect()))
}
