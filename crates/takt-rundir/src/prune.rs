//! Old run directories of a folder, by age and size.
//!
//! A run that goes on has a lock ([`RunDir::claim`]), and a pinned one a file beside it,
//! `NAME.pin`: in its folder it would be one more file after the seal. Neither is ever deleted, and
//! nothing that is no run.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::dir::{HASHES_FILE, RUN_FILE, RunDir, find_runs};

/// Ending of the file that pins a run.
const PIN: &str = "pin";

/// A run that was not sealed may be taken up again: it stays for so long, whatever its size.
const RESUMABLE: Duration = Duration::from_secs(3600);

/// What is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// Runs that were last written less than this ago; absent: age decides nothing.
    pub age: Option<Duration>,
    /// The newest runs that take together no more than this; absent: size decides nothing.
    pub bytes: Option<u64>,
}

/// A run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    /// Where it is.
    pub path: PathBuf,
    /// What it takes on the disk.
    pub bytes: u64,
    /// When it was last written.
    pub written: SystemTime,
}

/// Why a run stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is within what is kept.
    New,
    /// It is pinned.
    Pinned,
    /// Another process writes it.
    GoesOn,
    /// A kill left it within the last hour: it can be taken up again.
    Resumable,
}

impl Why {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Pinned => "pinned",
            Self::GoesOn => "goes_on",
            Self::Resumable => "resumable",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::New => "new enough",
            Self::Pinned => "pinned",
            Self::GoesOn => "it goes on",
            Self::Resumable => "it was not sealed and can be resumed",
        }
    }
}

/// A run that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub run: Old,
    /// Why.
    pub why: Why,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be deleted, the oldest first.
    pub delete: Vec<Old>,
    /// To stay, the oldest first.
    pub kept: Vec<Kept>,
}

/// What of the runs in `folder` is to be deleted at `now`. A folder without runs has nothing.
///
/// # Errors
/// [`Error::Io`] where the folder cannot be read.
pub fn plan(folder: &Path, keep: Keep, now: SystemTime) -> Result<Plan, Error> {
    let found = fs::symlink_metadata(folder).map_err(Error::io(folder))?;
    if !found.is_dir() {
        return Err(Error::Io { path: folder.to_owned(), source: ErrorKind::NotADirectory.into() });
    }
    let dirs = match find_runs(folder) {
        Err(Error::NoRuns { .. }) => Vec::new(),
        other => other?,
    };
    // A link leads to somebody else's run.
    let own = |dir: &&RunDir| fs::symlink_metadata(dir.path()).is_ok_and(|found| found.is_dir());
    let mut runs = dirs.iter().filter(own).map(measured).collect::<Result<Vec<Old>, Error>>()?;
    for path in set_aside_in(folder, &runs) {
        runs.extend(RunDir::open(&path).ok().map(|dir| measured(&dir)).transpose()?);
    }
    // The newest first: they are kept while there is room.
    runs.sort_by(|a, b| b.written.cmp(&a.written).then_with(|| b.path.cmp(&a.path)));
    let (mut plan, mut free_bytes) = (Plan::default(), keep.bytes);
    for run in runs {
        let age = now.duration_since(run.written).unwrap_or(Duration::ZERO);
        let stays = stays(&run, age);
        let too_old = keep.age.is_some_and(|most| age >= most);
        let too_large = free_bytes.is_some_and(|free| run.bytes > free);
        free_bytes = free_bytes.map(|free| if too_large { 0 } else { free.saturating_sub(run.bytes) });
        match stays {
            Some(why) => plan.kept.push(Kept { run, why }),
            None if too_old || too_large => plan.delete.push(run),
            None => plan.kept.push(Kept { run, why: Why::New }),
        }
    }
    plan.delete.reverse();
    plan.kept.reverse();
    Ok(plan)
}

