//! The safety cell in the lab: run it, keep its samples, sum them up, compare policies under interference.

pub mod bench;
mod collector;
mod file;
pub mod record;
pub mod rows;
pub mod run;
pub mod summary;

pub use file::{CellFile, DEMO};
pub use summary::CellSummary;
