//! A simulated controller on loopback: RTDE, a dashboard server, the arm's kinematics and an arm
//! that moves.
//!
//! It stands in for the robot, so that the whole cell runs where there is none: it speaks the same
//! protocol as the controller (third-party clients connect to it), executes the registers of
//! `urscript/takt_cell.script` and answers as `urscript/takt_watchdog.script` (or plays a program
//! without it, on request; or follows joint targets as `urscript/takt_servo.script` does), obeys
//! the speed slider with a limited rate of change, so that stopping takes time and way, and stops
//! when the heartbeat dries up.
//!
//! One thread, `ursim`, does everything once per 2 ms cycle, as the controller does: take inputs
//! in, move, send outputs. It sleeps in between.
//!
//! It does not model forces, dynamics, collisions, self-collision or tool payload.

mod config;
mod connection;
mod controller;
mod dashboard;
mod log;
mod motion;
mod primary;
mod program;
mod rtde;
mod server;
mod servo;
mod trajectory;
mod variables;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use config::{Calibration, SimConfig, SimProgram, WatchdogAction};
pub use controller::RuntimeState;
pub use log::{COLUMNS as LOG_COLUMNS, SERVO_COLUMNS as SERVO_LOG_COLUMNS};
pub use trajectory::{MissionSample, trajectory};

use crate::{RobotMode, RtdeError, SafetyMode};
use server::Server;

/// Cycles per second of the simulated controller, those of an e-Series.
pub const CYCLE_HZ: u32 = 500;

/// Faults and acts of people, for tests and demonstrations.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Closes all RTDE connections with a reset, as a pulled cable or a rebooting controller does.
    DropLinks,
    /// Refuses new RTDE connections (accepts and closes them at once) while true.
    RefuseLinks(bool),
    /// Neither reads nor sends, but keeps the connections open, while true; the arm moves on.
    Freeze(bool),
    /// Protective stop, as after a collision.
    ProtectiveStop,
    /// The emergency stop button: pressed (true) or released (false). After release, power on
    /// again.
    EmergencyStop(bool),
    /// Power off.
    PowerOff,
    /// Power on and release the brakes.
    PowerOn,
    /// The play button.
    Play,
    /// The pause button.
    Pause,
    /// The stop button.
    Stop,
    /// Sends the next so many data packets in two halves, one cycle apart, to every client.
    SplitPackets(u32),
    /// Sends half a data packet to every client and closes the connection.
    CutPacket,
    /// The arm disregards the speed slider while true, though the controller reports it as taken
    /// over.
    IgnoreSlider(bool),
    /// The thread of the program's watchdog hangs while true: no echo, no answer, no watch.
    HangWatchdog(bool),
    /// Sends these bytes to every RTDE client as they are.
    RawBytes(Vec<u8>),
}

/// Present state of the simulated robot.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SimState {
    /// Cycles since the start.
    pub cycles: u64,
    /// Robot mode.
    pub robot_mode: RobotMode,
    /// Safety mode.
    pub safety_mode: SafetyMode,
    /// Program state.
    pub runtime: RuntimeState,
    /// Joint angles in radians.
    pub joints_rad: [f64; 6],
    /// Joint speeds in rad/s.
    pub joint_speeds_rad_s: [f64; 6],
    /// Tool centre point: metres and rotation vector, base frame.
    pub tcp_pose: [f64; 6],
    /// Speed of the tool centre point: m/s and rad/s, base frame.
    pub tcp_speed: [f64; 6],
    /// Way of the tool centre point since the start, in metres.
    pub tcp_way_m: f64,
    /// Speed slider as asked, 0 to 1.
    pub slider: f64,
    /// Speed fraction that the arm follows now, 0 to 1.
    pub speed_fraction: f64,
    /// Digital outputs as `actual_digital_output_bits` has them.
    pub digital_outputs: u64,
    /// Newest value of the heartbeat register.
    pub heartbeat: i32,
    /// Whether the program's watchdog is armed: heartbeat and challenge have changed since the
    /// program started.
    pub watchdog_armed: bool,
    /// Number of times that the watchdog has stopped the robot.
    pub watchdog_trips: u64,
    /// Number of the newest finished move of the program.
    pub finished_move: i32,
    /// Moves finished since the start.
    pub moves_finished: u64,
    /// Whether the suction gripper is on.
    pub suction: bool,
    /// RTDE clients that are connected.
    pub clients: usize,
    /// Packets from clients that were refused (malformed, or values of an unknown recipe).
    pub packets_refused: u64,
    /// Output packets that were not sent because a client did not read.
    pub packets_dropped: u64,
}

#[derive(Debug, Default)]
struct ControllerState {
    stop: AtomicBool,
    faults: Mutex<Vec<Fault>>,
    has_faults: AtomicBool,
    state: Mutex<SimState>,
    thread_id: std::sync::atomic::AtomicI32,
    cpu_ns: std::sync::atomic::AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves plain values behind, each of them valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running simulated controller; dropping it stops it and closes its ports.
#[derive(Debug)]
pub struct Simulator {
    shared: Arc<ControllerState>,
    rtde: SocketAddr,
    dashboard: SocketAddr,
    primary: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    /// Binds the ports and starts the simulator's thread, `ursim`.
    ///
    /// # Errors
    /// A setting out of range, or a port that cannot be bound.
    pub fn start(config: SimConfig) -> Result<Self, RtdeError> {
        config.check()?;
        let shared = Arc::new(ControllerState::default());
        let server = Server::bind(config)?;
        let (rtde, dashboard) = (server.rtde_address()?, server.dashboard_address()?);
        let primary = server.primary_address()?;
        let thread = std::thread::Builder::new()
            .name("ursim".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || server.run(&shared)
            })
            .map_err(RtdeError::io("starting the thread ursim"))?;
        Ok(Self { shared, rtde, dashboard, primary, thread: Some(thread) })
    }

    /// Address of RTDE.
    pub const fn rtde_address(&self) -> SocketAddr {
        self.rtde
    }

    /// Address of the dashboard server.
    pub const fn dashboard_address(&self) -> SocketAddr {
        self.dashboard
    }

    /// Address of the primary client interface.
    pub const fn primary_address(&self) -> SocketAddr {
        self.primary
    }

    /// Lets something go wrong, or a person act, in the next cycle.
    pub fn inject(&self, fault: Fault) {
        lock(&self.shared.faults).push(fault);
        self.shared.has_faults.store(true, Ordering::Release);
    }

    /// State of the robot, at most one cycle old.
    pub fn state(&self) -> SimState {
        lock(&self.shared.state).clone()
    }

    /// Kernel thread identifier of `ursim`, 0 until it runs: for giving it a scheduling policy.
    ///
    /// The real robot has a computer of its own; where noise threads compete for the CPU, a
    /// simulator without a real-time policy starves and looks like a lost link.
    pub fn thread_id(&self) -> i32 {
        self.shared.thread_id.load(Ordering::Acquire)
    }

    /// CPU time that the simulator has used, in nanoseconds, updated about once a second.
    pub fn cpu_ns(&self) -> u64 {
        self.shared.cpu_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the simulator has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}
