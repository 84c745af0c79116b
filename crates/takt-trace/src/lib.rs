//! Kernel traces: activation paths, the cause of every late release, Perfetto export.
//!
//! ```no_run
//! use takt_trace::{TraceOptions, Tracer, analyse};
//! # fn run() -> (i32, Vec<takt_rt::jobs::JobRecord>) { (0, Vec::new()) }
//!
//! let tracer = Tracer::start(&TraceOptions::default())?;
//! let (tid, jobs) = run(); // the real-time loop, its thread id and its job records
//! let trace = tracer.stop()?;
//! let report = analyse(&trace, tid, &jobs)?;
//! for row in &report.causes {
//!     println!("{} {}: {} times, worst {} us", row.cause.title(), row.who, row.count, row.worst_us);
//! }
//! # Ok::<(), takt_trace::TraceError>(())
//! ```

pub mod analysis;
pub mod bpf;
pub mod calls;
pub mod capture;
pub mod counters;
mod error;
pub mod event;
pub mod follow;
pub mod format;
pub mod offline;
pub mod overhead;
pub mod perfetto;
pub mod probe;
mod tracefs;

pub use analysis::{Cause, Thresholds, TraceReport, analyse, analyse_with, held_up, woken_late};
pub use capture::{KeepAwake, Marker, TraceOptions, Tracer, Watched, helper_process};
pub use error::TraceError;
pub use event::{Clock, ClockMap, Event, Kind, Trace};
pub use format::{Decoder, Format};
