//! Differences between two sets of runs, with confidence intervals by bootstrap.
//!
//! Latencies are autocorrelated, and runs of the same configuration differ from one another. Two
//! uncertainties come of that, and the interval reported spans both:
//!
//! - *within runs*: blocks of neighbouring values are drawn anew (circular block bootstrap, Politis
//!   & Romano 1992); 2.5 % and 97.5 % quantiles of the drawn differences. The block length is
//!   Politis and White's automatic choice (Econometric Reviews 23:53, 2004, and 28:372, 2009),
//!   found on the values for a mean and on "above the quantile or not" for a quantile, from at most
//!   65,536 neighbouring values, and scaled by n^(1/3).
//! - *between runs*, where a side has several: whole repetitions are drawn anew, and the standard
//!   error that results, times √(R/(R - 1)) for the few there are, makes a Student interval with
//!   Welch's degrees of freedom. A block level beneath would count the variation within runs twice
//!   (Davison & Hinkley 1997, section 3.8).
//!
//! Neither works on the values themselves: a side is cut into at most about 1024 cells of
//! neighbours, and for each the sum, or the number of values up to each of about a thousand levels,
//! is kept. A draw then costs the same for 10^4 and for 10^7 values. Levels are measured values
//! whose ranks spread from the wanted quantile's in ever wider steps (about 3 % of their distance),
//! which is the resolution of a quantile's interval.

mod block;
mod side;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::INTERVAL_CONFIDENCE;
use crate::quantile;
use crate::random::generator;
use side::Side;

/// Draws per interval.
const DRAWS: usize = 2000;

/// Compared statistic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Arithmetic mean of all values of a side.
    Mean,
    /// Their 50 % quantile.
    Median,
    /// Any quantile of them: 0.99 for P99.
    Quantile(f64),
    /// The greatest value. Its difference is reported without an interval: resampling never draws a
    /// value greater than the greatest, so that a bootstrap of the maximum does not work (Bickel &
    /// Freedman 1981).
    Maximum,
}

/// Reason why nothing could be compared.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BootstrapError {
    /// A side has no values.
    #[error("there are no values {side} the change: nothing can be compared")]
    Empty {
        /// "before" or "after".
        side: &'static str,
    },
    /// A value that is not a number, or infinite.
    #[error("a value {side} the change is {value}: only finite numbers can be compared")]
    NotFinite {
        /// "before" or "after".
        side: &'static str,
        /// The value.
        value: f64,
    },
    /// Not a quantile.
    #[error("{q} is not a quantile: expected a number between 0 and 1 (0.99 for P99)")]
    Quantile {
        /// The requested quantile.
        q: f64,
    },
}

/// A difference, after less before, in the unit of the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The compared statistic.
    pub statistic: Statistic,
    /// The statistic over all values before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// After less before: negative is faster.
    pub difference: f64,
    /// Lower end of its interval; `None` where no interval can be given.
    pub low: Option<f64>,
    /// Upper end of its interval; `None` where no interval can be given.
    pub high: Option<f64>,
    /// Confidence of the interval.
    pub confidence: f64,
    /// The difference in percent of before; `None` unless before is positive.
    pub percent: Option<f64>,
    /// Caveats, one sentence each.
    pub warnings: Vec<String>,
}

impl Difference {
    /// Whether the interval leaves no doubt about the sign: `Some(true)` for a difference,
    /// `Some(false)` for one that can be chance, `None` without an interval.
    pub fn is_clear(&self) -> Option<bool> {
        Some(self.low? > 0.0 || self.high? < 0.0)
    }
}

/// Compares two sides, each one or several runs (repetitions) in time order. The same seed gives
/// the same answer.
pub fn difference(
    before: &[&[f64]],
    after: &[&[f64]],
    statistic: Statistic,
    seed: u64,
) -> Result<Difference, BootstrapError> {
    if let Statistic::Quantile(q) = statistic
        && !(q > 0.0 && q < 1.0)
    {
        return Err(BootstrapError::Quantile { q });
    }
    check(before, "before")?;
    check(after, "after")?;
    let q = match statistic {
        Statistic::Maximum => return Ok(maximum(before, after)),
        Statistic::Mean => None,
        Statistic::Median => Some(0.5),
        Statistic::Quantile(q) => Some(q),
    };
    let sides = [Side::new(before, q), Side::new(after, q)];
    let [b, a] = [sides[0].value(), sides[1].value()];
    let mut rng = generator(seed);
    let mut within: Vec<f64> =
        (0..DRAWS).map(|_| sides[1].draw_blocks(&mut rng) - sides[0].draw_blocks(&mut rng)).collect();
    within.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - INTERVAL_CONFIDENCE) / 2.0;
    let at = |q| quantile::of_sorted(&within, q);
    let (mut low, mut high) = (at(tail), at(1.0 - tail));
    if let Some(half) = between_runs(&sides, &mut rng) {
        low = low.map(|l| l.min(a - b - half));
        high = high.map(|h| h.max(a - b + half));
    }
    let mut warnings = warnings(&sides, q);
    if sides.iter().any(|s| s.blocks_drawn() < 2) {
        warnings.push("too few values for an interval".to_owned());
        (low, high) = (None, None);
    }
    Ok(made(statistic, b, a, low, high, warnings))
}

