//! After the start nothing allocates, frames after frames; the device's memory does not grow. A
//! program of its own: the emulated device is the process's, and other tests allocate on it.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use takt_gpu::testing;
use takt_gpu::{Arg, Clock, Grid, Priority, Source, Span, Wait, Waited, spans};
use takt_rt::clock::monotonic_ns;
use takt_rt::proof::{AllocationCounter, allocations, frees};

#[global_allocator]
static COUNTER: AllocationCounter = AllocationCounter;

const KERNELS: Source = Source {
    name: "steady",
    text: "extern \"C\" __global__ void add(int* x, int by) { x[blockIdx.x * blockDim.x + threadIdx.x] += by; }",
    options: &[],
};

#[test]
fn a_frame_neither_allocates_nor_keeps_memory() {
    let Some((gpu, emulator)) = testing::open() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let add = module.function("add").unwrap();
    let stream = gpu.stream(Priority::Critical).unwrap();
    let (begin, done) = (stream.event(true).unwrap(), stream.event(true).unwrap());
    let (mut host, device) = (gpu.pinned::<i32>(256).unwrap(), gpu.buffer::<i32>(256).unwrap());
    let mut clock = Clock::new(&gpu).unwrap();
    let (mut recorder, mut spans) = spans::recorder(64);
    let launch = |by: i32| {
        // SAFETY: as declared above, 256 threads for 256 elements.
        unsafe { stream.launch(&add, Grid::over(256, 64), &[Arg::buffer(&device), Arg::value(by)]) }
    };
    let graph = stream.capture(|| launch(1)).unwrap();
    let mut frame = |index: i32| {
        host.write().unwrap().fill(index);
        stream.record(&begin).unwrap();
        stream.upload(&host, &device).unwrap();
        launch(2).unwrap();
        stream.launch_graph(&graph).unwrap();
        stream.download(&device, &host).unwrap();
        stream.record(&done).unwrap();
        let deadline_ns = monotonic_ns() + 60_000_000_000;
        // A deadline that is missed is an everyday event, and must not allocate either.
        let _ = done.wait(monotonic_ns(), Wait::Spin).unwrap();
        assert_eq!(done.wait(deadline_ns, Wait::Block).unwrap(), Waited::Done);
        assert_eq!(host.read().unwrap()[255], index + 3);
        let (start, end) = (clock.stamp(&begin).unwrap(), clock.stamp(&done).unwrap());
        let span = Span::between("frame", "camera", start, end).of_camera(0, index as u64);
        recorder.push(span);
        clock.renew(3, deadline_ns).unwrap();
    };
    for index in 0..5 {
        frame(index);
    }
    let memory = || ["allocations", "host_memory", "used_bytes"].map(|name| emulator.count(name));
    let memory_before = memory();
    let before = (allocations(), frees());
    for index in 0..200 {
        frame(index);
    }
    assert_eq!((allocations(), frees()), before);
    assert_eq!(memory(), memory_before);
    let mut all = Vec::new();
    assert_eq!((spans.take_into(&mut all), spans.lost()), (64, 205 - 64));
}
