use takt_link_camera::{Frame, Intrinsics};

use crate::background::{BackgroundLearner, MIN_FRAMES};
use crate::config::PerceptionConfig;
use crate::engine::{Backend, Engine, EngineConfig};
use crate::mount::FramePose;
use crate::occupancy::{Capsule, CapsuleFrame, StaticBox};
use crate::perception::Perception;
use crate::result::{Detections, FrameHealth, ObjectKind};
use crate::sensor::SensorConfig;
use crate::testing::{intrinsics, pose, put, wall};
use nalgebra::Point3;

/// Without networks; what is unseen counts within 1.4 m of the tool, which is at the camera.
fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config.unseen.within_m = Some(1.4);
    config.health.min_valid_depth = 0.1;
    config.unseen.max_share = 1.0;
    config
}

fn run(config: &PerceptionConfig, frame: &Frame) -> Detections {
    run_at(config, frame, &pose())
}

fn run_at(config: &PerceptionConfig, frame: &Frame, pose: &FramePose) -> Detections {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).unwrap();
    let mut perception = Perception::new(config, 0, intrinsics(), &engine, None).unwrap();
    let mut out = Detections::default();
    perception.process(frame, Some(pose), 5, &mut out, None);
    out
}

/// Distances of the holes.
fn holes(out: &Detections) -> Vec<f32> {
    let holes = out.objects().iter().filter(|object| object.kind == ObjectKind::Unseen);
    holes.map(|hole| hole.distance_m).collect()
}

/// Numbers without pattern.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn a_hole_is_occupied_where_its_lines_of_sight_are_nearest_to_the_tool() {
    let mut frame = wall(1);
    assert_eq!(holes(&run(&config(), &frame)), [0.0f32; 0]);
    put(&mut frame, [100, 100, 160, 160], 0);
    let mut at = pose();
    at.tcp_in_base.translation.vector.x += 1.0;
    let out = run_at(&config(), &frame, &at);
    assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 1));
    let hole = out.nearest().unwrap();
    assert_eq!((hole.kind, hole.track, hole.points), (ObjectKind::Unseen, 0, 0));
    // The tool is 1 m ahead of the camera; the hole's nearest corner is seen under 0.109 to the
    // side.
    assert!((hole.distance_m - 0.109).abs() < 0.02, "{hole:?}");
    let [left, top, right, bottom] = hole.box_px;
    assert!(left >= 96.0 && top >= 96.0 && right <= 164.0 && bottom <= 164.0, "{hole:?}");
    assert!((out.unseen - 0.03).abs() < 0.01, "{}", out.unseen);
}

#[test]
fn whatever_is_no_measurement_is_a_hole() {
    for depth_mm in [0, 1, 60, 149, 10_001, 65_535] {
        let mut frame = wall(1);
        put(&mut frame, [0, 0, 384, 130], depth_mm);
        assert_eq!(holes(&run(&config(), &frame)).len(), 1, "{depth_mm} mm over 45 %");
    }
    // 150 mm is the nearest that the model measures at this size.
    let mut frame = wall(1);
    put(&mut frame, [0, 0, 384, 130], 150);
    let mut at = pose();
    at.tcp_in_base.translation.vector.z += 0.5;
    let out = run_at(&config(), &frame, &at);
    assert_eq!((holes(&out).len(), out.objects().len()), (0, 1), "{:?}", out.objects());
    let mut config = config();
    config.sensors = vec![SensorConfig { min_depth_mm: Some(200), ..SensorConfig::default() }];
    assert_eq!(holes(&run_at(&config, &frame, &at)).len(), 1);
}

#[test]
fn five_percent_of_random_holes_are_closed_by_their_neighbours() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    for sequence in 1..100 {
        let mut frame = wall(sequence);
        for depth in &mut frame.depth_mm {
            if dice.roll(100) < 5 {
                *depth = 0;
            }
        }
        let out = run(&config(), &frame);
        assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 0), "frame {sequence}");
        assert!(out.unseen < 0.001, "{}", out.unseen);
    }
}

