//! Other work on the device, in this process and in another program: what each thing that is done
//! about it brings, and all of them.
//!
//! In one process streams have priorities, and a budget ends waiting: the fallback answers then. To
//! several programs the driver gives the device by turns, which nothing in one of them changes;
//! what is done about that is MPS with limits, beside all of the above. A program's sharing of the
//! device is fixed when it starts, so each of these is measured in a separate process.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use takt_gpu::check::step::{Step, StepError};
use takt_gpu::sharing::{Sharing, SharingMode};
use takt_load::gpu::{GpuLoadKind, Variables};

use super::beside::{ALL, CONTROLS, Camera, Idle, NONE, Place, Row, line, worst};
use super::sharing::{Child, beside_child, limits, measure_in};
use crate::lab::gpu_bench::MIN_RATIO;

const KINDS: [GpuLoadKind; 3] = [GpuLoadKind::Compute, GpuLoadKind::Memory, GpuLoadKind::Copies];

/// Longest time of a process for opening the device, for the other programs' starts and for ending,
/// beside measuring.
const PATIENCE: Duration = Duration::from_secs(30);

/// Report of a process with one way of sharing.
#[derive(Debug, Deserialize)]
struct Reported {
    idle: Option<Idle>,
    rows: Vec<Row>,
}

/// Measures. The processes of a way are `turns-child` and `limits-child`.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn interference(step: &mut Step<'_>, child: Child<'_>) -> Result<(), StepError> {
    // A row each, and the idle device before them.
    let (all, limited) = (1 + KINDS.len() * CONTROLS.len(), 1 + KINDS.len());
    let each = step.work_s / (2 * all + limited) as f64;

    let mut camera = Camera::first(step)?;
    let idle = camera.idle(step, each)?;
    let inside = camera.beside(step, (&KINDS, Place::Inside, &CONTROLS), &Variables::new(), each)?;
    drop(camera);
    let mut lines = vec![idle.line()];
    lines.extend(inside.iter().map(line));
    step.judge_time(
        &requirement("of this process", "all mitigations"),
        format!("{}; {}", compared(&inside, &inside), idle.line()),
        ratio(&inside, &inside) >= MIN_RATIO,
    );

    let turns = Sharing { way: SharingMode::Turns, ..Sharing::default() };
    let what = requirement("of another program, taking turns", "all mitigations and MPS with limits");
    let ordinal = step.ordinal;
    let way = |name: &str, sharing: &Sharing, rows: usize| {
        let seconds = each * rows as f64;
        let limit = PATIENCE + Duration::from_secs_f64(seconds);
        measure_in(sharing, ordinal, child(name, seconds), limit)
    };
    step.progress("another program, taking turns");
    let by_turns = match way("turns-child", &turns, all) {
        Ok((_, measured)) => rows_of(measured).map_err(StepError::Failed)?,
        Err(error) => return Err(super::failed(error)),
    };
    lines.extend(by_turns.idle.iter().map(Idle::line));
    lines.extend(by_turns.rows.iter().map(line));
    step.figure("lines", &lines);
    step.figure("rows", [&inside[..], &by_turns.rows].concat());
    step.progress("another program, MPS with limits");
    match way("limits-child", &limits(), limited) {
        Err(error) => {
            step.not_run(&what, format!("{error}; taking turns only: {}", each_worst(&by_turns.rows)))
        }
        Ok((reported, measured)) => match rows_of(measured) {
            Err(why) => step.judge(&what, format!("{reported}: {why}"), false),
            Ok(limited) => {
                lines.extend(limited.idle.iter().map(|idle| format!("{reported}: {}", idle.line())));
                lines.extend(limited.rows.iter().map(|row| format!("{reported}: {}", line(row))));
                step.judge_time(
                    &what,
                    format!("{}; {reported}", compared(&by_turns.rows, &limited.rows)),
                    ratio(&by_turns.rows, &limited.rows) >= MIN_RATIO,
                );
                step.figure("lines", lines);
                step.figure("rows_with_limits", &limited.rows);
            }
        },
    }
    Ok(())
}

fn requirement(whose: &str, with: &str) -> String {
    format!("interference {whose}: with {with}, the worst answer comes at least {MIN_RATIO} x sooner")
}

fn rows_of(measured: Result<Value, String>) -> Result<Reported, String> {
    serde_json::from_value(measured?).map_err(|error| format!("what its process reports: {error}"))
}

/// Factor by which all mitigations make the worst answer of all kinds sooner.
fn ratio(without: &[Row], with: &[Row]) -> f64 {
    worst(without, NONE.name, None) / worst(with, ALL.name, None)
}

/// The worst answer of each control, of those that were measured.
fn each_worst(rows: &[Row]) -> String {
    let measured = CONTROLS.iter().map(|control| (control.name, worst(rows, control.name, None)));
    let words = measured.filter(|(_, ms)| !ms.is_nan()).map(|(name, ms)| format!("{name} {ms:.2} ms"));
    words.collect::<Vec<_>>().join(", ")
}

/// The ratio, and what it is made of.
fn compared(without: &[Row], with: &[Row]) -> String {
    let of_kind = |kind: GpuLoadKind| {
        let (none, all) = (worst(without, NONE.name, Some(kind)), worst(with, ALL.name, Some(kind)));
        format!("{kind:?} {none:.2} to {all:.2} ms ({:.1} x)", none / all).to_lowercase()
    };
    let all = || with.iter().filter(|row| row.control == ALL.name);
    let (fallback, frames) = all().fold((0, 0), |sum, row| (sum.0 + row.fallback, sum.1 + row.ms.count));
    format!(
        "{:.1} x: from {:.2} to {:.2} ms ({fallback} of {frames} answers from the fallback); {}; worst of each: {}",
        ratio(without, with),
        worst(without, NONE.name, None),
        worst(with, ALL.name, None),
        KINDS.map(of_kind).join(", "),
        each_worst(without)
    )
}

/// In a process that shares the device by turns, each control.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn turns_child(step: &mut Step<'_>) -> Result<(), StepError> {
    beside_child(step, &KINDS, &CONTROLS)
}

/// In a process that is held to its limits under MPS, all controls together.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn limits_child(step: &mut Step<'_>) -> Result<(), StepError> {
    beside_child(step, &KINDS, &[ALL])
}

#[cfg(test)]
mod tests {
    use super::super::beside::tests::row;
    use super::*;

    #[test]
    fn the_ratio_is_of_the_worst_of_all_kinds() {
        let without: Vec<Row> =
            KINDS.into_iter().zip([12.0, 2.0, 4.0]).map(|(kind, ms)| row(kind, "none", ms)).collect();
        let with: Vec<Row> =
            KINDS.into_iter().zip([1.0, 1.5, 3.0]).map(|(kind, ms)| row(kind, "all", ms)).collect();
        // 12 times for compute, and yet copies are the worst that is left.
        assert_eq!(ratio(&without, &with), 4.0);
        let words = compared(&without, &with);
        for part in
            ["4.0 x: from 12.00 to 3.00 ms", "compute 12.00 to 1.00 ms (12.0 x)", "copies 4.00 to 3.00"]
        {
            assert!(words.contains(part), "{words}");
        }
        // Without measurements, no ratio is reached.
        assert!(ratio(&without, &[]).is_nan());
    }
}
