//! The present plan beside a new one: whether it stays, and on which cores its budgets do.

use std::collections::HashMap;
use std::sync::Arc;

use takt_model::Model;

use super::{Attempt, Manager, SHRINKS, bounds, unchanged};
use crate::budget::{Limits, Request};
use crate::curves::Cost;
use crate::degrade;
use crate::partition::{Slots, keeps};
use crate::plan::{Plan, Reservation};
use crate::workload::Workload;

/// Budgets of a former plan on today's executors.
#[derive(Debug)]
pub(super) struct Held {
    pub period_ns: u64,
    pub budgets_ns: Vec<u64>,
    /// The period of each executor, 0: it has none. On shared cores they may differ.
    pub periods_ns: Vec<u64>,
    /// Cores of the reservations ([`Slots`]), by their number on the machine.
    pub cores: Vec<usize>,
    /// Nothing that had a budget has gone.
    pub complete: bool,
}

impl Held {
    /// All have [`Self::period_ns`].
    pub(crate) fn is_uniform(&self) -> bool {
        self.periods_ns.iter().all(|period_ns| *period_ns == 0 || *period_ns == self.period_ns)
    }
}

impl Manager {
    /// Looks at the present budgets under today's model, and whether they stay.
    pub(super) fn weigh(
        &self,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        held: &Held,
        fresh: &Attempt,
        shrinks: &mut u32,
    ) -> (Attempt, bool) {
        let mut analysis = self.analysis(workload, held.period_ns);
        let bounds = bounds(&mut analysis, requests, &held.budgets_ns);
        let order = &self.goals.degradation_order;
        let kept: Vec<bool> = bounds
            .iter()
            .enumerate()
            .map(|(index, bound)| bound.as_ref().is_some_and(|b| b.ns <= self.goal_limit_ns(index)))
            .collect();
        let ordering = degrade::better(&fresh.kept(), &kept, order);
        let share = |budgets: &[u64], period_ns: u64| budgets.iter().sum::<u64>() as f64 / period_ns as f64;
        let (old, new) = (share(&held.budgets_ns, held.period_ns), share(&fresh.budgets_ns, fresh.period_ns));
        if fresh.complete && ordering.is_eq() && new <= old * 0.8 {
            *shrinks = self.present.as_ref().map_or(0, |p| p.shrinks) + 1;
        }
        let stays = held.complete
            && held.is_uniform()
            && self.fits(&self.slots(workload), held, &self.limits(held.period_ns))
            && ordering.is_le()
            && *shrinks < SHRINKS;
        let decision = unchanged(if *shrinks > 0 {
            "the same goals are met with smaller budgets; they are reduced if that lasts"
        } else {
            "no other plan meets more goals"
        });
        let attempt = Attempt {
            period_ns: held.period_ns,
            budgets_ns: held.budgets_ns.clone(),
            fates: fresh.fates.clone(),
            bounds,
            decisions: vec![decision],
            held: true,
            complete: true,
            work: fresh.work + analysis.work,
            shared: None,
        };
        (attempt, stays)
    }

    /// Cores of all reservations: where they were as far as possible, since moving a thread costs
    /// its caches.
    pub(super) fn places(
        &self,
        slots: &Slots,
        of_executors_ns: &[u64],
        held: Option<&Held>,
        limits: &Limits,
    ) -> Vec<usize> {
        let index = |core: usize| self.platform.cores.iter().position(|c| *c == core);
        let budgets_ns = &slots.budgets(of_executors_ns)[..];
        if let Some(held) = held {
            let held_ns = slots.budgets(&held.budgets_ns);
            let mut used = vec![0_u64; limits.capacities_ns.len()];
            let mut places: Vec<Option<usize>> = vec![None; budgets_ns.len()];
            for (slot, core) in held.cores.iter().enumerate().take(budgets_ns.len()) {
                if held_ns[slot] > 0
                    && budgets_ns[slot] > 0
                    && let Some(core) = index(*core)
                {
                    used[core] += budgets_ns[slot];
                    places[slot] = Some(core);
                }
            }
            let mut rest: Vec<usize> =
                (0..budgets_ns.len()).filter(|e| budgets_ns[*e] > 0 && places[*e].is_none()).collect();
            rest.sort_by_key(|e| (std::cmp::Reverse(budgets_ns[*e]), *e));
            for slot in rest {
                let emptiest = crate::partition::emptiest(&used, &limits.capacities_ns).unwrap_or(0);
                if let Some(sum) = used.get_mut(emptiest) {
                    *sum += budgets_ns[slot];
                }
                places[slot] = Some(emptiest);
            }
            let places: Vec<usize> = places.into_iter().map(|p| p.unwrap_or(0)).collect();
            if keeps(budgets_ns, &places, &limits.capacities_ns)
                && slots.few(budgets_ns, &places, limits.capacities_ns.len())
            {
                return places.into_iter().map(|p| self.platform.cores[p]).collect();
            }
        }
        // The search accepted nothing without a partitioning.
        let places = slots
            .partition(of_executors_ns, &limits.capacities_ns)
            .unwrap_or_else(|| vec![0; budgets_ns.len()]);
        places.into_iter().map(|p| self.platform.cores.get(p).copied().unwrap_or(0)).collect()
    }

