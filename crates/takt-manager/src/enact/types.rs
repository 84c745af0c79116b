//! Types of enactment: options, targets, reports, errors.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use takt_model::{Model, ThreadRole};
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use super::order::Held;
use super::{Mode, Refusal, Soft};
use crate::plan::{ChainPlan, Plan};
use crate::restore;

/// Options of enactment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Ways of binding reservations to cores, tried in this order. All of them by default, best
    /// first.
    pub modes: Vec<Mode>,
    /// Treatment of a thread that has used up its budget. It reclaims by default: other
    /// reservations are harmed no more than by the paper's hard ones, and on an idle machine
    /// latencies stay what they were.
    pub soft: Soft,
    /// Policy of helper threads that wake often and run briefly, as those of the middleware do.
    /// Above all fair threads by default, because messages pass through them and their time is not
    /// in the bounds; low among real-time priorities, so that drivers and interrupt threads (50)
    /// stay above them.
    pub helper_policy: Policy,
    /// A helper that uses more than this share of a CPU in a second computes, and goes back for
    /// good to what it was: at real-time priority it would starve others. All that have that
    /// priority get no more than this together. A fifth by default.
    pub most_helper_share: f64,
    /// Whether helper threads are touched at all.
    pub helpers: bool,
    /// Whether messengers are bound to the system core, where that takes no reservations. Off by
    /// default: the kernel finds a free CPU for them. On for the paper's manager, which isolates
    /// the middleware's threads there at a high priority (section VII.A.c).
    pub confine_helpers: bool,
    /// Whether unbound kernel workers go to the system core. On by default: data of serial ports
    /// and others pass through them, and reservations starve them (section VII.B.a of the paper).
    /// Not where the system core takes reservations, too: they stay everywhere then.
    pub kernel_workers: bool,
    /// Whether other kernel threads that may run anywhere go there too. On by default, for the same
    /// reason.
    pub kernel_threads: bool,
    /// Whether the kernel is asked to enforce budgets exactly (`HRTICK_DL`) instead of on its
    /// ticks. On by default: it costs one timer interrupt for each budget that is used up, and
    /// bounds become shorter by ticks.
    pub exact_budgets: bool,
    pub state: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            modes: Mode::ALL.to_vec(),
            soft: Soft::default(),
            helper_policy: Policy::RoundRobin { priority: 10 },
            most_helper_share: 0.2,
            helpers: true,
            confine_helpers: false,
            kernel_workers: true,
            kernel_threads: true,
            exact_budgets: true,
            state: restore::default_path(),
        }
    }
}

impl Options {
    /// Checks what no type does.
    ///
    /// # Errors
    ///
    /// The setting that cannot work.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |setting, reason: String| Err(Error::Setting { setting, reason });
        if self.modes.is_empty() {
            let names = crate::goals::names_of_ways();
            return invalid("modes", format!("none given; expected at least one of {names}"));
        }
        if matches!(self.helper_policy, Policy::Deadline { .. }) {
            return invalid(
                "helper_policy",
                "helper threads cannot share SCHED_DEADLINE parameters; use other, fifo or rr".into(),
            );
        }
        if let Err(error) = self.helper_policy.validate() {
            return invalid("helper_policy", error.to_string());
        }
        if !(0.0..=1.0).contains(&self.most_helper_share) {
            return invalid("most_helper_share", format!("{}; expected 0 to 1", self.most_helper_share));
        }
        Ok(())
    }
}

