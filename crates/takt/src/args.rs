//! What can be typed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use takt_lab::cell::run::View;
use takt_robot_cell::tasks::PolicyMix;

/// Real-time Linux for robots: run it, prove it, keep it.
#[derive(Debug, Parser)]
#[command(
    name = "takt",
    version,
    about,
    after_help = "\
Neither the speed slider nor the digital outputs that takt commands are safety-rated. Takt is not a certified \
safety function.

Exit status: 0 done, 1 done but not PASS (with --check), 2 could not."
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
    Bench {
        #[command(subcommand)]
        robot: BenchRobot,
    },
    /// Show everything: recorded pedestrians, simulated robot, view, short bench, verdict
    Demo(Demo),
    /// Check a configuration file
    Check {
        /// Configuration file (TOML)
        config: PathBuf,
    },
    /// Record the cameras of a configuration to MCAP, for replay and for Foxglove
    Record(Record),
    /// Run a simulated robot controller alone (RTDE and dashboard), for other clients
    Simulate(Simulate),
}

/// Robots that can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchRobot {
    /// The cobot safety cell
    Cell(Bench),
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 * 40.0 => Ok(seconds),
        _ => Err("accepted are numbers above 0, at most 40 days".to_owned()),
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

/// What shows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Web page on the loopback interface
    Web,
    /// Terminal screen
    Terminal,
    /// Nothing
    None,
}

impl From<Shown> for View {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Web => Self::Web,
            Shown::Terminal => Self::Terminal,
            Shown::None => Self::None,
        }
    }
}

/// `takt run`
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Configuration file (TOML)
    pub config: PathBuf,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Scheduler configuration instead of the file's: CFS+CFS, DL+CFS, DL+RR, RR+RR
    #[arg(long)]
    pub policy: Option<PolicyMix>,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, default_value_t = 0, value_parser = noise_threads)]
    pub noise: u32,
    /// What shows the run
    #[arg(long, value_enum, default_value_t = Shown::Web)]
    pub view: Shown,
    /// Refuse to run when the kernel grants less than asked
    #[arg(long)]
    pub strict: bool,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// This very run directory, which must not exist
    #[arg(long, conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless the verdict is PASS
    #[arg(long)]
    pub check: bool,
    /// End at once when the process with this id, which must be the parent, ends
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<u32>,
}

/// `takt bench cell`
#[derive(Debug, clap::Args)]
pub struct Bench {
    /// Configuration file; the shipped demonstration when absent
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Length of one run in seconds
    #[arg(long, default_value_t = 30.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Runs per cell of the matrix
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Scheduler configurations
    #[arg(long, value_delimiter = ',', default_value = "CFS+CFS,DL+CFS,DL+RR,RR+RR")]
    pub policies: Vec<PolicyMix>,
    /// Numbers of noise threads
    #[arg(long, value_delimiter = ',', default_value = "0,16,32,64,128", value_parser = noise_threads)]
    pub noise: Vec<u32>,
    /// Folder for bench directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Go on with this bench directory
    #[arg(long)]
    pub resume: Option<PathBuf>,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt demo`
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Without a view
    #[arg(long)]
    pub headless: bool,
    /// Show it in the terminal instead of on a web page
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Length of the shown run in seconds
    #[arg(long, default_value_t = 25.0, value_parser = positive_seconds)]
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

/// `takt simulate`
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// Loopback address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// RTDE port; 0 takes a free one
    #[arg(long, default_value_t = 30004)]
    pub rtde_port: u16,
    /// Dashboard port; 0 takes a free one
    #[arg(long, default_value_t = 29999)]
    pub dashboard_port: u16,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}
