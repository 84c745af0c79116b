//! `takt gpu`: what can be had of a GPU before it is used, in one run, and kernels compiled for
//! machines without a compiler.

use std::path::Path;
use std::process::{Command, ExitCode};

use takt_gpu::check::runner::{Outcome, Plan, RunnerOptions, SUMMARY, run as run_steps};
use takt_gpu::check::step::{Step, StepError, run as run_step};
use takt_gpu::check::{CHECK_KERNELS, steps};
use takt_gpu::interference::INTERFERENCE_KERNELS;
use takt_gpu::{Compiler, Source, prebuilt};
use takt_robot_cell::lab::gpu_check as cell;

use super::{CommandResult, stop_flag};
use crate::args::gpu::{Gpu, GpuCheck, GpuKernels};

/// In the order of the check. Limits together are at most nine minutes.
const STEPS: &[Plan] = &[
    plan("device", "driver, compilers and device, as they report themselves", 20.0, 1.0),
    plan("kernels", "every kernel compiled and loaded; results against the CPU's", 50.0, 1.0),
    plan(
        "answers",
        "perception compared with the CPU's, on random scenes and the shipped recording",
        50.0,
        24.0,
    ),
    plan("clock", "the device's clock against this machine's", 20.0, 5.0),
    plan("streams", "priorities, order, graphs, and the cost of launching and waiting", 35.0, 15.0),
    plan("budgets", "waiting with budgets under interference, and late work", 35.0, 15.0),
    plan("cameras", "five cameras at 30 and 90 FPS through geometry", 65.0, 40.0),
    plan("networks", "five cameras at 30 and 90 FPS through networks", 75.0, 40.0),
    plan("interference", "other work on the device, with and without mitigations", 65.0, 45.0),
    plan(
        "sharing",
        "another program on the device: taking turns, in short time slices, and under MPS with limits",
        35.0,
        12.0,
    ),
    plan("growth", "the device's memory, for the remaining time", 20.0, 0.0),
    plan("hang", "a kernel that never ends", 35.0, 1.0),
    plan("loss", "a lost context, and a killed perception process", 35.0, 1.0),
];

const fn plan(name: &'static str, about: &'static str, limit_s: f64, work_s: f64) -> Plan {
    Plan { name, about, limit_s, work_s }
}

/// Every source of kernels in this program.
const SOURCES: [&Source; 3] = [&CHECK_KERNELS, &INTERFERENCE_KERNELS, &takt_perception::gpu::KERNELS];

/// Devices that kernels are compiled for beforehand: A100, L4 and L40, H100 and H200.
const CAPABILITIES: [(u32, u32); 3] = [(8, 0), (8, 9), (9, 0)];

pub fn run(what: &Gpu) -> CommandResult {
    match what {
        Gpu::Check(args) => check(args),
        Gpu::Kernels(args) => kernels(args),
        Gpu::Step { name, seconds, ordinal, leave_settings } => {
            let complete = run_step(*ordinal, *seconds, |step| body(name, step, *leave_settings));
            // Without destructors: those of a device that hangs wait for it.
            std::process::exit(i32::from(!complete));
        }
    }
}

fn body(name: &str, step: &mut Step<'_>, leave_settings: bool) -> Result<(), StepError> {
    let ordinal = step.ordinal;
    let program = std::env::current_exe().map_err(|error| StepError::Failed(error.to_string()))?;
    let own = |name: &str| command(&program, name, 1.0, ordinal);
    let child = |name: &str, seconds: f64| command(&program, name, seconds, ordinal);
    match name {
        "device" => steps::device(step),
        "kernels" => steps::kernels(step, &[&takt_perception::gpu::KERNELS]),
        "answers" => cell::answers(step),
        "clock" => steps::clock(step),
        "streams" => steps::streams(step),
        "budgets" => steps::budgets(step),
        "cameras" => cell::geometry_cameras(step),
        "networks" => cell::network_cameras(step),
        "interference" => cell::interference(step, &child),
        "turns-child" => cell::turns_child(step),
        "limits-child" => cell::limits_child(step),
        "sharing" => cell::sharing(step, &child, leave_settings),
        "sharing-child" => cell::sharing_child(step),
        "growth" => cell::growth(step),
        "hang" => steps::after_hang(step, &own),
        "loss" => {
            steps::after_loss(step, &own)?;
            cell::killed_worker(step)
        }
        "hang-child" => steps::hang_child(step),
        "loss-child" => steps::loss_child(step),
        name => Err(StepError::Failed(format!("there is no step {name}"))),
    }
}

/// The process of a step.
fn command(program: &Path, name: &str, seconds: f64, ordinal: u32) -> Command {
    let mut command = Command::new(program);
    command.args(["gpu", "step", name, "--seconds", &seconds.to_string(), "--ordinal", &ordinal.to_string()]);
    command
}

fn check(args: &GpuCheck) -> CommandResult {
    let program = std::env::current_exe()?;
    let options = RunnerOptions {
        out: args.out.clone(),
        resume: args.resume,
        only: args.only.clone(),
        seconds: args.seconds,
        ordinal: args.ordinal,
        leave_settings: args.leave_settings,
    };
    let bytes = std::fs::metadata(&program)?.len();
    let reports = run_steps(
        STEPS,
        &options,
        &format!("{bytes} bytes"),
        &|step, work_s| {
            let mut command = command(&program, step.name, work_s, args.ordinal);
            command.args(args.leave_settings.then_some("--leave-settings"));
            command
        },
        &mut |text| eprintln!("{text}"),
        &*stop_flag()?,
    )?;
    println!("{}", std::fs::read_to_string(args.out.join(SUMMARY))?);
    let failed = reports.iter().any(|report| matches!(report.outcome, Outcome::Failed | Outcome::TimedOut));
    Ok(ExitCode::from(u8::from(failed)))
}

fn kernels(args: &GpuKernels) -> CommandResult {
    let compilers = Compiler::all();
    if compilers.is_empty() {
        // Says what was looked for.
        Compiler::open()?;
    }
    for compiler in &compilers {
        let (major, minor) = compiler.version();
        for entry in prebuilt::build(compiler, &SOURCES, &CAPABILITIES, &args.folder)? {
            println!("{entry}: {}", args.folder.join(&entry.file).display());
        }
        eprintln!("NVRTC {major}.{minor} ({})", compiler.path().display());
    }
    println!("Copy the folder to the robot, and set {}={}", prebuilt::VARIABLE, args.folder.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_gpu::check::runner::WHOLE_S;

    #[test]
    fn the_limits_leave_time_for_growth_within_nine_minutes() {
        let limits: f64 = STEPS.iter().map(|step| step.limit_s).sum();
        assert!(limits <= WHOLE_S, "{limits}");
        assert_eq!(STEPS.iter().filter(|step| step.work_s == 0.0).count(), 1);
        for step in STEPS {
            // Opening, compiling and ending come on top of measuring.
            assert!(step.limit_s >= step.work_s + 15.0, "{}", step.name);
        }
    }
}
