//! The manager: goals and a platform in, a plan for every snapshot out.
//!
//! It does no harm: a plan is given up only for one that keeps more. And it earns its keep: while what runs stays within what was planned for,
//! the plan is repeated without analysis.

use std::collections::HashMap;
use std::sync::Arc;

use takt_model::{CallbackId, ExecutorId, Model};
use takt_rt::clock::thread_cpu_ns;

use crate::analysis::{Analysis, Method, Work};
use crate::budget::{self, ChainBound, Limits, Refusal, Request, Search};
use crate::chains::{self, ChainError};
use crate::curves::Cost;
use crate::degrade;
use crate::goals::Goals;
use crate::partition::{keeps, partition};
use crate::plan::{BestEffort, ChainPlan, ChainState, Decision, Plan, Platform, Reservation, Step};
use crate::words::ms;
use crate::workload::{Reading, Workload};

/// A plan is repeated at most so often before everything is looked at again, so that degraded chains come back.
const REPEATS: u32 = 10;
/// Budgets are given back only when so many plans in a row needed a fifth less: loads come and go.
const SHRINKS: u32 = 5;
/// The analysis gives up on response times beyond this many of the longest goal, which cannot help any chain.
const LIMIT_GOALS: u64 = 2;

/// Other periods are tried only if the declared one took no more executor analyses than this: a tenth of a second.
const SMALL: u64 = 2000;

/// Makes plans.
#[derive(Debug)]
pub struct Manager {
    goals: Goals,
    platform: Platform,
    present: Option<Present>,
    /// What the last plan took.
    work: Work,
}

#[derive(Debug)]
struct Present {
    plan: Plan,
    /// What it was made for, margins included.
    planned: Workload,
    /// Found paths, which hold as long as the graph does.
    repeats: u32,
    shrinks: u32,
}

/// A chain on its way through one plan.
#[derive(Debug)]
struct Candidate {
    paths: Vec<Vec<usize>>,
    refused: Option<ChainState>,
}

/// Budgets that could be enacted, and what they keep.
#[derive(Debug)]
struct Attempt {
    period_ns: u64,
    budgets_ns: Vec<u64>,
    fates: Vec<Option<degrade::Fate>>,
    bounds: Vec<Option<ChainBound>>,
    decisions: Vec<Decision>,
    /// These are the present ones.
    held: bool,
    /// What it took.
    work: Work,
}

impl Attempt {
    fn kept(&self) -> Vec<bool> {
        self.fates.iter().map(|f| matches!(f, Some(Ok(_)))).collect()
    }
}

impl Manager {
    /// With nothing reserved yet.
    #[must_use]
    pub fn new(goals: Goals, platform: Platform) -> Self {
        Self { goals, platform, present: None, work: Work::default() }
    }

    /// The goals.
    #[must_use]
    pub fn goals(&self) -> &Goals {
        &self.goals
    }

    /// The platform.
    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// How much the last plan had to compute.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// Forgets the present plan: what it asked for could not be enacted, or was undone.
    pub fn forget(&mut self) {
        self.present = None;
    }

    /// What to do about a snapshot.
    pub fn plan(&mut self, model: &Model) -> Plan {
        let started_ns = thread_cpu_ns();
        self.work = Work::default();
        let mut plan = match self.repeat(model) {
            Some(plan) => plan,
            None => self.decide(model),
        };
        plan.analysis_ns = thread_cpu_ns().saturating_sub(started_ns);
        plan
    }

    fn reading(&self) -> Reading {
        let options = &self.goals.options;
        Reading {
            cost_margin: options.cost_margin_percent / 100.0,
            arrival_margin: options.arrival_margin_percent / 100.0,
            exceedance: options.exceedance,
        }
    }

