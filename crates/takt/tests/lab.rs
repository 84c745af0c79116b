//! The lab through the binary: doctor, bench of the quadrotor and of the DAQ loop, reports.

#![allow(clippy::unwrap_used)]

mod takt;

use std::fs;
use std::path::Path;

use serde_json::Value;

use takt::{alone, folders, json, read_json, refusal, stderr, stdout, takt as run};

#[test]
fn the_doctor_has_evidence_for_every_finding_and_a_fix_for_every_bad_one() {
    let _machine = alone();
    let report = json(&run(["doctor", "--json", "--seconds", "1"]).output().unwrap());
    let checks = report.as_array().unwrap();
    let mut ids: Vec<&str> = checks.iter().map(|check| check["id"].as_str().unwrap()).collect();
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(["ok", "unknown", "warn", "fail"].contains(&status), "{check}");
        assert!(!check["evidence"].as_str().unwrap().is_empty(), "{check}");
        assert!(check["fix"].is_string() || ["ok", "unknown"].contains(&status), "{check}");
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is there twice");
    for part in [
        "preempt",
        "thrott",
        "group",
        "governor",
        "idle",
        "smt",
        "interrupt",
        "slack",
        "clock",
        "swap",
        "isolat",
        "hypervisor",
        "gap",
    ] {
        assert!(ids.iter().any(|id| id.contains(part)), "no finding about {part} in {ids:?}");
    }
    // What was only read takes no time and is marked so.
    let read = json(&run(["doctor", "--json", "--seconds", "0"]).output().unwrap());
    assert_eq!(read.as_array().unwrap().len(), all);
    assert_eq!(run(["doctor", "--seconds", "-1"]).output().unwrap().status.code(), Some(2));
}

/// Values of the settings that the doctor may change, wherever they can be read.
fn settings() -> Vec<(String, String)> {
    let names = ["sched_rt_runtime_us", "timer_migration", "sched_autogroup_enabled"];
    let read = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        fs::read_to_string(&path).ok().map(|value| (path, value))
    };
    names.into_iter().filter_map(read).collect()
}

/// Puts settings back, whatever becomes of the test.
struct Before(Vec<(String, String)>);

impl Drop for Before {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            if fs::read_to_string(path).ok().as_ref() != Some(value) {
                let _ = fs::write(path, value);
            }
        }
    }
}

#[test]
fn what_the_doctor_changes_it_puts_back() {
    let _machine = alone();
    let before = Before(settings());
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let doctor = |what: &str| {
        run(["doctor", what, "--json", "--seconds", "0", "--state"]).arg(&state).output().unwrap()
    };
    let applied = doctor("--apply");
    let changes: Value =
        serde_json::from_slice(&applied.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(&applied)));
    let changes = changes.as_array().unwrap();
    if changes.is_empty() || applied.status.code() != Some(0) {
        eprintln!("SKIPPED: this machine lets nothing be changed: {changes:?}");
        return;
    }
    for change in changes {
        let now = fs::read_to_string(change["path"].as_str().unwrap()).unwrap();
        assert_eq!(now.trim(), change["after"].as_str().unwrap(), "{change}");
        assert_ne!(change["before"], change["after"], "{change}");
    }
    // A second time changes nothing and forgets nothing.
    assert_eq!(doctor("--apply").status.code(), Some(0));
    let reverted = doctor("--revert");
    assert_eq!(reverted.status.code(), Some(0), "{}", stderr(&reverted));
    assert_eq!(settings(), before.0);
    let nothing = doctor("--revert");
    assert_eq!(nothing.status.code(), Some(2), "{}", stdout(&nothing));
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

