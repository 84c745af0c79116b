//! The whole quadrotor.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_lab::Envelope;
use takt_rt::config::{SettingError, within};

use crate::control::ControlConfig;
use crate::plant::Limits;
use crate::reference::Reference;
use crate::tasks::{Task, TaskSet};
use crate::vehicle::VehicleConfig;

/// A quadrotor's file: vehicle, control, reference and task set. An empty configuration is the
/// paper's: 10,000 jobs at 250 Hz. Stress and length belong to the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UavConfig {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Attitude jobs after which the flight ends, when the command says no length. 10,000, as in
    /// the paper: 40 s.
    pub iterations: u64,
    /// The attitude loop: the one that is measured.
    #[serde(deserialize_with = "Task::read_attitude")]
    pub attitude: Task,
    /// The position loop.
    #[serde(deserialize_with = "Task::read_position")]
    pub position: Task,
    /// Telemetry and logging.
    #[serde(deserialize_with = "Task::read_telemetry")]
    pub telemetry: Task,
    /// Common settings of the tasks.
    pub tasks: TaskSet,
    /// The flown reference.
    pub reference: Reference,
    /// When a flight counts as lost.
    pub limits: Limits,
    /// The airframe.
    pub vehicle: VehicleConfig,
    /// The cascade's gains.
    pub control: ControlConfig,
}

impl Default for UavConfig {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("uav"),
            iterations: 10_000,
            vehicle: VehicleConfig::default(),
            control: ControlConfig::default(),
            reference: Reference::default(),
            limits: Limits::default(),
            attitude: Task::attitude(),
            position: Task::position(),
            telemetry: Task::telemetry(),
            tasks: TaskSet::default(),
        }
    }
}

impl UavConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("iterations", self.iterations as f64, 1.0, 1e9)?;
        self.vehicle.validate()?;
        self.control.validate()?;
        self.reference.validate()?;
        self.limits.validate()?;
        self.attitude.validate("attitude")?;
        self.position.validate("position")?;
        self.telemetry.validate("telemetry")?;
        if self.position.rate_hz > self.attitude.rate_hz {
            let rate_hz = self.attitude.rate_hz;
            let accepted = format!("accepted is at most the attitude loop's rate, {rate_hz}");
            return Err(SettingError::value("position.rate_hz", self.position.rate_hz, accepted));
        }
        Ok(())
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
        let fast: UavConfig = toml::from_str("[position]\nrate_hz = 100").unwrap();
        assert_eq!(fast.position, Task { rate_hz: 100.0, ..Task::position() }, "the rest of the task stays");
        let text = takt_lab::RobotFile::of(config.clone()).to_toml().unwrap();
        assert_eq!(takt_lab::parse::<UavConfig>(&text).unwrap(), config);
    }

    #[test]
    fn the_shipped_file_is_the_papers_flight() {
        let file: UavConfig = takt_lab::parse(crate::lab::SHIPPED).unwrap();
        assert_eq!(file, UavConfig::default(), "what the shipped file spells out are the defaults");
        let error = takt_lab::parse::<UavConfig>("robot = 'uav'\n[attitude]\npolicy = 'fifo:0'").unwrap_err();
        assert!(error.to_string().contains("line 3") && error.to_string().contains("accepted"), "{error}");
    }

    #[test]
    fn refusals_name_the_key() {
        let refused = |text: &str| takt_lab::parse::<UavConfig>(text).unwrap_err().to_string();
        for (text, key) in [
            ("robot = 'cell'", "\"uav\""),
            ("iterations = 0", "iterations"),
            ("itterations = 5", "itterations"),
            ("[vehicle]\nmass_kg = -1", "vehicle.mass_kg"),
            ("[control]\ntilt_limit_deg = 90", "control.tilt_limit_deg"),
            ("[limits]\ntilt_deg = 0", "limits.tilt_deg"),
            ("[reference]\nkind = 'hover'\nat_m = [0, 0, -1]", "reference.at_m"),
            ("[attitude]\nrate_hz = 0", "attitude.rate_hz"),
            ("[attitude]\npolicy = 'fifo:0'", "priority 0"),
            ("[attitude]\npolicy = 'deadline:5ms/4ms/4ms'", "runtime"),
            ("[attitude]\npolicy = 'deadline:1ms/2ms/2ms'", "attitude.policy"),
            ("[attitude]\nprio = 3", "prio"),
            ("[attitude]\nrate_hz = 20", "position.rate_hz"),
        ] {
            let message = refused(text);
            assert!(message.contains(key), "{message}");
        }
    }
}
