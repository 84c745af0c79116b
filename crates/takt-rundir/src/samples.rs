//! Sample files while a run goes on: CSV, so that a kill costs at most half a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::files::hex;
use crate::memory::{MOST_SHELTERED_BYTES, Memory};

/// What a sample file held at a checkpoint, so that a changed byte is seen before a run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Its length then.
    pub bytes: u64,
    /// SHA-256 of those bytes.
    pub sha256: String,
}

impl Sum {
    /// Of the first `bytes` of the file at `path`; `None` where it is shorter. Whether a byte of it
    /// is zero, as a power failure leaves blocks that never reached the disk, comes with it.
    pub(crate) fn of_file(path: &Path, bytes: u64) -> Result<Option<(Self, bool)>, Error> {
        let mut hasher = Sha256::new();
        let file = takt_files::open(path).map_err(Error::io(path))?;
        let mut reader = BufReader::with_capacity(1 << 18, file.take(bytes));
        let (mut found, mut has_zero) = (0, false);
        loop {
            let part = reader.fill_buf().map_err(Error::io(path))?;
            if part.is_empty() {
                break;
            }
            hasher.update(part);
            has_zero |= part.contains(&0);
            let length = part.len();
            found += length as u64;
            reader.consume(length);
        }
        let sum = Self { bytes, sha256: hex(&hasher.finalize()) };
        Ok((found == bytes).then_some((sum, has_zero)))
    }
}

/// What sample files write to: sums what goes to the file.
#[derive(Debug)]
struct Summed {
    file: BufWriter<File>,
    hasher: Sha256,
    bytes: u64,
}

impl Summed {
    fn new(file: File) -> Self {
        Self { file: BufWriter::with_capacity(1 << 16, file), hasher: Sha256::new(), bytes: 0 }
    }

