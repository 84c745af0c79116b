//! One executor under one budget and given arrivals: where the crate's analyses are asked.

use std::rc::Rc;

use response_time_analysis::demand::{Aggregate, RequestBound};
use response_time_analysis::fixed_point::{self, SearchResult};
use response_time_analysis::ros2::rr::CallbackType;
use response_time_analysis::ros2::{bw, rta_event_source, rta_polling_point_callback, rta_processing_chain};
use response_time_analysis::supply::Periodic;
use response_time_analysis::time::{Duration, Service};

use super::counted::{Arrivals, Demand};
use super::{Bound, Method};
use crate::curves::{Cost, Flows};
use crate::workload::Workload;

/// Busy windows of more activations are not analysed: far more than a robot's busiest executor has within its goals, and still a matter
/// of milliseconds.
const MOST_ACTIVATIONS: u64 = 5_000;

/// Times the RTSS'21 bound is put in where a bound goes in. Two or three suffice in practice, and every one is safe.
const REFINEMENTS: usize = 8;

/// A reservation for an executor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supplied {
    supply: Periodic,
    limit: Duration,
}

impl Supplied {
    /// `None`: too little to be of use.
    pub fn new(budget_ns: u64, period_ns: u64, limit_ns: u64) -> Option<Self> {
        // Below a ten-thousandth of the period nothing useful is supplied, and products of times could overflow.
        let budget = budget_ns.min(period_ns);
        (budget > 0 && budget >= period_ns / 10_000).then(|| Self {
            supply: Periodic::new(Service::from(budget), Duration::from(period_ns)),
            limit: Duration::from(limit_ns),
        })
    }
}

/// An executor's callbacks with their arrivals, which are in its order.
pub(super) struct Served<'a> {
    workload: &'a Workload,
    server: usize,
    arrivals: Vec<(usize, Arrivals<'a>)>,
}

type Analysed<'a> = bw::Callback<'a, 'a, Arrivals<'a>, Cost>;

impl<'a> Served<'a> {
    pub fn new(workload: &'a Workload, server: usize, flows: &'a [Rc<Flows>]) -> Self {
        let arrivals = workload.executors[server]
            .callbacks
            .iter()
            .zip(flows)
            .filter(|(_, flows)| !flows.never())
            .map(|(callback, flows)| (*callback, Arrivals::new(flows)))
            .collect();
        Self { workload, server, arrivals }
    }

    /// Without what is never activated.
    fn demands(&'a self) -> Vec<Demand<'a>> {
        self.arrivals
            .iter()
            .map(|(callback, arrivals)| Demand { arrivals, cost: &self.workload.callbacks[*callback].cost })
            .collect()
    }

    fn position(&self, callback: usize) -> Option<usize> {
        self.arrivals.iter().position(|(number, _)| *number == callback)
    }

    /// Response times of all callbacks.
    pub fn analyse(&self, on: Supplied) -> Vec<Option<Bound>> {
        let executor = &self.workload.executors[self.server];
        let demands = self.demands();
        // The longest busy window first: without one no callback has a bound, and in one of very many activations every search
        // for the worst of them would take for ever.
        let all = Aggregate::new(demands.clone());
        let window = fixed_point::search(&on.supply, on.limit, |delta| all.service_needed(delta));
        let activations = |ns: u64| demands.iter().map(|d| d.arrivals.count(ns)).fold(0, u64::saturating_add);
        if !window.is_ok_and(|w| activations(u64::from(w).saturating_add(1)) <= MOST_ACTIVATIONS) {
            return vec![None; executor.callbacks.len()];
        }
        executor
            .callbacks
            .iter()
            .map(|callback| {
                let Some(own) = self.position(*callback) else {
                    // Never activated: nothing to wait for.
                    return Some(Bound { ns: 0, by: Method::Ecrts19 });
                };
                if executor.alone {
                    let bound = rta_event_source(&on.supply, &demands[own], on.limit);
                    return found(bound, Method::Ecrts19);
                }
                let mut others = demands.clone();
                others.remove(own);
                let others = Aggregate::new(others);
                let first = rta_polling_point_callback(&on.supply, &demands[own], &others, on.limit);
                let first = found(first, Method::Ecrts19)?;
                Some(self.refine(on, &demands, own, first))
            })
            .collect()
    }

    /// RTSS'21 takes a safe bound and returns a safe bound: put in the better of both until nothing is gained.
    fn refine(&self, on: Supplied, demands: &[Demand<'a>], own: usize, first: Bound) -> Bound {
        let mut best = first;
        let mut polled = None;
        for _ in 0..REFINEMENTS {
            // The bound matters only through the number of polling points.
            let points = demands[own].arrivals.count(best.ns);
            if polled.replace(points) == Some(points) {
                break;
            }
            let callbacks = self.callbacks(demands, own, |_| best.ns);
            let bound = bw::rta_subchain(&on.supply, &callbacks, &[&callbacks[own]], on.limit);
            match found(bound, Method::Rtss21Bw) {
                Some(bound) if bound.ns < best.ns => best = bound,
                _ => break,
            }
        }
        best
    }

    /// The crate's callbacks, seen from the one under analysis.
    fn callbacks(
        &self,
        demands: &[Demand<'a>],
        own: usize,
        bound_ns: impl Fn(usize) -> u64,
    ) -> Vec<Analysed<'a>> {
        let timer = |i: usize| self.workload.callbacks[self.arrivals[i].0].timer;
        demands
            .iter()
            .enumerate()
            .map(|(i, demand)| {
                let kind = if i == own {
                    CallbackType::Polled(1)
                } else if timer(i) {
                    CallbackType::Timer
                } else if timer(own) {
                    CallbackType::Polled(2)
                } else {
                    CallbackType::PolledUnknownPrio
                };
                bw::Callback::new(Duration::from(bound_ns(i)), demand.arrivals, demand.cost, kind)
            })
            .collect()
    }

    /// Bound of consecutive callbacks together, whose own bounds are these.
    pub fn subchain(&self, on: Supplied, subchain: &[usize], bounds: &[u64]) -> Option<Bound> {
        let demands = self.demands();
        let members: Vec<usize> = subchain.iter().map(|c| self.position(*c)).collect::<Option<_>>()?;
        let &last = members.last()?;
        let callbacks = self.callbacks(&demands, last, |i| {
            members.iter().position(|m| *m == i).map_or(0, |position| bounds[position])
        });
        let parts: Vec<&Analysed<'_>> = members.iter().map(|m| &callbacks[*m]).collect();
        let newer = found(bw::rta_subchain(&on.supply, &callbacks, &parts, on.limit), Method::Rtss21Bw);
        // ECRTS'19 knows a chain by the arrivals of its head alone, so no member may have others.
        let head = demands[members[0]].arrivals.flows();
        let older = members.iter().all(|m| demands[*m].arrivals.flows() == head).then(|| {
            let of = |wanted: &dyn Fn(&usize) -> bool| {
                Aggregate::new((0..demands.len()).filter(|i| wanted(i)).map(|i| demands[i]).collect())
            };
            let bound = rta_processing_chain(
                &on.supply,
                &demands[last],
                &of(&|i| members.contains(i) && *i != last),
                &of(&|i| members.contains(i)),
                &of(&|i| !members.contains(i)),
                on.limit,
            );
            found(bound, Method::Ecrts19)
        });
        [newer, older.flatten()].into_iter().flatten().min_by_key(|b| b.ns)
    }
}

fn found(result: SearchResult, by: Method) -> Option<Bound> {
    // Both failures mean the same to us: no bound below the limit.
    result.ok().map(|bound| Bound { ns: bound.into(), by })
}
