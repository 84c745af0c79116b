//! Extreme values: what the tail says about an hour, or why it says nothing.

use takt_stats::evt::Estimate;
use takt_stats::{INTERVAL_CONFIDENCE, percent};

use super::Context;
use crate::table::{Cell, Table};
use crate::words::{figure, probability};

fn with(estimate: &Estimate, show: impl Fn(f64) -> String) -> Cell {
    Cell::Estimate(show(estimate.value), Some(show(estimate.low)), Some(show(estimate.high)))
}

/// Extreme-value analysis per configuration: the estimates, and the refusals with their reasons.
/// Empty where no configuration has deadline, rate and samples.
pub fn extremes(context: &Context<'_>) -> Vec<Table> {
    let unit = context.unit;
    let heads = [
        "Configuration".to_owned(),
        "#Probability of a miss in an hour".to_owned(),
        context.head("Level exceeded once in an hour"),
        context.head("Threshold"),
        "#Peaks".to_owned(),
        "#Shape".to_owned(),
        "#Fit: p-value".to_owned(),
        "#Block maxima: miss in an hour".to_owned(),
        "What to know".to_owned(),
    ];
    let title = format!("{}: extreme values", context.group.title);
    let mut estimates = Table::new(&title, &heads);
    let mut refusals =
        Table::new(format!("{title}, no estimate"), &["Configuration", "Why there is no estimate"]);
    for digest in context.digests {
        let name = Cell::text(context.name(digest));
        match &digest.tail {
            None => {}
            Some(Err(refusal)) => refusals.push(vec![name, Cell::text(refusal.to_string())]),
            Some(Ok(tail)) => estimates.push(vec![
                name,
                with(&tail.per_hour, probability),
                with(&tail.hour_level_ns, |ns| unit.number(ns)),
                Cell::number(unit.number(tail.threshold_ns as f64)),
                Cell::number(tail.peaks),
                with(&tail.shape, |v| format!("{v:.2}")),
                Cell::number(figure((tail.fit_p_value * 1e3).round() / 1e3)),
                match &tail.blocks {
                    Ok(blocks) => with(&blocks.per_hour, probability),
                    Err(refusal) => Cell::gap(refusal.to_string()),
                },
                Cell::text(if tail.caveats.is_empty() {
                    "nothing".to_owned()
                } else {
                    tail.caveats.join("; ")
                }),
            ]),
        }
    }
    estimates.note(format!(
        "Generalised Pareto distribution of the peaks over a threshold, with {} intervals; block maxima (generalised extreme values) as a \
         second opinion. The estimate holds for the measured load, not for a heavier one.",
        percent(INTERVAL_CONFIDENCE)
    ));
    refusals.note("Takt gives no estimate where the theory does not apply.");
    [estimates, refusals].into_iter().filter(|table| !table.rows().is_empty()).collect()
}
