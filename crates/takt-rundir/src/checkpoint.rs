//! Checkpoints: what a run that is killed goes on from, the same for every robot.
//!
//! A checkpoint is one file, written whole or not at all: how many rows each sample file held, and
//! the text of every file that accumulates (recorders, tallies). Going on cuts the sample files to
//! those rows and puts the accumulating files back, so that both hold the same samples: none is
//! counted twice, and none is lost but those after the checkpoint.
//!
//! While the run goes on, the accumulating files are in the checkpoint only: a file more that is
//! replaced twice a second costs the kernel half a millisecond each time (ext4 hands its blocks to
//! the disk in the rename), in which a kernel without preemption lets no real-time thread run on
//! that CPU. [`RunDir::read_json`] looks into the checkpoint; the seal makes files of them.
//!
//! Two files, for two dangers. `checkpoint.json` is replaced twice a second and outlives a kill.
//! `checkpoint.durable.json` is a copy that was put onto the disk together with its rows, seldom
//! and by another thread, because fsync waits for the disk: after a power failure, when the first
//! may be empty or name rows that never reached the disk, the run goes on from there.
//!
//! Each ends with the SHA-256 of the text before it. One that a power failure left breaks off, or
//! has blocks of zeros; one that is whole and does not have its sum was changed, and nothing goes
//! on from it: an older checkpoint would drop rows, and nobody would know.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::dir::{RunDir, SUMMARY_FILE};
use crate::files::sha256_of;
use crate::samples::{SampleFile, Sum, Zeros, place_after};
use crate::series::with_suffix;
use crate::{Error, steps};

/// The newest checkpoint.
pub(crate) const CHECKPOINT_FILE: &str = "checkpoint.json";
/// The newest that is on the disk.
const DURABLE_FILE: &str = "checkpoint.durable.json";

/// Key of the sum, the last one of a checkpoint's text, and the length of everything from there on.
const SUM_KEY: &[u8] = b",\"sha256\":\"";
const SUM_LENGTH: usize = SUM_KEY.len() + 64 + 2;

/// Whether this is a file of checkpoints, which are of no use once the run is sealed.
pub(crate) fn is_checkpoint(name: &str) -> bool {
    [CHECKPOINT_FILE, DURABLE_FILE].contains(&name)
}

/// Whether a name, which comes from a file, stays within the directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.')
}

/// State from which a run resumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Measured time, nanoseconds, without the gaps between a kill and a resumption.
    pub elapsed_ns: u64,
    /// When the measured window of the run's first part began, CLOCK_MONOTONIC; none before it has.
    /// The header says so too, but later: a kill in between must not lose the part that was
    /// measured.
    #[serde(default)]
    pub from_ns: Option<u64>,
    /// Number of times that the run was resumed.
    pub resumed: u32,
    /// Rows of each sample file.
    pub rows: BTreeMap<String, u64>,
    /// Sums of those rows for each sample file, if they were computed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sums: BTreeMap<String, Sum>,
    /// Files that accumulate, by name, with their text.
    pub files: BTreeMap<String, String>,
}

/// A checkpoint while it is put together; see [`RunDir::checkpoint`].
#[derive(Clone, Debug, Default)]
pub struct Draft {
    inner: Checkpoint,
}

impl Draft {
    /// Begins with what an earlier part of the run left, so that what this one has not touched yet
    /// is not lost with the next kill; with [`Checkpoint::default`] in a run from its start.
    pub fn after(before: &Checkpoint) -> Self {
        Self { inner: before.clone() }
    }

    /// Measured time; the greatest of those that are reported.
    pub fn elapsed_ns(&mut self, elapsed_ns: u64) {
        self.inner.elapsed_ns = self.inner.elapsed_ns.max(elapsed_ns);
    }

    /// The measured window of this part has begun; that of the first part stays.
    pub fn begun(&mut self, from_ns: u64) {
        self.inner.from_ns = Some(self.inner.from_ns.map_or(from_ns, |first_ns| first_ns.min(from_ns)));
    }

