//! Arguments of the command line.

#[cfg(any(feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
pub mod bench;
mod campaign;
#[cfg(feature = "humanoid")]
pub mod ethercat;
mod events;
pub mod gate;
#[cfg(feature = "cell")]
pub mod gpu;
pub mod kernels;
#[cfg(feature = "ros")]
mod manage;
mod needs;
mod new;
mod run;
#[cfg(all(test, feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
mod shown;
#[cfg(feature = "store")]
mod store;
mod trace;
pub mod tune;
mod watch;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use takt_rt::policy::Policy;

pub use self::campaign::{Campaign, CampaignCommon, CampaignResume, CampaignRun, On};
pub use self::events::{Events, Runs};
#[cfg(feature = "ros")]
pub use self::manage::Manage;
pub use self::new::{Language, New};
pub use self::run::{Run, Shown};
#[cfg(feature = "store")]
pub use self::store::Store;
pub use self::trace::Trace;
pub use self::watch::Watch;

/// Help of `--otlp`, wherever it is.
#[cfg(feature = "otlp")]
const OTLP: &str = "\
Send metrics to an OpenTelemetry collector at this address (OTLP over HTTP), such as http://127.0.0.1:4318 (https:// needs a \
build with TLS); the variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_RESOURCE_ATTRIBUTES and \
OTEL_METRIC_EXPORT_INTERVAL apply";

/// Real-time Linux for robots: run it, prove it, keep it.
#[derive(Debug, Parser)]
#[command(
    name = "takt",
    version,
    about,
    after_help = "\
Neither the speed slider nor the digital outputs that takt commands are safety-rated. Takt is not a certified \
safety function.

