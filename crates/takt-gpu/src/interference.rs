//! GPU interference: the device's counterpart of the noise threads. Non-critical work of one kind,
//! as much as is asked for, from a thread of its own, with the proof that it was there.
//!
//! Stream priorities order the work of *one process*. Work of another process takes turns with it
//! in time slices of the driver's (unless MPS runs), whatever its priority; so where this is
//! started decides what is measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{Builder, JoinHandle};

use takt_load::gpu::{Interference, InterferenceWork, Kind};
use takt_rt::census::Registration;
use takt_rt::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use takt_rt::policy::Policy;

use crate::error::GpuError;
use crate::gpu::{Gpu, Info};
use crate::kernel::{Arg, Function, Grid};
use crate::memory::{DeviceBuffer, Pinned};
use crate::source::Source;
use crate::stream::{Event, Stream};
use crate::wait::{Wait, Waited};

pub const INTERFERENCE_KERNELS: Source =
    Source { name: "interference", text: include_str!("interference.cu"), options: &[] };

/// Pieces submitted ahead, so that the device does not wait for the host.
const AHEAD: usize = 2;

/// Threads of a block.
const THREADS: u32 = 256;

/// Blocks of [`THREADS`] that fill a multiprocessor of any GPU since 2017.
const BLOCKS_PER_MULTIPROCESSOR: f64 = 8.0;

/// Most time that a piece of work may take before it counts as hung.
const HUNG_NS: u64 = 10_000_000_000;

const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    launches: AtomicU64,
    bytes: AtomicU64,
    device_ns: AtomicU64,
    cpu_ns: AtomicU64,
    death: OnceLock<GpuError>,
}

/// Interference under way; dropping it ends it.
#[derive(Debug)]
pub struct Interfering {
    progress: Arc<Progress>,
    device: Info,
    thread: Option<JoinHandle<()>>,
}

