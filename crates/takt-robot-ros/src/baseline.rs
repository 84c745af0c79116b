//! The paper's second baseline: criticality-monotonic SCHED_RR (*ROS-Llama*, section VI.c).

use std::collections::BTreeMap;

use takt_manager::{Goals, Plan};
use takt_model::Model;
use takt_rt::policy::Policy;

/// The lowest of the priorities: above those that helpers of Takt use, below interrupt threads
/// (50).
const LOWEST: u8 = 11;

/// A thread and what it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub pid: u32,
    pub tid: u32,
    /// SCHED_RR priority.
    pub priority: u8,
}

/// The priority of the chain that is so far from being given up first.
pub(super) fn priority_of(rank: usize) -> u8 {
    // Priorities end at 49: so many chains that more would be needed share the highest.
    LOWEST + u8::try_from(rank).unwrap_or(u8::MAX).min(49 - LOWEST)
}

/// Threads of all chains that were found, with priorities by the degradation order: a thread that
/// serves several chains gets the most critical one's. No analysis is asked; that is the point of
/// this baseline.
#[must_use]
pub fn criticality_monotonic(goals: &Goals, plan: &Plan, model: &Model) -> Vec<Given> {
    let mut given: BTreeMap<(u32, u32), u8> = BTreeMap::new();
    for (rank, &chain) in goals.degradation_order.iter().enumerate() {
        let Some(planned) = plan.chains.get(chain) else { continue };
        let priority = priority_of(rank);
        let executors = planned.path.iter().filter_map(|callback| model.callbacks.get(callback.0));
        let executors = executors.filter_map(|callback| model.executors.get(callback.executor.0));
        for thread in
            executors.flat_map(|executor| &executor.threads).filter_map(|id| model.threads.get(id.0))
        {
            if !thread.ended {
                let highest = given.entry((thread.pid, thread.tid)).or_insert(priority);
                *highest = (*highest).max(priority);
            }
        }
    }
    given.into_iter().map(|((pid, tid), priority)| Given { pid, tid, priority }).collect()
}

impl Given {
    /// Makes it so.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn apply(&self) -> Result<(), takt_rt::Error> {
        Policy::RoundRobin { priority: self.priority }.apply(self.tid.cast_signed())
    }
}
