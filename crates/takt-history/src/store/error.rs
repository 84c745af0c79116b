//! Errors of a store, one sentence each.

use std::path::PathBuf;
use std::time::Duration;

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place cannot be one.
    #[error("store {place}: {why}")]
    Place {
        /// The given place, without credentials.
        place: String,
        /// The fault.
        why: String,
    },
    /// The store did not answer in time.
    #[error("store {place}: no answer within {} s ({what})", waited.as_secs())]
    Slow {
        /// The store.
        place: String,
        /// The requested operation.
        what: String,
        /// The time waited.
        waited: Duration,
    },
    /// The thread that asked has ended.
    #[error("store {place}: the client thread has ended ({what}): this is a bug in Takt, please report it")]
    Ended {
        /// The store.
        place: String,
        /// The requested operation.
        what: String,
    },
    #[error("store {place}: {what}: {why}")]
    Refused {
        /// The store.
        place: String,
        /// The requested operation.
        what: String,
        /// The innermost reason.
        why: String,
    },
    /// Its layout is of another version.
    #[error(
        "store {place}: its version is {found}, but this takt knows {known}: use the takt that wrote it, or a newer one"
    )]
    Version {
        /// The store.
        place: String,
        /// Its version.
        found: u64,
        /// The known version.
        known: u64,
    },
    /// Something in it is not what its name says.
    #[error("store {place}: {object} is damaged: {why}")]
    Damaged {
        /// The store.
        place: String,
        object: String,
        /// The damage.
        why: String,
    },
    /// There is no such run, or several.
    #[error(
        "store {place}: expected one run whose hash or name begins with {asked}, found {found}; `takt store ls {place}` lists them"
    )]
    Which {
        /// The store.
        place: String,
        asked: String,
        /// Number of matches.
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
