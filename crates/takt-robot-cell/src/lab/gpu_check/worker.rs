//! The device's memory while frames are judged for minutes, and the perception process when it is
//! killed.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;
use takt_gpu::check::step::{Step, StepError};
use takt_link_camera::Frame;
use takt_perception::gpu::GpuPerception;
use takt_perception::process::{EventKind, Judged, Program, Setup, Started, Supervisor};
use takt_perception::{Detections, Engine, FrameHealth, Perception, Provider, WhenOpen};
use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use super::{configuration, failed, of_perception, open, patient, views};
use crate::lab::CellFile;

/// Frames of each camera before memory is looked at: drivers take theirs at the first use.
const WARM_UP: u64 = 20;

/// Between two looks at the memory, which takes the driver long.
const LOOK_NS: u64 = 100_000_000;

/// Longest waiting for the perception process to answer again.
const PATIENCE: Duration = Duration::from_secs(15);

/// Five cameras over and over, and the memory that is free meanwhile.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn growth(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let file = CellFile::demo().map_err(failed)?;
    let config = configuration(&file, step.ordinal, false);
    let mut cameras = Vec::new();
    for (index, mut view) in views(&file)?.into_iter().enumerate() {
        let camera = GpuPerception::new(&gpu, &config, index as u32, view.intrinsics, None, &|_| ());
        cameras.push((camera.map_err(of_perception)?, view.frames(2)?, view.pose));
    }
    let mut out = Detections::default();
    let mut all = |number: u64| -> Result<(), StepError> {
        for (camera, frames, pose) in &mut cameras {
            let frame = &frames[number as usize % frames.len()];
            camera.process(&patient(frame, pose), &mut out, None).map_err(of_perception)?;
        }
        Ok(())
    };
    let warm_up = if step.is_emulated() { 2 } else { WARM_UP };
    (0..warm_up).try_for_each(&mut all)?;
    step.progress(format!("memory for {:.0} s", step.work_s));
    let free = || gpu.memory().map(|memory| memory.free_bytes);
    let (begin, before) = (Instant::now(), free()?);
    let (mut rounds, mut least, mut next_ns) = (0, before, 0);
    while begin.elapsed().as_secs_f64() < step.work_s {
        all(rounds)?;
        rounds += 1;
        if monotonic_ns() >= next_ns {
            least = least.min(free()?);
            next_ns = monotonic_ns() + LOOK_NS;
        }
    }
    let (after, seconds) = (free()?, begin.elapsed().as_secs_f64());
    let (frames, grown) = (cameras.len() as u64 * rounds, before.saturating_sub(after));
    step.figure(
        "memory",
        json!({ "seconds": seconds, "frames": frames, "free_before": before, "least_free": least, "free_after": after }),
    );
    step.judge(
        "the device's memory does not grow while frames are judged",
        format!("{grown} bytes more in use after {frames} frames in {seconds:.0} s (other programs on the device count, too)"),
        grown == 0 && frames > 0,
    );
    Ok(())
}

/// Kills the perception process while it judges: every frame is answered, by the fallback until a
/// fresh process answers.
///
/// # Errors
/// The first error of starting it or of any piece of work.
pub fn killed_worker(step: &mut Step<'_>) -> Result<(), StepError> {
    step.progress("the perception process starts");
    let file = CellFile::demo().map_err(failed)?;
    let mut config = configuration(&file, step.ordinal, false);
    // Only what is done to it here is a fault, also on a slow device.
    (config.gpu.budget_ms, config.gpu.breaker.hang_ms) = (900.0, 3000.0);
    config.gpu.breaker.cool_down_ms = 20.0;
    config.gpu.breaker.trials = 2;
    config.gpu.breaker.when_open = WhenOpen::Fallback;
    config.gpu.start_timeout_s = PATIENCE.as_secs_f64();
    let mut view = views(&file)?.swap_remove(0);
    let mut on_cpu = config.clone();
    on_cpu.engine.provider = Provider::Cpu;
    let engine = Engine::open(&on_cpu.engine).map_err(failed)?;
    let fallback = Perception::new(&on_cpu, 0, view.intrinsics, &engine, None).map_err(failed)?;
    let setup = Setup {
        device: config.device,
        perception: config,
        cameras: vec![view.intrinsics],
        threads: ThreadSettings::default(),
        library_policy: Policy::Other { nice: 0 },
    };
    let program = Program::own().map_err(failed)?;
    let started =
        Supervisor::start(setup, program, vec![Some(fallback)], &mut |_| (), &AtomicBool::new(false));
    let mut started = started.map_err(failed)?;
    let mut frame = Frame::new(view.intrinsics.width, view.intrinsics.height);
    view.next(&mut frame, 1)?;
    let mut camera =
        Cell { started: &mut started, frame, pose: view.pose, unjudged: 0, worst: Duration::ZERO };
    let first = camera.until(|judged, _| judged == Judged::Worker)?;
    step.progress("the perception process is killed");
    camera.started.supervisor.kill_worker().map_err(failed)?;
    let begin = Instant::now();
    let again = camera.until(|judged, generation| judged == Judged::Worker && generation > 1)?;
    let (recovery, unjudged, worst) = (begin.elapsed(), camera.unjudged, camera.worst);
    let mut records = Vec::new();
    for ring in &mut started.records {
        ring.take_into(&mut records, usize::MAX);
    }
    let count = |kind: EventKind| records.iter().filter(|record| record.kind == kind).count();
    let (crashed, restarted) = (count(EventKind::Crashed), count(EventKind::Restarted));
    let reported = format!(
        "{again} frames meanwhile, {unjudged} not judged; {crashed} crash and {restarted} restart reported; a fresh process after {:.0} ms, \
         longest answer {:.1} ms",
        1e3 * recovery.as_secs_f64(),
        1e3 * worst.as_secs_f64()
    );
    step.figure(
        "killed_worker",
        json!({ "recovery_ms": recovery.as_millis() as u64, "frames_before": first, "frames_meanwhile": again, "unjudged": unjudged }),
    );
    step.judge(
        "killing the perception process costs no frame its answer, and a fresh process takes over",
        reported,
        unjudged == 0 && crashed == 1 && restarted >= 1,
    );
    Ok(())
}

/// A camera's side of it.
struct Cell<'a> {
    started: &'a mut Started,
    frame: Frame,
    pose: takt_perception::FramePose,
    unjudged: u64,
    worst: Duration,
}

impl Cell<'_> {
    /// Frames until `done`, which is given who answered and which process lives; how many.
    fn until(&mut self, done: impl Fn(Judged, u32) -> bool) -> Result<u64, StepError> {
        let begin = Instant::now();
        for number in 1.. {
            self.frame.sequence += 1;
            (self.frame.capture_ns, self.frame.arrival_ns) = (monotonic_ns(), monotonic_ns());
            let (asked, mut out) = (Instant::now(), Detections::default());
            let judged = self.started.remotes[0].process(
                &self.frame,
                Some(&self.pose),
                monotonic_ns(),
                &mut out,
                None,
            );
            self.worst = self.worst.max(asked.elapsed());
            self.unjudged += u64::from(out.health != FrameHealth::Ok || judged == Judged::Dropped);
            if done(judged, self.started.supervisor.facts().generation) {
                return Ok(number);
            }
            if begin.elapsed() > PATIENCE {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(StepError::Failed(format!(
            "the perception process did not answer within {} s",
            PATIENCE.as_secs()
        )))
    }
}
