//! The monitor against every kind of input it may meet: clear fields, people, faults, garbage.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use proptest::prelude::*;
use takt_link_rtde::arm::registers as reg;
use takt_link_rtde::client::SendOutcome;
use takt_link_rtde::{RobotMode, RobotState, SafetyMode};
use takt_perception::{Detections, FrameHealth, Object};
use takt_robot_cell::ssm::{CameraInput, Decision, FaultKind, Inputs, Light, Monitor, SsmConfig, SsmMode};

const PERIOD_NS: u64 = 2_000_000;
const CAMERAS: usize = 5;

fn ok() -> Detections {
    let mut detections = Detections::default();
    detections.health = FrameHealth::Ok;
    detections
}

/// A cell whose inputs are good unless a test spoils them.
struct Cell {
    monitor: Monitor,
    now_ns: u64,
    detections: Vec<Detections>,
    alive: Vec<bool>,
    robot: RobotState,
    frozen_cameras: bool,
    frozen_robot: bool,
    heartbeat: i32,
}

impl Cell {
    fn new(config: SsmConfig) -> Self {
        Self {
            monitor: Monitor::new(config, CAMERAS).unwrap(),
            now_ns: 1_000_000_000_000,
            detections: vec![ok(); CAMERAS],
            alive: vec![true; CAMERAS],
            robot: RobotState { sequence: 1, ..RobotState::running() },
            frozen_cameras: false,
            frozen_robot: false,
            heartbeat: 1000,
        }
    }

    fn person(&mut self, camera: usize, distance_m: f32) {
        self.detections[camera].clear();
        self.detections[camera].insert(Object { distance_m, ..Object::default() });
    }

    fn nobody(&mut self) {
        self.detections.iter_mut().for_each(Detections::clear);
    }

    fn decide(&mut self) -> Decision {
        let cameras: Vec<_> = self
            .detections
            .iter()
            .zip(&self.alive)
            .map(|(detections, &alive)| CameraInput { detections, alive })
            .collect();
        let decision = self.monitor.decide(&Inputs {
            now_ns: self.now_ns,
            cameras: &cameras,
            robot: &self.robot,
            measured_worst_s: 0.0,
        });
        self.heartbeat += 1;
        let (beat, challenge) = (self.heartbeat, self.challenge());
        self.monitor.commanded(beat, challenge, decision.speed_fraction, self.now_ns, SendOutcome::Sent);
        decision
    }

    fn challenge(&self) -> i32 {
        1 + self.heartbeat / 256
    }

    /// One SSM period: new frames, new robot packet (unless frozen), one decision.
    fn step(&mut self) -> Decision {
        self.now_ns += PERIOD_NS;
        if !self.frozen_cameras {
            for detections in &mut self.detections {
                detections.frame_sequence += 1;
                detections.capture_ns = self.now_ns - PERIOD_NS;
            }
        }
        if !self.frozen_robot {
            self.robot.sequence += 1;
            self.robot.received_ns = self.now_ns - PERIOD_NS / 2;
            self.robot.measured_ns = self.robot.received_ns;
            let received_ns = self.robot.received_ns;
            (self.robot.heartbeat_echo, self.robot.heartbeat_echo_ns) = (self.heartbeat, received_ns);
            (self.robot.script_echo, self.robot.script_echo_ns) = (self.heartbeat, received_ns);
            self.robot.script_answer = reg::answer(self.challenge());
            self.robot.script_guard = reg::GUARD_ARMED;
        }
        self.decide()
    }

    fn run(&mut self, seconds: f64) -> Decision {
        let steps = (seconds * 1e9 / PERIOD_NS as f64).ceil() as u64;
        (0..steps).map(|_| self.step()).last().expect("at least one step")
    }

    fn running() -> Self {
        let mut cell = Self::new(SsmConfig::default());
        let decision = cell.run(2.0);
        assert_eq!((decision.speed_fraction, decision.light), (1.0, Light::Green));
        cell
    }
}

