//! Plans for cores that are shared by known demands ([`crate::analysis`], `shared`): budgets that
//! never run out instead of periods that are short.

use takt_model::ExecutorId;

use super::present::Held;
use super::ranked;
use super::{Attempt, Manager, bounds_of};
use crate::analysis::{Analysis, Disturbance, Solution};
use crate::budget::{self, Refusal, Request};
use crate::degrade::{self, Fate};
use crate::partition::{Slots, keeps};
use crate::plan::{Decision, Step};
use crate::words::ms;
use crate::workload::{Order, Workload};

/// Interval over which demands are compared to spread executors over cores: about that of an
/// ordinary goal.
const SPREAD_NS: u64 = 100_000_000;
/// Budgets are so many percent above what was seen, where there is room, so that one that grows a
/// little changes no plan.
const BUDGET_PERCENT: u64 = 125;
/// Longest period: two full budgets can adjoin, and within a second they must leave the kernel's
/// server for SCHED_OTHER its 50 ms, or it runs before reservations. With budgets of nine tenths of
/// a core these are 576 ms.
pub(super) const LONGEST_PERIOD_NS: u64 = 320_000_000;
/// Besides, all work of a core within a second is at most this.
const MAX_OF_SECOND_NS: u64 = 900_000_000;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Inputs of a plan for shared cores.
#[derive(Debug, Default)]
pub(super) struct Given<'p> {
    /// The cores of executors, where that is decided already.
    pub places: Option<&'p [Option<usize>]>,
    /// Periods by which they are ordered there, to be tried first.
    pub periods_ns: Option<&'p [u64]>,
    /// Allowance for callbacks beyond their curves.
    pub disturbance: Disturbance,
}

/// Executors on shared cores, with bounds, and budgets for which there is room.
struct Placed {
    cores: Vec<Option<usize>>,
    solution: Solution,
    /// The longest.
    period_ns: u64,
    budgets_ns: Vec<u64>,
    /// They are ordered by these.
    periods_ns: Option<Vec<u64>>,
}

impl Manager {
    /// Budgets that never run out, for as many chains as that keeps. `held`: where they are now,
    /// which stays where it can. Nothing is looked for that is no better than keeping the chains of
    /// `than`.
    pub(super) fn shared_attempt(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        held: Option<&Held>,
        than: &[bool],
    ) -> Option<Attempt> {
        let order = &self.goals.degradation_order;
        let mut left: Vec<usize> =
            order.iter().copied().filter(|c| Self::may_share(workload, requests, *c)).collect();
        let mut best: Option<Attempt> = None;
        let mut tried: Vec<usize> = Vec::new();
        // The least important is left out first: what remains shares its cores with less.
        while !left.is_empty() {
            // With fewer chains left there is less to be kept.
            let most: Vec<bool> = (0..requests.len()).map(|chain| left.contains(&chain)).collect();
            let is_better = |than: &[bool]| degrade::better(&most, than, order).is_gt();
            if !is_better(than) || best.as_ref().is_some_and(|best| !is_better(&best.kept())) {
                break;
            }
            let servers = Self::needed(workload, requests, &left);
            // The same executors are placed in the same ways, the best of which was taken for more
            // chains. Their order follows the chains.
            if (servers != tried || self.goals.options.order_executors)
                && let Some(attempt) =
                    self.share_among(workload, requests, &left, &servers, held, &Given::default())
            {
                let missed = left.iter().any(|c| !attempt.kept()[*c]);
                if best.as_ref().is_none_or(|b| degrade::better(&attempt.kept(), &b.kept(), order).is_gt()) {
                    best = Some(attempt);
                }
                if !missed {
                    break;
                }
            }
            tried = servers;
            left.remove(0);
        }
        best.filter(|attempt| attempt.kept().iter().any(|kept| *kept))
    }

