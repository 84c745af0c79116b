//! An object with depth hides everything behind it: a cell with cameras that stand before the
//! monitored volume, through the synthetic scene, perception and the monitor.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use nalgebra::Point3;
use takt_link_camera::Intrinsics;
use takt_link_camera::synthetic::{Block, LensEvent, LensEventKind, PersonConfig, SceneConfig};
use takt_perception::{FrameHealth, Mount, MountFrame, StaticBox};
use takt_robot_cell::config::CellConfig;
use takt_robot_cell::ssm::{Decision, FaultKind};

use super::unseen_scene::{Rig, cell, synthetic};

/// When things appear, seconds of the scene.
const FROM_S: f64 = 0.2;

/// A camera level at `x`, looking along the x axis at the robot.
fn mount(x_m: f64) -> Mount {
    // Optical z is the base's x or -x, optical y its -z.
    let turn = 1.209_199_6;
    let rotation_rad = if x_m > 0.0 { [-turn, -turn, turn] } else { [-turn, turn, -turn] };
    Mount { frame: MountFrame::Base, position_m: [x_m, 0.0, 0.9], rotation_rad }
}

/// The room of the shipped synthetic cell, with cameras 1.5 m before the volume on one side or
/// both.
fn standing(cameras_at_m: &[f64]) -> CellConfig {
    let mut cell = cell();
    cell.cameras.truncate(cameras_at_m.len());
    for (index, &x_m) in cameras_at_m.iter().enumerate() {
        cell.cameras[index].mount = mount(x_m);
        synthetic(&mut cell, index).intrinsics =
            Intrinsics { width: 424, height: 240, fx: 230.0, fy: 230.0, cx: 211.5, cy: 119.5 };
        synthetic(&mut cell, index).max_depth_m = 20.0;
    }
    let volume = &mut cell.perception.occupancy.volume;
    (volume.min_m, volume.max_m) = (Point3::new(-2.0, -2.0, -0.8), Point3::new(2.0, 2.0, 1.4));
    cell
}

fn scene(cell: &mut CellConfig, change: impl Fn(&mut SceneConfig)) {
    (0..cell.cameras.len()).for_each(|camera| change(&mut synthetic(cell, camera).scene));
}

fn lens(cell: &mut CellConfig, camera: usize, what: LensEventKind) {
    synthetic(cell, camera).flaws.events = vec![LensEvent { what, from_s: FROM_S, to_s: 1e9 }];
}

fn person(x_m: f64, y_m: f64) -> PersonConfig {
    PersonConfig::walking(0, &[[x_m, y_m]])
}

/// Runs from the start and returns every decision and the rig.
fn run(cell: &CellConfig, frames: usize) -> (Vec<Decision>, Rig) {
    let mut rig = Rig::new(cell);
    ((0..frames).map(|_| rig.step()).collect(), rig)
}

/// The fault of a cell in which something is from the start: it never moves.
fn fault_from_the_start(cell: &CellConfig) -> Option<FaultKind> {
    let (decisions, rig) = run(cell, 10);
    assert!(decisions.iter().all(|decision| decision.stop), "{:?} {:?}", decisions.last(), rig.seen());
    decisions.last().unwrap().fault.map(|fault| fault.kind)
}

/// The fault of a cell in which something appears before a moving robot.
fn fault_at_once(cell: &CellConfig) -> Option<FaultKind> {
    let mut rig = Rig::new(cell);
    rig.run_until(FROM_S - 0.01);
    let decision = rig.step();
    assert!(decision.stop, "{decision:?} {:?}", rig.seen());
    decision.fault.map(|fault| fault.kind)
}

#[track_caller]
fn moves(cell: &CellConfig) {
    let (decisions, rig) = run(cell, 12);
    let last = decisions.last().unwrap();
    assert!(!last.stop && last.fault.is_none(), "{last:?} {:?}", rig.seen());
    for view in &rig.views {
        let places = &view.out.places;
        assert!(places.looked() > 200, "{places:?}: it looks at nothing");
    }
}

#[test]
fn an_empty_cell_seen_from_outside_moves() {
    moves(&standing(&[3.5]));
    moves(&standing(&[3.5, -3.5]));
}

