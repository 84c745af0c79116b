//! The task set: attitude loop, position loop, telemetry; each with rate, policy, placement and way
//! to sleep.

#![deny(missing_docs)]

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use takt_rt::config::{SettingError, within};
use takt_rt::cpus::MachineCpus;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

/// One periodic task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Task {
    /// Releases a second; the deadline of a job is the next release.
    pub rate_hz: f64,
    /// Scheduling policy, as `fifo:99`, `rr:50`, `other:-19`, `deadline:400us/4ms/4ms`.
    pub policy: Policy,
    /// CPUs; absent: chosen by `tasks.isolate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Waiting method of the task. `kernel`, as in the paper (`clock_nanosleep`).
    pub sleep: SleepStrategy,
}

/// A task as a file gives it: what is left out has the task's own default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartialTask {
    rate_hz: Option<f64>,
    policy: Option<Policy>,
    cpus: Option<CpuSet>,
    sleep: Option<SleepStrategy>,
}

impl Task {
    fn new(rate_hz: f64, policy: Policy) -> Self {
        Self { rate_hz, policy, cpus: None, sleep: SleepStrategy::Kernel }
    }

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        let given = PartialTask::deserialize(deserializer)?;
        Ok(Self {
            rate_hz: given.rate_hz.unwrap_or(self.rate_hz),
            policy: given.policy.unwrap_or(self.policy),
            cpus: given.cpus.or(self.cpus),
            sleep: given.sleep.unwrap_or(self.sleep),
        })
    }

    /// τ_att: 250 Hz, with the best fixed priority of the paper, `fifo:99`.
    pub fn attitude() -> Self {
        Self::new(250.0, Policy::Fifo { priority: 99 })
    }

    /// τ_pos: 50 Hz. `fifo:40`: it keeps its policy while an experiment varies the attitude loop's.
    pub fn position() -> Self {
        Self::new(50.0, Policy::Fifo { priority: 40 })
    }

    /// Telemetry and logging: 20 Hz, SCHED_OTHER; nothing waits for it.
    pub fn telemetry() -> Self {
        Self::new(20.0, Policy::Other { nice: 0 })
    }

    /// For `deserialize_with`: what is left out is as in [`attitude`](Self::attitude).
    ///
    /// # Errors
    /// The deserializer's.
    pub(crate) fn read_attitude<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::attitude().read(deserializer)
    }

    /// For `deserialize_with`: what is left out is as in [`position`](Self::position).
    ///
    /// # Errors
    /// The deserializer's.
    pub(crate) fn read_position<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::position().read(deserializer)
    }

    /// For `deserialize_with`: what is left out is as in [`telemetry`](Self::telemetry).
    ///
    /// # Errors
    /// The deserializer's.
    pub(crate) fn read_telemetry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::telemetry().read(deserializer)
    }

    /// Time from one release to the next, to the nanosecond.
    pub fn period(&self) -> Duration {
        Duration::from_nanos((1e9 / self.rate_hz).round() as u64)
    }

    /// Checks what the types cannot; `key` names the task.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self, key: &str) -> Result<(), SettingError> {
        within(&format!("{key}.rate_hz"), self.rate_hz, 1.0, 2000.0)?;
        let policy = format!("{key}.policy");
        self.policy.validate().map_err(|error| SettingError::conflict(&policy, error.to_string()))?;
        if let Policy::Deadline { period, .. } = self.policy
            && period != self.period()
        {
            let accepted = format!(
                "expected a reservation with the period of the loop, {} at {} Hz",
                takt_rt::duration::format(self.period()),
                self.rate_hz
            );
            return Err(SettingError::value(policy, format!("\"{}\"", self.policy), accepted));
        }
        if self.cpus.is_some_and(|cpus| cpus.is_empty()) {
            return Err(SettingError::conflict(format!("{key}.cpus"), "expected at least one CPU"));
        }
        Ok(())
    }
}

