//! The safety cell in the lab: run it, keep its samples, sum them up, compare policies under interference.

pub mod background;
pub mod bench;
pub mod collector;
pub mod designs;
mod file;
pub mod gpu_bench;
mod losses;
pub mod record;
pub mod rows;
pub mod run;
pub mod scale;
mod standing;
pub mod summary;
pub mod tally;
mod verdict;
mod watch;
pub mod work;
pub mod worker_rows;

/// The perception process: runs until its cell ends it. What `takt perception-worker` does.
pub fn perception_worker() -> std::process::ExitCode {
    takt_perception_process::worker::run(&takt_perception_process::worker::judges)
}

pub use file::{CellFile, DEMO, SENTRYRT1};
pub use losses::CellLosses;
pub use summary::CellSummary;
