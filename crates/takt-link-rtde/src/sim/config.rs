//! Properties of the simulated controller (`[robot.simulator]`, `takt simulate`).

use serde::{Deserialize, Serialize};
use std::f64::consts::{FRAC_PI_2, TAU};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use takt_rt::config::SettingError;

use crate::kinematics::{Arm, Model};

/// Action of the robot-side watchdog when the heartbeat stops (`rtde_set_watchdog`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchdogAction {
    /// The program pauses; `play` goes on where it was.
    Pause,
    /// The program stops; `play` starts it afresh, and it waits for Takt before anything moves.
    #[default]
    Stop,
}

/// Addends to the nominal Denavit-Hartenberg parameters, joint by joint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// To the joint angles, radians.
    pub theta_rad: [f64; 6],
    /// To the link lengths, metres.
    pub a_m: [f64; 6],
    /// To the link offsets, metres.
    pub d_m: [f64; 6],
    /// To the link twists, radians.
    pub alpha_rad: [f64; 6],
}

impl Calibration {
    /// The arm that a nominal one is with it.
    pub fn of(&self, nominal: &Arm) -> Arm {
        let add = |to: &[f64; 6], delta: &[f64; 6]| std::array::from_fn(|joint| to[joint] + delta[joint]);
        Arm {
            theta_rad: add(&nominal.theta_rad, &self.theta_rad),
            a_m: add(&nominal.a_m, &self.a_m),
            d_m: add(&nominal.d_m, &self.d_m),
            alpha_rad: add(&nominal.alpha_rad, &self.alpha_rad),
            ..*nominal
        }
    }
}

/// Program of the simulated controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimProgram {
    /// `takt_watchdog.script` and `takt_cell.script`: moves as the mission says.
    #[default]
    TaktCell,
    /// A user's own program that swings the base joint by itself and includes
    /// `takt_watchdog.script`.
    OwnWithWatchdog,
    /// A user's own program that swings the base joint by itself and knows nothing of Takt.
    Own,
    /// `takt_servo.script`: follows streamed joint targets.
    TaktServo,
}

impl SimProgram {
    /// Whether it includes `takt_watchdog.script`.
    pub(crate) const fn has_watchdog(self) -> bool {
        !matches!(self, Self::Own | Self::TaktServo)
    }
}

/// The simulated controller's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// Address to listen on. Default 127.0.0.1; RTDE has no authentication, so only loopback is
    /// accepted.
    pub address: IpAddr,
    /// RTDE port. Default 30004, as on a robot; 0 takes a free one.
    pub rtde_port: u16,
    /// Dashboard port. Default 29999, as on a robot; 0 takes a free one.
    pub dashboard_port: u16,
    /// Port of the primary client interface, which reports the arm's kinematics. Default: 30001 as
    /// on a robot, where `rtde_port` is a robot's, too; else, and for 0, a free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_port: Option<u16>,
    /// Version that the controller reports: major, minor, bug fix, build. Default 5.12.2.1101534,
    /// an e-Series version that current clients accept.
    pub controller_version: [u32; 4],
    /// Variables that this controller lacks, to see how clients take it. Default none.
    pub missing_variables: Vec<String>,
    /// Model of the arm. Default `ur10e`.
    pub model: Model,
    /// Difference of this arm from the nominal one, as of every real arm. Default: not at all.
    pub calibration: Calibration,
    /// Whether rendered cameras see this arm. Default false: a cell whose cameras do not look at
    /// the arm is cheaper to render.
    pub drawn: bool,
    /// Joint angles at the start, in radians. Default: tool down, in front of the base.
    pub start_joints_rad: [f64; 6],
    /// Tool centre point in the flange frame: metres and rotation vector. Default 0.2 m along the
    /// flange axis: a suction gripper with the camera ring behind it.
    pub tcp: [f64; 6],
    /// Rate at which the speed fraction follows the slider, per second. Default 4: full speed to
    /// standstill in 0.25 s. A modelling choice near a stop of category 1 or 2 at moderate speed; a
    /// real arm's stop time and way come from the maker's stop data for its speed, payload and
    /// reach.
    pub slider_rate_per_s: f64,
    /// Rate at which a pause, a stop or the watchdog slows the arm, per second. Default 4, for the
    /// same reason.
    pub pause_rate_per_s: f64,
    /// Rate at which protective stop, emergency stop and power-off slow the arm, per second.
    /// Default 10: brakes.
    pub emergency_rate_per_s: f64,
    /// Whether a program runs at the start. Default true: nobody stands at the simulated pendant.
    pub autoplay: bool,
    /// The program that it plays. Default `takt-cell`.
    pub program: SimProgram,
    /// Least rate of heartbeats in Hz, as in `takt_watchdog.script`. Default 10: a safety job at
    /// 500 Hz misses 50 cycles before the robot stops by itself.
    pub watchdog_min_hz: f64,
    /// Action of the watchdog. Default stop, as the shipped script.
    pub watchdog_action: WatchdogAction,
    /// Whether the program plays again by itself once the heartbeat is back. Default false, as on a
    /// real robot, where a person or the dashboard presses play.
    pub watchdog_auto_resume: bool,
    /// Real-time priority (SCHED_FIFO, 1 to 99) of the simulator's thread, 0 for none. Default 0.
    /// The real controller has a computer of its own: under heavy interference give the simulator a
    /// priority, else it starves and looks like a lost link. Without the privilege the simulator
    /// runs without and says so.
    pub fifo_priority: u8,
    /// Path of the controller's own log, a CSV row for every cycle: commands as they arrived, the
    /// arm's motion, and the time (CLOCK_MONOTONIC). Default none: 60 kB a second.
    pub log: Option<PathBuf>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            rtde_port: 30004,
            dashboard_port: 29999,
            primary_port: None,
            controller_version: [5, 12, 2, 1_101_534],
            missing_variables: Vec::new(),
            model: Model::Ur10e,
            calibration: Calibration::default(),
            drawn: false,
            start_joints_rad: [0.0, -FRAC_PI_2, -FRAC_PI_2, -FRAC_PI_2, FRAC_PI_2, 0.0],
            tcp: [0.0, 0.0, 0.2, 0.0, 0.0, 0.0],
            slider_rate_per_s: 4.0,
            pause_rate_per_s: 4.0,
            emergency_rate_per_s: 10.0,
            autoplay: true,
            program: SimProgram::default(),
            watchdog_min_hz: 10.0,
            watchdog_action: WatchdogAction::default(),
            watchdog_auto_resume: false,
            fifo_priority: 0,
            log: None,
        }
    }
}

