//! A robot that does other things than it is instructed, judged by what it shows: every kind of it
//! is a fault of its own, within its bound. The robot here is a model that a test bends;
//! tests/guard.rs has the simulated controller.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::VecDeque;

use takt_link_rtde::RobotState;
use takt_link_rtde::arm::registers as reg;
use takt_link_rtde::client::{ClockFollower, SendOutcome};
use takt_perception::{Detections, FrameHealth, Object};
use takt_robot_cell::ssm::{CameraInput, FaultKind, Inputs, Light, Monitor, SsmConfig};

const PERIOD_NS: u64 = 2_000_000;

#[derive(Clone, Copy)]
struct Sent {
    at_ns: u64,
    heartbeat: i32,
    challenge: i32,
    fraction: f64,
}

/// Misbehaviour of the robot.
#[derive(Clone, Copy, Default)]
struct Bent {
    /// Commands and states are late by this.
    command_delay_ns: u64,
    state_delay_ns: u64,
    controller_echo_stuck: bool,
    script_stuck: bool,
    foreign_program: bool,
    /// The arm moves as if this had been commanded.
    moves_at: Option<f64>,
    reports_fraction: Option<f64>,
    sends_fail: bool,
    replay: bool,
    clock_frozen: bool,
    clock_backwards: bool,
}

struct Bench {
    monitor: Monitor,
    now_ns: u64,
    heartbeat: i32,
    sent: VecDeque<Sent>,
    states: VecDeque<(u64, RobotState)>,
    robot: RobotState,
    applied: Sent,
    clock: ClockFollower,
    controller_s: f64,
    person_m: Option<f32>,
    bent: Bent,
    commanded: f64,
}

impl Bench {
    fn new() -> Self {
        Self::with(SsmConfig::default(), Bent::default())
    }

    fn with(config: SsmConfig, bent: Bent) -> Self {
        Self {
            monitor: Monitor::new(config, 1).unwrap(),
            now_ns: 1_000_000_000_000,
            heartbeat: 5_000,
            sent: VecDeque::new(),
            states: VecDeque::new(),
            robot: RobotState::default(),
            applied: Sent { at_ns: 0, heartbeat: 0, challenge: 0, fraction: 0.0 },
            clock: ClockFollower::default(),
            controller_s: 77.0,
            person_m: None,
            bent,
            commanded: 0.0,
        }
    }

    /// The controller takes commands in and sends its state.
    fn controller(&mut self) {
        let bent = self.bent;
        while self.sent.front().is_some_and(|sent| sent.at_ns + bent.command_delay_ns <= self.now_ns) {
            self.applied = self.sent.pop_front().unwrap();
        }
        self.controller_s += match bent {
            Bent { clock_frozen: true, .. } | Bent { replay: true, .. } => 0.0,
            Bent { clock_backwards: true, .. } => -0.002,
            _ => 0.002,
        };
        let last = self.states.back().map_or(self.robot, |(_, state)| *state);
        let speed = bent.moves_at.unwrap_or(self.applied.fraction);
        let state = RobotState {
            controller_s: self.controller_s,
            joint_speeds_rad_s: [speed, 0.0, 0.0, 0.0, 0.0, 0.0],
            tcp_speed: [0.9 * speed, 0.0, 0.0, 0.0, 0.0, 0.0],
            speed_fraction: bent.reports_fraction.unwrap_or(self.applied.fraction),
            heartbeat_echo: if bent.controller_echo_stuck {
                last.heartbeat_echo
            } else {
                self.applied.heartbeat
            },
            script_echo: match bent {
                Bent { foreign_program: true, .. } => 0,
                Bent { script_stuck: true, .. } => last.script_echo,
                _ => self.applied.heartbeat,
            },
            script_answer: match bent {
                Bent { foreign_program: true, .. } => 0,
                Bent { script_stuck: true, .. } => last.script_answer,
                _ => reg::answer(self.applied.challenge),
            },
            script_guard: if bent.foreign_program { 0 } else { reg::GUARD_ARMED },
            ..RobotState::running()
        };
        let state = if bent.replay { last } else { state };
        self.states.push_back((self.now_ns, state));
    }

