//! Any program's loops, watched from outside: which of its threads are periodic or driven by an
//! input, how late they are, and whose fault that is. Nothing is added to the watched program;
//! everything comes from the kernel's events.
//!
//! ```text
//! takt-trace (parts of a capture; follow: wake-up to sleep) -> cycles (period, cycles) -> history (late ones judged by takt-trace)
//!   -> watcher (figures) -> report (JSON, screen, run directory)
//! ```
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use takt_watch::{Options, Settings, Target, TraceOptions, watch};
//!
//! let options = Options {
//!     target: Target::Process(4711),
//!     seconds: Some(10.0),
//!     settings: Settings::default(),
//!     expected: Default::default(),
//!     trace: TraceOptions::default(),
//! };
//! let report = watch(&options, &AtomicBool::new(false), None, &mut |_| {})?;
//! for thread in &report.threads {
//!     println!("{}: every {:?} us, {} late", thread.name, thread.period_us, thread.late);
//! }
//! # Ok::<(), takt_watch::WatchError>(())
//! ```

mod advice;
mod ahead;
mod allowance;
mod coarse;
mod cycle_feed;
pub mod cycles;
pub mod declared;
mod elf;
mod error;
mod go;
mod history;
pub mod link;
mod naming;
pub mod period;
pub mod python;
mod recur;
pub mod report;
pub mod rights;
pub mod rundir;
pub mod screen;
mod session;
mod spinning;
pub mod target;
pub mod watcher;
mod windows;

pub use ahead::{Ahead, look_ahead};
pub use cycle_feed::CycleFeed;
pub use error::WatchError;
pub use naming::label;
pub use report::{LoopKind, LoopReport, Report};
pub use rundir::Recording;
pub use session::{Found, Keep, Options, watch};
pub use takt_trace::TraceOptions;
pub use target::Target;
pub use watcher::{Expected, FollowBy, Settings, Watcher};
