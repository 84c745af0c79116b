//! Response-time bounds of all callbacks under given budgets, and latency bounds of chains.
//!
//! The analyses themselves are those of the crate `response-time-analysis`: ECRTS'19 (Casini and others) and RTSS'21
//! (Blass and others, busy-window-aware). Here is what they leave to the caller: arrivals propagated over the graph, the fixed point
//! over all executors, and the sum along a chain.
//!
//! - **Arrivals** of a callback are sums of root arrivals, each with the response-time bounds gathered on the way as
//!   jitter. Within an executor an activation adds no jitter: at the start of a busy window nothing
//!   is pending there, so whatever is activated inside descends from what arrived inside (RTSS'21, definition 4).
//! - **The fixed point** is reached from below: all bounds start at nothing and grow until none changes. What exceeds the limit
//!   has no bound, nor has anything downstream.
//! - **Timers** are analysed as polled callbacks of the highest priority. ECRTS'19 lets a timer run after at most one other
//!   callback, as the executors of its day did; since then they take timers from the ready set as everything
//!   else, so a timer waits for a whole round. As interference, timers count without limit, which covers both.
//! - **Priorities** other than those of timers are taken as unknown: the order of registration is lost in hash tables of newer
//!   executors.

use std::collections::HashMap;
use std::rc::Rc;

use response_time_analysis::demand::{Aggregate, RequestBound};
use response_time_analysis::fixed_point::{self, SearchResult};
use response_time_analysis::ros2::rr::CallbackType;
use response_time_analysis::ros2::{bw, rta_event_source, rta_polling_point_callback, rta_processing_chain};
use response_time_analysis::supply::Periodic;
use response_time_analysis::time::{Duration, Service};

use crate::curves::{Demand, Flows};
use crate::workload::Workload;

/// Bounds of fixed points are looked for in at most so many rounds; a system that has not settled then is taken as unbounded.
const ROUNDS: usize = 500;

/// Busy windows of more activations are not analysed: far more than a robot's busiest executor has within its goals, and still a matter
/// of milliseconds.
const MOST_ACTIVATIONS: u64 = 5_000;

/// Times the RTSS'21 bound is put in where a bound goes in. Two or three suffice in practice, and every one is safe.
const REFINEMENTS: usize = 8;

/// Which analysis gave a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Casini and others, ECRTS 2019.
    Ecrts19,
    /// Blass and others, RTSS 2021, busy-window-aware.
    Rtss21Bw,
}

impl Method {
    /// As in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecrts19 => "ecrts19",
            Self::Rtss21Bw => "rtss21-bw",
        }
    }
}

/// A bound and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The bound.
    pub ns: u64,
    /// The analysis.
    pub by: Method,
}

/// Bounds of one executor's callbacks, in its order; `None`: without bound.
type Bounds = Rc<Vec<Option<Bound>>>;

/// What one executor's analysis depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    server: usize,
    budget_ns: u64,
    /// Per callback root, jitter and multiplicity of every flow.
    flows: Vec<Vec<(usize, u64, u64)>>,
}

/// What a subchain's analysis depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ChainKey {
    executor: Key,
    subchain: Vec<usize>,
    bounds: Vec<u64>,
}

/// Analyses of one workload, remembered: an executor whose budget and arrivals are unchanged is not analysed again.
#[derive(Debug)]
pub struct Analysis<'w> {
    workload: &'w Workload,
    /// For every callback those that it activates.
    outputs: Vec<Vec<usize>>,
    period_ns: u64,
    limit_ns: u64,
    transport_ns: u64,
    remembered: HashMap<Key, Bounds>,
    chains: HashMap<ChainKey, Option<Bound>>,
    /// Last arrivals and bounds of each executor with a core of its own.
    alone: Vec<Option<(Vec<Flows>, Bounds)>>,
    /// Executor analyses done, and those answered from memory.
    pub work: Work,
}

/// Arrivals on the way to the fixed point.
struct Graph {
    /// Busy-window-aware: as seen inside a busy window of the executor.
    inside: Vec<Option<Flows>>,
    /// In any interval.
    full: Vec<Option<Flows>>,
    /// Callbacks whose arrivals must be renewed.
    dirty: Vec<bool>,
    /// Executors that must be analysed again.
    touched: Vec<bool>,
}

/// How much was computed.
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
    pub arrivals: Vec<Option<Flows>>,
    /// Executors without bound though all that arrives there is bounded: where more budget may help.
    pub diverged: Vec<usize>,
}

