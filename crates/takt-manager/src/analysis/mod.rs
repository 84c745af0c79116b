//! Response-time bounds of all callbacks under given budgets, and latency bounds of chains.
//!
//! The analyses of one executor are ECRTS'19 (Casini and others: "Response-Time Analysis of ROS 2
//! Processing Chains under Reservation-Based Scheduling") and RTSS'21 (Blass and others: "A ROS 2
//! Response-Time Analysis Exploiting Starvation Freedom and Execution-Time Variance"), as in the
//! crate `response-time-analysis`, with self-suspension and the kernel's supply added
//! ([`executor`](self) and `supply` have the arguments). Here is what they leave to the caller:
//! arrivals propagated over the graph, the fixed point over all executors, and the sum along a
//! chain.
//!
//! - **Messages**: `n` activations of a publisher cause at most as many as were ever counted of `n`
//!   in a row ([`crate::curves::Counts`]), never their mean.
//! - **Arrivals** of a callback are sums of root arrivals, each with the response-time bounds
//!   gathered on the way as jitter. Within an executor an activation adds no jitter: at the start
//!   of a busy window nothing is pending there, so whatever is activated inside descends from what
//!   arrived inside (RTSS'21, definition 4).
//! - **The fixed point** is reached from below: all bounds start at nothing and grow until none
//!   changes. A value above the limit has no bound, nor has anything downstream.
//! - **Timers** are analysed as polled callbacks of the highest priority. ECRTS'19 lets a timer run
//!   after at most one other callback, as the executors of its day did; since then they take timers
//!   from the ready set as everything else, so a timer waits for a whole round. As interference,
//!   timers count without limit, which covers both.
//! - **Priorities** other than those of timers are taken as unknown: the order of registration is
//!   lost in hash tables of newer executors.

mod best;
mod components;
mod counted;
mod demand;
mod executor;
mod floors;
mod hash;
mod joint;
mod ranks;
mod settle;
mod shared;
mod supply;
mod sweep;
mod threads;

use std::cell::RefCell;
use std::rc::Rc;

use crate::curves::Flows;
pub use crate::load::{DISPATCH_NS, Load};
use crate::spent::{self, Part};
use crate::workload::Workload;
pub use best::best_case;
use components::{Component, components};
use demand::CoreDemand;
use executor::{Scratch, Served, time_line};
use floors::{AboveFloors, Bounds};
use hash::HashMap;
use joint::Travels;
pub use ranks::Ahead;
use settle::{Begins, Settled, State};
pub use shared::MAX_RANKS;
use shared::{Beside, Remembered, Rises, Together, sleeps_more_than_it_works};
pub use supply::Enforcement;
use supply::Supply;
use sweep::TimeLine;

/// Analysis that gave a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Casini and others, ECRTS 2019.
    Ecrts19,
    /// Blass and others, RTSS 2021, busy-window-aware.
    Rtss21Bw,
    /// Order of activation, for events executors.
    Fifo,
    /// Several threads under a reservation each.
    Threads,
    /// Several hops in one busy window of their cores.
    Joint,
}

impl Method {
    /// As in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecrts19 => "ecrts19",
            Self::Rtss21Bw => "rtss21-bw",
            Self::Fifo => "fifo",
            Self::Threads => "threads",
            Self::Joint => "joint",
        }
    }
}

/// A bound and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    pub ns: u64,
    /// The analysis.
    pub by: Method,
    /// Parts of the bound.
    pub parts: Parts,
}

impl Bound {
    /// Of what never waits.
    pub const NONE: Self = Self {
        ns: 0,
        by: Method::Ecrts19,
        parts: Parts { own_ns: 0, executor_ns: 0, supply_ns: 0, disturbed_ns: 0 },
    };
}

/// Parts of a bound, in the worst case that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Execution and suspension of the callback itself.
    pub own_ns: u64,
    /// The same of what its executor runs before it.
    pub executor_ns: u64,
    /// Waiting for the reservation, on shared cores for their other executors.
    pub supply_ns: u64,
    /// Allowance for execution beyond the curves of callbacks on a shared core ([`Disturbance`]).
    pub disturbed_ns: u64,
}

impl Parts {
    /// So much of the wait is for an allowance.
    fn disturbed(&mut self, by_ns: u64) {
        self.disturbed_ns = by_ns.min(self.supply_ns);
        self.supply_ns -= self.disturbed_ns;
    }
}

