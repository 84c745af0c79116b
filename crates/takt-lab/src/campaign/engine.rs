//! A campaign on disk: which runs it has, which are made, and what became of each; an [`Executor`]
//! makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_kernels::packages::Store;
use takt_rundir::{
    FactDifference, KERNEL_FACTS, Machine, RunDir, read_json, set_aside, sha256_of, utc_name, utc_now,
    write_json,
};

use super::apply::{BOOT, KERNEL};
use super::executor::{Executor, Make, Progress, RunOrder, Step};
use super::failure::RunFailure;
use super::plan::{CellRun, Plan};
use super::table::Table;
use crate::LabError;
use crate::registry::Registry;
use crate::robot::RobotKind;
use crate::session::file_name;

/// File of the plan.
const CAMPAIGN_FILE: &str = "campaign.json";
/// File of the runs that failed, with their causes.
const FAILURES_FILE: &str = "failures.json";
const TABLE_FILE: &str = "table.json";
/// Folder of resolved configurations.
const CONFIGS: &str = "configs";

/// File that whoever has the runs made holds a lock on.
const LOCK_FILE: &str = "lock";

/// Refuses a virtual campaign with a kernel that does not exist, before there is a folder.
fn check_kernels(plan: &Plan) -> Result<(), LabError> {
    let Some(guests) = &plan.file.guests else { return Ok(()) };
    let store = Store::open(guests.cache.as_deref())?;
    let names: BTreeSet<&str> = plan.runs.iter().filter_map(|run| run.setup.kernel.as_deref()).collect();
    Ok(names.into_iter().try_for_each(|name| store.check(name))?)
}

/// `campaign.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    takt: String,
    started_utc: String,
    /// The command that began it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    command: String,
    plan: Plan,
}

/// Length of a run from which on it goes on after a cut, seconds. Ten minutes: what a person would
/// rather not lose.
const LONG_S: f64 = 600.0;

/// A campaign on disk.
#[derive(Debug)]
pub struct Campaign {
    registry: Registry,
    path: PathBuf,
    version: String,
    plan: Plan,
}