#[test]
fn starts_stopped_and_moves_only_after_recovery_and_hold() {
    let mut cell = Cell::new(SsmConfig::default());
    let first = cell.step();
    // Nothing was commanded yet, so nothing has come back.
    assert!(first.stop && first.light == Light::Red);
    assert_eq!(first.fault.map(|fault| fault.kind), Some(FaultKind::HeartbeatNotEchoed));
    assert!(cell.step().recovering);
    assert!(cell.run(0.9).stop);
    assert_eq!(cell.run(1.0).light, Light::Green);
}

#[test]
fn thresholds_of_the_paper() {
    let mut cell = Cell::running();
    cell.person(2, 2.4);
    let slow = cell.step();
    assert_eq!((slow.light, slow.nearest_camera), (Light::Orange, Some(2)));
    assert_eq!(slow.speed_fraction, SsmConfig::default().reduced_speed);
    cell.person(2, 1.39);
    let stop = cell.step();
    assert!(stop.stop && stop.breach && stop.light == Light::Red);
}

#[test]
fn a_breach_stops_within_the_job_that_sees_it() {
    for mode in [SsmMode::Fixed, SsmMode::SpeedDependent] {
        let mut cell = Cell::new(SsmConfig { mode, ..SsmConfig::default() });
        assert!(!cell.run(2.0).stop);
        cell.robot.tcp_speed = [0.9, 0.0, 0.0, 0.0, 0.0, 0.0];
        cell.person(4, 1.2);
        let decision = cell.step();
        assert!(decision.breach && decision.stop, "{mode:?}: {decision:?}");
    }
}

#[test]
fn hysteresis_does_not_flap() {
    let mut cell = Cell::running();
    let mut changes = 0;
    let mut last = Light::Green;
    for step in 0..3000 {
        // A person stands on the reduce threshold; the distance wobbles by less than the
        // hysteresis.
        cell.person(0, 2.5 + if step % 2 == 0 { 0.06 } else { -0.06 });
        let light = cell.step().light;
        changes += u32::from(light != last);
        last = light;
    }
    assert_eq!((changes, last), (1, Light::Orange));
    cell.nobody();
    assert_eq!(cell.run(0.4).light, Light::Orange, "speeds up only after the hold time");
    assert_eq!(cell.run(0.2).light, Light::Green);
}

#[test]
fn speed_follows_the_separation_and_never_breaches_by_itself() {
    let mut cell = Cell::new(SsmConfig { mode: SsmMode::SpeedDependent, ..SsmConfig::default() });
    cell.run(2.0);
    let mut last = 1.0;
    for centimetres in (60..400).rev() {
        cell.person(1, centimetres as f32 / 100.0);
        // The robot follows the slider.
        cell.robot.tcp_speed = [last, 0.0, 0.0, 0.0, 0.0, 0.0];
        let decision = cell.step();
        assert!(decision.speed_fraction <= last);
        assert!(decision.stop || !decision.breach, "{decision:?}");
        last = decision.speed_fraction;
    }
    assert_eq!(last, 0.0);
}

#[test]
fn measured_reaction_time_widens_the_distance() {
    let mut cell = Cell::new(SsmConfig { mode: SsmMode::SpeedDependent, ..SsmConfig::default() });
    cell.run(2.0);
    let near = cell.step().stop_distance_m;
    let cameras: Vec<_> =
        cell.detections.iter().map(|detections| CameraInput { detections, alive: true }).collect();
    let far = cell.monitor.clone().decide(&Inputs {
        now_ns: cell.now_ns,
        cameras: &cameras,
        robot: &cell.robot,
        measured_worst_s: 0.6,
    });
    // 0.6 s to the command, a round trip and a state's age of 1 ms each, 0.01 s of the controller;
    // 0.245 s are tolerated.
    let longer_s = 0.6 + 0.002 + 0.01 - 0.245;
    assert!((far.stop_distance_m - near - 1.6 * longer_s).abs() < 1e-9, "{} {near}", far.stop_distance_m);
}

/// Spoils a running cell in one way.
type Spoil = fn(&mut Cell);

