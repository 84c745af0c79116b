//! The frozen interface for users and their programs: the keys of `run.json` and `summary.json` of
//! each robot, the columns of its samples, the shape of the output with `--json`, exit codes.
//! Values are no part of it, but for names that programs compare with.
//!
//! A file under `golden/` has a line for each place of a JSON value, with the types that were seen
//! there. It changes on purpose only:
//!
//! ```text
//! TAKT_GOLDEN=renew cargo test -p takt --test it golden::
//! ```
//!
//! adds what is new and takes away what is gone; then read the difference. What is there only where
//! something happened, or where the machine has it, is in [`FREEDOMS`], each with its reason.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use golden::shape::Free::{Absent, Keys};
use golden::shape::{Freedom, Golden, shape_of};
use golden::{free, hold, run_shape, shape};
use takt::{alone, missing, root, stderr, stdout, takt as run};

/// Standard output as JSON, whatever the verdict.
#[track_caller]
fn answer(output: &Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// Runs a shipped robot for a moment with some of its text changed, and holds what it prints and
/// leaves. Returns its run directory.
fn robot(name: &str, changes: &[(&str, &str)], seconds: &str, runs: &Path) -> PathBuf {
    let shipped = match name {
        "cell" => "synthetic",
        "ros" => "turtlebot",
        name => name,
    };
    let mut text = fs::read_to_string(root().join("robots").join(shipped).with_extension("toml")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{shipped} has no {from}");
        text = text.replacen(from, to, 1);
    }
    let file = runs.join(name).with_extension("toml");
    fs::write(&file, text).unwrap();
    let mut command = run(["run", file.to_str().unwrap(), "--seconds", seconds, "--view", "none", "--json"]);
    let output = command.arg("--runs").arg(runs).output().unwrap();
    let message = answer(&output);
    let run_dir = PathBuf::from(message["run_dir"].as_str().unwrap());
    let mut seen = shape("--json", &message);
    seen.extend(run_shape(&run_dir));
    hold(name, &seen);
    run_dir
}

#[test]
fn the_bare_task_and_what_is_made_of_runs() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    // SCHED_DEADLINE on a part of the CPUs is refused to everybody: a run with what was not
    // granted.
    let refused = [("fifo:80\"", "deadline:100us/1ms/1ms\"\ncpus = \"0\"")];
    let first = robot("cyclic", &refused, "0.5", runs.path());
    let second = robot("cyclic", &refused, "0.5", runs.path());
    // What other programs read: cyclictest's histogram, and a table.
    let export = |format: &str| run(["export", "--format", format]).arg(&first).output().unwrap();
    let head = |output: Output| String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned();
    let histogram = head(export("histogram"));
    assert!(histogram.starts_with("# Histogram") || histogram.starts_with("000000 "), "{histogram}");
    hold(
        "export-csv",
        &shape("csv", &head(export("csv")).split(',').map(|c| (c.to_owned(), Value::from(0))).collect()),
    );
    let output = run(["compare", "--json"]).args([&first, &second]).output().unwrap();
    hold("compare", &shape("--json", &answer(&output)));
    let campaign = runs.path().join("campaign.toml");
    fs::write(&campaign, "name = 'golden'\nabout = 'two runs'\nrobot = 'cyclic'\nseconds = 0.3\nrepetitions = 1\n[[factor]]\nname = 'policy'\nvalues = ['other:0', 'other:5']\n").unwrap();
    let mut command = run(["campaign", "run", campaign.to_str().unwrap(), "--json", "--runs"]);
    hold("campaign", &shape("--json", &answer(&command.arg(runs.path()).output().unwrap())));
}

#[test]
fn the_quadrotor() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("uav", &[], "0.5", runs.path());
    let bench = ["bench", "uav", "--iterations", "50", "--stress", "off", "--policies", "other:0", "--json"];
    let output = run(bench).arg("--runs").arg(runs.path()).output().unwrap();
    hold("bench-uav", &shape("--json", &answer(&output)));
}

#[test]
fn the_daq_loop() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    // Lost edges leave rows, a problem and a failure of their own.
    robot("daq", &[("kind = \"udp\"", "kind = \"udp\"\ndrop_every = 50")], "0.5", runs.path());
    let bench = ["bench", "daq", "--seconds", "0.2", "--json", "--runs"];
    hold("bench-daq", &shape("--json", &answer(&run(bench).arg(runs.path()).output().unwrap())));
}

