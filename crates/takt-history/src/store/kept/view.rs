//! Files of a run in place, for whoever reads run directories: nothing is copied out of a folder.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use takt_rundir::HASHES_FILE;

use super::{ABOUT, MAX_SEAL_BYTES, Store, object, seal_name};
use crate::store::StoreError;

impl Store {
    /// Whether there is a store at `place`, of whatever version; a place that cannot be looked at
    /// is none.
    pub fn is_one(place: &str) -> bool {
        place.contains("://") || Path::new(place).join(ABOUT).is_file()
    }

    /// Makes the files of a run that `wanted` names readable in the folder `to`, as a run directory
    /// has them: links where the store is a folder, copies else. Each is checked against its hash
    /// first; one that is there already is passed over. The seal is one of them ([`HASHES_FILE`]).
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the object; or what the store or this side answered.
    pub fn view(&self, run: &str, to: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), StoreError> {
        let gone = || StoreError::Which { place: self.name(), asked: run.to_owned(), found: 0 };
        let files = self.files(run)?.ok_or_else(gone)?;
        let objects = files.into_iter().map(|(name, hash)| (name, object(&hash), Some(hash)));
        // The seal's name was compared with its hash when it was read.
        let seal = (HASHES_FILE.to_owned(), seal_name(run), None);
        for (name, object, hash) in objects.chain([seal]).filter(|(name, ..)| wanted(name)) {
            let path = to.join(&name);
            if path.symlink_metadata().is_ok() {
                continue;
            }
            let io = |source| StoreError::Io { path: path.clone(), source };
            std::fs::create_dir_all(path.parent().unwrap_or(to)).map_err(io)?;
            let target = self.objects.path(&object);
            let mut copy = match target {
                Some(_) => None,
                None => Some(File::create(&path).map_err(io)?),
            };
            let mut take =
                |part: &[u8]| copy.iter_mut().try_for_each(|file| file.write_all(part)).map_err(io);
            match hash {
                Some(hash) => drop(self.objects.read_checked(&object, &hash, &mut take)?),
                None => take(&self.objects.get(&object, MAX_SEAL_BYTES)?.ok_or_else(gone)?)?,
            }
            if let Some(target) = target {
                symlink(target, &path).map_err(io)?;
            }
        }
        Ok(())
    }
}
