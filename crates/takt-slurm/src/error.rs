//! Errors of Slurm. Each error names what was found and the way out.

use std::path::PathBuf;

/// Reason why runs cannot be made on a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlurmError {
    /// Slurm's commands are not installed.
    #[error(
        "--on slurm: {program} is not on this machine's PATH: install Slurm's commands (slurm-client on Debian) and the site's slurm.conf, \
         or measure here with --on local"
    )]
    NoSlurm {
        /// The command that was looked for.
        program: &'static str,
    },
    /// There is no configuration of a cluster.
    #[error(
        "--on slurm: Slurm's commands find no cluster on this machine: install the site's slurm.conf (/etc/slurm, or SLURM_CONF=FILE), or \
         measure here with --on local; {program} itself: {message}"
    )]
    NotConfigured { program: &'static str, message: String },
    /// The controller does not answer, or refuses.
    #[error("{program}: {message}")]
    Refused { program: &'static str, message: String },
    /// There is no controller where the configuration has it.
    #[error("{program}: {message}: is slurmctld running? Check with `scontrol ping`")]
    Away { program: &'static str, message: String },
    /// A command gave no answer.
    #[error(
        "{program} gave no answer within {seconds} s: is the controller running? Check with `scontrol ping`"
    )]
    Silent { program: &'static str, seconds: u64 },
    /// A command's answer is none that is known.
    #[error("{program} answered {found:?}; expected {expected}")]
    Answer { program: &'static str, found: String, expected: &'static str },
    /// A partition that the cluster has not.
    #[error("--partition {asked}: the cluster has no such partition; the partitions are {}", there.join(", "))]
    Partition { asked: String, there: Vec<String> },
    /// No partition was named, and none is the default.
    #[error("--partition is needed: the cluster has no default partition; the partitions are {}", there.join(", "))]
    NoDefault { there: Vec<String> },
    /// A feature that no node has.
    #[error(
        "{asked_by}: no node of partition {partition} has the feature \"{feature}\"; the features are {there}"
    )]
    Feature {
        /// The option or the factor that asks for it.
        asked_by: String,
        feature: String,
        /// The searched partition.
        partition: String,
        /// The nodes with their features.
        there: String,
    },
    /// Features that exist, and no node has all of them.
    #[error("{asked_by}: no node of partition {partition} has all of {}; the nodes have {there}", features.join(", "))]
    Together {
        asked_by: String,
        features: Vec<String>,
        /// The searched partition.
        partition: String,
        /// The nodes with their features.
        there: String,
    },
    /// A constraint that Slurm refuses though every feature exists.
    #[error(
        "no node of partition {partition} fits \"{constraint}\" and the other options: {message}; the nodes have {there}"
    )]
    Unavailable {
        constraint: String,
        /// The searched partition.
        partition: String,
        message: String,
        /// The nodes with their features.
        there: String,
    },
    /// A value that no feature can have.
    #[error(
        "factor {factor} = \"{value}\": with --on slurm this is a node feature, which cannot contain {character:?}: accepted are letters, \
         digits and _ . : = / -"
    )]
    NoFeature { factor: String, value: String, character: char },
    /// An option of `sbatch` that Takt sets itself.
    #[error(
        "--sbatch {option}: takt itself sets {name}; accepted are options of sbatch for accounts, limits and reservations"
    )]
    Option { option: String, name: String },
    /// A path that no job can be given.
    #[error(
        "--on slurm: {path:?} is not UTF-8, which Slurm's commands and job scripts need: pass --runs a folder whose complete path is UTF-8"
    )]
    Path { path: PathBuf },
    /// Arrays are turned off.
    #[error("--on slurm: this cluster accepts no array jobs (its MaxArraySize is 0), which a campaign needs")]
    NoArrays,
    /// The program that was staged is not the one of the beginning.
    #[error(
        "{path}: the program that started this campaign is missing or was changed (SHA-256 {expected}): copy it there again, or start a \
         new campaign",
        path = path.display()
    )]
    Staged { path: PathBuf, expected: String },
    /// A block is run by another version than the campaign was begun with.
    #[error(
        "node {node} runs takt {here}, but this campaign was started with takt {begun}: continue with that version, or start a new campaign"
    )]
    Version {
        node: String,
        /// The version of this program.
        here: String,
        begun: String,
    },
    /// The command for nodes was called elsewhere.
    #[error(
        "takt campaign block is only for Slurm's jobs: {variable} is not set here. `takt campaign resume` continues a campaign"
    )]
    NoJob {
        /// The variable of Slurm's that is missing.
        variable: &'static str,
    },
    /// A submission failed; others may have been accepted before it.
    #[error("{error}; {}`takt campaign resume {dir}` submits what is missing", jobs_go_on(jobs), dir = dir.display())]
    Submission {
        error: Box<SlurmError>,
        /// The jobs of this campaign that Slurm has.
        jobs: String,
        dir: PathBuf,
    },
    /// Nobody waits any longer, and the jobs go on.
    #[error(
        "stopped waiting; the jobs {jobs} continue in Slurm. `takt campaign resume {dir}` waits for them, `scancel {jobs}` ends them",
        dir = dir.display()
    )]
    Left { jobs: String, dir: PathBuf },
    /// The waiting failed, and the jobs go on.
    #[error(
        "{error}; takt stopped waiting, but the Slurm jobs {jobs} continue: `takt campaign resume {dir}` waits for them",
        dir = dir.display()
    )]
    Lost { error: Box<SlurmError>, jobs: String, dir: PathBuf },
    /// Another attempt has this block now.
    #[error("attempt {attempt}: block {block} was given to another job in the meantime; this job skips it")]
    Superseded { attempt: String, block: String },
    /// A job was asked to end.
    #[error("block {block} was ended on {node} before its last run")]
    Ended { block: String, node: String },
    /// A file could not be read or written.
    #[error(transparent)]
    Files(#[from] takt_rundir::Error),
    /// The lab's own errors.
    #[error(transparent)]
    Lab(#[from] takt_lab::LabError),
}

fn jobs_go_on(jobs: &str) -> String {
    if jobs.is_empty() { String::new() } else { format!("the jobs {jobs} continue in Slurm, and ") }
}

impl From<SlurmError> for takt_lab::LabError {
    fn from(error: SlurmError) -> Self {
        match error {
            SlurmError::Lab(error) => error,
            SlurmError::Files(error) => Self::Files(error),
            other => Self::Executor(Box::new(other)),
        }
    }
}
