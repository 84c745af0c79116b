//! Runs in a store.

mod listed;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use takt_rundir::{FORMAT, HASHES_FILE, RunDir, SealState, sha256_of};

use crate::store::backend::Meta;
use crate::store::index::Entry;
use crate::store::objects::Objects;
use crate::store::{StoreError, place};

/// Version of the layout.
const VERSION: u64 = 1;

/// File that marks a place as a store, with its version.
const ABOUT: &str = "takt-store.json";

const RUNS: &str = "runs";
const OBJECTS: &str = "objects";
pub(crate) const INDEX: &str = "index";

/// The entry of a seal that is no file: the hash over all others.
const LIST: &str = "*";

/// Largest seal: names and hashes of thousands of files.
const MAX_SEAL_BYTES: u64 = 16 << 20;
/// Largest description of a store.
const MAX_ABOUT_BYTES: u64 = 1 << 20;
/// Largest file of an index: some million runs.
const MAX_INDEX_BYTES: u64 = 1 << 30;

/// Longest name of a file, and of a path below a run's directory, so that it fits below another.
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 1024;

/// An object that is there already is used for another run without being sent again for so long.
/// Half of the least age at which [`Store::prune`] takes away what no run names.
const FRESH: Duration = Duration::from_secs(12 * 3600);

/// Least age of what [`Store::prune`] takes away: an upload that goes on has not named it yet.
const GRACE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub struct Store {
    objects: Objects,
}

/// The store's copy of a run's file.
enum Kept {
    Whole(Meta),
    Damaged,
    Missing,
}

/// Result of [`Store::put`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The run's name in the store.
    pub run: String,
    /// It was not there before.
    pub new: bool,
    /// Objects of it, or its seal, that were there and damaged, and were sent again.
    pub mended: usize,
    /// Bytes that were sent.
    pub sent_bytes: u64,
}

/// A fault that [`Store::verify`] found in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub run: String,
    /// The fault.
    pub why: String,
}

/// Items that [`Store::prune`] removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: usize,
    /// Objects that no run names.
    pub objects: usize,
    pub bytes: u64,
}

/// The system's error for a file on this side.
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

