//! The takt command line: parses, wires, prints. Everything it does is in the libraries.

// A program with fewer robots leaves out commands, and what only they use.
#![cfg_attr(
    not(all(
        feature = "cell",
        feature = "uav",
        feature = "daq",
        feature = "humanoid",
        feature = "servo",
        feature = "ros"
    )),
    allow(dead_code, unused_imports)
)]

// First: its macros are those of all files below.
#[macro_use]
mod out;

mod args;
mod bounds;
mod commands;
mod ending;
mod mistake;
mod print;
mod registry;
mod version;

use std::process::ExitCode;

#[cfg(any(feature = "cell", feature = "uav", feature = "daq", feature = "humanoid", feature = "ros"))]
use args::bench::BenchRobot;
use args::{Args, Command};
use clap::error::ErrorKind;
use registry::ROBOTS;
use takt_lab::shipped;

/// Variables that a user sets to choose libraries, worth a word when they are not believed.
const LOADS: [&str; 5] =
    ["ORT_DYLIB_PATH", "VIRTUAL_ENV", "TAKT_CUDA_LIBRARY", "TAKT_NVRTC_LIBRARY", "TAKT_GPU_KERNELS"];

#[global_allocator]
static ALLOCATOR: bounds::Allocator = bounds::Allocator;

fn main() -> ExitCode {
    if let Err(error) = takt_files::rights::settle() {
        eprintln!("takt: the rights of this program's file could not be given up: {error}");
        return ExitCode::from(2);
    }
    // The caller of a binary with capabilities must not choose the libraries and programs that it
    // loads and runs. SAFETY: no other thread has been started yet.
    let dropped = unsafe { takt_files::environment::drop_untrusted() };
    if dropped.iter().any(|name| LOADS.iter().any(|loads| name == loads)) {
        eprintln!(
            "takt: this binary has file capabilities, so it ignores {} and PATH from the environment",
            LOADS.join(", ")
        );
    }
    // In a guest of `takt kernels`, this program is the first process.
    if takt_kernels::guest::is_init() {
        takt_kernels::guest::run();
    }
    bounds::with_stack(command)
}

