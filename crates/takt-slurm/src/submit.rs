//! Submitting blocks: an array job for those that ask for the same nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// Most tasks of an array, however many the site allows.
const MAX_TASKS: usize = 1000;

/// Options of `sbatch` that are Takt's, those included that would undo one of them or keep Takt
/// from its jobs: another cluster's, whose queue it does not ask, and waiting for the end.
const OURS: [&str; 24] = [
    "array",
    "chdir",
    "clusters",
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
    "oversubscribe",
    "parsable",
    "partition",
    "propagate",
    "requeue",
    "share",
    "test-only",
    "wait",
    "workdir",
    "wrap",
];

/// Has the runs of a campaign made by a cluster's nodes.
pub struct Slurm<'a> {
    /// Whether to go on waiting. Jobs go on without.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
}

/// Requirements of blocks: those with the same ones go into one array.
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
            if let Some(name) = own_option(option) {
                return Err(SlurmError::Option { option: option.clone(), name });
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

    /// Refuses a folder for campaigns that no job can be given, before anything is written.
    ///
    /// # Errors
    /// [`SlurmError::Path`].
    pub fn check_folder(runs: &Path) -> Result<(), SlurmError> {
        let runs = std::path::absolute(runs).map_err(Error::io(runs))?;
        // A missing folder is below an existing one.
        let there = runs.ancestors().find_map(|folder| folder.canonicalize().ok());
        text(&runs)?;
        there.map_or(Ok(()), |folder| text(&folder).map(drop))
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
                expected: "the state of a campaign that was started with --on slurm",
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
            let before = state.submissions.len();
            submit(campaign, &mut state, &free).map_err(|error| {
                let jobs = state.submissions.iter().skip(before).filter_map(|one| one.job.clone());
                SlurmError::Submission {
                    error: Box::new(error),
                    jobs: jobs.collect::<Vec<_>>().join(" "),
                    dir: campaign.path().to_owned(),
                }
            })?;
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
        // Existing results are shown without the cluster.
        if campaign.plan().runs.iter().all(|run| campaign.is_whole(run)) {
            return Ok(());
        }
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

/// Setting of Takt that an option of the user's would change. `sbatch` accepts abbreviated names.
fn own_option(option: &str) -> Option<String> {
    let Some(name) = option.strip_prefix("--") else { return Some(option.to_owned()) };
    let name = name.split('=').next().unwrap_or_default();
    OURS.iter().find(|own| own.starts_with(name)).map(|own| (*own).to_owned())
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

/// Arguments of `sbatch`, except for the script.
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
    let most = client::most_tasks()?.clamp(1, MAX_TASKS);
    let chunks = groups.into_iter().flat_map(|(demand, all)| {
        all.chunks(most).map(|some| (demand.clone(), some.to_vec())).collect::<Vec<_>>()
    });
    let mut chunks: VecDeque<(Demand, Vec<String>)> = chunks.collect();
    while let Some((demand, some)) = chunks.pop_front() {
        let Err(error) = submit_one(campaign, state, &demand, &some) else { continue };
        if !is_refusal(&error) {
            // It may have got there: the next one looks for it in the queue.
            return Err(error);
        }
        // Slurm has none of it: whoever tries again adds no submission to one that failed.
        if let Some(last) = state.submissions.pop() {
            let script = folder(campaign).join(format!("{}.sh", last.name));
            std::fs::remove_file(&script).map_err(Error::io(&script))?;
        }
        state.write(campaign)?;
        if !is_size(&error) || some.len() == 1 {
            return Err(error);
        }
        // Arrays of this partition, or this user's jobs, are fewer than the cluster's.
        let (first, second) = some.split_at(some.len() / 2);
        chunks.push_front((demand.clone(), second.to_vec()));
        chunks.push_front((demand, first.to_vec()));
    }
    Ok(())
}

/// Whether `sbatch` said no, so that there is no job. Without the controller's answer, or where it
/// was killed, there may be one.
fn is_refusal(error: &SlurmError) -> bool {
    let unknown = ["timed out", "zero bytes", "communication", "connect", "contact", "signal:"];
    match error {
        SlurmError::Refused { message, .. } => {
            let message = message.to_lowercase();
            !unknown.iter().any(|word| message.contains(word))
        }
        SlurmError::NoSlurm { .. } | SlurmError::NotConfigured { .. } => true,
        _ => false,
    }
}

/// Whether it was too many tasks for an array.
fn is_size(error: &SlurmError) -> bool {
    matches!(error, SlurmError::Refused { message, .. } if message.contains("job array"))
}

/// Submits blocks as one array.
fn submit_one(
    campaign: &Campaign,
    state: &mut State,
    demand: &Demand,
    some: &[String],
) -> Result<(), SlurmError> {
    let asked = state.asked.clone();
    let program = state.program(campaign);
    let hash = state.program_sha256.clone();
    let folder = folder(campaign).canonicalize().map_err(Error::io(folder(campaign)))?;
    // Before anything is written down of it.
    let folder_text = text(&folder)?;
    let name = state.add(campaign, demand.0.clone(), demand.1.clone(), some.to_vec()).name.clone();
    state.write(campaign)?;
    let script = folder.join(format!("{name}.sh"));
    let content = script_text(campaign, &program, &hash, &name)?;
    takt_files::write(&script, content).map_err(Error::io(&script))?;
    let mut arguments = arguments(&asked, demand, some.len(), &name);
    // A path of ours in --output would be read as a pattern.
    arguments.push(format!("--chdir={folder_text}"));
    arguments.push("--output=log-%A_%a.txt".to_owned());
    arguments.push(format!("{folder_text}/{name}.sh"));
    let job = client::submit(&arguments)?;
    if let Some(last) = state.submissions.last_mut() {
        last.job = Some(job);
    }
    state.write(campaign)
}

/// A path as text, which is all that Slurm's commands and a script take.
fn text(path: &Path) -> Result<&str, SlurmError> {
    path.to_str().ok_or_else(|| SlurmError::Path { path: path.to_owned() })
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

/// Script that Slurm runs. The node checks the program's hash, because it may see another file
/// under the same path.
fn script_text(campaign: &Campaign, program: &Path, hash: &str, name: &str) -> Result<String, SlurmError> {
    let whole = |path: &Path| path.canonicalize().map_err(Error::io(path));
    let quoted = |path: &Path| Ok::<_, SlurmError>(format!("'{}'", text(path)?.replace('\'', r"'\''")));
    let (program, dir) = (quoted(&whole(program)?)?, quoted(&whole(campaign.path())?)?);
    Ok(format!(
        "#!/bin/sh\n\
         # A block of a campaign of takt; submitted by `takt campaign run --on slurm`.\n\
         program={program}\n\
         found=$(sha256sum \"$program\" | cut -d ' ' -f 1)\n\
         if [ \"$found\" != {hash} ]; then\n\
         \x20 echo \"takt: node $SLURMD_NODENAME: $program is not the program that started this campaign\" \\\n\
         \x20   \"(SHA-256 ${{found:-of nothing}}): all nodes must see the campaign's folder\" >&2\n\
         \x20 exit 2\n\
         fi\n\
         exec \"$program\" campaign block {dir} --submission {name}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_ours_are_refused_abbreviated_too() {
        for (option, name) in [
            ("--array=1", "array"),
            ("--arr=1", "array"),
            ("--part=x", "partition"),
            ("--wai", "wait"),
            ("--wait", "wait"),
            ("--clusters=all", "clusters"),
            ("--cluster=all", "clusters"),
            ("--exc=user", "exclusive"),
            ("--", "array"),
            ("-pdebug", "-pdebug"),
            ("script.sh", "script.sh"),
        ] {
            assert_eq!(own_option(option).as_deref(), Some(name), "{option}");
        }
        for option in [
            "--account=robots",
            "--qos=high",
            "--time=10",
            "--reservation=lab",
            "--exclude=n3",
            "--reboot",
            "--wait-all-nodes=1",
        ] {
            assert_eq!(own_option(option), None, "{option}");
        }
    }

    #[test]
    fn only_what_slurm_has_refused_is_forgotten() {
        let refused = |message: &str| SlurmError::Refused { program: "sbatch", message: message.to_owned() };
        let size = refused("Batch job submission failed: Invalid job array specification");
        assert!(is_refusal(&size) && is_size(&size));
        let limit = refused("Batch job submission failed: Job violates accounting/QOS policy");
        assert!(is_refusal(&limit) && !is_size(&limit));
        for unknown in [
            "Batch job submission failed: Socket timed out on send/recv operation",
            "Batch job submission failed: Unable to contact slurm controller (connect failure)",
            "Batch job submission failed: Zero Bytes were transmitted or received",
            "signal: 9 (SIGKILL)",
        ] {
            assert!(!is_refusal(&refused(unknown)), "{unknown}");
        }
        assert!(!is_refusal(&SlurmError::Silent { program: "sbatch", seconds: 100 }));
    }
}
