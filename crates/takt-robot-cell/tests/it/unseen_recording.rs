//! The shipped recording through perception and the monitor: what is not seen there stops nobody.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::Path;

use nalgebra::Isometry3;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraConfig, Frame};
use takt_perception::{
    Backend, Detections, Engine, EngineConfig, FrameHealth, ObjectKind, Perception, PerceptionConfig,
};
use takt_robot_cell::config::{CellCamera, CellConfig, RobotConfig};
use takt_robot_cell::ssm::SsmConfig;
use takt_robot_cell::tasks::TaskSet;

const FRAMES: u64 = 150;

/// The demonstration's cameras, monitored volume and thresholds.
fn demonstration() -> CellConfig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(folder.join("robots/demo.toml")).unwrap();
    let mut file: toml::Table = toml::from_str(&text).unwrap();
    let mut take = |key: &str| file.remove(key).unwrap();
    let mut cameras: Vec<CellCamera> = take("cameras").try_into().unwrap();
    for camera in &mut cameras {
        let CameraConfig::Replay(replay) = &mut camera.source else { panic!("a recording") };
        let shipped = replay.path.to_str().and_then(|path| path.strip_prefix("builtin:")).unwrap();
        replay.path = folder.join("recordings").join(shipped);
    }
    let mut perception: PerceptionConfig = take("perception").try_into().unwrap();
    // Networks decide who is a person, never whether something is there.
    perception.detector.enabled = false;
    perception.segmenter.enabled = false;
    let ssm: SsmConfig = take("ssm").try_into().unwrap();
    let (tasks, robot) = (TaskSet::default(), RobotConfig::default());
    CellConfig { name: "pedestrians".into(), cameras, perception, ssm, tasks, robot }
}

/// For every frame of every camera whether it is below the stop distance, and how many holes and
/// blind frames there were.
fn stops(cell: &CellConfig, perception: &PerceptionConfig, tcp: &Isometry3<f64>) -> (Vec<bool>, u32, f32) {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).unwrap();
    let (mut stops, mut holes, mut most, mut most_hidden) = (Vec::new(), 0, 0.0f32, 0.0f32);
    for (index, camera) in cell.cameras.iter().enumerate() {
        let CameraConfig::Replay(replay) = &camera.source else { continue };
        let mut reader = FrameReader::open(replay).unwrap();
        let mut judge =
            Perception::new(perception, index as u32, reader.intrinsics(), &engine, None).unwrap();
        let mut frame = Frame::new(reader.intrinsics().width, reader.intrinsics().height);
        let mut out = Detections::default();
        for sequence in 1..=FRAMES {
            assert!(reader.read(&mut frame).unwrap());
            (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_333_333);
            judge.process(&frame, Some(&camera.mount.at(tcp)), 0, &mut out, None);
            assert_eq!(out.health, FrameHealth::Ok, "{} frame {sequence}: {}", camera.name, out.unseen);
            let nearest = out.nearest().map_or(f64::INFINITY, |object| f64::from(object.distance_m));
            // All five have one optical centre: none of them sees what is hidden from another.
            let hidden = out.places.hidden_from_all(&out.tcp_m, std::iter::empty());
            let hidden_m = hidden.map_or(f64::INFINITY, |hidden| f64::from(hidden.distance_m));
            stops.push(nearest.min(hidden_m) < cell.ssm.stop_below_m);
            assert_eq!(out.places.hidden_before(), 0, "{} frame {sequence}", camera.name);
            most_hidden = most_hidden.max(out.places.hidden_share());
            holes += out.objects().iter().filter(|object| object.kind == ObjectKind::Unseen).count() as u32;
            most = most.max(out.unseen);
        }
    }
    println!("at most {:.1} % of the places near the tool are hidden", most_hidden * 100.0);
    (stops, holes, most)
}

#[test]
#[ignore = "takes 15 s"]
fn the_recording_stops_for_people_and_for_nothing_else() {
    let cell = demonstration();
    cell.validate().unwrap();
    let after = cell.perception_in_force();
    let mut before = after.clone();
    (before.unseen.within_m, before.unseen.max_share) = (Some(1e-3), 1.0);
    // Where the tool goes in the demonstration's mission, and beyond.
    for [x, y, z] in [[0.0, 0.0, 1.0], [0.6, -0.7, 0.3], [0.4, 0.8, 0.3], [-0.9, 0.2, 1.4]] {
        let tcp = Isometry3::translation(x, y, z);
        let (expected, none, _) = stops(&cell, &before, &tcp);
        let (found, holes, most) = stops(&cell, &after, &tcp);
        let count = |stops: &[bool]| stops.iter().filter(|&&stop| stop).count();
        println!(
            "tool at {x} {y} {z}: {} of {} frames stop without the rule, {} with it; {holes} holes, at most {:.2} % unseen",
            count(&expected),
            expected.len(),
            count(&found),
            most * 100.0
        );
        assert_eq!(none, 0);
        assert_eq!((expected == found, holes), (true, 0), "no stop more, no stop less");
        assert!(count(&found) > 20, "people come near");
    }
}
