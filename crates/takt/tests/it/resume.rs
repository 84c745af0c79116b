//! A run of any robot that is killed at any time goes on, any number of times: no sample older than
//! a second is lost, and none is counted twice.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use takt_rt::clock::monotonic_ns;
use takt_rundir::{RunDir, SealState};

use takt::{Beside, alone, json, patient_cell, read_json, refusal, rows, takt as run, wait_for};

/// A robot, its main sample file, and the column that distinguishes a sample from all others and
/// when it was.
struct Case {
    config: PathBuf,
    samples: &'static str,
    column: &'static str,
    /// Samples a second, at least.
    rate_hz: f64,
}

/// Samples that the killed run has on the disk.
fn left(dir: &Path, case: &Case) -> BTreeSet<u64> {
    let columns = RunDir::open(dir).unwrap().columns(case.samples, &[case.column]).unwrap();
    columns[0].iter().copied().collect()
}

/// Starts or goes on, kills once there are samples of this part, and `after` more. Returns what was
/// sampled a second before the kill or earlier.
fn kill(case: &Case, dir: &Path, seconds: f64, first: bool, after: Duration) -> BTreeSet<u64> {
    let mut command =
        run(["run", case.config.to_str().unwrap(), "--seconds", &seconds.to_string(), "--json"]);
    command.args([if first { "--run-dir" } else { "--resume" }.as_ref(), dir.as_os_str()]);
    let journal = format!("{}.csv", case.samples);
    let mut alive = Beside::start(command);
    let begun = wait_for("the window", || {
        assert!(alive.runs(), "{}", alive.output("stderr"));
        alive.output("stderr").contains("Run directory: ").then(|| rows(dir, &journal))
    });
    wait_for("samples of this part", || {
        assert!(alive.runs(), "{}", alive.output("stderr"));
        (rows(dir, &journal) > begun).then_some(())
    });
    std::thread::sleep(after);
    let second_ago_ns = monotonic_ns() - 1_000_000_000;
    alive.signal(Signal::KILL);
    assert_eq!(alive.end().code(), None, "it ended by itself: {}", alive.output("stderr"));
    left(dir, case).into_iter().filter(|at_ns| *at_ns < second_ago_ns).collect()
}

fn check(case: &Case, kills: &[u64]) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("run");
    let mut sure = BTreeSet::new();
    for (number, after_ms) in kills.iter().enumerate() {
        let more = kill(case, &dir, 600.0, number == 0, Duration::from_millis(*after_ms));
        assert!(sure.is_subset(&more), "part {number} lost samples of the parts before");
        sure = more;
    }
    // Somebody else's configuration is another run, and nothing is changed by asking.
    let other = root.path().join("other.toml");
    let text = fs::read_to_string(&case.config).unwrap();
    fs::write(&other, text.replacen("name = \"", "name = \"other ", 1)).unwrap();
    let message = refusal(
        &run(["run".as_ref(), other.as_os_str(), "--resume".as_ref(), dir.as_os_str()]).output().unwrap(),
    );
    assert!(message.contains("another \"name\""), "{message}");

    let checkpoint = read_json(&dir.join("checkpoint.json"));
    let measured_s = checkpoint["elapsed_ns"].as_u64().unwrap() as f64 / 1e9;
    let seconds = measured_s + 1.5;
    let config = case.config.to_str().unwrap();
    let mut last = run(["run", config, "--seconds", &seconds.to_string(), "--json", "--resume"]);
    let summary = json(&last.arg(&dir).output().unwrap());

    let sealed = RunDir::open(&dir).unwrap();
    assert!(matches!(sealed.seal_state(), SealState::Whole(_)), "{:?}", sealed.seal_state());
    let samples = sealed.columns(case.samples, &[case.column]).unwrap().remove(0);
    let unique: BTreeSet<u64> = samples.iter().copied().collect();
    assert_eq!(unique.len(), samples.len(), "a sample is there twice");
    assert!(sure.is_subset(&unique), "{} samples are lost", sure.difference(&unique).count());
    assert!(samples.len() as f64 > 0.5 * case.rate_hz * seconds, "{} in {seconds} s", samples.len());
    // What was counted is what was kept.
    let header = sealed.header().unwrap();
    assert_eq!(header.figures["resumed"], kills.len() as f64);
    // The time between a kill and the next part was not measured, although it lies in the window.
    for measure in header.measures.iter().filter(|measure| measure.window_ns.is_some()) {
        let [from_ns, to_ns] = measure.window_ns.unwrap();
        assert!(measure.measured_ns.unwrap() < to_ns - from_ns, "{measure:?}");
    }
    let mut counted = 0;
    for measure in &header.measures {
        let kept = sealed.series(measure).unwrap().values_ns.len() as u64;
        let Some(recorder) = &measure.recorder else { continue };
        let streamed: takt_stats::Streamed = sealed.read_json(recorder).unwrap();
        assert_eq!(streamed.recorder.count(), kept, "{}", measure.name);
        counted += kept;
    }
    let of_summary = summary["measures"][0]["us"]["count"].as_u64();
    assert!(of_summary.is_none_or(|count| count as usize <= samples.len() && count > 0), "{summary}");
    assert!(counted > 0 || of_summary == Some(samples.len() as u64), "{header:?}");
    let resumptions = read_json(&dir.join("run.json"))["resumptions"].as_array().unwrap().len();
    assert_eq!(resumptions, kills.len());
    let again = run(["run", config, "--seconds", "900", "--resume"]).arg(&dir).output().unwrap();
    assert!(refusal(&again).contains("sealed"));
}

