//! Configuration of the monitor.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use super::{ProtectiveDistance, ReactionTime};
use crate::tasks::TaskSet;
use takt_rt::config::{SettingError, within};

/// Relation between separation and speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SsmMode {
    /// Two fixed thresholds, reduce and stop (SentryRT-1, section III).
    Fixed,
    /// The protective separation distance at the robot's speed (ISO/TS 15066).
    SpeedDependent,
}

/// Configuration of the monitor (`[ssm]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SsmConfig {
    /// Relation between separation and speed. `fixed`, as in the paper.
    pub mode: SsmMode,
    /// `fixed`: separation below which the robot slows down, metres. 2.5: 1.34 m (the worked
    /// example of the standard's formula at 1 m/s) plus what a person walks in the 0.7 s that
    /// slowing down may take.
    pub reduce_below_m: f64,
    /// `fixed`: separation below which the robot stops, metres. 1.4: the worked example, rounded
    /// up.
    pub stop_below_m: f64,
    /// `fixed`: speed fraction between the two thresholds. 0.3.
    pub reduced_speed: f64,
    /// TCP speed at speed fraction 1 that the program never exceeds, m/s. `speed-dependent` scales
    /// the fraction by it, and in either mode a tool that moves faster than the commanded share of
    /// it is a fault. 1.0: the UR10e's usual limit in a collaborative cell.
    pub full_speed_m_s: f64,
    /// `speed-dependent`: fractions below this are a stop, because an arm that creeps neither works
    /// nor looks dangerous. 0.1.
    pub min_speed: f64,
    /// `speed-dependent`: distance added to S_p when the robot is slowed, so that it has slowed
    /// down before S_p itself is breached, which is a stop. 0.4: 1.6 m/s during a quarter of a
    /// second.
    pub slowdown_margin_m: f64,
    /// Terms of S_p.
    pub protective: ProtectiveDistance,
    /// Extra separation before the robot may speed up again, metres: above the noise of a distance.
    /// 0.15.
    pub hysteresis_m: f64,
    /// Time for which the extra separation must hold before the robot speeds up, seconds. 0.5.
    pub resume_after_s: f64,
    /// Time for which every camera and the robot must be valid after a fault, seconds. 1.0: thirty
    /// frames.
    pub recover_after_s: f64,
    /// Age of a capture beyond which the camera counts as blind, milliseconds. 120: three periods
    /// of 33 ms and the SSM period; one dropped frame is survived, three are not.
    pub stale_after_ms: f64,
    /// Largest distance of a capture into the future before it counts as a fault, milliseconds. 2:
    /// one SSM period.
    pub future_tolerance_ms: f64,
    /// Age of the robot's last packet beyond which the link counts as lost, milliseconds. 40:
    /// twenty packets.
    pub robot_stale_after_ms: f64,
    /// Age of the robot's state by its content (the controller's own clock, followed) beyond which
    /// it is not used, milliseconds. 40: twenty packets; an e-Series controller sends one every 2
    /// ms.
    pub robot_state_age_ms: f64,
    /// Time from a command until its heartbeat must have come back, through the controller and
    /// through the program on the robot, milliseconds. 40: a round trip takes 4 to 8.
    pub ack_after_ms: f64,
    /// Commands in a row that may fail to leave this computer. 5: 10 ms at 500 Hz.
    pub send_failures: u32,
    /// Whether a robot whose program does not run is a fault. `true`.
    pub require_program: bool,
    /// Whether the program on the robot must prove Takt's watchdog (`takt_watchdog.script`) by
    /// answering challenges. `true`: nothing else stops the robot when this computer dies. A strict
    /// run does not start without the proof; a lenient one that found none at its start goes on and
    /// its verdict says so.
    pub require_watchdog: bool,
    /// `fixed`: accepts a `stop_below_m` below S_p at full speed. `false`: such a threshold stops
    /// the robot after it may have touched somebody. With `true` the thresholds come from your own
    /// risk assessment; the run says so.
    pub accept_short_stop_distance: bool,
    /// Distances above this are impossible in this cell, metres. 60: what 16-bit millimetres can
    /// hold.
    pub farthest_m: f64,
}

