//! Behaviour of `takt_servo.script` on the simulated controller, and of the arm under servoj.
//!
//! The maker says of servoj (URScript manual, article "ServoJ command"): `gain` works as the P-term
//! of a PID controller, and `lookahead_time` projects the current position forward in time with the
//! current velocity. Taken literally, and for each joint: acceleration = gain * (target - (q +
//! lookahead_time * velocity)), in rad/s2 with the gain in 1/s2; the unit is not published. It
//! follows a target of constant speed with a lag of `lookahead_time`: users measured 34 ms on a
//! UR10e with lookahead_time 0.03 s and gain 1200, 4 to 6 ms of it without servoj
//! (Universal_Robots_Client_Library, issue 86).
//!
//! Speed scaling stretches servoj: at 50 % a call of 2 ms takes 4 ms (maker's article "Trajectory
//! improvements for servoj()"). Targets that would need more acceleration or speed than the arm has
//! end in a protective stop, C204A1.

use super::controller::Registers;
use super::motion::approach;
use crate::kinematics::Arm;
use crate::servo::ProgramState;
use crate::servo::registers as reg;

/// Acceleration at which the controller calls a target's change sudden, rad/s2. A modelling choice:
/// the maker publishes none; joints of these arms accelerate by some tens of rad/s2 at most.
const SUDDEN_RAD_S2: f64 = 40.0;

/// Distance from its end at which a running servoj counts as complete: rounding of the speed
/// fraction.
const OVER: f64 = 1e-9;

/// The program's request to the arm in this cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing: it waits.
    Rest,
    /// servoj.
    Follow,
    /// stopj, and then the program ends.
    Stop,
}

/// The running program's own memory.
#[derive(Clone, Debug, Default)]
pub(super) struct ServoProgram {
    /// Count that was there when the program began: it belongs to the past.
    found: i32,
    state: ProgramState,
    limit: i32,
    lookahead_s: f64,
    gain: f64,
    pub(super) targets_rad: [f64; 6],
    count: i32,
    /// Cycles since the newest count, and how many of them the sender is answerable for.
    since: i32,
    silent: i32,
    missed: i32,
    longest: i32,
    /// Rest of the running servoj, cycles.
    left: f64,
}

impl ServoProgram {
    /// The part before the first loop.
    pub(super) fn begin(&mut self, registers: &mut Registers) {
        *self = Self { found: registers.input_int[reg::COUNT], ..Self::default() };
        registers.output_int[reg::COUNT_READ] = 0;
        registers.output_int[reg::MISSED] = 0;
        registers.output_int[reg::LONGEST] = 0;
        registers.output_int[reg::STATE] = self.state.to_register();
    }

    /// Rate of the controller's own watchdog (`rtde_set_watchdog`), if set.
    pub(super) fn watchdog_hz(&self) -> Option<f64> {
        let hz = 0.5 * f64::from(super::CYCLE_HZ) / f64::from(self.limit.max(1));
        (self.state == ProgramState::Following).then_some(hz)
    }

    /// One control cycle. `made_up` says that it is one of several that the simulator makes up for
    /// at once: no sender could have been heard in it, so it is no silence. `fraction` is how much
    /// of a servoj passes in a cycle.
    pub(super) fn cycle(
        &mut self,
        registers: &mut Registers,
        joints_rad: &[f64; 6],
        made_up: bool,
        fraction: f64,
    ) -> Wish {
        match self.state {
            ProgramState::Waiting => {
                let count = registers.input_int[reg::COUNT];
                if count == self.found || registers.input_int[reg::ASKED] != reg::FOLLOW {
                    return Wish::Rest;
                }
                self.take_on(registers, joints_rad, count);
            }
            ProgramState::Following => {
                self.left -= fraction;
                if self.left > OVER {
                    return Wish::Follow;
                }
                self.turn(registers, made_up);
            }
            _ => return Wish::Stop,
        }
        registers.output_int[reg::STATE] = self.state.to_register();
        if self.state == ProgramState::Following {
            self.left += 1.0;
            return Wish::Follow;
        }
        Wish::Stop
    }

    /// The part between the first count and the loop.
    fn take_on(&mut self, registers: &mut Registers, joints_rad: &[f64; 6], count: i32) {
        self.limit = registers.input_int[reg::SILENT_CYCLES];
        self.lookahead_s = registers.input_double[reg::LOOKAHEAD];
        self.gain = registers.input_double[reg::GAIN];
        let usable = reg::SILENT_CYCLES_RANGE.contains(&self.limit)
            && reg::LOOKAHEAD_RANGE_S.contains(&self.lookahead_s)
            && reg::GAIN_RANGE.contains(&self.gain);
        self.targets_rad = *joints_rad;
        self.count = count;
        self.state = if !usable {
            ProgramState::Refused
        } else if far(&asked(registers), joints_rad, reg::BEGIN_RAD) {
            ProgramState::Jump
        } else {
            registers.output_int[reg::COUNT_READ] = count;
            self.left = 0.0;
            ProgramState::Following
        };
    }

