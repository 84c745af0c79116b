//! The humanoid and its simulated segment through the binary, and under a master that nobody here
//! wrote.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use takt_rt::clock::monotonic_ns;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::Handle;

use takt::{Beside, alone, has, json, missing, refusal, root, stderr, stdout, takt as run};

/// Whether a veth pair can be made: needs CAP_NET_ADMIN and CAP_NET_RAW.
fn no_veth() -> bool {
    let made = Command::new("ip")
        .args(["link", "add", "taktprobe0", "type", "veth", "peer", "name", "taktprobe1"])
        .status();
    let there = made.is_ok_and(|status| status.success());
    if there {
        let _ = Command::new("ip").args(["link", "del", "taktprobe0"]).status();
    }
    missing("no veth pair can be made here", there)
}

#[test]
fn all_devices_walk_and_the_papers_figures_are_there() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    for (wire, needs) in [("in-process", false), ("veth", true)] {
        if needs && no_veth() {
            return;
        }
        let output = run([
            "bench",
            "humanoid",
            "--devices",
            "59",
            "--seconds",
            "2",
            "--wire",
            wire,
            "--json",
            "--runs",
        ])
        .arg(runs.path())
        .output()
        .unwrap();
        let answer = json(&output);
        assert_eq!(answer["devices_op"], 59, "{wire}: {answer}");
        assert!(answer["cycles"].as_u64() > Some(1000), "{wire}: {answer}");
        assert!(
            answer["lost_frames"].is_u64()
                && answer["late_frames"].is_u64()
                && answer["working_counter_errors"].is_u64(),
            "{wire}: {answer}"
        );
        // Whatever the machine did: each late frame is counted under one cause.
        let late = answer["late_frames"].as_u64().unwrap();
        let causes = answer["late_frame_causes"].as_array().unwrap();
        let sum: u64 = causes.iter().map(|cause| cause["frames"].as_u64().unwrap()).sum();
        assert_eq!(sum, late, "{wire}: {answer}");
        assert!(answer["late_frames_unexplained"].as_u64().unwrap() <= late, "{wire}: {answer}");
        let low = answer["period_low_us"].as_array().unwrap();
        assert_eq!(low.len(), 5, "{wire}: {low:?}");
        assert!(low.windows(2).all(|rows| rows[0]["max"].as_f64() <= rows[1]["max"].as_f64()), "{low:?}");
        for latency in ["sensor", "command", "reaction"] {
            let cycles = &answer["latency_cycles"][latency];
            assert!(
                cycles["min"].as_f64() > Some(0.0) && cycles["mean"].as_f64() <= cycles["max"].as_f64(),
                "{cycles}"
            );
        }
    }
}

/// The thread whose doing late frames are.
pub(crate) const HOG: &str = "takt-hog";

/// A thread above the simulated segment's (or the DAQ loop's), on its CPU, CPU 1, that takes 2.5 ms
/// of every 100, until `done`.
pub(crate) fn hog(done: &Arc<AtomicBool>) -> Option<Handle<()>> {
    let settings = ThreadSettings {
        policy: Policy::Fifo { priority: 99 },
        cpus: Some(CpuSet::single(1).unwrap()),
        ..ThreadSettings::default()
    };
    let done = Arc::clone(done);
    let body = move || {
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(97_500));
            let until_ns = monotonic_ns() + 2_500_000;
            while monotonic_ns() < until_ns {
                std::hint::spin_loop();
            }
        }
    };
    let hog = takt_rt::thread::spawn(HOG, &settings, body).unwrap();
    // Nobody waits for one that was refused its priority: it ends by itself.
    hog.granted().is_complete().then_some(hog)
}

#[test]
#[ignore = "takes 10 s"]
fn late_frames_are_explained_by_what_was_planted() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let there = takt_rt::placement::online().is_ok_and(|cpus| cpus.contains(0) && cpus.contains(1));
    if no_veth() || missing("no two CPUs", there) {
        return;
    }
    let done = Arc::new(AtomicBool::new(false));
    let hog = hog(&done);
    if missing("no priority FIFO 99 on CPU 1", hog.is_some()) {
        done.store(true, Ordering::Relaxed);
        return;
    }
    // In a waiting exchange no release is late for it: the frame alone has the kernel's part kept.
    let reported = ["pipelined", "waiting"].map(|mode| hogged_run(runs.path(), mode));
    done.store(true, Ordering::Relaxed);
    hog.map(Handle::join);
    for reported in reported.iter().flatten() {
        let each = reported["each"].as_array().unwrap();
        let hogged = |frame: &&serde_json::Value| frame["who"].as_str().is_some_and(|who| who.contains(HOG));
        let by_hog: Vec<_> = each.iter().filter(hogged).collect();
        // Thirty times two or three frames; the machine may add some of its own, and they are not
        // blamed on it.
        assert!(by_hog.len() >= 5, "{} of {} late frames: {reported}", by_hog.len(), each.len());
        for frame in by_hog {
            assert_eq!(
                (&frame["cause"], &frame["blame"]),
                (&"higher_priority".into(), &"host_stack".into()),
                "{frame}"
            );
            // Not taken up yet, or the one before was not, for which the controller waited, or with
            // the devices just then.
            assert!(["outward", "before", "segment"].map(Into::into).contains(&frame["place"]), "{frame}");
        }
    }
}

