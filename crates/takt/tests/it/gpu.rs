//! The safety cell with its perception in a process of its own, and what it says where there is no
//! GPU.

#![allow(clippy::unwrap_used)]

#[path = "../device/check.rs"]
mod check;
use crate::hold as golden;
#[path = "../device/sharing.rs"]
mod sharing;
use crate::takt;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use takt_gpu::testing::Emulator;
use takt_robot_cell::lab::gpu_bench::Requirement;

use takt::{
    alone, empty_cell, folders, json, missing, patient_cell as config, refusal, stderr, takt as run,
    traced_json, untraced,
};

/// No CUDA driver has this path, so that these tests say the same on a machine with a GPU.
const NOWHERE: &str = "/nonexistent/libcuda.so.1";

fn command(config: &Path, runs: &Path, seconds: &str) -> Command {
    let mut command = run(["run", config.to_str().unwrap(), "--view", "none", "--policy", "RR+RR", "--json"]);
    command.args(["--seconds", seconds, "--runs", runs.to_str().unwrap()]);
    command.env("TAKT_CUDA_LIBRARY", NOWHERE);
    command
}

/// The emulated device; `None`, with the reason printed, where it cannot be compiled.
fn emulator() -> Option<&'static Emulator> {
    takt_gpu::testing::emulator().map_err(|reason| missing(&reason.to_string(), false)).ok()
}

const BUDGET: &str = "[perception.gpu]\nbudget_ms = 900.0\n[perception.gpu.breaker]\nhang_ms = 1000.0\ncool_down_ms = \
                      100.0\ntrials = 3";

#[test]
fn a_gpu_that_is_not_there_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for device in ["cuda", "tensorrt"] {
        let config = config(folder.path(), &format!("[perception]\ndevice = \"{device}\""));
        let output = command(&config, folder.path(), "1").output().unwrap();
        let message = refusal(&output);
        assert!(
            message.starts_with(&format!("takt: perception.device = \"{device}\": no CUDA driver")),
            "{message}"
        );
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(message.contains("perception.device = \"cpu\""), "the way out: {message}");
        assert!(folders(folder.path()).is_empty(), "no run directory is left");
    }
}

#[test]
#[ignore = "takes 15 s"]
fn auto_runs_on_the_cpu_and_says_so() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "[perception]\ndevice = \"auto\"");
    let output = command(&config, folder.path(), "2").output().unwrap();
    let summary = json(&output);
    let labels = summary["not_granted"].to_string();
    assert!(labels.contains("perception runs on the CPU, because: no CUDA driver"), "{labels}");
    assert!(stderr(&output).contains("perception runs on the CPU"), "{}", stderr(&output));
    assert!(summary["frames"].as_u64() > Some(0) && summary["worker"].is_null(), "{summary}");
}

#[test]
#[ignore = "takes 15 s"]
fn a_crash_of_the_perception_process_is_in_the_run_directory() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let config = empty_cell(folder.path(), &format!("[perception]\ndevice = \"cuda\"\n{BUDGET}"));
    let mut command = command(&config, folder.path(), "12");
    let output =
        command.envs(emulator.environment("")).env("TAKT_WORKER_FAULT", "abort@60").output().unwrap();
    let summary = json(&output);
    let worker = &summary["worker"];
    assert!(worker["answered"].as_u64() > Some(10), "{worker}");
    for kind in ["crashed", "breaker-open", "restarted", "breaker-half-open", "breaker-closed"] {
        assert!(worker["events"][kind].as_u64() > Some(0), "{kind}: {worker}");
    }
    assert!(worker["causes"]["crashed"].as_str().unwrap().contains("signal 6"), "{worker}");
    assert!(summary["stop_causes"].to_string().contains("inference failed"), "{}", summary["stop_causes"]);

    let dir = PathBuf::from(summary["run_dir"].as_str().unwrap());
    let about: Value = takt::read_json(&dir.join("run.json"));
    let process = &about["perception_process"];
    assert!(process["about"]["device"].as_str().unwrap().contains("emulated"), "{process}");
    assert!(process["generation"].as_u64() > Some(1), "{process}");
    let census = &process["census"]["threads"];
    assert!(
        census.as_array().is_some_and(|threads| threads.iter().any(|t| t["name"] == "judge-0")),
        "{process}"
    );
    assert!(about["figures"]["gpu_restarts"].as_f64() > Some(0.0), "{}", about["figures"]);
    for name in ["gpu_frames.parquet", "gpu_events.parquet"] {
        assert!(dir.join("samples").join(name).is_file(), "{name}");
    }
}

#[test]
#[ignore = "takes 15 s"]
fn what_goes_wrong_on_the_gpu_is_marked_in_the_picture() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let perception = "[perception]\ndevice = \"cuda\"\n[perception.gpu]\nbudget_ms = 900.0\n[perception.gpu.breaker]\n\
                      hang_ms = 60000.0\noverruns = 2\ncool_down_ms = 100.0\ntrials = 3\nwhen_open = \"fallback\"";
    let config = config(folder.path(), perception);
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replacen("\"DL+RR\"", "\"RR+RR\"", 1)).unwrap();
    let picture = folder.path().join("run.perfetto");
    let output = run(["trace", config.to_str().unwrap(), "--seconds", "10", "--json", "--perfetto"])
        .arg(&picture)
        .args(["--runs", folder.path().to_str().unwrap()])
        .envs(emulator.environment(""))
        .env("TAKT_WORKER_FAULT", "sleep@10+3:1500")
        .output()
        .unwrap();
    let traced = traced_json(&output);
    if untraced(&traced) {
        return;
    }
    // The names of tracks and events, and their details, are plain text in this format.
    let bytes = std::fs::read(&picture).unwrap();
    let holds = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    for words in ["GPU", "upload", "overrun", "fallback", "breaker-open", "no answer within 900.0 ms"] {
        assert!(holds(words), "\"{words}\" is not in the picture: {}", traced["run"]);
    }
}

#[test]
fn the_worker_command_is_not_for_people() {
    let output = run(["perception-worker"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(takt::stdout(&output).contains("started by a cell"), "{}", takt::stdout(&output));
    assert!(!takt::stdout(&run(["--help"]).output().unwrap()).contains("perception-worker"));
}

#[test]
fn the_bench_names_everything_that_could_not_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |more: &[&str]| {
        let mut command = run(["bench", "gpu", "--runs", folder.path().to_str().unwrap()]);
        command.args(more).env("TAKT_CUDA_LIBRARY", NOWHERE).output().unwrap()
    };
    let output = bench(&[]);
    let message = takt::stdout(&output);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(message.matches("NOT RUN").count(), 4, "{message}");
    for word in
        ["masks IoU >= 0.98", "p99.9 <= 5 ms", "5 x lower", "no growth of GPU memory", "no CUDA driver"]
    {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert_eq!(bench(&["--check"]).status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&bench(&["--json"]).stdout).unwrap();
    assert!(answer["device"].is_null() && answer["requirements"].as_array().unwrap().len() == 4, "{answer}");
    // A requirement that was measured is of the same type; to measure one takes minutes where the
    // device is emulated.
    let mut seen = golden::shape("--json", &answer);
    let measured = Requirement::measured("what", "figures".to_owned(), true);
    for requirement in [measured.clone(), measured.does_not_count("why")] {
        let place = "--json.requirements[]";
        golden::shape::shape_of(&mut seen, place, &serde_json::to_value(requirement).unwrap());
    }
    golden::hold("bench-gpu", &seen);
}
