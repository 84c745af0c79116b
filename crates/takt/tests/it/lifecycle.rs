//! Ends of runs, and runs without privileges.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;

use takt::{
    Beside, TAKT, alone, demo, demo_text, folders, json, missing, read_json, refusal, rows, stderr,
    takt as run, wait_for,
};

/// The cell beside the test, without an end of its own, once its samples have reached the disk.
fn endless(runs: &Path) -> (Beside, PathBuf) {
    let mut command = run(["run", demo().to_str().unwrap(), "--view", "none", "--json", "--runs"]);
    command.arg(runs);
    let mut cell = Beside::start(command);
    let dir = PathBuf::from(cell.line("stderr", "Run directory: "));
    wait_for("samples", || {
        assert!(cell.runs(), "{}", cell.output("stderr"));
        (rows(&dir, "frames.csv") > 0 && rows(&dir, "ssm_jobs.csv") > 0).then_some(())
    });
    (cell, dir)
}

#[test]
fn an_interrupt_ends_a_run_in_order() {
    let _machine = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let runs = tempfile::tempdir().unwrap();
        let (mut cell, dir) = endless(runs.path());
        // Once the window is open, so that there is something to judge.
        wait_for("the window", || {
            (read_json(&dir.join("run.json"))["facts"]["window_ns"][0] != 0).then_some(())
        });
        let before = rows(&dir, "frames.csv");
        wait_for("frames of the window", || (rows(&dir, "frames.csv") > before + 60).then_some(()));
        cell.signal(signal);
        assert_eq!(cell.end().code(), Some(0), "{}", cell.output("stderr"));
        let summary: serde_json::Value = serde_json::from_str(&cell.output("stdout")).unwrap();
        assert!(summary["frames"].as_u64() > Some(0));
        assert!(dir.join("hashes.json").is_file(), "not sealed");
        assert_eq!(read_json(&dir.join("summary.json")), summary);
        assert!(read_json(&dir.join("run.json"))["finished_utc"].is_string());
    }
}

#[test]
#[ignore = "takes 25 s"]
fn a_kill_leaves_the_samples_until_then() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let (mut cell, dir) = endless(runs.path());
    // Samples go on reaching the disk while the run goes on, not only once.
    let before = (rows(&dir, "frames.csv"), rows(&dir, "ssm_jobs.csv"));
    wait_for("more samples", || {
        (rows(&dir, "frames.csv") > before.0 && rows(&dir, "ssm_jobs.csv") > before.1).then_some(())
    });
    cell.signal(Signal::KILL);
    assert_eq!(cell.end().code(), None);
    assert!(rows(&dir, "frames.csv") > before.0 && rows(&dir, "ssm_jobs.csv") > before.1);
    // What was asked and granted is there, too, and nothing claims that the run came to its end.
    let run = read_json(&dir.join("run.json"));
    assert!(run["threads"].as_array().is_some_and(|t| !t.is_empty()));
    assert!(run["finished_utc"].is_null());
    assert!(!dir.join("hashes.json").exists() && !dir.join("summary.json").exists());
}

/// Possessions of a user without any privilege: a copy of the program, the demonstration, a home.
struct Guest(tempfile::TempDir);

impl Guest {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let everybody =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let program = home.path().join("takt");
        fs::copy(TAKT, &program).unwrap();
        everybody(&program, 0o755);
        fs::write(home.path().join("cell.toml"), demo_text()).unwrap();
        everybody(&home.path().join("cell.toml"), 0o644);
        everybody(home.path(), 0o777);
        Self(home)
    }

    /// The cell as a user without privileges, whatever the tests run as.
    fn run(&self, more: &[&str]) -> Output {
        let home = self.0.path();
        let start = r#"ulimit -r 0; ulimit -e 0; ulimit -l 64; exec "$@""#;
        takt::without_rights()
            .args(["bash", "-c", start, "bash"])
            .arg(home.join("takt"))
            .arg("run")
            .arg(home.join("cell.toml"))
            .args(["--view", "none", "--json"])
            .args(more)
            .arg("--runs")
            .arg(home.join("runs"))
            .current_dir(home)
            .env("HOME", home)
            .env("XDG_CACHE_HOME", home.join("cache"))
            .output()
            .unwrap()
    }
}

#[test]
fn without_privileges_a_run_says_so_and_a_strict_one_refuses() {
    let root = rustix::process::geteuid().is_root();
    let setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if missing("dropping privileges takes root and setpriv (util-linux)", root && setpriv) {
        return;
    }
    let _machine = alone();
    let guest = Guest::new();
    let output = guest.run(&["--seconds", "2"]);
    let summary = json(&output);
    let refused = summary["not_granted"].as_array().unwrap();
    assert!(!refused.is_empty());
    assert_ne!(summary["verdict"], "PASS", "{}", summary["reasons"]);
    assert!(summary["frames"].as_u64() > Some(0));
    // One line with every way out; each setting stands in run.json.
    let message = stderr(&output);
    let lines: Vec<&str> = message.lines().filter(|line| line.contains("NOT GRANTED")).collect();
    let [line] = lines[..] else { panic!("{message}") };
    assert!(line.contains(&format!("NOT GRANTED {} settings", refused.len())), "{line}");
    for setting in refused {
        if let Some((_, fix)) = setting.as_str().unwrap().split_once("Fix: ") {
            assert!(line.contains(fix.trim_end_matches('.')), "{fix}: {line}");
        }
    }
    let dir = Path::new(summary["run_dir"].as_str().unwrap());
    assert_eq!(read_json(&dir.join("run.json"))["facts"]["not_granted"], summary["not_granted"]);

    let output = guest.run(&["--seconds", "2", "--strict"]);
    let message = refusal(&output);
    assert!(message.starts_with("takt: "), "{message}");
    assert!(message.to_lowercase().contains("cap_sys_nice"), "{message}");
    assert!(message.contains("setcap"), "no way out: {message}");
    assert_eq!(folders(&guest.0.path().join("runs")).len(), 1, "a refused run left a run directory");
}

#[test]
fn a_recording_can_be_replayed() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let out = workspace.path().join("recorded");
    let output =
        run(["record", demo().to_str().unwrap(), "--seconds", "2", "--out"]).arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut text = demo_text();
    for (index, name) in ["west", "centre-west", "centre", "centre-east", "east"].iter().enumerate() {
        assert!(out.join(format!("{name}.mcap")).is_file(), "{name}.mcap");
        // Relative to the configuration, through a link, as people lay out their folders.
        text = text.replace(&format!("builtin:pedestrians/cam{index}.mcap"), &format!("latest/{name}.mcap"));
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 5);
    symlink("recorded", workspace.path().join("latest")).unwrap();
    let config = workspace.path().join("cell.toml");
    fs::write(&config, text).unwrap();

    let output = run(["check"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(takt::stdout(&output).contains("5 cameras"), "{}", takt::stdout(&output));
    let output = run(["run"])
        .arg(&config)
        .args(["--seconds", "2", "--view", "none", "--json", "--runs"])
        .arg(workspace.path())
        .output()
        .unwrap();
    let summary = json(&output);
    assert_eq!(summary["cameras"], 5);
    for camera in summary["per_camera"].as_array().unwrap() {
        assert!(camera["frames"].as_u64() > Some(0), "{camera}");
    }
    assert!(summary["people_detected"].as_u64() > Some(0), "the people were lost on the way");
}
