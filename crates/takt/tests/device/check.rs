//! `takt gpu check`: whole on the emulated device, with faults planted in it, killed and gone on
//! with at every step; and where there is no driver, no compiler, no network, no Rust.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use takt_gpu::testing::Emulator;

use super::golden;
use super::takt::{PATIENCE, TAKT, has, read_json, refusal, root, stderr, stdout, takt as run};
use super::{NOWHERE, emulator};

const STEPS: usize = 13;

/// Kernels are compiled once for all of these tests.
pub fn cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-check-cache");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn check(emulator: &Emulator, faults: &str, out: &Path, more: &[&str]) -> Command {
    let mut command = run(["gpu", "check", "--seconds", "1", "--out", out.to_str().unwrap()]);
    command.args(more).envs(emulator.environment(faults)).env("XDG_CACHE_HOME", cache());
    command
}

/// Every step's report, by name.
pub fn reports(out: &Path) -> Vec<(String, Value)> {
    let files = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| read_json(path))
        .map(|report| (report["step"].as_str().unwrap().to_owned(), report))
        .collect()
}

fn failing(out: &Path) -> Vec<String> {
    let bad = |report: &Value| report["outcome"] != "passed" && report["outcome"] != "not-run";
    reports(out).into_iter().filter(|(_, report)| bad(report)).map(|(name, _)| name).collect()
}

/// Whether a process has `mark` in its environment.
pub fn lives(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.map(|entry| entry.path().join("environ")).any(|path| {
        let environment = std::fs::read(path).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    })
}

