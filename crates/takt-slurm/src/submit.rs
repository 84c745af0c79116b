//! Submitting blocks: an array job for those that ask for the same nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use takt_lab::LabError;
use takt_lab::campaign::{Campaign, CellRun, Executor, Notify, Plan};
use takt_rundir::Error;

use crate::block::{Block, blocks};
use crate::client::{self, Node};
use crate::error::SlurmError;
use crate::feature;
use crate::state::{Asked, State, folder};
use crate::watch::Watch;

/// Most tasks of an array: Slurm's MaxArraySize is 1001 unless the site says otherwise.
const MOST_TASKS: usize = 1000;

/// Options of `sbatch` that are Takt's.
const OURS: [&str; 19] = [
    "array",
    "chdir",
    "constraint",
    "error",
    "exclusive",
    "input",
    "job-name",
    "no-requeue",
    "nodelist",
    "nodes",
    "ntasks",
    "open-mode",
    "output",
    "parsable",
    "partition",
    "propagate",
    "requeue",
    "test-only",
    "wrap",
];

/// Has the runs of a campaign made by a cluster's nodes.
pub struct Slurm<'a> {
    /// Whether to go on waiting. Jobs go on without.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
}

/// What blocks ask for: those that ask for the same go into one array.
type Demand = (Option<String>, Option<String>);

impl Slurm<'_> {
    /// Refuses a plan that this cluster cannot carry out, before anything is written.
    ///
    /// # Errors
    /// No Slurm, no such partition, no node with a feature, an option that is Takt's, or what
    /// `sbatch` says.
    pub fn check_plan(plan: &Plan, asked: &Asked) -> Result<(), SlurmError> {
        Self::check_features(plan, asked, true)
    }

    /// With `try_out` sbatch is asked, too, which knows all of a constraint's language.
    fn check_features(plan: &Plan, asked: &Asked, try_out: bool) -> Result<(), SlurmError> {
        for option in &asked.options {
            let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
            if !option.starts_with("--") || OURS.contains(&name) {
                return Err(SlurmError::Option { option: option.clone(), name: name.to_owned() });
            }
        }
        let partition = partition(asked)?;
        let nodes = client::nodes(&partition)?;
        let mut tried = BTreeSet::new();
        for block in blocks(plan) {
            let own = feature::features(block.labels)?;
            let constraint = feature::constraint(asked.constraint.as_deref(), &own);
            if tried.insert(constraint.clone()) {
                feature::check(&nodes, &partition, asked.constraint.as_deref(), &own)?;
                let mut arguments = arguments(asked, &(constraint.clone(), None), 1, "takt-test");
                arguments.push("--wrap=true".to_owned());
                // It refuses as well what would fit a node that is down now, and what is submitted
                // then waits for it.
                if try_out
                    && nodes.iter().all(Node::is_usable)
                    && let Err(SlurmError::Refused { message, .. }) = client::try_submit(&arguments)
                {
                    let there = feature::there(&nodes);
                    let constraint = constraint.unwrap_or_default();
                    return Err(SlurmError::Unavailable { constraint, partition, message, there });
                }
            }
        }
        Ok(())
    }

    /// Writes down that a campaign is the cluster's, and stages the program.
    ///
    /// # Errors
    /// [`SlurmError::Files`].
    pub fn begin(campaign: &Campaign, asked: Asked, program: &Path) -> Result<(), SlurmError> {
        State::begin(campaign, asked, program).map(drop)
    }

    /// Whether a campaign was begun on a cluster.
    ///
    /// # Errors
    /// [`SlurmError::Files`].
    pub fn has(campaign: &Campaign) -> Result<bool, SlurmError> {
        Ok(State::read(campaign)?.is_some())
    }

    fn run(&self, campaign: &Campaign, open: &[&CellRun], notify: Notify<'_>) -> Result<(), SlurmError> {
        let Some(mut state) = State::read(campaign)? else {
            return Err(Error::Damaged {
                path: folder(campaign),
                found: "nothing about Slurm".to_owned(),
                expected: "what a campaign that was begun with --on slurm keeps there",
            }
            .into());
        };
        let blocks = blocks(campaign.plan());
        let is_open =
            |block: &&Block<'_>| block.runs.iter().any(|run| open.iter().any(|o| o.name == run.name));
        let open_blocks: Vec<&Block<'_>> = blocks.iter().filter(is_open).collect();
        let waits = self.living(campaign, &mut state)?;
        let free: Vec<&Block<'_>> =
            open_blocks.iter().copied().filter(|block| !waits.contains(&block.name)).collect();
        if !free.is_empty() {
            submit(campaign, &mut state, &free)?;
        }
        let mut watch = Watch::of(campaign, &state, &open_blocks, open);
        watch.until_done(self.go_on, notify)?;
        state.submissions.iter_mut().for_each(|submission| submission.closed = true);
        state.write(campaign)
    }

    /// Blocks that jobs of before still have, or will. Ids that were never written down are found
    /// by the jobs' names.
    fn living(&self, campaign: &Campaign, state: &mut State) -> Result<BTreeSet<String>, SlurmError> {
        let names: Vec<&str> = state.submissions.iter().map(|s| s.name.as_str()).collect();
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let tasks = client::queue(&names)?;
        for submission in &mut state.submissions {
            if submission.job.is_none() {
                submission.job = tasks.iter().find(|t| t.name == submission.name).map(|t| t.job.clone());
            }
        }
        state.write(campaign)?;
        let mut living = BTreeSet::new();
        for task in tasks.iter().filter(|task| !task.has_ended()) {
            let submission = state.submissions.iter().enumerate().find(|(_, s)| s.name == task.name);
            let Some((index, submission)) = submission else { continue };
            let Some(block) = submission.blocks.get(task.index) else { continue };
            if state.current(block) == Some((index, task.index)) && !submission.closed {
                living.insert(block.clone());
            }
        }
        Ok(living)
    }
}

