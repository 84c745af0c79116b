use super::*;
use crate::config::HealthConfig;
use crate::testing::{intrinsics, pose, put, wall};

fn scene(config: &OccupancyConfig) -> Scene {
    let health = HealthConfig::default();
    let mut scene = Scene::new(config, &intrinsics(), 195, health.max_depth_mm);
    scene.place(&pose());
    scene
}

fn blobs(config: &OccupancyConfig, frame: &takt_link_camera::Frame) -> (Vec<Blob>, DepthCounts) {
    let scene = scene(config);
    let mut grid = Grid::new(config.step_px, frame.width, frame.height);
    let counts = grid.sample(&scene, &frame.depth_mm, frame.width, frame.height);
    let (mut labels, mut blobs) = (vec![NONE; grid.cells()], Vec::new());
    grid.label(&scene, config, |_| true, &Point3::new(0.0, 0.0, 1.0), &mut labels, &mut blobs);
    assert!(labels.iter().zip(&grid.depth).all(|(&label, &depth)| (label != NONE) == (depth != 0)));
    blobs.retain(|blob| blob.big);
    (blobs, counts)
}

#[test]
fn pixels_are_projected_through_the_pinhole_into_the_base() {
    let scene = scene(&OccupancyConfig::default());
    // 30 px right of the principal point (191.5), 60 px below (143.5) at 3 m: 0.3 m right, 0.6 m
    // down.
    let p = scene.point(221, 203, 3000);
    let expected = Point3::new(3.0, -0.295, 1.0 - 0.595);
    assert!((p - expected).norm() < 1e-4, "{p}");
}

#[test]
fn only_what_stands_in_the_volume_above_the_floor_counts() {
    let config = OccupancyConfig::default();
    let mut frame = wall(1);
    assert!(blobs(&config, &frame).0.is_empty(), "the wall is outside");
    put(&mut frame, [100, 100, 140, 200], 2_000);
    let (found, counts) = blobs(&config, &frame);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].box_px, [100.0, 100.0, 140.0, 200.0]);
    assert!((found[0].nearest2.sqrt() - 2.0).abs() < 0.1);
    assert_eq!((counts.samples, counts.valid, counts.impossible), (96 * 72, 96 * 72, 0));
    // Lower than 0.15 m: at 2 m, rows below 143.5 + 0.85 * 150 = 271.
    let mut frame = wall(1);
    put(&mut frame, [100, 274, 140, 288], 2_000);
    assert!(blobs(&config, &frame).0.is_empty(), "that is the floor");
}

#[test]
fn depth_steps_split_things_that_touch_in_the_image() {
    let mut frame = wall(1);
    put(&mut frame, [100, 100, 140, 200], 2_000);
    put(&mut frame, [140, 100, 180, 200], 3_000);
    assert_eq!(blobs(&OccupancyConfig::default(), &frame).0.len(), 2);
    put(&mut frame, [140, 100, 180, 200], 2_200);
    assert_eq!(blobs(&OccupancyConfig::default(), &frame).0.len(), 1);
}

#[test]
fn fixtures_and_the_robot_are_left_out() {
    let mut frame = wall(1);
    put(&mut frame, [180, 130, 204, 154], 2_000);
    let mut config = OccupancyConfig::default();
    assert_eq!(blobs(&config, &frame).0.len(), 1);
    config.static_boxes = vec![StaticBox {
        name: "post".into(),
        min_m: Point3::new(1.9, -0.2, 0.8),
        max_m: Point3::new(2.1, 0.2, 1.2),
        without_depth: false,
    }];
    assert!(blobs(&config, &frame).0.is_empty());
    config.static_boxes.clear();
    // Along the tool's axes, which are those of the base here.
    config.robot = vec![Capsule {
        frame: CapsuleFrame::Tcp,
        from_m: Point3::new(1.0, 0.0, 0.0),
        to_m: Point3::new(1.95, 0.0, 0.0),
        radius_m: 0.2,
    }];
    assert!(blobs(&config, &frame).0.is_empty());
}

#[test]
fn specks_do_not_count_but_a_hand_does() {
    let config = OccupancyConfig::default();
    let mut frame = wall(1);
    // 8×8 px at 2 m are 0.053 m squared.
    put(&mut frame, [100, 100, 108, 108], 2_000);
    assert!(blobs(&config, &frame).0.is_empty());
    put(&mut frame, [100, 100, 116, 116], 2_000);
    assert_eq!(blobs(&config, &frame).0.len(), 1);
}

#[test]
fn depth_that_cannot_be_is_counted_apart() {
    let mut frame = wall(1);
    put(&mut frame, [0, 0, 192, 288], 65_535);
    put(&mut frame, [192, 0, 288, 288], 0);
    let (_, counts) = blobs(&OccupancyConfig::default(), &frame);
    assert_eq!((counts.impossible, counts.valid), (96 * 72 / 2, 96 * 72 / 4));
}

#[test]
fn a_capsule_is_all_points_near_its_axis() {
    let capsule = Capsule {
        frame: CapsuleFrame::Base,
        from_m: Point3::origin(),
        to_m: Point3::new(0.0, 0.0, 1.0),
        radius_m: 0.1,
    };
    assert!(capsule.contains(&Point3::new(0.09, 0.0, 0.5)));
    assert!(capsule.contains(&Point3::new(0.0, 0.0, 1.09)));
    assert!(!capsule.contains(&Point3::new(0.09, 0.0, 1.09)));
    assert!(!capsule.contains(&Point3::new(0.11, 0.0, 0.5)));
    let point = Capsule { to_m: Point3::origin(), ..capsule };
    assert!(point.contains(&Point3::new(0.0, 0.05, 0.0)));
}
