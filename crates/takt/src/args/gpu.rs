//! Arguments of `takt gpu`.

use std::path::PathBuf;

use clap::Subcommand;
use takt_gpu::check::runner::WHOLE_S;

use super::needs;

/// `takt gpu`
#[derive(Debug, Subcommand)]
pub enum Gpu {
    /// Check a GPU from driver to perception; each step is a process with a time limit
    Check(GpuCheck),
    /// Compile all kernels, for machines without NVRTC; needs no GPU
    Kernels(GpuKernels),
    /// One step of the check, which starts it
    #[command(hide = true)]
    Step {
        /// Name of the step
        name: String,
        /// Time for measuring
        #[arg(long)]
        seconds: f64,
        /// Number of the GPU
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
    /// New folder for the results
    #[arg(long, default_value = "gpu-check")]
    pub out: PathBuf,
    /// Continue the check in that folder: complete steps are not repeated
    #[arg(long)]
    pub resume: bool,
    /// Only these steps, even if complete: device, kernels, answers, clock, streams, budgets,
    /// cameras, networks, interference, sharing, growth, hang, loss
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Seconds for the whole check; less time shortens the measurements, not the limits of steps
    #[arg(long, default_value_t = WHOLE_S)]
    pub seconds: f64,
    /// Number of the GPU, as in `nvidia-smi`
    #[arg(long, default_value_t = 0)]
    pub ordinal: u32,
    /// Change no setting of the machine: skip the time slices of `sharing`, which are otherwise
    /// restored
    #[arg(long)]
    pub leave_settings: bool,
}

/// `takt gpu kernels`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::GPU_KERNELS)]
pub struct GpuKernels {
    /// Folder for the kernels; those of other compiler versions stay
    pub folder: PathBuf,
}
