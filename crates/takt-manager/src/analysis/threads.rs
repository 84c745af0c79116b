//! Multi-threaded executors, each thread of which has a reservation of its own.
//!
//! Published analyses (Jiang and others, RTSS 2022; Sobhani, Choi and Kim, RTAS 2023, arXiv
//! 2408.08440) give every thread a core of its own. Under reservations two things are different: a
//! thread may be without budget wherever it is, also while it holds the executor's lock
//! (`wait_mutex_`, without priority inheritance) and looks for work for all; and idle threads use
//! up budgets, since a ready callback whose group is busy makes `rcl_wait` return at once. So this
//! bound follows the time that a pending activation `J` waits instead of the work of one thread.
//! From its activation to its start, at every moment one of these holds:
//!
//! 1. A callback that excludes `J` (of its mutually exclusive group, itself included) runs. Each
//!    such instance `K` takes at most the time in which its thread, from any moment on, is supplied
//!    with its cost, and its suspensions ([`super::supply`]).
//! 2. All `m` threads run callbacks: at most an `m`-th of the sum of those times.
//! 3. A thread looks for work. Every look starts an instance, or finds nothing; it finds nothing
//!    although `J` could run only if it had begun before the group of `J` became free. So there are
//!    at most as many as instances before `J`, as instances of 1, and two: one that had begun, and
//!    the one that takes `J`. Each takes at most the supply time of
//!    [`Workload::allowed_dispatch_ns`](crate::workload::Workload::allowed_dispatch_ns).
//!
//! Any order is allowed: groups that are busy are passed over and lose their place in the wait set,
//! so a callback may be overtaken by any that arrives before it starts. Instances that arrived
//! before `J` and may still be there arrived within their own response times: the bounds of all
//! callbacks of the executor are a fixed point. (The first activation to exceed its bound would
//! have met none that had.) Once started, `J` takes the supply time of its own cost. Callbacks
//! whose group is not known count as excluding all.

use super::counted::Arrivals;
use super::executor::Served;
use super::supply::Supply;
use super::{Bound, Load, Method, Parts};

/// Rounds of the fixed point over an executor's callbacks.
const ROUNDS: usize = 200;

impl Served<'_> {
    /// Response times of the callbacks of an executor of `threads` threads; `excludes` is by
    /// callback, in the executor's order, and has their numbers.
    pub(super) fn analyse_threads(
        &self,
        on: Supply,
        threads: u64,
        excludes: &[Vec<usize>],
    ) -> Vec<Option<Bound>> {
        let callbacks = &self.workload.executors[self.server].callbacks;
        // By demand: which others exclude it.
        let excluded: Vec<Vec<bool>> = self
            .demands
            .iter()
            .map(|demand| {
                let place = callbacks.iter().position(|c| *c == demand.callback);
                let by = place.and_then(|place| excludes.get(place));
                self.demands.iter().map(|d| by.is_none_or(|by| by.contains(&d.callback))).collect()
            })
            .collect();
        let mut bounds: Vec<Bound> = vec![Bound::NONE; self.demands.len()];
        for _ in 0..ROUNDS {
            let mut changed = false;
            for own in 0..self.demands.len() {
                let Some(new) = self.threads_bound(on, threads.max(1), own, &excluded[own], &bounds) else {
                    return vec![None; callbacks.len()];
                };
                if new.ns > bounds[own].ns {
                    bounds[own] = new;
                    changed = true;
                }
            }
            if !changed {
                let found = |callback| self.position(callback).map_or(Bound::NONE, |own| bounds[own]);
                return callbacks.iter().map(|callback| Some(found(*callback))).collect();
            }
        }
        vec![None; callbacks.len()]
    }

    fn threads_bound(
        &self,
        on: Supply,
        threads: u64,
        own: usize,
        excluded: &[bool],
        bounds: &[Bound],
    ) -> Option<Bound> {
        let count = |i: usize, delta: u64| {
            let arrivals: &Arrivals<'_> = &self.demands[i].arrivals;
            let count = arrivals.count(delta.saturating_add(bounds[i].ns).saturating_add(1));
            count.saturating_sub(u64::from(i == own))
        };
        let mut waited = 0;
        loop {
            let (mut dispatches, mut before, mut beside) = (2_u64, 0_u64, 0_u64);
            let mut load = Load::default();
            for (i, excludes) in excluded.iter().enumerate() {
                let n = count(i, waited);
                let time = self.time_of(on, i, n);
                load = load + self.demands[i].activity.load(n);
                dispatches = dispatches.saturating_add(n);
                if *excludes {
                    dispatches = dispatches.saturating_add(n);
                    before = before.saturating_add(time);
                } else {
                    beside = beside.saturating_add(time);
                }
            }
            let starts = dispatches
                .saturating_mul(on.time_anywhere(self.workload.allowed_dispatch_ns(self.server)))
                .saturating_add(before)
                .saturating_add(beside.div_ceil(threads));
            let mine = self.demands[own].activity.load(1);
            let taken = on.time_anywhere(mine.work_ns.max(1)).saturating_add(on.waits(mine));
            let ns = starts.saturating_add(taken);
            if ns > on.limit_ns {
                return None;
            }
            if starts <= waited {
                let executor_ns = load.length().min(starts);
                let own_ns = mine.length();
                let supply_ns = ns - own_ns.min(ns) - executor_ns.min(ns - own_ns.min(ns));
                let parts = Parts { own_ns, executor_ns, supply_ns, disturbed_ns: 0 };
                return Some(Bound { ns, by: Method::Threads, parts });
            }
            waited = starts;
        }
    }

    /// The time that `n` instances of a callback take in sum, each on any thread and from any
    /// moment on.
    fn time_of(&self, on: Supply, callback: usize, n: u64) -> u64 {
        let activity = self.demands[callback].activity;
        let load = activity.load(n);
        let each = on.time_anywhere(activity.load(1).work_ns);
        let apart = on.time_of_parts(load.work_ns, n);
        let waits = Load { work_ns: 0, ..load };
        each.saturating_mul(n).min(apart).saturating_add(on.waits(waits))
    }
}
