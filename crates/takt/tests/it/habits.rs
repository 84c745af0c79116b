//! Habits of the command line, through the binary: colour, lines that are folded, what comes first,
//! time left, exit statuses, folders that a refusal leaves.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use takt::{TAKT, alone, folders, has, missing, read_json, refusal, root, stderr, stdout, takt as run};

/// Output of a program on a terminal of 120 columns (util-linux `script` makes one), with both
/// streams on it; `None` without `script`.
fn on_a_terminal(args: &[&str], variables: &[(&str, &str)], folder: &Path) -> Option<String> {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let line = format!("stty cols 120 rows 40; exec {TAKT} {}", quoted.join(" "));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(folder);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(variables.iter().copied());
    command.stdin(std::process::Stdio::null());
    match command.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            missing(&format!("no terminal could be made: script: {error}"), false);
            None
        }
    }
}

/// A bare task that everybody may run, with what is not granted to anybody: SCHED_DEADLINE on a
/// part of the CPUs.
fn refused_task(folder: &Path, more: &str) -> String {
    let path = folder.join("task.toml");
    let text = "robot = 'cyclic'\nlock_memory = 'off'\npolicy = 'deadline:100us/1ms/1ms'\ncpus = '0'\n";
    fs::write(&path, format!("{text}{more}")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A program without any right, whoever runs the test, in `folder`; `None` where it cannot be made.
fn without_rights(args: &[&str], folder: &Path) -> Option<Output> {
    // A copy: where the program was built, nobody may read.
    let program = folder.join("takt");
    fs::copy(TAKT, &program).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        fs::set_permissions(entry.unwrap().path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = takt::without_rights();
    command.args(["prlimit", "--rtprio=0", "--nice=0", "--memlock=65536"]).arg(program).args(args);
    let output = command.current_dir(folder).output().ok()?;
    let message = stderr(&output);
    let started = !message.starts_with("setpriv: ") && !message.starts_with("prlimit: ");
    started.then_some(output)
}

#[test]
#[ignore = "takes 10 s"]
fn verdicts_are_coloured_on_a_terminal_alone() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let task = refused_task(folder.path(), "");
    let args = ["run", &task, "--seconds", "0.5", "--runs", "runs"];
    let Some(shown) = on_a_terminal(&args, &[], folder.path()) else { return };
    let yellow = "\u{1b}[1;33mNOT GRANTED\u{1b}[0m";
    has(&shown, &[yellow, "Run directory: runs"]);
    let verdict =
        ["\u{1b}[1;32mPASS\u{1b}[0m", "\u{1b}[1;31mFAIL\u{1b}[0m", "\u{1b}[1;33mINCONCLUSIVE\u{1b}[0m"];
    assert!(verdict.iter().any(|verdict| shown.contains(verdict)), "{shown:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_a_terminal(&args, &[(name, value)], folder.path()).unwrap();
        assert!(plain.contains("NOT GRANTED") && !plain.contains("\u{1b}[1;3"), "{name}: {plain:?}");
    }
    // JSON is for programs, on a terminal, too.
    let with_json = on_a_terminal(&[&args[..], &["--json"]].concat(), &[], folder.path()).unwrap();
    let object = &with_json[with_json.find("{\r\n").unwrap()..];
    assert!(object.contains("\"verdict\"") && !object.contains('\u{1b}'), "{object:?}");
    let piped = run(args).current_dir(folder.path()).output().unwrap();
    assert!(!stdout(&piped).contains('\u{1b}') && !stderr(&piped).contains('\u{1b}'), "{piped:?}");
    has(&stdout(&piped), &["NOT GRANTED"]);
}

#[test]
fn the_time_left_is_that_of_the_window_and_falls_within_a_run() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = root().join("robots/cyclic.toml");
    let args = ["run", file.to_str().unwrap(), "--seconds", "4", "--runs", "runs"];
    let Some(shown) = on_a_terminal(&args, &[], folder.path()) else { return };
    let left: Vec<u32> =
        shown.split(" s left").filter_map(|before| before.rsplit(' ').next()?.parse().ok()).collect();
    // As many draws as the terminal got; none says more than there is, and none more than one
    // before.
    assert!(left.len() > 3 && left[0] <= 4 && left.is_sorted_by(|a, b| a >= b), "{left:?}: {shown:?}");
    assert!(left[0] > left[left.len() - 1], "it stands still: {left:?}");
}

#[test]
#[ignore = "takes 10 s"]
fn the_time_left_of_a_bench_falls_within_a_run() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "name = 'two'\nabout = 'two runs'\nrobot = 'cyclic'\nseconds = 2.0\nrepetitions = 2\n\
                [[factor]]\nname = 'policy'\nvalues = ['other:0']\n";
    fs::write(folder.path().join("two.toml"), text).unwrap();
    let args = ["campaign", "run", "two.toml", "--runs", "runs"];
    let Some(shown) = on_a_terminal(&args, &[], folder.path()) else { return };
    let first = shown.split("done").next().unwrap();
    let left: Vec<u32> =
        first.split(" s left").filter_map(|before| before.rsplit("about ").next()?.parse().ok()).collect();
    assert!(left.len() > 1 && left.is_sorted_by(|a, b| a >= b), "{left:?}: {shown:?}");
    assert!(left[0] > left[left.len() - 1], "it stands still within a run: {left:?}");
}

