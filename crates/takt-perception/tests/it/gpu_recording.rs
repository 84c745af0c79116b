//! The shipped recording through the device's kernels, on the emulated device: what the CPU says,
//! and batches too.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::recording;

use recording::{cameras, compare, config, on_device};
use takt_gpu::{Clock, testing};
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::gpu::{BatchFrame, GpuBatch, GpuPerception};
use takt_perception::{Backend, Detections, Engine, EngineConfig, FrameHealth};

#[test]
#[ignore = "takes 15 s"]
fn the_recording_shows_the_same_people_at_the_same_distances() {
    let Some((gpu, _)) = testing::open() else { return };
    let mut config = config();
    config.engine.backend = Backend::Embedded;
    let outcome = compare(&gpu, &config, 3, 10);
    let times = &outcome.times;
    assert!(times.iter().all(|t| t.upload_ns > 0 && t.detect_ns > 0 && t.measure_ns > 0), "{times:?}");
    assert!(outcome.people >= 20 && outcome.segmented >= 5, "{outcome:?}");
    // Compiled for one processor, both sides are equal; the issue asks for 0.98 and 1 cm.
    assert!(outcome.least_overlap >= 0.999 && outcome.worst_m < 1e-3, "{outcome:?}");
}

/// Inputs and outputs of ONNX Runtime bound to the device's memory, where the emulated device's is
/// the host's.
#[test]
fn networks_bound_to_the_device_s_memory_give_the_same() {
    let config = EngineConfig { backend: Backend::Onnxruntime, ..EngineConfig::default() };
    if let Err(error) = Engine::open(&config) {
        assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"), "{error}");
        takt_witness::skip!("{error}");
        return;
    }
    let Some((gpu, _)) = testing::open() else { return };
    let mut config = recording::config();
    config.engine.backend = Backend::Onnxruntime;
    let outcome = compare(&gpu, &config, 3, 10);
    assert!(outcome.people >= 20 && outcome.segmented >= 5, "{outcome:?}");
    assert!(outcome.least_overlap >= 0.999 && outcome.worst_m < 1e-3, "{outcome:?}");
}

#[test]
#[ignore = "takes 15 s"]
fn a_batch_says_what_single_cameras_say() {
    let mut config = config();
    config.engine.backend = Backend::Embedded;
    let mut cameras = cameras();
    let intrinsics: Vec<Intrinsics> = cameras.iter().map(|(reader, _)| reader.intrinsics()).collect();
    let Some((gpu, _)) = testing::open() else { return };
    let all = intrinsics.iter().enumerate().map(|(i, &camera)| (i as u32, camera, None)).collect();
    let mut batch = GpuBatch::new(&gpu, &config, all, &|_| {}).unwrap();
    let mut single: Vec<GpuPerception> = intrinsics
        .iter()
        .enumerate()
        .map(|(i, &camera)| GpuPerception::new(&gpu, &config, i as u32, camera, None, &|_| {}).unwrap())
        .collect();
    let clock = Clock::new(&gpu).unwrap();
    let (mut recorder, mut spans) = takt_gpu::spans::recorder(16);
    let mut taken = Vec::new();
    let mut frames: Vec<Frame> = intrinsics.iter().map(|i| Frame::new(i.width, i.height)).collect();
    for sequence in 1..=3 {
        let mut outs = vec![Detections::default(); cameras.len()];
        for (frame, (reader, _)) in frames.iter_mut().zip(&mut cameras) {
            assert!(reader.read(frame).unwrap());
            (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_000_000);
        }
        // One camera is missing in the second round.
        let takes_part = |camera: usize| sequence != 2 || camera != 1;
        let mut jobs: Vec<BatchFrame> = outs
            .iter_mut()
            .enumerate()
            .filter(|(camera, _)| takes_part(*camera))
            .map(|(camera, out)| BatchFrame {
                camera,
                frame: on_device(&frames[camera], &cameras[camera].1),
                out,
                overlay: None,
                failed: None,
            })
            .collect();
        batch.process(&mut jobs).unwrap();
        assert!(jobs.iter().all(|job| job.failed.is_none()));
        let mut last_ns = 0;
        for (camera, out) in outs.iter().enumerate().filter(|(camera, _)| takes_part(*camera)) {
            let mut alone = Detections::default();
            let frame = on_device(&frames[camera], &cameras[camera].1);
            single[camera].process(&frame, &mut alone, None).unwrap();
            assert_eq!((out.health, out.camera), (FrameHealth::Ok, camera as u32));
            assert_eq!(out.objects(), alone.objects());
            // What was done together counts for each; the rest is a camera's own.
            batch.record_spans(camera, &clock, sequence, &mut recorder).unwrap();
            taken.clear();
            spans.take_into(&mut taken);
            let names: Vec<&str> = taken.iter().map(|span| span.name).collect();
            assert!(names.starts_with(&["upload", "geometry", "detector", "decode"]), "{names:?}");
            assert!(names.ends_with(&["distances"]) && taken.iter().all(|s| s.camera == Some(camera as u16)));
            // Cameras follow each other.
            let distances_ns = taken[taken.len() - 1].start_ns;
            assert!(distances_ns >= last_ns, "{taken:?}");
            last_ns = distances_ns;
        }
    }
}
