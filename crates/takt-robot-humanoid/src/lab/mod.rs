//! The humanoid in the lab: 59 devices over EtherCAT at 1 kHz, on a simulated segment or a real
//! one.

mod bench;
mod collector;
mod file;
mod further;
mod late;
mod latency;
mod paper;
mod report;
mod rows;
mod run;
mod wire;

pub use bench::{HumanoidBench, bench};
pub use file::{HumanoidFile, Losses, OomVictim, SHIPPED, SegmentOptions, WireKind};
pub use late::{LATE, LATE_CAUSES_FILE, LateCauses, LateFrame, LateFrameCause, LateRow};
pub use latency::{Cycles, LatencyRow};
pub use rows::{CYCLES, CycleRow, LATENCIES};
pub use run::KIND;

/// The humanoid could not be started.
#[derive(Debug, thiserror::Error)]
#[error("humanoid: {0}")]
pub struct HumanoidError(String);

fn failed(error: impl std::fmt::Display) -> takt_lab::LabError {
    takt_lab::LabError::robot(HumanoidError(error.to_string()))
}
