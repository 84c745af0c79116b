//! Cores that are shared by known demands: bounds that need neither short periods nor exact
//! budgets.
//!
//! A reservation alone promises a thread its budget whatever others on its core do, and that costs:
//! after every wake-up up to a period less the budget may pass, and where budgets are enforced at
//! ticks, a tick for each neighbour. With milliseconds of work in dozens of milliseconds, threads
//! that suspend themselves now and then, and a tick of 4 ms, nothing is left of a core. But the
//! neighbours are measured, too. If the demand of *all* reservations of a core is known, and each
//! budget is so large that its thread never uses it up, a core is work-conserving, whatever the
//! order in which its threads run:
//!
//! 1. **No budget runs out.** A thread is throttled only if since a wake-up that gave it a full
//!    budget it has run for `k Q` within less than `k P` (a wake-up that keeps the budget is ahead
//!    of its share, and goes on counting from there). If it never runs for as long as `k Q` in
//!    `k P`, for all `k`, it is never throttled, owes nothing, and ticks do not matter. After such
//!    a wake-up it runs for no longer than what arrives takes, and, where it may have suspended
//!    itself, what arrived within a response time before: [`Analysis::most_work_ns`]. (Reclaiming
//!    makes budgets last longer.)
//! 2. **Response times.** Let `A` be a set of executors of the core, the one under analysis among
//!    them, and `r` the last moment before an activation at which none of them had anything
//!    pending. From `r` to its completion at `r + F`, at every moment one of them runs, or an
//!    executor outside of `A` does, or whatever is pending in `A` is suspended. So `F` is at most
//!    the least with
//!
//! ```text
//! x + sum over others in A (work(F) + suspension(F)) + sum over those outside of A (work(F + R)) <= F
//! ```
//!
//!    where `x` is the executor's own load that its analysis (ECRTS'19, RTSS'21, order of
//!    activation) puts before the completion, suspensions included, and `R` are response times:
//!    what an executor outside of `A` still has to do at `r` arrived within its response time.
//!    Executors that suspend themselves for longer than they work are outside, the others are in
//!    `A`. It is the busy-period argument of uniprocessor scheduling for any work-conserving order;
//!    only the inversion of the supply is another one, so the analyses of an executor stay as they
//!    are, with windows that begin at `r`.
//! 3. Response times, arrivals and demands are one fixed point over all executors of the shared
//!    cores, reached from below. (The first activation to exceed its bound would have met none that
//!    had.)
//!
//! **Disturbances** ([`Disturbance`]): activations may take longer than their curves, and be
//! suspended for longer, as long as all that the callbacks of a core take beyond stays within an
//! allowance for any window. The excess of an activation over its curve is separated as it comes
//! (the least that must be left out so that the rest is within the curve), so the rest of the
//! argument is about curves, and the allowance is one more executor of `A`: it is added to the
//! demand beside *every* executor of the core once, since it may hit the one under analysis, and to
//! the work of each that its budget must suffice for.
//!
//! The price is isolation: a neighbour that does more than was ever measured can break a bound. So
//! all of the cores' executors are grounds of each bound, held against every event, and the budgets
//! limit what comes of it. Threads of multi-threaded executors look for work without end while a
//! group is busy, so that their demand is not known, and who yields loses what is left of its
//! budget: they take no part. The kernel's server for SCHED_OTHER (since 6.12) runs before
//! reservations only after threads without them were starved for most of a second, which demands
//! below nine tenths of a core do not do.

use std::rc::Rc;

#[cfg(doc)]
use super::Disturbance;
use super::demand::CoreDemand;
use super::settle::{Open, State};
use super::{AboveFloors, Analysis, Bound, Bounds, Solution};
use crate::curves::{Flows, Rising};
use crate::workload::{Activity, Order, Workload};

/// Ranks of executors at most.
pub const MAX_RANKS: usize = 4;
/// Rounds of the fixed point over all executors.
const ROUNDS: usize = 100;
/// Rounds in which bounds that hold already are made tighter; each counts, and two give nearly all
/// that there is.
const TIGHTER: usize = 3;
/// More steps of one core's demand are not looked at.
const MAX_STEPS: usize = 50_000;
/// Multiples of the period in which a demand is held against its budget. As demands of longer
/// intervals are at most sums of those of shorter ones, one would do.
const PERIODS: u64 = 32;

/// Inputs of a core's demand: bounds and arrivals of all callbacks, inside a busy window of their
/// executor and in any interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'s> {
    pub responses: &'s [Option<Bound>],
    pub inside: &'s [Option<Rc<Flows>>],
    pub full: &'s [Option<Rc<Flows>>],
}

