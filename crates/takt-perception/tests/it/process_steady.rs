//! The cell's side in its steady state: no allocation, few system calls, and what the way through
//! another process costs.

// Not every test program uses all of the rig.
#[allow(dead_code)]
use crate::rig;

use std::sync::atomic::AtomicBool;

use nalgebra::Isometry3;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::process::{Judged, Record, Setup, Started, Supervisor};
use takt_perception::{
    Backend, Detections, Device, Engine, FramePose, Overlay, Perception, PerceptionConfig,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;
use takt_rt::proof::allocations;
use takt_rt::settings::ThreadSettings;

/// The newest record of the camera.
fn took(started: &mut Started) -> Record {
    let mut records = Vec::new();
    started.records[0].take_into(&mut records, usize::MAX);
    *records.last().expect("a record of the answer")
}

/// Width and height of a D435's depth image.
const SIZE: (u32, u32) = (848, 480);

#[test]
fn nothing_is_allocated_once_warm_answered_or_not() {
    let intrinsics = Intrinsics { width: SIZE.0, height: SIZE.1, fx: 420.0, fy: 420.0, cx: 423.5, cy: 239.5 };
    let mut config = PerceptionConfig { device: Device::Cuda, ..PerceptionConfig::default() };
    config.engine.backend = Backend::Embedded;
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config.gpu.budget_ms = 500.0;
    config.gpu.breaker.hang_ms = 60_000.0;
    config.gpu.breaker.overruns = 10_000;
    let engine = Engine::open(&config.engine).expect("the embedded engine needs nothing");
    let fallback = Perception::new(&config, 0, intrinsics, &engine, None).expect("perception");
    // From the 200th frame on nothing is answered in time, and the fallback answers.
    let program = rig::program("error@200+1000", []);
    let setup = Setup {
        device: Device::Cuda,
        perception: config,
        cameras: vec![intrinsics],
        threads: ThreadSettings::default(),
        library_policy: Policy::Other { nice: 0 },
    };
    let mut started =
        Supervisor::start(setup, program, vec![Some(fallback)], &mut |_| (), &AtomicBool::new(false))
            .expect("a worker");
    let mut frame = Frame::new(SIZE.0, SIZE.1);
    for (i, value) in frame.rgb.iter_mut().enumerate() {
        *value = (i % 251) as u8;
    }
    frame.depth_mm.fill(9_000);
    let pose = FramePose::new(Isometry3::translation(0.0, 0.0, -1.0), Isometry3::identity());
    let mut overlay = Overlay::new(SIZE.0, SIZE.1);
    let mut out = Detections::default();
    let mut way_ns = Vec::with_capacity(400);
    let (mut answered, mut fallen_back, mut during) = (0, 0, 0);
    for sequence in 1..=400u64 {
        frame.sequence = sequence;
        let start_ns = monotonic_ns();
        (frame.capture_ns, frame.arrival_ns) = (start_ns, start_ns);
        let before = allocations();
        let judged = started.remotes[0].process(&frame, Some(&pose), start_ns, &mut out, Some(&mut overlay));
        let allocated = allocations() - before;
        let took_ns = monotonic_ns() - start_ns;
        match judged {
            Judged::Worker => {
                // What is not the judge's own work: two copies of the frame, two wake-ups, the
                // answer.
                let record = took(&mut started);
                way_ns.push(took_ns.saturating_sub(record.done_ns - record.taken_ns));
                answered += 1;
                during += if answered > 20 { allocated } else { 0 };
            }
            Judged::Fallback => {
                fallen_back += 1;
                during += if fallen_back > 20 { allocated } else { 0 };
            }
            other => panic!("{other:?}"),
        }
    }
    way_ns.sort_unstable();
    println!(
        "848x480: the way of a frame to the worker and of its answer back: median {} us, p99 {} us",
        way_ns[way_ns.len() / 2] / 1000,
        way_ns[way_ns.len() * 99 / 100] / 1000
    );
    assert!(answered > 100 && fallen_back > 100, "{answered} answered, {fallen_back} not");
    assert_eq!(during, 0, "allocations");
    started.supervisor.stop();
}
