//! τ_ssm: reads the newest of everything, decides, commands the robot, leaves a record. After
//! start-up it neither allocates nor locks nor blocks; its only system calls are the sleep and one
//! non-blocking send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_link_rtde::arm::registers::{GUARD_WAITING, MAX_CHALLENGE};
use takt_link_rtde::client::Commander;
use takt_link_rtde::{Command, RobotState};
use takt_perception::Detections;
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::Reader;
use takt_rt::periodic::Release;
use takt_rt::ring::Producer;

use crate::config::LightOutputs;
use crate::guard::{Alarm, SsmFacts};
use crate::records::SsmJob;
use crate::ssm::{CameraInput, Inputs, Light, MAX_CAMERAS, Monitor};

/// Connections of the task.
#[derive(Debug)]
pub struct SsmPorts {
    /// Newest result of each camera, in order.
    pub detections: Vec<Reader<Detections>>,
    /// Whether each perception thread lives.
    pub alive: Vec<Arc<AtomicBool>>,
    /// Newest state of the robot.
    pub robot: Reader<RobotState>,
    /// Commands to the robot.
    pub commander: Commander,
    /// All records, for the collector.
    pub records: Producer<SsmJob>,
    /// Set when the run ends: whatever is decided from then on, the robot is commanded to stop.
    pub ending: Vec<Arc<AtomicBool>>,
    /// The job's knowledge of the robot.
    pub facts: Arc<SsmFacts>,
    /// Is notified of disobedience.
    pub alarm: Alarm,
    /// Set by a lenient start that found no watchdog: goes on without, until one has proved itself.
    pub without_watchdog: Arc<AtomicBool>,
}

/// Heartbeats between two challenges: half a second. A program that starts waits for the next one.
const CHALLENGE_EVERY: i32 = 256;

/// The challenge that goes with a heartbeat: never 0, and another one than the last run left
/// behind.
const fn challenge(heartbeat: i32) -> i32 {
    1 + (heartbeat / CHALLENGE_EVERY).wrapping_abs() % MAX_CHALLENGE
}

/// First heartbeat of a run. Registers keep what the last run wrote: counted in milliseconds of the
/// clock, a later run begins above what an earlier one, at 500 Hz, can have reached.
fn first_heartbeat() -> i32 {
    (monotonic_ns() / 1_000_000 % (1 << 30)) as i32
}

#[derive(Debug)]
pub struct SsmTask {
    monitor: Monitor,
    ports: SsmPorts,
    light: LightOutputs,
    heartbeat: i32,
    echo: (i32, u64),
    consumed: [u64; MAX_CAMERAS],
    measured_worst_ns: u64,
    /// Whether a watchdog is asked for at all.
    watchdog: bool,
    /// Stands in for cameras that are not there.
    nothing: Detections,
}

impl SsmTask {
    /// A task that has run no job yet.
    pub fn new(monitor: Monitor, mut ports: SsmPorts, light: LightOutputs) -> Self {
        // However this task ends, by a panic as well, that is the last that the robot receives from
        // it.
        ports.commander.at_end(command(&light, 0.0, Light::Red, -1));
        Self {
            heartbeat: first_heartbeat(),
            echo: (0, 0),
            consumed: [0; MAX_CAMERAS],
            measured_worst_ns: 0,
            watchdog: monitor.expects_watchdog(),
            nothing: Detections::default(),
            monitor,
            ports,
            light,
        }
    }

    pub fn job(&mut self, release: &Release) -> SsmJob {
        let ending = self.ports.ending.iter().any(|ending| ending.load(Ordering::Acquire));
        let robot = *self.ports.robot.read().value;
        let mut cameras = [CameraInput { detections: &self.nothing, alive: false }; MAX_CAMERAS];
        let mut count = 0;
        let ports = self.ports.detections.iter_mut().zip(&self.ports.alive);
        for (input, (reader, alive)) in cameras.iter_mut().zip(ports) {
            *input = CameraInput {
                detections: reader.read().value,
                // Acquire: a dead thread's last result is not newer than its death.
                alive: alive.load(Ordering::Acquire),
            };
            count += 1;
        }
        let cameras = &cameras[..count];
        let proved = self.monitor.watchdog_proved();
        if proved || self.ports.without_watchdog.load(Ordering::Acquire) {
            self.monitor.expect_watchdog(proved && self.watchdog);
        }
        // After reading: no input can then lie in the future by honest clocks.
        let start_ns = monotonic_ns();
        let mut decision = self.monitor.decide(&Inputs {
            now_ns: start_ns,
            cameras,
            robot: &robot,
            measured_worst_s: self.measured_worst_ns as f64 / 1e9,
        });
        self.heartbeat = self.heartbeat.wrapping_add(1);
        if ending {
            // Before perception and collectors end, which takes its time. What was decided stays in
            // the record.
            (decision.speed_fraction, decision.light) = (0.0, Light::Red);
        }
        let asked = command(&self.light, decision.speed_fraction, decision.light, self.heartbeat);
        let sent = self.ports.commander.send(&asked);
        let end_ns = monotonic_ns();
        // With its start: the echo cannot then be found too young.
        self.monitor.commanded(
            self.heartbeat,
            challenge(self.heartbeat),
            decision.speed_fraction,
            start_ns,
            sent,
        );
        let waits = robot.script_guard == GUARD_WAITING;
        self.ports.alarm.see(decision.fault.map(|fault| fault.kind), waits, end_ns);

        let mut input_sequences = [0; MAX_CAMERAS];
        for ((sequence, consumed), camera) in input_sequences.iter_mut().zip(&mut self.consumed).zip(cameras)
        {
            *sequence = camera.detections.frame_sequence;
            if *sequence != *consumed {
                *consumed = *sequence;
                // Frames so old that they stop the robot anyway do not widen the distance for ever.
                if decision.fault.is_none() {
                    let capture_to_command_ns = end_ns.saturating_sub(camera.detections.capture_ns);
                    self.measured_worst_ns = self.measured_worst_ns.max(capture_to_command_ns);
                }
            }
        }
        if robot.heartbeat_echo != self.echo.0 && robot.sequence > 0 {
            self.echo = (robot.heartbeat_echo, robot.heartbeat_echo_ns);
        }
        let record = SsmJob {
            index: release.index,
            planned_ns: release.planned_ns,
            wake_ns: release.wake_ns,
            start_ns,
            end_ns,
            input_sequences,
            decision,
            heartbeat: self.heartbeat,
            sent,
            echo: self.echo.0,
            echo_received_ns: self.echo.1,
        };
        let facts = &self.ports.facts;
        facts.set(proved, !decision.stop, self.monitor.link_delays(), self.measured_worst_ns);
        self.ports.records.push(record);
        record
    }

    /// Whether the robot says that it follows the stop (its target speed is 0), or there is none to
    /// ask.
    pub(crate) fn stands_commanded(&mut self) -> bool {
        let robot = self.ports.robot.read().value;
        !robot.connected || robot.sequence == 0 || robot.speed_fraction <= 0.0
    }
}

fn command(light: &LightOutputs, speed_fraction: f64, shown: Light, heartbeat: i32) -> Command {
    Command {
        speed_fraction,
        digital_outputs: 1 << light.output(shown),
        digital_outputs_mask: light.mask(),
        heartbeat,
        challenge: challenge(heartbeat),
    }
}