/// Bounds on a placement, and what the analysis needs to know to go on with it.
#[derive(Debug)]
pub(super) struct Remembered {
    solution: Solution,
    shared: Vec<Option<Rc<CoreDemand>>>,
    full: Vec<Option<Rc<Flows>>>,
}

/// Bounds of an executor's callbacks with what they rest on: arrivals, and what else its core has
/// to do.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    flows: Vec<Rc<Flows>>,
    demand: Option<Rc<CoreDemand>>,
    bounds: AboveFloors,
}

/// Growth of one callback's demand with these arrivals, `back_ns` of which came before.
#[derive(Debug, Clone)]
pub(super) struct Rises {
    flows: Rc<Flows>,
    back_ns: u64,
    to_ns: u64,
    first_ns: u64,
    more: Rc<[(u64, u64)]>,
}

/// Growth of one executor's demand: that of its callbacks in one order.
#[derive(Debug, Clone, Default)]
pub(super) struct Together {
    /// Of each callback.
    of: Vec<Rc<[(u64, u64)]>>,
    more: Vec<(u64, u64)>,
}

impl Open {
    /// Demands on the core of this executor have changed, for those that are not before it.
    fn touch_core(&mut self, cores: &[Option<usize>], ranks: &[usize], server: usize) {
        let core = cores.get(server).copied().flatten();
        for (other, touched) in self.touched.iter_mut().enumerate() {
            *touched |= cores.get(other).copied().flatten() == core && ranks[other] >= ranks[server];
        }
    }
}

