//! Five cameras at their rates: each on a stream of its own or all on one, spinning or sleeping,
//! with and without priorities.

use std::sync::{Barrier, Mutex, PoisonError};

use serde::Serialize;
use takt_gpu::Gpu;
use takt_gpu::check::step::{Step, StepError};
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::gpu::{BatchFrame, GpuBatch, GpuPerception, Progress};
use takt_perception::{Copies, Detections, FrameHealth, FramePose, GpuWait, PerceptionConfig, Streams};
use takt_rt::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use takt_rt::policy::Policy;
use takt_stats::Summary;

use super::{configuration, failed, of_perception, open, patient, views};
use crate::lab::CellFile;
use crate::lab::gpu_bench::PERCEPTION_P999_MS;

/// Frames of each view that are kept ready.
const FRAMES: u64 = 12;

/// Frames of each camera before any is counted: libraries choose their algorithms, the device comes
/// to its clock rate.
const WARM_UP: u64 = 5;

/// Least frames of each camera.
const LEAST: u64 = 3;

/// Policy of the cell's perception threads.
const POLICY: Policy = Policy::RoundRobin { priority: 50 };

/// One way of running the cameras.
#[derive(Clone, Copy, Debug, Serialize)]
struct CameraSetup {
    name: &'static str,
    batch: bool,
    wait: GpuWait,
    priorities: bool,
    network_graphs: bool,
    copies: Copies,
    rate_fps: f64,
}

/// Result.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    way: CameraSetup,
    /// From the planned arrival of a frame to its result.
    ms: Summary,
    device_ms: Summary,
    /// CPU time of the cameras' threads for a frame, mean, milliseconds: what spinning costs.
    cpu_ms: f64,
    /// Releases that were over before the frame before was done.
    skipped: u64,
    /// Frames that could not be judged.
    failed: u64,
    /// The threads' policy was granted.
    policy: bool,
}

/// A camera's frames and where it hangs.
struct Source {
    frames: Vec<Frame>,
    pose: FramePose,
    intrinsics: Intrinsics,
}

/// One camera's samples.
#[derive(Default)]
struct Samples {
    ms: Vec<f64>,
    device_ms: Vec<f64>,
    cpu_ns: u64,
    skipped: u64,
    failed: u64,
    policy: bool,
}

impl Samples {
    fn add(&mut self, planned_ns: u64, device_ns: u64, health: FrameHealth) {
        self.ms.push(monotonic_ns().saturating_sub(planned_ns) as f64 / 1e6);
        self.device_ms.push(device_ns as f64 / 1e6);
        self.failed += u64::from(health != FrameHealth::Ok);
    }

    /// CPU time of a frame, mean, milliseconds; 0 where there was none.
    fn cpu_ms(&self) -> f64 {
        self.cpu_ns as f64 / 1e6 / self.ms.len().max(1) as f64
    }

    fn join(all: Vec<Self>) -> Self {
        let mut whole = Self { policy: true, ..Self::default() };
        for mut one in all {
            whole.ms.append(&mut one.ms);
            whole.device_ms.append(&mut one.device_ms);
            whole.cpu_ns += one.cpu_ns;
            whole.skipped += one.skipped;
            whole.failed += one.failed;
            whole.policy &= one.policy;
        }
        whole
    }
}

/// Releases at a fixed rate from a first moment on; those that have passed are skipped and counted,
/// the phase stays.
struct Releases {
    next_ns: u64,
    period_ns: u64,
    end_ns: u64,
    done: u64,
}

impl Releases {
    /// From one period after the start, which is time 0, for `seconds`.
    fn every(period_ns: u64, seconds: f64) -> Self {
        Self { next_ns: period_ns, period_ns, end_ns: (seconds * 1e9) as u64, done: 0 }
    }

    /// The next planned moment, slept until; `None` at the end.
    fn next(&mut self, skipped: &mut u64) -> Option<u64> {
        if self.done >= LEAST && self.next_ns >= self.end_ns {
            return None;
        }
        let now_ns = monotonic_ns();
        while self.next_ns + self.period_ns <= now_ns {
            self.next_ns += self.period_ns;
            *skipped += 1;
        }
        let planned_ns = self.next_ns;
        sleep_until(planned_ns);
        self.next_ns += self.period_ns;
        self.done += 1;
        Some(planned_ns)
    }
}

