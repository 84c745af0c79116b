//! A controller that is stopped for a while (SIGSTOP: what a hypervisor, a debugger or a frozen
//! cgroup does) through the binary: every release that did not run is a miss of its own, for every
//! robot.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use takt::{Beside, alone, missing, read_json, root, takt as run, wait_for};

/// Time for which the controller stands still.
const STILL: Duration = Duration::from_millis(600);

/// Runs `file` for some seconds, stops the process in the middle of the measured window, and
/// returns the summary and how many seconds it stood still at least.
fn frozen(folder: &Path, file: &str, text: &str, seconds: &str) -> (Value, f64) {
    frozen_for(STILL, folder, file, text, seconds)
}

fn frozen_for(still: Duration, folder: &Path, file: &str, text: &str, seconds: &str) -> (Value, f64) {
    let path = folder.join(file);
    fs::write(&path, text).unwrap();
    let runs = folder.join("runs");
    let mut command = run(["run", path.to_str().unwrap(), "--seconds", seconds, "--json", "--runs"]);
    command.arg(&runs);
    let mut beside = Beside::start(command);
    let dir = measuring(&mut beside, &runs);
    std::thread::sleep(Duration::from_millis(500));
    beside.signal(Signal::STOP);
    let since = std::time::Instant::now();
    std::thread::sleep(still);
    let still_s = since.elapsed().as_secs_f64();
    beside.signal(Signal::CONT);
    assert_eq!(beside.end().code(), Some(0), "{}", beside.output("stderr"));
    (read_json(&dir.join("summary.json")), still_s)
}

/// Waits for the measured window of the only run below `runs`: it is open once it stands in the
/// header of the run.
fn measuring(beside: &mut Beside, runs: &Path) -> PathBuf {
    wait_for("the measured window", || {
        assert!(beside.runs(), "it ended: {}", beside.output("stderr"));
        let dir = takt::folders(runs).into_iter().next()?;
        let header: Value = serde_json::from_str(&fs::read_to_string(dir.join("run.json")).ok()?).ok()?;
        let from = header["measures"][0]["window_ns"][0].as_u64()?;
        (from != u64::MAX).then_some(dir)
    })
}

#[test]
fn a_stop_by_a_signal_is_the_cause_of_the_releases_that_it_cost() {
    const STOPS: u32 = 6;
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("humanoid.toml");
    let text = "robot = 'humanoid'\n[wire]\nkind = 'in_process'\n[motion]\ndevices = 6\nramp_s = 0.1\n[motion.safety]\n\
                max_missing = 16\nmax_late = 1000\nmax_late_in_row = 1000\nmax_away_ms = 60000\n";
    fs::write(&file, text).unwrap();
    let runs = folder.path().join("runs");
    let mut command = run(["bench", "humanoid", "--seconds", "2", "--json", "--config"]);
    command.arg(&file).arg("--runs").arg(&runs);
    let mut beside = Beside::start(command);
    let dir = measuring(&mut beside, &runs);
    for _ in 0..STOPS {
        std::thread::sleep(Duration::from_millis(100));
        beside.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(20));
        beside.signal(Signal::CONT);
    }
    beside.end();
    // Known without a trace, too; two that come close together may be one.
    let summary = read_json(&dir.join("summary.json"));
    let problems = summary["problems"].to_string();
    assert!(problems.contains("received SIGCONT"), "{problems}");
    let trace = read_json(&dir.join("trace.json"));
    if missing("the kernel cannot be traced here", trace["untraced"].is_null()) {
        return;
    }
    // Others may be late besides on a busy machine; of these each cost about twenty releases of 1
    // ms.
    let causes = trace["causes"].as_array().unwrap();
    let stopped = causes.iter().find(|row| row["cause"] == "stopped").unwrap_or_else(|| panic!("{trace:#}"));
    assert!(stopped["count"].as_u64().unwrap() >= u64::from(STOPS / 2), "{stopped}");
    assert!(stopped["never_ran"].as_u64().unwrap() >= 10 * u64::from(STOPS / 2), "{stopped}");
    assert!(stopped["who"].as_str().unwrap().starts_with("SIGSTOP of "), "{stopped}");
}