#[test]
fn a_cloth_or_board_before_the_lens_stops_on_its_first_frame() {
    let whole = [3.0, 3.0];
    for what in [
        LensEventKind::Cloth { distance_m: 0.3, at_m: [0.0, 0.0], size_m: whole },
        LensEventKind::Board { distance_m: 0.3, at_m: [0.0, 0.0], size_m: whole },
        LensEventKind::Board { distance_m: 1.2, at_m: [0.0, 0.0], size_m: whole },
        // Over the left half, a quarter, a hand's width in the middle.
        LensEventKind::Board { distance_m: 0.3, at_m: [-0.15, 0.0], size_m: [0.3, 3.0] },
        LensEventKind::Cloth { distance_m: 0.5, at_m: [0.1, 0.1], size_m: [0.3, 0.3] },
        LensEventKind::Hand { distance_m: 0.4, at_m: [0.0, 0.0], size_m: [0.10, 0.18] },
    ] {
        let mut cell = standing(&[3.5]);
        lens(&mut cell, 0, what);
        assert_eq!(fault_at_once(&cell), Some(FaultKind::Hidden), "{what:?}");
    }
}

/// No line of sight meets the volume: nothing ends before it, and nothing is seen of it.
#[test]
fn a_camera_that_looks_away_stops() {
    let mut cell = standing(&[3.5]);
    cell.cameras[0].mount.rotation_rad = mount(-3.5).rotation_rad;
    assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden));
    scene(&mut cell, |scene| scene.people = vec![person(1.2, 0.0)]);
    assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden));
    // One that sees the robot suffices.
    let mut cell = standing(&[3.5, -3.5]);
    cell.cameras[0].mount.rotation_rad = mount(-3.5).rotation_rad;
    let (decisions, rig) = run(&cell, 12);
    assert!(!decisions.last().unwrap().stop, "{:?} {:?}", decisions.last(), rig.seen());
}

#[test]
fn people_behind_a_cloth_do_not_meet_a_moving_robot() {
    let mut cell = standing(&[3.5]);
    scene(&mut cell, |scene| scene.people = vec![person(1.0, 0.0)]);
    lens(&mut cell, 0, LensEventKind::Cloth { distance_m: 0.3, at_m: [0.0, 0.0], size_m: [3.0, 3.0] });
    let (decisions, _) = run(&cell, 20);
    assert!(decisions.iter().all(|decision| decision.stop));
}

#[test]
fn a_pallet_or_a_bystander_before_the_volume_stops() {
    for (low, high) in [([2.4, -0.6, -0.8], [2.5, 0.6, 1.2]), ([2.2, -0.2, -0.8], [2.9, 0.3, 1.0])] {
        let mut cell = standing(&[3.5]);
        scene(&mut cell, |scene| scene.blocks = vec![Block::new(Point3::from(low), Point3::from(high))]);
        assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden), "{low:?}");
    }
    for (x_m, y_m) in [(2.5, 0.0), (2.6, 0.5), (2.2, -0.4)] {
        let mut cell = standing(&[3.5]);
        scene(&mut cell, |scene| scene.people = vec![person(x_m, y_m), person(0.9, 0.0)]);
        assert!(fault_from_the_start(&cell).is_some(), "{x_m} {y_m}");
        scene(&mut cell, |scene| scene.people.truncate(1));
        assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden), "{x_m} {y_m}");
    }
}

#[test]
fn a_bystander_who_hides_nothing_of_the_volume_stops_nobody() {
    // Beside it, behind it, and before it where no line of sight goes on into the zone.
    for (x_m, y_m) in [(-3.0, 0.0), (-2.5, 1.0), (2.3, 2.6), (2.3, -3.0), (0.0, 3.5)] {
        let mut cell = standing(&[3.5]);
        scene(&mut cell, |scene| scene.people = vec![person(x_m, y_m)]);
        moves(&cell);
    }
    // A pallet that lies on the floor before it, below every line of sight into the volume.
    let mut cell = standing(&[3.5]);
    let flat = Block::new(Point3::new(2.2, -0.6, -0.8), Point3::new(3.2, 0.6, -0.65));
    scene(&mut cell, |scene| scene.blocks = vec![flat]);
    moves(&cell);
}

#[test]
fn a_wrong_depth_scale_stops_from_the_start_and_later() {
    for (factor, max_depth_mm) in [
        (0.1, 10_000),
        (0.25, 10_000),
        (0.001, 10_000),
        (10.0, 10_000),
        (10.0, 65_000),
        (2.0, 65_000),
        (2.54, 20_000),
    ] {
        let mut cell = standing(&[3.5]);
        cell.perception.health.max_depth_mm = max_depth_mm;
        moves(&cell);
        lens(&mut cell, 0, LensEventKind::Scale { factor });
        assert!(fault_at_once(&cell).is_some(), "{factor} {max_depth_mm}");
        synthetic(&mut cell, 0).flaws.events[0].from_s = 0.0;
        assert!(fault_from_the_start(&cell).is_some(), "{factor} {max_depth_mm}");
    }
    // As much as a sensor's calibration may be off.
    for factor in [0.98, 1.02] {
        let mut cell = standing(&[3.5]);
        lens(&mut cell, 0, LensEventKind::Scale { factor });
        moves(&cell);
    }
}

