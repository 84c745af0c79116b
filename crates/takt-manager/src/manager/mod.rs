//! The manager: goals and a platform in, a plan for every snapshot out.
//!
//! It does no harm: a plan is given up only for one that keeps more. And it earns its keep: while
//! what runs stays within what was planned for, the plan is repeated without analysis.

use takt_model::Model;
use takt_rt::clock::{monotonic_ns, thread_cpu_ns};

use crate::analysis::{Analysis, Enforcement, Work};
use crate::budget::{self, ChainBound, Limits, Request, Search};
use crate::chains;
use crate::degrade::{self, Rival};
use crate::goals::Goals;
use crate::partition::Slots;
use crate::plan::{ChainState, Decision, Plan, Platform, Step};
use crate::policy::Policy;
use crate::spent;
use crate::words::ms;
use crate::workload::{Reading, Workload};

mod grounds;
mod jitter;
mod network;
mod present;
mod ranked;
mod ros_llama;
mod shared;
mod slack;
mod widened;
mod write;

pub use crate::plan::Slack;
pub use grounds::{ChainGrounds, Grounds, MAX_DELIVERY_NS};
pub use network::{against, outside_topic};

use present::{Held, carried, within};
use widened::Widened;
use write::{best_effort, not_analysable, not_found, reservations};

/// A plan is repeated at most so often before everything is looked at again, so that degraded
/// chains come back.
const REPEATS: u32 = 10;
/// Budgets are given back only when so many plans in a row needed a fifth less: loads come and go.
const SHRINKS: u32 = 5;
/// The analysis gives up on response times beyond this many of the longest goal, which cannot help
/// any chain.
const LIMIT_GOALS: u64 = 2;

/// Other periods are tried only if the declared one took no more executor analyses than this: a
/// tenth of a second.
const SMALL: u64 = 2000;

/// Time for which unexplained observations widen bounds: ten minutes, as the model keeps extremes.
const HORIZON_NS: u64 = 600_000_000_000;

/// Makes plans.
#[derive(Debug)]
pub struct Manager {
    goals: Goals,
    platform: Platform,
    present: Option<Present>,
    /// Cost of the last plan.
    work: Work,
    /// Reservations on one core at most.
    most_on_core: usize,
    /// Chains that begin on another machine, as of the last plan.
    foreign: Vec<bool>,
    /// Best case of each chain with a jitter goal, as of the last plan.
    best_ns: Vec<Option<u64>>,
    /// The shortest latency of each chain that was below its best case.
    shortest_ns: Vec<Option<u64>>,
    /// Observations that no curve explains.
    widened: Widened,
    /// Time for which they count.
    horizon_ns: u64,
    /// Others have reservations on the cores.
    others: bool,
    /// Whether an assumption of the present plan was seen broken, so that it is not repeated.
    broken: bool,
    /// Margin of the last plan's assumptions, and whether for shared cores: a place in
    /// [`slack::ladder`].
    rung: Option<(bool, usize)>,
    ways: chains::Remembered,
}

#[derive(Debug)]
struct Present {
    plan: Plan,
    /// Workload for which it was made, margins included.
    planned: Workload,
    /// For each chain the callbacks of all paths that were found, which hold as long as the graph
    /// does.
    on_path: Vec<Vec<usize>>,
    /// The paths of chains with a jitter goal, none of others.
    jitter_paths: Vec<Vec<Vec<usize>>>,
    repeats: u32,
    shrinks: u32,
    /// Executors whose demands share the cores: each bound rests on all of them.
    shared: Vec<usize>,
    /// The core of each executor, where they share.
    places: Vec<Option<usize>>,
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
    /// It was not given up before all chains were looked at.
    complete: bool,
    /// Its cost.
    work: Work,
    /// Budgets never run out, and bounds rest on what else the cores have to do.
    shared: Option<SharedCores>,
}

