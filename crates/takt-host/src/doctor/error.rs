//! Errors of an examination or a change.

use std::io;
use std::path::PathBuf;

/// Error of an examination or a change.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// An option is out of its bounds.
    #[error("{field} = {given} is not in {expected}")]
    Option {
        /// The option.
        field: &'static str,
        /// The value given.
        given: String,
        /// The values accepted.
        expected: &'static str,
    },
    /// The state file, which holds the values from before, could not be read or written. Nothing
    /// has been changed.
    #[error("{path}: {source}. Nothing was changed. Fix: name a state file in an existing, writable folder", path = path.display())]
    StateFile {
        /// The state file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Somebody without the rights asked for changes of the machine.
    #[error(
        "user {user} may not change this machine's settings. Nothing was changed. Fix: run as root, `sudo takt {command}`"
    )]
    NotRoot {
        /// The user's number.
        user: u32,
        /// The requested command.
        command: &'static str,
    },
    /// There is nothing to revert.
    #[error("{path}: this state file does not exist: either nothing was applied with it, or it has already been reverted", path = path.display())]
    NothingApplied {
        /// The state file asked for.
        path: PathBuf,
    },
    /// The state file does not hold what `apply` writes.
    #[error("{path} is not a state file of the doctor: {reason}. Nothing was changed. Fix: name the file that `--apply` wrote", path = path.display())]
    ForeignState {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        reason: String,
    },
    /// Somebody tries settings just now.
    #[error("process {pid} is trying settings with the state file {path}; end it (`kill {pid}`), and it restores everything itself", path = path.display())]
    StillOwned {
        /// The state file.
        path: PathBuf,
        /// The id of that process.
        pid: u32,
    },
    /// Another program changes settings of the whole machine, or nobody can be kept out.
    #[error(transparent)]
    Owner(#[from] crate::reserve::restore::Error),
    /// A file of tuned settings cannot be applied.
    #[error("{path}: {reason}. Nothing was changed", path = path.display())]
    Tuned {
        /// The file.
        path: PathBuf,
        /// The mistake in it, and the way out.
        reason: String,
    },
    /// Settings that TOML cannot hold.
    #[error("the settings cannot be written as TOML: {0}")]
    Unwritable(#[from] toml::ser::Error),
    /// A setting is not there, cannot be read, or was not taken by the kernel.
    #[error("{reason}")]
    Setting {
        /// The setting and the reason, a sentence.
        reason: String,
    },
    /// Some settings could not be put back; the state file still holds them.
    #[error(
        "{} of the settings could not be restored: {}. The state file {path} still contains them. Fix: run `--revert` again as root", failed.len(), failed.join("; "), path = path.display()
    )]
    NotReverted {
        /// The state file.
        path: PathBuf,
        /// One sentence per setting.
        failed: Vec<String>,
    },
}

impl DoctorError {
    pub(crate) fn setting(reason: impl Into<String>) -> Self {
        Self::Setting { reason: reason.into() }
    }
}
