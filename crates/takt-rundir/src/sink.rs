//! A file that grows, and goes on in memory where the disk takes no more.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::memory::{MAX_SHELTERED_BYTES, Memory};

/// ENOENT.
const NO_SUCH_FILE: i32 = 2;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 16;

/// A new file that can be read by its descriptor, too: its name may be gone one day.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// The same file for reading: one that was opened for appending alone is opened once more, by its
/// descriptor, as its name may be gone.
fn readable(file: &File) -> io::Result<File> {
    match file.read_at(&mut [0], 0) {
        Ok(_) => file.try_clone(),
        Err(_) => File::open(format!("/proc/self/fd/{}", file.as_raw_fd())),
    }
}

/// Destination of rows. An error is recorded in [`Memory`], and the file continues there with
/// everything that was ever written to it, buffers included; the writer does not notice.
#[derive(Debug)]
pub(crate) struct Sink {
    file: BufWriter<File>,
    path: PathBuf,
    memory: Memory,
    /// Whether it is in memory.
    is_sheltered: bool,
}

impl Sink {
    /// Writes to `file`, which is at `path`.
    pub(crate) fn new(file: File, path: PathBuf, memory: &Memory) -> Self {
        let file = BufWriter::with_capacity(1 << 16, file);
        Self { file, path, memory: memory.clone(), is_sheltered: false }
    }

    /// Writes to `file` in memory, which is at `path`.
    pub(crate) fn in_memory(file: File, path: PathBuf, memory: &Memory) -> Self {
        Self { is_sheltered: true, ..Self::new(file, path, memory) }
    }

    /// Goes on in memory after a failure.
    ///
    /// # Errors
    /// The failure where it is one to end with, or that of memory.
    fn shelter(&mut self, source: io::Error) -> io::Result<()> {
        let number = source.raw_os_error();
        if let Err(error) = self.memory.note(Error::Io { path: self.path.clone(), source }) {
            return Err(match (error, number) {
                (Error::Io { source, .. }, _) => source,
                (_, Some(number)) => io::Error::from_raw_os_error(number),
                (other, None) => io::Error::other(other.to_string()),
            });
        }
        if self.is_sheltered {
            return Err(number.map_or(ErrorKind::StorageFull.into(), io::Error::from_raw_os_error));
        }
        self.is_sheltered = true;
        let old = readable(self.file.get_ref())?;
        let bytes = old.metadata()?.len();
        if bytes > MAX_SHELTERED_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (_, mut new) = self.memory.shelter(&name)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut copied = 0;
        while copied < bytes {
            match old.read_at(&mut piece, copied)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => {
                    new.write_all(&piece[..length])?;
                    copied += length as u64;
                }
            }
        }
        // Accepted data that is in no file yet. The old buffer is dropped without being written.
        let rest = self.file.buffer().to_vec();
        let before = std::mem::replace(&mut self.file, BufWriter::with_capacity(1 << 16, new));
        drop(before.into_parts());
        self.file.write_all(&rest)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.write(bytes) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                self.shelter(error)?;
                self.file.write(bytes)
            }
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.flush() {
            self.shelter(error)?;
            return self.file.flush();
        }
        // A file that was taken away is written as ever, and is gone with this process.
        if !self.is_sheltered && self.file.get_ref().metadata().is_ok_and(|file| file.nlink() == 0) {
            self.shelter(io::Error::from_raw_os_error(NO_SUCH_FILE))?;
            return self.file.flush();
        }
        Ok(())
    }
}
