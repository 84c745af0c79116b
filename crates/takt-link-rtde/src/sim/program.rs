//! Program on the simulated controller: `takt_watchdog.script`, and a user's own motion.

use super::controller::Registers;
use super::motion::Move;
use crate::arm::registers as reg;
use crate::kinematics::Arm;

/// Half the way of a user's own program, rad, and its speed and acceleration.
const SWING_RAD: f64 = 0.6;
const SWING_RAD_S: f64 = 1.0;
const SWING_RAD_S2: f64 = 1.4;

/// The running program's own memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// Heartbeat and challenge that were there when the program began: they belong to the past.
    found: [i32; 2],
    armed: bool,
    /// The watchdog's thread hangs: a fault.
    pub(super) hung: bool,
    swings: u64,
}

impl Program {
    /// `takt_watchdog_start()`.
    pub(super) fn begin(&mut self, registers: &mut Registers) {
        self.found = [registers.input_int[reg::HEARTBEAT], registers.input_int[reg::CHALLENGE]];
        self.armed = false;
        registers.output_int[reg::SCRIPT_ECHO] = 0;
        registers.output_int[reg::ANSWER] = 0;
        registers.output_int[reg::GUARD] = reg::GUARD_WAITING;
    }

    /// One turn of the watchdog's thread; whether what comes after `takt_watchdog_start()` may run.
    pub(super) fn look(&mut self, registers: &mut Registers) -> bool {
        if self.hung {
            return self.armed;
        }
        let [beat, challenge] = [registers.input_int[reg::HEARTBEAT], registers.input_int[reg::CHALLENGE]];
        if !self.armed && beat != self.found[0] && challenge != self.found[1] {
            self.armed = true;
            registers.output_int[reg::GUARD] = reg::GUARD_ARMED;
        }
        if self.armed {
            registers.output_int[reg::SCRIPT_ECHO] = beat;
            registers.output_int[reg::ANSWER] = reg::answer(challenge);
        }
        self.armed
    }

    /// Whether silence would stop the robot.
    pub(super) const fn watches(&self) -> bool {
        self.armed && !self.hung
    }

    /// The heartbeat is silent and the program ends.
    pub(super) fn end(&mut self, registers: &mut Registers) {
        self.armed = false;
        registers.output_int[reg::GUARD] = reg::GUARD_WAITING;
    }

    /// The next move of a user's own program: to and fro with the base joint.
    pub(super) fn swing(&mut self, arm: &Arm, from: [f64; 6], middle: &[f64; 6]) -> Option<Move> {
        self.swings += 1;
        let mut to = *middle;
        to[0] += if self.swings.is_multiple_of(2) { -SWING_RAD } else { SWING_RAD };
        Move::new(arm, from, to, SWING_RAD_S, SWING_RAD_S2)
    }
}
