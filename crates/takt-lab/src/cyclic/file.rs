//! Configuration of the cyclic task.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::config::within;
use takt_rt::memory::MemoryLock;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use crate::{ConfigError, Envelope};

pub const SHIPPED: &str = include_str!("../../../../robots/cyclic.toml");

/// A cyclic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CyclicFile {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Releases a second. 1000: the motion controller's rate in the humanoid paper.
    pub rate_hz: f64,
    /// Length of a run, seconds, when the command says nothing. 32: a PASS takes 30 s of
    /// evidence.
    pub seconds: f64,
    /// Busy time of a job, microseconds. 0: wake-ups alone, as cyclictest.
    pub work_us: f64,
    /// Deadline of a job after its release, milliseconds; the period when absent.
    pub deadline_ms: Option<f64>,
    /// Scheduling policy. FIFO 80: above threaded interrupt handlers (50), below the kernel's own
    /// (99).
    pub policy: Policy,
    /// CPUs; the inherited ones when absent.
    pub cpus: Option<CpuSet>,
    /// Memory locking. All: no page fault later on.
    pub lock_memory: MemoryLock,
    /// Waiting method of the loop. Default kernel, which leaves the CPU free in the meantime.
    pub sleep: SleepStrategy,
    /// Holds the CPUs out of deep sleep (`/dev/cpu_dma_latency` at 0). True: exit latencies of idle
    /// states are power saving and not scheduling.
    pub no_deep_idle: bool,
    /// Refuse to run when the kernel grants less than asked.
    pub strict: bool,
}

impl Default for CyclicFile {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("cyclic"),
            rate_hz: 1000.0,
            seconds: 32.0,
            work_us: 0.0,
            deadline_ms: None,
            policy: Policy::Fifo { priority: 80 },
            cpus: None,
            lock_memory: MemoryLock::All,
            sleep: SleepStrategy::Kernel,
            no_deep_idle: true,
            strict: false,
        }
    }
}

impl CyclicFile {
    pub fn period(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.rate_hz).unwrap_or(Duration::MAX)
    }

    pub fn deadline(&self) -> Duration {
        match self.deadline_ms {
            Some(ms) => Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX),
            None => self.period(),
        }
    }

    /// Settings of the task's thread.
    pub fn settings(&self) -> ThreadSettings {
        ThreadSettings {
            policy: self.policy,
            cpus: self.cpus,
            timer_slack_ns: Some(1),
            lock_memory: self.lock_memory,
            prefault_stack_bytes: 64 << 10,
            strict: self.strict,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("rate_hz", self.rate_hz, 0.1, 20_000.0)?;
        within("seconds", self.seconds, 0.01, 40.0 * 86_400.0)?;
        let period_us = 1e6 / self.rate_hz;
        within("work_us", self.work_us, 0.0, period_us)?;
        if let Some(ms) = self.deadline_ms {
            within("deadline_ms", ms, 0.001, 1e5)?;
        }
        Ok(self.policy.validate()?)
    }
}
