//! The shipped recording on a real GPU against the CPU, where there is one with ONNX Runtime's CUDA
//! provider.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use crate::recording;

use recording::{cameras, compare, config, on_device};
use takt_gpu::Gpu;
use takt_link_camera::Frame;
use takt_perception::gpu::{GpuPerception, GpuPerceptionError};
use takt_perception::{Backend, Detections, Device};

/// A GPU and whether its networks load, or why not.
fn real() -> Option<Gpu> {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            takt_witness::skip!("{error}");
            return None;
        }
    };
    if gpu.info().emulated {
        takt_witness::skip!("the driver is the emulated device");
        return None;
    }
    let mut config = config();
    config.device = Device::Cuda;
    let (reader, _) = cameras().swap_remove(0);
    match GpuPerception::new(&gpu, &config, 0, reader.intrinsics(), None, &|_| {}) {
        Ok(_) => Some(gpu),
        Err(error @ GpuPerceptionError::Engine(_)) => {
            takt_witness::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_real_gpu_sees_what_the_cpu_sees() {
    let Some(gpu) = real() else { return };
    eprintln!("{}", gpu.info().name);
    let mut config = config();
    config.device = Device::Cuda;
    config.engine.backend = Backend::Onnxruntime;
    let outcome = compare(&gpu, &config, 20, 5);
    let mut total: Vec<u64> = outcome.times.iter().map(|times| times.total_ns()).collect();
    total.sort_unstable();
    eprintln!(
        "{} people, {} segmented, worst {} m, least overlap {}; device time median {} us, most {} us",
        outcome.people,
        outcome.segmented,
        outcome.worst_m,
        outcome.least_overlap,
        total[total.len() / 2] / 1000,
        total[total.len() - 1] / 1000,
    );
    assert!(outcome.people >= 100 && outcome.segmented >= 20, "{outcome:?}");
    assert!(outcome.least_overlap >= 0.98 && outcome.worst_m < 0.01);
}

#[test]
fn a_real_gpu_s_memory_does_not_grow() {
    let Some(gpu) = real() else { return };
    let mut config = config();
    config.device = Device::Cuda;
    let (mut reader, pose) = cameras().swap_remove(0);
    let mut device = GpuPerception::new(&gpu, &config, 0, reader.intrinsics(), None, &|_| {}).unwrap();
    let mut frame = Frame::new(reader.intrinsics().width, reader.intrinsics().height);
    let mut out = Detections::default();
    let mut before = 0;
    for sequence in 1..=600 {
        assert!(reader.read(&mut frame).unwrap());
        (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_333_333);
        device.process(&on_device(&frame, &pose), &mut out, None).unwrap();
        if sequence == 100 {
            before = gpu.memory().unwrap().free_bytes;
        }
    }
    // Other programs may come and go; a leak of a kilobyte each frame would be half a megabyte.
    let lost = before.saturating_sub(gpu.memory().unwrap().free_bytes);
    assert!(lost < 512 * 1024, "{lost} bytes in 500 frames");
}