    /// Goes on behind the first `bytes` of the file at `path`.
    fn behind(file: File, path: &Path, bytes: u64) -> Result<Self, Error> {
        let mut summed = Self::new(file);
        let mut before = takt_files::open(path).map_err(Error::io(path))?.take(bytes);
        let mut part = vec![0; 1 << 18];
        loop {
            match before.read(&mut part).map_err(Error::io(path))? {
                0 => return Ok(summed),
                length => summed.count(&part[..length]),
            }
        }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn sum(&self) -> Sum {
        Sum { bytes: self.bytes, sha256: hex(&self.hasher.clone().finalize()) }
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.count(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Rows of a sample file, and what becomes of those that cannot be written.
#[derive(Debug)]
struct Count {
    path: PathBuf,
    rows: u64,
    /// Of them the kernel has, and how many bytes those are.
    flushed: u64,
    flushed_bytes: u64,
    is_sheltered: bool,
    memory: Memory,
}

impl Count {
    fn new(path: PathBuf, rows: u64, memory: &Memory) -> Self {
        Self { path, rows, flushed: rows, flushed_bytes: 0, is_sheltered: false, memory: memory.clone() }
    }

    /// The file takes no more: rows are lost from here on, where that is no error.
    fn lose(&mut self, source: io::Error) -> Result<(), Error> {
        self.memory.note(Error::Io { path: self.path.clone(), source })?;
        self.memory.lose_rows(self.rows - self.flushed);
        self.rows = self.flushed;
        Ok(())
    }
}

/// A CSV file that grows while the run goes on.
#[derive(Debug)]
pub struct SampleFile {
    /// `None` where the file takes no more.
    writer: Option<csv::Writer<Summed>>,
    count: Count,
}

fn io_of(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    }
}

impl SampleFile {
    /// Begins the file at `path`.
    pub(crate) fn create(path: PathBuf, memory: &Memory) -> Result<Self, Error> {
        refuse_sealed(&path)?;
        let opened = File::create_new(&path);
        let mut new = Self { writer: None, count: Count::new(path, 0, memory) };
        match opened {
            Ok(file) => new.writer = Some(csv::Writer::from_writer(Summed::new(file))),
            Err(source) => new.begin_in_memory(Error::Io { path: new.count.path.clone(), source })?,
        }
        Ok(new)
    }

    /// Begins in memory what could not be opened.
    fn begin_in_memory(&mut self, error: Error) -> Result<(), Error> {
        self.count.memory.note(error)?;
        let file = self.count.memory.shelter(&format!("{}.csv", self.name()));
        self.writer = file.ok().map(|(_, file)| csv::Writer::from_writer(Summed::new(file)));
        self.count.is_sheltered = true;
        Ok(())
    }

    /// Goes on with the file at `path`, or begins it; how many rows it holds, too.
    pub(crate) fn go_on(path: PathBuf, memory: &Memory) -> Result<(Self, u64), Error> {
        refuse_sealed(&path)?;
        let opened = Self::open_again(&path);
        let mut file = Self { writer: None, count: Count::new(path, 0, memory) };
        match opened {
            Ok((writer, rows)) => {
                (file.count.rows, file.count.flushed) = (rows, rows);
                file.count.flushed_bytes = writer.get_ref().bytes;
                file.writer = Some(writer);
            }
            Err(error) => file.begin_in_memory(error)?,
        }
        let rows = file.count.rows;
        Ok((file, rows))
    }

    fn open_again(path: &Path) -> Result<(csv::Writer<Summed>, u64), Error> {
        let (whole, rows) = match path.is_file() {
            true => whole_rows(path, u64::MAX)?,
            false => (0, 0),
        };
        let file = takt_files::append(path).map_err(Error::io(path))?;
        file.set_len(whole).map_err(Error::io(path))?;
        let summed = Summed::behind(file, path, whole)?;
        Ok((csv::WriterBuilder::new().has_headers(whole == 0).from_writer(summed), rows))
    }

    /// Rows that it holds, those that were not yet handed to the kernel included.
    pub fn rows(&self) -> u64 {
        self.count.rows
    }

    /// What it holds; `None` where it takes no more. To be asked after [`flush`](Self::flush).
    pub fn sum(&self) -> Option<Sum> {
        self.writer.as_ref().map(|writer| writer.get_ref().sum())
    }

    /// Its name, without folder and extension.
    pub(crate) fn name(&self) -> String {
        self.count.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Appends one line; the first one writes the column names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push<T: Serialize>(&mut self, row: &T) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else {
            self.count.memory.lose_rows(1);
            return Ok(());
        };
        self.count.rows += 1;
        writer.serialize(row).map_err(io_of).or_else(|source| self.lose(source))
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if let Err(source) = writer.flush() {
            return self.lose(source);
        }
        (self.count.flushed, self.count.flushed_bytes) = (self.count.rows, writer.get_ref().bytes);
        // A file that was taken away is written as ever, and is gone with this process.
        if !self.count.is_sheltered && is_gone(writer.get_ref().file.get_ref()) {
            return self.lose(io::Error::from_raw_os_error(NO_SUCH_FILE));
        }
        Ok(())
    }

    /// The file takes no more: it goes on in memory, with what the kernel had of it; where that
    /// fails, too, rows are lost from here on.
    fn lose(&mut self, source: io::Error) -> Result<(), Error> {
        self.count.lose(source)?;
        let old = self.writer.take();
        self.writer = match old {
            Some(old) if !self.count.is_sheltered => self.go_on_in_memory(old.get_ref().file.get_ref()).ok(),
            _ => None,
        };
        self.count.is_sheltered = true;
        Ok(())
    }

    fn go_on_in_memory(&self, old: &File) -> io::Result<csv::Writer<Summed>> {
        let bytes = self.count.flushed_bytes;
        if bytes > MOST_SHELTERED_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (_, file) = self.count.memory.shelter(&format!("{}.csv", self.name()))?;
        let mut summed = Summed::new(file);
        // By its descriptor: its name may be gone.
        let before = File::open(format!("/proc/self/fd/{}", old.as_raw_fd()))?;
        let copied = io::copy(&mut before.take(bytes), &mut summed)?;
        if copied != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(csv::WriterBuilder::new().has_headers(bytes == 0).from_writer(summed))
    }
}

/// ENOENT.
const NO_SUCH_FILE: i32 = 2;

/// Whether a file has no name any more.
fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// A CSV file of whole numbers, for whoever may not spend the time of a [`SampleFile`] on each row.
#[derive(Debug)]
pub struct NumberFile {
    /// `None` where the file takes no more.
    writer: Option<BufWriter<File>>,
    count: Count,
    /// Kept for its memory.
    line: Vec<u8>,
}

impl NumberFile {
    /// Begins the file at `path`, with these columns.
    pub(crate) fn create(path: PathBuf, columns: &[&str], memory: &Memory) -> Result<Self, Error> {
        refuse_sealed(&path)?;
        let begun = File::create_new(&path).and_then(|file| {
            let mut writer = BufWriter::with_capacity(1 << 16, file);
            writeln!(writer, "{}", columns.join(",")).map(|()| writer)
        });
        let mut count = Count::new(path, 0, memory);
        let writer = match begun {
            Ok(writer) => Some(writer),
            Err(source) => count.lose(source).map(|()| None)?,
        };
        Ok(Self { writer, count, line: Vec::new() })
    }

    /// Rows that it holds, those that were not yet handed to the kernel included.
    pub fn rows(&self) -> u64 {
        self.count.rows
    }

    /// Appends one line: a number for each column.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push(&mut self, numbers: &[u64]) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else {
            self.count.memory.lose_rows(1);
            return Ok(());
        };
        self.line.clear();
        let mut digits = itoa::Buffer::new();
        for &number in numbers {
            self.line.extend_from_slice(digits.format(number).as_bytes());
            self.line.push(b',');
        }
        if let Some(last) = self.line.last_mut() {
            *last = b'\n';
        }
        self.count.rows += 1;
        writer.write_all(&self.line).or_else(|source| self.lose(source))
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        match self.writer.as_mut().map(Write::flush) {
            Some(Err(source)) => self.lose(source),
            _ => {
                self.count.flushed = self.count.rows;
                Ok(())
            }
        }
    }

    fn lose(&mut self, source: io::Error) -> Result<(), Error> {
        self.count.lose(source)?;
        self.writer = None;
        Ok(())
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
        let memory = Memory::default();
        let mut rows = SampleFile::create(one.clone(), &memory).unwrap();
        let mut numbers = NumberFile::create(other.clone(), &["index", "time_ns"], &memory).unwrap();
        for (index, time_ns) in [(0, 0), (1, 9), (2, 10), (10, 1_000_000_007), (u64::MAX, u64::MAX - 1)] {
            rows.push(&Row { index, time_ns }).unwrap();
            numbers.push(&[index, time_ns]).unwrap();
        }
        rows.flush().unwrap();
        numbers.flush().unwrap();
        assert_eq!(numbers.rows(), 5);
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
        assert_eq!(read_samples::<Row>(&one).unwrap(), read_samples::<Row>(&other).unwrap());
        assert!(NumberFile::create(other, &["index"], &memory).is_err(), "samples are never overwritten");
    }
}
