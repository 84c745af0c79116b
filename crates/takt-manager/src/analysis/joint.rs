//! Several hops of a chain together, on shared cores: what the cores have to do counts once along
//! the chain, and not anew for every hop.
//!
//! The bound of one callback on a shared core ([`super::shared`]) begins with a moment at which the
//! core has nothing to do, and puts all that arrives from then on before its completion. The sum of
//! such bounds along a chain lets every hop wait for the same bursts, the same neighbours and the
//! same disturbances again ("pay bursts only once": Le Boudec and Thiran, Network Calculus, 2001;
//! for chains on one processor Schlatow and Ernst, RTAS 2016, for executors Tang and others, RTSS
//! 2020). Here an instance is followed from the activation of one of its callbacks, at `a`, to the
//! completion of a later one, at `a + L`. At every moment between, it is pending on one of the
//! cores, or its message is on its way, the latter for at most the sum `D` of what is allowed for
//! these messages. Of a core `p` let `A` be the set of its executors as there, but with those that
//! the chain passes in it, and `r = a - b` the last moment at or before `a` at which nothing of `A`
//! is pending. From `r` to `a`, and whenever the instance is pending there, the core runs something
//! of `A` or outside of it, or what is pending in `A` is suspended. The work run and suspended from
//! `r` to `a + L` is no more than the demand `W_p` of the arrivals in that time, so the instance is
//! pending on `p` for at most `W_p(b + L) - b`, and
//!
//! ```text
//! L <= D + sum over cores of max over b (W_p(b + L) - b)
//! ```
//!
//! For one core, `b = 0` is the worst: `L + b` is at most the least `F` with `D + W_p(F) <= F`,
//! whatever `b` is. The order in which a core runs what is pending does not matter, nor how often
//! the chain comes to it. Demands are those of closed intervals, so that at the least solution all
//! that has arrived is done, the instance among it.
//!
//! With ranks of executors ([`super::ranks`]), those behind all that the chain passes on a core do
//! not count there.
//!
//! A chain is cut into such parts where the sum is least. Parts of one callback, and of several of
//! one executor, have the bounds of their executor's analysis.

use std::cell::RefCell;
use std::rc::Rc;

use super::demand::CoreDemand;
use super::hash::HashMap;
use super::settle::State;
use super::shared::Known;
use super::{Analysis, Bound, Method, Parts, PathPart, Solution};
use crate::curves::{Flow, Travel};

/// Rounds of the search for the length of a part; every one is longer than the one before.
const ROUNDS: usize = 1_000;

/// Longest time from the activation of one callback to the completion of another, whatever lies
/// between, by the cores and ranks of all of them and the allowance for their messages.
#[derive(Debug)]
pub(super) struct Travels {
    /// Work of each core up to each rank.
    busy: Vec<Option<Rc<CoreDemand>>>,
    /// Ranks of a core.
    ranks: usize,
    limit_ns: u64,
    known: RefCell<HashMap<Travel, Option<u64>>>,
}

impl Travels {
    fn ns(&self, travel: Travel) -> Option<u64> {
        if travel.cores & Travel::SOMEWHERE != 0 {
            return None;
        }
        if let Some(known) = self.known.borrow().get(&travel) {
            return *known;
        }
        // Of each core the last rank that is passed, which all before it are done ahead of.
        let core = |place: usize| place / self.ranks;
        let passes = |place: &usize| travel.cores >> place & 1 == 1;
        let last =
            |place: &usize| !(place + 1..64).any(|other| core(other) == core(*place) && passes(&other));
        let on = (0..self.busy.len()).filter(passes).filter(last);
        let busy: Option<Vec<Rc<CoreDemand>>> = on.map(|place| self.busy[place].clone()).collect();
        let found = busy.and_then(|busy| longest(&busy, travel.way_ns, self.limit_ns));
        self.known.borrow_mut().insert(travel, found);
        found
    }
}

