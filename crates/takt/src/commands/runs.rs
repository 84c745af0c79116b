//! `takt runs`: run directories by age and size.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::json;
use takt_rundir::prune::{Keep, Kept, Why, pin, plan, unpin};

use super::CommandResult;
use crate::args::Runs;

pub fn run(what: &Runs) -> CommandResult {
    match what {
        Runs::Prune { folder, keep_days, keep_bytes, dry_run, json } => {
            if keep_days.is_none() && keep_bytes.is_none() {
                return Err("nothing says what to keep: give --keep-days, --keep-bytes or both, such as `takt runs prune FOLDER --keep-days 30 \
                            --keep-bytes 20G`"
                    .into());
            }
            let keep = Keep {
                age: keep_days.map(|days| Duration::from_secs_f64(days * 86_400.0)),
                bytes: *keep_bytes,
            };
            prune(folder, keep, *dry_run, *json)
        }
        Runs::Pin { runs } => {
            runs.iter().try_for_each(|run| pin(run))?;
            Ok(ExitCode::SUCCESS)
        }
        Runs::Unpin { runs } => {
            runs.iter().try_for_each(|run| unpin(run))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn prune(folder: &Path, keep: Keep, dry_run: bool, json: bool) -> CommandResult {
    let planned = plan(folder, keep, SystemTime::now())?;
    let (mut deleted, mut failed) = (Vec::new(), Vec::new());
    for run in &planned.delete {
        match if dry_run { Ok(()) } else { run.delete() } {
            Ok(()) => deleted.push(run),
            Err(error) => failed.push((run, error.to_string())),
        }
    }
    let freed_bytes: u64 = deleted.iter().map(|run| run.bytes).sum();
    if json {
        let text = json!({
            "dry_run": dry_run,
            "deleted": deleted.iter().map(|run| json!({"path": run.path, "bytes": run.bytes})).collect::<Vec<_>>(),
            "freed_bytes": freed_bytes,
            "kept": planned.kept.iter().map(|kept| json!({"path": kept.run.path, "bytes": kept.run.bytes, "why": kept.why.name()}))
                .collect::<Vec<_>>(),
            "kept_bytes": planned.kept.iter().map(|kept| kept.run.bytes).sum::<u64>(),
            "failed": failed.iter().map(|(run, why)| json!({"path": run.path, "why": why})).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&text)?);
    } else {
        let verb = if dry_run { "would delete" } else { "deleted" };
        for run in &deleted {
            println!("{verb} {} ({})", run.path.display(), size(run.bytes));
        }
        let besides = |kept: &&Kept| !matches!(kept.why, Why::New);
        for kept in planned.kept.iter().filter(besides) {
            println!("kept {}: {}", kept.run.path.display(), kept.why.words());
        }
        let (count, kept_bytes) = (planned.kept.len(), planned.kept.iter().map(|kept| kept.run.bytes).sum());
        println!(
            "{} runs, {} freed; {count} runs, {} kept",
            deleted.len(),
            size(freed_bytes),
            size(kept_bytes)
        );
    }
    for (run, why) in &failed {
        eprintln!("takt: {}: {why}", run.path.display());
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << shift)),
        None => format!("{bytes} bytes"),
    }
}
