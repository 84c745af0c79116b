//! Existing runs, and the files of the index that lists them.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap, HashSet};

use takt_rundir::sha256_of;

use super::{INDEX, MAX_INDEX_BYTES, RUNS, Store, is_hash};
use crate::store::StoreError;
use crate::store::index::{Entry, read_index, write_index};

/// Files of the index of about one size from which on they become one.
const MANY: usize = 32;

/// Files up to this size are of one size.
const SMALL: u64 = 1 << 16;

/// Times that the index is read anew where it changes meanwhile.
const TRIES: u32 = 5;

/// The index as it was read.
#[derive(Default)]
struct Index {
    files: Vec<String>,
    /// The rows, in the order of the files; those of a run may be there twice.
    rows: Vec<Entry>,
    /// Number of damaged files.
    bad: usize,
    /// All files that were listed were there.
    whole: bool,
}

/// Contents of a store.
struct Found {
    /// Runs with their rows, in the order of their beginning.
    rows: Vec<Entry>,
    /// Runs without a row that cannot be read: no index may say that they are known.
    damaged: Vec<String>,
    /// Files of the index.
    files: Vec<String>,
    /// The index lacks runs or is damaged.
    outdated: bool,
}

/// Class of files of about the same size: factors of eight.
fn size_class(bytes: u64) -> u32 {
    (bytes / SMALL).checked_ilog2().map_or(0, |log| 1 + log / 3)
}

/// Each run once, in the order of the beginning. A run that was looked up has a hash instead of its
/// name, which another row may have.
fn once(rows: Vec<Entry>) -> Vec<Entry> {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(rows.len());
    let mut keep = vec![true; rows.len()];
    for (place, row) in rows.iter().enumerate() {
        match first.entry(row.run.as_str()) {
            Slot::Vacant(slot) => {
                slot.insert(place);
            }
            Slot::Occupied(mut slot) if rows[*slot.get()].has_no_name() && !row.has_no_name() => {
                keep[slot.insert(place)] = false;
            }
            Slot::Occupied(_) => keep[place] = false,
        }
    }
    let mut rows: Vec<Entry> =
        rows.into_iter().zip(keep).filter_map(|(row, keep)| keep.then_some(row)).collect();
    // Stable: of a file whose rows are in this order, as all that are written are, none moves.
    rows.sort_by(|a, b| (&a.started_utc, &a.run).cmp(&(&b.started_utc, &b.run)));
    rows
}

impl Entry {
    /// A hash stands for the name of its directory.
    fn has_no_name(&self) -> bool {
        self.run.starts_with(&self.name)
    }
}

impl Store {
    /// A file of the index is called by the hash of what it holds, as everything is. Returns its
    /// name.
    pub(super) fn put_rows(&self, rows: &[Entry]) -> Result<String, StoreError> {
        let bytes = write_index(rows).map_err(|error| self.damaged(INDEX, error.to_string()))?;
        let name = format!("{}.parquet", sha256_of(&bytes));
        self.objects.put(&format!("{INDEX}/{name}"), bytes)?;
        Ok(name)
    }

    /// Names of all runs that are there.
    pub(super) fn runs(&self) -> Result<HashSet<String>, StoreError> {
        let names = self.objects.names(RUNS)?.into_iter();
        let run = |mut name: String| {
            name.truncate(name.strip_suffix(".json")?.len());
            is_hash(&name).then_some(name)
        };
        Ok(names.filter_map(run).collect())
    }

