//! The simulated controller without its network: modes, registers, program, watchdog, arm.

use nalgebra::Isometry3;

use super::motion::{Move, approach};
use super::program::Program;
use super::servo::{self, ServoProgram, Wish};
use super::{CYCLE_HZ, SimConfig, SimProgram, SimState, WatchdogAction};
use crate::arm::registers as reg;
use crate::kinematics::{Arm, pose_from_vector, pose_to_vector};
use crate::{RobotMode, SafetyMode};

/// Program state (`runtime_state`, RTDE guide). Resuming (5) is not modelled: play takes effect at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum RuntimeState {
    /// The arm slows down; then the program has ended.
    Stopping = 0,
    /// No program runs.
    #[default]
    Stopped = 1,
    /// The program runs.
    Playing = 2,
    /// The arm slows down; then the program is paused.
    Pausing = 3,
    /// The program waits for play.
    Paused = 4,
}

/// Number of general purpose registers of each kind.
pub(super) const REGISTERS: usize = 48;

/// Registers and outputs that clients and the program write.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub(super) input_int: [i32; REGISTERS],
    pub(super) input_double: [f64; REGISTERS],
    pub(super) input_bits: u128,
    pub(super) output_int: [i32; REGISTERS],
    pub(super) output_double: [f64; REGISTERS],
    pub(super) output_bits: u128,
    pub(super) standard_analog_output: [f64; 2],
    pub(super) external_force: [f64; 6],
}

#[derive(Clone, Debug)]
pub(super) struct Controller {
    config: SimConfig,
    pub(super) arm: Arm,
    tcp: Isometry3<f64>,
    pub(super) registers: Registers,
    pub(super) robot_mode: RobotMode,
    pub(super) safety_mode: SafetyMode,
    pub(super) runtime: RuntimeState,
    pub(super) joints_rad: [f64; 6],
    pub(super) speeds_rad_s: [f64; 6],
    pub(super) accelerations_rad_s2: [f64; 6],
    pub(super) tcp_pose: [f64; 6],
    pub(super) tcp_speed: [f64; 6],
    /// Slider as asked.
    pub(super) slider: f64,
    /// Slider as followed: its rate of change is limited.
    pub(super) slider_followed: f64,
    /// Part of the speed left by pause, stop and brakes, 0 to 1.
    pub(super) run_scale: f64,
    /// Standard outputs in bits 0..8, configurable in 8..16, tool in 16..18.
    pub(super) digital_outputs: u64,
    motion: Option<Move>,
    /// Move number that the program works on or has seen last.
    taken: i32,
    pub(super) program: Program,
    pub(super) servo: ServoProgram,
    wish: Wish,
    /// The arm disregards the slider: a fault.
    pub(super) slider_ignored: bool,
    heartbeat_ns: Option<u64>,
    heartbeats_since_trip: u32,
    tripped: bool,
    pub(super) watchdog_trips: u64,
    moves_finished: u64,
    tcp_way_m: f64,
    pub(super) cycles: u64,
    /// Cycles that the simulator was kept from: the arm stood still, the clock did not.
    pub(super) cycles_lost: u64,
    /// Messages of the controller; the server sends them to all clients.
    pub(super) texts: Vec<String>,
}

/// Bit of tool digital output 0, the suction gripper's, in `actual_digital_output_bits`.
const SUCTION_BIT: u64 = 1 << 16;

/// Standard outputs of the light, and the red one among them, as `takt_watchdog.script` has them.
const LIGHTS: u8 = 0b111;
const RED: u8 = 0b100;

/// Heartbeats after which a watchdog with automatic resume trusts the link again.
const RESUME_HEARTBEATS: u32 = 5;