#[test]
fn small_patches_and_thin_shadows_without_depth_are_closed() {
    let mut dice = Dice(77);
    for sequence in 1..100 {
        let mut frame = wall(sequence);
        // Patches of 6x6 pixels, 5 % of the picture; at 1.4 m 6 pixels are 28 mm.
        for _ in 0..384 * 288 / 20 / 36 {
            let (u, v) = (dice.roll(378) as u32, dice.roll(282) as u32);
            put(&mut frame, [u, v, u + 6, v + 6], 0);
        }
        // Gaps that stereo matching leaves next to an edge.
        put(&mut frame, [200, 20, 205, 260], 0);
        let out = run(&config(), &frame);
        assert_eq!(out.objects().len(), 0, "frame {sequence}: {:?}", out.objects());
    }
}

#[test]
fn a_hole_as_wide_as_a_hand_is_not_closed() {
    // 0.08 m are 17 pixels at 1.4 m, the farthest that counts, and more when nearer.
    let mut frame = wall(1);
    put(&mut frame, [180, 120, 198, 138], 0);
    assert_eq!(holes(&run(&config(), &frame)).len(), 1);
}

#[test]
fn wrong_values_beside_holes_do_not_make_a_surface() {
    let mut dice = Dice(99);
    for sequence in 1..50 {
        let mut frame = wall(sequence);
        // A hand at the lens: a third of its pixels have values from anywhere.
        for v in 90..190 {
            for u in 120..220u32 {
                let wrong = if dice.roll(3) == 0 { 1_000 + dice.roll(9_000) as u16 } else { 0 };
                frame.depth_mm[(v * 384 + u) as usize] = wrong;
            }
        }
        assert!(!holes(&run(&config(), &frame)).is_empty(), "frame {sequence}");
        // And nothing but wrong values.
        for v in 90..190 {
            for u in 120..220u32 {
                frame.depth_mm[(v * 384 + u) as usize] = 1_000 + dice.roll(9_000) as u16;
            }
        }
        assert!(!run(&config(), &frame).objects().is_empty(), "frame {sequence}");
    }
}

#[test]
fn only_lines_of_sight_that_cross_the_volume_matter() {
    let mut config = config();
    let mut frame = wall(1);
    // The camera is 1 m above the base and looks ahead: the upper rows see above 1.2 m from 0.4 m
    // on.
    put(&mut frame, [0, 0, 384, 40], 0);
    config.occupancy.volume.max_m.z = 1.2;
    assert_eq!(holes(&run(&config, &frame)).len(), 1);
    config.occupancy.volume.min_m.x = 0.9;
    let out = run(&config, &frame);
    assert_eq!((holes(&out).len(), out.unseen), (0, 0.0), "above the volume where that begins");
    // Behind the reach of the tool it is not occupied, but unseen.
    let mut config = self::config();
    config.occupancy.volume.min_m.x = 2.0;
    put(&mut frame, [0, 100, 384, 200], 0);
    let out = run(&config, &frame);
    assert!(holes(&out).is_empty() && out.unseen > 0.3, "{:?} {}", out.objects(), out.unseen);
}

