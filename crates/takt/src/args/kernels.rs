//! `takt kernels`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use takt_lab::kernels::{Accelerator, Guests};

use super::{needs, noise_threads, positive_seconds};

/// `takt kernels`
#[derive(Debug, Subcommand)]
pub enum Kernels {
    /// List the kernels of the distribution and those in the cache
    List(List),
    /// Fetch kernels into the cache, without installing them
    Fetch(Fetch),
    /// Run a robot on several kernels, in virtual machines, and compare
    Run(Box<Run>),
}

/// `takt kernels list`
#[derive(Debug, clap::Args)]
pub struct List {
    /// List all versions, not only cached ones and the newest of each kind
    #[arg(long)]
    pub all: bool,
    /// Cache of kernels [default: `takt/kernels` in the user's cache folder]
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt kernels fetch`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::FETCH)]
pub struct Fetch {
    /// Kernels: generic, rt, cloud, a version (6.12, 6.12-rt, 6.1.0-56-rt), or a package
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Cache of kernels [default: `takt/kernels` in the user's cache folder]
    #[arg(long)]
    pub cache: Option<PathBuf>,
}

/// Execution of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// Emulation in instruction-counted time: results repeat
    Tcg,
    /// Emulation in real time: CPUs run in parallel, and figures include the host's noise
    TcgRealTime,
    /// Virtualization on the host's processor, in real time
    Kvm,
}

/// `takt kernels run`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::KERNELS)]
pub struct Run {
    /// Kernels: names as in `takt kernels list`, packages, or paths to vmlinuz files
    #[arg(long, value_delimiter = ',', default_value = "generic,rt")]
    pub kernels: Vec<String>,
    /// Robot: the name of a shipped configuration (cyclic, uav, humanoid, cell) or a configuration
    /// file
    #[arg(long, default_value = "cyclic")]
    pub robot: String,
    /// Policies of the robot's critical task: other:NICE, fifo:PRIORITY, rr:PRIORITY,
    /// deadline:RUNTIME/DEADLINE/PERIOD [default: the robot's own]
    #[arg(long, value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Releases of the critical task in a run
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(10..=100_000_000))]
    pub iterations: Option<u64>,
    /// Length of a run in seconds of the guest's time
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
    /// Stress profiles: off, uav, humanoid, cpu, memory, switch, disk, network; joined with +
    #[arg(long, value_delimiter = ',', default_value = "off")]
    pub stress: Vec<String>,
    /// Noise threads (SCHED_OTHER)
    #[arg(long, value_parser = noise_threads)]
    pub noise: Option<u32>,
    /// Set a key of the robot's file; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Boot parameters of all guests, such as "isolcpus=1 threadirqs"
    #[arg(long, default_value = "")]
    pub boot: String,
    #[command(flatten)]
    pub guests: GuestOptions,
    /// Runs of each configuration
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Trace the kernel, for the cause of every late release
    #[arg(long)]
    pub trace: bool,
    /// Folder for the runs
    #[arg(long, default_value = "takt-runs")]
    pub runs: PathBuf,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of guests.
#[derive(Debug, clap::Args)]
pub struct GuestOptions {
    /// CPUs of each guest
    #[arg(long)]
    pub cpus: Option<u32>,
    /// Memory of each guest in MiB
    #[arg(long)]
    pub memory_mib: Option<u32>,
    /// Execution of guests: emulated, or on the host's processor
    #[arg(long, value_enum)]
    pub accel: Option<Accel>,
    /// Guests to run at the same time
    #[arg(long)]
    pub at_once: Option<u32>,
    /// Longest time of a run on this machine, in seconds
    #[arg(long)]
    pub limit: Option<u32>,
    /// Cache of kernels [default: `takt/kernels` in the user's cache folder]
    #[arg(long)]
    pub cache: Option<PathBuf>,
}

impl From<Accel> for Accelerator {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Tcg => Self::Tcg,
            Accel::TcgRealTime => Self::TcgRealTime,
            Accel::Kvm => Self::Kvm,
        }
    }
}

impl GuestOptions {
    /// `before` with what was said here.
    pub fn apply(&self, before: Guests) -> Guests {
        Guests {
            accelerator: self.accel.map_or(before.accelerator, Accelerator::from),
            cpus: self.cpus.unwrap_or(before.cpus),
            memory_mib: self.memory_mib.unwrap_or(before.memory_mib),
            at_once: self.at_once.unwrap_or(before.at_once),
            limit_s: self.limit.unwrap_or(before.limit_s),
            cache: self.cache.clone().or(before.cache),
            ..before
        }
    }
}