fn written(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("robot.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
#[ignore = "takes 15 s"]
fn the_cyclic_task_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text =
        "robot = \"cyclic\"\nname = \"c\"\nrate_hz = 500\npolicy = \"other:0\"\nlock_memory = \"off\"\n";
    let config = written(folder.path(), text);
    check(&Case { config, samples: "cyclic", column: "planned_ns", rate_hz: 500.0 }, &[1300, 200, 900]);
}

#[test]
#[ignore = "takes 15 s"]
fn the_quadrotor_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "robot = \"uav\"\nname = \"u\"\n[attitude]\npolicy = \"other:0\"\n[position]\npolicy = \"other:0\"\n\
                [tasks]\nlock_memory = false\n";
    let config = written(folder.path(), text);
    check(&Case { config, samples: "attitude", column: "planned_ns", rate_hz: 250.0 }, &[1200, 700]);
}

#[test]
fn the_daq_loop_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "robot = \"daq\"\nname = \"d\"\nlink = { kind = \"simulated\" }\npulse.wait = \"500us\"\n\
                acquisition = { policy = \"other:0\", lock_memory = \"off\" }\n";
    let config = written(folder.path(), text);
    check(&Case { config, samples: "edges", column: "sent_ns", rate_hz: 100.0 }, &[1400, 300, 800]);
}

#[test]
#[ignore = "takes 20 s"]
fn the_humanoid_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "robot = \"humanoid\"\nname = \"h\"\npolicy = \"other:0\"\nlock_memory = \"off\"\nreaders = 0\n\
                wire = { kind = \"in_process\" }\nmotion = { rate_hz = 250, devices = 8 }\n";
    let config = written(folder.path(), text);
    check(&Case { config, samples: "cycles", column: "planned_ns", rate_hz: 250.0 }, &[1200, 400]);
}

#[test]
#[ignore = "takes 15 s"]
fn the_safety_cell_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let config = patient_cell(folder.path(), "");
    check(&Case { config, samples: "ssm_jobs", column: "planned_ns", rate_hz: 500.0 }, &[1500, 600]);
}

/// Each part is a stream of its own to an arm that stands, as after every kill.
#[test]
fn the_joint_stream_goes_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text = "robot = \"servo\"\nname = \"s\"\n[simulator]\nprogram = \"takt-servo\"\nrtde_port = 0\n\
                dashboard_port = 0\n[servoj]\nsilent_cycles = 250\n[limits]\nstale_cycles = 250\n\
                skipped_cycles = 250\n[task]\npolicy = \"other:0\"\nlock_memory = \"off\"\n";
    let config = written(folder.path(), text);
    check(&Case { config, samples: "cycles", column: "planned_ns", rate_hz: 500.0 }, &[1200, 500]);
}

/// The one robot that cannot says why.
#[test]
fn a_ros_system_does_not_go_on_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let config = takt::root().join("robots/turtlebot.toml");
    let resumed = run(["run", config.to_str().unwrap(), "--resume"]).arg(folder.path()).output().unwrap();
    let message = refusal(&resumed);
    assert!(
        message.contains("its nodes are separate programs") && message.contains("start a new one"),
        "{message}"
    );
}

/// A run that is alive must not be cut under its feet.
#[test]
fn a_run_that_is_alive_is_not_taken_up() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let text =
        "robot = \"cyclic\"\nname = \"c\"\nrate_hz = 100\npolicy = \"other:0\"\nlock_memory = \"off\"\n";
    let config = written(folder.path(), text);
    let dir = folder.path().join("run");
    let mut command = run(["run", config.to_str().unwrap(), "--seconds", "60", "--run-dir"]);
    command.arg(&dir);
    let mut alive = Beside::start(command);
    wait_for("samples", || {
        assert!(alive.runs(), "{}", alive.output("stderr"));
        (rows(&dir, "cyclic.csv") > 0).then_some(())
    });
    let second = run(["run", config.to_str().unwrap(), "--resume"]).arg(&dir).output().unwrap();
    assert!(refusal(&second).contains("another process is writing this run"));
    assert!(alive.runs(), "{}", alive.output("stderr"));
    alive.signal(Signal::INT);
    assert_eq!(alive.end().code(), Some(0), "{}", alive.output("stderr"));
}

/// A refused run leaves nothing that reports and comparisons would stumble over.
#[test]
fn a_refused_strict_run_leaves_no_folder() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    for text in [
        "robot = \"cyclic\"\nname = \"c\"\n",
        "robot = \"uav\"\nname = \"u\"\n",
        "robot = \"humanoid\"\nname = \"h\"\nwire = { kind = \"in_process\" }\n",
        "robot = \"daq\"\nname = \"d\"\nlink = { kind = \"simulated\" }\n",
    ] {
        // No machine has so many CPUs.
        let table = if text.contains("daq") {
            "[acquisition]\ncpus = \"1000\"\n"
        } else if text.contains("uav") {
            "[attitude]\ncpus = \"1000\"\n"
        } else {
            "cpus = \"1000\"\n"
        };
        let text = if table.starts_with('[') { format!("{text}{table}") } else { format!("{table}{text}") };
        let config = written(folder.path(), &text);
        let refused = run(["run", config.to_str().unwrap(), "--strict", "--seconds", "0.5", "--runs"]);
        let mut refused = refused;
        let message = refusal(&refused.arg(&runs).output().unwrap());
        let there: Vec<_> =
            fs::read_dir(&runs).map(|all| all.map(|e| e.unwrap().path()).collect()).unwrap_or_default();
        assert_eq!(there, Vec::<PathBuf>::new(), "{text}: {message}");
    }
}
