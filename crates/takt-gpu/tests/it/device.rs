//! The host's side on the emulated device: copies, kernels, graphs, budgets, what stays taken, what
//! is freed, errors.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_gpu::testing::{self, Emulator};
use takt_gpu::{
    Arg, CheckOptions, Clock, Gpu, GpuError, Grid, Interference, Interfering, Pinned, Priority, Source,
    Updated, Wait, Waited,
};
use takt_load::gpu::GpuLoadKind;
use takt_rt::clock::monotonic_ns;

const KERNELS: Source = Source {
    name: "test",
    text: r#"
        struct Pair { int a; float b; };
        __device__ __forceinline__ float twice(float x) { return 2.0f * x; }
        extern "C" __global__ void scale(float* __restrict__ x, float by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] = x[i] * by;
        }
        extern "C" __global__ void least(const unsigned* x, unsigned* out, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) { atomicMin(out, x[i]); atomicAdd(out + 1, 1u); }
        }
        extern "C" __global__ void turn(unsigned* turns, int who) { turns[who] = atomicAdd(turns + 9, 1u); }
        extern "C" __global__ void pair(Pair p, float* out) { out[0] = twice(p.b) + p.a; }
        extern "C" __global__ void where(unsigned* out) {
            unsigned i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x;
            out[i] = i;
        }
    "#,
    options: &["--fmad=false"],
};

const SECOND: u64 = 1_000_000_000;

/// One test at a time: faults are planted in the one device of the process.
fn device() -> Option<(MutexGuard<'static, ()>, Gpu, &'static Emulator)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(emulator) = testing::emulator() {
        emulator.plant("reset=1");
    }
    let (gpu, emulator) = testing::open()?;
    Some((alone, gpu, emulator))
}

fn soon() -> u64 {
    monotonic_ns() + 60 * SECOND
}

#[test]
fn a_kernel_computes_between_two_copies() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    assert!(gpu.info().emulated && gpu.info().name.contains("emulated"), "{:?}", gpu.info());
    let cache = tempfile::tempdir().unwrap();
    let module = gpu.module_cached(&KERNELS, Some(cache.path())).unwrap();
    let stream = gpu.stream(Priority::Critical).unwrap();
    assert_eq!(stream.granted_priority(), gpu.info().priorities.1);
    let done = stream.event(false).unwrap();
    let (mut host, device) = (gpu.pinned::<f32>(1000).unwrap(), gpu.buffer::<f32>(1200).unwrap());
    for (value, i) in host.write().unwrap().iter_mut().zip(0u16..) {
        *value = f32::from(i);
    }
    let (scale, kernels) = (module.function("scale").unwrap(), emulator.count("kernels"));
    stream.upload(&host, &device).unwrap();
    // SAFETY: as declared above.
    unsafe {
        let args = [Arg::buffer(&device), Arg::value(0.5f32), Arg::value(1000i32)];
        stream.launch(&scale, Grid::over(1000, 64), &args).unwrap();
    }
    stream.download(&device, &host).unwrap();
    stream.record(&done).unwrap();
    for wait in [Wait::Block, Wait::Yield, Wait::Spin] {
        assert_eq!(done.wait(soon(), wait).unwrap(), Waited::Done);
    }
    assert!(host.read().unwrap().iter().zip(0u16..).all(|(value, i)| *value == f32::from(i) * 0.5));
    assert_eq!(emulator.count("kernels"), kernels + 1);
    assert!(matches!(module.function("none"), Err(GpuError::NoFunction { .. })));
}