/// What kills left of runs that were begun again ([`crate::set_aside`]): beside the others, and
/// none of [`find_runs`].
fn set_aside_in(folder: &Path, runs: &[Old]) -> Vec<PathBuf> {
    let parents = runs.iter().filter_map(|run| run.path.parent()).chain([folder]);
    let parents: std::collections::BTreeSet<&Path> = parents.collect();
    let entries = parents.into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    let cut = |path: &PathBuf| path.extension().is_some_and(|end| end.to_string_lossy().starts_with("cut"));
    let own = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    entries.map(|entry| entry.path()).filter(cut).filter(own).collect()
}

/// Why a run stays however old and large it is.
fn stays(run: &Old, age: Duration) -> Option<Why> {
    if fs::symlink_metadata(pin_file(&run.path)).is_ok() {
        return Some(Why::Pinned);
    }
    if RunDir::open(&run.path).is_ok_and(|dir| dir.claim().is_err()) {
        return Some(Why::GoesOn);
    }
    let sealed = fs::symlink_metadata(run.path.join(HASHES_FILE)).is_ok();
    (!sealed && age < RESUMABLE).then_some(Why::Resumable)
}

fn measured(dir: &RunDir) -> Result<Old, Error> {
    let path = dir.path().to_owned();
    let (mut bytes, mut written) = (0, None::<SystemTime>);
    let mut folders = vec![path.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let entry = entry.map_err(Error::io(&folder))?;
            // A file that a run which goes on has just taken away.
            let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
            bytes += found.blocks() * 512;
            if found.is_dir() {
                folders.push(entry.path());
            } else if let Ok(changed) = found.modified() {
                written = Some(written.map_or(changed, |before| before.max(changed)));
            }
        }
    }
    Ok(Old { path, bytes, written: written.unwrap_or(SystemTime::UNIX_EPOCH) })
}

impl Old {
    /// Deletes the run, unless it was pinned or taken up since it was looked at.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] where another process writes it.
    pub fn delete(&self) -> Result<(), Error> {
        let dir = RunDir::open(&self.path)?;
        let _claim = dir.claim()?;
        if fs::symlink_metadata(pin_file(&self.path)).is_ok() {
            return Err(Error::Damaged {
                path: self.path.clone(),
                found: "it was pinned".to_owned(),
                expected: "a run that is not",
            });
        }
        // First what makes it a run: one that a kill left half deleted is no run with wrong
        // figures.
        let run = self.path.join(RUN_FILE);
        fs::remove_file(&run).map_err(Error::io(&run))?;
        fs::remove_dir_all(&self.path).map_err(Error::io(&self.path))
    }
}

fn pin_file(run: &Path) -> PathBuf {
    run.with_added_extension(PIN)
}

/// Pins a run: [`plan`] keeps it.
///
/// # Errors
/// [`Error::NoRun`] where there is none; [`Error::Io`].
pub fn pin(run: &Path) -> Result<(), Error> {
    let dir = RunDir::open(run)?;
    let path = pin_file(&named(dir.path())?);
    takt_files::write(&path, "takt runs prune keeps this run\n").map_err(Error::io(&path))
}

/// Lets [`plan`] delete a run again.
///
/// # Errors
/// [`Error::Io`] where it is not pinned.
pub fn unpin(run: &Path) -> Result<(), Error> {
    let path = pin_file(&named(run)?);
    fs::remove_file(&path).map_err(Error::io(&path))
}

