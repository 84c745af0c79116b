//! The plan: the interface between analysis and enactment.
//!
//! A [`Plan`] is complete and self-contained: whoever enacts it needs neither the model nor the
//! goals. Identifiers index the snapshot that the plan was made from; process and thread numbers
//! are what stays.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_model::{CallbackId, ExecutorId, ThreadId};

/// Margin of a plan's assumptions beyond the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slack {
    /// Execution times and self-suspensions may be so many times the longest seen,
    pub times: f64,
    /// and one among 16 (`SPREAD`) activations in a row so much longer than that. Messages may be
    /// that much later, too, and arrivals from outside closer.
    pub more_ns: u64,
    /// Additional time of all callbacks of a core together, in any interval of one second; 0: none.
    #[serde(default)]
    pub disturbance_ns: u64,
    /// An activation may suspend itself so many times more often than was seen.
    pub suspensions: u64,
}

/// The machine's resources for reservations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Cores for reservations, in the order in which they are tried.
    pub cores: Vec<usize>,
    /// Core of everything else: middleware threads, kernel workers, Takt itself. May be one of
    /// `cores` where there are too few; reservations then leave it the share that
    /// [`Platform::max_system_bandwidth`] leaves.
    pub system_core: usize,
    /// Greatest sum of bandwidths on one core. The kernel's own limit is
    /// `sched_rt_runtime_us / sched_rt_period_us`, 0.95 unless changed; more than that is not
    /// admitted.
    pub max_bandwidth: f64,
    /// The same on the system core, where that takes reservations.
    pub max_system_bandwidth: f64,
    /// Delay until the kernel notices that a budget is used up: a scheduler tick, if budgets are
    /// checked only at ticks; 0: exactly (`HRTICK_DL`). A thread may run for that much longer in
    /// one go, and then pays it back.
    #[serde(default)]
    pub enforcement_ns: u64,
}

impl Platform {
    /// With the same greatest sum of bandwidths on every core.
    #[must_use]
    pub fn new(cores: Vec<usize>, system_core: usize, max_bandwidth: f64) -> Self {
        Self { cores, system_core, max_bandwidth, max_system_bandwidth: max_bandwidth, enforcement_ns: 0 }
    }

    /// Greatest sum of bandwidths on this core.
    #[must_use]
    pub(crate) fn most_on(&self, core: usize) -> f64 {
        let most = self.max_bandwidth.clamp(0.0, 1.0);
        if core == self.system_core { most.min(self.max_system_bandwidth.max(0.0)) } else { most }
    }
}

/// Changes of the system, and the resulting guarantees.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Period of all reservations, or the longest where executors of shared cores are ordered by
    /// theirs.
    pub period_ns: u64,
    /// Threads to run under SCHED_DEADLINE.
    pub reservations: Vec<Reservation>,
    /// Threads of executors that serve degraded chains only: SCHED_OTHER, on any core.
    pub best_effort: Vec<BestEffort>,
    /// One per goal, in the order of the goals file.
    pub chains: Vec<ChainPlan>,
    /// Decisions, in their order.
    pub decisions: Vec<Decision>,
    /// CPU time that making the plan took.
    pub analysis_ns: u64,
    /// Of that, for bringing the snapshot to the form of the analysis (Table III of *ROS-Llama*:
    /// model processing),
    #[serde(default)]
    pub model_ns: u64,
    /// for response times and demands (timing analysis),
    #[serde(default)]
    pub timing_ns: u64,
    /// and for the rest (budget selection).
    #[serde(default)]
    pub budgeting_ns: u64,
    /// From its beginning to its end, with all that ran between.
    #[serde(default)]
    pub analysis_wall_ns: u64,
    /// Nothing that matters has changed since the last plan, which this repeats.
    pub cached: bool,
    /// Bounds rest on what the reserved threads of a core need together, and not on their budgets:
    /// no thread of anybody else may have a reservation there.
    #[serde(default)]
    pub shared: bool,
    /// Margin of the assumptions beyond the measurements; `None`: only the usual margins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "room")]
    pub slack: Option<Slack>,
}

impl Plan {
    /// Whether enacting `other` after `self` would change anything: the same threads with the same
    /// budgets on the same cores.
    #[must_use]
    pub fn same_enactment(&self, other: &Self) -> bool {
        self.period_ns == other.period_ns
            && self.reservations.len() == other.reservations.len()
            && self.best_effort == other.best_effort
            && self.reservations.iter().zip(&other.reservations).all(|(a, b)| {
                (a.pid, a.tid, a.budget_ns, a.period_ns, a.core)
                    == (b.pid, b.tid, b.budget_ns, b.period_ns, b.core)
            })
    }

    /// CPU time that making the plan took.
    #[must_use]
    pub fn analysis_time(&self) -> Duration {
        Duration::from_nanos(self.analysis_ns)
    }

    /// Sum of the reservations' bandwidths on `core`.
    #[must_use]
    pub fn bandwidth_on(&self, core: usize) -> f64 {
        self.reservations.iter().filter(|r| r.core == core).map(Reservation::bandwidth).sum()
    }
}

