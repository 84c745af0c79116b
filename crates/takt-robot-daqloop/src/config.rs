//! The tables of the robot's file: pulse train and tasks. Unknown keys are errors.

#![deny(missing_docs)]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::memory::MemoryLock;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use crate::error::DaqError;

/// From where an edge's latency counts. The time from the output's write to the arrival is a
/// measure of its own (`link`) either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stamp {
    /// From the arrival of the edge before, as in Algorithm 1 (`LastSentTime = ReceiveTime`): what
    /// the paper calls latency is input, controller, the sleep between edges, output, and the way
    /// back to the input.
    #[default]
    Receive,
    /// From just before the output is written: the bare link, without controller and sleep.
    Write,
}

/// Clock of the edges' times, and of the sleep between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PulseClock {
    /// CLOCK_MONOTONIC, and a sleep until a time of it: nobody can set it.
    #[default]
    Monotonic,
    /// CLOCK_REALTIME, and a relative sleep on it, as in Algorithm 1. Setting that clock during a
    /// run changes a latency; the run reports how often that happened.
    Realtime,
}

/// Frequency of writes to the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writes {
    /// Once for each edge.
    #[default]
    Edge,
    /// Once in each turn of the loop, as in Algorithm 1: after every read that does not show the
    /// level yet, the same level is written again.
    Turn,
}

/// The pulse train (`[pulse]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PulseConfig {
    /// The high level, volts. 5 (Algorithm 1).
    pub high_v: f64,
    /// The low level, volts. 0 (Algorithm 1).
    pub low_v: f64,
    /// The input is high from here on, volts. 1 (Algorithm 1).
    pub threshold_v: f64,
    /// Sleep between an edge's arrival and the next edge. 1 us (Algorithm 1). `0ns`: no sleep, and
    /// then nothing below the acquisition task ever runs on its CPU.
    #[serde(with = "takt_rt::duration")]
    pub wait: Duration,
    /// An edge that has not come after this time is lost. 100 ms: far above any latency worth
    /// measuring.
    #[serde(with = "takt_rt::duration")]
    pub timeout: Duration,
    /// So many lost edges in a row end the loop. 10: a second.
    pub lost_in_a_row: u32,
    /// From where the latency counts.
    pub stamp: Stamp,
    /// Clock of the count. `monotonic`; `realtime` is the paper's.
    pub clock: PulseClock,
    /// Frequency of writes to the output. `edge`; `turn` is the paper's.
    pub write: Writes,
}

impl Default for PulseConfig {
    fn default() -> Self {
        Self {
            high_v: 5.0,
            low_v: 0.0,
            threshold_v: 1.0,
            wait: Duration::from_micros(1),
            timeout: Duration::from_millis(100),
            lost_in_a_row: 10,
            stamp: Stamp::default(),
            clock: PulseClock::default(),
            write: Writes::default(),
        }
    }
}

/// The task that measures (`[acquisition]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcquisitionConfig {
    /// Its scheduling policy. `fifo:99`, the paper's.
    pub policy: Policy,
    /// Its CPUs; absent: all. The paper gives each task a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Memory locking of the process. `all`: a page fault in the loop is a latency of its own.
    pub lock_memory: MemoryLock,
    /// Whether to refuse to run when the kernel does not grant all this. False: the run is
    /// labelled.
    pub strict: bool,
    /// Records that wait for a reader before new ones are lost. 65536: some tenths of a second at
    /// the rates of fast links, 4 MiB.
    pub ring: usize,
}

impl Default for AcquisitionConfig {
    fn default() -> Self {
        Self {
            policy: Policy::Fifo { priority: 99 },
            cpus: None,
            lock_memory: MemoryLock::All,
            strict: false,
            ring: 1 << 16,
        }
    }
}

impl AcquisitionConfig {
    pub(crate) fn settings(&self) -> ThreadSettings {
        ThreadSettings::of_task(self.policy, self.cpus, self.lock_memory, self.strict)
    }
}

