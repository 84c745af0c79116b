//! One executor under one budget and given arrivals: ECRTS'19 and RTSS'21, with self-suspension and
//! any supply.
//!
//! The equations are those of the crate `response-time-analysis` ([`super`] says which), which
//! knows neither suspension nor ticks; a test holds these here against the crate's where both
//! apply. The crate inverts the supply for an amount of *work*; here a load is inverted: work,
//! length and number of suspensions ([`super::supply`]). Executors do not preempt callbacks, so a
//! callback that suspends itself holds up all others, and everything that runs before the callback
//! under analysis counts with its suspensions.
//!
//! **Events executors** run what was activated in the order of activation, so a callback waits for
//! what arrived before it and at the same moment, and for nothing that came later: in a busy window
//! that begins at 0, an activation at `A` is done by `F(A)`, the time for all that arrives in
//! `[0, A]`.
//!
//! **Static executors** of Jazzy run one callback for each wait, subscriptions first, in an order
//! of hash tables: a timer can wait for any number of messages, and RTSS'21, which counts rounds of
//! the wait set, does not hold. ECRTS'19, Lemmas 4 and 5 do: they count for a callback all that
//! arrives before it starts, whatever the order, and need no more than that the executor does not
//! idle or preempt.

mod others;

use std::rc::Rc;

pub(super) use others::Scratch;
use others::{Others, Pace};

use super::counted::Arrivals;
use super::supply::Supply;
use super::sweep::TimeLine;
use super::{Bound, Load, Method, Parts};
use crate::curves::Flows;
use crate::workload::{Activity, Order, Workload};

/// Busy windows of more activations are not analysed: far more than a robot's busiest executor has
/// within its goals, and still a matter of milliseconds.
const MAX_ACTIVATIONS: u64 = 5_000;

/// Steps of a time line at most: those of a busy window, and of what lies right behind it.
const MAX_STEPS: usize = 2 * MAX_ACTIVATIONS as usize;

/// Times the RTSS'21 bound is put in where a bound goes in. Two or three suffice in practice, and
/// every one is safe.
const REFINEMENTS: usize = 8;

/// One callback with its arrivals.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    pub callback: usize,
    pub activity: &'a Activity,
    pub arrivals: Arrivals<'a>,
}

/// Conditions of a search for a callback's bound.
#[derive(Debug, Clone, Copy)]
struct Sought {
    /// Bounds up to this are equally good.
    floor_ns: u64,
    /// Bounds from this on are useless. `None` for a chain that ends at the callback.
    below_ns: Option<u64>,
}

/// Role of a callback in the search for the start of another one (RTSS'21, definition 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interference {
    /// The one under analysis itself.
    Own,
    /// All that arrives.
    All,
    /// One instance for each polling point, and this many more.
    Polled(u64),
}

/// An executor's callbacks with their arrivals, without what is never activated.
pub(super) struct Served<'a> {
    pub(super) workload: &'a Workload,
    pub(super) server: usize,
    pub(super) demands: Vec<Demand<'a>>,
    line: Rc<TimeLine<'a>>,
    /// By ECRTS'19 alone.
    published: bool,
}

/// The arrivals of an executor's callbacks on one time line, without what is never activated.
pub(super) fn time_line<'w>(
    workload: &'w Workload,
    server: usize,
    flows: &[Rc<Flows>],
    old: Option<TimeLine<'w>>,
) -> TimeLine<'w> {
    let callbacks = workload.executors[server].callbacks.iter().zip(flows);
    let active = callbacks.filter(|(_, flows)| !flows.is_zero());
    let callbacks = active.map(|(callback, flows)| (&workload.callbacks[*callback], flows.clone())).collect();
    TimeLine::new(callbacks, MAX_STEPS, old)
}

impl<'a> Served<'a> {
    /// `flows` are in the executor's order, and `line` is their [`time_line`].
    pub fn new(
        workload: &'a Workload,
        server: usize,
        flows: &'a [Rc<Flows>],
        line: Rc<TimeLine<'a>>,
    ) -> Self {
        let demands: Vec<Demand<'a>> = workload.executors[server]
            .callbacks
            .iter()
            .zip(flows)
            .filter(|(_, flows)| !flows.is_zero())
            .map(|(callback, flows)| Demand {
                callback: *callback,
                activity: &workload.callbacks[*callback],
                arrivals: Arrivals::new(flows),
            })
            .collect();
        Self { workload, server, demands, line, published: false }
    }

    /// By ECRTS'19 alone, or not.
    pub fn by_ecrts19(self, published: bool) -> Self {
        Self { published, ..self }
    }

