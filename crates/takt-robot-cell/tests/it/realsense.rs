//! A scripted librealsense2, through the backend, the watch over its frames and the monitor: what
//! the robot is commanded while the library plays every trouble.
#![cfg(feature = "realsense")]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::obedient;
use crate::standin;

use obedient::Obedient;
use standin::{COLOUR, DEPTH, GLOBAL, Moment, Part, Set, Standin};
use takt_link_camera::realsense::RealsenseCamera;
use takt_link_camera::{Camera, Frame};
use takt_link_rtde::RobotState;
use takt_perception::{Detections, FrameHealth, FrameWatch, PerceptionConfig};
use takt_robot_cell::ssm::{CameraInput, Decision, FaultKind, Inputs, Light, Monitor, SsmConfig};

// Whole milliseconds: an image that is handed out again has the very same stamp.
const PERIOD_MS: f64 = 33.0;
/// Between exposure and the moment that the task has the frame.
const LATENCY_MS: f64 = 20.0;
const JOB_MS: f64 = 2.0;

/// One camera, whose time is the script's: stamps are of the wall clock, wherever in time the test
/// itself is.
struct Cell {
    standin: Standin,
    camera: RealsenseCamera,
    frame: Frame,
    watch: FrameWatch,
    monitor: Monitor,
    newest: Detections,
    begin: Moment,
    frames: u64,
    robot: RobotState,
    obedient: Obedient,
}

impl Cell {
    fn running() -> Self {
        let standin = Standin::load();
        let now = Moment::now();
        let begin = now.after(-now.realtime_ms.fract());
        standin.push(Set::pair((1, begin.realtime_ms), (1, begin.realtime_ms), GLOBAL));
        let mut cell = Self {
            standin,
            camera: RealsenseCamera::open(&standin::config()).unwrap(),
            frame: Frame::new(standin::WIDTH, standin::HEIGHT),
            watch: FrameWatch::new(&PerceptionConfig::default().health),
            monitor: Monitor::new(SsmConfig::default(), 1).unwrap(),
            newest: Detections::default(),
            begin,
            frames: 0,
            robot: RobotState { sequence: 1, ..RobotState::running() },
            obedient: Obedient::new(),
        };
        for _ in 0..60 {
            cell.play(|_, _| ());
        }
        assert_eq!(cell.play(|_, _| ()).last().unwrap().light, Light::Green);
        cell
    }

    /// Exposure of a frame by its index, on the wall clock.
    fn exposed_ms(&self, index: u64) -> f64 {
        self.begin.realtime_ms + index as f64 * PERIOD_MS
    }

    /// A frame period: the set that a good camera gives, spoilt, and the jobs until the next.
    fn play(&mut self, spoil: impl Fn(&mut Part, &mut Part)) -> Vec<Decision> {
        self.frames += 1;
        let stamp_ms = self.exposed_ms(self.frames);
        let mut colour = Part::new(COLOUR, self.frames, stamp_ms, GLOBAL);
        let mut depth = Part::new(DEPTH, self.frames, stamp_ms - 5.0, GLOBAL);
        spoil(&mut colour, &mut depth);
        self.standin.push(Set::of(&[colour, depth]));
        let at = self.begin.after(self.frames as f64 * PERIOD_MS + LATENCY_MS);
        // A camera that failed delivers nothing; opening it again is the feed's affair.
        if self.camera.next_frame(&mut self.frame).is_ok() {
            let now_ns = at.monotonic_ns;
            let health = self.watch.judge(&self.frame, now_ns);
            self.newest = Detections::blind(0, &self.frame, health, now_ns, now_ns);
            self.newest.capture_ns = self.newest.capture_ns.min(self.watch.content_ns());
        }
        (0..(PERIOD_MS / JOB_MS) as u64)
            .map(|job| {
                let now_ns = at.after(1.0 + job as f64 * JOB_MS).monotonic_ns;
                self.obedient.packet(&mut self.robot, now_ns - 1_000_000);
                let cameras = [CameraInput { detections: &self.newest, alive: true }];
                let inputs = Inputs { now_ns, cameras: &cameras, robot: &self.robot, measured_worst_s: 0.0 };
                self.obedient.decide(&mut self.monitor, &inputs)
            })
            .collect()
    }
}

/// Spoils one frame; gets the index of the spoilt frames before it and the last good number and
/// stamp.
type Spoil = fn(&mut Part, &mut Part, u64);

