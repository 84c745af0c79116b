//! Run directories: everything that a run was asked, granted and saw, in files that outlive a kill.
//!
//! | file | content | written |
//! |---|---|---|
//! | `run.json` | what was asked and granted, machine, census | at the start, again at the end |
//! | `samples/*.csv` | raw samples, one line each, units in the column names | while running, flushed twice a second |
//! | `samples/*.parquet` | the same, sealed; the CSV is gone then | at the end |
//! | `summary.json` | figures computed from the samples | at the end |
//! | `checkpoint.json` | what a killed run goes on from | while running; gone with the seal |
//! | `hashes.json` | SHA-256 of every other file, and of the list itself | last |

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use takt_files::Folder;

use crate::files::{json_text, parse_json, read_json, sha256};
use crate::memory::Memory;
use crate::samples::{NumberFile, SampleFile};
use crate::series::{self, Series};
use crate::{Error, FORMAT, Measure, NotARun, RunHeader, SealState, seal, steps, utc};

/// File of facts and settings.
pub const RUN_FILE: &str = "run.json";
/// File of computed figures.
pub const SUMMARY_FILE: &str = "summary.json";
pub const HASHES_FILE: &str = "hashes.json";
/// Folder of raw samples.
pub const SAMPLES_FOLDER: &str = "samples";

#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    memory: Memory,
}

/// Now, as a name that sorts: `2026-11-21T15-52-02Z`.
pub fn utc_name() -> String {
    utc::rfc3339(SystemTime::now(), false).replace(':', "-")
}

/// Now, RFC 3339.
pub fn utc_now() -> String {
    utc::rfc3339(SystemTime::now(), true)
}

/// Reason why a run directory cannot be made, with the way out.
fn not_made(error: std::io::Error) -> std::io::Error {
    if error.raw_os_error().is_none() {
        return error; // Says why by itself: a link that is not followed.
    }
    let why = match error.kind() {
        ErrorKind::PermissionDenied => "no permission to create a folder there",
        ErrorKind::NotADirectory => "a part of this path is a file, not a folder",
        ErrorKind::ReadOnlyFilesystem => "the file system there is read-only",
        _ => return error,
    };
    std::io::Error::new(error.kind(), format!("{why}. Fix: pass a writable folder with --runs"))
}

