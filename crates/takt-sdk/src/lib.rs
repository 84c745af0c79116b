//! Your own real-time loop, measured and judged by Takt: it declares itself, waits for its
//! releases on an absolute grid, and records each job in shared memory, where `takt run` and `takt
//! watch` find it.
//!
//! ```no_run
//! use std::time::Duration;
//! use takt_sdk::{Loop, ThreadSettings};
//!
//! let settings = ThreadSettings { policy: Some("fifo:80".parse()?), ..Default::default() };
//! for difference in settings.apply()?.differences {
//!     eprintln!("{difference}"); // what the kernel did not grant, and how to get it
//! }
//! let mut control = Loop::periodic("control", Duration::from_millis(2)).open()?;
//! loop {
//!     control.wait()?; // sleeps until the release, begins the job
//!     control.stage("sense")?;
//!     // …
//!     control.stage("act")?;
//!     // …
//!     control.value(0.01)?; // the control error
//!     control.end()?;
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), takt_sdk::Error>(())
//! ```
//!
//! - [`Loop`]: periodic and driven loops, stages, values of interest;
//! - [`ThreadSettings`]: policy, CPUs, locked and prefaulted memory, with what was granted;
//! - [`exchange()`]: the newest value from one thread to another, wait-free;
//! - [`PiMutex`]: a lock with priority inheritance;
//! - [`layout`]: the shared memory, byte by byte.
//!
//! **On the real-time path** ([`Loop::wait`] to [`Loop::end`], [`exchange::Writer`],
//! [`exchange::Reader`]) nothing is allocated, no lock is taken, and no system call is made but to
//! read the clock and to sleep. Without a session of Takt, a record costs a load and a branch. A
//! full ring loses records and counts them; it never blocks.
//!
//! **fork**: a child inherits no loop. What it calls on its parent's loops records nothing, and it
//! may open loops of its own.
//!
//! The same core has a C face (`takt.h`), a C++ face (`takt.hpp`) and a Python module (`takt`).

#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

#[cfg(not(loom))]
mod error;
pub mod exchange;
pub mod layout;
#[cfg(not(loom))]
mod looping;
#[cfg(not(loom))]
mod mutex;
#[cfg(not(loom))]
mod region;
pub mod ring;
mod sync;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use error::Error;
pub use exchange::exchange;
#[cfg(not(loom))]
pub use looping::{Builder, Loop, Release};
#[cfg(not(loom))]
pub use mutex::{PiGuard, PiMutex, RawMutex};
#[cfg(not(loom))]
pub use system::now_ns;
#[cfg(not(loom))]
pub use thread::{Cpus, Difference, Granted, LockMemory, Policy, Setting, ThreadSettings};