impl Analysis<'_> {
    /// Response times where executors share cores as their only reservations there: `cores` has the
    /// core of each, `None` for those that take no part. All that influence them must take part.
    /// Afterwards [`Self::latency`] and [`Self::parts`] are those of the shared cores.
    #[must_use]
    pub fn share(&mut self, cores: &[Option<usize>]) -> Solution {
        let _spent = crate::spent::on(crate::spent::Part::Timing);
        let ranks = vec![0; self.workload.executors.len()];
        if let Some(known) = self.placed.get(cores) {
            // Placements are compared with each other, and the best of them is gone back to.
            let solution = known.solution.clone();
            self.shared.clone_from(&known.shared);
            self.shared_full.clone_from(&known.full);
            self.chains.clear();
            self.busy.clear();
            self.shared_cores = cores.to_vec();
            self.ranks = ranks;
            self.work.remembered += cores.iter().flatten().count() as u64;
            return solution;
        }
        let solution = self.share_ranked(cores, &ranks);
        let known = Remembered {
            solution: solution.clone(),
            shared: self.shared.clone(),
            full: self.shared_full.clone(),
        };
        self.placed.insert(cores.to_vec(), known);
        solution
    }

    /// The same where executors of a core do not run while one of a lower rank there wants to,
    /// which [`Self::ranked_budget_ns`] sees to. Ranks are below [`MAX_RANKS`].
    #[must_use]
    pub fn share_ranked(&mut self, cores: &[Option<usize>], ranks: &[usize]) -> Solution {
        let _spent = crate::spent::on(crate::spent::Part::Timing);
        let workload = self.workload;
        // The limit is twice the longest goal, where that is up to some seconds: what takes longer
        // than half of it keeps none, and steps cost time.
        self.horizon_ns = (self.limit_ns / 2).max(self.limit_ns.saturating_sub(2_000_000_000));
        self.ranks = ranks.iter().map(|rank| (*rank).min(MAX_RANKS - 1)).collect();
        // Bounds of other placements.
        self.chains.clear();
        self.busy.clear();
        self.shared_cores = cores.to_vec();
        self.travels = None;
        let mut state = State::new(workload.callbacks.len());
        let takes_part = |server: usize| cores.get(server).copied().flatten().is_some();
        let order: Vec<usize> =
            workload.order.iter().copied().filter(|c| takes_part(workload.callbacks[*c].server)).collect();
        for &callback in &order {
            state.responses[callback] = Some(Bound::NONE);
        }
        let mut servers: Vec<usize> = Vec::new();
        for &callback in &order {
            let server = workload.callbacks[callback].server;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        let mut settled = false;
        // Results whose inputs have not changed since stay valid.
        let mut open = Open {
            dirty: vec![true; workload.callbacks.len()],
            touched: vec![true; workload.executors.len()],
        };
        for _ in 0..ROUNDS {
            self.work.rounds += 1;
            let mut changed = false;
            for &server in &servers {
                for &callback in &order {
                    if !std::mem::take(&mut open.dirty[callback]) {
                        continue;
                    }
                    let (inside, full) = self.arrivals(&state, callback).unzip();
                    if inside != state.inside[callback] || full != state.full[callback] {
                        (state.inside[callback], state.full[callback]) = (inside, full);
                        self.disturb(callback, &mut open);
                        open.touch_core(cores, &self.ranks, workload.callbacks[callback].server);
                    }
                }
                if !std::mem::take(&mut open.touched[server]) {
                    continue;
                }
                let beside = self.beside(&state, server).map(Rc::new);
                self.shared[server] = beside;
                for (callback, &new) in workload.executors[server]
                    .callbacks
                    .iter()
                    .zip(self.shared_bounds(&state, server, true).iter())
                {
                    let old = state.responses[*callback];
                    let now = match (old, new) {
                        (Some(old), Some(new)) if new.ns >= old.ns => Some(new),
                        (Some(old), Some(_)) => Some(old),
                        _ => None,
                    };
                    state.responses[*callback] = now;
                    if now.map(|b| b.ns) != old.map(|b| b.ns) {
                        changed = true;
                        self.disturb(*callback, &mut open);
                        if self.sleeps[server] {
                            // Its remaining work depends on how long that takes.
                            open.touch_core(cores, &self.ranks, server);
                        }
                    }
                }
            }
            // One without bound leaves none: all share.
            let lost = order.iter().any(|callback| state.responses[*callback].is_none());
            if lost || !changed {
                settled = !lost;
                break;
            }
        }
        if settled && self.joins_hops {
            self.tighten(&mut state, &order, &servers);
        }
        let longest_ns = order.iter().filter_map(|c| state.responses[*c]).map(|bound| bound.ns).max();
        if self.disturbance.window_ns > 0 && longest_ns.is_some_and(|ns| ns > self.disturbance.window_ns / 2)
        {
            settled = false;
        }
        let mut diverged = Vec::new();
        if !settled {
            let without =
                |s: &&usize| workload.executors[**s].callbacks.iter().any(|c| state.responses[*c].is_none());
            diverged = servers.iter().filter(without).copied().collect();
            if diverged.is_empty() {
                diverged = servers;
            }
            state.responses.iter_mut().for_each(|response| *response = None);
        }
        self.shared_full = state.full;
        Solution { responses: state.responses, arrivals: state.inside, diverged }
    }

    /// Bounds that hold make arrivals that hold, and these make bounds again, the better of which
    /// are kept: with the jitter of several hops together, which is less than the sum of their
    /// bounds.
    fn tighten(&mut self, state: &mut State, order: &[usize], servers: &[usize]) {
        for _ in 0..TIGHTER {
            self.travels = Some(self.travels(state));
            for &callback in order {
                let (inside, full) = self.arrivals(state, callback).unzip();
                (state.inside[callback], state.full[callback]) = (inside, full);
            }
            let mut gained = false;
            for &server in servers {
                self.shared[server] = self.beside(state, server).map(Rc::new);
                let callbacks = &self.workload.executors[server].callbacks;
                for (callback, new) in callbacks.iter().zip(self.shared_bounds(state, server, false).iter()) {
                    if let (Some(old), &Some(new)) = (state.responses[*callback], new)
                        && new.ns < old.ns
                    {
                        gained |= new.ns < old.ns - old.ns / 50;
                        state.responses[*callback] = Some(new);
                    }
                }
            }
            if !gained {
                break;
            }
        }
        self.travels = None;
    }

    /// Bounds of an executor's callbacks under what is known; `rising`: as far as they are above
    /// those that are known.
    fn shared_bounds(&mut self, state: &State, server: usize, rising: bool) -> Bounds {
        let callbacks = &self.workload.executors[server].callbacks;
        let yields = |callback: &usize| self.workload.callbacks[*callback].load(1).yields > 0;
        let threads = matches!(self.workload.executors[server].order, Order::Threads { .. })
            || callbacks.iter().any(yields);
        let flows: Option<Vec<Rc<Flows>>> = callbacks.iter().map(|c| state.inside[*c].clone()).collect();
        let none = || Rc::new(vec![None; callbacks.len()]);
        let Some(flows) = flows.filter(|_| !threads) else { return none() };
        // The others' demand is unknown; assuming none would be too optimistic.
        if self.shared[server].is_none() {
            return none();
        }
        let known_ns = |c: &usize| state.responses[*c].map_or(0, |bound| bound.ns.saturating_sub(1));
        let floors_ns: Vec<u64> = callbacks.iter().map(|c| if rising { known_ns(c) } else { 0 }).collect();
        let demand = self.shared[server].clone();
        if let Some(known) = &self.beside[server]
            && known.flows == flows
            && known.demand == demand
            && known.bounds.answers(&floors_ns)
        {
            self.work.remembered += 1;
            return known.bounds.bounds.clone();
        }
        self.work.executors += 1;
        let served = self.served(server, &flows);
        let mut scratch = std::mem::take(&mut self.scratch);
        let Some(supply) = self.supply(server, self.period_ns) else { return none() };
        let bounds = Rc::new(served.analyse(supply, &floors_ns, &mut scratch));
        self.scratch = scratch;
        let above = AboveFloors { floors_ns, bounds: bounds.clone() };
        self.beside[server] = Some(Beside { flows, demand, bounds: above });
        bounds
    }

    /// Work of the other executors on its core that are not behind it; `None`: unknown.
    fn beside(&self, state: &State, server: usize) -> Option<CoreDemand> {
        let core = self.shared_cores.get(server).copied().flatten()?;
        let rank = self.ranks[server];
        let known = Known { responses: &state.responses, inside: &state.inside, full: &state.full };
        let others = |other| other != server && self.is_before(other, core, rank);
        let (first_ns, more) = self.demand(known, &others, &[])?;
        Some(CoreDemand::new(first_ns, more, self.horizon_ns))
    }

    /// Whether an executor is on this core and not behind this rank.
    pub(super) fn is_before(&self, server: usize, core: usize, rank: usize) -> bool {
        self.shared_cores.get(server).copied().flatten() == Some(core) && self.ranks[server] <= rank
    }

    /// Work of these executors of a core from the beginning of a busy window on: at once, and the
    /// additions in intervals of at least so many nanoseconds. Executors that are in the set `A` in
    /// any case are `inside`. `None`: that is not known.
    pub(super) fn demand(
        &self,
        known: Known<'_>,
        counts: &dyn Fn(usize) -> bool,
        inside: &[usize],
    ) -> Option<(u64, Vec<(u64, u64)>)> {
        let workload = self.workload;
        let to_ns = self.horizon_ns;
        let (mut first_ns, mut more) = (0_u64, Vec::new());
        if self.disturbance.window_ns > 0 {
            // Of whichever executor of the core, the one under analysis among them.
            let (half_ns, most_ns) = ((self.disturbance.window_ns / 2).max(1), self.disturbance.most_ns);
            first_ns = most_ns;
            let mut at_ns = half_ns;
            while at_ns < to_ns && more.len() < MAX_STEPS {
                more.push((at_ns + 1, most_ns));
                at_ns = at_ns.saturating_add(half_ns);
            }
            if at_ns < to_ns {
                return None;
            }
        }
        let mut steps = more.len();
        for other in (0..workload.executors.len()).filter(|other| counts(*other)) {
            let outside = !inside.contains(&other) && self.sleeps[other];
            let mut of = Vec::with_capacity(workload.executors[other].callbacks.len());
            for &callback in &workload.executors[other].callbacks {
                let activity = &workload.callbacks[callback];
                let flows = known.inside[callback].as_ref()?;
                // Of those outside of `A`: arrivals since a response time before.
                let back_ns = if outside { known.responses[callback]?.ns.saturating_add(1) } else { 0 };
                let from = if outside { known.full[callback].as_ref()? } else { flows };
                let kept = &mut self.rises.borrow_mut()[callback][usize::from(outside)];
                let rises = match kept {
                    Some(rises) if rises.is_of(from, back_ns, to_ns) => rises,
                    kept => kept.insert(Rises::new(activity, from, back_ns, to_ns, outside)),
                };
                first_ns = first_ns.saturating_add(rises.first_ns);
                steps += rises.more.len();
                if steps > MAX_STEPS {
                    return None;
                }
                of.push(rises.more.clone());
            }
            let together = &mut self.together.borrow_mut()[other][usize::from(outside)];
            if !together.is_of(&of) {
                *together = Together::new(of);
            }
            more.extend_from_slice(&together.more);
        }
        Some((first_ns, more))
    }

    /// The longest that an executor's thread runs in an interval of this length that begins with a
    /// wake-up which gives it a full budget; after [`Self::share`]. `None`: that is not known.
    #[must_use]
    pub fn most_work_ns(&self, server: usize, delta_ns: u64, solution: &Solution) -> Option<u64> {
        let _spent = crate::spent::on(crate::spent::Part::Timing);
        let callbacks = &self.workload.executors[server].callbacks;
        // A disturbance may be a suspension of one that has none.
        let suspends = self.disturbance.window_ns > 0
            || callbacks.iter().any(|c| self.workload.callbacks[*c].suspension.is_some());
        let mut sum = 0_u64;
        let mut longest_ns = 0;
        for &callback in callbacks {
            longest_ns = longest_ns.max(solution.responses[callback]?.ns);
            let count = if suspends {
                // It may wake up in the middle of a busy window, with all that arrived within a
                // response time before.
                let back_ns = solution.responses[callback]?.ns.saturating_add(1);
                self.shared_full.get(callback)?.as_ref()?.count(delta_ns.saturating_add(back_ns))
            } else {
                // Nothing is pending when it wakes up.
                solution.arrivals[callback].as_ref()?.count(delta_ns)
            };
            sum = sum.saturating_add(self.workload.callbacks[callback].load(count).work_ns);
        }
        let back_ns = if suspends { longest_ns.saturating_add(1) } else { 0 };
        Some(sum.saturating_add(self.disturbance.within_ns(delta_ns.saturating_add(back_ns))))
    }

    /// The least budget per period that an executor's thread never uses up; `None`: there is none.
    #[must_use]
    pub fn ample_budget_ns(&self, server: usize, period_ns: u64, solution: &Solution) -> Option<u64> {
        let _spent = crate::spent::on(crate::spent::Part::Timing);
        self.budget_of_ns(PERIODS, server, period_ns, solution)
    }

    /// A lower estimate: enough for a period.
    pub(crate) fn rough_budget_ns(&self, server: usize, period_ns: u64, solution: &Solution) -> Option<u64> {
        let _spent = crate::spent::on(crate::spent::Part::Timing);
        self.budget_of_ns(1, server, period_ns, solution)
    }

    fn budget_of_ns(
        &self,
        intervals: u64,
        server: usize,
        period_ns: u64,
        solution: &Solution,
    ) -> Option<u64> {
        let mut most = 1;
        for periods in 1..=intervals {
            let work_ns = self.most_work_ns(server, period_ns.saturating_mul(periods), solution)?;
            // One more: a budget of which nothing is left is used up.
            most = most.max(work_ns.saturating_add(1).div_ceil(periods));
        }
        (most <= period_ns).then_some(most)
    }
}