impl RunDir {
    /// Makes a new directory `<root>/<time>-<label>`, with a number behind it where that exists.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be made.
    pub fn create(root: &Path, label: &str) -> Result<Self, Error> {
        let base = format!("{}-{label}", utc_name());
        for attempt in 1..1000 {
            let name = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
            let path = root.join(name);
            match Folder::create(&path) {
                Ok(folder) => return Self::at(path, &folder),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::Io { path, source: not_made(error) }),
            }
        }
        let source = std::io::Error::from(ErrorKind::AlreadyExists);
        Err(Error::Io { path: root.join(base), source })
    }

    /// Makes the directory `path` itself, which must not exist.
    ///
    /// # Errors
    /// [`Error::Io`] when it exists or cannot be made.
    pub fn create_at(path: &Path) -> Result<Self, Error> {
        let folder = Folder::create(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => std::io::Error::new(
                ErrorKind::AlreadyExists,
                "already exists, and runs are never overwritten; name a new folder",
            ),
            _ => not_made(error),
        });
        Self::at(path.to_owned(), &folder.map_err(Error::io(path))?)
    }

    fn at(path: PathBuf, folder: &Folder) -> Result<Self, Error> {
        folder.subfolder(SAMPLES_FOLDER).map_err(Error::io(path.join(SAMPLES_FOLDER)))?;
        Ok(Self { path, memory: Memory::default() })
    }

    /// A run directory in memory, for a run that has something to report although `error` kept its
    /// directory from being made. As one that [`keep_in_memory`](Self::keep_in_memory) was asked of
    /// and that could not be written: it is not sealed.
    ///
    /// # Errors
    /// `error` itself where it is not the disk's (a folder that exists or that nobody may write is
    /// the caller's to name), or where memory takes no directory either.
    pub fn in_memory(error: Error) -> Result<Self, Error> {
        if !error.is_of_the_disk() {
            return Err(error);
        }
        let memory = Memory::default();
        memory.begin();
        let Ok(path) = memory.begin_shelter() else { return Err(error) };
        memory.note(error)?;
        Ok(Self { path, memory })
    }

    /// Folder for a file of another writer when the run's own folder accepts no more data; `None`
    /// if nothing went to memory.
    pub fn shelter(&self) -> Option<PathBuf> {
        self.memory.folder()
    }

    /// From now on what cannot be written (a full disk, no inodes or descriptors, a folder that is
    /// gone) is kept in memory, for this value and its copies, and is no error: a robot must not
    /// lose its control over it, nor a run its verdict. [`unwritten`](Self::unwritten) says so, and
    /// such a run is not sealed.
    pub fn keep_in_memory(&self) {
        self.memory.begin();
    }

    /// The data that could not be written, as [`Error::Unwritten`]; `None` if everything was
    /// written.
    pub fn unwritten(&self) -> Option<Error> {
        self.memory.unwritten()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Opens an existing run directory.
    ///
    /// # Errors
    /// [`Error::Damaged`] where there is no `run.json`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.join(RUN_FILE).is_file() {
            return Ok(Self { path: path.to_owned(), memory: Memory::default() });
        }
        Err(Error::NoRun { path: path.to_owned(), found: found_instead(path) })
    }

    /// Removes the directory of a run that could not begin, with what was prepared in it. Only for
    /// whoever made it and has measured nothing: a folder that holds half a run would be in the way
    /// of every report beside it.
    pub fn discard(&self) {
        let _ = fs::remove_dir_all(&self.path);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `value` to `name` whole or not at all: a temporary file, synced, then renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        let path = self.path.join(name);
        let text = json_text(&path, value)?;
        match steps::replace(&path, text.as_bytes(), true) {
            Ok(()) => {
                self.memory.written(name);
                Ok(())
            }
            Err(error) => self.memory.keep(name, text, error),
        }
    }

    /// Reads `name`; while the run is not sealed, as the newest checkpoint has it where that has
    /// it.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] where it does not hold a `T`.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.path.join(name);
        if let Some(text) = self.memory.text(name) {
            return parse_json(&path, &text);
        }
        match self.accumulating(name)? {
            Some(text) => parse_json(&path, &text),
            None => read_json(&path),
        }
    }

    /// Like [`read_json`](Self::read_json); `None` where there is no such file.
    ///
    /// # Errors
    /// As there.
    pub fn find_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        match self.read_json(name) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// The run's header.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] where `run.json` is of a newer layout or says what
    /// cannot be meant.
    pub fn header(&self) -> Result<RunHeader, Error> {
        let newer = |layout: u64| Error::Damaged {
            path: self.path.join(RUN_FILE),
            found: format!("has layout {layout}, but this takt reads layouts up to {FORMAT}"),
            expected: "a run written by this version of takt or an older one",
        };
        let read = self.read_json(RUN_FILE);
        let header: RunHeader = read.map_err(|error| {
            // A newer layout may have other keys: then its number explains more than what is
            // missing.
            let layout = self.read_json::<serde_json::Value>(RUN_FILE).ok();
            let layout = layout.and_then(|value| value["format"].as_u64());
            layout.filter(|&layout| layout > FORMAT.into()).map_or(error, newer)
        })?;
        if header.format > FORMAT {
            return Err(newer(header.format.into()));
        }
        header.validate().map_err(|found| Error::Damaged {
            path: self.path.join(RUN_FILE),
            found: found.to_string(),
            expected: "claims and rates that a robot's file may state",
        })?;
        Ok(header)
    }

    /// The samples of `measure`, within its window.
    ///
    /// # Errors
    /// [`Error::Io`] where there are none, [`Error::Damaged`] where they are not what the measure
    /// says.
    pub fn series(&self, measure: &Measure) -> Result<Series, Error> {
        series::read(&self.sample_base(&measure.file)?, measure)
    }

    /// Whether there is a sample file of this name, sealed or not.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a name that leads out of the directory.
    pub fn has_samples(&self, file: &str) -> Result<bool, Error> {
        let base = self.sample_base(file)?;
        Ok(["parquet", "csv"].iter().any(|extension| base.with_added_extension(extension).is_file()))
    }

    /// Columns of non-negative integers of a sample file.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn columns(&self, file: &str, names: &[&str]) -> Result<Vec<Vec<u64>>, Error> {
        series::columns(&self.sample_base(file)?, names)
    }

    /// Columns of a sample file as text, whatever they hold; gaps are empty. For files of few rows,
    /// with words in them.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn texts(&self, file: &str, names: &[&str]) -> Result<Vec<Vec<String>>, Error> {
        series::texts(&self.sample_base(file)?, names)
    }

    /// A sample file without its extension. The name comes from a file: it must not lead out of the
    /// directory.
    pub(crate) fn sample_base(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.path.join(SAMPLES_FOLDER);
        if name.is_empty() || name.contains(['/', '\\', '\0']) || name.starts_with('.') {
            return Err(Error::Damaged {
                path: self.path.join(RUN_FILE),
                found: format!("sample file \"{name}\""),
                expected: "a plain name",
            });
        }
        Ok(self.memory.sheltered(name).unwrap_or_else(|| folder.join(name)))
    }

    /// Hash that stands for the whole sealed run: the SHA-256 of `hashes.json`. `None` before the
    /// seal.
    pub fn seal_hash(&self) -> Option<String> {
        sha256(&self.path.join(HASHES_FILE)).ok()
    }

    /// Files that are not what they were when the run was sealed, that are gone, or that are
    /// evidence and were never sealed.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Damaged`] where there is no seal.
    pub fn changed_files(&self) -> Result<Vec<String>, Error> {
        seal::changed(&self.path)
    }

    /// Whether the files are what the run left. Reads all of them.
    pub fn seal_state(&self) -> SealState {
        match (self.seal_hash(), self.changed_files()) {
            (Some(hash), Ok(changed)) if changed.is_empty() => SealState::Whole(hash),
            (Some(_), Ok(changed)) => SealState::Changed(changed),
            // A FIFO, a link that leads to a device or nowhere, or what cannot be read is no run
            // that was never sealed.
            (None, _) if self.has_no_seal() => SealState::Missing,
            _ => SealState::Changed(vec![HASHES_FILE.to_owned()]),
        }
    }

    fn has_no_seal(&self) -> bool {
        let found = fs::symlink_metadata(self.path.join(HASHES_FILE));
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Whether the run came to its end.
    pub fn is_complete(&self) -> bool {
        // Not what a link leads to: that is another run's, or whatever somebody likes.
        fs::symlink_metadata(self.path.join(HASHES_FILE)).is_ok_and(|found| found.is_file())
    }

    /// Opens a new sample file.
    ///
    /// # Errors
    /// [`Error::Io`] where it exists already, sealed or not: samples are never overwritten.
    pub fn samples(&self, name: &str) -> Result<SampleFile, Error> {
        SampleFile::create(self.sample_path(name), &self.memory)
    }

    /// Opens a new sample file of whole numbers with these columns.
    ///
    /// # Errors
    /// As [`samples`](Self::samples).
    pub fn numbers(&self, name: &str, columns: &[&str]) -> Result<NumberFile, Error> {
        NumberFile::create(self.sample_path(name), columns, &self.memory)
    }

    pub fn sample_path(&self, name: &str) -> PathBuf {
        self.path.join(SAMPLES_FOLDER).join(format!("{name}.csv"))
    }

    /// Gives a sample file that is not sealed another name: one that is known only at the end.
    ///
    /// # Errors
    /// [`Error::Io`] where there is none, or one of the other name; [`Error::Damaged`] for a name
    /// that leads out of the directory.
    pub fn rename_samples(&self, from: &str, to: &str) -> Result<(), Error> {
        self.sample_base(to)?;
        let (from, to) = match self.memory.sheltered(from) {
            Some(base) => (base.with_added_extension("csv"), base.with_file_name(format!("{to}.csv"))),
            None => (self.sample_path(from), self.sample_path(to)),
        };
        let there = ["parquet", "csv"].map(|extension| to.with_extension(extension));
        if there.iter().any(|path| fs::symlink_metadata(path).is_ok()) {
            return Err(Error::Io { path: to, source: ErrorKind::AlreadyExists.into() });
        }
        fs::rename(&from, &to).map_err(Error::io(&from))
    }

    /// Goes on with a sample file after a kill, or begins it. A last line that the kill cut in half
    /// is taken away. Returns the number of rows that it holds, too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn continue_samples(&self, name: &str) -> Result<(SampleFile, u64), Error> {
        SampleFile::go_on(self.sample_path(name), &self.memory)
    }

    /// Turns the journals into Parquet, hashes every file and writes `hashes.json`, which marks the
    /// run as complete. Killed at any step, it has sealed the run or it has not, and no sample is
    /// lost; called again, it goes on.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a broken journal.
    pub fn seal(&self) -> Result<(), Error> {
        if let Some(unwritten) = self.unwritten() {
            // There may be room again: then the figures are there, though not all of the samples.
            let folders = [Some(self.path.clone()), self.memory.folder()];
            for (name, text) in self.memory.files() {
                for folder in folders.iter().flatten() {
                    let _ = steps::replace(&folder.join(&name), text.as_bytes(), false);
                }
            }
            return Err(unwritten);
        }
        let sealed = if self.is_complete() { Ok(()) } else { self.put_accumulated() };
        let sealed = sealed.and_then(|()| seal::seal(&self.path));
        // The journals are whole, and the seal can be tried again.
        sealed.or_else(|error| self.memory.note(error).and_then(|()| self.unwritten().map_or(Ok(()), Err)))
    }
}

