//! `takt bench cell`: every cell of the matrix, and what a kill leaves of it.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::Value;

use takt::{Beside, alone, folders, json, stderr, takt as run, wait_for};

fn cells(answer: &Value) -> Vec<(&str, u64)> {
    let rows = answer["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["reaction_ms"]["mean"].as_f64() > Some(0.0), "{row}");
        assert!(row["reaction_ms"]["worst"].as_f64() >= row["reaction_ms"]["mean"].as_f64(), "{row}");
        // Misses are also the frames that were past their deadline, and unanswered, when the run
        // ended.
        let dirs = row["run_dirs"].as_array().unwrap().iter().map(|dir| Path::new(dir.as_str().unwrap()));
        let unanswered = |dir: &Path| takt::read_json(&dir.join("summary.json"))["unanswered_late"].as_u64();
        let unanswered: u64 = dirs.map(|dir| unanswered(dir).unwrap()).sum();
        assert!(row["misses"].as_u64() <= Some(row["reactions"].as_u64().unwrap() + unanswered), "{row}");
        assert!(row["reactions"].as_u64() > Some(0), "{row}");
    }
    rows.iter().map(|row| (row["policy"].as_str().unwrap(), row["noise"].as_u64().unwrap())).collect()
}

#[test]
#[ignore = "takes 15 s"]
fn a_bench_has_a_row_for_every_cell_of_the_matrix() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let output = run(["bench", "cell", "--seconds", "2", "--repeat", "1", "--policies", "CFS+CFS,DL+RR"])
        .args(["--noise", "0,8", "--json", "--runs"])
        .arg(runs.path())
        .output()
        .unwrap();
    let answer = json(&output);
    assert_eq!(cells(&answer), [("CFS+CFS", 0), ("DL+RR", 0), ("CFS+CFS", 8), ("DL+RR", 8)]);
    for row in answer["rows"].as_array().unwrap() {
        let dir = Path::new(row["run_dirs"][0].as_str().unwrap());
        let load = &takt::read_json(&dir.join("run.json"))["load"];
        if row["noise"] == 0 {
            assert!(load.is_null(), "{load}");
            continue;
        }
        let noise = &load["components"][0];
        assert_eq!((&noise["kind"], &noise["processes"]), (&"noise".into(), &row["noise"]), "{load}");
        assert!(noise["proof"]["operations"].as_u64() > Some(0), "{load}");
    }
}

#[test]
#[ignore = "takes 30 s"]
fn two_designs_take_turns_in_every_cell_at_equal_work() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let matrix =
        ["bench", "cell", "--against", "sentryrt1", "--cameras", "2", "--seconds", "2", "--repeat", "1"];
    let rest = ["--policies", "CFS+CFS,RR+RR", "--noise", "0", "--json", "--runs"];
    let output = run(matrix).args(rest).arg(runs.path()).output().unwrap();
    let answer = json(&output);
    assert_eq!(cells(&answer), [("CFS+CFS", 0), ("RR+RR", 0)]);
    assert_eq!(cells(&answer["against"]), [("CFS+CFS", 0), ("RR+RR", 0)]);
    assert_eq!(answer["against"]["name"], "sentryrt1");
    let scaled = &answer["scaled"];
    assert!((1..=2).contains(&scaled["cameras"].as_u64().unwrap()), "{scaled}");
    assert!(scaled["cost"][0]["ms"].as_f64() > Some(0.0) && scaled["why"].as_str().is_some(), "{scaled}");
    assert!(stderr(&output).to_lowercase().contains("scaled down"), "it is said before the first run");
    // What the runs were reported, from their own folders.
    let asked = |side: &Value| -> Vec<Value> {
        let dirs =
            side["rows"].as_array().unwrap().iter().flat_map(|row| row["run_dirs"].as_array().unwrap());
        dirs.map(|dir| takt::read_json(&Path::new(dir.as_str().unwrap()).join("run.json"))["asked"].clone())
            .collect()
    };
    let (ours, papers) = (asked(&answer), asked(&answer["against"]));
    assert_eq!((ours.len(), papers.len()), (2, 2));
    for (side, acquisition, schedule) in
        [(&ours, "driver-thread", "shared"), (&papers, "in-task", "every-frame")]
    {
        for asked in side.iter() {
            assert_eq!(asked["tasks"]["acquisition"], acquisition);
            assert_eq!(asked["perception"]["detector"]["schedule"], schedule);
            assert_eq!(&asked["scaled"], scaled, "one decision for all runs");
            let cameras = asked["cameras"].as_array().unwrap();
            assert_eq!(cameras.len() as u64, scaled["cameras"].as_u64().unwrap());
            assert!(
                cameras.iter().all(|camera| camera["source"]["rate_fps"] == scaled["rate_fps"]),
                "{cameras:?}"
            );
            assert_eq!(asked["perception"]["segmenter"]["model"], scaled["model"]);
        }
    }
    for row in answer["comparison"].as_array().unwrap() {
        let message =
            row["mean_lower_percent"].as_f64().is_some() && row["worst_lower_percent"].as_f64().is_some();
        assert_ne!(message, row["withheld"].as_str().is_some(), "a gain, or why there is none: {row}");
        let lower = row["against"]["mean_ms"].as_f64().unwrap() / row["own"]["mean_ms"].as_f64().unwrap();
        assert!(
            row["mean_lower_percent"].as_f64().is_none_or(|percent| (percent > 0.0) == (lower > 1.0)),
            "{row}"
        );
    }

    // Going on decides nothing anew and measures nothing again.
    let dir = answer["bench_dir"].as_str().unwrap();
    let mut again = run(matrix);
    let again = json(&again.args(&rest[..5]).args(["--resume", dir]).output().unwrap());
    assert_eq!((&again["scaled"], &again["comparison"]), (scaled, &answer["comparison"]));
}

