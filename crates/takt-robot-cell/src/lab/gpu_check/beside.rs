//! A camera while other work uses the device: what steps that compare ways to put up with it are
//! made of.

use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_gpu::check::step::{Step, StepError};
use takt_gpu::mps;
use takt_gpu::{Gpu, Interference, Interfering};
use takt_link_camera::Frame;
use takt_load::gpu::{GpuLoad, GpuLoadKind, Variables};
use takt_perception::gpu::{GpuFrame, GpuPerception, GpuPerceptionError};
use takt_perception::{Copies, Detections, Engine, Perception, PerceptionConfig, Provider};
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_stats::Summary;

use super::{View, configuration, failed, of_perception, open, views};
use crate::lab::CellFile;

/// Between two frames: three times the rate of a camera, to meet more.
const PERIOD_NS: u64 = 11_111_111;

/// Least frames of each row.
const LEAST: u64 = 3;

/// Frames before any of a row is counted: graphs are captured, the device comes to its clock rate.
const WARM_UP: u64 = 3;

/// A frame that takes so many times what the median one takes on the idle device is late. With it
/// a budget means something: the configuration's default leaves a frame the time that a slow
/// device needs.
const LATE: f64 = 3.0;

/// Least budget, milliseconds: below it the host's own scheduling decides.
const MIN_BUDGET_MS: f64 = 1.0;

/// Longest time for the other program's first work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Place of the other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    /// In this process, on streams of its own.
    Inside,
    /// In another program.
    Outside,
}

/// Mitigation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    pub(super) name: &'static str,
    priorities: bool,
    /// The streams' priorities are set after they were made.
    late: bool,
    graphs: bool,
    /// Kernels copy, not the device's engines.
    copies: Copies,
    pub(super) budget: bool,
}

/// Whatever the device takes is waited for.
pub(super) const NONE: Control = Control {
    name: "none",
    priorities: false,
    late: false,
    graphs: false,
    copies: Copies::Engines,
    budget: false,
};

/// Priorities, alone.
pub(super) const PRIORITIES: Control = Control { name: "priorities", priorities: true, ..NONE };

/// All that is done in one program.
pub(super) const ALL: Control =
    Control { name: "all", graphs: true, copies: Copies::Kernels, budget: true, ..PRIORITIES };

/// Each alone, between nothing and all.
pub(super) const CONTROLS: [Control; 7] = [
    NONE,
    PRIORITIES,
    Control { name: "priorities, set late", late: true, ..PRIORITIES },
    Control { name: "graphs", graphs: true, ..NONE },
    Control { name: "priorities, copies by kernels", copies: Copies::Kernels, ..PRIORITIES },
    Control { name: "budget", budget: true, ..NONE },
    ALL,
];

/// A camera beside one kind of other work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) kind: GpuLoadKind,
    place: Place,
    pub(super) control: String,
    /// From a frame's planned arrival to its answer, the fallback's where the budget ended first.
    pub(super) ms: Summary,
    /// Answered by the fallback.
    pub(super) fallback: u64,
}

/// The same camera on the idle device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Idle {
    /// As of a row.
    ms: Summary,
    /// The CPU's judge alone, which answers for frames over budget.
    fallback_ms: Summary,
    /// The budget of rows that have one.
    budget_ms: f64,
}

impl Idle {
    /// As a line for people.
    pub(super) fn line(&self) -> String {
        let Self { ms, fallback_ms, budget_ms } = self;
        format!(
            "idle: {} frames, mean {:.3} ms, worst {:.3} ms; the fallback mean {:.3} ms, worst {:.3} ms; budget {budget_ms:.2} ms",
            ms.count, ms.mean, ms.worst, fallback_ms.mean, fallback_ms.worst
        )
    }
}

/// A budget for frames of which the median one takes `median_ms` on the idle device.
fn budget_ms(median_ms: f64, most_ms: f64) -> f64 {
    (LATE * median_ms).max(MIN_BUDGET_MS).min(most_ms)
}

/// The other work; ends with this.
pub(super) enum Other {
    Inside(Interfering),
    Outside(GpuLoad),
}

