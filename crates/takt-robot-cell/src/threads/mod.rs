//! The bodies of the cell's critical threads.

mod perception;
mod ssm;
mod visualise;

pub use perception::{Judging, PerceptionPorts, PerceptionTask};
pub use ssm::{SsmPorts, SsmTask};
pub use visualise::{VisualisationPorts, VisualisationTask};