#[test]
fn a_greater_scale_is_named_where_the_range_would_allow_it() {
    let mut cell = standing(&[3.5]);
    cell.perception.health.max_depth_mm = 65_000;
    // A sensor that counts in quarters of a millimetre.
    lens(&mut cell, 0, LensEventKind::Scale { factor: 4.0 });
    let mut rig = Rig::new(&cell);
    rig.run_until(FROM_S - 0.01);
    assert_eq!(rig.step().fault.map(|fault| fault.kind), Some(FaultKind::WrongScale));
    assert_eq!(rig.views[0].out.health, FrameHealth::WrongScale);
}

#[test]
fn a_place_that_one_camera_sees_is_seen() {
    let board = LensEventKind::Board { distance_m: 0.5, at_m: [0.0, 0.0], size_m: [0.3, 0.4] };
    let mut cell = standing(&[3.5, -3.5]);
    lens(&mut cell, 0, board);
    let mut rig = Rig::new(&cell);
    rig.run_until(0.5);
    assert!(rig.views[0].out.places.hidden_before() > 20, "{:?}", rig.views[0].out.places);
    // Whoever stands behind the board is seen by the other camera.
    scene(&mut cell, |scene| scene.people = vec![person(0.9, 0.0)]);
    let (decisions, rig) = run(&cell, 12);
    assert!(decisions.iter().all(|decision| decision.stop));
    assert!(rig.views[1].out.nearest().unwrap().distance_m < 1.0, "{:?}", rig.seen());
    // Both covered: nobody sees it.
    scene(&mut cell, |scene| scene.people.clear());
    lens(&mut cell, 1, board);
    assert_eq!(fault_at_once(&cell), Some(FaultKind::Hidden));
}

#[test]
fn somebody_in_the_volume_who_hides_most_of_it_stops() {
    // 5.2 m before the tool. What stands in the volume there stops nobody by itself.
    let mut cell = standing(&[5.8]);
    (cell.ssm.stop_below_m, cell.ssm.reduce_below_m) = (1.2, 2.5);
    // The wall behind the robot is 11.8 m away.
    cell.perception.health.max_depth_mm = 20_000;
    cell.perception.occupancy.volume.max_m.x = 3.4;
    let wall = Block::new(Point3::new(2.2, -1.0, -0.8), Point3::new(2.3, 1.0, 1.2));
    scene(&mut cell, |scene| scene.blocks = vec![wall]);
    assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden));
    // A person hides less than the allowed share: the robot is slow for that person.
    scene(&mut cell, |scene| {
        scene.blocks.clear();
        scene.people = vec![person(2.0, 0.7)];
    });
    let (decisions, rig) = run(&cell, 12);
    let last = decisions.last().unwrap();
    assert!(!last.stop && last.speed_fraction < 1.0, "{last:?} {:?}", rig.seen());
    assert!(rig.views[0].out.places.hidden_within() > 5, "{:?}", rig.views[0].out.places);
    // Near the lens a person hides more than that, in the volume or not.
    cell.perception.occupancy.volume.max_m.x = 5.7;
    scene(&mut cell, |scene| scene.people = vec![person(4.8, 0.0)]);
    assert_eq!(fault_from_the_start(&cell), Some(FaultKind::Hidden));
}

#[test]
fn a_strip_that_hides_a_person_stops_wherever_it_hangs() {
    // 0.06 m wide at 0.5 m before the lens: 0.35 m at the tool, as wide as somebody from the side.
    for place in -4..=4 {
        let at_m = [f64::from(place) * 0.02, 0.0];
        for what in [
            LensEventKind::Board { distance_m: 0.5, at_m, size_m: [0.06, 3.0] },
            LensEventKind::Cloth { distance_m: 0.5, at_m: [at_m[1], at_m[0]], size_m: [3.0, 0.06] },
        ] {
            let mut cell = standing(&[3.5]);
            lens(&mut cell, 0, what);
            assert_eq!(fault_at_once(&cell), Some(FaultKind::Hidden), "{what:?}");
        }
    }
    // A cable.
    let mut cell = standing(&[3.5]);
    lens(&mut cell, 0, LensEventKind::Board { distance_m: 1.2, at_m: [0.0, 0.0], size_m: [0.01, 3.0] });
    moves(&cell);
}