fn measure<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let measures = summary["measures"].as_array().unwrap();
    measures.iter().find(|m| m["name"] == name).unwrap_or_else(|| panic!("no {name} in {summary}"))
}

/// Checks that about as many releases were missed as fit into the time, all in one row, and that
/// verdict and problems say so.
fn reported(summary: &Value, name: &str, rate_hz: f64, still_s: f64) {
    let measure = measure(summary, name);
    // The signal takes some time to every thread, on a machine that does much else: a tenth less is
    // still each release for itself.
    let least = (0.9 * still_s * rate_hz) as u64;
    let misses = measure["misses"].as_u64().unwrap();
    assert!(misses >= least, "{name}: {misses} of at least {least}: {summary:#}");
    let row = measure["longest_miss_run"].as_u64().unwrap();
    assert!(row >= least, "{name}: a row of {row} of at least {least}: {summary:#}");
    assert_eq!(summary["verdict"], "FAIL", "{summary:#}");
    let problems = summary["problems"].to_string();
    assert!(problems.contains("stood still for"), "{problems}");
}

/// A robot's shipped file with other policies, so that the test needs no privilege.
fn shipped(name: &str, changes: &[(&str, &str)]) -> String {
    let mut text = fs::read_to_string(root().join("robots").join(name)).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replacen(from, to, 1);
    }
    text
}

#[test]
fn the_cyclic_task_misses_each_release() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "robot = 'cyclic'\nrate_hz = 500\n";
    let (summary, still_s) = frozen(folder.path(), "cyclic.toml", text, "1.6");
    reported(&summary, "lateness", 500.0, still_s);
    reported(&summary, "response", 500.0, still_s);
}

#[test]
fn the_quadrotors_two_loops_miss_each_release() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let (summary, still_s) = frozen(folder.path(), "uav.toml", &shipped("uav.toml", &[]), "1.6");
    reported(&summary, "lateness", 250.0, still_s);
    reported(&summary, "position-lateness", 50.0, still_s);
    // In the report of the same folder, too.
    let report = takt::report(summary["run_dir"].as_str().unwrap());
    let misses = measure(&summary, "lateness")["misses"].as_u64().unwrap();
    assert!(report.contains(&format!("{misses} of")) && report.contains("stood still for"), "{report}");
}

/// The last attitude job ends the flight in the moment in which the process goes on: the position
/// loop has no job after the releases of that time, which could tell of them.
#[test]
fn a_freeze_that_ends_the_flight_counts_for_the_position_loop() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    // Three jobs, of which the freeze holds up the third.
    let changes = [("rate_hz = 250", "rate_hz = 2.5"), ("rate_hz = 50", "rate_hz = 2.5")];
    let still = Duration::from_secs(2);
    let (summary, still_s) =
        frozen_for(still, folder.path(), "uav.toml", &shipped("uav.toml", &changes), "1.2");
    reported(&summary, "position-lateness", 2.5, still_s);
}

#[test]
fn the_daq_loop_misses_each_release() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let common = "robot = 'daq'\nlink = { kind = 'simulated' }\ndeadline_us = 2000\n\
                  acquisition = { policy = 'other', lock_memory = 'off' }\n";
    // By either stamp: with the freeze within a latency, and with the freeze between two edges.
    for stamp in ["receive", "write"] {
        let file = format!("{stamp}.toml");
        let text = format!("{common}pulse = {{ wait = '100us', stamp = '{stamp}' }}\n");
        let folder = folder.path().join(stamp);
        fs::create_dir(&folder).unwrap();
        let (summary, still_s) = frozen(&folder, &file, &text, "1.6");
        // An edge may time out in the middle of it; then the waiting is not counted again.
        reported(&summary, "latency", 500.0, still_s - 0.1);
    }
}

