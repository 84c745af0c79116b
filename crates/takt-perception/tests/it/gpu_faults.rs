//! Messages of perception on a device that does not answer, is lost, is full, or does not exist.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use nalgebra::Isometry3;
use takt_gpu::testing::{self, Emulator};
use takt_gpu::{Gpu, GpuError};
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::gpu::{BatchFrame, GpuBatch, GpuFrame, GpuPerception, GpuPerceptionError, Severity};
use takt_perception::{Copies, Detections, FrameHealth, FramePose, PerceptionConfig};
use takt_rt::clock::monotonic_ns;

/// Faults are the process's; tests take turns.
static TURN: Mutex<()> = Mutex::new(());

struct Turn {
    emulator: &'static Emulator,
    gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.emulator.plant("reset=1");
    }
}

fn turn() -> Option<Turn> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (gpu, emulator) = testing::open()?;
    Some(Turn { emulator, gpu, _turn: turn })
}

const CAMERA: Intrinsics = Intrinsics { width: 96, height: 64, fx: 80.0, fy: 80.0, cx: 47.5, cy: 31.5 };

fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config
}

fn frame(sequence: u64) -> Frame {
    let mut frame = Frame::new(CAMERA.width, CAMERA.height);
    frame.sequence = sequence;
    frame.capture_ns = sequence * 33_000_000;
    frame.depth_mm.fill(2_000);
    for (i, value) in frame.rgb.iter_mut().enumerate() {
        *value = (i % 251) as u8;
    }
    frame
}

fn pose() -> FramePose {
    FramePose::new(Isometry3::translation(0.0, 0.0, 1.0), Isometry3::identity())
}

fn job<'a>(frame: &'a Frame, pose: &'a FramePose, budget_ns: u64) -> GpuFrame<'a> {
    let start_ns = monotonic_ns();
    let deadline_ns = start_ns.saturating_add(budget_ns);
    GpuFrame { view: frame.into(), resident: None, pose: Some(pose), start_ns, deadline_ns }
}

const LONG: u64 = u64::MAX / 2;

#[test]
fn a_frame_over_budget_is_given_up_and_the_next_ones_are_judged() {
    let Some(turn) = turn() else { return };
    for kernel in ["takt_sample", "takt_report"] {
        let mut perception = GpuPerception::new(&turn.gpu, &config(), 2, CAMERA, None, &|_| {}).unwrap();
        let mut out = Detections::default();
        perception.process(&job(&frame(1), &pose(), LONG), &mut out, None).unwrap();
        assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 1));
        // Until reset.
        turn.emulator.plant(&format!("hang={kernel}:0"));
        let error = perception.process(&job(&frame(2), &pose(), 30_000_000), &mut out, None).unwrap_err();
        assert_eq!(error.severity(), Severity::Late, "{error}");
        assert_eq!((out.health, out.frame_sequence), (FrameHealth::InferenceFailed, 2));
        assert!(out.objects().is_empty() && out.camera == 2);
        // The device still hangs: the next frame does not even start, and says why.
        let error = perception.process(&job(&frame(3), &pose(), 5_000_000), &mut out, None).unwrap_err();
        assert!(matches!(error, GpuPerceptionError::Overrun { stage: "the frame before" }), "{error}");
        assert_eq!((out.health, out.frame_sequence), (FrameHealth::InferenceFailed, 3));
        turn.emulator.plant("reset=1");
        perception.process(&job(&frame(4), &pose(), LONG), &mut out, None).unwrap();
        assert_eq!((out.health, out.objects().len()), (FrameHealth::Ok, 1));
    }
}

#[test]
fn a_lost_device_is_distinguished_from_a_lost_frame() {
    let Some(turn) = turn() else { return };
    let mut perception = GpuPerception::new(&turn.gpu, &config(), 0, CAMERA, None, &|_| {}).unwrap();
    let mut out = Detections::default();
    perception.process(&job(&frame(1), &pose(), LONG), &mut out, None).unwrap();
    turn.emulator.plant("lost=2");
    let error = perception.process(&job(&frame(2), &pose(), LONG), &mut out, None).unwrap_err();
    assert_eq!(error.severity(), Severity::Lost, "{error}");
    assert!(error.to_string().contains("restart the process"), "{error}");
    assert_eq!(out.health, FrameHealth::InferenceFailed);
    for sequence in 3..5 {
        let error = perception.process(&job(&frame(sequence), &pose(), LONG), &mut out, None).unwrap_err();
        assert_eq!(error.severity(), Severity::Lost);
    }
    // Leaving it does not hang.
    drop(perception);
}