    pub(super) fn position(&self, callback: usize) -> Option<usize> {
        self.demands.iter().position(|demand| demand.callback == callback)
    }

    /// The longest busy window; `None`: without bound, or of so many activations that searches for
    /// the worst of them would take for ever.
    fn window(&self, on: Supply) -> Option<u64> {
        let mut all = self.line.sum(None);
        let window = search(on, 0, 1, |delta| all.load(delta))?;
        let counts = self.demands.iter().map(|d| d.arrivals.count(window.saturating_add(1)));
        (counts.fold(0, u64::saturating_add) <= MAX_ACTIVATIONS).then_some(window)
    }

    /// Response times of all callbacks. Of one that is no greater than its floor it may be said
    /// that it is this floor: who gives floors keeps the greater of both, and `u64::MAX` for what
    /// is not asked for. Floors are in the executor's order.
    ///
    /// Activations that end within the floor are passed over, which is most of them where a bound
    /// has hardly grown since it was found last.
    pub fn analyse(&self, on: Supply, floors_ns: &[u64], scratch: &mut Scratch) -> Vec<Option<Bound>> {
        let executor = &self.workload.executors[self.server];
        if let Order::Threads { excludes } = &executor.order {
            return self.analyse_threads(on, executor.threads.len() as u64, excludes);
        }
        let callbacks = executor.callbacks.iter();
        let Some(window) = self.window(on) else { return vec![None; executor.callbacks.len()] };
        let first_in_first_out = match executor.order {
            Order::Fifo | Order::Alone => Some(self.first_in_first_out(on, window)),
            Order::WaitSet { .. } | Order::Any | Order::Threads { .. } => None,
        };
        let last = if self.published { None } else { self.last_offset(on) };
        callbacks
            .enumerate()
            .map(|(place, callback)| {
                let Some(own) = self.position(*callback) else {
                    // Never activated: nothing to wait for.
                    return Some(Bound::NONE);
                };
                match first_in_first_out {
                    Some(bound) => bound.map(|b| self.with_own(on, own, b)),
                    None => {
                        let floor_ns = floors_ns.get(place).copied().unwrap_or(0);
                        if floor_ns == u64::MAX {
                            return Bound::floor(floor_ns);
                        }
                        let first = self.polled(on, own, window, floor_ns)?;
                        // RTSS'21 counts rounds of the wait set, which this order has not.
                        let refined = last.filter(|_| executor.order != Order::Any && first.ns > floor_ns);
                        Some(
                            refined
                                .map_or(first, |last| self.refine(on, own, first, last, floor_ns, scratch)),
                        )
                    }
                }
            })
            .collect()
    }

    /// Of any callback of an events executor, and of the only one of a thread (ECRTS'19, Lemma 1).
    fn first_in_first_out(&self, on: Supply, window: u64) -> Option<Bound> {
        let method = if self.workload.executors[self.server].order == Order::Fifo {
            Method::Fifo
        } else {
            Method::Ecrts19
        };
        let mut worst = None;
        let mut all = self.line.sum(None);
        for step in self.line.moments(window.saturating_add(1))? {
            // As early as it may be.
            let offset = step - 1;
            let load = all.load(step)?;
            keep_worst(&mut worst, bound(on, load, Load::default(), offset, method)?);
        }
        worst.or(Some(Bound::NONE))
    }

    /// The part of a callback itself in a bound that is that of all.
    fn with_own(&self, _on: Supply, own: usize, mut bound: Bound) -> Bound {
        let own = self.demands[own].activity.load(1).length();
        let taken = own.min(bound.parts.executor_ns);
        bound.parts.own_ns += taken;
        bound.parts.executor_ns -= taken;
        bound
    }

    /// ECRTS'19, Lemmas 4 and 5: of an executor that is never idle while something is ready, in
    /// whatever order.
    fn polled(&self, on: Supply, own: usize, window: u64, floor_ns: u64) -> Option<Bound> {
        let own_load = |count| self.marginal(own, count);
        self.polled_members(on, own, window, floor_ns, own_load)
    }

