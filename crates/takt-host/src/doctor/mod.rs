//! Finds what makes a machine unfit for real time, with evidence and the fix.
//!
//! ```no_run
//! use takt_host::doctor::{Options, examine};
//!
//! let report = examine(&Options::default())?;
//! println!("{}", report.to_text());
//! # Ok::<(), takt_host::doctor::DoctorError>(())
//! ```

mod cache;
mod change;
mod clocks;
mod cpus;
mod error;
mod examine;
mod gaps;
mod gpu;
mod interrupts;
pub mod journal;
mod kernel;
mod measure;
mod memory;
mod network;
mod options;
mod processor;
mod report;
pub mod rights;
pub mod setting;
mod text;
mod threads;
mod tree;
mod tuned;

pub use cache::{CacheWaysError, offered as cache_ways_offered};
pub use change::{Change, Changed, apply, default_state, may_change, revert};
pub use error::DoctorError;
pub use examine::examine;
pub use gaps::{CpuGaps, GapOptions};
pub use interrupts::mask;
pub use journal::Journal;
pub use options::Options;
pub use report::{Check, Report, Status};
pub use setting::{Action, Scope, Setting};
pub use tuned::{Tuned, apply_tuned};

/// Tests that measure the machine starve each other: one at a time.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