impl Executor for Slurm<'_> {
    fn check(&self, campaign: &Campaign) -> Result<(), LabError> {
        if let Some(state) = State::read(campaign)? {
            state.check_program(campaign)?;
            Self::check_features(campaign.plan(), &state.asked, false)?;
        }
        Ok(())
    }

    fn takes(&self, _: &CellRun) -> bool {
        true
    }

    fn execute(&self, campaign: &Campaign, open: &[&CellRun], notify: Notify<'_>) -> Result<(), LabError> {
        if open.is_empty() {
            return Ok(());
        }
        Ok(self.run(campaign, open, notify)?)
    }
}

/// The partition that was asked for, or the cluster's default.
fn partition(asked: &Asked) -> Result<String, SlurmError> {
    let all = client::partitions()?;
    let there = || all.iter().map(|partition| partition.name.clone()).collect();
    match &asked.partition {
        Some(name) if all.iter().any(|partition| partition.name == *name) => Ok(name.clone()),
        Some(name) => Err(SlurmError::Partition { asked: name.clone(), there: there() }),
        None => match all.iter().find(|partition| partition.is_default) {
            Some(partition) => Ok(partition.name.clone()),
            None => Err(SlurmError::NoDefault { there: there() }),
        },
    }
}

/// What `sbatch` is reported, but for the script.
fn arguments(asked: &Asked, (constraint, node): &Demand, tasks: usize, name: &str) -> Vec<String> {
    let mut all = vec![
        "--parsable".to_owned(),
        format!("--job-name={name}"),
        format!("--array=0-{}", tasks - 1),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        // The node is the measuring device: nobody else's job, all of its memory.
        "--exclusive".to_owned(),
        "--mem=0".to_owned(),
        "--requeue".to_owned(),
        "--open-mode=append".to_owned(),
        // The limits that count (rtprio, memlock) are the node's and not those of whoever submits.
        "--propagate=NONE".to_owned(),
    ];
    all.extend(asked.partition.iter().map(|partition| format!("--partition={partition}")));
    all.extend(constraint.iter().map(|constraint| format!("--constraint={constraint}")));
    all.extend(node.iter().map(|node| format!("--nodelist={node}")));
    all.extend(asked.options.iter().cloned());
    all
}

