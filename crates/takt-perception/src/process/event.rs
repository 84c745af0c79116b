//! The run directory's record of the worker: every answer's times, and every event with its cause.

use serde::{Deserialize, Serialize};

use crate::process::frame_judge::StageSpans;
use crate::process::text::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A frame was answered in time. Not an event; kept for its times.
    Answered,
    /// A frame was not answered within its budget.
    Overrun,
    /// The fallback judged a frame that the worker was not asked about, or did not answer in time.
    Fallback,
    /// An answer came after its budget and was discarded.
    Late,
    /// The worker could not judge a frame.
    Failed,
    /// Frames waited and nothing was answered.
    Hung,
    /// The worker process ended.
    Crashed,
    /// The worker's device is lost.
    Lost,
    /// An answer made no sense.
    Garbled,
    /// A fresh worker process is ready.
    Restarted,
    /// A fresh worker process could not be made ready.
    RestartFailed,
    BreakerOpen,
    /// Trials begin.
    BreakerHalfOpen,
    /// The worker is trusted again.
    BreakerClosed,
    /// The worker is not started any more in this run.
    GivenUp,
}

impl EventKind {
    pub const EVENTS: [Self; 14] = [
        Self::Overrun,
        Self::Fallback,
        Self::Late,
        Self::Failed,
        Self::Hung,
        Self::Crashed,
        Self::Lost,
        Self::Garbled,
        Self::Restarted,
        Self::RestartFailed,
        Self::BreakerOpen,
        Self::BreakerHalfOpen,
        Self::BreakerClosed,
        Self::GivenUp,
    ];

    /// The word that files use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Overrun => "overrun",
            Self::Fallback => "fallback",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Hung => "hung",
            Self::Crashed => "crashed",
            Self::Lost => "lost",
            Self::Garbled => "garbled",
            Self::Restarted => "restarted",
            Self::RestartFailed => "restart-failed",
            Self::BreakerOpen => "breaker-open",
            Self::BreakerHalfOpen => "breaker-half-open",
            Self::BreakerClosed => "breaker-closed",
            Self::GivenUp => "given-up",
        }
    }
}

/// One answer or event. A plain value for a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub time_ns: u64,
    pub kind: EventKind,
    /// The camera; `None` for what concerns the whole worker.
    pub camera: Option<u32>,
    /// The frame; 0 for none.
    pub frame: u64,
    /// Number of the worker process, from 1.
    pub generation: u32,
    /// When the cell asked.
    pub asked_ns: u64,
    /// When the worker took the frame up.
    pub taken_ns: u64,
    /// When the worker had the answer.
    pub done_ns: u64,
    /// Parts of the work.
    pub stages: StageSpans,
    pub cause: Text,
}

impl Record {
    /// An event without a frame.
    pub fn of(kind: EventKind, time_ns: u64, generation: u32, cause: Text) -> Self {
        Self {
            time_ns,
            kind,
            camera: None,
            frame: 0,
            generation,
            asked_ns: 0,
            taken_ns: 0,
            done_ns: 0,
            stages: StageSpans::default(),
            cause,
        }
    }
}
