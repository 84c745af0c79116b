//! Anybody's program as a robot: Takt starts a command, waits until it is ready, gives policies and
//! CPUs to its threads by name, and judges their cycles from outside.
//!
//! - [`config`]: the robot's file;
//! - [`placeholder`]: values of a campaign within command, environment and periods;
//! - [`keeper`]: the process that starts the command and ends all of its processes with the run;
//! - `output`: what the command prints;
//! - `ready`: when the command is ready, and which threads its loops are;
//! - `collector`: cycles of the loops on their way into the run directory;
//! - `declared`: what comes of declared loops beside their jobs;
//! - `feed`: the thread that takes the records of declared loops;
//! - `agreement`: declared jobs against what the kernel saw;
//! - [`run`]: the robot of the lab.
//!
//! Rows of a loop come from one of two sources. A loop that the program declares with the library
//! of one's own loop (`takt-sdk`, `takt.h`) is `declared`: its jobs are those that it wrote down,
//! and the kernel's events are compared with them. Every other one is `seen`: its thread is
//! followed by the kernel's events, as `takt watch` does, with nothing added to the program.

mod agreement;
mod collector;
pub mod config;
mod declared;
mod error;
mod feed;
pub mod keeper;
mod output;
pub mod placeholder;
mod ready;
pub mod run;

pub use agreement::Compared;
pub use config::ProgramFile;
pub use declared::StageSummary;
pub use error::ProgramError;
pub use run::{KIND, ProgramSummary};
