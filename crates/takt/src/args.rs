//! What can be typed.

#[cfg(any(feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
pub mod bench;
mod campaign;
#[cfg(feature = "humanoid")]
pub mod ethercat;
pub mod gate;
#[cfg(feature = "cell")]
pub mod gpu;
pub mod kernels;
#[cfg(feature = "ros")]
mod manage;
mod needs;
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
#[cfg(feature = "ros")]
pub use self::manage::Manage;
pub use self::run::{Run, Shown};
#[cfg(feature = "store")]
pub use self::store::Store;
pub use self::trace::Trace;
pub use self::watch::Watch;

/// Help of `--otlp`, wherever it is.
#[cfg(feature = "otlp")]
const OTLP: &str = "\
Tell an OpenTelemetry collector at this address (OTLP over HTTP, such as http://127.0.0.1:4318; https:// where takt was \
built with TLS) of it; the variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE, \
OTEL_RESOURCE_ATTRIBUTES and OTEL_METRIC_EXPORT_INTERVAL count";

/// Real-time Linux for robots: run it, prove it, keep it.
#[derive(Debug, Parser)]
#[command(
    name = "takt",
    version,
    about,
    after_help = "\
Neither the speed slider nor the digital outputs that takt commands are safety-rated. Takt is not a certified \
safety function.

Exit status: 0 done; 1 not PASS (with --check), or some of several runs failed; 2 could not; 3 done, but what was printed is lost."
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a robot from its configuration file, live or in replay
    Run(Run),
    /// Measure a robot over a matrix of policies and interference
    #[cfg(any(feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
    Bench {
        #[command(subcommand)]
        robot: bench::BenchRobot,
    },
    /// Measure a robot under every combination of some factors
    Campaign {
        #[command(subcommand)]
        what: Campaign,
    },
    /// Compare kernels without a reboot: in virtual machines, in counted time
    Kernels {
        #[command(subcommand)]
        what: kernels::Kernels,
    },
    /// Find what makes this machine unfit for real time, with evidence and the fix
    Doctor(Doctor),
    /// Run a robot with the kernel traced: activation paths, and the cause of every late release
    Trace(Trace),
    /// Watch any program's loops from outside: which threads are periodic, how late they are, and
    /// whose fault that is
    Watch(Watch),
    /// Search the settings of this machine that make a loop less late, by experiment, and take all
    /// of them back
    Tune(tune::Tune),
    /// Write a report about run directories: one HTML file and the same as Markdown
    Report(Report),
    /// Compare runs, campaigns, kernels or machines: differences with confidence intervals
    Compare(Compare),
    /// Keep sealed runs in a store: a folder that machines share, or a bucket
    #[cfg(feature = "store")]
    Store {
        #[command(subcommand)]
        what: Store,
    },
    /// Judge new runs by those before: better, same, worse or cannot tell; for CI systems
    Gate(gate::Gate),
    /// Find since when a measure is worse: change points over kernels, versions or days
    History(gate::History),
    /// Write a run's samples for other tools: cyclictest's histogram, CSV, or MCAP for Foxglove and
    /// Rerun
    Export(Export),
    /// Show everything: recorded pedestrians, simulated robot, view, short bench, verdict
    #[cfg(feature = "cell")]
    Demo(Demo),
    /// Check a configuration file of a robot, or a campaign file
    Check {
        /// File (TOML)
        config: PathBuf,
    },
    /// Record the cameras of a configuration to MCAP, for replay and for Foxglove
    #[cfg(feature = "cell")]
    Record(Record),
    /// Learn which parts of the pictures of standing cameras never have depth, while nobody is
    /// there
    #[cfg(feature = "cell")]
    Background(Background),
    /// Serve simulated EtherCAT devices at an interface, for any master
    #[cfg(feature = "humanoid")]
    Segment(Segment),
    /// Capture EtherCAT traffic, and find who is to blame for slow, late and missing frames of any
    /// master
    #[cfg(feature = "humanoid")]
    Ethercat {
        #[command(subcommand)]
        what: ethercat::Ethercat,
    },
    /// Run a simulated robot controller alone (RTDE and dashboard), for other clients
    Simulate(Simulate),
    /// Keep latency goals on running ROS 2 processes, by reservations from an analysis
    #[cfg(feature = "ros")]
    Manage(Manage),
    /// Undo what a killed run has changed of the machine: what a run starts
    #[cfg(not(feature = "ros"))]
    #[command(hide = true)]
    Manage {
        /// What it has changed
        #[arg(long)]
        watchdog: PathBuf,
    },
    /// Run processes that behave like ROS 2 nodes, with known costs, for the latency manager
    #[cfg(feature = "ros")]
    Workload(Workload),
    /// Answer how far the clocks of two machines are apart, for managers on the other ones; with
    /// --ask: ask
    #[cfg(feature = "ros")]
    Clock(Clock),
    /// Check a GPU before it is used, and compile kernels for machines without a compiler
    #[cfg(feature = "cell")]
    Gpu {
        #[command(subcommand)]
        what: gpu::Gpu,
    },
    /// Print completions for a shell: takt completions bash > /etc/bash_completion.d/takt
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: takt man | man -l -
    Man {
        /// Of this command (bench-cell, run); without, of takt itself
        page: Option<String>,
    },
    /// Work on a GPU: what a load starts as a process of its own
    #[command(name = takt_load::gpu::SUBCOMMAND, hide = true)]
    GpuLoad {
        /// What work (JSON)
        config: String,
    },
    /// The perception process of a cell, which starts it; its standard input is their shared memory
    #[cfg(feature = "cell")]
    #[command(hide = true)]
    PerceptionWorker,
    /// The plant at the far end of a DAQ link, whose near end starts it; its standard input is
    /// their socket
    #[cfg(feature = "daq")]
    #[command(hide = true)]
    DaqFarEnd,
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 * 40.0 => Ok(seconds),
        _ => Err("accepted are numbers above 0, at most 40 days".to_owned()),
    }
}

