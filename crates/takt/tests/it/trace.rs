//! `takt trace`: the kernel traced during a run, and a run that goes on where it cannot be.

#![allow(clippy::unwrap_used)]

use crate::humanoid::{HOG, hog};
use crate::takt;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt::{
    TAKT, alone, json, missing, read_json, root, stderr, takt as run, traced_json, untraced, wait_for,
};

#[test]
#[ignore = "takes 10 s"]
fn releases_are_matched_and_late_ones_have_a_cause() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let perfetto = runs.path().join("run.perfetto");
    let output = run(["trace", "uav", "--seconds", "2", "--late-us", "60", "--json", "--runs"])
        .arg(runs.path())
        .arg("--perfetto")
        .arg(&perfetto)
        .output()
        .unwrap();
    let traced = traced_json(&output);
    if untraced(&traced) {
        assert!(!traced["run"]["verdict"].is_null(), "the run went on");
        return;
    }
    let (releases, matched) = (traced["releases"].as_u64().unwrap(), traced["matched"].as_u64().unwrap());
    assert!(releases > 300 && matched <= releases, "{traced}");
    // Where nothing was lost, nearly all are there.
    if traced["lost_events"] == 0 {
        assert!(matched * 100 >= releases * 95, "{matched} of {releases}: {}", traced["unmatched"]);
    }
    let unmatched: u64 = traced["unmatched"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum();
    assert_eq!(matched + unmatched, releases);
    let names: Vec<&str> =
        traced["segments_us"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(["timer", "wakeup", "switch", "execution"].iter().all(|name| names.contains(name)), "{names:?}");
    let causes = traced["causes"].as_array().unwrap();
    let counted: u64 = causes.iter().map(|cause| cause["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, traced["late"].as_u64().unwrap(), "a late release has no cause, or two: {causes:?}");
    assert!(perfetto.metadata().unwrap().len() > 10_000);
    let dir = Path::new(traced["run"]["run_dir"].as_str().unwrap());
    assert_eq!(read_json(&dir.join("trace.json"))["releases"], releases);
    assert!(read_json(&dir.join("hashes.json"))["trace.json"].is_string(), "the trace is not sealed");

    // Beside an earlier one.
    let again = run(["trace", "uav", "--seconds", "1", "--against"])
        .arg(dir)
        .arg("--runs")
        .arg(runs.path())
        .output()
        .unwrap();
    let message = takt::stdout(&again);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(message.contains("before") && message.contains("hrtimer_expire_entry"), "{message}");
    let none = run(["trace", "uav", "--against", "/nonexistent"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
    // A loop that polls has no activation, and late edges instead.
    let poll = run(["trace", "daq", "--seconds", "1", "--json", "--runs"]).arg(runs.path()).output().unwrap();
    let traced = traced_json(&poll);
    assert!(traced["polled"].as_u64() > Some(100) && traced["releases"] == 0, "{traced}");
    let run_dir = Path::new(traced["run"]["run_dir"].as_str().unwrap());
    let late = read_json(&run_dir.join("late-edges.json"));
    let each = late["each"].as_array().unwrap();
    assert_eq!(traced["late"], each.len(), "{late}");
    assert!(late["untraced"].is_null(), "{late}");
    assert!(each.iter().all(|edge| edge["latency_ns"].as_u64() > Some(1_000_000)), "{late}");
    let named: u64 =
        late["causes"].as_array().unwrap().iter().map(|cause| cause["edges"].as_u64().unwrap()).sum();
    assert_eq!(named, each.len() as u64, "{late}");
}

/// A thread that takes the CPU of a loop that polls: the edges that it makes late are late between
/// two polls, and it is named. Without it nobody is.
#[test]
#[ignore = "takes 10 s"]
fn what_held_up_a_polling_loop_between_two_polls_is_named() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let there = takt_rt::placement::online().is_ok_and(|cpus| cpus.contains(0) && cpus.contains(1));
    if missing("no two CPUs", there) {
        return;
    }
    let file = runs.path().join("daq.toml");
    // A slow converter: the loop spends its time from one poll to the next.
    let text = "robot = 'daq'\ndeadline_us = 1800\nlink = { kind = 'simulated', ai_rate_hz = 2000 }\n\
                acquisition = { policy = 'fifo:50', cpus = '1' }\npulse.wait = '20us'\n";
    std::fs::write(&file, text).unwrap();
    let late = || {
        let mut trace = run(["trace", file.to_str().unwrap(), "--seconds", "2", "--json", "--runs"]);
        let traced = traced_json(&trace.arg(runs.path()).output().unwrap());
        (!untraced(&traced)).then(|| {
            let run_dir = traced["run"]["run_dir"].as_str().unwrap().to_owned();
            read_json(&Path::new(&run_dir).join("late-edges.json"))
        })
    };
    let blamed = |late: &serde_json::Value| -> Vec<serde_json::Value> {
        let each = late["each"].as_array().unwrap();
        each.iter()
            .filter(|edge| edge["who"].as_str().is_some_and(|who| who.contains(HOG)))
            .cloned()
            .collect()
    };
    let Some(alone) = late() else { return };
    assert!(blamed(&alone).is_empty(), "{alone}");
    let done = Arc::new(AtomicBool::new(false));
    let hog = hog(&done);
    if missing("no priority FIFO 99 on CPU 1", hog.is_some()) {
        done.store(true, Ordering::Relaxed);
        return;
    }
    let hogged = late();
    done.store(true, Ordering::Relaxed);
    hog.map(takt_rt::thread::Handle::join);
    let Some(hogged) = hogged else { return };
    let by_hog = blamed(&hogged);
    // Twenty times 2.5 ms, each of one edge.
    assert!(by_hog.len() >= 10, "{} of {}: {hogged}", by_hog.len(), hogged["edges"]);
    for edge in &by_hog {
        let found = (edge["cause"].as_str(), edge["explained"].as_bool());
        assert_eq!(found, (Some("higher_priority"), Some(true)), "{edge}");
    }
    // Now and then it comes into the sleep between two edges.
    let between = by_hog.iter().filter(|edge| edge["place"] == "between_polls").count();
    assert!(2 * between > by_hog.len(), "{between} of {}: {hogged}", by_hog.len());
}

#[test]
fn without_privileges_the_run_goes_on_untraced_and_says_so() {
    let _machine = alone();
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("takt");
    std::fs::copy(TAKT, &program).unwrap();
    std::fs::copy(root().join("robots/cyclic.toml"), home.path().join("cyclic.toml")).unwrap();
    for (path, mode) in [(home.path(), 0o777), (&program, 0o755), (&home.path().join("cyclic.toml"), 0o644)] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let output = takt::without_rights()
        .arg(&program)
        .args(["trace", "cyclic.toml", "--seconds", "0.5", "--json", "--runs", "runs"])
        .current_dir(home.path())
        .output();
    let Ok(output) = output else {
        missing("setpriv does not run", false);
        return;
    };
    if missing(
        &format!("setpriv is not permitted: {}", stderr(&output)),
        !stderr(&output).contains("setpriv:"),
    ) {
        return;
    }
    let traced = traced_json(&output);
    let why = traced["untraced"].as_str().unwrap_or_else(|| panic!("traced without a privilege: {traced}"));
    assert!(why.contains("root") || why.contains("CAP_") || why.contains("perf_event_paranoid"), "{why}");
    assert!(traced["run"]["measures"][0]["us"]["count"].as_u64() > Some(0));
    // The run directory says so too, and stays whole.
    let dir = home.path().join(traced["run"]["run_dir"].as_str().unwrap());
    assert_eq!(read_json(&dir.join("trace.json"))["untraced"], why);
    assert!(read_json(&dir.join("hashes.json"))["trace.json"].is_string());
    let against = run(["trace", "cyclic", "--against"]).arg(&dir).output().unwrap();
    assert_eq!(against.status.code(), Some(2));
    assert!(stderr(&against).contains("was not traced"), "{}", stderr(&against));
}

#[test]
#[ignore = "takes 50 s"]
fn a_flight_recorder_keeps_the_worst_windows() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let recorded = |robot: &str, late_us: &str| {
        run(["run", root().join("robots").join(robot).to_str().unwrap(), "--seconds", "2", "--json"])
            .args(["--view", "none", "--flight-recorder", "--late-us", late_us, "--runs"])
            .arg(runs.path())
            .output()
            .unwrap()
    };
    for robot in ["uav.toml", "cyclic.toml"] {
        // Everything is later than nothing.
        let output = recorded(robot, "0");
        let traced = json(&output);
        if untraced(&traced) {
            return;
        }
        let late = traced["late"].as_u64().unwrap();
        assert!(late > 300, "{robot}: {traced}");
        let causes = traced["causes"].as_array().unwrap();
        assert_eq!(causes.iter().map(|cause| cause["count"].as_u64().unwrap()).sum::<u64>(), late);
        assert_eq!(traced["windows"].as_array().unwrap().len(), 20);
        let dir = Path::new(traced["run"]["run_dir"].as_str().unwrap());
        let hashes = read_json(&dir.join("hashes.json"));
        for file in ["trace.json", "late.perfetto-trace"] {
            assert!(hashes[file].is_string(), "{robot}: {file} is not sealed");
            assert!(dir.join(file).metadata().unwrap().len() > 1000, "{robot}: {file}");
        }
    }
    // The DAQ loop polls: its late edges are explained, and not its releases.
    let daq = json(&recorded("daq.toml", "0"));
    let dir = Path::new(daq["run"]["run_dir"].as_str().unwrap_or_else(|| panic!("{daq}")));
    assert!(read_json(&dir.join("late-edges.json"))["edges"].as_u64().is_some(), "{daq}");
}

#[test]
#[ignore = "takes 15 s"]
fn the_cell_has_a_flight_recorder_too() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let robot = takt::patient_cell(runs.path(), "");
    let output = run(["run", robot.to_str().unwrap(), "--seconds", "3", "--json", "--view", "none"])
        .args(["--policy", "RR+RR", "--flight-recorder", "--late-us", "0", "--runs"])
        .arg(runs.path())
        .output()
        .unwrap();
    let traced = json(&output);
    if untraced(&traced) {
        return;
    }
    // The SSM task at 500 Hz, later than nothing each time; a busy machine skips some releases.
    assert_eq!(traced["task"], "ssm", "{traced}");
    let late = traced["late"].as_u64().unwrap();
    assert!(late > 100, "{traced}");
    let causes = traced["causes"].as_array().unwrap();
    assert_eq!(causes.iter().map(|cause| cause["count"].as_u64().unwrap()).sum::<u64>(), late);
    assert_eq!(traced["windows"].as_array().unwrap().len(), 20);
    // Its response counts against its own deadline, and not against that of the reactions.
    assert_eq!(traced["thresholds"]["response_ns"], 2_000_000, "{}", traced["thresholds"]);
    assert_eq!(traced["thresholds"]["lateness_ns"], 0);
    // The summary is the cell's own.
    assert!(traced["run"]["reaction_ms"]["count"].as_u64() > Some(0), "{}", traced["run"]);
    let dir = Path::new(traced["run"]["run_dir"].as_str().unwrap());
    let hashes = read_json(&dir.join("hashes.json"));
    for file in ["trace.json", "late.perfetto-trace"] {
        assert!(hashes[file].is_string(), "{file} is not sealed");
        assert!(dir.join(file).metadata().unwrap().len() > 1000, "{file}");
    }
    let pages = runs.path().join("report");
    let report = run(["report"]).arg(dir).arg("--out").arg(&pages).output().unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
    let page = std::fs::read_to_string(pages.join("report.md")).unwrap();
    assert!(page.contains("Causes of late releases"), "{page}");
}

#[test]
fn traces_of_other_tools_are_analysed_alike() {
    let data = root().join("crates/takt-trace/tests/data");
    let mut files = 0;
    for file in ["cyclictest.perf.data", "cyclictest.trace6.dat"] {
        let path = data.join(file);
        // Several of the threads have the name: they are listed, and the example leads on.
        let named = run(["trace", "--thread", "cyclictest", "--json", "--file"]).arg(&path).output().unwrap();
        let message = stderr(&named);
        assert!(message.contains("threads are named \"cyclictest\""), "{file}: {message}");
        let id = message.rsplit_once("--thread ").unwrap().1.split('`').next().unwrap();
        let output = run(["trace", "--thread", id, "--json", "--file"]).arg(&path).output().unwrap();
        let report = json(&output);
        assert!(report["releases"].as_u64() > Some(10), "{file}: {report}");
        assert!(report["matched"].as_u64() > Some(0), "{file}: {report}");
        let none = run(["trace", "--thread", "nobody", "--file"]).arg(&path).output().unwrap();
        assert!(stderr(&none).contains("no thread has the name or id \"nobody\""), "{}", stderr(&none));
        files += 1;
    }
    assert_eq!(files, 2);
    let torn = run(["trace", "--thread", "x", "--file"]).arg(data.join("README.md")).output().unwrap();
    assert_eq!(torn.status.code(), Some(2), "{}", stderr(&torn));
}

#[test]
#[ignore = "takes 10 s"]
fn any_thread_that_runs_can_be_watched() {
    let _machine = alone();
    let robot = root().join("robots/cyclic.toml");
    let runs = tempfile::tempdir().unwrap();
    let mut command =
        run(["run", robot.to_str().unwrap(), "--seconds", "60", "--noise", "4", "--json", "--runs"]);
    command.arg(runs.path());
    let mut other = takt::Beside::start(command);
    let dir = other.line("stderr", "Run directory: ");
    // The window opens once the noise runs.
    wait_for("the window", || {
        let run = read_json(&Path::new(&dir).join("run.json"));
        run["measures"][0]["window_ns"].is_array().then_some(())
    });
    let output = run(["trace", "--thread", "takt-cyclic", "--seconds", "1", "--json"]).output().unwrap();
    let message = stderr(&output);
    other.signal(rustix::process::Signal::INT);
    other.end();
    if missing(&format!("the kernel cannot be traced here: {message}"), output.status.code() == Some(0)) {
        return;
    }
    let report = json(&output);
    assert_eq!(report["task"], "takt-cyclic");
    assert!(report["releases"].as_u64() > Some(500), "{report}");
    assert!(report["matched"].as_u64() > Some(400), "{report}");
}

/// A recorded file of `takt-trace`'s, unpacked by zstd(1).
fn recorded(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    let packed = root().join("crates/takt-trace/tests/data").join(format!("{name}.zst"));
    let unpacked = folder.join(name);
    let done = Command::new("zstd").args(["-q", "-d"]).arg(packed).arg("-o").arg(&unpacked).status();
    (!missing("zstd is not installed", done.is_ok_and(|status| status.success()))).then_some(unpacked)
}

#[test]
fn files_of_other_tools_are_read_with_any_clock_and_a_name_that_fits_several_is_not_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, more: &[&str]| -> Option<std::process::Output> {
        let file = recorded(folder.path(), name)?;
        let output = run(["trace", "--json", "--file"]).arg(&file).args(more).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        Some(output)
    };
    let Some(old) = of("v6-clock-behind-table.dat", &["--thread", "7287"]) else { return };
    assert_eq!(json(&old)["releases"], 151, "{}", stderr(&old));

    let local = of("local-clock.dat", &["--thread", "cyclictest"]).unwrap();
    let message = takt::refusal(&local);
    assert!(message.contains("threads are named") && message.contains(" releases)"), "{message}");
    let id = message.rsplit_once("--thread ").unwrap().1.trim_end_matches(['`', '\n']).to_owned();
    let local = json(&of("local-clock.dat", &["--thread", &id]).unwrap());
    assert!(local["releases"].as_u64().unwrap() > 100, "{local}");
    assert_eq!(local["clock_map"]["from"], "local");
    assert!(local["clock_map"]["error_ns"].as_u64().unwrap() > 0);

    let names = takt::refusal(&of("two-threads-of-one-name.dat", &["--thread", "cyclictest"]).unwrap());
    takt::has(&names, &["7287 (151 releases)", "7286 (33 releases)", "`--thread 7287`"]);

    let instance = of("instance-mono.dat", &["--thread", "24207", "--instance", "devlib"]).unwrap();
    assert_eq!(json(&instance)["events"], 1732);
    let other = takt::refusal(&of("instance-mono.dat", &["--thread", "1", "--instance", "lisa"]).unwrap());
    takt::has(&other, &["`lisa`", "`devlib`"]);
}
