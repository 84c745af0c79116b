//! The lab through the binary: doctor, bench of the quadrotor and of the DAQ loop, reports.

#![allow(clippy::unwrap_used)]

use crate::takt;

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
        takt_witness::skip!("this machine lets nothing be changed: {changes:?}");
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

/// `takt compare --json` of two run directories.
fn compared(dirs: &[&str], measure: &str) -> Value {
    let all = json(&run(["compare", "--json", "--measure", measure]).args(dirs).output().unwrap());
    assert_eq!(all["pairs"].as_array().unwrap().len(), 1, "{all:#}");
    all["pairs"][0].clone()
}

/// Holds the rows of a bench against its report, and against comparisons of its runs: n, mean,
/// maximum and misses to the nanosecond, in the report's table to what it shows.
fn hold_rows(answer: &Value, measure: &str) {
    let rows = answer["rows"].as_array().unwrap();
    let dirs: Vec<&str> = rows.iter().map(|row| row["run_dirs"][0].as_str().unwrap()).collect();
    let campaign = answer["campaign_dir"].as_str().unwrap();
    let table = takt::report(campaign);
    let ns = |row: &Value, key: &str| number(row, key) * 1e3;
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-2, "{a} ns and {b} ns");
    for (index, (row, dir)) in rows.iter().zip(&dirs).enumerate() {
        let collection = takt_report::collect(&[dir]).unwrap();
        let group = collection.groups.iter().find(|group| group.name == measure).unwrap();
        let digest = &takt_report::digests(&collection, group)[0];
        assert_eq!(Some(digest.summary.count), row["count"].as_u64(), "{row:#}");
        assert_eq!(digest.missed(), row["misses"].as_u64(), "{row:#}");
        near(digest.summary.mean, ns(row, "mean"));
        near(digest.summary.worst, ns(row, "max"));
        let sentence = digest.verdict.as_ref().unwrap().sentence();
        assert_eq!(Some(sentence.as_str()), row["sentence"].as_str());
        // What a reader of the report finds.
        let us = |key: &str| format!("{:.2}", number(row, key));
        let cells = [row["count"].to_string(), us("mean"), us("max")];
        let line = table.lines().find(|line| {
            let found: Vec<&str> = line.split('|').map(str::trim).collect();
            cells.iter().all(|cell| found.contains(&cell.as_str()))
        });
        assert!(line.is_some(), "no row of the report has {cells:?}:\n{table}");
        // One run compared with the next.
        let next = (index + 1) % rows.len();
        let pair = compared(&[dir, dirs[next]], measure);
        for (side, row) in [row, &rows[next]].into_iter().enumerate() {
            let value = |figure: &str| {
                let change = pair["changes"].as_array().unwrap().iter().find(|c| c["figure"] == figure);
                number(change.unwrap(), ["before_ns", "after_ns"][side])
            };
            assert_eq!((&pair["samples"][side], &pair["misses"][side]), (&row["count"], &row["misses"]));
            near(value("mean"), ns(row, "mean"));
            near(value("max"), ns(row, "max"));
            assert_eq!(pair["verdicts"][side], row["sentence"]);
        }
        // And the run's own summary.
        let summary = read_json(&Path::new(dir).join("summary.json"));
        let own = &summary["measures"].as_array().unwrap().iter().find(|m| m["name"] == measure).unwrap();
        assert_eq!((&own["us"]["count"], &own["misses"]), (&row["count"], &row["misses"]));
        near(ns(&own["us"], "mean"), ns(row, "mean"));
        near(ns(&own["us"], "worst"), ns(row, "max"));
    }
}

#[test]
#[ignore = "takes 15 s"]
fn the_rows_of_a_bench_are_those_of_its_report_and_of_comparisons() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let bench = |args: &[&str]| {
        let mut bench = run(["bench"]);
        json(&bench.args(args).args(["--json", "--runs"]).arg(runs.path()).output().unwrap())
    };
    let policies = "other:0,fifo:50";
    let uav = ["uav", "--iterations", "60", "--stress", "off", "--policies", policies];
    hold_rows(&bench(&uav), "lateness");
    // Its conditions have the same number of edges however fast they are, or say which has less.
    let daq = bench(&["daq", "--seconds", "1"]);
    hold_rows(&daq, "latency");
    for row in daq["rows"].as_array().unwrap() {
        let reported = row["labels"].to_string();
        assert!(
            row["count"] == 2500 || reported.contains("of 2500 edges") || reported.contains("lost"),
            "{row:#}"
        );
    }
}