#[test]
fn every_fault_stops_at_once_is_named_and_needs_fresh_data_to_recover() {
    let spoils: [(FaultKind, Spoil, Spoil); 20] = [
        (FaultKind::PerceptionDead, |c| c.alive[3] = false, |c| c.alive[3] = true),
        (FaultKind::NoFrame, |c| c.detections[1].health = FrameHealth::NoFrame, all_ok),
        (FaultKind::EmptyColour, |c| c.detections[1].health = FrameHealth::EmptyColour, all_ok),
        (FaultKind::EmptyDepth, |c| c.detections[1].health = FrameHealth::EmptyDepth, all_ok),
        (FaultKind::ImpossibleDepth, |c| c.detections[1].health = FrameHealth::ImpossibleDepth, all_ok),
        (FaultKind::WrongSize, |c| c.detections[1].health = FrameHealth::WrongSize, all_ok),
        (FaultKind::NoPose, |c| c.detections[1].health = FrameHealth::NoPose, all_ok),
        (FaultKind::InferenceFailed, |c| c.detections[1].health = FrameHealth::InferenceFailed, all_ok),
        (FaultKind::Frozen, |c| c.detections[1].health = FrameHealth::Frozen, all_ok),
        (FaultKind::StreamsApart, |c| c.detections[1].health = FrameHealth::StreamsApart, all_ok),
        (FaultKind::SequenceRepeated, |c| c.detections[1].health = FrameHealth::SequenceRepeated, all_ok),
        (FaultKind::ImpossibleDistance, |c| c.person(0, f32::NAN), Cell::nobody),
        (FaultKind::ImpossibleDistance, |c| c.person(0, -1.0), Cell::nobody),
        (FaultKind::ImpossibleDistance, |c| c.person(0, f32::INFINITY), Cell::nobody),
        (FaultKind::RobotLinkLost, |c| c.robot.connected = false, |c| c.robot.connected = true),
        (
            FaultKind::RobotNotRunning,
            |c| c.robot.robot_mode = RobotMode::Idle,
            |c| c.robot.robot_mode = RobotMode::Running,
        ),
        (
            FaultKind::RobotSafetyMode,
            |c| c.robot.safety_mode = SafetyMode::ProtectiveStop,
            |c| c.robot.safety_mode = SafetyMode::Normal,
        ),
        (
            FaultKind::RobotSafetyMode,
            |c| c.robot.safety_mode = SafetyMode::Unknown,
            |c| c.robot.safety_mode = SafetyMode::Normal,
        ),
        (FaultKind::ProgramStopped, |c| c.robot.program_running = false, |c| c.robot.program_running = true),
        (FaultKind::RobotNotANumber, |c| c.robot.tcp_speed[0] = f64::NAN, |c| c.robot.tcp_speed[0] = 0.0),
    ];
    for (kind, spoil, mend) in spoils {
        let mut cell = Cell::running();
        spoil(&mut cell);
        let decision = cell.step();
        assert_eq!(decision.fault.map(|f| f.kind), Some(kind));
        assert!(decision.stop && decision.light == Light::Red, "{kind:?}");
        mend(&mut cell);
        assert!(cell.run(0.9).stop, "{kind:?}: moved before the recovery time");
        assert!(!cell.run(1.0).stop, "{kind:?}: did not recover");
    }
}

fn all_ok(cell: &mut Cell) {
    cell.detections.iter_mut().for_each(|d| d.health = FrameHealth::Ok);
}

#[test]
fn stale_frames_stop_when_the_limit_passes_and_old_frames_do_not_recover() {
    let mut cell = Cell::running();
    cell.frozen_cameras = true;
    let limit = SsmConfig::default().stale_after_ms;
    let mut jobs = 0;
    let fault = loop {
        jobs += 1;
        if let Some(fault) = cell.step().fault {
            break fault;
        }
    };
    assert_eq!(fault.kind, FaultKind::StaleFrame);
    let age_ms = (cell.now_ns - cell.detections[0].capture_ns) as f64 / 1e6;
    assert!(age_ms > limit && age_ms <= limit + 2.0, "{age_ms} after {jobs} jobs");
    // Only four of five cameras come back: still stopped.
    for _ in 0..1500 {
        cell.now_ns += PERIOD_NS;
        cell.robot.received_ns = cell.now_ns;
        for detections in &mut cell.detections[..4] {
            detections.frame_sequence += 1;
            detections.capture_ns = cell.now_ns;
        }
        assert!(cell.decide().stop);
    }
    cell.frozen_cameras = false;
    assert!(!cell.run(2.0).stop);
}