Exit status:
  0  done; with --check, the verdict is PASS
  1  with --check, the verdict is not PASS; some of several runs failed; `gate`: worse
  2  not done: wrong arguments, missing files, missing rights
  3  the run is complete and sealed, but its output could not be printed (disk full or broken pipe)
  4  `gate`: too little data to tell"
)]
pub struct Args {
    /// With --version: also print features, commit, target, compiler, and where shipped files are
    #[arg(long)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Begin a project: a loop of your own in C, C++, Python, Rust or ROS 2
    New(New),
    /// Run a robot from its configuration file, live or in replay
    Run(Run),
    /// Measure a robot under every policy and interference of a paper
    #[cfg(any(feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
    Bench {
        #[command(subcommand)]
        robot: bench::BenchRobot,
    },
    /// Measure a robot under every combination of the factors you choose
    Campaign {
        #[command(subcommand)]
        what: Campaign,
    },
    /// Compare kernels without a reboot, in virtual machines
    Kernels {
        #[command(subcommand)]
        what: kernels::Kernels,
    },
    /// List what makes this machine unfit for real time, with the fix for each
    Doctor(Doctor),
    /// Run a robot, or follow a thread, with the kernel traced: the cause of every late release
    Trace(Trace),
    /// Watch the loops of any program: how late each one is, and what delayed it
    Watch(Watch),
    /// Try settings of this machine on a loop, and report those that measurably help
    Tune(tune::Tune),
    /// Write a report on runs, as HTML and as Markdown
    Report(Report),
    /// Compare runs, campaigns, kernels or machines: differences with confidence intervals
    Compare(Compare),
    /// Keep sealed runs in a shared folder or a bucket
    #[cfg(feature = "store")]
    Store {
        #[command(subcommand)]
        what: Store,
    },
    /// List what happened to robots, and why: stops, faults, links, late bursts
    Events(Events),
    /// Delete old run directories, by age and size
    Runs {
        #[command(subcommand)]
        what: Runs,
    },
    /// Decide whether new runs are slower than a baseline; for CI
    Gate(gate::Gate),
    /// Find when a regression began, over kernels, versions or days
    History(gate::History),
    /// Write the samples of a run as a histogram, as CSV, or as MCAP for Foxglove and Rerun
    Export(Export),
    /// Show everything on recorded people and a simulated robot
    #[cfg(feature = "cell")]
    Demo(Demo),
    /// Check the file of a robot or a campaign
    Check {
        /// File of a robot or a campaign (TOML), or the name of a shipped one
        config: PathBuf,
    },
    /// List the shipped robots, or print the file of one
    Robots(Listing),
    /// List the shipped goals of the latency manager, or print the file of one
    #[cfg(feature = "ros")]
    Goals(Listing),
    /// Record the cameras of a cell as MCAP, for replay and for Foxglove
    #[cfg(feature = "cell")]
    Record(Record),
    /// Learn where fixed cameras never measure depth, while the cell is empty
    #[cfg(feature = "cell")]
    Background(Background),
    /// Simulate EtherCAT devices on an interface, for any master
    #[cfg(feature = "humanoid")]
    Segment(Segment),
    /// Capture EtherCAT frames, and find the cause of slow, late and missing ones
    #[cfg(feature = "humanoid")]
    Ethercat {
        #[command(subcommand)]
        what: ethercat::Ethercat,
    },
    /// Simulate a robot controller (RTDE and dashboard), for any client
    Simulate(Simulate),
    /// Keep the latency goals of ROS 2 processes, by CPU reservations
    #[cfg(feature = "ros")]
    Manage(Manage),
    /// Undo what a killed run has changed of the machine: what a run starts
    #[cfg(not(feature = "ros"))]
    #[command(hide = true)]
    Manage {
        /// The state file with its changes
        #[arg(long)]
        watchdog: PathBuf,
    },
    /// Simulate ROS 2 nodes with known costs, for the latency manager
    #[cfg(feature = "ros")]
    Workload(Workload),
    /// Measure how far the clocks of two machines are apart
    #[cfg(feature = "ros")]
    Clock(Clock),
    /// Check a GPU, and compile its kernels for machines without a compiler
    #[cfg(feature = "cell")]
    Gpu {
        #[command(subcommand)]
        what: gpu::Gpu,
    },
    /// Print completions: takt completions bash > /etc/bash_completion.d/takt
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: takt man | man -l -
    Man {
        /// Command, such as run or bench-cell [default: takt itself]
        page: Option<String>,
        /// Instead, write all pages into this folder, which must exist
        #[arg(long, value_name = "FOLDER", conflicts_with = "page")]
        out: Option<PathBuf>,
    },
    /// Work on a GPU: what a load starts as a process of its own
    #[command(name = takt_load::gpu::SUBCOMMAND, hide = true)]
    GpuLoad {
        /// Configuration of the work (JSON)
        config: String,
    },
    /// The perception process of a cell, which starts it; its standard input is their shared memory
    #[cfg(feature = "cell")]
    #[command(hide = true)]
    PerceptionWorker,
    /// Supervisor between a run and the command of `robot = "program"`; its standard input names
    /// the command to start
    #[command(name = takt_robot_program::keeper::SUBCOMMAND, hide = true)]
    ProgramKeeper,
    /// The plant at the far end of a DAQ link, whose near end starts it; its standard input is
    /// their socket
    #[cfg(feature = "daq")]
    #[command(hide = true)]
    DaqFarEnd,
}

/// `takt robots`, `takt goals`
#[derive(Debug, clap::Args)]
pub struct Listing {
    #[command(subcommand)]
    pub what: Option<ListingAction>,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with shipped files, instead of listing them.
#[derive(Debug, Subcommand)]
pub enum ListingAction {
    /// Print the file; copy it to write your own
    Show {
        /// Name
        name: String,
    },
}

/// Longest time that a command takes, seconds.
const MAX_SECONDS: f64 = 86_400.0 * 40.0;

/// Units that are written behind a time, and their seconds.
const TIMES: [(&str, f64); 9] = [
    ("ms", 1e-3),
    ("min", 60.0),
    ("sec", 1.0),
    ("seconds", 1.0),
    ("minutes", 60.0),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

fn positive_seconds(text: &str) -> Result<f64, String> {
    let fits = |seconds: &f64| *seconds > 0.0 && *seconds <= MAX_SECONDS;
    if let Some(seconds) = text.parse::<f64>().ok().filter(fits) {
        return Ok(seconds);
    }
    let with_unit = TIMES.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * seconds)
    });
    let fix = with_unit
        .filter(fits)
        .map_or_else(String::new, |seconds| format!("; write {seconds}, without a unit"));
    Err(format!(
        "expected a number of seconds above 0 and at most {MAX_SECONDS} (40 days), such as 30 or 0.5{fix}"
    ))
}

