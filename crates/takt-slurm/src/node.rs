//! On the node: the runs of one block, one after the other, each published by a rename.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use takt_lab::campaign::{Campaign, CellRun, Executor, Local, Make, Step};
use takt_rundir::{ClusterPlace, Error, RunDir, set_aside, sha256_of};

use crate::block::{Block, blocks};
use crate::error::SlurmError;
use crate::journal::{Event, Journal, storage_ahead_s};
use crate::state::{State, attempts, folder, journals};

/// A job as Slurm describes it to the job itself.
struct Job {
    id: String,
    task: usize,
    node: String,
    restart: String,
}

impl Job {
    fn of_environment() -> Result<Self, SlurmError> {
        let variable =
            |variable: &'static str| std::env::var(variable).map_err(|_| SlurmError::NoJob { variable });
        let task = variable("SLURM_ARRAY_TASK_ID")?;
        Ok(Self {
            id: variable("SLURM_ARRAY_JOB_ID")?,
            task: task.parse().map_err(|_| SlurmError::NoJob { variable: "SLURM_ARRAY_TASK_ID" })?,
            node: variable("SLURMD_NODENAME")?,
            restart: variable("SLURM_RESTART_COUNT").unwrap_or_else(|_| "0".to_owned()),
        })
    }
}

/// An attempt at a block.
struct Attempt<'a> {
    campaign: &'a Campaign,
    block: &'a Block<'a>,
    name: String,
    folder: PathBuf,
    owner: PathBuf,
    place: ClusterPlace,
    journal: RefCell<Journal>,
}

/// Makes what is open of the block that this job is for; called by Slurm's jobs. Runs of the block
/// that another node made are set aside first: a block is of one node, so that within it nodes are
/// no noise.
///
/// # Errors
/// [`SlurmError`], which stands in the job's log.
pub fn run_block(
    campaign: &Campaign,
    submission: &str,
    make: Make<'_>,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<(), SlurmError> {
    let job = Job::of_environment()?;
    let here = env!("CARGO_PKG_VERSION");
    if campaign.version() != here {
        return Err(SlurmError::Version {
            node: job.node,
            here: here.to_owned(),
            begun: campaign.version().to_owned(),
        });
    }
    let state = State::read(campaign)?;
    let missing = || Error::Damaged {
        path: folder(campaign),
        found: format!("nothing about task {} of {submission}", job.task),
        expected: "the submissions of this campaign",
    };
    let submissions = state.iter().flat_map(|state| &state.submissions);
    let asked = submissions.clone().find(|known| known.name == submission).ok_or_else(missing)?;
    if asked.closed {
        return Ok(());
    }
    let name = asked.blocks.get(job.task).ok_or_else(missing)?;
    let all = blocks(campaign.plan());
    let block = all.iter().find(|block| block.name == *name).ok_or_else(missing)?;
    let attempt = Attempt::begin(campaign, block, &job, submission)?;
    let outcome = attempt.runs(make, go_on);
    let why = outcome.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned());
    attempt.journal.borrow_mut().record(Event::Stop { why })?;
    outcome
}

