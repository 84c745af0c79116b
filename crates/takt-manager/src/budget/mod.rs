//! Budgets for one chain after the other: Algorithms 1 and 2 of *ROS-Llama*, section IV.C. Line
//! numbers are the paper's.

use std::cmp::Reverse;

use takt_model::{CallbackId, ExecutorId};

use crate::analysis::{Analysis, Method, Parts, Solution};
use crate::partition::Slots;
use crate::plan::{BoundPart, Decision, Step};
use crate::words::ms;

mod necessary;
mod words;

pub use words::percent;

/// Least budget as a share of the period: below, the switching costs more than the work.
const MIN_SHARE: u64 = 100;

/// Trials of less budget per search. Enough for some twenty executors; in bigger systems the rest
/// of the budgets stays as it is, so that a plan comes in time.
const MAX_TRIALS: usize = 200;

/// Limits of budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Of each core for reservations per period.
    pub capacities_ns: Vec<u64>,
    /// Step of Algorithm 2, nanoseconds per period.
    pub step_ns: u64,
    /// Interval of long-term demand.
    pub horizon_ns: u64,
    /// Reservations on one core at most.
    pub most_on_core: usize,
}

impl Limits {
    /// The most that one reservation gets, which is the paper's 100 %.
    #[must_use]
    pub fn most_ns(&self) -> u64 {
        self.capacities_ns.iter().copied().max().unwrap_or(0)
    }
}

/// A chain with everything that its bound depends on.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub name: &'a str,
    pub goal_ns: u64,
    /// Its ways, all of which must keep the goal.
    pub paths: &'a [Vec<usize>],
}

/// A chain's bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBound {
    /// The bound of the worst path.
    pub ns: u64,
    pub path: usize,
    /// Analyses that gave it.
    pub by: Vec<Method>,
    /// Parts of the bound.
    pub parts: Vec<BoundPart>,
}

/// Reason why a chain cannot be guaranteed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// The least bound that was seen; `None`: none at all.
    pub bound: Option<ChainBound>,
    /// The cores were too small, beside what others have already.
    pub crowded: bool,
}

/// The search for budgets; holds what the chains so far were given.
#[derive(Debug)]
pub struct Search<'a, 'w> {
    analysis: &'a mut Analysis<'w>,
    limits: Limits,
    slots: Slots,
    kept: Vec<Request<'a>>,
    /// Those that were not, which what others are given since may keep all the same.
    refused: Vec<Request<'a>>,
    trials: usize,
    /// Whether a chain's necessary budget is given at once.
    hasty: bool,
    /// Per executor, 0: none.
    pub budgets_ns: Vec<u64>,
    /// Decisions made.
    pub decisions: Vec<Decision>,
}

impl<'a, 'w> Search<'a, 'w> {
    /// Starts without any budget.
    #[must_use]
    pub fn new(analysis: &'a mut Analysis<'w>, limits: Limits) -> Self {
        let budgets_ns = vec![0; analysis.workload().executors.len()];
        let threads = analysis.workload().executors.iter().map(|executor| executor.threads.len());
        let slots = Slots::new(threads, limits.most_on_core);
        Self {
            analysis,
            limits,
            slots,
            kept: Vec::new(),
            refused: Vec::new(),
            trials: 0,
            hasty: false,
            budgets_ns,
            decisions: Vec::new(),
        }
    }

    /// Gives each executor at once what a chain needs of it whatever the others are given, from
    /// where the paper's algorithms go on. Not in the paper: its first budgets are those that
    /// barely suffice in the long run, under which busy windows are longest and take longest to be
    /// found, and it goes up from there step by step. Budgets come to nearly, not always to exactly
    /// the same.
    #[must_use]
    pub fn hastily(mut self, hasty: bool) -> Self {
        self.hasty = hasty;
        self
    }

