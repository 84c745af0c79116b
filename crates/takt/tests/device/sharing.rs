//! Sharing of a device with other programs, with stand-ins for the driver's tools: the programs'
//! environment as the emulated device notes it, and clean ends, however Takt ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use takt_gpu::testing::{CLIENTS_VARIABLE, Emulator};

use super::check::{check, lives, reports};
use super::takt::{PATIENCE, alone, has, patient_cell, refusal, stderr, stdout};
use super::{BUDGET, command, emulator};

/// Folder in which a run with stand-ins leaves its traces.
struct Place {
    folder: tempfile::TempDir,
    mark: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        // Medium: neither what the driver has by itself nor what is asked for.
        std::fs::write(folder.path().join("slice"), "2\n").unwrap();
        Self { folder, mark: format!("gpu-sharing-{name}-{}", std::process::id()) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn prepare<'a>(&self, command: &'a mut Command, emulator: &Emulator) -> &'a mut Command {
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", emulator.tools().display()));
        command.env("TAKT_FAKE_SLICE", self.at("slice")).env(CLIENTS_VARIABLE, self.at("clients"));
        command.env("TMPDIR", self.at("tmp")).env("TAKT_TEST_MARK", &self.mark)
    }

    /// Everything has ended and is as it was.
    fn holds_nothing(&self) {
        let begin = Instant::now();
        let left = || {
            let folders = std::fs::read_dir(self.at("tmp")).unwrap().flatten();
            folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("takt-mps")).count()
        };
        while lives(&self.mark) || left() > 0 || self.read("slice") != "2\n" {
            assert!(
                begin.elapsed() < PATIENCE,
                "left: processes {}, folders {}, slice {}",
                lives(&self.mark),
                left(),
                self.read("slice")
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Notes of the emulated device, without process ids and paths.
fn clients(place: &Place) -> Vec<String> {
    let bare = |line: &str| {
        let words = line.split(' ').skip(1).filter(|word| !word.starts_with("pipe="));
        words.collect::<Vec<_>>().join(" ")
    };
    place.read("clients").lines().map(bare).collect()
}

fn step(out: &Path, name: &str) -> serde_json::Value {
    reports(out).into_iter().find(|(step, _)| step == name).unwrap().1
}

#[test]
fn each_way_of_sharing_is_measured_and_leaves_nothing() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let place = Place::new("ways");
    let out = place.at("check");
    let mut command = check(emulator, "", &out, &["--only", "sharing"]);
    let output = place.prepare(&mut command, emulator).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let report = step(&out, "sharing");
    let requirements = report["requirements"].as_array().unwrap();
    assert_eq!(requirements.len(), 5, "{report}");
    assert!(requirements.iter().all(|requirement| requirement["reached"] == true), "{report}");
    place.holds_nothing();
    let seen = clients(&place);
    let count = |words: &str| seen.iter().filter(|line| *line == words).count();
    // In each way the camera's program, and another one for each kind of interference; the step
    // itself is alone.
    assert_eq!(count("mps share=70 memory=0=4096M"), 1, "{seen:?}");
    assert_eq!(count("mps share=30 memory=0=2048M"), 2, "{seen:?}");
    assert_eq!(count("mps share=30 memory="), 2, "{seen:?}");
    assert_eq!(count("mps share= memory="), 3 + 1, "{seen:?}");
    assert_eq!(count("alone share= memory="), 1 + 2 * 3, "{seen:?}");
    let text = report.to_string();
    has(&text, &["short time slices (before: medium)", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70"]);
}

/// Requirements for another program are measured in processes: by turns without MPS, and as clients
/// of it with their limits.
#[test]
fn interference_of_another_program_is_compared_with_limits_under_mps() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let place = Place::new("interference");
    let out = place.at("check");
    let mut command = check(emulator, "", &out, &["--only", "interference"]);
    let output = place.prepare(&mut command, emulator).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let report = step(&out, "interference");
    let requirements = report["requirements"].as_array().unwrap();
    assert_eq!(requirements.len(), 2, "{report}");
    for requirement in requirements {
        // Times of the emulated device; and yet there are some, of every kind.
        assert!(requirement["reached"].is_null(), "{requirement}");
        has(requirement["measured"].as_str().unwrap(), &["compute ", "memory ", "copies ", "all "]);
    }
    has(
        requirements[1]["measured"].as_str().unwrap(),
        &["MPS, started for this at", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70"],
    );
    place.holds_nothing();
    let seen = clients(&place);
    let count = |words: &str| seen.iter().filter(|line| *line == words).count();
    // The step itself is alone, as are the program that takes turns and its three others.
    assert_eq!(count("alone share= memory="), 1 + 1 + 3, "{seen:?}");
    assert_eq!(count("mps share=70 memory=0=4096M"), 1, "{seen:?}");
    assert_eq!(count("mps share=30 memory=0=2048M"), 3, "{seen:?}");
}

/// On a machine that is borrowed no setting of the machine is touched, and the report says so.
#[test]
fn settings_of_the_machine_can_be_left_alone() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let place = Place::new("settings");
    let out = place.at("check");
    let mut command = check(emulator, "", &out, &["--only", "sharing", "--leave-settings"]);
    // Whoever asks for time slices fails: nobody does.
    place.prepare(&mut command, emulator).env_remove("TAKT_FAKE_SLICE").env("TAKT_FAKE_MPS", "fails");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = step(&out, "sharing").to_string();
    has(&text, &["skipped because of --leave-settings"]);
    assert!(!text.contains("Insufficient Permissions"), "{text}");
    has(&std::fs::read_to_string(out.join("summary.txt")).unwrap(), &["\n--leave-settings: without"]);
    // A check that left settings alone is not gone on with by one that does not.
    let resumed = check(emulator, "", &out, &["--resume"]).output().unwrap();
    has(&refusal(&resumed), &["started as", "--leave-settings"]);
    place.holds_nothing();
}

#[test]
fn what_the_driver_does_not_offer_is_not_run_and_says_why() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let place = Place::new("refused");
    let out = place.at("check");
    let mut command = check(emulator, "", &out, &["--only", "sharing"]);
    place.prepare(&mut command, emulator).env("TAKT_FAKE_MPS", "fails").env_remove("TAKT_FAKE_SLICE");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = step(&out, "sharing").to_string();
    has(&text, &["cannot find a CUDA device", "Insufficient Permissions", "run as root", "nvidia-smi"]);
    assert_eq!(text.matches("\"reached\":true").count(), 1, "{text}");
    place.holds_nothing();
}

#[test]
#[ignore = "takes 10 s"]
fn what_was_started_ends_with_a_check_that_is_killed() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    // While time slices are set; while MPS runs, and does not obey.
    for (begun, mps) in [("short time slices", ""), ("30 per cent", "deaf")] {
        let place = Place::new("killed");
        let mut command = check(emulator, "", &place.at("check"), &["--only", "sharing"]);
        place.prepare(&mut command, emulator).env("TAKT_FAKE_MPS", mps);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let words = std::io::BufReader::new(child.stderr.take().unwrap());
        let reached = std::io::BufRead::lines(words).map_while(Result::ok).any(|line| line.contains(begun));
        let begin = Instant::now();
        let started = || match mps {
            "" => place.read("slice") == "1\n",
            _ => clients(&place).iter().any(|line| line.starts_with("mps share=30")),
        };
        while reached && !started() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(started(), "{begun}");
        child.kill().unwrap();
        child.wait().unwrap();
        place.holds_nothing();
    }
}