#[test]
fn clocks_that_lie_stop_the_robot() {
    let mut cell = Cell::running();
    cell.step();
    cell.detections[2].capture_ns = cell.now_ns + 3_000_000;
    assert_eq!(cell.decide().fault.map(|f| (f.kind, f.camera)), Some((FaultKind::FutureFrame, Some(2))));

    let mut cell = Cell::running();
    cell.detections[2].frame_sequence -= 7;
    assert_eq!(cell.step().fault.map(|f| f.kind), Some(FaultKind::SequenceBackwards));

    let mut cell = Cell::running();
    cell.frozen_robot = true;
    assert_eq!(cell.run(0.1).fault.map(|f| f.kind), Some(FaultKind::RobotLinkLost));

    let mut cell = Cell::running();
    cell.robot.received_ns = u64::MAX;
    cell.frozen_robot = true;
    assert_eq!(cell.step().fault.map(|f| f.kind), Some(FaultKind::RobotFutureDated));
}

#[test]
fn a_missing_camera_is_a_fault() {
    let mut monitor = Monitor::new(SsmConfig::default(), CAMERAS).unwrap();
    let cell = Cell::running();
    let cameras: Vec<_> =
        cell.detections[..4].iter().map(|detections| CameraInput { detections, alive: true }).collect();
    let decision = monitor.decide(&Inputs {
        now_ns: cell.now_ns,
        cameras: &cameras,
        robot: &cell.robot,
        measured_worst_s: 0.0,
    });
    assert!(decision.stop && decision.fault.is_some());
}

#[test]
fn impossible_configurations_name_the_key() {
    for (config, key) in [
        (SsmConfig { stop_below_m: 3.0, ..SsmConfig::default() }, "stop_below_m"),
        (SsmConfig { reduced_speed: 0.0, ..SsmConfig::default() }, "reduced_speed"),
        (SsmConfig { stale_after_ms: f64::NAN, ..SsmConfig::default() }, "stale_after_ms"),
    ] {
        let message = Monitor::new(config, 5).expect_err("refused").to_string();
        assert!(message.contains(key), "{message}");
    }
    assert!(Monitor::new(SsmConfig::default(), 0).is_err());
}

fn any_f64() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-0.0), -1e3..1e3f64, any::<f64>()]
}

proptest! {
    /// Whatever comes in: no panic, the fraction stays in 0..=1, and anything within the stop
    /// distance or not a number stands the robot still.
    #[test]
    fn garbage_never_moves_the_robot(
        distances in proptest::collection::vec((0usize..CAMERAS, any_f64()), 0..12),
        captures in proptest::collection::vec(any::<u64>(), CAMERAS),
        speed in any_f64(),
        measured in any_f64(),
        speed_dependent in any::<bool>(),
    ) {
        let mode = if speed_dependent { SsmMode::SpeedDependent } else { SsmMode::Fixed };
        let mut cell = Cell::new(SsmConfig { mode, ..SsmConfig::default() });
        cell.run(2.0);
        for (camera, distance) in &distances {
            cell.detections[*camera].insert(Object { distance_m: *distance as f32, ..Object::default() });
        }
        cell.robot.tcp_speed[0] = speed;
        let cameras: Vec<_> = cell
            .detections
            .iter()
            .map(|detections| CameraInput { detections, alive: true })
            .collect();
        let inputs =
            Inputs { now_ns: cell.now_ns, cameras: &cameras, robot: &cell.robot, measured_worst_s: measured };
        let decision = cell.monitor.decide(&inputs);
        prop_assert!((0.0..=1.0).contains(&decision.speed_fraction));
        prop_assert_eq!(decision.stop, decision.speed_fraction == 0.0);
        prop_assert_eq!(decision.stop, decision.light == Light::Red);
        let near = |d: f64| !((d as f32).is_finite()) || d < 1.4;
        if mode == SsmMode::Fixed && distances.iter().any(|(_, d)| near(*d)) {
            prop_assert!(decision.stop);
        }
        if decision.fault.is_some() || decision.breach || !speed.is_finite() {
            prop_assert!(decision.stop);
        }
        for (detections, capture) in cell.detections.iter_mut().zip(&captures) {
            detections.capture_ns = *capture;
        }
        let _ = cell.decide();
    }
}
