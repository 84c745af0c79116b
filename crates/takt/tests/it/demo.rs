//! `takt demo`, as somebody types it first: one JSON object, and a run directory that holds what it
//! says.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use takt::{alone, json, read_json, stdout, takt as run};

/// SHA-256 as coreutils compute it: other code than the program's own.
fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    stdout(&output).split_whitespace().next().unwrap().to_owned()
}

fn positive(value: &Value, keys: &[&str]) {
    let at = keys.iter().fold(value, |v, key| &v[key]);
    assert!(at.as_f64().is_some_and(|number| number > 0.0), "{keys:?}: {at}");
}

#[test]
#[ignore = "takes 45 s"]
fn the_demonstration_runs_headless_and_keeps_what_it_measured() {
    let _machine = alone();
    let (runs, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // In an empty folder with an empty cache: everything that it needs is in the binary.
    let output = run(["demo", "--headless", "--json", "--seconds", "4", "--bench-seconds", "2", "--runs"])
        .arg(runs.path())
        .env("XDG_CACHE_HOME", cache.path())
        .env("TAKT_DATA", cache.path())
        .current_dir(cache.path())
        .output()
        .unwrap();
    let demo = json(&output);
    golden::hold("demo", &golden::shape("--json", &demo));
    check_verdict(&demo);
    assert_eq!(demo["cameras"], 5);
    for keys in [&["deadline_ms"][..], &["frames"], &["people_detected"], &["reaction_ms", "mean"]] {
        positive(&demo, keys);
    }
    assert!(demo["frames_dropped"].is_u64() && demo["stops"].is_u64());
    let reaction = &demo["reaction_ms"];
    assert!(reaction["worst"].as_f64() >= reaction["mean"].as_f64(), "{reaction}");
    assert_eq!(demo["breaches_not_stopped"], 0);

    let bench = demo["bench"].as_array().unwrap();
    let cells: Vec<_> =
        bench.iter().map(|row| (row["policy"].as_str().unwrap(), row["noise"].as_u64().unwrap())).collect();
    assert_eq!(cells, [("CFS+CFS", 0), ("DL+RR", 0), ("CFS+CFS", 128), ("DL+RR", 128)]);
    for row in bench {
        assert!(row["work"]["frames_judged"].is_u64() && row["tasks"][0]["name"] == "ssm", "{row}");
        assert_eq!(row["against_cfs"].is_null(), row["policy"] == "CFS+CFS", "{row}");
        // An option that makes the row longer is the demonstration's own.
        let sentence = row["sentences"][0].as_str().unwrap();
        assert!(!sentence.contains("`--seconds"), "{sentence}");
        assert_eq!(sentence.contains("`--bench-seconds"), sentence.contains("measure "), "{sentence}");
        // Who did less is not called better.
        let against = &row["against_cfs"];
        let reported = |key: &str| against[key].as_f64().is_some_and(|percent| percent > 0.0);
        let refused = against["refused"].as_array().map_or(&[][..], Vec::as_slice);
        let did_less = refused.iter().any(|why| why.as_str().unwrap().starts_with("DL+RR did less"));
        assert!(!(did_less && (reported("mean_percent") || reported("worst_percent"))), "{against}");
    }

    let dir = Path::new(demo["run_dir"].as_str().unwrap());
    assert!(dir.starts_with(runs.path()), "{}", dir.display());
    let hashes = read_json(&dir.join("hashes.json"));
    let hashes = hashes.as_object().unwrap();
    let samples = ["frames", "ssm_jobs", "reactions"].map(|name| format!("samples/{name}.parquet"));
    for name in samples.iter().map(String::as_str).chain(["run.json", "summary.json", "cell-tally.json"]) {
        assert!(hashes.contains_key(name), "{name} is not in hashes.json");
    }
    // `*` is the hash of the list itself, which is no file.
    for (name, hash) in hashes.iter().filter(|(name, _)| *name != "*") {
        assert_eq!(sha256sum(&dir.join(name)), hash.as_str().unwrap(), "{name}");
    }
    let count = |dir: &Path| {
        fs::read_dir(dir).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
    };
    // All but the file of the hashes itself, which has the list's instead.
    assert!(hashes.contains_key("*"));
    assert_eq!(count(&dir.join("samples")) + count(dir), hashes.len(), "a file has no hash");

    let mut summary = demo.clone();
    summary.as_object_mut().unwrap().remove("bench");
    assert_eq!(read_json(&dir.join("summary.json")), summary);

    check_threads(&read_json(&dir.join("run.json")), &demo["not_granted"]);
}

/// The verdict is no better than the tasks, the cameras and the frames: a machine that loses time
/// fails, and says so.
fn check_verdict(demo: &Value) {
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} is no count"));
    let tasks = demo["tasks"].as_array().unwrap();
    let names: Vec<&str> = tasks.iter().map(|task| task["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["ssm", "perception-0", "perception-1", "perception-2", "perception-3", "perception-4"]
    );
    assert_eq!((&tasks[0]["deadline_ms"], &tasks[1]["deadline_ms"]), (&2.0.into(), &33.0.into()));
    for task in tasks {
        assert_eq!(count(&task["misses"]), count(&task["late"]) + count(&task["skipped"]), "{task}");
        assert!(count(&task["jobs"]) > 0 && count(&task["releases"]) >= count(&task["jobs"]), "{task}");
    }
    let task_misses: u64 = tasks.iter().map(|task| count(&task["misses"])).sum();
    let losses: u64 = demo["losses"].as_object().unwrap().values().map(count).sum();
    let bad = task_misses + losses + count(&demo["misses"]) + count(&demo["ssm"]["not_sent"]);
    let verdict = demo["verdict"].as_str().unwrap();
    assert!(["PASS", "FAIL", "INCONCLUSIVE"].contains(&verdict), "{verdict}");
    if bad > 0 {
        assert_eq!(verdict, "FAIL", "{} bad events: {}", bad, demo["reasons"]);
    }
    if verdict == "PASS" {
        assert_eq!((bad, demo["not_granted"].as_array().unwrap().len()), (0, 0), "{demo}");
    }
    let reasons = demo["reasons"].as_array().unwrap();
    assert!(!reasons.is_empty() && reasons.iter().all(|reason| reason.as_str() != Some("")), "{reasons:?}");
    assert_eq!(demo["work"]["frames_judged"], demo["frames"]);
    assert!(count(&demo["work"]["ssm_jobs"]) > 0);
}

/// Checks the requested and effective settings of every thread, and that the census found no thread
/// without its policy.
fn check_threads(run: &Value, not_granted: &Value) {
    let threads = run["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|t| t["name"].as_str().unwrap()).collect();
    for name in ["ssm", "perception-0", "perception-1", "perception-2", "perception-3", "perception-4"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let granted_all = not_granted.as_array().unwrap().is_empty();
    for thread in threads {
        let (asked, got) = (&thread["granted"]["requested"], &thread["granted"]["effective"]);
        assert!(asked["policy"]["kind"].is_string() && got["policy"]["kind"].is_string(), "{thread}");
        assert!(got["tid"].as_u64() > Some(0), "{thread}");
        if granted_all {
            assert_eq!(asked["policy"], got["policy"], "{thread}");
            assert_eq!(thread["granted"]["differences"], serde_json::json!([]), "{thread}");
        }
    }
    if !granted_all {
        takt_witness::skip!("the census has no fallback policy to prove, for not granted was {not_granted}");
        return;
    }
    let census = &run["census"];
    assert_eq!(census["fallback"]["kind"], "rr", "{}", census["fallback"]);
    let mut subthreads = 0;
    for thread in census["threads"].as_array().unwrap() {
        match thread["role"].as_str().unwrap() {
            "subthread" => {
                subthreads += 1;
                // A helper of one of the cell's own threads has the policy of that thread (the
                // embedded engine's, of the detector), every other one the fallback. A thread that
                // ended before the census could reach it keeps what it had.
                let maker = threads.iter().find(|maker| maker["name"] == thread["creator"]);
                let asked =
                    maker.map_or(&census["fallback"], |maker| &maker["granted"]["requested"]["policy"]);
                if thread["ended"] == false {
                    assert_eq!(&thread["policy_after"], asked, "{thread}");
                }
            }
            "exempt" => assert!(thread["why"].is_string(), "{thread}"),
            role => assert!(["main", "process-main"].contains(&role), "{thread}"),
        }
    }
    assert!(subthreads >= 6, "five replays and the robot's receiver at least: {census}");
}

/// The README's first command names no binary.
#[test]
fn cargo_run_finds_one_binary() {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(takt::root());
    let metadata = takt::json(&cargo.output().unwrap());
    let defaults = metadata["workspace_default_members"].as_array().unwrap();
    let packages =
        metadata["packages"].as_array().unwrap().iter().filter(|package| defaults.contains(&package["id"]));
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    let binaries = targets.filter(|target| target["kind"][0] == "bin");
    let names: Vec<_> = binaries.map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["takt"]);
}
