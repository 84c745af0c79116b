//! The stream as a robot of the lab: run it, keep its cycles, say what both sides of the wire saw.

mod collector;
mod run;

pub use collector::{CYCLES, CycleRow};
pub use run::{CONTROLLER_LOG, KIND};
