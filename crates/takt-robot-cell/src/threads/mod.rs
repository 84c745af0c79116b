//! The bodies of the cell's critical threads.

mod perception;
mod ssm;

pub use perception::{Judging, PerceptionPorts, PerceptionTask};
pub use ssm::{SsmPorts, SsmTask};
