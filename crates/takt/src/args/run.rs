//! `takt run`

use std::path::PathBuf;

use clap::ValueEnum;
use takt_lab::View;
use takt_rt::placement::CpuSet;

use super::{needs, noise_threads, positive_seconds};

/// What shows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Web page on the loopback interface
    Web,
    /// Terminal screen
    Terminal,
    /// Nothing
    None,
}

impl From<Shown> for View {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Web => Self::Web,
            Shown::Terminal => Self::Terminal,
            Shown::None => Self::None,
        }
    }
}

/// `takt run`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::RUN)]
pub struct Run {
    /// Configuration file (TOML)
    pub config: PathBuf,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Scheduler configuration of the safety cell instead of the file's: CFS+CFS, DL+CFS, DL+RR,
    /// RR+RR
    #[arg(long)]
    pub policy: Option<String>,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, default_value_t = 0, value_parser = noise_threads)]
    pub noise: u32,
    /// Stress profile: off, uav, humanoid, cpu, memory, switch, disk, network; joined with +
    #[arg(long, default_value = "off")]
    pub stress: String,
    /// Keep noise and stress on these CPUs
    #[arg(long)]
    pub load_cpus: Option<CpuSet>,
    /// What shows the run
    #[arg(long, value_enum, default_value_t = Shown::Web)]
    pub view: Shown,
    /// Refuse to run when the kernel grants less than asked
    #[arg(long)]
    pub strict: bool,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// This very run directory, which must not exist
    #[arg(long, conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Go on in this run directory, which a kill left (all robots but ros)
    #[arg(long, conflicts_with_all = ["runs", "run_dir"])]
    pub resume: Option<PathBuf>,
    /// Record what the kernel does, keep the last seconds and the windows of late releases, and
    /// name their causes (cell, uav, cyclic, humanoid)
    #[arg(long)]
    pub flight_recorder: bool,
    /// With the flight recorder: wake-ups later than this are late, microseconds
    #[arg(long, default_value_t = 100.0, requires = "flight_recorder")]
    pub late_us: f64,
    /// Bring the run into this store when it has ended: a folder, or s3://BUCKET/PREFIX
    #[cfg(feature = "store")]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help = super::OTLP)]
    pub otlp: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless the verdict is PASS
    #[arg(long)]
    pub check: bool,
    /// What goes on around the robot, from a campaign
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["noise", "stress", "load_cpus"])]
    pub setup: Option<PathBuf>,
    /// End at once when the process with this id, which must be the parent, ends
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<u32>,
}