    /// Gives budgets until the chain keeps its goal; otherwise leaves all as it was.
    ///
    /// # Errors
    ///
    /// It cannot be kept beside what was given before.
    pub fn guarantee(&mut self, chain: &Request<'a>) -> Result<ChainBound, Refusal> {
        let mut before = self.budgets_ns.clone();
        let mut decided = self.decisions.len();
        let mut result = self.try_guarantee(chain);
        if self.trials < MAX_TRIALS && matches!(&result, Err(refusal) if refusal.crowded) {
            self.budgets_ns.clone_from(&before);
            self.decisions.truncate(decided);
            if self.trim(chain) {
                before.clone_from(&self.budgets_ns);
                decided = self.decisions.len();
                result = self.try_guarantee(chain);
            }
        }
        match &result {
            Ok(bound) => {
                self.kept.push(chain.clone());
                self.join_raises(decided);
                self.decide(
                    chain,
                    Step::Kept { bound_ns: bound.ns },
                    format!(
                        "chain {} takes at most {} ms and meets its goal of {} ms",
                        chain.name,
                        ms(bound.ns),
                        ms(chain.goal_ns)
                    ),
                );
            }
            Err(refusal) => {
                self.budgets_ns = before;
                self.decisions.truncate(decided);
                let bound_ns = refusal.bound.as_ref().map(|b| b.ns);
                self.decide(
                    chain,
                    Step::Degraded { bound_ns },
                    format!("degraded chain {}: {}", chain.name, refusal.why),
                );
                self.refused.push(chain.clone());
            }
        }
        result
    }

    /// Whether no budgets keep the chain.
    pub fn is_hopeless(&mut self, chain: &Request<'_>) -> bool {
        let servers = self.servers(chain);
        self.best_case(chain, &servers).is_err()
    }

    fn try_guarantee(&mut self, chain: &Request<'_>) -> Result<ChainBound, Refusal> {
        let workload = self.analysis.workload();
        let servers = self.servers(chain);
        if let Some(lost) = servers.iter().find(|s| workload.executors[**s].threads.is_empty()) {
            return Err(Refusal {
                why: format!(
                    "{}, which influences it, has no living thread to give a budget to",
                    workload.executors[*lost].name
                ),
                bound: None,
                crowded: false,
            });
        }
        let best = self.best_case(chain, &servers)?;
        self.initial(chain, &servers, &best)?;
        if self.hasty {
            self.raise_to_least(chain);
        }
        let solution = self.stabilise(chain, &servers)?;
        self.refine(chain, &servers, solution)
    }

    fn servers(&self, chain: &Request<'_>) -> Vec<usize> {
        let workload = self.analysis.workload();
        workload.influencing(chain.paths.iter().flatten().map(|c| workload.callbacks[*c].server))
    }

    /// Takes back from every executor what the chains guaranteed so far do not need: Algorithm 2
    /// raises in whole steps and the one that is short most, and what it raised first is often more
    /// than needed in the end. Not in the paper; done only when a chain would be degraded
    /// otherwise. Returns whether anything was gained.
    fn trim(&mut self, chain: &Request<'_>) -> bool {
        self.keep_what_is_kept();
        let mut order: Vec<usize> = (0..self.budgets_ns.len()).filter(|s| self.budgets_ns[*s] > 0).collect();
        order.sort_by_key(|s| (Reverse(self.budgets_ns[*s]), *s));
        let before: u64 = self.budgets_ns.iter().sum();
        for &server in &order {
            if self.trials >= MAX_TRIALS {
                break;
            }
            let (mut least, mut enough) = (0, self.budgets_ns[server]);
            // A fifth of a step is as exact as it pays.
            while enough - least > (self.limits.step_ns / 5).max(1) {
                let half = least + (enough - least) / 2;
                self.budgets_ns[server] = half;
                self.trials += 1;
                if self.keep_goals(&order) {
                    enough = half;
                } else {
                    least = half;
                }
            }
            self.budgets_ns[server] = enough;
        }
        let saved = before - self.budgets_ns.iter().sum::<u64>();
        if saved > 0 {
            let words = format!(
                "reclaimed {} of a core, which the chains kept so far do not need, to make room for chain {}",
                percent(self.bandwidth(saved)),
                chain.name
            );
            self.decide(chain, Step::Trimmed { bandwidth: self.bandwidth(saved) }, words);
        }
        saved > 0
    }