fn ways(networks: bool) -> Vec<CameraSetup> {
    let mut all = Vec::new();
    for rate_fps in [30.0, 90.0] {
        let base = CameraSetup {
            name: "stream each, sleeping",
            batch: false,
            wait: GpuWait::Block,
            priorities: true,
            network_graphs: true,
            copies: Copies::default(),
            rate_fps,
        };
        all.push(base);
        all.push(CameraSetup { name: "stream each, spinning", wait: GpuWait::Spin, ..base });
        all.push(CameraSetup { name: "one batch, sleeping", batch: true, ..base });
        all.push(CameraSetup { name: "one batch, spinning", batch: true, wait: GpuWait::Spin, ..base });
        all.push(CameraSetup {
            name: "stream each, sleeping, copies by kernels",
            copies: Copies::Kernels,
            ..base
        });
        // Networks take seconds to load for each setting that they are loaded for: what concerns
        // the stream is measured with geometry alone.
        all.push(if networks {
            let name = "stream each, sleeping, networks kernel by kernel";
            CameraSetup { name, network_graphs: false, ..base }
        } else {
            CameraSetup { name: "stream each, sleeping, no priorities", priorities: false, ..base }
        });
    }
    all
}

/// Five cameras through geometry alone.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn geometry_cameras(step: &mut Step<'_>) -> Result<(), StepError> {
    five(step, false, "geometry")
}

/// Five cameras through the networks, too.
///
/// # Errors
/// [`StepError::NotRun`] where the networks cannot be had, or what any piece of work met.
pub fn network_cameras(step: &mut Step<'_>) -> Result<(), StepError> {
    super::network_answers(step)?;
    five(step, true, "networks")
}

fn five(step: &mut Step<'_>, networks: bool, through: &str) -> Result<(), StepError> {
    let gpu = open(step)?;
    let file = CellFile::demo().map_err(failed)?;
    let mut sources = Vec::new();
    for mut view in views(&file)? {
        let frames = view.frames(if step.is_emulated() { 2 } else { FRAMES })?;
        sources.push(Source { frames, pose: view.pose, intrinsics: view.intrinsics });
    }
    let ways = ways(networks);
    // The first numbers are for the networks' comparison.
    let share = if networks { 0.75 } else { 1.0 };
    let seconds = share * step.work_s / ways.len() as f64;
    // Threads of the emulated device are ordinary ones, and would be starved.
    let policy = (!gpu.info().emulated).then_some(POLICY);
    let not_graphs = Mutex::new(Vec::new());
    let loading = |progress: Progress| {
        if let Progress::NoGraph { model, reason } = progress {
            let mut all = not_graphs.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(format!("{model}: {reason}"));
        }
    };
    let mut all: Vec<Option<Outcome>> = ways.iter().map(|_| None).collect();
    // Networks take long to load: what differs in waiting and rate alone has the same cameras.
    let copies = Copies::default();
    for made in [
        (false, true, true, copies),
        (false, true, true, Copies::Kernels),
        (true, true, true, copies),
        (false, false, true, copies),
        (false, true, false, copies),
    ] {
        let same = |way: &CameraSetup| (way.batch, way.priorities, way.network_graphs, way.copies) == made;
        if !ways.iter().any(same) {
            continue;
        }
        let (batch, priorities, network_graphs, copies) = made;
        let mut config = configuration(&file, step.ordinal, networks);
        (config.gpu.priorities, config.gpu.network_graphs) = (priorities, network_graphs);
        config.gpu.copies = copies;
        if batch {
            config.gpu.streams = Streams::Batch;
        }
        let mut cameras = Cameras::new(&gpu, &config, &sources, batch, &loading)?;
        for (way, outcome) in ways.iter().zip(&mut all) {
            if !same(way) {
                continue;
            }
            step.progress(format!("five cameras at {} FPS through {through}: {}", way.rate_fps, way.name));
            let samples = match &mut cameras {
                Cameras::Each(cameras) => {
                    cameras.iter_mut().for_each(|camera| camera.set_wait(way.wait));
                    streams(cameras, &sources, way.rate_fps, seconds, policy)?
                }
                Cameras::Batch(batch) => {
                    batch.set_wait(way.wait);
                    together(batch, &sources, way.rate_fps, seconds, policy)?
                }
            };
            let cpu_ms = samples.cpu_ms();
            let Samples { mut ms, mut device_ms, skipped, failed, policy, .. } = samples;
            let (ms, device_ms) = (Summary::of(&mut ms), Summary::of(&mut device_ms));
            *outcome = Some(Outcome { way: *way, ms, device_ms, cpu_ms, skipped, failed, policy });
        }
        // Measured figures stay if the step is cut off later.
        step.figure("lines", all.iter().flatten().map(line).collect::<Vec<_>>());
    }
    if networks {
        let reasons = not_graphs.into_inner().unwrap_or_else(PoisonError::into_inner);
        let reported = reasons.first().map_or("all are", String::as_str);
        step.judge("inferences are launched as graphs", reported, reasons.is_empty());
    }
    let all: Vec<Outcome> = all.into_iter().flatten().collect();
    judge_all(step, &all, through);
    Ok(())
}

