//! After the first frames, perception's own code allocates nothing per frame. (An inference engine may; here
//! none runs.)

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nalgebra::Isometry3;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::{
    Backend, Detection, DetectionSet, Detections, Engine, EngineConfig, FrameHealth, FramePose, Overlay,
    Perception, PerceptionConfig,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A person who walks from left to right, and a thing that stays.
fn draw(frame: &mut Frame, sequence: u64) {
    frame.sequence = sequence;
    frame.capture_ns = sequence * 33_333_333;
    frame.depth_mm.fill(8_000);
    let left = 20 + (sequence % 100) as u32 * 3;
    for v in 0..288 {
        for u in 0..384 {
            let person = (left..left + 40).contains(&u) && (60..200).contains(&v);
            let thing = (300..340).contains(&u) && (100..160).contains(&v);
            if person || thing {
                frame.depth_mm[(v * 384 + u) as usize] = if person { 2_000 } else { 3_000 };
            }
        }
    }
}

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
        let before = ALLOCATIONS.with(Cell::get);
        perception.process_with_detections(&frame, Some(&pose), 0, set, &mut out, Some(&mut overlay));
        let allocations = ALLOCATIONS.with(Cell::get) - before;
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
