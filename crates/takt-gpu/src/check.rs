//! Measurements of a device: launching with and without graphs, the three ways of waiting,
//! priorities under interference, growth of its memory, the error of its clock. They use only the
//! device, without perception or models.

mod requirement;
pub mod runner;
pub mod step;
pub mod steps;

pub use requirement::Requirement;

use serde::{Deserialize, Serialize};
use takt_load::gpu::{GpuLoadKind, Interference, InterferenceWork, Priority};
use takt_rt::clock::monotonic_ns;
use takt_stats::Summary;

use crate::clock::{Clock, Mapping};
use crate::error::GpuError;
use crate::gpu::{Gpu, Info, Memory};
use crate::graph::Graph;
use crate::interference::Interfering;
use crate::kernel::{Arg, Function, Grid};
use crate::memory::{DeviceBuffer, Pinned};
use crate::source::Source;
use crate::stream::{Event, Stream};
use crate::wait::{Wait, Waited};

pub const CHECK_KERNELS: Source = Source { name: "check", text: include_str!("check.cu"), options: &[] };

/// Words of the check's frame: 640 x 480 pixels of colour and depth, 5 bytes each.
const WORDS: usize = 640 * 480 * 5 / 4;

const RESULT_WORDS: usize = 1024;

/// Kernels of a frame: about what preparing and finishing take without the networks.
const KERNELS: usize = 20;

/// First frames, which are not counted: the device comes to its clock rate, the driver to its
/// memory.
const WARM_UP: u32 = 50;

/// Frames that are measured in any case.
const LEAST: u32 = 3;

/// Longest time that a frame may take before the device counts as hung.
const HUNG_NS: u64 = 10_000_000_000;

/// Options of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckOptions {
    /// Number of the GPU. Default 0.
    pub ordinal: u32,
    /// Frames of each measurement, at most, 10 to 1,000,000. Default 3000: a p99.9 rests on three
    /// of them.
    pub frames: u32,
    /// Longest time of each measurement, seconds, above 0 to 86400, after up to a tenth of it for
    /// warming up; three frames are measured in any case. Default 5: what is waited for without
    /// control takes 0.2 s a frame on an H200.
    pub measure_s: f64,
    /// Time for which the device's memory is watched while frames run, seconds, 0 to 86400; 0
    /// leaves it out. Default 600.
    pub growth_s: f64,
    /// The interference. Default: kernels of 2 ms that fill the device.
    pub interference: Interference,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            ordinal: 0,
            frames: 3000,
            measure_s: 5.0,
            growth_s: 600.0,
            interference: Interference::default(),
        }
    }
}

impl CheckOptions {
    /// Checks every value.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] names the value and its bounds.
    pub fn validate(&self) -> Result<(), GpuError> {
        let invalid = |what, expected: &str, received: String| {
            Err(GpuError::Invalid { what, expected: expected.to_owned(), received })
        };
        if !(10..=1_000_000).contains(&self.frames) {
            return invalid("frames", "10..=1000000", self.frames.to_string());
        }
        // Both also refuse NaN.
        if !(self.measure_s > 0.0 && self.measure_s <= 86_400.0) {
            return invalid("measure_s", "above 0 to 86400", self.measure_s.to_string());
        }
        if !(0.0..=86_400.0).contains(&self.growth_s) {
            return invalid("growth_s", "0..=86400", self.growth_s.to_string());
        }
        Ok(self.interference.validate()?)
    }
}

/// One way of running frames. Times are microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredWait {
    /// In words.
    pub name: String,
    /// Whether the frame is one graph.
    pub graph: bool,
    /// Waiting method of the host.
    pub wait: Wait,
    /// Priority of the stream.
    pub priority: Priority,
    /// From the first call to the end of waiting.
    pub whole_us: Summary,
    /// Until all was submitted: the host's part.
    pub submit_us: Summary,
    /// On the device, by its own clock.
    pub device_us: Summary,
}

/// Growth of the device's memory while frames run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Seconds watched.
    pub seconds: f64,
    /// Frames meanwhile.
    pub frames: u64,
    pub before: Memory,
    pub after: Memory,
    /// Least free memory in between.
    pub least_free_bytes: u64,
}

