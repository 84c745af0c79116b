//! The arm does not see itself, and a hand beside it is seen.
//!
//! The scene draws the arm as it truly is at the moment of exposure: links that differ from the
//! capsules that leave it out, on an arm whose calibration is not the nominal one, with noise on
//! the depth. What the cell believes of the robot comes from the states that its link delivers,
//! late by a given time. The mission is the demonstration's.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::arm_scene;

use arm_scene::{HAND_REACH_M, Moment, Rig, State};
use takt_link_rtde::kinematics::Body;
use takt_robot_cell::arm::ShapeConfig;

/// Samples of the mission, seconds apart: not a divisor of anything.
const STEP_S: f64 = 0.1237;

/// The whole mission, nobody there, five cameras around and five on the tool: whatever is seen is
/// the arm.
#[test]
#[ignore = "takes 35 s"]
fn through_the_whole_mission_the_arm_is_never_somebody() {
    let mut rig = Rig::new(|_| ());
    let mut judged = 0;
    for moment in rig.moments(STEP_S) {
        // The state is right, wrong by as much as is configured, or the newest for a while.
        for (late_ms, held_ms) in [(0.0, 0.0), (-14.0, 0.0), (14.0, 0.0), (14.0, 25.0)] {
            let state = State { late_ms, held_ms };
            for camera in 0..rig.cameras() {
                let seen = rig.look(camera, &moment, state, None);
                let time_s = moment.t_s;
                assert!(seen.is_nobody(), "camera {camera}, {time_s:.2} s, {state:?}: {seen:?}");
                judged += usize::from(seen.arm_samples > 30);
            }
        }
    }
    assert!(judged > 1000, "the arm must be in view: {judged} frames showed it");
}

/// The same without what makes it hold: the test above must be able to fail.
#[test]
#[ignore = "takes 15 s"]
fn without_margin_growth_or_shape_the_arm_is_somebody() {
    type Change = fn(&mut ShapeConfig);
    let no_margin: Change =
        |shape| (shape.margin_m, shape.depth_noise_m, shape.time_error_ms) = (0.0, 0.0, 0.0);
    let no_growth: Change = |shape| (shape.time_error_ms, shape.joint_acceleration_rad_s2) = (0.0, 0.0);
    let growth: Change = |shape| shape.time_error_ms = 90.0;
    let very_late = State { late_ms: 88.0, held_ms: 0.0 };
    for (what, change, state, expected) in [
        ("no margin", no_margin, State::default(), true),
        ("88 ms late, no growth with speed", no_growth, very_late, true),
        ("88 ms late, growth for 90 ms", growth, very_late, false),
    ] {
        let mut rig = Rig::new(change);
        let moments = rig.moments(2.0 * STEP_S);
        let somebody = moments
            .iter()
            .filter(|moment| {
                (0..rig.cameras()).any(|camera| !rig.look(camera, moment, state, None).is_nobody())
            })
            .count();
        eprintln!("{what}: the arm is somebody at {somebody} of {} moments", moments.len());
        assert_eq!(somebody > 0, expected, "{what}");
    }
    // As before this issue: only the tool's capsule is left out.
    let mut rig = Rig::new(|_| ());
    rig.forget_the_arm();
    let moments = rig.moments(4.0 * STEP_S);
    for moment in &moments {
        let nearest = (0..rig.cameras())
            .map(|camera| rig.look(camera, moment, State::default(), None).nearest_m)
            .fold(f32::INFINITY, f32::min);
        assert!(nearest < 1.4, "an arm in view stops itself at every moment: {nearest} m");
    }
    eprintln!("no shape: the arm stops itself at {0} of {0} moments", moments.len());
}

/// A hand beside every link, at rest and at the mission's speed: it stops the robot, and from which
/// distance on.
#[test]
#[ignore = "takes 25 s"]
fn a_hand_beside_every_link_stops() {
    let mut rig = Rig::new(|_| ());
    let moments = rig.moments(STEP_S);
    let fastest = moments.iter().max_by(|a, b| a.tip_speed().total_cmp(&b.tip_speed())).copied().unwrap();
    let still = moments.iter().find(|moment| moment.tip_speed() == 0.0).copied().unwrap();
    eprintln!("| link | at rest | at mission speed |\n|---|---|---|");
    for link in 0..Body::NAMES.len() {
        let mut row = [0.0; 2];
        for (least, moment) in row.iter_mut().zip([still, fastest]) {
            *least = least_distance(&mut rig, link, &moment);
        }
        eprintln!("| {} | {:.0} mm | {:.0} mm |", Body::NAMES[link], row[0] * 1e3, row[1] * 1e3);
        assert!(row.iter().all(|least| *least <= HAND_REACH_M), "{}: {row:?}", Body::NAMES[link]);
    }
}

/// The least gap between hand and link from which on, at every larger gap, the robot stops: the
/// worst of the places around the link that a camera can see.
fn least_distance(rig: &mut Rig, link: usize, moment: &Moment) -> f64 {
    let places = rig.hands(link, moment);
    assert!(!places.is_empty(), "no camera sees {}", Body::NAMES[link]);
    let mut worst: f64 = 0.0;
    for (place, cameras) in places {
        let gaps = (0..=12).rev().map(|step| HAND_REACH_M * f64::from(step) / 12.0);
        let blind = gaps.into_iter().find(|&gap| {
            let hand = rig.hand(link, place, gap, moment);
            !cameras.iter().any(|&camera| rig.look(camera, moment, State::default(), Some(hand)).stops())
        });
        worst = worst.max(blind.map_or(0.0, |gap| gap + HAND_REACH_M / 12.0));
    }
    worst
}
