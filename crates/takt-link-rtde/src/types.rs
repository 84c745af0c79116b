//! What flows over the wire in Takt's terms: the robot's state as it is read, and what Takt asks of
//! it.

use serde::Serialize;

use crate::arm::registers as reg;
use crate::client::Content;

/// Robot mode (`robot_mode`, RTDE guide). Only `Running` means that the arm can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RobotMode {
    /// -1 and any value that the guide does not name.
    #[default]
    NoController,
    /// 0
    Disconnected,
    /// 1
    ConfirmSafety,
    /// 2
    Booting,
    /// 3
    PowerOff,
    /// 4
    PowerOn,
    /// 5
    Idle,
    /// 6
    Backdrive,
    /// 7
    Running,
    /// 8
    UpdatingFirmware,
}

/// Safety mode (`safety_mode`, RTDE guide).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafetyMode {
    /// 1
    Normal,
    /// 2
    Reduced,
    /// 3
    ProtectiveStop,
    /// 4
    Recovery,
    /// 5
    SafeguardStop,
    /// 6
    SystemEmergencyStop,
    /// 7
    RobotEmergencyStop,
    /// 8
    Violation,
    /// 9
    Fault,
    /// Any value that the guide does not name.
    #[default]
    Unknown,
}

/// One RTDE output packet, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct RobotState {
    /// Counts received packets from 1 over all reconnects; 0 means "none yet".
    pub sequence: u64,
    /// When the packet was read, CLOCK_MONOTONIC nanoseconds.
    pub received_ns: u64,
    /// When the controller measured it, CLOCK_MONOTONIC nanoseconds, never after `received_ns`;
    /// equal to it while nothing better is known.
    pub measured_ns: u64,
    /// By how much the measurement may be older than `measured_ns`, beyond the least delay of the
    /// link.
    pub age_error_ns: u64,
    /// Whether this packet is a new measurement by its own time stamp.
    pub content: Content,
    /// How often the controller's clock ran backwards or leapt so far; wraps around.
    pub clock_faults: u32,
    /// What the newest of them was.
    pub clock_fault: Content,
    /// Controller time in seconds (`timestamp`).
    pub controller_s: f64,
    /// Whether the connection is up now.
    pub connected: bool,
    /// Robot mode.
    pub robot_mode: RobotMode,
    /// Safety mode.
    pub safety_mode: SafetyMode,
    /// Whether a program runs (`runtime_state` = 2).
    pub program_running: bool,
    /// Joint angles in radians (`actual_q`).
    pub joints_rad: [f64; 6],
    /// Joint speeds in rad/s (`actual_qd`).
    pub joint_speeds_rad_s: [f64; 6],
    /// TCP position in metres and rotation vector in radians, base frame (`actual_TCP_pose`).
    pub tcp_pose: [f64; 6],
    /// TCP speed in m/s and rad/s, base frame (`actual_TCP_speed`).
    pub tcp_speed: [f64; 6],
    /// Speed fraction that the controller follows (`target_speed_fraction`).
    pub speed_fraction: f64,
    /// Digital outputs (`actual_digital_output_bits`), bit 0 = standard output 0.
    pub digital_outputs: u64,
    /// Echo of the heartbeat register: the newest [`Command::heartbeat`] that the controller has
    /// taken in.
    pub heartbeat_echo: i32,
    /// When `heartbeat_echo` was first seen to have its value, CLOCK_MONOTONIC nanoseconds.
    pub heartbeat_echo_ns: u64,
    /// When `script_echo` was first seen to have its value.
    pub script_echo_ns: u64,
    /// Newest heartbeat that the program on the robot has read and copied back: see
    /// [`registers`](crate::arm::registers).
    pub script_echo: i32,
    /// The program's answer to the newest [`Command::challenge`].
    pub script_answer: i32,
    /// Version of the program's watchdog and whether it is armed.
    pub script_guard: i32,
}

impl RobotState {
    /// A robot that is connected and runs its program, nothing being wrong; all else is 0. Tests
    /// begin with it.
    pub fn running() -> Self {
        Self {
            connected: true,
            robot_mode: RobotMode::Running,
            safety_mode: SafetyMode::Normal,
            program_running: true,
            ..Self::default()
        }
    }
}

/// What the safety job asks for, sent in every SSM cycle. By default a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Command {
    /// Speed slider, 0 (stop) to 1.
    pub speed_fraction: f64,
    /// Values of the standard digital outputs (lights).
    pub digital_outputs: u8,
    /// Which of the standard digital outputs to set.
    pub digital_outputs_mask: u8,
    /// Grows with every command; feeds the robot-side watchdog and comes back as
    /// [`RobotState::heartbeat_echo`].
    pub heartbeat: i32,
    /// A number that the program's watchdog answers, to prove that it is there.
    pub challenge: i32,
}

impl RobotState {
    /// Whether the program on the robot has answered `challenge` with its watchdog armed.
    pub const fn proves(&self, challenge: i32) -> bool {
        self.script_answer == reg::answer(challenge) && self.script_guard == reg::GUARD_ARMED
    }
}

impl RobotMode {
    /// From the value on the wire.
    pub(crate) const fn from_rtde(value: i32) -> Self {
        match value {
            0 => Self::Disconnected,
            1 => Self::ConfirmSafety,
            2 => Self::Booting,
            3 => Self::PowerOff,
            4 => Self::PowerOn,
            5 => Self::Idle,
            6 => Self::Backdrive,
            7 => Self::Running,
            8 => Self::UpdatingFirmware,
            _ => Self::NoController,
        }
    }

    /// The value on the wire.
    pub(crate) const fn to_rtde(self) -> i32 {
        match self {
            Self::NoController => -1,
            Self::Disconnected => 0,
            Self::ConfirmSafety => 1,
            Self::Booting => 2,
            Self::PowerOff => 3,
            Self::PowerOn => 4,
            Self::Idle => 5,
            Self::Backdrive => 6,
            Self::Running => 7,
            Self::UpdatingFirmware => 8,
        }
    }
}

impl SafetyMode {
    /// From the value on the wire.
    pub(crate) const fn from_rtde(value: i32) -> Self {
        match value {
            1 => Self::Normal,
            2 => Self::Reduced,
            3 => Self::ProtectiveStop,
            4 => Self::Recovery,
            5 => Self::SafeguardStop,
            6 => Self::SystemEmergencyStop,
            7 => Self::RobotEmergencyStop,
            8 => Self::Violation,
            9 => Self::Fault,
            _ => Self::Unknown,
        }
    }

    /// The value on the wire; `Unknown` is written as 0, which the guide leaves free.
    pub(crate) const fn to_rtde(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::Normal => 1,
            Self::Reduced => 2,
            Self::ProtectiveStop => 3,
            Self::Recovery => 4,
            Self::SafeguardStop => 5,
            Self::SystemEmergencyStop => 6,
            Self::RobotEmergencyStop => 7,
            Self::Violation => 8,
            Self::Fault => 9,
        }
    }
}