#[test]
fn the_humanoid() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let bench =
        ["bench", "humanoid", "--devices", "8", "--seconds", "1", "--wire", "in-process", "--untraced"];
    let output = run(bench).args(["--json", "--runs"]).arg(runs.path()).output().unwrap();
    let message = answer(&output);
    let run_dir = PathBuf::from(message["run"]["run_dir"].as_str().unwrap());
    let mut seen = shape("--json", &message);
    seen.extend(run_shape(&run_dir));
    hold("humanoid", &seen);
}

#[test]
fn the_joint_stream() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    // What a busy machine loses fails the run, and is no matter of shape.
    robot("servo", &[], "1", runs.path());
}

#[test]
fn anybodys_program() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("program", &[], "1", runs.path());
}

#[test]
fn the_cell() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    robot("cell", &[], "2", runs.path());
    let bench = ["bench", "cell", "--seconds", "1", "--repeat", "1", "--policies", "CFS+CFS", "--noise", "0"];
    let output = run(bench).args(["--json", "--runs"]).arg(runs.path()).output().unwrap();
    hold("bench-cell", &shape("--json", &answer(&output)));
}

#[test]
#[ignore = "takes 35 s"]
fn a_ros_system() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    // The workload's own processes everywhere, and not ROS 2 where it is installed.
    let changes = [("policy = \"takt\"", "policy = \"cfs\"\nnodes = \"processes\"")];
    robot("ros", &changes, "2", runs.path());
}

#[test]
fn the_doctor() {
    let _machine = alone();
    let output = run(["doctor", "--json", "--seconds", "0"]).output().unwrap();
    hold("doctor", &shape("--json", &answer(&output)));
}

#[test]
fn events_and_what_is_pruned() {
    let _machine = alone();
    let (runs, events) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = run(["run", "cyclic", "--seconds", "0.3", "--runs"]);
    let output = command.arg(runs.path()).env("TAKT_EVENTS", events.path()).output().unwrap();
    let output = (output, run(["events", "--json"]).env("TAKT_EVENTS", events.path()).output().unwrap());
    let lines = stdout(&output.1);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!rows.is_empty(), "{}", stderr(&output.0));
    hold("events", &shape("--json", &rows.into()));
    let prune = ["runs", "prune", "--keep-days", "0", "--dry-run", "--json"];
    let output = run(prune).arg(runs.path()).output().unwrap();
    hold("runs-prune", &shape("--json", &answer(&output)));
}

#[test]
#[ignore = "takes 15 s"]
fn a_trace() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let output = run(["trace", "cyclic", "--seconds", "0.5", "--json", "--runs"]).arg(runs.path()).output();
    let output = output.unwrap();
    if missing("the kernel cannot be traced here", output.status.success()) {
        return;
    }
    hold("trace", &shape("--json", &answer(&output)));
}

#[test]
fn exit_codes() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let code = |command: &mut Command| command.output().unwrap().status.code();
    let shipped = root().join("robots/uav.toml");
    assert_eq!(code(run(["check"]).arg(&shipped)), Some(0));
    let broken = runs.path().join("broken.toml");
    fs::write(&broken, "robot = 'uav'\nno_such_key = 1\n").unwrap();
    for command in [["check"], ["run"], ["report"]] {
        assert_eq!(code(run(command).arg(&broken)), Some(2), "{command:?} of what is broken");
    }
    let goals = root().join("goals/turtlebot.toml");
    let goals = goals.to_str().unwrap();
    for command in [
        &["run", "/nonexistent.toml"][..],
        &["compare", "/nonexistent"],
        &["export", "/nonexistent"],
        &["no-such-command"],
        &["campaign", "run", "/nonexistent.toml"],
        &["ethercat", "analyse", "/nonexistent.pcapng"],
        &["manage", "/nonexistent.toml"],
        &["trace", "/nonexistent.toml"],
        &["trace", "--thread", "takt-trace", "--file", "/nonexistent.data"],
        &["watch", "--pid", "999999999"],
        &["tune", "--pid", "999999999"],
        &["manage", "--learn", "--pid", "999999999"],
        &["manage", "--observe", "/nonexistent.toml", "--", "true"],
        &["manage", "--observe", goals, "--", "true"],
    ] {
        assert_eq!(code(&mut run(command)), Some(2), "{command:?}");
    }
    // Half a second of evidence cannot show what is claimed: no PASS.
    let claimed = runs.path().join("claimed.toml");
    let text = fs::read_to_string(root().join("robots/cyclic.toml")).unwrap();
    fs::write(&claimed, text + "\n[verdict]\nmisses_per_hour = 1e-6\n").unwrap();
    let seconds = ["--seconds", "0.3", "--runs"];
    assert_eq!(code(run(["run"]).arg(&claimed).args(seconds).arg(runs.path())), Some(0));
    assert_eq!(code(run(["run", "--check"]).arg(&claimed).args(seconds).arg(runs.path())), Some(1));
}

