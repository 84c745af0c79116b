//! Runs in a store.

mod listed;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use takt_rundir::{FORMAT, HASHES_FILE, RunDir, SealState, sha256_of};

use crate::index::Entry;
use crate::objects::Objects;
use crate::{StoreError, place};

/// Version of the layout.
const VERSION: u64 = 1;

/// What says that a place is a store, and of which version.
const ABOUT: &str = "takt-store.json";

const RUNS: &str = "runs";
const OBJECTS: &str = "objects";
const INDEX: &str = "index";

/// The entry of a seal that is no file: the hash over all others.
const LIST: &str = "*";

/// Largest seal: names and hashes of thousands of files.
const MOST_SEAL_BYTES: u64 = 16 << 20;
/// Largest description of a store.
const MOST_ABOUT_BYTES: u64 = 1 << 20;
/// Largest file of an index: some million runs.
const MOST_INDEX_BYTES: u64 = 1 << 30;

/// An object that is there already is used for another run without being sent again for so long.
/// Half of the least age at which [`Store::prune`] takes away what no run names.
const FRESH: Duration = Duration::from_secs(12 * 3600);

/// Least age of what [`Store::prune`] takes away: an upload that goes on has not named it yet.
const GRACE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub struct Store {
    objects: Objects,
}

/// What [`Store::put`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The run's name in the store.
    pub run: String,
    /// It was not there before.
    pub new: bool,
    /// Bytes that were sent.
    pub sent_bytes: u64,
}

/// What [`Store::verify`] found wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub run: String,
    /// What is wrong.
    pub why: String,
}

/// What [`Store::prune`] took away, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: usize,
    /// Objects that no run names.
    pub objects: usize,
    pub bytes: u64,
}

/// What the system answered for a file on this side.
fn failed_at(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path, source }
}

fn object(hash: &str) -> String {
    format!("{OBJECTS}/{}/{hash}", &hash[..2])
}

