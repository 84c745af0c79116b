//! The shipped recording through the device's kernels, on the emulated device: what the CPU says, and batches too.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod recording;

use recording::{cameras, compare, config, on_device};
use takt_gpu::testing;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::gpu::{BatchFrame, GpuBatch, GpuCamera, GpuPerception};
use takt_perception::{Backend, Detections, Engine, EngineConfig, FrameHealth, FramePose, Streams};

#[test]
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

/// Inputs and outputs of ONNX Runtime bound to the device's memory, where the emulated device's is the host's.
#[test]
fn networks_bound_to_the_device_s_memory_give_the_same() {
    let config = EngineConfig { backend: Backend::Onnxruntime, ..EngineConfig::default() };
    if let Err(error) = Engine::open(&config) {
        assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"), "{error}");
        eprintln!("SKIPPED: {error}");
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
        for (camera, out) in outs.iter().enumerate().filter(|(camera, _)| takes_part(*camera)) {
            let mut alone = Detections::default();
            let frame = on_device(&frames[camera], &cameras[camera].1);
            single[camera].process(&frame, &mut alone, None).unwrap();
            assert_eq!((out.health, out.camera), (FrameHealth::Ok, camera as u32));
            assert_eq!(out.objects(), alone.objects());
        }
    }
}

#[test]
fn threads_that_share_a_batch_each_get_their_own_answer() {
    let Some((gpu, _)) = testing::open() else { return };
    let mut config = config();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    let mut readers = cameras();
    let numbered = |readers: &[(_, _)]| -> Vec<_> {
        let one = |(i, (reader, _)): (usize, &(FrameReader<std::fs::File>, FramePose))| {
            (i as u32, reader.intrinsics(), None)
        };
        readers.iter().enumerate().map(one).collect()
    };
    let alone = GpuCamera::all(&gpu, &config, numbered(&readers), &|_| {}).unwrap();
    config.gpu.streams = Streams::Batch;
    let together = GpuCamera::all(&gpu, &config, numbered(&readers), &|_| {}).unwrap();
    let mut pairs: Vec<_> = alone.into_iter().zip(together).zip(&mut readers).collect();
    std::thread::scope(|scope| {
        for (camera, ((alone, together), (reader, pose))) in pairs.iter_mut().enumerate() {
            scope.spawn(move || {
                let mut frame = Frame::new(reader.intrinsics().width, reader.intrinsics().height);
                for sequence in 1..=20 {
                    assert!(reader.read(&mut frame).unwrap());
                    (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_000_000);
                    let (mut a, mut b) = (Detections::default(), Detections::default());
                    alone.process(&on_device(&frame, pose), &mut a, None).unwrap();
                    together.process(&on_device(&frame, pose), &mut b, None).unwrap();
                    assert_eq!((b.camera, b.frame_sequence), (camera as u32, sequence));
                    assert_eq!((a.health, a.objects()), (b.health, b.objects()));
                    assert!(together.device_times().measure_ns > 0);
                }
            });
        }
    });
}
