//! Assumptions behind the word "guaranteed".

use serde::{Deserialize, Serialize};

/// State of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not enough is known yet: before the first plan, or before an instance was seen to end under
    /// it.
    #[default]
    Learning,
    /// Only observed: with the plan's reservations it would be guaranteed. Nothing is reserved.
    Keepable,
    /// Every assumption behind its bound is observed to hold, and the bound keeps the goal.
    Guaranteed,
    /// Something was seen that contradicts an assumption behind its bound.
    Refuted,
    /// Given up in the declared order: it goes on at best effort.
    Degraded,
    /// The analysis does not cover something on its way.
    NotAnalysable,
    /// Its end points were not seen, or nothing leads from one to the other.
    NotFound,
    /// Its cost cannot be determined from the observations.
    NotMeasurable,
    /// A thread or process on its way has ended.
    Ended,
}

impl State {
    /// As in the status' JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Keepable => "keepable",
            Self::Guaranteed => "guaranteed",
            Self::Refuted => "refuted",
            Self::Degraded => "degraded",
            Self::NotAnalysable => "not_analysable",
            Self::NotFound => "not_found",
            Self::NotMeasurable => "not_measurable",
            Self::Ended => "ended",
        }
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Keepable => "could be guaranteed",
            Self::Guaranteed => "guaranteed",
            Self::Refuted => "REFUTED",
            Self::Degraded => "DEGRADED to best effort",
            Self::NotAnalysable => "NOT ANALYSABLE, best effort",
            Self::NotFound => "NOT FOUND",
            Self::NotMeasurable => "NOT MEASURABLE",
            Self::Ended => "ended",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

/// An assumption behind the word "guaranteed". All of them must be observed to hold; the first
/// observation against one takes the word back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumption {
    /// The plan's bound, which holds for the model with its margins, keeps the goal.
    Bounded,
    /// Everything on the chain's way runs.
    Running,
    /// No process on its way is starting, and every timer there has run: bounds are those of the
    /// steady state.
    Started,
    /// Every reservation is in force, as read back from the kernel.
    Reserved,
    /// No reservation was found exhausted for as long as a goal that it serves.
    Budgets,
    /// No execution time was above its curve.
    Costs,
    /// No arrivals were denser than their curve.
    Arrivals,
    /// No activation sent more messages than was known, and nobody sent any who was not known to.
    Outputs,
    /// No callback suspended itself or yielded for longer or more often than was known.
    Suspensions,
    /// The middleware, whose threads have no reservation, delivered no message later than was seen
    /// before, with a margin.
    Delivery,
    /// No callback ran in the chain's executors that the plan did not know.
    Graph,
    /// No event was lost since the last plan but one, so that what is not seen did not happen.
    Complete,
    /// All publishers on the chain's way are observed, or their time stamps can be believed.
    Observed,
    /// Messages from other machines are here within the network's declared bound.
    Network,
    /// Instances that begin are seen to end.
    Measured,
    /// No measured latency was below the best case that the bound on its jitter rests on.
    Shortest,
    /// No measured latency was above the bound.
    Latency,
}

impl Assumption {
    /// All of them, in the order in which they are judged.
    pub const ALL: [Self; 17] = [
        Self::Bounded,
        Self::Running,
        Self::Started,
        Self::Reserved,
        Self::Budgets,
        Self::Costs,
        Self::Arrivals,
        Self::Outputs,
        Self::Suspensions,
        Self::Delivery,
        Self::Graph,
        Self::Complete,
        Self::Observed,
        Self::Network,
        Self::Measured,
        Self::Shortest,
        Self::Latency,
    ];

    /// The assumption in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Bounded => "the bound of the response-time analysis meets the goal",
            Self::Running => "all processes on the chain's path are running",
            Self::Started => "no process on the chain's path is starting, and every timer there has run",
            Self::Reserved => "every reservation is in force, as read back from the kernel",
            Self::Budgets => "no reservation is exhausted for as long as a goal that it serves",
            Self::Costs => "no execution time is above its curve",
            Self::Arrivals => "no arrivals are denser than their curve",
            Self::Delivery => {
                "the middleware, whose threads have no reservation, delivers no message later than the latest seen, plus a margin"
            }
            Self::Outputs => "no activation sends more messages than observed before",
            Self::Suspensions => {
                "no callback suspends itself or yields for longer or more often than observed before"
            }
            Self::Graph => "no callback outside the plan runs in the chain's executors",
            Self::Complete => "no events are lost",
            Self::Observed => "all publishers on the chain's path are observed",
            Self::Network => "messages from other machines arrive within the network's declared bound",
            Self::Measured => "instances that begin are seen to complete",
            Self::Shortest => "no measured latency is below the best case",
            Self::Latency => "no measured latency is above the bound",
        }
    }
}

/// An assumption about one chain, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub assumption: Assumption,
    pub assumed: String,
    /// Whether it is observed to hold; `None`: it was not looked at, or not enough was seen.
    pub holds: Option<bool>,
    /// The observation against it, with figures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observed: String,
}

/// A time for which a chain stood so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub state: State,
    /// From when, seconds since the manager began.
    pub from_s: f64,
    /// Until when.
    pub to_s: f64,
    /// The bound then; `None`: there was none.
    pub bound_ms: Option<f64>,
    /// The longest latency then; `None`: nothing ended.
    pub worst_ms: Option<f64>,
    /// Times that it came to its end.
    pub completions: u64,
    /// Of these, later than the goal.
    pub late: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}
