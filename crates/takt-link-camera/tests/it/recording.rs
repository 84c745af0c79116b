//! Recorder and replay: round trip, bad input, pacing by sequence and time stamps.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use nalgebra::{Isometry3, Translation3, UnitQuaternion};
use takt_link_camera::recording::{FrameReader, Recorder, RecorderOptions};
use takt_link_camera::{CameraConfig, CameraError, Frame, Intrinsics, ReplayConfig, open};

const SIZE: Intrinsics = Intrinsics { width: 48, height: 32, fx: 40.0, fy: 41.0, cx: 23.5, cy: 15.5 };
const PERIOD_NS: u64 = 33_333_333;

/// A frame whose content reports its number.
fn frame(number: u64) -> Frame {
    let mut frame = Frame::new(SIZE.width, SIZE.height);
    frame.sequence = number;
    frame.capture_ns = 5_000_000_000 + number * PERIOD_NS;
    frame.arrival_ns = frame.capture_ns + 1_000_000;
    for (i, pixel) in frame.rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = (i % SIZE.width as usize, i / SIZE.width as usize);
        pixel.copy_from_slice(&[(x * 5) as u8, (y * 7) as u8, (number * 9) as u8]);
    }
    for (i, depth) in frame.depth_mm.iter_mut().enumerate() {
        *depth = if i % 17 == 0 { 0 } else { (i as u64 * 37 + number * 101) as u16 };
    }
    frame.camera_in_base = Some(Isometry3::from_parts(
        Translation3::new(0.1, 0.2, number as f64),
        UnitQuaternion::from_euler_angles(0.1, 0.2, 0.3),
    ));
    frame
}

fn record(path: &Path, frames: u64, options: RecorderOptions) {
    let mut recorder = Recorder::create(path, &[("/cam0", SIZE), ("/cam1", SIZE)], options).unwrap();
    for number in 0..frames {
        recorder.write(0, &frame(number)).unwrap();
        recorder.write(1, &frame(number + 1000)).unwrap();
    }
    recorder.add_metadata("takt", &[("machine", "test")]).unwrap();
    assert_eq!(recorder.frames(), 2 * frames);
    recorder.finish().unwrap();
}

fn recorded(frames: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.mcap");
    record(&path, frames, RecorderOptions { frames_per_chunk: 4, ..RecorderOptions::default() });
    (folder, path)
}

fn read_all(config: &ReplayConfig) -> Result<Vec<Frame>, CameraError> {
    let mut reader = FrameReader::open(config)?;
    let mut frames = Vec::new();
    let mut frame = Frame::new(1, 1);
    while reader.read(&mut frame)? {
        frames.push(frame.clone());
    }
    Ok(frames)
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

#[test]
fn what_was_recorded_is_replayed() {
    let (_folder, path) = recorded(10);
    for (topic, first) in [("/cam0", 0), ("/cam1", 1000)] {
        let config = ReplayConfig::new(&path, topic);
        assert_eq!(FrameReader::open(&config).unwrap().intrinsics(), SIZE);
        let frames = read_all(&config).unwrap();
        assert_eq!(frames.len(), 10);
        for (i, found) in frames.iter().enumerate() {
            let sent = frame(first + i as u64);
            assert_eq!(found.sequence, i as u64 + 1);
            assert_eq!(found.source_ns, sent.capture_ns);
            assert_eq!(found.depth_mm, sent.depth_mm, "depth is lossless");
            let difference = mean_difference(&found.rgb, &sent.rgb);
            assert!(difference < 6.0, "frame {i} differs by {difference}");
        }
    }
}

#[test]
fn the_shipped_recording_replays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pedestrians");
    for camera in 0..5 {
        let config = ReplayConfig::new(folder.join(format!("cam{camera}.mcap")), format!("/cam{camera}"));
        let mut reader = FrameReader::open(&config).unwrap();
        let intrinsics = reader.intrinsics();
        assert_eq!((intrinsics.width, intrinsics.height), (384, 288));
        let mut frame = Frame::new(384, 288);
        let mut frames = 0;
        while reader.read(&mut frame).unwrap() {
            frames += 1;
            let valid = frame.depth_mm.iter().filter(|&&depth| depth > 0).count();
            assert!(valid > intrinsics.pixels() / 2, "camera {camera}: {valid} depths");
            assert!(frame.depth_mm.iter().all(|&depth| depth <= 40_000));
        }
        assert_eq!(frames, 150);
    }
}