impl Rises {
    /// With executions alone where they are outside of what waits for suspensions.
    fn new(activity: &Activity, flows: &Rc<Flows>, back_ns: u64, to_ns: u64, outside: bool) -> Self {
        let busy = |count: u64| {
            let load = activity.load(count);
            if outside { load.work_ns } else { load.length() }
        };
        let first_ns = busy(flows.count(back_ns));
        let (mut known_ns, mut rising, mut more) = (first_ns, Rising::from(flows, back_ns), Vec::new());
        while let Some((next_ns, count)) = rising.next(flows) {
            // More are too many in any case.
            if next_ns - back_ns > to_ns || more.len() > MAX_STEPS {
                break;
            }
            let busy_ns = busy(count);
            more.push((next_ns - back_ns, busy_ns.saturating_sub(known_ns)));
            known_ns = busy_ns.max(known_ns);
        }
        Self { flows: flows.clone(), back_ns, to_ns, first_ns, more: more.into() }
    }

    fn is_of(&self, flows: &Rc<Flows>, back_ns: u64, to_ns: u64) -> bool {
        (self.back_ns, self.to_ns) == (back_ns, to_ns)
            && (Rc::ptr_eq(&self.flows, flows) || self.flows == *flows)
    }
}

impl Together {
    fn new(of: Vec<Rc<[(u64, u64)]>>) -> Self {
        let mut all: Vec<(u64, u64)> = of.iter().flat_map(|rises| rises.iter().copied()).collect();
        // Stable, since it makes use of what is in order already: the steps of each callback.
        all.sort_by_key(|(at_ns, _)| *at_ns);
        let mut more: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (at_ns, add_ns) in all {
            match more.last_mut() {
                Some(last) if last.0 == at_ns => last.1 = last.1.saturating_add(add_ns),
                _ => more.push((at_ns, add_ns)),
            }
        }
        Self { of, more }
    }

    fn is_of(&self, of: &[Rc<[(u64, u64)]>]) -> bool {
        // Rises that have not changed are the same.
        self.of.len() == of.len() && self.of.iter().zip(of).all(|(known, rises)| Rc::ptr_eq(known, rises))
    }
}

/// Such an executor would make all others of its core wait for its suspensions.
pub(super) fn sleeps_more_than_it_works(workload: &Workload, server: usize) -> bool {
    let loads = workload.executors[server].callbacks.iter().map(|c| workload.callbacks[*c].load(1));
    let sum = loads.fold((0_u64, 0_u64), |sum, load| {
        (sum.0.saturating_add(load.work_ns), sum.1.saturating_add(load.suspended_ns))
    });
    sum.1 > sum.0 / 4
}