#[test]
fn atomics_structs_and_grids_are_what_cuda_has() {
    let Some((_alone, gpu, _)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let stream = gpu.stream(Priority::Normal).unwrap();
    let (words, out) = (gpu.buffer::<u32>(4096).unwrap(), gpu.buffer::<u32>(2).unwrap());
    let (host, result) = (gpu.pinned::<u32>(4096).unwrap(), gpu.pinned::<u32>(2).unwrap());
    let (float, one) = (gpu.buffer::<f32>(1).unwrap(), gpu.pinned::<f32>(1).unwrap());
    stream.fill_words(&out, 5000).unwrap();
    // SAFETY: as declared above; 8 x 4 blocks of 16 x 8 threads are 4096.
    unsafe {
        let grid = Grid { blocks: [8, 4, 1], threads: [16, 8, 1], shared_bytes: 0 };
        stream.launch(&module.function("where").unwrap(), grid, &[Arg::buffer(&words)]).unwrap();
        let args = [Arg::buffer_at(&words, 96), Arg::buffer(&out), Arg::value(4000i32)];
        stream.launch(&module.function("least").unwrap(), Grid::over(4000, 128), &args).unwrap();
        let args = [Arg::value([3, 1.25f32.to_bits()]), Arg::buffer(&float)];
        stream.launch(&module.function("pair").unwrap(), Grid::over(1, 1), &args).unwrap();
    }
    stream.download(&words, &host).unwrap();
    stream.download(&out, &result).unwrap();
    stream.download(&float, &one).unwrap();
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    assert!(host.read().unwrap().iter().zip(0..).all(|(value, i)| *value == i));
    assert_eq!(*result.read().unwrap(), [96, 9000]);
    assert_eq!(one.read().unwrap()[0], 5.5);
}

#[test]
fn what_overruns_goes_on_and_keeps_its_memory() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let scale = module.function("scale").unwrap();
    let stream = gpu.stream(Priority::Critical).unwrap();
    let done = stream.event(false).unwrap();
    let (mut host, device) = (gpu.pinned::<f32>(8).unwrap(), gpu.buffer::<f32>(8).unwrap());
    host.write().unwrap().fill(3.0);
    emulator.plant("hang=scale:0");
    stream.upload(&host, &device).unwrap();
    // SAFETY: as declared above.
    unsafe {
        let args = [Arg::buffer(&device), Arg::value(2f32), Arg::value(8i32)];
        stream.launch(&scale, Grid::over(8, 8), &args).unwrap();
    }
    stream.download(&device, &host).unwrap();
    stream.record(&done).unwrap();
    for wait in [Wait::Spin, Wait::Yield, Wait::Block] {
        assert_eq!(done.wait(monotonic_ns() + 1_000_000, wait).unwrap(), Waited::Overrun);
    }
    assert!(host.is_in_flight());
    assert!(matches!(host.read(), Err(GpuError::InFlight { .. })));
    assert!(matches!(host.write(), Err(GpuError::InFlight { .. })));
    // Dropped meanwhile: freed only when the work is over.
    let before = emulator.count("allocations");
    drop(device);
    assert_eq!((gpu.waiting_to_be_freed(), emulator.count("allocations")), (1, before));
    emulator.plant("reset=1");
    assert_eq!(done.wait(soon(), Wait::Block).unwrap(), Waited::Done);
    assert_eq!((gpu.waiting_to_be_freed(), emulator.count("allocations")), (0, before - 1));
    assert!(host.read().unwrap().iter().all(|value| *value == 6.0));
}

#[test]
fn the_host_keeps_the_device_away_while_it_reads_or_writes() {
    let Some((_alone, gpu, _)) = device() else { return };
    let stream = gpu.stream(Priority::Normal).unwrap();
    let (host, other) = (gpu.pinned::<u8>(16).unwrap(), gpu.buffer::<u8>(16).unwrap());
    let reading = host.read().unwrap();
    stream.upload(&host, &other).unwrap();
    assert!(matches!(stream.download(&other, &host), Err(GpuError::InFlight { .. })), "it is being read");
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    drop(reading);
    stream.download(&other, &host).unwrap();
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);

    assert!(matches!(stream.upload_part(&host, 10, &other, 0, 7), Err(GpuError::Size { .. })));
    assert!(matches!(stream.download_part(&other, 0, &host, usize::MAX, 2), Err(GpuError::Size { .. })));
    assert!(matches!(gpu.buffer::<u64>(0), Err(GpuError::Invalid { .. })));
    assert!(matches!(gpu.buffer::<u64>(usize::MAX), Err(GpuError::Invalid { .. })));
    let second = gpu.stream(Priority::Normal).unwrap();
    assert!(matches!(second.record(&stream.event(false).unwrap()), Err(GpuError::Invalid { .. })));
}

