//! `takt manage`

use std::path::PathBuf;

use takt_manager::Policy;

use super::{needs, positive_seconds};

/// `takt manage`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::MANAGE)]
pub struct Manage {
    /// Goals file (TOML): chains, their goals, one degradation order; with --learn the new file to
    /// write
    pub goals: Option<PathBuf>,
    /// Needs no goals and changes nothing: prints the graph and the chains with their measured
    /// latencies, and writes a goals file to begin from (takt-goals.toml, or the next free number).
    /// Of a command, of --pid, --trace or --lttng, or of all ROS 2 processes that run
    #[arg(long, conflicts_with_all = ["observe", "soft", "metrics", "screen", "log", "restore", "state", "check"])]
    pub learn: bool,
    /// With --learn: chains at most, those across most executors first
    #[arg(long, value_name = "N", default_value_t = 16, requires = "learn", value_parser = chain_count)]
    pub chains: usize,
    /// With --learn or --emit: replace the files that are there
    #[arg(long)]
    pub overwrite: bool,
    /// Keep the learnt model in this file and begin with what it holds. Without, a command that is
    /// managed has one of its own, by goals file and command, below the state folder's `models`
    /// (/var/lib/takt for root, else $XDG_STATE_HOME/takt)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["learn", "trace", "lttng"])]
    pub model: Option<PathBuf>,
    /// Neither use nor keep a model of an earlier run
    #[arg(long, conflicts_with = "model")]
    pub fresh: bool,
    /// Write the last plan as settings for those who want no manager into this new folder: callback
    /// groups (YAML) for the callback-isolated executor, systemd drop-ins, prefixes for a launch
    /// file
    #[arg(long, value_name = "FOLDER", conflicts_with = "learn")]
    pub emit: Option<PathBuf>,
    /// Only look: the model, the bounds, and what would be done
    #[arg(long)]
    pub observe: bool,
    /// Attach to running processes (by uprobes; needs root) instead of starting a command
    #[arg(long, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Examine a recording instead (a folder that `ros2 trace` or LTTng wrote, or the run directory
    /// of a robot of Takt's): model, bounds, measured chains; changes nothing
    #[arg(long, conflicts_with_all = ["pid", "command", "seconds", "lttng", "soft", "metrics", "screen", "log"])]
    pub trace: Option<PathBuf>,
    /// Follow an LTTng session that records to this folder and is rotated
    /// (`lttng enable-rotation --timer=1s`); with --observe
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["pid", "command"])]
    pub lttng: Option<PathBuf>,
    /// End after so many seconds; without, with the command or by Ctrl-C
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// A thread that has used up its budget goes on at best effort instead of being cut off
    #[arg(long)]
    pub soft: bool,
    /// Whose manager makes the plans: takt, or ros-llama, which is the paper's as it is printed, to
    /// compare with. Without: as the goals file says (`policy` in `[options]`)
    #[arg(long, value_name = "POLICY", conflicts_with = "learn")]
    pub policy: Option<Policy>,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9464
    #[arg(long)]
    pub metrics: Option<std::net::SocketAddr>,
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help = super::OTLP, conflicts_with_all = ["learn", "trace", "restore"])]
    pub otlp: Option<String>,
    /// Show chains, budgets and decisions on a terminal screen instead of the log; `q` ends
    #[arg(long)]
    pub screen: bool,
    /// Write every decision to this file, too, one JSON object a line
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Write the model as a graph for Graphviz
    #[arg(long)]
    pub dot: Option<PathBuf>,
    /// Write the graph with callbacks, executors, chains and latencies as a page (HTML) at the end;
    /// while a manager runs, --metrics serves it at /graph
    #[arg(long)]
    pub page: Option<PathBuf>,
    /// Print model, plan and measurements as JSON at the end
    #[arg(long)]
    pub json: bool,
    /// Undo what a manager that was killed has left, and end
    #[arg(long)]
    pub restore: bool,
    /// State file, for --restore
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Exit with 1 unless the verdict on the whole run (or recording) is PASS: with FAIL where a
    /// goal was missed that was not given up in order
    #[arg(long)]
    pub check: bool,
    /// What the manager starts to undo its changes when it is killed
    #[arg(long, hide = true)]
    pub watchdog: Option<PathBuf>,
    /// The command to start and manage
    #[arg(last = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// Goals files hold at most a thousand chains.
fn chain_count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(count) if (1..=1000).contains(&count) => Ok(count),
        _ => Err("accepted are 1 to 1000".to_owned()),
    }
}
