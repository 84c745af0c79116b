//! Configuration of the quadrotor.

use serde::{Deserialize, Serialize};
use takt_robot_uav::UavConfig;
use takt_robot_uav::control::ControlConfig;
use takt_robot_uav::plant::Limits;
use takt_robot_uav::reference::Reference;
use takt_robot_uav::tasks::{Task, TaskSet};
use takt_robot_uav::vehicle::VehicleConfig;
use takt_stats::VerdictConfig;

/// The shipped configuration: the paper's.
pub const SHIPPED: &str = include_str!("../../../../robots/uav.toml");

/// A quadrotor's file: [`UavConfig`] with a name. Stress and length belong to the run ([`crate::RunOptions`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UavFile {
    /// `uav`.
    pub robot: String,
    /// Name for people.
    pub name: String,
    /// Attitude jobs after which the flight ends, when the command says no length. 10,000, as in the paper: 40 s.
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
    /// What the tasks share.
    pub tasks: TaskSet,
    /// What is flown.
    pub reference: Reference,
    /// When a flight counts as lost.
    pub limits: Limits,
    /// The airframe.
    pub vehicle: VehicleConfig,
    /// The cascade's gains.
    pub control: ControlConfig,
    /// What the robot needs: how rarely it may miss, with which confidence. Nothing is claimed by default: any miss is a FAIL then.
    #[serde(default, skip_serializing_if = "VerdictConfig::is_default")]
    pub verdict: VerdictConfig,
}

impl Default for UavFile {
    fn default() -> Self {
        let UavConfig {
            iterations,
            vehicle,
            control,
            reference,
            limits,
            attitude,
            position,
            telemetry,
            tasks,
        } = UavConfig::default();
        Self {
            robot: "uav".to_owned(),
            name: "uav".to_owned(),
            iterations,
            attitude,
            position,
            telemetry,
            tasks,
            reference,
            limits,
            vehicle,
            control,
            verdict: VerdictConfig::default(),
        }
    }
}

impl UavFile {
    /// What the quadrotor itself needs of it.
    pub fn config(&self) -> UavConfig {
        UavConfig {
            iterations: self.iterations,
            vehicle: self.vehicle.clone(),
            control: self.control.clone(),
            reference: self.reference,
            limits: self.limits,
            attitude: self.attitude.clone(),
            position: self.position.clone(),
            telemetry: self.telemetry.clone(),
            tasks: self.tasks.clone(),
        }
    }

    /// How long the flight takes, seconds.
    pub fn expected_seconds(&self) -> f64 {
        self.iterations as f64 / self.attitude.rate_hz
    }

    /// Refuses what cannot be flown.
    ///
    /// # Errors
    /// A sentence with the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), String> {
        if self.robot != "uav" {
            return Err(format!("robot = \"{}\": this file is for \"uav\"", self.robot));
        }
        self.verdict.validate()?;
        self.config().validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_the_papers_flight() {
        let file: UavFile = toml::from_str(SHIPPED).unwrap();
        assert_eq!(file, UavFile::default(), "what the shipped file spells out are the defaults");
        file.validate().unwrap();
        assert_eq!((file.expected_seconds(), file.config()), (40.0, UavConfig::default()));
        let again: UavFile = toml::from_str(&toml::to_string(&file).unwrap()).unwrap();
        assert_eq!(again, file);
    }

    #[test]
    fn refusals_name_key_and_line() {
        let refused = |text: &str| match toml::from_str::<UavFile>(text) {
            Ok(file) => file.validate().unwrap_err(),
            Err(error) => error.to_string(),
        };
        let error = refused("robot = 'uav'\n[attitude]\npolicy = 'fifo:0'");
        assert!(error.contains("line 3") && error.contains("accepted"), "{error}");
        assert!(refused("iterration = 4").contains("iterations"));
        assert!(refused("robot = 'cell'").contains("\"uav\""));
        assert!(refused("[attitude]\npolicy = 'deadline:400us/4ms/5ms'").contains("attitude.policy"));
    }
}