    /// All runs, in the order of their beginning. Runs missing in the index are looked up; a
    /// damaged run has only its hash.
    ///
    /// # Errors
    /// The store's error.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let Found { mut rows, damaged, files, outdated } = self.found()?;
        if outdated {
            // A store that may only be read is listed all the same.
            let _ = self.put_together(&rows, &files);
        }
        rows.extend(damaged.into_iter().map(|run| {
            let name = run[..12].to_owned();
            Entry { run, name, ..Entry::default() }
        }));
        Ok(rows)
    }

    fn found(&self) -> Result<Found, StoreError> {
        let mut index = Index::default();
        // Another may put files together while they are read: their rows are in a newer one.
        for _ in 0..TRIES {
            index = self.index()?;
            if index.whole {
                break;
            }
        }
        let Index { files, rows, bad, .. } = index;
        let runs = self.runs()?;
        let mut rows = once(rows);
        rows.retain(|row| runs.contains(&row.run));
        let (mut damaged, mut outdated) = (Vec::new(), bad > 0);
        if rows.len() < runs.len() {
            let known: HashSet<&str> = rows.iter().map(|row| row.run.as_str()).collect();
            let mut missing: Vec<String> =
                runs.iter().filter(|run| !known.contains(run.as_str())).cloned().collect();
            missing.sort_unstable();
            let mut good = HashMap::new();
            for run in missing {
                match self.read_run(&run, &mut good)? {
                    Some(Ok(row)) => {
                        outdated = true;
                        rows.push(row);
                    }
                    Some(Err(_)) => damaged.push(run),
                    // Pruned meanwhile.
                    None => {}
                }
            }
            rows = once(rows);
        }
        Ok(Found { rows, damaged, files, outdated })
    }

    /// All rows of the index, by run: what listings and comparisons may believe.
    pub(super) fn rows_by_run(&self) -> Result<HashMap<String, Vec<Entry>>, StoreError> {
        let mut rows: HashMap<String, Vec<Entry>> = HashMap::new();
        for row in self.index()?.rows {
            let of_run = rows.entry(row.run.clone()).or_default();
            if !of_run.contains(&row) {
                of_run.push(row);
            }
        }
        Ok(rows)
    }

    /// The index. Asked for before the runs: a row comes after its run, so that none is taken for
    /// one without.
    fn index(&self) -> Result<Index, StoreError> {
        let mut index = Index { files: self.objects.names(INDEX)?, whole: true, ..Index::default() };
        for file in &index.files {
            match self.rows_of(file)? {
                Some(Ok(rows)) => index.rows.extend(rows),
                // Foreign files are nobody's damage.
                Some(Err(())) => index.bad += usize::from(file.ends_with(".parquet")),
                None => index.whole = false,
            }
        }
        Ok(index)
    }

    /// The rows of a file of the index, where it holds what its name says; `None` where it has
    /// gone.
    fn rows_of(&self, file: &str) -> Result<Option<Result<Vec<Entry>, ()>>, StoreError> {
        let bytes = match self.objects.get(&format!("{INDEX}/{file}"), MAX_INDEX_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(StoreError::Damaged { .. }) => return Ok(Some(Err(()))),
            Err(error) => return Err(error),
        };
        let is_named = file.strip_suffix(".parquet").is_some_and(|name| name == sha256_of(&bytes));
        Ok(Some(if is_named { read_index(bytes).map_err(drop) } else { Err(()) }))
    }

    /// Makes one file of those that are of about one size, where they are many, so that a store of
    /// any number of runs has few and each row is written anew a few times at most.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        let mut classes: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (name, meta) in self.objects.list(INDEX)? {
            if name.ends_with(".parquet") {
                classes.entry(size_class(meta.size)).or_default().push(name);
            }
        }
        for files in classes.into_values().filter(|files| files.len() >= MANY) {
            let (mut rows, mut read) = (Vec::new(), Vec::new());
            for file in files {
                match self.rows_of(&file)? {
                    Some(Ok(of_file)) => {
                        rows.extend(of_file);
                        read.push(file);
                    }
                    // Left to whoever lists, who looks up what it reported.
                    Some(Err(())) => {}
                    // Another does the same.
                    None => return Ok(()),
                }
            }
            self.put_together(&once(rows), &read)?;
        }
        Ok(())
    }

    /// One file in place of `files`; written before they go, so that a reader finds a row twice at
    /// worst.
    fn put_together(&self, rows: &[Entry], files: &[String]) -> Result<(), StoreError> {
        let own = self.put_rows(rows)?;
        for file in files.iter().filter(|file| **file != own && file.ends_with(".parquet")) {
            self.objects.delete(&format!("{INDEX}/{file}"))?;
        }
        Ok(())
    }

    /// Writes the index anew, in one file without the rows of runs that have gone.
    pub(super) fn tidy_index(&self) -> Result<(), StoreError> {
        let Found { rows, files, .. } = self.found()?;
        self.put_together(&rows, &files)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::seal_name;
    use super::*;

    #[test]
    fn many_files_of_the_index_become_few_and_lose_nothing() {
        const WRITERS: usize = 2;
        const EACH: usize = 150;
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path().to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
        let write = |writer: usize| {
            for number in (writer..WRITERS * EACH).step_by(WRITERS) {
                let run = format!("{number:064x}");
                let started_utc = format!("2026-11-23T{:05}Z", number * 7919 % 1000);
                let row = Entry { run: run.clone(), name: "own".to_owned(), started_utc, ..Entry::default() };
                store.put_rows(&[row]).unwrap();
                store.settle().unwrap();
                // Last: a run that is there has its row, so that none is looked up.
                store.objects.put(&seal_name(&run), b"{}".to_vec()).unwrap();
            }
        };
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
            let mut seen = 0;
            while !writers.iter().all(|writer| writer.is_finished()) {
                let rows = store.list().unwrap();
                // A row may be missed while its file becomes another: its run is reported all the
                // same.
                assert!(rows.len() >= seen, "{} {seen}", rows.len());
                seen = rows.len();
            }
        });
        let rows = store.list().unwrap();
        assert_eq!(rows.len(), WRITERS * EACH);
        assert!(rows.is_sorted_by(|a, b| (&a.started_utc, &a.run) < (&b.started_utc, &b.run)));
        let files = store.objects.names(INDEX).unwrap();
        assert!(files.len() < 2 * MANY, "{files:?}");
        // A file that is damaged stays out, and one row that is there twice is reported once.
        store.objects.put(&format!("{INDEX}/{:064}.parquet", 0), b"PAR1".to_vec()).unwrap();
        store.put_rows(&rows[3..5]).unwrap();
        store.settle().unwrap();
        assert_eq!(store.list().unwrap(), rows);
        assert_eq!(store.objects.names(INDEX).unwrap().len(), 1);
    }
}
