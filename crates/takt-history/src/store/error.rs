//! What can go wrong with a store, a sentence each.

use std::path::PathBuf;
use std::time::Duration;

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place cannot be one.
    #[error("store {place}: {why}")]
    Place {
        /// What was given; credentials are not in it.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The store did not answer in time.
    #[error("store {place}: no answer within {} s ({what})", waited.as_secs())]
    Slow {
        /// Which store.
        place: String,
        /// What was asked.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// The thread that asked has ended.
    #[error(
        "store {place}: the thread that asked it has ended ({what}): this is a fault of takt's, please report it"
    )]
    Ended {
        /// Which store.
        place: String,
        /// What was asked.
        what: String,
    },
    #[error("store {place}: {what}: {why}")]
    Refused {
        /// Which store.
        place: String,
        /// What was asked.
        what: String,
        /// The innermost reason.
        why: String,
    },
    /// Its layout is of another version.
    #[error(
        "store {place}: its version is {found}, and this takt knows {known}: take the takt that wrote it, or a newer one"
    )]
    Version {
        /// Which store.
        place: String,
        /// What it says.
        found: u64,
        /// What is known here.
        known: u64,
    },
    /// Something in it is not what its name says.
    #[error("store {place}: {object} is damaged: {why}")]
    Damaged {
        /// Which store.
        place: String,
        object: String,
        /// How.
        why: String,
    },
    /// There is no such run, or several.
    #[error(
        "store {place}: expected one run whose hash or name begins with {asked}, found {found}; `takt store ls {place}` lists them"
    )]
    Which {
        /// Which store.
        place: String,
        asked: String,
        /// How many there are.
        found: usize,
    },
    /// A run directory that cannot be stored.
    #[error("{path}: {why}", path = path.display())]
    Run { path: PathBuf, why: String },
    /// A file on this side.
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}
