//! One file a command.

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
pub mod compare;
pub mod demo;
pub mod doctor;
pub mod export;
pub mod kernels;
pub mod manage;
pub mod record;
pub mod report;
pub mod run;
pub mod segment;
pub mod simulate;
pub mod trace;
pub mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a command ends with.
pub type CommandResult = Result<ExitCode, Box<dyn std::error::Error>>;

/// A flag that Ctrl-C and a polite kill set. A second Ctrl-C ends the process at once.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // First: end the process if the flag is set already. Then: set the flag.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
