//! `takt watch`

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{needs, positive_seconds, watched_period};

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e9).contains(&us) => Ok(us),
        _ => Err("accepted are 0 to 1000000000".to_owned()),
    }
}

/// `takt watch`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::WATCH)]
pub struct Watch {
    /// This process, with its threads
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "cgroup", "command"])]
    pub pid: Option<i32>,
    /// Threads whose name, or whose process's name or command line, contains this; `*` stands for
    /// any characters
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["cgroup", "command"])]
    pub name: Option<String>,
    /// The processes of this control group and of those below it: a systemd unit, or a container by
    /// its id
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub cgroup: Option<PathBuf>,
    /// Stop after so many seconds; without, Ctrl-C stops, or the end of the process or the command
    /// that is watched (by a name or a control group, others may come)
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// The period of the loop, where it is known (2ms, 500us); it is found otherwise
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// A wake-up later than this is late; a tenth of the period otherwise, at least 100 us and at
    /// most 1 ms
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub late_us: Option<f64>,
    /// A cycle that ends later than this after its release is late; the period otherwise
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub deadline_us: Option<f64>,
    /// Let CPUs go idle although their idle time leaves no events on this kernel: fewer causes are
    /// known then
    #[arg(long)]
    pub let_idle: bool,
    /// Follow the packets of a robot's loop: udp:PORT (the program's own port), tcp:HOST:PORT (the
    /// robot's; IPv6 in brackets) or INTERFACE:ethercat (the master's); up to four
    #[arg(long, value_name = "LINK")]
    pub link: Vec<takt_watch::link::Endpoint>,
    /// Read all events of the machine instead of letting the kernel follow the threads (BPF):
    /// dearer, and every late cycle is looked at
    #[arg(long)]
    pub all_events: bool,
    /// Follow the garbage collector of watched programs in Python: two breakpoints (uprobes) in the
    /// interpreter for the time of the watch
    #[arg(long)]
    pub gc: bool,
    /// Keep no row for each cycle, for days: figures and the worst windows alone, which do not grow
    /// with time
    #[arg(long)]
    pub flight_recorder: bool,
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help = super::OTLP)]
    pub otlp: Option<String>,
    /// Show it on the terminal while it goes on
    #[arg(long, conflicts_with = "json")]
    pub screen: bool,
    /// Folder for the run directory
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// This very run directory, which must not exist
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub out: Option<PathBuf>,
    /// Print the report as JSON; what the command prints goes to standard error then
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless the verdict is PASS: no loop with a timer of its own missed its deadlines
    #[arg(long, conflicts_with = "flight_recorder")]
    pub check: bool,
    /// Say whether it can be watched and what is missing for that, and watch nothing
    #[arg(long, conflicts_with_all = ["check", "screen", "command", "seconds"])]
    pub dry_run: bool,
    /// The command to run and to watch, after `--`; without any of these, the whole machine is
    /// watched
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
