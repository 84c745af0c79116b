//! The stream against the simulated controller as a process of its own, judged by the controller's
//! own log.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::support;

use std::time::Duration;

use support::{Controller, config, followed, streamed, wait_for};
use takt_link_rtde::RtdeError;
use takt_link_rtde::servo::{ProgramState, ServoLink};
use takt_robot_servo::config::{LimitsConfig, Pacing};
use takt_robot_servo::controller_log::view;
use takt_robot_servo::monitor::StopReason;
use takt_robot_servo::motion::Targets;
use takt_robot_servo::run::Phase;
use takt_robot_servo::{ServoError, start_with};
use takt_rt::ring::ring;

#[test]
fn the_arm_follows_a_stream_and_both_sides_of_the_wire_agree() {
    let _alone = crate::support::alone();
    for pacing in [Pacing::Locked, Pacing::Free] {
        let controller = Controller::start();
        let mut config = config(&controller);
        config.task.pacing = pacing;
        let (finished, cycles) = streamed(&config, Duration::from_secs(4));
        assert_eq!((finished.reason, finished.at_rest), (StopReason::Asked, true), "{pacing:?}");
        assert_eq!(finished.records_lost, 0);
        assert_eq!(finished.allocations, 0, "{pacing:?}: the loop allocates nothing");
        // The end of the stream is in the log, too.
        let rows = wait_for("the end in the log", || {
            let rows = controller.log();
            rows.last().is_some_and(|row| row.program == ProgramState::Asked).then_some(rows)
        });
        let view = view(&rows, 500.0);
        eprintln!("{pacing:?}: {view:?}\n{:?}", finished.totals);
        // A second or more: the machine may be slow, and the beginning takes its time.
        assert!(view.cycles > 500, "{view:?}");
        // What the program itself has counted and what its controller's log shows is one thing.
        assert_eq!(
            u64::try_from(finished.missed).unwrap(),
            followed(&rows, |row| row.missed).into_iter().max().unwrap() as u64
        );
        assert!(view.without_command <= finished.missed as u64, "{view:?} {finished:?}");
        // Every target that the controller followed is one that was planned, in the same order.
        let arm_moves = followed(&rows, |row| row.joints_rad[0]);
        let (low, high) =
            arm_moves.iter().fold((f64::MAX, f64::MIN), |(low, high), q| (low.min(*q), high.max(*q)));
        assert!(high - low > 0.05, "{low} to {high} rad: the base joint has moved");
        // Behind by lookahead_time: amplitude 0.2 rad at 0.5 Hz makes at most 0.63 rad/s, 0.1 s of
        // it 0.063 rad.
        assert!(view.following_max_rad > 0.01 && view.following_max_rad < 0.1, "{view:?}");
        let ours = finished.totals.following_max_rad;
        assert!(ours > 0.01 && ours < 0.2, "{ours}");
        let counts: Vec<_> =
            cycles.iter().filter(|cycle| cycle.sent_ns > 0).map(|cycle| cycle.count).collect();
        assert!(
            counts.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)),
            "no count twice, none left out"
        );
        assert!(cycles.iter().all(|cycle| cycle.end_ns >= cycle.wake_ns));
        let total = finished.totals;
        assert!(total.cycles > 500 && total.period.count > 400);
        assert_eq!(total.lateness.count, total.cycles);
    }
}

/// A motion that jumps after a while.
struct Jumps {
    at_s: f64,
    by_rad: f64,
}

impl Targets for Jumps {
    fn at(&mut self, time_s: f64, start_rad: &[f64; 6]) -> [f64; 6] {
        let mut target = *start_rad;
        if time_s > self.at_s {
            target[3] += self.by_rad;
        }
        target
    }
}

#[test]
fn a_jump_is_not_sent_and_the_arm_stops() {
    let _alone = crate::support::alone();
    for by_rad in [0.5, f64::NAN] {
        let controller = Controller::start();
        let config = config(&controller);
        let (producer, _records) = ring(1 << 12);
        let running = start_with(&config, Jumps { at_s: 0.5, by_rad }, producer).unwrap();
        let finished = running.wait().unwrap();
        assert!(matches!(finished.reason, StopReason::Jump { joint: 3, .. }), "{:?}", finished.reason);
        assert!(finished.at_rest);
        let rows = wait_for("the program to be asked to stop", || {
            let rows = controller.log();
            rows.iter().any(|row| row.program == ProgramState::Asked).then_some(rows)
        });
        let start = rows[0].joints_rad[3];
        assert!(
            rows.iter().all(|row| (row.joints_rad[3] - start).abs() < 1e-3),
            "the jump never reached the arm"
        );
    }
}

