//! Messages of a worker process to its supervisor, a line of JSON each.

use serde::{Deserialize, Serialize};
use takt_rt::census::CensusReport;
use takt_rt::settings::Granted;

/// The judge, for the run directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The device, by its own name.
    pub device: String,
    /// Version of its driver.
    pub driver: String,
    /// The engine of the networks.
    pub engine: String,
    /// Anything that must be known of the figures: emulation, planted faults.
    pub labels: Vec<String>,
}

/// A thread that judges, and what the kernel granted it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerThread {
    pub name: String,
    /// Asked and granted.
    pub granted: Granted,
}

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Message {
    /// Something that takes long: building an engine.
    Progress(String),
    /// Frames can come.
    Ready { about: About, threads: Vec<WorkerThread> },
    /// It cannot be made ready, in one sentence.
    Failed(String),
    /// Its threads now.
    Census(CensusReport),
}
