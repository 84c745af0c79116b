//! The bodies of the cell's critical threads.

mod perception;
mod ssm;

pub use perception::{PerceptionPorts, PerceptionTask};
pub use ssm::{SsmPorts, SsmTask};
