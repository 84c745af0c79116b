//! Sample files while a run goes on: CSV, so that a kill costs at most half a line.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// A CSV file that grows while the run goes on.
#[derive(Debug)]
pub struct SampleFile {
    writer: csv::Writer<BufWriter<File>>,
    path: PathBuf,
}

impl SampleFile {
    /// Begins the file at `path`.
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = File::create_new(&path).map_err(Error::io(&path))?;
        Ok(Self { writer: csv::Writer::from_writer(BufWriter::with_capacity(1 << 16, file)), path })
    }

    /// Goes on with the file at `path`, or begins it; how many rows it holds, too.
    pub(crate) fn go_on(path: PathBuf) -> Result<(Self, u64), Error> {
        let bytes = match takt_files::read(&path, takt_files::SAMPLES_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::Io { path, source }),
        };
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole].iter().filter(|&&b| b == b'\n').count() as u64;
        let file = takt_files::append(&path).map_err(Error::io(&path))?;
        file.set_len(whole as u64).map_err(Error::io(&path))?;
        let writer = csv::WriterBuilder::new()
            .has_headers(lines == 0)
            .from_writer(BufWriter::with_capacity(1 << 16, file));
        Ok((Self { writer, path }, lines.saturating_sub(1)))
    }

    /// Appends one line; the first one writes the column names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push<T: Serialize>(&mut self, row: &T) -> Result<(), Error> {
        self.writer.serialize(row).map_err(|e| Error::Io { path: self.path.clone(), source: e.into() })
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::io(&self.path))
    }
}

/// Reads the rows of a sample file. A last line that a kill cut in half is left out; any other broken line is
/// an error.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] with the line number.
pub fn read_samples<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let mut bytes = takt_files::read(path, takt_files::SAMPLES_BYTES).map_err(Error::io(path))?;
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    bytes.truncate(whole);
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    reader
        .deserialize()
        .map(|row| {
            row.map_err(|error| Error::Damaged {
                path: path.to_owned(),
                found: error.to_string(),
                expected: "samples written by this version of takt",
            })
        })
        .collect()
}
