//! Questions of a paper that a campaign over `policy` and `noise` answers: what a robot's
//! [`RobotKind`](crate::RobotKind) is given to answer them, and what it says.

use serde::{Deserialize, Serialize};

/// Answers a paper's questions from the figures of a campaign.
pub type Questions = fn(&[Point]) -> Vec<Answer>;

/// The main measure of one configuration, all repetitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Scheduler configuration.
    pub policy: String,
    /// Noise threads.
    pub noise: u32,
    /// The kernel, where the campaign varies it; else empty.
    pub kernel: String,
    /// Values.
    pub count: u64,
    /// Inputs that were never answered.
    pub skipped: u64,
    /// Misses, with those never answered.
    pub misses: u64,
    /// Mean, milliseconds.
    pub mean_ms: f64,
    /// Greatest value, milliseconds.
    pub worst_ms: f64,
    /// Standard deviation, milliseconds.
    pub stddev_ms: f64,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
}

impl Point {
    /// Share of the inputs that were never answered.
    pub fn skipped_share(&self) -> f64 {
        let all = self.count as f64 + self.skipped as f64;
        if all > 0.0 { self.skipped as f64 / all } else { 0.0 }
    }
}

/// A question with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Short name: `RQ1`.
    pub name: String,
    pub question: String,
    /// Statements about the numbers, one sentence each.
    pub sentences: Vec<String>,
}
