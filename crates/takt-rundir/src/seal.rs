//! The seal of a run: what makes it official that a run came to its end, and shows later whether
//! its files are still the ones.
//!
//! ```text
//! journals (CSV) ─► Parquet beside them ─► everything onto the disk ─► hashes.json ─► journals go
//! ```
//!
//! The rename that brings `hashes.json` is the one step that decides: before it the run is
//! unsealed, every journal is whole, and the run can go on; after it the run is sealed. All others
//! can be repeated, so that a kill anywhere loses nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::checkpoint;
use crate::dir::{HASHES_FILE, RUN_FILE, SAMPLES_FOLDER};
use crate::files::{read_json, sha256, sha256_of};
use crate::series::with_suffix;
use crate::{Error, RunHeader, parquet, steps};

/// Key of the hash over all other entries of `hashes.json`, so that none can be taken from it
/// unnoticed.
const LIST: &str = "*";

/// Whether a run's files are what the run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealState {
    /// Every file has the hash that it was sealed with; the hash that stands for them all.
    Whole(String),
    /// Files that are not what they were when the run was sealed, that are gone, or that are
    /// evidence and were never sealed.
    Changed(Vec<String>),
    /// The run never came to its end, or it still runs.
    Missing,
}

impl SealState {
    /// Reason why figures of the run prove nothing, in a sentence; `None` for a run whose files are
    /// unchanged, and for one that was never sealed.
    pub fn doubt(&self) -> Option<String> {
        let Self::Changed(files) = self else { return None };
        Some(format!("files were changed after the run was sealed: {}", files.join(", ")))
    }

    /// The same for whoever comes after the run: one that says that it finished must have a seal.
    /// Only what the run computes of itself just before it is sealed asks [`doubt`](Self::doubt).
    pub fn doubt_of(&self, header: &RunHeader) -> Option<String> {
        if self.is_gone(header) {
            return Some(format!(
                "the run says that it finished, but it has no seal ({HASHES_FILE}): the seal was removed, or the run was killed before \
                 writing it"
            ));
        }
        self.doubt()
    }

    /// Whether a run that says that it finished has no seal.
    pub fn is_gone(&self, header: &RunHeader) -> bool {
        *self == Self::Missing && header.finished_utc.is_some()
    }
}

/// Hash over the entries: a line each, name and hash, in the order of the names.
fn list_hash(entries: &BTreeMap<String, String>) -> String {
    let lines = entries.iter().filter(|(name, _)| *name != LIST);
    sha256_of(lines.map(|(name, hash)| format!("{name}\n{hash}\n")).collect::<String>().as_bytes())
}

/// Regular files of the run, by name: those of its folder and of its samples' folder.
fn files(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut found = Vec::new();
    for folder in [root.to_owned(), root.join(SAMPLES_FOLDER)] {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder != root => continue,
            other => other.map_err(Error::io(&folder))?,
        };
        for entry in entries {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.is_file() {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                found.push((name, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a name belongs to a file that a kill left unfinished.
fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp")
}

fn is_journal(name: &str) -> bool {
    name.starts_with(SAMPLES_FOLDER) && name.ends_with(".csv")
}

/// A file that readers take figures from: adding one after the seal changes what the run says.
fn is_evidence(name: &str) -> bool {
    !is_temporary(name)
        && (name.starts_with(SAMPLES_FOLDER) || name.ends_with(".json"))
        && !checkpoint::is_checkpoint(name)
        && name != HASHES_FILE
}

/// Seals the run at `root`, whatever an earlier seal left when it was killed.
pub(crate) fn seal(root: &Path) -> Result<(), Error> {
    if root.join(HASHES_FILE).is_file() {
        // Sealed again, because a file came afterwards (a trace), or because a kill left the last
        // step undone.
        finish(root)?;
    }
    let all = files(root)?;
    for (name, path) in all.iter().filter(|(name, _)| is_temporary(name) || is_journal(name)) {
        if is_temporary(name) {
            steps::remove(path)?;
        } else {
            parquet::convert(path, &with_suffix(&path.with_extension(""), "parquet"))?;
        }
    }
    let mut hashes = BTreeMap::new();
    for (name, path) in files(root)? {
        let left_out = name == HASHES_FILE || is_journal(&name) || checkpoint::is_checkpoint(&name);
        if !left_out {
            // Logs and recorders were handed to the kernel and no further while the run went on.
            steps::sync(&path)?;
            hashes.insert(name, sha256(&path)?);
        }
    }
    steps::sync_folder(&root.join(SAMPLES_FOLDER).join("any"))?;
    hashes.insert(LIST.to_owned(), list_hash(&hashes));
    crate::files::write_json(&root.join(HASHES_FILE), &hashes)?;
    // They have just been read.
    take_away(root, |name| hashes.contains_key(name))
}

/// Takes away what a sealed run needs no longer: journals that are sealed, checkpoints, halves of
/// files. A journal whose sealed file is gone, or is not what was sealed, is the only copy of its
/// rows, and stays.
pub(crate) fn finish(root: &Path) -> Result<(), Error> {
    let hashes: BTreeMap<String, String> = read_json(&root.join(HASHES_FILE))?;
    let is_whole = |name: &str| sha256(&root.join(name)).ok().as_ref() == hashes.get(name);
    take_away(root, |name| hashes.contains_key(name) && is_whole(name))
}

fn take_away(root: &Path, is_sealed: impl Fn(&str) -> bool) -> Result<(), Error> {
    for (name, path) in files(root)? {
        let base = name.strip_suffix("csv").filter(|_| is_journal(&name));
        let sealed = base.is_some_and(|base| is_sealed(&format!("{base}parquet")));
        if sealed || is_temporary(&name) || checkpoint::is_checkpoint(&name) {
            steps::remove(&path)?;
        }
    }
    Ok(())
}

/// Names of files that are not what they were at the seal.
pub(crate) fn changed(root: &Path) -> Result<Vec<String>, Error> {
    let hashes: BTreeMap<String, String> = read_json(&root.join(HASHES_FILE))?;
    let mut changed = Vec::new();
    if !hashes.contains_key(RUN_FILE) || hashes.get(LIST) != Some(&list_hash(&hashes)) {
        changed.push(HASHES_FILE.to_owned());
    }
    for (name, hash) in hashes.iter().filter(|(name, _)| *name != LIST) {
        // A name that leads out of the run is none of its files, and a device or a pipe may never
        // end.
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let path = root.join(name);
        if !inside || !path.is_file() || sha256(&path).ok().as_ref() != Some(hash) {
            changed.push(name.clone());
        }
    }
    for (name, _) in files(root)? {
        // A journal beside its sealed file is what a kill left of the seal's last step.
        let sealed = is_journal(&name)
            && name.strip_suffix("csv").is_some_and(|base| hashes.contains_key(&format!("{base}parquet")));
        if is_evidence(&name) && !sealed && !hashes.contains_key(&name) {
            changed.push(name);
        }
    }
    changed.sort();
    Ok(changed)
}
