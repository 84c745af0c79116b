//! Planted faults, judged by the controller's own log (`takt bench faults`).

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use takt_faults::{Case, Options, Report, cases, run_all};

use takt::{TAKT, alone, stderr, stdout, takt as run};

/// Cases mostly wait: eight of them share two cores.
const JOBS: usize = 8;

fn try_all(cases: &[Case]) -> Report {
    try_with(cases, JOBS)
}

fn try_with(cases: &[Case], jobs: usize) -> Report {
    let options = Options { takt: PathBuf::from(TAKT), jobs, keep: None };
    run_all(cases, &options, &AtomicBool::new(false), &|case| {
        if let Some(why) = &case.skipped {
            takt_witness::skip!("{}: {why}", case.name);
        }
    })
    .unwrap()
}

#[test]
#[ignore = "takes 120 s"]
fn planted_faults_stop_the_robot_by_the_controllers_own_log() {
    let _machine = alone();
    let cases = cases::all();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let report = try_all(&cases);
    // Eight cases beside each other on two shared cores take more from each other than any witness
    // sees: whoever failed is tried again alone. A defect shows again.
    let failed: Vec<&str> = report
        .details
        .iter()
        .filter(|case| !case.violations.is_empty())
        .map(|case| case.name.as_str())
        .collect();
    assert!(failed.len() <= 10, "{} cases failed: {failed:?}", failed.len());
    let again: Vec<Case> =
        cases::all().into_iter().filter(|case| failed.contains(&case.name.as_str())).collect();
    let confirmed = try_with(&again, 1);
    let wrong: Vec<String> = confirmed
        .details
        .iter()
        .flat_map(|case| case.violations.iter().map(move |violation| (case, violation)))
        .map(|(case, violation)| format!("{}: {}: {}", case.name, violation.rule, violation.evidence))
        .collect();
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        report.cases + report.skipped == cases.len() && report.skipped <= 2,
        "{} skipped",
        report.skipped
    );
}

#[test]
#[ignore = "takes 10 s"]
fn a_robot_that_moves_on_is_found_by_the_same_test() {
    let _machine = alone();
    let mutations = cases::mutations();
    let report = try_all(&mutations);
    assert_eq!(report.cases, mutations.len());
    // What the command prints, with violations.
    let printed = serde_json::to_value(&report).unwrap();
    golden::hold("bench-faults-violated", &golden::shape("--json", &printed));
    for case in &report.details {
        let rules: Vec<&str> = case.violations.iter().map(|violation| violation.rule).collect();
        let expected = match case.name.rsplit('/').next().unwrap() {
            "mutation-stop-that-comes-too-late" => "commanded to stand in time",
            "mutation-fault-where-motion-is-asked" => "the robot moves on",
            _ => "commanded to stand",
        };
        assert!(rules.contains(&expected), "{}: {rules:?}", case.name);
    }
}

#[test]
#[ignore = "takes 120 s"]
fn the_command_lists_runs_and_reports_cases() {
    let _machine = alone();
    let output = run(["bench", "faults", "--list"]).output().unwrap();
    let listed = stdout(&output);
    assert_eq!(listed.lines().count(), cases::all().len());
    let output = run(["bench", "faults", "--case", "control/no-fault", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let code = output.status.code();
    assert_eq!((code, &report["cases"]), (Some(0), &2.into()), "{}", stderr(&output));
    golden::hold("bench-faults", &golden::shape("--json", &report));
    assert_eq!(report["violations"], 0, "{report}");
    assert_eq!(report["by_kind"]["control"]["cases"], 2);
    assert_eq!(report["details"].as_array().unwrap().len(), 2);
    let output = run(["bench", "faults", "--case", "no-such-case"]).output().unwrap();
    takt::has(&takt::refusal(&output), &["no-such-case", "--list"]);
}
