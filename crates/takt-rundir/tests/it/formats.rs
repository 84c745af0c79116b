//! Runs of earlier formats: a user's old runs stay legible after an upgrade.
//!
//! Format 2 is the only one that a run has ever said of itself; keys were added to it since. The
//! layout before it (called 1) has no number and no measures, and no release wrote it.

use std::fs;
use std::path::Path;

use takt_rundir::{FORMAT, RUN_FILE, RunDir, SAMPLES_FOLDER};

/// A run as the first program that wrote format 2 left it when it was killed: its keys and no
/// others, samples as CSV.
const FIRST: &str = r#"{
  "format": 2, "takt": "0.1.0", "robot": "uav", "label": "fifo:80",
  "started_utc": "2026-11-21T10:00:00.000Z", "finished_utc": null,
  "machine": {
    "host": null, "kernel": "6.1.0", "kernel_version": null, "preemption": "PREEMPT_RT",
    "boot_parameters": null, "cpu": "x", "online_cpus": "0-1", "isolated_cpus": null,
    "nohz_full_cpus": null, "governor": null, "thermal_throttles": null, "clock_source": null,
    "rt_runtime_us": null, "hypervisor": false, "memory_kib": null, "idle_states": []
  },
  "not_granted": [], "problems": [], "load": null, "records_lost": 0,
  "measures": [{
    "name": "lateness", "title": "Wake-up lateness", "file": "attitude", "column": "lateness_ns",
    "time_column": "planned_ns", "window_ns": [1000, 3000], "deadline_ns": 200, "rate_hz": 250.0,
    "never": 4, "recorder": null
  }],
  "figures": {"position_rms_m": 0.5}
}"#;

fn run(root: &Path, header: &str) -> RunDir {
    let path = root.join("run");
    fs::create_dir_all(path.join(SAMPLES_FOLDER)).unwrap();
    fs::write(path.join(RUN_FILE), header).unwrap();
    let rows = "planned_ns,lateness_ns\n500,9\n1000,10\n2000,300\n3000,11\n";
    fs::write(path.join(SAMPLES_FOLDER).join("attitude.csv"), rows).unwrap();
    RunDir::open(&path).unwrap()
}

#[test]
fn a_run_of_the_first_program_with_this_format_is_read_and_sealed() {
    let root = tempfile::tempdir().unwrap();
    let dir = run(root.path(), FIRST);
    let header = dir.header().unwrap();
    let measure = &header.measures[0];
    assert_eq!((header.robot.as_str(), measure.skipped, measure.judged), ("uav", 4, false));
    assert_eq!(dir.series(measure).unwrap().values_ns, [10, 300]);
    dir.seal().unwrap();
    assert_eq!(dir.series(measure).unwrap().values_ns, [10, 300]);
    assert_eq!(dir.changed_files().unwrap(), [""; 0]);
}

#[test]
fn a_run_of_the_first_week_is_read_from_its_files() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../takt-history/tests/data/lateness");
    let dir = RunDir::open(&path).unwrap();
    let header = dir.header().unwrap();
    assert_eq!((header.format, header.started_utc.as_str()), (2, "2026-11-23T13:27:06.488Z"));
    assert_eq!(dir.changed_files().unwrap(), [""; 0]);
    assert!(dir.has_samples("lateness").unwrap());
}

#[test]
fn what_is_older_or_newer_than_that_is_refused_with_its_number() {
    let root = tempfile::tempdir().unwrap();
    let newer = FIRST.replace("\"format\": 2", &format!("\"format\": {}", FORMAT + 1));
    let error = run(&root.path().join("newer"), &newer).header().unwrap_err().to_string();
    assert!(error.contains(&format!("layout {}", FORMAT + 1)), "{error}");
    // Of the layout before: the whole configuration, and nothing of what a report needs.
    let older = r#"{"label": "FIFO", "takt": "0.1.0", "started_utc": "2026-11-20T10:00:00Z", "tasks": {}}"#;
    let error = run(&root.path().join("older"), older).header().unwrap_err().to_string();
    assert!(error.contains("run.json") && error.contains("missing field"), "{error}");
}
