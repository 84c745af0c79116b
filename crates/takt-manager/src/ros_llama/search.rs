//! Algorithms 1 and 2 of *ROS-Llama* (section IV.C), line by line. Line numbers are the paper's.

use std::cmp::Reverse;

use takt_model::ExecutorId;

use super::reading::covers;
use crate::analysis::{Analysis, Solution};
use crate::budget::{ChainBound, Limits, Refusal, Request, percent, supplied_ns, worst};
use crate::degrade::Fate;
use crate::partition::Slots;
use crate::plan::{Decision, Step};
use crate::words::ms;

/// Less than this is no reservation: the kernel refuses it.
const MIN_BUDGET_NS: u64 = takt_host::reserve::MIN_BUDGET_NS;

/// The search for budgets, chain by chain; holds what the chains so far were given.
#[derive(Debug)]
pub struct Search<'a, 'w> {
    analysis: &'a mut Analysis<'w>,
    limits: Limits,
    slots: Slots,
    /// Per executor, 0: none. `bw(e)` of the paper is this over the period.
    pub budgets_ns: Vec<u64>,
    /// Decisions made.
    pub decisions: Vec<Decision>,
}

impl<'a, 'w> Search<'a, 'w> {
    /// Starts without any budget. The analysis must be that of the paper
    /// ([`Analysis::as_published`]).
    #[must_use]
    pub fn new(analysis: &'a mut Analysis<'w>, limits: Limits) -> Self {
        let executors = &analysis.workload().executors;
        let slots = Slots::new(executors.iter().map(|executor| executor.threads.len()), usize::MAX);
        let budgets_ns = vec![0; executors.len()];
        Self { analysis, limits, slots, budgets_ns, decisions: Vec::new() }
    }

    /// Provisions a chain; where that is not possible it is degraded, and all is as it was before.
    pub fn provision(&mut self, chain: &Request<'_>) -> Fate {
        let (budgets_ns, decided) = (self.budgets_ns.clone(), self.decisions.len());
        let fate = self.try_to_provision(chain);
        let (step, words) = match &fate {
            Ok(bound) => {
                let (bound_ns, goal) = (bound.ns, ms(chain.goal_ns));
                let words = format!(
                    "chain {} takes at most {} ms and meets its goal of {goal} ms",
                    chain.name,
                    ms(bound_ns)
                );
                (Step::Kept { bound_ns }, words)
            }
            Err(refusal) => {
                // "ROS-Llama never partially provisions a chain" (IV.B).
                self.budgets_ns = budgets_ns;
                self.decisions.truncate(decided);
                let bound_ns = refusal.bound.as_ref().map(|bound| bound.ns);
                (Step::Degraded { bound_ns }, format!("degraded chain {}: {}", chain.name, refusal.why))
            }
        };
        self.decide(chain, step, words);
        fate
    }

    fn try_to_provision(&mut self, chain: &Request<'_>) -> Fate {
        let influencing = self.influencing(chain)?;
        // All influencing executors at 100 %: line 2 of Algorithm 1 and line 4 of Algorithm 2.
        let mut whole_ns = vec![0; self.budgets_ns.len()];
        influencing.iter().for_each(|e| whole_ns[*e] = self.analysis.period_ns());
        let whole = self.analysis.solve(&whole_ns, &influencing);
        self.estimate(chain, &influencing, &whole)?;
        let solution = self.bound_response_times(chain, &influencing, &whole)?;
        // Algorithm 1, 11: if no partitioning for budget found then degrade chain
        if !self.can_be_partitioned() {
            let cores = self.limits.capacities_ns.len();
            return Err(refusal(format!(
                "no core has enough left for the long-term demand of its executors (cores for reservations: {cores})"
            )));
        }
        self.improve(chain, &influencing, &whole, solution)
    }

    /// Executors that serve the chain and all upstream of them.
    fn influencing(&self, chain: &Request<'_>) -> Result<Vec<usize>, Refusal> {
        let workload = self.analysis.workload();
        let callbacks = chain.paths.iter().flatten();
        let influencing = workload.influencing(callbacks.map(|c| workload.callbacks[*c].server));
        for server in influencing.iter().map(|e| &workload.executors[*e]) {
            if server.threads.is_empty() {
                return Err(refusal(format!("{}, which influences it, has no living thread", server.name)));
            }
            if !covers(&server.order) {
                return Err(refusal(format!(
                    "{}, which influences it, is not rclcpp's default executor, the only one that the analysis covers",
                    server.name
                )));
            }
        }
        Ok(influencing)
    }

