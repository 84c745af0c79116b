//! Making the runs of a campaign: in order, each once, going on where a kill stopped it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rundir::{
    FactDifference, HASHES_FILE, KERNEL_FACTS, Machine, RunDir, read_json, set_aside, sha256_of, utc_name,
    utc_now, write_json,
};

use super::apply::{BOOT, KERNEL};
use super::plan::{CellRun, Plan};
use super::table::Table;
use crate::LabError;
use crate::registry::Registry;
use crate::robot::Kind;
use crate::session::file_name;

/// File of the plan.
const CAMPAIGN_FILE: &str = "campaign.json";
/// File of the runs that failed, with their causes.
const FAILURES_FILE: &str = "failures.json";
/// File of the table.
const TABLE_FILE: &str = "table.json";
/// Folder of resolved configurations.
const CONFIGS: &str = "configs";

/// What a run takes besides its window, until one has been measured: start, settling, sealing.
const OVERHEAD_GUESS: Duration = Duration::from_secs(2);
/// The same of a guest, which boots first and whose second takes several of the host's under load.
const GUEST_OVERHEAD_GUESS: Duration = Duration::from_secs(30);

/// `campaign.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    takt: String,
    started_utc: String,
    plan: Plan,
}

/// Length of a run from which on it goes on after a cut, seconds. Ten minutes: what a person would rather not lose.
const LONG_S: f64 = 600.0;

/// What to do about a run.
#[derive(Debug)]
pub struct Order<'a> {
    /// Which.
    pub run: &'a CellRun,
    /// Its resolved configuration.
    pub config: &'a Path,
    /// Where its run directory belongs.
    pub dir: &'a Path,
    /// File with its [`super::RunSetup`], for a run in a process of its own.
    pub setup: &'a Path,
    /// Whether `dir` holds the run as far as it came before it was cut off, and it goes on there.
    pub resume: bool,
}

/// What a campaign says while it goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Begin {
        /// Which.
        run: &'a CellRun,
        /// Time left for all, as far as known.
        left: Duration,
    },
    /// A run was measured before.
    Kept {
        /// Which.
        run: &'a CellRun,
    },
    /// A run waits for another kernel, or another condition.
    Waits {
        /// Which.
        run: &'a CellRun,
    },
    /// A run ended.
    End {
        /// Which.
        run: &'a CellRun,
    },
    /// A run failed; the campaign goes on, and the table says so.
    Failed {
        /// Which.
        run: &'a CellRun,
        /// Why.
        cause: &'a str,
    },
}

/// A campaign on disk.
#[derive(Debug)]
pub struct Campaign {
    registry: Registry,
    path: PathBuf,
    plan: Plan,
}

