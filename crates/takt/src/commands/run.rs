//! `takt run`

use std::process::ExitCode;

use takt_lab::cell::CellFile;
use takt_lab::cell::run::{RunEvent, RunOptions, Target, run as run_cell};
use takt_stats::Verdict;

use super::{CommandResult, stop_flag};
use crate::args::Run;
use crate::print;

pub fn run(args: &Run) -> CommandResult {
    let mut file = CellFile::load(&args.config)?;
    if let Some(policy) = args.policy {
        file.tasks.policy = policy;
        file.tasks.validate()?;
    }
    file.tasks.strict |= args.strict;
    let options = RunOptions {
        seconds: args.seconds,
        noise: args.noise,
        target: match &args.run_dir {
            Some(dir) => Target::Exactly(dir.clone()),
            None => Target::Below(args.runs.clone()),
        },
        view: args.view.into(),
        stop: stop_flag()?,
    };
    let mut progress = print::RunProgress::new(args.seconds);
    let summary = run_cell(&file, &options, &mut |event: RunEvent<'_>| progress.see(&event))?;
    progress.clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", print::summary(&summary));
    }
    let failed = args.check && summary.verdict != Verdict::Pass;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