/// A row of which nothing was measured has no figures: 0 would be a better one than any.
#[test]
#[ignore = "takes 15 s"]
fn a_row_that_fails_has_null_for_figures() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = workspace.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let rows = |command: &[&str], path: &Path, args: &[&str], status: i32| {
        let mut command = run(command);
        command.arg(path).args(args).args(["--json", "--runs"]).arg(workspace.path().join("runs"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["rows"].as_array().unwrap().clone(), answer)
    };
    let null = |row: &Value, keys: &[&str]| {
        for key in keys {
            assert!(row.get(*key).is_some_and(Value::is_null), "{key} of {row:#}");
        }
    };
    // SCHED_DEADLINE on a part of the CPUs is refused to everybody, SCHED_OTHER to nobody.
    let campaign = "name = 'refused'\nabout = 'x'\nrobot = 'cyclic'\nseconds = 0.2\n[set]\nstrict = true\n\
                    lock_memory = 'off'\ncpus = '0'\n[[factor]]\nname = 'policy'\n\
                    values = ['deadline:100us/1ms/1ms', 'other:0']\n";
    let (found, answer) = rows(&["campaign", "run"], &file("campaign.toml", campaign), &[], 1);
    let keys = ["misses", "longest_miss_run", "stolen", "sentence", "mean_range_us", "max_range_us", "never"];
    null(&found[0], &keys);
    null(&found[0]["us"], &["mean", "stddev", "min", "median", "p90", "p99", "p999", "worst"]);
    assert_eq!(found[0]["figures"], serde_json::json!({}));
    assert!(found[1]["misses"].is_u64() && found[1]["us"]["worst"].is_f64(), "{:#}", found[1]);
    let report = takt::report(answer["dir"].as_str().unwrap());
    // The numbers of its runs and samples are 0.
    for line in report.lines().filter(|line| line.starts_with("| deadline:100us")) {
        let mut figures = line.split('|').skip(4).map(str::trim);
        assert!(!figures.any(|cell| ["0", "0.00", "0 / 0"].contains(&cell)), "{line}");
    }
    // No machine has this CPU.
    let shipped = |name: &str| fs::read_to_string(takt::root().join("robots").join(name)).unwrap();
    let uav = shipped("uav.toml").replacen("[attitude]", "[attitude]\ncpus = \"1000\"", 1);
    let uav = uav.replacen("isolate = true", "strict = true\nisolate = false", 1);
    let args = ["--iterations", "20", "--stress", "off", "--policies", "other:0"];
    let (found, _) = rows(&["bench", "uav", "--config"], &file("uav.toml", &uav), &args, 2);
    null(&found[0], &["mean", "median", "max", "stddev", "p90", "p99", "misses", "longest_miss_run"]);
    null(&found[0], &["sentence", "position_rms_m", "deviation_rms_m", "diverged", "stolen"]);
    // A converter that stops at half a volt: the run comes to its end without an edge.
    let daq = "robot = 'daq'\ndeadline_us = 1000\npulse.timeout = '1ms'\nlink = { kind = 'simulated', range_v = [0.0, 0.5] }\n\
               acquisition = { policy = 'other', lock_memory = 'off' }\n";
    let (found, _) = rows(&["bench", "daq", "--config"], &file("daq.toml", daq), &["--seconds", "0.2"], 0);
    for row in &found {
        null(row, &["max", "mean", "median", "stddev", "min", "p90", "p99", "misses"]);
        let figures = row["figures"].as_object().unwrap();
        assert!(!figures.keys().any(|name| name.ends_with("_us")), "{row:#}");
    }
    // A robot that nobody answers for.
    let (before, after) = shipped("synthetic.toml")
        .split_once("[robot.simulator]")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let (_, after) = after.split_once("\n[").unwrap();
    let cell = format!("{before}[robot.rtde]\nport = 1\nconnect_timeout_ms = 200\n[{after}").replacen(
        "[tasks]",
        "[tasks]\nstrict = true",
        1,
    );
    let args = ["--seconds", "0.2", "--repeat", "1", "--policies", "CFS+CFS", "--noise", "0"];
    let (found, _) = rows(&["bench", "cell", "--config"], &file("cell.toml", &cell), &args, 2);
    null(
        &found[0],
        &["reaction_ms", "misses", "reactions", "frames_dropped", "ssm_misses", "work", "stolen"],
    );
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
#[ignore = "takes 15 s"]
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
#[ignore = "takes 20 s"]
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
    assert_eq!(message.matches("it is mounted on the robot").count(), 4, "{message}");
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
