//! Gains and limits of the cascade.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within};

/// `[control]`. Gains are accelerations over errors: multiplied by mass and inertia inside, so they
/// hold for any vehicle of this kind. The paper gives none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Acceleration over position error, 1/s². 6: a natural frequency of 2.4 rad/s, a sixth of the
    /// attitude loop's.
    pub position_p_s2: f64,
    /// Acceleration over velocity error, 1/s. 4: damping 0.8.
    pub position_d_s: f64,
    /// Acceleration over the integral of the position error, 1/s³. 1.5: removes what drag and mass
    /// errors leave, slowly enough not to overshoot.
    pub position_i_s3: f64,
    /// Distance within which the integral works, m. 0.3: farther away, on a step, it would only add
    /// overshoot.
    pub integral_zone_m: f64,
    /// Greatest acceleration that the integral may ask for, m/s². 2.
    pub integral_limit_m_s2: f64,
    /// Greatest horizontal acceleration from errors and feed-forward, m/s². 8.
    pub horizontal_limit_m_s2: f64,
    /// Greatest vertical acceleration up or down, m/s². 5: the vehicle keeps some thrust to steer
    /// with.
    pub vertical_limit_m_s2: f64,
    /// Lead with which the reference's acceleration is fed forward relative to position and
    /// velocity, ms. 110: about the lag of the attitude loop (2·0.8/15 s) and the rotors.
    pub acceleration_lead_ms: f64,
    /// Greatest desired tilt, degrees. 40.
    pub tilt_limit_deg: f64,
    /// Angular acceleration over the angle error of roll and pitch, 1/s². 220: 15 rad/s.
    pub tilt_p_s2: f64,
    /// Angular acceleration over roll and pitch rate, 1/s. 24: damping 0.8; the rotors' lag of 12
    /// to 25 ms leaves enough phase.
    pub tilt_d_s: f64,
    /// Angular acceleration over the yaw error, 1/s². 16: rotor drag turns weakly, so yaw is slow.
    pub yaw_p_s2: f64,
    /// Angular acceleration over the yaw rate, 1/s. 7.
    pub yaw_d_s: f64,
    /// Greatest angular acceleration asked of roll and pitch, rad/s². 80: three fifths of what full
    /// opposite rotors give on the default vehicle.
    pub tilt_acceleration_limit_rad_s2: f64,
    /// Greatest angular acceleration asked of yaw, rad/s². 10.
    pub yaw_acceleration_limit_rad_s2: f64,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            position_p_s2: 6.0,
            position_d_s: 4.0,
            position_i_s3: 1.5,
            integral_zone_m: 0.3,
            integral_limit_m_s2: 2.0,
            horizontal_limit_m_s2: 8.0,
            vertical_limit_m_s2: 5.0,
            acceleration_lead_ms: 110.0,
            tilt_limit_deg: 40.0,
            tilt_p_s2: 220.0,
            tilt_d_s: 24.0,
            yaw_p_s2: 16.0,
            yaw_d_s: 7.0,
            tilt_acceleration_limit_rad_s2: 80.0,
            yaw_acceleration_limit_rad_s2: 10.0,
        }
    }
}

impl ControlConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        all_within(
            "control.",
            &[
                ("position_p_s2", self.position_p_s2, 0.0, 1e3),
                ("position_d_s", self.position_d_s, 0.0, 1e3),
                ("position_i_s3", self.position_i_s3, 0.0, 1e3),
                ("integral_zone_m", self.integral_zone_m, 0.0, 1e3),
                ("integral_limit_m_s2", self.integral_limit_m_s2, 0.0, 9.0),
                ("horizontal_limit_m_s2", self.horizontal_limit_m_s2, 0.1, 100.0),
                ("vertical_limit_m_s2", self.vertical_limit_m_s2, 0.1, 9.0),
                ("acceleration_lead_ms", self.acceleration_lead_ms, 0.0, 1e3),
                ("tilt_limit_deg", self.tilt_limit_deg, 1.0, 80.0),
                ("tilt_p_s2", self.tilt_p_s2, 0.0, 1e5),
                ("tilt_d_s", self.tilt_d_s, 0.0, 1e4),
                ("yaw_p_s2", self.yaw_p_s2, 0.0, 1e5),
                ("yaw_d_s", self.yaw_d_s, 0.0, 1e4),
                ("tilt_acceleration_limit_rad_s2", self.tilt_acceleration_limit_rad_s2, 0.1, 1e5),
                ("yaw_acceleration_limit_rad_s2", self.yaw_acceleration_limit_rad_s2, 0.1, 1e5),
            ],
        )?;
        Ok(())
    }
}
