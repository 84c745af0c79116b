//! `takt campaign`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{needs, positive_seconds};

/// `takt campaign`
#[derive(Debug, Subcommand)]
pub enum Campaign {
    /// Run a campaign
    Run(CampaignRun),
    /// Continue a campaign that was stopped, or repeat its failed runs
    Resume(CampaignResume),
    /// One block of a campaign, on the node that Slurm gave it
    #[command(hide = true)]
    Block {
        /// Folder of the campaign
        dir: PathBuf,
        /// Name of the submission
        #[arg(long)]
        submission: String,
    },
    /// List the shipped campaigns
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a shipped campaign; copy it to write your own
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
    /// Length of each run in seconds [default: the file's]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Make the fewer and shorter runs of the file's table `[quick]`
    #[arg(long)]
    pub quick: bool,
    /// Runs of each configuration [default: the file's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repetitions: Option<u32>,
    /// Set a key of the robot's file in all runs; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only these values of a factor; can be repeated
    #[arg(long, value_name = "FACTOR=VALUE,...")]
    pub only: Vec<String>,
    /// Folder for campaign directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Make each run in a new virtual machine, which boots the run's kernel; see `takt kernels`
    #[arg(long = "virtual")]
    pub guests: bool,
    /// Execution of the virtual machines: emulated, or on the host's processor [default: the
    /// file's]
    #[arg(long, value_enum)]
    pub accel: Option<super::kernels::Accel>,
    /// List the runs and their time, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// Make the runs on this machine or on a Slurm cluster
    #[arg(long, value_enum, default_value_t = On::Local)]
    pub on: On,
    /// With --on slurm: partition [default: the cluster's]
    #[arg(long, value_name = "P")]
    pub partition: Option<String>,
    /// With --on slurm: features that each node must have, as for `sbatch --constraint`, besides
    /// those of the factors
    #[arg(long, value_name = "F")]
    pub constraint: Option<String>,
    /// With --on slurm: another option of sbatch, such as --account=robots; can be repeated
    #[arg(long, value_name = "--NAME=VALUE", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    #[command(flatten)]
    pub common: CampaignCommon,
}

/// Executor of a campaign's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine, one after the other
    #[default]
    Local,
    /// On the nodes of a Slurm cluster, each block of runs as an exclusive job; all nodes must see
    /// the folder of --runs
    Slurm,
}

/// `takt campaign resume`
#[derive(Debug, clap::Args)]
pub struct CampaignResume {
    /// Folder of the campaign
    pub dir: PathBuf,
    #[command(flatten)]
    pub common: CampaignCommon,
}

/// Common options of starting and resuming.
#[derive(Debug, Default, clap::Args)]
pub struct CampaignCommon {
    /// Name of the running kernel, for campaigns with a factor "kernel"
    #[arg(long)]
    pub kernel: Option<String>,
    /// Another condition that holds now, for campaigns with a factor "label.NAME"
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Continue on a machine other than that of the finished runs; the table lists the differences
    #[arg(long)]
    pub any_machine: bool,
    /// Put the runs into this store at the end: a folder, or s3://BUCKET/PREFIX
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
        _ => Err("expected NAME=VALUE, such as isolation=on".to_owned()),
    }
}