/// Commands that print JSON, found in their help as somebody finds them who wants to read it.
fn with_json(command: &[String], found: &mut Vec<String>) {
    let help = run(command).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    found.extend(help.contains("--json").then(|| command.join(" ")));
    let listed: Vec<&str> = if command.is_empty() {
        // In groups, each with its head.
        let groups = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
        groups.take_while(|line| !line.starts_with('`')).filter_map(|line| line.strip_prefix("  ")).collect()
    } else {
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        listed.map_while(|line| line.strip_prefix("  ")).collect()
    };
    let listed = listed.into_iter().filter_map(|line| line.split(' ').next());
    for one in listed.filter(|one| !one.is_empty() && *one != "help") {
        with_json(&[command, &[one.to_owned()]].concat(), found);
    }
}

#[test]
fn every_command_with_json_is_held() {
    let mut found = Vec::new();
    with_json(&[], &mut found);
    assert!(found.len() > 20 && found.iter().any(|command| command == "bench faults"), "{found:?}");
    for command in found {
        let file = match command.as_str() {
            // Each robot has its own, too.
            "run" => "cyclic".to_owned(),
            "bench humanoid" => "humanoid".to_owned(),
            "campaign run" | "campaign resume" => "campaign".to_owned(),
            "manage" => "manage-observe".to_owned(),
            "store ls" => "store".to_owned(),
            command => command.replace(' ', "-"),
        };
        let path = root().join("crates/takt/tests/golden").join(file).with_extension("txt");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{command}: {}: {e}", path.display()));
        assert!(text.contains("--json"), "{command}: {} holds something else", path.display());
    }
}

/// The [`FREEDOMS`] of the test below.
const PLANTED: &[Freedom] = &[
    free(Absent, "psi", "no PSI"),
    free(Keys, "causes", "named by what happened"),
    Freedom { files: &["other"], place: "a.old", what: Absent, why: "of another file" },
];

#[test]
fn a_change_is_reported_and_what_depends_on_the_machine_is_not() {
    let of = |text: &str| Golden::new(Path::new("a.txt"), text, PLANTED);
    let golden = of(
        "a  object\na.list  array\na.list[]  object\na.list[].key  number\na.old  string\na.psi  object\n\
                     a.psi.full  number\na.unknown  null\na.causes  object\nrun.robot  =\"cell\"\n",
    );
    let seen = |value: Value| {
        let mut all = shape("a", &value);
        shape_of(&mut all, "run.robot", &"cell".into());
        all
    };
    let reported = |value: Value| golden.differences(&seen(value));
    let none = [""; 0];
    let whole = serde_json::json!({"list": [{"key": 1}], "old": "x", "unknown": null, "causes": {"any": 1}});
    assert_eq!(reported(whole.clone()), none);
    let other = serde_json::json!({"list": [], "old": "x", "unknown": {"any": 1}, "causes": {}, "psi": null});
    assert_eq!(reported(other), none);
    let psi = serde_json::json!({"list": [], "old": "x", "unknown": 1, "causes": {}, "psi": {"full": 1}});
    assert_eq!(reported(psi), none);
    // In what may be absent, and in what is a key of data, names are held all the same.
    let psi = serde_json::json!({"list": [], "old": "x", "unknown": 1, "causes": [], "psi": {"half": 1}});
    let message = reported(psi);
    assert_eq!(message.len(), 3, "{message:?}");
    assert!(message[0].starts_with("a.causes is array") && message[1] == "a.psi.half is new", "{message:?}");
    assert_eq!(message[2], "a.psi.full is gone");
    let changed = serde_json::json!({"list": [{"key": "1", "more": 1}], "unknown": null, "causes": {}});
    let message = reported(changed.clone());
    assert_eq!(message.len(), 3, "{message:?}");
    assert!(
        message[0].starts_with("a.list[].key is string") && message[1] == "a.list[].more is new",
        "{message:?}"
    );
    assert_eq!(message[2], "a.old is gone");
    // A name that programs compare with.
    let mut renamed = shape("a", &whole);
    shape_of(&mut renamed, "run.robot", &"cobot".into());
    let message = golden.differences(&renamed);
    assert_eq!(message.len(), 2, "{message:?}");
    assert!(message[0].starts_with("run.robot is =\"cobot\"") && message[1] == "run.robot=\"cell\" is gone");
    // A renewal is what the next comparison holds against.
    let text = golden.renewed(&seen(changed.clone()));
    assert_eq!(of(&text).differences(&seen(changed)), none);
    assert!(text.contains("a.psi.full  number") && !text.contains("a.old"), "{text}");
}