impl Controller {
    pub(super) fn new(config: SimConfig) -> Self {
        let tcp = pose_from_vector(&config.tcp);
        let joints_rad = config.start_joints_rad;
        let arm = config.arm();
        let mut controller = Self {
            arm,
            tcp,
            registers: Registers {
                input_int: [0; REGISTERS],
                input_double: [0.0; REGISTERS],
                input_bits: 0,
                output_int: [0; REGISTERS],
                output_double: [0.0; REGISTERS],
                output_bits: 0,
                standard_analog_output: [0.0; 2],
                external_force: [0.0; 6],
            },
            robot_mode: RobotMode::Running,
            safety_mode: SafetyMode::Normal,
            runtime: RuntimeState::Stopped,
            joints_rad,
            speeds_rad_s: [0.0; 6],
            accelerations_rad_s2: [0.0; 6],
            tcp_pose: pose_to_vector(&arm.forward(&joints_rad, &tcp)),
            tcp_speed: [0.0; 6],
            slider: 1.0,
            slider_followed: 1.0,
            run_scale: 0.0,
            digital_outputs: 0,
            motion: None,
            taken: 0,
            program: Program::default(),
            servo: ServoProgram::default(),
            wish: Wish::Rest,
            slider_ignored: false,
            heartbeat_ns: None,
            heartbeats_since_trip: 0,
            tripped: false,
            watchdog_trips: 0,
            moves_finished: 0,
            tcp_way_m: 0.0,
            cycles: 0,
            cycles_lost: 0,
            texts: Vec::new(),
            config,
        };
        if controller.config.autoplay {
            controller.play();
        }
        controller
    }

    pub(super) const fn version(&self) -> [u32; 4] {
        self.config.controller_version
    }

    pub(super) fn lacks(&self, variable: &str) -> bool {
        self.config.missing_variables.iter().any(|name| name == variable)
    }

    pub(super) fn tcp_offset(&self) -> [f64; 6] {
        self.config.tcp
    }

    /// The heartbeat register was written; `now_ns` is CLOCK_MONOTONIC.
    pub(super) fn heartbeat(&mut self, now_ns: u64) {
        self.heartbeat_ns = Some(now_ns);
        self.heartbeats_since_trip = self.heartbeats_since_trip.saturating_add(1);
    }

    /// Moves the slider; values that are no fraction are refused.
    pub(super) fn set_slider(&mut self, fraction: f64) {
        if (0.0..=1.0).contains(&fraction) {
            self.slider = fraction;
        } else {
            self.log_text(format!("speed_slider_fraction {fraction} refused: 0 to 1 accepted"));
        }
    }

    pub(super) fn set_outputs(&mut self, shift: u32, mask: u8, values: u8) {
        let mask = u64::from(mask) << shift;
        self.digital_outputs = self.digital_outputs & !mask | (u64::from(values) << shift) & mask;
    }

    pub(super) fn play(&mut self) -> bool {
        if self.robot_mode != RobotMode::Running || self.safety_mode != SafetyMode::Normal {
            return false;
        }
        match self.runtime {
            // Stopping: the program cannot start afresh while the arm still moves.
            RuntimeState::Playing | RuntimeState::Stopping => return false,
            RuntimeState::Paused | RuntimeState::Pausing => {
                // Else the watchdog would trip in this very cycle for a silence that is over.
                self.heartbeat_ns = self.heartbeat_ns.map(|_| takt_rt::clock::monotonic_ns());
            }
            RuntimeState::Stopped => {
                // As `takt_cell.script` begins: a move number that is there already is an old one,
                // and the watchdog is armed with the first heartbeat.
                self.taken = self.registers.input_int[reg::MOVE_NUMBER];
                self.registers.output_int[reg::FINISHED] = 0;
                self.registers.output_int[reg::TAKEN] = 0;
                self.motion = None;
                self.heartbeat_ns = None;
                if self.config.program.has_watchdog() {
                    self.program.begin(&mut self.registers);
                    self.show_stop();
                }
                if self.config.program == SimProgram::TaktServo {
                    self.servo.begin(&mut self.registers);
                }
            }
        }
        self.tripped = false;
        self.runtime = RuntimeState::Playing;
        true
    }