    /// Algorithm 1, lines 1 to 3.
    fn estimate(
        &mut self,
        chain: &Request<'_>,
        influencing: &[usize],
        whole: &Solution,
    ) -> Result<(), Refusal> {
        for &e in influencing {
            // 1: for all influencing executors e without a budget
            if self.budgets_ns[e] > 0 {
                continue;
            }
            // 2: needed <- sum of rbf_c(horizon), c served by e
            let Some(needed_ns) = self.analysis.demand_ns(e, self.limits.horizon_ns, whole) else {
                return Err(refusal(self.without_bound(influencing, whole)));
            };
            // 3: bw(e) <- needed / horizon. More than 100 % is degraded by line 7.
            let budget_ns = self.share_ns(needed_ns).clamp(MIN_BUDGET_NS, self.analysis.period_ns());
            self.budgets_ns[e] = budget_ns;
            let bandwidth = self.bandwidth(budget_ns);
            let words = format!("gave {} {}: its long-term demand", self.name(e), percent(bandwidth));
            self.decide(chain, Step::InitialBudget { executor: ExecutorId(e), bandwidth }, words);
        }
        Ok(())
    }

    /// Algorithm 1, lines 4 to 10.
    fn bound_response_times(
        &mut self,
        chain: &Request<'_>,
        influencing: &[usize],
        whole: &Solution,
    ) -> Result<Solution, Refusal> {
        let before_ns = self.budgets_ns.clone();
        let solution = loop {
            let solution = self.analysis.solve(&self.budgets_ns, influencing);
            let mut increased = false;
            // 4: for any callback c with unbounded response times
            // 5: e <- executor serving c
            for &e in &solution.diverged {
                // 6: needed <- rbf(horizon) - sbf_e(horizon)
                let (budget_ns, period_ns) = (self.budgets_ns[e], self.analysis.period_ns());
                let supplied_ns = supplied_ns(budget_ns, period_ns, self.limits.horizon_ns);
                let demand_ns = self.analysis.demand_or_ns(e, self.limits.horizon_ns, &solution, whole);
                let needed_ns = demand_ns.unwrap_or(u64::MAX).saturating_sub(supplied_ns);
                // 7, 8: if bw(e) = 1 then degrade chain
                if budget_ns >= period_ns {
                    return Err(refusal(format!(
                        "{} has no bounded response times even with a whole core",
                        self.name(e)
                    )));
                }
                // "until the longterm demand at the horizon is met" (IV.C.a)
                if needed_ns == 0 {
                    continue;
                }
                // 9, 10: bw(e) <- min(bw(e) + needed / horizon, 1)
                let more_ns = self.share_ns(needed_ns);
                self.budgets_ns[e] = budget_ns.saturating_add(more_ns).min(period_ns);
                increased = true;
                break;
            }
            if !increased {
                break solution;
            }
        };
        if solution.diverged.is_empty() && self.worst(chain, &solution).is_none() {
            return Err(refusal(self.without_bound(influencing, &solution)));
        }
        let raised: Vec<usize> =
            influencing.iter().copied().filter(|e| self.budgets_ns[*e] > before_ns[*e]).collect();
        for e in raised {
            let (from, to) = (self.bandwidth(before_ns[e]), self.bandwidth(self.budgets_ns[e]));
            let words = format!(
                "raised {} from {} to {}: it had no bounded response times",
                self.name(e),
                percent(from),
                percent(to)
            );
            self.decide(chain, Step::Stabilised { executor: ExecutorId(e), from, to }, words);
        }
        Ok(solution)
    }

    /// Algorithm 2.
    fn improve(
        &mut self,
        chain: &Request<'_>,
        influencing: &[usize],
        whole: &Solution,
        mut solution: Solution,
    ) -> Fate {
        let before_ns = self.budgets_ns.clone();
        // The budget-shortage delay of each executor when it was raised first.
        let mut held_back_ns: Vec<(usize, u64)> = Vec::new();
        // 1: res <- set of "upstream" executors that affect response times
        let mut res = influencing.to_vec();
        loop {
            // 2: while chain latency > goal
            let bound = self.worst(chain, &solution);
            if let Some(bound) = bound.as_ref().filter(|bound| bound.ns <= chain.goal_ns) {
                self.describe_increases(chain, &before_ns, &held_back_ns);
                return Ok(bound.clone());
            }
            // 3, 4: for e in res do d(e) <- sum of RT(c) - RT^100%(c), c served by e
            let mut by_delay: Vec<(Reverse<u64>, usize)> =
                res.iter().map(|e| (Reverse(self.shortage_ns(*e, &solution, whole)), *e)).collect();
            // 5: for e in res by decreasing d(e)
            by_delay.sort_unstable();
            let mut candidate = None;
            for (Reverse(delay_ns), e) in by_delay {
                let (old_ns, whole_ns) = (self.budgets_ns[e], self.analysis.period_ns());
                // 6: if bw(e) = 1 then remove e from res and continue
                if old_ns >= whole_ns {
                    res.retain(|other| *other != e);
                    continue;
                }
                // 7: bw(e) <- min(bw(e) + 5 %, 1)
                self.budgets_ns[e] = old_ns.saturating_add(self.limits.step_ns).min(whole_ns);
                // 8, 9: if partitioning for budget found then candidate found, break
                if self.can_be_partitioned() {
                    candidate = Some((e, delay_ns));
                    break;
                }
                // 10: remove e from res and restore old value of bw(e)
                res.retain(|other| *other != e);
                self.budgets_ns[e] = old_ns;
            }
            // 11: if no candidate found then degrade chain
            let Some((e, delay_ns)) = candidate else {
                let least =
                    bound.as_ref().map_or("no bound".to_owned(), |bound| format!("{} ms", ms(bound.ns)));
                let why = format!(
                    "with the capacity that the more important chains leave, its bound is {least}, above the goal of {} ms",
                    ms(chain.goal_ns)
                );
                return Err(Refusal { bound, ..refusal(why) });
            };
            if !held_back_ns.iter().any(|(known, _)| *known == e) {
                held_back_ns.push((e, delay_ns));
            }
            solution = self.analysis.solve(&self.budgets_ns, influencing);
        }
    }

