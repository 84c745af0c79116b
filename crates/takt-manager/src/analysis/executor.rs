//! One executor under one budget and given arrivals: ECRTS'19 and RTSS'21, with self-suspension and any supply.
//!
//! The equations are those of the crate `response-time-analysis` ([`super`] says which), which knows neither suspension nor ticks; a test holds
//! these here against the crate's where both apply. Where the crate inverts the supply for so much *work*, here a load is inverted:
//! work, length and number of suspensions ([`super::supply`]). Executors do not preempt callbacks, so a callback that suspends itself holds up all
//! others, and everything that runs before the callback under analysis counts with its suspensions.
//!
//! **Events executors** run what was activated in the order of activation, so a callback waits for what arrived before it and at the same moment,
//! and for nothing that came later: in a busy window that begins at 0, an activation at `A` is done by `F(A)`, the time for all
//! that arrives in `[0, A]`.
//!
//! **Static executors** of Jazzy run one callback for each wait, subscriptions first, in an order of hash tables: a timer can wait for any number of
//! messages, and RTSS'21, which counts rounds of the wait set, does not hold. ECRTS'19, Lemmas 4 and 5 do: they count for a
//! callback all that arrives before it starts, whatever the order, and need no more than that the executor does not idle or preempt.

use std::rc::Rc;

use super::counted::Arrivals;
use super::supply::Supply;
use super::{Bound, Load, Method, Parts};
use crate::curves::Flows;
use crate::workload::{Activity, Order, Workload};

/// Busy windows of more activations are not analysed: far more than a robot's busiest executor has within its goals, and still a matter
/// of milliseconds.
const MOST_ACTIVATIONS: u64 = 5_000;

/// Times the RTSS'21 bound is put in where a bound goes in. Two or three suffice in practice, and every one is safe.
const REFINEMENTS: usize = 8;

/// One callback with its arrivals.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    pub callback: usize,
    pub activity: &'a Activity,
    pub arrivals: Arrivals<'a>,
}

impl Demand<'_> {
    /// Of all arrivals in a half-open interval.
    fn load(&self, delta_ns: u64) -> Load {
        self.activity.load(self.arrivals.count(delta_ns))
    }

    /// Offsets of its activations in a busy window, as early as they may be.
    fn offsets(&self, to_ns: u64) -> impl Iterator<Item = u64> {
        let flows = self.arrivals.flows();
        let mut at = 0;
        std::iter::from_fn(move || {
            at = flows.next_step(at)?;
            Some(at - 1)
        })
        .take_while(move |offset| *offset <= to_ns)
    }
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
}

impl<'a> Served<'a> {
    /// `flows` are in the executor's order.
    pub fn new(workload: &'a Workload, server: usize, flows: &'a [Rc<Flows>]) -> Self {
        let demands = workload.executors[server]
            .callbacks
            .iter()
            .zip(flows)
            .filter(|(_, flows)| !flows.never())
            .map(|(callback, flows)| Demand {
                callback: *callback,
                activity: &workload.callbacks[*callback],
                arrivals: Arrivals::new(flows),
            })
            .collect();
        Self { workload, server, demands }
    }

    pub(super) fn position(&self, callback: usize) -> Option<usize> {
        self.demands.iter().position(|demand| demand.callback == callback)
    }

    fn all(&self, delta_ns: u64) -> Load {
        self.demands.iter().map(|demand| demand.load(delta_ns)).sum()
    }

