//! Data of a run that could not be written: it stays in memory, so that a full disk or a removed
//! folder affects neither the robot's control nor the verdict.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::dir::SAMPLES_FOLDER;
use crate::sink::new_file;

/// The part of a run directory that is in memory alone. All copies of a [`RunDir`](crate::RunDir)
/// share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Unwritten>>);

#[derive(Debug, Default)]
struct Unwritten {
    /// Whether what cannot be written is kept here, and is no error.
    keeps: bool,
    /// The first failure.
    first: Option<(PathBuf, String)>,
    /// Files by name, with their text.
    files: BTreeMap<String, String>,
    /// Folder in memory in which sample files continue.
    shelter: Option<PathBuf>,
    rows_lost: u64,
}

/// EIO, ENFILE, EMFILE.
const NO_DESCRIPTOR_OR_DEVICE: [i32; 3] = [5, 23, 24];

/// A file system in memory.
const IN_MEMORY: &str = "/dev/shm";
/// Most bytes of a sample file that are taken there: figures are of all values without them, too.
pub(crate) const MAX_SHELTERED_BYTES: u64 = 256 << 20;

/// A new folder of this user's own.
fn new_folder() -> io::Result<PathBuf> {
    let own = std::process::id();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 1..100 {
        let path = Path::new(IN_MEMORY).join(format!("takt-run-{own}-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return DirBuilder::new().mode(0o700).create(path.join(SAMPLES_FOLDER)).map(|()| path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether a file could not be written for a reason that lies outside of this program: no space, no
/// inode, no descriptor, a folder that is gone, a disk that fails.
fn is_outside(source: &io::Error) -> bool {
    source.raw_os_error().is_some() && source.kind() != io::ErrorKind::AlreadyExists
}

impl Error {
    /// Whether it is a failure of the disk, or of what else a file needs.
    pub fn is_outside(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_outside(source),
            Self::Unwritten { .. } => true,
            Self::Damaged { .. } | Self::NoRun { .. } | Self::NoRuns { .. } => false,
        }
    }

    /// Whether the disk could not take a file that it takes at other times: no space, no inodes, no
    /// descriptors, an error of the device.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            || source.raw_os_error().is_some_and(|number| NO_DESCRIPTOR_OR_DEVICE.contains(&number))
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what cannot be written is kept.
    pub fn begin(&self) {
        self.lock().keeps = true;
    }

    /// Notes a failure; the error itself where it is not one to go on after.
    pub fn note(&self, error: Error) -> Result<(), Error> {
        let mut held = self.lock();
        match &error {
            Error::Io { path, source } if held.keeps && is_outside(source) => {
                held.first.get_or_insert_with(|| (path.clone(), source.to_string()));
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// As [`note`](Self::note), of the file `name` with its whole text.
    pub fn keep(&self, name: &str, text: String, error: Error) -> Result<(), Error> {
        self.note(error)?;
        self.lock().files.insert(name.to_owned(), text);
        Ok(())
    }

    /// The text of the file `name`, of which a failure was noted.
    pub fn hold(&self, name: &str, text: &str) {
        self.lock().files.insert(name.to_owned(), text.to_owned());
    }

    /// The file `name` has been written since.
    pub fn written(&self, name: &str) {
        self.lock().files.remove(name);
    }

    pub fn lose_rows(&self, rows: u64) {
        let mut held = self.lock();
        held.rows_lost = held.rows_lost.saturating_add(rows);
    }

    /// Makes the folder in memory.
    pub fn begin_shelter(&self) -> io::Result<PathBuf> {
        let folder = new_folder()?;
        self.lock().shelter = Some(folder.clone());
        Ok(folder)
    }

    /// A new file in memory for the sample file `name`.
    pub fn shelter(&self, name: &str) -> io::Result<(PathBuf, File)> {
        let mut held = self.lock();
        let folder = match held.shelter.clone() {
            Some(folder) => folder,
            None => held.shelter.insert(new_folder()?).clone(),
        };
        let path = folder.join(SAMPLES_FOLDER).join(name);
        new_file(&path).map(|file| (path, file))
    }

    /// The sample file `name` in memory, without its extension, where it went on there.
    pub fn sheltered(&self, name: &str) -> Option<PathBuf> {
        let base = self.lock().shelter.as_ref()?.join(SAMPLES_FOLDER).join(name);
        base.with_added_extension("csv").is_file().then_some(base)
    }

    /// The folder in memory, where there is one.
    pub fn folder(&self) -> Option<PathBuf> {
        self.lock().shelter.clone()
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.lock().files.get(name).cloned()
    }

    pub fn files(&self) -> BTreeMap<String, String> {
        self.lock().files.clone()
    }

    /// The data that could not be written, as an error; `None` if everything was written.
    pub fn unwritten(&self) -> Option<Error> {
        let held = self.lock();
        let (path, why) = held.first.clone()?;
        let kept = held.shelter.as_ref().map_or(String::new(), |folder| {
            format!("; it stays in memory, in {}, until you remove it", folder.display())
        });
        Some(Error::Unwritten { path, why, rows_lost: held.rows_lost, kept })
    }
}
