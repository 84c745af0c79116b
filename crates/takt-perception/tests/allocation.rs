//! After the first frames, perception's own code allocates nothing per frame. (An inference engine may; here
//! none runs.)

mod walker;

use nalgebra::Isometry3;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::{
    Backend, Detection, DetectionSet, Detections, Engine, EngineConfig, FrameHealth, FramePose, Overlay,
    Perception, PerceptionConfig,
};
use takt_rt::proof::{AllocationCounter, allocations};
use walker::draw;

#[global_allocator]
static COUNTER: AllocationCounter = AllocationCounter;

#[test]
fn nothing_is_allocated_once_warm() {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).expect("the embedded engine needs nothing");
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    let intrinsics = Intrinsics { width: 384, height: 288, fx: 300.0, fy: 300.0, cx: 191.5, cy: 143.5 };
    let mut perception = Perception::new(&config, 0, intrinsics, &engine, None).expect("perception");
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
    let mut most = 0;
    let mut during = 0;
    for sequence in 1..=300 {
        draw(&mut frame, sequence);
        let left = 20.0 + (sequence % 100) as f32 * 3.0;
        let mut set = DetectionSet::of_frame(sequence, 0);
        set.push(Detection { box_px: [left - 2.0, 55.0, left + 42.0, 205.0], score: 0.9 });
        let set = (sequence % 10 == 0).then_some(&set);
        let before = allocations();
        perception.process_with_detections(&frame, Some(&pose), 0, set, &mut out, Some(&mut overlay));
        let allocations = allocations() - before;
        if sequence > 100 {
            during += allocations;
        }
        assert_eq!(out.health, FrameHealth::Ok);
        most = most.max(out.objects().len());
    }
    assert_eq!(during, 0, "allocations in 200 frames");
    // Two, or three where the person stands in front of the thing and splits it.
    assert!(most >= 2, "{most} objects");
}
