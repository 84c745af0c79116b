//! Backend for objects: complete ones under their names, each present or absent.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// Facts about an object without reading it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// An object that is being written: nobody sees it before [`Draft::commit`], and without that it
/// never was.
pub(crate) trait Draft: Send {
    fn write(&mut self, part: &[u8]) -> io::Result<()>;
    /// Returns when it will survive.
    fn commit(self: Box<Self>) -> io::Result<()>;
}

/// Names are `folder/…/name`, of letters, digits, dots and hyphens. A missing object is `None`, and
/// may be deleted.
pub(crate) trait Backend: Debug + Send + Sync {
    fn head(&self, name: &str) -> io::Result<Option<Meta>>;
    /// Whether an object's checksum, where it has one that can be had without reading it, is that
    /// of the file. A `false` may be that of another way to add it up.
    fn agrees(&self, _name: &str, _file: &mut File) -> io::Result<Option<bool>> {
        Ok(None)
    }
    fn read(&self, name: &str) -> io::Result<Option<Box<dyn io::Read + Send>>>;
    fn write(&self, name: &str) -> io::Result<Box<dyn Draft>>;
    fn delete(&self, name: &str) -> io::Result<()>;
    /// Whether there is nothing at all.
    fn is_empty(&self) -> io::Result<bool>;
    /// All that are whole below `folder`, with their names there.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, Meta)>>;
    /// Their names alone, where those are to be had for less.
    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.list(folder)?.into_iter().map(|(name, _)| name).collect())
    }
    /// Path of an object that is a file of this machine.
    fn path(&self, _name: &str) -> Option<PathBuf> {
        None
    }
    /// Takes away what writes into these folders that were cut off before `before` have left, or
    /// only shows it: how many, and their bytes.
    fn tidy(&self, folders: &[&str], before: SystemTime, dry: bool) -> io::Result<(usize, u64)>;
}
