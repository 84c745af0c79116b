//! The steps by which files of a run become official: each can be the last one before a kill or a
//! power failure, and a test ends the process at each of them.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::Error;

/// Called before every step. In tests it ends the process, as SIGKILL does: no destructor runs,
/// nothing is written behind.
fn before(what: &str, path: &Path) {
    #[cfg(test)]
    crate::kills_tests::step(what, path);
    #[cfg(not(test))]
    let _ = (what, path);
}

/// Gives a draft its name `to`, and puts the change of the folder onto the disk.
pub(crate) fn finish(draft: takt_files::Draft, to: &Path) -> Result<(), Error> {
    before("rename", to);
    draft.finish().map_err(Error::io(to))?;
    sync_folder(to)
}

/// Takes a file away; one that is not there is no error, so that the step can be repeated.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    before("remove", path);
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}

/// Puts what a file holds onto the disk.
pub(crate) fn sync(path: &Path) -> Result<(), Error> {
    before("sync", path);
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io(path))
}

/// Puts the names in the folder of `path` onto the disk: a rename outlives a power failure only
/// then (fsync(2)).
pub(crate) fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    before("sync", folder);
    match File::open(folder).and_then(|file| file.sync_all()) {
        // File systems without the notion say so (fsync(2)).
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        other => other.map_err(Error::io(folder)),
    }
}

/// Cuts a file after `length` bytes.
pub(crate) fn cut(path: &Path, length: u64) -> Result<(), Error> {
    before("cut", path);
    let cut = || -> std::io::Result<()> {
        let file = takt_files::open_for_change(path)?;
        if file.metadata()?.len() == length {
            return Ok(());
        }
        file.set_len(length)?;
        file.sync_all()
    };
    cut().map_err(Error::io(path))
}

/// Most bytes of one system call: a kernel without preemption lets a real-time thread have the CPU
/// again at its end only, and copies these in some ten microseconds. A checkpoint has half a
/// million.
const PIECE_BYTES: usize = 1 << 14;

/// Writes a file whole or not at all. `durable`: also when the power fails; otherwise when this
/// process is killed.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: bool) -> Result<(), Error> {
    before("write", path);
    let write = || -> std::io::Result<takt_files::Draft> {
        let (folder, name) = takt_files::Folder::of(path)?;
        let mut draft = folder.draft(name)?;
        for piece in bytes.chunks(PIECE_BYTES) {
            draft.write_all(piece)?;
        }
        if durable {
            draft.file()?.sync_all()?;
        }
        Ok(draft)
    };
    let draft = write().map_err(Error::io(path))?;
    if durable {
        return finish(draft, path);
    }
    before("rename", path);
    draft.finish().map_err(Error::io(path))
}
