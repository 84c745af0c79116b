//! The tables of a report.

mod jitter;
pub mod judged;
mod latency;
mod losses;
mod machine;
mod paper;
mod tail;
pub mod trace;

pub use jitter::share_of_the_period;
pub use latency::{latency, repetitions, verdicts};
pub use losses::losses;
pub use machine::{figures, figures_by_phase, gaps, interference, machine, runs, shortfalls};
pub use paper::{conditions, effects, low, low_of};
pub use tail::extremes;

use takt_stats::quantile::Quantile;

use crate::supplement::Context;
use crate::table::Cell;
use crate::words::Unit;

pub(super) fn interval(unit: Unit, estimate: &Quantile) -> Cell {
    let end = |value: Option<f64>| value.map(|v| unit.number(v));
    Cell::Estimate(unit.number(estimate.value), end(estimate.low), end(estimate.high))
}

/// Median, least and greatest; zeros for none.
pub fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(&low), Some(&high)) = (values.first(), values.last()) else { return [0.0; 3] };
    let half = values.len() / 2;
    let middle = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
    [middle, low, high]
}
