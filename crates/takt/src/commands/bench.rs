//! `takt bench cell`

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use takt_lab::cell::CellFile;
use takt_lab::cell::bench::{Bench, BenchCell, BenchPlan, BenchRow};
use takt_rundir::sha256_of;

use super::{CommandResult, child, stop_flag};
use crate::args;
use crate::print;

/// The configuration that the runs of a bench share, in the bench directory.
const CONFIG: &str = "cell.toml";

pub fn run(args: &args::bench::Bench) -> CommandResult {
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
    let mut progress = print::BenchProgress::new(seconds);
    let rows = bench.measure(&mut |cell, dir| one(&config_path, cell, seconds, dir, stop), &mut |event| {
        progress.see(&event)
    })?;
    progress.clear();
    Ok(rows)
}

fn one(config: &Path, cell: &BenchCell, seconds: f64, dir: &Path, stop: &AtomicBool) -> Result<(), String> {
    let (seconds, noise) = (seconds.to_string(), cell.noise.to_string());
    let options = ["--seconds", &seconds, "--policy", cell.policy.name(), "--noise", &noise];
    child::run(config, dir, &options.map(OsString::from), stop)
}
