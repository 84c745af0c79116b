//! Sample files while a run goes on: CSV, so that a kill costs at most half a line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// A CSV file that grows while the run goes on.
#[derive(Debug)]
pub struct SampleFile {
    writer: csv::Writer<BufWriter<File>>,
    path: PathBuf,
    rows: u64,
}

impl SampleFile {
    /// Begins the file at `path`.
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        refuse_sealed(&path)?;
        let file = File::create_new(&path).map_err(Error::io(&path))?;
        Ok(Self { writer: csv::Writer::from_writer(BufWriter::with_capacity(1 << 16, file)), path, rows: 0 })
    }

    /// Goes on with the file at `path`, or begins it; how many rows it holds, too.
    pub(crate) fn go_on(path: PathBuf) -> Result<(Self, u64), Error> {
        refuse_sealed(&path)?;
        let (whole, rows) = match path.is_file() {
            true => whole_rows(&path, u64::MAX)?,
            false => (0, 0),
        };
        let file = takt_files::append(&path).map_err(Error::io(&path))?;
        file.set_len(whole).map_err(Error::io(&path))?;
        let writer = csv::WriterBuilder::new()
            .has_headers(whole == 0)
            .from_writer(BufWriter::with_capacity(1 << 16, file));
        Ok((Self { writer, path, rows }, rows))
    }

    /// Rows that it holds, those that were not yet handed to the kernel included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Its name, without folder and extension.
    pub(crate) fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Appends one line; the first one writes the column names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push<T: Serialize>(&mut self, row: &T) -> Result<(), Error> {
        self.writer.serialize(row).map_err(|e| Error::Io { path: self.path.clone(), source: e.into() })?;
        self.rows += 1;
        Ok(())
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::io(&self.path))
    }
}

/// A CSV file of whole numbers, for whoever may not spend the time of a [`SampleFile`] on each row.
#[derive(Debug)]
pub struct NumberFile {
    writer: BufWriter<File>,
    path: PathBuf,
    rows: u64,
    /// Kept for its memory.
    line: Vec<u8>,
}

impl NumberFile {
    /// Begins the file at `path`, with these columns.
    pub(crate) fn create(path: PathBuf, columns: &[&str]) -> Result<Self, Error> {
        refuse_sealed(&path)?;
        let file = File::create_new(&path).map_err(Error::io(&path))?;
        let mut writer = BufWriter::with_capacity(1 << 16, file);
        writeln!(writer, "{}", columns.join(",")).map_err(Error::io(&path))?;
        Ok(Self { writer, path, rows: 0, line: Vec::new() })
    }

    /// Rows that it holds, those that were not yet handed to the kernel included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends one line: a number for each column.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push(&mut self, numbers: &[u64]) -> Result<(), Error> {
        self.line.clear();
        let mut digits = itoa::Buffer::new();
        for &number in numbers {
            self.line.extend_from_slice(digits.format(number).as_bytes());
            self.line.push(b',');
        }
        if let Some(last) = self.line.last_mut() {
            *last = b'\n';
        }
        self.writer.write_all(&self.line).map_err(Error::io(&self.path))?;
        self.rows += 1;
        Ok(())
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::io(&self.path))
    }
}

/// A new journal would take the place of sealed samples at the next seal.
fn refuse_sealed(journal: &Path) -> Result<(), Error> {
    let mut sealed = journal.with_extension("").into_os_string();
    sealed.push(".parquet");
    let sealed = PathBuf::from(sealed);
    if journal.is_file() || !sealed.is_file() {
        return Ok(());
    }
    let source = std::io::Error::new(ErrorKind::AlreadyExists, "samples are sealed and never overwritten");
    Err(Error::Io { path: sealed, source })
}

/// Bytes of the header and the first `most` rows of a journal that are whole, and how many rows
/// those are. A field may hold line ends within quotes, so that lines are not rows.
fn whole_rows(path: &Path, most: u64) -> Result<(u64, u64), Error> {
    let file = takt_files::open(path).map_err(Error::io(path))?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let (mut quoted, mut place) = (false, 0u64);
    // The first line names the columns.
    let (mut whole, mut lines) = (0u64, 0u64);
    while lines <= most {
        let bytes = reader.fill_buf().map_err(Error::io(path))?;
        if bytes.is_empty() {
            break;
        }
        for byte in bytes {
            place += 1;
            match byte {
                b'"' => quoted = !quoted,
                b'\n' if !quoted => {
                    (whole, lines) = (place, lines + 1);
                    if lines > most {
                        break;
                    }
                }
                _ => {}
            }
        }
        let count = bytes.len();
        reader.consume(count);
    }
    Ok((whole, lines.saturating_sub(1)))
}

/// After how many bytes a journal holds `rows` rows; `None` where it holds fewer.
pub(crate) fn place_after(path: &Path, rows: u64) -> Result<Option<u64>, Error> {
    match path.is_file() {
        true if rows == 0 => Ok(Some(0)),
        true => whole_rows(path, rows).map(|(bytes, found)| (found == rows).then_some(bytes)),
        // Nothing was ever written to it.
        false => Ok((rows == 0).then_some(0)),
    }
}

/// Reads the rows of a sample file. A last line that a kill cut in half is left out; any other
/// broken line is an error.
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

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        index: u64,
        time_ns: u64,
    }

    #[test]
    fn numbers_are_written_as_rows_are() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one.csv", "other.csv"].map(|name| folder.path().join(name));
        let mut rows = SampleFile::create(one.clone()).unwrap();
        let mut numbers = NumberFile::create(other.clone(), &["index", "time_ns"]).unwrap();
        for (index, time_ns) in [(0, 0), (1, 9), (2, 10), (10, 1_000_000_007), (u64::MAX, u64::MAX - 1)] {
            rows.push(&Row { index, time_ns }).unwrap();
            numbers.push(&[index, time_ns]).unwrap();
        }
        rows.flush().unwrap();
        numbers.flush().unwrap();
        assert_eq!(numbers.rows(), 5);
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
        assert_eq!(read_samples::<Row>(&one).unwrap(), read_samples::<Row>(&other).unwrap());
        assert!(NumberFile::create(other, &["index"]).is_err(), "samples are never overwritten");
    }
}