    /// Of a callback with what an activation costs that is the last of so many.
    ///
    /// Activations that come later end no earlier, so that of several in a row none takes longer
    /// than from the first one's arrival to the last one's end. If that is no more than the known
    /// value of the earlier ones, they are skipped.
    fn polled_members(
        &self,
        on: Supply,
        own: usize,
        window: u64,
        floor_ns: u64,
        own_load: impl Fn(u64) -> Load,
    ) -> Option<Bound> {
        let demand = &self.demands[own];
        let mut others = self.line.sum(Some(own));
        let mut worst = Bound::floor(floor_ns);
        let mut before = 1;
        let steps = self.line.steps_of(own, window.saturating_add(1))?;
        let (mut number, mut pace) = (0, Pace::default());
        while number < steps {
            let step = self.line.step_of(own, number);
            let offset = step.at_ns - 1;
            if let Some(worst) = worst {
                let end = offset + worst.ns;
                let last = (number + pace.more).min(steps - 1);
                let step = self.line.step_of(own, last);
                // Whatever has arrived by the end of the busy window is done there.
                let at = end.min(window).max(step.at_ns);
                let load = others.load(self.interfered(demand, step.at_ns - 1, at));
                if load.is_some_and(|load| on.done(step.load + load) <= at.min(end)) {
                    number = last + 1;
                    pace.passed();
                    continue;
                }
                if pace.more > 0 {
                    pace.missed();
                    continue;
                }
            }
            let mut need = |finish| Some(step.load + others.load(self.interfered(demand, offset, finish))?);
            let finish = search(on, offset, before.max(offset + 1), &mut need)?;
            before = finish;
            keep_worst(&mut worst, bound(on, need(finish)?, own_load(step.count), offset, Method::Ecrts19)?);
            number += 1;
        }
        worst.or(Some(Bound::NONE))
    }

    /// Until when others can come in between: until the callback starts, as it is not preempted
    /// then.
    fn interfered(&self, demand: &Demand<'_>, offset: u64, finish: u64) -> u64 {
        let finish = finish.max(offset);
        let least = demand.activity.cost.least(demand.arrivals.count(finish));
        (finish.saturating_sub(least)).max(offset) + 1
    }

    /// Load that the last of so many activations adds to the earlier ones.
    fn marginal(&self, own: usize, count: u64) -> Load {
        let activity = self.demands[own].activity;
        activity.load(count).without(activity.load(count.saturating_sub(1)))
    }

    /// RTSS'21 takes a safe bound and returns a safe bound: put in the better of both until nothing
    /// is gained.
    fn refine(
        &self,
        on: Supply,
        own: usize,
        first: Bound,
        last: u64,
        floor_ns: u64,
        scratch: &mut Scratch,
    ) -> Bound {
        let mut best = first;
        let mut polled = None;
        scratch.begin(self.kinds(own));
        for _ in 0..REFINEMENTS {
            // The bound matters only through the number of polling points.
            let points = self.demands[own].arrivals.count(best.ns);
            if polled.replace(points) == Some(points) {
                break;
            }
            let sought = Sought { floor_ns, below_ns: Some(best.ns) };
            match self.busy_window_aware(on, own, points, last, sought, scratch) {
                Some(bound) => best = bound,
                None => break,
            }
            if best.ns <= floor_ns {
                break;
            }
        }
        best
    }