/// The longest time in which an instance is pending on these cores, and for so long on its way.
fn longest(busy: &[Rc<CoreDemand>], way_ns: u64, limit_ns: u64) -> Option<u64> {
    if let [one] = busy {
        return one.done_by(way_ns);
    }
    let mut length_ns = way_ns;
    for _ in 0..ROUNDS {
        let sum = |sum: u64, one: &Rc<CoreDemand>| Some(sum.saturating_add(one.left(length_ns)?));
        let next_ns = busy.iter().try_fold(way_ns, sum)?;
        if next_ns <= length_ns {
            return Some(length_ns);
        }
        if next_ns > limit_ns {
            return None;
        }
        length_ns = next_ns;
    }
    None
}

impl Analysis<'_> {
    /// Jitter of a flow behind a publisher of this executor and response time, and a message's
    /// travel time: the sum, or the joint time of several hops.
    pub(super) fn after(&self, flow: &Flow, server: usize, response_ns: u64, way_ns: u64) -> (u64, Travel) {
        let apart_ns = flow.jitter_ns.saturating_add(response_ns);
        let core = self.shared_cores.get(server).copied().flatten();
        let place =
            core.map(|core| core * self.ranks_in_use() + self.ranks[server]).filter(|place| *place < 63);
        // If executors sleep more than they work, a core's demand differs for each chain that
        // passes them.
        let bit = match place {
            Some(place) if !self.sleeps[server] => 1 << place,
            _ => Travel::SOMEWHERE,
        };
        let cores = flow.travel.cores | bit;
        let together = self.travels.as_ref().and_then(|travels| travels.ns(Travel { cores, ..flow.travel }));
        let jitter_ns = together.map_or(apart_ns, |ns| ns.min(apart_ns)).saturating_add(way_ns);
        (jitter_ns, Travel { way_ns: flow.travel.way_ns.saturating_add(way_ns), cores })
    }

    /// Only so many, so that the bits of a [`Travel`] reach for as many cores as they can.
    fn ranks_in_use(&self) -> usize {
        1 + self.ranks.iter().max().copied().unwrap_or_default()
    }

    /// Joint times of hops under bounds that are known to hold.
    pub(super) fn travels(&self, state: &State) -> Travels {
        let known = Known { responses: &state.responses, inside: &state.inside, full: &state.full };
        let cores = self.shared_cores.iter().flatten().max().map_or(0, |most| most + 1);
        let (to_ns, ranks) = (self.horizon_ns, self.ranks_in_use());
        let of = |place| {
            let (core, rank) = (place / ranks, place % ranks);
            let has = |other: usize| self.is_before(other, core, rank) && self.ranks[other] == rank;
            (0..self.ranks.len()).any(has).then_some(())?;
            let (first_ns, more) = self.demand(known, &|other| self.is_before(other, core, rank), &[])?;
            Some(Rc::new(CoreDemand::new(first_ns, more, to_ns)))
        };
        let busy = (0..cores * ranks).map(of).collect();
        Travels { busy, ranks, limit_ns: self.limit_ns, known: RefCell::default() }
    }

    /// The parts of a path with hops put together where that is less.
    pub(super) fn joined<'p>(
        &mut self,
        path: &'p [usize],
        apart: Vec<PathPart<'p>>,
        solution: &Solution,
    ) -> Vec<PathPart<'p>> {
        // Begin of each part.
        let mut begins = vec![0];
        for part in &apart {
            begins.push(begins[begins.len() - 1] + part.callbacks.len());
        }
        // Up to each part: the least sum, where its last part begins, and that part if it is one of
        // several.
        let mut least: Vec<(u64, usize, Option<PathPart<'p>>)> = vec![(0, 0, None)];
        for end in 1..=apart.len() {
            let alone = least[end - 1].0.saturating_add(apart[end - 1].ns());
            let mut best = (alone, end - 1, None);
            for begin in 0..end {
                let from = begins[begin];
                let callbacks = &path[from..begins[end]];
                let inner_ns =
                    (from + 1..begins[end]).fold(0, |sum: u64, k| sum.saturating_add(self.way_to(path, k)));
                if callbacks.len() < 2 || least[begin].0.saturating_add(inner_ns) >= best.0 {
                    continue;
                }
                let Some(bound) = self.together(callbacks, inner_ns, solution) else { continue };
                let way_ns = inner_ns.saturating_add(self.way_to(path, from));
                let part = PathPart { callbacks, way_ns, bounds: vec![bound] };
                let sum = least[begin].0.saturating_add(part.ns());
                if sum < best.0 {
                    best = (sum, begin, Some(part));
                }
            }
            least.push(best);
        }
        let mut chosen = Vec::new();
        let mut end = apart.len();
        let mut apart: Vec<Option<PathPart<'p>>> = apart.into_iter().map(Some).collect();
        while end > 0 {
            let (_, begin, joint) = &mut least[end];
            chosen.extend(joint.take().or_else(|| apart[end - 1].take()));
            end = *begin;
        }
        chosen.reverse();
        chosen
    }

    /// From the activation of the first of these callbacks to the completion of the last, less the
    /// time that messages are allowed between them.
    fn together(&mut self, callbacks: &[usize], inner_ns: u64, solution: &Solution) -> Option<Bound> {
        let workload = self.workload;
        let server = |callback: &usize| workload.callbacks[*callback].server;
        let mut servers: Vec<usize> = callbacks.iter().map(server).collect();
        servers.sort_unstable();
        servers.dedup();
        let mut cores: Vec<usize> = servers
            .iter()
            .map(|server| self.shared_cores.get(*server).copied().flatten())
            .collect::<Option<_>>()?;
        cores.sort_unstable();
        cores.dedup();
        let mut busy = Vec::new();
        for core in cores {
            busy.push(self.busy(core, &servers, solution)?);
        }
        let length_ns = longest(&busy, inner_ns, self.limit_ns)?;
        let ns = length_ns - inner_ns;
        let own = callbacks.iter().map(|callback| workload.callbacks[*callback].load(1).length());
        let own_ns = own.fold(0, u64::saturating_add).min(ns);
        let all = servers.iter().flat_map(|server| &workload.executors[*server].callbacks);
        let all_ns = all.map(|callback| {
            let count = solution.arrivals[*callback]
                .as_ref()
                .map_or(0, |flows| flows.count(length_ns.saturating_add(1)));
            workload.callbacks[*callback].load(count).length()
        });
        // If an arrival's curve is empty, it does not contain the chain's own arrivals either.
        let executor_ns = all_ns.fold(0, u64::saturating_add).min(ns).saturating_sub(own_ns);
        let mut parts = Parts { own_ns, executor_ns, supply_ns: ns - own_ns - executor_ns, disturbed_ns: 0 };
        parts.disturbed(self.disturbance.within_ns(length_ns).saturating_mul(busy.len() as u64));
        (ns <= self.limit_ns).then_some(Bound { ns, by: Method::Joint, parts })
    }

    /// Work of a core, as seen by a chain that passes these executors.
    fn busy(&mut self, core: usize, passed: &[usize], solution: &Solution) -> Option<Rc<CoreDemand>> {
        let on_core = |server: &&usize| self.shared_cores.get(**server).copied().flatten() == Some(core);
        let inside: Vec<usize> =
            passed.iter().filter(on_core).copied().filter(|server| self.sleeps[*server]).collect();
        let rank = passed.iter().filter(on_core).map(|server| self.ranks[*server]).max().unwrap_or(0);
        let key = (core, rank, inside);
        if let Some(known) = self.busy.get(&key) {
            return known.clone();
        }
        let known =
            Known { responses: &solution.responses, inside: &solution.arrivals, full: &self.shared_full };
        let to_ns = self.horizon_ns;
        let busy = self
            .demand(known, &|other| self.is_before(other, core, rank), &key.2)
            .map(|(first_ns, more)| Rc::new(CoreDemand::new(first_ns, more, to_ns)));
        self.busy.insert(key, busy.clone());
        busy
    }
}