#[test]
fn a_full_device_is_said_at_the_start() {
    let Some(turn) = turn() else { return };
    turn.emulator.plant("memory=100000");
    let Err(error) = GpuPerception::new(&turn.gpu, &config(), 0, CAMERA, None, &|_| {}) else {
        panic!("100 kB are not enough");
    };
    assert!(matches!(error, GpuPerceptionError::Gpu(GpuError::OutOfMemory { .. })), "{error}");
}

#[test]
fn a_batch_over_budget_blinds_all_its_cameras_and_recovers() {
    let Some(turn) = turn() else { return };
    let cameras = vec![(0, CAMERA, None), (1, CAMERA, None)];
    let mut batch = GpuBatch::new(&turn.gpu, &config(), cameras, &|_| {}).unwrap();
    let pose = pose();
    let mut run = |sequence: u64, budget_ns: u64| {
        let frame = frame(sequence);
        let mut outs = [Detections::default(), Detections::default()];
        let mut jobs: Vec<BatchFrame> = outs
            .iter_mut()
            .enumerate()
            .map(|(camera, out)| BatchFrame {
                camera,
                frame: job(&frame, &pose, budget_ns),
                out,
                overlay: None,
                failed: None,
            })
            .collect();
        let result = batch.process(&mut jobs).map_err(|error| error.severity());
        let failed = jobs.iter().filter(|job| job.failed.is_some()).count();
        (result, failed, outs.map(|out| out.health))
    };
    assert_eq!(run(1, LONG), (Ok(()), 0, [FrameHealth::Ok; 2]));
    turn.emulator.plant("hang=takt_sample:0");
    assert_eq!(run(2, 20_000_000), (Err(Severity::Late), 0, [FrameHealth::InferenceFailed; 2]));
    turn.emulator.plant("reset=1");
    assert_eq!(run(3, LONG), (Ok(()), 0, [FrameHealth::Ok; 2]));
    // One camera's trouble in its own part is its own.
    turn.emulator.plant("hang=takt_report:0");
    let (result, failed, _) = run(4, 20_000_000);
    assert!(result.is_ok() && failed >= 1, "{result:?}, {failed} failed");
    turn.emulator.plant("reset=1");
    assert_eq!(run(5, LONG), (Ok(()), 0, [FrameHealth::Ok; 2]));
}

#[test]
fn a_model_that_is_no_detector_is_named() {
    let Some(turn) = turn() else { return };
    let mut config = config();
    config.engine.backend = takt_perception::Backend::Embedded;
    config.detector.enabled = true;
    config.detector.schedule = takt_perception::DetectorSchedule::EveryFrame;
    config.detector.model = "builtin:selfie_landscape_144x256".into();
    let Err(error) = GpuPerception::new(&turn.gpu, &config, 0, CAMERA, None, &|_| {}) else {
        panic!("a segmenter is no detector");
    };
    assert_eq!(error.severity(), Severity::Setup);
    let error = error.to_string();
    assert!(error.contains("selfie_landscape_144x256") && error.contains("NanoDet"), "{error}");
}

#[test]
fn a_device_that_does_not_reach_the_hosts_memory_copies_by_engines_alone() {
    let Some(turn) = turn() else { return };
    let mut config = config();
    config.gpu.copies = Copies::Kernels;
    GpuPerception::new(&turn.gpu, &config, 0, CAMERA, None, &|_| ()).unwrap();
    turn.emulator.plant("unreached=1");
    let error = GpuPerception::new(&turn.gpu, &config, 0, CAMERA, None, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("perception.gpu.copies") && error.contains("\"engines\""), "{error}");
    config.gpu.copies = Copies::Engines;
    GpuPerception::new(&turn.gpu, &config, 0, CAMERA, None, &|_| ()).unwrap();
}
