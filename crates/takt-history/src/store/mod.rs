//! A store of sealed run directories, in a folder that machines share or (feature `s3`) in a bucket
//! of an object store; both have the same layout.
//!
//! ```text
//! takt-store.json            what this is, and its version
//! objects/ab/abcd…           contents of files, by their SHA-256
//! runs/<run>.json            the run's seal (`hashes.json`), by its own SHA-256: names of files and their hashes
//! index/<hash>.parquet       a row for each measure of each run, for whoever asks across runs
//! ```
//!
//! A run is its seal: it is there when `runs/<run>.json` is, and that is written last. Remains of
//! an interrupted upload belong to nobody until the next attempt uses them, or [`Store::prune`]
//! removes them. Names are hashes of what they hold, so two that bring the same run write the same
//! bytes, and whatever is read is checked against its name. The index is no truth of its own: rows
//! without a run are passed over, and runs without a row are looked up.

mod backend;
#[cfg(feature = "s3")]
mod bucket;
mod error;
mod folder;
mod index;
mod kept;
mod objects;
mod place;

pub use error::StoreError;
pub use index::{Entry, Measured, read_index, write_index};
pub use kept::{Damage, Pruned, Store, Stored};
