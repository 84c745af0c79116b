//! Reasons why a tail was not extrapolated.

use serde::{Deserialize, Serialize};

/// A refusal: no number is better than one that nothing supports. Each says what was seen and what
/// would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "refusal")]
pub enum Refusal {
    /// Fewer values than an analysis needs.
    #[error("{samples} values are too few for an extreme-value analysis; at least {needed} are needed")]
    TooFewSamples {
        /// Values given.
        samples: u64,
        /// Values needed.
        needed: u64,
    },
    /// The large values come in so few bursts that there are not enough independent ones.
    #[error(
        "only {peaks} independent peaks in the upper tenth (extremal index {extremal_index:.2}); at least {needed} are \
         needed: measure about {factor:.0} times as long"
    )]
    TooFewPeaks {
        /// Independent peaks found.
        peaks: u64,
        /// Peaks needed.
        needed: u64,
        /// Extremal index of the exceedances.
        extremal_index: f64,
        /// Factor by which the measurement would have to be longer.
        factor: f64,
    },
    /// Fewer blocks than a fit of block maxima needs.
    #[error(
        "only {blocks} blocks of {length} values; at least {needed} blocks of at least {least_length} are needed"
    )]
    TooFewBlocks {
        /// Blocks there are.
        blocks: u64,
        /// Their length, values.
        length: u64,
        /// Blocks needed.
        needed: u64,
        /// Least length of a block that is taken for one.
        least_length: u64,
    },
    /// All values are equal, or all large ones.
    #[error(
        "the values do not vary in the tail (the greatest is {value_ns} ns): there is nothing to extrapolate"
    )]
    NoVariation {
        /// The greatest value.
        value_ns: u64,
    },
    /// The clock that took the values ticks too coarsely for their tail.
    #[error(
        "{:.0} % of the {peaks} peaks have the same value, {value_ns} ns: the clock was too coarse, or the values were rounded. Fix: \
         record nanoseconds",
        100.0 * share
    )]
    Discretised {
        /// The most frequent value.
        value_ns: u64,
        /// Its share of the peaks.
        share: f64,
        /// Number of peaks.
        peaks: u64,
    },
    /// The tail was not the same throughout the run.
    #[error(
        "the tail changed during the run: {what}. Fix: find what changed, or measure each phase by itself"
    )]
    NonStationary {
        /// The change that was seen.
        what: String,
    },
    /// No threshold leaves a tail of one kind.
    #[error(
        "the tail is a mixture: a generalised Pareto distribution does not fit the {peaks} greatest peaks (above \
         {threshold_ns} ns, Anderson-Darling p = {p_value:.3}). Fix: find the rare cause of the greatest values, or \
         measure long enough that it gives {needed} peaks of its own"
    )]
    Mixture {
        /// Peaks above the highest threshold tried.
        peaks: u64,
        /// The threshold.
        threshold_ns: u64,
        /// p-value of the fit.
        p_value: f64,
        /// Peaks that an analysis needs.
        needed: u64,
    },
    /// Some values stand apart from all others.
    #[error(
        "the tail is a mixture: the {values} greatest of {peaks} peaks stand apart from the others (p = {p_value:.3}), \
         and are too few to model. Fix: find their cause, or measure until there are {needed} of them"
    )]
    StandsApart {
        /// Number of values above the gap.
        values: u64,
        /// Peaks looked at.
        peaks: u64,
        /// p-value of the gap.
        p_value: f64,
        /// Peaks that an analysis needs.
        needed: u64,
    },
    /// A tail without a finite variance.
    #[error(
        "the tail is too heavy to extrapolate (shape {shape:.2}, limit {limit}): its variance is infinite, as with a \
         rare cause of its own behind the greatest values. Fix: find that cause"
    )]
    TooHeavy {
        /// Fitted shape.
        shape: f64,
        /// Greatest shape that is accepted.
        limit: f64,
    },
    /// A rate that is not one.
    #[error("rate {rate_hz} Hz: a prediction for an hour needs a rate above 0")]
    Rate {
        /// The received rate.
        rate_hz: f64,
    },
}