#[test]
fn the_quadrotor_has_a_row_per_configuration_and_a_report() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let output = run(["bench", "uav", "--iterations", "400", "--stress", "off", "--json"])
        .args(["--policies", "other:0,fifo:50,deadline:800us/4ms/4ms", "--runs"])
        .arg(runs.path())
        .output()
        .unwrap();
    let answer = json(&output);
    let rows = answer["rows"].as_array().unwrap();
    let names: Vec<_> =
        rows.iter().map(|r| (r["policy"].as_str().unwrap(), r["parameter"].as_str().unwrap())).collect();
    assert_eq!(names, [("OTHER", "nice 0"), ("FIFO", "priority 50"), ("DEADLINE", "R800 D4000")]);
    for row in rows {
        assert_eq!(row["stress"], "off");
        assert!(number(row, "count") > 300.0, "{row}");
        let ordered = ["median", "p90", "p99", "max"].map(|key| number(row, key));
        assert!(ordered.is_sorted() && ordered[0] > 0.0, "{row}");
        assert!(number(row, "mean") <= number(row, "max") && number(row, "stddev") >= 0.0, "{row}");
        assert!(row["misses"].is_u64());
        // It flew: somewhere near its reference, and not exactly on it.
        assert!((1e-6..5.0).contains(&number(row, "position_rms_m")), "{row}");
    }

    let campaign = Path::new(answer["campaign_dir"].as_str().unwrap());
    let out = runs.path().join("report");
    let written =
        run(["report".as_ref(), campaign.as_os_str(), "--out".as_ref(), out.as_os_str()]).output().unwrap();
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let [html, markdown] =
        ["report.html", "report.md"].map(|name| fs::read_to_string(out.join(name)).unwrap());
    for text in [&html, &markdown] {
        assert!(
            text.contains("deadline:800us/4ms/4ms") && text.contains("P99.9"),
            "a configuration is missing"
        );
    }
    assert!(
        html.contains("<svg") && !html.contains("http-equiv") && !html.contains("<script src"),
        "not self-contained"
    );
    // The figures name what they came from.
    let seal = fs::read(
        folders(campaign).iter().find(|d| d.join("hashes.json").is_file()).unwrap().join("hashes.json"),
    );
    assert!(seal.is_ok());

    // Damage is said, not left out.
    let victim = folders(campaign).into_iter().find(|d| d.join("samples").is_dir()).unwrap();
    for entry in fs::read_dir(victim.join("samples")).unwrap() {
        fs::write(entry.unwrap().path(), "PAR1").unwrap();
    }
    let damaged =
        run(["report".as_ref(), campaign.as_os_str(), "--out".as_ref(), out.as_os_str()]).output().unwrap();
    assert_eq!(damaged.status.code(), Some(0), "{}", stderr(&damaged));
    let markdown = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(markdown.contains("files changed since the seal: samples/attitude.parquet"), "{markdown}");
    let name = victim.file_name().unwrap().to_str().unwrap();
    assert!(markdown.contains(name), "the damaged run {name} is not named:\n{markdown}");
    let nothing = run(["report", "/nonexistent"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
}

#[test]
fn any_robot_runs_from_its_file_and_leaves_a_verdict() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let file = takt::root().join("robots/cyclic.toml");
    let output = run(["run", file.to_str().unwrap(), "--seconds", "0.5", "--noise", "2", "--json", "--runs"])
        .arg(runs.path())
        .output()
        .unwrap();
    let summary = json(&output);
    assert_eq!(summary["robot"], "cyclic");
    assert_eq!(summary["measures"][0]["name"], "lateness");
    assert!(["PASS", "FAIL", "INCONCLUSIVE"].contains(&summary["verdict"].as_str().unwrap()));
    let dir = Path::new(summary["run_dir"].as_str().unwrap());
    assert_eq!(read_json(&dir.join("summary.json")), summary);
    let header = read_json(&dir.join("run.json"));
    assert_eq!(header["load"]["components"][0]["kind"], "noise");
    for refused in
        [&["--policy", "RR+RR"][..], &["--resume", "/tmp"], &["--stress", "heavy"], &["--load-cpus", "all"]]
    {
        let output = run(["run", file.to_str().unwrap(), "--seconds", "0.2"]).args(refused).output().unwrap();
        refusal(&output);
    }
}