    /// The longest busy window; `None`: without bound, or of so many activations that searches for the worst of them would take
    /// for ever.
    fn window(&self, on: Supply) -> Option<u64> {
        let window = search(on, 0, 1, |delta| self.all(delta))?;
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
                        Some(if executor.order == Order::Any { first } else { self.refine(on, own, first) })
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
        let mut offsets: Vec<u64> = self.demands.iter().flat_map(|d| d.offsets(window)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        for offset in offsets {
            let load = self.all(offset + 1);
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

    /// ECRTS'19, Lemmas 4 and 5: of an executor that is never idle while something is ready, in whatever order.
    fn polled(&self, on: Supply, own: usize, window: u64) -> Option<Bound> {
        let demand = &self.demands[own];
        let mut worst = None;
        let mut before = 1;
        for offset in demand.offsets(window) {
            let mine = demand.load(offset + 1);
            let need = |finish: u64| {
                let delta = self.interfered(demand, offset, finish);
                mine + self.sum(|i, d| if i == own { Load::default() } else { d.load(delta) })
            };
            let finish = search(on, offset, before.max(offset + 1), need)?;
            before = finish;
            let load = need(finish);
            keep_worst(&mut worst, bound(on, load, self.marginal(own, offset), offset, Method::Ecrts19)?);
        }
        worst.or(Some(Bound::NONE))
    }

    /// Until when others can come in between: until the callback starts, as it is not preempted then.
    fn interfered(&self, demand: &Demand<'_>, offset: u64, finish: u64) -> u64 {
        let finish = finish.max(offset);
        let least = demand.activity.cost.least(demand.arrivals.count(finish));
        (finish.saturating_sub(least)).max(offset) + 1
    }

    /// What an activation at this offset adds to those before it.
    fn marginal(&self, own: usize, offset: u64) -> Load {
        let demand = &self.demands[own];
        let count = demand.arrivals.count(offset + 1);
        demand.activity.load(count).without(demand.activity.load(count.saturating_sub(1)))
    }

    fn sum(&self, of: impl Fn(usize, &Demand<'a>) -> Load) -> Load {
        self.demands.iter().enumerate().map(|(i, demand)| of(i, demand)).sum()
    }

    /// RTSS'21 takes a safe bound and returns a safe bound: put in the better of both until nothing is gained.
    fn refine(&self, on: Supply, own: usize, first: Bound) -> Bound {
        let mut best = first;
        let mut polled = None;
        for _ in 0..REFINEMENTS {
            // The bound matters only through the number of polling points.
            let points = self.demands[own].arrivals.count(best.ns);
            if polled.replace(points) == Some(points) {
                break;
            }
            match self.busy_window_aware(on, own, points, true) {
                Some(bound) if bound.ns < best.ns => best = bound,
                _ => break,
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

    /// RTSS'21, Theorem 3: of a callback, or of a chain that ends at it.
    fn busy_window_aware(&self, on: Supply, own: usize, points: u64, single: bool) -> Option<Bound> {
        let kinds = self.kinds(own);
        let demand = &self.demands[own];
        let others = |delta: u64, offset: u64| {
            self.sum(|i, other| match kinds[i] {
                Interference::Own => Load::default(),
                Interference::All => other.load(delta),
                Interference::Polled(more) => {
                    let arrived = other.arrivals.count(delta);
                    let polled = other.arrivals.count(offset).saturating_add(points).saturating_add(more);
                    other.activity.load(arrived.min(polled))
                }
            })
        };
        // Lemma 18: offsets beyond need not be looked at.
        let last = search(on, 0, 1, |at| Load::INSTANT + others(at, at) + demand.load(at))?;
        // Lemma 19: where something changes.
        let mut offsets: Vec<u64> = vec![0];
        for (i, other) in self.demands.iter().enumerate() {
            match kinds[i] {
                Interference::Own => offsets.extend(other.offsets(last)),
                Interference::Polled(_) => offsets.extend(other.offsets(last).map(|offset| offset + 1)),
                Interference::All => {}
            }
        }
        offsets.sort_unstable();
        offsets.dedup();
        let mut worst = None;
        let mut before = 1;
        for offset in offsets.into_iter().take_while(|offset| *offset < last) {
            let count = demand.arrivals.count(offset + 1);
            let earlier = demand.activity.load(count.saturating_sub(1));
            // The latest start.
            let start = search(on, 0, before, |at| Load::INSTANT + others(at, offset) + earlier)?;
            before = start;
            let load = others(start, offset) + demand.activity.load(count);
            // Of a chain it is not known when its head was activated.
            let from = if single { offset } else { 0 };
            keep_worst(&mut worst, bound(on, load, self.marginal(own, offset), from, Method::Rtss21Bw)?);
        }
        worst
    }

    /// Bound of consecutive callbacks together, whose own bounds are these.
    pub fn subchain(&self, on: Supply, subchain: &[usize], bounds: &[u64]) -> Option<Bound> {
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
        let newer = self.busy_window_aware(on, last, points, false);
        // ECRTS'19 knows a chain by the arrivals of its head alone, so no member may have others.
        let head = self.demands[members[0]].arrivals.flows();
        let older = members
            .iter()
            .all(|m| self.demands[*m].arrivals.flows() == head)
            .then(|| self.polled_chain(on, &members, last))
            .flatten();
        [newer, older].into_iter().flatten().min_by_key(|b| b.ns)
    }

    /// ECRTS'19, Lemma 8.
    fn polled_chain(&self, on: Supply, members: &[usize], last: usize) -> Option<Bound> {
        let window = self.window(on)?;
        let demand = &self.demands[last];
        let mut worst = None;
        let mut before = 1;
        // All members have the arrivals of the last.
        for offset in demand.offsets(window) {
            let mine = demand.load(offset + 1);
            let need = |finish: u64| {
                let delta = self.interfered(demand, offset, finish);
                mine + self.sum(|i, other| if i == last { Load::default() } else { other.load(delta) })
            };
            let finish = search(on, offset, before.max(offset + 1), need)?;
            before = finish;
            let own = members.iter().map(|m| self.marginal(*m, offset)).sum();
            keep_worst(&mut worst, bound(on, need(finish), own, offset, Method::Ecrts19)?);
        }
        worst
    }
}

/// The least time by which what is needed until then is done; `None`: none within the limit after `offset`.
fn search(on: Supply, offset: u64, start: u64, need: impl Fn(u64) -> Load) -> Option<u64> {
    let mut finish = start;
    loop {
        let done = on.done(need(finish));
        if done.saturating_sub(offset) > on.limit_ns {
            return None;
        }
        if done <= finish {
            return Some(done);
        }
        finish = done;
    }
}

/// The response time of an activation at `offset` that is done with this load, `own` of which is its own.
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
        },
    })
}

fn keep_worst(worst: &mut Option<Bound>, bound: Bound) {
    if worst.is_none_or(|w| bound.ns > w.ns) {
        *worst = Some(bound);
    }
}
