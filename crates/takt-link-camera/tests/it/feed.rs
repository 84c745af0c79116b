//! The feed: publication, gate, and cameras that vanish.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nalgebra::Isometry3;
use takt_link_camera::{
    Camera, CameraConfig, CameraError, CameraFeed, FeedOptions, FeedState, FeedStatus, Frame, Intrinsics,
    PoseSource, StartGate, SyntheticConfig,
};

const SIZE: Intrinsics = Intrinsics { width: 8, height: 4, fx: 8.0, fy: 8.0, cx: 3.5, cy: 1.5 };

/// A camera that delivers some frames and then fails as instructed.
struct Script {
    frames: u64,
    left: u64,
    end: fn() -> CameraError,
    size: Intrinsics,
}

impl Camera for Script {
    fn intrinsics(&self) -> Intrinsics {
        self.size
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        if self.left == 0 {
            return Err((self.end)());
        }
        self.left -= 1;
        frame.sequence = self.frames - self.left;
        frame.rgb.fill(frame.sequence as u8);
        frame.depth_mm.fill(frame.sequence as u16);
        Ok(())
    }
}

fn script(frames: u64, end: fn() -> CameraError) -> Result<Box<dyn Camera>, CameraError> {
    Ok(Box::new(Script { frames, left: frames, end, size: SIZE }))
}

fn gone() -> CameraError {
    CameraError::Timeout { device: "test".into(), timeout_ms: 1 }
}

fn quick() -> FeedOptions {
    FeedOptions {
        retry_first: Duration::from_millis(1),
        retry_most: Duration::from_millis(2),
        ..FeedOptions::default()
    }
}

/// Waits for a state; the limit only ends a test that has failed.
fn wait_for(feed: &CameraFeed, wanted: FeedState) {
    let signal = feed.signal();
    for _ in 0..600 {
        let seen = signal.value();
        if feed.state() == wanted {
            return;
        }
        signal.wait(seen, Duration::from_millis(100));
    }
    panic!("state is {:?}, expected {wanted:?}", feed.status());
}

#[test]
fn the_end_of_a_recording_is_published_after_its_last_frame() {
    let (feed, mut readers) =
        CameraFeed::start_with(3, "script", || script(5, || CameraError::Ended), 2, quick()).unwrap();
    wait_for(&feed, FeedState::Ended);
    assert_eq!((feed.status(), feed.delivered()), (FeedStatus::Ended, 5));
    for reader in &mut readers {
        let last = reader.read();
        assert_eq!((last.sequence, last.value.sequence), (5, 5));
        assert!(last.value.rgb.iter().all(|&v| v == 5) && last.value.depth_mm.iter().all(|&v| v == 5));
        assert_eq!(last.stamp_ns, last.value.arrival_ns);
    }
}

#[test]
fn a_camera_that_vanishes_is_opened_again_and_numbers_go_on() {
    // First three frames, then two failed attempts, then two frames and the end.
    let attempts = Arc::new(Mutex::new(VecDeque::from([
        script(3, gone),
        Err(gone()),
        Err(gone()),
        script(2, || CameraError::Ended),
    ])));
    let left = Arc::clone(&attempts);
    let open = move || left.lock().unwrap().pop_front().expect("opened once too often");
    let (feed, mut readers) = CameraFeed::start_with(0, "script", open, 1, quick()).unwrap();
    wait_for(&feed, FeedState::Ended);
    assert!(attempts.lock().unwrap().is_empty());
    assert_eq!(feed.delivered(), 5);
    // 1 2 3, then a gap that shows the loss, then 5 6.
    assert_eq!(readers[0].read().value.sequence, 6);
}

#[test]
fn what_cannot_recover_is_reported_and_not_retried() {
    let (feed, _readers) = CameraFeed::start_with(
        0,
        "script",
        || script(1, || CameraError::DamagedMcap { path: "a.mcap".into(), reason: "crc".into() }),
        1,
        quick(),
    )
    .unwrap();
    wait_for(&feed, FeedState::Failed);
    let FeedStatus::Failed { message, retrying } = feed.status() else { panic!("{:?}", feed.status()) };
    assert_eq!((&*message, retrying), ("a.mcap: damaged MCAP file: crc", false));
}

