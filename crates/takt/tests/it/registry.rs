//! Shipped files of every robot that the program has.

#![allow(clippy::unwrap_used)]

use crate::kinds as registry;
use crate::sources;

use std::path::Path;

use registry::ROBOTS;
use sources::{sources, words};
use takt_robot_cell::lab::CellFile;

fn names() -> impl Iterator<Item = &'static str> {
    ROBOTS.kinds().iter().map(|kind| kind.name)
}

#[test]
fn shipped_configurations_are_read_written_and_read_again() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../robots"));
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let file = ROBOTS.load(&path).unwrap_or_else(|error| panic!("{error}"));
        let text = file.to_toml().unwrap();
        let again = ROBOTS.parse(&text, "again", Path::new("")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, file, "{}", path.display());
    }
}

#[test]
fn the_papers_configuration_is_the_cell_but_for_what_it_is_about() {
    let (paper, ours) = (ROBOTS.shipped("sentryrt1").unwrap(), ROBOTS.shipped("cell").unwrap());
    let (paper, ours) = (paper.get::<CellFile>().unwrap(), ours.get::<CellFile>().unwrap());
    let mut same = paper.clone();
    (same.envelope.name, same.scale, same.camera_mode) = (ours.envelope.name.clone(), None, None);
    // Nothing helps the paper's configuration, and its user interface is a load; a comparison gives
    // both sides the same.
    let plain = &paper.tasks;
    assert_eq!((plain.timer_slack_ns, plain.hold_cpu_awake, plain.lock_memory), (0, false, false));
    assert_eq!((plain.reclaim, plain.visualisation, plain.group), (false, true, None));
    assert_eq!((&plain.ssm_cpus, &plain.perception_cpus), (&None, &None));
    assert_eq!(paper.camera_mode, Some(takt_robot_cell::lab::CameraMode::Virtual));
    same.tasks.timer_slack_ns = ours.tasks.timer_slack_ns;
    same.tasks.hold_cpu_awake = ours.tasks.hold_cpu_awake;
    same.tasks.lock_memory = ours.tasks.lock_memory;
    same.tasks.reclaim = ours.tasks.reclaim;
    same.tasks.visualisation = ours.tasks.visualisation;
    same.tasks.acquisition = ours.tasks.acquisition;
    same.perception.detector = ours.perception.detector.clone();
    same.perception.segmenter = ours.perception.segmenter.clone();
    assert_eq!(&same, ours, "a comparison of the two designs compares nothing else");
    // Table I, and the deadline of Fig. 3.
    let tasks = &paper.tasks;
    assert_eq!((tasks.ssm.period_ms, tasks.ssm.deadline_ms), (2.0, 2.0));
    assert_eq!((tasks.perception.period_ms, tasks.perception.deadline_ms), (33.0, 33.0));
    assert_eq!((tasks.reaction_deadline_ms, tasks.rr_priority, paper.cameras.len()), (37.3, 50, 5));
}

#[test]
fn every_robot_has_a_shipped_configuration_of_its_own() {
    for robot in names() {
        assert_eq!(ROBOTS.shipped(robot).unwrap().robot(), robot);
    }
    let error = ROBOTS.shipped("submarine").unwrap_err().to_string();
    assert!(error.contains("submarine") && error.contains("cyclic"), "{error}");
    assert!(ROBOTS.parse("robot = 3", "x", Path::new("")).is_err());
}

#[test]
fn claims_about_measures_that_a_robot_has_not_are_refused_when_its_file_is_read() {
    for robot in names() {
        let judged = match robot {
            "cell" => "reaction",
            "cyclic" => "response",
            "uav" => "position-lateness",
            "daq" => "latency",
            "humanoid" => "lateness",
            "servo" => "response",
            "ros" => "pilot",
            "program" => "response-python3",
            other => panic!("{other}: name a measure of it that is judged"),
        };
        let read = |measure: &str| {
            let shipped = ROBOTS.shipped_text(robot).unwrap();
            let text = format!("{shipped}\n[verdict.measures.{measure}]\nmisses_per_hour = 1.0\n");
            ROBOTS.parse(&text, "x.toml", Path::new(""))
        };
        read(judged).unwrap_or_else(|error| panic!("{robot}: {error}"));
        let error = read("latness").unwrap_err().to_string();
        assert!(error.contains("x.toml: verdict.measures.latness: accepted are"), "{robot}: {error}");
        assert!(error.contains(judged), "{robot}: {error}");
    }
    let uav = format!(
        "{}\n[verdict.measures.execution]\nmisses_per_hour = 1.0\n",
        ROBOTS.shipped_text("uav").unwrap()
    );
    let error = ROBOTS.parse(&uav, "x.toml", Path::new("")).unwrap_err().to_string();
    assert!(error.contains("has no deadline"), "{error}");
}

proptest::proptest! {
    #[test]
    fn garbage_is_an_error_and_never_a_panic(text in "\\PC{0,200}") {
        let _ = ROBOTS.parse(&text, "x", Path::new(""));
        for robot in names() {
            let _ = ROBOTS.parse(&format!("robot = \"{robot}\"\n{text}"), "x", Path::new(""));
        }
    }
}

/// Crates in whose sources no robot is named: what measures, keeps and reports is the same for all.
const NO_ROBOT: [&str; 5] = ["takt-lab", "takt-report", "takt-rundir", "takt-stats", "takt-trace"];

/// Shipped files whose names are everyday words.
const EVERYDAY: [&str; 3] = ["demo", "live", "synthetic"];

/// Names of the robots' papers there.
const PAPERS: [&str; 2] = ["SentryRT", "quadrotor"];

#[test]
fn what_measures_and_reports_names_no_robot() {
    // Anybody's program is named by a word that every sentence may need.
    let own = [takt_lab::cyclic::KIND.name, takt_robot_program::KIND.name];
    let kinds = || ROBOTS.kinds().iter().filter(|kind| !own.contains(&kind.name));
    let shipped = kinds().flat_map(|kind| kind.shipped).map(|(name, _)| *name);
    let shipped = shipped.filter(|name| !EVERYDAY.contains(name));
    let names: Vec<&str> = kinds().map(|kind| kind.name).chain(shipped).chain(PAPERS).collect();
    let mut wrong = Vec::new();
    for source in NO_ROBOT.iter().flat_map(|name| sources(name)) {
        for (number, line) in &source.lines {
            let line = line.replace("std::cell::", "");
            if let Some(word) = words(&line).find(|word| names.contains(word)) {
                wrong.push(format!("{}:{number}: {word}: {line}", source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
