//! What can be typed behind `takt gpu`.

use std::path::PathBuf;

use clap::Subcommand;
use takt_gpu::check::runner::WHOLE_S;

use super::needs;

/// `takt gpu`
#[derive(Debug, Subcommand)]
pub enum Gpu {
    /// Check a GPU from driver to perception, each step in a process of its own with a time limit;
    /// results in one folder
    Check(GpuCheck),
    /// Compile all kernels beforehand, for machines without NVRTC; needs no GPU
    Kernels(GpuKernels),
    /// One step of the check, which starts it
    #[command(hide = true)]
    Step {
        /// Which
        name: String,
        /// Time for measuring
        #[arg(long)]
        seconds: f64,
        /// Which GPU
        #[arg(long)]
        ordinal: u32,
        /// As of the check
        #[arg(long)]
        leave_settings: bool,
    },
}

/// `takt gpu check`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::GPU_CHECK)]
pub struct GpuCheck {
    /// Folder of the results: made by this
    #[arg(long, default_value = "gpu-check")]
    pub out: PathBuf,
    /// Go on with the check in the folder: what is complete is not run again
    #[arg(long)]
    pub resume: bool,
    /// Only these steps, also when they are complete: device, kernels, answers, clock, streams,
    /// budgets, cameras, networks, interference, sharing, growth, hang, loss
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Time for all of it; less makes the measurements shorter, and limits of steps stay
    #[arg(long, default_value_t = WHOLE_S)]
    pub seconds: f64,
    /// Which GPU, as `nvidia-smi` counts them
    #[arg(long, default_value_t = 0)]
    pub ordinal: u32,
    /// Leave out what changes a setting of the machine, as on one that is borrowed: time slices
    /// (`sharing`), which are restored otherwise
    #[arg(long)]
    pub leave_settings: bool,
}

/// `takt gpu kernels`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::GPU_KERNELS)]
pub struct GpuKernels {
    /// Folder for them; what compilers of other versions have put there stays
    pub folder: PathBuf,
}