fn check(side: &[&[f64]], name: &'static str) -> Result<(), BootstrapError> {
    let mut values = side.iter().flat_map(|run| run.iter());
    if side.iter().all(|run| run.is_empty()) {
        return Err(BootstrapError::Empty { side: name });
    }
    match values.find(|v| !v.is_finite()) {
        Some(&value) => Err(BootstrapError::NotFinite { side: name, value }),
        None => Ok(()),
    }
}

fn made(
    statistic: Statistic,
    before: f64,
    after: f64,
    low: Option<f64>,
    high: Option<f64>,
    warnings: Vec<String>,
) -> Difference {
    let difference = after - before;
    let percent = (before > 0.0).then(|| 100.0 * difference / before).filter(|p| p.is_finite());
    Difference {
        statistic,
        before,
        after,
        difference,
        low,
        high,
        confidence: INTERVAL_CONFIDENCE,
        percent,
        warnings,
    }
}

fn maximum(before: &[&[f64]], after: &[&[f64]]) -> Difference {
    let of =
        |side: &[&[f64]]| side.iter().flat_map(|run| run.iter().copied()).fold(f64::NEG_INFINITY, f64::max);
    let warning = "a maximum has no bootstrap interval: it depends on the rarest event seen and grows with the \
                   length of the run";
    made(Statistic::Maximum, of(before), of(after), None, None, vec![warning.to_owned()])
}

/// Half the width of the Student interval between runs; `None` where neither side has two.
fn between_runs(sides: &[Side; 2], rng: &mut crate::random::Pcg) -> Option<f64> {
    if sides.iter().all(|s| s.repetitions() < 2) {
        return None;
    }
    // Squared standard error and degrees of freedom of each side; a single run contributes what
    // blocks say.
    let parts = [0, 1].map(|i| {
        let side = &sides[i];
        let r = side.repetitions() as f64;
        let drawn: Vec<f64> = (0..DRAWS)
            .map(|_| if r < 2.0 { side.draw_blocks(rng) } else { side.draw_repetitions(rng) })
            .collect();
        let mean = drawn.iter().sum::<f64>() / DRAWS as f64;
        let variance = drawn.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (DRAWS - 1) as f64;
        if r < 2.0 {
            (variance, (side.blocks_drawn().max(2) - 1) as f64)
        } else {
            (variance * r / (r - 1.0), r - 1.0)
        }
    });
    let total = parts[0].0 + parts[1].0;
    if total <= 0.0 {
        return Some(0.0);
    }
    let degrees = total * total / parts.iter().map(|(v, d)| v * v / d).sum::<f64>();
    let t =
        StudentsT::new(0.0, 1.0, degrees.max(1.0)).ok()?.inverse_cdf(1.0 - (1.0 - INTERVAL_CONFIDENCE) / 2.0);
    Some(t * total.sqrt())
}

fn warnings(sides: &[Side; 2], q: Option<f64>) -> Vec<String> {
    let mut warnings = Vec::new();
    if sides.iter().any(|s| s.repetitions() < 2) {
        warnings.push(
            "one side has a single run, so the interval does not include differences between runs".to_owned(),
        );
    }
    for (side, name) in sides.iter().zip(["before", "after"]) {
        let beyond = q.map_or(f64::INFINITY, |q| side.count() as f64 * (1.0 - q).min(q));
        if beyond < 10.0 {
            warnings.push(format!(
                "only about {beyond:.0} values {name} the change lie beyond this quantile, so its interval is too narrow"
            ));
        } else if side.blocks_drawn() < 20 {
            warnings.push(format!(
                "the values {name} the change are correlated for so long that they form only {} independent blocks",
                side.blocks_drawn()
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
