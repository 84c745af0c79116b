//! Planted faults, judged by the controller's own log (`takt bench faults`).

#![allow(clippy::unwrap_used)]

mod takt;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use takt_faults::{Case, Options, Report, cases, run_all};

use takt::{TAKT, alone, stderr, stdout, takt as run};

/// Cases that the program does not pass yet.
const NOT_YET: &[&str] = &[
    "camera/45-per-cent-at-600-mm",
    "camera/8-per-cent-at-150-mm",
    "camera/depth-frozen",
    "camera/frozen",
    "camera/half-frozen",
    "camera/numbers-stand-still",
    "camera/old-frames-in-turn",
    "camera/one-frame-1-s-back",
    "command/500-ms-late-from-the-start",
    "command/heartbeat-echo-frozen",
    "command/heartbeat-echo-is-another",
    "command/heartbeat-echo-runs-behind",
    "command/heartbeat-frozen",
    "command/heartbeat-unheard-from-the-start",
    "command/slider-always-at-1",
    "command/slider-frozen",
    "command/slider-is-no-number",
    "command/slider-mask-cleared",
    "command/stop-turned-into-full-speed",
    "command/stop-turned-into-full-speed-and-the-fraction-lies",
    "command/stop-turned-into-half-speed",
    "link/bit-flipped-in-the-controller-time",
    "link/both-100-ms-late",
    "link/both-60-ms-late",
    "link/both-stalled",
    "link/commands-100-ms-late",
    "link/commands-200-ms-late",
    "link/commands-500-ms-late",
    "link/commands-60-ms-late",
    "link/commands-creep-to-500-ms",
    "link/commands-lost-and-a-person-plays",
    "link/commands-stalled",
    "link/refused-and-a-person-plays",
    "link/same-command-at-500-hz",
    "link/same-state-at-500-hz",
    "link/states-100-ms-late",
    "link/states-60-ms-late",
    "link/states-creep-to-500-ms",
    "output/full",
    "process/killed-and-a-person-plays",
    "state/actual_TCP_pose-is-minus-infinite",
    "state/actual_q-is-infinite",
    "state/actual_q-is-minus-infinite",
    "state/actual_q-is-no-number",
    "state/clock-at-half-pace",
    "state/clock-frozen",
    "state/clock-is-infinite",
    "state/clock-is-no-number",
    "state/clock-jumps-back-for-good",
    "state/clock-runs-backwards",
    "state/target_speed_fraction-is-infinite",
    "state/target_speed_fraction-is-minus-infinite",
    "state/target_speed_fraction-is-no-number",
];

/// Cases mostly wait: eight of them share two cores.
const JOBS: usize = 8;

fn try_all(cases: &[Case]) -> Report {
    let options = Options { takt: PathBuf::from(TAKT), jobs: JOBS, keep: None };
    run_all(cases, &options, &AtomicBool::new(false), &|case| {
        if let Some(why) = &case.skipped {
            eprintln!("SKIPPED: {}: {why}", case.name);
        }
    })
    .unwrap()
}

#[test]
fn planted_faults_stop_the_robot_by_the_controllers_own_log() {
    let _machine = alone();
    let cases: Vec<Case> =
        cases::all().into_iter().filter(|case| !NOT_YET.contains(&case.name.as_str())).collect();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let report = try_all(&cases);
    let wrong: Vec<String> = report
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
fn a_robot_that_moves_on_is_found_by_the_same_test() {
    let _machine = alone();
    let mutations = cases::mutations();
    let report = try_all(&mutations);
    assert_eq!(report.cases, mutations.len());
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
fn the_command_lists_runs_and_reports_cases() {
    let _machine = alone();
    let output = run(["bench", "faults", "--list"]).output().unwrap();
    let listed = stdout(&output);
    assert_eq!(listed.lines().count(), cases::all().len());
    let output = run(["bench", "faults", "--case", "control/no-fault", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["cases"], 2, "{}", stderr(&output));
    assert_eq!(report["violations"], 0, "{report}");
    assert_eq!(report["by_kind"]["control"]["cases"], 2);
    assert_eq!(report["details"].as_array().unwrap().len(), 2);
    let output = run(["bench", "faults", "--case", "no-such-case"]).output().unwrap();
    takt::has(&takt::refusal(&output), &["no-such-case", "--list"]);
}
