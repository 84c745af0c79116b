//! Files that another user may plant at a name that is about to be opened, one of each kind: for
//! tests that show that nobody is held up, nothing is read without end, and nothing is followed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Bytes of a sparse file, and the most that a growing one comes to: a tebibyte takes nothing of
/// the disk and nobody has the memory for it.
const SPARSE_BYTES: u64 = 1 << 40;
/// A growing file grows by this at a time, faster than anybody reads.
const STEP_BYTES: u64 = 4 << 20;

/// A folder with these files, by their paths below it and their texts: `/proc` and `/sys` of
/// another machine. Panics where it cannot be made.
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
pub fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Kind of file at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A FIFO that nobody writes to or reads.
    Fifo,
    /// A folder.
    Directory,
    /// A symbolic link to a good file.
    LinkToFile,
    /// A symbolic link to nothing.
    LinkToNothing,
    /// A symbolic link to a device without end.
    LinkToDevice,
    /// A device without end.
    Device,
    /// A socket.
    Socket,
    /// A file of a tebibyte without any data.
    Sparse,
    /// A good file that is lengthened all the time.
    Growing,
    /// A good file that is cut and written again all the time.
    Shrinking,
}

impl Plant {
    /// One of each kind.
    pub const ALL: [Self; 10] = [
        Self::Fifo,
        Self::Directory,
        Self::LinkToFile,
        Self::LinkToNothing,
        Self::LinkToDevice,
        Self::Device,
        Self::Socket,
        Self::Sparse,
        Self::Growing,
        Self::Shrinking,
    ];

    /// Whether it is, at some moments at least, what is asked for: a regular file with the good
    /// content, or a link to one.
    pub fn may_be_good(self) -> bool {
        matches!(self, Self::LinkToFile | Self::Growing | Self::Shrinking)
    }

    /// Plants it at `path`, in place of what is there. `good` is the content of a file that would
    /// be accepted; what is planted is gone, and what was there is not, when the result is dropped.
    ///
    /// # Errors
    /// The system's answer; [`io::ErrorKind::PermissionDenied`] for a device without the right to
    /// make one.
    pub fn at(self, path: &Path, good: &[u8]) -> io::Result<Planted> {
        clear(path)?;
        let target = path.with_extension("target-of-link");
        let mut planted = Planted { path: path.to_owned(), change: None };
        match self {
            Self::Fifo => mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)?,
            Self::Directory => fs::create_dir(path)?,
            Self::LinkToFile => {
                fs::write(&target, good)?;
                symlink(&target, path)?;
            }
            Self::LinkToNothing => symlink("nowhere", path)?,
            Self::LinkToDevice => symlink("/dev/zero", path)?,
            Self::Device => {
                let zero = makedev(1, 5);
                mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), zero)?;
            }
            Self::Socket => drop(UnixListener::bind(path)?),
            Self::Sparse => File::create(path)?.set_len(SPARSE_BYTES)?,
            Self::Growing | Self::Shrinking => {
                fs::write(path, good)?;
                let file = OpenOptions::new().write(true).open(path)?;
                let stop = Arc::new(AtomicBool::new(false));
                let (seen, good) = (Arc::clone(&stop), good.to_vec());
                let thread = std::thread::spawn(move || change(self, &file, &good, &seen));
                planted.change = Some((stop, thread));
            }
        }
        Ok(planted)
    }
}

fn change(plant: Plant, file: &File, good: &[u8], stop: &AtomicBool) -> io::Result<()> {
    let mut length = good.len() as u64;
    while !stop.load(Ordering::Relaxed) {
        if plant == Plant::Growing {
            length = if length >= SPARSE_BYTES { good.len() as u64 } else { length + STEP_BYTES };
            file.set_len(length)?;
            // Not holes alone.
            if length < 64 * STEP_BYTES {
                file.write_all_at(&[1], length - 1)?;
            }
            // As fast as a writer that keeps up with a reader, and not so fast that it is gigabytes
            // long before anybody opens it.
            std::thread::sleep(std::time::Duration::from_millis(10));
        } else {
            for share in [2, 0] {
                file.set_len((good.len() as u64).checked_div(share).unwrap_or(0))?;
                std::thread::yield_now();
            }
            file.write_all_at(good, 0)?;
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Something planted; a file that changes all the time does so until this is dropped.
#[derive(Debug)]
pub struct Planted {
    path: std::path::PathBuf,
    change: Option<(Arc<AtomicBool>, JoinHandle<io::Result<()>>)>,
}

impl Drop for Planted {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.change.take() {
            stop.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
        let _ = clear(&self.path);
        let _ = clear(&self.path.with_extension("target-of-link"));
    }
}
