//! `takt bench cell`

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_lab::cell::CellFile;
use takt_lab::cell::bench::{Bench, BenchCell, BenchPlan, BenchRow};
use takt_rundir::sha256_of;

use super::{CommandResult, stop_flag};
use crate::args;
use crate::print;

/// The configuration that the runs of a bench share, in the bench directory.
const CONFIG: &str = "cell.toml";

pub fn run(args: &args::Bench) -> CommandResult {
    let file = match &args.config {
        Some(path) => CellFile::load(path)?,
        None => CellFile::demo()?,
    };
    let text = toml::to_string(&file)?;
    let plan = BenchPlan {
        policies: args.policies.clone(),
        noise: args.noise.clone(),
        seconds: args.seconds,
        repeat: args.repeat,
        config_sha256: sha256_of(text.as_bytes()),
    };
    let bench = match &args.resume {
        Some(dir) => Bench::resume(dir, plan)?,
        None => Bench::create(&args.runs, plan)?,
    };
    let rows = measure(&bench, &text, args.seconds, &stop_flag()?)?;
    if args.json {
        let dir = bench.path().display().to_string();
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "rows": rows, "bench_dir": dir }))?);
    } else {
        print!("{}", print::rows(&rows));
        println!("Run directories: {}", bench.path().display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures a bench; every run is a process of its own, so that no run inherits threads, locked memory or warm
/// caches from another, and a run that breaks loses nothing but itself.
pub fn measure(
    bench: &Bench,
    config: &str,
    seconds: f64,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<BenchRow>, Box<dyn std::error::Error>> {
    let config_path = bench.path().join(CONFIG);
    std::fs::write(&config_path, config)?;
    let takt = std::env::current_exe()?;
    let mut progress = print::BenchProgress::new(seconds);
    let rows = bench
        .measure(&mut |cell, dir| one(&takt, &config_path, cell, seconds, dir, stop), &mut |event| {
            progress.see(&event)
        })?;
    progress.clear();
    Ok(rows)
}

fn one(
    takt: &Path,
    config: &Path,
    cell: &BenchCell,
    seconds: f64,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<(), String> {
    let output = Command::new(takt)
        .arg("run")
        .arg(config)
        .args(["--view", "none", "--json", "--seconds", &seconds.to_string()])
        .args(["--policy", cell.policy.name(), "--noise", &cell.noise.to_string()])
        .args(["--parent", &std::process::id().to_string()])
        .arg("--run-dir")
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", takt.display()))?;
    // Ctrl-C reaches the child, too: it has sealed a shorter run, which must not count as a whole one.
    if stop.load(Ordering::Acquire) {
        let _ = std::fs::remove_file(dir.join(takt_rundir::HASHES_FILE));
        return Err("interrupted".to_owned());
    }
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.trim().trim_start_matches("takt: ")))
}
