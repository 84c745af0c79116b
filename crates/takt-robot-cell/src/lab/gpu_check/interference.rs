//! A camera while other work uses the device, without and with each thing that is done about it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::Serialize;
use takt_gpu::check::step::{Step, StepError};
use takt_gpu::mps::{self, Mps};
use takt_gpu::{Gpu, Interference, Interfering};
use takt_link_camera::Frame;
use takt_load::gpu::{Kind, Line, Variables};
use takt_perception::gpu::{GpuFrame, GpuPerception, GpuPerceptionError};
use takt_perception::{Detections, Engine, Perception, PerceptionConfig, Provider};
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_stats::Summary;

use super::{View, configuration, failed, of_perception, open, views};
use crate::lab::CellFile;
use crate::lab::gpu_bench::LEAST_RATIO;

/// Between two frames: three times the rate of a camera, to meet more.
const PERIOD_NS: u64 = 11_111_111;

/// Least frames of each row.
const LEAST: u64 = 3;

/// Longest time for the other program's first work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where the other work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    /// In this process, on a stream of its own.
    Inside,
    /// In another program.
    Outside,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Control {
    name: &'static str,
    priorities: bool,
    /// The streams' priorities are set after they were made.
    late: bool,
    graphs: bool,
    budget: bool,
}

/// Whatever the device takes is waited for.
pub(super) const NONE: Control =
    Control { name: "none", priorities: false, late: false, graphs: false, budget: false };

/// Priorities, alone.
pub(super) const PRIORITIES: Control = Control { name: "priorities", priorities: true, ..NONE };

const CONTROLS: [Control; 6] = [
    NONE,
    PRIORITIES,
    Control { name: "priorities, set late", late: true, ..PRIORITIES },
    Control { name: "graphs", graphs: true, ..NONE },
    Control { name: "budget", budget: true, ..NONE },
    Control { name: "all", graphs: true, budget: true, ..PRIORITIES },
];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) kind: Kind,
    place: Place,
    pub(super) control: &'static str,
    /// From a frame's planned arrival to its answer, the fallback's where the budget ended first.
    pub(super) ms: Summary,
    /// Answered by the fallback.
    fallback: u64,
}

/// The other work; ends with this.
pub(super) enum Other {
    Inside(Interfering),
    Outside(Child),
}