impl Campaign {
    /// A new campaign below `root`.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn create(registry: Registry, root: &Path, plan: Plan) -> Result<Self, LabError> {
        let base = format!("{}-{}", utc_name(), file_name("campaign", &plan.file.name));
        let path = (1..)
            .map(|n| root.join(if n == 1 { base.clone() } else { format!("{base}-{n}") }))
            .find(|path| !path.exists())
            .unwrap_or_default();
        fs::create_dir_all(path.join(CONFIGS)).map_err(LabError::io(&path))?;
        for (name, text) in &plan.configs {
            let file = path.join(CONFIGS).join(format!("{name}.toml"));
            takt_files::write(&file, text).map_err(LabError::io(&file))?;
        }
        // Last: a folder with this file is whole.
        let stored =
            Stored { takt: env!("CARGO_PKG_VERSION").to_owned(), started_utc: utc_now(), plan: plan.clone() };
        write_json(&path.join(CAMPAIGN_FILE), &stored)?;
        Ok(Self { registry, path, plan })
    }

    /// Opens a campaign that was begun before; it holds all that is needed to go on.
    ///
    /// # Errors
    /// [`LabError::Files`] when it is none or its files were changed.
    pub fn open(registry: Registry, path: &Path) -> Result<Self, LabError> {
        let file = path.join(CAMPAIGN_FILE);
        if !file.is_file() {
            let expected = "the folder of a campaign, which it names at its end";
            return Err(LabError::damaged(path, format!("no {CAMPAIGN_FILE}"), expected));
        }
        let Stored { plan, .. } = read_json(&file)?;
        for (name, text) in &plan.configs {
            let file = path.join(CONFIGS).join(format!("{name}.toml"));
            let there =
                takt_files::read(&file, takt_files::CONFIGURATION_BYTES).map_err(LabError::io(&file))?;
            if sha256_of(&there) != sha256_of(text.as_bytes()) {
                return Err(LabError::damaged(
                    file,
                    "another text",
                    "the configuration that the campaign began with",
                ));
            }
        }
        Ok(Self { registry, path: path.to_owned(), plan })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The robot that it is of; none where the program has none of that name.
    pub(super) fn kind(&self) -> Option<&'static Kind> {
        self.registry.kind(&self.plan.robot)
    }

    /// Its plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn is_whole(&self, run: &CellRun) -> bool {
        RunDir::open(&self.path.join(&run.name)).is_ok_and(|dir| dir.is_complete())
    }

    /// Facts in which this machine differs from the one that the finished runs were made on. What a kernel factor varies
    /// on purpose is left out. Guests bring their own machine: there is none then.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn machine_differences(&self) -> Result<Vec<FactDifference>, LabError> {
        if self.plan.file.guests.is_some() {
            return Ok(Vec::new());
        }
        let Some(run) = self.plan.runs.iter().find(|run| self.is_whole(run)) else { return Ok(Vec::new()) };
        let before = RunDir::open(&self.path.join(&run.name))?.header()?.machine;
        Ok(self.unplanned(before.differences(&Machine::read())))
    }

    /// Differences that no factor explains.
    pub(super) fn unplanned(&self, mut differences: Vec<FactDifference>) -> Vec<FactDifference> {
        let by_reboot = |run: &CellRun| {
            let label = |name: &String| name == KERNEL || name.starts_with(BOOT);
            run.setup.kernel.is_some() || run.setup.labels.keys().any(label)
        };
        if self.plan.runs.iter().any(by_reboot) {
            differences.retain(|d| !KERNEL_FACTS.contains(&d.fact.as_str()));
        }
        differences
    }

    /// Makes the runs that are not made yet. `make` makes one and leaves a sealed run directory, or says why it could
    /// not; then the campaign goes on with the next, unless `go_on` is false. `labels` say which conditions hold now
    /// (`kernel` and others): runs for other conditions wait. On this machine one run is made after the other; guests,
    /// whose time does not pass with the host's, as many at once as the campaign says.
    ///
    /// # Errors
    /// [`LabError::Config`] when finished runs were made on another machine and `any_machine` is not set;
    /// [`LabError::Stopped`] when `go_on` says so; [`LabError::Files`].
    pub fn measure(
        &self,
        labels: &BTreeMap<String, String>,
        any_machine: bool,
        make: &(dyn Fn(&Order<'_>) -> Result<(), String> + Sync),
        go_on: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(Progress<'_>, usize, usize),
    ) -> Result<Table, LabError> {
        let differences = self.machine_differences()?;
        if !any_machine && !differences.is_empty() {
            return Err(LabError::OtherMachine { dir: self.path.clone(), differences });
        }
        self.plan.check_labels(labels)?;
        let all = self.plan.runs.len();
        let mut done = 0;
        let mut open = Vec::new();
        for run in &self.plan.runs {
            if self.is_whole(run) {
                done += 1;
                progress(Progress::Kept { run }, done, all);
            } else if run.setup.labels != *labels {
                done += 1;
                progress(Progress::Waits { run }, done, all);
            } else {
                open.push(run);
            }
        }
        let made = Made { campaign: self, open: &open, at_once: self.at_once(), done, all };
        made.runs(make, go_on, progress)?;
        let table = self.table()?;
        write_json(&self.path.join(TABLE_FILE), &table)?;
        Ok(table)
    }

    /// Runs that are made at the same time.
    fn at_once(&self) -> usize {
        self.plan.file.guests.as_ref().map_or(1, |guests| guests.at_once as usize)
    }

    fn one(
        &self,
        run: &CellRun,
        make: &(dyn Fn(&Order<'_>) -> Result<(), String> + Sync),
    ) -> Result<(), String> {
        let dir = self.path.join(&run.name);
        let config = self.path.join(CONFIGS).join(format!("{}.toml", run.config));
        let setup = self.path.join(CONFIGS).join(format!("{}.setup.json", run.name));
        write_json(&setup, &run.setup).map_err(|e| e.to_string())?;
        let resume = self.goes_on(run, &config, &dir);
        if !resume {
            set_aside(&dir).map_err(|e| e.to_string())?;
        }
        make(&Order { run, config: &config, dir: &dir, setup: &setup, resume })?;
        if self.is_whole(run) {
            return Ok(());
        }
        Err("the run ended without a seal".to_owned())
    }

    /// Whether a run that was cut off goes on where it was: a test of weeks must not begin anew after a power cut. A short one
    /// begins anew, because uncut runs compare better; and one that failed, because it would fail again.
    fn goes_on(&self, run: &CellRun, config: &Path, dir: &Path) -> bool {
        let failed: BTreeMap<String, String> = read_json(&self.path.join(FAILURES_FILE)).unwrap_or_default();
        run.expected_s >= LONG_S
            && self.plan.file.guests.is_none()
            && !failed.contains_key(&run.name)
            && RunDir::open(dir).and_then(|dir| dir.header()).is_ok()
            && !has_sealed_samples(dir)
            && self.registry.load(config).is_ok_and(|file| file.kind().can_resume)
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

    /// Makes a run count as not made: it was ended early, in order, and is shorter than asked.
    ///
    /// # Errors
    /// [`LabError::Files`].
    pub fn unseal(dir: &Path) -> Result<(), LabError> {
        let seal = dir.join(HASHES_FILE);
        match fs::remove_file(&seal) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LabError::io(seal)(error)),
            _ => Ok(()),
        }
    }
}

/// Whether samples were sealed and their journals are gone: the run came to its end, though nobody counts it, and nothing can be added.
fn has_sealed_samples(dir: &Path) -> bool {
    let entries = fs::read_dir(dir.join(takt_rundir::SAMPLES_FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "parquet")
            && !path.with_extension("csv").is_file()
    })
}

/// The open runs of a campaign while they are made.
struct Made<'a> {
    campaign: &'a Campaign,
    open: &'a [&'a CellRun],
    at_once: usize,
    done: usize,
    all: usize,
}

