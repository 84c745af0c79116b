//! A ROS 2 system as a robot of the lab: the latency manager, or a baseline, keeps the goals of its
//! chains, and every chain's latencies are samples like any others (*ROS-Llama*, section VI).
//!
//! What runs is either the built-in workload, with costs that are known, or any command that starts
//! ROS 2 nodes.

mod baseline;
mod chains;
mod costs;
mod file;
mod paper;
mod rows;
mod run;
pub mod view;

pub use baseline::{Given, criticality_monotonic};
pub use file::{ManagerPolicy, NodeKind, RosFile};
pub use rows::{ChainRow, ManagerTable, PhaseCost, PhaseRow, manager_table};
pub use run::KIND;

/// The shipped configuration: the paper's robot, its seven chains.
pub const SHIPPED: &str = include_str!("../../../robots/turtlebot.toml");
