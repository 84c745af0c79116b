//! The general purpose registers through which Takt and `urscript/takt_servo.script` talk.
//!
//! | register | who writes | what |
//! |---|---|---|
//! | `input_int_register_24` | Takt | count, one more with every command; also watched by `rtde_set_watchdog` |
//! | `input_int_register_25` | Takt | [`FOLLOW`] or [`STOP`] |
//! | `input_int_register_26` | Takt | control cycles without a new count after which the program stops the arm, 1 to 500; read once |
//! | `input_double_register_24` to `29` | Takt | target joint angles, rad |
//! | `input_double_register_30` | Takt | `lookahead_time` of servoj, 0.03 to 0.2 s; read once |
//! | `input_double_register_31` | Takt | `gain` of servoj, 100 to 2000; read once |
//! | `input_double_register_32` | Takt | `timestamp` of the state that the command answers; the program does not read it, a log of the controller reports by it how old commands are |
//! | `output_int_register_29` | program | newest count that it has read |
//! | `output_int_register_30` | program | ten times its version, and its state ([`ProgramState`]) |
//! | `output_int_register_31` | program | control cycles without a new count since it follows |
//! | `output_int_register_32` | program | most such cycles in a row |

/// Input integer register of the count: the heartbeat of the other scripts.
pub const COUNT: usize = crate::arm::registers::HEARTBEAT;
/// Input integer register of what is asked.
pub const ASKED: usize = 25;
/// Input integer register of the cycles of silence that are allowed.
pub const SILENT_CYCLES: usize = 26;
/// First input double register of the targets.
pub const TARGETS: usize = 24;
/// Input double register of servoj's `lookahead_time`.
pub const LOOKAHEAD: usize = 30;
/// Input double register of servoj's `gain`.
pub const GAIN: usize = 31;
/// Input double register of the state's time stamp.
pub const ANSWERED: usize = 32;

/// Output integer register of the newest count that the program has read.
pub const COUNT_READ: usize = 29;
/// Output integer register of version and state.
pub const STATE: usize = 30;
/// Output integer register of the cycles without a new count.
pub const MISSED: usize = 31;
/// Output integer register of the most such cycles in a row.
pub const LONGEST: usize = 32;

/// [`ASKED`]: follow the targets.
pub const FOLLOW: i32 = 1;
/// [`ASKED`]: stop.
pub const STOP: i32 = 2;

/// Version of this agreement.
pub const VERSION: i32 = 1;

/// Range of servoj's `lookahead_time` in seconds (URScript manual).
pub const LOOKAHEAD_RANGE_S: std::ops::RangeInclusive<f64> = 0.03..=0.2;
/// Range of servoj's `gain` (URScript manual).
pub const GAIN_RANGE: std::ops::RangeInclusive<f64> = 100.0..=2000.0;
/// Range of the silence that the program allows, control cycles.
pub const SILENT_CYCLES_RANGE: std::ops::RangeInclusive<i32> = 1..=500;

/// Fastest target that the program follows, rad/s (`takt_speed`).
pub const MAX_SPEED_RAD_S: f64 = 3.2;
/// Largest distance of the first target from the arm, rad (`takt_begin`).
pub const BEGIN_RAD: f64 = 0.02;
/// Deceleration by stopj, rad/s² (`takt_deceleration`).
pub const DECELERATION_RAD_S2: f64 = 4.0;

/// State of the program on the robot, by its own account ([`STATE`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramState {
    /// Another program, none, or another version of it: the register's value.
    Foreign(i32),
    /// Waits for the first command.
    #[default]
    Waiting,
    /// Follows the targets.
    Following,
    /// Has stopped the arm: no new count for too long.
    Silent,
    /// Has stopped the arm: a target too far from the one before.
    Jump,
    /// Has stopped the arm: it was asked to.
    Asked,
    /// Has not begun: parameters out of range.
    Refused,
}

impl ProgramState {
    /// From the register's value.
    pub const fn from_register(value: i32) -> Self {
        match value.wrapping_sub(10 * VERSION) {
            0 => Self::Waiting,
            1 => Self::Following,
            2 => Self::Silent,
            3 => Self::Jump,
            4 => Self::Asked,
            5 => Self::Refused,
            _ => Self::Foreign(value),
        }
    }

    /// The register's value.
    pub const fn to_register(self) -> i32 {
        let state = match self {
            Self::Foreign(value) => return value,
            Self::Waiting => 0,
            Self::Following => 1,
            Self::Silent => 2,
            Self::Jump => 3,
            Self::Asked => 4,
            Self::Refused => 5,
        };
        10 * VERSION + state
    }
}
