//! The steps that need the device alone: what it is, its kernels, clock, streams, budgets, and what
//! is left of it after a hang and a loss.

mod budgets;
mod clock;
mod device;
mod ending;
mod kernels;
mod streams;

use takt_load::gpu::Priority;
use takt_rt::clock::monotonic_ns;

pub use budgets::budgets;
pub use clock::clock;
pub use device::device;
pub use ending::{Child, after_hang, after_loss, hang_child, loss_child};
pub use kernels::kernels;
pub use streams::streams;

use super::step::{Step, StepError};
use super::{CHECK_KERNELS, HUNG_NS};
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::kernel::{Arg, Function, Grid};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::wait::{Wait, Waited};

fn open(step: &mut Step<'_>) -> Result<Gpu, GpuError> {
    let gpu = Gpu::open(step.ordinal)?;
    step.device(gpu.info());
    Ok(gpu)
}

/// Waits for everything in `stream`; what does not end within [`HUNG_NS`] is an error that says at
/// what.
fn finish(stream: &Stream, what: &'static str) -> Result<(), GpuError> {
    match stream.drain(monotonic_ns() + HUNG_NS, Wait::Block)? {
        Waited::Done => Ok(()),
        Waited::Overrun => Err(hung(what)),
    }
}

fn hung(what: &'static str) -> GpuError {
    let reason = super::step::hung(what, HUNG_NS / 1_000_000_000);
    GpuError::System { what, reason }
}

/// Until this monotonic time, nanoseconds.
fn after(seconds: f64) -> u64 {
    monotonic_ns() + (seconds * 1e9) as u64
}

/// A kernel that works as long as it is instructed.
struct Busy {
    kernel: Function,
    out: DeviceBuffer<f32>,
    grid: Grid,
    /// Rounds of a millisecond.
    per_ms: f64,
}

impl Busy {
    /// Fills the device.
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let blocks = gpu.info().multiprocessors.max(1) * 8;
        let grid = Grid { blocks: [blocks, 1, 1], threads: [256, 1, 1], shared_bytes: 0 };
        let kernel = gpu.module(&CHECK_KERNELS)?.function("check_busy")?;
        let mut busy = Self { kernel, out: gpu.buffer(1)?, grid, per_ms: 1.0 };
        let stream = gpu.stream(Priority::Normal)?;
        busy.per_ms = per_ms(&stream, &mut |rounds| busy.rounds(&stream, rounds))?;
        Ok(busy)
    }

    fn rounds(&self, stream: &Stream, rounds: i32) -> Result<(), GpuError> {
        // SAFETY: as declared in the source; `out` has the one element that is written.
        unsafe { stream.launch(&self.kernel, self.grid, &[Arg::buffer(&self.out), Arg::value(rounds)]) }
    }

    /// Puts `ms` of work into `stream`.
    fn submit(&self, stream: &Stream, ms: f64) -> Result<(), GpuError> {
        self.rounds(stream, rounds(self.per_ms * ms))
    }
}

fn rounds(wanted: f64) -> i32 {
    wanted.clamp(1.0, 1e9) as i32
}

/// Number of rounds of `launch` that take a millisecond on the idle device.
fn per_ms(stream: &Stream, launch: &mut dyn FnMut(i32) -> Result<(), GpuError>) -> Result<f64, GpuError> {
    let (begin, end) = (stream.event(true)?, stream.event(true)?);
    let mut tried = 64;
    loop {
        stream.record(&begin)?;
        launch(tried)?;
        stream.record(&end)?;
        finish(stream, "a kernel of some rounds")?;
        let took_ns = end.since(&begin)?.max(1) as f64;
        if took_ns >= 500_000.0 || tried >= 1 << 24 {
            return Ok((f64::from(tried) * 1e6 / took_ns).max(1.0));
        }
        tried *= 4;
    }
}

/// A failure that is not the device's.
fn not_run(why: impl Into<String>) -> StepError {
    StepError::NotRun(why.into())
}