    /// Receives a packet as the link does.
    fn receive(&mut self) {
        while self.states.front().is_some_and(|(at, _)| at + self.bent.state_delay_ns <= self.now_ns) {
            let (_, mut state) = self.states.pop_front().unwrap();
            let before = self.robot;
            state.received_ns = self.now_ns;
            state.sequence = before.sequence + 1;
            let followed = self.clock.follow(state.controller_s, state.received_ns, self.bent.replay);
            (state.content, state.measured_ns, state.age_error_ns) =
                (followed.content, followed.measured_ns, followed.error_ns);
            state.clock_faults = before.clock_faults + u32::from(self.bent.clock_backwards);
            state.clock_fault = followed.content;
            let since = |same: bool, old: u64| if same { old } else { self.now_ns };
            state.heartbeat_echo_ns =
                since(state.heartbeat_echo == before.heartbeat_echo, before.heartbeat_echo_ns);
            state.script_echo_ns = since(state.script_echo == before.script_echo, before.script_echo_ns);
            self.robot = state;
        }
    }

    fn step(&mut self) -> takt_robot_cell::ssm::Decision {
        self.now_ns += PERIOD_NS;
        self.controller();
        self.receive();
        let mut detections = Detections::default();
        detections.health = FrameHealth::Ok;
        detections.frame_sequence = self.heartbeat as u64;
        detections.capture_ns = self.now_ns - PERIOD_NS;
        if let Some(distance_m) = self.person_m {
            detections.insert(Object { distance_m, ..Object::default() });
        }
        let cameras = [CameraInput { detections: &detections, alive: true }];
        let decision = self.monitor.decide(&Inputs {
            now_ns: self.now_ns,
            cameras: &cameras,
            robot: &self.robot,
            measured_worst_s: 0.0,
        });
        self.heartbeat += 1;
        let challenge = 1 + self.heartbeat / 256;
        let outcome = if self.bent.sends_fail { SendOutcome::WouldBlock } else { SendOutcome::Sent };
        self.monitor.commanded(self.heartbeat, challenge, decision.speed_fraction, self.now_ns, outcome);
        if !self.bent.sends_fail {
            let fraction = decision.speed_fraction;
            self.sent.push_back(Sent { at_ns: self.now_ns, heartbeat: self.heartbeat, challenge, fraction });
        }
        self.commanded = decision.speed_fraction;
        decision
    }

    /// Runs freely, then bends the robot; returns the fault and after how many milliseconds it was
    /// found.
    fn found(mut self, bend: impl Fn(&mut Bench), within_ms: u64) -> (FaultKind, u64) {
        for _ in 0..1500 {
            self.step();
        }
        let decision = self.step();
        assert_eq!((decision.fault, decision.speed_fraction), (None, 1.0), "an honest robot runs");
        bend(&mut self);
        for job in 0..within_ms / 2 {
            let decision = self.step();
            if let Some(fault) = decision.fault {
                assert!(decision.stop && decision.light == Light::Red && fault.camera.is_none());
                return (fault.kind, 2 * job);
            }
        }
        panic!("not found within {within_ms} ms");
    }
}

#[test]
fn every_disobedience_is_a_fault_of_its_own_within_its_bound() {
    // Bounds: 40 ms of age or acknowledgement and two packets; a command shows within 350 ms.
    type Bend = fn(&mut Bench);
    let cases: [(FaultKind, u64, Bend); 12] = [
        (FaultKind::RobotStateRepeated, 46, |b| b.bent.replay = true),
        (FaultKind::RobotClockFrozen, 46, |b| b.bent.clock_frozen = true),
        (FaultKind::RobotClockBackwards, 6, |b| b.bent.clock_backwards = true),
        (FaultKind::CommandNotSent, 14, |b| b.bent.sends_fail = true),
        (FaultKind::HeartbeatNotEchoed, 50, |b| b.bent.controller_echo_stuck = true),
        (FaultKind::ScriptNotEchoing, 50, |b| b.bent.script_stuck = true),
        (FaultKind::WatchdogNotProven, 50, |b| b.robot_program_is_foreign()),
        // A person at 1 m: stop is commanded, and the arm goes on at full speed.
        (FaultKind::MovesDespiteStop, 360, |b| {
            b.person_m = Some(1.0);
            b.bent.moves_at = Some(1.0);
        }),
        // It creeps.
        (FaultKind::MovesDespiteStop, 360, |b| {
            b.person_m = Some(1.0);
            b.bent.moves_at = Some(0.05);
        }),
        // At 2 m the robot is to be slow.
        (FaultKind::FasterThanCommanded, 360, |b| {
            b.person_m = Some(2.0);
            b.bent.moves_at = Some(1.0);
        }),
        (FaultKind::SpeedFractionNotFollowed, 360, |b| {
            b.person_m = Some(1.0);
            b.bent.reports_fraction = Some(1.0);
            b.bent.moves_at = Some(0.0);
        }),
        // Faster than full speed, with nobody near.
        (FaultKind::FasterThanCommanded, 6, |b| b.bent.moves_at = Some(2.0)),
    ];
    for (kind, bound_ms, bend) in cases {
        let (found, after_ms) = Bench::new().found(bend, bound_ms + 1000);
        println!("{kind:?}: after {after_ms} ms");
        assert_eq!(found, kind);
        assert!(after_ms <= bound_ms, "{kind:?} after {after_ms} ms, the bound is {bound_ms}");
    }
}