    /// Threads of multi-threaded executors look for work without end while a group is busy, and who
    /// yields loses its budget.
    fn may_share(workload: &Workload, requests: &[Option<Request<'_>>], chain: usize) -> bool {
        let Some(Some(_)) = requests.get(chain) else { return false };
        Self::needed(workload, requests, &[chain]).iter().all(|server| {
            let server = &workload.executors[*server];
            let yields = |callback: &usize| workload.callbacks[*callback].load(1).yields > 0;
            server.threads.len() == 1
                && !matches!(server.order, Order::Threads { .. })
                && !server.callbacks.iter().any(yields)
        })
    }

    fn needed(workload: &Workload, requests: &[Option<Request<'_>>], chains: &[usize]) -> Vec<usize> {
        let requests = chains.iter().filter_map(|chain| requests.get(*chain)?.as_ref());
        let callbacks = requests.flat_map(|request| request.paths.iter().flatten());
        workload.influencing(callbacks.map(|c| workload.callbacks[*c].server))
    }

    pub(super) fn share_among(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        chains: &[usize],
        servers: &[usize],
        held: Option<&Held>,
        given: &Given<'_>,
    ) -> Option<Attempt> {
        let &Given { places, periods_ns, disturbance } = given;
        let declared = self.goals.options.period_ns();
        let slots = Slots::new(workload.executors.iter().map(|e| e.threads.len()), usize::MAX);
        let mut analysis = self.analysis(workload, declared).disturbed(disturbance);
        let spread = Self::spread(workload, servers, self.platform.cores.len());
        let stays = held.and_then(|held| Some((held, self.held_places(&slots, servers, held)?)));
        let trials = match (places, stays) {
            (Some(places), _) => vec![(places.to_vec(), periods_ns)],
            // First as it is, since moving a thread costs its caches; then in another order, and
            // then spread by demand.
            (None, Some((held, stays))) => {
                let ordered = !held.is_uniform();
                let again = [(stays.clone(), Some(&held.periods_ns[..])), (stays, None)];
                again.into_iter().skip(usize::from(!ordered)).chain([(spread, None)]).collect()
            }
            (None, None) => {
                let solution = analysis.share(&spread);
                if !solution.diverged.is_empty() {
                    return None;
                }
                // Budgets are what cores have room for: spread by these, now that they are known.
                let needs = |server: usize| analysis.ample_budget_ns(server, LONGEST_PERIOD_NS, &solution);
                let needs: Option<Vec<(usize, u64)>> =
                    servers.iter().map(|server| Some((*server, needs(*server)?))).collect();
                let executors = workload.executors.len();
                let others = needs.map(|n| Self::spread_by(n, executors, self.platform.cores.len()));
                let others = others.filter(|others| *others != spread);
                others.into_iter().chain([spread]).map(|cores| (cores, None)).collect()
            }
        };
        let mut best: Option<(Placed, Vec<bool>)> = None;
        let mut last_is_best = false;
        for (cores, periods_ns) in trials {
            last_is_best = false;
            let asked = (requests, chains, servers);
            let Some(placed) = self.settle(&mut analysis, asked, &slots, cores, periods_ns, held) else {
                continue;
            };
            let kept = self.keeps_which(&mut analysis, requests, chains, &placed.solution);
            let all = chains.iter().all(|chain| kept[*chain]);
            let order = &self.goals.degradation_order;
            last_is_best =
                best.as_ref().is_none_or(|(_, before)| degrade::better(&kept, before, order).is_gt());
            if last_is_best {
                best = Some((placed, kept));
            }
            if all {
                break;
            }
        }
        let (Placed { cores, mut solution, period_ns, budgets_ns, periods_ns }, _) = best?;
        if !last_is_best {
            // The analysis is about the last one.
            let ranks = periods_ns.as_ref().and_then(|periods_ns| ranked::ranks(&cores, periods_ns));
            solution = match ranks {
                Some(ranks) => analysis.share_ranked(&cores, &ranks),
                None => analysis.share(&cores),
            };
        }
        let period_of = |server: usize| periods_ns.as_ref().map_or(period_ns, |periods| periods[server]);
        let bounds: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(chain, request)| {
                chains.contains(&chain).then_some(())?;
                bounds_of(&mut analysis, request.as_ref()?, &budgets_ns, &solution)
            })
            .collect();
        let fates = self.fates(requests, &bounds);
        let mut decisions = Vec::new();
        for &server in servers {
            let bandwidth = budgets_ns[server] as f64 / period_of(server) as f64;
            let words = format!(
                "gave {} {} with a period of {} ms: more than it ever needs, so it never waits for its budget{}",
                workload.executors[server].name,
                budget::percent(bandwidth),
                ms(period_of(server)),
                if periods_ns.is_some() { ", and it runs before executors with longer periods" } else { "" }
            );
            decisions.push(Decision {
                chain: None,
                step: Step::InitialBudget { executor: ExecutorId(server), bandwidth },
                words,
            });
        }
        for (bound, chain) in bounds.iter().zip(&self.goals.chains) {
            let Some(bound) = bound.as_ref().filter(|b| b.ns <= chain.goal_ns) else { continue };
            let words = format!(
                "chain {} takes at most {} ms next to all other work on its cores, and meets its goal of {} ms",
                chain.name,
                ms(bound.ns),
                ms(chain.goal_ns)
            );
            let step = Step::Kept { bound_ns: bound.ns };
            decisions.push(Decision { chain: Some(chain.name.clone()), step, words });
        }
        let mut places = Vec::new();
        for server in slots.executors() {
            let place = cores[*server].and_then(|core| self.platform.cores.get(core)).copied();
            places.push(place.unwrap_or(0));
        }
        Some(Attempt {
            period_ns,
            budgets_ns,
            fates,
            bounds,
            decisions,
            held: false,
            complete: true,
            work: analysis.work,
            shared: Some(super::SharedCores {
                cores: places,
                servers: servers.to_vec(),
                places: cores,
                periods_ns,
            }),
        })
    }

    /// Bounds and budgets on these cores, with executors in an order where that is better and fits.
    /// `None`: there are none. Afterwards `analysis` is about these.
    fn settle(
        &self,
        analysis: &mut Analysis<'_>,
        (requests, chains, servers): (&[Option<Request<'_>>], &[usize], &[usize]),
        slots: &Slots,
        cores: Vec<Option<usize>>,
        periods_ns: Option<&[u64]>,
        held: Option<&Held>,
    ) -> Option<Placed> {
        let orders = self.goals.options.order_executors;
        let ordered = |analysis: &mut Analysis<'_>, periods_ns: &[u64]| {
            let known = |server: usize| cores[server].is_none() || periods_ns[server] > 0;
            let ranks = ranked::ranks(&cores, periods_ns).filter(|_| (0..cores.len()).all(known))?;
            let solution = analysis.share_ranked(&cores, &ranks);
            if !solution.diverged.is_empty() {
                return None;
            }
            let budgets_ns = self.ranked_budgets(analysis, slots, &cores, periods_ns, &solution, held)?;
            let period_ns = periods_ns.iter().copied().max()?;
            let periods_ns = Some(periods_ns.to_vec());
            Some(Placed { cores: cores.clone(), solution, period_ns, budgets_ns, periods_ns })
        };
        // As it is, which changes no reservation.
        if let Some(placed) = periods_ns.filter(|_| orders).and_then(|periods| ordered(analysis, periods)) {
            return Some(placed);
        }
        let mut solution = analysis.share(&cores);
        if !solution.diverged.is_empty() {
            return None;
        }
        let periods_ns = orders.then(|| self.rank(analysis, requests, chains, &cores, &solution)).flatten();
        if let Some(periods_ns) = periods_ns {
            if let Some(placed) = ordered(analysis, &periods_ns) {
                return Some(placed);
            }
            solution = analysis.share(&cores);
        }
        let (period_ns, budgets_ns) =
            self.ample_budgets(analysis, servers, &cores, slots, &solution, held)?;
        Some(Placed { cores, solution, period_ns, budgets_ns, periods_ns: None })
    }

    /// Those of these chains that the bounds keep.
    fn keeps_which(
        &self,
        analysis: &mut Analysis<'_>,
        requests: &[Option<Request<'_>>],
        chains: &[usize],
        solution: &Solution,
    ) -> Vec<bool> {
        let budgets_ns = vec![0; analysis.workload().executors.len()];
        let mut keeps = |chain: usize| {
            let request = requests[chain].as_ref().filter(|_| chains.contains(&chain))?;
            Some(bounds_of(analysis, request, &budgets_ns, solution)?.ns <= self.goal_limit_ns(chain))
        };
        (0..requests.len()).map(|chain| keeps(chain) == Some(true)).collect()
    }

    /// Places of these executors; `None`: one of them has no place yet.
    fn held_places(&self, slots: &Slots, servers: &[usize], held: &Held) -> Option<Vec<Option<usize>>> {
        let mut cores = vec![None; held.budgets_ns.len()];
        for (server, core) in slots.executors().iter().zip(&held.cores) {
            if servers.contains(server) {
                let has = held.budgets_ns.get(*server).is_some_and(|budget| *budget > 0);
                cores[*server] = Some(self.platform.cores.iter().position(|c| has && c == core)?);
            }
        }
        Some(cores)
    }

    /// The most demanding first, each where least is so far.
    fn spread(workload: &Workload, servers: &[usize], cores: usize) -> Vec<Option<usize>> {
        let demand = |server: usize| -> u64 {
            let of = |callback: &usize| {
                let activity = &workload.callbacks[*callback];
                let seen = activity.root.as_ref().map_or(1, |root| root.count(SPREAD_NS));
                activity.load(seen).work_ns
            };
            workload.executors[server].callbacks.iter().map(of).fold(0, u64::saturating_add)
        };
        let demands = servers.iter().map(|server| (*server, demand(*server))).collect();
        Self::spread_by(demands, workload.executors.len(), cores)
    }

    /// The greatest first, each where least is so far.
    fn spread_by(demands: Vec<(usize, u64)>, executors: usize, cores: usize) -> Vec<Option<usize>> {
        let mut falling: Vec<(std::cmp::Reverse<u64>, usize)> =
            demands.into_iter().map(|(server, demand)| (std::cmp::Reverse(demand), server)).collect();
        falling.sort_unstable();
        let mut used = vec![0_u64; cores.max(1)];
        let mut places = vec![None; executors];
        for (std::cmp::Reverse(demand), server) in falling {
            let core = (0..used.len()).min_by_key(|core| used[*core]).unwrap_or(0);
            used[core] = used[core].saturating_add(demand);
            places[server] = Some(core);
        }
        places
    }

    /// The shortest period at which budgets that never run out fit on their cores, and these.
    fn ample_budgets(
        &self,
        analysis: &Analysis<'_>,
        servers: &[usize],
        cores: &[Option<usize>],
        slots: &Slots,
        solution: &Solution,
        held: Option<&Held>,
    ) -> Option<(u64, Vec<u64>)> {
        let places: Vec<usize> = slots.executors().iter().map(|s| cores[*s].unwrap_or(0)).collect();
        let fits = |period_ns: u64, budgets_ns: &[u64]| {
            keeps(&slots.budgets(budgets_ns), &places, &self.limits(period_ns).capacities_ns)
        };
        if !self.leaves_time(analysis, cores, solution) {
            return None;
        }
        let of_all = |budget_ns: &dyn Fn(usize) -> Option<u64>| -> Option<Vec<u64>> {
            let mut budgets_ns = vec![0; cores.len()];
            for &server in servers {
                budgets_ns[server] = budget_ns(server)?;
            }
            Some(budgets_ns)
        };
        let needs = |period_ns: u64| of_all(&|server| analysis.ample_budget_ns(server, period_ns, solution));
        let roughly =
            |period_ns: u64| of_all(&|server| analysis.rough_budget_ns(server, period_ns, solution));
        if let Some(held) = held.filter(|held| held.is_uniform())
            && let Some(least) = needs(held.period_ns)
            && fits(held.period_ns, &held.budgets_ns)
            && least
                .iter()
                .zip(&held.budgets_ns)
                .all(|(least, has)| least <= has && (*least > 0 || *has == 0))
        {
            return Some((held.period_ns, held.budgets_ns.clone()));
        }
        let mut period_ns = self.goals.options.period_ns();
        while period_ns <= LONGEST_PERIOD_NS {
            // Most periods are too short for what they need at least.
            if roughly(period_ns).is_some_and(|rough| fits(period_ns, &rough))
                && let Some(least) = needs(period_ns)
                && fits(period_ns, &least)
            {
                let more: Vec<u64> =
                    least.iter().map(|ns| (ns * BUDGET_PERCENT / 100).min(period_ns)).collect();
                let budgets = if fits(period_ns, &more) { more } else { least };
                return Some((period_ns, budgets));
            }
            period_ns = period_ns.saturating_mul(2);
        }
        None
    }

    /// Whether the work of each core within a second leaves the rest of it to others.
    pub(super) fn leaves_time(
        &self,
        analysis: &Analysis<'_>,
        cores: &[Option<usize>],
        solution: &Solution,
    ) -> bool {
        (0..self.platform.cores.len().max(1)).all(|core| {
            let on_core = (0..cores.len()).filter(|server| cores[*server] == Some(core));
            let mut work_ns = on_core.map(|server| analysis.most_work_ns(server, SECOND_NS, solution));
            let sum = work_ns.try_fold(0_u64, |sum, ns| Some(sum.saturating_add(ns?)));
            sum.is_some_and(|sum| sum <= MAX_OF_SECOND_NS)
        })
    }

    fn fates(
        &self,
        requests: &[Option<Request<'_>>],
        bounds: &[Option<crate::budget::ChainBound>],
    ) -> Vec<Option<Fate>> {
        let chains = requests.iter().zip(bounds).enumerate();
        chains
            .map(|(index, (request, bound))| {
                let request = request.as_ref()?;
                Some(match bound {
                    Some(bound) if bound.ns <= self.goal_limit_ns(index) => Ok(bound.clone()),
                    Some(bound) => Err(Refusal {
                        why: format!(
                            "next to all other work on its cores, its bound is {} ms, above the goal of {} ms",
                            ms(bound.ns),
                            ms(request.goal_ns)
                        ),
                        bound: Some(bound.clone()),
                        crowded: false,
                    }),
                    None => Err(Refusal {
                        why: "it runs next to the more important chains, without a reservation".to_owned(),
                        bound: None,
                        crowded: false,
                    }),
                })
            })
            .collect()
    }
}