    /// A chain that was refused, and that what others were given since keeps, is not given up for
    /// one that is less important than it.
    fn keep_what_is_kept(&mut self) {
        for refused in std::mem::take(&mut self.refused) {
            let servers = self.servers(&refused);
            let keeps = servers.iter().all(|server| self.budgets_ns[*server] > 0) && {
                let solution = self.analysis.solve(&self.budgets_ns, &servers);
                worst(self.analysis, refused.paths, &self.budgets_ns, &solution)
                    .is_some_and(|bound| bound.ns <= refused.goal_ns)
            };
            if keeps { self.kept.push(refused) } else { self.refused.push(refused) }
        }
    }

    /// Whether all guaranteed chains still keep their goals.
    fn keep_goals(&mut self, servers: &[usize]) -> bool {
        let solution = self.analysis.solve(&self.budgets_ns, servers);
        self.kept.iter().all(|kept| {
            worst(self.analysis, kept.paths, &self.budgets_ns, &solution)
                .is_some_and(|bound| bound.ns <= kept.goal_ns)
        })
    }

    /// All influencing executors with as much as there is: what no budget can beat. The paper's
    /// algorithms come to the same end for a hopeless chain, only later.
    fn best_case(&mut self, chain: &Request<'_>, servers: &[usize]) -> Result<Solution, Refusal> {
        let mut budgets = vec![0; self.budgets_ns.len()];
        for server in servers {
            budgets[*server] = self.limits.most_ns();
        }
        let best = self.analysis.solve(&budgets, servers);
        let bound = self.worst(chain, &budgets, &best);
        match bound {
            None => Err(Refusal { why: self.unbounded(servers, &best), bound: None, crowded: false }),
            Some(bound) if bound.ns > chain.goal_ns => Err(Refusal {
                why: format!(
                    "even with whole cores its bound is {} ms, above the goal of {} ms",
                    ms(bound.ns),
                    ms(chain.goal_ns)
                ),
                bound: Some(bound),
                crowded: false,
            }),
            Some(_) => Ok(best),
        }
    }

    /// Algorithm 1, lines 1 to 3. `best` is the solution with all others at full budget, from which
    /// demand is taken.
    fn initial(&mut self, chain: &Request<'_>, servers: &[usize], best: &Solution) -> Result<(), Refusal> {
        for &server in servers {
            // 1: for all influencing executors without a budget
            if self.budgets_ns[server] > 0 {
                continue;
            }
            // 2: needed <- sum of rbf(horizon)
            let Some(needed) = self.analysis.demand_ns(server, self.limits.horizon_ns, best) else {
                return Err(Refusal { why: self.unbounded(servers, best), bound: None, crowded: false });
            };
            // 3: bw <- needed / horizon
            let budget = self
                .share(needed, self.limits.horizon_ns)
                .clamp(self.analysis.period_ns() / MIN_SHARE, self.limits.most_ns());
            self.budgets_ns[server] = budget;
            let bandwidth = self.bandwidth(budget);
            let words = format!("gave {} {}: its long-term demand", self.name(server), percent(bandwidth));
            self.decide(chain, Step::InitialBudget { executor: ExecutorId(server), bandwidth }, words);
        }
        Ok(())
    }

