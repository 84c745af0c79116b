//! Universal Robots RTDE: the client, and the simulated controller beside it.

mod types;

pub use types::{Command, RobotMode, RobotState, SafetyMode};
