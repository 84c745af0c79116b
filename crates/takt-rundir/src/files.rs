//! Single files: JSON that is written whole or not at all, and hashes.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::{Error, steps};

/// A file that is longer must have its bytes on the disk: reading holes takes as long as reading
/// data, and costs nothing to make.
const LARGE_BYTES: u64 = 64 << 20;
/// No file system keeps the files of a run, which are compressed already, in a smaller part of
/// their length.
const MAX_LENGTH_PER_ALLOCATED: u64 = 16;

/// SHA-256 of a file as long as it is now, in hexadecimal.
///
/// # Errors
/// [`Error::Io`], also of a long file of holes.
pub fn sha256(path: &Path) -> Result<String, Error> {
    let file = takt_files::open(path).map_err(Error::io(path))?;
    let metadata = file.metadata().map_err(Error::io(path))?;
    let (length, allocated) = (metadata.len(), metadata.blocks().saturating_mul(512));
    if length > LARGE_BYTES && allocated.saturating_mul(MAX_LENGTH_PER_ALLOCATED) < length {
        let text =
            format!("{length} bytes, of which only {allocated} are on disk: files of a run are never sparse");
        return Err(Error::io(path)(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    let mut hasher = Sha256::new();
    each_part(path, file.take(length), |part| hasher.update(part))?;
    Ok(hex(&hasher.finalize()))
}

/// Reads all of what `path` was opened as, in parts. Returns its length in bytes.
pub(crate) fn each_part(path: &Path, file: impl Read, mut take: impl FnMut(&[u8])) -> Result<u64, Error> {
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut bytes = 0;
    loop {
        let part = reader.fill_buf().map_err(Error::io(path))?;
        if part.is_empty() {
            return Ok(bytes);
        }
        take(part);
        let length = part.len();
        bytes += length as u64;
        reader.consume(length);
    }
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

/// Parses `text`, the content of the file at `path`.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Damaged {
        path: path.to_owned(),
        found: error.to_string(),
        expected: "a file written by this version of takt",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_holes_takes_no_time_and_others_have_their_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = sha256(&path).unwrap_err().to_string();
        assert!(error.contains("files of a run are never sparse"), "{error}");
        std::fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            sha256(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
