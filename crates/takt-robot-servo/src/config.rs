//! The robot's file. Unknown keys are errors.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_lab::Envelope;
use takt_link_rtde::client::RtdeConfig;
use takt_link_rtde::servo::registers as reg;
use takt_link_rtde::sim::{SimConfig, SimProgram};
use takt_rt::config::{SettingError, within};
use takt_rt::memory::MemoryLock;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

pub use crate::limits::LimitsConfig;
use crate::motion::{MotionConfig, Trajectory};

/// The shipped file.
pub const SHIPPED: &str = include_str!("../../../robots/servo.toml");

/// The whole robot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServoConfig {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Length of a run, seconds, when the command says nothing. Default 32: 16,000 commands, and
    /// sixteen swings of the default motion.
    pub seconds: f64,
    /// Limits of losses before a run fails.
    pub losses: LossesConfig,
    /// Connection to the controller.
    pub link: RtdeConfig,
    /// A simulated controller that is started beside the stream, on free ports unless its own say
    /// otherwise; `link.host` and `link.port` are then its. Absent: `link` says where the
    /// controller is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulator: Option<SimConfig>,
    /// Parameters of following.
    pub servoj: ServojConfig,
    /// Its motion.
    pub motion: MotionConfig,
    /// Limits of the stream.
    pub limits: LimitsConfig,
    /// The thread.
    pub task: TaskConfig,
}

impl Default for ServoConfig {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("servo"),
            seconds: 32.0,
            losses: LossesConfig::default(),
            link: RtdeConfig::default(),
            simulator: None,
            servoj: ServojConfig::default(),
            motion: MotionConfig::default(),
            limits: LimitsConfig::default(),
            task: TaskConfig::default(),
        }
    }
}

/// Limits of losses (`[losses]`); more fails a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossesConfig {
    /// Control cycles that no packet reported. Default 0.
    pub max_lost_packets: u64,
    /// Control cycles without a new command, by the count of the program on the robot. Default 0:
    /// the arm slows down in each.
    pub max_missed_commands: u64,
}

/// Parameters of following (`[servoj]`), sent to `takt_servo.script` with the first command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServojConfig {
    /// `lookahead_time`, 0.03 to 0.2 s: the arm is about so far behind its targets. Default 0.1,
    /// the maker's: smooth; 0.03 follows closest and shows every unevenness of the stream in the
    /// arm.
    pub lookahead_s: f64,
    /// `gain`, 100 to 2000. Default 300, the maker's.
    pub gain: f64,
    /// Control cycles without a new command after which the program on the robot stops the arm, 1
    /// to 500. Default 10: 20 ms, time for a few lost cycles and, at 1 rad/s, a hundredth of a turn
    /// of the joint.
    pub silent_cycles: i32,
}

impl Default for ServojConfig {
    fn default() -> Self {
        Self { lookahead_s: 0.1, gain: 300.0, silent_cycles: 10 }
    }
}

/// When a cycle begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// With the controller's packet; where none comes, half a period after it was expected. Every
    /// command answers the newest state, and the controller finds one in each of its cycles.
    #[default]
    Locked,
    /// On a grid of this machine's own clock. The grid drifts against the controller's, which then
    /// now and then finds two commands in a cycle, or none.
    Free,
}

/// The thread (`[task]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskConfig {
    /// When a cycle begins. Default `locked`.
    pub pacing: Pacing,
    /// Scheduling policy. Default `fifo:90`: below the kernel's own threads at 99, above everything
    /// else of this robot.
    pub policy: Policy,
    /// CPUs; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Memory locking of the process. Default `all`: a page fault in a cycle is a latency of its
    /// own.
    pub lock_memory: MemoryLock,
    /// Sleep method of a free-running thread. Default `kernel`.
    pub sleep: SleepStrategy,
    /// Whether to refuse to run when the kernel does not grant all this. Default false: the run is
    /// labelled.
    pub strict: bool,
    /// Deadline of a command, microseconds after its release. Default 500: a quarter of the period,
    /// so that a command is at the controller well before the cycle that uses it.
    pub deadline_us: u64,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            pacing: Pacing::default(),
            policy: Policy::Fifo { priority: 90 },
            cpus: None,
            lock_memory: MemoryLock::All,
            sleep: SleepStrategy::default(),
            strict: false,
            deadline_us: 500,
        }
    }
}