/// Cores that are shared by known demands.
#[derive(Debug, Clone)]
struct SharedCores {
    /// Of the reservations ([`Slots`]), by their number on the machine.
    cores: Vec<usize>,
    /// All executors there.
    servers: Vec<usize>,
    /// The core of each executor, as a place among the platform's; `None`: it takes no part.
    places: Vec<Option<usize>>,
    /// The period of each executor, where they are ordered by that ([`ranked`]).
    periods_ns: Option<Vec<u64>>,
}

impl Attempt {
    fn period_of(&self, server: usize) -> u64 {
        let periods_ns = self.shared.as_ref().and_then(|shared| shared.periods_ns.as_ref());
        periods_ns.and_then(|periods| periods.get(server)).copied().unwrap_or(self.period_ns)
    }

    fn kept(&self) -> Vec<bool> {
        self.fates.iter().map(|f| matches!(f, Some(Ok(_)))).collect()
    }
}

impl Manager {
    /// With nothing reserved yet.
    #[must_use]
    pub fn new(goals: Goals, platform: Platform) -> Self {
        let widened = Widened::new(goals.chains.len());
        let (most_on_core, work) = (usize::MAX, Work::default());
        let (best_ns, shortest_ns) = (vec![None; goals.chains.len()], vec![None; goals.chains.len()]);
        let horizon_ns = HORIZON_NS;
        Self {
            goals,
            platform,
            present: None,
            work,
            most_on_core,
            widened,
            horizon_ns,
            others: false,
            broken: false,
            rung: None,
            ways: chains::Remembered::default(),
            best_ns,
            shortest_ns,
            foreign: Vec::new(),
        }
    }

    #[must_use]
    pub fn goals(&self) -> &Goals {
        &self.goals
    }

    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Amount of computation for the last plan.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// Forgets the present plan: what it asked for could not be enacted, or was undone.
    pub fn forget(&mut self) {
        self.present = None;
    }

    /// Sets the time for which unexplained observations widen bounds: as long as the model keeps
    /// extremes; `None`: forever.
    #[must_use]
    pub(crate) fn keeping(mut self, horizon_ns: Option<u64>) -> Self {
        self.horizon_ns = horizon_ns.unwrap_or(u64::MAX);
        self
    }

    /// Whether threads of others have reservations on the cores, as of the last enactment.
    pub(crate) fn beside_others(&mut self, others: bool) {
        if std::mem::replace(&mut self.others, others) != others
            && let Some(present) = &mut self.present
        {
            present.repeats = REPEATS;
        }
    }

    /// Largest bound of a chain with which its goal is met.
    fn goal_limit_ns(&self, chain: usize) -> u64 {
        let jitter_ns = self.jitter_limit_ns(chain).unwrap_or(u64::MAX);
        let goal_ns = self.goals.chains.get(chain).map_or(0, |c| c.goal_ns);
        let elsewhere_ns = self.unexplained_ns(chain).saturating_add(self.network_ns(chain));
        goal_ns.min(jitter_ns).saturating_sub(elsewhere_ns)
    }

    /// Makes the plan for a snapshot.
    pub fn plan(&mut self, model: &Model) -> Plan {
        let (started_ns, began_ns) = (thread_cpu_ns(), monotonic_ns());
        self.work = Work::default();
        spent::reset();
        let mut plan = match self.goals.options.policy {
            Policy::Takt => self.plan_takt(model),
            Policy::RosLlama => self.plan_ros_llama(model),
        };
        let spent = spent::spent();
        plan.analysis_ns = thread_cpu_ns().saturating_sub(started_ns);
        (plan.model_ns, plan.timing_ns) = (spent.model_ns, spent.timing_ns);
        plan.budgeting_ns = plan.analysis_ns.saturating_sub(spent.model_ns).saturating_sub(spent.timing_ns);
        plan.analysis_wall_ns = monotonic_ns().saturating_sub(began_ns);
        plan
    }

