//! Missions for the arm: which moves the program on the robot makes, best effort, in seconds.
//!
//! The program on the robot (`urscript/takt_cell.script`, or the simulator) executes one [`Step`]
//! at a time; the runner writes it into RTDE registers, over a connection of its own, and waits
//! until the program says that it is finished. It needs no clock: when the safety job slows or
//! stops the robot, the step just takes longer. See [`registers`] for who writes what.

mod mission;
pub mod registers;
mod runner;
mod upload;

pub use mission::{Mission, Step, Target};
pub use runner::{Arm, MissionEvent, MissionProgress, MissionThread, StepOutcome, run};
pub use upload::{PROGRAM, WATCHDOG, upload_program};