    pub(super) fn pause(&mut self) -> bool {
        let playing = self.runtime == RuntimeState::Playing;
        if playing {
            self.runtime = RuntimeState::Pausing;
        }
        playing
    }

    pub(super) fn stop(&mut self) {
        if self.runtime != RuntimeState::Stopped {
            self.runtime = RuntimeState::Stopping;
        }
    }

    pub(super) fn protective_stop(&mut self) {
        if self.safety_mode == SafetyMode::Normal {
            self.safety_mode = SafetyMode::ProtectiveStop;
            self.pause();
            self.log_text(String::from("C153A0: protective stop"));
        }
    }

    pub(super) fn unlock_protective_stop(&mut self) -> bool {
        let locked = self.safety_mode == SafetyMode::ProtectiveStop;
        if locked {
            self.safety_mode = SafetyMode::Normal;
        }
        locked
    }

    pub(super) fn emergency_stop(&mut self, pressed: bool) {
        if pressed {
            self.safety_mode = SafetyMode::RobotEmergencyStop;
            self.power_off();
        } else if self.safety_mode == SafetyMode::RobotEmergencyStop {
            self.safety_mode = SafetyMode::Normal;
        }
    }

    pub(super) fn power_off(&mut self) {
        self.robot_mode = RobotMode::PowerOff;
        self.stop();
    }

    pub(super) fn power_on(&mut self) {
        if self.robot_mode == RobotMode::PowerOff && self.safety_mode == SafetyMode::Normal {
            self.robot_mode = RobotMode::Idle;
        }
    }

    pub(super) fn release_brakes(&mut self) {
        self.power_on();
        if self.robot_mode == RobotMode::Idle {
            self.robot_mode = RobotMode::Running;
        }
    }

    /// Actions of the script at its start and when the heartbeat is silent: red light, slider at
    /// its stop.
    fn show_stop(&mut self) {
        self.set_outputs(0, LIGHTS, RED);
        self.slider = 0.0;
    }

    fn log_text(&mut self, text: String) {
        // Bounded: a client that sends nonsense 500 times a second must not fill the memory.
        if self.texts.len() < 16 {
            self.texts.push(text);
        }
    }

    /// One cycle. `now_ns` (CLOCK_MONOTONIC) only judges the heartbeat, since its writers live in
    /// real time; `made_up` says that the simulator was kept from running when the cycle was due.
    pub(super) fn step(&mut self, now_ns: u64, made_up: bool) {
        self.cycles += 1;
        self.watch(now_ns);
        self.run_program(made_up);
        self.move_arm();
    }

    fn watch(&mut self, now_ns: u64) {
        if self.tripped && self.config.watchdog_auto_resume && self.heartbeats_since_trip >= RESUME_HEARTBEATS
        {
            self.play();
        }
        let set_hz = self.program.watches().then_some(self.config.watchdog_min_hz);
        let Some(least_hz) = set_hz.or_else(|| self.servo.watchdog_hz()) else { return };
        let Some(received_ns) = self.heartbeat_ns else { return };
        if self.runtime != RuntimeState::Playing {
            return;
        }
        let silence_s = now_ns.saturating_sub(received_ns) as f64 * 1e-9;
        if silence_s * least_hz <= 1.0 {
            return;
        }
        self.watchdog_trips += 1;
        self.heartbeats_since_trip = 0;
        self.tripped = true;
        if self.config.program.has_watchdog() {
            self.show_stop();
        }
        match self.config.watchdog_action {
            WatchdogAction::Pause => {
                self.pause();
            }
            WatchdogAction::Stop => {
                if self.config.program.has_watchdog() {
                    self.program.end(&mut self.registers);
                }
                self.stop();
            }
        }
        self.log_text(format!("RTDE watchdog: input_int_register_24 not updated at {least_hz} Hz"));
    }

