//! A ROS 2 system as a robot of the lab: the latency manager, or a baseline, keeps the goals of its
//! chains, and every chain's latencies are samples like any others (*ROS-Llama*, section VI).
//!
//! Under the baselines nothing of Takt runs beside the nodes (module `plain`). Latencies are those
//! that the nodes wrote down themselves, under every policy.
//!
//! The system is either the built-in workload, with known costs, or any command that starts ROS 2
//! nodes.

mod baseline;
mod chains;
mod costs;
mod file;
mod known;
mod load;
mod nodes;
pub mod notices;
mod paper;
mod plain;
mod rows;
mod run;
pub mod view;

pub use baseline::{Given, criticality_monotonic};
pub use file::{ManagerPolicy, NodeKind, RosFile};
pub use load::{Load, LoadMachine, LoadReport, cores};
pub use rows::{ChainRow, ManagerTable, ObservingRow, PhaseCost, PhaseRow, StepRow, manager_table};
pub use run::KIND;

/// The shipped configuration: the paper's robot, its seven chains.
pub const SHIPPED: &str = include_str!("../../../robots/turtlebot.toml");
