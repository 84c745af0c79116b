//! Configuration of the monitor.

use serde::{Deserialize, Serialize};

use super::ProtectiveDistance;

/// How a separation becomes a speed.
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
    /// How a separation becomes a speed. `fixed`, as in the paper.
    pub mode: SsmMode,
    /// `fixed`: separation below which the robot slows down, metres. 2.5: 1.34 m (the worked example of the
    /// standard's formula at 1 m/s) plus what a person walks in the 0.7 s that slowing down may take.
    pub reduce_below_m: f64,
    /// `fixed`: separation below which the robot stops, metres. 1.4: the worked example, rounded up.
    pub stop_below_m: f64,
    /// `fixed`: speed fraction between the two thresholds. 0.3.
    pub reduced_speed: f64,
    /// `speed-dependent`: TCP speed at speed fraction 1, m/s; the fraction is scaled by it. 1.0: the UR10e's
    /// usual limit in a collaborative cell.
    pub full_speed_m_s: f64,
    /// `speed-dependent`: fractions below this are a stop, because an arm that creeps neither works nor
    /// looks dangerous. 0.1.
    pub least_speed: f64,
    /// `speed-dependent`: distance added to S_p when the robot is slowed, so that it has slowed down before S_p
    /// itself is breached, which is a stop. 0.4: 1.6 m/s during a quarter of a second.
    pub slowdown_margin_m: f64,
    /// Terms of S_p.
    pub protective: ProtectiveDistance,
    /// Extra separation before the robot may speed up again, metres: above the noise of a distance. 0.15.
    pub hysteresis_m: f64,
    /// How long the extra separation must hold before the robot speeds up, seconds. 0.5.
    pub resume_after_s: f64,
    /// How long every camera and the robot must be valid after a fault, seconds. 1.0: thirty frames.
    pub recover_after_s: f64,
    /// Age of a capture beyond which the camera counts as blind, milliseconds. 120: three periods of 33 ms and
    /// the SSM period; one dropped frame is survived, three are not.
    pub stale_after_ms: f64,
    /// How far in the future a capture may lie before it counts as a fault, milliseconds. 2: one SSM period.
    pub future_tolerance_ms: f64,
    /// Age of the robot's last packet beyond which the link counts as lost, milliseconds. 40: twenty packets.
    pub robot_stale_after_ms: f64,
    /// Whether a robot whose program does not run is a fault. `true`.
    pub require_program: bool,
    /// Distances above this are impossible in this cell, metres. 60: what 16-bit millimetres can hold.
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
            least_speed: 0.1,
            slowdown_margin_m: 0.4,
            protective: ProtectiveDistance::default(),
            hysteresis_m: 0.15,
            resume_after_s: 0.5,
            recover_after_s: 1.0,
            stale_after_ms: 120.0,
            future_tolerance_ms: 2.0,
            robot_stale_after_ms: 40.0,
            require_program: true,
            farthest_m: 60.0,
        }
    }
}

impl SsmConfig {
    /// The largest separation at which the robot is ever stopped, metres: at full speed, after the longest reaction
    /// that is tolerated.
    pub fn largest_stop_distance_m(&self) -> f64 {
        match self.mode {
            SsmMode::Fixed => self.stop_below_m,
            SsmMode::SpeedDependent => {
                self.protective.at(self.full_speed_m_s, 0.0, self.stale_after_ms * 1e-3)
            }
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// A sentence that names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), String> {
        let p = &self.protective;
        for (key, value) in [
            ("reduce_below_m", self.reduce_below_m),
            ("stop_below_m", self.stop_below_m),
            ("full_speed_m_s", self.full_speed_m_s),
            ("stale_after_ms", self.stale_after_ms),
            ("robot_stale_after_ms", self.robot_stale_after_ms),
            ("farthest_m", self.farthest_m),
            ("protective.human_speed_m_s", p.human_speed_m_s),
            ("protective.stopping_time_s", p.stopping_time_s),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("ssm.{key} = {value}: accepted are numbers above 0"));
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
            ("protective.reaction_time_s", p.reaction_time_s),
            ("protective.controller_time_s", p.controller_time_s),
            ("protective.intrusion_m", p.intrusion_m),
            ("protective.human_uncertainty_m", p.human_uncertainty_m),
            ("protective.robot_uncertainty_m", p.robot_uncertainty_m),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("ssm.{key} = {value}: accepted are 0 and numbers above it"));
            }
        }
        for (key, value) in [("reduced_speed", self.reduced_speed), ("least_speed", self.least_speed)] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(format!("ssm.{key} = {value}: accepted are numbers above 0 and up to 1"));
            }
        }
        if self.stop_below_m >= self.reduce_below_m {
            return Err(format!(
                "ssm.stop_below_m = {} must be less than ssm.reduce_below_m = {}",
                self.stop_below_m, self.reduce_below_m
            ));
        }
        Ok(())
    }
}
