//! Jitter goals: a chain's latencies are to be no further apart than so much.
//!
//! They are kept through the latency: between the best case and best case plus jitter goal lies the
//! room of the bound. So budgets and periods of reservations are chosen for it as for a latency
//! goal, and the chain is degraded in the same order where they cannot be.

use takt_model::Model;

use super::{Candidate, Manager, REPEATS};
use crate::analysis::best_case;
use crate::plan::JitterPlan;
use crate::words::ms;

impl Manager {
    /// Best cases of all chains with a jitter goal.
    pub(super) fn look_at_best(&mut self, model: &Model, candidates: &[Candidate]) {
        let best = |(index, candidate): (usize, &Candidate)| self.best_of(model, index, &candidate.paths);
        self.best_ns = candidates.iter().enumerate().map(best).collect();
    }

    /// The best case of the quickest path of a chain, shortened as costs are lengthened; `None`: it
    /// has no jitter goal.
    pub(super) fn best_of(&self, model: &Model, index: usize, paths: &[Vec<usize>]) -> Option<u64> {
        self.goals.chains.get(index)?.jitter_ns?;
        let shortest = paths.iter().map(|path| best_case(model, path)).min().unwrap_or(0);
        let kept = 1.0 - (self.goals.options.cost_margin_percent / 100.0).clamp(0.0, 1.0);
        let seen_ns = self.shortest_ns.get(index).copied().flatten().unwrap_or(u64::MAX);
        Some(((shortest as f64 * kept) as u64).min(seen_ns))
    }

    /// A latency as short as this was measured, and the plan's best case was longer.
    pub(crate) fn shortest_seen(&mut self, chain: usize, latency_ns: u64) {
        if let Some(known) = self.shortest_ns.get_mut(chain) {
            *known = Some(known.map_or(latency_ns, |ns| ns.min(latency_ns)));
            if let Some(present) = &mut self.present {
                present.repeats = REPEATS;
            }
        }
    }

    /// Whether all best cases of the present plan are still no longer than what was seen.
    pub(super) fn best_holds(&self, model: &Model, paths: &[Vec<Vec<usize>>]) -> bool {
        paths.iter().zip(&self.best_ns).enumerate().all(|(index, (paths, planned_ns))| {
            planned_ns.is_none_or(|ns| ns <= self.best_of(model, index, paths).unwrap_or(0))
        })
    }

    /// Bounds up to here keep the jitter goal; `None`: there is none.
    pub(super) fn jitter_limit_ns(&self, chain: usize) -> Option<u64> {
        let jitter_ns = self.goals.chains.get(chain)?.jitter_ns?;
        Some(self.best_ns.get(chain).copied().flatten().unwrap_or(0).saturating_add(jitter_ns))
    }

    /// The plan's statement about a chain's jitter.
    pub(super) fn jitter_plan(&self, chain: usize, bound_ns: Option<u64>) -> Option<JitterPlan> {
        let goal_ns = self.goals.chains.get(chain)?.jitter_ns?;
        let best_ns = self.best_ns.get(chain).copied().flatten().unwrap_or(0);
        Some(JitterPlan { goal_ns, best_ns, bound_ns: bound_ns.map(|ns| ns.saturating_sub(best_ns)) })
    }

    /// Reason why a latency below the goal is not enough, if the jitter goal requires a shorter
    /// one.
    pub(super) fn jitter_words(&self, chain: usize) -> String {
        let goal = self.goals.chains.get(chain);
        let (Some(goal), Some(goal_limit_ns)) = (goal, self.jitter_limit_ns(chain)) else {
            return String::new();
        };
        if goal_limit_ns >= goal.goal_ns {
            return String::new();
        }
        let jitter_ns = goal.jitter_ns.unwrap_or(0);
        format!(
            " (required by its jitter goal of {} ms: its best case is {} ms, its latency goal {} ms)",
            ms(jitter_ns),
            ms(goal_limit_ns.saturating_sub(jitter_ns)),
            ms(goal.goal_ns)
        )
    }
}