impl<'a> Attempt<'a> {
    fn begin(
        campaign: &'a Campaign,
        block: &'a Block<'a>,
        job: &Job,
        submission: &str,
    ) -> Result<Self, SlurmError> {
        let base = format!("{}_{}.{}", job.id, job.task, job.restart);
        // A controller that lost its state starts a job again under the same number: who makes the
        // folder has the name.
        let (name, folder) = (1..)
            .map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") })
            .map(|name| (attempts(campaign).join(&name), name))
            .find_map(|(folder, name)| match fs::create_dir(&folder) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
                made => Some(made.map(|()| (name, folder.clone())).map_err(Error::io(folder))),
            })
            .ok_or_else(|| Error::Damaged {
                path: attempts(campaign),
                found: format!("every name from {base} on"),
                expected: "room for an attempt",
            })??;
        let mut journal = Journal::create(&journals(campaign).join(format!("{name}.jsonl")))?;
        let place = ClusterPlace {
            node: job.node.clone(),
            job: format!("{}_{}", job.id, job.task),
            block: block.name.clone(),
        };
        journal.record(Event::Start {
            submission: submission.to_owned(),
            block: block.name.clone(),
            node: place.node.clone(),
            job: place.job.clone(),
            takt: env!("CARGO_PKG_VERSION").to_owned(),
            storage_ahead_s: storage_ahead_s(&folder.join("clock"))?,
        })?;
        let owner = attempts(campaign).join(format!("{}.owner", file_name(&block.name)));
        takt_files::write(&owner, &name).map_err(Error::io(&owner))?;
        let journal = RefCell::new(journal);
        Ok(Self { campaign, block, name, folder, owner, place, journal })
    }

    /// Whether no later attempt has the block: a node that the controller lost goes on for a while
    /// beside its replacement.
    fn is_owner(owner: &Path, name: &str) -> Result<bool, Error> {
        Ok(takt_files::read_to_string(owner, 1024).map_err(Error::io(owner))? == name)
    }

    fn runs(&self, make: Make<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<(), SlurmError> {
        let is_whole = |run: &&CellRun| self.campaign.is_whole(run);
        if self.block.runs.iter().all(is_whole) {
            return Ok(());
        }
        for run in self.block.runs.iter().copied().filter(is_whole) {
            let path = self.campaign.run_path(run);
            let place = RunDir::open(&path)?.header()?.experiment.place;
            if place.is_none_or(|place| place.node != self.place.node) {
                set_aside(&path)?;
                self.journal.borrow_mut().record(Event::Again { run: run.name.clone() })?;
            }
        }
        let placed = |run: &&CellRun| {
            let mut run = (*run).clone();
            run.setup.experiment.place = Some(self.place.clone());
            run
        };
        let open: Vec<CellRun> = self.block.runs.iter().filter(|run| !is_whole(run)).map(placed).collect();
        let (owner, name) = (&self.owner, &self.name);
        // A folder that is away for a moment costs the runs of that time, and not the block.
        let mine = || go_on() && Self::is_owner(owner, name).unwrap_or(true);
        let folder = Some(self.folder.clone());
        let local = Local { labels: self.block.labels, any_machine: true, make, go_on: &mine, folder };
        let mut begun: BTreeMap<String, Instant> = BTreeMap::new();
        let made = local.execute(self.campaign, &open.iter().collect::<Vec<_>>(), &mut |step| {
            let event = match step {
                Step::Begins { run, .. } => {
                    begun.insert(run.name.clone(), Instant::now());
                    Event::Begin { run: run.name.clone() }
                }
                Step::Ended { run, outcome: Ok(()) } => {
                    self.publish(run)?;
                    let took = begun.get(&run.name).map_or(0.0, |begun| begun.elapsed().as_secs_f64());
                    Event::End { run: run.name.clone(), took_s: took }
                }
                Step::Ended { run, outcome: Err(cause) } => {
                    Event::Failed { run: run.name.clone(), cause: cause.to_string() }
                }
                Step::Again { .. } | Step::Queue(_) | Step::Note(_) => return Ok(()),
            };
            Ok(self.journal.borrow_mut().record(event)?)
        });
        if !Self::is_owner(owner, name)? {
            return Err(self.superseded());
        }
        if !go_on() {
            return Err(SlurmError::Ended { block: self.block.name.clone(), node: self.place.node.clone() });
        }
        made?;
        // The rest contains no run: the setups with which the runs were made, which are in the
        // runs, too.
        for run in &open {
            let _ = fs::remove_file(self.folder.join(format!("{}.setup.json", run.name)));
        }
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    fn superseded(&self) -> SlurmError {
        SlurmError::Superseded { attempt: self.name.clone(), block: self.block.name.clone() }
    }

    /// Brings a sealed run into the campaign. A folder is never renamed onto one that is not empty,
    /// so that the first stays.
    fn publish(&self, run: &CellRun) -> Result<(), SlurmError> {
        if !Self::is_owner(&self.owner, &self.name)? {
            return Err(self.superseded());
        }
        let place = self.campaign.run_path(run);
        if !self.campaign.is_whole(run) {
            // A cut run of before, or one that was measured here.
            set_aside(&place)?;
        }
        match fs::rename(self.folder.join(&run.name), &place) {
            Err(_) if self.campaign.is_whole(run) => Err(self.superseded()),
            renamed => Ok(renamed.map_err(Error::io(&place))?),
        }
    }
}

/// A block's name as a file's: conditions may differ in a character that no file name has.
fn file_name(block: &str) -> String {
    sha256_of(block.as_bytes())[..16].to_owned()
}