impl Other {
    /// Starts it; another program with `variables` in place of those that it would inherit.
    pub(super) fn start(
        kind: GpuLoadKind,
        place: Place,
        step: &Step<'_>,
        variables: &Variables,
    ) -> Result<Self, StepError> {
        let mut config = Interference { kind, ordinal: step.ordinal, ..Interference::default() };
        if step.is_emulated() {
            // Its kernels run on the CPU, where the default would take a tenth of a second each,
            // and one after the other.
            (config.mib, config.kernel_us, config.streams) = (1, 500, 1);
        }
        if place == Place::Inside {
            return Ok(Self::Inside(Interfering::start(&config)?));
        }
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg(takt_load::gpu::SUBCOMMAND);
        if !variables.is_empty() {
            // This process's own are not the other program's.
            for name in mps::VARIABLES {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        takt_rt::child::end_with_this_process(&mut command);
        let refused = |error| StepError::Failed(format!("the other program: {error}"));
        let (mut load, _) = GpuLoad::start(command, &config).map_err(refused)?;
        match load.await_ready(Instant::now() + PATIENCE) {
            Ok(_) => Ok(Self::Outside(load)),
            Err(error) => {
                load.end();
                Err(refused(error))
            }
        }
    }

    /// Reason why it no longer works, if it does not.
    pub(super) fn death(&mut self) -> Option<String> {
        match self {
            Self::Inside(interfering) => interfering.death().map(ToString::to_string),
            Self::Outside(load) => load.death(),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Self::Outside(load) = self {
            load.end();
        }
    }
}

/// A camera's frames, with the CPU's judge for those over budget.
pub(super) struct Camera {
    gpu: Gpu,
    config: PerceptionConfig,
    frames: Vec<Frame>,
    view: View,
    fallback: Perception,
    budget_ms: f64,
}

/// Times of a camera's frames, milliseconds, and how many were answered by the fallback.
type Times = (Vec<f64>, u64);

impl Camera {
    /// The demonstration's first, through geometry alone.
    pub(super) fn first(step: &mut Step<'_>) -> Result<Self, StepError> {
        let gpu = open(step)?;
        let file = CellFile::demo().map_err(failed)?;
        let mut config = configuration(&file, step.ordinal, false);
        config.engine.provider = Provider::Cpu;
        let mut view = views(&file)?.swap_remove(0);
        let engine = Engine::open(&config.engine).map_err(failed)?;
        let fallback = Perception::new(&config, 0, view.intrinsics, &engine, None).map_err(failed)?;
        let (frames, budget_ms) = (view.frames(4)?, config.gpu.budget_ms);
        Ok(Self { gpu, config, frames, view, fallback, budget_ms })
    }

    /// The idle device, of which the budget of rows that have one is made.
    pub(super) fn idle(&mut self, step: &mut Step<'_>, seconds: f64) -> Result<Idle, StepError> {
        step.progress("the idle device");
        let Self { frames, view, fallback, .. } = self;
        let (mut out, mut alone) = (Detections::default(), Vec::new());
        for frame in frames.iter().chain(&*frames) {
            let start_ns = monotonic_ns();
            fallback.process(frame, Some(&view.pose), start_ns, &mut out, None);
            alone.push((monotonic_ns() - start_ns) as f64 / 1e6);
        }
        let (mut ms, _) = self.times(Control { budget: false, ..ALL }, seconds)?;
        let ms = Summary::of(&mut ms);
        self.budget_ms = budget_ms(ms.median, self.config.gpu.budget_ms);
        Ok(Idle { ms, fallback_ms: Summary::of(&mut alone), budget_ms: self.budget_ms })
    }

    /// A row beside each kind of other work under each control; another program has `others` in
    /// its environment.
    pub(super) fn beside(
        &mut self,
        step: &mut Step<'_>,
        (kinds, place, controls): (&[GpuLoadKind], Place, &[Control]),
        others: &Variables,
        seconds: f64,
    ) -> Result<Vec<Row>, StepError> {
        let mut rows = Vec::new();
        for &kind in kinds {
            step.progress(format!("{kind:?}, {place:?}: starts").to_lowercase());
            let mut other = Other::start(kind, place, step, others)?;
            for &control in controls {
                step.progress(format!("{kind:?}, {place:?}: {}", control.name).to_lowercase());
                let (mut ms, fallback) = self.times(control, seconds)?;
                let control = control.name.to_owned();
                rows.push(Row { kind, place, control, ms: Summary::of(&mut ms), fallback });
                if let Some(why) = other.death() {
                    return Err(StepError::Failed(format!("the other work ended: {why}")));
                }
            }
        }
        Ok(rows)
    }

    fn times(&mut self, control: Control, seconds: f64) -> Result<Times, StepError> {
        let mut config = self.config.clone();
        (config.gpu.priorities, config.gpu.graphs) = (control.priorities, control.graphs);
        (config.gpu.late_priorities, config.gpu.copies) = (control.late, control.copies);
        let budget_ns = if control.budget { (self.budget_ms * 1e6) as u64 } else { super::PATIENCE_NS };
        let Self { gpu, frames, view, fallback, .. } = self;
        let mut device =
            GpuPerception::new(gpu, &config, 0, view.intrinsics, None, &|_| ()).map_err(of_perception)?;
        let (mut out, mut ms, mut by_fallback) = (Detections::default(), Vec::new(), 0);
        let warm_up = if gpu.info().emulated { 0 } else { WARM_UP };
        for frame in frames.iter().cycle().take(warm_up as usize) {
            device.process(&super::patient(frame, &view.pose), &mut out, None).map_err(of_perception)?;
        }
        let mut planned_ns = monotonic_ns();
        let end_ns = planned_ns + (seconds * 1e9) as u64;
        let mut number = 0;
        while number < LEAST || planned_ns < end_ns {
            sleep_until(planned_ns);
            let frame = &frames[number as usize % frames.len()];
            let start_ns = monotonic_ns();
            let deadline_ns = start_ns + budget_ns;
            let (view_of_frame, pose) = (frame.into(), Some(&view.pose));
            let asked = GpuFrame { view: view_of_frame, resident: None, pose, start_ns, deadline_ns };
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
        // Work that nobody waited for is done before the next row begins. Its outcome is nobody's.
        if let Some(frame) = frames.first() {
            let _ = device.process(&super::patient(frame, &view.pose), &mut out, None);
        }
        Ok((ms, by_fallback))
    }
}

/// As a line for people.
pub(super) fn line(row: &Row) -> String {
    let Row { kind, place, control, ms, fallback } = row;
    format!(
        "{kind:?}, {place:?}, {control}: {} frames, mean {:.3} ms, p99 {:.3} ms, worst {:.3} ms, {fallback} from the fallback",
        ms.count, ms.mean, ms.p99, ms.worst
    )
}

/// The worst answer under `control` of `rows`, of one kind of other work or of all of them.
pub(super) fn worst(rows: &[Row], control: &str, kind: Option<GpuLoadKind>) -> f64 {
    let some = rows.iter().filter(|row| row.control == control && kind.is_none_or(|kind| row.kind == kind));
    some.map(|row| row.ms.worst).fold(f64::NAN, f64::max)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(kind: GpuLoadKind, control: &str, worst_ms: f64) -> Row {
        let ms = Summary::of(&mut [worst_ms]);
        Row { kind, place: Place::Outside, control: control.to_owned(), ms, fallback: 0 }
    }

    #[test]
    fn a_budget_is_made_of_what_an_idle_device_takes() {
        assert_eq!(budget_ms(0.8, 15.0), LATE * 0.8);
        assert_eq!(budget_ms(0.1, 15.0), MIN_BUDGET_MS);
        assert_eq!(budget_ms(40.0, 15.0), 15.0);
        // The configuration's own may be below the least.
        assert_eq!(budget_ms(0.1, 0.5), 0.5);
    }

    #[test]
    fn the_worst_is_of_all_kinds_or_of_one() {
        let rows = [
            row(GpuLoadKind::Compute, "none", 7.0),
            row(GpuLoadKind::Copies, "none", 9.0),
            row(GpuLoadKind::Compute, "all", 1.0),
        ];
        assert_eq!(worst(&rows, "none", None), 9.0);
        assert_eq!(worst(&rows, "none", Some(GpuLoadKind::Compute)), 7.0);
        assert!(worst(&rows, "all", Some(GpuLoadKind::Copies)).is_nan());
    }
}