/// Late frames reported by a run with the exchange `mode`, whose segment is delayed on CPU 1;
/// `None` if the kernel cannot be traced.
fn hogged_run(runs: &std::path::Path, mode: &str) -> Option<serde_json::Value> {
    let config = runs.join("humanoid.toml");
    let text = format!(
        "robot = 'humanoid'\ncpus = '0'\n[segment]\ncpus = '1'\n[motion]\ndevices = 8\n[motion.link]\nmode = '{mode}'\ntimeout_us = 300\n\
         [motion.safety]\nmax_missing = 16\nmax_incomplete = 1000\nmax_late = 1000\nmax_late_in_row = 1000\n\
         max_away_ms = 60000\n"
    );
    std::fs::write(&config, text).unwrap();
    let output = run(["bench", "humanoid", "--seconds", "3", "--json", "--config"])
        .arg(&config)
        .arg("--runs")
        .arg(runs)
        .output()
        .unwrap();
    let answer = json(&output);
    if missing("the kernel cannot be traced here", answer["untraced"].is_null()) {
        return None;
    }
    let dir = std::path::Path::new(answer["run"]["run_dir"].as_str().unwrap());
    let reported = std::fs::read_to_string(dir.join("late-frames.json"));
    Some(serde_json::from_str(&reported.unwrap()).unwrap())
}

#[test]
fn another_master_brings_the_segment_to_op() {
    let _machine = alone();
    if no_veth() {
        return;
    }
    let mut segment = Beside::start(run(["segment", "--devices", "59"]));
    let master = segment.line("stdout", "Master's end of the pair: ");
    let client = root().join("tests/clients/pysoem_segment.py");
    let output =
        Command::new("python3").arg(client).args([master.as_str(), "59", "check", "1"]).output().unwrap();
    if output.status.code() == Some(3) {
        missing("pysoem is not installed", false);
        return;
    }
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    segment.signal(Signal::INT);
    assert_eq!(segment.end().code(), Some(0), "{}", segment.output("stderr"));
    assert!(!std::path::Path::new("/sys/class/net").join(&master).exists(), "the pair stays behind");
}

#[test]
fn what_cannot_work_is_a_sentence() {
    for (args, words) in [
        (&["segment", "--interface", "nonexistent0", "--seconds", "1"][..], &["nonexistent0"][..]),
        (&["segment", "--devices", "0", "--seconds", "1"], &["device"]),
        (&["bench", "humanoid", "--devices", "0", "--seconds", "1"], &["devices"]),
        (&["bench", "humanoid", "--wire", "nonexistent0", "--seconds", "1"], &["nonexistent0"]),
    ] {
        let output = run(args).current_dir(std::env::temp_dir()).output().unwrap();
        let message = refusal(&output);
        assert!(message.starts_with("takt: "), "{args:?}: {message}");
        has(&message, words);
    }
}

#[test]
fn a_captured_run_is_analysed_with_the_robots_own_stamps() {
    let _machine = alone();
    if no_veth() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (capture, runs) = (folder.path().join("bus.pcapng"), folder.path().join("runs"));
    let path = capture.to_str().unwrap();
    let mut segment = Beside::start(run(["segment", "--devices", "59", "--capture", path]));
    let master = segment.line("stdout", "Master's end of the pair: ");
    let bench = run([
        "bench",
        "humanoid",
        "--devices",
        "59",
        "--seconds",
        "1",
        "--wire",
        &master,
        "--json",
        "--runs",
    ])
    .arg(&runs)
    .output()
    .unwrap();
    segment.signal(Signal::INT);
    assert_eq!(segment.end().code(), Some(0), "{}", segment.output("stderr"));
    let answer = json(&bench);
    let dir = answer["run"]["run_dir"].as_str().unwrap();
    let reported = run(["ethercat", "analyse", "--json", "--run", dir]).arg(&capture).output().unwrap();
    let reported = json(&reported);
    golden::hold("ethercat-analyse", &golden::shape("--json", &reported));
    // One clock, one count: the robot's cycles are the frames of the bus.
    let cycles = answer["cycles"].as_u64().unwrap();
    assert!(reported["cycles_found"].as_u64() >= Some(cycles * 9 / 10), "{cycles} cycles: {reported:#}");
    assert!(reported["cyclic_frames"].as_u64() >= Some(cycles), "{cycles} cycles");
    assert!(reported["in_segment"]["median_us"].as_f64() > Some(0.0) && reported["blames"].is_object());
    assert!(reported["capture"]["clock_offset_ns"].is_i64() && reported["capture"]["cut"].is_null());
    let text = run(["ethercat", "analyse"]).arg(&capture).output().unwrap();
    has(
        &stdout(&text),
        &["at the master", "at the segment", "in the segment", "round trip", "note: without"],
    );
    // What is no capture, and a capture that would be overwritten.
    let message = refusal(&run(["ethercat", "analyse", "/dev/zero"]).output().unwrap());
    has(&message, &["/dev/zero"]);
    let message = refusal(&run(["ethercat", "capture", "lo"]).arg(&capture).output().unwrap());
    has(&message, &["lo"]);
}
