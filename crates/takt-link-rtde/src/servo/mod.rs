//! Joint streaming: a target for every joint in every control cycle, which
//! `urscript/takt_servo.script` hands to servoj.
//!
//! [`ServoLink`] is for one real-time thread that reads the controller's packets and answers them
//! by itself, without a receiver thread between the packet and the command. It does not reconnect:
//! a stream that breaks is a stop.

mod link;
mod recipe;
pub mod registers;

pub use link::ServoLink;
pub use registers::ProgramState;

use crate::{RobotMode, SafetyMode};

/// The program for the robot, `urscript/takt_servo.script`.
pub const PROGRAM: &str = include_str!("../../urscript/takt_servo.script");

/// One RTDE output packet of a stream, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ServoState {
    /// Counts packets from 1; 0 means "none yet".
    pub sequence: u64,
    /// When the packet was read, CLOCK_MONOTONIC nanoseconds.
    pub received_ns: u64,
    /// Controller time in seconds (`timestamp`).
    pub controller_s: f64,
    /// Joint angles in radians (`actual_q`).
    pub joints_rad: [f64; 6],
    /// Joint speeds in rad/s (`actual_qd`).
    pub joint_speeds_rad_s: [f64; 6],
    /// Robot mode.
    pub robot_mode: RobotMode,
    /// Safety mode.
    pub safety_mode: SafetyMode,
    /// Whether a program runs (`runtime_state` = 2).
    pub program_running: bool,
    /// Speed fraction of the slider that the controller follows (`target_speed_fraction`).
    pub speed_fraction: f64,
    /// Newest count that the program has read.
    pub count_read: i32,
    /// State of the program.
    pub program: ProgramState,
    /// Control cycles without a new count since the program follows, by its own account.
    pub missed: i32,
    /// Most such cycles in a row.
    pub longest: i32,
}

/// One command of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServoCommand {
    /// One more than in the command before; wraps around.
    pub count: i32,
    /// [`registers::FOLLOW`] or [`registers::STOP`].
    pub asked: i32,
    /// Cycles of silence after which the program stops.
    pub silent_cycles: i32,
    /// Target joint angles in radians.
    pub targets_rad: [f64; 6],
    /// `lookahead_time` of servoj, seconds.
    pub lookahead_s: f64,
    /// `gain` of servoj.
    pub gain: f64,
    /// `timestamp` of the state that this answers.
    pub answered_s: f64,
}