impl<'w> Analysis<'w> {
    /// For reservations of this period. Response times beyond `limit_ns` count as unbounded; `transport_ns` is allowed for every hop
    /// between executors.
    #[must_use]
    pub fn new(workload: &'w Workload, period_ns: u64, limit_ns: u64, transport_ns: u64) -> Self {
        let mut outputs = vec![Vec::new(); workload.callbacks.len()];
        for (number, callback) in workload.callbacks.iter().enumerate() {
            for (publisher, _) in &callback.inputs {
                outputs[*publisher].push(number);
            }
        }
        Self {
            workload,
            outputs,
            period_ns: period_ns.max(1),
            limit_ns,
            transport_ns,
            remembered: HashMap::new(),
            chains: HashMap::new(),
            alone: vec![None; workload.executors.len()],
            work: Work::default(),
        }
    }

    /// The workload.
    #[must_use]
    pub fn workload(&self) -> &'w Workload {
        self.workload
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
        let count = self.workload.callbacks.len();
        let mut responses: Vec<Option<Bound>> = vec![None; count];
        let mut asked = vec![false; count];
        for server in servers {
            for callback in &self.workload.executors[*server].callbacks {
                asked[*callback] = true;
                responses[*callback] = Some(Bound { ns: 0, by: Method::Ecrts19 });
            }
        }
        let mut graph = Graph {
            inside: vec![None; count],
            full: vec![None; count],
            dirty: asked.clone(),
            touched: vec![false; self.workload.executors.len()],
        };
        for server in servers {
            graph.touched[*server] = true;
        }
        let mut diverged = Vec::new();
        for round in 0.. {
            self.propagate(&mut graph, &responses, &asked);
            self.work.rounds += 1;
            let mut changed = false;
            for &server in servers {
                if !std::mem::take(&mut graph.touched[server]) {
                    continue;
                }
                let callbacks = &self.workload.executors[server].callbacks;
                let flows: Option<Vec<Flows>> = callbacks.iter().map(|c| graph.inside[*c].clone()).collect();
                let bounds = match &flows {
                    Some(flows) if round < ROUNDS => self.executor(server, budgets_ns[server], flows),
                    _ => Rc::new(vec![None; callbacks.len()]),
                };
                if flows.is_some() && bounds.iter().any(Option::is_none) && !diverged.contains(&server) {
                    diverged.push(server);
                }
                for (callback, new) in callbacks.iter().zip(bounds.iter()) {
                    let old = responses[*callback];
                    // From below: a bound never shrinks, although a tighter analysis may win in a later round.
                    responses[*callback] = match (old, *new) {
                        (Some(old), Some(new)) if new.ns >= old.ns => Some(new),
                        (Some(old), Some(_)) => Some(old),
                        _ => None,
                    };
                    if responses[*callback].map(|b| b.ns) != old.map(|b| b.ns) {
                        changed = true;
                        for output in &self.outputs[*callback] {
                            graph.dirty[*output] = asked[*output];
                        }
                    }
                }
            }
            if !changed {
                return Solution { responses, arrivals: graph.inside, diverged };
            }
        }
        unreachable!("rounds end when all that changed has become unbounded")
    }

    /// Renews the arrivals of all dirty callbacks and of what they lead to.
    fn propagate(&self, graph: &mut Graph, responses: &[Option<Bound>], asked: &[bool]) {
        for &number in &self.workload.order {
            if !std::mem::take(&mut graph.dirty[number]) {
                continue;
            }
            let (inside, full) = self.arrivals(graph, responses, number).unzip();
            if full != graph.full[number] || inside != graph.inside[number] {
                graph.touched[self.workload.callbacks[number].server] = true;
                for output in &self.outputs[number] {
                    graph.dirty[*output] = asked[*output];
                }
                graph.full[number] = full;
                graph.inside[number] = inside;
            }
        }
    }

    /// Arrivals of a callback, busy-window-aware and full; `None`: without bound.
    fn arrivals(&self, graph: &Graph, responses: &[Option<Bound>], number: usize) -> Option<(Flows, Flows)> {
        let callbacks = &self.workload.callbacks;
        let callback = &callbacks[number];
        let root = match &callback.root {
            Some(spans) => Flows::root(number, spans.clone()),
            // Neither root nor inputs: its curve bounds nothing.
            None if callback.inputs.is_empty() => return None,
            None => Flows::none(),
        };
        let (mut inside, mut full) = (root.clone(), root);
        for (publisher, times) in &callback.inputs {
            let same = callbacks[*publisher].server == callback.server;
            let from = graph.full[*publisher].as_ref()?;
            let delay = responses[*publisher]?.ns + if same { 0 } else { self.transport_ns };
            full.add(from, delay, *times);
            match (&graph.inside[*publisher], same) {
                (Some(within), true) => inside.add(within, 0, *times),
                _ => inside.add(from, delay, *times),
            }
        }
        Some((inside, full))
    }

    /// Response times of one executor's callbacks under these arrivals.
    fn executor(&mut self, server: usize, budget_ns: u64, flows: &[Flows]) -> Bounds {
        let key = key(server, budget_ns, flows);
        if let Some(bounds) = self.remembered.get(&key) {
            self.work.remembered += 1;
            return bounds.clone();
        }
        self.work.executors += 1;
        let bounds = Rc::new(self.analyse(server, budget_ns, flows));
        self.remembered.insert(key, bounds.clone());
        bounds
    }

    fn supply(&self, budget_ns: u64) -> Option<Periodic> {
        // Below a ten-thousandth of the period nothing useful is supplied, and products of times could overflow.
        let budget = budget_ns.min(self.period_ns);
        (budget > 0 && budget >= self.period_ns / 10_000)
            .then(|| Periodic::new(Service::from(budget), Duration::from(self.period_ns)))
    }

    fn demands<'a>(&self, server: usize, flows: &'a [Flows]) -> Vec<(usize, Demand<'a>)>
    where
        'w: 'a,
    {
        let callbacks = &self.workload.executors[server].callbacks;
        callbacks
            .iter()
            .zip(flows)
            .map(|(c, flows)| (*c, Demand { flows, cost: &self.workload.callbacks[*c].cost }))
            .filter(|(_, demand)| !demand.flows.never())
            .collect()
    }

    fn analyse(&self, server: usize, budget_ns: u64, flows: &[Flows]) -> Vec<Option<Bound>> {
        let executor = &self.workload.executors[server];
        let limit = Duration::from(self.limit_ns);
        let Some(supply) = self.supply(budget_ns) else { return vec![None; flows.len()] };
        let demands = self.demands(server, flows);
        // The longest busy window first: without one no callback has a bound, and in one of very many activations every search
        // for the worst of them would take for ever.
        let every: Vec<Demand<'_>> = demands.iter().map(|d| d.1).collect();
        let all = Aggregate::new(every.clone());
        let window = fixed_point::search(&supply, limit, |delta| all.service_needed(delta));
        let activations = |ns: u64| every.iter().map(|d| d.flows.count(ns)).fold(0, u64::saturating_add);
        if !window.is_ok_and(|w| activations(u64::from(w).saturating_add(1)) <= MOST_ACTIVATIONS) {
            return vec![None; flows.len()];
        }
        executor
            .callbacks
            .iter()
            .map(|callback| {
                let Some(own) = demands.iter().position(|(c, _)| c == callback) else {
                    // Never activated: nothing to wait for.
                    return Some(Bound { ns: 0, by: Method::Ecrts19 });
                };
                if executor.alone {
                    let bound = rta_event_source(&supply, &demands[own].1, limit);
                    return found(bound, Method::Ecrts19);
                }
                let others: Vec<Demand<'_>> =
                    demands.iter().enumerate().filter(|(i, _)| *i != own).map(|(_, d)| d.1).collect();
                let first =
                    rta_polling_point_callback(&supply, &demands[own].1, &Aggregate::new(others), limit);
                let first = found(first, Method::Ecrts19)?;
                Some(self.refine(&supply, &demands, own, first, limit))
            })
            .collect()
    }

    /// RTSS'21 takes a safe bound and returns a safe bound: put in the better of both until nothing is gained.
    fn refine(
        &self,
        supply: &Periodic,
        demands: &[(usize, Demand<'_>)],
        own: usize,
        first: Bound,
        limit: Duration,
    ) -> Bound {
        let mut best = first;
        let mut polled = None;
        for _ in 0..REFINEMENTS {
            // The bound matters only through the number of polling points.
            let points = demands[own].1.flows.count(best.ns);
            if polled.replace(points) == Some(points) {
                break;
            }
            let callbacks = self.callbacks(demands, own, |_| best.ns);
            let bound = bw::rta_subchain(supply, &callbacks, &[&callbacks[own]], limit);
            match found(bound, Method::Rtss21Bw) {
                Some(bound) if bound.ns < best.ns => best = bound,
                _ => break,
            }
        }
        best
    }

    /// The crate's callbacks, seen from the one under analysis.
    fn callbacks<'a>(
        &self,
        demands: &'a [(usize, Demand<'a>)],
        own: usize,
        bound_ns: impl Fn(usize) -> u64,
    ) -> Vec<bw::Callback<'a, 'a, Flows, crate::curves::Cost>> {
        let timer = |i: usize| self.workload.callbacks[demands[i].0].timer;
        demands
            .iter()
            .enumerate()
            .map(|(i, (_, demand))| {
                let kind = if i == own {
                    CallbackType::Polled(1)
                } else if timer(i) {
                    CallbackType::Timer
                } else if timer(own) {
                    CallbackType::Polled(2)
                } else {
                    CallbackType::PolledUnknownPrio
                };
                bw::Callback::new(Duration::from(bound_ns(i)), demand.flows, demand.cost, kind)
            })
            .collect()
    }

    /// Bound on the latency of a path of callbacks, from the activation of the first to the completion of the last, and
    /// the analyses that gave it.
    #[must_use]
    pub fn latency(
        &mut self,
        path: &[usize],
        budgets_ns: &[u64],
        solution: &Solution,
    ) -> Option<(u64, Vec<Method>)> {
        let mut total: u64 = 0;
        let mut methods = Vec::new();
        for (number, segment) in self.segments(path).enumerate() {
            let mut sum: u64 = 0;
            let mut by = Vec::new();
            for callback in segment {
                let bound = solution.responses[*callback]?;
                sum = sum.saturating_add(bound.ns);
                by.push(bound.by);
            }
            if segment.len() > 1
                && let Some(joint) = self.subchain(segment, budgets_ns, solution)
                && joint.ns < sum
            {
                sum = joint.ns;
                by = vec![joint.by];
            }
            total = total.saturating_add(sum).saturating_add(if number > 0 { self.transport_ns } else { 0 });
            methods.extend(by);
        }
        methods.sort_unstable();
        methods.dedup();
        Some((total, methods))
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
        let flows: Vec<Flows> =
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
        let bound = self.analyse_subchain(server, budgets_ns[server], subchain, &flows, &bounds);
        self.chains.insert(key, bound);
        bound
    }

    fn analyse_subchain(
        &self,
        server: usize,
        budget_ns: u64,
        subchain: &[usize],
        flows: &[Flows],
        bounds: &[u64],
    ) -> Option<Bound> {
        let limit = Duration::from(self.limit_ns);
        let supply = self.supply(budget_ns)?;
        let demands = self.demands(server, flows);
        let members: Vec<usize> = subchain
            .iter()
            .map(|c| demands.iter().position(|(number, _)| number == c))
            .collect::<Option<_>>()?;
        let &last = members.last()?;
        let callbacks = self.callbacks(&demands, last, |i| {
            members.iter().position(|m| *m == i).map_or(0, |position| bounds[position])
        });
        let parts: Vec<&bw::Callback<'_, '_, Flows, crate::curves::Cost>> =
            members.iter().map(|m| &callbacks[*m]).collect();
        let newer = found(bw::rta_subchain(&supply, &callbacks, &parts, limit), Method::Rtss21Bw);
        // ECRTS'19 knows a chain by the arrivals of its head alone, so no member may have others.
        let head = demands[members[0]].1.flows;
        let older = members.iter().all(|m| demands[*m].1.flows == head).then(|| {
            let of = |wanted: &dyn Fn(&usize) -> bool| {
                Aggregate::new((0..demands.len()).filter(|i| wanted(i)).map(|i| demands[i].1).collect())
            };
            let bound = rta_processing_chain(
                &supply,
                &demands[last].1,
                &of(&|i| members.contains(i) && *i != last),
                &of(&|i| members.contains(i)),
                &of(&|i| !members.contains(i)),
                limit,
            );
            found(bound, Method::Ecrts19)
        });
        [newer, older.flatten()].into_iter().flatten().min_by_key(|b| b.ns)
    }

    /// By how much response times of an executor's callbacks would shrink in sum if it had a core of its own (budget-shortage delay,
    /// Algorithm 2, line 4); `None`: without bound.
    #[must_use]
    pub fn shortage(&mut self, server: usize, solution: &Solution) -> Option<u64> {
        let callbacks = &self.workload.executors[server].callbacks;
        let known = self.alone[server].as_ref().filter(|(flows, _)| {
            callbacks.iter().zip(flows).all(|(c, flows)| solution.arrivals[*c].as_ref() == Some(flows))
        });
        let alone = match known {
            Some((_, bounds)) => bounds.clone(),
            None => {
                let flows: Vec<Flows> =
                    callbacks.iter().map(|c| solution.arrivals[*c].clone()).collect::<Option<_>>()?;
                let bounds = self.executor(server, self.period_ns, &flows);
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
    pub fn demand_ns(&self, server: usize, delta_ns: u64, solution: &Solution) -> Option<u64> {
        let mut sum: u64 = 0;
        for callback in &self.workload.executors[server].callbacks {
            let flows = solution.arrivals[*callback].as_ref()?;
            let demand = Demand { flows, cost: &self.workload.callbacks[*callback].cost };
            sum = sum.saturating_add(demand.within_ns(delta_ns));
        }
        Some(sum)
    }
}

fn key(server: usize, budget_ns: u64, flows: &[Flows]) -> Key {
    let flows =
        flows.iter().map(|f| f.flows().iter().map(|f| (f.root, f.jitter_ns, f.times)).collect()).collect();
    Key { server, budget_ns, flows }
}

fn found(result: SearchResult, by: Method) -> Option<Bound> {
    // Both failures mean the same to us: no bound below the limit.
    result.ok().map(|bound| Bound { ns: bound.into(), by })
}