/// From 8 kHz to 1 Hz, with room: what a period is looked for in.
fn watched_period(text: &str) -> Result<Duration, String> {
    let period = takt_rt::duration::parse(text).map_err(|error| error.to_string())?;
    match period {
        period if (Duration::from_micros(50)..=Duration::from_secs(10)).contains(&period) => Ok(period),
        _ => Err("accepted are 50us to 10s".to_owned()),
    }
}

/// Noise threads beyond which the machine is only swapping threads.
const MOST_NOISE: u32 = 4096;

fn noise_threads(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(count) if count <= MOST_NOISE => Ok(count),
        _ => Err(format!("accepted are 0 to {MOST_NOISE}")),
    }
}

/// `takt clock`
#[derive(Debug, clap::Args)]
pub struct Clock {
    /// Address to answer at (UDP); it reports nothing but the time
    #[arg(long, default_value = "0.0.0.0:7117")]
    pub listen: std::net::SocketAddr,
    /// Ask the machine on which `takt clock` runs (host or host:port), and end
    #[arg(long, value_name = "HOST", conflicts_with_all = ["listen", "seconds"])]
    pub ask: Option<String>,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt segment`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::SEGMENT)]
pub struct Segment {
    /// Devices of the built-in humanoid
    #[arg(long, default_value_t = 59, conflicts_with = "config")]
    pub devices: usize,
    /// Segment file (TOML) instead of the built-in humanoid
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Interface to serve at; a veth pair of its own when absent
    #[arg(long)]
    pub interface: Option<String>,
    /// Record all frames at both ends into this new file (pcapng), for `takt ethercat analyse` and
    /// Wireshark; with --interface at that end alone
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Policy of its thread, such as fifo:98; it stands for hardware
    #[arg(long)]
    pub policy: Option<Policy>,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt workload`
#[cfg(feature = "ros")]
#[derive(Debug, clap::Args)]
pub struct Workload {
    /// System file (TOML); without, the mobile robot of the ROS-Llama paper
    pub system: Option<PathBuf>,
    /// Length, seconds; the load phases divide it equally
    #[arg(long, default_value_t = 66.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Load of the built-in robot: paper, or eight-trackers, which is heavier
    #[arg(long, conflicts_with = "system", default_value_t = takt_robot_ros::Load::Paper, value_parser = bench::load)]
    pub load: takt_robot_ros::Load,
    /// Print the built-in system to begin from, and end
    #[arg(long)]
    pub show: bool,
    /// Run this node alone: what the command starts for each of its nodes
    #[arg(long, hide = true, requires = "directory")]
    pub node: Option<String>,
    /// Where the nodes' sockets are
    #[arg(long, hide = true)]
    pub directory: Option<PathBuf>,
}

/// `takt doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::DOCTOR)]
pub struct Doctor {
    /// Time for measurements, seconds; 0 only reads settings
    #[arg(long, default_value_t = 3.0, value_parser = clap::value_parser!(f64))]
    pub seconds: f64,
    /// Make the safe changes, or exactly those of a file that `takt tune` left; what was there
    /// before is kept for --revert
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "revert")]
    pub apply: Option<Option<PathBuf>>,
    /// Put back what --apply changed
    #[arg(long, visible_alias = "undo")]
    pub revert: bool,
    /// With --apply FILE: wait so many seconds at most until the threads run that it names
    #[arg(long, value_name = "SECONDS", requires = "apply", value_parser = positive_seconds)]
    pub wait: Option<f64>,
    /// File that keeps the settings from before --apply; for root /var/lib/takt/doctor.json unless
    /// said otherwise
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 when something makes the machine unfit
    #[arg(long)]
    pub check: bool,
}

