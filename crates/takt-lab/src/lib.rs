//! Runs robots and keeps what was measured: run directories, benches, verdicts.
//!
//! A run leaves one [`takt_rundir::RunDir`]: what was asked, what the kernel really granted, the machine, the
//! samples, the events. Summaries and verdicts are computed from run directories only.

pub mod builtin;
pub mod campaign;
pub mod cell;
mod collect;
pub mod cyclic;
pub mod daq;
mod error;
pub mod humanoid;
pub mod jobs;
mod journal;
pub mod keeper;
pub mod kernels;
pub mod options;
mod releases;
pub mod resume;
pub mod robot;
pub mod ros;
mod session;
pub mod summary;
pub mod trace;
pub mod uav;

pub use error::{LabError, last_words};
pub use options::{Interference, RunOptions, Target, View};
pub use robot::{Event, RobotFile};
pub use summary::{RunSummary, SeriesSummary};
