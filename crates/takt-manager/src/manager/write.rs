//! Writes decisions as a plan.

use takt_model::{CallbackId, ExecutorId, Model};

use super::{Candidate, Manager};
use crate::analysis::Method;
use crate::budget::{ChainBound, Refusal};
use crate::chains::ChainError;
use crate::degrade;
use crate::plan::{BestEffort, ChainPlan, ChainState, Reservation};
use crate::words::ms;
use crate::workload::Workload;

impl Manager {
    pub(super) fn chain_plans(
        &self,
        model: &Model,
        candidates: &[Candidate],
        fates: &[Option<degrade::Fate>],
        bounds: &[Option<ChainBound>],
        measured: Option<&[Option<ChainBound>]>,
    ) -> Vec<ChainPlan> {
        let chains = self.goals.chains.iter().zip(candidates).zip(fates).zip(bounds);
        chains
            .enumerate()
            .map(|(index, (((chain, candidate), fate), bound))| {
                // A goal that leaves no room beside what is not explained is kept by no bound.
                let (goal_limit_ns, extra_ns) = (self.goal_limit_ns(index), self.unexplained_ns(index));
                let beside_ns = extra_ns.saturating_add(self.network_ns(index));
                let refusal: Option<&Refusal> = fate.as_ref().and_then(|f| f.as_ref().err());
                let shown = bound.clone().or_else(|| refusal.and_then(|r| r.bound.clone()));
                let state = match (&candidate.refused, bound) {
                    (Some(refused), _) => refused.clone(),
                    (None, Some(bound)) if bound.ns <= goal_limit_ns => ChainState::Guaranteed,
                    // No excuse for what comes late: it was not given up for the sake of others.
                    _ if extra_ns > 0 => ChainState::NotAnalysable {
                        why: format!(
                            "latencies up to {} ms above its bound were measured that no execution time or arrival explains; including \
                             them, no bound meets its goal",
                            ms(extra_ns)
                        ),
                    },
                    _ => ChainState::Degraded {
                        why: refusal.map_or_else(
                            || {
                                "the present budgets do not meet its goal, and no other plan meets more goals"
                                    .to_owned()
                            },
                            |r| format!("{}{}", r.why, self.jitter_words(index)),
                        ),
                    },
                };
                let path = candidate.paths.get(shown.as_ref().map_or(0, |b| b.path));
                let path: Vec<CallbackId> = path.into_iter().flatten().map(|c| CallbackId(*c)).collect();
                ChainPlan {
                    name: chain.name.clone(),
                    goal_ns: chain.goal_ns,
                    path_names: path.iter().map(|c| model.callbacks[c.0].name.clone()).collect(),
                    path,
                    paths: candidate.paths.len(),
                    bound_ns: shown.as_ref().map(|b| b.ns.saturating_add(beside_ns)),
                    bound_by: shown.as_ref().map_or_else(String::new, |b| methods(&b.by)),
                    jitter: self.jitter_plan(index, shown.as_ref().map(|b| b.ns.saturating_add(beside_ns))),
                    measured_bound_ns: measured
                        .and_then(|measured| measured.get(index)?.as_ref())
                        .map(|bound| bound.ns.saturating_add(beside_ns)),
                    bound_parts: shown.map_or_else(Vec::new, |b| b.parts),
                    state,
                }
            })
            .collect()
    }
}

pub(super) fn not_found(error: &ChainError) -> ChainState {
    let near_misses = match error {
        ChainError::Unknown { near_misses, .. } => near_misses.clone(),
        _ => Vec::new(),
    };
    match error {
        ChainError::Many { .. } | ChainError::Python { .. } | ChainError::ThroughPython { .. } => {
            ChainState::NotAnalysable { why: error.to_string() }
        }
        _ => ChainState::NotFound { why: error.to_string(), near_misses },
    }
}

pub(super) fn not_analysable(model: &Model, workload: &Workload, paths: &[Vec<usize>]) -> Option<ChainState> {
    for (from, topic, reason) in &workload.broken {
        let passes = |pair: &[usize]| {
            pair[0] == *from
                && model.topics.get(*topic).is_some_and(|t| t.subscribers.iter().any(|s| s.0 == pair[1]))
        };
        if paths.iter().any(|path| path.windows(2).any(passes)) {
            let name = &workload.callbacks[*from].name;
            return Some(ChainState::NotAnalysable { why: format!("{name}: {reason}") });
        }
    }
    paths.iter().flatten().find_map(|number| {
        let callback = &workload.callbacks[*number];
        let why = match &callback.trouble {
            Some(trouble) => trouble.clone(),
            None if model.callbacks[*number].arrivals.seen == 0 => {
                "it has never been seen to run, so the chain has never completed".to_owned()
            }
            None => return None,
        };
        Some(ChainState::NotAnalysable { why: format!("{}: {why}", callback.name) })
    })
}

pub(super) fn reservations(
    model: &Model,
    workload: &Workload,
    budgets_ns: &[u64],
    cores: &[usize],
    period_ns: &dyn Fn(usize) -> u64,
) -> Vec<Reservation> {
    let mut list: Vec<Reservation> = Vec::new();
    let mut slot = 0;
    for (number, server) in workload.executors.iter().enumerate() {
        for (place, id) in server.threads.iter().enumerate() {
            let Some(thread) = model.threads.get(id.0).filter(|_| budgets_ns[number] > 0) else { continue };
            list.push(Reservation {
                thread: *id,
                pid: thread.pid,
                tid: thread.tid,
                name: thread.name.clone(),
                executor: ExecutorId(number),
                budget_ns: budgets_ns[number],
                period_ns: period_ns(number),
                core: cores.get(slot + place).copied().unwrap_or(0),
            });
        }
        slot += server.threads.len().max(1);
    }
    list.sort_by_key(|r| (r.pid, r.tid));
    list
}

pub(super) fn best_effort(
    model: &Model,
    workload: &Workload,
    candidates: &[Candidate],
    budgets_ns: &[u64],
) -> Vec<BestEffort> {
    let mut servers: Vec<usize> = candidates
        .iter()
        .flat_map(|c| c.paths.iter().flatten())
        .map(|c| workload.callbacks[*c].server)
        .filter(|s| budgets_ns[*s] == 0)
        .collect();
    servers.sort_unstable();
    servers.dedup();
    let mut list = Vec::new();
    for server in servers {
        for thread in model.executors[server].threads.iter().filter_map(|t| model.threads.get(t.0)) {
            if !thread.ended {
                list.push(BestEffort {
                    pid: thread.pid,
                    tid: thread.tid,
                    name: thread.name.clone(),
                    executor: ExecutorId(server),
                });
            }
        }
    }
    list.sort_by_key(|b| (b.pid, b.tid));
    list
}

pub(super) fn methods(by: &[Method]) -> String {
    by.iter().map(|m| m.name()).collect::<Vec<_>>().join("+")
}
