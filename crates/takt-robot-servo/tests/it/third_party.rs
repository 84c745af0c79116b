//! The PyPI client `ur_rtde` sees the joints that our own records report of, state by state.
//!
//! Needs `python3` with `ur_rtde` (`pip install ur_rtde==1.6.5`). Without them the test says
//! SKIPPED, unless `TAKT_REQUIRE_OUTSIDE=1` makes that a failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{patient, wait_for};
use takt_link_rtde::sim::{SimConfig, Simulator};
use takt_robot_servo::run::{Phase, simulated};
use takt_robot_servo::start;
use takt_rt::ring::ring;

/// Exit status of the script without `ur_rtde`.
const NOT_INSTALLED: i32 = 3;

const SAMPLES: usize = 300;

/// The client knows only the standard ports, so the simulator gets a loopback address of its own.
fn simulator() -> Simulator {
    let mut errors = Vec::new();
    for last in 1..=8 {
        let ports = SimConfig { rtde_port: 30004, dashboard_port: 29999, ..simulated() };
        match Simulator::start(SimConfig { address: [127, 0, 8, last].into(), ..ports }) {
            Ok(simulator) => return simulator,
            Err(error) => errors.push(error.to_string()),
        }
    }
    panic!("no loopback address is free: {errors:?}");
}

fn skip(reason: &str) {
    assert!(
        std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"),
        "TAKT_REQUIRE_OUTSIDE=1, but {reason}"
    );
    takt_witness::skip!("{reason}");
}

#[test]
fn ur_rtde_sees_the_motion_that_our_records_report_of() {
    let _alone = crate::support::alone();
    let simulator = simulator();
    let host = simulator.rtde_address().ip().to_string();
    let mut config = patient();
    config.link.host.clone_from(&host);
    let (producer, mut records) = ring(1 << 17);
    let running = start(&config, producer).unwrap();
    wait_for("the arm to move", || {
        let moves = simulator.state().joint_speeds_rad_s[0].abs() > 0.05;
        (moves && running.phase() == Phase::Streaming).then_some(())
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/ur_rtde_servo.py");
    let client = Command::new("python3")
        .arg(&script)
        .args([&host, &SAMPLES.to_string()])
        .stderr(Stdio::piped())
        .output();
    let finished = running.stop().unwrap();
    let output = match client {
        Ok(output) => output,
        Err(error) => return skip(&format!("python3 does not run: {error}")),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_INSTALLED) {
        return skip(&format!("{}; install it with: pip install ur_rtde==1.6.5", out.trim()));
    }
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    let mut cycles = Vec::new();
    records.take_into(&mut cycles, 1 << 17);
    assert_eq!(finished.records_lost, 0);
    let ours: HashMap<u64, [f64; 6]> =
        cycles.iter().map(|cycle| (cycle.controller_s.to_bits(), cycle.joints_rad)).collect();
    let (mut same, mut low, mut high) = (0, f64::MAX, f64::MIN);
    let mut seen = 0;
    for line in out.lines() {
        let Ok(values) = line.split(' ').map(str::parse::<f64>).collect::<Result<Vec<_>, _>>() else {
            continue;
        };
        let [time_s, joints @ ..] = values.as_slice() else { continue };
        seen += 1;
        (low, high) = (low.min(joints[0]), high.max(joints[0]));
        // A state that our thread was too late for has no record.
        if let Some(ours) = ours.get(&time_s.to_bits()) {
            assert_eq!(ours.as_slice(), joints, "at {time_s} s of the controller");
            same += 1;
        }
    }
    assert_eq!(seen, SAMPLES, "{out}");
    assert!(same * 2 > seen, "{same} of {seen} states have a record");
    assert!(high - low > 0.01, "the base joint moved by {} rad only", high - low);
}
