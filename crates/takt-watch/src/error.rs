//! Why nothing can be watched.

use takt_trace::TraceError;

/// Why nothing can be watched, with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Nothing that was named is there.
    #[error("{target}: nothing of it runs now; `ps -eLo pid,tid,comm` lists processes and threads")]
    Nobody {
        /// What was named.
        target: String,
    },
    /// The kernel's events ended.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run directory.
    #[error(transparent)]
    Files(#[from] takt_rundir::Error),
    /// The picture of the worst windows.
    #[error("{path}: {source}")]
    Picture {
        /// The file.
        path: std::path::PathBuf,
        /// What was wrong.
        source: takt_trace::perfetto::PerfettoError,
    },
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
