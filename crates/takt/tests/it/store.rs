//! `takt store`, and `--store` of run and campaign: killed at random points, with places that are
//! full, wrong or of another version, in folders and in a bucket.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "store")]

use crate::hold as golden;
use crate::takt;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use takt::{has, refusal, root, stderr, stdout, takt as run};

/// A sealed run of the bare task, as short as it gets.
fn measured(folder: &Path) -> PathBuf {
    let config = root().join("robots/cyclic.toml");
    let mut command = run(["run", config.to_str().unwrap(), "--seconds", "0.3", "--view", "none", "--json"]);
    let output = command.args(["--runs", folder.to_str().unwrap()]).output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    summary["run_dir"].as_str().map_or_else(|| panic!("{}", stderr(&output)), PathBuf::from)
}

fn store(arguments: &[&str]) -> Output {
    run(["store"].iter().chain(arguments)).output().unwrap()
}

#[test]
fn an_upload_killed_anywhere_shows_nothing_or_all() {
    let folder = tempfile::tempdir().unwrap();
    let dir = measured(folder.path());
    // Large enough that the kill meets every part of it.
    let at = folder.path().join("store");
    let (place, dir) = (at.to_str().unwrap(), dir.to_str().unwrap());
    let mut seen = 0;
    for attempt in 0..40 {
        let mut child =
            run(["store", "put", place, dir]).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(attempt * 700));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        let list = store(&["ls", place, "--json"]);
        // Before the first put there is no store.
        if !list.status.success() {
            assert!(seen == 0, "{}", stderr(&list));
            continue;
        }
        let runs: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let count = runs.as_array().unwrap().len();
        assert!(count >= seen && count <= 1, "{runs}");
        seen = count;
        assert!(stdout(&store(&["verify", place])).starts_with("whole"));
    }
    assert!(store(&["put", place, dir]).status.success());
    let list = serde_json::from_slice(&store(&["ls", place, "--json"]).stdout).unwrap();
    golden::hold("store", &golden::shape("--json", &list));
    let list = store(&["ls", place]);
    assert_eq!(stdout(&list).lines().count(), 1, "{}", stdout(&list));
    let name = &stdout(&list)[..12];
    let to = folder.path().join("got");
    let got = store(&["get", place, name, "--to", to.to_str().unwrap()]);
    assert!(got.status.success(), "{}", stderr(&got));
    let got = PathBuf::from(stdout(&got).trim());
    assert_eq!(
        std::fs::read(got.join("hashes.json")).unwrap(),
        std::fs::read(Path::new(dir).join("hashes.json")).unwrap()
    );
}

#[test]
fn what_cannot_be_a_store_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("robots/cyclic.toml");
    let newer = folder.path().join("newer");
    std::fs::create_dir(&newer).unwrap();
    std::fs::write(newer.join("takt-store.json"), "{ \"version\": 9 }").unwrap();
    for (place, word) in [
        ("s3://key:secret@bucket/runs", "it must not contain credentials"),
        ("ftp://somewhere", "expected a folder"),
        (newer.to_str().unwrap(), "its version is 9"),
    ] {
        let runs = folder.path().join("runs");
        let mut command = run(["run", config.to_str().unwrap(), "--seconds", "0.3", "--view", "none"]);
        let message =
            refusal(&command.args(["--runs", runs.to_str().unwrap(), "--store", place]).output().unwrap());
        has(&message, &[word]);
        assert!(!message.contains("secret@") && message.trim_end().lines().count() == 1, "{message}");
        assert!(!runs.exists(), "{place}");
    }
}

#[test]
fn a_store_that_is_full_costs_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let dir = measured(folder.path());
    // A file system of two pages would need rights: a file where a folder is to be refuses as well.
    let at = folder.path().join("store");
    assert!(store(&["put", at.to_str().unwrap(), dir.to_str().unwrap()]).status.success());
    std::fs::remove_dir_all(at.join("objects")).unwrap();
    std::fs::write(at.join("objects"), "in the way").unwrap();
    let message = refusal(&store(&["put", at.to_str().unwrap(), dir.to_str().unwrap()]));
    has(&message, &["the run is complete at", "takt store put"]);
    assert!(dir.join("hashes.json").is_file());
}

/// A file system of 64 KiB in a mount namespace of its own, which needs rights.
#[test]
fn a_full_disk_is_reported_and_leaves_no_half_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let dir = measured(folder.path());
    std::fs::create_dir(folder.path().join("small")).unwrap();
    let script = "mount -t tmpfs -o size=64k none small || exit 77; \
        head -c 49152 /dev/zero > rest; \
        \"$TAKT\" store put small \"$RUN\"; code=$?; \"$TAKT\" store ls small 1>&2; exit $code";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(folder.path());
    let output = command.env("TAKT", takt::TAKT).env("RUN", &dir).output().unwrap();
    if output.status.code() == Some(77) || stderr(&output).contains("unshare failed") {
        takt_witness::skip!("no file system may be mounted here");
        return;
    }
    let message = refusal(&output);
    has(&message, &["No space left on device", "the run is complete at", "0 runs"]);
}