    /// Hands a sample file to the kernel and keeps how many rows it has then.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn samples(&mut self, file: &mut SampleFile) -> Result<(), Error> {
        file.flush()?;
        self.rows(&file.name(), file.rows(), file.sum());
        Ok(())
    }

    /// Keeps how many rows a sample file of another thread has that were handed to the kernel, and
    /// what they are.
    pub fn rows(&mut self, name: &str, rows: u64, sum: Option<Sum>) {
        self.inner.rows.insert(name.to_owned(), rows);
        match sum {
            Some(sum) => drop(self.inner.sums.insert(name.to_owned(), sum)),
            None => drop(self.inner.sums.remove(name)),
        }
    }

    /// Keeps a value as the JSON file `name` of the run directory, which it is from the seal on;
    /// until then [`RunDir::read_json`] reads it from the checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`] for a value that JSON cannot hold.
    pub fn file<T: Serialize>(&mut self, name: &str, value: &T) -> Result<(), Error> {
        // Without indentation: two thirds of a recorder's text would be spaces, written twice a
        // second.
        let text = serde_json::to_string(value).map_err(|error| Error::io(Path::new(name))(error.into()))?;
        self.inner.files.insert(name.to_owned(), text + "\n");
        Ok(())
    }
}

/// Reason why a run cannot resume from a checkpoint.
enum Unfit {
    /// The disk is behind it, as after a power failure: an older one may fit.
    Behind(String),
    /// It was changed, or rows that it names were.
    Changed(String),
}

impl Unfit {
    fn damaged(self, path: &Path) -> Error {
        let (Self::Behind(found) | Self::Changed(found)) = self;
        Error::Damaged { path: path.to_owned(), found, expected: "a checkpoint as takt wrote it" }
    }
}

/// The text of a checkpoint, with its sum.
fn text(path: &Path, checkpoint: &Checkpoint) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec(checkpoint).map_err(|error| Error::io(path)(error.into()))?;
    // It is an object that is never empty: the sum comes before its last bracket.
    text.pop();
    let sum = sha256_of(&text);
    text.extend_from_slice(SUM_KEY);
    text.extend_from_slice(sum.as_bytes());
    text.extend_from_slice(b"\"}");
    Ok(text)
}

/// Reads a checkpoint that is as it was written.
fn read(path: &Path) -> Result<Checkpoint, Unfit> {
    let text = takt_files::read(path, takt_files::FIGURES_BYTES).map_err(behind)?;
    let mut zeros = Zeros::default();
    zeros.add(&text);
    if zeros.are_of_the_disk() {
        return Err(Unfit::Behind("parts of it never reached the disk".to_owned()));
    }
    let text = text.trim_ascii_end();
    let (body, sum) = text.split_at(text.len().saturating_sub(SUM_LENGTH));
    let Some(sum) = sum.strip_prefix(SUM_KEY) else {
        if !text.ends_with(b"}") {
            return Err(Unfit::Behind("it breaks off".to_owned()));
        }
        // Of a takt that wrote no sums.
        return serde_json::from_slice(text).map_err(|error| {
            Unfit::Changed(format!(
                "it is not a checkpoint of this version of takt, or it was changed: {error}"
            ))
        });
    };
    let found = sha256_of(body);
    if sum.strip_suffix(b"\"}") != Some(found.as_bytes()) {
        let sum = String::from_utf8_lossy(sum.get(..64).unwrap_or(sum));
        return Err(Unfit::Changed(format!(
            "its text is not what the run wrote (SHA-256 {found} instead of {sum}): the disk or somebody changed it"
        )));
    }
    serde_json::from_slice(&[body, b"}"].concat()).map_err(behind)
}

fn behind(error: impl std::fmt::Display) -> Unfit {
    Unfit::Behind(error.to_string())
}

