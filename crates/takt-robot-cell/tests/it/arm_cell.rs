//! The running cell with its own arm in view: judged by the simulated controller, which moves or
//! does not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use takt_link_camera::synthetic::Solid;
use takt_link_camera::{CameraConfig, SyntheticConfig};
use takt_perception::{Capsule, Mount, MountFrame};
use takt_robot_cell::CellConfig;
use takt_robot_cell::config::CellCamera;

use support::{Running, alone, config, set_people};

/// One camera of the ring, and one that stands in the cell and looks at the arm.
fn arm_in_view() -> CellConfig {
    let mut config = config(2);
    config.cameras[1] = CellCamera {
        name: "corner".into(),
        // At (1.6, 1.4, 1.3) m, looking at the arm's middle.
        mount: Mount {
            frame: MountFrame::Base,
            position_m: [1.6, 1.4, 1.3],
            rotation_rad: [-0.939047, -2.160952, 1.350753],
        },
        ..config.cameras[1].clone()
    };
    set_people(&mut config, &[]);
    config.robot.simulator.as_mut().expect("a simulated robot").drawn = true;
    for camera in &mut config.cameras {
        let scene = scene_of(camera);
        // Every wall within what the sensor measures: what is beyond is unseen, and no matter here.
        (scene.scene.room_x_m, scene.scene.room_y_m) = ([-5.0, 5.0], [-5.0, 5.0]);
    }
    config
}

fn scene_of(camera: &mut CellCamera) -> &mut SyntheticConfig {
    let CameraConfig::Synthetic(scene) = &mut camera.source else { panic!("a synthetic camera") };
    scene
}

/// Moves of one round of the shipped mission, and one more.
const MOVES: u64 = 8;

#[test]
#[ignore = "takes 15 s"]
fn with_nobody_near_the_mission_is_never_interrupted_by_the_arm() {
    let _alone = alone();
    let mut running = Running::start(&arm_in_view());
    running.until("the robot moves", 0, |cell, _| cell.simulator().unwrap().state().moves_finished > 0);
    let from = running.jobs.len();
    running.until("a round of the mission is done", from, |cell, _| {
        cell.simulator().unwrap().state().moves_finished > MOVES
    });
    let robot = running.robot();
    let jobs = running.jobs[from..].to_vec();
    let nearest = jobs.iter().map(|job| job.decision.separation_m).fold(f64::INFINITY, f64::min);
    println!("{} moves, {:.1} m of way; nearest thing {nearest} m", robot.moves_finished, robot.tcp_way_m);
    assert!(jobs.iter().all(|job| !job.decision.breach), "the arm was taken for somebody at {nearest} m");
    assert!(robot.tcp_way_m > 2.0, "{robot:?}");
    running.stop();
}

#[test]
fn without_its_shape_an_arm_in_view_never_moves() {
    let _alone = alone();
    let mut config = arm_in_view();
    config.robot.shape = None;
    config.perception.occupancy.robot = vec![Capsule::tool()];
    let mut running = Running::start(&config);
    running.until("both cameras are judged", 0, |_, jobs| {
        jobs.last().is_some_and(|job| job.decision.separation_m.is_finite())
    });
    let way_m = running.robot().tcp_way_m;
    let jobs = running.more_jobs(1500).to_vec();
    let robot = running.robot();
    println!("{} jobs: {} moves, {:.3} m of way", jobs.len(), robot.moves_finished, robot.tcp_way_m - way_m);
    assert!(jobs.iter().all(|job| job.decision.stop));
    assert!(robot.moves_finished == 0 && robot.tcp_way_m - way_m < 0.05, "{robot:?}");
    running.stop();
}

#[test]
fn a_hand_at_the_forearm_stops_the_running_robot() {
    let _alone = alone();
    let mut config = arm_in_view();
    // 100 mm beside the forearm of the first pose, towards the camera in the corner.
    let hand = Solid::new([0.23, 0.15, 0.79].into(), [0.33, 0.15, 0.79].into(), 0.045);
    scene_of(&mut config.cameras[1]).scene.solids = vec![hand];
    let mut running = Running::start(&config);
    running.until("frames are judged", 0, |_, jobs| {
        jobs.last().is_some_and(|job| job.decision.separation_m.is_finite())
    });
    let jobs = running.more_jobs(500).to_vec();
    assert!(jobs.iter().all(|job| job.decision.breach && job.decision.stop), "{:#?}", jobs.last());
    assert_eq!(running.robot().moves_finished, 0);
    running.stop();
}
