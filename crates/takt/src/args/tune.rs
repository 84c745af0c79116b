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
    /// A robot's configuration file, which is run meanwhile
    #[arg(conflicts_with_all = ["pid", "name", "command"])]
    pub robot: Option<PathBuf>,
    /// The loop of this process
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "command"])]
    pub pid: Option<i32>,
    /// The loop of threads or processes whose name or command line contains this
    #[arg(long, value_name = "PATTERN", conflicts_with = "command")]
    pub name: Option<String>,
    /// What is to become better: `STATISTIC [lateness|response] [of THREAD] [< LIMIT]`, as "p99.9
    /// lateness of control < 100 us"
    #[arg(long, value_name = "AIM", default_value = "worst lateness", value_parser = aim)]
    pub aim: Aim,
    /// The period of the loop, where it is known (2ms, 500us); it is found otherwise
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// So long at most; what is not decided by then is said. A search ends earlier where it is
    /// clear what helps
    #[arg(long, visible_alias = "budget", default_value_t = 600.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Length of a block (100ms, 2s); 200 cycles, 0.3 to 5 s, when absent, and less where the time
    /// is short
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub block: Option<Duration>,
    /// Also try the network settings of this interface; may be given several times
    #[arg(long, value_name = "INTERFACE")]
    pub link: Vec<String>,
    /// Only settings whose name contains this, as `policy` or `idle`; may be given several times
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Also try the boot parameters that are proposed, in virtual kernels: some minutes more (QEMU;
    /// kernels as by `takt kernels fetch`)
    #[arg(long)]
    pub guests: bool,
    /// Kernel of these virtual machines, as in `takt kernels list`
    #[arg(long, value_name = "NAME", default_value = "generic", requires = "guests")]
    pub kernel: String,
    /// Draws the order of the blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only say what could be tried here, and change nothing for longer than it takes to try it
    #[arg(long)]
    pub list: bool,
    /// Folder for the files that apply what was found; takt-tuned, or the next free number, when
    /// absent
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File that keeps the settings from before; for root /var/lib/takt/tune.json unless said
    /// otherwise
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Take back what a search changed that was killed together with its watchdog
    #[arg(long, conflicts_with_all = ["robot", "pid", "name", "command", "list"])]
    pub restore: bool,
    /// Wait for the end of the search of this process and take back what it left
    #[arg(long, hide = true, requires = "state", value_name = "PID")]
    pub watchdog: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The command to run and to tune, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn aim(text: &str) -> Result<Aim, String> {
    text.parse().map_err(|error: takt_tune::TuneError| error.to_string())
}
