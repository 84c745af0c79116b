//! `takt run robots/servo.toml`: a stream of joint targets to the simulated controller, as a user
//! starts it; what its run directory says is held against the controller's own log.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shipped file with patience: on a loaded machine sender and controller may be kept from
/// running for longer than an arm would be left without a command.
fn patient(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(root().join("robots/servo.toml")).unwrap();
    let keys = ["stale_cycles", "skipped_cycles", "silent_cycles", "max_lost_packets", "max_missed_commands"];
    let line = |line: &str| match line.split_once(" = ") {
        Some((key, _)) if keys.contains(&key) => format!("{key} = 250\n"),
        _ => format!("{line}\n"),
    };
    let text: String = text.lines().map(line).collect();
    let file = folder.join("servo.toml");
    fs::write(&file, text).unwrap();
    file
}

fn takt(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_run_says_what_the_controllers_own_log_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = patient(folder.path());
    let runs = folder.path().join("runs");
    let (code, out, err) =
        takt(&["run", file.to_str().unwrap(), "--seconds", "3", "--json", "--runs", runs.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{out}\n{err}");
    let dir = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let header: Value = serde_json::from_str(&fs::read_to_string(dir.join("run.json")).unwrap()).unwrap();
    assert_eq!(header["robot"], "servo");
    assert_eq!(header["records_lost"], 0);
    let failures = header["failures"].as_array().map_or(0, Vec::len);
    assert_eq!(failures, 0, "{}", header["failures"]);
    let measures: Vec<&str> = header["measures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|measure| measure["name"].as_str().unwrap())
        .collect();
    assert_eq!(measures, ["response", "lateness", "packet-to-command", "period"]);
    let figure = |name: &str| {
        header["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {}", header["figures"]))
    };
    assert!(figure("commands") > 500.0);
    // Of the whole stream, and of the window: what the controller missed in the window it missed in
    // the stream.
    let missed =
        header["losses"].as_array().unwrap().iter().find(|loss| loss["name"] == "missed_commands").unwrap();
    assert!(missed["lost"].as_f64().unwrap() <= figure("controller_cycles_without_command") + 1.0);
    // Two clocks, two programs, one arm: behind its targets by lookahead_time.
    let (ours, theirs) = (figure("following_rms_rad"), figure("controller_following_rms_rad"));
    assert!(ours > 0.005 && theirs > 0.005 && (ours / theirs - 1.0).abs() < 0.5, "{ours} {theirs}");
    // What a run leaves is sealed, the controller's log with it.
    let hashes = fs::read_to_string(dir.join("hashes.json")).unwrap();
    assert!(hashes.contains("controller.csv") && hashes.contains("samples/cycles.parquet"), "{hashes}");
    let (code, out, err) =
        takt(&["report", dir.to_str().unwrap(), "--out", folder.path().join("r.html").to_str().unwrap()]);
    assert_eq!(code, Some(0), "{out}\n{err}");
}

#[test]
fn what_cannot_be_streamed_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(root().join("robots/servo.toml")).unwrap();
    for (from, to, expected) in [
        ("gain = 300", "gain = 3000", "servoj.gain"),
        ("frequency_hz = 0.5", "frequency_hz = 5.0", "limits.speed_rad_s"),
        ("following_error_rad = 0.2", "following_error_rad = 0.05", "servoj.lookahead_s"),
        ("program = \"takt-servo\"", "program = \"own\"", "simulator.program"),
        ("kind = \"sine\"", "kind = \"circle\"", "waypoints"),
        ("pacing = \"locked\"", "pacing = \"blocking\"", "locked"),
        ("max_lost_packets", "max_packets_lost", "max_lost_packets"),
    ] {
        assert!(shipped.contains(from), "{from}");
        let file = folder.path().join("servo.toml");
        fs::write(&file, shipped.replace(from, to)).unwrap();
        let (code, out, err) = takt(&["run", file.to_str().unwrap(), "--seconds", "1"]);
        assert_ne!(code, Some(0), "{to}: {out}");
        assert!(err.contains(expected), "{to}: {err}");
    }
}