/// The verdict is about waking up. A job that ends after its deadline has missed it all the same.
#[test]
fn a_task_that_always_ends_late_is_no_pass() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let file = runs.path().join("ends-late.toml");
    let task = "robot = 'cyclic'\nrate_hz = 100\nwork_us = 2000\ndeadline_ms = 1.9\n";
    for (claim, reported) in [("", "failures"), ("[verdict]\nmisses_per_job = 0.9\n", "problems")] {
        std::fs::write(&file, format!("{task}{claim}")).unwrap();
        let run = run(["run", file.to_str().unwrap(), "--seconds", "0.3", "--json", "--runs"])
            .arg(runs.path())
            .output()
            .unwrap();
        let summary = json(&run);
        let misses = summary["measures"][1]["misses"].as_u64().unwrap();
        assert!(misses >= 20, "{summary:#}");
        let header = read_json(&Path::new(summary["run_dir"].as_str().unwrap()).join("run.json"));
        assert!(header[reported].to_string().contains("Response time"), "{header:#}");
        let sentence = summary["sentence"].as_str().unwrap();
        assert!(sentence.contains("Response time") && sentence.contains("1.900 ms"), "{sentence}");
        assert!(!claim.is_empty() || summary["verdict"] == "FAIL", "{sentence}");
    }
}

#[test]
fn a_standing_camera_learns_what_never_has_depth_and_the_cell_takes_it() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(crate::takt::root().join("robots/synthetic.toml")).unwrap();
    // One camera stands still, and a reflection hides a part of its picture for good.
    let glare = "flaws.events = [{ what = { glare = { share = 0.1 } }, from_s = 0.0, to_s = 1e6 }]\nmin_depth_m = 0.2";
    let standing = shipped.replacen("mount = { frame = \"tcp\"", "mount = { frame = \"base\"", 1);
    let standing = standing.replacen("min_depth_m = 0.2", glare, 1);
    let cell = folder.path().join("cell.toml");
    fs::write(&cell, &standing).unwrap();
    let (cell, out) = (cell.to_str().unwrap(), folder.path().join("backgrounds"));
    let learned =
        run(["background", cell, "--seconds", "10", "--out", out.to_str().unwrap()]).output().unwrap();
    let message = String::from_utf8(learned.stdout).unwrap();
    assert!(learned.status.success(), "{message}{}", String::from_utf8_lossy(&learned.stderr));
    assert_eq!(message.matches("it rides on the robot").count(), 4, "{message}");
    let text = fs::read_to_string(out.join("front.toml")).unwrap();
    let samples: Vec<char> = text.chars().filter(|c| matches!(c, '#' | '.')).collect();
    let share = samples.iter().filter(|c| **c == '#').count() as f64 / samples.len() as f64;
    assert!((0.05..0.2).contains(&share), "a tenth was hidden: {share}\n{message}");

    // A name is no way out of the folder.
    fs::write(cell, standing.replacen("name = \"front\"", "name = \"../front\"", 1)).unwrap();
    let refused =
        run(["background", cell, "--seconds", "1", "--out", out.to_str().unwrap()]).output().unwrap();
    assert!(refusal(&refused).contains("files are named after cameras"), "{}", refusal(&refused));

    let runs = folder.path().join("runs");
    let with = |background: &str| {
        let sensor = format!("sensor = {{ background = \"{background}\" }}\n[cameras.source]\nbackend");
        fs::write(cell, standing.replacen("[cameras.source]\nbackend", &sensor, 1)).unwrap();
        run(["run", cell, "--seconds", "1", "--view", "none", "--runs", runs.to_str().unwrap()])
            .output()
            .unwrap()
    };
    let accepted = with("backgrounds/front.toml");
    assert_ne!(accepted.status.code(), Some(2), "{}", String::from_utf8_lossy(&accepted.stderr));
    fs::write(out.join("short.toml"), text.replacen("#", "", 1)).unwrap();
    let refused = with("backgrounds/short.toml");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("learn it again"), "{message}");
}
