//! The shipped recording on a device against the CPU: emulated or real.

use std::path::Path;

use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion, Vector3};
use serde::Deserialize;
use takt_gpu::Gpu;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{Frame, ReplayConfig};
use takt_perception::gpu::{DeviceTimes, GpuFrame, GpuPerception};
use takt_perception::{
    Detections, DetectorSchedule, Engine, FrameHealth, FramePose, ObjectKind, Overlay, Perception,
    PerceptionConfig, Provider, Volume,
};

#[derive(Deserialize)]
struct Calibration {
    camera: Vec<CameraCalibration>,
}

#[derive(Deserialize)]
struct CameraCalibration {
    name: String,
    file: std::path::PathBuf,
    translation_m: [f64; 3],
    rotation_xyzw: [f64; 4],
}

/// Readers and poses of the shipped recording.
pub fn cameras() -> Vec<(FrameReader<std::fs::File>, FramePose)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pedestrians");
    let text = std::fs::read_to_string(folder.join("calibration.toml")).unwrap();
    let calibration: Calibration = toml::from_str(&text).unwrap();
    let open = |camera: &CameraCalibration| {
        let mut replay = ReplayConfig::new(folder.join(&camera.file), format!("/{}", camera.name));
        replay.looped = true;
        let [x, y, z, w] = camera.rotation_xyzw;
        let camera_in_base = Isometry3::from_parts(
            Translation3::from(Vector3::from(camera.translation_m)),
            UnitQuaternion::from_quaternion(Quaternion::new(w, x, y, z)),
        );
        let pose = FramePose::new(camera_in_base, Isometry3::translation(0.0, 0.0, 1.0));
        (FrameReader::open(&replay).unwrap(), pose)
    };
    calibration.camera.iter().map(open).collect()
}

/// Detector and segmenter on every frame, in the volume that the recording shows.
pub fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.schedule = DetectorSchedule::EveryFrame;
    config.segmenter.every_frames = Some(1);
    config.segmenter.max_per_frame = 2;
    config.health.max_depth_mm = 60_000;
    // This volume reaches into the sky, where the recording has no depth: what is compared here is
    // what is seen.
    (config.unseen.within_m, config.unseen.max_share) = (Some(1e-3), 1.0);
    config.occupancy.volume =
        Volume { min_m: Point3::new(-12.0, -12.0, -1.0), max_m: Point3::new(12.0, 12.0, 3.0) };
    config
}

pub fn on_device<'a>(frame: &'a Frame, pose: &'a FramePose) -> GpuFrame<'a> {
    GpuFrame { view: frame.into(), resident: None, pose: Some(pose), start_ns: 5, deadline_ns: u64::MAX }
}

/// Intersection over union of what two overlays say of all objects.
fn overlap(a: &Overlay, b: &Overlay) -> f64 {
    let (mut both, mut any) = (0u32, 0u32);
    for (a, b) in a.mask.iter().zip(&b.mask) {
        both += u32::from(*a != 0 && a == b);
        any += u32::from(*a != 0 || *b != 0);
    }
    f64::from(both) / f64::from(any.max(1))
}

/// Result of a comparison.
#[derive(Debug)]
pub struct Outcome {
    pub people: u32,
    pub segmented: u32,
    /// Largest difference of a distance.
    pub worst_m: f32,
    /// Least intersection over union of the masks of a frame.
    pub least_overlap: f64,
    pub times: Vec<DeviceTimes>,
}

/// Every `stride`-th frame of all cameras, `frames` of each: same objects, kinds, tracks and boxes.
pub fn compare(gpu: &Gpu, config: &PerceptionConfig, frames: u64, stride: u64) -> Outcome {
    let mut outcome =
        Outcome { people: 0, segmented: 0, worst_m: 0.0, least_overlap: 1.0, times: Vec::new() };
    let mut on_cpu = config.clone();
    on_cpu.engine.provider = Provider::Cpu;
    let engine = Engine::open(&on_cpu.engine).unwrap();
    for (camera, (mut reader, pose)) in cameras().into_iter().enumerate() {
        let intrinsics = reader.intrinsics();
        let mut cpu = Perception::new(&on_cpu, camera as u32, intrinsics, &engine, None).unwrap();
        let mut device = GpuPerception::new(gpu, config, camera as u32, intrinsics, None, &|_| {}).unwrap();
        let mut frame = Frame::new(intrinsics.width, intrinsics.height);
        for sequence in 1..=frames {
            for _ in 0..stride {
                assert!(reader.read(&mut frame).unwrap());
            }
            (frame.sequence, frame.capture_ns) = (sequence, sequence * stride * 33_333_333);
            let (mut a, mut b) = (Detections::default(), Detections::default());
            let (mut drawn_a, mut drawn_b) = (Overlay::default(), Overlay::default());
            cpu.process_with_detections(&frame, Some(&pose), 5, None, &mut a, Some(&mut drawn_a));
            device.process(&on_device(&frame, &pose), &mut b, Some(&mut drawn_b)).unwrap();
            assert_eq!((a.health, b.health), (FrameHealth::Ok, FrameHealth::Ok));
            let at = format!("camera {camera}, frame {sequence}");
            assert_eq!(a.objects().len(), b.objects().len(), "{at}: {:?} {:?}", a.objects(), b.objects());
            for (a, b) in a.objects().iter().zip(b.objects()) {
                assert_eq!((a.kind, a.track, a.segmented), (b.kind, b.track, b.segmented), "{at}");
                let side = a.box_px.iter().zip(b.box_px).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(side < 1.0, "{at}: boxes {:?} and {:?}", a.box_px, b.box_px);
                outcome.people += u32::from(a.kind == ObjectKind::Person);
                outcome.segmented += u32::from(a.segmented);
                outcome.worst_m = outcome.worst_m.max((a.distance_m - b.distance_m).abs());
            }
            outcome.least_overlap = outcome.least_overlap.min(overlap(&drawn_a, &drawn_b));
            outcome.times.push(device.device_times());
        }
    }
    outcome
}
