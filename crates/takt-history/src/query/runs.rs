//! Runs of a store as run directories: what of them is read, and no more, in a folder that goes
//! with whoever holds it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{Entry, Store, StoreError};
use takt_report::Figures;
use takt_rundir::{Measure, RUN_FILE, RunDir, RunHeader, SAMPLES_FOLDER};
use tempfile::TempDir;

use crate::query::QueryError;
use crate::query::compare::{report, why_unread};

/// Folder in which files of runs become readable.
#[derive(Debug)]
pub struct Views {
    store: Arc<Store>,
    folder: TempDir,
}

/// A run whose header was read.
#[derive(Debug)]
pub struct View {
    dir: RunDir,
    path: PathBuf,
    /// Its header.
    pub header: RunHeader,
}

impl Views {
    /// An empty folder for runs of `store`.
    ///
    /// # Errors
    /// [`QueryError::Io`].
    pub fn new(store: &Arc<Store>) -> Result<Self, QueryError> {
        let folder = TempDir::with_prefix("takt-view-")
            .map_err(|source| QueryError::Io { path: std::env::temp_dir(), source })?;
        Ok(Self { store: Arc::clone(store), folder })
    }

    fn place(&self, run: &str) -> PathBuf {
        self.folder.path().join(run)
    }

    /// Reads a run's header.
    ///
    /// # Errors
    /// [`QueryError`] where it is damaged.
    pub fn open(&self, run: &Entry) -> Result<View, QueryError> {
        let path = self.place(&run.run);
        self.store.view(&run.run, &path, &|name| name == RUN_FILE)?;
        let report = |error| QueryError::Report(takt_report::Error::RunDir(error));
        let dir = RunDir::open(&path).map_err(report)?;
        let header = dir.header().map_err(report)?;
        Ok(View { dir, path, header })
    }

    /// The figures of a measure of a run, with all of its samples that were kept.
    ///
    /// # Errors
    /// [`QueryError`] where the samples are damaged or gone.
    pub fn figures(&self, run: &Entry, view: &View, measure: &Measure) -> Result<Figures, QueryError> {
        self.bring(run, view, measure)?;
        Ok(Figures::read(&view.dir, measure)?)
    }

    fn bring(&self, run: &Entry, view: &View, measure: &Measure) -> Result<(), QueryError> {
        let samples = format!("{SAMPLES_FOLDER}/{}.parquet", measure.file);
        let wanted = |name: &str| name == samples || Some(name) == measure.recorder.as_deref();
        Ok(self.store.view(&run.run, &view.path, &wanted)?)
    }

    /// Ends a view, so that thousands do not pile up.
    pub fn close(&self, view: &View) {
        // Remaining files go with the folder.
        let _ = std::fs::remove_dir_all(&view.path);
    }

    /// All files of the runs, each a run directory in the folder, which is returned; with the runs
    /// that cannot be read, and why.
    ///
    /// # Errors
    /// The store's error.
    pub fn all(&self, runs: &[&Entry]) -> Result<(&Path, Vec<String>), QueryError> {
        let mut left_out = Vec::new();
        for run in runs {
            if let Some(why) = why_unread(run) {
                left_out.push(report(run, &why));
                continue;
            }
            // Named as it was, where that is a name and no other run has it.
            let path = self.folder.path().join(Path::new(&run.name).file_name().unwrap_or_default());
            let path = if run.name.is_empty() || path.exists() { self.place(&run.run) } else { path };
            match self.store.view(&run.run, &path, &|_| true) {
                Ok(()) => {}
                Err(error @ (StoreError::Damaged { .. } | StoreError::Which { .. })) => {
                    left_out.push(report(run, &error.to_string()));
                    // Its remains are not a run, because they have no seal.
                    let _ = std::fs::remove_dir_all(&path);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((self.folder.path(), left_out))
    }
}