fn seal_name(run: &str) -> String {
    format!("{RUNS}/{run}.json")
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A name of a seal that stays in its directory.
fn is_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

fn age(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}

impl Store {
    /// Checks what a user gave as a store without touching it: before a run begins whose command
    /// line is kept.
    ///
    /// # Errors
    /// [`StoreError::Place`].
    pub fn check(place: &str) -> Result<(), StoreError> {
        place::check(place)
    }

    /// Opens the store at `place`, a folder. With `create`, an empty place becomes one. No call
    /// takes longer than `patience`.
    ///
    /// # Errors
    /// [`StoreError`]; what is no store, or of another version, is left as it is.
    pub fn open(place: &str, create: bool, patience: Duration) -> Result<Self, StoreError> {
        let store = Self { objects: Objects::open(place, create, patience)? };
        let name = store.name();
        let wrong = |why: &str| StoreError::Place { place: name.clone(), why: why.to_owned() };
        match store.objects.get(ABOUT, MOST_ABOUT_BYTES)? {
            Some(text) => {
                let about: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
                match about["version"].as_u64() {
                    Some(VERSION) => Ok(store),
                    Some(found) => Err(StoreError::Version { place: store.name(), found, known: VERSION }),
                    None => Err(wrong(&format!("{ABOUT} does not say its version"))),
                }
            }
            None if !create => Err(wrong(&format!("is no store: there is no {ABOUT}"))),
            None => {
                if !store.objects.is_empty()? {
                    // Another may have made it a store meanwhile.
                    if store.objects.head(ABOUT)?.is_some() {
                        return Self::open(place, create, patience);
                    }
                    return Err(wrong("holds something else: give an empty place, or a store"));
                }
                store.objects.put(ABOUT, format!("{{ \"version\": {VERSION} }}\n").into_bytes())?;
                Ok(store)
            }
        }
    }

    /// The place, without credentials.
    pub fn name(&self) -> String {
        self.objects.place.name.clone()
    }

    fn damaged(&self, object: &str, why: impl Into<String>) -> StoreError {
        StoreError::Damaged { place: self.name(), object: object.to_owned(), why: why.into() }
    }

    /// Brings a sealed run into the store. Cut off anywhere, it has brought the run or nobody sees
    /// anything of it; called again, it goes on.
    ///
    /// # Errors
    /// [`StoreError::Run`] for a run that is not sealed, was changed, or is of another layout; or
    /// what the store answered.
    pub fn put(&self, run: &RunDir) -> Result<Stored, StoreError> {
        let wrong = |why: String| StoreError::Run { path: run.path().to_owned(), why };
        let header = run.header().map_err(|error| wrong(error.to_string()))?;
        if header.format != FORMAT {
            return Err(wrong(format!(
                "is of layout {}, and this takt stores layout {FORMAT}",
                header.format
            )));
        }
        let id = match run.seal_state() {
            SealState::Whole(id) => id,
            SealState::Missing => {
                return Err(wrong("is not sealed: only runs that came to their end are stored".to_owned()));
            }
            SealState::Changed(files) => {
                return Err(wrong(format!("was changed after it was sealed: {}", files.join(", "))));
            }
        };
        let seal_path = run.path().join(HASHES_FILE);
        let seal = takt_files::read_to_string(&seal_path, MOST_SEAL_BYTES).map_err(failed_at(&seal_path))?;
        if sha256_of(seal.as_bytes()) != id {
            return Err(wrong("was changed while it was read".to_owned()));
        }
        let files = entries(seal.as_bytes()).map_err(&wrong)?;
        let there = self.objects.head(&seal_name(&id))?.is_some();
        let (mut sent_bytes, mut bytes) = (0, 0);
        for (name, hash) in &files {
            let path = run.path().join(name);
            bytes += std::fs::metadata(&path).map(|data| data.len()).unwrap_or(0);
            let usable =
                self.objects.head(&object(hash))?.is_some_and(|meta| there || age(meta.modified) < FRESH);
            if !usable {
                sent_bytes += self.objects.put_file(&object(hash), &path, hash)?;
            }
        }
        let row = Entry::of(&id, run, &header, files.len(), bytes);
        if !there {
            self.objects.put(&seal_name(&id), seal.into_bytes())?;
        }
        self.put_rows(&[row])?;
        // The index is no truth of its own: a run whose row is among many is stored all the same.
        let _ = self.settle();
        // Somebody may have pruned meanwhile.
        for (name, hash) in &files {
            if self.objects.head(&object(hash))?.is_none() {
                sent_bytes += self.objects.put_file(&object(hash), &run.path().join(name), hash)?;
            }
        }
        Ok(Stored { run: id, new: !there, sent_bytes })
    }

    /// All files of a run into the new folder `to`, each checked while it is read; the seal last,
    /// for a run without it is none. Returns their bytes.
    fn fetch(&self, run: &str, files: &BTreeMap<String, String>, to: &Path) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for (name, hash) in files {
            let path = to.join(name);
            let folder = path.parent().unwrap_or(to);
            std::fs::create_dir_all(folder).map_err(failed_at(folder))?;
            let mut file = std::fs::File::create(&path).map_err(failed_at(&path))?;
            bytes += self.objects.read_checked(&object(hash), hash, &mut |part| {
                file.write_all(part).map_err(failed_at(&path))
            })?;
            file.sync_all().map_err(failed_at(&path))?;
        }
        let seal = self.objects.get(&seal_name(run), MOST_SEAL_BYTES)?.filter(|seal| sha256_of(seal) == run);
        let seal = seal.ok_or_else(|| self.gone(run))?;
        let path = to.join(HASHES_FILE);
        std::fs::write(&path, seal).map_err(failed_at(&path))?;
        Ok(bytes)
    }

    fn gone(&self, run: &str) -> StoreError {
        StoreError::Which { place: self.name(), asked: run.to_owned(), found: 0 }
    }

    /// Files of a run and their hashes; `None` where there is no such run.
    fn files(&self, run: &str) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        let name = seal_name(run);
        let Some(seal) = self.objects.get(&name, MOST_SEAL_BYTES)? else { return Ok(None) };
        let found = sha256_of(&seal);
        if found != run {
            return Err(self.damaged(&name, format!("what it holds has the hash {found}")));
        }
        entries(&seal).map(Some).map_err(|why| self.damaged(&name, why))
    }

    /// The one run whose name here, or whose directory's name, begins with `asked`.
    ///
    /// # Errors
    /// [`StoreError::Which`] for none or several.
    pub fn find(&self, asked: &str) -> Result<Entry, StoreError> {
        let all = self.list()?;
        if asked.is_empty() {
            // Every name begins with it, also where only one is there.
            return Err(StoreError::Which { place: self.name(), asked: "\"\"".to_owned(), found: all.len() });
        }
        let exact: Vec<&Entry> = all.iter().filter(|row| row.run == asked || row.name == asked).collect();
        let begun: Vec<&Entry> =
            all.iter().filter(|row| row.run.starts_with(asked) || row.name.starts_with(asked)).collect();
        match (&exact[..], &begun[..]) {
            ([one], _) | ([], [one]) => Ok((*one).clone()),
            ([], several) => {
                Err(StoreError::Which { place: self.name(), asked: asked.to_owned(), found: several.len() })
            }
            (several, _) => {
                Err(StoreError::Which { place: self.name(), asked: asked.to_owned(), found: several.len() })
            }
        }
    }

    /// Fetches a run into a folder of its own in `to`, every file checked while it is read. It
    /// appears there whole or not at all.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the object; or what the store or this side answered.
    pub fn get(&self, entry: &Entry, to: &Path) -> Result<PathBuf, StoreError> {
        let files = self.files(&entry.run)?.ok_or_else(|| self.gone(&entry.run))?;
        // A name from a file, which must not lead out of the folder.
        let name = if is_inside(&entry.name) { entry.name.clone() } else { entry.run.clone() };
        let target = to.join(&name);
        if target.exists() {
            let there = RunDir::open(&target).map(|run| run.seal_state());
            if matches!(there, Ok(SealState::Whole(id)) if id == entry.run) {
                return Ok(target);
            }
            return Err(StoreError::Run {
                path: target,
                why: "is there already and is another run, or was changed".to_owned(),
            });
        }
        let draft = to.join(format!("{name}.cut-{}", std::process::id()));
        // Its own, also in a folder that others write to: what is there is not followed.
        takt_files::make_folder(draft.parent().unwrap_or(to)).map_err(failed_at(to))?;
        std::fs::create_dir(&draft).map_err(failed_at(&draft))?;
        let outcome = self
            .fetch(&entry.run, &files, &draft)
            .and_then(|_| std::fs::rename(&draft, &target).map_err(failed_at(&target)));
        if outcome.is_err() {
            let _ = std::fs::remove_dir_all(&draft);
        }
        outcome.map(|()| target)
    }

    /// Reads everything of the runs, or of all runs where none is named, and shows what is not what
    /// it should be.
    ///
    /// # Errors
    /// What the store answered.
    pub fn verify(&self, runs: &[String], progress: &mut dyn FnMut(&str)) -> Result<Vec<Damage>, StoreError> {
        let mut runs: Vec<String> =
            if runs.is_empty() { self.runs()?.into_iter().collect() } else { runs.to_vec() };
        runs.sort_unstable();
        let mut damages = Vec::new();
        // Contents that runs share are read once.
        let mut good = BTreeSet::new();
        for run in &runs {
            progress(run);
            let mut bad = |why: String| damages.push(Damage { run: run.clone(), why });
            let files = match self.files(run) {
                Ok(Some(files)) => files,
                // Pruned meanwhile.
                Ok(None) => continue,
                Err(error @ StoreError::Damaged { .. }) => {
                    bad(error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (name, hash) in &files {
                if good.contains(hash) {
                    continue;
                }
                match self.objects.read_checked(&object(hash), hash, &mut |_| Ok(())) {
                    Ok(_) => drop(good.insert(hash.clone())),
                    Err(error @ StoreError::Damaged { .. }) => bad(format!("{name}: {error}")),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(damages)
    }

    /// Takes away the runs named, and what no run names and is older than a day: left by uploads
    /// that were cut off, or by runs that went.
    ///
    /// # Errors
    /// What the store answered; or [`StoreError::Damaged`] where a seal cannot be read: what its
    /// run needs is not known then, and nothing is taken away.
    pub fn prune(&self, runs: &[String], dry: bool) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        for run in runs {
            pruned.runs += 1;
            if !dry {
                self.objects.delete(&seal_name(run))?;
            }
        }
        let objects = self.objects.list(OBJECTS)?;
        let mut needed = BTreeSet::new();
        // After the list of objects: what a run brought meanwhile names is needed, too.
        for run in self.runs()?.iter().filter(|run| !runs.contains(run)) {
            needed.extend(self.files(run)?.into_iter().flatten().map(|(_, hash)| hash));
        }
        for (name, meta) in objects {
            let hash = name.rsplit('/').next().unwrap_or_default();
            if needed.contains(hash) || age(meta.modified) < GRACE {
                continue;
            }
            // An upload that began meanwhile has renewed it.
            let name = format!("{OBJECTS}/{name}");
            let fresh = self.objects.head(&name)?.is_none_or(|now| age(now.modified) < GRACE);
            if fresh {
                continue;
            }
            (pruned.objects, pruned.bytes) = (pruned.objects + 1, pruned.bytes + meta.size);
            if !dry {
                self.objects.delete(&name)?;
            }
        }
        let cut = self.objects.tidy(&[RUNS, OBJECTS, INDEX], SystemTime::now() - GRACE, dry)?;
        (pruned.objects, pruned.bytes) = (pruned.objects + cut.0, pruned.bytes + cut.1);
        if !dry && pruned.runs > 0 {
            self.tidy_index()?;
        }
        Ok(pruned)
    }
}

/// Files of a seal and their hashes, or why it is none.
fn entries(seal: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let mut entries: BTreeMap<String, String> =
        serde_json::from_slice(seal).map_err(|error| format!("{HASHES_FILE}: {error}"))?;
    entries.remove(LIST);
    match entries.iter().find(|(name, hash)| !is_inside(name) || !is_hash(hash)) {
        Some((name, hash)) => {
            Err(format!("{HASHES_FILE}: {name:?} with the hash {hash:?} is no file of a run"))
        }
        None => Ok(entries),
    }
}
