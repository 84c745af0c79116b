//! Perception on a GPU: a worker process under a time budget, its circuit breaker and its
//! supervisor.
//!
//! A GPU can fail in ways that no thread survives: a context that is lost poisons its process, and
//! a call into the driver may never return. So the GPU lives in a **worker process**, and the cell,
//! which keeps people safe, never calls the driver:
//!
//! ```text
//!  cell                                            worker (takt perception-worker)
//!  perception-i ── Remote ── frame slots ────────► judge-i ── GpuPerception
//!      ▲   │         ▲       (shared memory)          │
//!      │   │ late?   └────── answer ◄─────────────────┘
//!      │   └► fallback (geometry, networks, nobody)
//!      └ breaker ◄── supervisor: kills, restarts, tries again
//! ```
//!
//! - [`Remote`] asks and waits until an absolute time. Later answers are discarded and counted, and
//!   the configured fallback answers instead.
//! - The [`Breaker`](breaker::Breaker) opens on overruns in a row, silence, a crash, a lost device;
//!   the camera's thread that sees it opens it at once. Then nobody asks until a fresh process has
//!   proved itself.
//! - The [`Supervisor`] is an ordinary thread that kills and restarts the worker in the background.
//! - Everything is in [`Record`]s for the run directory.

pub mod breaker;
mod channel;
mod event;
mod frame_judge;
mod futex;
mod gpu;
mod listen;
mod memory;
mod message;
mod planted;
mod region;
mod remote;
mod supervisor;
mod text;
mod wire;
pub mod worker;
mod worker_state;

pub use event::{EventKind, Record};
pub use frame_judge::{FrameJudge, JudgeError, PARTS, PixelMemory, Seen, Span, StageSpans};
pub use gpu::judges;
pub use message::{About, WorkerThread};
pub use planted::{FAULT_VARIABLE, Fault, Plan, PlanError, Planted};
pub use region::{Setup, read_image};
pub use remote::{Judged, Remote};
pub use supervisor::{Program, Started, Supervisor, WORKER_COMMAND, WorkerError, WorkerFacts};
pub use text::{MAX_TEXT, Text};
pub use wire::{Garbled, Outcome};
