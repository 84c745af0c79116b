//! Real-time primitives: policy, placement, memory, periodic loops, exchange buffers, job records.
//!
//! A loop of 1 kHz with its records:
//!
//! ```
//! # use std::time::Duration;
//! use takt_rt::clock::monotonic_ns;
//! use takt_rt::jobs::{JobCollector, JobRecord, MemorySink};
//! use takt_rt::periodic::{Periodic, SleepStrategy};
//! use takt_rt::settings::ThreadSettings;
//!
//! let collector = JobCollector::start(MemorySink::default(), Duration::from_millis(10))?;
//! let mut recorder = collector.recorder("control", 4096);
//! let settings = ThreadSettings { policy: "fifo:80".parse()?, ..ThreadSettings::default() };
//! let control = takt_rt::thread::spawn("control", &settings, move || -> Result<(), takt_rt::Error> {
//!     let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel)?;
//!     for _ in 0..5 {
//!         let release = periodic.next();
//!         let start_ns = monotonic_ns();
//!         // read the newest inputs, decide, command
//!         recorder.push(JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) });
//!     }
//!     Ok(())
//! })?;
//! for difference in &control.granted().differences {
//!     eprintln!("control: {difference}");
//! }
//! control.join()??;
//! assert_eq!(collector.stop()?.sink.tasks[0].records.len(), 5);
//! # Ok::<(), takt_rt::Error>(())
//! ```

#![deny(missing_docs)]

pub mod bpf;
pub mod census;
pub mod child;
pub mod clock;
pub mod config;
pub mod cpus;
pub mod duration;
pub mod endings;
mod error;
pub mod exchange;
pub mod jobs;
pub mod kernel_file;
pub mod latency;
pub mod memory;
pub mod mount;
pub mod net;
pub mod offline;
pub mod oom;
pub mod packet;
pub mod perf_ring;
pub mod periodic;
pub mod pi_mutex;
pub mod placement;
pub mod policy;
pub mod probe;
pub mod processor;
pub mod procfs;
pub mod proof;
pub mod ran_on;
pub mod random;
pub mod ring;
pub mod settings;
pub mod signal;
mod sync;
mod sys;
pub mod thread;

pub use error::{Cause, Error};
pub use sys::soft_limit;
