//! The task set of SentryRT-1 (Table I) and the scheduler configurations of section V.B.

#![deny(missing_docs)]

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, within};
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

/// Policies of main threads and of the threads that libraries spawn (SentryRT-1, section V.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PolicyMix {
    /// Both under SCHED_OTHER: an unmodified Linux.
    #[serde(rename = "CFS+CFS")]
    CfsCfs,
    /// Main threads under SCHED_DEADLINE, subthreads under SCHED_OTHER.
    #[serde(rename = "DL+CFS")]
    DlCfs,
    /// Main threads under SCHED_DEADLINE, subthreads under SCHED_RR.
    #[serde(rename = "DL+RR")]
    DlRr,
    /// Both under SCHED_RR.
    #[serde(rename = "RR+RR")]
    RrRr,
}

impl PolicyMix {
    /// The four configurations of the paper, weakest first.
    pub const ALL: [Self; 4] = [Self::CfsCfs, Self::DlCfs, Self::DlRr, Self::RrRr];

    /// The paper's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CfsCfs => "CFS+CFS",
            Self::DlCfs => "DL+CFS",
            Self::DlRr => "DL+RR",
            Self::RrRr => "RR+RR",
        }
    }
}

impl fmt::Display for PolicyMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyMix {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        Self::ALL.into_iter().find(|mix| mix.name().eq_ignore_ascii_case(text.trim())).ok_or_else(|| {
            let accepted = "accepted are CFS+CFS, DL+CFS, DL+RR, RR+RR";
            SettingError::value("policy", format!("\"{text}\""), accepted)
        })
    }
}

/// Thread of the cell for which a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// τ_ssm, critical.
    Ssm,
    /// τ_p_i, critical.
    Perception,
    /// A thread that a library or driver spawned for a critical task: camera drivers, the detector
    /// service, inference pools, RTDE receiver.
    Subthread,
    /// τ_arm, τ_v_i, collectors: best effort.
    BestEffort,
}

/// Timing of one kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskTiming {
    /// Period (SSM) or least time between two frames (perception), milliseconds.
    pub period_ms: f64,
    /// Relative deadline, milliseconds.
    pub deadline_ms: f64,
    /// SCHED_DEADLINE runtime (budget per period), milliseconds.
    pub runtime_ms: f64,
}

fn ms(value: f64) -> Duration {
    // Negative and absurd values are refused by `validate` before anything is computed from them.
    Duration::try_from_secs_f64(value / 1e3).unwrap_or(Duration::ZERO)
}

impl TaskTiming {
    /// Period.
    pub fn period(&self) -> Duration {
        ms(self.period_ms)
    }

    /// Relative deadline.
    pub fn deadline(&self) -> Duration {
        ms(self.deadline_ms)
    }

    /// The reservation.
    pub fn reservation(&self, reclaim: bool) -> Policy {
        Policy::Deadline {
            runtime: ms(self.runtime_ms),
            deadline: self.deadline(),
            period: self.period(),
            reclaim,
        }
    }

    fn validate(&self, name: &str) -> Result<(), SettingError> {
        let ordered = 0.0 < self.runtime_ms
            && self.runtime_ms <= self.deadline_ms
            && self.deadline_ms <= self.period_ms
            && self.period_ms <= 10_000.0;
        if ordered {
            return Ok(());
        }
        let Self { runtime_ms, deadline_ms, period_ms } = self;
        Err(SettingError::conflict(
            format!(
                "tasks.{name}: runtime_ms = {runtime_ms}, deadline_ms = {deadline_ms}, period_ms = {period_ms}"
            ),
            "accepted are 0 < runtime_ms <= deadline_ms <= period_ms <= 10000",
        ))
    }
}

/// Waiting method of the SSM loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SsmSleep {
    /// In the kernel until the release.
    #[default]
    Kernel,
    /// In the kernel until a set margin before the release, then spinning.
    Spin,
    /// As `spin`, with a margin measured at the start from this thread's own wake-up tail (one
    /// second).
    SpinCalibrated,
}

/// Thread that takes frames in: waits for the camera, decodes or copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcquiredBy {
    /// A driver thread of each camera's own, a subthread, which decodes while perception judges the
    /// frame before.
    #[default]
    DriverThread,
    /// τ_p_i itself: one main thread acquires and judges, as in SentryRT-1 (section III). Only what
    /// the camera's library spawns are subthreads; where there is no library (replay, synthetic
    /// scene) one thread stands in for it.
    InTask,
}

/// Joint budget of the cell's SCHED_RR threads, of each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupBudget {
    /// Run time in each period, milliseconds.
    pub runtime_ms: f64,
    /// Period, milliseconds.
    pub period_ms: f64,
}

impl GroupBudget {
    /// Run time and period in the kernel's unit.
    pub(crate) fn us(&self) -> [u64; 2] {
        [self.runtime_ms, self.period_ms].map(|ms| (ms * 1e3).round().clamp(0.0, 1e9) as u64)
    }