    /// One turn of the script's loop.
    fn turn(&mut self, registers: &mut Registers, made_up: bool) {
        let count = registers.input_int[reg::COUNT];
        if count != self.count {
            let targets_rad = asked(registers);
            self.count = count;
            registers.output_int[reg::COUNT_READ] = count;
            let most_rad = reg::MAX_SPEED_RAD_S / f64::from(super::CYCLE_HZ) * f64::from(self.since + 1);
            if registers.input_int[reg::ASKED] != reg::FOLLOW {
                self.state = ProgramState::Asked;
            } else if far(&targets_rad, &self.targets_rad, most_rad) {
                self.state = ProgramState::Jump;
            } else {
                self.targets_rad = targets_rad;
            }
            (self.since, self.silent) = (0, 0);
            return;
        }
        self.since = self.since.saturating_add(1);
        if made_up {
            return;
        }
        self.silent += 1;
        self.missed = self.missed.saturating_add(1);
        self.longest = self.longest.max(self.silent);
        registers.output_int[reg::MISSED] = self.missed;
        registers.output_int[reg::LONGEST] = self.longest;
        if self.silent >= self.limit {
            self.state = ProgramState::Silent;
        }
    }

    /// One cycle of servoj: moves joints and speeds on by `dt_s` of the path. False when the
    /// controller would call the target's change sudden; then nothing has moved.
    pub(super) fn follow(
        &self,
        arm: &Arm,
        joints_rad: &mut [f64; 6],
        speeds_rad_s: &mut [f64; 6],
        dt_s: f64,
    ) -> bool {
        let (mut joints, mut speeds) = (*joints_rad, *speeds_rad_s);
        for joint in 0..6 {
            let ahead_rad = joints[joint] + self.lookahead_s * speeds[joint];
            let acceleration = self.gain * (self.targets_rad[joint] - ahead_rad);
            speeds[joint] += acceleration * dt_s;
            joints[joint] += speeds[joint] * dt_s;
            // Written so that no number counts as sudden.
            let smooth = acceleration.abs() <= SUDDEN_RAD_S2
                && speeds[joint].abs() <= arm.joint_speed_max_rad_s[joint]
                && joints[joint].abs() <= arm.joint_range_rad;
            if !smooth {
                return false;
            }
        }
        (*joints_rad, *speeds_rad_s) = (joints, speeds);
        true
    }
}

/// Slows all joints by `deceleration_rad_s2`; true when they rest.
pub(super) fn brake(
    joints_rad: &mut [f64; 6],
    speeds_rad_s: &mut [f64; 6],
    deceleration_rad_s2: f64,
    dt_s: f64,
) -> bool {
    for (joint, speed) in joints_rad.iter_mut().zip(speeds_rad_s.iter_mut()) {
        *speed = approach(*speed, 0.0, deceleration_rad_s2 * dt_s);
        *joint += *speed * dt_s;
    }
    *speeds_rad_s == [0.0; 6]
}

fn asked(registers: &Registers) -> [f64; 6] {
    std::array::from_fn(|joint| registers.input_double[reg::TARGETS + joint])
}

/// Whether a joint is further away than `most_rad`; no number counts as far.
fn far(a: &[f64; 6], b: &[f64; 6], most_rad: f64) -> bool {
    !a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most_rad)
}

#[cfg(test)]
mod tests {
    use super::super::controller::Controller;
    use super::super::{RuntimeState, SimConfig, SimProgram};
    use super::*;
    use crate::SafetyMode;
    use crate::servo::PROGRAM;

    /// A sender without a wire: what it writes is there in the next cycle.
    struct Bench {
        controller: Controller,
        targets_rad: [f64; 6],
    }

    impl Bench {
        fn new(lookahead_s: f64, gain: f64, limit: i32) -> Self {
            let program = SimProgram::TaktServo;
            let controller = Controller::new(SimConfig { program, ..SimConfig::default() });
            let mut bench = Self { targets_rad: controller.joints_rad, controller };
            let registers = &mut bench.controller.registers;
            registers.input_double[reg::LOOKAHEAD] = lookahead_s;
            registers.input_double[reg::GAIN] = gain;
            registers.input_int[reg::SILENT_CYCLES] = limit;
            registers.input_int[reg::ASKED] = reg::FOLLOW;
            bench
        }

        fn send(&mut self) {
            let registers = &mut self.controller.registers;
            registers.input_int[reg::COUNT] += 1;
            for (joint, target) in self.targets_rad.iter().enumerate() {
                registers.input_double[reg::TARGETS + joint] = *target;
            }
            let now_ns = self.controller.cycles * 2_000_000;
            self.controller.heartbeat(now_ns);
        }

