//! `takt trace`

use std::path::Path;
use std::process::ExitCode;

use takt_lab::campaign::RunSetup;
use takt_lab::trace::{TraceRequest, earlier, live, recorded, trace};
use takt_lab::{Interference, RunOptions, Target};
use takt_load::Profile;
use takt_trace::{KeepAwake, Thresholds, TraceOptions};

use super::tidy::Tidy;
use super::{CommandResult, failed, stop_flag};
use crate::args::Trace;
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &Trace) -> CommandResult {
    // Read before the run: a wrong path should not cost a measurement.
    let before = args.against.as_deref().map(earlier).transpose()?;
    if let Some(folder) =
        args.perfetto.as_deref().and_then(Path::parent).filter(|path| !path.as_os_str().is_empty())
        && !folder.is_dir()
    {
        return Err(format!(
            "--perfetto: {} is not a folder; name a file in an existing one",
            folder.display()
        )
        .into());
    }
    if let Some(thread) = &args.thread {
        let report = match &args.file {
            Some(file) => recorded(file, args.instance.as_deref(), thread, &request(args))?,
            None => live(thread, args.seconds, &*stop_flag()?, &request(args))?,
        };
        if args.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", print::trace_report(&report, before.as_ref()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    // clap asks for one of the two.
    let robot = args.robot.as_deref().ok_or("no robot was named")?;
    let file = ROBOTS.load_or_shipped(robot)?;
    let setup = args.setup.as_deref().map(takt_rundir::read_json::<RunSetup>).transpose()?;
    let interference = match &setup {
        Some(setup) => setup.interference(),
        None => Interference { stress: Profile::named(&args.stress)?, noise: args.noise, cpus: None },
    };
    let (machine, experiment) =
        setup.map_or_else(Default::default, |setup| (setup.machine, setup.experiment));
    let target = args.run_dir.clone().map_or(Target::Below(args.runs.clone()), Target::Exactly);
    let options = RunOptions {
        seconds: Some(args.seconds),
        interference,
        machine,
        target,
        experiment,
        ..RunOptions::below(&args.runs, stop_flag()?)
    };
    let mut progress = print::RobotProgress::new(false);
    let _tidy = Tidy::before(&args.runs);
    let traced = trace(&*file, &options, &request(args), &mut |event| progress.see(&event))
        .inspect_err(|error| failed::note(progress.run_dir(), error))?;
    progress.clear();
    // The common summary, also of a robot that has one of its own: what counts here is the trace.
    let traced = traced.with_summary()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&traced)?);
    } else {
        print!("{}", print::traced(&traced, print::run_summary, before.as_ref()));
    }
    // The run is there and good; the trace, which was asked for, is not.
    Ok(if traced.untraced.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn request(args: &Trace) -> TraceRequest {
    let late_ns = args.late_us.clamp(0.0, 1e9) * 1e3;
    let keep_awake = if args.let_idle { KeepAwake::Off } else { KeepAwake::Auto };
    TraceRequest {
        options: TraceOptions { keep_awake, ..TraceOptions::default() },
        thresholds: Thresholds { lateness_ns: late_ns as u64, ..Thresholds::default() },
        perfetto: args.perfetto.clone(),
        overhead_rounds: args.overhead.min(3600),
        ..TraceRequest::default()
    }
}