    fn validate(&self) -> Result<(), SettingError> {
        let Self { runtime_ms, period_ms } = *self;
        // The kernel takes periods from 1 ms and refuses a budget beyond its period.
        if 0.1 <= runtime_ms && runtime_ms <= period_ms && (1.0..=10_000.0).contains(&period_ms) {
            return Ok(());
        }
        Err(SettingError::conflict(
            format!("tasks.group: runtime_ms = {runtime_ms}, period_ms = {period_ms}"),
            "accepted are 0.1 <= runtime_ms <= period_ms, and 1 <= period_ms <= 10000",
        ))
    }
}

/// `[tasks]`: timing, policies and placement of the cell's threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSet {
    /// Scheduler configuration. `DL+RR`, the paper's best.
    pub policy: PolicyMix,
    /// Thread that takes frames in. `driver-thread`: decoding overlaps with judging. `in-task` is
    /// the paper's.
    pub acquisition: AcquiredBy,
    /// τ_ssm: 2 ms period and deadline (Table I). Runtime 0.4 ms: some ten times a measured job,
    /// since an exhausted budget costs a whole period.
    pub ssm: TaskTiming,
    /// τ_p_i: 33 ms period and deadline (Table I). Runtime 10 ms: five of them and the SSM leave a
    /// tenth of two CPUs to everything else, and admission control accepts them.
    pub perception: TaskTiming,
    /// Lets SCHED_DEADLINE tasks use what other reservations leave unused (SCHED_FLAG_RECLAIM).
    /// `true`: without it a frame that needs a little more than its runtime waits for the next
    /// period, which is a missed deadline. The paper does without.
    pub reclaim: bool,
    /// Priority of SCHED_RR threads. 50 (section V.B). The detector service runs one below, so that
    /// a camera driver never queues behind a whole inference.
    pub rr_priority: u8,
    /// Nice value of SCHED_OTHER main threads. 0.
    pub nice: i32,
    /// CPUs of the SSM task; all CPUs when absent. The kernel refuses SCHED_DEADLINE on a subset of
    /// its root domain: such a reservation is placed in one of several ways
    /// ([`takt_host::reserve::pin`]), else the thread runs unpinned, and the run says which. The
    /// paper does not pin.
    pub ssm_cpus: Option<CpuSet>,
    /// CPUs of the perception tasks; all when absent. As `ssm_cpus`.
    pub perception_cpus: Option<CpuSet>,
    /// One reservation for all SCHED_RR threads of the cell together, whatever libraries spawn: a
    /// control group with a share of each CPU (RT group scheduling). Absent: each thread alone. A
    /// kernel without it has the run labelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupBudget>,
    /// Waiting method of the SSM loop. `kernel`: at 500 Hz on two CPUs spinning would cost
    /// perception more than the microseconds gain.
    pub ssm_sleep: SsmSleep,
    /// Margin of `ssm_sleep = "spin"`, microseconds: how long before the release the kernel's sleep
    /// ends and spinning begins. 50: covers the usual wake-up of an idle CPU.
    pub spin_margin_us: f64,
    /// Locks all memory, prefaults stacks, and has malloc keep what is freed. `true`. The paper
    /// does without, as without the two below.
    pub lock_memory: bool,
    /// Holds `/dev/cpu_dma_latency` at 0 so that no CPU enters a deep idle state. `true`.
    pub hold_cpu_awake: bool,
    /// Timer slack of critical SCHED_OTHER threads, nanoseconds. 1, the least the kernel takes; 0
    /// leaves them what the kernel gives every thread, 50,000.
    pub timer_slack_ns: u64,
    /// Runs the paper's visualisation tasks τ_v_i as load: a SCHED_OTHER thread for each camera
    /// that draws what was found into every frame. `false`: the page or the terminal show the cell
    /// to whoever looks.
    pub visualisation: bool,
    /// Refuses to run when the kernel grants less than asked. `false`: the run is labelled instead.
    pub strict: bool,
    /// Deadline of the critical path, frame arrival to end of the first SSM job on it,
    /// milliseconds. 37.3: 33.3 of perception and 2 + 2 of SSM (section IV).
    pub reaction_deadline_ms: f64,
}

impl Default for TaskSet {
    fn default() -> Self {
        Self {
            policy: PolicyMix::DlRr,
            acquisition: AcquiredBy::DriverThread,
            ssm: TaskTiming { period_ms: 2.0, deadline_ms: 2.0, runtime_ms: 0.4 },
            perception: TaskTiming { period_ms: 33.0, deadline_ms: 33.0, runtime_ms: 10.0 },
            reclaim: true,
            rr_priority: 50,
            nice: 0,
            ssm_cpus: None,
            perception_cpus: None,
            group: None,
            ssm_sleep: SsmSleep::Kernel,
            spin_margin_us: 50.0,
            lock_memory: true,
            hold_cpu_awake: true,
            timer_slack_ns: 1,
            visualisation: false,
            strict: false,
            reaction_deadline_ms: 37.3,
        }
    }
}

