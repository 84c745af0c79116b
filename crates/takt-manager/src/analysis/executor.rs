//! One executor under one budget and given arrivals: ECRTS'19 and RTSS'21, with self-suspension and
//! any supply.
//!
//! The equations are those of the crate `response-time-analysis` ([`super`] says which), which
//! knows neither suspension nor ticks; a test holds these here against the crate's where both
//! apply. Where the crate inverts the supply for so much *work*, here a load is inverted: work,
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

use std::rc::Rc;

use super::counted::Arrivals;
use super::supply::Supply;
use super::sweep::{Place, TimeLine};
use super::{Bound, Load, Method, Parts};
use crate::curves::Flows;
use crate::workload::{Activity, Order, Workload};

/// Busy windows of more activations are not analysed: far more than a robot's busiest executor has
/// within its goals, and still a matter of milliseconds.
const MOST_ACTIVATIONS: u64 = 5_000;

/// Steps of a time line at most: those of a busy window, and of what lies right behind it.
const MOST_STEPS: usize = 2 * MOST_ACTIVATIONS as usize;

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

/// How a callback counts in the search for when another one starts (RTSS'21, definition 5).
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
}

/// The arrivals of an executor's callbacks on one time line, without what is never activated.
pub(super) fn time_line<'w>(workload: &'w Workload, server: usize, flows: &[Rc<Flows>]) -> TimeLine<'w> {
    let callbacks = workload.executors[server].callbacks.iter().zip(flows);
    let active = callbacks.filter(|(_, flows)| !flows.is_zero());
    let callbacks = active.map(|(callback, flows)| (&workload.callbacks[*callback], flows.clone())).collect();
    TimeLine::new(callbacks, MOST_STEPS)
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
        Self { workload, server, demands, line }
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
        (counts.fold(0, u64::saturating_add) <= MOST_ACTIVATIONS).then_some(window)
    }

    /// Response times of all callbacks.
    pub fn analyse(&self, on: Supply) -> Vec<Option<Bound>> {
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
        let last = self.last_offset(on);
        callbacks
            .map(|callback| {
                let Some(own) = self.position(*callback) else {
                    // Never activated: nothing to wait for.
                    return Some(Bound::NONE);
                };
                match first_in_first_out {
                    Some(bound) => bound.map(|b| self.with_own(on, own, b)),
                    None => {
                        let first = self.polled(on, own, window)?;
                        // RTSS'21 counts rounds of the wait set, which this order has not.
                        let refined = last.filter(|_| executor.order != Order::Any);
                        Some(refined.map_or(first, |last| self.refine(on, own, first, last)))
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
        let mut steps: Vec<u64> = Vec::new();
        self.line.each(window.saturating_add(1), |step| steps.push(step.at_ns))?;
        steps.dedup();
        let mut all = self.line.sum(None);
        for step in steps {
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
    fn polled(&self, on: Supply, own: usize, window: u64) -> Option<Bound> {
        let own_load = |count| self.marginal(own, count);
        self.polled_members(on, own, window, own_load)
    }

    /// Of a callback with what an activation costs that is the last of so many.
    fn polled_members(
        &self,
        on: Supply,
        own: usize,
        window: u64,
        own_load: impl Fn(u64) -> Load,
    ) -> Option<Bound> {
        let demand = &self.demands[own];
        let mut others = self.line.sum(Some(own));
        let mut worst = None;
        let mut before = 1;
        for step in self.line.of(own, window.saturating_add(1))? {
            let (offset, mine) = (step.at_ns - 1, step.load);
            let mut need = |finish| Some(mine + others.load(self.interfered(demand, offset, finish))?);
            let finish = search(on, offset, before.max(offset + 1), &mut need)?;
            before = finish;
            keep_worst(&mut worst, bound(on, need(finish)?, own_load(step.count), offset, Method::Ecrts19)?);
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

    /// What the last of so many activations adds to those before it.
    fn marginal(&self, own: usize, count: u64) -> Load {
        let activity = self.demands[own].activity;
        activity.load(count).without(activity.load(count.saturating_sub(1)))
    }

    /// RTSS'21 takes a safe bound and returns a safe bound: put in the better of both until nothing
    /// is gained.
    fn refine(&self, on: Supply, own: usize, first: Bound, last: u64) -> Bound {
        let mut best = first;
        let mut polled = None;
        let mut scratch = Scratch::new(self.kinds(own));
        for _ in 0..REFINEMENTS {
            // The bound matters only through the number of polling points.
            let points = self.demands[own].arrivals.count(best.ns);
            if polled.replace(points) == Some(points) {
                break;
            }
            match self.busy_window_aware(on, own, points, last, Some(best.ns), &mut scratch) {
                Some(bound) => best = bound,
                None => break,
            }
        }
        best
    }

    /// How others count, seen from the one under analysis.
    fn kinds(&self, own: usize) -> Vec<Interference> {
        let timers_first =
            matches!(self.workload.executors[self.server].order, Order::WaitSet { timers_first: true });
        (0..self.demands.len())
            .map(|i| {
                if i == own {
                    Interference::Own
                } else if self.demands[i].activity.timer {
                    Interference::All
                } else {
                    // Behind all timers where the executor takes them first.
                    Interference::Polled(u64::from(!(timers_first && self.demands[own].activity.timer)))
                }
            })
            .collect()
    }

    /// RTSS'21, Lemma 18: activations later than this in a busy window need not be looked at. At
    /// that moment all that arrived counts, so that it is the same for every callback.
    fn last_offset(&self, on: Supply) -> Option<u64> {
        let mut all = self.line.sum(None);
        search(on, 0, 1, |at| Some(Load::INSTANT + all.load(at)?))
    }

    /// RTSS'21, Theorem 3: of a callback that is known to take no longer than `below`, or of a
    /// chain that ends at it (`None`). A bound that is not below that is none: most are found out
    /// by one of the first offsets.
    fn busy_window_aware(
        &self,
        on: Supply,
        own: usize,
        points: u64,
        last: u64,
        below: Option<u64>,
        scratch: &mut Scratch,
    ) -> Option<Bound> {
        let single = below.is_some();
        let demand = &self.demands[own];
        // Too many steps give no bound, even if not all of them are looked at.
        self.line.make(last.saturating_add(1))?;
        let mut count = 0;
        let Scratch { kinds, arrived, most } = scratch;
        let mut offsets = Offsets::new(&self.line, kinds, last.saturating_add(1));
        let mut others = Others::new(self, kinds, points, arrived, most);
        let mut worst = None;
        let mut before = 1;
        while let Some((offset, arrived)) = offsets.next().filter(|(offset, _)| *offset < last) {
            // Whatever arrives before `last` is done by then (that is how it was found), so that
            // nothing behind this is worse.
            if single && last <= on.limit_ns && worst.is_some_and(|w: Bound| last - offset <= w.ns) {
                break;
            }
            count = arrived.unwrap_or(count);
            others.offset(offset)?;
            let earlier = demand.activity.load(count.saturating_sub(1));
            // The latest start.
            let start = search(on, 0, before, |at| Some(Load::INSTANT + others.until(at)? + earlier))?;
            before = start;
            let load = others.until(start)? + demand.activity.load(count);
            // Of a chain it is not known when its head was activated.
            let from = if single { offset } else { 0 };
            let one = bound(on, load, self.marginal(own, count), from, Method::Rtss21Bw)?;
            if below.is_some_and(|below| one.ns >= below) {
                return None;
            }
            keep_worst(&mut worst, one);
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
        let mut scratch = Scratch::new(self.kinds(last));
        let newer = self
            .last_offset(on)
            .and_then(|offset| self.busy_window_aware(on, last, points, offset, None, &mut scratch));
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
        self.polled_members(on, last, window, own_load)
    }
}

/// Where the latest start of a callback may change (RTSS'21, Lemma 19), made as far as they are
/// looked at: a tenth of them decides most bounds.
struct Offsets<'t, 'a> {
    line: &'t TimeLine<'a>,
    kinds: &'t [Interference],
    to_ns: u64,
    /// Steps behind it.
    passed: usize,
    /// One behind a polled callback's.
    polled: Option<u64>,
    /// The next one.
    ahead: Option<Offset>,
}

/// An offset, and how many activations of the callback itself there are from there on, if more than
/// before.
type Offset = (u64, Option<u64>);

impl<'t, 'a> Offsets<'t, 'a> {
    fn new(line: &'t TimeLine<'a>, kinds: &'t [Interference], to_ns: u64) -> Self {
        Self { line, kinds, to_ns, passed: 0, polled: None, ahead: Some((0, None)) }
    }

    fn next(&mut self) -> Option<Offset> {
        let mut now = self.ahead.take()?;
        loop {
            match self.following() {
                Some((same, arrived)) if same == now.0 => now.1 = arrived.or(now.1),
                next => {
                    self.ahead = next;
                    return Some(now);
                }
            }
        }
    }

    /// Not before the last one, but perhaps the same.
    fn following(&mut self) -> Option<Offset> {
        loop {
            if let Some(polled) = self.polled.take() {
                return Some((polled, None));
            }
            let (mut own, mut polled) = (None, false);
            let moment = self.line.moment(self.passed, self.to_ns, |step| match self.kinds[step.demand] {
                Interference::Own => own = Some(step.count),
                Interference::Polled(_) => polled = true,
                Interference::All => {}
            })?;
            self.passed = moment.behind;
            self.polled = polled.then_some(moment.at_ns);
            if own.is_some() {
                return Some((moment.at_ns - 1, own));
            }
        }
    }
}

/// What the analyses of one callback keep from one to the next.
struct Scratch {
    kinds: Vec<Interference>,
    arrived: Vec<u64>,
    most: Vec<u64>,
}

impl Scratch {
    fn new(kinds: Vec<Interference>) -> Self {
        let (arrived, most) = (Vec::with_capacity(kinds.len()), Vec::with_capacity(kinds.len()));
        Self { kinds, arrived, most }
    }
}

/// What others than the callback under analysis ask for until it starts (RTSS'21, definition 5), as
/// its offset and the start grow.
struct Others<'t, 'a> {
    served: &'t Served<'a>,
    kinds: &'t [Interference],
    points: u64,
    /// Up to the start.
    start: Place<'t, 'a>,
    /// Up to the offset.
    offset: Place<'t, 'a>,
    arrived: &'t mut Vec<u64>,
    /// Instances of a callback that count at most, of a polled one those that arrived before the
    /// offset among them.
    most: &'t mut Vec<u64>,
    total: Load,
}

impl<'t, 'a> Others<'t, 'a> {
    fn new(
        served: &'t Served<'a>,
        kinds: &'t [Interference],
        points: u64,
        arrived: &'t mut Vec<u64>,
        most: &'t mut Vec<u64>,
    ) -> Self {
        most.clear();
        most.extend(kinds.iter().map(|kind| match kind {
            Interference::Polled(more) => points.saturating_add(*more),
            Interference::Own => 0,
            Interference::All => u64::MAX,
        }));
        arrived.clear();
        arrived.resize(kinds.len(), 0);
        Self {
            served,
            kinds,
            points,
            start: served.line.place(),
            offset: served.line.place(),
            arrived,
            most,
            total: Load::default(),
        }
    }

    /// The activation under analysis comes so late in the busy window; not earlier than the one
    /// before.
    fn offset(&mut self, offset_ns: u64) -> Option<()> {
        let Self { served, kinds, points, offset, arrived, most, total, .. } = self;
        offset.advance(offset_ns, |step| {
            let i = step.demand;
            let Interference::Polled(more) = kinds[i] else { return };
            let before = most[i];
            most[i] = step.count.saturating_add(*points).saturating_add(more);
            if arrived[i] > before {
                let activity = served.demands[i].activity;
                *total = *total + activity.load(arrived[i].min(most[i])).without(activity.load(before));
            }
        })
    }

    /// All that counts if it starts then; not earlier than asked before.
    fn until(&mut self, start_ns: u64) -> Option<Load> {
        let Self { served, start, arrived, most, total, .. } = self;
        debug_assert!(start_ns >= start.at_ns());
        start.advance(start_ns, |step| {
            let i = step.demand;
            let before = std::mem::replace(&mut arrived[i], step.count);
            // Of the one under analysis none count.
            if before >= most[i] {
                return;
            }
            let more = match step.count <= most[i] {
                true => step.more,
                false => {
                    let activity = served.demands[i].activity;
                    activity.load(most[i]).without(activity.load(before))
                }
            };
            *total = *total + more;
        })?;
        Some(*total)
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
