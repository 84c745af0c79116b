//! The safety cell in the lab: run it, keep its samples, sum them up.

pub mod bench;
pub mod rows;
pub mod summary;

pub use summary::CellSummary;
