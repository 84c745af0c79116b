use nalgebra::Vector3;
use proptest::prelude::*;

use super::*;
use crate::config::MAX_NEAREST_RANK;
use crate::detector::Detection;
use crate::engine::{Backend, EngineConfig};
use crate::result::{FrameHealth, ObjectKind};
use crate::testing::{intrinsics, pose, put, wall};

fn engine() -> Engine {
    Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap()
}

/// Without networks: geometry and tracks alone.
fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config
}

fn perception(config: &PerceptionConfig) -> Perception {
    Perception::new(config, 3, intrinsics(), &engine(), None).unwrap()
}

fn run(perception: &mut Perception, frame: &Frame, set: Option<&DetectionSet>) -> Detections {
    let mut out = Detections::default();
    perception.process_with_detections(frame, Some(&pose()), 5, set, &mut out, None);
    out
}

fn detections(frame: u64, boxes: &[[f32; 4]]) -> DetectionSet {
    let mut set = DetectionSet::of_frame(frame, 0);
    for &box_px in boxes {
        set.push(Detection { box_px, score: 0.9 });
    }
    set
}

#[test]
fn a_new_person_is_noticed_on_the_very_frame_without_a_network() {
    let mut perception = perception(&config());
    let out = run(&mut perception, &wall(1), None);
    assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 0));
    assert_eq!((out.camera, out.frame_sequence), (3, 1));
    let mut frame = wall(2);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    let out = run(&mut perception, &frame, None);
    assert_eq!(out.objects().len(), 1);
    let object = &out.objects()[0];
    assert_eq!((object.kind, object.track), (ObjectKind::Unexplained, 0));
    assert!((object.distance_m - 2.0).abs() < 0.005, "{object:?}");
    assert_eq!(object.points, 40 * 140);
    assert!((object.position_m.x - 2.0).abs() < 1e-3);
    let times = out.times;
    assert!(times.start_ns <= times.inferred_ns);
    assert!(times.inferred_ns <= times.projected_ns && times.projected_ns <= times.published_ns);
}

#[test]
fn a_detection_names_the_person_and_the_distance_stays() {
    let mut perception = perception(&config());
    let mut frame = wall(1);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    let before = run(&mut perception, &frame, None);
    frame.sequence = 2;
    let set = detections(1, &[[168.0, 96.0, 216.0, 250.0]]);
    let out = run(&mut perception, &frame, Some(&set));
    assert_eq!(out.objects().len(), 1);
    let object = &out.objects()[0];
    assert_eq!((object.kind, object.segmented), (ObjectKind::Person, false));
    assert!(object.track > 0 && (object.confidence - 0.9).abs() < 1e-6);
    assert_eq!(object.distance_m, before.objects()[0].distance_m);
}

#[test]
fn an_arm_that_leaves_the_box_still_counts() {
    let mut perception = perception(&config());
    let mut frame = wall(1);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    run(&mut perception, &frame, None);
    run(&mut perception, &frame, Some(&detections(1, &[[168.0, 96.0, 216.0, 250.0]])));
    let mut frame = wall(2);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    // Forearm towards the camera, to the side, in steps that hang together.
    for (i, depth) in (0..8u32).zip((1_300..=2_000).rev().step_by(100)) {
        put(&mut frame, [212 + i * 6, 140, 218 + i * 6, 160], depth);
    }
    let out = run(&mut perception, &frame, None);
    assert!(out.nearest().unwrap().distance_m < 1.45, "{:?}", out.objects());
}

#[test]
fn two_things_are_two_objects_nearest_first() {
    let mut perception = perception(&config());
    let mut frame = wall(1);
    put(&mut frame, [40, 100, 80, 200], 3_000);
    put(&mut frame, [280, 100, 320, 200], 1_500);
    let mut out = Detections::default();
    let mut overlay = Overlay::default();
    perception.process_with_detections(&frame, Some(&pose()), 0, None, &mut out, Some(&mut overlay));
    assert_eq!(out.objects().len(), 2);
    assert!(out.objects()[0].distance_m < out.objects()[1].distance_m);
    assert_eq!(overlay.mask[150 * 384 + 300], 1);
    assert_eq!(overlay.mask[150 * 384 + 60], 2);
    assert_eq!(overlay.mask[150 * 384 + 190], 0);
}

