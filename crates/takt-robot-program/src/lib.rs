//! Anybody's program as a robot: Takt starts a command, waits until it is ready, gives policies and
//! CPUs to its threads by name, and judges their cycles from outside.
//!
//! - [`config`]: the robot's file;
//! - [`placeholder`]: values of a campaign within command, environment and periods;
//! - [`keeper`]: the process that starts the command and ends all of its processes with the run;
//! - `output`: what the command prints;
//! - `ready`: when the command is ready, and which threads its loops are;
//! - `collector`: cycles of the loops on their way into the run directory;
//! - [`run`]: the robot of the lab.
//!
//! Nothing is added to the program. Its threads are followed by the kernel's events, as `takt
//! watch` does: the source of every row is `seen`.

mod collector;
pub mod config;
mod error;
pub mod keeper;
mod output;
pub mod placeholder;
mod ready;
pub mod run;

pub use config::ProgramFile;
pub use error::ProgramError;
pub use run::{KIND, ProgramSummary};
