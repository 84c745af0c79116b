//! `takt doctor`

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use takt_host::doctor::{
    Changed, DoctorError, Options, Status, Tuned, apply, apply_tuned, default_state, examine, may_change,
    revert,
};

use super::CommandResult;
use crate::args::Doctor;

/// Threads that are waited for are looked for so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub fn run(args: &Doctor) -> CommandResult {
    if args.rights {
        return super::rights::run(args.json, args.check);
    }
    if args.revert {
        may_change("doctor --revert")?;
    }
    if args.apply.is_some() {
        may_change("doctor --apply")?;
    }
    let state = args.state.clone().unwrap_or_else(default_state);
    if args.revert {
        let changed = revert(&state)?;
        return changes(args, &state, &changed, "put back");
    }
    if let Some(Some(file)) = &args.apply {
        let tuned = Tuned::read(file)?;
        let until = Instant::now() + Duration::from_secs_f64(args.wait.unwrap_or(0.0));
        let changed = loop {
            match apply_tuned(&tuned, file, &state) {
                // A service's threads are made, and get their names, after it counts as started.
                Err(DoctorError::Tuned { .. }) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
                applied => break applied?,
            }
        };
        return changes(args, &state, &changed, "changed");
    }
    let report = examine(&Options { seconds: args.seconds, ..Options::default() })?;
    if args.apply.is_some() {
        let changed = apply(&report, &state)?;
        return changes(args, &state, &changed, "changed");
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.to_text());
    }
    let unfit = args.check && report.worst() == Status::Fail;
    Ok(if unfit { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn changes(args: &Doctor, state: &Path, changed: &[Changed], what: &str) -> CommandResult {
    if args.json {
        println!("{}", serde_json::to_string_pretty(changed)?);
    } else if changed.is_empty() {
        println!("Nothing {what}: no safe change is left to make.");
    } else {
        for Changed { path, before, after, error } in changed {
            let trouble = error.as_ref().map_or_else(String::new, |error| format!(" (REFUSED: {error})"));
            println!("{}: {before} -> {after}{trouble}", path.display());
        }
        if what == "changed" && changed.iter().any(|change| change.error.is_none()) {
            println!(
                "`takt doctor --revert` restores everything; the previous values are in {}.",
                state.display()
            );
        }
    }
    let refused = changed.iter().any(|change| change.error.is_some());
    Ok(if refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
