//! Proportional, integral, derivative: the least that a loop can have.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use takt_rt::config::{SettingError, within};

use super::Controller;
use crate::plant::{PlantConfig, Reference, State};

/// Gains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PidConfig {
    /// Of the error. 200.
    pub proportional: f64,
    /// Of its integral, 1/s. 400: a constant load is taken up within a second.
    pub integral: f64,
    /// Of its derivative, s. 20: well damped with the proportional gain for input gains of 1 to 3.
    pub derivative: f64,
}

impl Default for PidConfig {
    fn default() -> Self {
        Self { proportional: 200.0, integral: 400.0, derivative: 20.0 }
    }
}

impl PidConfig {
    pub(crate) fn validate(&self) -> Result<(), SettingError> {
        within("controller.proportional", self.proportional, -1e9, 1e9)?;
        within("controller.integral", self.integral, -1e9, 1e9)?;
        within("controller.derivative", self.derivative, -1e9, 1e9)
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Pid {
    config: PidConfig,
    reference: Reference,
    limit: f64,
    integral: f64,
}

impl Pid {
    /// At rest.
    pub fn new(config: &PidConfig, plant: &PlantConfig, reference: &Reference) -> Self {
        Self { config: config.clone(), reference: *reference, limit: plant.input_limit, integral: 0.0 }
    }
}

impl Controller for Pid {
    fn control(&mut self, t_s: f64, dt_s: f64, x: State) -> f64 {
        let desired = self.reference.at(t_s);
        let (e, de) = (desired.x - x[0], desired.dx - x[1]);
        let PidConfig { proportional, integral, derivative } = self.config;
        let next = self.integral + e * dt_s;
        let u = proportional * e + integral * next + derivative * de;
        // At the limit the integral stands still, unless it helps to leave it: no wind-up.
        if u.abs() <= self.limit || u * integral * e < 0.0 {
            self.integral = next;
        }
        u.clamp(-self.limit, self.limit)
    }
}
