//! One program at a time changes settings of the whole machine.
//!
//! Two that each bring back what they found leave what the other one had set: whoever begins second
//! takes the first one's setting for the machine's own. A state file keeps out only whoever names
//! the same. So all hold one lock in one place, which the kernel releases however its holder ends;
//! and in it stands by which state file that one is undone. If neither the program nor its watchdog
//! could undo it, the next program does it first, whatever file it uses itself.
//!
//! A container has a `/run` of its own: programs in two of them exclude each other where both are
//! given the host's (`-v /run/takt:/run/takt`).

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Error, Restored, journal};
use crate::reserve::system::Kernel;

/// Path of the lock.
pub const OWNER_FILE: &str = "/run/takt/machine.lock";

/// Another one's end is waited for so long: what places threads takes milliseconds, and so does a
/// watchdog that undoes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const STEP: Duration = Duration::from_millis(20);
/// A record is shorter.
const MAX_BYTES: u64 = 16 << 10;

/// Form of the state file, which determines its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// [`State`](super::State), undone by [`super::undo`].
    Reservations,
    /// The doctor's, which also searches for settings write: `takt tune --restore`.
    Settings,
}

/// Content of the lock.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The holder, as it counts itself.
    pid: u32,
    /// The namespace of that number.
    namespace: Option<PathBuf>,
    /// Its command line's beginning.
    program: String,
    boot: String,
    /// By which it is undone.
    state: PathBuf,
    form: Form,
}

/// Holds the lock as long as it lives.
#[derive(Debug)]
pub struct Owner {
    file: File,
}

impl Owner {
    /// Takes the lock, and undoes what another one's state file than `state` says, if that one was
    /// killed. No lock for a kernel in memory, nor for a user who may not hold it: to such a one
    /// the kernel refuses settings of the whole machine.
    ///
    /// # Errors
    /// Another one has it; what was left behind cannot be undone here; or it cannot be had by root.
    pub fn take(kernel: &mut dyn Kernel, state: &Path) -> Result<(Option<Self>, Option<Restored>), Error> {
        let Some(place) = kernel.owner_file() else { return Ok((None, None)) };
        let no_owner = |source| Error::NoOwner { path: place.clone(), source };
        let owner = match open(&place) {
            Ok(file) => Self { file },
            Err(_) if !journal::is_root() => return Ok((None, None)),
            Err(source) => return Err(no_owner(source)),
        };
        let until = Instant::now() + PATIENCE;
        while !owner.lock().map_err(no_owner)? {
            if Instant::now() >= until {
                return Err(Error::Owned { who: owner.who(), path: place });
            }
            std::thread::sleep(STEP);
        }
        let left = owner.undo_what_is_left(kernel, state)?;
        Ok((Some(owner), left))
    }

    /// Takes the lock for a watchdog, whose work is over where `needed` says no: whoever took the
    /// lock before it has done it. `None` also after a while, and where there is no lock: a thing
    /// that is undone twice is better than one that is not undone.
    pub fn take_to_undo(kernel: &dyn Kernel, mut needed: impl FnMut() -> bool) -> Option<Self> {
        let owner = Self { file: open(&kernel.owner_file()?).ok()? };
        let until = Instant::now() + 5 * PATIENCE;
        while needed() && Instant::now() < until {
            if owner.lock().ok()? {
                return Some(owner);
            }
            std::thread::sleep(STEP);
        }
        None
    }

    /// Takes the lock if nobody has it.
    #[must_use]
    pub fn if_free(kernel: &dyn Kernel) -> Option<Self> {
        let owner = Self { file: open(&kernel.owner_file()?).ok()? };
        owner.lock().ok()?.then_some(owner)
    }

    /// Writes down by what the holder is undone. To be called before it changes anything.
    ///
    /// # Errors
    /// The system's answer.
    pub fn undone_by(&self, kernel: &dyn Kernel, state: &Path, form: Form) -> Result<(), Error> {
        let path = || kernel.owner_file().unwrap_or_default();
        let write = || -> io::Result<()> {
            let words = std::env::args_os().take(2);
            let words = words.map(|word| Path::new(&word).file_name().map_or(word.clone(), Into::into));
            let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
            let record = Record {
                pid: std::process::id(),
                namespace: namespace(),
                program: words.join(" "),
                boot: journal::boot(kernel),
                state: std::path::absolute(state)?,
                form,
            };
            let mut file = &self.file;
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&serde_json::to_vec(&record)?)
        };
        write().map_err(|source| Error::NoOwner { path: path(), source })
    }

    fn lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// `None`: nobody has written any yet, or was killed while writing, before any change.
    fn record(&self) -> Option<Record> {
        let mut text = Vec::new();
        let mut file = &self.file;
        file.rewind().ok()?;
        file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Holder of the lock, for people.
    fn who(&self) -> String {
        match self.record() {
            Some(Record { pid, program, namespace: of, .. }) if of == namespace() => {
                format!("process {pid} (`{program}`)")
            }
            Some(Record { program, .. }) => format!("`{program}` in another container"),
            None => "another program".to_owned(),
        }
    }

    fn undo_what_is_left(&self, kernel: &mut dyn Kernel, own: &Path) -> Result<Option<Restored>, Error> {
        let Some(record) = self.record().filter(|record| record.boot == journal::boot(kernel)) else {
            return Ok(None);
        };
        // Whose own file it is undoes it by itself.
        if std::path::absolute(own).is_ok_and(|own| own == record.state) || !record.state.exists() {
            return Ok(None);
        }
        match record.form {
            Form::Reservations => super::restore_as_owner(kernel, &record.state),
            Form::Settings => Err(Error::LeftBehind { path: record.state }),
        }
    }
}

/// Namespace whose processes are counted with this one.
fn namespace() -> Option<PathBuf> {
    fs::read_link("/proc/self/ns/pid").ok()
}

fn open(place: &Path) -> io::Result<File> {
    takt_files::private_folder(place.parent().unwrap_or(Path::new("/")))?;
    takt_files::open_lock(place)
}