/// One thread's reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The thread in the snapshot.
    pub thread: ThreadId,
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// The executor (or event source) that it runs.
    pub executor: ExecutorId,
    /// Run time per period.
    pub budget_ns: u64,
    /// Period, which is the deadline too.
    pub period_ns: u64,
    /// The only core on which it runs.
    pub core: usize,
}

impl Reservation {
    /// Budget per period.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn bandwidth(&self) -> f64 {
        self.budget_ns as f64 / self.period_ns as f64
    }
}

/// One thread without reservation, though a goal concerns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestEffort {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// The executor that it runs.
    pub executor: ExecutorId,
}

/// Statement about one goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPlan {
    /// Its name in the goals file.
    pub name: String,
    pub goal_ns: u64,
    /// Callbacks from start to end; where several paths lead there, the one with the greatest
    /// bound.
    pub path: Vec<CallbackId>,
    pub path_names: Vec<String>,
    /// Number of paths found.
    pub paths: usize,
    /// Upper bound on the latency; `None` where there is none, or none is known.
    pub bound_ns: Option<u64>,
    /// The bound for what was measured alone, margins included: [`Self::bound_ns`] holds for more
    /// ([`Plan::slack`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bound_ns: Option<u64>,
    /// Analyses that gave the bound, `ecrts19`, `rtss21-bw` or both for different parts.
    pub bound_by: String,
    /// Parts of the bound, one entry for each executor on the path; empty: there is no bound.
    #[serde(default)]
    pub bound_parts: Vec<BoundPart>,
    /// Its jitter, where it has a goal for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterPlan>,
    /// The verdict.
    pub state: ChainState,
}

/// Statement about one jitter goal. Jitter is the longest less the shortest latency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitterPlan {
    pub goal_ns: u64,
    /// No latency is shorter than this.
    pub best_ns: u64,
    /// Upper bound on the jitter; `None`: the latency has no bound.
    pub bound_ns: Option<u64>,
}

/// Contribution of one executor to a chain's bound, or of several on shared cores that are bounded
/// together. The sum of all times is the bound, except that unexplained latencies measured above it
/// are added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BoundPart {
    /// Callbacks of the chain that run there, one after another.
    pub callbacks: Vec<CallbackId>,
    /// The messages' way there: what the middleware was seen to take and a margin, and what the
    /// options allow.
    pub transport_ns: u64,
    /// Execution and self-suspension of the chain's own activation.
    pub own_ns: u64,
    /// The same of all that the executor runs before: other callbacks, and earlier activations
    /// where messages come in bursts.
    pub executor_ns: u64,
    /// Waiting for the reservation: budgets used up, others on the core.
    pub supply_ns: u64,
    /// Allowance for execution beyond the curves of callbacks on a shared core.
    #[serde(default)]
    pub disturbance_ns: u64,
    /// Number of worst cases added up here: in each, the chain waits again for everything that runs
    /// before it.
    #[serde(default)]
    pub waits: usize,
}

/// Prospects of a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ChainState {
    /// The bound does not exceed the goal.
    Guaranteed,
    /// It goes on at best effort.
    Degraded { why: String },
    /// The analysis does not cover something on its way. It is served at best effort.
    NotAnalysable { why: String },
    /// Its end points were not seen, or nothing leads from one to the other.
    NotFound {
        why: String,
        /// Names like those that were given.
        near_misses: Vec<String>,
    },
}

impl ChainState {
    /// Reason why it is not guaranteed.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Guaranteed => None,
            Self::Degraded { why } | Self::NotAnalysable { why } | Self::NotFound { why, .. } => Some(why),
        }
    }
}

/// Something that was decided, for people and for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The chain for whose sake; `None`: for all.
    pub chain: Option<String>,
    pub step: Step,
    pub words: String,
}

/// Kind of decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// First budget, from long-term demand (Algorithm 1, lines 1 to 3).
    InitialBudget {
        executor: ExecutorId,
        /// Budget per period.
        bandwidth: f64,
    },
    /// More budget, so that response times have a bound at all (Algorithm 1, lines 4 to 10).
    Stabilised {
        executor: ExecutorId,
        /// Before.
        from: f64,
        /// After.
        to: f64,
    },
    /// More budget, because this executor held the chain back most (Algorithm 2).
    Raised {
        executor: ExecutorId,
        /// Before.
        from: f64,
        /// After.
        to: f64,
        /// Its budget-shortage delay; `None`: without bound.
        shortage_ns: Option<u64>,
    },
    /// Budget taken back that no chain kept so far needs, before one more would have been degraded.
    Trimmed {
        /// Share of a core.
        bandwidth: f64,
    },
    /// Another period of reservations was tried, since not all chains could be kept with the one
    /// before.
    Period {
        /// The new one.
        period_ns: u64,
        /// Whether it keeps more.
        better: bool,
    },
    /// The chain's bound keeps its goal.
    Kept { bound_ns: u64 },
    /// The chain is served at best effort.
    Degraded {
        /// The bound it would have had; `None`: none.
        bound_ns: Option<u64>,
    },
    /// Something was assumed about the system.
    Assumed,
    /// More was assumed than was seen, since the goals leave room for it.
    Widened {
        /// Size of the margin.
        #[serde(rename = "room")]
        slack: Slack,
    },
    /// The plan of before stays, because the new one guarantees nothing more.
    Unchanged,
}
