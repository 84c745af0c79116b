//! `takt bench faults`

use std::process::ExitCode;

use takt_faults::{CaseReport, Options, Report, cases, run_all};

use super::{CommandResult, stop_flag};
use crate::args::bench::BenchFaults;

pub fn run(args: &BenchFaults) -> CommandResult {
    let cases = match &args.case {
        Some(part) => cases::named(part)?,
        None => cases::all(),
    };
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(ExitCode::SUCCESS);
    }
    let options =
        Options { takt: std::env::current_exe()?, jobs: usize::from(args.jobs), keep: args.keep.clone() };
    let stop = stop_flag()?;
    let report = run_all(&cases, &options, &stop, &|case| eprintln!("{}", line(case)))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table(&report));
    }
    if report.cases == 0 {
        return Ok(ExitCode::from(2));
    }
    Ok(if args.check && report.violations > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn line(case: &CaseReport) -> String {
    let what = match (&case.skipped, case.commanded_after_ms) {
        (Some(why), _) => format!("skipped: {why}"),
        (None, Some(after_ms)) => {
            let allowed_ms = case.allowed_ms.unwrap_or_default();
            format!("commanded to stand after {after_ms:.1} ms, allowed {allowed_ms:.1}")
        }
        (None, None) => String::new(),
    };
    let mut text = format!("{:<52} {what}", case.name);
    for violation in &case.violations {
        text.push_str(&format!("\n    VIOLATION {}: {}", violation.rule, violation.evidence));
    }
    text
}

fn table(report: &Report) -> String {
    let mut text = format!("{:<12} {:>6} {:>11}\n", "kind", "cases", "violations");
    for (kind, count) in &report.by_kind {
        let kind = serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned));
        text.push_str(&format!(
            "{:<12} {:>6} {:>11}\n",
            kind.unwrap_or_default(),
            count.cases,
            count.violations
        ));
    }
    text.push_str(&format!("{:<12} {:>6} {:>11}\n", "all", report.cases, report.violations));
    if report.skipped > 0 {
        text.push_str(&format!("{} cases could not be tested here\n", report.skipped));
    }
    text.push_str(&format!("{:.0} s; rule: {}\n", report.seconds, report.rule));
    text
}
