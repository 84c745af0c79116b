//! `takt manage`

use std::path::PathBuf;

use takt_manager::Policy;

use super::{needs, positive_seconds};

/// `takt manage`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::MANAGE)]
pub struct Manage {
    /// Goals file (TOML): the chains, their goals and the order in which they may be dropped; or
    /// the name of a shipped one (`takt goals` lists them). With --learn: the new file to write
    pub goals: Option<PathBuf>,
    /// Observe a command, --pid, --trace, --lttng or all running ROS 2 processes, print their
    /// chains with measured latencies, and write a first goals file (takt-goals.toml, or the next
    /// free number). Changes no process
    #[arg(long, conflicts_with_all = ["observe", "soft", "metrics", "screen", "log", "restore", "state", "check"])]
    pub learn: bool,
    /// With --learn: largest number of chains, those across most executors first
    #[arg(long, value_name = "N", default_value_t = 16, requires = "learn", value_parser = chain_count)]
    pub chains: usize,
    /// With --learn or --emit: overwrite existing files
    #[arg(long)]
    pub overwrite: bool,
    /// File in which to keep the learned model between runs [default: one for each goals file and
    /// command, in the folder `models` of /var/lib/takt for root, else of $XDG_STATE_HOME/takt]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["learn", "trace", "lttng"])]
    pub model: Option<PathBuf>,
    /// Start without the model of earlier runs, and keep none
    #[arg(long, conflicts_with = "model")]
    pub fresh: bool,
    /// Write the last plan to this new folder as settings that work without the manager: callback
    /// groups (YAML) for the callback-isolated executor, systemd drop-ins, and prefixes for a
    /// launch file
    #[arg(long, value_name = "FOLDER", conflicts_with = "learn")]
    pub emit: Option<PathBuf>,
    /// Change nothing: report the model, the bounds, and the plan
    #[arg(long)]
    pub observe: bool,
    /// Attach to running processes instead of starting a command (uprobes; needs root)
    #[arg(long, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Analyze a recording instead: a folder that `ros2 trace` or LTTng wrote, or a run directory
    /// of Takt
    #[arg(long, conflicts_with_all = ["pid", "command", "seconds", "lttng", "soft", "metrics", "screen", "log"])]
    pub trace: Option<PathBuf>,
    /// With --observe: follow an LTTng session that records to this folder with rotation (`lttng
    /// enable-rotation --timer=1s`)
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["pid", "command"])]
    pub lttng: Option<PathBuf>,
    /// Stop after this many seconds [default: with the command, or at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Let a thread that has used its budget continue at best effort, instead of throttling it
    #[arg(long)]
    pub soft: bool,
    /// Planning policy: takt, or ros-llama, the paper's, for comparison [default: `policy` in
    /// `[options]` of the goals file]
    #[arg(long, value_name = "POLICY", conflicts_with = "learn")]
    pub policy: Option<Policy>,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9464
    #[arg(long)]
    pub metrics: Option<std::net::SocketAddr>,
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help = super::OTLP, conflicts_with_all = ["learn", "trace", "restore"])]
    pub otlp: Option<String>,
    /// Show chains, budgets and decisions on the terminal instead of the log; `q` quits
    #[arg(long)]
    pub screen: bool,
    /// Also write each decision to this file, one JSON object per line
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Write the model as a graph for Graphviz
    #[arg(long)]
    pub dot: Option<PathBuf>,
    /// Write the graph of callbacks, executors, chains and latencies as a page (HTML) at the end;
    /// --metrics serves it at /graph meanwhile
    #[arg(long)]
    pub page: Option<PathBuf>,
    /// Print model, plan and measurements as JSON at the end
    #[arg(long)]
    pub json: bool,
    /// Undo the changes of a manager that was killed, and exit
    #[arg(long)]
    pub restore: bool,
    /// State file, for --restore
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Exit with 1 unless the verdict is PASS; a missed goal is a FAIL unless its chain was dropped
    /// in the declared order
    #[arg(long)]
    pub check: bool,
    /// Watchdog that the manager starts to undo its changes when it is killed
    #[arg(long, hide = true)]
    pub watchdog: Option<PathBuf>,
    /// Command to start and manage, after `--`
    #[arg(last = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// Goals files hold at most a thousand chains.
fn chain_count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(count) if (1..=1000).contains(&count) => Ok(count),
        _ => Err("expected a whole number of 1 to 1000 chains".to_owned()),
    }
}
