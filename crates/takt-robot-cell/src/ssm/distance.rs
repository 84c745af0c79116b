//! The protective separation distance and the speed that a given separation allows.

use serde::{Deserialize, Serialize};

/// Terms of the protective separation distance (ISO/TS 15066, 5.5.4; Marvel & Norcross, PMC5117641):
///
/// `S_p = S_h + S_r + S_s + C + Z_d + Z_r`
///
/// with human speed held constant over reaction and stopping, and the robot's stopping path bounded by
/// `v_r * T_s` (no braking credit).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtectiveDistance {
    /// Speed of a walking person towards the robot, m/s. 1.6 after ISO 13855 where it is not measured.
    pub human_speed_m_s: f64,
    /// Speed of a person (an arm) that is already near, m/s. 2.0 after ISO 13855.
    pub near_human_speed_m_s: f64,
    /// Separation below which the near speed counts, metres. 0.5 after ISO 13855.
    pub near_m: f64,
    /// Least reaction time that is assumed, seconds: capture to command. The run's own worst reaction takes
    /// its place as soon as it is larger (`facts`: "T_r is what Takt measures"). 0.1: three camera periods.
    pub reaction_time_s: f64,
    /// Time from the command's arrival at the controller until the controller begins to brake, seconds; added
    /// to the measured reaction. 0.01: one RTDE cycle out, one back and margin.
    pub controller_time_s: f64,
    /// Stopping time of the robot, seconds, from the maker's stop data at the payload and extension in use.
    /// 0.3: stop category 1 of a 10 kg class arm at half extension; replace it with your robot's data.
    pub stopping_time_s: f64,
    /// Intrusion distance C: how far a body part reaches into the field before it is seen, metres. 0.1: what
    /// the camera's resolution at the edge of the field does not separate from the background.
    pub intrusion_m: f64,
    /// Position uncertainty of the person Z_d, metres. 0.1: depth noise of a D435 at 3 m, twice.
    pub human_uncertainty_m: f64,
    /// Position uncertainty of the robot Z_r, metres. 0.01: calibration of the mounting.
    pub robot_uncertainty_m: f64,
}

impl Default for ProtectiveDistance {
    fn default() -> Self {
        Self {
            human_speed_m_s: 1.6,
            near_human_speed_m_s: 2.0,
            near_m: 0.5,
            reaction_time_s: 0.1,
            controller_time_s: 0.01,
            stopping_time_s: 0.3,
            intrusion_m: 0.1,
            human_uncertainty_m: 0.1,
            robot_uncertainty_m: 0.01,
        }
    }
}

impl ProtectiveDistance {
    /// Reaction time T_r in use, seconds: the configured floor or what the run measured, plus the controller.
    pub fn reaction_s(&self, measured_worst_s: f64) -> f64 {
        self.reaction_time_s.max(measured_worst_s) + self.controller_time_s
    }

    fn human_speed(&self, separation_m: f64) -> f64 {
        if separation_m < self.near_m {
            self.near_human_speed_m_s.max(self.human_speed_m_s)
        } else {
            self.human_speed_m_s
        }
    }

    /// S_p in metres for a robot that moves at `robot_speed_m_s` and a person `separation_m` away.
    pub fn at(&self, robot_speed_m_s: f64, separation_m: f64, measured_worst_s: f64) -> f64 {
        let reaction_s = self.reaction_s(measured_worst_s);
        let human = self.human_speed(separation_m) * (reaction_s + self.stopping_time_s);
        let robot_reacting = robot_speed_m_s * reaction_s;
        let robot_stopping = robot_speed_m_s * self.stopping_time_s;
        human + robot_reacting + robot_stopping + self.constants()
    }

    /// The greatest robot speed in m/s at which `separation_m` is still at least S_p; negative when not even a
    /// standing robot satisfies it.
    pub fn allowed_speed(&self, separation_m: f64, measured_worst_s: f64) -> f64 {
        let reaction_s = self.reaction_s(measured_worst_s);
        let total_s = reaction_s + self.stopping_time_s;
        (separation_m - self.human_speed(separation_m) * total_s - self.constants()) / total_s
    }

    fn constants(&self) -> f64 {
        self.intrusion_m + self.human_uncertainty_m + self.robot_uncertainty_m
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_example() {
        // v_r 1 m/s, T_r 0.1 s, T_s 0.3 s, C + Z 0.3 m -> 0.64 + 0.10 + 0.30 + 0.30 = 1.34 m.
        let terms = ProtectiveDistance {
            reaction_time_s: 0.1,
            controller_time_s: 0.0,
            stopping_time_s: 0.3,
            intrusion_m: 0.2,
            human_uncertainty_m: 0.09,
            robot_uncertainty_m: 0.01,
            ..ProtectiveDistance::default()
        };
        assert!((terms.at(1.0, 2.0, 0.0) - 1.34).abs() < 1e-12);
        // 0.2 s were measured: 1.6 * 0.5 + 0.2 + 0.3 + 0.3.
        assert!((terms.at(1.0, 2.0, 0.2) - 1.6).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn allowed_speed_is_the_inverse(separation in 0.0f64..6.0, worst in 0.0f64..0.5) {
            let terms = ProtectiveDistance::default();
            let speed = terms.allowed_speed(separation, worst);
            prop_assert!((terms.at(speed, separation, worst) - separation).abs() < 1e-9);
        }
    }
}
