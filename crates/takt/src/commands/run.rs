//! `takt run`

use std::process::ExitCode;
#[cfg(feature = "otlp")]
use std::sync::{Arc, PoisonError};

use serde::Serialize;
#[cfg(feature = "otlp")]
use takt_lab::LiveMeasures;
use takt_lab::campaign::RunSetup;
use takt_lab::trace::{TraceRequest, trace};
use takt_lab::{Event, Interference, RunOptions, Session, Target};
use takt_load::Profile;
use takt_stats::Verdict;
use takt_trace::Thresholds;

#[cfg(feature = "otlp")]
use super::otlp;
use super::tidy::Tidy;
use super::{CommandResult, failed, service, stop_flag};
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
    #[cfg(feature = "otlp")]
    let endpoint = otlp::check(args.otlp.as_ref())?;
    let mut robot = ROBOTS.find(&args.config)?;
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
        machine: setup.machine,
        target: match (&args.run_dir, &args.resume) {
            (_, Some(dir)) => match robot.kind().cannot_resume {
                None => Target::Resume(dir.clone()),
                Some(why) => {
                    let robot = robot.robot();
                    return Err(
                        format!("--resume: a run of {robot} cannot go on: {why}; start a new one").into()
                    );
                }
            },
            (Some(dir), None) => Target::Exactly(dir.clone()),
            (None, None) => Target::Below(args.runs.clone()),
        },
        view: args.view.into(),
        experiment: setup.experiment,
        watch: None,
        live: None,
        stop: stop_flag()?,
    };
    #[cfg(feature = "otlp")]
    let (options, telemetry, live, known) = {
        let (live, known) = (LiveMeasures::default(), otlp::of_run::Known::default());
        let about = [("takt.robot", robot.robot().to_owned())];
        let source = {
            let (live, known) = (live.clone(), Arc::clone(&known));
            move |points: &mut takt_otlp::Points| otlp::of_run::fill(points, &live, &known)
        };
        let telemetry = otlp::begin(endpoint, &about, source)?;
        let wanted = telemetry.is_some().then(|| live.clone());
        (RunOptions { live: wanted, ..options }, telemetry, live, known)
    };
    // A run of a bench or campaign is that one's affair.
    let _reporting = args.parent.is_none().then(|| service::begin("run"));
    let mut progress = print::RobotProgress::new(args.view == Shown::Terminal && robot.kind().has_views);
    let _tidy = Tidy::before(&args.runs);
    let mut see = |event: Event<'_>| progress.see(&event);
    let ran = match flight_recorder(args) {
        Some(request) => {
            let traced = trace(&*robot, &options, &request, &mut see);
            let traced = traced.inspect_err(|error| failed::note(progress.run_dir(), error))?;
            progress.clear();
            print_result(args, &traced, |traced| print::traced(traced, print::ran, None))?;
            #[cfg(feature = "otlp")]
            if let Some(trace) = &traced.trace {
                known.lock().unwrap_or_else(PoisonError::into_inner).causes = trace.report.causes.clone();
            }
            traced.run
        }
        None => {
            let ran = Session::run_anyway(&*robot, &options, &mut see);
            let ran = ran.inspect_err(|error| failed::note(progress.run_dir(), error))?;
            progress.clear();
            print_result(args, &ran, print::ran)?;
            ran
        }
    };
    let verdict = ran.verdict();
    #[cfg(feature = "otlp")]
    if let Some(telemetry) = telemetry {
        otlp::of_run::conclude(&telemetry, &ran, &live, &known);
        telemetry.finish();
    }
    #[cfg(feature = "store")]
    if let (Some(place), Some(dir)) = (&args.store, progress.run_dir()) {
        super::store::put(place, std::iter::once(dir))?;
    }
    // The figures are shown; that they are nowhere else is an error all the same.
    if let Some(unwritten) = ran.dir().unwritten() {
        return Err(unwritten.into());
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
    takt_rt::child::end_with(parent, PARENT_GONE.as_raw()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            std::io::Error::other(format!("--parent {parent}: that process has ended or is not the parent"))
        }
        _ => error,
    })
}