/// As [`positive_seconds`], and 0: no measurement.
fn measured_seconds(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { positive_seconds(text) }
}

/// From 8 kHz to 1 Hz, with room: what a period is looked for in.
fn watched_period(text: &str) -> Result<Duration, String> {
    let period = takt_rt::duration::parse(text).map_err(|error| error.to_string())?;
    match period {
        period if (Duration::from_micros(50)..=Duration::from_secs(10)).contains(&period) => Ok(period),
        _ => Err("expected a time of 50us to 10s".to_owned()),
    }
}

/// Noise threads beyond which the machine is only swapping threads.
const MAX_NOISE: u32 = 4096;

fn noise_threads(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(count) if count <= MAX_NOISE => Ok(count),
        _ => Err(format!("expected a whole number of 0 to {MAX_NOISE} threads")),
    }
}

/// `takt clock`
#[derive(Debug, clap::Args)]
pub struct Clock {
    /// Address (UDP) at which to answer with the time of this machine
    #[arg(long, default_value = "0.0.0.0:7117")]
    pub listen: std::net::SocketAddr,
    /// Measure against the machine HOST, on which `takt clock` runs, and exit
    #[arg(long, value_name = "HOST", conflicts_with_all = ["listen", "seconds"])]
    pub ask: Option<String>,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt segment`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::SEGMENT)]
pub struct Segment {
    /// Number of devices of the built-in humanoid
    #[arg(long, default_value_t = 59, conflicts_with = "config")]
    pub devices: usize,
    /// Segment file (TOML), instead of the built-in humanoid
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Interface of the devices [default: a new veth pair]
    #[arg(long)]
    pub interface: Option<String>,
    /// Record all frames at both ends in this new file (pcapng), for `takt ethercat analyse` and
    /// Wireshark; with --interface, at that end only
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Policy of the thread that simulates the devices, such as fifo:98
    #[arg(long)]
    pub policy: Option<Policy>,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt workload`
#[cfg(feature = "ros")]
#[derive(Debug, clap::Args)]
pub struct Workload {
    /// System file (TOML) [default: the mobile robot of the ROS-Llama paper]
    pub system: Option<PathBuf>,
    /// Length in seconds, divided equally among the load phases
    #[arg(long, default_value_t = 66.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Load of the built-in robot: paper, or eight-trackers (heavier)
    #[arg(long, conflicts_with = "system", default_value_t = takt_robot_ros::Load::Paper, value_parser = bench::load)]
    pub load: takt_robot_ros::Load,
    /// Print the built-in system file and exit; copy it to write your own
    #[arg(long)]
    pub show: bool,
    /// Run this node alone: what the command starts for each of its nodes
    #[arg(long, hide = true, requires = "directory")]
    pub node: Option<String>,
    /// Folder of the nodes' sockets
    #[arg(long, hide = true)]
    pub directory: Option<PathBuf>,
}

/// `takt doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::DOCTOR)]
pub struct Doctor {
    /// Seconds of measurement; 0 only reads settings
    #[arg(long, default_value_t = 3.0, value_parser = measured_seconds)]
    pub seconds: f64,
    /// Apply the fixes that are safe, or the settings in FILE, which `takt tune` wrote; --revert
    /// undoes them (needs root)
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "revert")]
    pub apply: Option<Option<PathBuf>>,
    /// Undo what --apply changed (needs root)
    #[arg(long, visible_alias = "undo")]
    pub revert: bool,
    /// With --apply FILE: wait at most this many seconds for the threads that FILE names
    #[arg(long, value_name = "SECONDS", requires = "apply", value_parser = positive_seconds)]
    pub wait: Option<f64>,
    /// File that keeps the settings from before --apply [default for root:
    /// /var/lib/takt/doctor.json]
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// List which command may do what as this user, by trying it, and the line that mends each
    #[arg(long, conflicts_with_all = ["apply", "revert", "wait", "state"])]
    pub rights: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if the machine is unfit
    #[arg(long)]
    pub check: bool,
}

