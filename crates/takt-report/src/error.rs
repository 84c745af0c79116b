//! Errors of a report.

use std::path::PathBuf;

/// Errors of reports, comparisons and exports.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run directory or a file could not be read or written.
    #[error(transparent)]
    RunDir(#[from] takt_rundir::Error),
    /// There are run directories, and none of them can be read.
    #[error("none of {found} run directories can be read: {reasons}")]
    NothingReadable { found: usize, reasons: String },
    /// No run has what was asked for.
    #[error("no run has the measure \"{asked}\"; there are: {there}")]
    NoSuchMeasure { asked: String, there: String },
    /// The recorder of a long run cannot be joined with others.
    #[error("{run}: {source}")]
    Recorder { run: String, source: takt_stats::RecorderError },
    /// Not every value of a run can be had.
    #[error("{run}: {remark}")]
    NotWhole { run: String, remark: String },
    /// A file for viewers could not be written.
    #[error("MCAP: {0}")]
    Mcap(String),
    /// Two things cannot be compared.
    #[error(
        "the machines differ, so a difference may come from them rather than from the change under test: {differences}; pass \
         --across-machines to compare anyway"
    )]
    MachinesDiffer { differences: String },
    /// Nothing on one side matches anything on the other.
    #[error("nothing to compare: {reason}")]
    NothingInCommon { reason: String },
    /// A run, or a folder of summaries, cannot be shipped as a result.
    #[error("{run} cannot be used as a result: {why}")]
    NotShippable {
        /// The run or the folder.
        run: String,
        /// The reason, and the way out.
        why: String,
    },
    /// A measure is not the same thing in two runs.
    #[error("\"{measure}\" is {expected} in one run and {found} in another, so they cannot be combined")]
    MixedMeasure {
        measure: String,
        /// Its value in the first.
        expected: String,
        /// Its value in the other.
        found: String,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::RunDir(takt_rundir::Error::Io { path, source })
    }
}
