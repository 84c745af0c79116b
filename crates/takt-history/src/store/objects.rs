//! Single objects: written whole or not at all, checked when they are read, each call within a time
//! limit.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::store::StoreError;
use crate::store::backend::{Backend, Meta};
use crate::store::place::{self, Place};

/// Largest piece of a file that is held in memory.
const PART: usize = 4 << 20;

/// Objects of a place.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) place: Place,
    /// Longest time for one call: one part, one list.
    patience: Duration,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As much of `file` as there is, and not more than a part.
fn part(file: &mut (impl Read + ?Sized)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PART as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reason why there is no answer.
enum Unanswered {
    /// It takes longer.
    Late,
    /// The thread that would have asked has ended, or could not be started.
    Ended,
}

impl Unanswered {
    fn of(self, place: String, what: String, waited: Duration) -> StoreError {
        match self {
            Self::Late => StoreError::Slow { place, what, waited },
            Self::Ended => StoreError::Ended { place, what },
        }
    }
}

/// Result of `work` within a time: a file system that does not answer must not block this program.
/// The hanging thread is abandoned.
fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let (answer, answered) = sync_channel(1);
    let thread = std::thread::Builder::new().name("takt-store".to_owned());
    let begun = thread.spawn(move || {
        // The requesting thread may have ended.
        let _ = answer.send(work());
    });
    begun.map_err(|_| Unanswered::Ended)?;
    answered.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => Unanswered::Late,
        RecvTimeoutError::Disconnected => Unanswered::Ended,
    })
}

impl Objects {
    /// Opens the place; `create` as for [`crate::store::Store::open`].
    pub(crate) fn open(place: &str, create: bool, patience: Duration) -> Result<Self, StoreError> {
        place::check(place)?;
        let own = place.to_owned();
        let opened = within(patience, move || place::open(&own, create));
        let opened = opened.map_err(|why| why.of(place.to_owned(), "to open it".to_owned(), patience));
        Ok(Self { place: opened??, patience })
    }

    /// Waits for `work`, and not longer than patience allows.
    fn ask<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&dyn Backend) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (place, what) = (self.place.name.clone(), what.to_owned());
        let backend = Arc::clone(&self.place.backend);
        // Not an answer of the store, but of what lies where an object should be.
        let is_none = |error: &io::Error| {
            use io::ErrorKind::{FileTooLarge, InvalidInput, IsADirectory, NotADirectory};
            matches!(error.kind(), FileTooLarge | InvalidInput | IsADirectory | NotADirectory)
        };
        match within(self.patience, move || work(&*backend)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if is_none(&error) => {
                Err(StoreError::Damaged { place, object: what, why: error.to_string() })
            }
            Ok(Err(error)) => Err(StoreError::Refused { place, what, why: error.to_string() }),
            Err(why) => Err(why.of(place, what, self.patience)),
        }
    }

    pub(crate) fn head(&self, name: &str) -> Result<Option<Meta>, StoreError> {
        let own = name.to_owned();
        self.ask(name, move |backend| backend.head(&own))
    }

    /// See [`Backend::agrees`].
    pub(crate) fn agrees(&self, name: &str, from: &Path) -> Result<Option<bool>, StoreError> {
        let mut file =
            takt_files::open(from).map_err(|source| StoreError::Io { path: from.to_owned(), source })?;
        let own = name.to_owned();
        self.ask(name, move |backend| backend.agrees(&own, &mut file))
    }

    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let own = name.to_owned();
        self.ask(name, move |backend| {
            let mut draft = backend.write(&own)?;
            draft.write(&bytes)?;
            draft.commit()
        })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), StoreError> {
        let own = name.to_owned();
        self.ask(name, move |backend| backend.delete(&own))
    }

    /// See [`Backend::is_empty`].
    pub(crate) fn is_empty(&self) -> Result<bool, StoreError> {
        self.ask("what is there", |backend| backend.is_empty())
    }

    /// Names below `folder`, without it.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<(String, Meta)>, StoreError> {
        let own = folder.to_owned();
        self.ask(&format!("list of {folder}"), move |backend| backend.list(&own))
    }

    /// Names below `folder`, without it, and nothing else of them.
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let own = folder.to_owned();
        self.ask(&format!("list of {folder}"), move |backend| backend.names(&own))
    }

    /// See [`Backend::path`].
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.place.backend.path(name)
    }

    /// See [`Backend::tidy`].
    pub(crate) fn tidy(
        &self,
        folders: &'static [&'static str],
        before: SystemTime,
        dry: bool,
    ) -> Result<(usize, u64), StoreError> {
        self.ask("remains of a transfer that was cut off", move |backend| backend.tidy(folders, before, dry))
    }

    /// All of an object of at most `most` bytes; `None` where it is not there.
    pub(crate) fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let own = name.to_owned();
        self.ask(name, move |backend| {
            let Some(object) = backend.read(&own)? else { return Ok(None) };
            let mut bytes = Vec::new();
            object.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > most {
                let why = format!("more than {most} bytes, too many for this kind of object");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            Ok(Some(bytes))
        })
    }

    /// The file at `from` as object `name`, which is the hash of what it must hold.
    pub(crate) fn put_file(&self, name: &str, from: &Path, hash: &str) -> Result<u64, StoreError> {
        let io = |source| StoreError::Io { path: from.to_owned(), source };
        let mut file = takt_files::open(from).map_err(io)?;
        let own = name.to_owned();
        let mut draft = self.ask(name, move |backend| backend.write(&own))?;
        let (mut hasher, mut sent) = (Sha256::new(), 0);
        loop {
            let bytes = part(&mut file).map_err(io)?;
            if bytes.is_empty() {
                break;
            }
            hasher.update(&bytes);
            sent += bytes.len() as u64;
            draft = self.ask(name, move |_| draft.write(&bytes).map(|()| draft))?;
        }
        if hex(&hasher.finalize()) != hash {
            let why = "was changed after the run was sealed".to_owned();
            return Err(StoreError::Run { path: from.to_owned(), why });
        }
        self.ask(name, move |_| draft.commit()).map(|()| sent)
    }

    /// Reads object `name`, part by part, and checks that it has the hash.
    pub(crate) fn read_checked(
        &self,
        name: &str,
        hash: &str,
        take: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let damaged = |why: String| StoreError::Damaged {
            place: self.place.name.clone(),
            object: name.to_owned(),
            why,
        };
        let own = name.to_owned();
        let object = self.ask(name, move |backend| backend.read(&own))?;
        let mut object = object.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let (mut hasher, mut length) = (Sha256::new(), 0);
        loop {
            let bytes;
            (object, bytes) = self.ask(name, move |_| part(&mut *object).map(|bytes| (object, bytes)))?;
            if bytes.is_empty() {
                break;
            }
            hasher.update(&bytes);
            length += bytes.len() as u64;
            take(&bytes)?;
        }
        let found = hex(&hasher.finalize());
        if found == hash { Ok(length) } else { Err(damaged(format!("its content has the hash {found}"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a dead server's folder does.
    #[test]
    fn a_store_that_does_not_answer_is_left() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("store");
        let store = Objects::open(at.to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
        let store = Objects { patience: Duration::from_millis(20), ..store };
        let (_silent, answer) = std::sync::mpsc::channel::<()>();
        let asked = store.ask("samples", move |_| answer.recv().map_err(io::Error::other));
        assert!(matches!(&asked, Err(StoreError::Slow { what, .. }) if what == "samples"), "{asked:?}");
    }
}