        fn step(&mut self) -> ProgramState {
            let now_ns = self.controller.cycles * 2_000_000;
            self.controller.step(now_ns, false);
            ProgramState::from_register(self.controller.registers.output_int[reg::STATE])
        }

        fn streamed(&mut self, cycles: usize) -> ProgramState {
            let mut state = ProgramState::Waiting;
            for _ in 0..cycles {
                self.send();
                state = self.step();
            }
            state
        }

        /// Steps until the program has ended and the arm rests.
        fn at_rest(&mut self) -> f64 {
            let begin = self.controller.joints_rad[0];
            for _ in 0..2000 {
                self.step();
                if self.controller.runtime == RuntimeState::Stopped {
                    assert_eq!(self.controller.speeds_rad_s, [0.0; 6]);
                    return (self.controller.joints_rad[0] - begin).abs();
                }
            }
            panic!("never at rest: {:?}", self.controller.runtime);
        }
    }

    #[test]
    fn the_arm_is_behind_its_targets_as_users_measured_it() {
        // Universal_Robots_Client_Library, issue 86: servoj(q, 0, 0, 0.002, 0.03, 1200) on a UR10e
        // was 17 cycles behind by cross-correlation of sent and received joints, 2 or 3 of them
        // without servoj.
        let mut bench = Bench::new(0.03, 1200.0, 10);
        let start = bench.targets_rad[0];
        let (mut sent, mut seen) = (Vec::new(), Vec::new());
        for cycle in 0..3000 {
            let t = f64::from(cycle) * 0.002;
            let grown = (t / 2.0).min(1.0);
            bench.targets_rad[0] = start + 0.2 * grown * (1.0 - (2.0 * t).cos());
            bench.send();
            assert_eq!(bench.step(), ProgramState::Following);
            sent.push(bench.targets_rad[0]);
            seen.push(bench.controller.joints_rad[0]);
        }
        let error = |delay: usize| -> f64 {
            (1000..3000).map(|cycle| (seen[cycle] - sent[cycle - delay]).powi(2)).sum()
        };
        let delay = (0..60).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap();
        assert!((14..=15).contains(&delay), "{delay} cycles, expected 17 less the 2 or 3 of the wire");
    }

    #[test]
    fn silence_of_the_allowed_length_stops_and_one_cycle_less_does_not() {
        let mut bench = Bench::new(0.1, 300.0, 10);
        assert_eq!(bench.streamed(50), ProgramState::Following);
        for _ in 0..9 {
            assert_eq!(bench.step(), ProgramState::Following);
        }
        assert_eq!(bench.streamed(1), ProgramState::Following);
        for _ in 0..9 {
            bench.step();
        }
        assert_eq!(bench.step(), ProgramState::Silent);
        assert_eq!(bench.controller.registers.output_int[reg::MISSED], 19);
        assert_eq!(bench.controller.registers.output_int[reg::LONGEST], 10);
        bench.at_rest();
        // Another count alone begins nothing: somebody has to press play.
        bench.streamed(10);
        assert_eq!(bench.controller.runtime, RuntimeState::Stopped);
        assert!(bench.controller.play());
        bench.step();
        assert_eq!(bench.step(), ProgramState::Waiting, "what was there before the play is not heard");
        assert_eq!(bench.streamed(1), ProgramState::Following);
    }

    #[test]
    fn a_jump_is_refused_and_the_arm_brakes_from_full_speed() {
        let mut bench = Bench::new(0.03, 1200.0, 10);
        for cycle in 0..500 {
            bench.targets_rad[0] += 1.5 * 0.002 * f64::from(cycle.min(250)) / 250.0;
            bench.send();
            bench.step();
        }
        assert!((bench.controller.speeds_rad_s[0] - 1.5).abs() < 0.01);
        bench.targets_rad[0] += 0.05;
        assert_eq!(bench.streamed(1), ProgramState::Jump);
        let way = bench.at_rest();
        // v2 / 2a with a = 4 rad/s2: 0.28 rad.
        assert!((0.26..0.30).contains(&way), "{way} rad to rest");
        for wrong in [f64::NAN, f64::INFINITY] {
            let mut bench = Bench::new(0.1, 300.0, 10);
            bench.streamed(5);
            bench.targets_rad[4] = wrong;
            assert_eq!(bench.streamed(1), ProgramState::Jump, "{wrong}");
        }
        let mut bench = Bench::new(0.1, 300.0, 10);
        bench.targets_rad[2] += 0.03;
        assert_eq!(bench.streamed(1), ProgramState::Jump, "the first target is where the arm is");
    }