/// `takt report`
#[derive(Debug, clap::Args)]
pub struct Report {
    /// Run directories, or folders of them (campaigns)
    #[arg(required_unless_present = "results")]
    pub dirs: Vec<PathBuf>,
    /// Folder for report.html and report.md [default: the first of the folders]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Instead of a report, summarize each run in a small file of this folder, for the
    /// documentation
    #[arg(long, value_name = "FOLDER", requires = "page", conflicts_with = "out")]
    pub results: Option<PathBuf>,
    /// Page (Markdown) to write from all summaries in the folder of --results
    #[arg(long, value_name = "FILE", requires = "results")]
    pub page: Option<PathBuf>,
}

/// `takt compare`
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Run directories or folders of them, two or more; the first is the reference. With --by: one
    /// store
    #[arg(required = true)]
    pub sides: Vec<PathBuf>,
    /// Group the runs of a store by these columns of its index or factors of their campaign, and
    /// compare the groups with the first one
    #[cfg(feature = "store")]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', conflicts_with = "across_machines")]
    pub by: Vec<String>,
    /// Only the runs that match, as in SQL: "robot = 'uav' and stolen < 0.01"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION", requires = "by")]
    pub condition: Option<String>,
    /// Compute figures from all samples, instead of reading them from the index
    #[cfg(feature = "store")]
    #[arg(long, requires = "by")]
    pub samples: bool,
    /// Only this measure
    #[arg(long)]
    pub measure: Option<String>,
    /// Compare even if machines or kernels differ; the differences are listed first
    #[arg(long)]
    pub across_machines: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// Format of `takt export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As `cyclictest --histogram` prints it: bins of 1 us
    Histogram,
    /// A line per sample
    Csv,
    /// Everything that the run measured, for Foxglove and Rerun; needs --out
    Mcap,
}

/// `takt export`
#[derive(Debug, clap::Args)]
pub struct Export {
    /// Run directory
    pub run: PathBuf,
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Histogram)]
    pub format: Format,
    /// Measure [default: the run's main one; MCAP has all]
    #[arg(long)]
    pub measure: Option<String>,
    /// Bins of the histogram; larger values count as overflows
    #[arg(long, default_value_t = takt_report::export::BINS)]
    pub bins: usize,
    /// File [default: standard output]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// `takt demo`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::DEMO)]
pub struct Demo {
    /// Show nothing
    #[arg(long)]
    pub headless: bool,
    /// Show the run in the terminal instead of on a web page
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Length of the shown run in seconds; a PASS needs 30 s of evidence
    #[arg(long, default_value_t = 32.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Length of each of the four bench runs in seconds
    #[arg(long, default_value_t = 5.0, value_parser = positive_seconds)]
    pub bench_seconds: f64,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt record`
#[derive(Debug, clap::Args)]
pub struct Record {
    /// File of the cell (TOML)
    pub config: PathBuf,
    /// Folder for the recordings, one file for each camera
    #[arg(long)]
    pub out: PathBuf,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt background`
#[derive(Debug, clap::Args)]
pub struct Background {
    /// File of the cell (TOML); keep people out of the pictures, and the robot where its depth is
    /// measured
    pub config: PathBuf,
    /// Folder for the backgrounds, one file for each camera
    #[arg(long)]
    pub out: PathBuf,
    /// Observation time, in seconds
    #[arg(long, value_parser = positive_seconds, default_value_t = 10.0)]
    pub seconds: f64,
}

/// `takt simulate`
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// Settings of the controller (TOML), as in [robot.simulator] of a cell
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Loopback address to listen on [default: the configuration's, else 127.0.0.1]
    #[arg(long)]
    pub address: Option<IpAddr>,
    /// RTDE port; 0 for any free one [default: the configuration's, else 30004]
    #[arg(long)]
    pub rtde_port: Option<u16>,
    /// Dashboard port; 0 for any free one [default: the configuration's, else 29999]
    #[arg(long)]
    pub dashboard_port: Option<u16>,
    /// Write the controller's log to this file, one CSV row for each cycle
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}
