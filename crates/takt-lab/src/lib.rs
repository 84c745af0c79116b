//! Runs robots and keeps what was measured: run directories, benches, verdicts.
//!
//! A run leaves one [`takt_rundir::RunDir`]: what was asked, what the kernel really granted, the machine, the
//! samples, the events. Summaries and verdicts are computed from run directories only.

pub mod builtin;
pub mod cell;
mod error;

pub use error::LabError;