impl Bench {
    fn robot_program_is_foreign(&mut self) {
        // It echoes the heartbeat but knows no challenge: not ours.
        self.bent.foreign_program = false;
        self.bent.script_stuck = false;
        self.robot.script_answer = 0;
        self.bent = Bent { foreign_program: true, ..self.bent };
    }
}

#[test]
fn delays_that_were_there_from_the_first_packet_are_found() {
    for (command_ms, state_ms) in [(500, 0), (0, 500), (250, 250), (60, 0), (0, 60)] {
        let bent = Bent {
            command_delay_ns: command_ms * 1_000_000,
            state_delay_ns: state_ms * 1_000_000,
            ..Bent::default()
        };
        let mut bench = Bench::with(SsmConfig::default(), bent);
        let mut kinds = Vec::new();
        for _ in 0..3000 {
            let decision = bench.step();
            assert!(decision.stop, "{command_ms} + {state_ms} ms: it was let move");
            kinds.extend(decision.fault.map(|fault| fault.kind));
        }
        // One clock alone cannot see them: the round trip does.
        assert_eq!(kinds.last(), Some(&FaultKind::AcknowledgementLate), "{command_ms} + {state_ms} ms");
    }
}

#[test]
fn commands_that_arrive_later_and_later_are_acknowledged_late() {
    let mut bench = Bench::new();
    for _ in 0..1500 {
        bench.step();
    }
    let found = (0..1000).find_map(|job| {
        bench.bent.command_delay_ns = job * 500_000;
        bench.step().fault.map(|fault| (fault.kind, job / 2))
    });
    let (kind, delay_ms) = found.expect("found");
    assert_eq!(kind, FaultKind::AcknowledgementLate);
    assert!(delay_ms <= 45, "{delay_ms} ms");
}

#[test]
fn a_state_that_creeps_to_half_a_second_is_old_long_before() {
    for seconds in [2u64, 20, 200] {
        let mut bench = Bench::new();
        for _ in 0..1500 {
            bench.step();
        }
        let jobs = seconds * 500;
        let found = (0..jobs).find_map(|job| {
            bench.bent.state_delay_ns = job * 500_000_000 / jobs;
            bench.step().fault.map(|fault| (fault.kind, bench.bent.state_delay_ns / 1_000_000))
        });
        let (kind, delay_ms) = found.expect("found");
        println!("over {seconds} s: {kind:?} at {delay_ms} ms");
        // Slow creep reaches the round trip's limit first: it holds the delay of both directions.
        assert!(matches!(
            kind,
            FaultKind::RobotStateOld | FaultKind::AcknowledgementLate | FaultKind::RobotLinkLost
        ));
        assert!(delay_ms <= 60, "{delay_ms} ms");
    }
}

#[test]
fn a_robot_that_obeys_is_never_accused() {
    let mut bench = Bench::new();
    let mut accused = Vec::new();
    for job in 0..60_000u64 {
        // People come and go; delays jitter within a few milliseconds.
        bench.person_m = [None, Some(2.0), Some(1.0), None][(job / 700 % 4) as usize];
        bench.bent.state_delay_ns = job * 7919 % 5 * 1_000_000;
        bench.bent.command_delay_ns = job * 104_729 % 7 * 1_000_000;
        let decision = bench.step();
        if job > 20 {
            accused.extend(decision.fault.map(|fault| (job, fault.kind)));
        }
    }
    assert_eq!(accused, []);
}

#[test]
fn recovery_is_by_the_ordinary_rule() {
    let mut bench = Bench::new();
    for _ in 0..1500 {
        bench.step();
    }
    bench.bent.clock_backwards = true;
    assert_eq!(bench.step().fault.map(|fault| fault.kind), Some(FaultKind::RobotClockBackwards));
    bench.bent.clock_backwards = false;
    let first = bench.step();
    assert!(first.fault.is_none() && first.recovering);
    for _ in 0..1200 {
        bench.step();
    }
    assert_eq!(bench.commanded, 1.0, "one leap backwards is no lock-out");
}
