//! Networks of others from outside: what does not find people is refused by `check` and `run`, with
//! exit status 2 and the way out.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::fs;
use std::path::Path;

use crate::takt::{demo_text, has, refusal, root, stderr, stdout, takt as run};

/// The demonstration with other keys of its detector.
fn cell(folder: &Path, detector: &str) -> std::path::PathBuf {
    let text = format!("{}\n[perception.detector]\n{detector}\n", demo_text());
    let file = folder.join("cell.toml");
    fs::write(&file, text).unwrap();
    file
}

/// Both answer "one person at the same box" to every picture; one is end to end ([1, 300, 6]), the
/// other gives 80 classes where its file names one ([1, 84, 2100]).
#[test]
fn networks_that_answer_alike_to_every_picture_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for model in ["end2end_1x300x6.onnx", "raw_1x84x2100.onnx"] {
        let from = root().join("crates/takt-perception/tests/data").join(model);
        // Beside the file, which is where its paths lead.
        fs::copy(from, folder.path().join(model)).unwrap();
        let file = cell(folder.path(), &format!("model = \"{model}\""));
        let checked = run(["check"]).arg(&file).output().unwrap();
        assert_eq!(checked.status.code(), Some(2), "{model}: {}", stdout(&checked));
        has(&refusal(&checked), &["does not fit", model]);
        let ran = run(["run"])
            .arg(&file)
            .args(["--seconds", "1", "--view", "none", "--runs"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(2), "{model}: {}", stdout(&ran));
        has(&refusal(&ran), &["does not fit", model]);
    }
}

#[test]
fn a_check_opens_recordings_and_networks_and_says_what_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = cell(folder.path(), "");
    let output = run(["check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    has(
        &stdout(&output),
        &["5 cameras", "recording, 384x288", "nanodet_g_416: layout nanodet, finds people"],
    );
    fs::write(folder.path().join("none.onnx"), b"this is no model").unwrap();
    let output = run(["check"]).arg(cell(folder.path(), "model = \"none.onnx\"")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    has(&refusal(&output), &["none.onnx", "not an ONNX file"]);
    let live = fs::read_to_string(root().join("robots/live.toml")).unwrap();
    let output = run(["check"]).arg(root().join("robots/live.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    if !cfg!(feature = "realsense") {
        has(&stdout(&output), &["will refuse it", "--features realsense"]);
    }
    // Two cameras of one serial number would be one device.
    let serials: Vec<&str> = live.lines().filter(|line| line.trim_start().starts_with("serial = ")).collect();
    assert!(serials.len() > 1, "{serials:?}");
    let duplicates = live.replace(serials[1], serials[0]);
    let file = folder.path().join("duplicates.toml");
    fs::write(&file, duplicates).unwrap();
    let output = run(["check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    has(&refusal(&output), &["every camera needs its own serial"]);
}