    /// One cycle of the program.
    fn run_program(&mut self, made_up: bool) {
        self.wish = Wish::Rest;
        if self.runtime != RuntimeState::Playing {
            return;
        }
        if self.config.program == SimProgram::TaktServo {
            let fraction = self.slider_followed;
            self.wish = self.servo.cycle(&mut self.registers, &self.joints_rad, made_up, fraction);
            return;
        }
        if self.config.program.has_watchdog() && !self.program.look(&mut self.registers) {
            // Its first line waits for Takt.
            return;
        }
        if self.config.program == SimProgram::TaktCell {
            self.run_takt_cell();
        } else if self.motion.as_ref().is_none_or(Move::is_done) {
            self.moves_finished += u64::from(self.motion.is_some());
            self.motion = self.program.swing(&self.arm, self.joints_rad, &self.config.start_joints_rad);
        }
    }

    /// Actions of `takt_cell.script` once its watchdog is armed.
    fn run_takt_cell(&mut self) {
        let registers = &mut self.registers;
        if let Some(motion) = &self.motion {
            if !motion.is_done() {
                return;
            }
            self.motion = None;
            self.moves_finished += 1;
            registers.output_int[reg::FINISHED] = self.taken;
        }
        let number = registers.input_int[reg::MOVE_NUMBER];
        if number == self.taken {
            return;
        }
        self.taken = number;
        registers.output_int[reg::TAKEN] = number;
        match registers.input_int[reg::MOVE_KIND] {
            reg::KIND_MOVE_JOINTS => {
                let to = std::array::from_fn(|joint| registers.input_double[reg::JOINTS + joint]);
                let speed = registers.input_double[reg::SPEED];
                let acceleration = registers.input_double[reg::ACCELERATION];
                self.motion = Move::new(&self.arm, self.joints_rad, to, speed, acceleration);
                if self.motion.is_none() {
                    // As the controller does when it is asked for what it cannot do.
                    self.stop();
                    self.log_text(format!("move {number} refused: angles or limits out of range"));
                }
            }
            reg::KIND_SUCTION_ON => {
                self.digital_outputs |= SUCTION_BIT;
                registers.output_int[reg::FINISHED] = number;
            }
            reg::KIND_SUCTION_OFF => {
                self.digital_outputs &= !SUCTION_BIT;
                registers.output_int[reg::FINISHED] = number;
            }
            _ => registers.output_int[reg::FINISHED] = number,
        }
    }

    fn move_arm(&mut self) {
        let dt_s = 1.0 / f64::from(CYCLE_HZ);
        let healthy = self.robot_mode == RobotMode::Running && self.safety_mode == SafetyMode::Normal;
        let playing = self.runtime == RuntimeState::Playing;
        let rate = if healthy { self.config.pause_rate_per_s } else { self.config.emergency_rate_per_s };
        self.run_scale = approach(self.run_scale, if healthy && playing { 1.0 } else { 0.0 }, rate * dt_s);
        self.slider_followed =
            approach(self.slider_followed, self.slider, self.config.slider_rate_per_s * dt_s);
        let fraction = if self.slider_ignored { self.run_scale } else { self.speed_fraction() };
        let before = self.speeds_rad_s;
        if self.config.program == SimProgram::TaktServo {
            self.move_servo(dt_s, healthy);
        } else if let Some(motion) = &mut self.motion {
            motion.advance(dt_s * fraction);
            let point = motion.point();
            self.joints_rad = point.joints_rad;
            self.speeds_rad_s = point.speeds_rad_s.map(|speed| speed * fraction);
        } else {
            self.speeds_rad_s = [0.0; 6];
        }
        self.accelerations_rad_s2 =
            std::array::from_fn(|joint| (self.speeds_rad_s[joint] - before[joint]) / dt_s);
        let pose = pose_to_vector(&self.arm.forward(&self.joints_rad, &self.tcp));
        let way = |axis: usize| (pose[axis] - self.tcp_pose[axis]).powi(2);
        self.tcp_way_m += (way(0) + way(1) + way(2)).sqrt();
        self.tcp_pose = pose;
        self.tcp_speed = self.arm.tcp_speed(&self.joints_rad, &self.speeds_rad_s, &self.tcp);
        if self.run_scale == 0.0 {
            match self.runtime {
                RuntimeState::Pausing => self.runtime = RuntimeState::Paused,
                RuntimeState::Stopping => {
                    self.runtime = RuntimeState::Stopped;
                    self.motion = None;
                }
                _ => {}
            }
        }
    }

