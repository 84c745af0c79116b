//! Worst-case jitter as a share of the control period, for any task whose releases are planned.

use super::Context;
use crate::table::{Cell, Table};
use crate::words::clean;

/// The table; `None` for a measure that is no wake-up on a grid, or of which nothing was measured.
pub fn share_of_the_period(context: &Context<'_>) -> Option<Table> {
    let planned = |measure: &takt_rundir::Measure| {
        measure.column == "wake_ns" && measure.since_column.as_deref() == Some("planned_ns")
    };
    let mut measures = context.group.cells.iter().flat_map(|(_, runs)| runs).map(|(_, measure)| measure);
    let measured = |digest: &&crate::digest::Digest| {
        digest.summary.count > 0 && digest.rate_hz.is_some_and(|rate_hz| rate_hz > 0.0 && rate_hz.is_finite())
    };
    let digests: Vec<_> = context.digests.iter().filter(measured).collect();
    if digests.is_empty() || !measures.all(planned) {
        return None;
    }
    let published = context.supplement.and_then(|supplement| supplement.jitter());
    let heads = [
        "System",
        "Processor",
        "#Worst-case jitter (µs)",
        "#Control period (µs)",
        "#Jitter (% of the period)",
        "#Processor time left (%)",
    ];
    let title = published.map_or_else(String::new, |published| format!(" ({})", published.title));
    let mut table =
        Table::new(format!("{}: jitter as a share of the period{title}", context.group.title), &heads);
    for digest in digests {
        // Present by the filter above.
        let period_us = 1e6 / digest.rate_hz.unwrap_or(1.0);
        let worst_us = digest.summary.worst / 1e3;
        let runs = || digest.runs.iter().map(|run| &context.collection.runs[run.run].header);
        let processor = runs().find_map(|header| header.machine.cpu.as_deref());
        let busy = runs().map(|header| header.cpu.busy + header.cpu.stolen).reduce(f64::max);
        table.push(vec![
            Cell::text(context.name(digest)),
            processor.map_or_else(|| Cell::gap("not reported"), |cpu| Cell::text(clean(cpu))),
            Cell::number(format!("{worst_us:.1}")),
            Cell::number(format!("{period_us:.0}")),
            Cell::number(format!("{:.2}", 100.0 * worst_us / period_us)),
            match busy.filter(|busy| (0.0..=1.0).contains(busy) && *busy > 0.0) {
                Some(busy) => Cell::number(format!("{:.0}", 100.0 * (1.0 - busy))),
                None => Cell::gap("not reported"),
            },
        ]);
    }
    for [system, processor, jitter, period, share, left] in published.map_or(&[][..], |all| all.rows) {
        table.push(vec![
            Cell::text(system),
            Cell::text(processor),
            Cell::number(jitter),
            Cell::number(period),
            Cell::number(share),
            Cell::text(left),
        ]);
    }
    table.note(
        "Worst-case jitter: the greatest time from a planned release to the wake-up. Above 100 %, the next release was missed, too.",
    );
    if context.digests.iter().any(|digest| digest.skipped() > 0) {
        table.note("Releases that never ran have no jitter and count as misses.");
    }
    table.note("Processor time left: of all CPUs over the measured window, interference included.");
    Some(table)
}