#[test]
fn structure_before_the_tool_explains_a_hole_and_structure_behind_does_not() {
    let mut config = config();
    let mut frame = wall(1);
    put(&mut frame, [140, 100, 240, 200], 0);
    let mut at = pose();
    at.tcp_in_base.translation.vector.x += 3.0;
    let post = |from_m: f32, to_m: f32| {
        let (min_m, max_m) = (Point3::new(from_m, -2.0, 0.0), Point3::new(to_m, 2.0, 2.5));
        vec![StaticBox { name: "post".into(), min_m, max_m, without_depth: false }]
    };
    assert_eq!(holes(&run_at(&config, &frame, &at)).len(), 1);
    config.occupancy.static_boxes = post(1.0, 1.2);
    assert_eq!(holes(&run_at(&config, &frame, &at)), [0.0f32; 0], "nobody near the tool is hidden");
    config.occupancy.static_boxes = post(2.5, 3.5);
    let found = holes(&run_at(&config, &frame, &at));
    assert!(found.len() == 1 && (found[0] - 0.5).abs() < 0.02, "before the post: {found:?}");
    // Nearer than the sensor measures no depth can be expected.
    config.occupancy.static_boxes = post(0.05, 0.1);
    at = pose();
    assert_eq!(holes(&run_at(&config, &frame, &at)), [0.0f32; 0]);
    // A window behind the tool is known to give no depth.
    config.occupancy.static_boxes = post(3.9, 4.0);
    assert_eq!(holes(&run_at(&config, &frame, &at)).len(), 1);
    config.occupancy.static_boxes[0].without_depth = true;
    assert_eq!(holes(&run_at(&config, &frame, &at)), [0.0f32; 0]);
    // A camera inside of a box is fixed to it, and sees what is outside.
    config.occupancy.static_boxes = post(-0.1, 0.1);
    assert_eq!(holes(&run_at(&config, &frame, &at)).len(), 1);
}

#[test]
fn the_gripper_before_the_lens_explains_its_hole() {
    let mut config = config();
    let mut frame = wall(1);
    put(&mut frame, [160, 200, 220, 288], 0);
    assert_eq!(holes(&run(&config, &frame)).len(), 1);
    config.occupancy.robot.push(Capsule {
        frame: CapsuleFrame::Tcp,
        from_m: Point3::new(0.10, 0.02, -0.04),
        to_m: Point3::new(0.10, -0.02, -0.04),
        radius_m: 0.03,
    });
    assert_eq!(holes(&run(&config, &frame)), [0.0f32; 0]);
    put(&mut frame, [20, 20, 80, 80], 0);
    assert_eq!(holes(&run(&config, &frame)).len(), 1, "elsewhere a hole stays one");
}

#[test]
fn a_camera_that_does_not_see_its_share_is_blind() {
    let mut config = config();
    config.unseen.max_share = 0.1;
    // Far from the tool, so that nothing is occupied.
    let mut at = pose();
    at.tcp_in_base.translation.vector.y += 30.0;
    let mut frame = wall(1);
    put(&mut frame, [0, 150, 384, 174], 0);
    let out = run_at(&config, &frame, &at);
    assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 0));
    put(&mut frame, [0, 150, 384, 184], 0);
    let out = run_at(&config, &frame, &at);
    assert_eq!((out.health, out.objects().len()), (FrameHealth::Unseen, 0));
    assert!(out.unseen > 0.1, "{}", out.unseen);
    config.sensors = vec![SensorConfig { max_unseen: Some(0.2), ..SensorConfig::default() }];
    assert_eq!(run_at(&config, &frame, &at).health, FrameHealth::Ok, "each camera has its own share");
}

#[test]
fn an_edge_that_never_has_depth_can_be_left_out() {
    let mut config = config();
    let mut frame = wall(1);
    put(&mut frame, [0, 0, 40, 288], 0);
    assert_eq!(holes(&run(&config, &frame)).len(), 1);
    config.sensors = vec![SensorConfig { border_px: [40, 0, 0, 0], ..SensorConfig::default() }];
    let out = run(&config, &frame);
    assert_eq!((holes(&out).len(), out.unseen), (0, 0.0));
    put(&mut frame, [40, 0, 70, 288], 0);
    assert_eq!(holes(&run(&config, &frame)).len(), 1);
}

