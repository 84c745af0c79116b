//! The humanoid in the lab: 59 devices over EtherCAT at 1 kHz, on a simulated segment or a real one.

mod bench;
mod collector;
mod file;
mod latency;
mod rows;
mod run;
mod wire;

pub use bench::{HumanoidBench, bench};
pub use file::{HumanoidFile, Losses, SHIPPED, SegmentOptions, WireKind};
pub use latency::{Cycles, LatencyRow};
pub use rows::{CYCLES, CycleRow, LATENCIES};
pub(crate) use run::measures;
pub use run::run;
