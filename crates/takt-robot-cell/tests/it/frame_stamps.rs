//! A perception task whose camera lies about numbers and stamps, and a robot whose poses are dated
//! wrongly.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use takt_link_camera::{Acquisition, Camera, CameraError, CameraFeed, FeedOptions, Frame, Intrinsics};
use takt_link_rtde::RobotState;
use takt_link_rtde::client::StateHistory;
use takt_perception::{
    Backend, Detections, Engine, EngineConfig, FrameHealth, FrameWatch, Mount, MountFrame, Perception,
    PerceptionConfig,
};
use takt_robot_cell::records::FrameRecord;
use takt_robot_cell::threads::{Judging, PerceptionPorts, PerceptionTask};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer, latest};
use takt_rt::ring::{Consumer, ring};

const SIZE: Intrinsics = Intrinsics { width: 106, height: 60, fx: 80.0, fy: 80.0, cx: 52.5, cy: 29.5 };

/// Number of a frame, and how far in the past it was captured.
type Script = Arc<Mutex<VecDeque<(u64, i64)>>>;

struct Liar {
    script: Script,
    noise: u64,
}

impl Camera for Liar {
    fn intrinsics(&self) -> Intrinsics {
        SIZE
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        let (sequence, age_ns) = self.script.lock().unwrap().pop_front().ok_or(CameraError::Ended)?;
        frame.sequence = sequence;
        frame.capture_ns = monotonic_ns().saturating_add_signed(-age_ns);
        frame.streams = None;
        for (pixel, depth) in frame.depth_mm.iter_mut().enumerate() {
            self.noise =
                self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *depth = 2500 + (self.noise >> 40) as u16 % 9;
            frame.rgb[pixel * 3..pixel * 3 + 3].fill((60 + pixel % 100) as u8 + (self.noise >> 60) as u8);
        }
        Ok(())
    }
}

struct Fixture {
    script: Script,
    acquisition: Acquisition,
    task: PerceptionTask,
    robot: Writer<StateHistory>,
    history: StateHistory,
    records: Consumer<FrameRecord>,
    results: Reader<Detections>,
    _feed: CameraFeed,
    packets: u64,
}

impl Fixture {
    fn new() -> Self {
        let mut config = PerceptionConfig::default();
        config.detector.enabled = false;
        config.segmenter.enabled = false;
        let script = Script::default();
        let theirs = Arc::clone(&script);
        let open = move || -> Result<Box<dyn Camera>, CameraError> {
            Ok(Box::new(Liar { script: Arc::clone(&theirs), noise: 1 }))
        };
        let (feed, acquisition, frames) =
            CameraFeed::in_task_with(0, open, 1, FeedOptions::default()).unwrap();
        let (robot, robots) = latest(1, StateHistory::default);
        let (detections, results) = latest(1, Detections::default);
        let (records_in, records) = ring(64);
        let ports = PerceptionPorts {
            acquisition: None,
            frames: frames.into_iter().next().unwrap(),
            signal: feed.signal(),
            robot: robots.into_iter().next().unwrap(),
            detections,
            overlays: None,
            records: records_in,
            alive: Arc::new(AtomicBool::new(true)),
            stop: Arc::default(),
        };
        let engine =
            Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap();
        let judging = Judging::Here(Box::new(Perception::new(&config, 0, SIZE, &engine, None).unwrap()));
        // So far away that it watches nothing, and as far as a configuration may say.
        let mount = Mount { frame: MountFrame::Base, position_m: [100.0, 0.0, 0.0], rotation_rad: [0.0; 3] };
        let task = PerceptionTask::new(judging, mount, None, FrameWatch::new(&config.health), ports);
        let results = results.into_iter().next().unwrap();
        let history = StateHistory::default();
        Self { script, acquisition, task, robot, history, records, results, _feed: feed, packets: 0 }
    }

    /// A packet of the robot, measured that long ago.
    fn packet(&mut self, age_ns: i64) {
        self.packets += 1;
        let measured_ns = monotonic_ns().saturating_add_signed(-age_ns);
        let (sequence, connected) = (self.packets, true);
        let state = RobotState {
            sequence,
            connected,
            received_ns: measured_ns,
            measured_ns,
            ..RobotState::default()
        };
        self.history.push(&state);
        let history = &self.history;
        self.robot.write(measured_ns, |slot| slot.clone_from(history));
    }

    /// A frame, captured that long ago; what the task says of it.
    fn frame(&mut self, sequence: u64, age_ns: i64) -> FrameHealth {
        self.packet(0);
        self.script.lock().unwrap().push_back((sequence, age_ns));
        assert!(self.acquisition.acquire());
        assert!(self.task.judge_newest(), "every frame that came is judged, whatever its number is");
        assert!(!self.task.judge_newest(), "once");
        let mut records = Vec::new();
        self.records.take_into(&mut records, usize::MAX);
        let result = self.results.read().value;
        assert_eq!(records.len(), 1);
        assert_eq!((result.frame_sequence, result.health), (sequence, records[0].health));
        assert!(records[0].dropped <= 1 << 32);
        result.health
    }
}

#[test]
fn a_perception_task_says_what_is_odd_and_goes_on() {
    let mut fixture = Fixture::new();
    const MS: i64 = 1_000_000;
    assert_eq!(fixture.frame(1, 0), FrameHealth::Ok);
    assert_eq!(fixture.frame(2, 0), FrameHealth::Ok);
    assert_eq!(fixture.frame(2, 0), FrameHealth::SequenceRepeated);
    assert_eq!(fixture.frame(3, 0), FrameHealth::Ok);
    assert_eq!(fixture.frame(4, -3_600_000 * MS), FrameHealth::FutureStamp);
    assert_eq!(fixture.frame(5, 0), FrameHealth::Ok, "no lock-out until that time");
    assert_eq!(fixture.frame(6, 10_000 * MS), FrameHealth::StampBackwards);
    assert_eq!(fixture.frame(7, 0), FrameHealth::Ok);
    assert_eq!(fixture.frame(5, 0), FrameHealth::SequenceBackwards);
    assert_eq!(fixture.frame(6, 0), FrameHealth::Ok);
    assert_eq!(fixture.frame(u64::MAX, 0), FrameHealth::Ok, "a gap; its number alone says nothing");
    assert_eq!(fixture.frame(0, 0), FrameHealth::NoFrame);
    assert_eq!(fixture.frame(7, 0), FrameHealth::SequenceBackwards);
    assert_eq!(fixture.frame(8, 0), FrameHealth::Ok);
}

#[test]
fn a_pose_of_the_future_keeps_no_later_pose_out() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.frame(1, 0), FrameHealth::Ok);
    // A clock that was an hour ahead for one packet, and a receiver that starts its history anew.
    fixture.packet(-3_600_000_000_000);
    assert_eq!(fixture.frame(2, 0), FrameHealth::Ok, "the pose before is held for a moment");
    fixture.history = StateHistory::default();
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(fixture.frame(3, 0), FrameHealth::Ok);
}