/// Submits blocks. Each submission is on disk before Slurm knows of it, so that no job is ever
/// without its campaign.
fn submit(campaign: &Campaign, state: &mut State, free: &[&Block<'_>]) -> Result<(), SlurmError> {
    let nodes = client::nodes(&partition(&state.asked)?)?;
    let mut groups: BTreeMap<Demand, Vec<String>> = BTreeMap::new();
    for block in free {
        let own = feature::features(block.labels)?;
        let constraint = feature::constraint(state.asked.constraint.as_deref(), &own);
        groups.entry((constraint, begun_on(campaign, block, &nodes))).or_default().push(block.name.clone());
    }
    let chunks = groups.into_iter().flat_map(|(demand, all)| {
        all.chunks(MOST_TASKS).map(|some| (demand.clone(), some.to_vec())).collect::<Vec<_>>()
    });
    for (demand, some) in chunks.collect::<Vec<_>>() {
        let (asked, tasks) = (state.asked.clone(), some.len());
        let program = state.program(campaign);
        let hash = state.program_sha256.clone();
        let name = state.add(campaign, demand.0.clone(), demand.1.clone(), some).name.clone();
        state.write(campaign)?;
        let folder = folder(campaign).canonicalize().map_err(Error::io(folder(campaign)))?;
        let script = folder.join(format!("{name}.sh"));
        let text = script_text(campaign, &program, &hash, &name)?;
        takt_files::write(&script, text).map_err(Error::io(&script))?;
        let mut arguments = arguments(&asked, &demand, tasks, &name);
        // A path of ours in --output would be read as a pattern.
        arguments.push(format!("--chdir={}", folder.display()));
        arguments.push("--output=log-%A_%a.txt".to_owned());
        arguments.push(script.display().to_string());
        let job = client::submit(&arguments)?;
        if let Some(last) = state.submissions.last_mut() {
            last.job = Some(job);
        }
        state.write(campaign)?;
    }
    Ok(())
}

/// The node that made runs of a block, where it can make the rest.
fn begun_on(campaign: &Campaign, block: &Block<'_>, nodes: &[Node]) -> Option<String> {
    let made = block.runs.iter().filter(|run| campaign.is_whole(run));
    let headers =
        made.filter_map(|run| takt_rundir::RunDir::open(&campaign.run_path(run)).ok()?.header().ok());
    let places: BTreeSet<String> = headers.filter_map(|header| Some(header.experiment.place?.node)).collect();
    let node = if places.len() == 1 { places.first()? } else { return None };
    nodes.iter().find(|known| known.name == *node && known.is_usable()).map(|known| known.name.clone())
}

/// What Slurm runs. The program's hash is looked at on the node, which may see another file under
/// the same path.
fn script_text(campaign: &Campaign, program: &Path, hash: &str, name: &str) -> Result<String, SlurmError> {
    let whole = |path: &Path| path.canonicalize().map_err(Error::io(path));
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let (program, dir) = (quoted(&whole(program)?), quoted(&whole(campaign.path())?));
    Ok(format!(
        "#!/bin/sh\n\
         # A block of a campaign of takt; submitted by `takt campaign run --on slurm`.\n\
         program={program}\n\
         found=$(sha256sum \"$program\" | cut -d ' ' -f 1)\n\
         if [ \"$found\" != {hash} ]; then\n\
         \x20 echo \"takt: node $SLURMD_NODENAME: $program is not the program that this campaign was begun with\" \\\n\
         \x20   \"(SHA-256 ${{found:-of nothing}}): all nodes must see the campaign's folder\" >&2\n\
         \x20 exit 2\n\
         fi\n\
         exec \"$program\" campaign block {dir} --submission {name}\n"
    ))
}
