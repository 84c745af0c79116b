//! A whole cell, one of whose cameras freezes under live stamps: wholly, in its depth alone, in one
//! half of the image. Judged by what the simulated controller does.
//!
//! Nothing here depends on how fast the machine is: tests wait for what must happen, and judge the
//! records.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::support;

use std::path::Path;

use takt_link_camera::recording::{Recorder, RecorderOptions};
use takt_link_camera::{CameraConfig, Frame, Intrinsics, ReplayConfig};
use takt_perception::{FrameHealth, Mount, MountFrame};
use takt_robot_cell::ssm::{Fault, FaultKind};

use support::{Running, alone, config, set_people, wait_until};

const WIDTH: u32 = 106;
const HEIGHT: u32 = 60;
/// Frames of every part of the recording.
const LIVE: u64 = 60;
const FROZEN: u64 = 30;

/// The part that stays alive while the rest stands still.
#[derive(Clone, Copy)]
enum Lives {
    All,
    Nothing,
    Colour,
    RightHalf,
}

/// A still wall, seen by sensors with noise.
fn expose(frame: &mut Frame, lives: Lives, seed: &mut u64) {
    for pixel in 0..frame.depth_mm.len() {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = *seed >> 40;
        let right = pixel % WIDTH as usize >= WIDTH as usize / 2;
        let (colour, depth) = match lives {
            Lives::All => (true, true),
            Lives::Nothing => (false, false),
            Lives::Colour => (true, false),
            Lives::RightHalf => (right, right),
        };
        if depth {
            frame.depth_mm[pixel] = 2500 + (noise % 9) as u16;
        }
        if colour {
            let grey = (60 + pixel % 100) as u8 + (noise >> 8 & 7) as u8;
            frame.rgb[pixel * 3..pixel * 3 + 3].fill(grey);
        }
    }
}

fn record(path: &Path) {
    let intrinsics = Intrinsics { width: WIDTH, height: HEIGHT, fx: 80.0, fy: 80.0, cx: 52.5, cy: 29.5 };
    let mut recorder = Recorder::create(path, &[("/cam", intrinsics)], RecorderOptions::default()).unwrap();
    let mut frame = Frame::new(WIDTH, HEIGHT);
    let mut seed = 1;
    let parts = [Lives::Nothing, Lives::Colour, Lives::RightHalf];
    for (lives, count) in parts.into_iter().flat_map(|part| [(Lives::All, LIVE), (part, FROZEN)]) {
        for _ in 0..count {
            frame.sequence += 1;
            frame.capture_ns = 1_000_000_000 + frame.sequence * 33_000_000;
            (frame.arrival_ns, frame.source_ns) = (frame.capture_ns, frame.capture_ns);
            expose(&mut frame, lives, &mut seed);
            recorder.write(0, &frame).unwrap();
        }
    }
    recorder.finish().unwrap();
}

#[test]
fn a_camera_that_freezes_stops_the_robot_until_it_lives_again() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("freezes.mcap");
    record(&path);
    let mut config = config(1);
    set_people(&mut config, &[]);
    let mut camera = config.cameras[0].clone();
    camera.name = "freezes".into();
    // So far away that it watches nothing: only its life counts.
    camera.mount = Mount { frame: MountFrame::Base, position_m: [90.0, 0.0, 0.0], rotation_rad: [0.0; 3] };
    let mut replay = ReplayConfig::new(&path, "/cam");
    (replay.rate_fps, replay.looped) = (Some(30.0), true);
    camera.source = CameraConfig::Replay(replay);
    config.cameras.push(camera);

    let mut running = Running::start(&config);
    let frozen = Some(Fault { kind: FaultKind::Frozen, camera: Some(1) });
    for part in ["everything", "depth alone", "one half"] {
        let from = running.jobs.len();
        running.until("the robot runs freely", from, |_, jobs| {
            jobs.last().is_some_and(|job| job.decision.speed_fraction == 1.0)
        });
        let from = running.jobs.len();
        running.until(part, from, |_, jobs| jobs.iter().any(|job| job.decision.fault == frozen));
        wait_until("the controller has it", || running.robot().slider == 0.0);
    }
    let finished = running.stop();
    for job in finished.jobs.iter().filter(|job| job.decision.fault == frozen) {
        assert!(job.decision.stop, "{job:#?}");
    }
    // Of every frozen part its first frames pass, as long as the limit lasts, and nothing of what
    // follows; nothing that lives is taken for frozen.
    let round = 3 * (LIVE + FROZEN);
    let mut judged = 0;
    for frame in finished.frames.iter().filter(|frame| frame.camera == 1) {
        // A replay at a set rate goes on where it was; numbers that were missed shift what follows.
        if frame.dropped > 0 {
            break;
        }
        let place = (frame.sequence - 1) % round % (LIVE + FROZEN);
        let (live, long_frozen) = (place < LIVE, place > LIVE + 4);
        assert!(!live || frame.health == FrameHealth::Ok, "{frame:#?}");
        assert!(!long_frozen || frame.health == FrameHealth::Frozen, "{frame:#?}");
        judged += 1;
    }
    println!("{judged} frames judged one by one");
}