    /// The present plan, if what runs now is within what it was made for.
    fn repeat(&mut self, model: &Model) -> Option<Plan> {
        let raw = Reading { cost_margin: 0.0, arrival_margin: 0.0, ..self.reading() };
        let present = self.present.as_mut()?;
        if present.repeats >= REPEATS || !within(&Workload::new(model, &raw), &present.planned) {
            return None;
        }
        // Same graph, same numbers; threads may be others only if they are the same.
        let same = present.plan.reservations.iter().all(|r| {
            model.threads.get(r.thread.0).is_some_and(|t| (t.pid, t.tid, t.ended) == (r.pid, r.tid, false))
        });
        if !same {
            return None;
        }
        present.repeats += 1;
        let mut plan = present.plan.clone();
        plan.cached = true;
        plan.decisions = vec![unchanged("what runs is within what was planned for")];
        Some(plan)
    }

    fn limits(&self, period_ns: u64) -> Limits {
        let options = &self.goals.options;
        Limits {
            capacities_ns: self
                .platform
                .cores
                .iter()
                .map(|c| of(period_ns, self.platform.most_on(*c)))
                .collect(),
            step_ns: of(period_ns, options.step_percent / 100.0).max(1),
            horizon_ns: options.horizon_ns(),
        }
    }

    fn analysis<'w>(&self, workload: &'w Workload, period_ns: u64) -> Analysis<'w> {
        let options = &self.goals.options;
        let longest = self.goals.longest_ns();
        let limit_ns =
            longest.saturating_mul(LIMIT_GOALS).clamp(1_000_000_000, options.horizon_ns().max(1_000_000_000));
        Analysis::new(workload, period_ns, limit_ns, options.transport_ns())
    }

    fn decide(&mut self, model: &Model) -> Plan {
        let workload = Workload::new(model, &self.reading());
        let candidates: Vec<Candidate> = self
            .goals
            .chains
            .iter()
            .map(|chain| match chains::paths(model, &chain.start, &chain.end) {
                Ok(paths) => Candidate { refused: not_analysable(model, &workload, &paths), paths },
                Err(error) => Candidate { paths: Vec::new(), refused: Some(not_found(&error)) },
            })
            .collect();
        let requests: Vec<Option<Request<'_>>> = self
            .goals
            .chains
            .iter()
            .zip(&candidates)
            .map(|(chain, c)| {
                c.refused.is_none().then_some(Request {
                    name: &chain.name,
                    goal_ns: chain.goal_ns,
                    paths: &c.paths,
                })
            })
            .collect();
        let mut chosen = self.best_attempt(&workload, &requests);
        let held = self.present.as_ref().map(|p| carried(model, &p.plan));
        let mut shrinks = 0;
        if let Some(held) = &held {
            let (present, stays) = self.weigh(&workload, &requests, held, &chosen, &mut shrinks);
            if stays {
                chosen = present;
            }
        }
        let cores = match &held {
            Some(held) if chosen.held => held.cores.clone(),
            _ => self.places(&chosen.budgets_ns, held.as_ref(), &self.limits(chosen.period_ns)),
        };
        let mut decisions = chosen.decisions;
        for assumption in &workload.assumptions {
            decisions.push(Decision { chain: None, step: Step::Assumed, words: assumption.clone() });
        }
        let plan = Plan {
            period_ns: chosen.period_ns,
            reservations: reservations(model, &workload, &chosen.budgets_ns, &cores, chosen.period_ns),
            best_effort: best_effort(model, &workload, &candidates, &chosen.budgets_ns),
            chains: self.chain_plans(model, &candidates, &chosen.fates, &chosen.bounds),
            decisions,
            analysis_ns: 0,
            cached: false,
        };
        drop(requests);
        self.work = chosen.work;
        self.present = Some(Present { plan: plan.clone(), planned: workload, repeats: 0, shrinks });
        plan
    }

    /// Budgets at the declared period; where these cannot keep all chains, at a half and a quarter of it. Half the period is half the
    /// wait for a budget, at twice the switches. Not in the paper, which leaves the period to be chosen.
    fn best_attempt(&self, workload: &Workload, requests: &[Option<Request<'_>>]) -> Attempt {
        let declared = self.goals.options.period_ns();
        let mut best = self.attempt(workload, requests, declared);
        if !self.goals.options.adapt_period {
            return best;
        }
        for period_ns in [declared / 2, declared / 4] {
            // What only budget or period could help; below a millisecond switching costs more than it gains.
            let hopeful = best.fates.iter().any(|f| matches!(f, Some(Err(refusal)) if refusal.crowded));
            if !hopeful || period_ns < 1_000_000 || best.work.executors > SMALL {
                break;
            }
            let other = self.attempt(workload, requests, period_ns);
            let work = best.work + other.work;
            let gains = degrade::better(&other.kept(), &best.kept(), &self.goals.degradation_order).is_gt();
            let words = format!(
                "not all chains could be kept with a period of {} ms; with {} ms {}",
                ms(best.period_ns),
                ms(period_ns),
                if gains { "more can" } else { "no more can" }
            );
            let decision = Decision { chain: None, step: Step::Period { period_ns, better: gains }, words };
            if gains {
                let mut decisions = vec![decision];
                decisions.extend(other.decisions);
                best = Attempt { decisions, ..other };
            } else {
                best.decisions.push(decision);
            }
            best.work = work;
        }
        best
    }

    fn attempt(&self, workload: &Workload, requests: &[Option<Request<'_>>], period_ns: u64) -> Attempt {
        let mut analysis = self.analysis(workload, period_ns);
        let mut search = Search::new(&mut analysis, self.limits(period_ns));
        let fates = degrade::decide(&mut search, requests, &self.goals.degradation_order);
        let (budgets_ns, decisions) = (search.budgets_ns, search.decisions);
        // All budgets together: bounds can only have become better since each chain was looked at.
        let bounds = bounds(&mut analysis, requests, &budgets_ns);
        Attempt { work: analysis.work, period_ns, budgets_ns, fates, bounds, decisions, held: false }
    }

    /// Looks at the present budgets under today's model, and whether they stay.
    fn weigh(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        held: &Held,
        fresh: &Attempt,
        shrinks: &mut u32,
    ) -> (Attempt, bool) {
        let mut analysis = self.analysis(workload, held.period_ns);
        let bounds = bounds(&mut analysis, requests, &held.budgets_ns);
        let order = &self.goals.degradation_order;
        let kept: Vec<bool> = bounds
            .iter()
            .zip(&self.goals.chains)
            .map(|(bound, chain)| bound.as_ref().is_some_and(|b| b.ns <= chain.goal_ns))
            .collect();
        let ordering = degrade::better(&fresh.kept(), &kept, order);
        let share = |budgets: &[u64], period_ns: u64| budgets.iter().sum::<u64>() as f64 / period_ns as f64;
        let (old, new) = (share(&held.budgets_ns, held.period_ns), share(&fresh.budgets_ns, fresh.period_ns));
        if ordering.is_eq() && new <= old * 0.8 {
            *shrinks = self.present.as_ref().map_or(0, |p| p.shrinks) + 1;
        }
        let stays = held.complete
            && self.fits(held, &self.limits(held.period_ns))
            && ordering.is_le()
            && *shrinks < SHRINKS;
        let decision = unchanged(if *shrinks > 0 {
            "the same chains are kept with less; budgets are given back when that lasts"
        } else {
            "no other plan keeps more"
        });
        let attempt = Attempt {
            period_ns: held.period_ns,
            budgets_ns: held.budgets_ns.clone(),
            fates: fresh.fates.clone(),
            bounds,
            decisions: vec![decision],
            held: true,
            work: fresh.work + analysis.work,
        };
        (attempt, stays)
    }

    /// Cores of all budgets: where they were as far as possible, since moving a thread costs its caches.
    fn places(&self, budgets_ns: &[u64], held: Option<&Held>, limits: &Limits) -> Vec<usize> {
        let index = |core: usize| self.platform.cores.iter().position(|c| *c == core);
        if let Some(held) = held {
            let mut used = vec![0_u64; limits.capacities_ns.len()];
            let mut places: Vec<Option<usize>> = vec![None; budgets_ns.len()];
            for (executor, core) in held.cores.iter().enumerate() {
                if held.budgets_ns[executor] > 0
                    && budgets_ns[executor] > 0
                    && let Some(core) = index(*core)
                {
                    used[core] += budgets_ns[executor];
                    places[executor] = Some(core);
                }
            }
            let mut rest: Vec<usize> =
                (0..budgets_ns.len()).filter(|e| budgets_ns[*e] > 0 && places[*e].is_none()).collect();
            rest.sort_by_key(|e| (std::cmp::Reverse(budgets_ns[*e]), *e));
            for executor in rest {
                let emptiest = crate::partition::emptiest(&used, &limits.capacities_ns).unwrap_or(0);
                if let Some(sum) = used.get_mut(emptiest) {
                    *sum += budgets_ns[executor];
                }
                places[executor] = Some(emptiest);
            }
            let places: Vec<usize> = places.into_iter().map(|p| p.unwrap_or(0)).collect();
            if keeps(budgets_ns, &places, &limits.capacities_ns) {
                return places.into_iter().map(|p| self.platform.cores[p]).collect();
            }
        }
        // The search accepted nothing without a partitioning.
        let places =
            partition(budgets_ns, &limits.capacities_ns).unwrap_or_else(|| vec![0; budgets_ns.len()]);
        places.into_iter().map(|p| self.platform.cores.get(p).copied().unwrap_or(0)).collect()
    }

    fn fits(&self, held: &Held, limits: &Limits) -> bool {
        let index = |core: &usize| self.platform.cores.iter().position(|c| c == core);
        let places: Option<Vec<usize>> = held
            .cores
            .iter()
            .zip(&held.budgets_ns)
            .map(|(core, budget)| if *budget == 0 { Some(0) } else { index(core) })
            .collect();
        places.is_some_and(|p| keeps(&held.budgets_ns, &p, &limits.capacities_ns))
    }

    fn chain_plans(
        &self,
        model: &Model,
        candidates: &[Candidate],
        fates: &[Option<degrade::Fate>],
        bounds: &[Option<ChainBound>],
    ) -> Vec<ChainPlan> {
        let chains = self.goals.chains.iter().zip(candidates).zip(fates).zip(bounds);
        chains
            .map(|(((chain, candidate), fate), bound)| {
                let refusal: Option<&Refusal> = fate.as_ref().and_then(|f| f.as_ref().err());
                let shown = bound.clone().or_else(|| refusal.and_then(|r| r.bound.clone()));
                let state = match (&candidate.refused, bound) {
                    (Some(refused), _) => refused.clone(),
                    (None, Some(bound)) if bound.ns <= chain.goal_ns => ChainState::Guaranteed,
                    _ => ChainState::Degraded {
                        why: refusal.map_or_else(
                            || {
                                "the present budgets do not keep its goal, and no other plan keeps more"
                                    .to_owned()
                            },
                            |r| r.why.clone(),
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
                    bound_ns: shown.as_ref().map(|b| b.ns),
                    bound_by: shown.map_or_else(String::new, |b| methods(&b.by)),
                    state,
                }
            })
            .collect()
    }
}

/// Budgets of a former plan on today's executors.
#[derive(Debug)]
struct Held {
    period_ns: u64,
    budgets_ns: Vec<u64>,
    /// Cores by their number on the machine.
    cores: Vec<usize>,
    /// Nothing that had a budget has gone.
    complete: bool,
}

fn carried(model: &Model, plan: &Plan) -> Held {
    let by_thread: HashMap<(u32, u32), &Reservation> =
        plan.reservations.iter().map(|r| ((r.pid, r.tid), r)).collect();
    let mut held = Held {
        period_ns: plan.period_ns,
        budgets_ns: vec![0; model.executors.len()],
        cores: vec![0; model.executors.len()],
        complete: false,
    };
    let mut found = 0;
    for (number, executor) in model.executors.iter().enumerate() {
        for thread in executor.threads.iter().filter_map(|t| model.threads.get(t.0)).filter(|t| !t.ended) {
            if let Some(reservation) = by_thread.get(&(thread.pid, thread.tid)) {
                held.budgets_ns[number] = reservation.budget_ns;
                held.cores[number] = reservation.core;
                found += 1;
            }
        }
    }
    held.complete = found == plan.reservations.len();
    held
}

/// Bounds of all chains whose influencing executors all have budgets.
fn bounds(
    analysis: &mut Analysis<'_>,
    requests: &[Option<Request<'_>>],
    budgets_ns: &[u64],
) -> Vec<Option<ChainBound>> {
    let workload = analysis.workload();
    let influencing: Vec<Option<Vec<usize>>> = requests
        .iter()
        .map(|request| {
            let callbacks = request.as_ref()?.paths.iter().flatten();
            let servers = workload.influencing(callbacks.map(|c| workload.callbacks[*c].server));
            servers.iter().all(|s| budgets_ns[*s] > 0).then_some(servers)
        })
        .collect();
    let mut all: Vec<usize> = influencing.iter().flatten().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let solution = analysis.solve(budgets_ns, &all);
    requests
        .iter()
        .zip(&influencing)
        .map(|(request, servers)| {
            servers.as_ref()?;
            budget::worst(analysis, request.as_ref()?.paths, budgets_ns, &solution)
        })
        .collect()
}

/// Whether a workload is the planned one with no more arrivals and no more costs.
fn within(now: &Workload, planned: &Workload) -> bool {
    now.executors == planned.executors
        && now.callbacks.len() == planned.callbacks.len()
        && now.callbacks.iter().zip(&planned.callbacks).all(|(now, planned)| {
            let cost: &Arc<Cost> = &now.cost;
            now.server == planned.server
                && now.timer == planned.timer
                && now.inputs == planned.inputs
                && now.trouble == planned.trouble
                && now.name == planned.name
                && cost.within(&planned.cost)
                && match (&now.root, &planned.root) {
                    (Some(now), Some(planned)) => now.within(planned),
                    (None, None) => true,
                    _ => false,
                }
        })
}

fn not_found(error: &ChainError) -> ChainState {
    let near_misses = match error {
        ChainError::Unknown { near_misses, .. } => near_misses.clone(),
        _ => Vec::new(),
    };
    match error {
        ChainError::Many { .. } => ChainState::NotAnalysable { why: error.to_string() },
        _ => ChainState::NotFound { why: error.to_string(), near_misses },
    }
}

fn not_analysable(model: &Model, workload: &Workload, paths: &[Vec<usize>]) -> Option<ChainState> {
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
                "it was never seen to run, so the chain has never completed".to_owned()
            }
            None => return None,
        };
        Some(ChainState::NotAnalysable { why: format!("{}: {why}", callback.name) })
    })
}

fn reservations(
    model: &Model,
    workload: &Workload,
    budgets_ns: &[u64],
    cores: &[usize],
    period_ns: u64,
) -> Vec<Reservation> {
    let mut list: Vec<Reservation> = workload
        .executors
        .iter()
        .enumerate()
        .filter(|(number, _)| budgets_ns[*number] > 0)
        .filter_map(|(number, server)| {
            let id = server.thread?;
            let thread = model.threads.get(id.0)?;
            Some(Reservation {
                thread: id,
                pid: thread.pid,
                tid: thread.tid,
                name: thread.name.clone(),
                executor: ExecutorId(number),
                budget_ns: budgets_ns[number],
                period_ns,
                core: cores[number],
            })
        })
        .collect();
    list.sort_by_key(|r| (r.pid, r.tid));
    list
}

fn best_effort(
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

fn methods(by: &[Method]) -> String {
    by.iter().map(|m| m.name()).collect::<Vec<_>>().join("+")
}

fn unchanged(why: &str) -> Decision {
    Decision { chain: None, step: Step::Unchanged, words: format!("the present plan stays: {why}") }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn of(period_ns: u64, share: f64) -> u64 {
    (period_ns as f64 * share) as u64
}
