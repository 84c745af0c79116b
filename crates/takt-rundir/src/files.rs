//! Single files: JSON that is written whole or not at all, and hashes.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::{Error, steps};

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// [`Error::Io`].
pub fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = takt_files::open(path).map_err(Error::io(path))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(Error::io(path))?;
    Ok(hex(&hasher.finalize()))
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes JSON whole or not at all, also when the power fails.
///
/// # Errors
/// [`Error::Io`].
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    steps::replace(path, &json_text(path, value)?.into_bytes(), true)
}

pub(crate) fn json_text<T: Serialize>(path: &Path, value: &T) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::io(path)(error.into()))?;
    Ok(text + "\n")
}

/// Reads JSON.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] where it does not hold a `T`.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    parse_json(path, &takt_files::read_to_string(path, takt_files::FIGURES_BYTES).map_err(Error::io(path))?)
}

/// What `text`, of the file at `path`, holds.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Damaged {
        path: path.to_owned(),
        found: error.to_string(),
        expected: "a file written by this version of takt",
    })
}
