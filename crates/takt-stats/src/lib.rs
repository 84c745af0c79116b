//! Statistics of latencies: summaries, quantiles with intervals, the tables of the papers,
//! recorders for runs of weeks, extreme values, differences between runs, and a verdict against a
//! deadline.
//!
//! Nothing here filters: the tail is the message. Nothing here reads files or clocks, and whatever
//! draws random numbers takes its seed from the caller or a constant: the same data gives the same
//! answer.

#![deny(missing_docs)]

pub mod binomial;
pub mod bootstrap;
pub mod change;
pub mod claim;
pub mod dependence;
pub mod evt;
pub mod histogram;
pub mod low;
pub mod misses;
mod moments;
pub mod paired;
pub mod quantile;
mod random;
pub mod recorder;
pub mod shift;
mod simplex;
pub mod stop;
pub mod streamed;
mod summary;
pub mod trend;
mod verdict;

/// Two-sided confidence of the intervals that reports show: of quantiles, tails and differences. A
/// claim has its own ([`claim::CONFIDENCE`]).
pub const INTERVAL_CONFIDENCE: f64 = 0.95;

/// A confidence as texts have it: "95 %".
pub fn percent(confidence: f64) -> String {
    let text = format!("{:.4}", 100.0 * confidence);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

pub use bootstrap::{BootstrapError, Difference, Statistic};
pub use claim::{Claim, ClaimError, Limit, MeasureClaim, VerdictConfig};
pub use histogram::Histogram;
pub use low::LowRow;
pub use misses::Misses;
pub use quantile::Quantile;
pub use recorder::{Recorder, RecorderError};
pub use stop::{Stop, StopConfig, StopError, Stopped, TrendStop};
pub use streamed::Streamed;
pub use summary::{Summary, reduction};
pub use trend::{MaxPoint, MaxTrend, MeanPoint, MeanTrend};
pub use verdict::{
    Longer, Part, SeriesEvidence, Verdict, VerdictReport, judge_series, overall, sentence, stolen_words,
};