    #[test]
    fn what_no_joint_can_follow_is_a_protective_stop_of_the_controller() {
        // Within what the script takes for motion, from rest at once: the stiffest servoj would
        // need 60 rad/s2.
        let mut bench = Bench::new(0.03, 2000.0, 10);
        bench.streamed(5);
        for _ in 0..30 {
            bench.targets_rad[5] += 0.006;
            bench.send();
            bench.step();
        }
        assert_eq!(bench.controller.safety_mode, SafetyMode::ProtectiveStop);
        assert!(bench.controller.texts.iter().any(|text| text.starts_with("C204A1")));
        for _ in 0..1000 {
            bench.step();
        }
        assert_eq!(bench.controller.speeds_rad_s, [0.0; 6]);
    }

    #[test]
    fn parameters_outside_the_manual_are_refused() {
        for (lookahead_s, gain, limit) in
            [(0.029, 300.0, 10), (f64::NAN, 300.0, 10), (0.1, 99.0, 10), (0.1, 300.0, 0), (0.1, 300.0, 501)]
        {
            let mut bench = Bench::new(lookahead_s, gain, limit);
            assert_eq!(bench.streamed(1), ProgramState::Refused, "{lookahead_s} {gain} {limit}");
        }
    }

    #[test]
    fn speed_scaling_stretches_servoj_and_the_controllers_watchdog_sees_a_program_that_does_not_turn() {
        let mut bench = Bench::new(0.1, 300.0, 10);
        bench.controller.set_slider(0.5);
        for _ in 0..500 {
            bench.step();
        }
        let turns = |bench: &mut Bench, cycles: usize| {
            let mut read = Vec::new();
            for _ in 0..cycles {
                bench.streamed(1);
                read.push(bench.controller.registers.output_int[reg::COUNT_READ]);
            }
            read.dedup();
            read.len()
        };
        assert_eq!(turns(&mut bench, 100), 50, "every other count is passed over");
        bench.controller.set_slider(0.0);
        bench.streamed(500);
        assert_eq!(turns(&mut bench, 100), 1, "servoj never returns");
        for _ in 0..60 {
            bench.step();
        }
        assert_ne!(bench.controller.runtime, RuntimeState::Playing);
        assert_eq!(bench.controller.watchdog_trips, 1);
    }

    #[test]
    fn the_script_agrees_with_the_registers_and_with_this() {
        let has = |line: &str| assert!(PROGRAM.contains(line), "not in takt_servo.script: {line}");
        has(&format!("takt_count = read_input_integer_register({})", reg::COUNT));
        has(&format!("read_input_integer_register({}) != {}", reg::ASKED, reg::FOLLOW));
        has(&format!("takt_limit = read_input_integer_register({})", reg::SILENT_CYCLES));
        has(&format!("takt_look = read_input_float_register({})", reg::LOOKAHEAD));
        has(&format!("takt_gain = read_input_float_register({})", reg::GAIN));
        has(&format!("return [read_input_float_register({})", reg::TARGETS));
        has(&format!("write_output_integer_register({}, takt_count)", reg::COUNT_READ));
        has(&format!("write_output_integer_register({}, takt_missed)", reg::MISSED));
        has(&format!("write_output_integer_register({}, takt_longest)", reg::LONGEST));
        has(&format!(
            "write_output_integer_register({}, {})",
            reg::STATE,
            ProgramState::Waiting.to_register()
        ));
        has(&format!("write_output_integer_register({}, {} + takt_state)", reg::STATE, 10 * reg::VERSION));
        has(&format!("takt_speed = {}", reg::MAX_SPEED_RAD_S));
        has(&format!("takt_begin = {}", reg::BEGIN_RAD));
        has(&format!("takt_deceleration = {:.1}", reg::DECELERATION_RAD_S2));
        has(&format!(
            "takt_limit < {} or takt_limit > {} or not (takt_look >= {} and takt_look <= {}) or not (takt_gain >= {} and \
             takt_gain <= {})",
            reg::SILENT_CYCLES_RANGE.start(),
            reg::SILENT_CYCLES_RANGE.end(),
            reg::LOOKAHEAD_RANGE_S.start(),
            reg::LOOKAHEAD_RANGE_S.end(),
            reg::GAIN_RANGE.start(),
            reg::GAIN_RANGE.end()
        ));
        has(&format!(
            "rtde_set_watchdog(\"input_int_register_{}\", 0.5 / (takt_limit * get_steptime()), \"stop\")",
            reg::COUNT
        ));
        has("servoj(takt_q, 0, 0, get_steptime(), takt_look, takt_gain)");
        // Blocks and their ends.
        let (mut opened, mut ended) = (0, 0);
        for line in PROGRAM.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            opened += usize::from(["def ", "if ", "while "].iter().any(|word| line.starts_with(word)));
            ended += usize::from(line == "end");
        }
        assert_eq!(opened, ended);
    }
}