    /// Algorithm 1, lines 4 to 11.
    fn stabilise(&mut self, chain: &Request<'_>, servers: &[usize]) -> Result<Solution, Refusal> {
        loop {
            // 11: if no partitioning is found then degrade. Budgets only grow, so there is no need
            // to wait for the end.
            if self.places().is_none() {
                return Err(Refusal {
                    why: format!(
                        "the budgets that long-term demand asks for do not fit on {} core{} next to the more important chains",
                        self.limits.capacities_ns.len(),
                        if self.limits.capacities_ns.len() == 1 { "" } else { "s" }
                    ),
                    bound: None,
                    crowded: true,
                });
            }
            let solution = self.analysis.solve(&self.budgets_ns, servers);
            // 4: for any callback with unbounded response time. Only the first in line: others have
            // no bound because of it.
            let Some(&server) = solution.diverged.first() else {
                if self.worst(chain, &self.budgets_ns.clone(), &solution).is_none() {
                    return Err(Refusal {
                        why: self.unbounded(servers, &solution),
                        bound: None,
                        crowded: false,
                    });
                }
                return Ok(solution);
            };
            let old = self.budgets_ns[server];
            // 7: if bw = 1 then degrade
            if old >= self.limits.most_ns() {
                return Err(Refusal {
                    why: format!(
                        "{} has no bounded response times even with {} of a core",
                        self.name(server),
                        percent(self.bandwidth(old))
                    ),
                    bound: None,
                    crowded: false,
                });
            }
            // 6: needed <- rbf(horizon) - sbf(horizon), with the sbf of the periodic resource. The
            // paper stops here when demand is met at the horizon; a response time beyond the
            // analysis' limit then still counts as unbounded, so a fifth of a step is the least
            // that is added.
            let period = self.analysis.period_ns();
            let supplied = supplied_ns(old, period, self.limits.horizon_ns);
            let needed = self
                .analysis
                .demand_ns(server, self.limits.horizon_ns, &solution)
                .unwrap_or(0)
                .saturating_sub(supplied);
            // 10: bw <- min(bw + needed / horizon, 1)
            let more = self.share(needed, self.limits.horizon_ns).max(self.limits.step_ns / 5).max(1);
            let new = old.saturating_add(more).min(self.limits.most_ns());
            self.budgets_ns[server] = new;
            let (from, to) = (self.bandwidth(old), self.bandwidth(new));
            let words = format!(
                "raised {} from {} to {}: it had no bounded response times",
                self.name(server),
                percent(from),
                percent(to)
            );
            self.decide(chain, Step::Stabilised { executor: ExecutorId(server), from, to }, words);
        }
    }

    /// Algorithm 2.
    fn refine(
        &mut self,
        chain: &Request<'_>,
        servers: &[usize],
        mut solution: Solution,
    ) -> Result<ChainBound, Refusal> {
        // 1: res <- upstream executors that affect response times
        let mut raisable = servers.to_vec();
        loop {
            let bound = self.worst(chain, &self.budgets_ns.clone(), &solution);
            // 2: while chain latency > goal
            if let Some(bound) = &bound
                && bound.ns <= chain.goal_ns
            {
                return Ok(bound.clone());
            }
            // 3, 4: d(e) <- sum of RT - RT at 100 %; without bound counts most.
            let mut shortage: Vec<(Reverse<u64>, usize)> = raisable
                .iter()
                .map(|s| (Reverse(self.analysis.shortage(*s, &solution).unwrap_or(u64::MAX)), *s))
                .collect();
            // 5: by decreasing d(e)
            shortage.sort_unstable();
            let mut raised = false;
            for (Reverse(delay), server) in shortage {
                let old = self.budgets_ns[server];
                // 6: if bw = 1 then remove. What has no shortage cannot help either.
                if old >= self.limits.most_ns() || delay == 0 {
                    raisable.retain(|s| *s != server);
                    continue;
                }
                // 7: bw <- min(bw + 5 %, 1)
                let new = old.saturating_add(self.limits.step_ns).min(self.limits.most_ns());
                self.budgets_ns[server] = new;
                // 8, 9: if a partitioning is found, go on with this candidate
                if self.places().is_some() {
                    self.describe_raised(chain, server, old, new, delay);
                    raised = true;
                    break;
                }
                // 10: remove and restore
                self.budgets_ns[server] = old;
                raisable.retain(|s| *s != server);
            }
            // 11: if no candidate found then degrade
            if !raised {
                let least =
                    bound.as_ref().map_or_else(|| "no bound".to_owned(), |b| format!("{} ms", ms(b.ns)));
                return Err(Refusal {
                    why: format!(
                        "with the capacity that the more important chains leave, its bound is {least}, above the goal of {} ms",
                        ms(chain.goal_ns)
                    ),
                    bound,
                    crowded: true,
                });
            }
            solution = self.analysis.solve(&self.budgets_ns, servers);
        }
    }

