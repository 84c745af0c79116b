//! Universal Robots RTDE: the client, and the simulated controller beside it.
//!
//! - [`wire`]: the protocol as bytes;
//! - [`client`]: state in, commands out, for the safety job;
//! - [`arm`]: missions for the program on the robot (`urscript/takt_cell.script`), best effort;
//! - [`servo`]: joint targets streamed into servoj (`urscript/takt_servo.script`);
//! - [`dashboard`]: the controller's dashboard server (play, stop, version);
//! - [`primary`]: the controller's client interface, for the arm's calibrated kinematics;
//! - [`sim`]: a simulated controller on loopback;
//! - [`kinematics`]: where the tool and the links are and how fast they move.
//!
//! **The speed slider and ordinary digital outputs of a UR are not safety-rated.** They slow and
//! stop the arm in normal operation; a risk assessment cannot count on them. Safety functions of
//! the robot go through its safety inputs and its safety configuration.

#![deny(missing_docs)]

pub mod arm;
pub mod client;
pub mod dashboard;
mod error;
mod final_stop;
pub mod kinematics;
mod outgoing;
pub mod primary;
mod recipe;
pub mod servo;
mod session;
pub mod sim;
mod socket;
mod types;
pub mod wire;

pub use error::RtdeError;
pub use types::{Command, RobotMode, RobotState, SafetyMode};