#[test]
fn a_graph_is_launched_updated_and_made_anew() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let scale = module.function("scale").unwrap();
    let stream = gpu.stream(Priority::Critical).unwrap();
    let (begin, end, done) =
        (stream.event(true).unwrap(), stream.event(true).unwrap(), stream.event(false).unwrap());
    let (mut host, device) = (gpu.pinned::<f32>(64).unwrap(), gpu.buffer::<f32>(64).unwrap());
    let work = |host: &Pinned<f32>, by: f32, times: usize| {
        stream.record(&begin)?;
        stream.upload(host, &device)?;
        for _ in 0..times {
            // SAFETY: as declared above.
            unsafe {
                let args = [Arg::buffer(&device), Arg::value(by), Arg::value(64i32)];
                stream.launch(&scale, Grid::over(64, 32), &args)?;
            }
        }
        stream.download(&device, host)?;
        stream.record(&end)
    };
    let mut graph = stream.capture(|| work(&host, 2.0, 1)).unwrap();
    let launches = emulator.count("launches");
    let mut run = |graph: &takt_gpu::Graph| {
        host.write().unwrap().fill(1.0);
        stream.launch_graph(graph).unwrap();
        stream.record(&done).unwrap();
        assert!(end.is_reached().is_err(), "an event inside a graph cannot be waited for");
        assert_eq!(done.wait(soon(), Wait::Block).unwrap(), Waited::Done);
        assert!(end.since(&begin).unwrap() >= 0);
        host.read().unwrap()[63]
    };
    assert_eq!(run(&graph), 2.0);
    assert_eq!(run(&graph), 2.0);
    assert_eq!(emulator.count("launches"), launches, "a graph's launch is one");
    assert_eq!(stream.recapture(&mut graph, || work(&host, 3.0, 1)).unwrap(), Updated::InPlace);
    stream.launch_graph(&graph).unwrap();
    assert_eq!(stream.recapture(&mut graph, || work(&host, 3.0, 2)).unwrap(), Updated::Anew);
    // A capture that fails leaves the stream as it was, and the graph too.
    let failed = stream.recapture(&mut graph, || Err(GpuError::System { what: "x", reason: "y".to_owned() }));
    assert!(matches!(failed, Err(GpuError::System { .. })));
    assert!(matches!(stream.capture(|| stream.capture(|| Ok(())).map(drop)), Err(GpuError::Invalid { .. })));
    stream.launch_graph(&graph).unwrap();
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    assert_eq!(host.read().unwrap()[0], 2.0 * 3.0 * 9.0);
}

#[test]
fn a_graph_keeps_what_it_uses() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let stream = gpu.stream(Priority::Normal).unwrap();
    let before = (emulator.count("allocations"), emulator.count("host_memory"));
    let (host, device) = (gpu.pinned::<u8>(64).unwrap(), gpu.buffer::<u8>(64).unwrap());
    let graph = stream.capture(|| stream.upload(&host, &device)).unwrap();
    drop((host, device));
    assert_eq!((emulator.count("allocations"), emulator.count("host_memory")), (before.0 + 1, before.1 + 1));
    stream.launch_graph(&graph).unwrap();
    drop(graph);
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    assert_eq!(gpu.waiting_to_be_freed(), 0);
    assert_eq!((emulator.count("allocations"), emulator.count("host_memory")), before);
}

#[test]
fn a_lost_device_is_said_to_be_lost_and_asked_no_more() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let stream = gpu.stream(Priority::Normal).unwrap();
    let done = stream.event(false).unwrap();
    let device = gpu.buffer::<f32>(8).unwrap();
    emulator.plant("lost=2:719");
    for _ in 0..2 {
        // SAFETY: as declared above.
        let launched = unsafe {
            let args = [Arg::buffer(&device), Arg::value(2f32), Arg::value(8i32)];
            stream.launch(&module.function("scale").unwrap(), Grid::over(8, 8), &args)
        };
        // The second may already meet the first's outcome, never the other way round.
        launched.unwrap();
    }
    let _ = stream.record(&done);
    let error = loop {
        match done.wait(soon(), Wait::Block) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(error, GpuError::Lost { code: 719, text: "launch failed" });
    assert_eq!(gpu.check(), Err(error.clone()));
    assert_eq!(gpu.buffer::<u8>(1).unwrap_err(), error);
    // Not even after the device has come back: this handle's context is poisoned.
    emulator.plant("reset=1");
    assert_eq!(stream.is_idle(), Err(error));
    drop((device, stream, module, done));
    assert!(Gpu::open(0).unwrap().check().is_ok());
}

