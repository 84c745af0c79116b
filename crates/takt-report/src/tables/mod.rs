//! The tables of a report.

mod gpu;
mod jitter;
pub mod judged;
mod late;
mod latency;
mod losses;
mod machine;
mod paper;
mod table4;
mod tail;
pub mod trace;

pub use gpu::{mitigations, perception_process};
pub use jitter::share_of_the_period;
pub(crate) use late::LATE_FILE;
pub use late::late_frames;
pub use latency::{latency, repetitions, verdicts};
pub use losses::losses;
pub use machine::{figures, figures_by_phase, gaps, interference, machine, runs, shortfalls};
pub use paper::{daq, effects, low};
pub use table4::beside_the_paper;
pub use tail::extremes;

use takt_stats::quantile::Quantile;

use crate::collect::{Collection, Group};
use crate::digest::Digest;
use crate::table::Cell;
use crate::words::{Unit, clean};

/// What every table of a measure is made from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The runs.
    pub collection: &'a Collection,
    /// The measure.
    pub group: &'a Group,
    /// Its configurations.
    pub digests: &'a [Digest],
    pub unit: Unit,
}

impl<'a> Context<'a> {
    /// Name of a configuration.
    pub fn name(&self, digest: &Digest) -> &'a str {
        &self.collection.configurations[digest.configuration].name
    }

    /// A column for each factor that varies (the quadrotor paper's Table 4) where they alone name
    /// the configurations; otherwise one with their names.
    fn heads(&self) -> Vec<String> {
        let named = |d: &Digest| self.factors(d).is_some_and(|words| words.join(" · ") == self.name(d));
        if self.collection.varying.is_empty() || !self.digests.iter().all(named) {
            return vec!["Configuration".to_owned()];
        }
        self.collection.varying.clone()
    }

    fn factors(&self, digest: &Digest) -> Option<Vec<String>> {
        let factors = &self.collection.configurations[digest.configuration].factors;
        let words = self.collection.varying.iter().map(|name| {
            factors.iter().find(|f| f.name == *name).map(|f| clean(&format!("{name} {}", f.value)))
        });
        words.collect()
    }

    /// The cells below [`heads`](Self::heads).
    fn cells(&self, digest: &Digest, heads: &[String]) -> Vec<Cell> {
        let factors = &self.collection.configurations[digest.configuration].factors;
        let value = |name: &String| factors.iter().find(|f| f.name == *name).map(|f| Cell::text(&f.value));
        let cells: Option<Vec<Cell>> = heads.iter().map(value).collect();
        cells.unwrap_or_else(|| vec![Cell::text(self.name(digest))])
    }

    /// A head with the unit: `#Max (µs)`.
    fn head(&self, name: &str) -> String {
        format!("#{name} ({})", self.unit.sign())
    }
}

pub(super) fn interval(unit: Unit, estimate: &Quantile) -> Cell {
    let end = |value: Option<f64>| value.map(|v| unit.number(v));
    Cell::Estimate(unit.number(estimate.value), end(estimate.low), end(estimate.high))
}

/// Median, least and greatest; zeros for none.
pub(crate) fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(&low), Some(&high)) = (values.first(), values.last()) else { return [0.0; 3] };
    let half = values.len() / 2;
    let middle = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
    [middle, low, high]
}
