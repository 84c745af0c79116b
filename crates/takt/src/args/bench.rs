//! `takt bench`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
#[cfg(feature = "cell")]
use takt_robot_cell::tasks::PolicyMix;

use super::{needs, noise_threads, positive_seconds};

/// Robots that can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchRobot {
    /// The cobot safety cell
    #[cfg(feature = "cell")]
    Cell(Bench),
    /// The quadrotor, under the UAV paper's scheduler settings, idle and under stress
    #[cfg(feature = "uav")]
    Uav(BenchUav),
    /// The DAQ loop, under the DAQ paper's conditions
    #[cfg(feature = "daq")]
    Daq(BenchDaq),
    /// The humanoid: 1 kHz over EtherCAT, on simulated or real devices
    #[cfg(feature = "humanoid")]
    Humanoid(BenchHumanoid),
    /// Perception on a GPU, against each of its goals
    #[cfg(feature = "cell")]
    Gpu(BenchGpu),
    /// The safety cell under injected faults, judged by the controller's own log
    #[cfg(feature = "cell")]
    Faults(BenchFaults),
    /// Seven ROS 2 chains of a mobile robot: Takt's manager, the paper's, SCHED_RR and CFS
    #[cfg(feature = "ros")]
    Manager(BenchManager),
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n >= 1).ok_or_else(|| "expected a whole number from 1".to_owned())
}

/// `takt bench cell`
#[cfg(feature = "cell")]
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_CELL)]
pub struct Bench {
    /// File of the cell [default: the shipped demonstration]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Also run another design at equal work, and report the gain: sentryrt1 (the paper's own), or
    /// a configuration file
    #[arg(long, value_name = "DESIGN")]
    pub against: Option<String>,
    /// Only the first N cameras
    #[arg(long, value_parser = at_least_one)]
    pub cameras: Option<usize>,
    /// Length of each run in seconds
    #[arg(long, default_value_t = 32.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Runs of each combination
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
    /// Continue the bench in this folder
    #[arg(long)]
    pub resume: Option<PathBuf>,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// Stress of `takt bench uav`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stress {
    /// Idle only
    Off,
    /// Under stress only
    On,
    /// Both
    Both,
}

/// `takt bench uav`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_UAV)]
pub struct BenchUav {
    /// Releases of the attitude loop in each run
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    pub iterations: u64,
    /// Without stress, with it, or both
    #[arg(long, value_enum, default_value_t = Stress::Both)]
    pub stress: Stress,
    /// Policies of the attitude loop: other:NICE, fifo:PRIORITY, rr:PRIORITY,
    /// deadline:RUNTIME/DEADLINE/PERIOD [default: the paper's eight]
    #[arg(long, value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Instead of measuring, compute in simulated time how long the vehicle flies without control,
    /// and what lateness costs
    #[arg(long, conflicts_with_all = ["iterations", "stress", "policies", "repeat"])]
    pub blackout: bool,
    /// Configuration file [default: the shipped one]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Runs of each configuration
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Folder for campaign directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt bench daq`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_DAQ)]
pub struct BenchDaq {
    /// Link: udp, pty, eventfd, simulated, comedi, iio [default: the configuration's]
    #[arg(long)]
    pub link: Option<String>,
    /// Longest time of a run in seconds. A run ends after 2500 edges for each second of it, so that
    /// all conditions have the same number; a slower run ends with the time and says so
    #[arg(long, default_value_t = 480.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Configuration file [default: the shipped one]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Runs of each condition
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Folder for campaign directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt bench humanoid`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_HUMANOID)]
pub struct BenchHumanoid {
    /// Number of devices of the built-in humanoid [default: the configuration's]
    #[arg(long)]
    pub devices: Option<usize>,
    /// Length of the measured window in seconds
    #[arg(long, default_value_t = 32.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Connection to the devices: veth, in-process, the name of an interface, or xdp:NAME for
    /// AF_XDP on it (feature `takt/xdp`) [default: the configuration's]
    #[arg(long)]
    pub wire: Option<String>,
    /// Do not trace the kernel: the run then shows where a late frame lost its time, but not what
    /// delayed the thread
    #[arg(long)]
    pub untraced: bool,
    /// Configuration file [default: the shipped one]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt bench gpu`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_GPU)]
pub struct BenchGpu {
    /// Number of the GPU, as in `nvidia-smi`
    #[arg(long, default_value_t = 0)]
    pub ordinal: u32,
    /// Length of each run of the cell in seconds
    #[arg(long, default_value_t = 60.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Time for watching the GPU's memory, in seconds
    #[arg(long, default_value_t = 600.0, value_parser = positive_seconds)]
    pub growth_seconds: f64,
    /// Frames of each camera to compare with the CPU's answers; 300 is the whole recording
    #[arg(long, default_value_t = 300)]
    pub frames: u64,
    /// Use TensorRT instead of CUDA for the run with five cameras; its first start builds engines
    /// for minutes
    #[arg(long)]
    pub tensorrt: bool,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless all goals are reached
    #[arg(long)]
    pub check: bool,
}

/// A load by its name.
#[cfg(feature = "ros")]
pub(super) fn load(text: &str) -> Result<takt_robot_ros::Load, String> {
    text.parse()
}

/// `takt bench manager`
#[cfg(feature = "ros")]
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_MANAGER)]
pub struct BenchManager {
    /// Length of the measured window in seconds, divided among three load phases
    #[arg(long, default_value_t = 66.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Policies: takt, ros-llama, rr, cfs [default: all]
    #[arg(long = "policy", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Load of the built-in robot: paper, or eight-trackers, which is heavier
    #[arg(long, default_value_t = takt_robot_ros::Load::Paper, value_parser = load)]
    pub load: takt_robot_ros::Load,
    /// Runs of each policy
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Continue this bench, which was stopped or killed; its options are in its folder
    #[arg(long, value_name = "BENCH", conflicts_with_all = ["seconds", "policies", "load", "repeat", "config", "runs"])]
    pub resume: Option<PathBuf>,
    /// Also compare with an earlier bench, with confidence intervals
    #[arg(long, value_name = "BENCH")]
    pub compare: Option<PathBuf>,
    /// Compare even if machines or kernels differ; the differences are listed first
    #[arg(long, requires = "compare")]
    pub across_machines: bool,
    /// Configuration file (robot = "ros"), such as one that starts real ROS 2 nodes [default: the
    /// shipped one]
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt bench faults`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_FAULTS)]
pub struct BenchFaults {
    /// Only the cases whose name contains this
    #[arg(long)]
    pub case: Option<String>,
    /// Cases to run at the same time; they mostly wait
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// List the cases and exit
    #[arg(long)]
    pub list: bool,
    /// Keep the files of each case in this folder: the controller's log, configuration, output and
    /// run directory
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if there are violations
    #[arg(long)]
    pub check: bool,
}