#[test]
fn a_camera_that_comes_back_different_is_refused() {
    let mut attempts = VecDeque::from([
        script(1, gone),
        Ok(Box::new(Script { frames: 1, left: 1, end: gone, size: Intrinsics { width: 9, ..SIZE } })
            as Box<dyn Camera>),
    ]);
    let open = move || attempts.pop_front().expect("opened once too often");
    let (feed, _readers) = CameraFeed::start_with(0, "script", open, 1, quick()).unwrap();
    wait_for(&feed, FeedState::Failed);
    assert!(matches!(feed.status(), FeedStatus::Failed { retrying: false, .. }));
}

#[test]
fn a_panic_of_the_driver_is_a_failure_not_a_silence() {
    struct Panics;
    impl Camera for Panics {
        fn intrinsics(&self) -> Intrinsics {
            SIZE
        }
        fn next_frame(&mut self, _: &mut Frame) -> Result<(), CameraError> {
            panic!("on purpose, by a test")
        }
    }
    let (feed, _readers) =
        CameraFeed::start_with(0, "script", || Ok(Box::new(Panics) as Box<dyn Camera>), 1, quick()).unwrap();
    wait_for(&feed, FeedState::Failed);
}

#[test]
fn stopping_ends_the_wait_for_a_camera_that_is_gone() {
    let mut first = Some(script(1, gone));
    let open = move || first.take().unwrap_or_else(|| Err(gone()));
    let options = FeedOptions { retry_first: Duration::from_secs(3600), ..FeedOptions::default() };
    let (mut feed, mut readers) = CameraFeed::start_with(0, "script", open, 1, options).unwrap();
    wait_for(&feed, FeedState::Retrying);
    feed.stop();
    assert_eq!(feed.state(), FeedState::Stopped);
    assert_eq!(readers[0].read().value.sequence, 1, "readers keep the last frame");
}

#[test]
fn the_gate_starts_all_cameras_at_one_origin_with_their_phases() {
    let gate = StartGate::new();
    let config = CameraConfig::Synthetic(SyntheticConfig { rate_fps: 200.0, ..SyntheticConfig::default() });
    let mut feeds: Vec<_> = (0..2u64)
        .map(|index| {
            let options = FeedOptions {
                gate: Some(gate.clone()),
                phase: Duration::from_millis(2 * index),
                ..FeedOptions::default()
            };
            let pose: PoseSource = Arc::new(|_| Isometry3::identity());
            CameraFeed::start(index as u32, &config, Some(pose.into()), 1, options).unwrap()
        })
        .collect();
    assert!(gate.wait_arrived(2, Duration::from_secs(60)));
    assert!(!gate.wait_arrived(3, Duration::from_millis(1)));
    for (feed, readers) in &mut feeds {
        assert_eq!((feed.state(), feed.delivered()), (FeedState::Starting, 0));
        assert_eq!(readers[0].read().sequence, 0);
    }
    let origin_ns = takt_rt::clock::monotonic_ns() + 30_000_000;
    gate.open(origin_ns);
    for (index, (feed, readers)) in feeds.iter_mut().enumerate() {
        wait_for(feed, FeedState::Running);
        let frame = readers[0].read().value;
        assert_eq!(frame.source_ns, 2_000_000 * index as u64 + (frame.sequence - 1) * 5_000_000);
        assert_eq!(frame.capture_ns + 10_000_000, origin_ns + frame.source_ns);
        feed.stop();
        assert_eq!(feed.status(), FeedStatus::Stopped);
    }
}

#[test]
fn the_driver_thread_is_a_named_plain_thread() {
    let config = CameraConfig::Synthetic(SyntheticConfig::default());
    let pose: PoseSource = Arc::new(|_| Isometry3::identity());
    let (feed, _readers) = CameraFeed::start(7, &config, Some(pose.into()), 1, quick()).unwrap();
    wait_for(&feed, FeedState::Running);
    let names: Vec<_> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .collect();
    assert!(names.iter().any(|name| name.trim() == "cam7-synthetic"), "{names:?}");
}