#[test]
fn a_few_wrong_pixels_do_not_move_the_distance() {
    let mut config = config();
    config.occupancy.nearest_rank = 8;
    let mut perception = perception(&config);
    let mut frame = wall(1);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    // Seven flying pixels in front of the person.
    put(&mut frame, [185, 150, 192, 151], 1_750);
    let out = run(&mut perception, &frame, None);
    assert!((out.nearest().unwrap().distance_m - 2.0).abs() < 0.01);
    put(&mut frame, [185, 150, 193, 151], 1_750);
    let out = run(&mut perception, &frame, None);
    assert!((out.nearest().unwrap().distance_m - 1.75).abs() < 0.05);
}

#[test]
fn blind_frames_say_why() {
    let mut perception = perception(&config());
    let health = |perception: &mut Perception, frame: &Frame| run(perception, frame, None).health;
    assert_eq!(health(&mut perception, &Frame::new(384, 288)), FrameHealth::NoFrame);
    let mut frame = wall(1);
    frame.depth_mm.fill(0);
    assert_eq!(health(&mut perception, &frame), FrameHealth::EmptyDepth);
    frame.depth_mm.fill(65_000);
    assert_eq!(health(&mut perception, &frame), FrameHealth::ImpossibleDepth);
    let mut frame = wall(1);
    frame.rgb.fill(3);
    assert_eq!(health(&mut perception, &frame), FrameHealth::EmptyColour);
    let mut frame = wall(1);
    frame.width = 100;
    assert_eq!(health(&mut perception, &frame), FrameHealth::WrongSize);
    let mut frame = wall(1);
    frame.depth_mm.pop();
    assert_eq!(health(&mut perception, &frame), FrameHealth::WrongSize);
    let mut out = Detections::default();
    perception.process(&wall(1), None, 0, &mut out, None);
    assert_eq!(out.health, FrameHealth::NoPose);
    let mut nowhere = pose();
    nowhere.camera_in_base.translation.x = f64::NAN;
    perception.process(&wall(1), Some(&nowhere), 0, &mut out, None);
    assert_eq!(out.health, FrameHealth::NoPose);
    let mut failed = DetectionSet::of_frame(1, 0);
    failed.failed = true;
    assert_eq!(run(&mut perception, &wall(2), Some(&failed)).health, FrameHealth::InferenceFailed);
    assert_eq!(
        health(&mut perception, &wall(3)),
        FrameHealth::InferenceFailed,
        "until the detector works again"
    );
    assert_eq!(run(&mut perception, &wall(4), Some(&detections(3, &[]))).health, FrameHealth::Ok);
}

#[test]
fn a_person_without_depth_is_reported_at_the_nearest_place_they_could_stand() {
    let mut perception = perception(&config());
    let mut frame = wall(1);
    put(&mut frame, [160, 80, 220, 260], 0);
    let out = run(&mut perception, &frame, Some(&detections(1, &[[160.0, 80.0, 220.0, 260.0]])));
    assert_eq!(out.objects().len(), 2);
    // An area without depth could also be a hand at the lens.
    let hole = &out.objects()[0];
    assert_eq!((hole.kind, hole.points), (ObjectKind::Unseen, 0));
    assert!(hole.distance_m < 0.01, "{hole:?}");
    let object = &out.objects()[1];
    assert_eq!((object.kind, object.points), (ObjectKind::Person, 0));
    // 180 px high are at least 0.4 m: no nearer than 300 * 0.4 / 180 = 0.67 m.
    assert!((0.6..0.8).contains(&object.distance_m), "{object:?}");
}

#[test]
fn a_person_outside_of_the_volume_is_not_reported() {
    let mut perception = perception(&config());
    let out = run(&mut perception, &wall(1), Some(&detections(1, &[[160.0, 80.0, 220.0, 260.0]])));
    assert_eq!(out.objects().len(), 0);
}

