//! One file a command.

#[cfg(feature = "cell")]
pub mod background;
#[cfg(feature = "cell")]
pub mod bench;
#[cfg(feature = "daq")]
pub mod bench_daq;
#[cfg(feature = "cell")]
pub mod bench_faults;
#[cfg(feature = "cell")]
pub mod bench_gpu;
#[cfg(feature = "humanoid")]
pub mod bench_humanoid;
#[cfg(feature = "ros")]
pub mod bench_manager;
#[cfg(feature = "uav")]
pub mod bench_uav;
pub mod campaign;
pub mod check;
mod child;
#[cfg(feature = "ros")]
pub mod clock;
pub mod compare;
pub mod completions;
#[cfg(feature = "cell")]
pub mod demo;
pub mod doctor;
#[cfg(feature = "humanoid")]
pub mod ethercat;
pub mod events;
pub mod export;
mod failed;
pub mod gate;
#[cfg(feature = "cell")]
pub mod gpu;
pub mod history;
pub mod kernels;
#[cfg(feature = "ros")]
pub mod learn;
pub mod listing;
#[cfg(feature = "ros")]
pub mod manage;
pub mod new;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "ros")]
mod outputs;
#[cfg(feature = "store")]
pub mod query;
#[cfg(feature = "cell")]
pub mod record;
pub mod report;
mod rights;
pub mod run;
pub mod runs;
#[cfg(feature = "humanoid")]
pub mod segment;
mod service;
pub mod simulate;
#[cfg(feature = "store")]
pub mod store;
mod tidy;
pub mod trace;
pub mod tune;
mod tune_guests;
pub mod watch;
pub mod watchdog;
#[cfg(feature = "ros")]
pub mod workload;

use std::process::ExitCode;

pub use crate::ending::flag as stop_flag;

/// Result of a command.
pub type CommandResult = Result<ExitCode, Box<dyn std::error::Error>>;