#[test]
fn every_trouble_of_the_library_stops_the_robot_and_ends_with_it() {
    // What the library plays; for how many frames; within how many frames it must be a fault;
    // which.
    let cases: [(&str, Spoil, u64, u64, FaultKind); 16] = [
        ("depth stalls", |_, d, n| stall(d, n), 20, 3, FaultKind::StreamsApart),
        ("colour stalls", |c, _, n| stall(c, n), 20, 3, FaultKind::StreamsApart),
        ("both stall", |c, d, n| (stall(c, n), stall(d, n)).0, 20, 1, FaultKind::SequenceRepeated),
        ("depth frozen under live stamps", |_, d, _| d.seed = 4, 20, 4, FaultKind::Frozen),
        ("colour frozen under live stamps", |c, _, _| c.seed = 4, 20, 4, FaultKind::Frozen),
        ("both frozen", |c, d, _| (c.seed, d.seed) = (4, 5), 20, 4, FaultKind::Frozen),
        ("depth number repeats", |_, d, n| d.number -= n + 1, 2, 1, FaultKind::SequenceRepeated),
        (
            "order swapped",
            |_, d, n| {
                if n == 1 {
                    d.number -= 2
                }
            },
            2,
            2,
            FaultKind::SequenceBackwards,
        ),
        ("depth an hour ahead", |_, d, _| d.stamp_ms += 3.6e6, 3, 1, FaultKind::FutureFrame),
        ("colour 30 ms ahead", |c, _, _| c.stamp_ms += 30.0, 3, 1, FaultKind::FutureFrame),
        ("depth hours old", |_, d, _| d.stamp_ms -= 3.6e7, 3, 1, FaultKind::StampBackwards),
        ("both a second old", |c, d, _| older(c, d, 1100.0), 20, 1, FaultKind::StampBackwards),
        (
            "depth stamp runs back",
            |_, d, n| d.stamp_ms -= 40.0 * (n + 1) as f64,
            3,
            1,
            FaultKind::StampBackwards,
        ),
        ("stamp is no number", |_, d, _| d.stamp_ms = f64::NAN, 20, 5, FaultKind::StaleFrame),
        ("no depth in the set", |_, d, _| d.stream = 7, 20, 5, FaultKind::StaleFrame),
        ("another size", |_, d, _| d.width = 32, 20, 5, FaultKind::StaleFrame),
    ];
    for (what, spoil, count, within, kind) in cases {
        let mut cell = Cell::running();
        let mut first = None;
        let mut named = false;
        for n in 0..count {
            for decision in cell.play(|c, d| spoil(c, d, n)) {
                named |= decision.fault.is_some_and(|fault| fault.kind == kind);
                first = first.or(decision.fault.map(|fault| (n + 1, fault.kind)));
                if first.is_some() {
                    assert!(decision.stop && decision.light == Light::Red, "{what}, frame {n}: {decision:?}");
                }
            }
        }
        let (frame, found) = first.unwrap_or_else(|| panic!("{what} passed as green"));
        // What repeats itself ages, and may be stale some jobs before the frame that makes it
        // frozen.
        let aged = kind == FaultKind::Frozen && found == FaultKind::StaleFrame;
        assert!(named && (found == kind || aged), "{what}: first {found:?}");
        assert!(frame <= within, "{what}: noticed with frame {frame}");
        // Ordinary recovery: a second, a half, and two frames.
        let good = (0..200).find(|_| cell.play(|_, _| ()).last().unwrap().light == Light::Green);
        let most = (1500.0 / PERIOD_MS) as u64 + 3;
        assert!(
            good.is_some_and(|frames| (29..=most).contains(&frames)),
            "{what}: {good:?} frames to recover"
        );
    }
}

/// The image of the frame before, `n` times.
fn stall(part: &mut Part, n: u64) {
    part.number -= n + 1;
    part.seed = part.number << 32;
    part.stamp_ms -= (n + 1) as f64 * PERIOD_MS;
}

fn older(colour: &mut Part, depth: &mut Part, by_ms: f64) {
    colour.stamp_ms -= by_ms;
    depth.stamp_ms -= by_ms;
}

#[test]
fn what_good_cameras_do_now_and_then_is_no_fault() {
    let mut cell = Cell::running();
    for n in 0..300u64 {
        let decisions = match n % 10 {
            // The library repeats the image of a sensor that missed one frame.
            3 => cell.play(|_, d| stall(d, 0)),
            6 => cell.play(|c, _| stall(c, 0)),
            _ => cell.play(|_, _| ()),
        };
        assert!(decisions.iter().all(|d| d.light == Light::Green), "frame {n}: {:?}", decisions.last());
    }
    assert_eq!(cell.newest.health, FrameHealth::Ok);
}
