//! Perception on a CUDA device: the frame goes up, one stream per camera does the rest, small
//! results come back.
//!
//! [`GpuPerception`] is one camera on a stream of its own, [`GpuBatch`] several on one. Both give
//! what [`Perception`](crate::Perception) gives: tracks, order and safety are the same code, and
//! kernels are counterparts of the CPU's stages, so that geometry is equal to the bit and only
//! networks may differ in their last digits.
//!
//! On the host stay: health, suppression of overlapping boxes, tracks, and the choice of people.
//! They read counts, a list of blobs and candidates, coverages, and one record for each object.

mod captured;
mod kernels;
mod layout;
mod load;
mod network;
mod perception;
mod plan;
mod probe;
mod rig;
mod stages;
mod state;
mod times;

use takt_gpu::{GpuError, Pinned, Source, Stream, Wait, Waited};

pub use load::Progress;
pub use perception::{BatchFrame, GpuBatch, GpuFrame, GpuPerception};
pub use times::DeviceTimes;

use crate::config::ConfigError;
use crate::engine::EngineError;
use crate::error::PerceptionError;

/// The kernels, compiled for the device that is there. Without fused multiplications: roundings are
/// the CPU's.
pub const KERNELS: Source =
    Source { name: "perception", text: include_str!("kernels.cu"), options: &["--fmad=false"] };

/// Reason why the device did not answer.
#[derive(Debug, thiserror::Error)]
pub enum GpuPerceptionError {
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A network, or the library that runs it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The camera's intrinsics.
    #[error(transparent)]
    Perception(PerceptionError),
    /// The budget ended first. The device goes on; a later frame waits for it.
    #[error("the GPU did not finish within the budget, waiting for: {stage}")]
    Overrun { stage: &'static str },
    /// More separate things than the device distinguishes.
    #[error(
        "{found} separate objects in the monitored volume; the GPU reports at most {limit}. This frame needs the CPU; if it happens often, \
         depth is noisy or `occupancy.min_area_m2` is too small"
    )]
    TooManyPieces { found: usize, limit: usize },
    /// Host and kernels disagree about the memory between them.
    #[error(
        "kernels and program have different data layouts (sizes {expected} and {found}): remove the kernel cache"
    )]
    Layout { expected: String, found: String },
    /// A network's inference, captured, answers otherwise than the network.
    #[error("{model} as a CUDA graph: {reason}")]
    Graph { model: String, reason: String },
    /// A cache of engines cannot be made.
    #[error(
        "cannot use {path} for TensorRT engines: {reason}. Set `perception.gpu.engine_cache` to one of your folders"
    )]
    Cache { path: String, reason: String },
}

impl From<PerceptionError> for GpuPerceptionError {
    fn from(error: PerceptionError) -> Self {
        match error {
            PerceptionError::Config(error) => Self::Config(error),
            PerceptionError::Engine(error) => Self::Engine(error),
            error => Self::Perception(error),
        }
    }
}

/// Consequence of an error for the following frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Only this frame: the next one may be tried.
    Frame,
    /// The budget ended first; the device may still be working.
    Late,
    /// The device is lost to this process: a fresh one is needed.
    Lost,
    /// There is no device to work with, or the configuration is wrong: trying again changes
    /// nothing.
    Setup,
}

impl GpuPerceptionError {
    /// Its consequence for the following frames.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Gpu(error) if error.is_lost() => Severity::Lost,
            Self::Gpu(error) if error.is_absent() => Severity::Setup,
            Self::Gpu(GpuError::Compile { .. } | GpuError::NoFunction { .. }) => Severity::Setup,
            Self::Gpu(_) | Self::TooManyPieces { .. } => Severity::Frame,
            Self::Engine(EngineError::Run(_)) => Severity::Frame,
            Self::Overrun { .. } => Severity::Late,
            Self::Engine(_) | Self::Config(_) | Self::Perception(_) => Severity::Setup,
            Self::Layout { .. } | Self::Cache { .. } | Self::Graph { .. } => Severity::Setup,
        }
    }
}

/// A frame whose pixels the device copies from where they lie (memory made known to it, for example
/// shared between processes), without the copy through pinned memory of perception's own.
#[derive(Clone, Copy, Debug)]
pub struct Resident<'a> {
    pub memory: &'a Pinned<u8>,
    /// Offset of the R G B bytes.
    pub rgb_at: usize,
    /// Offset of depth, bytes.
    pub depth_at: usize,
}

/// Waits as long as it takes: nothing waits for an answer at the start.
fn settle(stream: &Stream) -> Result<(), GpuPerceptionError> {
    match stream.drain(u64::MAX, Wait::Block)? {
        Waited::Done => Ok(()),
        Waited::Overrun => Err(GpuPerceptionError::Overrun { stage: "start" }),
    }
}

#[cfg(test)]
mod tests;