impl Default for SsmConfig {
    fn default() -> Self {
        Self {
            mode: SsmMode::Fixed,
            reduce_below_m: 2.5,
            stop_below_m: 1.4,
            reduced_speed: 0.3,
            full_speed_m_s: 1.0,
            min_speed: 0.1,
            slowdown_margin_m: 0.4,
            protective: ProtectiveDistance::default(),
            hysteresis_m: 0.15,
            resume_after_s: 0.5,
            recover_after_s: 1.0,
            stale_after_ms: 120.0,
            future_tolerance_ms: 2.0,
            robot_stale_after_ms: 40.0,
            robot_state_age_ms: 40.0,
            ack_after_ms: 40.0,
            send_failures: 5,
            require_program: true,
            require_watchdog: true,
            accept_short_stop_distance: false,
            farthest_m: 60.0,
        }
    }
}

impl SsmConfig {
    /// Within what time the robot's motion must show a command, milliseconds: it has arrived, the
    /// controller has begun to brake, and the stop has been driven.
    pub(crate) fn obey_within_ms(&self) -> f64 {
        self.ack_after_ms + (self.protective.controller_time_s + self.protective.stopping_time_s) * 1e3
    }

    /// The largest separation at which the robot is ever stopped, metres: at full speed, after the
    /// longest reaction that is tolerated.
    pub(crate) fn largest_stop_distance_m(&self, tasks: &TaskSet) -> f64 {
        match self.mode {
            SsmMode::Fixed => self.stop_below_m,
            SsmMode::SpeedDependent => {
                let tolerated_s = ReactionTime::of(self, tasks).sum_s();
                let reaction_s = self.protective.reaction_time_s.unwrap_or(0.0).max(tolerated_s);
                self.protective.at(self.full_speed_m_s, 0.0, reaction_s)
            }
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let refused = |key: &str, value: f64, accepted: &str| {
            Err(SettingError::value(format!("ssm.{key}"), value, accepted))
        };
        let p = &self.protective;
        for (key, value) in [
            ("reduce_below_m", self.reduce_below_m),
            ("stop_below_m", self.stop_below_m),
            ("full_speed_m_s", self.full_speed_m_s),
            ("stale_after_ms", self.stale_after_ms),
            ("robot_stale_after_ms", self.robot_stale_after_ms),
            ("robot_state_age_ms", self.robot_state_age_ms),
            ("ack_after_ms", self.ack_after_ms),
            ("farthest_m", self.farthest_m),
            ("protective.human_speed_m_s", p.human_speed_m_s),
            ("protective.stopping_time_s", p.stopping_time_s),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return refused(key, value, "accepted are numbers above 0");
            }
        }
        for (key, value) in [
            ("slowdown_margin_m", self.slowdown_margin_m),
            ("hysteresis_m", self.hysteresis_m),
            ("resume_after_s", self.resume_after_s),
            ("recover_after_s", self.recover_after_s),
            ("future_tolerance_ms", self.future_tolerance_ms),
            ("protective.near_human_speed_m_s", p.near_human_speed_m_s),
            ("protective.near_m", p.near_m),
            ("protective.reaction_time_s", p.reaction_time_s.unwrap_or(0.0)),
            ("protective.controller_time_s", p.controller_time_s),
            ("protective.intrusion_m", p.intrusion_m),
            ("protective.human_uncertainty_m", p.human_uncertainty_m),
            ("protective.robot_uncertainty_m", p.robot_uncertainty_m),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return refused(key, value, "accepted are 0 and numbers above it");
            }
        }
        for (key, value) in [("reduced_speed", self.reduced_speed), ("min_speed", self.min_speed)] {
            if !(value > 0.0 && value <= 1.0) {
                return refused(key, value, "accepted are numbers above 0 and up to 1");
            }
        }
        within("ssm.send_failures", f64::from(self.send_failures), 1.0, 500.0)?;
        if self.obey_within_ms().is_nan() || self.obey_within_ms() > 10_000.0 {
            let keys = format!(
                "ssm.ack_after_ms = {}, ssm.protective.controller_time_s = {}, ssm.protective.stopping_time_s = {}",
                self.ack_after_ms, p.controller_time_s, p.stopping_time_s
            );
            return Err(SettingError::conflict(keys, "a stop must not take longer than 10 s"));
        }
        if self.stop_below_m >= self.reduce_below_m {
            let accepted = format!("accepted: less than ssm.reduce_below_m = {}", self.reduce_below_m);
            return refused("stop_below_m", self.stop_below_m, &accepted);
        }
        Ok(())
    }
}
