//! Objects as files of a folder, which may be shared.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::backend::{Backend, Draft, Meta};

/// Stands in the names of files that are being written, and in no others.
const CUT: char = '#';

#[derive(Debug)]
pub(crate) struct Folder(pub PathBuf);

/// Turns a missing file into `None`.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn meta(data: &fs::Metadata) -> Meta {
    Meta { size: data.len(), modified: data.modified().unwrap_or(UNIX_EPOCH) }
}

/// Every file below `at`; folders that go meanwhile have none.
fn walk(at: &Path, seen: &mut dyn FnMut(&Path, &fs::DirEntry) -> io::Result<()>) -> io::Result<()> {
    let Some(entries) = there(fs::read_dir(at))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, seen)?;
        } else {
            seen(&path, &entry)?;
        }
    }
    Ok(())
}

fn is_cut(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(CUT))
}

impl Backend for Folder {
    fn head(&self, name: &str) -> io::Result<Option<Meta>> {
        Ok(there(fs::metadata(self.0.join(name)))?.map(|data| meta(&data)))
    }

    fn read(&self, name: &str) -> io::Result<Option<Box<dyn io::Read + Send>>> {
        Ok(there(takt_files::open(&self.0.join(name)))?
            .map(|file| Box::new(file) as Box<dyn io::Read + Send>))
    }

    fn write(&self, name: &str) -> io::Result<Box<dyn Draft>> {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        // Others write to the same folder, of other machines too.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unique = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed), now.as_nanos());
        let draft = self.0.join(format!("{name}{CUT}{}-{}-{}", unique.0, unique.1, unique.2));
        let file = File::options().write(true).create_new(true).open(&draft)?;
        Ok(Box::new(FileDraft { file, draft, path, committed: false }))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        there(fs::remove_file(self.0.join(name))).map(drop)
    }

    fn is_empty(&self) -> io::Result<bool> {
        let mut names = fs::read_dir(&self.0)?.map(|entry| entry.map(|entry| entry.path()));
        // The remains of an aborted first write do not count.
        names.try_fold(true, |empty, path| Ok(empty && is_cut(&path?)))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, Meta)>> {
        let at = self.0.join(folder);
        let mut found = Vec::new();
        walk(&at, &mut |path, entry| {
            if let (false, Ok(name)) = (is_cut(path), path.strip_prefix(&at)) {
                let data = there(entry.metadata())?;
                found.extend(data.map(|data| (name.to_string_lossy().into_owned(), meta(&data))));
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let at = self.0.join(folder);
        let mut found = Vec::new();
        walk(&at, &mut |path, _| {
            if let (false, Ok(name)) = (is_cut(path), path.strip_prefix(&at)) {
                found.push(name.to_string_lossy().into_owned());
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.0.join(name))
    }

    fn tidy(&self, folders: &[&str], before: SystemTime, dry: bool) -> io::Result<(usize, u64)> {
        let mut left = Vec::new();
        for folder in folders {
            walk(&self.0.join(folder), &mut |path, entry| {
                if is_cut(path)
                    && let Some(data) = there(entry.metadata())?.filter(|data| meta(data).modified <= before)
                {
                    left.push((path.to_owned(), data.len()));
                }
                Ok(())
            })?;
        }
        if !dry {
            left.iter().try_for_each(|(path, _)| there(fs::remove_file(path)).map(drop))?;
        }
        Ok((left.len(), left.iter().map(|(_, bytes)| bytes).sum()))
    }
}

struct FileDraft {
    file: File,
    draft: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl Draft for FileDraft {
    fn write(&mut self, part: &[u8]) -> io::Result<()> {
        // At once, so that no call has to wait for a whole file of a slow share.
        self.file.write_all(part)?;
        self.file.sync_data()
    }

    fn commit(mut self: Box<Self>) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.draft, &self.path)?;
        self.committed = true;
        // The name must survive as well.
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        if !self.committed {
            // A draft that cannot be removed now will be old one day.
            let _ = fs::remove_file(&self.draft);
        }
    }
}