/// A part of a chain's path that is bounded as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPart<'p> {
    /// Callbacks of the path, one after another.
    pub callbacks: &'p [usize],
    /// Allowance for messages to the first of them and from one to the next.
    pub way_ns: u64,
    /// The bound of each callback, or one for all of them, without the messages' way.
    pub bounds: Vec<Bound>,
}

impl PathPart<'_> {
    /// Its share of the path's bound.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.bounds.iter().map(|bound| bound.ns).fold(self.way_ns, u64::saturating_add)
    }
}

/// Inputs of one executor's analysis: itself, its budget, and per callback root, jitter and
/// multiplicity of every flow.
type Key = Box<[u64]>;

/// Arrivals of an executor's callbacks, and all of them together.
type Line<'w> = (Vec<Rc<Flows>>, Rc<TimeLine<'w>>);

/// Inputs of a subchain's analysis.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChainKey {
    executor: Key,
    subchain: Vec<usize>,
    bounds: Vec<u64>,
}

/// Analyses of one workload, remembered: an executor whose budget and arrivals are unchanged is not
/// analysed again, and a component whose budgets and surroundings are unchanged is not even looked
/// at.
#[derive(Debug)]
pub struct Analysis<'w> {
    workload: &'w Workload,
    /// For every callback those that it activates.
    outputs: Vec<Vec<usize>>,
    components: Rc<[Component]>,
    /// The component of every executor.
    component: Vec<usize>,
    period_ns: u64,
    limit_ns: u64,
    transport_ns: u64,
    enforcement: Enforcement,
    /// By ECRTS'19 alone ([`Self::as_published`]).
    published: bool,
    remembered: HashMap<Key, AboveFloors>,
    chains: HashMap<ChainKey, Option<Bound>>,
    /// Last arrivals and bounds of each executor with a core of its own.
    alone: Vec<Option<(Vec<Rc<Flows>>, Bounds)>>,
    /// Last arrivals of each executor on a time line: budgets change more often than they do.
    lines: Vec<Option<Line<'w>>>,
    /// Memory of the analyses of an executor.
    scratch: Scratch,
    /// Per component by the budgets of its executors and the results upstream.
    settled: Vec<HashMap<Box<[u64]>, Rc<Settled>>>,
    /// Starting points of the next fixed points.
    begins: Vec<Begins>,
    /// Results so far.
    results: usize,
    /// Other work of an executor's core, if cores are shared by known demands.
    shared: Vec<Option<Rc<CoreDemand>>>,
    /// Arrivals in any interval there.
    shared_full: Vec<Option<Rc<Flows>>>,
    /// Several hops of a chain count together there.
    joins_hops: bool,
    /// Whether an executor sleeps more than it works.
    sleeps: Vec<bool>,
    /// Longer intervals are not looked at there.
    horizon_ns: u64,
    /// The core of each executor there.
    shared_cores: Vec<Option<usize>>,
    /// Rank of each executor on its core: it does not wait for executors of higher ranks.
    ranks: Vec<usize>,
    /// Work of each core up to a rank, by the executors that count with their suspensions in any
    /// case.
    busy: HashMap<(usize, usize, Vec<usize>), Option<Rc<CoreDemand>>>,
    /// Known demand of each core, while arrivals are computed with it.
    travels: Option<Travels>,
    /// Joint time that callbacks of one core may take beyond their curves.
    disturbance: Disturbance,
    /// Placements that were asked about, where no executor is before another one.
    placed: HashMap<Vec<Option<usize>>, Remembered>,
    /// By executor, its last bounds on a shared core, and what they rest on.
    beside: Vec<Option<Beside>>,
    /// By callback, how its demand rises, with its suspensions and without.
    rises: RefCell<Vec<[Option<Rises>; 2]>>,
    /// The same by executor.
    together: RefCell<Vec<[Together; 2]>>,
    /// Executor analyses done, and those answered from memory.
    pub work: Work,
}

/// Joint time that all callbacks of a shared core may take beyond their curves, in execution and
/// suspension: interrupts, page faults and cold caches hit any of them, but not all at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// So much at most,
    pub most_ns: u64,
    /// in any interval of this length; 0: never.
    pub window_ns: u64,
}

