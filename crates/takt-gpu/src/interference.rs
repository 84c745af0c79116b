//! GPU interference: the device's counterpart of the noise threads. Non-critical work of one kind,
//! as much as is asked for, on several streams from one thread, with the proof that it was there.
//!
//! Stream priorities order the work of *one process*. Work of another process takes turns with it
//! in time slices of the driver's (unless MPS runs), whatever its priority; so where this is
//! started decides what is measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{Builder, JoinHandle};

use takt_load::gpu::{GpuLoadKind, Interference, InterferenceWork};
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

/// Pieces that each stream has ahead, so that the device does not wait for the host.
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

impl Progress {
    fn add(&self, took_ns: u64, bytes: u64) {
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.device_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    }
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
    /// The first error of opening the device, compiling, allocating or the first piece of work.
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
                    // The first steps submit alone, where work is submitted ahead.
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

    /// Its work so far.
    pub fn work(&self) -> InterferenceWork {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InterferenceWork {
            launches: read(&self.progress.launches),
            bytes: read(&self.progress.bytes),
            device_ns: read(&self.progress.device_ns),
            cpu_ns: read(&self.progress.cpu_ns),
        }
    }

    /// Reason of its unrequested end.
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

/// Resources of a stream's pieces of work, exclusive to it.
enum Work {
    Compute { kernel: Function, out: DeviceBuffer<f32> },
    Memory { kernel: Function, from: DeviceBuffer<u32>, to: DeviceBuffer<u32> },
    Copies { up: Pinned<u32>, down: Pinned<u32>, near: DeviceBuffer<u32>, far: DeviceBuffer<u32> },
}

impl Work {
    fn new(gpu: &Gpu, config: &Interference, grid: Grid) -> Result<Self, GpuError> {
        let words = usize::try_from(config.mib * MIB / 4).unwrap_or(usize::MAX);
        let kernel = |name| gpu.module(&INTERFERENCE_KERNELS)?.function(name);
        Ok(match config.kind {
            GpuLoadKind::Compute => {
                let out = gpu.buffer(grid.blocks[0] as usize)?;
                Self::Compute { kernel: kernel("interfere_compute")?, out }
            }
            GpuLoadKind::Memory => {
                let (from, to) = (gpu.buffer(words)?, gpu.buffer(words)?);
                Self::Memory { kernel: kernel("interfere_memory")?, from, to }
            }
            GpuLoadKind::Copies => Self::Copies {
                up: gpu.pinned(words)?,
                down: gpu.pinned(words)?,
                near: gpu.buffer(words)?,
                far: gpu.buffer(words)?,
            },
        })
    }

    /// Bytes that a piece moves.
    fn bytes(&self) -> u64 {
        match self {
            Self::Compute { .. } => 0,
            Self::Memory { from, .. } => 2 * from.bytes() as u64,
            Self::Copies { near, .. } => 2 * near.bytes() as u64,
        }
    }
}

/// A stream with its pieces of work.
struct Lane {
    pieces: Vec<Piece>,
    work: Work,
    stream: Stream,
}

impl Lane {
    fn new(gpu: &Gpu, config: &Interference, grid: Grid) -> Result<Self, GpuError> {
        let stream = gpu.stream(config.priority)?;
        let work = Work::new(gpu, config, grid)?;
        let piece = || Ok(Piece { begin: stream.event(true)?, end: stream.event(true)?, busy: false });
        let pieces = (0..AHEAD).map(|_| piece()).collect::<Result<_, GpuError>>()?;
        Ok(Self { pieces, work, stream })
    }

