//! The configuration of a ROS 2 system in the lab.

#![deny(missing_docs)]

use std::fmt;

use serde::{Deserialize, Serialize};
use takt_lab::{ConfigError, Envelope};
use takt_manager::Goals;
use takt_ros_workload::System;
use takt_rt::config::{SettingError, within};

use super::load::{Load, LoadReport, cores};

/// Scheduler of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerPolicy {
    /// The latency manager: reservations from an analysis.
    Takt,
    /// The paper's manager, and nothing beyond it.
    RosLlama,
    /// The paper's second baseline: executors of chains under SCHED_RR, the later in the
    /// degradation order the higher.
    Rr,
    /// The paper's first baseline: the kernel's fair scheduler, nothing done.
    Cfs,
}

impl ManagerPolicy {
    /// The manager that plans; `None`: a baseline.
    #[must_use]
    pub fn manager(self) -> Option<takt_manager::Policy> {
        match self {
            Self::Takt => Some(takt_manager::Policy::Takt),
            Self::RosLlama => Some(takt_manager::Policy::RosLlama),
            Self::Rr | Self::Cfs => None,
        }
    }
}

impl fmt::Display for ManagerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Takt => "takt",
            Self::RosLlama => "ros-llama",
            Self::Rr => "rr",
            Self::Cfs => "cfs",
        })
    }
}

/// Kind of the workload's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Real `rclcpp` nodes where ROS 2 and the package `takt_bench` are found, else Takt's own.
    #[default]
    Auto,
    /// Takt's own processes, which behave like nodes.
    Processes,
    /// Real nodes; a run without them is refused.
    Rclcpp,
}

/// `robot = "ros"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RosFile {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Scheduler of the nodes. The manager by default.
    #[serde(default = "policy")]
    pub policy: ManagerPolicy,
    /// Length of the measured window, seconds; the workload's load phases divide it equally. 66 s:
    /// each of the paper's three phases then sees a plan made from what it brought, and a chain of
    /// five a second comes to the 300 completions that a PASS takes.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Time before the window, seconds, in which the system runs and is learnt. 7 s: the first plan
    /// comes after 6.
    #[serde(default = "learn_seconds")]
    pub learn_seconds: f64,
    /// Ends the run when the manager cannot reserve CPU time at all; otherwise such a run is
    /// labelled and goes on.
    #[serde(default)]
    pub strict: bool,
    /// A command that starts ROS 2 nodes; the workload below otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Kind of the workload's nodes: `auto`, `processes`, `rclcpp`. `auto` measures a real system
    /// if possible.
    #[serde(default)]
    pub nodes: NodeKind,
    /// Goals, as in a goals file: `degradation_order`, `[[goals.chain]]`, `[goals.options]`.
    pub goals: toml::Table,
    /// The load of the built-in mobile robot: `paper`, or the heavier `eight-trackers`.
    #[serde(default, skip_serializing_if = "is_papers")]
    pub load: Load,
    /// The workload: nodes with known costs; the built-in mobile robot when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<System>,
}

fn is_papers(load: &Load) -> bool {
    *load == Load::Paper
}

fn policy() -> ManagerPolicy {
    ManagerPolicy::Takt
}

fn seconds() -> f64 {
    66.0
}

fn learn_seconds() -> f64 {
    7.0
}

impl RosFile {
    /// Checks what no type does.
    ///
    /// # Errors
    /// [`ConfigError`] names what is wrong and what is accepted.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("seconds", self.seconds, 0.1, 1e7)?;
        within("learn_seconds", self.learn_seconds, 0.0, 3600.0)?;
        if self.command.as_ref().is_some_and(Vec::is_empty) {
            let expected = "expected a program and its arguments";
            return Err(SettingError::value("command", "[]", expected).into());
        }
        if self.command.is_some() && self.workload.is_some() {
            return Err(SettingError::conflict("command and workload", "expected one of them").into());
        }
        if self.load != Load::Paper && (self.command.is_some() || self.workload.is_some()) {
            let expected = "expected none of the others, which belong to the built-in robot";
            return Err(SettingError::conflict("load", expected).into());
        }
        self.goals()?;
        if let Some(system) = &self.workload {
            system.validate().map_err(ConfigError::robot)?;
        }
        Ok(())
    }

    /// The goals.
    ///
    /// # Errors
    /// [`ConfigError::Robot`] names what is wrong in the table.
    pub fn goals(&self) -> Result<Goals, ConfigError> {
        let text = toml::to_string(&self.goals).map_err(ConfigError::robot)?;
        Goals::parse(&text, "goals").map_err(ConfigError::robot)
    }

    /// The workload, as it is described.
    #[must_use]
    pub fn described(&self) -> System {
        self.workload.clone().unwrap_or_else(|| self.load.system())
    }

    /// The workload, fitted to the cores of this machine.
    #[must_use]
    pub fn system(&self) -> System {
        self.described().fitted(cores()).0
    }

    /// Facts about the load on a machine with this processor; `None`: it is a command's, and
    /// unknown.
    #[must_use]
    pub fn load_report(&self, cpu: Option<String>) -> Option<LoadReport> {
        let name = if self.workload.is_some() { "own".to_owned() } else { self.load.to_string() };
        self.command.is_none().then(|| LoadReport::of(&name, &self.described(), cpu))
    }

    /// Duration of a run.
    #[must_use]
    pub fn expected_seconds(&self) -> f64 {
        self.seconds + self.learn_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> RosFile {
        takt_lab::parse(crate::SHIPPED).unwrap()
    }

    #[test]
    fn the_shipped_file_has_the_papers_seven_chains_and_the_repositorys_goals() {
        let file = shipped();
        let goals = file.goals().unwrap();
        assert_eq!(goals.chains.len(), 7);
        let alone = Goals::parse(include_str!("../../../goals/turtlebot.toml"), "goals").unwrap();
        assert_eq!((goals.chains, goals.degradation_order), (alone.chains, alone.degradation_order));
    }

    #[test]
    fn every_shipped_goals_file_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goals");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let read: Vec<Goals> = files.map(|path| Goals::read(&path).unwrap()).collect();
        assert!(read.len() >= 2);
    }

    #[test]
    fn policies_have_their_names_in_files_and_those_of_the_manager() {
        use ManagerPolicy::{Cfs, RosLlama, Rr, Takt};
        for policy in [Takt, RosLlama, Rr, Cfs] {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.to_string());
            if let Some(manager) = policy.manager() {
                assert_eq!(manager.to_string(), policy.to_string());
            }
        }
        assert_eq!((Rr.manager(), Cfs.manager()), (None, None));
    }

    #[test]
    fn mistakes_are_named() {
        let mut file = shipped();
        file.command = Some(Vec::new());
        assert!(file.validate().unwrap_err().to_string().contains("expected a program"));
        file.command = Some(vec!["ros2".to_owned()]);
        file.workload = Some(System::turtlebot());
        assert!(file.validate().unwrap_err().to_string().contains("one of them"));
        file.workload = None;
        file.load = Load::EightTrackers;
        assert!(file.validate().unwrap_err().to_string().contains("load"));
        let mut file = shipped();
        file.goals.insert("chains".to_owned(), toml::Value::Integer(3));
        assert!(file.validate().unwrap_err().to_string().contains("chains"));
    }
}
