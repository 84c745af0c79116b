//! `takt bench cell`

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::bench::{Bench, BenchCell, BenchPlan, BenchRow};
use takt_robot_cell::lab::designs;
use takt_robot_cell::lab::scale::{self, Scaled};
use takt_rundir::sha256_of;

use super::tidy::Tidy;
use super::{CommandResult, child, stop_flag};
use crate::args;
use crate::print;
use crate::registry::ROBOTS;

/// The configuration that the runs of a bench share, in the bench directory.
const CONFIG: &str = "cell.toml";
/// That of the other design.
const AGAINST: &str = "against.toml";

pub fn run(args: &args::bench::Bench) -> CommandResult {
    let mut file = match &args.config {
        Some(path) => CellFile::load(path)?,
        None => CellFile::demo()?,
    };
    if let Some(cameras) = args.cameras {
        file.cameras.truncate(cameras);
    }
    let mut against = args.against.as_deref().map(design).transpose()?;
    // A bench that goes on has decided already.
    let before = match &args.resume {
        Some(dir) => decided(dir)?,
        None => None,
    };
    let scaled = scale::settle_both(&mut file, against.as_mut(), before)?;
    if let Some(scaled) = &scaled {
        eprintln!("{}", scaled.text());
    }
    let text = toml::to_string(&file)?;
    let against_text = against.as_ref().map(toml::to_string).transpose()?;
    let plan = BenchPlan {
        policies: args.policies.clone(),
        noise: args.noise.clone(),
        seconds: args.seconds,
        repeat: args.repeat,
        config_sha256: sha256_of(text.as_bytes()),
        against_sha256: against_text.as_ref().map(|text| sha256_of(text.as_bytes())),
    };
    let _tidy = Tidy::before(&args.runs);
    let bench = match &args.resume {
        Some(dir) => Bench::resume(dir, plan)?,
        None => Bench::create(&args.runs, plan)?,
    };
    if let Some(text) = &against_text {
        std::fs::write(bench.path().join(AGAINST), text)?;
    }
    let rows = measure(&bench, &text, args.seconds, &stop_flag()?)?;
    let against_rows = bench.against_rows()?;
    let comparison = designs::compare(&rows, &against_rows);
    if args.json {
        let mut answer = serde_json::json!({ "rows": rows, "bench_dir": bench.path().display().to_string() });
        if let Some(scaled) = &scaled {
            answer["scaled"] = serde_json::to_value(scaled)?;
        }
        if let Some(against) = &against {
            answer["against"] = serde_json::json!({ "name": against.envelope.name, "rows": against_rows });
            answer["comparison"] = serde_json::to_value(&comparison)?;
        }
        println!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        print!("{}", print::rows(&rows));
        if let Some(against) = &against {
            println!("\n{}, the same matrix:", against.envelope.name);
            print!("{}", print::rows(&against_rows));
            print!("\n{}", print::designs(&file.envelope.name, &against.envelope.name, &comparison));
        }
        if let Some(scaled) = &scaled {
            println!("{}", scaled.text());
        }
        println!("Run directories: {}", bench.path().display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The other design: the name of a shipped configuration of the cell, or a file.
fn design(name: &str) -> Result<CellFile, Box<dyn std::error::Error>> {
    let file = ROBOTS.load_or_shipped(name)?;
    let other = || {
        format!("--against {name}: a configuration of {}, and not of the safety cell", file.robot()).into()
    };
    file.get::<CellFile>().cloned().ok_or_else(other)
}

/// What the runs of a bench have in common, from its folder.
fn decided(dir: &Path) -> Result<Option<Scaled>, Box<dyn std::error::Error>> {
    for name in [AGAINST, CONFIG] {
        let path = dir.join(name);
        if path.is_file()
            && let Some(scaled) = CellFile::load(&path)?.scaled
        {
            return Ok(Some(scaled));
        }
    }
    Ok(None)
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
    let against_path = bench.path().join(AGAINST);
    let mut run = |cell: &BenchCell, dir: &Path| {
        let config = if cell.against { &against_path } else { &config_path };
        one(config, cell, seconds, dir, stop)
    };
    let rows = bench.measure(&mut run, &mut |event| progress.see(&event))?;
    progress.clear();
    Ok(rows)
}

fn one(config: &Path, cell: &BenchCell, seconds: f64, dir: &Path, stop: &AtomicBool) -> Result<(), String> {
    let (seconds, noise) = (seconds.to_string(), cell.noise.to_string());
    let options = ["--seconds", &seconds, "--policy", cell.policy.name(), "--noise", &noise];
    child::run(config, dir, false, &options.map(OsString::from), stop)
}
