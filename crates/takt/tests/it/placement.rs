//! Placement in a guest whose kernel was instructed to isolate a CPU: what a two-CPU machine with
//! `isolcpus=1` shows of a run and of the doctor.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use takt::{Beside, TAKT, missing, read_json, takt as run};
use takt_kernels::guest::Job;
use takt_kernels::machine::Settings;
use takt_kernels::packages::Store;
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, TAKT_PATH, run_in_guest};

/// 0.4 s of flight, with the attitude loop under `policy`.
fn robot(policy: &str) -> String {
    format!(
        "robot = \"uav\"\niterations = 100\n[attitude]\nrate_hz = 250\npolicy = \"{policy}\"\n[tasks]\nlock_memory = false\n"
    )
}

fn thread<'a>(run: &'a Value, name: &str) -> &'a Value {
    let threads = run["placement"]["threads"].as_array().unwrap();
    threads.iter().find(|thread| thread["name"] == name).unwrap_or_else(|| panic!("no {name}: {threads:#?}"))
}

#[test]
#[ignore = "takes 25 s"]
fn an_isolated_cpu_is_the_attitude_loops_and_the_doctor_measures_it() {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if missing("no qemu-system-x86_64", qemu.is_ok_and(|output| output.status.success())) {
        return;
    }
    let kernel = Store::open(None).and_then(|store| store.get("6.12", &mut |_| {}));
    if missing(&format!("no kernel 6.12: {:?}", kernel.as_ref().err()), kernel.is_ok()) {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let mut jobs = Vec::new();
    for (name, policy) in [("fixed", "fifo:99"), ("reserved", "deadline:400us/4ms/4ms")] {
        let host = workspace.path().join(format!("{name}.toml"));
        fs::write(&host, robot(policy)).unwrap();
        let guest = format!("/etc/takt/{name}.toml");
        files.push(Brought { host, guest: guest.clone() });
        let target = format!("/results/{name}");
        jobs.push(Job::new(name, TAKT_PATH, &["run", &guest, "--view", "none", "--run-dir", &target]));
    }
    jobs.push(Job::new("doctor", TAKT_PATH, &["doctor", "--json", "--seconds", "0.1"]));
    let outcome = run_in_guest(
        &GuestRun {
            settings: Settings {
                cpus: 2,
                memory_mib: 512,
                boot_parameters: "isolcpus=1".into(),
                ..Settings::default()
            },
            files,
            ..GuestRun::new(kernel.unwrap(), TAKT, jobs, workspace.path())
        },
        &mut |_| true,
    )
    .unwrap();
    let text = |file: &str| fs::read_to_string(outcome.results.join("jobs").join(file)).unwrap();
    for name in ["fixed", "reserved"] {
        let ending = &outcome.job(name).unwrap().ending;
        assert!(
            matches!(ending, JobEnding::Exited { .. }),
            "{ending:?}: {}",
            text(&format!("{name}.stderr"))
        );
        let run = read_json(&outcome.results.join(name).join("run.json"));
        let machine = &run["placement"]["machine"];
        assert_eq!((machine["isolated"].as_str(), machine["usable"].as_str()), (Some("1"), Some("0-1")));
        let attitude = thread(&run, "uav-attitude");
        for what in ["asked", "granted", "ran_on"] {
            assert_eq!(attitude[what], "1", "{name}: {what}: {attitude:#}");
        }
        assert_eq!(attitude["every_release"], true, "{attitude:#}");
        for other in ["uav-position", "uav-telemetry"] {
            assert_eq!(thread(&run, other)["ran_on"], "0", "{name}: {other}");
        }
        let reported = run["not_granted"].to_string();
        assert!(!reported.contains("cpus") && !reported.contains("policy"), "{name}: {reported}");
    }
    // One isolated CPU is a scheduling domain of its own, so that a reservation may be pinned there
    // as it is.
    let run = read_json(&outcome.results.join("reserved/run.json"));
    assert_eq!(run["reservations"]["way"], "own-domain", "{:#}", run["reservations"]);
    assert!(run["label"].as_str().unwrap().contains("pinned"), "{}", run["label"]);
    let doctor: Value = serde_json::from_str(&text("doctor.stdout")).unwrap();
    let checks = doctor.as_array().unwrap();
    // Both CPUs by name, the isolated one too.
    for id in ["wakeup_lateness", "hardware_gaps"] {
        let check = checks.iter().find(|check| check["id"] == id).unwrap();
        assert!(check["evidence"].as_str().unwrap().contains("CPUs 0-1"), "{check:#}");
    }
}

/// Interfaces, as another program lists them.
fn links() -> String {
    let output = Command::new("ip").args(["-o", "link"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

#[test]
fn a_segment_killed_with_sigkill_takes_its_link_with_it() {
    let namespaces = takt_rt::net::Namespace::new();
    if missing(&format!("no network namespace: {:?}", namespaces.as_ref().err()), namespaces.is_ok()) {
        return;
    }
    let mut segment = Beside::start(run(["segment", "--devices", "3"]));
    let master = segment.line("stdout", "Master's end of the pair: ");
    assert!(links().contains(&master));
    segment.signal(Signal::KILL);
    segment.end();
    let end = Instant::now() + Duration::from_secs(30);
    while links().contains(&master) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!links().contains(&master), "{}", links());
}
