//! `takt trace`

use std::path::PathBuf;

use super::{needs, noise_threads, positive_seconds};

/// `takt trace`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::TRACE)]
pub struct Trace {
    /// File of a robot (TOML), or the name of a shipped one (`takt robots` lists them)
    #[arg(required_unless_present = "thread", conflicts_with = "thread")]
    pub robot: Option<String>,
    /// Instead of a robot: a running thread of any program, or one of --file, by name or id
    #[arg(long)]
    pub thread: Option<String>,
    /// Analyze a recording of `perf record` (file, or folder of --threads) or `trace-cmd record`
    #[arg(long, requires = "thread", conflicts_with_all = ["seconds", "stress", "noise"])]
    pub file: Option<PathBuf>,
    /// Instance of the recording to read (`trace-cmd record -B NAME`)
    #[arg(long, requires = "file", value_name = "NAME")]
    pub instance: Option<String>,
    /// Length of the measured window in seconds
    #[arg(long, default_value_t = 3.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Report the cause of each wake-up later than this, in microseconds
    #[arg(long, default_value_t = 100.0)]
    pub late_us: f64,
    /// Stress profile: off, uav, humanoid, cpu, memory, switch, disk, network; joined with +
    #[arg(long, default_value = "off")]
    pub stress: String,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, default_value_t = 0, value_parser = noise_threads)]
    pub noise: u32,
    /// Also write a Perfetto trace, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Let CPUs go idle even where idle time leaves no events; releases there have no cause
    #[arg(long, conflicts_with = "file")]
    pub let_idle: bool,
    /// Also measure the cost of tracing: this many rounds of a second each with tracing off, on and
    /// with full buffers
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    pub overhead: u32,
    /// Show the activation sequence next to that of an earlier traced run
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Exact name of the run directory, which must not exist
    #[arg(long, conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Conditions besides the robot itself, from a campaign
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["noise", "stress", "thread"])]
    pub setup: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