/// The measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The device; where it is the emulated one, the figures say nothing of a GPU.
    pub info: Info,
    /// Its clock at the end.
    pub clock: Mapping,
    /// On an idle device: direct and as a graph, with each way of waiting.
    pub quiet: Vec<MeasuredWait>,
    /// Under interference of this process: first as it is without control, then with what controls
    /// it.
    pub disturbed: Vec<MeasuredWait>,
    /// Work of the interference in the meantime.
    pub interference: InterferenceWork,
    /// Factor by which control lowers the worst frame; `None` if something was not measured.
    pub worst_ratio: Option<f64>,
    /// Whether memory grew.
    pub growth: Option<Growth>,
}

/// Measures. `progress` is informed of what begins.
///
/// # Errors
/// The first error of opening, compiling or any piece of work; [`GpuError::System`] for a frame
/// that takes 10 s.
pub fn check(options: &CheckOptions, progress: &mut dyn FnMut(&str)) -> Result<Check, GpuError> {
    options.validate()?;
    let gpu = Gpu::open(options.ordinal)?;
    progress(&format!("{} ({}), CUDA {}", gpu.info().name, gpu.info().uuid, gpu.driver_version()));
    let mut clock = Clock::new(&gpu)?;

    let mut quiet = Vec::new();
    for graph in [false, true] {
        for wait in [Wait::Spin, Wait::Yield, Wait::Block] {
            let name =
                format!("{}, {wait:?}", if graph { "graph" } else { "single launches" }).to_lowercase();
            progress(&format!("idle device: {name}"));
            let mut frame = Frame::new(&gpu, Priority::Critical, graph)?;
            quiet.push(frame.measure(name, wait, options.frames, options.measure_s)?);
        }
    }

    let control = [
        ("no control", false, options.interference.priority),
        ("graph", true, options.interference.priority),
        ("priority", false, Priority::Critical),
        ("priority and graph", true, Priority::Critical),
    ];
    let mut frames = Vec::new();
    for (name, graph, priority) in control {
        frames.push((name, Frame::new(&gpu, priority, graph)?));
    }
    let interfering = Interfering::start(&options.interference)?;
    let mut disturbed = Vec::new();
    for (name, frame) in &mut frames {
        progress(&format!("under interference ({}): {name}", kind_name(options.interference.kind)));
        disturbed.push(frame.measure((*name).to_owned(), Wait::Spin, options.frames, options.measure_s)?);
        if let Some(error) = interfering.death() {
            return Err(error.clone());
        }
    }
    let work = interfering.stop();
    let worst = |at: usize| disturbed.get(at).map(|way| way.whole_us.worst);
    let worst_ratio = worst(0).zip(worst(control.len() - 1)).filter(|(_, with)| *with > 0.0);

    let growth = match options.growth_s {
        seconds if seconds > 0.0 => {
            progress(&format!("memory over {seconds} s"));
            frames.last_mut().map(|(_, frame)| frame.watch(&gpu, seconds)).transpose()?
        }
        _ => None,
    };
    clock.renew(20, monotonic_ns() + HUNG_NS)?;
    Ok(Check {
        info: gpu.info().clone(),
        clock: clock.mapping(),
        quiet,
        disturbed,
        interference: work,
        worst_ratio: worst_ratio.map(|(without, with)| without / with),
        growth,
    })
}

fn kind_name(kind: GpuLoadKind) -> &'static str {
    match kind {
        GpuLoadKind::Compute => "compute",
        GpuLoadKind::Memory => "memory",
        GpuLoadKind::Copies => "copies",
    }
}

/// A stand-in for a camera's frame: copy to the device, kernels one after another, a small result
/// back.
struct Frame {
    graph: Option<Graph>,
    begin: Event,
    end: Event,
    work: Steps,
    stream: Stream,
    priority: Priority,
}

struct Steps {
    step: Function,
    input: Pinned<u32>,
    result: Pinned<u32>,
    buffers: [DeviceBuffer<u32>; 2],
}

impl Steps {
    fn submit(&self, stream: &Stream) -> Result<(), GpuError> {
        stream.upload(&self.input, &self.buffers[0])?;
        for kernel in 0..KERNELS {
            let (from, to) = (&self.buffers[kernel % 2], &self.buffers[1 - kernel % 2]);
            let args = [Arg::buffer(from), Arg::buffer(to), Arg::value(WORDS as u32)];
            // SAFETY: as declared in the source; both have `WORDS` elements.
            unsafe { stream.launch(&self.step, Grid::over(WORDS, 256), &args)? };
        }
        stream.download(&self.buffers[KERNELS % 2], &self.result)
    }
}