#[test]
fn a_loop_continues_in_time_and_a_start_offset_skips() {
    let (_folder, path) = recorded(6);
    let mut config = ReplayConfig::new(&path, "/cam0");
    config.looped = true;
    // Half a period less than three: the fourth frame is the first one late enough.
    config.start_offset_s = PERIOD_NS as f64 * 2.5e-9;
    let mut reader = FrameReader::open(&config).unwrap();
    let mut out = Frame::new(1, 1);
    for (i, number) in [3, 4, 5, 0, 1, 2, 3, 4, 5, 0].into_iter().enumerate() {
        assert!(reader.read(&mut out).unwrap());
        assert_eq!(out.sequence, i as u64 + 1);
        assert_eq!(out.depth_mm, frame(number).depth_mm, "position {i}");
    }
    config.start_offset_s = 10.0;
    let error = FrameReader::open(&config).err().unwrap();
    assert_eq!(error.to_string(), "start_offset_s = 10: expected less than the recording's length");
}

#[test]
fn replay_as_a_camera_plans_frames_on_a_grid_and_shows_drops_as_gaps() {
    let (_folder, path) = recorded(12);
    let mut config = ReplayConfig::new(&path, "/cam0");
    config.rate_fps = Some(200.0);
    let mut camera = open(&CameraConfig::Replay(config), None).unwrap();
    let origin_ns = takt_rt::clock::monotonic_ns() + 1_000_000;
    camera.start_at(origin_ns, 2_000_000);
    let mut out = Frame::new(SIZE.width, SIZE.height);
    let mut last = 0;
    // At a set rate, a late camera misses periods, not frames of the recording.
    for number in 0.. {
        match camera.next_frame(&mut out) {
            Ok(()) => {}
            Err(CameraError::Ended) => {
                assert_eq!(number, 12, "every frame of the recording is delivered");
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(out.sequence > last);
        last = out.sequence;
        assert_eq!(out.capture_ns, origin_ns + 2_000_000 + (out.sequence - 1) * 5_000_000);
        assert!(out.arrival_ns >= out.capture_ns, "a frame never arrives before it is due");
        assert!(out.depth_mm == frame(number).depth_mm, "the content goes on in order");
    }
    assert!(last >= 12);

    // Recorded pacing: distances of due times are those of the recording.
    let mut camera = open(&CameraConfig::Replay(ReplayConfig::new(&path, "/cam1")), None).unwrap();
    camera.start_at(origin_ns, 0);
    let mut before: Option<(u64, u64)> = None;
    while let Ok(()) = camera.next_frame(&mut out) {
        if let Some((capture_ns, source_ns)) = before {
            assert_eq!(out.capture_ns - capture_ns, out.source_ns - source_ns);
        }
        before = Some((out.capture_ns, out.source_ns));
    }
}

#[test]
fn a_camera_at_a_rate_that_is_late_misses_periods_and_goes_on_in_the_recording() {
    let (_folder, path) = recorded(50);
    let mut config = ReplayConfig::new(&path, "/cam0");
    config.rate_fps = Some(1000.0);
    config.looped = true;
    let mut camera = open(&CameraConfig::Replay(config), None).unwrap();
    // Due since 60 ms: about 60 periods were missed.
    let origin_ns = takt_rt::clock::monotonic_ns() - 60_000_000;
    camera.start_at(origin_ns, 0);
    let mut out = Frame::new(SIZE.width, SIZE.height);
    let mut last = 0;
    for index in 0..3 {
        camera.next_frame(&mut out).unwrap();
        assert!(
            out.sequence > last && out.sequence > 60,
            "delivered {} although later ones were due",
            out.sequence
        );
        assert_eq!(out.capture_ns, origin_ns + (out.sequence - 1) * 1_000_000, "the phase is kept");
        assert_eq!(out.depth_mm, frame(index).depth_mm, "the content goes on where it was");
        last = out.sequence;
    }
}

#[test]
fn a_camera_by_time_stamps_that_is_late_skips_to_the_present() {
    let (_folder, path) = recorded(50);
    let mut config = ReplayConfig::new(&path, "/cam0");
    config.looped = true;
    let mut camera = open(&CameraConfig::Replay(config), None).unwrap();
    // Due since two seconds.
    camera.start_at(takt_rt::clock::monotonic_ns() - 2_000_000_000, 0);
    let mut out = Frame::new(SIZE.width, SIZE.height);
    camera.next_frame(&mut out).unwrap();
    assert!(out.sequence > 10, "delivered frame {} although later ones were due", out.sequence);
    assert_eq!(out.depth_mm, frame((out.sequence - 1) % 50).depth_mm);
}

#[test]
fn an_interrupted_recording_can_be_replayed_to_its_end() {
    let (_folder, path) = recorded(16);
    let whole = fs::read(&path).unwrap();
    let all = read_all(&ReplayConfig::new(&path, "/cam0")).unwrap();
    let mut counts = Vec::new();
    for sixteenth in 0..16 {
        let cut = whole.len() * sixteenth / 16;
        let mut config = ReplayConfig::new("cut.mcap", "/cam0");
        match FrameReader::new(Cursor::new(&whole[..cut]), &config).err().unwrap() {
            CameraError::NotMcap { .. } if cut < 8 => {}
            CameraError::Truncated { bytes, .. } => assert_eq!(bytes, cut as u64),
            error => panic!("at {cut}: {error}"),
        }
        config.allow_truncated = true;
        let mut frame = Frame::new(1, 1);
        let mut count = 0;
        if let Ok(mut reader) = FrameReader::new(Cursor::new(&whole[..cut]), &config) {
            while reader.read(&mut frame).unwrap() {
                assert_eq!(frame, all[count], "frame {count} at cut {cut}");
                count += 1;
            }
        }
        counts.push(count);
    }
    assert!(counts.is_sorted() && counts[15] > 8, "{counts:?}");
}

#[test]
fn a_killed_recorder_loses_at_most_the_open_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.mcap");
    let options = RecorderOptions { frames_per_chunk: 5, ..RecorderOptions::default() };
    let mut recorder = Recorder::create(&path, &[("/cam0", SIZE)], options).unwrap();
    for number in 0..13 {
        recorder.write(0, &frame(number)).unwrap();
    }
    // What a kill leaves on disk is what was flushed: look while the recorder still lives.
    let config = ReplayConfig { allow_truncated: true, ..ReplayConfig::new(&path, "/cam0") };
    let frames = read_all(&config).unwrap();
    assert_eq!(frames.len(), 10);
    assert_eq!(frames[9].depth_mm, frame(9).depth_mm);
    drop(recorder);
}

#[test]
fn foreign_bytes_are_refused_by_name() {
    let text = |bytes: &[u8]| {
        FrameReader::new(Cursor::new(bytes), &ReplayConfig::new("x.mcap", "/cam0")).err().unwrap().to_string()
    };
    assert!(text(b"#ROSBAG V2.0\n").contains("not an MCAP file: it starts with [23, 52, 4f"));
    assert!(text(b"").contains("not an MCAP file"));
    for (bytes, way_out) in [
        (&b"SQLite format 3\0"[..], "ros2 bag convert"),
        (b"#ROSBAG V2.0\n", "rosbags-convert"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0", "zstd -d"),
    ] {
        assert!(text(bytes).contains(way_out));
    }
    let missing = FrameReader::open(&ReplayConfig::new("/not/there.mcap", "/cam0")).err().unwrap();
    assert!(missing.to_string().starts_with("/not/there.mcap: No such file"), "{missing}");
}

#[test]
fn a_missing_topic_is_reported_with_those_that_exist() {
    let (_folder, path) = recorded(2);
    let error = FrameReader::open(&ReplayConfig::new(&path, "/cam7")).err().unwrap().to_string();
    assert!(error.contains("no topic `/cam7/calibration`"), "{error}");
    assert!(error.contains("/cam0/color (foxglove.CompressedImage, protobuf)"), "{error}");

    let mut config = ReplayConfig::new(&path, "/cam0");
    config.depth_topic = Some("/elsewhere".into());
    let error = FrameReader::open(&config).err().unwrap();
    assert!(matches!(&error, CameraError::MissingTopic { topic, .. } if topic == "/elsewhere"), "{error}");
    config.color_only = true;
    let frames = read_all(&config).unwrap();
    assert_eq!(frames.len(), 2);
    assert!(frames[0].depth_mm.iter().all(|&depth| depth == 0));
}

#[test]
fn a_topic_of_another_type_and_another_size_are_refused() {
    let (_folder, path) = recorded(2);
    let mut config = ReplayConfig::new(&path, "/cam0");
    config.depth_topic = Some("/cam0/transform".into());
    let error = FrameReader::open(&config).err().unwrap().to_string();
    assert!(
        error.contains("`/cam0/transform` is foxglove.FrameTransform, protobuf, expected foxglove.RawImage")
    );

    let mut config = ReplayConfig::new(&path, "/cam0");
    config.intrinsics = Some(Intrinsics { width: 64, ..SIZE });
    let error = FrameReader::open(&config).err().unwrap().to_string();
    assert!(error.contains("image is 48x32, expected 64x32"), "{error}");
}

#[test]
fn the_recorder_refuses_what_it_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.mcap");
    let create = |cameras: &[(&str, Intrinsics)]| {
        Recorder::create(&path, cameras, RecorderOptions::default()).map(drop).unwrap_err().to_string()
    };
    assert!(create(&[("cam0", SIZE)]).contains("expected a prefix like /cam0"));
    assert!(create(&[("/a", SIZE), ("/a", SIZE)]).contains("another prefix for every camera"));
    let mut recorder = Recorder::create(&path, &[("/a", SIZE)], RecorderOptions::default()).unwrap();
    let error = recorder.write(0, &Frame::new(8, 8)).unwrap_err().to_string();
    assert_eq!(error, "frame 0 of /a: image is 8x8, expected 48x32");
    assert!(recorder.write(1, &frame(0)).is_err());
    let there = Recorder::create("/not/there/x.mcap", &[("/a", SIZE)], RecorderOptions::default());
    assert!(matches!(there, Err(CameraError::File { .. })));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Damaged bytes anywhere: an error or fewer frames, never a panic, never without end.
    #[test]
    fn damage_never_panics(
        at in proptest::collection::vec((0.0f64..1.0, proptest::prelude::any::<u8>()), 1..8),
        keep in 0.0f64..1.0,
        truncated in proptest::prelude::any::<bool>(),
    ) {
        static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let whole = WHOLE.get_or_init(|| {
            let (_folder, path) = recorded(6);
            fs::read(path).unwrap()
        });
        let mut bytes = whole.clone();
        for (place, value) in at {
            // Most damage near the start, where schemas and channels are.
            let index = (place * place * bytes.len() as f64) as usize;
            bytes[index] = value;
        }
        if truncated {
            bytes.truncate((keep * bytes.len() as f64) as usize);
        }
        let mut config = ReplayConfig::new("damaged.mcap", "/cam0");
        config.allow_truncated = truncated;
        if let Ok(mut reader) = FrameReader::new(Cursor::new(bytes), &config) {
            let mut frame = Frame::new(1, 1);
            for _ in 0..100 {
                if !matches!(reader.read(&mut frame), Ok(true)) {
                    break;
                }
            }
        }
    }
}
