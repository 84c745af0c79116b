//! The cell as SentryRT-1 has it: each camera is acquired and judged by one main thread, with both
//! networks on every frame. What is said of its threads is read from the kernel, not from the
//! cell's own report.

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use takt_link_camera::{CameraConfig, FeedState, ReplayConfig};
use takt_perception::{DetectorSchedule, FrameHealth, Mount, MountFrame};
use takt_robot_cell::CellConfig;
use takt_robot_cell::reaction::Joiner;
use takt_robot_cell::tasks::{AcquiredBy, PolicyMix};

use support::{Running, alone, config, set_people, wait_until};

/// Numbers of policies in `/proc/*/stat` (sched(7)).
const OTHER: u32 = 0;
const RR: u32 = 2;
const DEADLINE: u32 = 6;

/// Every thread of this process by name: policy, real-time priority.
fn threads() -> BTreeMap<String, Vec<(u32, u32)>> {
    let mut all: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").expect("the kernel's list").flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
        let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
        let fields: Vec<&str> = tail.split(' ').collect();
        // Fields 40 and 41 of proc(5); the tail begins with the third.
        let field = |number: usize| fields[number - 3].parse().expect("a number");
        all.entry(name).or_default().push((field(41), field(40)));
    }
    all
}

fn paper(cameras: usize) -> CellConfig {
    let mut config = config(cameras);
    config.tasks.acquisition = AcquiredBy::InTask;
    config
}

#[test]
fn each_camera_has_one_main_thread_and_its_library_the_fallback() {
    let _alone = alone();
    let mut config = paper(2);
    config.tasks.policy = PolicyMix::DlRr;
    let mut running = Running::start(&config);
    running.until("the cell runs", 0, |_, jobs| jobs.len() > 100);
    if running.cell.not_granted().iter().any(|refused| refused.contains("SCHED_DEADLINE")) {
        takt_witness::skip!("no SCHED_DEADLINE here: {:?}", running.cell.not_granted());
        running.stop();
        return;
    }
    // The census looks every half second; until then a new thread is what it was born as.
    let library = |index: usize| format!("cam{index}-synthetic");
    wait_until("the census has seen the library's threads", || {
        let threads = threads();
        (0..2).all(|index| threads.get(&library(index)).is_some_and(|all| all[0].0 != OTHER))
    });
    let all = threads();
    let main: Vec<(&str, usize)> = all
        .iter()
        .filter(|(_, threads)| threads.iter().any(|(policy, _)| *policy == DEADLINE))
        .map(|(name, threads)| (name.as_str(), threads.len()))
        .collect();
    assert_eq!(main, [("perception-0", 1), ("perception-1", 1), ("ssm", 1)], "{all:?}");
    for index in 0..2 {
        assert_eq!(all[&library(index)], [(RR, 50)], "{all:?}");
        // Nothing else of the camera's: who waits for it, copies and judges is the main thread.
        let mine = all.keys().filter(|name| name.starts_with(&format!("cam{index}"))).count();
        assert_eq!(mine, 1, "{all:?}");
    }
    assert!(!all.contains_key("detector"), "no network beside the path: {all:?}");
    // Frames flow, and the census says of the library's threads what the kernel said.
    running.until("frames are answered", 0, |_, jobs| {
        jobs.last().is_some_and(|job| job.input_sequences[..2].iter().all(|&sequence| sequence > 30))
    });
    let census = running.cell.census().expect("readable").expect("there is one");
    for index in 0..2 {
        let entry = census.threads.iter().find(|entry| entry.name == library(index)).expect("found");
        assert_eq!(entry.role, takt_rt::census::Role::Subthread, "{entry:?}");
    }
    running.stop();
}

#[test]
fn every_judged_frame_went_through_both_networks_and_none_is_counted_faster_than_it_was() {
    let _alone = alone();
    let mut config = paper(1);
    let networks = takt_perception::PerceptionConfig::default();
    config.perception.detector = networks.detector;
    config.perception.detector.schedule = DetectorSchedule::EveryFrame;
    config.perception.segmenter = networks.segmenter;
    config.perception.segmenter.every_frames = Some(1);
    config.perception.segmenter.empty_frames = true;
    set_people(&mut config, &[]);
    let mut running = Running::start(&config);
    running.until("frames are answered", 0, |_, jobs| {
        jobs.last().is_some_and(|job| job.input_sequences[0] > 30)
    });
    let finished = running.stop();
    let judged: Vec<_> = finished.frames.iter().filter(|frame| frame.health == FrameHealth::Ok).collect();
    assert!(judged.len() > 3, "{} frames judged", judged.len());
    for frame in &judged {
        assert!(frame.detected && frame.masks >= 1, "a network did not run on {frame:?}");
    }
    // From the driver's stamp on, everything is in the reaction: the hand-over, the copy, both
    // networks.
    let mut answered = 0;
    let mut joiner = Joiner::new();
    let mut see = |reaction: takt_robot_cell::reaction::Reaction| {
        let frame = reaction.frame;
        assert!(frame.capture_ns <= frame.arrival_ns && frame.arrival_ns <= frame.start_ns, "{frame:?}");
        let judging_ns = frame.published_ns - frame.start_ns;
        assert!(reaction.reaction_ns() >= judging_ns + (frame.start_ns - frame.arrival_ns), "{reaction:?}");
        answered += 1;
    };
    for frame in &finished.frames {
        joiner.frame(*frame, &mut see);
    }
    finished.jobs.iter().for_each(|job| joiner.job(job, &mut see));
    joiner.finish(&mut see);
    assert!(answered >= judged.len() - 1, "{answered} of {} answered", judged.len());
}

#[test]
fn a_camera_that_ends_stops_the_robot_and_the_task_ends_when_it_is_asked_to() {
    let _alone = alone();
    let mut config = paper(1);
    // The last three seconds of the recording, seen from so far away that nothing is watched.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pedestrians");
    let mut replay = ReplayConfig::new(folder.join("cam0.mcap"), "/cam0");
    replay.start_offset_s = 12.0;
    let camera = &mut config.cameras[0];
    camera.mount = Mount { frame: MountFrame::Base, position_m: [90.0, 0.0, 0.0], rotation_rad: [0.0; 3] };
    camera.source = CameraConfig::Replay(replay);
    config.perception.health.max_depth_mm = 41_000;
    // Its depth is reconstructed.
    config.perception.health.depth_without_noise = true;
    let mut running = Running::start(&config);
    running.until("the recording is over and the robot stands", 0, |cell, jobs| {
        cell.feeds()[0].state() == FeedState::Ended
            && jobs.last().is_some_and(|job| job.decision.stop && job.decision.fault.is_some())
    });
    let finished = running.stop();
    let sequences: Vec<u64> = finished.frames.iter().map(|frame| frame.sequence).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{sequences:?}");
    assert_eq!(sequences.last(), Some(&30), "the last frame is judged, too");
}