    /// Roles of the other callbacks, seen from the one under analysis.
    fn kinds(&self, own: usize) -> impl Iterator<Item = Interference> + '_ {
        let timers_first =
            matches!(self.workload.executors[self.server].order, Order::WaitSet { timers_first: true });
        // Behind all timers where the executor takes them first.
        let polled = Interference::Polled(u64::from(!(timers_first && self.demands[own].activity.timer)));
        self.demands.iter().enumerate().map(move |(i, demand)| match demand.activity.timer {
            _ if i == own => Interference::Own,
            true => Interference::All,
            false => polled,
        })
    }

    /// RTSS'21, Lemma 18: activations later than this in a busy window need not be looked at. At
    /// that moment all that arrived counts, so that it is the same for every callback.
    fn last_offset(&self, on: Supply) -> Option<u64> {
        let mut all = self.line.sum(None);
        search(on, 0, 1, |at| Some(Load::INSTANT + all.load(at)?))
    }

    /// RTSS'21, Theorem 3: of a callback that is known to take less than something, or of a chain
    /// that ends at it. A bound that is not below that is none: most are found out by one of the
    /// first offsets.
    ///
    /// As in [`Self::polled_members`], offsets in a row are passed over where the last one's end
    /// is early enough for all of them.
    fn busy_window_aware(
        &self,
        on: Supply,
        own: usize,
        points: u64,
        last: u64,
        Sought { floor_ns, below_ns }: Sought,
        scratch: &mut Scratch,
    ) -> Option<Bound> {
        let single = below_ns.is_some();
        let demand = &self.demands[own];
        // Too many steps give no bound, even if not all of them are looked at.
        self.line.make(last.saturating_add(1))?;
        let mut others = Others::new(self, own, points, last, scratch);
        let mut worst = Bound::floor(floor_ns);
        let (mut next, mut before, mut pace) = (Some(0), 1, Pace::default());
        while let Some(offset) = next.filter(|offset| *offset < last) {
            // Of a chain it is not known when its head was activated.
            let from = if single { offset } else { 0 };
            let end = worst.map(|worst| from + worst.ns);
            // Whatever arrives before `last` is done by then (that is how it was found), so that
            // nothing behind this is worse.
            if single && last <= on.limit_ns && end.is_some_and(|end| end >= last) {
                break;
            }
            let to = if worst.is_some() { others.further(offset, pace.more) } else { offset };
            if to > offset {
                others.keep();
            }
            others.offset(to);
            let count = others.activations();
            let earlier = demand.activity.load(count.saturating_sub(1));
            // The latest start.
            let start = search(on, 0, before, |at| Some(Load::INSTANT + others.until(at)? + earlier))?;
            let load = others.until(start)? + demand.activity.load(count);
            if end.is_some_and(|end| on.done(load) <= end) {
                pace.passed();
            } else if to > offset {
                pace.missed();
                others.go_back();
                continue;
            } else {
                let one = bound(on, load, self.marginal(own, count), from, Method::Rtss21Bw)?;
                if below_ns.is_some_and(|below_ns| one.ns >= below_ns) {
                    return None;
                }
                keep_worst(&mut worst, one);
            }
            (next, before) = (others.behind(), start);
        }
        worst
    }

    /// Bound of consecutive callbacks together, whose own bounds are these.
    pub(crate) fn subchain(&self, on: Supply, subchain: &[usize], bounds: &[u64]) -> Option<Bound> {
        if !matches!(self.workload.executors[self.server].order, Order::WaitSet { .. }) {
            return None;
        }
        let members: Vec<usize> = subchain.iter().map(|c| self.position(*c)).collect::<Option<_>>()?;
        let &last = members.last()?;
        let points = members
            .iter()
            .zip(bounds)
            .map(|(member, bound)| self.demands[*member].arrivals.count(*bound))
            .fold(0, u64::saturating_add);
        let mut scratch = Scratch::default();
        scratch.begin(self.kinds(last));
        let any = Sought { floor_ns: 0, below_ns: None };
        let newer = (!self.published)
            .then(|| self.last_offset(on))
            .flatten()
            .and_then(|offset| self.busy_window_aware(on, last, points, offset, any, &mut scratch));
        // ECRTS'19 knows a chain by the arrivals of its head alone, so no member may have others.
        let head = self.demands[members[0]].arrivals.flows();
        let older = members
            .iter()
            .all(|m| self.demands[*m].arrivals.flows() == head)
            .then(|| self.polled_chain(on, &members, last))
            .flatten();
        [newer, older].into_iter().flatten().min_by_key(|b| b.ns)
    }

    /// ECRTS'19, Lemma 8. All members have the arrivals of the last.
    fn polled_chain(&self, on: Supply, members: &[usize], last: usize) -> Option<Bound> {
        let window = self.window(on)?;
        let own_load = |count| members.iter().map(|m| self.marginal(*m, count)).sum();
        self.polled_members(on, last, window, 0, own_load)
    }
}

/// The least time by which what is needed until then is done; `None`: none within the limit after
/// `offset`.
fn search(on: Supply, offset: u64, start: u64, mut need: impl FnMut(u64) -> Option<Load>) -> Option<u64> {
    let mut finish = start;
    loop {
        let done = on.done(need(finish)?);
        if done.saturating_sub(offset) > on.limit_ns {
            return None;
        }
        if done <= finish {
            return Some(done);
        }
        finish = done;
    }
}

/// The response time of an activation at `offset` that is done with this load, `own` of which is
/// its own.
fn bound(on: Supply, load: Load, own: Load, offset: u64, by: Method) -> Option<Bound> {
    let done = on.done(load);
    let ns = done.saturating_sub(offset);
    if ns > on.limit_ns {
        return None;
    }
    let own_ns = own.length();
    let others_ns = load.without(own).length().saturating_sub(offset);
    Some(Bound {
        ns,
        by,
        parts: Parts {
            own_ns,
            executor_ns: others_ns,
            supply_ns: ns.saturating_sub(own_ns).saturating_sub(others_ns),
            disturbed_ns: 0,
        },
    })
}

fn keep_worst(worst: &mut Option<Bound>, bound: Bound) {
    if worst.is_none_or(|w| bound.ns > w.ns) {
        *worst = Some(bound);
    }
}

#[cfg(test)]
mod tests;