#[test]
fn a_learned_background_explains_its_holes_until_the_camera_moves() {
    let folder = std::env::temp_dir().join(format!("takt-background-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("west.toml");
    let mut config = config();
    let mut frame = wall(1);
    put(&mut frame, [200, 40, 300, 120], 0);
    let mut learner = BackgroundLearner::new(&config, 0, &intrinsics()).unwrap();
    for _ in 0..MIN_FRAMES {
        learner.add(&(&frame).into(), &pose()).unwrap();
    }
    let learned = learner.finish().unwrap();
    assert!((learned.share() - 0.072).abs() < 0.01, "{}", learned.share());
    std::fs::write(&path, learned.to_text().unwrap()).unwrap();

    assert_eq!(holes(&run(&config, &frame)).len(), 1);
    config.sensors = vec![SensorConfig { background: Some(path.clone()), ..SensorConfig::default() }];
    let out = run(&config, &frame);
    assert_eq!((holes(&out).len(), out.unseen), (0, 0.0));
    let mut with_hand = frame.clone();
    put(&mut with_hand, [150, 60, 260, 100], 0);
    assert_eq!(holes(&run(&config, &with_hand)).len(), 1, "what reaches out of it is a hole");
    put(&mut with_hand, [220, 60, 280, 100], 700);
    assert!((run(&config, &with_hand).nearest().unwrap().distance_m) < 0.75, "depth in it is depth");
    let mut moved = pose();
    moved.camera_in_base.translation.vector.y += 0.02;
    assert_eq!(holes(&run_at(&config, &frame, &moved)).len(), 1);

    // Of another camera, damaged, or missing: refused with the way out.
    let refused = |config: &PerceptionConfig, intrinsics: Intrinsics| {
        super::Unseen::new(config, 0, &intrinsics).unwrap_err().to_string()
    };
    let other = Intrinsics { width: 380, ..intrinsics() };
    assert!(refused(&config, other).contains("learn it again"));
    for text in ["", "rows = 3", &learned.to_text().unwrap().replace('#', "x")] {
        std::fs::write(&path, text).unwrap();
        assert!(refused(&config, intrinsics()).contains("sensors.background"), "{text:.20}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(refused(&config, intrinsics()).contains("west.toml"));
}

#[test]
fn a_background_is_not_learned_from_a_covered_or_moving_camera_nor_of_the_robot() {
    let mut config = config();
    let learner = || BackgroundLearner::new(&config, 0, &intrinsics()).unwrap();
    let teach = |mut learner: BackgroundLearner, frame: &Frame, frames: u32| {
        (0..frames).for_each(|_| learner.add(&frame.into(), &pose()).unwrap());
        learner.finish()
    };
    let mut frame = wall(1);
    assert!(teach(learner(), &frame, MIN_FRAMES - 1).unwrap_err().to_string().contains("at least"));
    assert_eq!(teach(learner(), &frame, MIN_FRAMES).unwrap().share(), 0.0);
    put(&mut frame, [0, 0, 384, 80], 0);
    assert!(teach(learner(), &frame, MIN_FRAMES).unwrap_err().to_string().contains("uncover"));
    let mut moving = learner();
    let mut at = pose();
    moving.add(&(&frame).into(), &at).unwrap();
    at.camera_in_base.translation.vector.z += 0.1;
    assert!(moving.add(&(&frame).into(), &at).unwrap_err().to_string().contains("moves"));

    // The arm hides what is behind it for now.
    let mut frame = wall(1);
    put(&mut frame, [172, 124, 212, 164], 0);
    config.occupancy.robot = vec![Capsule {
        frame: CapsuleFrame::Tcp,
        from_m: Point3::new(1.0, 0.0, 0.0),
        to_m: Point3::new(1.1, 0.0, 0.0),
        radius_m: 0.12,
    }];
    let learner = BackgroundLearner::new(&config, 0, &intrinsics()).unwrap();
    assert_eq!(teach(learner, &frame, MIN_FRAMES).unwrap().share(), 0.0);
}

/// Places that something before and within the volume hides, of the 1.4 m around a tool at 3 m.
fn hidden(config: &PerceptionConfig, frame: &Frame) -> (u32, u32) {
    let mut at = pose();
    at.tcp_in_base.translation.vector.x = 3.0;
    let out = run_at(config, frame, &at);
    assert_eq!(out.health, FrameHealth::Ok);
    (out.places.hidden_before(), out.places.hidden_within())
}

#[test]
fn known_structure_that_ends_a_line_of_sight_hides_nothing_unexpected() {
    let mut config = config();
    // The volume begins 1.5 m before the camera; a board stands at 1 m.
    config.occupancy.volume.min_m.x = 1.5;
    let mut frame = wall(1);
    assert_eq!(hidden(&config, &frame), (0, 0));
    put(&mut frame, [100, 60, 260, 200], 1_000);
    let (before, within) = hidden(&config, &frame);
    assert!(before > 100 && within == 0, "{before} {within}");
    // In the volume it is a thing that is reported, and hides as much.
    let mut wide = config.clone();
    wide.occupancy.volume.min_m.x = -4.0;
    let (before, within) = hidden(&wide, &frame);
    assert!(before > 50 && within > 10, "the farther ones are hidden by its large shadow: {before} {within}");
    // A fixture, or the robot, is known to be there.
    let mut fixture = config.clone();
    let (min_m, max_m) = (Point3::new(0.98, -0.5, 0.5), Point3::new(1.1, 0.5, 1.5));
    fixture.occupancy.static_boxes =
        vec![StaticBox { name: "board".into(), min_m, max_m, without_depth: false }];
    assert_eq!(hidden(&fixture, &frame), (0, 0));
    let mut robot = config.clone();
    robot.occupancy.robot = vec![Capsule {
        frame: CapsuleFrame::Base,
        from_m: Point3::new(1.3, -0.3, 1.0),
        to_m: Point3::new(1.3, 0.4, 1.0),
        radius_m: 0.5,
    }];
    assert_eq!(hidden(&robot, &frame), (0, 0));
    // An object in front of them is not.
    put(&mut frame, [100, 60, 260, 200], 800);
    assert!(hidden(&fixture, &frame).0 > 100);
}

#[test]
fn a_box_or_a_capsule_that_the_camera_is_in_explains_nothing_before_its_lens() {
    let mut config = config();
    config.occupancy.volume.min_m.x = 1.5;
    let mut frame = wall(1);
    // A cloth over the picture, and a pole with its cables as the camera hangs in it.
    put(&mut frame, [0, 0, 384, 288], 300);
    let mut pole = config.clone();
    let (min_m, max_m) = (Point3::new(-0.4, -0.5, 0.0), Point3::new(0.4, 0.5, 1.6));
    pole.occupancy.static_boxes = vec![StaticBox { name: "pole".into(), min_m, max_m, without_depth: false }];
    assert!(hidden(&pole, &frame).0 > 100);
    let mut hand = config.clone();
    hand.occupancy.robot = vec![Capsule {
        frame: CapsuleFrame::Base,
        from_m: Point3::new(0.0, 0.0, 1.0),
        to_m: Point3::new(0.3, 0.0, 1.0),
        radius_m: 0.4,
    }];
    assert!(hidden(&hand, &frame).0 > 100);
}

#[test]
fn a_learned_background_explains_what_stands_there_and_nothing_nearer() {
    let folder = std::env::temp_dir().join(format!("takt-background-depth-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("west.toml");
    let mut config = config();
    config.occupancy.volume.min_m.x = 1.5;
    let mut frame = wall(1);
    put(&mut frame, [100, 60, 260, 200], 1_000);
    let mut learner = BackgroundLearner::new(&config, 0, &intrinsics()).unwrap();
    let mut dice = Dice(5);
    for _ in 0..MIN_FRAMES {
        let mut noisy = frame.clone();
        noisy.depth_mm.iter_mut().for_each(|depth| *depth += dice.roll(9) as u16);
        learner.add(&(&noisy).into(), &pose()).unwrap();
    }
    let text = learner.finish().unwrap().to_text().unwrap();
    std::fs::write(&path, &text).unwrap();
    assert!(hidden(&config, &frame).0 > 100);
    config.sensors = vec![SensorConfig { background: Some(path.clone()), ..SensorConfig::default() }];
    assert_eq!(hidden(&config, &frame), (0, 0));
    // A cloth before the board, and one before the wall.
    put(&mut frame, [120, 80, 240, 180], 900);
    assert!(hidden(&config, &frame).0 > 50);
    let mut frame = wall(1);
    put(&mut frame, [0, 0, 384, 288], 700);
    assert!(hidden(&config, &frame).0 > 100);
    // The board is gone, and something stands behind its place.
    let mut frame = wall(1);
    put(&mut frame, [100, 60, 260, 200], 1_300);
    assert!(hidden(&config, &frame).0 > 50);
    frame = wall(1);
    assert_eq!(hidden(&config, &frame), (0, 0), "the board is gone");
    put(&mut frame, [0, 0, 384, 288], 700);
    // A cloth is not learned.
    let mut learner = BackgroundLearner::new(&config, 0, &intrinsics()).unwrap();
    (0..MIN_FRAMES).for_each(|_| learner.add(&(&frame).into(), &pose()).unwrap());
    assert!(learner.finish().unwrap_err().to_string().contains("in front of the monitored volume"));
    // Without depths, as older files are, it explains no depth; damaged ones are refused.
    let start = text.find("depth_mm").unwrap();
    let end = start + text[start..].find("]").unwrap() + 1;
    let mut older = text.clone();
    older.replace_range(start..end, "");
    std::fs::write(&path, &older).unwrap();
    let mut frame = wall(1);
    put(&mut frame, [100, 60, 260, 200], 1_000);
    assert!(hidden(&config, &frame).0 > 100);
    for damaged in [text.replacen("03e", "03x", 1), text.replacen("03e", "03", 1)] {
        std::fs::write(&path, damaged).unwrap();
        let error = super::Unseen::new(&config, 0, &intrinsics()).unwrap_err().to_string();
        assert!(error.contains("hexadecimal"), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn intrinsics_and_poses_that_cannot_be_are_refused() {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).unwrap();
    let good = intrinsics();
    for (wrong, name) in [
        (Intrinsics { fx: 1e300, ..good }, "intrinsics.fx"),
        (Intrinsics { fx: 1e-300, fy: 1e-300, ..good }, "intrinsics.fx"),
        (Intrinsics { fy: 1e300, ..good }, "intrinsics.fy"),
        (Intrinsics { fx: f64::NAN, ..good }, "intrinsics.fx"),
        (Intrinsics { fx: -300.0, ..good }, "intrinsics.fx"),
        (Intrinsics { fx: 5.0, fy: 5.0, ..good }, "intrinsics.fx"),
        (Intrinsics { fx: 700.0, ..good }, "intrinsics.fx / intrinsics.fy"),
        (Intrinsics { cx: 400.0, ..good }, "intrinsics.cx"),
        (Intrinsics { cy: -1.0, ..good }, "intrinsics.cy"),
        (Intrinsics { cy: f64::INFINITY, ..good }, "intrinsics.cy"),
        (Intrinsics { width: 0, ..good }, "intrinsics.width"),
        (Intrinsics { height: u32::MAX, ..good }, "intrinsics.height"),
    ] {
        let error = Perception::new(&config(), 0, wrong, &engine, None).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("camera 0"), "{error}");
    }
    for x in [1e308, 300.0, f64::NAN] {
        let mut at = pose();
        at.camera_in_base.translation.vector.x = x;
        assert_eq!(run_at(&config(), &wall(1), &at).health, FrameHealth::NoPose, "{x}");
        let mut at = pose();
        at.tcp_in_base.translation.vector.y = x;
        assert_eq!(run_at(&config(), &wall(1), &at).health, FrameHealth::NoPose, "{x}");
    }
}
