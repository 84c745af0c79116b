//! The takt command line: parses, wires, prints. Everything it does is in the libraries.

// First: its macros are those of all files below.
#[macro_use]
mod out;

mod args;
mod commands;
mod ending;
mod print;
mod registry;

use std::process::ExitCode;

use clap::Parser;

use args::bench::BenchRobot;
use args::{Args, Command};

/// Variables that a user sets to choose libraries, worth a word when they are not believed.
const LOADS: [&str; 4] = ["ORT_DYLIB_PATH", "VIRTUAL_ENV", "TAKT_CUDA_LIBRARY", "TAKT_NVRTC_LIBRARY"];

fn main() -> ExitCode {
    // Whoever starts a binary with capabilities must not choose what it loads and runs.
    // SAFETY: no other thread has been started yet.
    let dropped = unsafe { takt_files::environment::drop_untrusted() };
    if dropped.iter().any(|name| LOADS.iter().any(|loads| name == loads)) {
        eprintln!(
            "takt: this binary has capabilities from its file, so the environment does not say what it loads or runs: {} and \
             PATH are not believed",
            LOADS.join(", ")
        );
    }
    // In a guest of `takt kernels`, this program is the first process.
    if takt_kernels::guest::is_init() {
        takt_kernels::guest::run();
    }
    // Whatever changes the machine for a run has this program undo it when the run is killed.
    takt_reserve::pin::undo_after_a_kill_with(takt_robot_ros::watchdog_command);
    let args = Args::parse();
    let result = match args.command {
        Command::Run(run) => commands::run::run(&run),
        Command::Bench { robot: BenchRobot::Cell(bench) } => commands::bench::run(&bench),
        Command::Bench { robot: BenchRobot::Daq(bench) } => commands::bench_daq::run(&bench),
        Command::Bench { robot: BenchRobot::Humanoid(bench) } => commands::bench_humanoid::run(&bench),
        Command::Bench { robot: BenchRobot::Uav(bench) } => commands::bench_uav::run(&bench),
        Command::Bench { robot: BenchRobot::Gpu(bench) } => commands::bench_gpu::run(&bench),
        Command::Campaign { what } => commands::campaign::run(&what),
        Command::Kernels { what } => commands::kernels::run(&what),
        Command::Compare(compare) => commands::compare::run(&compare),
        Command::Export(export) => commands::export::run(&export),
        Command::Doctor(doctor) => commands::doctor::run(&doctor),
        Command::Trace(trace) => commands::trace::run(&trace),
        Command::Report(report) => commands::report::run(&report),
        Command::Demo(demo) => commands::demo::run(&demo),
        Command::Check { config } => commands::check::run(&config),
        Command::Record(record) => commands::record::run(&record),
        Command::Background(background) => commands::background::run(&background),
        Command::Segment(segment) => commands::segment::run(&segment),
        Command::Ethercat { what } => commands::ethercat::run(&what),
        Command::Simulate(simulate) => commands::simulate::run(&simulate),
        Command::Bench { robot: BenchRobot::Faults(bench) } => commands::bench_faults::run(&bench),
        Command::Bench { robot: BenchRobot::Manager(bench) } => commands::bench_manager::run(&bench),
        Command::Manage(manage) => commands::manage::run(&manage),
        Command::Workload(workload) => commands::workload::run(&workload),
        Command::Clock(clock) => commands::clock::run(&clock),
        Command::Completions { shell } => commands::completions::completions(shell),
        Command::Man { page } => commands::completions::man(page.as_deref()),
        Command::GpuLoad { config } => Ok(takt_gpu::interference_process::run(&config)),
        Command::DaqFarEnd => Ok(takt_robot_daqloop::lab::far_end()),
        Command::PerceptionWorker => Ok(takt_lab::cell::perception_worker()),
    };
    out::finish(result.unwrap_or_else(|error| {
        eprintln!("takt: {}", takt_files::shortened(&error.to_string()));
        ExitCode::from(2)
    }))
}
