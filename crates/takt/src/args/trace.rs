//! `takt trace`

use std::path::PathBuf;

use super::{needs, noise_threads, positive_seconds};

/// `takt trace`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::TRACE)]
pub struct Trace {
    /// Robot: the name of a shipped configuration (uav, cyclic, humanoid, cell) or a configuration
    /// file
    #[arg(required_unless_present = "thread", conflicts_with = "thread")]
    pub robot: Option<String>,
    /// Instead of a run: a thread of any program that runs now, or of --file; its name or its id
    #[arg(long)]
    pub thread: Option<String>,
    /// Instead of the present: a file that `perf record` or `trace-cmd record` made, or the folder
    /// of `perf record --threads`
    #[arg(long, requires = "thread", conflicts_with_all = ["seconds", "stress", "noise"])]
    pub file: Option<PathBuf>,
    /// Read the events of this trace instance (`trace-cmd record -B NAME`) of --file
    #[arg(long, requires = "file", value_name = "NAME")]
    pub instance: Option<String>,
    /// Length of the measured window in seconds
    #[arg(long, default_value_t = 3.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Wake-ups later than this get a cause, microseconds
    #[arg(long, default_value_t = 100.0)]
    pub late_us: f64,
    /// Stress profile: off, uav, humanoid, cpu, memory, switch, disk, network; joined with +
    #[arg(long, default_value = "off")]
    pub stress: String,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, default_value_t = 0, value_parser = noise_threads)]
    pub noise: u32,
    /// Also write a Perfetto trace, which ui.perfetto.dev opens
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Do not keep CPUs out of idle whose idle time leaves no events: releases there stay unmatched
    #[arg(long, conflicts_with = "file")]
    pub let_idle: bool,
    /// Also measure what tracing costs here: off, on and full rings in turns, so many times a
    /// second each
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    pub overhead: u32,
    /// Show the activation sequence beside that of an earlier traced run (another kernel, another
    /// load)
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// This very run directory, which must not exist
    #[arg(long, conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// What goes on around the robot, from a campaign
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["noise", "stress", "thread"])]
    pub setup: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
