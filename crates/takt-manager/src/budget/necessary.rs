//! Minimum needs of chains: decides without a search whether budgets can keep them all.
//!
//! Algorithm 2 raises one budget after the other until the cores are full, and most of what a plan
//! costs is spent on what is refused in the end. But bounds only grow where budgets shrink, and no
//! executor gets more than the others leave. So with all budgets at what they can be at most,
//! bounds and arrivals are no greater than those that any search comes to; and with these arrivals
//! an executor whose budget alone is less shows how little is too little for it. Its least budget
//! leaves less to all others, so that theirs are greater, and so on. If the least budgets of all do
//! not fit on the cores, none do.

use takt_model::ExecutorId;

use super::{Request, Search, percent, worst};
use crate::analysis::Solution;
use crate::plan::Step;

/// Number of times that the rest for the other executors is recomputed.
const ROUNDS: usize = 4;
/// Least budgets are found up to this part of what is not decided.
const EXACT: u64 = 16;

/// Chains whose goals must be kept, and what they depend on.
struct Required<'r, 'a> {
    chains: &'r [&'r Request<'a>],
    servers: Vec<usize>,
    /// Callbacks on their ways.
    on_path: Vec<bool>,
}

impl Search<'_, '_> {
    fn required<'r, 'a>(&self, chains: &'r [&'r Request<'a>]) -> Required<'r, 'a> {
        let mut on_path = vec![false; self.analysis.workload().callbacks.len()];
        chains.iter().flat_map(|chain| chain.paths).flatten().for_each(|callback| on_path[*callback] = true);
        let mut servers: Vec<usize> = chains.iter().flat_map(|chain| self.servers(chain)).collect();
        servers.sort_unstable();
        servers.dedup();
        Required { chains, servers, on_path }
    }

    fn threads(&self, server: usize) -> u64 {
        self.analysis.workload().executors[server].threads.len() as u64
    }