impl Disturbance {
    /// In an interval of this length at most. An excess over a curve is noticed when an activation
    /// ends, and may have happened from its start on. No activation takes longer than half a window
    /// ([`Analysis::share`] sees to it), so that what happens within half a window is noticed
    /// within one.
    #[must_use]
    pub fn within_ns(self, delta_ns: u64) -> u64 {
        match self.window_ns / 2 {
            0 => 0,
            half_ns => self.most_ns.saturating_mul(delta_ns.div_ceil(half_ns)),
        }
    }
}

/// Amount of computation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Analyses of an executor.
    pub executors: u64,
    /// Those answered from memory.
    pub remembered: u64,
    /// Rounds of the outer fixed point.
    pub rounds: u64,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            executors: self.executors + other.executors,
            remembered: self.remembered + other.remembered,
            rounds: self.rounds + other.rounds,
        }
    }
}

/// Response times under one choice of budgets.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Per callback; `None`: without bound, or not asked for.
    pub responses: Vec<Option<Bound>>,
    /// Per callback, busy-window-aware arrivals; `None`: without bound, or not asked for.
    pub arrivals: Vec<Option<Rc<Flows>>>,
    /// Executors without bound though all that arrives there is bounded: where more budget may
    /// help.
    pub diverged: Vec<usize>,
}

impl<'w> Analysis<'w> {
    /// For reservations of this period. Response times beyond `limit_ns` count as unbounded;
    /// `transport_ns` is allowed for every hop between executors.
    #[must_use]
    pub fn new(workload: &'w Workload, period_ns: u64, limit_ns: u64, transport_ns: u64) -> Self {
        let mut outputs = vec![Vec::new(); workload.callbacks.len()];
        for (number, callback) in workload.callbacks.iter().enumerate() {
            for (publisher, _) in &callback.inputs {
                outputs[*publisher].push(number);
            }
        }
        let (components, component) = components(workload);
        Self {
            workload,
            outputs,
            settled: components.iter().map(|_| HashMap::default()).collect(),
            begins: components.iter().map(|_| Begins::default()).collect(),
            results: 0,
            shared: vec![None; workload.executors.len()],
            shared_full: Vec::new(),
            joins_hops: false,
            sleeps: (0..workload.executors.len())
                .map(|server| sleeps_more_than_it_works(workload, server))
                .collect(),
            horizon_ns: limit_ns.saturating_mul(2),
            shared_cores: Vec::new(),
            ranks: vec![0; workload.executors.len()],
            busy: HashMap::default(),
            travels: None,
            components: components.into(),
            component,
            period_ns: period_ns.max(1),
            limit_ns,
            transport_ns,
            enforcement: Enforcement::default(),
            published: false,
            remembered: HashMap::default(),
            chains: HashMap::default(),
            alone: vec![None; workload.executors.len()],
            lines: vec![None; workload.executors.len()],
            scratch: Scratch::default(),
            disturbance: Disturbance::default(),
            placed: HashMap::default(),
            beside: vec![None; workload.executors.len()],
            rises: RefCell::new(vec![[None, None]; workload.callbacks.len()]),
            together: RefCell::new(vec![Default::default(); workload.executors.len()]),
            work: Work::default(),
        }
    }

    /// With budgets that are enforced so, instead of exactly.
    #[must_use]
    pub fn enforced(mut self, enforcement: Enforcement) -> Self {
        self.enforcement = enforcement;
        self
    }

    /// As *ROS-Llama* has it: by ECRTS'19 alone, with the supply of the periodic resource (Shin and
    /// Lee), and the publisher's bound as jitter of every activation, within an executor too.
    #[must_use]
    pub fn as_published(mut self) -> Self {
        self.published = true;
        self
    }

    /// With this on each core that [`Self::share`] is asked about.
    #[must_use]
    pub fn disturbed(mut self, disturbance: Disturbance) -> Self {
        self.disturbance = disturbance;
        self
    }

    /// With several hops of a chain bounded together on shared cores, or not.
    #[must_use]
    pub fn joining_hops(mut self, joins: bool) -> Self {
        self.joins_hops = joins;
        self
    }

