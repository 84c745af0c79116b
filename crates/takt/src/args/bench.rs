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
    /// The quadrotor: the UAV paper's scheduler settings, idle and under stress
    #[cfg(feature = "uav")]
    Uav(BenchUav),
    /// The DAQ loop: the DAQ paper's conditions
    #[cfg(feature = "daq")]
    Daq(BenchDaq),
    /// The humanoid: 1 kHz over EtherCAT, on a simulated segment or a real one
    #[cfg(feature = "humanoid")]
    Humanoid(BenchHumanoid),
    /// Perception on a GPU: everything that it must reach, measured, or why it could not be
    #[cfg(feature = "cell")]
    Gpu(BenchGpu),
    /// The safety cell under planted faults, judged by the controller's own log
    #[cfg(feature = "cell")]
    Faults(BenchFaults),
    /// The latency manager: seven chains of a mobile robot under the manager, the paper's manager,
    /// SCHED_RR and CFS
    #[cfg(feature = "ros")]
    Manager(BenchManager),
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n >= 1).ok_or_else(|| "accepted are whole numbers from 1".to_owned())
}

/// `takt bench cell`
#[cfg(feature = "cell")]
#[derive(Debug, clap::Args)]
#[command(after_help = needs::BENCH_CELL)]
pub struct Bench {
    /// Configuration file; the shipped demonstration when absent
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Also run another design in every cell of the matrix, at equal work, and say what this one
    /// gains over it: sentryrt1 (the paper's own), or a configuration file
    #[arg(long, value_name = "DESIGN")]
    pub against: Option<String>,
    /// Only the first so many cameras
    #[arg(long, value_parser = at_least_one)]
    pub cameras: Option<usize>,
    /// Length of one run in seconds
    #[arg(long, default_value_t = 32.0, value_parser = positive_seconds)]
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
    /// Releases of the attitude loop per configuration
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    pub iterations: u64,
    /// Without stress, with it, or both
    #[arg(long, value_enum, default_value_t = Stress::Both)]
    pub stress: Stress,
    /// Policies of the attitude loop instead of the paper's eight: other:NICE, fifo:PRIORITY,
    /// rr:PRIORITY, deadline:RUNTIME/DEADLINE/PERIOD
    #[arg(long, value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Instead of running: at which loss of control does this vehicle diverge, and what does
    /// lateness cost? Simulated time, the same answer everywhere
    #[arg(long, conflicts_with_all = ["iterations", "stress", "policies", "repeat"])]
    pub blackout: bool,
    /// Configuration file; the shipped one when absent
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Runs per configuration
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
    /// Link: udp, pty, eventfd, simulated, comedi, iio; that of the configuration when absent
    #[arg(long)]
    pub link: Option<String>,
    /// Longest time of a run in seconds. Runs end with 2500 edges for each of them, so that all
    /// conditions compare the same number; one that is slower ends with its time, and says so
    #[arg(long, default_value_t = 480.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Configuration file; the shipped one when absent
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Runs per condition
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
    /// Devices of the built-in humanoid, instead of the configuration's
    #[arg(long)]
    pub devices: Option<usize>,
    /// Length of the measured window in seconds
    #[arg(long, default_value_t = 32.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// What the devices are reached by, instead of the configuration's: veth, in-process, the name
    /// of an interface, or xdp:NAME for AF_XDP on it (feature `takt/xdp`)
    #[arg(long)]
    pub wire: Option<String>,
    /// Do not trace the kernel meanwhile: of a frame that comes late it is then known where its
    /// time went, and not what held up the thread there
    #[arg(long)]
    pub untraced: bool,
    /// Configuration file; the shipped one when absent
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
    /// Which GPU, as `nvidia-smi` counts them
    #[arg(long, default_value_t = 0)]
    pub ordinal: u32,
    /// Length of each run of the cell in seconds
    #[arg(long, default_value_t = 60.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// How long the GPU's memory is watched, seconds
    #[arg(long, default_value_t = 600.0, value_parser = positive_seconds)]
    pub growth_seconds: f64,
    /// Frames of each camera that are compared with the CPU's answers; 300 is the whole recording
    #[arg(long, default_value_t = 300)]
    pub frames: u64,
    /// TensorRT instead of CUDA for the run of five cameras; the first start builds engines for
    /// minutes
    #[arg(long)]
    pub tensorrt: bool,
    /// Folder for run directories
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 unless everything is reached
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
    /// Length of the measured window in seconds; three load phases divide it
    #[arg(long, default_value_t = 66.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Policies instead of all: takt, ros-llama, rr, cfs
    #[arg(long = "policy", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Load of the built-in robot: paper, or eight-trackers, which is heavier
    #[arg(long, default_value_t = takt_robot_ros::Load::Paper, value_parser = load)]
    pub load: takt_robot_ros::Load,
    /// Repetitions
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Go on with this bench, which was stopped or killed; its length, policies and repetitions are
    /// in its folder
    #[arg(long, value_name = "BENCH", conflicts_with_all = ["seconds", "policies", "load", "repeat", "config", "runs"])]
    pub resume: Option<PathBuf>,
    /// Also compare with an earlier bench of these chains: differences with confidence intervals
    #[arg(long, value_name = "BENCH")]
    pub compare: Option<PathBuf>,
    /// Compare although the machines or kernels differ; what differs is said first
    #[arg(long, requires = "compare")]
    pub across_machines: bool,
    /// Configuration file (robot = "ros"), such as one that starts real ROS 2 nodes; the shipped
    /// one when absent
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
    /// Only cases with this in their name
    #[arg(long)]
    pub case: Option<String>,
    /// Cases side by side: they mostly wait
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Only list the cases
    #[arg(long)]
    pub list: bool,
    /// Keep what every case leaves (the controller's log, configuration, words, run directory) in
    /// this folder
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 when there are violations
    #[arg(long)]
    pub check: bool,
}