/// `[tasks]`: what all tasks share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSet {
    /// Gives the attitude loop a CPU of its own and the other tasks others: isolated CPUs
    /// (`isolcpus=`) first, as the paper does with its isolated cores 2 and 3; without any, the
    /// highest CPU and the rest. `true`. Nothing is pinned where there is one CPU only. CPUs named
    /// at a task win.
    ///
    /// The kernel refuses SCHED_DEADLINE to a thread that may not run on all CPUs of its root
    /// domain; such a task is pinned in the first of several ways that holds
    /// ([`takt_host::reserve::pin`]), else left unpinned, and the run says which.
    pub isolate: bool,
    /// Locks all memory. `true`, as in the paper.
    pub lock_memory: bool,
    /// Holds `/dev/cpu_dma_latency` at 0 so that no CPU enters a deep idle state. `false`: the
    /// paper locks the frequency and leaves the idle states.
    pub hold_cpu_awake: bool,
    /// Timer slack of SCHED_OTHER tasks, ns; absent: the inherited one, 50 µs by default, which the
    /// paper's SCHED_OTHER rows contain (median 54 µs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
    /// Refuses to fly when the kernel grants less than asked. `false`: the run is labelled instead.
    pub strict: bool,
}

impl Default for TaskSet {
    fn default() -> Self {
        Self { isolate: true, lock_memory: true, hold_cpu_awake: false, timer_slack_ns: None, strict: false }
    }
}

/// CPUs of the attitude loop, the position loop and telemetry; `None` leaves those of the process.
pub(crate) fn placements(tasks: [&Task; 3], isolate: bool, machine: &MachineCpus) -> [Option<CpuSet>; 3] {
    let division = if isolate { machine.divide() } else { None };
    let (own, rest) = (division.map(|d| d.own), division.map(|d| d.rest));
    let [attitude, position, telemetry] = tasks;
    [attitude.cpus.or(own), position.cpus.or(rest), telemetry.cpus.or(rest)]
}

/// Whether a task needs a way around the kernel's rule to have its policy on these CPUs.
pub(crate) fn needs_a_way(policy: &Policy, cpus: Option<CpuSet>, machine: &MachineCpus) -> bool {
    let part = cpus.is_some_and(|cpus| !machine.online.without(&cpus).is_empty());
    part && matches!(policy, Policy::Deadline { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn machine(online: &str, isolated: CpuSet) -> MachineCpus {
        let online = cpus(online);
        MachineCpus::of(online, isolated, CpuSet::EMPTY, online.without(&isolated), online)
    }

    fn place(attitude: &Task, isolate: bool, machine: &MachineCpus) -> [Option<CpuSet>; 3] {
        placements([attitude, &Task::position(), &Task::telemetry()], isolate, machine)
    }

    #[test]
    fn the_attitude_loop_has_a_cpu_of_its_own() {
        let plain = machine("0-3", CpuSet::EMPTY);
        let rest = Some(cpus("0-2"));
        assert_eq!(place(&Task::attitude(), true, &plain), [Some(cpus("3")), rest, rest]);
        assert_eq!(place(&Task::attitude(), false, &plain), [None; 3]);
        assert_eq!(
            place(&Task::attitude(), true, &machine("2", CpuSet::EMPTY)),
            [None; 3],
            "nothing to divide"
        );
    }

    #[test]
    fn isolated_cpus_come_first_as_in_the_paper() {
        let one = machine("0-1", cpus("1"));
        assert_eq!(place(&Task::attitude(), true, &one), [Some(cpus("1")), Some(cpus("0")), Some(cpus("0"))]);
        let two = machine("0-3", cpus("2-3"));
        assert_eq!(place(&Task::attitude(), true, &two), [Some(cpus("2")), Some(cpus("3")), Some(cpus("3"))]);
        let named = Task { cpus: Some(cpus("0")), ..Task::attitude() };
        assert_eq!(place(&named, true, &two)[0], Some(cpus("0")), "CPUs named at a task win");
    }

    #[test]
    fn only_a_reservation_on_some_of_the_cpus_needs_a_way() {
        let machine = machine("0-1", CpuSet::EMPTY);
        let mut task = Task { policy: "deadline:400us/4ms/4ms".parse().unwrap(), ..Task::attitude() };
        assert!(needs_a_way(&task.policy, Some(cpus("1")), &machine));
        assert!(!needs_a_way(&task.policy, Some(cpus("0-1")), &machine), "the whole domain is accepted");
        assert!(!needs_a_way(&task.policy, None, &machine));
        assert!(!needs_a_way(&Task::attitude().policy, Some(cpus("1")), &machine));
        task.validate("attitude").unwrap();
        task.rate_hz = 200.0;
        assert!(task.validate("attitude").unwrap_err().to_string().contains("5ms at 200 Hz"));
    }
}