impl Campaign {
    /// A new campaign below `root`.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn create(registry: Registry, root: &Path, plan: Plan) -> Result<Self, LabError> {
        Self::create_with(registry, root, plan, |_| Ok(()))
    }

    /// As [`create`](Self::create), with what whoever makes the runs keeps in the folder: `prepare`
    /// puts it there before the folder is a campaign's. Whatever ends this program meanwhile leaves
    /// none, which would go on without; an error takes the folder away.
    ///
    /// # Errors
    /// [`LabError::Files`], and those of `prepare`.
    pub fn create_with<E: From<LabError>>(
        registry: Registry,
        root: &Path,
        plan: Plan,
        prepare: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        check_kernels(&plan)?;
        let path = new_folder(root, &plan.file.name)?;
        let campaign = Self { registry, path, version: env!("CARGO_PKG_VERSION").to_owned(), plan };
        let made = campaign.write_configs().map_err(E::from).and_then(|()| prepare(&campaign));
        // Last: a folder with this file is whole.
        let made = made.and_then(|()| Ok(campaign.write_plan()?));
        if let Err(error) = made {
            // Nobody has measured anything in it.
            let _ = fs::remove_dir_all(&campaign.path);
            return Err(error);
        }
        Ok(campaign)
    }

    fn write_configs(&self) -> Result<(), LabError> {
        let folder = self.path.join(CONFIGS);
        takt_files::make_folder(&folder).map_err(LabError::io(&folder))?;
        for (name, text) in &self.plan.configs {
            let file = folder.join(format!("{name}.toml"));
            takt_files::write(&file, text).map_err(LabError::io(&file))?;
        }
        Ok(())
    }

    fn write_plan(&self) -> Result<(), LabError> {
        let stored = Stored {
            takt: self.version.clone(),
            started_utc: utc_now(),
            command: takt_rundir::command_line(),
            plan: self.plan.clone(),
        };
        Ok(write_json(&self.path.join(CAMPAIGN_FILE), &stored)?)
    }

    /// Opens a campaign that was begun before; it holds all that is needed to go on.
    ///
    /// # Errors
    /// [`LabError::Files`] when it is none or its files were changed.
    pub fn open(registry: Registry, path: &Path) -> Result<Self, LabError> {
        let file = path.join(CAMPAIGN_FILE);
        if !file.is_file() {
            let expected = "the folder of a campaign, which `takt campaign run` prints at its end";
            return Err(LabError::damaged(path, format!("no {CAMPAIGN_FILE}"), expected));
        }
        let Stored { plan, takt: version, .. } = read_json(&file)?;
        for (name, text) in &plan.configs {
            let file = path.join(CONFIGS).join(format!("{name}.toml"));
            let there =
                takt_files::read(&file, takt_files::CONFIGURATION_BYTES).map_err(LabError::io(&file))?;
            if sha256_of(&there) != sha256_of(text.as_bytes()) {
                return Err(LabError::damaged(
                    file,
                    "another text",
                    "the configuration with which the campaign began",
                ));
            }
        }
        Ok(Self { registry, path: path.to_owned(), version, plan })
    }

    /// Path of the campaign's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The robot that it is of; none where the program has none of that name.
    pub(super) fn kind(&self) -> Option<&'static RobotKind> {
        self.registry.kind(&self.plan.robot)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Path for the run directory of `run`.
    pub fn run_path(&self, run: &CellRun) -> PathBuf {
        self.path.join(&run.name)
    }

    /// Whether a run was measured to its end.
    pub fn is_whole(&self, run: &CellRun) -> bool {
        is_whole(&self.run_path(run))
    }

    /// The program's version that the campaign was begun with.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Facts in which this machine, or this takt, differs from the one that the finished runs were
    /// made on. Deliberate variations by a kernel factor are left out. Guests bring their own
    /// machine: there is none then.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn machine_differences(&self) -> Result<Vec<FactDifference>, LabError> {
        if self.plan.file.guests.is_some() {
            return Ok(Vec::new());
        }
        let Some(run) = self.plan.runs.iter().find(|run| self.is_whole(run)) else { return Ok(Vec::new()) };
        let before = RunDir::open(&self.path.join(&run.name))?.header()?;
        let here = env!("CARGO_PKG_VERSION");
        Ok(self.unplanned((&before.machine, &before.takt), (&Machine::read(), here)))
    }

    /// Differences between two machines, each with the version of takt that measured there, that no
    /// factor explains.
    pub(super) fn unplanned(&self, before: (&Machine, &str), after: (&Machine, &str)) -> Vec<FactDifference> {
        let mut differences = before.0.differences(after.0);
        if before.1 != after.1 {
            let [before, after] = [before.1, after.1].map(str::to_owned);
            differences.push(FactDifference { fact: "takt".to_owned(), before, after });
        }
        let by_reboot = |run: &CellRun| {
            let label = |name: &String| name == KERNEL || name.starts_with(BOOT);
            run.setup.kernel.is_some() || run.setup.labels.keys().any(label)
        };
        if self.plan.runs.iter().any(by_reboot) {
            differences.retain(|d| !KERNEL_FACTS.contains(&d.fact.as_str()));
        }
        differences
    }

    /// Has the runs made that are not made yet, by `executor`. A run that fails is a row of the
    /// table, and the campaign goes on with the next. Runs that the executor does not take wait.
    ///
    /// # Errors
    /// [`LabError::Config`] where another takt measures this campaign now; what the executor
    /// refuses or ends with; [`LabError::Files`].
    pub fn measure(
        &self,
        executor: &dyn Executor,
        progress: &mut dyn FnMut(Progress<'_>, usize, usize),
    ) -> Result<Table, LabError> {
        let _alone = self.lock()?;
        executor.check(self)?;
        let all = self.plan.runs.len();
        let mut done = 0;
        let mut open = Vec::new();
        for run in &self.plan.runs {
            if self.is_whole(run) {
                done += 1;
                progress(Progress::Kept { run }, done, all);
            } else if executor.takes(run) {
                open.push(run);
            } else {
                done += 1;
                progress(Progress::Waits { run }, done, all);
            }
        }
        let failures_file = self.path.join(FAILURES_FILE);
        let mut failures: BTreeMap<String, String> = read_json(&failures_file).unwrap_or_default();
        executor.execute(self, &open, &mut |step| {
            match step {
                Step::Begins { run, left } => progress(Progress::Begin { run, left }, done, all),
                Step::Note(sentence) => progress(Progress::Note(sentence), done, all),
                Step::Queue(queue) => progress(Progress::Queue(queue), done, all),
                Step::Again { run } => {
                    done -= 1;
                    progress(Progress::Again { run }, done, all);
                }
                Step::Ended { run, outcome } => {
                    done += 1;
                    match outcome {
                        Ok(()) => {
                            failures.remove(&run.name);
                            progress(Progress::End { run }, done, all);
                        }
                        Err(failure) => {
                            let cause = failure.to_string();
                            progress(Progress::Failed { run, cause: &cause }, done, all);
                            failures.insert(run.name.clone(), cause);
                        }
                    }
                    write_json(&failures_file, &failures)?;
                }
            }
            Ok(())
        })?;
        let table = self.table()?;
        write_json(&self.path.join(TABLE_FILE), &table)?;
        Ok(table)
    }

    /// Holds the campaign for this process. Two that make its runs would each set the other's
    /// aside.
    fn lock(&self) -> Result<Option<File>, LabError> {
        let path = self.path.join(LOCK_FILE);
        let file = takt_files::append(&path).map_err(LabError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(LabError::Config(format!(
                "{}: another takt process is running this campaign ({LOCK_FILE} is locked). Wait until it ends, or stop it",
                self.path.display()
            ))),
            // A file system without locks: whoever starts two must know.
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// Makes one run in its place in the campaign, or in `folder`.
    pub(super) fn one(&self, run: &CellRun, folder: Option<&Path>, make: Make<'_>) -> Result<(), RunFailure> {
        let dir = folder.unwrap_or(&self.path).join(&run.name);
        let config = self.path.join(CONFIGS).join(format!("{}.toml", run.config));
        let setup = folder.unwrap_or(&self.path.join(CONFIGS)).join(format!("{}.setup.json", run.name));
        write_json(&setup, &run.setup)?;
        let resume = folder.is_none() && self.goes_on(run, &config, &dir);
        if !resume {
            set_aside(&dir)?;
        }
        make(&RunOrder { run, config: &config, dir: &dir, setup: &setup, resume })?;
        if is_whole(&dir) {
            return Ok(());
        }
        Err(RunFailure::NotSealed)
    }

    /// Whether a run that was cut off goes on where it was: a test of weeks must not begin anew
    /// after a power cut. A short one begins anew, because uncut runs compare better; and one that
    /// failed, because it would fail again.
    fn goes_on(&self, run: &CellRun, config: &Path, dir: &Path) -> bool {
        let failed: BTreeMap<String, String> = read_json(&self.path.join(FAILURES_FILE)).unwrap_or_default();
        run.expected_s >= LONG_S
            && self.plan.file.guests.is_none()
            && !failed.contains_key(&run.name)
            && RunDir::open(dir).and_then(|dir| dir.header()).is_ok()
            && !has_sealed_samples(dir)
            && self.registry.load(config).is_ok_and(|file| file.kind().cannot_resume.is_none())
    }

    /// The table of what is measured so far.
    ///
    /// # Errors
    /// [`LabError::Files`] for a damaged run directory.
    pub fn table(&self) -> Result<Table, LabError> {
        let failures: BTreeMap<String, String> =
            read_json(&self.path.join(FAILURES_FILE)).unwrap_or_default();
        Table::of(self, &failures)
    }
}

/// A folder below `root` that nobody else has: campaigns may begin in the same second.
fn new_folder(root: &Path, name: &str) -> Result<PathBuf, LabError> {
    takt_files::make_folder(root).map_err(LabError::io(root))?;
    let base = format!("{}-{}", utc_name(), file_name("campaign", name));
    let mut number = 1;
    loop {
        let path = root.join(if number == 1 { base.clone() } else { format!("{base}-{number}") });
        match fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| path.clone()).map_err(LabError::io(path)),
        }
    }
}

fn is_whole(dir: &Path) -> bool {
    RunDir::open(dir).is_ok_and(|dir| dir.is_complete())
}

/// Whether samples were sealed and their journals are gone: the run came to its end, though nobody
/// counts it, and nothing can be added.
fn has_sealed_samples(dir: &Path) -> bool {
    let entries = fs::read_dir(dir.join(takt_rundir::SAMPLES_FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "parquet")
            && !path.with_extension("csv").is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn campaigns_that_begin_at_once_have_folders_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let begin = std::sync::Barrier::new(8);
        let one = || {
            begin.wait();
            (0..20).map(|_| new_folder(root.path(), "a b").unwrap()).collect::<Vec<_>>()
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let different: std::collections::BTreeSet<&PathBuf> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (160, 160));
    }
}