#[test]
fn a_run_and_its_load_share_the_device_as_the_configuration_says() {
    let Some(emulator) = emulator() else { return };
    let _machine = alone();
    let place = Place::new("run");
    let perception = format!(
        "[perception]\ndevice = \"cuda\"\n{BUDGET}\n[perception.gpu.sharing]\nway = \"mps\"\nshare_percent = \
         70\nothers_percent = 30\nothers_memory_mib = 512"
    );
    let config = patient_cell(place.folder.path(), &perception);
    let mut run = command(&config, place.folder.path(), "2");
    run.args(["--stress", "gpu.compute"]).envs(emulator.environment(""));
    let output = place.prepare(&mut run, emulator).output().unwrap();
    let message = stdout(&output);
    let dir =
        super::folders(place.folder.path()).into_iter().find(|path| path.join("run.json").exists()).unwrap();
    place.holds_nothing();
    assert_eq!(
        clients(&place),
        ["mps share=70 memory=", "mps share=30 memory=0=512M"],
        "{message}{}",
        stderr(&output)
    );
    let header = std::fs::read_to_string(dir.join("run.json")).unwrap_or_default();
    has(&header, &["MPS, started for this at", "others CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"]);
}

#[test]
fn a_run_is_refused_in_one_sentence_where_the_tool_is_missing() {
    let Some(emulator) = emulator() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (way, word) in [
        ("way = \"mps\"", "nvidia-cuda-mps-control: is not on the PATH. Fix: install"),
        ("way = \"time-slices\"", "nvidia-smi: is not on the PATH. Fix: install"),
        ("way = \"turns\"\nshare_percent = 30", "gpu.sharing.share_percent"),
    ] {
        let perception = format!("[perception]\ndevice = \"cuda\"\n[perception.gpu.sharing]\n{way}");
        let config = patient_cell(folder.path(), &perception);
        let mut command = command(&config, folder.path(), "1");
        let message =
            refusal(&command.envs(emulator.environment("")).env("PATH", folder.path()).output().unwrap());
        has(&message, &[word]);
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}
