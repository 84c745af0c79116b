//! `takt run`

use std::process::ExitCode;

use takt_lab::cell::CellFile;
use takt_lab::cell::run::{RunEvent, RunOptions, Target, run as run_cell};
use takt_stats::Verdict;

use super::{CommandResult, stop_flag};
use crate::args::{Run, Shown};
use crate::print;

pub fn run(args: &Run) -> CommandResult {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
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
    let mut progress = print::RunProgress::new(args.seconds, args.view == Shown::Terminal);
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

/// Lets the kernel end this process when its parent ends: a run of a killed bench would go on beside the resumed
/// one, and both would be measured wrong. A kill and not a request, so that the run stays unsealed. Asked for here
/// and not between fork and exec, because an exec with file capabilities takes it back (prctl(2)).
fn end_with(parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(std::io::Error::other(format!("--parent {parent}: that process has ended or is not the parent")))
}