    fn submit(&mut self, at: usize, grid: Grid, rounds: i32) -> Result<(), GpuError> {
        let (stream, piece) = (&self.stream, &mut self.pieces[at]);
        stream.record(&piece.begin)?;
        match &self.work {
            Work::Compute { kernel, out } => {
                // SAFETY: as declared in the source; `out` has an element for each block.
                unsafe { stream.launch(kernel, grid, &[Arg::buffer(out), Arg::value(rounds)])? };
            }
            Work::Memory { kernel, from, to } => {
                let words = from.len() as u32;
                let args = [Arg::buffer(from), Arg::buffer(to), Arg::value(words)];
                // SAFETY: as declared in the source; both have `words` elements.
                unsafe { stream.launch(kernel, grid, &args)? };
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
}

struct Worker {
    lanes: Vec<Lane>,
    /// Pieces so far, in turn over the streams.
    next: usize,
    grid: Grid,
    /// Of a compute kernel.
    rounds: i32,
    gpu: Gpu,
    duty: f64,
}

impl Worker {
    fn new(config: &Interference) -> Result<Self, GpuError> {
        let gpu = Gpu::open(config.ordinal)?;
        let multiprocessors = f64::from(gpu.info().multiprocessors.max(1));
        let blocks = (multiprocessors * BLOCKS_PER_MULTIPROCESSOR * config.share).round().max(1.0);
        let grid = Grid { blocks: [blocks as u32, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 };
        let lanes = (0..config.streams).map(|_| Lane::new(&gpu, config, grid)).collect::<Result<_, _>>()?;
        let mut worker = Self { lanes, next: 0, grid, rounds: 16, gpu, duty: config.duty };
        if config.kind == GpuLoadKind::Compute {
            worker.calibrate(config.kernel_us.saturating_mul(1000))?;
        }
        Ok(worker)
    }

    /// Finds how many rounds take `kernel_ns`, the device being as it is: something else at work
    /// makes kernels shorter, not longer.
    fn calibrate(&mut self, kernel_ns: u64) -> Result<(), GpuError> {
        while self.rounds < 1 << 30 {
            self.lanes[0].submit(0, self.grid, self.rounds)?;
            let took_ns = self.lanes[0].finish(0)?.max(1);
            if took_ns >= kernel_ns / 4 || took_ns >= 20_000_000 {
                let wanted = f64::from(self.rounds) * kernel_ns as f64 / took_ns as f64;
                self.rounds = wanted.clamp(1.0, 1e9) as i32;
                break;
            }
            self.rounds = self.rounds.saturating_mul(4).min(1 << 30);
        }
        Ok(())
    }

    /// Waits for the oldest piece of the next stream, if it has as many as it may, and submits
    /// another in its place.
    fn step(&mut self, progress: &Progress) -> Result<(), GpuError> {
        if self.duty < 1.0 {
            return self.round_and_rest(progress);
        }
        let (lane, at) = (self.next % self.lanes.len(), self.next / self.lanes.len() % AHEAD);
        self.next = self.next.wrapping_add(1);
        let lane = &mut self.lanes[lane];
        if lane.pieces[at].busy {
            let took_ns = lane.finish(at)?;
            progress.add(took_ns, lane.work.bytes());
        }
        lane.submit(at, self.grid, self.rounds)
    }

    /// A piece in each stream, and then nothing, as the device is to rest.
    fn round_and_rest(&mut self, progress: &Progress) -> Result<(), GpuError> {
        for lane in &mut self.lanes {
            lane.submit(0, self.grid, self.rounds)?;
        }
        // From the first piece's begin to the last one's end.
        let mut round_ns = 0;
        for at in 0..self.lanes.len() {
            let took_ns = self.lanes[at].finish(0)?;
            progress.add(took_ns, self.lanes[at].work.bytes());
            let since = self.lanes[at].pieces[0].end.since(&self.lanes[0].pieces[0].begin)?;
            round_ns = round_ns.max(u64::try_from(since).unwrap_or(0));
        }
        let mut rest_ns = (round_ns as f64 * (1.0 / self.duty - 1.0)) as u64;
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
        // Work submitted ahead ends before its memory is freed.
        let until_ns = monotonic_ns() + if stopped { HUNG_NS } else { 0 };
        for lane in &self.lanes {
            let _ = lane.stream.drain(until_ns, Wait::Block);
        }
    }
}
