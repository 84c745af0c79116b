//! Arrival is when driver or library had the frame, whoever decodes it and however long that takes;
//! and threads that acquire the frames that they judge.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nalgebra::Isometry3;
use takt_link_camera::{
    Camera, CameraConfig, CameraError, CameraFeed, FeedOptions, FeedState, FeedStatus, Frame, Intrinsics,
    StartGate, SyntheticConfig,
};
use takt_rt::clock::monotonic_ns;

const SIZE: Intrinsics = Intrinsics { width: 8, height: 4, fx: 8.0, fy: 8.0, cx: 3.5, cy: 1.5 };

/// A camera that has its frame, stamps it, and then decodes for as long as the test likes.
struct Slow {
    frames: u64,
    decoded: Receiver<()>,
    stamped: Sender<u64>,
}

impl Camera for Slow {
    fn intrinsics(&self) -> Intrinsics {
        SIZE
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        self.frames += 1;
        frame.sequence = self.frames;
        frame.arrival_ns = monotonic_ns();
        let _ = self.stamped.send(frame.arrival_ns);
        self.decoded.recv().map_err(|_| CameraError::Ended)
    }
}

fn slow() -> (Slow, Sender<()>, Receiver<u64>) {
    let ((decode, decoded), (stamped, stamps)) = (channel(), channel());
    (Slow { frames: 0, decoded, stamped }, decode, stamps)
}

fn once(camera: impl Camera + 'static) -> impl FnMut() -> Result<Box<dyn Camera>, CameraError> {
    let mut camera = Some(Box::new(camera) as Box<dyn Camera>);
    move || Ok(camera.take().expect("opened once"))
}

#[test]
fn decoding_lies_after_the_arrival() {
    let (camera, decode, stamps) = slow();
    let (mut feed, mut readers) =
        CameraFeed::start_with(0, "slow", once(camera), 1, FeedOptions::default()).unwrap();
    let stamp_ns = stamps.recv().unwrap();
    // The frame is complete and not decoded yet.
    let undecoded_ns = monotonic_ns();
    let signal = feed.signal();
    let seen = signal.value();
    decode.send(()).unwrap();
    signal.wait(seen, Duration::from_secs(60));
    let frame = readers[0].read().value;
    assert_eq!((frame.sequence, frame.arrival_ns), (1, stamp_ns));
    assert!(frame.arrival_ns <= undecoded_ns, "decoding counts as reaction");
    drop(decode);
    feed.stop();
}

/// A backend that has no stamp, or one of a future that is no time of ours.
struct Unstamped(VecDeque<Option<u64>>);

impl Camera for Unstamped {
    fn intrinsics(&self) -> Intrinsics {
        SIZE
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        frame.sequence += 1;
        if let Some(stamp_ns) = self.0.pop_front().ok_or(CameraError::Ended)? {
            frame.arrival_ns = stamp_ns;
        }
        Ok(())
    }
}

#[test]
fn a_frame_without_a_stamp_arrived_when_it_was_taken_in_and_never_when_another_did() {
    let camera = Unstamped([Some(7), None, Some(u64::MAX), None].into());
    let (feed, mut acquisition, mut readers) =
        CameraFeed::in_task_with(0, once(camera), 1, FeedOptions::default()).unwrap();
    let mut before_ns = monotonic_ns();
    for stamped in [Some(7), None, None, None] {
        assert!(acquisition.acquire());
        let arrival_ns = readers[0].read().value.arrival_ns;
        match stamped {
            Some(stamp_ns) => assert_eq!(arrival_ns, stamp_ns),
            None => assert!((before_ns..=monotonic_ns()).contains(&arrival_ns), "{arrival_ns}"),
        }
        before_ns = monotonic_ns();
    }
    assert!(!acquisition.acquire() && !acquisition.acquire(), "the end stays the end");
    assert_eq!(feed.status(), FeedStatus::Ended);
}

