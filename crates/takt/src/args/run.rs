//! `takt run`

use std::path::PathBuf;

use clap::ValueEnum;
use takt_lab::View;
use takt_rt::placement::CpuSet;

use super::{needs, noise_threads, positive_seconds};

/// Display of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// A web page on the loopback interface
    Web,
    /// The terminal
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
    /// File of the robot (TOML), or the name of a shipped one (`takt robots` lists them)
    pub config: PathBuf,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Scheduler configuration of the safety cell: CFS+CFS, DL+CFS, DL+RR, RR+RR [default: the
    /// file's]
    #[arg(long)]
    pub policy: Option<String>,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, default_value_t = 0, value_parser = noise_threads)]
    pub noise: u32,
    /// Stress profile: off, uav, humanoid, cpu, memory, switch, disk, network; joined with +
    #[arg(long, default_value = "off")]
    pub stress: String,
    /// CPUs for noise and stress, such as 0-2,4
    #[arg(long)]
    pub load_cpus: Option<CpuSet>,
    /// Show the run on a web page or in the terminal
    #[arg(long, value_enum, default_value_t = Shown::Web)]
    pub view: Shown,
    /// Refuse to run if the kernel grants less than the file asks for
    #[arg(long)]
    pub strict: bool,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Exact name of the run directory, which must not exist
    #[arg(long, conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Continue in this run directory, which a killed run left (all robots but ros)
    #[arg(long, conflicts_with_all = ["runs", "run_dir"])]
    pub resume: Option<PathBuf>,
    /// Trace the kernel, keep the last seconds and the time around late releases, and find their
    /// causes (cell, uav, cyclic, humanoid)
    #[arg(long)]
    pub flight_recorder: bool,
    /// With --flight-recorder: a wake-up this many microseconds late is kept
    #[arg(long, default_value_t = 100.0, requires = "flight_recorder")]
    pub late_us: f64,
    /// Put the run into this store at the end: a folder, or s3://BUCKET/PREFIX
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
    /// Conditions besides the robot itself, from a campaign
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["noise", "stress", "load_cpus"])]
    pub setup: Option<PathBuf>,
    /// End at once when the process with this id, which must be the parent, ends
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<u32>,
}
