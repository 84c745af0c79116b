//! Recordings of others as cameras of the cell, through the program.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use takt::{alone, has, refusal, root, takt as run};

/// A case of the camera crate with changes of its robot file.
fn case(folder: &tempfile::TempDir, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let cases = root().join("crates/takt-link-camera/tests/cases");
    let mut text = fs::read_to_string(cases.join(name)).unwrap();
    for recording in ["topicwise.mcap", "depth_plus20ms.mcap"] {
        text = text.replace(&format!("\"{recording}\""), &format!("{:?}", cases.join(recording)));
    }
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replacen(from, to, 1);
    }
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Camera figures of a run of four seconds.
fn summary(robot: &Path, runs: &tempfile::TempDir) -> Value {
    let output =
        run(["run", robot.to_str().unwrap(), "--seconds", "4", "--view", "none", "--json", "--runs"])
            .arg(runs.path())
            .output()
            .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", takt::stderr(&output)))
}

fn frames(summary: &Value) -> [u64; 2] {
    let camera = &summary["per_camera"][0];
    let unjudged =
        camera["unjudged"].as_object().map_or(0, |counts| counts.values().filter_map(Value::as_u64).sum());
    [camera["frames"].as_u64().unwrap() + unjudged, camera["dropped"].as_u64().unwrap()]
}

#[test]
fn imagers_that_are_not_synchronised_are_refused_with_the_key_and_the_distance() {
    let folder = tempfile::tempdir().unwrap();
    let robot = case(&folder, "offset.toml", &[]);
    let output = run(["run", robot.to_str().unwrap(), "--seconds", "2", "--view", "none", "--runs"])
        .arg(folder.path().join("runs"))
        .output()
        .unwrap();
    has(&refusal(&output), &["pairing_ms = 5 ", "20 ms apart", "set a larger pairing_ms", "pairing_ms = 25"]);
}

#[test]
#[ignore = "measures for 8 s"]
fn recordings_of_any_order_and_of_late_depth_are_replayed_whole() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    for robot in [
        case(&folder, "topicwise.toml", &[]),
        case(&folder, "offset.toml", &[("topic = \"/cam0\"", "topic = \"/cam0\"\npairing_ms = 25.0")]),
    ] {
        let summary = summary(&robot, &folder);
        let [seen, dropped] = frames(&summary);
        // 10 Hz in four seconds, give or take a frame at each edge of the window.
        assert!((39..=41).contains(&(seen + dropped)), "{}: {seen} and {dropped}", robot.display());
        assert!(!summary["reasons"].to_string().contains("no partner"), "{summary}");
    }
}