/// A scene at 200 FPS; every frame is known by its number.
fn scene() -> SyntheticConfig {
    SyntheticConfig {
        intrinsics: Intrinsics { width: 32, height: 16, fx: 28.0, fy: 28.0, cx: 15.5, cy: 7.5 },
        rate_fps: 200.0,
        ..SyntheticConfig::default()
    }
}

fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn a_scene_is_handed_over_by_a_thread_of_its_own_and_copied_by_the_one_that_waits() {
    let gate = StartGate::new();
    let options = FeedOptions { gate: Some(gate.clone()), ..FeedOptions::default() };
    let pose: takt_link_camera::PoseSource = Arc::new(|_| Isometry3::identity());
    let (mut feed, mut acquisition, mut readers) =
        CameraFeed::in_task(77, &CameraConfig::Synthetic(scene()), Some(pose.into()), 2, options).unwrap();
    // At the gate it has its name.
    assert!(gate.wait_arrived(1, Duration::from_secs(60)));
    assert_eq!(threads_named("cam77-synthetic"), 1, "the library's stand-in, and no other");
    let origin_ns = monotonic_ns() + 1_000_000;
    gate.open(origin_ns);
    let caller = std::thread::current().id();
    let mut last = (0, 0);
    for _ in 0..20 {
        assert!(acquisition.acquire());
        assert_eq!(std::thread::current().id(), caller);
        let taken_ns = monotonic_ns();
        let [first, second] = &mut readers[..] else { panic!("two readers") };
        let (one, other) = (first.read().value, second.read().value);
        assert_eq!(one, other);
        assert_eq!((one.width, one.rgb.len(), one.depth_mm.len()), (32, 32 * 16 * 3, 32 * 16));
        assert!(one.rgb.iter().any(|&v| v != one.rgb[0]), "pixels came along");
        assert!(one.sequence > last.0 && one.arrival_ns > last.1, "each once, in order");
        assert!(one.arrival_ns <= taken_ns, "the arrival is not that of the copy");
        last = (one.sequence, one.arrival_ns);
        // It is the due time, to the nanosecond on the camera's grid: no thread's wake-up is in it.
        assert_eq!(one.arrival_ns, origin_ns + (one.sequence - 1) * 5_000_000);
    }
    assert_eq!((feed.state(), feed.delivered()), (FeedState::Running, 20));
    feed.stop();
    assert!(!acquisition.acquire());
    assert_eq!(feed.state(), FeedState::Stopped);
    drop(acquisition);
    assert_eq!(threads_named("cam77-synthetic"), 0);
}

#[test]
fn a_task_whose_camera_vanishes_opens_it_again_and_numbers_go_on() {
    struct Script(u64);
    impl Camera for Script {
        fn intrinsics(&self) -> Intrinsics {
            SIZE
        }
        fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
            self.0 += 1;
            frame.sequence = self.0;
            match self.0 {
                3 => Err(CameraError::Timeout { device: "test".into(), timeout_ms: 1 }),
                _ => Ok(()),
            }
        }
    }
    let opened = Arc::new(Mutex::new(0));
    let count = Arc::clone(&opened);
    let open = move || -> Result<Box<dyn Camera>, CameraError> {
        *count.lock().unwrap() += 1;
        Ok(Box::new(Script(0)))
    };
    let quick = FeedOptions { retry_first: Duration::from_millis(1), ..FeedOptions::default() };
    let (feed, mut acquisition, mut readers) = CameraFeed::in_task_with(0, open, 1, quick).unwrap();
    let sequences: Vec<u64> = (0..4)
        .map(|_| {
            assert!(acquisition.acquire());
            readers[0].read().value.sequence
        })
        .collect();
    // A number is left out where frames were lost.
    assert_eq!(sequences, [1, 2, 4, 5]);
    assert_eq!((*opened.lock().unwrap(), feed.state()), (2, FeedState::Running));
}