#[test]
fn bad_settings_and_intrinsics_are_refused() {
    let mut bad = config();
    bad.tracking.velocity_gain = 2.0;
    let error = Perception::new(&bad, 0, intrinsics(), &engine(), None).unwrap_err().to_string();
    assert!(error.contains("velocity_gain"));
    let flat = Intrinsics { fx: 0.0, ..intrinsics() };
    let error = Perception::new(&config(), 0, flat, &engine(), None).unwrap_err().to_string();
    assert!(error.contains("fx"));
}

#[test]
fn a_camera_that_moves_sees_the_person_at_the_same_place() {
    let mut perception = perception(&config());
    let mut near = pose();
    near.camera_in_base.translation.vector += Vector3::new(0.5, 0.0, 0.0);
    near.tcp_in_base.translation.vector += Vector3::new(0.5, 0.0, 0.0);
    let mut frame = wall(1);
    put(&mut frame, [172, 100, 212, 240], 1_500);
    let mut out = Detections::default();
    perception.process(&frame, Some(&near), 0, &mut out, None);
    let object = out.nearest().unwrap();
    assert!((object.position_m.x - 2.0).abs() < 1e-3 && (object.distance_m - 1.5).abs() < 0.005);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever detections say, no foreground gets lost: the reported least distance is never
    /// larger than that of the k-th nearest foreground pixel of any thing that counts.
    #[test]
    fn detections_never_hide_depth(
        things in prop::collection::vec((0u32..300, 40u32..200, 20u32..80, 30u32..88, 900u16..3_500), 1..4),
        boxes in prop::collection::vec((0f32..380.0, 0f32..280.0, 1f32..200.0, 1f32..200.0), 0..5),
        rank in 1usize..MAX_NEAREST_RANK,
    ) {
        let mut config = config();
        config.occupancy.nearest_rank = rank;
        let mut perception = perception(&config);
        let mut frame = wall(1);
        for &(left, top, width, height, depth) in &things {
            put(&mut frame, [left, top, (left + width).min(384), (top + height).min(288)], depth);
        }
        let plain = run(&mut perception, &frame, None);
        let boxes: Vec<[f32; 4]> = boxes.iter().map(|&(x, y, w, h)| [x, y, x + w, y + h]).collect();
        frame.sequence = 2;
        let out = run(&mut perception, &frame, Some(&detections(1, &boxes)));
        prop_assert!(out.objects().iter().all(|o| o.distance_m.is_finite()));
        match (plain.nearest(), out.nearest()) {
            (Some(plain), Some(out)) => {
                // Splitting a thing splits its points too, so its k-th nearest may be a little
                // farther; not farther than the point spacing times the rank allows.
                prop_assert!(out.distance_m <= plain.distance_m + 0.10, "{out:?} {plain:?}");
            }
            (Some(_), None) => prop_assert!(false, "lost"),
            _ => {}
        }
    }
}

#[test]
fn both_networks_run_on_every_frame_where_that_is_asked_for() {
    let mut config = PerceptionConfig::default();
    config.detector.schedule = DetectorSchedule::EveryFrame;
    config.segmenter.every_frames = Some(1);
    config.segmenter.empty_frames = true;
    let mut asked = perception(&config);
    config.segmenter.empty_frames = false;
    let mut plain = perception(&config);
    // Detections of its own replace the given ones; nobody is in these images.
    for sequence in 1..=3 {
        let mut frame = wall(sequence);
        put(&mut frame, [172, 100, 212, 240], 2_000);
        let (with, without) = (run(&mut asked, &frame, None), run(&mut plain, &frame, None));
        assert_eq!((with.detected, with.masks), (true, 1), "frame {sequence}");
        assert_eq!((without.detected, without.masks), (true, 0), "frame {sequence}");
        // A mask that is nobody's explains nothing.
        assert_eq!(with.objects(), without.objects());
        assert_eq!(with.objects()[0].kind, ObjectKind::Unexplained);
    }
    // A frame that cannot be judged does not count as examined.
    let mut dark = wall(4);
    dark.rgb.fill(0);
    let out = run(&mut asked, &dark, None);
    assert_eq!((out.health, out.detected, out.masks), (FrameHealth::EmptyColour, false, 0));
}