impl Frame {
    fn new(gpu: &Gpu, priority: Priority, graph: bool) -> Result<Self, GpuError> {
        let stream = gpu.stream(priority)?;
        let work = Steps {
            step: gpu.module(&CHECK_KERNELS)?.function("check_step")?,
            input: gpu.pinned(WORDS)?,
            result: gpu.pinned(RESULT_WORDS)?,
            buffers: [gpu.buffer(WORDS)?, gpu.buffer(WORDS)?],
        };
        let graph = if graph { Some(stream.capture(|| work.submit(&stream))?) } else { None };
        Ok(Self { graph, begin: stream.event(true)?, end: stream.event(true)?, work, stream, priority })
    }

    /// One frame: nanoseconds of the whole, of submitting, on the device.
    fn run(&mut self, wait: Wait) -> Result<[u64; 3], GpuError> {
        let start_ns = monotonic_ns();
        self.stream.record(&self.begin)?;
        match &self.graph {
            Some(graph) => self.stream.launch_graph(graph)?,
            None => self.work.submit(&self.stream)?,
        }
        self.stream.record(&self.end)?;
        let submitted_ns = monotonic_ns();
        if self.end.wait(start_ns + HUNG_NS, wait)? == Waited::Overrun {
            let reason = step::hung("a frame", HUNG_NS / 1_000_000_000);
            return Err(GpuError::System { what: "check", reason });
        }
        let end_ns = monotonic_ns();
        let device_ns = u64::try_from(self.end.since(&self.begin)?).unwrap_or(0);
        Ok([end_ns - start_ns, submitted_ns - start_ns, device_ns])
    }

    /// So many frames, or those of so many seconds; before them, up to a tenth as long to warm up.
    fn measure(
        &mut self,
        name: String,
        wait: Wait,
        frames: u32,
        seconds: f64,
    ) -> Result<MeasuredWait, GpuError> {
        let after = |seconds: f64| monotonic_ns() + (seconds * 1e9) as u64;
        let until_ns = after(seconds / 10.0);
        for _ in 0..WARM_UP.min(frames) {
            self.run(wait)?;
            if monotonic_ns() >= until_ns {
                break;
            }
        }
        let until_ns = after(seconds);
        let mut values = [const { Vec::new() }; 3];
        for measured in 0..frames {
            if measured >= LEAST && monotonic_ns() >= until_ns {
                break;
            }
            for (list, ns) in values.iter_mut().zip(self.run(wait)?) {
                list.push(ns as f64 / 1e3);
            }
        }
        let [whole_us, submit_us, device_us] = values.each_mut().map(|list| Summary::of(list));
        let (graph, priority) = (self.graph.is_some(), self.priority);
        Ok(MeasuredWait { name, graph, wait, priority, whole_us, submit_us, device_us })
    }

    fn watch(&mut self, gpu: &Gpu, seconds: f64) -> Result<Growth, GpuError> {
        self.run(Wait::Block)?;
        let before = gpu.memory()?;
        let start_ns = monotonic_ns();
        let until_ns = start_ns + (seconds * 1e9) as u64;
        let mut growth =
            Growth { seconds: 0.0, frames: 0, before, after: before, least_free_bytes: before.free_bytes };
        // Asking the driver takes long: once in a while.
        let mut next_look_ns = start_ns;
        loop {
            self.run(Wait::Block)?;
            growth.frames += 1;
            let now_ns = monotonic_ns();
            if now_ns >= next_look_ns || now_ns >= until_ns {
                growth.after = gpu.memory()?;
                growth.least_free_bytes = growth.least_free_bytes.min(growth.after.free_bytes);
                growth.seconds = (now_ns - start_ns) as f64 / 1e9;
                next_look_ns = now_ns + 100_000_000;
            }
            if now_ns >= until_ns {
                return Ok(growth);
            }
        }
    }
}

impl Growth {
    /// Bytes that are taken now and were free before. Other programs' too: memory is the whole
    /// device's.
    pub fn bytes(&self) -> u64 {
        self.before.free_bytes.saturating_sub(self.after.free_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_bounds_are_named() {
        assert!(CheckOptions::default().validate().is_ok());
        for (options, word) in [
            (CheckOptions { frames: 3, ..Default::default() }, "frames"),
            (CheckOptions { measure_s: 0.0, ..Default::default() }, "measure_s"),
            (CheckOptions { growth_s: f64::NAN, ..Default::default() }, "growth_s"),
        ] {
            let text = options.validate().unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