    /// The bound of the chain's worst path.
    fn worst(&mut self, chain: &Request<'_>, budgets_ns: &[u64], solution: &Solution) -> Option<ChainBound> {
        worst(self.analysis, chain.paths, budgets_ns, solution)
    }

    fn places(&self) -> Option<Vec<usize>> {
        self.slots.partition(&self.budgets_ns, &self.limits.capacities_ns)
    }

    /// Budget per period for so much per interval, rounded up.
    fn share(&self, needed_ns: u64, interval_ns: u64) -> u64 {
        let exact = u128::from(needed_ns) * u128::from(self.analysis.period_ns());
        u64::try_from(exact.div_ceil(u128::from(interval_ns.max(1)))).unwrap_or(u64::MAX)
    }

    #[allow(clippy::cast_precision_loss)]
    fn bandwidth(&self, budget_ns: u64) -> f64 {
        budget_ns as f64 / self.analysis.period_ns() as f64
    }

    fn name(&self, server: usize) -> String {
        self.analysis.workload().executors[server].name.clone()
    }
}

/// The bound of the worst of several paths; `None`: one has none.
#[must_use]
pub fn worst(
    analysis: &mut Analysis<'_>,
    paths: &[Vec<usize>],
    budgets_ns: &[u64],
    solution: &Solution,
) -> Option<ChainBound> {
    let mut worst: Option<ChainBound> = None;
    for (number, path) in paths.iter().enumerate() {
        let (ns, by) = analysis.latency(path, budgets_ns, solution)?;
        if worst.as_ref().is_none_or(|w| ns > w.ns) {
            worst = Some(ChainBound { ns, path: number, by, parts: Vec::new() });
        }
    }
    worst
}

/// The same, with what it consists of.
#[must_use]
pub fn explained(
    analysis: &mut Analysis<'_>,
    paths: &[Vec<usize>],
    budgets_ns: &[u64],
    solution: &Solution,
) -> Option<ChainBound> {
    let mut bound = worst(analysis, paths, budgets_ns, solution)?;
    let parts = analysis.parts(paths.get(bound.path)?, budgets_ns, solution)?;
    for part in parts {
        let sum =
            |of: fn(&Parts) -> u64| part.bounds.iter().map(|b| of(&b.parts)).fold(0, u64::saturating_add);
        bound.parts.push(BoundPart {
            callbacks: part.callbacks.iter().map(|c| CallbackId(*c)).collect(),
            transport_ns: part.way_ns,
            own_ns: sum(|p| p.own_ns),
            executor_ns: sum(|p| p.executor_ns),
            supply_ns: sum(|p| p.supply_ns),
            disturbance_ns: sum(|p| p.disturbed_ns),
            waits: part.bounds.len(),
        });
    }
    Some(bound)
}

/// Minimum supply of a periodic resource in an interval (Shin and Lee, RTSS 2003).
pub(crate) fn supplied_ns(budget_ns: u64, period_ns: u64, interval_ns: u64) -> u64 {
    if budget_ns == 0 || budget_ns > period_ns {
        return 0;
    }
    let slack = period_ns - budget_ns;
    let Some(rest) = interval_ns.checked_sub(slack) else { return 0 };
    let whole = rest / period_ns;
    let more = interval_ns.saturating_sub(2 * slack + period_ns.saturating_mul(whole)).min(budget_ns);
    budget_ns.saturating_mul(whole).saturating_add(more)
}
