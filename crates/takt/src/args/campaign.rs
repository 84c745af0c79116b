//! `takt campaign`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{needs, positive_seconds};

/// `takt campaign`
#[derive(Debug, Subcommand)]
pub enum Campaign {
    /// Make every run of a campaign
    Run(CampaignRun),
    /// Go on with a campaign that was stopped or killed, or whose failed runs shall be tried again
    Resume(CampaignResume),
    /// One block of a campaign, on the node that Slurm gave it
    #[command(hide = true)]
    Block {
        /// The campaign's directory
        dir: PathBuf,
        /// Name of the submission
        #[arg(long)]
        submission: String,
    },
    /// Names of the shipped campaigns
    List,
    /// The text of a shipped campaign, to begin one's own from
    Show {
        /// Name
        name: String,
    },
}

/// `takt campaign run`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::CAMPAIGN)]
pub struct CampaignRun {
    /// Campaign file (TOML), or the name of a shipped one
    pub campaign: String,
    /// Length of a run in seconds, instead of the file's
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// The campaign's quick form: fewer and shorter runs, as its table `[quick]` says
    #[arg(long)]
    pub quick: bool,
    /// Runs of every configuration, instead of the file's
    #[arg(long)]
    pub repetitions: Option<u32>,
    /// Set a key of the robot's configuration in all runs; several times for several keys
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only these values of a factor; several times for several factors
    #[arg(long, value_name = "FACTOR=VALUE,...")]
    pub only: Vec<String>,
    /// Folder for campaign directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Make every run in a virtual machine of its own, which boots the run's kernel; see
    /// `takt kernels`
    #[arg(long = "virtual")]
    pub guests: bool,
    /// What executes virtual machines, instead of the file's
    #[arg(long, value_enum)]
    pub accel: Option<super::kernels::Accel>,
    /// Only show the runs that would be made
    #[arg(long)]
    pub dry_run: bool,
    /// Who makes the runs
    #[arg(long, value_enum, default_value_t = On::Local)]
    pub on: On,
    /// With --on slurm: the partition, instead of the cluster's default
    #[arg(long, value_name = "P")]
    pub partition: Option<String>,
    /// With --on slurm: features that every node must have, as `sbatch --constraint` takes them;
    /// those of the factors come on top
    #[arg(long, value_name = "F")]
    pub constraint: Option<String>,
    /// With --on slurm: another option of sbatch's (--account=robots, --time=60, --reboot); several
    /// times for several
    #[arg(long, value_name = "--NAME=VALUE", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    #[command(flatten)]
    pub common: CampaignCommon,
}

/// Who makes the runs of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// This machine, one after the other
    #[default]
    Local,
    /// The nodes of a Slurm cluster: each block of runs as an exclusive job; the folder for
    /// campaigns must be one that all nodes see
    Slurm,
}

/// `takt campaign resume`
#[derive(Debug, clap::Args)]
pub struct CampaignResume {
    /// The campaign's directory
    pub dir: PathBuf,
    #[command(flatten)]
    pub common: CampaignCommon,
}

/// What making and going on share.
#[derive(Debug, Default, clap::Args)]
pub struct CampaignCommon {
    /// Label of the running kernel, for campaigns with a factor "kernel"
    #[arg(long)]
    pub kernel: Option<String>,
    /// Another condition that holds now, for campaigns with factors "label.NAME"
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Go on although the machine is not the one that the finished runs were made on; the table
    /// names what differs
    #[arg(long)]
    pub any_machine: bool,
    /// Bring the runs into this store when all have been made: a folder, or s3://BUCKET/PREFIX
    #[cfg(feature = "store")]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Print the table as JSON
    #[arg(long)]
    pub json: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("accepted is NAME=VALUE".to_owned()),
    }
}
