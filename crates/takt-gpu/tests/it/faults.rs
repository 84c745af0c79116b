//! Failures at the start, each in a separate process: no driver, one that is too old, no device, a
//! compiler that is missing or of another kind, a device that is lost. One clear sentence each.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::Path;
use std::process::Command;

use takt_gpu::testing::{self, Emulator};
use takt_gpu::{Gpu, Interference, Interfering, Source};

/// Not a test of its own: what the children do. They say how it went on standard output.
#[test]
fn child() {
    if std::env::var_os("TAKT_TEST_CHILD").is_none() {
        return;
    }
    const NOTHING: Source =
        Source { name: "nothing", text: "extern \"C\" __global__ void f() {}", options: &[] };
    let outcome = Gpu::open(0).and_then(|gpu| {
        gpu.module_cached(&NOTHING, None)?;
        let interfering = Interfering::start(&Interference { kernel_us: 50, ..Interference::default() })?;
        while interfering.work().launches < 5 && interfering.death().is_none() {
            std::thread::yield_now();
        }
        interfering.death().map_or(Ok(()), |error| Err(error.clone()))
    });
    match outcome {
        Ok(()) => println!("OUTCOME works"),
        Err(error) => println!("OUTCOME absent={} lost={} {error}", error.is_absent(), error.is_lost()),
    }
}

fn outcome(changes: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::child", "--nocapture"]).env("TAKT_TEST_CHILD", "1");
    changes(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // The test runner's own words may stand before it on the line.
    let line = text.lines().find_map(|line| Some(line.split_once("OUTCOME ")?.1.to_owned()));
    line.unwrap_or_else(|| panic!("no outcome: {text}"))
}

fn emulator() -> Option<&'static Emulator> {
    testing::emulator().inspect_err(|reason| takt_witness::skip!("emulated device: {reason}")).ok()
}

#[test]
fn mps_that_recovers_is_waited_for() {
    let Some(emulator) = emulator() else { return };
    let text = outcome(|command| command.envs(emulator.environment("mps=3")));
    assert_eq!(text, "works");
}

#[test]
fn no_driver_is_one_sentence_with_what_was_looked_for() {
    let missing = Path::new("/nonexistent/libcuda.so.1");
    let text = outcome(|command| command.env("TAKT_CUDA_LIBRARY", missing));
    assert!(
        text.starts_with("absent=true lost=false no CUDA driver: looked for /nonexistent/libcuda.so.1."),
        "{text}"
    );
}

#[test]
fn a_library_that_is_no_driver_is_said_to_be_none() {
    let text = outcome(|command| command.env("TAKT_CUDA_LIBRARY", "libc.so.6"));
    assert!(text.starts_with("absent=true") && text.contains("cuDriverGetVersion is missing"), "{text}");
}

#[test]
fn what_the_driver_lacks_is_named() {
    let Some(emulator) = emulator() else { return };
    let with = |faults: &str| outcome(|command| command.envs(emulator.environment(faults)));
    assert_eq!(with(""), "works");
    let text = with("driver=11080");
    assert!(text.starts_with("absent=true") && text.contains("CUDA 11.8") && text.contains("12.0"), "{text}");
    let text = with("devices=0");
    assert!(text.starts_with("absent=true") && text.contains("no GPU 0: the driver reports 0"), "{text}");
    let text = with("memory=100");
    assert!(text.contains("out of GPU memory") || text == "works", "{text}");
}

#[test]
fn a_compiler_that_is_missing_or_of_another_kind_is_named() {
    let Some(emulator) = emulator() else { return };
    let with = |nvrtc: &str| {
        outcome(|command| command.envs(emulator.environment("")).env("TAKT_NVRTC_LIBRARY", nvrtc))
    };
    let text = with("/nonexistent/libnvrtc.so.12");
    assert!(text.starts_with("absent=true") && text.contains("/nonexistent/libnvrtc.so.12"), "{text}");
    let text = with("libc.so.6");
    assert!(text.contains("libc.so.6 (has no nvrtcVersion"), "{text}");
}

#[test]
fn a_device_that_is_lost_on_the_way_is_said_to_be() {
    let Some(emulator) = emulator() else { return };
    let text = outcome(|command| command.envs(emulator.environment("lost=4:214")));
    assert!(
        text.starts_with("absent=false lost=true") && text.contains("214") && text.contains("ECC"),
        "{text}"
    );
}