    pub(super) fn fits(&self, slots: &Slots, held: &Held, limits: &Limits) -> bool {
        let index = |core: &usize| self.platform.cores.iter().position(|c| c == core);
        let budgets = slots.budgets(&held.budgets_ns);
        let places: Option<Vec<usize>> = held
            .cores
            .iter()
            .zip(&budgets)
            .map(|(core, budget)| if *budget == 0 { Some(0) } else { index(core) })
            .collect();
        places.is_some_and(|p| {
            keeps(&budgets, &p, &limits.capacities_ns) && slots.few(&budgets, &p, limits.capacities_ns.len())
        })
    }
}

pub(super) fn carried(model: &Model, workload: &Workload, plan: &Plan) -> Held {
    let by_thread: HashMap<(u32, u32), &Reservation> =
        plan.reservations.iter().map(|r| ((r.pid, r.tid), r)).collect();
    let mut held = Held {
        period_ns: plan.period_ns,
        budgets_ns: vec![0; model.executors.len()],
        periods_ns: vec![0; model.executors.len()],
        cores: Vec::new(),
        complete: false,
    };
    let mut found = 0;
    for (number, server) in workload.executors.iter().enumerate() {
        let mut here = 0;
        for id in &server.threads {
            let thread = model.threads.get(id.0);
            let reservation = thread.and_then(|thread| by_thread.get(&(thread.pid, thread.tid)));
            held.cores.push(reservation.map_or(0, |r| r.core));
            if let Some(reservation) = reservation {
                held.budgets_ns[number] = reservation.budget_ns;
                held.periods_ns[number] = reservation.period_ns;
                here += 1;
            }
        }
        if server.threads.is_empty() {
            held.cores.push(0);
        }
        if here < server.threads.len() {
            // A thread more than there was: the executor has no reservation as a whole.
            held.budgets_ns[number] = 0;
            held.periods_ns[number] = 0;
        } else {
            found += here;
        }
    }
    held.complete = found == plan.reservations.len();
    held
}

/// Whether a workload is the planned one with no more arrivals and no more costs, but for
/// `slack_ns`.
pub(super) fn within(now: &Workload, planned: &Workload, slack_ns: u64) -> bool {
    let dispatch = |e: usize| match now.dispatch_ns[e] {
        Some(ns) => ns <= planned.allowed_dispatch_ns(e),
        None => true,
    };
    now.executors == planned.executors
        && (0..now.executors.len())
            .filter(|e| matches!(now.executors[*e].order, crate::workload::Order::Threads { .. }))
            .all(dispatch)
        && now.callbacks.len() == planned.callbacks.len()
        && now.broken.len() == planned.broken.len()
        && now
            .broken
            .iter()
            .zip(&planned.broken)
            .all(|(now, planned)| (now.0, now.1) == (planned.0, planned.1))
        && now.callbacks.iter().zip(&planned.callbacks).all(|(now, planned)| {
            let cost: &Arc<Cost> = &now.cost;
            now.server == planned.server
                && now.timer == planned.timer
                && now.inputs.len() == planned.inputs.len()
                && now
                    .inputs
                    .iter()
                    .zip(&planned.inputs)
                    .all(|(now, planned)| now.0 == planned.0 && now.1.within(&planned.1))
                && match (&now.suspension, &planned.suspension) {
                    (Some(now), Some(planned)) => {
                        now.times.within(&planned.times)
                            && now.yields.within(&planned.yields)
                            && now.most.within_by(&planned.most, slack_ns)
                    }
                    (now, _) => now.is_none(),
                }
                && now.delivery_ns.is_none_or(|ns| ns <= planned.allowed_delivery_ns())
                && now.own_delivery_ns.is_none_or(|ns| ns <= planned.allowed_own_delivery_ns())
                && (now.undelivered, now.arrived) == (planned.undelivered, planned.arrived)
                && now.trouble == planned.trouble
                && now.name == planned.name
                && cost.within_by(&planned.cost, slack_ns)
                && match (&now.root, &planned.root) {
                    (Some(now), Some(planned)) => now.within(planned),
                    (None, None) => true,
                    _ => false,
                }
        })
}