/// When a line is shown and kept: a table of these keys, or one of the words `paper` (the
/// defaults), `every-edge` and `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DisplayText")]
pub struct DisplayRule {
    /// Whenever the least or the greatest latency has changed. True, as in the paper.
    pub extremes: bool,
    /// The first of every so many edges. 1,000,000, as in the paper; 1 is its test 4 ("for every
    /// run"); 0: never.
    pub every: u64,
}

impl Default for DisplayRule {
    fn default() -> Self {
        Self { extremes: true, every: 1_000_000 }
    }
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"paper\", \"every-edge\", \"never\", or a table with the keys extremes (true \
                               or false) and every (a number of edges)"
)]
enum DisplayText {
    Word(DisplayWord),
    Table(DisplayTable),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DisplayWord {
    Paper,
    EveryEdge,
    Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DisplayTable {
    extremes: bool,
    every: u64,
}

impl Default for DisplayTable {
    fn default() -> Self {
        let DisplayRule { extremes, every } = DisplayRule::default();
        Self { extremes, every }
    }
}

impl From<DisplayText> for DisplayRule {
    fn from(text: DisplayText) -> Self {
        match text {
            DisplayText::Word(DisplayWord::Paper) => Self::default(),
            DisplayText::Word(DisplayWord::EveryEdge) => Self { extremes: true, every: 1 },
            DisplayText::Word(DisplayWord::Never) => Self { extremes: false, every: 0 },
            DisplayText::Table(DisplayTable { extremes, every }) => Self { extremes, every },
        }
    }
}

/// The task that keeps and shows (`[saving]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SavingConfig {
    /// Whether it runs. True; off is the paper's test 1.
    pub enabled: bool,
    /// Its scheduling policy. `other`: it has no deadline.
    pub policy: Policy,
    /// Its CPUs; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Display rule.
    pub display: DisplayRule,
    /// Period at which it looks for new records. 1 ms: small batches, and no spinning next to the
    /// measurement.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Records that wait for it before new ones are lost to it. 65536.
    pub ring: usize,
}

impl Default for SavingConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            policy: Policy::default(),
            cpus: None,
            display: DisplayRule::default(),
            period: Duration::from_millis(1),
            ring: 1 << 16,
        }
    }
}

impl SavingConfig {
    pub(crate) fn settings(&self) -> ThreadSettings {
        ThreadSettings { policy: self.policy, cpus: self.cpus, ..ThreadSettings::default() }
    }
}

impl PulseConfig {
    pub(crate) fn validate(&self) -> Result<(), DaqError> {
        let Self { high_v, low_v, threshold_v, .. } = *self;
        // Boards reach 10 V; the kernel loopbacks carry any level within 1000 V.
        if !(low_v >= -1000.0 && high_v <= 1000.0 && low_v < high_v) {
            let given = format!("{high_v}, pulse.low_v = {low_v}");
            return Err(DaqError::config("pulse.high_v", given, "accepted are two levels, high above low"));
        }
        if !(low_v < threshold_v && threshold_v < high_v) {
            let accepted = format!("accepted are levels between low_v = {low_v} and high_v = {high_v}");
            return Err(DaqError::config("pulse.threshold_v", threshold_v, accepted));
        }
        if self.wait > Duration::from_secs(10) {
            let given = takt_rt::duration::format(self.wait);
            return Err(DaqError::config("pulse.wait", given, "accepted are 0ns to 10s"));
        }
        if !(Duration::from_micros(100)..=Duration::from_secs(60)).contains(&self.timeout) {
            let given = takt_rt::duration::format(self.timeout);
            return Err(DaqError::config("pulse.timeout", given, "accepted are 100us to 60s"));
        }
        if self.lost_in_a_row == 0 {
            return Err(DaqError::config("pulse.lost_in_a_row", 0, "accepted are numbers from 1"));
        }
        Ok(())
    }
}
