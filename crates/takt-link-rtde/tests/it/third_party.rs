//! The PyPI client `ur_rtde` connects to the simulated controller, reads, moves the slider, sets
//! outputs.
//!
//! Needs `python3` with `ur_rtde` (`pip install ur_rtde==1.6.5`). Without them the test says
//! SKIPPED, unless `TAKT_REQUIRE_OUTSIDE=1` makes that a failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::path::Path;
use std::process::Command;
use support::wait_for;
use takt_link_rtde::sim::{SimConfig, SimProgram, Simulator};

/// Exit status of the script without `ur_rtde`.
const NOT_INSTALLED: i32 = 3;

/// The client knows only the standard ports, so the simulator gets a loopback address of its own.
fn simulator() -> Simulator {
    let mut errors = Vec::new();
    for last in 1..=8 {
        match Simulator::start(SimConfig {
            address: [127, 0, 7, last].into(),
            // A robot as it is delivered: its program does not wait for Takt.
            program: SimProgram::Own,
            ..SimConfig::default()
        }) {
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
fn ur_rtde_reads_moves_the_slider_and_sets_outputs() {
    let simulator = simulator();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/ur_rtde_client.py");
    let host = simulator.rtde_address().ip().to_string();
    let output = match Command::new("python3").arg(&script).arg(&host).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("python3 does not run: {error}")),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_INSTALLED) {
        return skip(&format!("{}; install it with: pip install ur_rtde==1.6.5", out.trim()));
    }
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    let state = simulator.state();
    assert_eq!(state.slider, 0.25);
    assert_eq!(state.digital_outputs, 0b10);
    assert_eq!(state.packets_refused, 0, "nothing that the client sends is foreign");
    wait_for("all clients have left", || (simulator.state().clients == 0).then_some(()));
}