impl RunDir {
    /// Makes `draft` what the run goes on from when it is killed now. Does not wait for the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn checkpoint(&self, draft: &Draft) -> Result<(), Error> {
        let path = self.path().join(CHECKPOINT_FILE);
        let written = steps::replace(&path, &text(&path, &draft.inner)?, false);
        let written = written.map_err(|error| self.memory().note(error));
        let is_kept = match written {
            Ok(()) => false,
            Err(Ok(())) => true,
            Err(Err(error)) => return Err(error),
        };
        for (name, text) in &draft.inner.files {
            if is_kept { self.memory().hold(name, text) } else { self.memory().written(name) }
        }
        Ok(())
    }

    /// The text of an accumulating file of a run that is not sealed; `None` where no checkpoint
    /// holds it.
    pub(crate) fn accumulating(&self, name: &str) -> Result<Option<String>, Error> {
        let path = self.path().join(CHECKPOINT_FILE);
        // The file itself is what counts once there is a seal, beside which a kill can leave the
        // checkpoint.
        if self.is_complete() || !path.is_file() {
            return Ok(None);
        }
        match read(&path) {
            Ok(mut checkpoint) => Ok(checkpoint.files.remove(name)),
            // The seal came in between; or a power failure left half of it, and what lies there is
            // older and whole.
            Err(Unfit::Behind(_)) => Ok(None),
            Err(changed) => Err(changed.damaged(&path)),
        }
    }

    /// Makes files of what the newest checkpoint accumulated, for the seal, which puts them onto
    /// the disk.
    pub(crate) fn put_accumulated(&self) -> Result<(), Error> {
        let path = self.path().join(CHECKPOINT_FILE);
        if !path.is_file() {
            return Ok(());
        }
        self.put_files(&read(&path).map_err(|unfit| unfit.damaged(&path))?, false)
    }

    fn put_files(&self, checkpoint: &Checkpoint, durable: bool) -> Result<(), Error> {
        // They may come from a run that somebody else wrote.
        let mut files = checkpoint.files.iter().filter(|(name, _)| is_plain(name));
        files.try_for_each(|(name, text)| steps::replace(&self.path().join(name), text.as_bytes(), durable))
    }

    /// Puts the newest checkpoint onto the disk, with the rows that it names: what a power failure
    /// leaves. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] where there is no checkpoint.
    pub fn make_durable(&self) -> Result<(), Error> {
        let newest = self.path().join(CHECKPOINT_FILE);
        let checkpoint = read(&newest).map_err(|unfit| unfit.damaged(&newest))?;
        for name in checkpoint.rows.keys() {
            steps::sync(&self.sample_path(name))?;
        }
        steps::sync_folder(&self.sample_path("any"))?;
        let path = self.path().join(DURABLE_FILE);
        steps::replace(&path, &text(&path, &checkpoint)?, true)
    }

    /// Takes up a run that a kill ended: sample files and accumulating files become what they were
    /// at the newest checkpoint, and what a seal had begun is undone. A kill meanwhile changes
    /// nothing: the next call does the same again. The caller makes sure that no other process
    /// writes ([`RunDir::claim`]).
    ///
    /// # Errors
    /// [`Error::Damaged`] for a sealed run, and for one without a checkpoint that its sample files
    /// fit; then nothing was changed.
    pub fn resume(&self) -> Result<Checkpoint, Error> {
        let damaged = |found: String| Error::Damaged {
            path: self.path().to_owned(),
            found,
            expected: "a run that was killed, with its checkpoint; nothing was changed. Fix: start a new run; `takt report` reads this one",
        };
        if self.is_complete() {
            return Err(damaged("the run is complete and sealed".to_owned()));
        }
        let (mut checkpoint, cuts) = self.newest().map_err(damaged)?;
        for (name, length) in &cuts {
            steps::remove(&with_suffix(&self.sample_path(name).with_extension(""), "parquet"))?;
            steps::cut(&self.sample_path(name), *length)?;
        }
        steps::remove(&self.path().join(SUMMARY_FILE))?;
        checkpoint.resumed += 1;
        self.put_files(&checkpoint, true)?;
        let path = self.path().join(CHECKPOINT_FILE);
        steps::replace(&path, &text(&path, &checkpoint)?, true)?;
        Ok(checkpoint)
    }

    /// The newest checkpoint that the sample files fit, and after how many bytes each of them ends
    /// there.
    fn newest(&self) -> Result<(Checkpoint, Vec<(String, u64)>), String> {
        let mut reasons = Vec::new();
        for name in [CHECKPOINT_FILE, DURABLE_FILE] {
            let path = self.path().join(name);
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    reasons.push(format!("no {name}"));
                    continue;
                }
                _ => {}
            }
            let fits = read(&path).and_then(|checkpoint| Ok((self.cuts(&checkpoint)?, checkpoint)));
            match fits {
                Ok((cuts, checkpoint)) => return Ok((checkpoint, cuts)),
                // An older checkpoint would drop the rows, and nobody would know.
                Err(Unfit::Changed(why)) => return Err(format!("{name}: {why}")),
                Err(Unfit::Behind(why)) => reasons.push(format!("{name}: {why}")),
            }
        }
        Err(reasons.join("; "))
    }

    fn cuts(&self, checkpoint: &Checkpoint) -> Result<Vec<(String, u64)>, Unfit> {
        if let Some(name) = checkpoint.rows.keys().chain(checkpoint.files.keys()).find(|name| !is_plain(name))
        {
            return Err(Unfit::Behind(format!("\"{name}\" is not a plain file name")));
        }
        let mut cuts = Vec::new();
        for entry in fs::read_dir(self.path().join(crate::SAMPLES_FOLDER)).map_err(behind)? {
            let path = entry.map_err(behind)?.path();
            let (name, kind) = (path.file_stem(), path.extension());
            let (Some(name), Some(kind)) = (name.and_then(|n| n.to_str()), kind.and_then(|k| k.to_str()))
            else {
                continue;
            };
            match kind {
                // Begun after the checkpoint: no row of it counts.
                "csv" if !checkpoint.rows.contains_key(name) => cuts.push((name.to_owned(), 0)),
                // Its journal is what the run goes on with.
                "parquet" if !self.sample_path(name).is_file() => {
                    return Err(Unfit::Behind(format!("{name}.parquet is sealed and has no journal")));
                }
                _ => {}
            }
        }
        for (name, &rows) in &checkpoint.rows {
            if let Some(sum) = checkpoint.sums.get(name).filter(|sum| sum.bytes > 0) {
                self.is_unchanged(name, sum)?;
            }
            let there = place_after(&self.sample_path(name), rows).map_err(behind)?;
            let length = there.ok_or_else(|| {
                Unfit::Behind(format!("{name}.csv has fewer than the {rows} rows that it had"))
            })?;
            cuts.push((name.clone(), length));
        }
        Ok(cuts)
    }

    /// Whether the sample file `name` still begins with what it held.
    fn is_unchanged(&self, name: &str, sum: &Sum) -> Result<(), Unfit> {
        let bytes = sum.bytes;
        let found = Sum::of_file(&self.sample_path(name), bytes).map_err(behind)?;
        let (found, zeros) = found.ok_or_else(|| {
            Unfit::Behind(format!("{name}.csv has fewer than the {bytes} bytes that it had"))
        })?;
        match found == *sum {
            true => Ok(()),
            false if zeros.are_of_the_disk() => {
                Err(Unfit::Behind(format!("parts of {name}.csv never reached the disk")))
            }
            false => Err(Unfit::Changed(format!(
                "{name}.csv: its first {bytes} bytes are not what the run wrote (SHA-256 {} instead of {}): the disk or somebody changed \
                 them",
                found.sha256, sum.sha256
            ))),
        }
    }

    /// Makes this process the only one that writes the run, until the value is dropped or the
    /// process ends, however it ends.
    ///
    /// # Errors
    /// [`Error::Damaged`] where another one writes it.
    pub fn claim(&self) -> Result<Claim, Error> {
        let folder = fs::File::open(self.path()).map_err(Error::io(self.path()))?;
        match folder.try_lock() {
            Ok(()) => Ok(Claim { _folder: Some(folder) }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::Damaged {
                path: self.path().to_owned(),
                found: "another process is writing this run".to_owned(),
                expected: "a run that has ended. Fix: stop that process, or wait until it ends",
            }),
            // A file system without locks: nobody can be distinguished.
            Err(fs::TryLockError::Error(_)) => Ok(Claim { _folder: None }),
        }
    }
}

/// See [`RunDir::claim`].
#[derive(Debug)]
pub struct Claim {
    _folder: Option<fs::File>,
}