    #[must_use]
    pub fn workload(&self) -> &'w Workload {
        self.workload
    }

    /// Response times beyond this count as unbounded.
    #[must_use]
    pub(crate) fn limit_ns(&self) -> u64 {
        self.limit_ns
    }

    /// Period of reservations.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Response times of the callbacks of `servers`, which must contain whatever influences them
    /// ([`Workload::influencing`]). `budgets_ns` has an entry for every executor, 0 for none.
    #[must_use]
    pub fn solve(&mut self, budgets_ns: &[u64], servers: &[usize]) -> Solution {
        let _spent = spent::on(Part::Timing);
        let mut wanted = vec![false; self.components.len()];
        for server in servers {
            wanted[self.component[*server]] = true;
        }
        let components = self.components.clone();
        let mut state = State::new(self.workload.callbacks.len());
        let mut ids = vec![u64::MAX; components.len()];
        let mut diverged = Vec::new();
        for (number, component) in components.iter().enumerate().filter(|(number, _)| wanted[*number]) {
            let key: Box<[u64]> = (component.servers.iter().map(|s| budgets_ns[*s]))
                .chain(component.upstream.iter().map(|c| ids[*c]))
                .collect();
            let settled = match self.settled[number].get(&key) {
                Some(settled) => {
                    self.work.remembered += component.servers.len() as u64;
                    state.put(component, settled);
                    settled.clone()
                }
                None => {
                    self.results += 1;
                    let influencing: Box<[u64]> =
                        component.influencing.iter().map(|server| budgets_ns[*server]).collect();
                    self.begins[number].put(component, &influencing, &mut state);
                    let settled = Rc::new(self.settle(component, budgets_ns, &mut state, self.results));
                    self.begins[number].add(influencing, &settled);
                    self.settled[number].insert(key, settled.clone());
                    settled
                }
            };
            ids[number] = settled.id as u64;
            diverged.extend(&settled.diverged);
        }
        Solution { responses: state.responses, arrivals: state.inside, diverged }
    }

    /// Response times of one executor's callbacks under these arrivals, as far as they are above
    /// these floors ([`Served::analyse`]).
    fn executor(
        &mut self,
        server: usize,
        budget_ns: u64,
        flows: &[Rc<Flows>],
        floors_ns: Vec<u64>,
    ) -> Bounds {
        let key = key(server, budget_ns, flows);
        if let Some(known) = self.remembered.get(&key).filter(|known| known.answers(&floors_ns)) {
            self.work.remembered += 1;
            return known.bounds.clone();
        }
        self.work.executors += 1;
        let served = self.served(server, flows);
        let mut scratch = std::mem::take(&mut self.scratch);
        let bounds = Rc::new(match self.supply(server, budget_ns) {
            Some(supply) => served.analyse(supply, &floors_ns, &mut scratch),
            None => vec![None; flows.len()],
        });
        self.scratch = scratch;
        self.remembered.insert(key, AboveFloors { floors_ns, bounds: bounds.clone() });
        bounds
    }

    /// Puts in what some callbacks take that one executor serves, if it has this budget and
    /// arrivals stay as they are. `None`: one of its callbacks is without bound.
    #[must_use]
    pub(crate) fn respond(
        &mut self,
        asked: &[bool],
        server: usize,
        budget_ns: u64,
        solution: &mut Solution,
    ) -> Option<()> {
        let _spent = spent::on(Part::Timing);
        let callbacks = &self.workload.executors[server].callbacks;
        let flows: Vec<Rc<Flows>> =
            callbacks.iter().map(|c| solution.arrivals[*c].clone()).collect::<Option<_>>()?;
        let floors_ns = callbacks.iter().map(|c| if asked[*c] { 0 } else { u64::MAX }).collect();
        let bounds = self.executor(server, budget_ns, &flows, floors_ns);
        for (callback, bound) in callbacks.iter().zip(bounds.iter()).filter(|(c, _)| asked[**c]) {
            solution.responses[*callback] = *bound;
        }
        bounds.iter().all(Option::is_some).then_some(())
    }

    /// An executor with these arrivals.
    fn served<'f>(&mut self, server: usize, flows: &'f [Rc<Flows>]) -> Served<'f>
    where
        'w: 'f,
    {
        let line = match self.lines[server].take() {
            Some((known, line)) if known == flows => line,
            old => {
                let old = old.and_then(|(_, line)| Rc::into_inner(line));
                Rc::new(time_line(self.workload, server, flows, old))
            }
        };
        self.lines[server] = Some((flows.to_vec(), line.clone()));
        Served::new(self.workload, server, flows, line).by_ecrts19(self.published)
    }

    fn supply(&self, server: usize, budget_ns: u64) -> Option<Supply<'_>> {
        let supply = match &self.shared[server] {
            None => {
                let supply = Supply::new(budget_ns, self.period_ns, self.enforcement, self.limit_ns)?;
                if self.published { supply.begun_at_any_moment() } else { supply }
            }
            beside => {
                let whole =
                    Supply::new(self.period_ns, self.period_ns, Enforcement::default(), self.limit_ns)?;
                whole.beside(beside.as_deref())
            }
        };
        Some(supply)
    }

    /// Bound on the latency of a path of callbacks, from the activation of the first to the
    /// completion of the last, and the analyses that gave it.
    #[must_use]
    pub fn latency(
        &mut self,
        path: &[usize],
        budgets_ns: &[u64],
        solution: &Solution,
    ) -> Option<(u64, Vec<Method>)> {
        let mut total: u64 = 0;
        let mut methods = Vec::new();
        for part in self.parts(path, budgets_ns, solution)? {
            total = total.saturating_add(part.ns());
            methods.extend(part.bounds.iter().map(|bound| bound.by));
        }
        methods.sort_unstable();
        methods.dedup();
        Some((total, methods))
    }

    /// The bounds that [`Self::latency`] adds up.
    #[must_use]
    pub fn parts<'p>(
        &mut self,
        path: &'p [usize],
        budgets_ns: &[u64],
        solution: &Solution,
    ) -> Option<Vec<PathPart<'p>>> {
        let _spent = spent::on(Part::Timing);
        let (mut parts, mut from) = (Vec::new(), 0);
        for callbacks in self.segments(path) {
            let mut bounds: Vec<Bound> =
                callbacks.iter().map(|callback| solution.responses[*callback]).collect::<Option<_>>()?;
            let sum = bounds.iter().map(|bound| bound.ns).fold(0, u64::saturating_add);
            let together =
                callbacks.iter().skip(1).all(|c| self.workload.callbacks[*c].allowed_own_delivery_ns() == 0);
            if callbacks.len() > 1
                && together
                && let Some(joint) = self.subchain(callbacks, budgets_ns, solution)
                && joint.ns < sum
            {
                bounds = vec![joint];
            }
            let to = from + callbacks.len();
            let way_ns = (from..to).fold(0, |sum: u64, k| sum.saturating_add(self.way_to(path, k)));
            from = to;
            if !self.shared_cores.is_empty() {
                bounds
                    .iter_mut()
                    .for_each(|bound| bound.parts.disturbed(self.disturbance.within_ns(bound.ns)));
            }
            parts.push(PathPart { callbacks, way_ns, bounds });
        }
        if self.joins_hops && !self.shared_cores.is_empty() {
            parts = self.joined(path, parts, solution);
        }
        Some(parts)
    }

    /// Allowance for messages to the callback at this place of a path: from the options for every
    /// hop, and from the observed time of the middleware. A chain that begins with a message begins
    /// with its publication.
    fn way_to(&self, path: &[usize], place: usize) -> u64 {
        let callback = &self.workload.callbacks[path[place]];
        let before = place.checked_sub(1).map(|before| self.workload.callbacks[path[before]].server);
        match before {
            None => callback.allowed_delivery_ns(),
            Some(server) if server == callback.server => callback.allowed_own_delivery_ns(),
            Some(_) => self.transport_ns.saturating_add(callback.allowed_delivery_ns()),
        }
    }

    /// The path cut where it goes from one executor to another.
    fn segments<'p>(&self, path: &'p [usize]) -> impl Iterator<Item = &'p [usize]> + use<'p, 'w> {
        let callbacks = &self.workload.callbacks;
        path.chunk_by(|a, b| callbacks[*a].server == callbacks[*b].server)
    }

    /// Bound of consecutive callbacks of one executor together.
    fn subchain(&mut self, subchain: &[usize], budgets_ns: &[u64], solution: &Solution) -> Option<Bound> {
        let server = self.workload.callbacks[*subchain.first()?].server;
        let callbacks = &self.workload.executors[server].callbacks;
        let flows: Vec<Rc<Flows>> =
            callbacks.iter().map(|c| solution.arrivals[*c].clone()).collect::<Option<_>>()?;
        let bounds: Vec<u64> =
            subchain.iter().map(|c| solution.responses[*c].map(|b| b.ns)).collect::<Option<_>>()?;
        let key = ChainKey {
            executor: key(server, budgets_ns[server], &flows),
            subchain: subchain.to_vec(),
            bounds: bounds.clone(),
        };
        if let Some(bound) = self.chains.get(&key) {
            self.work.remembered += 1;
            return *bound;
        }
        self.work.executors += 1;
        let bound = if self.published {
            self.published_subchain(server, budgets_ns[server], &flows, subchain)
        } else {
            let served = self.served(server, &flows);
            let supply = self.supply(server, budgets_ns[server]);
            supply.and_then(|supply| served.subchain(supply, subchain, &bounds))
        };
        self.chains.insert(key, bound);
        bound
    }

    /// ECRTS'19, Lemma 8, where each callback is activated by the one before it alone: as often as
    /// the first, whose arrivals they all have.
    fn published_subchain(
        &self,
        server: usize,
        budget_ns: u64,
        flows: &[Rc<Flows>],
        subchain: &[usize],
    ) -> Option<Bound> {
        let callbacks = &self.workload.callbacks;
        let follows = |pair: &[usize]| {
            let next = &callbacks[pair[1]];
            let once = |(from, counts): &(usize, _)| {
                let counts: &std::sync::Arc<crate::curves::Counts> = counts;
                *from == pair[0] && counts.entries() == [1]
            };
            next.root.is_none() && next.inputs.len() == 1 && next.inputs.iter().all(once)
        };
        if !subchain.windows(2).all(follows) {
            return None;
        }
        let place =
            |callback: &usize| self.workload.executors[server].callbacks.iter().position(|c| c == callback);
        let mut flows = flows.to_vec();
        let of_head = flows.get(place(subchain.first()?)?)?.clone();
        for member in subchain {
            flows[place(member)?] = of_head.clone();
        }
        let line = Rc::new(time_line(self.workload, server, &flows, None));
        let served = Served::new(self.workload, server, &flows, line).by_ecrts19(true);
        served.subchain(self.supply(server, budget_ns)?, subchain, &vec![0; subchain.len()])
    }

    /// By how much response times of an executor's callbacks would shrink in sum if it had a core
    /// of its own (budget-shortage delay, Algorithm 2, line 4); `None`: without bound.
    #[must_use]
    pub(crate) fn shortage(&mut self, server: usize, solution: &Solution) -> Option<u64> {
        let _spent = spent::on(Part::Timing);
        let callbacks = &self.workload.executors[server].callbacks;
        let known = self.alone[server].as_ref().filter(|(flows, _)| {
            callbacks.iter().zip(flows).all(|(c, flows)| solution.arrivals[*c].as_ref() == Some(flows))
        });
        let alone = match known {
            Some((_, bounds)) => bounds.clone(),
            None => {
                let flows: Vec<Rc<Flows>> =
                    callbacks.iter().map(|c| solution.arrivals[*c].clone()).collect::<Option<_>>()?;
                let bounds = self.executor(server, self.period_ns, &flows, vec![0; flows.len()]);
                self.alone[server] = Some((flows, bounds.clone()));
                bounds
            }
        };
        let mut sum: u64 = 0;
        for (callback, least) in self.workload.executors[server].callbacks.iter().zip(alone.iter()) {
            let (now, least) = (solution.responses[*callback]?, (*least)?);
            sum = sum.saturating_add(now.ns.saturating_sub(least.ns));
        }
        Some(sum)
    }

    /// Demand of one executor in any interval of this length; `None`: without bound.
    #[must_use]
    pub(crate) fn demand_ns(&self, server: usize, delta_ns: u64, solution: &Solution) -> Option<u64> {
        self.demand_or_ns(server, delta_ns, solution, solution)
    }

    /// The same; callbacks whose arrivals have no bound there count with those of another solution.
    #[must_use]
    pub(crate) fn demand_or_ns(
        &self,
        server: usize,
        delta_ns: u64,
        solution: &Solution,
        otherwise: &Solution,
    ) -> Option<u64> {
        let _spent = spent::on(Part::Timing);
        let mut sum: u64 = 0;
        for callback in &self.workload.executors[server].callbacks {
            let flows = solution.arrivals[*callback].as_ref().or(otherwise.arrivals[*callback].as_ref())?;
            sum = sum.saturating_add(self.workload.callbacks[*callback].cost.of(flows.count(delta_ns)));
        }
        Some(sum)
    }
}

fn key(server: usize, budget_ns: u64, flows: &[Rc<Flows>]) -> Key {
    let mut key = vec![server as u64, budget_ns];
    for flows in flows {
        // The length separates callbacks.
        key.push(flows.flows().len() as u64);
        for flow in flows.flows() {
            key.extend([flow.root as u64, flow.jitter_ns, flow.counts.entries().len() as u64]);
            key.extend(flow.counts.entries());
        }
    }
    key.into()
}