#[test]
fn something_within_the_volume_that_stays_stops_and_a_passer_by_does_not() {
    // Far from the tool and from the lens: it slows nobody down and hides a few places.
    let apart = |max_hidden_s: f32| {
        let mut cell = standing(&[5.8]);
        (cell.ssm.stop_below_m, cell.ssm.reduce_below_m) = (1.2, 1.5);
        cell.perception.health.max_depth_mm = 20_000;
        cell.perception.occupancy.volume.max_m.x = 3.4;
        cell.perception.unseen.max_hidden_s = max_hidden_s;
        cell
    };
    let mut cell = apart(0.5);
    let post = Block::new(Point3::new(2.3, -0.2, -0.8), Point3::new(2.4, 0.05, 0.7));
    scene(&mut cell, |scene| scene.blocks = vec![post]);
    let (decisions, rig) = run(&cell, 12);
    assert!(decisions.last().unwrap().speed_fraction > 0.99, "{:?} {:?}", decisions.last(), rig.seen());
    assert!(rig.views[0].out.places.hidden_within() > 5, "{:?}", rig.views[0].out.places);
    let (decisions, _) = run(&cell, 20);
    assert_eq!(decisions.last().unwrap().fault.map(|fault| fault.kind), Some(FaultKind::Hidden));
    // Somebody walks across.
    let mut cell = apart(1.5);
    scene(&mut cell, |scene| scene.people = vec![PersonConfig::walking(0, &[[2.2, 1.8], [2.2, -1.8]])]);
    let (decisions, _) = run(&cell, 75);
    let faults: Vec<_> = decisions.iter().filter_map(|decision| decision.fault).collect();
    assert!(faults.iter().all(|fault| fault.kind != FaultKind::Hidden), "{faults:?}");
}

#[test]
fn a_robot_whose_numbers_cannot_be_does_not_move() {
    type Change = fn(&mut takt_link_rtde::RobotState);
    let cases: [(Change, FaultKind); 8] = [
        (|robot| robot.tcp_pose[0] = 50.0, FaultKind::RobotImpossible),
        (|robot| robot.tcp_pose[2] = 1e308, FaultKind::RobotImpossible),
        (|robot| robot.tcp_pose[1] = -2.8, FaultKind::RobotImpossible),
        (|robot| robot.tcp_pose[4] = 300.0, FaultKind::RobotImpossible),
        (|robot| robot.joints_rad[5] = 1e9, FaultKind::RobotImpossible),
        (|robot| robot.joint_speeds_rad_s[0] = 100.0, FaultKind::RobotImpossible),
        (|robot| robot.tcp_speed[0] = 1e308, FaultKind::RobotImpossible),
        // All arms with every joint at 0 reach along -x.
        (|robot| robot.tcp_pose[0] = 2.5, FaultKind::RobotPoseNotOfJoints),
    ];
    for (change, kind) in cases {
        let mut rig = Rig::new(&standing(&[3.5]));
        rig.run_until(FROM_S);
        change(&mut rig.robot);
        let decision = rig.step();
        assert_eq!((decision.stop, decision.fault.map(|fault| fault.kind)), (true, Some(kind)));
    }
}

#[test]
fn a_floor_above_the_base_a_camera_below_it_and_a_fixture_in_the_robot_are_refused() {
    type Change = fn(&mut CellConfig);
    let fixture = |low: [f32; 3], high: [f32; 3]| StaticBox {
        name: "table".into(),
        min_m: low.into(),
        max_m: high.into(),
        without_depth: false,
    };
    let mut cell = standing(&[3.5]);
    cell.perception.occupancy.static_boxes = vec![fixture([-0.6, -0.6, -0.8], [0.6, 0.6, 0.02])];
    cell.validate().unwrap();
    cell.perception.occupancy.static_boxes = vec![fixture([-1.4, -1.4, -0.8], [1.4, 1.4, 1.4])];
    let error = cell.validate().unwrap_err().to_string();
    assert!(error.contains("static_boxes, \"table\"") && error.contains("robot itself"), "{error}");
    let cases: [(Change, &str); 4] = [
        (|cell| cell.perception.occupancy.floor_m = 0.5, "occupancy.floor_m"),
        (|cell| cell.perception.occupancy.floor_m = 0.95, "occupancy.floor_m"),
        (|cell| cell.cameras[0].mount.position_m[2] = -0.9, "mount.position_m, height"),
        (|cell| cell.cameras[0].mount.position_m[2] = -50.0, "mount.position_m, height"),
    ];
    for (change, key) in cases {
        let mut cell = standing(&[3.5]);
        change(&mut cell);
        let error = cell.validate().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
