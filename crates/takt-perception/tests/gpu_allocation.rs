//! After the first frames perception on a device allocates nothing per frame, on the host or on the device. (An
//! inference library may; here none runs.)
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod walker;

use nalgebra::Isometry3;
use takt_gpu::testing;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::gpu::{GpuFrame, GpuPerception};
use takt_perception::{
    Detection, DetectionSet, Detections, FrameHealth, FramePose, Overlay, PerceptionConfig,
};
use takt_rt::proof::{AllocationCounter, allocations, frees};
use walker::draw;

#[global_allocator]
static COUNTER: AllocationCounter = AllocationCounter;

#[test]
fn nothing_is_allocated_once_warm() {
    let Some((gpu, emulator)) = testing::open() else { return };
    for graphs in [true, false] {
        let mut config = PerceptionConfig::default();
        config.detector.enabled = false;
        config.segmenter.enabled = false;
        config.gpu.graphs = graphs;
        let intrinsics = Intrinsics { width: 384, height: 288, fx: 300.0, fy: 300.0, cx: 191.5, cy: 143.5 };
        let mut perception = GpuPerception::new(&gpu, &config, 0, intrinsics, None, &|_| {}).unwrap();
        let pose = FramePose {
            camera_in_base: Isometry3::translation(0.0, 0.0, -1.0),
            tcp_in_base: Isometry3::identity(),
        };
        let mut frame = Frame::new(384, 288);
        for (i, value) in frame.rgb.iter_mut().enumerate() {
            *value = (i % 251) as u8;
        }
        let mut overlay = Overlay::new(384, 288);
        let mut out = Detections::default();
        let memory = || ["allocations", "host_memory", "used_bytes"].map(|name| emulator.count(name));
        let (mut most, mut during, mut before) = (0, (0, 0), None);
        for sequence in 1..=150 {
            draw(&mut frame, sequence);
            let left = 20.0 + (sequence % 100) as f32 * 3.0;
            let mut set = DetectionSet::of_frame(sequence, 0);
            set.push(Detection { box_px: [left - 2.0, 55.0, left + 42.0, 205.0], score: 0.9 });
            let set = (sequence % 10 == 0).then_some(&set);
            let job = GpuFrame {
                view: (&frame).into(),
                resident: None,
                pose: Some(&pose),
                start_ns: 0,
                deadline_ns: u64::MAX,
            };
            let counted = (allocations(), frees());
            perception.process_with_detections(&job, set, &mut out, Some(&mut overlay)).unwrap();
            if sequence > 50 {
                during.0 += allocations() - counted.0;
                during.1 += frees() - counted.1;
                assert_eq!(*before.get_or_insert_with(memory), memory(), "the device's memory grew");
            }
            assert_eq!(out.health, FrameHealth::Ok);
            most = most.max(out.objects().len());
        }
        assert_eq!(during, (0, 0), "allocations and frees in 100 frames");
        assert!(most >= 2, "{most} objects");
    }
}