impl TaskSet {
    /// The policy that `role` asks for.
    pub(crate) fn policy_of(&self, role: Role) -> Policy {
        let other = Policy::Other { nice: self.nice };
        let rr = Policy::RoundRobin { priority: self.rr_priority };
        match (role, self.policy) {
            (Role::BestEffort, _) => Policy::Other { nice: 0 },
            (Role::Ssm | Role::Perception | Role::Subthread, PolicyMix::CfsCfs) => other,
            (Role::Ssm, PolicyMix::DlCfs | PolicyMix::DlRr) => self.ssm.reservation(self.reclaim),
            (Role::Perception, PolicyMix::DlCfs | PolicyMix::DlRr) => {
                self.perception.reservation(self.reclaim)
            }
            (Role::Subthread, PolicyMix::DlCfs) => other,
            (Role::Subthread, PolicyMix::DlRr | PolicyMix::RrRr) => rr,
            (Role::Ssm | Role::Perception, PolicyMix::RrRr) => rr,
        }
    }

    /// The policy of the detector service: a subthread, one priority below the others.
    pub(crate) fn detector_policy(&self) -> Policy {
        match self.policy_of(Role::Subthread) {
            Policy::RoundRobin { priority } => {
                Policy::RoundRobin { priority: priority.saturating_sub(1).max(1) }
            }
            other => other,
        }
    }

    /// The policy of a perception task whose work is split between the cell's thread, which hands
    /// frames over and has the fallback, and the worker's, which judges: each has half of the
    /// reservation, so that both together ask of the processors what one alone would. With
    /// reclaiming, either uses what the other leaves.
    pub(crate) fn shared_perception_policy(&self) -> Policy {
        match self.policy_of(Role::Perception) {
            Policy::Deadline { runtime, deadline, period, reclaim } => {
                Policy::Deadline { runtime: runtime / 2, deadline, period, reclaim }
            }
            other => other,
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.ssm.validate("ssm")?;
        self.perception.validate("perception")?;
        within("tasks.rr_priority", f64::from(self.rr_priority), 1.0, 99.0)?;
        within("tasks.nice", f64::from(self.nice), -20.0, 19.0)?;
        within("tasks.spin_margin_us", self.spin_margin_us, 0.0, 1000.0)?;
        if !(self.reaction_deadline_ms > 0.0 && self.reaction_deadline_ms.is_finite()) {
            let key = "tasks.reaction_deadline_ms";
            return Err(SettingError::value(key, self.reaction_deadline_ms, "accepted are numbers above 0"));
        }
        self.group.as_ref().map_or(Ok(()), GroupBudget::validate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for mix in PolicyMix::ALL {
            assert_eq!(mix.name().to_lowercase().parse(), Ok(mix));
        }
        assert!("DL".parse::<PolicyMix>().expect_err("refused").to_string().contains("DL+RR"));
    }

    #[test]
    fn table_of_the_paper() {
        let set = |policy| TaskSet { policy, ..TaskSet::default() };
        let rr = Policy::RoundRobin { priority: 50 };
        let other = Policy::Other { nice: 0 };
        assert_eq!(set(PolicyMix::CfsCfs).policy_of(Role::Ssm), other);
        assert_eq!(set(PolicyMix::DlCfs).policy_of(Role::Subthread), other);
        assert_eq!(set(PolicyMix::DlRr).policy_of(Role::Subthread), rr);
        assert_eq!(set(PolicyMix::RrRr).policy_of(Role::Perception), rr);
        let two_ms = Duration::from_millis(2);
        let Policy::Deadline { deadline, period, .. } = set(PolicyMix::DlRr).policy_of(Role::Ssm) else {
            panic!("SCHED_DEADLINE expected");
        };
        assert_eq!((deadline, period), (two_ms, two_ms));
    }

    #[test]
    fn refuses_what_the_kernel_would() {
        let late = TaskTiming { period_ms: 2.0, deadline_ms: 3.0, runtime_ms: 1.0 };
        assert!(TaskSet { ssm: late, ..TaskSet::default() }.validate().is_err());
        let group = |runtime_ms, period_ms| TaskSet {
            group: Some(GroupBudget { runtime_ms, period_ms }),
            ..TaskSet::default()
        };
        for (runtime_ms, period_ms) in
            [(0.0, 10.0), (11.0, 10.0), (1.0, 0.5), (f64::NAN, 10.0), (1.0, f64::INFINITY)]
        {
            let error = group(runtime_ms, period_ms).validate().expect_err("refused").to_string();
            assert!(error.contains("tasks.group"), "{error}");
        }
        assert!(group(9.0, 10.0).validate().is_ok());
        assert!(TaskSet { rr_priority: 0, ..TaskSet::default() }.validate().is_err());
    }
}
