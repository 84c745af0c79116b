//! A CUDA device under control: streams with priorities, waiting under a budget, graphs, the
//! device's clock mapped onto CLOCK_MONOTONIC, and interference to measure it all against.
//!
//! The driver is opened at run time, so that a program with this crate builds and runs unchanged
//! where there is no CUDA: [`Gpu::open`] then returns one sentence. Device work cannot be
//! cancelled. Running work keeps its memory in use ([`Pinned::read`] and [`Pinned::write`] refuse,
//! freeing is postponed), whatever the waiting thread does.
//!
//! **What has run where.** All of it runs in the tests on an emulated device (feature `emulator`),
//! faults included: no driver, one too old, no device, memory that is full, kernels that hang, a
//! device that is lost. The real NVRTC compiles every kernel in the tests where it is installed.
//! [`check()`] measures on a GPU what a device has to keep; it has run on NVIDIA H200s, and the
//! book has what it found.
//!
//! **Not `cudarc`'s safe API** (0.19), only its declarations: no wait of it has a deadline, and
//! dropping memory waits for the device. Beside a kernel that hangs for 1.5 s on the emulated
//! device, giving up after 20 ms was followed by 1.48 s in the drop of pinned memory. A driver or a
//! symbol that is missing is a panic there.
//!
//! `TAKT_CUDA_LIBRARY` and `TAKT_NVRTC_LIBRARY` name the driver's and the compiler's library where
//! they are in unusual places. An emulated device is used if they name one, never otherwise, and
//! says so in [`Info::emulated`] and in its name. Without a run-time compiler, kernels compiled
//! elsewhere are taken from the folder in `TAKT_GPU_KERNELS` ([`prebuilt`]).
//!
//! ```no_run
//! use takt_gpu::{Arg, Gpu, Grid, Priority, Source, Wait, Waited};
//!
//! const SCALE: Source = Source {
//!     name: "scale",
//!     text: r#"extern "C" __global__ void scale(float* x, float by, int n) {
//!         int i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < n) x[i] *= by;
//!     }"#,
//!     options: &[],
//! };
//!
//! let gpu = Gpu::open(0)?;
//! let kernels = gpu.module(&SCALE)?;
//! let scale = kernels.function("scale")?;
//! let stream = gpu.stream(Priority::Critical)?;
//! let done = stream.event(true)?;
//! let mut host = gpu.pinned::<f32>(1000)?;
//! let device = gpu.buffer::<f32>(1000)?;
//!
//! host.write()?.fill(2.0);
//! stream.upload(&host, &device)?;
//! // SAFETY: `scale` takes a pointer to at least `n` floats, a float and an int.
//! unsafe {
//!     stream.launch(&scale, Grid::over(1000, 256), &[Arg::buffer(&device), Arg::value(0.5f32), Arg::value(1000i32)])?;
//! }
//! stream.download(&device, &host)?;
//! stream.record(&done)?;
//! match done.wait(takt_rt::clock::monotonic_ns() + 5_000_000, Wait::Spin)? {
//!     Waited::Done => assert_eq!(host.read()?[0], 1.0),
//!     Waited::Overrun => assert!(host.read().is_err(), "the device still writes there"),
//! }
//! # Ok::<(), takt_gpu::GpuError>(())
//! ```

mod api;
mod cache;
pub mod check;
pub mod clock;
mod error;
mod gpu;
mod graph;
pub mod interference;
pub mod interference_process;
mod kernel;
mod library;
mod memory;
pub mod mps;
mod nvrtc;
pub mod prebuilt;
pub mod sharing;
mod source;
pub mod spans;
mod stream;
#[cfg(feature = "emulator")]
pub mod testing;
mod timeline;
mod wait;

pub use check::{Check, CheckOptions, Requirement, check};
pub use clock::{Clock, Mapping, Stamp};
pub use error::{CudaVersion, GpuError};
pub use gpu::{Gpu, Info, Memory};
pub use graph::{Graph, Updated};
pub use interference::Interfering;
pub use kernel::{Arg, Function, Grid, Module};
pub use library::set_libraries;
pub use memory::{DeviceBuffer, HostMut, HostRef, Pinned};
pub use nvrtc::{Compiled, Compiler};
pub use source::Source;
pub use spans::{Span, SpanRecorder, Spans};
pub use stream::{Event, Stream};
pub use takt_load::gpu::{Interference, Priority};
pub use wait::{Wait, Waited};
