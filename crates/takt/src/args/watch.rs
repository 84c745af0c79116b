//! `takt watch` and `takt trace`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{needs, noise_threads, positive_seconds, watched_period};

/// `takt watch`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::WATCH)]
pub struct Watch {
    /// This process, with its threads
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "cgroup", "command"])]
    pub pid: Option<i32>,
    /// Threads whose name, or whose process's name or command line, contains this; `*` stands for any characters
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["cgroup", "command"])]
    pub name: Option<String>,
    /// The processes of this control group and of those below it: a container, a systemd unit
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub cgroup: Option<PathBuf>,
    /// Stop after so many seconds; without, Ctrl-C stops, or the end of what is watched
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// The period of the loop, where it is known (2ms, 500us); it is found otherwise
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// A wake-up later than this is late; a tenth of the period otherwise, at least 100 us and at most 1 ms
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub late_us: Option<f64>,
    /// A cycle that ends later than this after its release is late; the period otherwise
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub deadline_us: Option<f64>,
    /// Let CPUs go idle although their idle time leaves no events on this kernel: fewer causes are known then
    #[arg(long)]
    pub let_idle: bool,
    /// Follow the packets of a robot's loop: udp:PORT (the program's own port) or tcp:HOST:PORT (the robot's, IPv4); up to four
    #[arg(long, value_name = "LINK")]
    pub link: Vec<takt_watch::link::Endpoint>,
    /// Read all events of the machine instead of letting the kernel follow the threads (BPF): dearer, and every late cycle is looked at
    #[arg(long)]
    pub all_events: bool,
    /// Keep no row for each cycle, for days: figures and the worst windows alone, which do not grow with time
    #[arg(long)]
    pub flight_recorder: bool,
    /// Show it on the terminal while it goes on
    #[arg(long, conflicts_with = "json")]
    pub screen: bool,
    /// Folder for the run directory
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// This very run directory, which must not exist
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub out: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// The command to run and to watch, after `--`; without any of these, the whole machine is watched
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `takt trace`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::TRACE)]
pub struct Trace {
    /// Robot: the name of a shipped configuration (uav, cyclic, humanoid, cell) or a configuration file
    #[arg(required_unless_present = "thread", conflicts_with = "thread")]
    pub robot: Option<String>,
    /// Instead of a run: a thread of any program that runs now, or of --file; its name or its id
    #[arg(long)]
    pub thread: Option<String>,
    /// Instead of the present: a file that `perf record` or `trace-cmd record` made
    #[arg(long, requires = "thread", conflicts_with_all = ["seconds", "stress", "noise"])]
    pub file: Option<PathBuf>,
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
    /// Also measure what tracing costs here: off, on and full rings in turns, so many times a second each
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    pub overhead: u32,
    /// Show the activation sequence beside that of an earlier traced run (another kernel, another load)
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

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e9).contains(&us) => Ok(us),
        _ => Err("accepted are 0 to 1000000000".to_owned()),
    }
}
