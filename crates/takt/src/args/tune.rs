//! `takt tune`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use takt_tune::Aim;

use super::{needs, positive_seconds, watched_period};

/// `takt tune`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::TUNE)]
pub struct Tune {
    /// File of a robot, or the name of a shipped one, which runs during the search
    #[arg(conflicts_with_all = ["pid", "name", "command"])]
    pub robot: Option<PathBuf>,
    /// Tune the loop of this process
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "command"])]
    pub pid: Option<i32>,
    /// Tune the loop of the threads or processes whose name or command line contains this
    #[arg(long, value_name = "PATTERN", conflicts_with = "command")]
    pub name: Option<String>,
    /// Aim of the search: `STATISTIC [lateness|response] [of THREAD] [< LIMIT]`, such as "p99.9
    /// lateness of control < 100 us"
    #[arg(long, value_name = "AIM", default_value = "worst lateness", value_parser = aim)]
    pub aim: Aim,
    /// Period of the loop, such as 2ms or 500us [default: measured]
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// Longest time of the search in seconds; it ends earlier once it is clear what helps
    #[arg(long, visible_alias = "budget", default_value_t = 600.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Length of a block, such as 2s [default: 200 cycles, 0.3 to 5 s, less if time is short]
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub block: Option<Duration>,
    /// Also try the network settings of this interface; can be repeated
    #[arg(long, value_name = "INTERFACE")]
    pub link: Vec<String>,
    /// Only settings whose name contains this, such as `policy` or `idle`; can be repeated
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Also try boot parameters, in virtual machines: some minutes more (needs QEMU and `takt
    /// kernels fetch`)
    #[arg(long)]
    pub guests: bool,
    /// Kernel of the virtual machines, as in `takt kernels list`
    #[arg(long, value_name = "NAME", default_value = "generic", requires = "guests")]
    pub kernel: String,
    /// Seed of the random order of the blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// List the settings that could be tried here, and exit; each is changed briefly to see whether
    /// it can be
    #[arg(long)]
    pub list: bool,
    /// Folder for the files that apply the result [default: takt-tuned, or the next free number]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File that keeps the settings from before [default for root: /var/lib/takt/tune.json]
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Undo the changes of a search that was killed together with its watchdog
    #[arg(long, conflicts_with_all = ["robot", "pid", "name", "command", "list"])]
    pub restore: bool,
    /// Wait for the end of the search of this process and undo its remaining changes
    #[arg(long, hide = true, requires = "state", value_name = "PID")]
    pub watchdog: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Command to run and tune, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn aim(text: &str) -> Result<Aim, String> {
    text.parse().map_err(|error: takt_tune::TuneError| error.to_string())
}
