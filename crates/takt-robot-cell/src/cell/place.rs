//! Reservations on CPUs of their own, and one reservation for all SCHED_RR threads together.

use serde::Serialize;
use takt_host::reserve::pin::{self, PinMethod, PinOptions, Pinned, Wanted};
use takt_host::reserve::rt_group::{self, RtGroup};
use takt_rt::census::Role as CensusRole;
use takt_rt::placement::{CpuSet, online};
use takt_rt::policy::Policy;
use takt_rt::ran_on;
use takt_rt::settings::{Difference, ThreadSettings};

use super::Cell;
use crate::error::CellError;
use crate::tasks::{Role, TaskSet};

/// Method that combined SCHED_DEADLINE with placement.
#[derive(Debug, Serialize)]
pub struct Placed {
    /// The way that held; absent when none did, and the threads are not pinned.
    pub way: Option<PinMethod>,
    /// The same in words.
    #[serde(rename = "says")]
    pub description: String,
    /// The ways that were tried and did not hold, and why.
    pub closed: Vec<String>,
    /// State that lasts as long as the threads.
    #[serde(skip)]
    _pinned: Option<Pinned>,
}

/// The control group that the cell's SCHED_RR threads share, as a run notes it.
#[derive(Clone, Debug, Serialize)]
pub struct Grouped {
    /// Its path.
    pub path: String,
    /// Budget in each period, of each CPU.
    pub runtime_us: u64,
    pub period_us: u64,
    /// The threads that are in it, by the kernel's list.
    pub threads: Vec<i32>,
}

/// Whether a thread needs a way around the kernel's rule to have its policy on these CPUs.
fn needs_a_way(settings: &ThreadSettings) -> bool {
    // Unknown CPUs: the kernel itself refuses then, in the thread.
    let part = settings
        .cpus
        .is_some_and(|cpus: CpuSet| online().is_ok_and(|online| !online.without(&cpus).is_empty()));
    part && matches!(settings.policy, Policy::Deadline { .. })
}

/// Initial settings of a thread whose policy and CPUs are set from outside later.
pub(super) fn before_placing(settings: &ThreadSettings) -> ThreadSettings {
    if !needs_a_way(settings) {
        return settings.clone();
    }
    ThreadSettings { policy: Policy::default(), cpus: None, strict: false, ..settings.clone() }
}

impl Cell {
    /// Gives the threads that wait for it their reservation on their CPUs, or the reservation alone
    /// where no way holds.
    ///
    /// # Errors
    /// In strict mode, what was not granted.
    pub(super) fn place_reservations(&mut self) -> Result<(), CellError> {
        let granted = self.reports.iter().map(|report| &report.granted);
        let waiting = granted.filter(|granted| needs_a_way(&granted.requested));
        let wanted: Vec<Wanted> = waiting
            .filter_map(|granted| {
                let (tid, policy) = (granted.effective.tid, granted.requested.policy);
                granted.requested.cpus.map(|cpus| Wanted { tid, cpus, policy })
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let outcome = pin::pin(&wanted, &PinOptions::default());
        let closed = match &outcome {
            Ok(pinned) => &pinned.closed,
            Err(closed) => closed,
        };
        let closed: Vec<String> = closed.iter().map(ToString::to_string).collect();
        let (way, description) = match &outcome {
            Ok(pinned) => (Some(pinned.way), format!("pinned: {}", pinned.way)),
            Err(_) => (None, "not pinned: no method works here".to_owned()),
        };
        for report in &mut self.reports {
            let granted = &mut report.granted;
            let Some(one) = wanted.iter().find(|one| one.tid == granted.effective.tid) else { continue };
            let refused = match &outcome {
                Ok(_) => None,
                Err(_) => one.policy.apply(one.tid).err().map(|error| error.to_string()),
            };
            granted.reread();
            for difference in &mut granted.differences {
                explain(difference, &closed, refused.as_deref());
            }
            ran_on::placed(granted);
            granted.check(&report.name)?;
        }
        self.placed = Some(Placed { way, description, closed, _pinned: outcome.ok() });
        Ok(())
    }

    /// Makes the group that `tasks.group` asks for; a kernel that has none is a warning, or an
    /// error of a strict run.
    ///
    /// # Errors
    /// In strict mode, why there is no group.
    pub(super) fn make_group(
        tasks: &TaskSet,
        warnings: &mut Vec<String>,
    ) -> Result<Option<RtGroup>, CellError> {
        let Some(budget) = &tasks.group else { return Ok(None) };
        let [runtime_us, period_us] = budget.us();
        match RtGroup::make(rt_group::GroupBudget { runtime_us, period_us }) {
            Ok(group) => Ok(Some(group)),
            Err(reason) if tasks.strict => Err(CellError::NoGroup(reason)),
            Err(reason) => {
                warnings.push(format!("tasks.group: no reservation for all threads together: {reason}"));
                Ok(None)
            }
        }
    }

    /// Takes every SCHED_RR thread of the cell into its group: its own, and those that libraries
    /// have spawned until now. Threads that these spawn later belong to it from their beginning.
    pub(crate) fn fill_group(&mut self) {
        let Some(group) = &mut self.group else { return };
        let is_rr = |policy: &Policy| matches!(policy, Policy::RoundRobin { .. });
        let granted = self.reports.iter().map(|report| &report.granted);
        let own = granted.filter(|granted| is_rr(&granted.requested.policy));
        let own = own.map(|granted| granted.effective.tid);
        // The census gives the policy when it next looks; the budget is there before.
        let fallback = is_rr(&self.config.tasks.policy_of(Role::Subthread));
        let census = self.census.as_ref().and_then(|census| census.report().ok());
        let threads = census.map_or_else(Vec::new, |report| report.threads);
        let spawned =
            threads.iter().filter(|thread| fallback && thread.role == CensusRole::Subthread && !thread.ended);
        let all: Vec<i32> = own.chain(spawned.map(|thread| thread.tid)).collect();
        for tid in all {
            let refused = group.add(tid).err().map(|refused| refused.to_string());
            self.warnings.extend(refused.filter(|refused| !self.warnings.contains(refused)));
        }
    }

    /// Method that combined reservations with their CPUs; `None` if no task requested both.
    pub fn placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// The reservation that the SCHED_RR threads share; `None` where none was asked for, or
    /// granted.
    pub fn grouped(&self) -> Option<Grouped> {
        let group = self.group.as_ref()?;
        let rt_group::GroupBudget { runtime_us, period_us } = group.budget();
        Some(Grouped {
            path: group.path().display().to_string(),
            runtime_us,
            period_us,
            threads: group.threads(),
        })
    }
}

/// Explains a different setting by the kernel, instead of the plain value read back.
fn explain(difference: &mut Difference, closed: &[String], refused: Option<&str>) {
    match (difference.setting.as_str(), refused) {
        ("cpus", _) => {
            difference.reason = format!(
                "the kernel refuses SCHED_DEADLINE to a thread that may not run on all CPUs of its root domain, so it was not \
                 pinned; tried: {}",
                closed.join("; ")
            );
            difference.fix = "boot with isolcpus= and only that CPU, start the program in an exclusive cpuset with it, run as root, or \
                 omit tasks.ssm_cpus and tasks.perception_cpus"
                .to_owned();
        }
        ("policy", Some(refused)) => difference.reason = refused.to_owned(),
        _ => {}
    }
}