/// Every file of a folder with its time and content.
fn state(dir: &Path) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let mut all = Vec::new();
    for folder in [dir.to_owned(), dir.join("samples")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push((
                    path.clone(),
                    path.metadata().unwrap().modified().unwrap(),
                    fs::read(path).unwrap(),
                ));
            }
        }
    }
    all.sort();
    all
}

/// Processes whose command line names `dir`.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(dir))
        .collect()
}

#[test]
#[ignore = "takes 30 s"]
fn a_killed_bench_goes_on_where_it_stopped() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let matrix = ["bench", "cell", "--seconds", "2", "--repeat", "1", "--noise", "0"];
    let policies = ["--policies", "CFS+CFS,RR+RR,DL+RR"];

    // Killed in the second of three cells, when that has begun to keep samples.
    let mut command = run(matrix);
    command.args(policies).arg("--runs").arg(runs.path());
    let mut killed = Beside::start(command);
    let dir = wait_for("the bench directory", || folders(runs.path()).into_iter().next());
    let (first, second) = (dir.join("001-CFS-CFS-r1"), dir.join("002-RR-RR-r1"));
    wait_for("the second cell", || {
        assert!(killed.runs(), "{}", killed.output("stderr"));
        second.join("run.json").is_file().then_some(())
    });
    assert!(first.join("hashes.json").is_file(), "the second cell began before the first was sealed");
    killed.signal(Signal::KILL);
    killed.end();
    wait_for("the end of the killed bench's run", || processes_of(runs.path()).is_empty().then_some(()));
    assert!(!second.join("hashes.json").exists(), "a cut run looks whole");
    let before = state(&first);
    let cut = fs::read(second.join("run.json")).unwrap();

    // Another bench is not this one.
    let other = run(["bench", "cell", "--seconds", "3", "--repeat", "1", "--noise", "0"])
        .args(policies)
        .arg("--resume")
        .arg(&dir)
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2));
    let message = stderr(&other);
    assert!(message.starts_with("takt: ") && message.trim_end().lines().count() == 1, "{message}");
    assert!(message.contains("omit --resume"), "{message}");

    // The same one goes on.
    let resumed = run(matrix).args(policies).arg("--json").arg("--resume").arg(&dir).output().unwrap();
    let answer = json(&resumed);
    assert_eq!(cells(&answer), [("CFS+CFS", 0), ("RR+RR", 0), ("DL+RR", 0)]);
    assert!(stderr(&resumed).contains("001-CFS-CFS-r1: measured before"), "{}", stderr(&resumed));
    assert_eq!(state(&first), before, "a finished cell was touched");
    assert_eq!(fs::read(dir.join("002-RR-RR-r1.cut1/run.json")).unwrap(), cut);
    assert!(second.join("hashes.json").is_file());

    // It is a campaign as any other.
    let table = run(["campaign", "resume", dir.to_str().unwrap(), "--json"]).output().unwrap();
    let table = json(&table);
    assert_eq!(
        (&table["campaign"], table["rows"].as_array().unwrap().len()),
        (&"sentryrt1".into(), 3),
        "{table}"
    );
    assert_eq!(state(&first), before, "a finished cell was touched");
}
