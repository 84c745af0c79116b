//! The whole quadrotor.

use serde::{Deserialize, Serialize};

use crate::control::ControlConfig;
use crate::plant::Limits;
use crate::reference::Reference;
use crate::tasks::TaskSet;
use crate::vehicle::VehicleConfig;

/// Vehicle, control, reference and task set. An empty configuration is the paper's: 10,000 jobs at 250 Hz.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UavConfig {
    /// Attitude jobs after which the flight ends. 10,000, as in the paper: 40 s.
    pub iterations: u64,
    /// The airframe.
    pub vehicle: VehicleConfig,
    /// The cascade's gains.
    pub control: ControlConfig,
    /// What is flown.
    pub reference: Reference,
    /// When a flight counts as lost.
    pub limits: Limits,
    /// Timing, policies and placement.
    pub tasks: TaskSet,
}

impl Default for UavConfig {
    fn default() -> Self {
        Self {
            iterations: 10_000,
            vehicle: VehicleConfig::default(),
            control: ControlConfig::default(),
            reference: Reference::default(),
            limits: Limits::default(),
            tasks: TaskSet::default(),
        }
    }
}

impl UavConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// A sentence that names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), String> {
        if !(1..=1_000_000_000).contains(&self.iterations) {
            return Err(format!("iterations = {}: accepted are 1 to 1000000000", self.iterations));
        }
        self.vehicle.validate()?;
        self.control.validate()?;
        self.reference.validate()?;
        self.limits.validate()?;
        self.tasks.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_papers_flight() {
        let config: UavConfig = toml::from_str("").unwrap();
        assert_eq!(config, UavConfig::default());
        config.validate().unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<UavConfig>(&text).unwrap(), config);
    }

    #[test]
    fn refusals_name_the_key() {
        let refused = |text: &str| match toml::from_str::<UavConfig>(text) {
            Ok(config) => config.validate().unwrap_err(),
            Err(error) => error.to_string(),
        };
        for (text, key) in [
            ("iterations = 0", "iterations"),
            ("itterations = 5", "itterations"),
            ("[vehicle]\nmass_kg = -1", "vehicle.mass_kg"),
            ("[control]\ntilt_limit_deg = 90", "control.tilt_limit_deg"),
            ("[limits]\ntilt_deg = 0", "limits.tilt_deg"),
            ("[reference]\nkind = 'hover'\nat_m = [0, 0, -1]", "reference.at_m"),
            ("[tasks.attitude]\nperiod = '1us'", "tasks.attitude.period"),
        ] {
            let message = refused(text);
            assert!(message.contains(key), "{message}");
        }
    }
}