/// `takt report`
#[derive(Debug, clap::Args)]
pub struct Report {
    /// Run directories, or folders of them (campaigns)
    #[arg(required_unless_present = "results")]
    pub dirs: Vec<PathBuf>,
    /// Folder for report.html and report.md; the first of the folders when absent
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Instead of a report: sum each run up in a small file of this folder, which is shipped with
    /// the documentation
    #[arg(long, value_name = "FOLDER", requires = "page", conflicts_with = "out")]
    pub results: Option<PathBuf>,
    /// The page (Markdown) that is written from all summaries in the folder of --results
    #[arg(long, value_name = "FILE", requires = "results")]
    pub page: Option<PathBuf>,
}

/// `takt compare`
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Two or more sides: run directories or folders of them; the first is what the others are
    /// compared with. With --by: one store
    #[arg(required = true)]
    pub sides: Vec<PathBuf>,
    /// Compare groups of the runs of a store: those that have the same values in these columns of
    /// its index, or in these factors of their campaign; the first group is what the others are
    /// compared with
    #[cfg(feature = "store")]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', conflicts_with = "across_machines")]
    pub by: Vec<String>,
    /// Only the runs of which this is true, as in SQL: "robot = 'uav' and stolen < 0.01"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION", requires = "by")]
    pub condition: Option<String>,
    /// Figures from the samples of every run instead of those that the index has
    #[cfg(feature = "store")]
    #[arg(long, requires = "by")]
    pub samples: bool,
    /// Only this measure
    #[arg(long)]
    pub measure: Option<String>,
    /// Compare although the machines or kernels differ; what differs is said first
    #[arg(long)]
    pub across_machines: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `takt export` writes.
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
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Histogram)]
    pub format: Format,
    /// Measure; the run's main one when absent. MCAP has all
    #[arg(long)]
    pub measure: Option<String>,
    /// Bins of the histogram; values beyond are counted as overflows
    #[arg(long, default_value_t = takt_report::export::BINS)]
    pub bins: usize,
    /// File; standard output when absent
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// `takt demo`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::DEMO)]
pub struct Demo {
    /// Without a view
    #[arg(long)]
    pub headless: bool,
    /// Show it in the terminal instead of on a web page
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Length of the shown run in seconds: a PASS takes 30 s of evidence
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
    /// Configuration file (TOML)
    pub config: PathBuf,
    /// Folder for the recordings, one file a camera
    #[arg(long)]
    pub out: PathBuf,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}

/// `takt background`
#[derive(Debug, clap::Args)]
pub struct Background {
    /// Configuration file (TOML); nobody may stand in the pictures, and the robot only where it
    /// always has depth
    pub config: PathBuf,
    /// Folder for the backgrounds, one file a camera
    #[arg(long)]
    pub out: PathBuf,
    /// How long to look, seconds
    #[arg(long, value_parser = positive_seconds, default_value_t = 10.0)]
    pub seconds: f64,
}

/// `takt simulate`
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// Settings of the simulated controller, as [robot.simulator] of a cell has them (TOML)
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Loopback address to listen on; without, the configuration's or 127.0.0.1
    #[arg(long)]
    pub address: Option<IpAddr>,
    /// RTDE port; 0 takes a free one; without, the configuration's or 30004
    #[arg(long)]
    pub rtde_port: Option<u16>,
    /// Dashboard port; 0 takes a free one; without, the configuration's or 29999
    #[arg(long)]
    pub dashboard_port: Option<u16>,
    /// Write the controller's own log here: a CSV row for every cycle
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}
