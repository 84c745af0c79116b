//! Errors of one run of a campaign; the others continue.

use std::path::PathBuf;
use std::process::ExitStatus;

use takt_kernels::transport::JobEnding;

/// Reason why a run could not be made. Its text is what the campaign keeps and its table shows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFailure {
    /// It was ended with the campaign.
    #[error("interrupted")]
    Interrupted,
    /// It ended as if all were well and left no whole run directory.
    #[error("the run ended without a seal")]
    NotSealed,
    /// A file or folder that it needs.
    #[error(transparent)]
    Files(#[from] takt_rundir::Error),
    /// The process that made it failed.
    #[error("{status}: {message}")]
    Process {
        /// Exit status of the run.
        status: ExitStatus,
        /// Its last message.
        message: String,
    },
    /// A run in a guest names no kernel.
    #[error("the run names no kernel")]
    NoKernel,
    /// Its kernel is not to be had.
    #[error(transparent)]
    Kernel(#[from] takt_kernels::packages::PackageError),
    /// The kernel's modules cannot be read.
    #[error(transparent)]
    Image(#[from] takt_kernels::image::ImageError),
    /// The guest could not be run to its end.
    #[error(transparent)]
    Guest(#[from] takt_kernels::RunError),
    /// The guest ended and said nothing about its job.
    #[error("the guest reported nothing about its run")]
    Silent,
    /// The job in the guest failed.
    #[error("{ending}: {message}. Console: {console}", console = console.display())]
    Job {
        ending: JobEnding,
        /// Its last message.
        message: String,
        /// The guest's console output.
        console: PathBuf,
    },
    /// It failed on another machine, whose journal has the text alone.
    #[error("{0}")]
    Elsewhere(String),
}