#[test]
fn a_full_memory_is_one_sentence_and_leaves_the_rest_usable() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let used = emulator.count("used_bytes");
    emulator.plant(&format!("memory={}", used + 1000));
    let first = gpu.buffer::<u8>(600).unwrap();
    let error = gpu.buffer::<u8>(600).unwrap_err();
    assert_eq!(error, GpuError::OutOfMemory { asked: 600, free: 400 });
    drop(first);
    assert!(gpu.buffer::<u8>(600).is_ok());
}

#[test]
fn a_kernel_that_does_not_compile_shows_the_compilers_words() {
    let Some((_alone, gpu, _)) = device() else { return };
    let broken =
        Source { name: "broken", text: "extern \"C\" __global__ void f() { gibberish; }", options: &[] };
    match gpu.module_cached(&broken, None) {
        Err(GpuError::Compile { kernel, log }) => {
            assert_eq!(kernel, "broken");
            assert!(log.contains("gibberish") && log.contains("broken.cu"), "{log}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_second_start_compiles_nothing_and_a_torn_cache_is_mended() {
    let Some((_alone, gpu, _)) = device() else { return };
    let cache = tempfile::tempdir().unwrap();
    let load = || gpu.module_cached(&KERNELS, Some(cache.path())).unwrap().function("scale").unwrap();
    load();
    let files =
        || std::fs::read_dir(cache.path()).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    let [path] = files().try_into().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    load();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written, "read, not made anew");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    load();
    assert_eq!(std::fs::read(&path).unwrap().len(), whole.len());
    assert_eq!(files().len(), 1);
}

#[test]
fn memory_that_is_there_already_is_registered() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let mut own = vec![7u32; 256];
    let before = emulator.count("host_memory");
    // SAFETY: `own` outlives `pinned` and its work, and is not touched meanwhile.
    let pinned = unsafe { gpu.register(own.as_mut_ptr(), own.len()).unwrap() };
    assert_eq!(emulator.count("host_memory"), before + 1);
    let (stream, device) = (gpu.stream(Priority::Normal).unwrap(), gpu.buffer::<u32>(256).unwrap());
    stream.upload(&pinned, &device).unwrap();
    stream.fill(&device, 1).unwrap();
    stream.download(&device, &pinned).unwrap();
    assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    drop(pinned);
    assert_eq!((gpu.waiting_to_be_freed(), emulator.count("host_memory")), (0, before));
    assert_eq!(own[255], 0x0101_0101);
}

#[test]
fn every_thread_may_use_the_device_and_streams_wait_for_each_other() {
    let Some((_alone, gpu, _)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let first = gpu.stream(Priority::Background).unwrap();
    let ready = first.event(false).unwrap();
    let (mut host, device) = (gpu.pinned::<f32>(4096).unwrap(), gpu.buffer::<f32>(4096).unwrap());
    host.write().unwrap().fill(1.0);
    first.upload(&host, &device).unwrap();
    let scale = module.function("scale").unwrap();
    // SAFETY: as declared above.
    unsafe {
        let args = [Arg::buffer(&device), Arg::value(2f32), Arg::value(4096i32)];
        first.launch(&scale, Grid::over(4096, 1), &args).unwrap();
    }
    first.record(&ready).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let second = gpu.stream(Priority::Critical).unwrap();
            second.wait_for(&ready).unwrap();
            second.download(&device, &host).unwrap();
            assert_eq!(second.drain(soon(), Wait::Block).unwrap(), Waited::Done);
            assert!(host.is_in_flight(), "two streams used it, and one is not known to be idle");
            assert_eq!(ready.wait(soon(), Wait::Block).unwrap(), Waited::Done);
        });
    });
    assert_eq!(host.read().unwrap()[4095], 2.0);
}

