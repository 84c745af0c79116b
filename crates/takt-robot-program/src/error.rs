//! Errors of running or following a program.

use std::io;
use std::time::Duration;

use takt_watch::WatchError;
use takt_watch::declared::DeclaredError;

/// Reason why a program cannot be run or followed, with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The command cannot be started.
    #[error(
        "{program}: {reason}. `command` names a program in PATH, or a path; relative paths start at {folder}"
    )]
    NotStarted {
        /// The program.
        program: String,
        /// The system's error.
        reason: String,
        /// Folder at which relative paths start.
        folder: String,
    },
    /// The command ended before it was ready.
    #[error("the command ended {how} after {} ms, before {until}. {words}", after.as_millis())]
    EndedEarly {
        /// Its exit status, or the signal.
        how: String,
        /// Its running time.
        after: Duration,
        /// The condition that was waited for.
        until: String,
        /// Its last output.
        words: String,
    },
    /// The command did not get ready.
    #[error("the command is not ready after {} s: {missing}. {words} Allow more time with `ready.within`", within.as_secs_f64())]
    NotReady {
        /// Time that Takt waited.
        within: Duration,
        /// The missing condition.
        missing: String,
        /// Its last output.
        words: String,
    },
    /// No thread has the name of a loop.
    #[error(
        "loop \"{name}\": no thread of the command has that name, and it declares no such loop. Its threads are: {threads}. Use one \
         of these names for the loop (the kernel keeps 15 characters), have the program name its thread (pthread_setname_np, prctl \
         PR_SET_NAME), or declare the loop with the library of your own loop"
    )]
    NoThread {
        /// The loop.
        name: String,
        /// The threads that there are.
        threads: String,
    },
    /// Several threads have the name of a loop, and none or several have its period.
    #[error(
        "loop \"{name}\": {} threads have that name, and {fitting} of them have a period of {period}: {threads}. Give the thread a name of \
         its own, or name its process with `process`",
        count
    )]
    Several {
        /// The loop.
        name: String,
        /// Number of threads with the name.
        count: usize,
        /// Number of those with the period: "none", or a number.
        fitting: String,
        /// The loop's period.
        period: String,
        /// Each with its period.
        threads: String,
    },
    /// The kernel's events cannot be had, without which nothing can be measured.
    #[error("the loops cannot be followed: {0}")]
    Untraced(String),
    /// Somebody asked for the end before the command was ready.
    #[error("stopped before the command was ready; nothing was measured")]
    Stopped,
    /// The process that keeps the command together broke.
    #[error("the process that supervises the command: {0}")]
    Keeper(#[from] io::Error),
    /// The records of a declared loop cannot be taken.
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// The threads cannot be followed.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

impl From<ProgramError> for takt_lab::LabError {
    fn from(error: ProgramError) -> Self {
        Self::robot(error)
    }
}