    /// Moves the joints by servoj, stopj, pause and brakes.
    fn move_servo(&mut self, dt_s: f64, healthy: bool) {
        let (joints, speeds) = (&mut self.joints_rad, &mut self.speeds_rad_s);
        if self.runtime == RuntimeState::Playing && healthy {
            match self.wish {
                Wish::Follow => {
                    let path_s = dt_s * self.slider_followed;
                    if !self.servo.follow(&self.arm, joints, speeds, path_s) {
                        self.log_text(String::from(
                            "C204A1: path sanity check: sudden change in target position",
                        ));
                        self.protective_stop();
                    }
                    return;
                }
                Wish::Stop => {
                    let rests =
                        servo::brake(joints, speeds, crate::servo::registers::DECELERATION_RAD_S2, dt_s);
                    if rests {
                        // Its last line: halt.
                        self.run_scale = 0.0;
                        self.runtime = RuntimeState::Stopped;
                    }
                    return;
                }
                Wish::Rest => {}
            }
        }
        let rate = if healthy { self.config.pause_rate_per_s } else { self.config.emergency_rate_per_s };
        let fastest = self.arm.joint_speed_max_rad_s.iter().copied().fold(0.0, f64::max);
        servo::brake(joints, speeds, rate * fastest, dt_s);
    }

    /// Speed fraction that the arm follows: slider times the part left by pause, stop and brakes.
    pub(super) fn speed_fraction(&self) -> f64 {
        self.slider_followed * self.run_scale
    }

    /// Its clock, seconds (`timestamp`).
    pub(super) fn time_s(&self) -> f64 {
        (self.cycles + self.cycles_lost) as f64 / f64::from(CYCLE_HZ)
    }

    /// Whether its program is `takt_servo.script`.
    pub(super) fn plays_servo(&self) -> bool {
        self.config.program == SimProgram::TaktServo
    }

    pub(super) const fn tcp_way_m(&self) -> f64 {
        self.tcp_way_m
    }

    /// Whether a heartbeat has been seen since the program started.
    pub(super) const fn watchdog_armed(&self) -> bool {
        self.heartbeat_ns.is_some()
    }

    pub(super) fn fill(&self, state: &mut SimState) {
        *state = SimState {
            cycles: self.cycles,
            robot_mode: self.robot_mode,
            safety_mode: self.safety_mode,
            runtime: self.runtime,
            joints_rad: self.joints_rad,
            joint_speeds_rad_s: self.speeds_rad_s,
            tcp_pose: self.tcp_pose,
            tcp_speed: self.tcp_speed,
            tcp_way_m: self.tcp_way_m,
            slider: self.slider,
            speed_fraction: self.speed_fraction(),
            digital_outputs: self.digital_outputs,
            heartbeat: self.registers.input_int[reg::HEARTBEAT],
            watchdog_armed: self.program.watches()
                || (self.servo.watchdog_hz().is_some() && self.runtime == RuntimeState::Playing),
            watchdog_trips: self.watchdog_trips,
            finished_move: self.registers.output_int[reg::FINISHED],
            moves_finished: self.moves_finished,
            suction: self.digital_outputs & SUCTION_BIT != 0,
            clients: state.clients,
            packets_refused: state.packets_refused,
            packets_dropped: state.packets_dropped,
        };
    }
}