#[test]
fn what_was_not_granted_is_one_line_with_its_fix() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("robots/uav.toml"), folder.path().join("uav.toml")).unwrap();
    let args = ["run", "uav.toml", "--seconds", "0.3", "--runs", "runs"];
    let ran = without_rights(&args, folder.path());
    if missing("a program without rights cannot be started here", ran.is_some()) {
        return;
    }
    let output = ran.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for message in [stdout(&output), stderr(&output)] {
        let lines: Vec<&str> = message.lines().filter(|line| line.contains("NOT GRANTED")).collect();
        assert_eq!(lines.len(), 1, "{message}");
        has(lines[0], &["settings: ", "Fix", "run as root", "setcap", "run.json"]);
    }
    let dir = folders(&folder.path().join("runs")).remove(0);
    let all = read_json(&dir.join("run.json"))["not_granted"].as_array().unwrap().len();
    assert!(stdout(&output).contains(&format!("NOT GRANTED {all} settings")), "{}", stdout(&output));
}

#[test]
fn the_doctor_begins_with_the_answer() {
    let _machine = alone();
    let message = stdout(&run(["doctor", "--seconds", "0"]).output().unwrap());
    let (answer, table) = message.split_once("\n\n").unwrap();
    let answer: Vec<&str> = answer.lines().collect();
    assert_eq!(answer.len(), 3, "{message}");
    assert!(["FAIL: ", "warn: ", "ok: "].iter().any(|word| answer[0].starts_with(word)), "{message}");
    has(answer[0], &[" fail, ", " warn, "]);
    let worst = answer[1].strip_prefix("Worst: ").unwrap();
    assert!(answer[2].starts_with("Fix: "), "{message}");
    // It is the one that heads the table.
    let title = worst.split(':').next().unwrap();
    assert!(worst == "nothing" || table.lines().next().unwrap().contains(title), "{message}");
}

#[test]
fn commands_that_need_rights_or_time_say_so() {
    let of = |command: &str| stdout(&run(command.split(' ').chain(["--help"])).output().unwrap());
    for command in [
        "trace",
        "watch",
        "tune",
        "manage",
        "segment",
        "ethercat capture",
        "bench cell",
        "bench uav",
        "bench daq",
        "bench humanoid",
        "bench manager",
        "doctor",
        "run",
        "campaign run",
    ] {
        let help = of(command);
        assert!(
            help.contains("root") && (help.contains("Needs ") || help.contains(" need ")),
            "{command}: {help}"
        );
    }
    for (command, time) in [
        ("bench cell", "half an hour"),
        ("bench uav", "11 minutes"),
        ("bench gpu", "quarter of an hour"),
        ("bench faults", "minutes"),
        ("campaign run", "hours"),
        ("demo", "minute"),
    ] {
        has(&of(command), &["Takes ", time]);
    }
    // The times are those of the plans.
    let planned = |name: &str| stdout(&run(["campaign", "run", name, "--dry-run"]).output().unwrap());
    has(&planned("uav"), &["16 runs", "10 min 40 s in all"]);
    has(&planned("sentryrt1"), &["60 runs", "30 min 0 s in all"]);
    has(&planned("daq-long"), &["5904 h"]);
}