impl TaskConfig {
    /// Requested settings of the thread.
    pub fn settings(&self) -> ThreadSettings {
        ThreadSettings::of_task(self.policy, self.cpus, self.lock_memory, self.strict)
    }
}

impl ServoConfig {
    /// Control cycles a second.
    pub fn rate_hz(&self) -> f64 {
        self.link.frequency_hz
    }

    /// Length of a control cycle.
    pub fn period_ns(&self) -> u64 {
        (1e9 / self.rate_hz()).round() as u64
    }

    /// Judges all values, the motion against the limits.
    ///
    /// # Errors
    /// [`SettingError`] names the key.
    pub fn validate(&self) -> Result<(), SettingError> {
        let policy = self.task.policy.validate();
        policy.map_err(|error| SettingError::conflict("task.policy", error.to_string()))?;
        within("seconds", self.seconds, 0.1, 40.0 * 86_400.0)?;
        within("losses.max_lost_packets", self.losses.max_lost_packets as f64, 0.0, 1e6)?;
        within("losses.max_missed_commands", self.losses.max_missed_commands as f64, 0.0, 1e6)?;
        self.link.check().map_err(|error| error.within_section("link."))?;
        // Below, a cycle is no control cycle of any of these controllers: CB-series 125 Hz,
        // e-Series 500 Hz.
        within("link.frequency_hz", self.rate_hz(), 125.0, 500.0)?;
        let (look, gain) = (reg::LOOKAHEAD_RANGE_S, reg::GAIN_RANGE);
        within("servoj.lookahead_s", self.servoj.lookahead_s, *look.start(), *look.end())?;
        within("servoj.gain", self.servoj.gain, *gain.start(), *gain.end())?;
        let silent = reg::SILENT_CYCLES_RANGE;
        let cycles = f64::from(self.servoj.silent_cycles);
        within("servoj.silent_cycles", cycles, f64::from(*silent.start()), f64::from(*silent.end()))?;
        let limits = &self.limits;
        within("limits.speed_rad_s", limits.speed_rad_s, 0.001, reg::MAX_SPEED_RAD_S)?;
        within("limits.acceleration_rad_s2", limits.acceleration_rad_s2, 0.001, 30.0)?;
        within("limits.stale_cycles", f64::from(limits.stale_cycles), 1.0, 500.0)?;
        within("limits.skipped_cycles", f64::from(limits.skipped_cycles), 0.0, 500.0)?;
        within("limits.speed_fraction", limits.speed_fraction, 0.0, 1.0)?;
        within("limits.following_error_rad", limits.following_error_rad, 0.001, 3.0)?;
        within("task.deadline_us", self.task.deadline_us as f64, 1.0, 1e6)?;
        let lag_rad = self.servoj.lookahead_s * limits.speed_rad_s;
        if limits.following_error_rad < lag_rad {
            let accepted = format!(
                "accepted: at least {lag_rad} here, the distance by which servoj lags (servoj.lookahead_s at limits.speed_rad_s); raise \
                 it, or lower one of those"
            );
            return Err(SettingError::value(
                "limits.following_error_rad",
                limits.following_error_rad,
                accepted,
            ));
        }
        if let Some(simulator) = &self.simulator {
            simulator.check().map_err(|error| error.within_section("simulator."))?;
            if simulator.program != SimProgram::TaktServo {
                let accepted = "accepted: \"takt-servo\", the only program that follows a stream";
                return Err(SettingError::value(
                    "simulator.program",
                    format!("{:?}", simulator.program),
                    accepted,
                ));
            }
        }
        Trajectory::new(&self.motion, limits, self.rate_hz()).map(|_| ())
    }
}
