//! After the first frames, perception's own code allocates nothing per frame. (An inference engine
//! may; here none runs.)

use crate::walker;

use takt_perception::{Backend, Detections, Engine, EngineConfig, FrameHealth, Overlay, Perception};
use takt_rt::proof::allocations;
use walker::draw;

#[test]
fn nothing_is_allocated_once_warm() {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).expect("the embedded engine needs nothing");
    let config = walker::config();
    let (intrinsics, pose, mut frame) = walker::scene();
    let mut perception = Perception::new(&config, 0, intrinsics, &engine, None).expect("perception");
    let mut overlay = Overlay::new(384, 288);
    let mut out = Detections::default();
    let mut most = 0;
    let mut during = 0;
    for sequence in 1..=300 {
        draw(&mut frame, sequence);
        let set = walker::detected(sequence);
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