#[test]
fn a_frozen_sender_is_stopped_by_the_robots_own_program_within_its_time() {
    let _alone = crate::support::alone();
    let controller = Controller::start();
    let mut sender = support::sender(&controller, 60.0);
    wait_for("the arm to move", || {
        let rows = controller.log();
        rows.last()
            .is_some_and(|row| row.program == ProgramState::Following && row.joint_speed_rad_s > 0.1)
            .then_some(())
    });
    support::signal(&sender, libc::SIGSTOP);
    let rows = wait_for("the program to stop the arm", || {
        let rows = controller.log();
        rows.last()
            .is_some_and(|row| row.program == ProgramState::Silent && row.joint_speed_rad_s == 0.0)
            .then_some(rows)
    });
    let stopped = rows.iter().position(|row| row.program == ProgramState::Silent).unwrap();
    let last_count = rows[stopped].count;
    let received = rows.iter().rposition(|row| row.count != last_count).unwrap() + 1;
    // Each row after it is one cycle in which the program could have received something.
    let waited = stopped - received;
    assert_eq!(waited as i32, support::SILENT_CYCLES, "cycles of silence, by the controller's own log");
    let fast = rows[stopped].joint_speed_rad_s;
    let rest = rows[stopped..].iter().position(|row| row.joint_speed_rad_s == 0.0).unwrap();
    let cycles: u64 = rows[stopped..stopped + rest].iter().map(|row| row.steps).sum();
    // stopj: 4 rad/s2.
    assert!(cycles as f64 * 0.002 <= fast / 4.0 + 0.01, "{cycles} cycles from {fast} rad/s");
    // Awake again it must not go on: nobody has pressed play.
    let at = rows.last().unwrap().joints_rad;
    support::signal(&sender, libc::SIGCONT);
    let status = sender.0.wait().unwrap();
    assert!(status.success());
    assert_eq!(controller.log().last().unwrap().joints_rad, at, "the arm moved after it was stopped");
    let reported = std::mem::take(&mut *sender.1.lock().unwrap());
    assert!(
        reported.contains("\"kind\": \"stale\"")
            || reported.contains("\"kind\": \"skipped\"")
            || reported.contains("\"kind\": \"program"),
        "{reported}"
    );
}

#[test]
fn a_killed_sender_leaves_an_arm_at_rest() {
    let _alone = crate::support::alone();
    let controller = Controller::start();
    let mut sender = support::sender(&controller, 60.0);
    wait_for("the arm to move", || {
        controller.log().last().is_some_and(|row| row.joint_speed_rad_s > 0.1).then_some(())
    });
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    wait_for("the arm to rest", || {
        let rows = controller.log();
        rows.last()
            .is_some_and(|row| row.program == ProgramState::Silent && row.joint_speed_rad_s == 0.0)
            .then_some(())
    });
}

#[test]
fn an_owned_register_is_an_error_that_names_it() {
    let _alone = crate::support::alone();
    let controller = Controller::start();
    let config = config(&controller);
    let first = ServoLink::open(&config.link).unwrap();
    let (producer, _records) = ring(16);
    let error = takt_robot_servo::start(&config, producer).unwrap_err();
    assert!(
        matches!(&error, ServoError::Link(RtdeError::InUse { name }) if name == "input_int_register_24"),
        "{error}"
    );
    drop(first);
}

#[test]
fn limits_that_the_lag_of_servoj_would_break_are_refused_by_name() {
    let _alone = crate::support::alone();
    let controller = Controller::start();
    let mut config = config(&controller);
    config.limits = LimitsConfig { following_error_rad: 0.05, ..config.limits };
    let (producer, _records) = ring(16);
    let error = takt_robot_servo::start(&config, producer).unwrap_err().to_string();
    assert!(error.contains("limits.following_error_rad") && error.contains("servoj.lookahead_s"), "{error}");
}

#[test]
fn the_program_has_to_wait_for_the_stream() {
    let _alone = crate::support::alone();
    let controller = Controller::start();
    let mut config = config(&controller);
    config.link.connect_timeout_ms = 500;
    let (producer, _records) = ring(1 << 12);
    let running = takt_robot_servo::start(&config, producer).unwrap();
    wait_for("the stream", || (running.phase() == Phase::Streaming).then_some(()));
    assert_eq!(running.stop().unwrap().reason, StopReason::Asked);
    // The program has ended with the first stream.
    let (producer, _records) = ring(16);
    let error = takt_robot_servo::start(&config, producer).unwrap_err();
    assert!(matches!(error, ServoError::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("press play"), "{error}");
}