impl Interfering {
    /// Starts it in a thread of this process. Returns when its first piece has run.
    ///
    /// # Errors
    /// What opening the device, compiling, allocating or the first piece met.
    pub fn start(config: &Interference) -> Result<Self, GpuError> {
        config.validate()?;
        let progress = Arc::new(Progress::default());
        let (config, own) = (config.clone(), Arc::clone(&progress));
        let (report, reported) = mpsc::channel();
        let body = move || {
            let _registration = Registration::exempt_self("gpu-load");
            let begun = Policy::Other { nice: 0 }
                .apply(0)
                .map_err(|error| GpuError::System { what: "gpu-load", reason: error.to_string() })
                .and_then(|()| Worker::new(&config))
                .and_then(|mut worker| {
                    // The first step submits alone, where work is submitted ahead.
                    while own.launches.load(Ordering::Relaxed) == 0 {
                        worker.step(&own)?;
                    }
                    Ok(worker)
                });
            match begun {
                Ok(mut worker) => {
                    let _ = report.send(Ok(worker.gpu.info().clone()));
                    drop(report);
                    worker.run(&own);
                }
                Err(error) => drop(report.send(Err(error))),
            }
        };
        let spawned = Builder::new().name("gpu-load".into()).spawn(body);
        let thread = spawned
            .map_err(|error| GpuError::System { what: "thread gpu-load", reason: error.to_string() })?;
        let ended = || GpuError::System { what: "thread gpu-load", reason: "it ended at once".to_owned() };
        match reported.recv().map_err(|_| ended()).flatten() {
            Ok(device) => Ok(Self { progress, device, thread: Some(thread) }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// The device that it works on.
    pub fn device(&self) -> &Info {
        &self.device
    }

    /// What it has done so far.
    pub fn work(&self) -> InterferenceWork {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InterferenceWork {
            launches: read(&self.progress.launches),
            bytes: read(&self.progress.bytes),
            device_ns: read(&self.progress.device_ns),
            cpu_ns: read(&self.progress.cpu_ns),
        }
    }

    /// Why it ended before it was instructed to.
    pub fn death(&self) -> Option<&GpuError> {
        self.progress.death.get()
    }

    /// Asks it to end and does not wait.
    pub fn ask_to_end(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// Ends it and shows what it has done.
    pub fn stop(mut self) -> InterferenceWork {
        self.end();
        self.work()
    }

    fn end(&mut self) {
        self.ask_to_end();
        if let Some(thread) = self.thread.take() {
            // Nothing in it panics; if something did, its work shows that it stood still.
            let _ = thread.join();
        }
    }
}

impl Drop for Interfering {
    fn drop(&mut self) {
        self.end();
    }
}

/// One piece under way.
struct Piece {
    begin: Event,
    end: Event,
    busy: bool,
}

enum Work {
    Compute { kernel: Function, out: DeviceBuffer<f32>, grid: Grid, rounds: i32 },
    Memory { kernel: Function, from: DeviceBuffer<u32>, to: DeviceBuffer<u32>, grid: Grid },
    Copies { up: Pinned<u32>, down: Pinned<u32>, near: DeviceBuffer<u32>, far: DeviceBuffer<u32> },
}

struct Worker {
    pieces: Vec<Piece>,
    next: usize,
    work: Work,
    stream: Stream,
    gpu: Gpu,
    duty: f64,
}

impl Worker {
    fn new(config: &Interference) -> Result<Self, GpuError> {
        let gpu = Gpu::open(config.ordinal)?;
        let stream = gpu.stream(config.priority)?;
        let blocks =
            |of: f64| (f64::from(gpu.info().multiprocessors.max(1)) * of * config.share).round().max(1.0);
        let grid = Grid {
            blocks: [blocks(BLOCKS_PER_MULTIPROCESSOR) as u32, 1, 1],
            threads: [THREADS, 1, 1],
            shared_bytes: 0,
        };
        let words = usize::try_from(config.mib * MIB / 4).unwrap_or(usize::MAX);
        let work = match config.kind {
            Kind::Compute => {
                let kernel = gpu.module(&INTERFERENCE_KERNELS)?.function("interfere_compute")?;
                let out = gpu.buffer(grid.blocks[0] as usize)?;
                Work::Compute { kernel, out, grid, rounds: 16 }
            }
            Kind::Memory => {
                let kernel = gpu.module(&INTERFERENCE_KERNELS)?.function("interfere_memory")?;
                Work::Memory { kernel, from: gpu.buffer(words)?, to: gpu.buffer(words)?, grid }
            }
            Kind::Copies => Work::Copies {
                up: gpu.pinned(words)?,
                down: gpu.pinned(words)?,
                near: gpu.buffer(words)?,
                far: gpu.buffer(words)?,
            },
        };
        let piece = || Ok(Piece { begin: stream.event(true)?, end: stream.event(true)?, busy: false });
        let pieces = (0..AHEAD).map(|_| piece()).collect::<Result<_, GpuError>>()?;
        let mut worker = Self { pieces, next: 0, work, stream, gpu, duty: config.duty };
        worker.calibrate(config.kernel_us.saturating_mul(1000))?;
        Ok(worker)
    }

    /// Finds how many rounds take `kernel_ns`, the device being as it is: something else at work
    /// makes kernels shorter, not longer.
    fn calibrate(&mut self, kernel_ns: u64) -> Result<(), GpuError> {
        loop {
            let Work::Compute { rounds, .. } = &self.work else { return Ok(()) };
            let tried = i64::from(*rounds);
            self.submit(0)?;
            let took_ns = self.finish(0)?.max(1);
            let enough = took_ns >= kernel_ns / 4 || took_ns >= 20_000_000;
            let Work::Compute { rounds, .. } = &mut self.work else { return Ok(()) };
            if enough {
                let wanted = (tried as f64 * kernel_ns as f64 / took_ns as f64).clamp(1.0, 1e9);
                *rounds = wanted as i32;
                return Ok(());
            }
            *rounds = i32::try_from(tried * 4).unwrap_or(i32::MAX).min(1 << 30);
            if *rounds == 1 << 30 {
                return Ok(());
            }
        }
    }

    fn bytes(&self) -> u64 {
        match &self.work {
            Work::Compute { .. } => 0,
            Work::Memory { from, .. } => 2 * from.bytes() as u64,
            Work::Copies { near, .. } => 2 * near.bytes() as u64,
        }
    }

    fn submit(&mut self, at: usize) -> Result<(), GpuError> {
        let (stream, piece) = (&self.stream, &mut self.pieces[at]);
        stream.record(&piece.begin)?;
        match &self.work {
            Work::Compute { kernel, out, grid, rounds } => {
                // SAFETY: as declared in the source; `out` has an element for each block.
                unsafe { stream.launch(kernel, *grid, &[Arg::buffer(out), Arg::value(*rounds)])? };
            }
            Work::Memory { kernel, from, to, grid } => {
                let words = from.len() as u32;
                let args = [Arg::buffer(from), Arg::buffer(to), Arg::value(words)];
                // SAFETY: as declared in the source; both have `words` elements.
                unsafe { stream.launch(kernel, *grid, &args)? };
            }
            Work::Copies { up, down, near, far } => {
                stream.upload(up, near)?;
                stream.download(far, down)?;
            }
        }
        stream.record(&piece.end)?;
        piece.busy = true;
        Ok(())
    }

    /// Waits for a piece; how long the device took.
    fn finish(&mut self, at: usize) -> Result<u64, GpuError> {
        let piece = &mut self.pieces[at];
        match piece.end.wait(monotonic_ns() + HUNG_NS, Wait::Block)? {
            Waited::Done => {
                piece.busy = false;
                Ok(u64::try_from(piece.end.since(&piece.begin)?).unwrap_or(0))
            }
            Waited::Overrun => Err(GpuError::System {
                what: "interference",
                reason: format!("a piece of work has not ended within {} s", HUNG_NS / 1_000_000_000),
            }),
        }
    }

    /// Waits for the oldest piece and submits another in its place.
    fn step(&mut self, progress: &Progress) -> Result<(), GpuError> {
        // Where the device is to rest, nothing is submitted ahead.
        let ahead = if self.duty < 1.0 { 1 } else { AHEAD };
        let at = self.next % ahead;
        self.next += 1;
        if !self.pieces[at].busy {
            self.submit(at)?;
            if ahead > 1 {
                return Ok(());
            }
        }
        let took_ns = self.finish(at)?;
        progress.launches.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(self.bytes(), Ordering::Relaxed);
        progress.device_ns.fetch_add(took_ns, Ordering::Relaxed);
        progress.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        if ahead > 1 {
            return self.submit(at);
        }
        let mut rest_ns = (took_ns as f64 * (1.0 / self.duty - 1.0)) as u64;
        while rest_ns > 0 && !progress.stop.load(Ordering::Relaxed) {
            // In parts, so that the stop flag is seen soon.
            let part_ns = rest_ns.min(50_000_000);
            sleep_until(monotonic_ns() + part_ns);
            rest_ns -= part_ns;
        }
        Ok(())
    }

    fn run(&mut self, progress: &Progress) {
        let mut outcome = Ok(());
        while outcome.is_ok() && !progress.stop.load(Ordering::Relaxed) {
            outcome = self.step(progress);
        }
        let stopped = progress.stop.load(Ordering::Relaxed);
        if let Err(error) = outcome {
            let _ = progress.death.set(error);
        }
        // What was submitted ahead ends before its memory goes.
        let _ = self.stream.drain(monotonic_ns() + if stopped { HUNG_NS } else { 0 }, Wait::Block);
    }
}
