//! Why nothing could be tuned.

use std::path::PathBuf;

/// Why nothing could be tuned, with the way out. Whatever had been changed has been taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The aim cannot be read.
    #[error(
        "--aim \"{given}\": {reason}; accepted is STATISTIC [lateness|response] [of THREAD] [< LIMIT], the statistic `worst`, `median` or a \
         quantile like p99.9: \"p99.9 lateness of control < 100 us\""
    )]
    Aim {
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing has the rhythm that is needed.
    #[error("{target}: {reason}")]
    NoLoop {
        /// What was watched.
        target: String,
        /// What was seen, and the way out.
        reason: String,
    },
    /// The user stopped it before there was anything to report.
    #[error("stopped before anything was measured; everything was taken back")]
    Stopped,
    /// The loop that is tuned has ended.
    #[error(
        "the tuned loop `{name}` (thread {tid}) ended during the search; everything was taken back. Fix: let it run for longer than --seconds"
    )]
    Ended {
        name: String,
        /// Its thread.
        tid: i32,
    },
    /// Kernel events cannot be had, and without them no lateness is known.
    #[error("the loop cannot be measured without the kernel's events: {0}")]
    NotTraced(String),
    /// Watching failed.
    #[error(transparent)]
    Watch(#[from] takt_watch::WatchError),
    /// The kernel's events failed.
    #[error(transparent)]
    Trace(#[from] takt_trace::TraceError),
    /// The journal of what is changed.
    #[error(transparent)]
    Journal(#[from] takt_host::doctor::DoctorError),
    /// A file could not be written.
    #[error("{path}: {source}. Everything that had been changed was taken back. Fix: name a folder that can be written with --out", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The process that takes everything back after a kill cannot be started.
    #[error(
        "the watchdog that takes everything back after a kill cannot be started: {0}. Nothing is tried without it, and nothing stays changed"
    )]
    Watchdog(std::io::Error),
}
