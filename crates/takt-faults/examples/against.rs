//! Runs cases against any build of the program:
//! `cargo run -p takt-faults --example against -- target/debug/takt link/`, with the number of jobs
//! and a folder to keep everything in as further arguments.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use takt_faults::{Options, cases, run_all};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let takt = PathBuf::from(arguments.next().ok_or("which program? target/debug/takt, for example")?);
    let parts = arguments.next().unwrap_or_default();
    let jobs = arguments.next().map_or(Ok(8), |jobs| jobs.parse())?;
    let keep = arguments.next().map(PathBuf::from);
    let mut chosen = Vec::new();
    for part in parts.split('+') {
        chosen.extend(cases::named(part)?);
    }
    let options = Options { takt: takt.canonicalize()?, jobs, keep };
    let report = run_all(&chosen, &options, &AtomicBool::new(false), &|case| {
        let mut line = format!(
            "{:<48} {:>7.1} of {:>6.1} ({:>5.1} taken), moved {:>7.1} {}",
            case.name,
            case.commanded_after_ms.unwrap_or(f64::NAN),
            case.allowed_ms.unwrap_or(f64::NAN),
            case.taken_ms,
            case.moved_after_ms.unwrap_or(f64::NAN),
            case.skipped.as_deref().unwrap_or_default(),
        );
        for violation in &case.violations {
            line.push_str(&format!("\n    {}: {}", violation.rule, violation.evidence));
        }
        eprintln!("{line}");
    })?;
    println!("{}", serde_json::to_string(&report.by_kind)?);
    println!("{} cases, {} violations, {:.0} s", report.cases, report.violations, report.seconds);
    Ok(())
}
