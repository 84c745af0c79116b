//! The monitor against odd numbers and stamps: every one is a fault, and none locks a camera out.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::obedient;

use obedient::Obedient;
use proptest::prelude::*;
use takt_link_rtde::RobotState;
use takt_perception::{Detections, FrameHealth};
use takt_robot_cell::ssm::{CameraInput, Decision, FaultKind, Inputs, Light, Monitor, SsmConfig};

const PERIOD_NS: u64 = 2_000_000;
const START_NS: u64 = 1_000_000_000_000;
/// Jobs between two frames of a camera.
const JOBS_PER_FRAME: u64 = 16;

struct Cell {
    monitor: Monitor,
    now_ns: u64,
    jobs: u64,
    cameras: [Detections; 2],
    robot: RobotState,
    obedient: Obedient,
}

impl Cell {
    fn new() -> Self {
        let mut good = Detections::default();
        good.health = FrameHealth::Ok;
        Self {
            monitor: Monitor::new(SsmConfig::default(), 2).unwrap(),
            now_ns: START_NS,
            jobs: 0,
            cameras: [good; 2],
            robot: RobotState { sequence: 1, ..RobotState::running() },
            obedient: Obedient::new(),
        }
    }

    fn decide(&mut self) -> Decision {
        self.now_ns += PERIOD_NS;
        self.jobs += 1;
        self.obedient.packet(&mut self.robot, self.now_ns - PERIOD_NS / 2);
        let cameras = self.cameras.each_ref().map(|detections| CameraInput { detections, alive: true });
        let inputs =
            Inputs { now_ns: self.now_ns, cameras: &cameras, robot: &self.robot, measured_worst_s: 0.0 };
        self.obedient.decide(&mut self.monitor, &inputs)
    }

    /// A job; every sixteenth sees new frames that are good in themselves, 30 ms old.
    fn good(&mut self, spoilt: impl Fn(usize, &mut Detections)) -> Decision {
        if self.jobs.is_multiple_of(JOBS_PER_FRAME) {
            for (index, camera) in self.cameras.iter_mut().enumerate() {
                camera.frame_sequence = camera.frame_sequence.saturating_add(1);
                camera.capture_ns = self.now_ns - 28_000_000;
                spoilt(index, camera);
            }
        }
        self.decide()
    }

    fn running() -> Self {
        let mut cell = Self::new();
        let decisions: Vec<_> = (0..1000).map(|_| cell.good(|_, _| ())).collect();
        assert_eq!(decisions.last().unwrap().light, Light::Green);
        cell
    }

    /// Jobs of a good camera until the robot moves again.
    fn jobs_to_recover(&mut self) -> u64 {
        let before = self.jobs;
        while self.good(|_, _| ()).stop {
            assert!(self.jobs - before < 10_000, "locked out");
        }
        self.jobs - before
    }
}

/// Recovery time, hold time, two frames, two jobs.
fn ordinary_jobs() -> u64 {
    let config = SsmConfig::default();
    ((config.recover_after_s + config.resume_after_s) * 1e9) as u64 / PERIOD_NS + 2 * JOBS_PER_FRAME + 2
}

#[test]
fn one_odd_frame_is_a_fault_of_its_own_and_costs_the_ordinary_recovery() {
    type Spoil = fn(&mut Detections);
    let cases: [(&str, Spoil, FaultKind); 8] = [
        ("3 ms ahead", |d| d.capture_ns = d.capture_ns + 28_000_000 + 5_000_000, FaultKind::FutureFrame),
        ("an hour ahead", |d| d.capture_ns += 3_600_000_000_000, FaultKind::FutureFrame),
        ("the end of time", |d| d.capture_ns = u64::MAX, FaultKind::FutureFrame),
        ("number again", |d| d.frame_sequence -= 1, FaultKind::SequenceRepeated),
        ("number back", |d| d.frame_sequence -= 2, FaultKind::SequenceBackwards),
        ("from 1", |d| d.frame_sequence = 1, FaultKind::SequenceBackwards),
        ("stamp back", |d| d.capture_ns -= 33_000_000, FaultKind::StampBackwards),
        ("stamp of the start", |d| d.capture_ns = 1, FaultKind::StampBackwards),
    ];
    for (what, spoil, kind) in cases {
        let mut cell = Cell::running();
        while !cell.jobs.is_multiple_of(JOBS_PER_FRAME) {
            cell.good(|_, _| ());
        }
        let decision = cell.good(|index, camera| {
            if index == 1 {
                spoil(camera);
            }
        });
        assert_eq!(decision.fault.map(|f| (f.kind, f.camera)), Some((kind, Some(1))), "{what}");
        assert!(decision.stop && decision.light == Light::Red, "{what}");
        let jobs = cell.jobs_to_recover();
        assert!(jobs <= ordinary_jobs(), "{what}: {jobs} jobs, ordinary are {}", ordinary_jobs());
        assert!(jobs >= 500, "{what}: {jobs} jobs are less than the recovery time");
    }
}

#[test]
fn a_camera_is_followed_while_something_else_is_wrong() {
    let mut cell = Cell::running();
    // Camera 1 starts again while the robot's link is down: that is one fault, not a second one
    // afterwards.
    cell.robot.connected = false;
    assert_eq!(cell.good(|_, _| ()).fault.map(|f| f.kind), Some(FaultKind::RobotLinkLost));
    cell.cameras[1].frame_sequence = 0;
    for _ in 0..100 {
        assert_eq!(cell.good(|_, _| ()).fault.map(|f| f.kind), Some(FaultKind::RobotLinkLost));
    }
    cell.robot.connected = true;
    for _ in 0..100 {
        assert_eq!(cell.good(|_, _| ()).fault, None);
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, any::<u64>(), Just(u64::MAX), Just(u64::MAX - 1)]
}

fn stamp() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        START_NS..START_NS + 10_000_000_000,
        // Seconds to hours ahead.
        START_NS + 10_000_000_000..START_NS + 10_000_000_000_000,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever numbers and stamps came: good frames after it move the robot again within the
    /// ordinary time, and no job that saw an odd frame was without fault.
    #[test]
    fn any_history_recovers_in_ordinary_time(
        odd in proptest::collection::vec((0..2usize, number(), stamp()), 1..40)
    ) {
        let mut cell = Cell::running();
        for (index, sequence, capture_ns) in odd {
            let before = cell.cameras[index];
            cell.cameras[index].frame_sequence = sequence;
            cell.cameras[index].capture_ns = capture_ns;
            let decision = cell.decide();
            let now_ns = cell.now_ns;
            let odd = capture_ns > now_ns + 2_000_000
                || sequence < before.frame_sequence
                || (sequence == before.frame_sequence && capture_ns != before.capture_ns)
                || capture_ns.saturating_add(120_000_000) < now_ns;
            if odd {
                prop_assert!(decision.fault.is_some() && decision.stop, "{sequence} {capture_ns}: {decision:?}");
            }
        }
        // The device's counter may be anywhere; its frames follow each other from now on.
        for camera in &mut cell.cameras {
            camera.frame_sequence = camera.frame_sequence.min(u64::MAX - 10_000);
        }
        let jobs = cell.jobs_to_recover();
        prop_assert!(jobs <= ordinary_jobs(), "{} jobs, ordinary are {}", jobs, ordinary_jobs());
    }
}
