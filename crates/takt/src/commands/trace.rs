//! `takt trace`

use std::path::Path;
use std::process::ExitCode;

use takt_lab::trace::{TraceRequest, earlier, trace};
use takt_lab::{Interference, RobotFile, RunOptions};
use takt_load::Profile;
use takt_trace::Thresholds;

use super::{CommandResult, stop_flag};
use crate::args::Trace;
use crate::print;

pub fn run(args: &Trace) -> CommandResult {
    let path = Path::new(&args.robot);
    let file = if path.is_file() { RobotFile::load(path)? } else { RobotFile::shipped(&args.robot)? };
    // Read before the run: a wrong path should not cost a measurement.
    let before = args.against.as_deref().map(earlier).transpose()?;
    let options = RunOptions {
        seconds: Some(args.seconds),
        interference: Interference { stress: Profile::named(&args.stress)?, noise: args.noise, cpus: None },
        ..RunOptions::below(&args.runs, stop_flag()?)
    };
    let late_ns = args.late_us.clamp(0.0, 1e9) * 1e3;
    let request = TraceRequest {
        thresholds: Thresholds { lateness_ns: late_ns as u64, ..Thresholds::default() },
        perfetto: args.perfetto.clone(),
        ..TraceRequest::default()
    };
    let mut progress = print::RobotProgress::new();
    let traced = trace(&file, &options, &request, &mut |event| progress.see(&event))?;
    progress.clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&traced)?);
    } else {
        print!("{}", print::traced(&traced, before.as_ref()));
    }
    Ok(ExitCode::SUCCESS)
}
