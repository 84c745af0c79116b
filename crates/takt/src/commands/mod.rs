//! One file a command.

pub mod background;
pub mod bench;
pub mod bench_daq;
pub mod bench_faults;
pub mod bench_gpu;
pub mod bench_humanoid;
pub mod bench_manager;
pub mod bench_uav;
pub mod campaign;
pub mod check;
mod child;
pub mod clock;
pub mod compare;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod ethercat;
pub mod export;
mod failed;
pub mod kernels;
pub mod learn;
pub mod manage;
mod outputs;
pub mod record;
pub mod report;
pub mod run;
pub mod segment;
pub mod simulate;
mod tidy;
pub mod trace;
pub mod workload;

use std::process::ExitCode;

pub use crate::ending::flag as stop_flag;

/// What a command ends with.
pub type CommandResult = Result<ExitCode, Box<dyn std::error::Error>>;