    fn plan_takt(&mut self, model: &Model) -> Plan {
        self.forget_what_is_old(model.taken_ns);
        let broken = std::mem::take(&mut self.broken);
        let repeated = if broken { None } else { self.repeat(model) };
        repeated.unwrap_or_else(|| {
            // The plan's assumptions still hold, so there is time to examine everything.
            let quiet = self.present.as_ref().is_none_or(|present| present.repeats >= REPEATS);
            self.decide(model, quiet)
        })
    }

    fn reading(&self) -> Reading {
        let options = &self.goals.options;
        Reading {
            cost_margin: options.cost_margin_percent / 100.0,
            arrival_margin: options.arrival_margin_percent / 100.0,
            exceedance: options.exceedance,
        }
    }

    /// An assumption of the present plan was seen broken. The model need not have grown by that:
    /// several callbacks may have used up an allowance together, or it was while threads were
    /// moved.
    pub fn broken(&mut self) {
        self.broken = true;
    }

    /// The present plan, if what runs now is within what it was made for.
    fn repeat(&mut self, model: &Model) -> Option<Plan> {
        let raw = Reading { cost_margin: 0.0, arrival_margin: 0.0, ..self.reading() };
        let present = self.present.as_mut()?;
        if present.repeats >= REPEATS
            || !within(&Workload::new(model, &raw), &present.planned, slack_ns(present))
        {
            return None;
        }
        let best_holds = self
            .present
            .as_ref()
            .is_some_and(|p| self.best_holds(model, &p.jitter_paths) && self.foreign_holds(model, &p.plan));
        let present = self.present.as_mut().filter(|_| best_holds)?;
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
        plan.decisions = vec![unchanged("observed behaviour is within the plan's assumptions")];
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
            most_on_core: self.most_on_core,
        }
    }

    fn slots(&self, workload: &Workload) -> Slots {
        Slots::new(workload.executors.iter().map(|executor| executor.threads.len()), self.most_on_core)
    }

    /// If budgets are enforced at ticks, each reservation may delay all others of its core, so
    /// their number is limited: evenly spread, and one more.
    fn limit_neighbours(&mut self, workload: &Workload, candidates: &[Candidate]) {
        self.most_on_core = usize::MAX;
        if self.platform.enforcement_ns == 0 {
            return;
        }
        let callbacks = candidates.iter().flat_map(|candidate| candidate.paths.iter().flatten());
        let servers = workload.influencing(callbacks.map(|c| workload.callbacks[*c].server));
        let threads: usize = servers.iter().map(|s| workload.executors[*s].threads.len()).sum();
        let cores = self.platform.cores.len().max(1);
        self.most_on_core = threads.div_ceil(cores) + usize::from(cores > 1 && threads > cores);
    }

    fn analysis<'w>(&self, workload: &'w Workload, period_ns: u64) -> Analysis<'w> {
        let options = &self.goals.options;
        let longest = self.goals.longest_ns();
        let limit_ns =
            longest.saturating_mul(LIMIT_GOALS).clamp(1_000_000_000, options.horizon_ns().max(1_000_000_000));
        // One more is the kernel's own server for threads without reservations (since Linux 6.12).
        let neighbours = if self.most_on_core == usize::MAX { 0 } else { self.most_on_core as u64 };
        let enforcement = Enforcement { granularity_ns: self.platform.enforcement_ns, neighbours };
        Analysis::new(workload, period_ns, limit_ns, options.transport_ns())
            .enforced(enforcement)
            .joining_hops(options.join_hops)
    }

    fn decide(&mut self, model: &Model, quiet: bool) -> Plan {
        let mut workload = Workload::new(model, &self.reading());
        self.widened.apply(model, &mut workload, self.present.as_ref().map(|present| &present.planned));
        let ends = self.goals.chains.iter().map(|chain| (chain.start.as_str(), chain.end.as_str()));
        let candidates: Vec<Candidate> = (self.ways.of(model, ends).iter())
            .map(|ways| match ways {
                Ok(paths) => {
                    Candidate { refused: not_analysable(model, &workload, paths), paths: paths.clone() }
                }
                Err(error) => Candidate { paths: Vec::new(), refused: Some(not_found(error)) },
            })
            .collect();
        self.limit_neighbours(&workload, &candidates);
        self.look_at_best(model, &candidates);
        self.look_outside(model, &candidates);
        let requests: Vec<Option<Request<'_>>> = self
            .goals
            .chains
            .iter()
            .zip(&candidates)
            .enumerate()
            .map(|(index, (chain, c))| {
                c.refused.is_none().then_some(Request {
                    name: &chain.name,
                    goal_ns: self.goal_limit_ns(index),
                    paths: &c.paths,
                })
            })
            .collect();
        let held = self.present.as_ref().map(|p| carried(model, &workload, &p.plan));
        let mut shrinks = 0;
        let narrow = self.choose(&workload, &requests, held.as_ref(), &mut shrinks, quiet);
        let wide = self.with_slack(model, workload, &requests, held.as_ref(), narrow, quiet);
        let (workload, chosen, slack, rung) = (wide.workload, wide.attempt, wide.slack, wide.rung);
        let cores = match &held {
            _ if chosen.shared.is_some() => {
                chosen.shared.as_ref().map_or_else(Vec::new, |shared| shared.cores.clone())
            }
            Some(held) if chosen.held => held.cores.clone(),
            _ => self.places(
                &self.slots(&workload),
                &chosen.budgets_ns,
                held.as_ref(),
                &self.limits(chosen.period_ns),
            ),
        };
        let period_of = |server: usize| chosen.period_of(server);
        let reservations = reservations(model, &workload, &chosen.budgets_ns, &cores, &period_of);
        let mut decisions = chosen.decisions;
        if let Some(slack) = &slack {
            let words = format!("assumed margin beyond observations: {}", slack.words());
            decisions.push(Decision { chain: None, step: Step::Widened { slack: *slack }, words });
        }
        for assumption in &workload.assumptions {
            decisions.push(Decision { chain: None, step: Step::Assumed, words: assumption.clone() });
        }
        let plan = Plan {
            period_ns: chosen.period_ns,
            reservations,
            best_effort: best_effort(model, &workload, &candidates, &chosen.budgets_ns),
            chains: self.chain_plans(
                model,
                &candidates,
                &chosen.fates,
                &chosen.bounds,
                wide.measured.as_deref(),
            ),
            decisions,
            shared: chosen.shared.is_some(),
            slack,
            ..Plan::default()
        };
        drop(requests);
        self.rung = rung;
        self.work = chosen.work;
        self.widened.planned();
        let on_path = candidates.iter().map(|c| on_path(&c.paths)).collect();
        let (shared, places) =
            chosen.shared.map_or_else(Default::default, |shared| (shared.servers, shared.places));
        let with_jitter = candidates.into_iter().zip(&self.best_ns);
        let jitter_paths =
            with_jitter.map(|(c, best)| if best.is_some() { c.paths } else { Vec::new() }).collect();
        let (plan_now, planned) = (plan.clone(), workload);
        self.present = Some(Present {
            plan: plan_now,
            planned,
            on_path,
            jitter_paths,
            repeats: 0,
            shrinks,
            shared,
            places,
        });
        plan
    }

    /// Chooses the plan for this workload.
    fn choose(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        held: Option<&Held>,
        shrinks: &mut u32,
        quiet: bool,
    ) -> Attempt {
        let order = &self.goals.degradation_order;
        // Cores that were shared before are first tried so: what else there is was looked at not
        // long ago.
        if !quiet && let Some(shared) = self.shared_again(workload, requests, held) {
            return shared;
        }
        // If chains are refused, cores may be shared instead; next to reservations that this
        // manager does not measure, there are no known demands.
        let mut shared = Shared { manager: self, workload, requests, held, found: None };
        let mut chosen = self.best_attempt(workload, requests, &mut shared);
        if let Some(held) = held {
            let (present, stays) = self.weigh(workload, requests, held, &chosen, shrinks);
            if stays {
                chosen = present;
            }
        }
        let kept = self.kept(&chosen);
        let keeps_all = requests.iter().zip(&kept).all(|(request, kept)| request.is_none() || *kept);
        if !keeps_all
            && let Some(shared) = shared.than(&kept)
            && degrade::better(&shared.kept(), &kept, order).is_gt()
        {
            chosen = shared;
        }
        chosen
    }

    /// Shared cores, where the present plan has them and they keep what it keeps.
    fn shared_again(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        held: Option<&Held>,
    ) -> Option<Attempt> {
        let present = self.present.as_ref().filter(|present| present.plan.shared && !self.others)?;
        let shared = self.shared_attempt(workload, requests, held, &[])?;
        let kept = shared.kept();
        let before = present.plan.chains.iter().map(|chain| chain.state == ChainState::Guaranteed);
        before.zip(kept).all(|(before, now)| now || !before).then_some(shared)
    }

    /// Budgets at the declared period; where these cannot keep all chains, at a half and a quarter
    /// of it. Half the period is half the wait for a budget, at twice the switches. Not in the
    /// paper, which leaves the period to be chosen.
    ///
    /// Gives up an attempt when it becomes worse than the `rival`.
    fn best_attempt(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        rival: &mut dyn Rival,
    ) -> Attempt {
        let declared = self.goals.options.period_ns();
        let mut best = self.attempt_better(workload, requests, declared, None, rival).0;
        if !self.goals.options.adapt_period {
            return best;
        }
        // If budgets are enforced at ticks, short periods mean budgets below a tick, so longer ones
        // are tried.
        let others = match self.platform.enforcement_ns {
            // Waiting for a budget makes up most of a chain's jitter, so such goals are worth more
            // switches.
            0 if self.goals.chains.iter().any(|chain| chain.jitter_ns.is_some()) => {
                vec![declared / 2, declared / 4, declared / 8]
            }
            0 => vec![declared / 2, declared / 4],
            _ => vec![declared * 2, declared * 4],
        };
        for period_ns in others {
            // Only chains that budget or period could help; below a millisecond, switching costs
            // more than it gains.
            let ticks = self.platform.enforcement_ns > 0;
            let hopeful = !best.complete
                || best.fates.iter().any(|f| matches!(f, Some(Err(refusal)) if refusal.crowded || ticks));
            if !hopeful || period_ns < 1_000_000 || best.work.executors > SMALL {
                break;
            }
            // Given up as soon as it cannot keep more.
            let than = best.kept();
            let (other, gains) = self.attempt_better(workload, requests, period_ns, Some(&than), rival);
            let work = best.work + other.work;
            let words = format!(
                "not all goals could be met with a period of {} ms; with {} ms {}",
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

    /// Budgets that keep these chains; given up as soon as one of them cannot be kept.
    fn attempt_to_keep(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        period_ns: u64,
        kept: &[bool],
    ) -> Attempt {
        self.attempt_better(workload, requests, period_ns, None, &mut Required(kept)).0
    }

    /// Given up as soon as it cannot keep more than the chains of `than`, or keeps less than the
    /// `rival`; whether it is not.
    fn attempt_better(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        period_ns: u64,
        than: Option<&[bool]>,
        rival: &mut dyn Rival,
    ) -> (Attempt, bool) {
        let mut analysis = self.analysis(workload, period_ns);
        // An attempt that has to meet more goals than another one usually fails.
        let mut search = Search::new(&mut analysis, self.limits(period_ns)).hastily(than.is_some());
        let order = &self.goals.degradation_order;
        let (fates, is_better) = degrade::decide(&mut search, requests, order, than, rival);
        let (budgets_ns, decisions) = (search.budgets_ns, search.decisions);
        // All budgets together: bounds can only have become better since each chain was looked at.
        let bounds =
            if is_better { bounds(&mut analysis, requests, &budgets_ns) } else { vec![None; requests.len()] };
        let attempt = Attempt {
            work: analysis.work,
            period_ns,
            budgets_ns,
            fates,
            bounds,
            decisions,
            held: false,
            complete: is_better,
            shared: None,
        };
        (attempt, is_better)
    }

    /// Chains that the budgets of an attempt keep.
    fn kept(&self, attempt: &Attempt) -> Vec<bool> {
        let bounds = attempt.bounds.iter().enumerate();
        bounds
            .map(|(index, bound)| bound.as_ref().is_some_and(|b| b.ns <= self.goal_limit_ns(index)))
            .collect()
    }
}

/// Nothing else could be done.
#[cfg(test)]
struct Alone;

#[cfg(test)]
impl Rival for Alone {
    fn keeps(&mut self, _: &[bool]) -> Option<&[bool]> {
        None
    }
}

/// Chains that an attempt must keep to be of use.
struct Required<'k>(&'k [bool]);

impl Rival for Required<'_> {
    fn keeps(&mut self, _: &[bool]) -> Option<&[bool]> {
        Some(self.0)
    }

    fn known(&self) -> Option<degrade::Known<'_>> {
        Some(degrade::Known { keeps: self.0, each: true })
    }
}