/// The command line, or the end of the process with what is wrong with it.
fn parsed() -> Args {
    let error = match mistake::parse() {
        Ok(args) if !args.verbose => return args,
        Ok(_) => <Args as clap::CommandFactory>::command()
            .error(ErrorKind::ArgumentConflict, "--verbose goes with --version: takt --version --verbose"),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::DisplayVersion && std::env::args_os().any(|word| word == "--verbose") {
        print!("{}", version::in_full());
        std::process::exit(0);
    }
    let message = error.render().to_string();
    let plain = mistake::in_plain_words(&message);
    let short = takt_files::shortened(plain.as_deref().unwrap_or(&message));
    // Help and usual errors keep their colours.
    if !error.use_stderr() || short == message {
        error.exit();
    }
    eprintln!("{}", short.trim_end());
    std::process::exit(error.exit_code())
}

/// Whether a command only reads files, so that it may end anywhere.
fn only_reads(command: &Command) -> bool {
    match command {
        Command::Compare(_)
        | Command::History(_)
        | Command::Gate(_)
        | Command::Export(_)
        | Command::Report(_) => true,
        Command::Check { .. } | Command::Robots(_) => true,
        Command::Trace(trace) => trace.file.is_some(),
        _ => false,
    }
}

fn command() -> ExitCode {
    // Whatever changes the machine for a run has this program undo it when the run is killed.
    takt_host::reserve::pin::undo_after_a_kill_with(takt_lab::watchdog_command);
    let args = parsed();
    if only_reads(&args.command) {
        bounds::may_end();
    }
    let result = match args.command {
        Command::New(new) => commands::new::run(&new),
        Command::Run(run) => commands::run::run(&run),
        #[cfg(feature = "cell")]
        Command::Bench { robot: BenchRobot::Cell(bench) } => commands::bench::run(&bench),
        #[cfg(feature = "daq")]
        Command::Bench { robot: BenchRobot::Daq(bench) } => commands::bench_daq::run(&bench),
        #[cfg(feature = "humanoid")]
        Command::Bench { robot: BenchRobot::Humanoid(bench) } => commands::bench_humanoid::run(&bench),
        #[cfg(feature = "uav")]
        Command::Bench { robot: BenchRobot::Uav(bench) } => commands::bench_uav::run(&bench),
        #[cfg(feature = "cell")]
        Command::Bench { robot: BenchRobot::Gpu(bench) } => commands::bench_gpu::run(&bench),
        Command::Campaign { what } => commands::campaign::run(&what),
        Command::Kernels { what } => commands::kernels::run(&what),
        Command::Compare(compare) => commands::compare::run(&compare),
        Command::Events(events) => commands::events::run(&events),
        Command::Runs { what } => commands::runs::run(&what),
        Command::History(history) => commands::history::run(&history),
        Command::Gate(gate) => commands::gate::run(&gate),
        #[cfg(feature = "store")]
        Command::Store { what } => commands::store::run(&what),
        Command::Export(export) => commands::export::run(&export),
        Command::Doctor(doctor) => commands::doctor::run(&doctor),
        Command::Trace(trace) => commands::trace::run(&trace),
        Command::Watch(watch) => commands::watch::run(&watch),
        Command::Tune(tune) => commands::tune::run(&tune),
        Command::Report(report) => commands::report::run(&report),
        #[cfg(feature = "cell")]
        Command::Demo(demo) => commands::demo::run(&demo),
        Command::Check { config } => commands::check::run(&config),
        Command::Robots(listing) => commands::listing::run(&listing, shipped::robots(&ROBOTS), "robot"),
        #[cfg(feature = "ros")]
        Command::Goals(listing) => commands::listing::run(&listing, shipped::goals(&ROBOTS), "goals file"),
        #[cfg(feature = "cell")]
        Command::Record(record) => commands::record::run(&record),
        #[cfg(feature = "cell")]
        Command::Background(background) => commands::background::run(&background),
        #[cfg(feature = "humanoid")]
        Command::Segment(segment) => commands::segment::run(&segment),
        #[cfg(feature = "humanoid")]
        Command::Ethercat { what } => commands::ethercat::run(&what),
        Command::Simulate(simulate) => commands::simulate::run(&simulate),
        #[cfg(feature = "cell")]
        Command::Bench { robot: BenchRobot::Faults(bench) } => commands::bench_faults::run(&bench),
        #[cfg(feature = "ros")]
        Command::Bench { robot: BenchRobot::Manager(bench) } => commands::bench_manager::run(&bench),
        #[cfg(feature = "ros")]
        Command::Manage(manage) => commands::manage::run(&manage),
        #[cfg(not(feature = "ros"))]
        Command::Manage { watchdog } => commands::watchdog::run(&watchdog),
        #[cfg(feature = "ros")]
        Command::Workload(workload) => commands::workload::run(&workload),
        #[cfg(feature = "ros")]
        Command::Clock(clock) => commands::clock::run(&clock),
        #[cfg(feature = "cell")]
        Command::Gpu { what } => commands::gpu::run(&what),
        Command::Completions { shell } => commands::completions::completions(shell),
        Command::Man { out: Some(folder), .. } => commands::completions::all_pages(&folder),
        Command::Man { page, .. } => commands::completions::man(page.as_deref()),
        #[cfg(feature = "gpu")]
        Command::GpuLoad { config } => Ok(takt_gpu::interference_process::run(&config)),
        #[cfg(not(feature = "gpu"))]
        Command::GpuLoad { .. } => {
            takt_load::gpu::Line::Failed("this takt was built without the feature gpu".to_owned()).print();
            Ok(ExitCode::from(2))
        }
        Command::ProgramKeeper => Ok(takt_robot_program::keeper::serve()),
        #[cfg(feature = "daq")]
        Command::DaqFarEnd => Ok(takt_robot_daqloop::lab::far_end()),
        #[cfg(feature = "cell")]
        Command::PerceptionWorker => Ok(takt_robot_cell::lab::perception_worker()),
    };
    out::finish(result.unwrap_or_else(|error| {
        eprintln!("takt: {}", takt_files::shortened(&error.to_string()));
        ExitCode::from(2)
    }))
}