#[test]
#[ignore = "takes 15 s"]
fn a_refusal_leaves_no_folder() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let task = refused_task(workspace.path(), "strict = true\n");
    let robot = root().join("robots/uav.toml");
    let wired = workspace.path().join("wired.toml");
    fs::write(&wired, "robot = 'humanoid'\nwire = { kind = 'interface', name = 'nosuch0' }\n").unwrap();
    let cell = root().join("robots/synthetic.toml");
    let manager = root().join("robots/turtlebot.toml");
    let [robot, wired, cell, manager] = [&robot, &wired, &cell, &manager].map(|path| path.to_str().unwrap());
    for args in [
        &["run", &task, "--seconds", "0.2"][..],
        &["run", wired, "--seconds", "0.2"],
        &["run", robot, "--policy", "RR+RR"],
        &["bench", "humanoid", "--wire", "nosuch0", "--seconds", "0.2"],
        &["bench", "daq", "--link", "nothing"],
        &["run", &task, "--seconds", "0.2", "--load-cpus", "500", "--stress", "uav"],
        &["bench", "uav", "--policies", "nothing"],
        &["bench", "cell", "--against", robot],
        &["trace", manager],
        &["trace", robot, "--seconds", "0.2", "--perfetto", "/nonexistent/file"],
        &["campaign", "run", "uav", "--set", "nothing=1"],
        &["background", cell, "--out", "takt-runs/a/b", "--seconds", "1"],
    ] {
        let before = workspace.path().join("work");
        fs::create_dir(&before).unwrap();
        let output = run(args).current_dir(&before).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        let left: Vec<_> = fs::read_dir(&before).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{args:?} left {left:?}");
        fs::remove_dir(&before).unwrap();
    }
    // A folder that was there stays.
    let kept = workspace.path().join("kept");
    fs::create_dir(&kept).unwrap();
    refusal(&run(["run", &task, "--seconds", "0.2", "--runs", kept.to_str().unwrap()]).output().unwrap());
    assert!(kept.is_dir() && fs::read_dir(&kept).unwrap().count() == 0);
}

#[test]
fn what_failed_is_in_the_run_as_well() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    let runs = workspace.path().join("runs");
    // The robot runs when its interference turns out not to be possible: no machine has this CPU.
    let file = root().join("robots/cyclic.toml");
    let mut command = run(["run", file.to_str().unwrap(), "--noise", "1", "--load-cpus", "1000"]);
    let message = refusal(&command.args(["--seconds", "0.2", "--runs"]).arg(&runs).output().unwrap());
    let why = message.lines().find_map(|line| line.strip_prefix("takt: ")).unwrap();
    let dirs = folders(&runs);
    if let [dir] = &dirs[..] {
        let failures = &read_json(&dir.join("run.json"))["failures"];
        assert_eq!(failures[0].as_str(), Some(why), "{failures}");
    } else {
        assert!(dirs.is_empty() && !runs.exists(), "refused before it began: {dirs:?}");
    }
}

#[test]
fn what_could_not_be_done_never_ends_with_0() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    // A campaign of which nothing could be measured, and one of which a part could.
    let campaign = |values: &str| {
        let text = format!(
            "name = 'refused'\nabout = 'x'\nrobot = 'cyclic'\nseconds = 0.2\n[set]\nstrict = true\nlock_memory = 'off'\n\
             cpus = '0'\n[[factor]]\nname = 'policy'\nvalues = [{values}]\n"
        );
        let file = workspace.path().join("campaign.toml");
        fs::write(&file, text).unwrap();
        let mut command = run(["campaign", "run", file.to_str().unwrap(), "--runs"]);
        command.arg(workspace.path().join("runs")).output().unwrap()
    };
    let nothing = campaign("'deadline:100us/1ms/1ms'");
    assert_eq!(nothing.status.code(), Some(2), "{}", stdout(&nothing));
    let part = campaign("'deadline:100us/1ms/1ms', 'other:0'");
    assert_eq!(part.status.code(), Some(1), "{}", stdout(&part));
    assert_eq!(campaign("'other:0'").status.code(), Some(0));
    // No device.
    let output =
        run(["bench", "gpu", "--seconds", "1"]).env("TAKT_CUDA_LIBRARY", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));

    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("robots/uav.toml"), folder.path().join("uav.toml")).unwrap();
    let args = ["trace", "uav.toml", "--seconds", "0.3", "--perfetto", "picture", "--runs", "runs"];
    let ran = without_rights(&args, folder.path());
    if missing("a program without rights cannot be started here", ran.is_some()) {
        return;
    }
    let output = ran.unwrap();
    // Where even nobody may trace, there is a picture.
    let picture = folder.path().join("picture").is_file();
    assert_eq!(output.status.code(), Some(if picture { 0 } else { 2 }), "{}", stderr(&output));
    assert!(picture || stdout(&output).contains("NOT TRACED"), "{}", stdout(&output));
    assert_eq!(folders(&folder.path().join("runs")).len(), 1, "the run itself is good");
}