impl Other {
    /// Starts it; another program with `variables` in place of those that it would inherit.
    pub(super) fn start(
        kind: Kind,
        place: Place,
        step: &Step<'_>,
        variables: &Variables,
    ) -> Result<Self, StepError> {
        let mut config = Interference { kind, ordinal: step.ordinal, ..Interference::default() };
        if step.is_emulated() {
            // Its kernels run on the CPU, where the default would take a tenth of a second each.
            (config.mib, config.kernel_us) = (1, 500);
        }
        if place == Place::Inside {
            return Ok(Self::Inside(Interfering::start(&config)?));
        }
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(takt_load::gpu::SUBCOMMAND).arg(serde_json::to_string(&config).map_err(failed)?);
        if !variables.is_empty() {
            // This process's own are not the other program's.
            for name in mps::VARIABLES {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        takt_rt::child::end_with_this_process(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (sender, receiver) = channel();
        let out = child.stdout.take();
        let outside = Self::Outside(child);
        // Reads on as long as it prints, so that it never waits for a reader.
        std::thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
                if let Ok(line) = serde_json::from_str::<Line>(&line) {
                    let _ = sender.send(line);
                }
            }
        });
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(Line::Ready(_)) => return Ok(outside),
                Ok(Line::Failed(why)) => return Err(StepError::Failed(format!("the other program: {why}"))),
                Ok(Line::Work(_)) => {}
                Err(_) => return Err(failed("the other program has not begun to work")),
            }
        }
    }

    /// Why it works no more, where it does not.
    pub(super) fn death(&mut self) -> Option<String> {
        match self {
            Self::Inside(interfering) => interfering.death().map(ToString::to_string),
            Self::Outside(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.to_string()),
                Err(error) => Some(error.to_string()),
            },
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Self::Outside(child) = self {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A camera's frames, with the CPU's judge for those over budget.
pub(super) struct Camera {
    frames: Vec<Frame>,
    view: View,
    fallback: Perception,
}

impl Camera {
    /// The demonstration's first, through geometry alone.
    pub(super) fn first(step: &Step<'_>) -> Result<(PerceptionConfig, Self), StepError> {
        let file = CellFile::demo().map_err(failed)?;
        let mut config = configuration(&file, step.ordinal, false);
        config.engine.provider = Provider::Cpu;
        let mut view = views(&file)?.swap_remove(0);
        let engine = Engine::open(&config.engine).map_err(failed)?;
        let fallback = Perception::new(&config, 0, view.intrinsics, &engine, None).map_err(failed)?;
        Ok((config, Self { frames: view.frames(4)?, view, fallback }))
    }
}

/// Measures.
///
/// # Errors
/// What opening or any piece of work met.
pub fn interference(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let (config, mut camera) = Camera::first(step)?;
    let places = [Place::Inside, Place::Outside];
    let kinds = [Kind::Compute, Kind::Memory, Kind::Copies];
    let seconds = step.work_s / (kinds.len() * places.len() * CONTROLS.len()) as f64;
    let mut rows = Vec::new();
    for place in places {
        for kind in kinds {
            step.progress(format!("{kind:?}, {place:?}: starts").to_lowercase());
            let mut other = Other::start(kind, place, step, &Variables::new())?;
            for control in CONTROLS {
                step.progress(format!("{kind:?}, {place:?}: {}", control.name).to_lowercase());
                rows.push(row(&gpu, &config, &mut camera, (kind, place, control), seconds)?);
                if let Some(why) = other.death() {
                    return Err(StepError::Failed(format!("the other work ended: {why}")));
                }
            }
        }
    }
    step.figure("lines", rows.iter().map(line).collect::<Vec<_>>());
    step.figure("rows", &rows);
    judge_rows(step, &rows, Place::Inside, "of this process");
    let whose = match mps::look() {
        Mps::Running(_) => "of another program under MPS",
        Mps::Absent(_) => "of another program, by turns",
    };
    judge_rows(step, &rows, Place::Outside, whose);
    Ok(())
}

pub(super) fn line(row: &Row) -> String {
    let Row { kind, place, control, ms, fallback } = row;
    format!(
        "{kind:?}, {place:?}, {control}: {} frames, mean {:.3} ms, p99 {:.3} ms, worst {:.3} ms, {fallback} by the fallback",
        ms.count, ms.mean, ms.p99, ms.worst
    )
}

fn judge_rows(step: &mut Step<'_>, rows: &[Row], place: Place, whose: &str) {
    let worst = |control: &str| {
        let some = rows.iter().filter(|row| row.place == place && row.control == control);
        some.map(|row| row.ms.worst).fold(f64::NAN, f64::max)
    };
    let (without, with) = (worst("none"), worst("all"));
    let each: Vec<String> = CONTROLS.iter().map(|c| format!("{} {:.2} ms", c.name, worst(c.name))).collect();
    step.judge_time(
        &format!("interference {whose}: the worst answer is at least {LEAST_RATIO} x sooner with all that is done about it"),
        format!("{:.1} x; worst: {}", without / with, each.join(", ")),
        without / with >= LEAST_RATIO,
    );
}

pub(super) fn row(
    gpu: &Gpu,
    config: &PerceptionConfig,
    camera: &mut Camera,
    (kind, place, control): (Kind, Place, Control),
    seconds: f64,
) -> Result<Row, StepError> {
    let mut config = config.clone();
    (config.gpu.priorities, config.gpu.graphs) = (control.priorities, control.graphs);
    config.gpu.late_priorities = control.late;
    let Camera { frames, view, fallback } = camera;
    let mut device =
        GpuPerception::new(gpu, &config, 0, view.intrinsics, None, &|_| ()).map_err(of_perception)?;
    let budget_ns = if control.budget { (config.gpu.budget_ms * 1e6) as u64 } else { super::PATIENCE_NS };
    let (mut out, mut ms, mut by_fallback) = (Detections::default(), Vec::new(), 0);
    let mut planned_ns = monotonic_ns();
    let end_ns = planned_ns + (seconds * 1e9) as u64;
    let mut number = 0;
    while number < LEAST || planned_ns < end_ns {
        sleep_until(planned_ns);
        let frame = &frames[number as usize % frames.len()];
        let start_ns = monotonic_ns();
        let deadline_ns = start_ns + budget_ns;
        let asked =
            GpuFrame { view: frame.into(), resident: None, pose: Some(&view.pose), start_ns, deadline_ns };
        match device.process(&asked, &mut out, None) {
            Ok(()) => {}
            Err(GpuPerceptionError::Overrun { .. }) if control.budget => {
                by_fallback += 1;
                fallback.process(frame, Some(&view.pose), start_ns, &mut out, None);
            }
            Err(error) => return Err(of_perception(error)),
        }
        ms.push(monotonic_ns().saturating_sub(planned_ns) as f64 / 1e6);
        number += 1;
        // A frame that comes while one is judged is not kept: the next release on the grid.
        let now_ns = monotonic_ns();
        while planned_ns <= now_ns {
            planned_ns += PERIOD_NS;
        }
    }
    // Work that nobody waited for is done before the next row begins.
    device_settles(&mut device, frames, view);
    Ok(Row { kind, place, control: control.name, ms: Summary::of(&mut ms), fallback: by_fallback })
}

fn device_settles(device: &mut GpuPerception, frames: &[Frame], view: &View) {
    if let Some(frame) = frames.first() {
        // Its outcome is nobody's: what it waits for is.
        let _ = device.process(&super::patient(frame, &view.pose), &mut Detections::default(), None);
    }
}
