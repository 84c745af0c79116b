//! A task that acquires its own frames allocates nothing after start-up. In a program of its own,
//! because its allocator counts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use nalgebra::Isometry3;
use takt_link_camera::{
    CameraConfig, CameraFeed, FeedOptions, Intrinsics, PoseSource, ReplayConfig, StartGate, SyntheticConfig,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::proof::allocations;

fn acquires_without_allocating(config: &CameraConfig) {
    let gate = StartGate::new();
    let options = FeedOptions { gate: Some(gate.clone()), ..FeedOptions::default() };
    let pose = Some((Arc::new(|_| Isometry3::identity()) as PoseSource).into());
    let (mut feed, mut acquisition, mut readers) = CameraFeed::in_task(0, config, pose, 2, options).unwrap();
    assert!(gate.wait_arrived(1, Duration::from_secs(60)));
    gate.open(monotonic_ns());
    for _ in 0..6 {
        assert!(acquisition.acquire());
    }
    let before = allocations();
    for _ in 0..20 {
        assert!(acquisition.acquire());
        assert!(readers[0].read().value.sequence > 0);
    }
    assert_eq!(allocations() - before, 0, "{config:?}");
    assert!(allocations() > 0, "the counter counts");
    feed.stop();
}

#[test]
fn a_task_that_acquires_allocates_nothing() {
    acquires_without_allocating(&CameraConfig::Synthetic(SyntheticConfig {
        intrinsics: Intrinsics { width: 64, height: 48, fx: 56.0, fy: 56.0, cx: 31.5, cy: 23.5 },
        rate_fps: 200.0,
        ..SyntheticConfig::default()
    }));
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/pedestrians/cam0.mcap");
    let mut replay = ReplayConfig::new(recording, "/cam0");
    (replay.rate_fps, replay.looped) = (Some(200.0), true);
    acquires_without_allocating(&CameraConfig::Replay(replay));
}