/// The run directories at `path`: itself, or those in the folders below it (a campaign, or a folder
/// of campaigns), in the order of their names.
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] when there is none.
pub fn find_runs(path: &Path) -> Result<Vec<RunDir>, Error> {
    let mut runs = Vec::new();
    if path.is_dir() {
        search(path, 3, &mut runs)?;
    }
    if runs.is_empty() {
        return Err(Error::NoRuns { path: path.to_owned(), found: found_instead(path) });
    }
    Ok(runs)
}

/// Describes `path`, where a run directory was expected and is missing.
fn found_instead(path: &Path) -> NotARun {
    if !path.exists() {
        return NotARun::Nothing;
    }
    if !path.is_dir() {
        return NotARun::File;
    }
    let mut runs = Vec::new();
    // A folder that cannot be read has no runs that could be named.
    let _ = search(path, 2, &mut runs);
    match runs.first() {
        Some(first) => NotARun::Folder { runs: runs.len(), first: first.path.clone() },
        None if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) => NotARun::Empty,
        None => NotARun::Other,
    }
}

fn search(path: &Path, depth: usize, runs: &mut Vec<RunDir>) -> Result<(), Error> {
    if path.join(RUN_FILE).is_file() {
        runs.push(RunDir { path: path.to_owned(), memory: Memory::default() });
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let mut folders: Vec<PathBuf> = fs::read_dir(path)
        .map_err(Error::io(path))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        // The remains of a killed run are next to the run that replaced it.
        .filter(|p| p.is_dir() && !p.extension().is_some_and(|e| e.to_string_lossy().starts_with("cut")))
        .collect();
    folders.sort();
    folders.iter().try_for_each(|folder| search(folder, depth - 1, runs))
}

/// Makes way for a new run at `path`: what a kill left of the one before is kept beside it, never
/// deleted, under a name that [`find_runs`] passes over.
///
/// # Errors
/// [`Error::Io`].
pub fn set_aside(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = (1..).map(|n| path.with_file_name(format!("{name}.cut{n}"))).find(|p| !p.exists());
    fs::rename(path, aside.unwrap_or_default()).map_err(Error::io(path))
}

#[cfg(test)]
mod tests;
