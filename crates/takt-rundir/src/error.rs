//! Errors of files.

use std::path::PathBuf;

/// Errors of run directories. Each names the file, what was found and what belongs there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A file is not what it should be.
    #[error("{path}: {found}; expected {expected}", path = path.display())]
    Damaged { path: PathBuf, found: String, expected: &'static str },
    /// There is no run directory where one was named.
    #[error("{path}: expected a run directory, which has a run.json; {found}", path = path.display())]
    NoRun { path: PathBuf, found: NotARun },
    /// There is no run directory, and no folder of some, where one was named.
    #[error(
        "{path}: expected a run directory, which has a run.json, or a folder of run directories; {found}", path = path.display()
    )]
    NoRuns { path: PathBuf, found: NotARun },
    /// A run could not be written while it went on, and what of it is in memory is not on the disk.
    #[error(
        "the run could not be written ({}: {why}). The figures shown come from memory; {rows_lost} rows of samples are lost, and the run \
         is not sealed{kept}. Fix: make room (`df -h`, `df -i`), leave the folder where it is, raise `ulimit -n`, or name another folder \
         with --runs", path.display()
    )]
    Unwritten {
        /// The first path that could not be written.
        path: PathBuf,
        /// The system's answer.
        why: String,
        /// Rows of sample files that are nowhere.
        rows_lost: u64,
        /// The place of the rest, in words; empty if it is lost.
        kept: String,
    },
}

/// The kind of thing found instead of a run directory.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotARun {
    /// Nothing.
    #[error(
        "it does not exist. `takt run` and `takt campaign run` print the folder that they create; the default is takt-runs"
    )]
    Nothing,
    /// A file.
    #[error("this is a file. Name the folder that contains it")]
    File,
    /// A campaign, or another folder of runs.
    #[error("this is a folder with {runs} runs in it. Name one of them, such as {}", first.display())]
    Folder {
        /// Their number.
        runs: usize,
        /// The first by name.
        first: PathBuf,
    },
    /// An empty folder.
    #[error("this folder is empty")]
    Empty,
    /// Another folder.
    #[error("neither this folder nor the folders in it have one")]
    Other,
}

impl Error {
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Statements in a run's header that cannot be meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Limits or a confidence that no claim can have.
    #[error(transparent)]
    Claim(#[from] takt_stats::ClaimError),
    /// A claim about a measure that never misses.
    #[error("verdict.measures.{measure}: this measure has no deadline")]
    NoDeadline { measure: String },
    /// A claim about a measure that is not there.
    #[error("verdict.measures.{measure}: accepted are {}", accepted.join(", "))]
    NoMeasure {
        /// The measure that was asked for.
        measure: String,
        /// The measures that have a deadline.
        accepted: Vec<String>,
    },
    /// No rate at which samples come.
    #[error("measure {measure}: rate_hz = {rate_hz}")]
    Rate { measure: String, rate_hz: f64 },
}
