//! Sample files while a run goes on: CSV, so that a kill costs at most half a line.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::files::{each_part, hex};
use crate::memory::Memory;
use crate::sink::{Sink, new_file};

/// Content of a sample file at a checkpoint, so that a changed byte is noticed before a run
/// resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Its length then.
    pub bytes: u64,
    /// SHA-256 of those bytes.
    pub sha256: String,
}

/// Runs of zero bytes: a power failure leaves them for blocks that never reached the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zeros {
    /// The longest run, and the one at the end, bytes.
    longest: u64,
    last: u64,
}

/// The smallest block of a disk, bytes.
const BLOCK_BYTES: u64 = 512;

impl Zeros {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        match bytes.iter().rposition(|&byte| byte != 0) {
            None => self.last += bytes.len() as u64,
            Some(end) => {
                for run in bytes[..end].split(|&byte| byte != 0) {
                    self.last += run.len() as u64;
                    self.longest = self.longest.max(self.last);
                    self.last = 0;
                }
                self.last = (bytes.len() - end - 1) as u64;
            }
        }
        self.longest = self.longest.max(self.last);
    }

    /// Whether they are those of a power failure: a block, or the last one's part of the file.
    /// Fewer are changed bytes.
    pub(crate) fn are_of_the_disk(self) -> bool {
        self.longest >= BLOCK_BYTES || self.last > 1
    }
}

impl Sum {
    /// Of the first `bytes` of the file at `path`; `None` where it is shorter. The zero bytes in it
    /// come with it.
    pub(crate) fn of_file(path: &Path, bytes: u64) -> Result<Option<(Self, Zeros)>, Error> {
        let mut hasher = Sha256::new();
        let file = takt_files::open(path).map_err(Error::io(path))?;
        let mut zeros = Zeros::default();
        let found = each_part(path, file.take(bytes), |part| {
            hasher.update(part);
            zeros.add(part);
        })?;
        let sum = Self { bytes, sha256: hex(&hasher.finalize()) };
        Ok((found == bytes).then_some((sum, zeros)))
    }
}

/// Writer of sample files that sums the data on its way to the file.
#[derive(Debug)]
struct Summed {
    sink: Sink,
    hasher: Sha256,
    bytes: u64,
}

impl Summed {
    fn new(sink: Sink) -> Self {
        Self { sink, hasher: Sha256::new(), bytes: 0 }
    }

    /// Goes on behind the first `bytes` of the file at `path`.
    fn behind(sink: Sink, path: &Path, bytes: u64) -> Result<Self, Error> {
        let mut summed = Self::new(sink);
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
        let length = self.sink.write(bytes)?;
        self.count(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Rows of a sample file, and what becomes of those that cannot be written.
#[derive(Debug)]
struct Count {
    path: PathBuf,
    rows: u64,
    /// Of them the kernel has.
    flushed: u64,
    memory: Memory,
}

impl Count {
    fn new(path: PathBuf, rows: u64, memory: &Memory) -> Self {
        Self { path, rows, flushed: rows, memory: memory.clone() }
    }

    /// The file takes no more, and neither does memory: rows are lost from here on, where that is
    /// no error.
    fn lose(&mut self, source: io::Error) -> Result<(), Error> {
        self.memory.note(Error::Io { path: self.path.clone(), source })?;
        self.memory.lose_rows(self.rows - self.flushed);
        self.rows = self.flushed;
        Ok(())
    }

    /// Its name, without folder and extension.
    fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Begins in memory what could not be opened; `None` where that takes nothing either.
    fn begin_in_memory(&self, error: Error) -> Result<Option<Sink>, Error> {
        self.memory.note(error)?;
        let file = self.memory.shelter(&format!("{}.csv", self.name()));
        Ok(file.ok().map(|(path, file)| Sink::in_memory(file, path, &self.memory)))
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
        let count = Count::new(path.clone(), 0, memory);
        let sink = match new_file(&path) {
            Ok(file) => Some(Sink::new(file, path, memory)),
            Err(source) => count.begin_in_memory(Error::Io { path, source })?,
        };
        Ok(Self { writer: sink.map(|sink| csv::Writer::from_writer(Summed::new(sink))), count })
    }

    /// Goes on with the file at `path`, or begins it; how many rows it holds, too.
    pub(crate) fn go_on(path: PathBuf, memory: &Memory) -> Result<(Self, u64), Error> {
        refuse_sealed(&path)?;
        let mut count = Count::new(path.clone(), 0, memory);
        let writer = match Self::open_again(&path, memory) {
            Ok((writer, rows)) => {
                (count.rows, count.flushed) = (rows, rows);
                Some(writer)
            }
            Err(error) => {
                count.begin_in_memory(error)?.map(|sink| csv::Writer::from_writer(Summed::new(sink)))
            }
        };
        let rows = count.rows;
        Ok((Self { writer, count }, rows))
    }

    fn open_again(path: &Path, memory: &Memory) -> Result<(csv::Writer<Summed>, u64), Error> {
        let (whole, rows) = match path.is_file() {
            true => whole_rows(path, u64::MAX)?,
            false => (0, 0),
        };
        let file = takt_files::append(path).map_err(Error::io(path))?;
        file.set_len(whole).map_err(Error::io(path))?;
        let summed = Summed::behind(Sink::new(file, path.to_owned(), memory), path, whole)?;
        Ok((csv::WriterBuilder::new().has_headers(whole == 0).from_writer(summed), rows))
    }

    /// Rows that it holds, those that were not yet handed to the kernel included.
    pub fn rows(&self) -> u64 {
        self.count.rows
    }

    /// The sum of its content; `None` if it accepts no more data. Call it after
    /// [`flush`](Self::flush).
    pub fn sum(&self) -> Option<Sum> {
        self.writer.as_ref().map(|writer| writer.get_ref().sum())
    }

    /// Its name, without folder and extension.
    pub(crate) fn name(&self) -> String {
        self.count.name()
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
        self.count.flushed = self.count.rows;
        Ok(())
    }

    fn lose(&mut self, source: io::Error) -> Result<(), Error> {
        self.count.lose(source)?;
        self.writer = None;
        Ok(())
    }
}

/// A CSV file of whole numbers, for whoever may not spend the time of a [`SampleFile`] on each row.
#[derive(Debug)]
pub struct NumberFile {
    /// `None` where the file takes no more.
    writer: Option<Sink>,
    count: Count,
    /// Kept for its memory.
    line: Vec<u8>,
}

impl NumberFile {
    /// Begins the file at `path`, with these columns.
    pub(crate) fn create(path: PathBuf, columns: &[&str], memory: &Memory) -> Result<Self, Error> {
        refuse_sealed(&path)?;
        let mut count = Count::new(path.clone(), 0, memory);
        let mut writer = match new_file(&path) {
            Ok(file) => Some(Sink::new(file, path, memory)),
            Err(source) => count.begin_in_memory(Error::Io { path, source })?,
        };
        if let Some(Err(source)) = writer.as_mut().map(|writer| writeln!(writer, "{}", columns.join(","))) {
            count.lose(source)?;
            writer = None;
        }
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
