//! The fixed point: response times are the jitter of what follows, and arrivals decide response
//! times.

use std::rc::Rc;
use std::sync::Arc;

use super::components::Component;
use super::{Analysis, Bound};
use crate::curves::{Counts, Flow, Flows, Travel};
use crate::workload::Order;

/// Fixed points are looked for in at most so many rounds; a component that has not settled then is
/// taken as unbounded.
const ROUNDS: usize = 500;

/// Known values of all callbacks; `None`: without bound, or not computed.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub responses: Vec<Option<Bound>>,
    /// Busy-window-aware arrivals: as seen inside a busy window of the executor.
    pub inside: Vec<Option<Rc<Flows>>>,
    /// Arrivals in any interval.
    pub full: Vec<Option<Rc<Flows>>>,
}

/// A component's part of it, in the order of its callbacks.
#[derive(Debug)]
pub(super) struct Settled {
    /// Equal numbers: equal results.
    pub id: usize,
    entries: Vec<Entry>,
    /// Executors without bound though all that arrives there is bounded.
    pub diverged: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    response: Option<Bound>,
    inside: Option<Rc<Flows>>,
    full: Option<Rc<Flows>>,
}

/// Starting points of a component's fixed points: the bounds of greater budgets, which do not
/// exceed the values sought. (Bounds that hold are found wherever it begins: they are no less than
/// those of the arrivals that follow from them.)
#[derive(Debug, Default)]
pub(super) struct Begins {
    /// Budgets of all that influence it, and what came of them.
    known: Vec<(Box<[u64]>, Rc<Settled>)>,
}

impl Begins {
    /// So many are kept: the first, with as much budget as there is, and the last ones, which
    /// the next is probably near to.
    const MOST: usize = 8;

    /// Begins with these budgets.
    pub fn put(&self, component: &Component, budgets_ns: &[u64], state: &mut State) {
        for &number in &component.callbacks {
            state.responses[number] = Some(Bound::NONE);
        }
        let more = |had: &[u64]| had.iter().zip(budgets_ns).all(|(had_ns, has_ns)| had_ns >= has_ns);
        for (_, settled) in self.known.iter().filter(|(had, _)| more(had)) {
            for (&number, entry) in component.callbacks.iter().zip(&settled.entries) {
                let response = &mut state.responses[number];
                if entry.response.map(|bound| bound.ns) > response.map(|bound| bound.ns) {
                    *response = entry.response;
                }
            }
        }
    }

    /// Adds the result of such budgets, if everything has a bound.
    pub fn add(&mut self, budgets_ns: Box<[u64]>, settled: &Rc<Settled>) {
        if settled.entries.iter().any(|entry| entry.response.is_none()) {
            return;
        }
        if self.known.len() >= Self::MOST {
            self.known.remove(1);
        }
        self.known.push((budgets_ns, settled.clone()));
    }
}

/// Entries that must be examined again.
pub(super) struct Open {
    /// Callbacks whose arrivals must be renewed.
    pub dirty: Vec<bool>,
    /// Executors that must be analysed again.
    pub touched: Vec<bool>,
}

impl State {
    pub fn new(callbacks: usize) -> Self {
        Self { responses: vec![None; callbacks], inside: vec![None; callbacks], full: vec![None; callbacks] }
    }

    pub fn put(&mut self, component: &Component, settled: &Settled) {
        for (&number, entry) in component.callbacks.iter().zip(&settled.entries) {
            self.responses[number] = entry.response;
            self.inside[number].clone_from(&entry.inside);
            self.full[number].clone_from(&entry.full);
        }
    }

    fn take(&self, component: &Component, id: usize, diverged: Vec<usize>) -> Settled {
        let entries = component
            .callbacks
            .iter()
            .map(|&number| Entry {
                response: self.responses[number],
                inside: self.inside[number].clone(),
                full: self.full[number].clone(),
            })
            .collect();
        Settled { id, entries, diverged }
    }
}

