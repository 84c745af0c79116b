//! `takt watch`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{needs, positive_seconds, watched_period};

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e9).contains(&us) => Ok(us),
        _ => Err("expected microseconds of 0 to 1000000000".to_owned()),
    }
}

/// `takt watch`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::WATCH)]
pub struct Watch {
    /// Watch this process, with its threads
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "cgroup", "command"])]
    pub pid: Option<i32>,
    /// Watch threads whose name, process name or command line contains this; `*` stands for any
    /// characters
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["cgroup", "command"])]
    pub name: Option<String>,
    /// Watch a control group and those below it: the path of a systemd unit, or the id of a
    /// container
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub cgroup: Option<PathBuf>,
    /// Stop after this many seconds [default: at Ctrl-C, or with the watched process or command]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Period of the loop, such as 2ms or 500us [default: measured]
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// A wake-up this many microseconds after its time is late [default: a tenth of the period,
    /// from 100 us to 1 ms]
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub late_us: Option<f64>,
    /// A cycle that takes longer than this from its release misses its deadline, in microseconds
    /// [default: the period]
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub deadline_us: Option<f64>,
    /// Let CPUs go idle even where idle time leaves no events; fewer causes are found then
    #[arg(long)]
    pub let_idle: bool,
    /// Follow the packets of a loop: udp:PORT (the program's port), tcp:HOST:PORT (the robot's
    /// address; IPv6 in brackets) or INTERFACE:ethercat (the master's interface); up to four
    #[arg(long, value_name = "LINK")]
    pub link: Vec<takt_watch::link::Endpoint>,
    /// Read all events of the machine instead of filtering them in the kernel (BPF): costs more CPU
    /// time, and examines every late cycle
    #[arg(long)]
    pub all_events: bool,
    /// Follow the garbage collector of Python programs, by two uprobes in the interpreter
    #[arg(long)]
    pub gc: bool,
    /// For days: keep only figures and the worst windows, whose size does not grow with time
    #[arg(long)]
    pub flight_recorder: bool,
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help = super::OTLP)]
    pub otlp: Option<String>,
    /// Show the figures on the terminal while watching
    #[arg(long, conflicts_with = "json")]
    pub screen: bool,
    /// Folder for the run directory
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Exact name of the run directory, which must not exist
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub out: Option<PathBuf>,
    /// Print the report as JSON; the command's output goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless the verdict is PASS: no loop with its own timer missed a deadline
    #[arg(long, conflicts_with = "flight_recorder")]
    pub check: bool,
    /// Report what is missing to watch this, and exit
    #[arg(long, conflicts_with_all = ["check", "screen", "command", "seconds"])]
    pub dry_run: bool,
    /// Command to run and watch, after `--` [default: the whole machine]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