/// Reason why nothing can be enacted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot work.
    #[error("{setting}: {reason}")]
    Setting { setting: &'static str, reason: String },
    /// The state file.
    #[error(transparent)]
    State(#[from] restore::Error),
    /// No way of reserving works here. Everything is as it was.
    #[error("CPU time cannot be reserved here, and nothing was changed:{}", list(refusals))]
    NothingGranted {
        /// Reason for each way.
        refusals: Vec<Refusal>,
    },
    /// The platform's cores.
    #[error("core {core} is not online; online: {online}. Fix: choose cores among these")]
    Core { core: usize, online: Box<CpuSet> },
    /// The kernel does not say which CPUs it has.
    #[error("reading the CPUs online: {0}")]
    Online(std::io::Error),
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(|refusal| format!("\n  {refusal}")).collect()
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Target {
    /// Threads with reservations.
    pub reservations: Vec<Wanted>,
    /// Threads that serve callbacks or publish, without a reservation.
    pub best_effort: Vec<(u32, u32)>,
    /// The managed processes: their other threads are helpers.
    pub processes: BTreeSet<u32>,
    /// Bounds rest on nobody else having reservations on these cores ([`Plan::shared`]).
    pub alone: bool,
}

/// One reservation that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Budget, period and core.
    pub held: Held,
    /// Time for which it may want more than its budget before that is an overrun: the tightest goal
    /// that it serves. A callback longer than the budget is held back by design.
    pub patience_ns: u64,
}

impl Target {
    /// Builds the targets of `plan` in the system that `model` shows.
    #[must_use]
    pub fn new(plan: &Plan, model: &Model) -> Self {
        let patience = |executor| {
            let serves = |chain: &&ChainPlan| {
                let mut path = chain.path.iter().filter_map(|id| model.callbacks.get(id.0));
                path.any(|callback| callback.executor == executor)
            };
            plan.chains.iter().filter(serves).map(|chain| chain.goal_ns).min()
        };
        let reservations: Vec<Wanted> = plan
            .reservations
            .iter()
            .map(|r| Wanted {
                pid: r.pid,
                tid: r.tid,
                name: r.name.clone(),
                held: Held { budget_ns: r.budget_ns, period_ns: r.period_ns, core: r.core },
                // Ten periods, where the plan does not say whom it serves.
                patience_ns: patience(r.executor).unwrap_or(r.period_ns.saturating_mul(10)),
            })
            .collect();
        let reserved: BTreeSet<u32> = reservations.iter().map(|wanted| wanted.tid).collect();
        let alive = model.threads.iter().filter(|thread| !thread.ended);
        let serves = |role| matches!(role, ThreadRole::Executor(_) | ThreadRole::Source(_));
        let best_effort = alive
            .clone()
            .filter(|thread| serves(thread.role) && !reserved.contains(&thread.tid))
            .map(|thread| (thread.pid, thread.tid))
            .collect();
        let ours = std::process::id();
        let processes = alive.map(|thread| thread.pid).filter(|&pid| pid != ours && pid != 0).collect();
        Self { reservations, best_effort, processes, alone: plan.shared }
    }
}

/// Actions taken, and the state in effect.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Enacted {
    /// Binding of reservations to cores.
    pub mode: Option<Mode>,
    /// Changes made.
    pub changes: usize,
    /// Reservations that hold, as read back.
    pub reserved: Vec<Reserved>,
    /// Threads at best effort.
    pub best_effort: usize,
    /// Helper threads, which keep what they had or get better.
    pub helpers: usize,
    /// Those of them that have [`Options::helper_policy`].
    #[serde(default)]
    pub raised: usize,
    /// Threads that the plan names and that are gone.
    pub gone: usize,
    /// Differences between the kernel's state and the requested one.
    pub differences: Vec<Difference>,
}

impl Enacted {
    /// Whether all reservations hold as asked.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.differences.iter().any(|difference| difference.reservation)
    }
}

/// A reservation that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Budget, as read back.
    pub budget_ns: u64,
    /// Period, as read back.
    pub period_ns: u64,
    /// CPUs on which it may run, as read back.
    pub cpus: CpuSet,
}

/// Something that is not as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The thread; 0: the system.
    pub tid: u32,
    /// Its name, or the setting's.
    pub name: String,
    pub asked: String,
    /// The state in effect, or the kernel's answer.
    pub has: String,
    /// It concerns a reservation, and so a guarantee.
    pub reservation: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tid, name, asked, has, .. } = self;
        match tid {
            0 => write!(f, "{name}: requested {asked}, in effect {has}"),
            _ => write!(f, "thread {tid} `{name}`: requested {asked}, in effect {has}"),
        }
    }
}
