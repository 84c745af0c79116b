//! State of a campaign on a cluster, in its folder.
//!
//! | file | what |
//! |---|---|
//! | `slurm/slurm.json` | what was asked, and every submission; written before `sbatch` and after it |
//! | `slurm/SUBMISSION.sh` | what Slurm runs |
//! | `slurm/program/takt-HASH` | the program for the nodes |
//! | `slurm/journals/ATTEMPT.jsonl` | what a node did, line for line |
//! | `slurm/attempts/ATTEMPT/` | runs that are being made, or were cut |
//! | `slurm/log-JOB_TASK.txt` | what a job said |

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_lab::campaign::Campaign;
use takt_rundir::{Error, read_json, sha256, utc_now, write_json};

use crate::error::SlurmError;

/// Requested options for the jobs of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Partition; the cluster's default when absent.
    pub partition: Option<String>,
    /// Features of all nodes, in the language of `sbatch --constraint`.
    pub constraint: Option<String>,
    /// More options of `sbatch`, each as `--name=value`.
    pub options: Vec<String>,
}

/// Blocks that were handed to Slurm together: an array job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Name of the job, by which it is found again when its id was never written down.
    pub name: String,
    /// Constraint on the node.
    pub constraint: Option<String>,
    /// The one node that it is for, because runs of its blocks were made there.
    pub node: Option<String>,
    /// The blocks, in the order of the array's tasks.
    pub blocks: Vec<String>,
    /// Id of the job.
    pub job: Option<String>,
    pub at_utc: String,
    /// Nobody waits for it any more: a job that Slurm starts again has nothing to do.
    #[serde(default)]
    pub closed: bool,
}

/// `slurm.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub asked: Asked,
    /// SHA-256 of the program.
    pub program_sha256: String,
    pub submissions: Vec<Submission>,
}

/// The folder of all that is Slurm's in a campaign.
pub(crate) fn folder(campaign: &Campaign) -> PathBuf {
    campaign.path().join("slurm")
}

pub(crate) fn journals(campaign: &Campaign) -> PathBuf {
    folder(campaign).join("journals")
}

pub(crate) fn attempts(campaign: &Campaign) -> PathBuf {
    folder(campaign).join("attempts")
}

fn file(campaign: &Campaign) -> PathBuf {
    folder(campaign).join("slurm.json")
}

impl State {
    /// Of a campaign that begins: folders are made, and the program is staged.
    pub fn begin(campaign: &Campaign, asked: Asked, program: &Path) -> Result<Self, SlurmError> {
        for folder in [journals(campaign), attempts(campaign)] {
            fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        }
        let state = Self { asked, program_sha256: sha256(program)?, submissions: Vec::new() };
        let staged = state.program(campaign);
        let folder = staged.parent().unwrap_or(campaign.path());
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        fs::copy(program, &staged).map_err(Error::io(&staged))?;
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o755)).map_err(Error::io(&staged))?;
        state.check_program(campaign)?;
        state.write(campaign)?;
        Ok(state)
    }

    /// Of a campaign that was begun; `None` where it is not one of Slurm's.
    pub fn read(campaign: &Campaign) -> Result<Option<Self>, SlurmError> {
        let file = file(campaign);
        if file.is_file() { Ok(Some(read_json(&file)?)) } else { Ok(None) }
    }

    pub fn write(&self, campaign: &Campaign) -> Result<(), SlurmError> {
        Ok(write_json(&file(campaign), self)?)
    }

    /// Path of the program for the nodes.
    pub fn program(&self, campaign: &Campaign) -> PathBuf {
        folder(campaign).join("program").join(format!("takt-{}", &self.program_sha256[..16]))
    }

    /// The program is still the one of the beginning.
    pub(crate) fn check_program(&self, campaign: &Campaign) -> Result<(), SlurmError> {
        let path = self.program(campaign);
        match sha256(&path) {
            Ok(found) if found == self.program_sha256 => Ok(()),
            _ => Err(SlurmError::Staged { path, expected: self.program_sha256.clone() }),
        }
    }

    /// The submission that a block was handed over with last, by index, and its task there.
    pub fn current(&self, block: &str) -> Option<(usize, usize)> {
        let place = |submission: &Submission| submission.blocks.iter().position(|name| name == block);
        let all = self.submissions.iter().enumerate().rev();
        all.filter_map(|(index, submission)| Some((index, place(submission)?))).next()
    }

    /// A new submission, of which Slurm does not know yet.
    pub fn add(
        &mut self,
        campaign: &Campaign,
        constraint: Option<String>,
        node: Option<String>,
        blocks: Vec<String>,
    ) -> &mut Submission {
        // The campaign's folder begins with its time; its hash keeps campaigns of other folders
        // apart.
        let path = campaign.path().canonicalize().unwrap_or_else(|_| campaign.path().to_owned());
        let hash = takt_rundir::sha256_of(path.as_os_str().as_encoded_bytes());
        let name = format!("takt-{}-{}", &hash[..12], self.submissions.len() + 1);
        let at_utc = utc_now();
        self.submissions.push(Submission {
            name,
            constraint,
            node,
            blocks,
            job: None,
            at_utc,
            closed: false,
        });
        let last = self.submissions.len() - 1;
        &mut self.submissions[last]
    }
}