/// As a line for people.
fn line(outcome: &Outcome) -> String {
    let Outcome { way, ms, device_ms, cpu_ms, skipped, failed, policy } = outcome;
    format!(
        "{} FPS, {}: {} frames, mean {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, worst {:.3} ms (on the device: mean {:.3} ms, worst \
         {:.3} ms; CPU time of the threads: mean {cpu_ms:.3} ms), {skipped} skipped, {failed} not judged{}",
        way.rate_fps,
        way.name,
        ms.count,
        ms.mean,
        ms.p99,
        ms.p999,
        ms.worst,
        device_ms.mean,
        device_ms.worst,
        if *policy { "" } else { ", SCHED_RR not granted" }
    )
}

fn judge_all(step: &mut Step<'_>, all: &[Outcome], through: &str) {
    let failed: u64 = all.iter().map(|outcome| outcome.failed).sum();
    let frames: u64 = all.iter().map(|outcome| outcome.ms.count).sum();
    step.judge(
        &format!("five cameras through {through}: every frame is judged"),
        format!("{failed} of {frames} not"),
        failed == 0 && frames > 0,
    );
    for (at, rate_fps) in [30.0, 90.0].into_iter().enumerate() {
        let of_rate: Vec<&Outcome> = all.iter().filter(|outcome| outcome.way.rate_fps == rate_fps).collect();
        let reported: Vec<String> = of_rate.iter().map(|outcome| line(outcome)).collect();
        let reported = reported.join("; ");
        let what = format!(
            "five cameras at {rate_fps} FPS through {through}: p99.9 of a frame at most {PERCEPTION_P999_MS} ms, none skipped, with the \
             default settings"
        );
        let reached = of_rate.first().is_some_and(|o| o.ms.p999 <= PERCEPTION_P999_MS && o.skipped == 0);
        // The requirement applies to 30 FPS; 90 is only reported.
        if at == 0 {
            step.judge_time(&what, reported, reached);
        }
    }
    if let Some(best) = all.iter().filter(|o| o.failed == 0).min_by(|a, b| a.ms.p999.total_cmp(&b.ms.p999)) {
        step.figure("least_p999", line(best));
    }
    step.figure("lines", all.iter().map(line).collect::<Vec<_>>());
    step.figure("ways", all);
}

/// Judges frame `number`; with its planned arrival it counts.
type JudgeFrame<'a> = dyn FnMut(u64, Option<u64>, &mut Samples) -> Result<(), StepError> + 'a;

fn warm_and_run(
    policy: Option<Policy>,
    barrier: &Barrier,
    releases: Releases,
    offset_ns: u64,
    samples: &mut Samples,
    judge: &mut JudgeFrame<'_>,
) -> Result<(), StepError> {
    samples.policy = policy.is_none_or(|policy| policy.apply(0).is_ok());
    // Even one that fails meets the others here.
    let warm = (0..WARM_UP).try_for_each(|number| judge(number, None, samples));
    barrier.wait();
    warm?;
    let mut releases = Releases { next_ns: monotonic_ns() + releases.next_ns + offset_ns, ..releases };
    releases.end_ns += releases.next_ns;
    let mut number = WARM_UP;
    let mut skipped = 0;
    while let Some(planned_ns) = releases.next(&mut skipped) {
        let before_ns = thread_cpu_ns();
        judge(number, Some(planned_ns), samples)?;
        samples.cpu_ns += thread_cpu_ns() - before_ns;
        number += 1;
    }
    samples.skipped = skipped;
    Ok(())
}

/// Five cameras, ready to judge.
enum Cameras {
    /// A stream each.
    Each(Vec<GpuPerception>),
    /// All on one stream.
    Batch(Box<GpuBatch>),
}

