//! The DAQ control loop: a pulse train from an analog output to an analog input, the latency of
//! every edge, and controllers inside the loop (Khodaparast and Ghiti Sarand, "An Experimental
//! Analysis of the Latency of Linux Kernels Applicable for Real-Time Control Strategies", IJEEE
//! 2026).
//!
//! Two tasks, as in the paper: *acquisition* writes a level, reads until it arrives, times both,
//! runs the controller, and begins again ([`DaqLoop`], the paper's Algorithm 1); *saving* takes
//! what was measured and keeps and shows it ([`saving`]). Between them there is a ring, so
//! acquisition never waits. The controllers steer a plant through the link: it is simulated at the
//! link's far end, in a process of its own and in real time ([`plant`]), so that lateness shows as
//! control error. [`lab`] makes it a robot of the lab.

mod acquisition;
mod config;
pub mod control;
mod daq;
mod error;
mod error_meter;
mod file;
pub mod lab;
pub mod plant;
mod record;
pub mod saving;

pub use config::{AcquisitionConfig, DisplayRule, PulseClock, PulseConfig, SavingConfig, Stamp, Writes};
pub use daq::{DaqLoop, DaqOutcome, Stopper};
pub use error::DaqError;
pub use file::{DaqConfig, Losses, SHIPPED, StopRules};
pub use record::{EdgeRecord, Ended, SteadyState, Totals, Tracking};