    /// The budget-shortage delay `d(e)` (IV.C.b). Without a bound it counts most.
    fn shortage_ns(&self, e: usize, solution: &Solution, whole: &Solution) -> u64 {
        let mut sum_ns: u64 = 0;
        for callback in &self.analysis.workload().executors[e].callbacks {
            let (Some(now), Some(least)) = (solution.responses[*callback], whole.responses[*callback]) else {
                return u64::MAX;
            };
            sum_ns = sum_ns.saturating_add(now.ns.saturating_sub(least.ns));
        }
        sum_ns
    }

    /// One decision for each executor that Algorithm 2 has raised, however many steps that took.
    fn describe_increases(&mut self, chain: &Request<'_>, before_ns: &[u64], held_back_ns: &[(usize, u64)]) {
        for &(e, delay_ns) in held_back_ns {
            let (from, to) = (self.bandwidth(before_ns[e]), self.bandwidth(self.budgets_ns[e]));
            let shortage_ns = (delay_ns < u64::MAX).then_some(delay_ns);
            let delay = shortage_ns.map_or("without a bound".to_owned(), |ns| format!("{} ms", ms(ns)));
            let words = format!(
                "raised {} from {} to {}: its budget-shortage delay was {delay}",
                self.name(e),
                percent(from),
                percent(to)
            );
            self.decide(chain, Step::Raised { executor: ExecutorId(e), from, to, shortage_ns }, words);
        }
    }

    fn without_bound(&self, influencing: &[usize], solution: &Solution) -> String {
        let workload = self.analysis.workload();
        if let Some(e) = solution.diverged.first() {
            return format!("{} has more work than a core can do", workload.executors[*e].name);
        }
        let callbacks = influencing.iter().flat_map(|e| &workload.executors[*e].callbacks);
        let mut troubled = callbacks.filter_map(|c| {
            let callback = &workload.callbacks[*c];
            Some((&callback.name, callback.trouble.as_ref()?))
        });
        match troubled.next() {
            Some((name, trouble)) => format!("{name} influences it but cannot be analysed: {trouble}"),
            None => "response times along it have no bound".to_owned(),
        }
    }

    fn worst(&mut self, chain: &Request<'_>, solution: &Solution) -> Option<ChainBound> {
        worst(self.analysis, chain.paths, &self.budgets_ns, solution)
    }

    fn can_be_partitioned(&self) -> bool {
        self.slots.partition(&self.budgets_ns, &self.limits.capacities_ns).is_some()
    }

    /// `needed / horizon` as a budget per period, rounded up.
    fn share_ns(&self, needed_ns: u64) -> u64 {
        let exact = u128::from(needed_ns) * u128::from(self.analysis.period_ns());
        u64::try_from(exact.div_ceil(u128::from(self.limits.horizon_ns.max(1)))).unwrap_or(u64::MAX)
    }

    fn bandwidth(&self, budget_ns: u64) -> f64 {
        budget_ns as f64 / self.analysis.period_ns() as f64
    }

    fn name(&self, e: usize) -> String {
        self.analysis.workload().executors[e].name.clone()
    }

    fn decide(&mut self, chain: &Request<'_>, step: Step, words: String) {
        self.decisions.push(Decision { chain: Some(chain.name.to_owned()), step, words });
    }
}

fn refusal(why: String) -> Refusal {
    Refusal { why, bound: None, crowded: false }
}