#[test]
fn the_humanoid_stops_when_nobody_controls_it() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    // Other processes may keep the controller from its CPU for a while, and only the freeze is to
    // stop it.
    let changes = [
        ("kind = \"veth\"", "kind = \"in_process\""),
        ("rate_hz = 1000", "rate_hz = 500"),
        ("devices = 59", "devices = 12\nramp_s = 0.1"),
        ("max_late_in_row = 5", "max_late_in_row = 1000"),
        ("max_late = 20", "max_late = 1000"),
        ("max_away_ms = 5", "enable_ms = 20000\nmax_away_ms = 400"),
    ];
    let text = shipped("humanoid.toml", &changes);
    let (summary, still_s) = frozen(folder.path(), "humanoid.toml", &text, "1.6");
    reported(&summary, "lateness", 500.0, still_s);
    reported(&summary, "response", 500.0, still_s);
    let reasons = summary["reasons"].to_string();
    assert!(reasons.contains("no controller was active for longer than safety.max_away_ms"), "{reasons}");
    let late = summary["figures"]["late_cycles"].as_f64().unwrap();
    assert!(late >= 0.9 * still_s * 500.0, "{late} late cycles");
}

#[test]
fn the_cell_misses_each_release() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = takt::patient_cell(folder.path(), "");
    let text = fs::read_to_string(path).unwrap();
    let runs = folder.path().join("cell");
    fs::create_dir(&runs).unwrap();
    let (summary, still_s) = frozen(&runs, "cell.toml", &text, "1.6");
    let task = &summary["tasks"][0];
    let rate_hz = 500.0;
    let least = (0.9 * still_s * rate_hz) as u64;
    assert!(task["misses"].as_u64() >= Some(least) && task["skipped"].as_u64() > Some(least / 2), "{task}");
    assert_eq!(summary["verdict"], "FAIL");
    assert!(summary["reasons"].to_string().contains("the process stood still"), "{}", summary["reasons"]);
}

#[test]
fn the_servo_stream_misses_each_release_and_ends() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    // Stopped with the stream, as under a hypervisor, or a computer of its own that goes on: its
    // packets then wait for the stream.
    for (pacing, own_controller) in [("locked", false), ("locked", true), ("free", true)] {
        let folder = folder.path().join(format!("{pacing}-{own_controller}"));
        fs::create_dir(&folder).unwrap();
        let mut controller = own_controller.then(|| {
            let config = folder.join("controller.toml");
            fs::write(&config, "program = 'takt-servo'\nrtde_port = 0\ndashboard_port = 0\n").unwrap();
            Beside::start(run(["simulate", "--config", config.to_str().unwrap()]))
        });
        let port = controller.as_mut().map(|controller| {
            let message = controller.line("stdout", "RTDE: ");
            let address = message.split(',').next().unwrap();
            address.parse::<std::net::SocketAddr>().unwrap().port()
        });
        // Other processes may keep the stream from its CPU for a while, and only the freeze is to
        // end it.
        let mut text = shipped(
            "servo.toml",
            &[
                ("pacing = \"locked\"", &format!("pacing = \"{pacing}\"")),
                ("silent_cycles = 10 ", "silent_cycles = 200 "),
                ("stale_cycles = 5 ", "stale_cycles = 200 "),
                ("skipped_cycles = 5 ", "skipped_cycles = 200 "),
            ],
        );
        if let Some(port) = port {
            let (before, after) = text.split_once("\n[simulator]").unwrap();
            let (_, after) = after.split_once("\n[servoj]").unwrap();
            text = format!("{before}\nhost = '127.0.0.1'\nport = {port}\n[servoj]{after}");
        }
        let (summary, still_s) = frozen(&folder, "servo.toml", &text, "1.6");
        reported(&summary, "response", 500.0, still_s);
        let reasons = summary["reasons"].to_string();
        assert!(reasons.contains("the stream ended by itself"), "{reasons}");
        let missed = measure(&summary, "response")["misses"].as_u64().unwrap();
        let report = takt::report(summary["run_dir"].as_str().unwrap());
        assert!(report.contains(&format!("{missed} of")) && report.contains("stood still for"), "{report}");
    }
}