#[test]
fn event_times_lie_between_the_hosts() {
    let Some((_alone, gpu, _)) = device() else { return };
    let mut clock = Clock::new(&gpu).unwrap();
    let stream = gpu.stream(Priority::Critical).unwrap();
    let event = stream.event(true).unwrap();
    for round in 0..20 {
        let before_ns = monotonic_ns();
        stream.record(&event).unwrap();
        assert_eq!(event.wait(soon(), Wait::Spin).unwrap(), Waited::Done);
        let after_ns = monotonic_ns();
        let stamp = clock.stamp(&event).unwrap();
        assert!(stamp.at_ns + stamp.error_ns >= before_ns, "round {round}: {stamp:?} {before_ns}");
        assert!(stamp.at_ns <= after_ns + stamp.error_ns, "round {round}: {stamp:?} {after_ns}");
        assert!(clock.renew(3, soon()).unwrap());
    }
    // The emulated device has the host's clock.
    std::thread::sleep(std::time::Duration::from_millis(120));
    assert!(clock.is_older(100_000_000));
    assert!(clock.renew(5, soon()).unwrap());
    let mapping = clock.mapping();
    assert!(mapping.drift.abs() <= mapping.drift_error, "{mapping:?}");
    assert!(
        !clock.renew(5, 0).unwrap() || clock.mapping().error_ns > 0,
        "out of time: nothing, or a bracket after all"
    );
    let untimed = stream.event(false).unwrap();
    stream.record(&untimed).unwrap();
    assert!(matches!(clock.stamp(&untimed), Err(GpuError::Invalid { .. })));
}

#[test]
fn a_more_urgent_stream_does_not_wait_for_what_is_queued() {
    let Some((_alone, gpu, emulator)) = device() else { return };
    let module = gpu.module_cached(&KERNELS, None).unwrap();
    let turn = module.function("turn").unwrap();
    let (turns, host) = (gpu.buffer::<u32>(10).unwrap(), gpu.pinned::<u32>(10).unwrap());
    let urgency = [Priority::Background, Priority::Normal, Priority::Critical, Priority::Normal];
    let streams = urgency.map(|priority| gpu.stream(priority).unwrap());
    streams[3].fill(&turns, 0).unwrap();
    assert_eq!(streams[3].drain(soon(), Wait::Block).unwrap(), Waited::Done);
    // The last stream holds the device; what comes meanwhile is done by urgency and not in order of
    // arrival.
    emulator.plant("hang=turn:0");
    for (who, waiting) in [(3, 0), (0, 1), (1, 2), (2, 3)] {
        // SAFETY: as declared above.
        unsafe {
            let args = [Arg::buffer(&turns), Arg::value(who)];
            streams[who as usize].launch(&turn, Grid::over(1, 1), &args).unwrap();
        }
        if who == 3 {
            while emulator.count("holding") == 0 {
                std::thread::yield_now();
            }
        }
        while emulator.count("waiting") != waiting {
            std::thread::yield_now();
        }
    }
    emulator.plant("reset=1");
    for stream in &streams {
        assert_eq!(stream.drain(soon(), Wait::Block).unwrap(), Waited::Done);
    }
    streams[0].download(&turns, &host).unwrap();
    assert_eq!(streams[0].drain(soon(), Wait::Block).unwrap(), Waited::Done);
    assert_eq!(host.read().unwrap()[..4], [3, 2, 1, 0]);
}

#[test]
fn interference_of_every_kind_proves_itself_and_ends() {
    let Some((_alone, _gpu, emulator)) = device() else { return };
    let before = (emulator.count("allocations"), emulator.count("streams"));
    for (kind, duty) in [
        (GpuLoadKind::Compute, 1.0),
        (GpuLoadKind::Memory, 1.0),
        (GpuLoadKind::Copies, 1.0),
        (GpuLoadKind::Compute, 0.3),
    ] {
        let config =
            Interference { kind, duty, kernel_us: 200, mib: 1, streams: 3, ..Interference::default() };
        let interfering = Interfering::start(&config).unwrap();
        assert!(interfering.device().emulated);
        assert_eq!(emulator.count("streams"), before.1 + 3);
        while interfering.work().launches < 5 {
            assert_eq!(interfering.death(), None);
            std::thread::yield_now();
        }
        let work = interfering.stop();
        assert!(work.device_ns > 0 && work.cpu_ns > 0, "{work:?}");
        assert_eq!(work.bytes, if kind == GpuLoadKind::Compute { 0 } else { (work.launches * 2) << 20 });
    }
    assert_eq!((emulator.count("allocations"), emulator.count("streams")), before, "nothing is left");
}