/// A name of a seal that stays in its directory, is spelled as the system spells it, and that every
/// file system can have.
fn is_inside(name: &str) -> bool {
    let parts = || Path::new(name).components();
    let spelled: PathBuf = parts().collect();
    let fits = |part: Component<'_>| {
        matches!(part, Component::Normal(_)) && part.as_os_str().len() <= MAX_NAME_BYTES
    };
    let all_fit = !name.is_empty() && name.len() <= MAX_PATH_BYTES && parts().all(fits);
    all_fit && spelled.as_os_str() == name && !name.contains('\0')
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
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
        match store.objects.get(ABOUT, MAX_ABOUT_BYTES)? {
            Some(text) => {
                let about: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
                match about["version"].as_u64() {
                    Some(VERSION) => Ok(store),
                    Some(found) => Err(StoreError::Version { place: store.name(), found, known: VERSION }),
                    None => Err(wrong(&format!("{ABOUT} does not say its version"))),
                }
            }
            None if !create => Err(wrong(&format!(
                "is not a store: it has no {ABOUT}. Name another folder, or create a store: `takt store put {name} RUN`"
            ))),
            None => {
                if !store.objects.is_empty()? {
                    // Another may have made it a store meanwhile.
                    if store.objects.head(ABOUT)?.is_some() {
                        return Self::open(place, create, patience);
                    }
                    return Err(wrong("is neither empty nor a store: name an empty place, or a store"));
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
            return Err(wrong(format!("has layout {}, but this takt stores layout {FORMAT}", header.format)));
        }
        let id = match run.seal_state() {
            SealState::Whole(id) => id,
            SealState::Missing => {
                return Err(wrong("is not sealed: only complete runs are stored".to_owned()));
            }
            SealState::Changed(files) => {
                return Err(wrong(format!("was changed after it was sealed: {}", files.join(", "))));
            }
        };
        let seal_path = run.path().join(HASHES_FILE);
        let seal = takt_files::read_to_string(&seal_path, MAX_SEAL_BYTES).map_err(failed_at(&seal_path))?;
        if sha256_of(seal.as_bytes()) != id {
            return Err(wrong("was changed while it was read".to_owned()));
        }
        let files = entries(seal.as_bytes()).map_err(&wrong)?;
        let there = self.objects.head(&seal_name(&id))?.is_some();
        // Emptied, or torn: it is named by its hash, and is written anew.
        let seal_whole = there && self.is_seal(&id)?;
        let (mut sent_bytes, mut bytes, mut mended) = (0, 0, usize::from(there && !seal_whole));
        for (name, hash) in &files {
            let path = run.path().join(name);
            let size = std::fs::metadata(&path).map_err(failed_at(&path))?.len();
            bytes += size;
            match self.state(hash, &path, size)? {
                Kept::Whole(meta) if there || age(meta.modified) < FRESH => continue,
                Kept::Damaged => mended += 1,
                Kept::Whole(_) | Kept::Missing => {}
            }
            sent_bytes += self.objects.put_file(&object(hash), &path, hash)?;
        }
        let row = Entry::of(&id, run, &header, files.len(), bytes);
        if !seal_whole {
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
        Ok(Stored { run: id, new: !there, mended, sent_bytes })
    }

    /// Whether the seal of a run that is there is what its name says.
    fn is_seal(&self, run: &str) -> Result<bool, StoreError> {
        match self.objects.get(&seal_name(run), MAX_SEAL_BYTES) {
            Ok(seal) => Ok(seal.is_some_and(|seal| sha256_of(&seal) == run)),
            Err(StoreError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// State of an object that must equal the file at `path`, of `size` bytes. A folder's object is
    /// read; reading a bucket's costs as much as sending it, so its checksum counts.
    fn state(&self, hash: &str, path: &Path, size: u64) -> Result<Kept, StoreError> {
        let name = object(hash);
        let Some(meta) = self.objects.head(&name)? else { return Ok(Kept::Missing) };
        if meta.size != size {
            return Ok(Kept::Damaged);
        }
        if self.objects.path(&name).is_none() && self.objects.agrees(&name, path)? != Some(false) {
            return Ok(Kept::Whole(meta));
        }
        match self.objects.read_checked(&name, hash, &mut |_| Ok(())) {
            Ok(_) => Ok(Kept::Whole(meta)),
            Err(StoreError::Damaged { .. }) => Ok(Kept::Damaged),
            Err(error) => Err(error),
        }
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
        let seal = self.objects.get(&seal_name(run), MAX_SEAL_BYTES)?.filter(|seal| sha256_of(seal) == run);
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
        let Some(seal) = self.objects.get(&name, MAX_SEAL_BYTES)? else { return Ok(None) };
        let found = sha256_of(&seal);
        if found != run {
            return Err(self.damaged(&name, format!("its content has the hash {found}")));
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
                why: "already exists and is another run, or was changed".to_owned(),
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
    /// it should be: files, and rows of the index that are not the run's.
    ///
    /// # Errors
    /// The store's error.
    pub fn verify(&self, runs: &[String], progress: &mut dyn FnMut(&str)) -> Result<Vec<Damage>, StoreError> {
        let rows = self.rows_by_run()?;
        let mut runs: Vec<String> =
            if runs.is_empty() { self.runs()?.into_iter().collect() } else { runs.to_vec() };
        runs.sort_unstable();
        let mut damages = Vec::new();
        // Contents that runs share are read once.
        let mut good = HashMap::new();
        for run in &runs {
            progress(run);
            let whys = match self.read_run(run, &mut good)? {
                Some(Ok(own)) => {
                    let of_run = rows.get(run).into_iter().flatten();
                    of_run.filter_map(|row| own.difference(row)).collect()
                }
                Some(Err(whys)) => whys,
                // Pruned meanwhile.
                None => Vec::new(),
            };
            damages.extend(whys.into_iter().map(|why| Damage { run: run.clone(), why }));
        }
        Ok(damages)
    }

    /// Reads all of a run, each file checked: its row, or what is damaged; `None` where it is not
    /// there. Parts that this machine cannot accept are damage of that run only. `good` has the
    /// sizes of what was read before.
    fn read_run(
        &self,
        run: &str,
        good: &mut HashMap<String, u64>,
    ) -> Result<Option<Result<Entry, Vec<String>>>, StoreError> {
        let files = match self.files(run) {
            Ok(Some(files)) => files,
            Ok(None) => return Ok(None),
            Err(error @ StoreError::Damaged { .. }) => return Ok(Some(Err(vec![error.to_string()]))),
            Err(error) => return Err(error),
        };
        let folder = tempfile::tempdir().map_err(failed_at(&std::env::temp_dir()))?;
        // The store does not keep the name of the directory: the hash's beginning stands for it.
        let path = folder.path().join(&run[..12]);
        let mut whys = Vec::new();
        let mut bytes = 0;
        for (name, hash) in &files {
            match self.lay(hash, &path.join(name), good) {
                Ok(size) => bytes += size,
                Err(error @ StoreError::Damaged { .. }) => whys.push(format!("{name}: {error}")),
                // Without room here it is no run's damage.
                Err(StoreError::Io { source, .. }) if !is_full(&source) => {
                    whys.push(format!("{name}: cannot be written to a directory: {source}"));
                }
                Err(error) => return Err(error),
            }
        }
        if !whys.is_empty() {
            // Pruned meanwhile, it is nobody's damage.
            let there = self.objects.head(&seal_name(run))?.is_some();
            return Ok(there.then_some(Err(whys)));
        }
        let row = RunDir::open(&path).and_then(|dir| {
            let header = dir.header()?;
            Ok(Entry::of(run, &dir, &header, files.len(), bytes))
        });
        Ok(Some(row.map_err(|error| vec![self.damaged(&seal_name(run), error.to_string()).to_string()])))
    }

    /// Checks an object and makes it readable at `path`: a link where the store is a folder, a copy
    /// else. Returns its size.
    fn lay(&self, hash: &str, path: &Path, good: &mut HashMap<String, u64>) -> Result<u64, StoreError> {
        let name = object(hash);
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder).map_err(failed_at(folder))?;
        let Some(target) = self.objects.path(&name) else {
            let mut file = std::fs::File::create(path).map_err(failed_at(path))?;
            let mut take = |part: &[u8]| file.write_all(part).map_err(failed_at(path));
            return self.objects.read_checked(&name, hash, &mut take);
        };
        let size = match good.get(hash) {
            Some(size) => *size,
            None => self.objects.read_checked(&name, hash, &mut |_| Ok(()))?,
        };
        good.insert(hash.to_owned(), size);
        std::os::unix::fs::symlink(target, path).map_err(failed_at(path))?;
        Ok(size)
    }

    /// Takes away the runs named, and what no run names and is older than a day: left by uploads
    /// that were cut off, or by runs that went.
    ///
    /// # Errors
    /// The store's error; or [`StoreError::Damaged`] if a seal cannot be read: the needs of its run
    /// are then unknown, and nothing is removed.
    pub fn prune(&self, runs: &[String], dry: bool) -> Result<Pruned, StoreError> {
        let objects = self.objects.list(OBJECTS)?;
        let mut needed = BTreeSet::new();
        // After the list of objects: what a run brought meanwhile names is needed, too. And before
        // anything goes: where a seal cannot be read, all stays.
        for run in self.runs()?.iter().filter(|run| !runs.contains(run)) {
            let files = self.files(run).map_err(|error| match error {
                StoreError::Damaged { place, object, why } => {
                    let way_out = "the objects that its run needs are unknown, so nothing was removed: repair it with `takt store put` of \
                         that run, or remove the run as well";
                    StoreError::Damaged { place, object, why: format!("{why}; {way_out}") }
                }
                error => error,
            })?;
            needed.extend(files.into_iter().flatten().map(|(_, hash)| hash));
        }
        let mut pruned = Pruned { runs: runs.len(), ..Pruned::default() };
        if !dry {
            runs.iter().try_for_each(|run| self.objects.delete(&seal_name(run)))?;
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
    let is_file = |name: &str, hash: &str| is_inside(name) && name != HASHES_FILE && is_hash(hash);
    if let Some((name, hash)) = entries.iter().find(|(name, hash)| !is_file(name, hash)) {
        let [name, hash] = [name, hash].map(|text| takt_files::shortened(text));
        return Err(format!("{HASHES_FILE}: {name:?} with the hash {hash:?} is not a file of a run"));
    }
    let folders =
        |name: &str| name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect::<Vec<_>>();
    let both = |name: &String| folders(name).into_iter().find(|folder| entries.contains_key(folder));
    match entries.keys().find_map(both) {
        Some(name) => Err(format!("{HASHES_FILE}: {name:?} is both a file and a folder")),
        None => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use takt_rundir::{RUN_FILE, RunHeader};

    use super::*;
    use crate::store::backend::{Backend, Draft};
    use crate::store::folder::Folder;

    #[test]
    fn names_that_no_directory_can_have_are_no_seal() {
        let hash = "0".repeat(64);
        let seal = |names: &[&str]| {
            let names: BTreeMap<&str, &str> = names.iter().map(|name| (*name, hash.as_str())).collect();
            entries(&serde_json::to_vec(&names).unwrap())
        };
        assert_eq!(seal(&["run.json", "samples/a.parquet", "samples/a", "*"]).unwrap().len(), 3);
        let long = "n".repeat(256);
        let deep = "n/".repeat(600) + "n";
        for name in ["", "..", "../a", "/a", "a/../b", "./a", "a//b", "a/", "x\0y", &long, &deep, HASHES_FILE]
        {
            let why = seal(&["run.json", name]).unwrap_err();
            assert!(why.contains("is not a file of a run"), "{why}");
        }
        assert!(seal(&["a", "a/b/c"]).unwrap_err().contains("\"a\" is both a file and a folder"));
        assert!(seal(&["a/b", "a/b/c"]).unwrap_err().contains("\"a/b\" is both a file and a folder"));
        for none in ["", "0", &hash[1..], &"0".repeat(65), &"A".repeat(64), &"\u{e4}".repeat(32)] {
            let why = entries(&serde_json::to_vec(&BTreeMap::from([("run.json", none)])).unwrap());
            assert!(why.unwrap_err().contains("is not a file of a run"), "{none}");
        }
    }

    /// A bucket that adds nothing up, and others who use it between two calls.
    #[derive(Debug)]
    struct Shared(Folder);

    impl Shared {
        fn objects(&self, change: impl Fn(&str) -> io::Result<()>) -> io::Result<()> {
            self.0.list(OBJECTS)?.iter().try_for_each(|(name, _)| change(&format!("{OBJECTS}/{name}")))
        }
    }

    impl Backend for Shared {
        fn head(&self, name: &str) -> io::Result<Option<Meta>> {
            self.0.head(name)
        }
        fn read(&self, name: &str) -> io::Result<Option<Box<dyn io::Read + Send>>> {
            self.0.read(name)
        }
        /// Before a run's seal is there, somebody takes away what no run names.
        fn write(&self, name: &str) -> io::Result<Box<dyn Draft>> {
            if name.starts_with(RUNS) {
                self.objects(|object| self.0.delete(object))?;
            }
            self.0.write(name)
        }
        fn delete(&self, name: &str) -> io::Result<()> {
            self.0.delete(name)
        }
        fn is_empty(&self) -> io::Result<bool> {
            self.0.is_empty()
        }
        /// After the list of objects, an upload that needs them sends them again.
        fn list(&self, folder: &str) -> io::Result<Vec<(String, Meta)>> {
            let found = self.0.list(folder)?;
            if folder == OBJECTS {
                self.objects(|object| aged(&self.0.0.join(object), 0))?;
            }
            Ok(found)
        }
        fn tidy(&self, folders: &[&str], before: SystemTime, dry: bool) -> io::Result<(usize, u64)> {
            self.0.tidy(folders, before, dry)
        }
    }

    fn aged(file: &Path, hours: u64) -> io::Result<()> {
        let modified = SystemTime::now() - Duration::from_secs(hours * 3600);
        std::fs::File::options().write(true).open(file)?.set_modified(modified)
    }

    #[test]
    fn what_others_do_between_two_calls_costs_no_run() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("store");
        let mut store = Store::open(at.to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
        store.objects.place.backend = Arc::new(Shared(Folder(at.clone())));
        let dir = RunDir::create(root.path(), "shared").unwrap();
        dir.write_json(RUN_FILE, &RunHeader::new("cyclic", "shared")).unwrap();
        dir.seal().unwrap();
        let run = store.put(&dir).unwrap().run;
        assert_eq!(store.verify(&[], &mut |_| ()).unwrap(), []);
        let hash = store.files(&run).unwrap().unwrap().remove(RUN_FILE).unwrap();
        let object = at.join(object(&hash));
        // Cut off, which its size alone shows.
        let whole = std::fs::read(&object).unwrap();
        std::fs::write(&object, &whole[1..]).unwrap();
        assert_eq!(store.put(&dir).unwrap().mended, 1);
        assert_eq!(std::fs::read(&object).unwrap(), whole);
        aged(&object, 48).unwrap();
        assert_eq!(store.prune(&[run], false).unwrap().objects, 0);
        assert!(object.is_file());
    }
}
