//! `takt run`

use std::process::ExitCode;

use serde::Serialize;
use takt_lab::campaign::RunSetup;
use takt_lab::trace::{TraceRequest, trace};
use takt_lab::{Event, Interference, RunOptions, Session, Target};
use takt_load::Profile;
use takt_stats::Verdict;
use takt_trace::Thresholds;

use super::tidy::Tidy;
use super::{CommandResult, failed, stop_flag};
use crate::args::{Run, Shown};
use crate::ending::PARENT_GONE;
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &Run) -> CommandResult {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    #[cfg(feature = "store")]
    super::store::check(args.store.as_ref())?;
    let mut robot = ROBOTS.load(&args.config)?;
    if args.strict {
        robot.make_strict();
    }
    if let Some(policy) = &args.policy {
        robot.set_policy(policy)?;
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
            (_, Some(dir)) if robot.kind().can_resume => Target::Resume(dir.clone()),
            (_, Some(_)) => {
                return Err(
                    format!("--resume: a run of {} cannot go on; start a new one", robot.robot()).into()
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
    let mut progress = print::RobotProgress::new(args.view == Shown::Terminal && robot.kind().has_views);
    let _tidy = Tidy::before(&args.runs);
    let mut see = |event: Event<'_>| progress.see(&event);
    let verdict = match flight_recorder(args) {
        Some(request) => {
            let traced = trace(&*robot, &options, &request, &mut see);
            let traced = traced.inspect_err(|error| failed::note(progress.run_dir(), error))?;
            progress.clear();
            print_result(args, &traced, |traced| print::traced(traced, print::ran, None))?;
            traced.run.verdict()
        }
        None => {
            let ran = Session::run(&*robot, &options, &mut see);
            let ran = ran.inspect_err(|error| failed::note(progress.run_dir(), error))?;
            progress.clear();
            print_result(args, &ran, print::ran)?;
            ran.verdict()
        }
    };
    #[cfg(feature = "store")]
    if let (Some(place), Some(dir)) = (&args.store, progress.run_dir()) {
        super::store::put(place, std::iter::once(dir))?;
    }
    let failed = args.check && verdict != Verdict::Pass;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn flight_recorder(args: &Run) -> Option<TraceRequest> {
    args.flight_recorder.then(|| {
        let late_ns = args.late_us.clamp(0.0, 1e9) * 1e3;
        TraceRequest::flight(Thresholds { lateness_ns: late_ns as u64, ..Thresholds::default() })
    })
}

/// Prints a summary as JSON or in words.
fn print_result<S: Serialize>(
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

/// Lets the kernel end this process when its parent ends: a run of a killed bench would go on
/// beside the resumed one, and both would be measured wrong. A kill and not a request, so that the
/// run stays unsealed. Asked for here and not between fork and exec, because an exec with file
/// capabilities takes it back (prctl(2)).
fn end_with(parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(PARENT_GONE))?;
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(std::io::Error::other(format!("--parent {parent}: that process has ended or is not the parent")))
}