#[test]
fn interference_on_a_device_that_is_lost_ends_with_its_reason() {
    let Some((_alone, _gpu, emulator)) = device() else { return };
    let interfering =
        Interfering::start(&Interference { kernel_us: 100, ..Interference::default() }).unwrap();
    emulator.plant("lost=3");
    while interfering.death().is_none() {
        std::thread::yield_now();
    }
    assert!(interfering.death().unwrap().is_lost());
}

#[test]
fn the_check_measures_every_way_and_leaves_nothing() {
    let Some((_alone, _gpu, emulator)) = device() else { return };
    let before = ["allocations", "host_memory", "streams"].map(|name| emulator.count(name));
    let interference = Interference {
        kernel_us: 200,
        streams: 1,
        priority: Priority::Background,
        ..Interference::default()
    };
    let options = CheckOptions { frames: 10, measure_s: 600.0, growth_s: 0.05, interference, ordinal: 0 };
    let mut reported = Vec::new();
    let check = takt_gpu::check(&options, &mut |what| reported.push(what.to_owned())).unwrap();
    assert!(check.info.emulated && reported[0].contains("emulated device, no GPU"), "{reported:?}");
    assert_eq!((check.quiet.len(), check.disturbed.len()), (6, 4));
    for way in check.quiet.iter().chain(&check.disturbed) {
        assert_eq!(way.whole_us.count, 10, "{}", way.name);
        assert!(way.submit_us.worst <= way.whole_us.worst && way.device_us.min > 0.0, "{way:?}");
    }
    assert!(check.interference.launches > 0 && check.worst_ratio.is_some());
    let growth = check.growth.unwrap();
    assert!(growth.frames > 0 && growth.bytes() == 0, "{growth:?}");
    assert_eq!(["allocations", "host_memory", "streams"].map(|name| emulator.count(name)), before);
    let text = serde_json::to_string(&check).unwrap();
    assert_eq!(serde_json::from_str::<takt_gpu::Check>(&text).unwrap().disturbed.len(), 4);
    // A million frames would take hours here.
    let brief = CheckOptions { frames: 1_000_000, measure_s: 0.002, growth_s: 0.0, ..options };
    let check = takt_gpu::check(&brief, &mut |_| ()).unwrap();
    assert!(check.quiet.iter().chain(&check.disturbed).all(|way| (3..1000).contains(&way.whole_us.count)));
}

/// Failed requirements of a step of the check on this device, with the reason of an early end.
fn missed(name: &str) -> Vec<String> {
    use takt_gpu::check::step::{Step, StepMessage};
    use takt_gpu::check::steps;
    let mut missed = Vec::new();
    let mut judged = 0;
    let mut send = |message: StepMessage| {
        if let StepMessage::Requirement(requirement) = message {
            judged += 1;
            missed.extend((requirement.reached == Some(false)).then(|| requirement.line()));
        }
    };
    let mut step = Step::new(0, 0.05, &mut send);
    let outcome = match name {
        "kernels" => steps::kernels(&mut step, &[]),
        "clock" => steps::clock(&mut step),
        "streams" => steps::streams(&mut step),
        _ => steps::budgets(&mut step),
    };
    missed.extend(outcome.err().map(|error| error.to_string()));
    assert!(judged > 1 || !missed.is_empty(), "{name} judges something");
    missed
}

/// The whole check, with each fault in its step alone, is the program's test.
#[test]
fn steps_of_the_check_see_what_is_wrong_with_the_device() {
    for (step, fault, words) in [
        ("kernels", "wrong=interfere_memory", "words differ"),
        ("clock", "clock=1.01", "outside"),
        ("streams", "wrong=check_step", "words differ"),
        ("streams", "lose=check_order", "the GPU is lost"),
        ("budgets", "late=30", "returns at its deadline"),
    ] {
        let Some((_alone, gpu, emulator)) = device() else { return };
        drop(gpu);
        emulator.plant(fault);
        let missed = missed(step);
        emulator.plant("reset=1");
        assert!(missed.iter().any(|line| line.contains(words)), "{step}, {fault}: {missed:?}");
    }
}
