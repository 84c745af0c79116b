//! `takt run`

use std::process::ExitCode;

use serde::Serialize;
use takt_lab::campaign::RunSetup;
use takt_lab::cell::CellFile;
use takt_lab::cell::run::{RunEvent, run as run_cell};
use takt_lab::trace::{TraceRequest, trace, trace_with};
use takt_lab::{Interference, RobotFile, RunOptions, Target};
use takt_load::Profile;
use takt_stats::Verdict;
use takt_trace::Thresholds;

use super::tidy::Tidy;
use super::{CommandResult, failed, stop_flag};
use crate::args::{Run, Shown};
use crate::ending::PARENT_GONE;
use crate::print;

pub fn run(args: &Run) -> CommandResult {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    let mut file = RobotFile::load(&args.config)?;
    if args.strict {
        file.make_strict();
    }
    let setup = match &args.setup {
        Some(path) => takt_rundir::read_json(path)?,
        None => RunSetup::default(),
    };
    let interference = match &args.setup {
        Some(_) => setup.interference(),
        None => {
            Interference { stress: Profile::named(&args.stress)?, noise: args.noise, cpus: args.load_cpus }
        }
    };
    let options = RunOptions {
        seconds: args.seconds,
        interference,
        target: match (&args.run_dir, &args.resume) {
            (_, Some(dir)) if file.can_resume() => Target::Resume(dir.clone()),
            (_, Some(_)) => {
                return Err(
                    format!("--resume: a run of {} cannot go on; start a new one", file.robot()).into()
                );
            }
            (Some(dir), None) => Target::Exactly(dir.clone()),
            (None, None) => Target::Below(args.runs.clone()),
        },
        view: args.view.into(),
        experiment: setup.experiment,
        watch: None,
        stop: stop_flag()?,
    };
    let _tidy = Tidy::before(&args.runs);
    let verdict = match file {
        RobotFile::Cell(file) => cell(file, &options, args)?,
        _ if args.policy.is_some() => {
            return Err("--policy: for the safety cell alone; the other robots name it in their files".into());
        }
        file => other(&file, &options, args)?,
    };
    let failed = args.check && verdict != Verdict::Pass;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn cell(mut file: CellFile, options: &RunOptions, args: &Run) -> Result<Verdict, Box<dyn std::error::Error>> {
    if let Some(policy) = args.policy {
        file.tasks.policy = policy;
        file.tasks.validate()?;
    }
    let mut progress = print::RunProgress::new(args.seconds, args.view == Shown::Terminal);
    let mut see = |event: RunEvent<'_>| progress.see(&event);
    if let Some(request) = flight_recorder(args) {
        let robot = RobotFile::Cell(file.clone());
        let traced = trace_with(&robot, options, &request, |options| run_cell(&file, options, &mut see))
            .inspect_err(|error| failed::note(progress.run_dir(), error))?;
        progress.clear();
        tell(args, &traced, |traced| print::traced(traced, print::summary, None))?;
        return Ok(traced.run.verdict);
    }
    let summary =
        run_cell(&file, options, &mut see).inspect_err(|error| failed::note(progress.run_dir(), error))?;
    progress.clear();
    tell(args, &summary, print::summary)?;
    Ok(summary.verdict)
}

fn other(file: &RobotFile, options: &RunOptions, args: &Run) -> Result<Verdict, Box<dyn std::error::Error>> {
    let mut progress = print::RobotProgress::new();
    if let Some(request) = flight_recorder(args) {
        let traced = trace(file, options, &request, &mut |event| progress.see(&event))
            .inspect_err(|error| failed::note(progress.run_dir(), error))?;
        progress.clear();
        tell(args, &traced, |traced| print::traced(traced, print::run_summary, None))?;
        return Ok(traced.run.verdict);
    }
    let summary = file
        .run(options, &mut |event| progress.see(&event))
        .inspect_err(|error| failed::note(progress.run_dir(), error))?;
    progress.clear();
    tell(args, &summary, print::run_summary)?;
    Ok(summary.verdict)
}

fn flight_recorder(args: &Run) -> Option<TraceRequest> {
    args.flight_recorder.then(|| {
        let late_ns = args.late_us.clamp(0.0, 1e9) * 1e3;
        TraceRequest::flight(Thresholds { lateness_ns: late_ns as u64, ..Thresholds::default() })
    })
}

/// Prints a summary as JSON or in words.
fn tell<S: Serialize>(
    args: &Run,
    summary: &S,
    words: impl FnOnce(&S) -> String,
) -> Result<(), serde_json::Error> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(summary)?);
    } else {
        print!("{}", words(summary));
    }
    Ok(())
}

/// Lets the kernel end this process when its parent ends: a run of a killed bench would go on beside the resumed
/// one, and both would be measured wrong. A kill and not a request, so that the run stays unsealed. Asked for here
/// and not between fork and exec, because an exec with file capabilities takes it back (prctl(2)).
fn end_with(parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(PARENT_GONE))?;
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(std::io::Error::other(format!("--parent {parent}: that process has ended or is not the parent")))
}
