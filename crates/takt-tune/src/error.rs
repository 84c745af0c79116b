//! Errors of tuning.

use std::path::PathBuf;

/// Reason why nothing could be tuned, with the way out. Whatever had been changed has been taken
/// back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The aim cannot be read.
    #[error(
        "--aim \"{given}\": {reason}; expected STATISTIC [lateness|response] [of THREAD] [< LIMIT], the statistic `worst`, `median` or a \
         quantile like p99.9: \"p99.9 lateness of control < 100 us\""
    )]
    Aim {
        given: String,
        /// The mistake in it.
        reason: String,
    },
    /// Nothing has the rhythm that is needed.
    #[error("{target}: {reason}")]
    NoLoop {
        /// The target of the watch.
        target: String,
        /// The observation, and the way out.
        reason: String,
    },
    /// The user stopped it before there was anything to report.
    #[error("stopped before anything was measured; all settings were restored")]
    Stopped,
    /// The loop that is tuned has ended.
    #[error(
        "the tuned loop `{name}` (thread {tid}) ended during the search; all settings were restored. Fix: let it run for longer than \
         --seconds"
    )]
    Ended {
        name: String,
        /// Its thread.
        tid: i32,
    },
    /// Kernel events cannot be had, and without them no lateness is known.
    #[error("the loop cannot be measured without kernel events: {0}")]
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
    #[error("{path}: {source}. All changed settings were restored. Fix: pass a writable folder with --out", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The process that takes everything back after a kill cannot be started.
    #[error(
        "the watchdog that restores all settings after a kill cannot be started: {0}. Without it, takt tries nothing; no setting was changed"
    )]
    Watchdog(std::io::Error),
}