    /// Whether no budgets on these cores keep all of these chains, as far as that shows in what
    /// each executor needs by itself.
    pub fn cannot_keep(&mut self, chains: &[&Request<'_>]) -> bool {
        let required = self.required(chains);
        if required.servers.iter().any(|server| self.threads(*server) == 0) {
            return true;
        }
        let executors = self.budgets_ns.len();
        let (mut least_ns, mut most_ns) = (vec![0; executors], vec![0; executors]);
        required.servers.iter().for_each(|server| most_ns[*server] = self.limits.most_ns());
        let mut before_ns = None;
        for round in 0..ROUNDS {
            let solution = self.analysis.solve(&most_ns, &required.servers);
            if !self.keeps_each(&required, None, &most_ns, &solution) {
                return true;
            }
            for &server in &required.servers {
                least_ns[server] = match round {
                    0 => self.stable_ns(server, &solution),
                    _ => self.least_ns(&required, server, least_ns[server], &most_ns, &solution),
                };
            }
            let Some(spare_ns) = self.spare_ns(&least_ns) else { return true };
            if before_ns.replace(spare_ns).is_some_and(|before_ns| spare_ns > before_ns / 10 * 9) {
                return false;
            }
            most_ns = self.most_ns(&required, &least_ns, spare_ns);
        }
        false
    }

    /// Raises what each executor needs by itself for a chain, whatever the others are given in the
    /// end.
    pub(super) fn raise_to_least(&mut self, chain: &Request<'_>) {
        let chains = [chain];
        let required = self.required(&chains);
        let before_ns = self.budgets_ns.clone();
        let Some(spare_ns) = self.spare_ns(&before_ns) else { return };
        let most_ns = self.most_ns(&required, &before_ns, spare_ns);
        let solution = self.analysis.solve(&most_ns, &required.servers);
        if !self.keeps_each(&required, None, &most_ns, &solution) {
            return;
        }
        for &server in &required.servers {
            self.budgets_ns[server] =
                self.least_ns(&required, server, before_ns[server], &most_ns, &solution);
        }
        if self.places().is_none() {
            self.budgets_ns = before_ns;
            return;
        }
        for &server in &required.servers {
            let (from, to) = (self.bandwidth(before_ns[server]), self.bandwidth(self.budgets_ns[server]));
            if from < to {
                let name = &self.analysis.workload().executors[server].name;
                let (was, is) = (percent(from), percent(to));
                let words = format!(
                    "raised {name} from {was} to {is}: it needs at least this, whatever budgets the others have"
                );
                self.decide(chain, Step::Stabilised { executor: ExecutorId(server), from, to }, words);
            }
        }
    }

    /// Time that these budgets leave on all cores; `None`: they do not fit.
    fn spare_ns(&self, budgets_ns: &[u64]) -> Option<u64> {
        let all_ns = self.limits.capacities_ns.iter().copied().fold(0, u64::saturating_add);
        let each = budgets_ns.iter().enumerate();
        let sum_ns = each.map(|(server, budget_ns)| budget_ns.saturating_mul(self.threads(server)));
        all_ns.checked_sub(sum_ns.fold(0, u64::saturating_add))
    }

    /// Largest possible budget of each executor next to the minimum of the others.
    fn most_ns(&self, required: &Required<'_, '_>, least_ns: &[u64], spare_ns: u64) -> Vec<u64> {
        let mut most_ns = vec![0; least_ns.len()];
        for &server in &required.servers {
            let left_ns = least_ns[server].saturating_add(spare_ns / self.threads(server).max(1));
            most_ns[server] = left_ns.min(self.limits.most_ns());
        }
        most_ns
    }

    /// With less an executor's busy window does not end within the limit. If it ended after `t`,
    /// what arrives within the horizon `h` would be done within `h + t`, since it is no more than
    /// arrives within `t` in as many turns as that takes.
    fn stable_ns(&self, server: usize, solution: &Solution) -> u64 {
        let horizon_ns = self.limits.horizon_ns;
        let needed_ns = self.analysis.demand_ns(server, horizon_ns, solution).unwrap_or(0);
        let within_ns = horizon_ns.saturating_add(self.analysis.limit_ns());
        let least =
            u128::from(needed_ns) * u128::from(self.analysis.period_ns()) / u128::from(within_ns.max(1));
        u64::try_from(least).unwrap_or(u64::MAX)
    }

    /// A budget of this executor that is no greater than any that keeps the chains while the others
    /// have as much as they can.
    fn least_ns(
        &mut self,
        required: &Required<'_, '_>,
        server: usize,
        known_ns: u64,
        most_ns: &[u64],
        solution: &Solution,
    ) -> u64 {
        let (mut budgets_ns, mut solution) = (most_ns.to_vec(), solution.clone());
        let mut keeps = |search: &mut Self, budget_ns: u64| {
            budgets_ns[server] = budget_ns;
            search.analysis.respond(&required.on_path, server, budget_ns, &mut solution).is_some()
                && search.keeps_each(required, Some(server), &budgets_ns, &solution)
        };
        let (mut short_ns, mut enough_ns) = (known_ns, most_ns[server]);
        let exact_ns = enough_ns.saturating_sub(short_ns) / EXACT;
        while enough_ns.saturating_sub(short_ns) > exact_ns.max(1) {
            let half_ns = short_ns + (enough_ns - short_ns) / 2;
            if keeps(self, half_ns) { enough_ns = half_ns } else { short_ns = half_ns }
        }
        short_ns
    }

    /// Whether all of the chains keep their goals, or those that an executor is on the way of.
    fn keeps_each(
        &mut self,
        required: &Required<'_, '_>,
        by: Option<usize>,
        budgets_ns: &[u64],
        solution: &Solution,
    ) -> bool {
        let callbacks = &self.analysis.workload().callbacks;
        let concerns = |chain: &&&Request<'_>| {
            let mut servers = chain.paths.iter().flatten().map(|callback| callbacks[*callback].server);
            by.is_none_or(|by| servers.any(|server| server == by))
        };
        required.chains.iter().filter(concerns).all(|chain| {
            worst(self.analysis, chain.paths, budgets_ns, solution)
                .is_some_and(|bound| bound.ns <= chain.goal_ns)
        })
    }
}