impl Cameras {
    fn new(
        gpu: &Gpu,
        config: &PerceptionConfig,
        sources: &[Source],
        batch: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Self, StepError> {
        let numbered = (0..).zip(sources.iter().map(|source| source.intrinsics));
        if batch {
            let cameras: Vec<(u32, Intrinsics, _)> =
                numbered.map(|(index, intrinsics)| (index, intrinsics, None)).collect();
            let batch = GpuBatch::new(gpu, config, cameras, progress).map_err(of_perception)?;
            return Ok(Self::Batch(Box::new(batch)));
        }
        let each = numbered.map(|(index, intrinsics)| {
            GpuPerception::new(gpu, config, index, intrinsics, None, progress).map_err(of_perception)
        });
        Ok(Self::Each(each.collect::<Result<_, _>>()?))
    }
}

/// Each camera in a thread of its own, not synchronised with the others.
fn streams(
    cameras: &mut [GpuPerception],
    sources: &[Source],
    rate_fps: f64,
    seconds: f64,
    policy: Option<Policy>,
) -> Result<Samples, StepError> {
    let (period_ns, barrier) = ((1e9 / rate_fps) as u64, Barrier::new(sources.len()));
    let one = |index: usize, camera: &mut GpuPerception| -> Result<Samples, StepError> {
        let (source, mut out, mut samples) = (&sources[index], Detections::default(), Samples::default());
        let releases = Releases::every(period_ns, seconds);
        let mut judge = |number: u64, planned_ns: Option<u64>, samples: &mut Samples| {
            let frame = &source.frames[number as usize % source.frames.len()];
            camera.process(&patient(frame, &source.pose), &mut out, None).map_err(of_perception)?;
            if let Some(planned_ns) = planned_ns {
                samples.add(planned_ns, camera.device_times().total_ns(), out.health);
            }
            Ok(())
        };
        // Cameras of a cell free-run: here they come at fifths of the period.
        let offset_ns = period_ns * index as u64 / sources.len() as u64;
        warm_and_run(policy, &barrier, releases, offset_ns, &mut samples, &mut judge)?;
        Ok(samples)
    };
    let all: Vec<Result<Samples, StepError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cameras
            .iter_mut()
            .enumerate()
            .map(|(index, camera)| scope.spawn(move || one(index, camera)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(failed("a camera's thread ended"))))
            .collect()
    });
    Ok(Samples::join(all.into_iter().collect::<Result<_, _>>()?))
}

/// All cameras at once, on one stream.
fn together(
    batch: &mut GpuBatch,
    sources: &[Source],
    rate_fps: f64,
    seconds: f64,
    policy: Option<Policy>,
) -> Result<Samples, StepError> {
    let mut outs = vec![Detections::default(); sources.len()];
    let mut samples = Samples::default();
    let period_ns = (1e9 / rate_fps) as u64;
    let releases = Releases::every(period_ns, seconds);
    let mut judge = |number: u64, planned_ns: Option<u64>, samples: &mut Samples| {
        let mut jobs: Vec<BatchFrame<'_>> = sources
            .iter()
            .zip(&mut outs)
            .enumerate()
            .map(|(camera, (source, out))| {
                let frame = &source.frames[number as usize % source.frames.len()];
                BatchFrame { camera, frame: patient(frame, &source.pose), out, overlay: None, failed: None }
            })
            .collect();
        batch.process(&mut jobs).map_err(of_perception)?;
        if let Some(error) = jobs.iter_mut().find_map(|job| job.failed.take()) {
            return Err(of_perception(error));
        }
        if let Some(planned_ns) = planned_ns {
            for (camera, out) in outs.iter().enumerate() {
                let device_ns = batch.device_times(camera).map_or(0, |times| times.total_ns());
                samples.add(planned_ns, device_ns, out.health);
            }
        }
        Ok(())
    };
    // In a thread of its own: the policy ends with it.
    std::thread::scope(|scope| {
        let run = || warm_and_run(policy, &Barrier::new(1), releases, 0, &mut samples, &mut judge);
        scope.spawn(run).join().unwrap_or_else(|_| Err(failed("the cameras' thread ended")))
    })?;
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that take a millisecond of CPU each, two of them a release, as a batch has several.
    #[test]
    fn the_cpu_time_of_a_frame_is_that_of_its_thread() {
        let mut samples = Samples::default();
        let mut judge = |_: u64, planned_ns: Option<u64>, samples: &mut Samples| {
            let until_ns = thread_cpu_ns() + 2_000_000;
            while thread_cpu_ns() < until_ns {}
            for planned_ns in planned_ns.into_iter().chain(planned_ns) {
                samples.add(planned_ns, 0, FrameHealth::Ok);
            }
            Ok(())
        };
        let releases = Releases::every(1_000_000, 0.0);
        warm_and_run(None, &Barrier::new(1), releases, 0, &mut samples, &mut judge).unwrap();
        assert_eq!(samples.ms.len() as u64, 2 * LEAST);
        // Reading the clock costs some; the warm-up's frames do not count.
        assert!((1.0..2.0).contains(&samples.cpu_ms()), "{}", samples.cpu_ms());
        let twice = Samples::join(vec![samples, Samples::default()]);
        assert!(twice.cpu_ns > 0 && Samples::default().cpu_ms() == 0.0);
    }
}