/// What a worker says about a run.
enum Said<'a> {
    Begins(&'a CellRun),
    Ended(&'a CellRun, Result<(), String>, Duration),
}

impl<'a> Made<'a> {
    /// Makes them. Workers make runs, and this thread alone writes and tells.
    fn runs(
        mut self,
        make: &(dyn Fn(&Order<'_>) -> Result<(), String> + Sync),
        go_on: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(Progress<'_>, usize, usize),
    ) -> Result<(), LabError> {
        let (next, given_up) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (open, campaign) = (self.open, self.campaign);
        let work = |says: mpsc::Sender<Said<'a>>| {
            while go_on() && !given_up.load(Ordering::Acquire) {
                let Some(run) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                let begun = Instant::now();
                let _ = says.send(Said::Begins(run));
                let outcome = campaign.one(run, make);
                let _ = says.send(Said::Ended(run, outcome, begun.elapsed()));
            }
        };
        std::thread::scope(|scope| {
            let (says, said) = mpsc::channel();
            for _ in 0..self.at_once.clamp(1, open.len().max(1)) {
                let says = says.clone();
                scope.spawn(|| work(says));
            }
            drop(says);
            let told = self.tell(&said, go_on, progress);
            given_up.store(true, Ordering::Release);
            told
        })
    }

    fn tell(
        &mut self,
        said: &mpsc::Receiver<Said<'a>>,
        go_on: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(Progress<'_>, usize, usize),
    ) -> Result<(), LabError> {
        let failures_file = self.campaign.path.join(FAILURES_FILE);
        let mut failures: BTreeMap<String, String> = read_json(&failures_file).unwrap_or_default();
        let mut left: Duration = self.open.iter().map(|run| Duration::from_secs_f64(run.expected_s)).sum();
        let guests = self.campaign.plan.file.guests.is_some();
        let guess = if guests { GUEST_OVERHEAD_GUESS } else { OVERHEAD_GUESS };
        let (mut overhead, mut ended, mut begun) = (Duration::ZERO, 0u32, 0u32);
        for event in said {
            match event {
                Said::Begins(run) => {
                    let each = if ended == 0 { guess } else { overhead / ended };
                    let left = (left + each * (self.open.len() as u32 - begun)) / self.at_once as u32;
                    begun += 1;
                    progress(Progress::Begin { run, left }, self.done, self.all);
                }
                // It was ended with the campaign and says nothing about its configuration.
                Said::Ended(..) if !go_on() => break,
                Said::Ended(run, outcome, took) => {
                    self.done += 1;
                    let window = Duration::from_secs_f64(run.expected_s);
                    left = left.saturating_sub(window);
                    match outcome {
                        Ok(()) => {
                            failures.remove(&run.name);
                            (overhead, ended) = (overhead + took.saturating_sub(window), ended + 1);
                            progress(Progress::End { run }, self.done, self.all);
                        }
                        Err(cause) => {
                            progress(Progress::Failed { run, cause: &cause }, self.done, self.all);
                            failures.insert(run.name.clone(), cause);
                        }
                    }
                    write_json(&failures_file, &failures)?;
                }
            }
        }
        if go_on() { Ok(()) } else { Err(LabError::Stopped { dir: self.campaign.path.clone() }) }
    }
}