impl SimConfig {
    /// The default on free ports, for tests and for several simulators at once.
    pub fn on_free_ports() -> Self {
        Self { rtde_port: 0, dashboard_port: 0, ..Self::default() }
    }

    /// The arm that is simulated.
    pub fn arm(&self) -> Arm {
        self.calibration.of(&self.model.arm())
    }

    pub(super) fn primary_port(&self) -> u16 {
        let fixed = SimConfig::default().rtde_port;
        let default = if self.rtde_port == fixed { crate::primary::PRIMARY_PORT } else { 0 };
        self.primary_port.unwrap_or(default)
    }

    /// Judges the values.
    ///
    /// # Errors
    /// [`SettingError`] names the key and what it accepts.
    pub fn check(&self) -> Result<(), SettingError> {
        let refuse = |key: &str, received: String, accepted: &str| {
            Err(SettingError::value(key, received, format!("accepted: {accepted}")))
        };
        if !self.address.is_loopback() {
            return refuse("address", self.address.to_string(), "a loopback address (127.0.0.0/8 or ::1)");
        }
        let rates = [
            ("slider_rate_per_s", self.slider_rate_per_s),
            ("pause_rate_per_s", self.pause_rate_per_s),
            ("emergency_rate_per_s", self.emergency_rate_per_s),
        ];
        for (key, value) in rates {
            if !(0.1..=500.0).contains(&value) {
                return refuse(key, value.to_string(), "0.1 to 500 per second");
            }
        }
        if !(0.1..=500.0).contains(&self.watchdog_min_hz) {
            return refuse("watchdog_min_hz", self.watchdog_min_hz.to_string(), "0.1 to 500");
        }
        if self.start_joints_rad.iter().any(|angle| !(-TAU..=TAU).contains(angle)) {
            return refuse(
                "start_joints_rad",
                format!("{:?}", self.start_joints_rad),
                "six angles within ±2π",
            );
        }
        if self.tcp.iter().any(|value| !(-10.0..=10.0).contains(value)) {
            return refuse("tcp", format!("{:?}", self.tcp), "metres and radians within ±10");
        }
        let Calibration { theta_rad, a_m, d_m, alpha_rad } = &self.calibration;
        let mut deltas = theta_rad.iter().chain(a_m).chain(d_m).chain(alpha_rad);
        if deltas.any(|delta| !(-1.0..=1.0).contains(delta)) {
            return refuse("calibration", format!("{:?}", self.calibration), "metres and radians within ±1");
        }
        if self.fifo_priority > 99 {
            return refuse("fifo_priority", self.fifo_priority.to_string(), "0 (none) to 99");
        }
        Ok(())
    }
}
