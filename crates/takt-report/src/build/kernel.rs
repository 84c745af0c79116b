//! The sections about kernels: what guests' figures mean, what traces report.

use super::{LATE_SHOWN, distinct, section};
use crate::collect::Collection;
use crate::document::{Block, Section};
use crate::table::{Cell, Table};
use crate::traces::{traces, worst};
use crate::words::count;
use crate::{pictures, tables};

/// Explains the meaning of figures of guests; `None` if there is no guest.
pub(super) fn virtual_time(collection: &Collection) -> Option<Section> {
    let guests = || collection.runs.iter().filter_map(|run| run.header.machine.virtual_machine.as_ref());
    let (counted, real): (Vec<_>, Vec<_>) = guests().partition(|guest| guest.virtual_time);
    let first = guests().next()?;
    let mut section = section("virtual", "What virtual time means", Vec::new());
    let machines = distinct(guests().map(|guest| guest.machine.as_str())).join("; ");
    section.add(Block::Paragraph(format!(
        "{} made in virtual machines ({machines}), each with its own kernel. Only the kernel, the robot and its interference run in these \
         guests.",
        count(guests().count(), "run was", "runs were")
    )));
    if !counted.is_empty() {
        section.add(Block::Paragraph(
            "Time is counted in instructions: each takes one nanosecond, whatever it does, and an idle guest jumps to its next timer. So \
             lateness is the number of instructions that the kernel runs between the timer and the task. This compares code paths through \
             kernels, above all their non-preemptible sections, without any influence of the host: the same run gives the same figures on \
             any computer."
                .to_owned(),
        ));
        let mut limits = vec![
            "No caches, no memory bus, no frequency, no idle states: a microsecond here is not a microsecond on a board, and effects of \
             memory contention do not show at all."
                .to_owned(),
            "No real devices: the only interrupts are those of the timer and a few of the virtual machine, so the worst values contain no \
             drivers, firmware or system management interrupts."
                .to_owned(),
            "A worst value is the worst of these paths under this load, not a bound."
                .to_owned(),
        ];
        if counted.iter().any(|guest| guest.cpus > 1) {
            limits.push(
                "Several CPUs are simulated in turn, in slices of instructions. They never run at the same moment, so contention between \
                 CPUs differs from hardware."
                    .to_owned(),
            );
        }
        section.add(Block::List(limits));
    }
    if !real.is_empty() {
        section.add(Block::Warning(vec![
            "Guests on the host's processor (KVM) run in real time: their figures include the host's lateness."
                .to_owned(),
        ]));
    }
    let mut table =
        Table::new("Kernels", &["Kernel", "Release", "Preemption", "Package", "SHA-256 of vmlinuz"]);
    let mut seen = Vec::new();
    for run in &collection.runs {
        let machine = &run.header.machine;
        let Some(guest) = &machine.virtual_machine else { continue };
        if seen.contains(&(&guest.kernel, &guest.kernel_sha256, &machine.preemption)) {
            continue;
        }
        seen.push((&guest.kernel, &guest.kernel_sha256, &machine.preemption));
        let fact =
            |value: &Option<String>| value.as_ref().map_or_else(|| Cell::gap("not reported"), Cell::text);
        table.push(vec![
            Cell::text(&guest.kernel),
            fact(&machine.kernel),
            fact(&machine.preemption),
            guest.package.as_ref().map_or_else(|| Cell::gap("a file, not a package"), Cell::text),
            Cell::text(&guest.kernel_sha256),
        ]);
    }
    table.note(format!(
        "Guests have {} and {} MiB of memory.",
        count(first.cpus as usize, "CPU", "CPUs"),
        first.memory_mib
    ));
    section.add(Block::Table(table));
    Some(section)
}

/// The kernel's activity according to the traces of runs; `None` if no run was traced.
pub(super) fn kernel(collection: &Collection) -> Option<Section> {
    let traced = traces(collection);
    if traced.is_empty() {
        return None;
    }
    let good = tables::trace::good(&traced);
    let mut section = section("kernel", "What the kernel did", Vec::new());
    section.add(Block::Paragraph(format!(
        "{} traced: kernel events are matched with the releases of the robot's thread. Tracing slows a job down, so compare these \
         latencies only with those of other traced runs.",
        count(traced.len(), "run was", "runs were")
    )));
    let warnings = tables::trace::warnings(collection, &traced);
    if !warnings.is_empty() {
        section.add(Block::Warning(warnings));
    }
    section.add(Block::Table(tables::trace::releases(collection, &traced)));
    if good.is_empty() {
        return Some(section);
    }
    section.add(Block::Table(tables::trace::causes(collection, &good)));
    let worst = worst(&traced, LATE_SHOWN);
    for figure in pictures::late(collection, &traced, &worst) {
        section.add(Block::Figure(Box::new(figure)));
    }
    tables::trace::windows(collection, &worst).into_iter().for_each(|table| section.add(Block::Table(table)));
    let sequences = tables::trace::sequences(collection, &good);
    let rest = [
        tables::trace::segments(collection, &good),
        tables::trace::dilation(collection, &good),
        tables::trace::overhead(collection, &good),
    ];
    sequences
        .into_iter()
        .chain(rest.into_iter().flatten())
        .for_each(|table| section.add(Block::Table(table)));
    Some(section)
}