/// Shared cores, looked at when they are asked about first.
struct Shared<'m, 'a> {
    manager: &'m Manager,
    workload: &'m Workload,
    requests: &'m [Option<Request<'a>>],
    held: Option<&'m Held>,
    /// The result, and the chains that it keeps; `None`: it was not sought.
    found: Option<Option<(Attempt, Vec<bool>)>>,
}

impl Shared<'_, '_> {
    /// The best there is, if that keeps more than these chains: what is chosen in the end keeps
    /// no less than what the first attempt had kept when it asked.
    fn found(&mut self, than: &[bool]) -> Option<&(Attempt, Vec<bool>)> {
        let Self { manager, workload, requests, held, found } = self;
        let look = || {
            if manager.others {
                return None;
            }
            let attempt = manager.shared_attempt(workload, requests, *held, than)?;
            let kept = attempt.kept();
            Some((attempt, kept))
        };
        found.get_or_insert_with(look).as_ref()
    }

    fn than(mut self, kept: &[bool]) -> Option<Attempt> {
        self.found(kept)?;
        self.found.flatten().map(|(attempt, _)| attempt)
    }
}

impl Rival for Shared<'_, '_> {
    fn keeps(&mut self, kept: &[bool]) -> Option<&[bool]> {
        self.found(kept).map(|(_, kept)| kept.as_slice())
    }

    fn known(&self) -> Option<degrade::Known<'_>> {
        let (_, keeps) = self.found.as_ref()?.as_ref()?;
        Some(degrade::Known { keeps, each: false })
    }
}

/// The bound of a chain with what it consists of.
fn bounds_of(
    analysis: &mut Analysis<'_>,
    request: &Request<'_>,
    budgets_ns: &[u64],
    solution: &crate::analysis::Solution,
) -> Option<ChainBound> {
    budget::explained(analysis, request.paths, budgets_ns, solution)
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
            budget::explained(analysis, request.as_ref()?.paths, budgets_ns, &solution)
        })
        .collect()
}

fn on_path(paths: &[Vec<usize>]) -> Vec<usize> {
    let mut all: Vec<usize> = paths.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Margin that execution times and suspensions have beyond the plan's.
fn slack_ns(present: &Present) -> u64 {
    present.plan.slack.map_or(0, |slack| slack.disturbance_ns)
}

fn unchanged(why: &str) -> Decision {
    Decision { chain: None, step: Step::Unchanged, words: format!("the present plan stays: {why}") }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn of(period_ns: u64, share: f64) -> u64 {
    (period_ns as f64 * share) as u64
}

#[cfg(test)]
mod rival_tests;
