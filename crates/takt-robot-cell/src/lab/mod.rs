//! The safety cell in the lab: run it, keep its samples, sum them up, compare policies under
//! interference.

pub mod background;
pub mod bench;
pub mod builtin;
pub mod collector;
pub mod designs;
mod device;
mod file;
pub mod gpu_bench;
pub mod gpu_check;
mod header;
mod inspect;
mod losses;
mod paper;
mod questions;
pub mod record;
mod report;
pub mod rows;
pub mod run;
pub mod scale;
mod standing;
pub mod summary;
pub mod tally;
mod verdict;
mod views;
mod watch;
pub mod work;
pub mod worker_rows;

/// The perception process: runs until its cell ends it. This is the command
/// `takt perception-worker`.
pub fn perception_worker() -> std::process::ExitCode {
    takt_perception::process::worker::run(&takt_perception::process::judges)
}

pub use file::{CameraMode, CellFile, DEMO, LIVE, SENTRYRT1, SYNTHETIC};
pub use losses::CellLosses;
pub use run::KIND;
pub use summary::CellSummary;

impl From<crate::CellError> for takt_lab::LabError {
    fn from(error: crate::CellError) -> Self {
        Self::robot(error)
    }
}

/// The view could not be started.
#[derive(Debug, thiserror::Error)]
#[error("view: {0}")]
struct ViewError(#[from] takt_view::Error);

impl From<ViewError> for takt_lab::LabError {
    fn from(error: ViewError) -> Self {
        Self::robot(error)
    }
}
