//! Inputs of the loop, and its result.

use std::io;
use std::process::Command;
use std::time::Duration;

use takt_model::Model;

use super::{Log, Status};
use crate::enact;
use crate::kept::Kept;
use crate::plan::Plan;
use crate::restore::Restored;

/// Options of the loop.
#[derive(Debug)]
pub struct Options {
    /// Only look: model, bounds and what would be done.
    pub observe: bool,
    /// Time between two looks at the events. 25 ms: rings hold seconds, a budget that does not
    /// suffice is noticed within a few reservation periods, and every look costs system calls for
    /// each process and each reservation.
    pub poll: Duration,
    /// Time between two renewals of the status. Half a second: nobody reads faster.
    pub renew: Duration,
    /// Options of enactment.
    pub enact: enact::Options,
    /// Options of the model.
    pub model: takt_model::Options,
    /// Destination of the log.
    pub log: Log,
    /// The program that calls [`takt_host::reserve::restore::watchdog::run`] with the state file,
    /// as `takt manage --watchdog FILE`; without it only the state file remains of a killed
    /// manager.
    pub watchdog: Option<fn(&std::path::Path) -> io::Result<Command>>,
    /// Model of an earlier run; with it the first plan is made as soon as all running programs are
    /// known. Without it, no model is stored.
    pub kept: Option<Kept>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            observe: false,
            poll: Duration::from_millis(25),
            renew: Duration::from_millis(500),
            enact: enact::Options::default(),
            model: takt_model::Options::default(),
            log: Log::default(),
            watchdog: None,
            kept: None,
        }
    }
}

/// Reason why the loop ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can be enacted.
    #[error(transparent)]
    Enact(#[from] enact::Error),
    #[error("model: {0}")]
    Model(#[from] takt_model::OptionsError),
    /// The probe.
    #[error("the probe can no longer be read: {0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the watchdog cannot be started: {0}. Fix: make sure that this program file can still be executed"
    )]
    Watchdog(io::Error),
}

/// Results at the end.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The last status.
    pub status: Status,
    /// Restored settings; `None`: nothing had been enacted.
    pub restored: Option<Restored>,
    /// The last plan.
    pub plan: Option<Plan>,
    /// The last model.
    pub model: Model,
    /// The model to keep for the next run, where one is kept.
    pub kept: Option<Kept>,
}