/// A path that ends in the run's name: `.` has none.
fn named(run: &Path) -> Result<PathBuf, Error> {
    fs::canonicalize(run).map_err(Error::io(run))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A sealed run of `bytes` that is `days` old.
    fn made(root: &Path, name: &str, bytes: usize, days: u32, sealed: bool) -> RunDir {
        let dir = RunDir::create_at(&root.join(name)).unwrap();
        let files = [RUN_FILE, if sealed { HASHES_FILE } else { "checkpoint.json" }, "samples/x.parquet"];
        for (index, file) in files.into_iter().enumerate() {
            let path = dir.path().join(file);
            fs::write(&path, vec![b'x'; if index == 2 { bytes } else { 2 }]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - DAY * days).unwrap();
        }
        dir
    }

    fn names(runs: &[Old]) -> Vec<String> {
        runs.iter().map(|run| run.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn age_and_size_decide_and_neither_takes_what_goes_on_or_is_pinned() {
        let root = tempfile::tempdir().unwrap();
        for (name, days) in [("old", 40), ("older", 50), ("pinned", 60), ("goes-on", 70), ("new", 1)] {
            made(root.path(), name, 100 << 10, days, true);
        }
        made(root.path(), "cut-just-now", 100 << 10, 0, false);
        made(root.path(), "cut-long-ago", 100 << 10, 45, false);
        made(root.path(), "new.cut1", 100 << 10, 80, false);
        pin(&root.path().join("pinned")).unwrap();
        let running = RunDir::open(&root.path().join("goes-on")).unwrap();
        let claim = running.claim().unwrap();
        // Neither runs, nor to be touched.
        fs::create_dir(root.path().join("notes")).unwrap();
        fs::write(root.path().join("notes/a"), "b").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        made(elsewhere.path(), "linked", 10, 90, true);
        symlink(elsewhere.path().join("linked"), root.path().join("link")).unwrap();

        let by_age = Keep { age: Some(30 * DAY), bytes: None };
        let planned = plan(root.path(), by_age, SystemTime::now()).unwrap();
        assert_eq!(names(&planned.delete), ["new.cut1", "older", "cut-long-ago", "old"]);
        let why = |name: &str| planned.kept.iter().find(|kept| kept.run.path.ends_with(name)).unwrap().why;
        assert_eq!(
            ["pinned", "goes-on", "new", "cut-just-now"].map(why),
            [Why::Pinned, Why::GoesOn, Why::New, Why::Resumable]
        );
        // Room for two and a half runs: the newest two.
        let by_size = Keep { age: None, bytes: Some(290 << 10) };
        let planned = plan(root.path(), by_size, SystemTime::now()).unwrap();
        assert_eq!(names(&planned.delete), ["new.cut1", "older", "cut-long-ago", "old"]);
        let nothing = plan(root.path(), Keep { age: None, bytes: Some(0) }, SystemTime::now()).unwrap();
        assert_eq!(names(&nothing.delete), ["new.cut1", "older", "cut-long-ago", "old", "new"]);

        for run in &planned.delete {
            run.delete().unwrap();
        }
        let mut left: Vec<String> = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["cut-just-now", "goes-on", "link", "new", "notes", "pinned", "pinned.pin"]);
        assert!(elsewhere.path().join("linked/run.json").is_file());
        // A run is taken up, or pinned, between the look and the deed.
        drop(claim);
        let planned = plan(root.path(), Keep { age: None, bytes: Some(0) }, SystemTime::now()).unwrap();
        let gone_on = planned.delete.iter().find(|run| run.path.ends_with("goes-on")).unwrap();
        let claim = running.claim().unwrap();
        assert!(gone_on.delete().unwrap_err().to_string().contains("another process"));
        drop(claim);
        pin(&gone_on.path).unwrap();
        assert!(gone_on.delete().unwrap_err().to_string().contains("pinned"));
        unpin(&gone_on.path).unwrap();
        gone_on.delete().unwrap();
        assert!(unpin(&root.path().join("new")).is_err() && pin(&root.path().join("notes")).is_err());
    }

    #[test]
    fn a_folder_without_runs_has_nothing_and_none_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let planned = plan(root.path(), Keep::default(), SystemTime::now()).unwrap();
        assert_eq!(planned, Plan::default());
        assert!(plan(&root.path().join("none"), Keep::default(), SystemTime::now()).is_err());
        fs::write(root.path().join("file"), "").unwrap();
        assert!(plan(&root.path().join("file"), Keep::default(), SystemTime::now()).is_err());
    }
}
