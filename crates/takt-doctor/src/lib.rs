//! Finds what makes a machine unfit for real time, with evidence and the fix.
//!
//! ```no_run
//! use takt_doctor::{Options, examine};
//!
//! let report = examine(&Options::default())?;
//! println!("{}", report.to_text());
//! # Ok::<(), takt_doctor::DoctorError>(())
//! ```

mod change;
mod clocks;
mod cpus;
mod error;
mod examine;
mod gaps;
mod gpu;
mod interrupts;
mod kernel;
mod measure;
mod memory;
mod network;
mod report;
mod rights;
mod text;
mod threads;
mod tree;

pub use change::{Change, Changed, apply, default_state, revert};
pub use error::DoctorError;
pub use examine::{Options, examine};
pub use gaps::{CpuGaps, GapOptions};
pub use report::{Check, Report, Status};

/// Tests that measure the machine starve each other: one at a time.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