#[test]
#[ignore = "takes 10 s"]
fn a_check_that_is_killed_at_every_step_goes_on_and_passes() {
    let Some(emulator) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("check");
    let mark = format!("gpu-check-{}", std::process::id());
    for step in 1..=STEPS {
        let more: &[&str] = if step == 1 { &[] } else { &["--resume"] };
        let mut check = check(emulator, "", &out, more);
        let mut child = check.env("TAKT_TEST_MARK", &mark).stderr(Stdio::piped()).spawn().unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let begun = format!("{step} of {STEPS}: ");
        let reached = words.lines().map_while(Result::ok).any(|line| line.starts_with(&begun));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(reached, "step {step} begins");
        // What was complete is there, and nothing of the rest: the step's own process ends with the
        // check.
        assert_eq!(reports(&out).len(), step - 1);
        let begin = Instant::now();
        while lives(&mark) {
            assert!(begin.elapsed() < PATIENCE, "a process of step {step} is left");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    let output = check(emulator, "", &out, &["--resume"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let all = reports(&out);
    assert_eq!(all.len(), STEPS);
    let mut left = golden::shape("check", &read_json(&out.join("check.json")));
    for (_, report) in &all {
        golden::shape::shape_of(&mut left, "step", report);
    }
    golden::hold("gpu-check", &left);
    assert!(stderr(&output).starts_with(&format!("{STEPS} of {STEPS}: loss")), "{}", stderr(&output));
    for (name, report) in &all {
        // Nobody has a network for the emulated device.
        let expected = if name == "networks" { "not-run" } else { "passed" };
        assert_eq!(report["outcome"], expected, "{name}: {report}");
        for requirement in report["requirements"].as_array().unwrap() {
            let what = requirement["what"].as_str().unwrap();
            // Times of the emulated device never count.
            let time = what.contains(" us") || what.contains(" ms") || what.contains("x sooner");
            assert!(!time || requirement["reached"].is_null() || what.contains("budget"), "{requirement}");
        }
    }
    let summary = std::fs::read_to_string(out.join("summary.txt")).unwrap();
    has(
        &summary,
        &["emulated device, no GPU", "PASSED       answers", "NOT RUN      networks", "DOES NOT COUNT"],
    );
    assert!(!summary.contains("MISSED"), "{summary}");

    // Another folder's options, and a folder that is taken.
    has(&refusal(&check(emulator, "", &out, &[]).output().unwrap()), &["--resume"]);
    let other = check(emulator, "", &out, &["--resume", "--ordinal", "3"]).output().unwrap();
    has(&refusal(&other), &["started as", "--ordinal 0", "--ordinal 3"]);
    let unknown = check(emulator, "", &folder.path().join("new"), &["--only", "kernel"]).output().unwrap();
    has(&refusal(&unknown), &["--only kernel", "kernels, answers"]);
    assert!(!folder.path().join("new").exists());
}

/// Each fault fails the step that looks for it, by its own words, and no other step.
#[test]
#[ignore = "takes 25 s"]
fn a_planted_fault_fails_its_step_and_no_other() {
    let Some(emulator) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("check");
    // The clock's fault is large beside what asking 20 ms late makes unsure of it.
    let faults = "wrong=takt_paint,clock=1.3,late=20,lose=check_order";
    let output = check(emulator, faults, &out, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(failing(&out), ["answers", "clock", "streams", "budgets"], "{}", stdout(&output));
    assert_eq!(reports(&out).len(), STEPS);
    let message = stdout(&output);
    has(
        &message,
        &["pixels drawn differently", "outside, at most", "FAILED       streams", "the GPU is lost"],
    );
    has(&message, &["FAILED       budgets", "returns at its deadline"]);
}

#[test]
#[ignore = "takes 10 s"]
fn a_kernel_that_hangs_fails_its_step_with_where_it_was() {
    let Some(emulator) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("check");
    let output = check(emulator, "hang=check_order:0", &out, &["--only", "streams,clock"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(failing(&out), ["streams"]);
    has(&stdout(&output), &["did not end within", "PASSED       clock", "NOT YET RUN  kernels"]);
}

#[test]
fn without_a_driver_the_check_is_one_sentence_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("check");
    let mut command = run(["gpu", "check", "--out", out.to_str().unwrap()]);
    let message = refusal(&command.env("TAKT_CUDA_LIBRARY", NOWHERE).output().unwrap());
    let last = message.lines().last().unwrap();
    assert!(last.starts_with("takt: no CUDA driver: looked for ") && last.contains("Fix:"), "{message}");
    assert_eq!(message.matches("no CUDA driver").count(), 1, "{message}");
    assert!(!out.exists());
    for seconds in ["0", "541", "nan"] {
        let output = command.args(["--seconds", seconds]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        command = run(["gpu", "check", "--out", out.to_str().unwrap()]);
    }
    assert!(!out.exists());
}

#[test]
fn kernels_compiled_beforehand_are_taken_where_there_is_no_compiler() {
    let Some(emulator) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (kernels, out) = (folder.path().join("kernels"), folder.path().join("check"));
    let made =
        run(["gpu", "kernels", kernels.to_str().unwrap()]).envs(emulator.environment("")).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    has(
        &stdout(&made),
        &["perception cubin sm_00", "check cubin", "interference cubin", "TAKT_GPU_KERNELS="],
    );
    let only = |carried: &Path| -> Output {
        let mut command = check(emulator, "", &out, &["--only", "kernels,streams"]);
        // Not even what an earlier start compiled.
        command
            .env("TAKT_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so")
            .env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.env("TAKT_GPU_KERNELS", carried).output().unwrap()
    };
    let output = only(&kernels);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    has(&stdout(&output), &["`perception` compiled beforehand loads", "25 kernels", "PASSED       streams"]);
    let image = kernels.join(read_json(&kernels.join("kernels.json"))[0]["file"].as_str().unwrap());
    std::fs::write(&image, "torn").unwrap();
    let output = only(&kernels);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    has(&stdout(&output), &["FAILED       kernels", "copy it again"]);
    let output = only(&folder.path().join("none"));
    has(&stdout(&output), &["FAILED       kernels", "kernels.json", "takt gpu kernels FOLDER"]);
}

/// The script: packed here, joined there, with nothing but a shell.
#[test]
fn what_is_carried_is_joined_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let carried = folder.path().join("carried");
    let library = folder.path().join("provider/libprovider.so.1");
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    std::fs::write(&library, vec![7u8; 3 << 20]).unwrap();
    let pack = |more: &[&Path]| {
        let mut command = Command::new(root().join("tools/gpu-check"));
        command.arg("pack").arg(&carried).args(more).env("TAKT_BINARY", TAKT).env("TAKT_PIECE_MIB", "20");
        command.env("TAKT_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so").output().unwrap()
    };
    let output = pack(&[library.parent().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    has(&stderr(&output), &["no kernels compiled beforehand"]);
    let pieces = std::fs::read_dir(carried.join("pieces")).unwrap().map(|entry| entry.unwrap().path());
    let pieces: Vec<PathBuf> = pieces.collect();
    assert!(
        pieces.len() > 2 && pieces.iter().all(|path| path.metadata().unwrap().len() <= 20 << 20),
        "{pieces:?}"
    );
    assert!(!pack(&[]).status.success(), "the folder is taken");

    let there = || {
        let mut command = Command::new(carried.join("gpu-check"));
        command.current_dir(&folder).args(["--out", "results"]).env("TAKT_CUDA_LIBRARY", NOWHERE);
        command.output().unwrap()
    };
    let message = refusal(&there());
    assert!(message.contains("takt: no CUDA driver"), "{message}");
    assert!(!folder.path().join("results").exists());
    let joined = carried.join("joined/lib/provider/libprovider.so.1");
    assert_eq!(std::fs::read(&joined).unwrap(), vec![7u8; 3 << 20]);
    // A piece that arrived damaged.
    std::fs::write(&joined, "damaged").unwrap();
    let of_library = pieces.iter().find(|path| path.metadata().unwrap().len() == 3 << 20).unwrap();
    std::fs::write(of_library, vec![8u8; 3 << 20]).unwrap();
    has(&refusal(&there()), &["libprovider.so.1", "damaged", "bring them again"]);
    std::fs::remove_file(of_library).unwrap();
    has(&refusal(&there()), &["libprovider.so.1", "pieces"]);
}
