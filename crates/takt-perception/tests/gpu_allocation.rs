//! After the first frames perception on a device allocates nothing per frame, on the host or on the
//! device. (An inference library may; here none runs.) Where kernels copy, the copy engines rest.
//! A program of its own: the emulated device is the process's, and other tests allocate on it.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod walker;

use takt_gpu::testing;
use takt_perception::gpu::{GpuFrame, GpuPerception};
use takt_perception::{Copies, Detections, FrameHealth, Overlay};
use takt_rt::proof::{AllocationCounter, allocations, frees};
use walker::draw;

#[global_allocator]
static COUNTER: AllocationCounter = AllocationCounter;

#[test]
fn nothing_is_allocated_once_warm() {
    let Some((gpu, emulator)) = testing::open() else { return };
    for (graphs, copies) in [(true, Copies::Engines), (false, Copies::Engines), (true, Copies::Kernels)] {
        let mut config = walker::config();
        (config.gpu.graphs, config.gpu.copies) = (graphs, copies);
        let (intrinsics, pose, mut frame) = walker::scene();
        let mut perception = GpuPerception::new(&gpu, &config, 0, intrinsics, None, &|_| {}).unwrap();
        let mut overlay = Overlay::new(384, 288);
        let mut out = Detections::default();
        let memory = || ["allocations", "host_memory", "used_bytes"].map(|name| emulator.count(name));
        let (mut most, mut during, mut before) = (0, (0, 0), None);
        let engines = emulator.count("copies");
        for sequence in 1..=150 {
            draw(&mut frame, sequence);
            let set = walker::detected(sequence);
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
        // Preparing copies what never changes: a few.
        let engines = emulator.count("copies") - engines;
        let resting = engines < 20;
        assert_eq!(resting, copies == Copies::Kernels, "{engines} copies by engines in 150 frames");
    }
}