impl Analysis<'_> {
    /// Brings one component to its fixed point from what is known of it ([`Begins`]); all upstream
    /// of it must be settled.
    pub(super) fn settle(
        &mut self,
        component: &Component,
        budgets_ns: &[u64],
        state: &mut State,
        id: usize,
    ) -> Settled {
        let mut open = Open {
            dirty: vec![false; self.workload.callbacks.len()],
            touched: vec![false; self.workload.executors.len()],
        };
        for &number in &component.callbacks {
            open.dirty[number] = true;
        }
        for &server in &component.servers {
            open.touched[server] = true;
        }
        let mut diverged = Vec::new();
        for round in 0.. {
            self.work.rounds += 1;
            let mut changed = false;
            for &server in &component.servers {
                // A result for one executor counts for the next one at once.
                self.propagate(component, state, &mut open);
                if !std::mem::take(&mut open.touched[server]) {
                    continue;
                }
                let callbacks = &self.workload.executors[server].callbacks;
                if callbacks.iter().all(|c| state.responses[*c].is_none()) {
                    // Nothing brings their bounds back.
                    continue;
                }
                let flows: Option<Vec<Rc<Flows>>> =
                    callbacks.iter().map(|c| state.inside[*c].clone()).collect();
                // Values below the current bound change nothing.
                let floor_ns = |c: &usize| state.responses[*c].map_or(0, |bound| bound.ns.saturating_sub(1));
                let bounds = match &flows {
                    Some(flows) if round < ROUNDS => {
                        let floors_ns = callbacks.iter().map(floor_ns).collect();
                        self.executor(server, budgets_ns[server], flows, floors_ns)
                    }
                    _ => Rc::new(vec![None; callbacks.len()]),
                };
                if flows.is_some() && bounds.iter().any(Option::is_none) && !diverged.contains(&server) {
                    diverged.push(server);
                }
                for (callback, new) in callbacks.iter().zip(bounds.iter()) {
                    let old = state.responses[*callback];
                    // From below: a bound never shrinks, although a tighter analysis may win in a
                    // later round.
                    let now = match (old, *new) {
                        (Some(old), Some(new)) if new.ns >= old.ns => Some(new),
                        (Some(old), Some(_)) => Some(old),
                        _ => None,
                    };
                    state.responses[*callback] = now;
                    if now.map(|b| b.ns) != old.map(|b| b.ns) {
                        changed = true;
                        self.disturb(*callback, &mut open);
                    }
                }
            }
            if !changed {
                // Whatever the last executor changed has been propagated before it, or it changed
                // nothing.
                break;
            }
        }
        state.take(component, id, diverged)
    }

    /// Marks what a callback activates.
    pub(super) fn disturb(&self, callback: usize, open: &mut Open) {
        for output in &self.outputs[callback] {
            open.dirty[*output] = true;
        }
    }

    /// Renews the arrivals of all dirty callbacks of the component and of what they lead to.
    fn propagate(&self, component: &Component, state: &mut State, open: &mut Open) {
        for &number in &component.callbacks {
            if !std::mem::take(&mut open.dirty[number]) {
                continue;
            }
            let (inside, full) = self.arrivals(state, number).unzip();
            if full != state.full[number] || inside != state.inside[number] {
                open.touched[self.workload.callbacks[number].server] = true;
                self.disturb(number, open);
                state.full[number] = full;
                state.inside[number] = inside;
            }
        }
    }

    /// Arrivals of a callback, busy-window-aware and full; `None`: without bound.
    pub(super) fn arrivals(&self, state: &State, number: usize) -> Option<(Rc<Flows>, Rc<Flows>)> {
        let callbacks = &self.workload.callbacks;
        let callback = &callbacks[number];
        let delivery_ns = callback.allowed_delivery_ns();
        let root = match &callback.root {
            // Publications that were seen: they arrive later, and none as late as another.
            Some(spans) if delivery_ns > 0 && !callback.arrived => {
                let mut arrivals = Flows::none();
                let travel = Travel { way_ns: delivery_ns, cores: 0 };
                let once = Arc::new(Counts::each(1));
                arrivals.add_each(&Flows::root(number, spans.clone()), &once, |_| (delivery_ns, travel));
                arrivals
            }
            Some(spans) => Flows::root(number, spans.clone()),
            // Neither root nor inputs: its curve bounds nothing.
            None if callback.inputs.is_empty() => return None,
            None => Flows::none(),
        };
        let mut full = root.clone();
        // The same unless something comes from the executor itself.
        let mut inside: Option<Flows> = None;
        for (publisher, counts) in &callback.inputs {
            // With several threads, instances of before a busy window's part under analysis count,
            // too.
            let threads = matches!(self.workload.executors[callback.server].order, Order::Threads { .. });
            // Messages delayed by the middleware do not descend from the busy window in which they
            // are published.
            let own_ns = callback.allowed_own_delivery_ns();
            // ECRTS'19 does not know that: there each activation has its publisher's jitter.
            let same =
                callbacks[*publisher].server == callback.server && !threads && own_ns == 0 && !self.published;
            let hop = callbacks[*publisher].server != callback.server;
            let from = state.full[*publisher].as_ref()?;
            let way_ns = if hop { self.transport_ns.saturating_add(delivery_ns) } else { own_ns };
            let response_ns = state.responses[*publisher]?.ns;
            let after = |flow: &Flow| self.after(flow, callbacks[*publisher].server, response_ns, way_ns);
            match (&state.inside[*publisher], same) {
                (Some(within), true) => inside.get_or_insert_with(|| full.clone()).add(within, 0, counts),
                _ => {
                    if let Some(inside) = &mut inside {
                        inside.add_each(from, counts, after);
                    }
                }
            }
            full.add_each(from, counts, after);
        }
        let full = Rc::new(full);
        Some((inside.map_or_else(|| full.clone(), Rc::new), full))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use takt_rt::random::SplitMix64;

    use super::*;
    use crate::simulate::{Features, random_with};
    use crate::workload::{Reading, Workload};

    /// Whatever was looked at before, what is found is what is found from nothing.
    #[test]
    fn fixed_points_do_not_depend_on_where_they_begin() {
        let exact = Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None };
        let (mut bounded, mut begun) = (0, 0);
        for seed in 0..150 {
            let system = random_with(seed, Features::ALL);
            let workload = Workload::new(&system.exact_model(), &exact);
            let all: Vec<usize> = (0..workload.executors.len()).collect();
            let mut random = SplitMix64::new(seed);
            let new = || Analysis::new(&workload, 10_000_000, 2_000_000_000, 0);
            let mut analysis = new();
            let mut budgets_ns = vec![9_500_000; all.len()];
            for _ in 0..8 {
                let found = analysis.solve(&budgets_ns, &all);
                let plain = new().solve(&budgets_ns, &all);
                let numbers = |solution: &crate::analysis::Solution| -> Vec<Option<u64>> {
                    solution.responses.iter().map(|bound| bound.map(|bound| bound.ns)).collect()
                };
                assert_eq!(numbers(&found), numbers(&plain), "seed {seed}, {budgets_ns:?}");
                assert_eq!(found.arrivals, plain.arrivals, "seed {seed}, {budgets_ns:?}");
                bounded += found.responses.iter().flatten().count();
                begun += analysis.begins.iter().map(|begins| begins.known.len()).max().unwrap_or(0);
                for budget_ns in &mut budgets_ns {
                    *budget_ns = (*budget_ns * random.within(60, 110) / 100).min(9_500_000);
                }
            }
        }
        assert!(bounded > 1000 && begun > 1000, "{bounded} bounded, {begun} known");
    }
}
