//! Observations that no measured curve explains: they widen the model, and are dropped by a stated
//! rule.
//!
//! - **A latency above its bound** that no broken assumption explains is added to that chain's
//!   bounds.
//! - **An exhausted budget** of an executor whose execution times are within their curves (an
//!   activation that has not ended yet, work that no event shows): its execution times are taken
//!   to be a quarter longer, and once more with each plan that did not suffice, [`MAX_QUARTERS`]
//!   times at most. As soon as a measured curve has grown it explains the overrun, and replaces
//!   this.
//!
//! **Forgetting** is that of the curves' extremes: after the model's horizon (ten minutes), if the
//! time since then is evidence: latencies were measured in it ([`EVIDENCE`] at least) and none
//! needed the addition. A latency that did need it begins the time anew, and those of a chain
//! without a bound are no evidence. For overruns the latencies are those of any chain: work was
//! done.

use std::collections::BTreeMap;

use takt_model::Model;

use super::{Manager, REPEATS};
use crate::curves::Cost;
use crate::workload::Workload;

/// Completions that are evidence: fewer say little about what is rare.
const EVIDENCE: u64 = 100;
/// Execution times become at most four times as long for an overrun that nothing explains.
const MAX_QUARTERS: u32 = 12;

/// Unexplained observations.
#[derive(Debug, Default)]
pub(super) struct Widened {
    /// By chain.
    latencies: Vec<Excess>,
    /// By thread.
    overruns: BTreeMap<u32, Overrun>,
    /// Plans that were not repetitions.
    decided: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Excess {
    ns: u64,
    /// Their part in the present plan's bounds.
    planned_ns: u64,
    last_ns: u64,
    completions: u64,
}

#[derive(Debug, Clone, Copy)]
struct Overrun {
    quarters: u32,
    /// The plan that it was seen under.
    under: u64,
    last_ns: u64,
    completions: u64,
}

impl Widened {
    pub fn new(chains: usize) -> Self {
        Self { latencies: vec![Excess::default(); chains], ..Self::default() }
    }

    /// The present plan rests on this.
    pub fn planned(&mut self) {
        self.decided += 1;
        self.latencies.iter_mut().for_each(|excess| excess.planned_ns = excess.ns);
    }

    /// Lengthens execution times of executors that overran; what the curves explain by now is
    /// dropped.
    pub fn apply(&mut self, model: &Model, workload: &mut Workload, before: Option<&Workload>) {
        let grown = |workload: &Workload, server: usize| {
            before.is_some_and(|before| {
                before.callbacks.len() == workload.callbacks.len()
                    && workload.executors[server].callbacks.iter().any(|c| {
                        let (now, then) = (&workload.callbacks[*c], &before.callbacks[*c]);
                        now.name == then.name && !now.cost.within(&then.cost)
                    })
            })
        };
        let mut gone = Vec::new();
        for (&tid, overrun) in &self.overruns {
            let serves =
                |id: &takt_model::ThreadId| model.threads.get(id.0).is_some_and(|t| t.tid == tid && !t.ended);
            let server = workload.executors.iter().position(|server| server.threads.iter().any(serves));
            let Some(server) = server.filter(|server| !grown(workload, *server)) else {
                gone.push(tid);
                continue;
            };
            let percent = 25 * overrun.quarters;
            for callback in workload.executors[server].callbacks.clone() {
                let cost = &mut workload.callbacks[callback].cost;
                *cost = Cost::new(cost.most_ns(), f64::from(percent) / 100.0).into();
            }
            workload.assumptions.push(format!(
                "{}: its budget was exhausted for as long as a goal, which no observed execution time explains, so all of them are assumed \
                 {percent} % longer",
                workload.executors[server].name
            ));
        }
        self.overruns.retain(|tid, _| !gone.contains(tid));
    }

    /// Drops what the time since then is evidence against. Whether anything was.
    pub fn forget(&mut self, now_ns: u64, horizon_ns: u64) -> bool {
        let old = |last_ns: u64| now_ns.saturating_sub(last_ns) >= horizon_ns;
        let mut changed = false;
        for excess in &mut self.latencies {
            if excess.ns > 0 && old(excess.last_ns) && excess.completions >= EVIDENCE {
                *excess = Excess::default();
                changed = true;
            }
        }
        let before = self.overruns.len();
        self.overruns.retain(|_, overrun| !old(overrun.last_ns) || overrun.completions < EVIDENCE);
        changed || before != self.overruns.len()
    }
}

impl Manager {
    /// A latency of this chain was so much above its bound, and no measured curve explains it.
    /// Whatever the reason is, bounds of this chain are longer by that until ten minutes have shown
    /// that they need not be.
    pub fn widen(&mut self, chain: usize, excess_ns: u64, now_ns: u64) {
        if let Some(known) = self.widened.latencies.get_mut(chain) {
            // Several instances of one stall exceed the same bound.
            known.ns = known.ns.max(known.planned_ns.saturating_add(excess_ns));
            (known.last_ns, known.completions) = (now_ns, 0);
            self.look_anew();
        }
    }

    /// So many instances of a chain ended, the longest after `worst_ns`: evidence on whether what
    /// its bounds were widened by is needed.
    pub fn measured(&mut self, chain: usize, completions: u64, worst_ns: u64, now_ns: u64) {
        let bound_ns = self.present.as_ref().and_then(|p| p.plan.chains.get(chain)?.bound_ns);
        for overrun in self.widened.overruns.values_mut() {
            overrun.completions = overrun.completions.saturating_add(completions);
        }
        let Some(known) = self.widened.latencies.get_mut(chain).filter(|known| known.ns > 0) else { return };
        // Without a bound there is nothing to hold them against.
        let Some(bound_ns) = bound_ns else { return };
        if worst_ns > bound_ns.saturating_sub(known.planned_ns) {
            (known.last_ns, known.completions) = (now_ns, 0);
        } else {
            known.completions = known.completions.saturating_add(completions);
        }
    }

    /// Addition to a chain's bounds because of unexplained observations.
    #[must_use]
    pub(crate) fn unexplained_ns(&self, chain: usize) -> u64 {
        self.widened.latencies.get(chain).map_or(0, |known| known.ns)
    }

    /// A thread's budget was exhausted for as long as a goal that it serves: what is assumed of its
    /// executor was too little.
    pub fn overrun(&mut self, tid: u32, now_ns: u64) {
        let decided = self.widened.decided;
        let fresh = Overrun { quarters: 0, under: u64::MAX, last_ns: now_ns, completions: 0 };
        let known = self.widened.overruns.entry(tid).or_insert(fresh);
        (known.last_ns, known.completions) = (now_ns, 0);
        if known.under != decided {
            known.under = decided;
            known.quarters = (known.quarters + 1).min(MAX_QUARTERS);
            self.look_anew();
        }
    }

    /// The next plan is no repetition.
    fn look_anew(&mut self) {
        if let Some(present) = &mut self.present {
            present.repeats = REPEATS;
        }
    }

    pub(super) fn forget_what_is_old(&mut self, now_ns: u64) {
        if self.widened.forget(now_ns, self.horizon_ns) {
            self.look_anew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn manager() -> Manager {
        let text = "degradation_order = [\"a\"]\n[[chain]]\nname = \"a\"\nstart = \"/x\"\nend = \"/y\"\ngoal = \"9 ms\"\n";
        let goals = crate::Goals::parse(text, "test").unwrap();
        Manager::new(goals, crate::Platform::new(vec![1], 0, 0.9))
    }

    #[test]
    fn a_stall_is_forgotten_after_the_horizon_if_latencies_were_measured_in_it() {
        let mut manager = manager();
        manager.widen(0, 5_000_000, 100 * S);
        // The same stall, before a plan has taken it into account.
        manager.widen(0, 3_000_000, 100 * S);
        assert_eq!(manager.unexplained_ns(0), 5_000_000);
        manager.measured(0, 999, 1000, 200 * S);
        assert_eq!(manager.widened.latencies[0].completions, 0, "there is no bound to hold them against");
        manager.widened.latencies[0].completions = EVIDENCE - 1;
        manager.forget_what_is_old(700 * S);
        assert_eq!(manager.unexplained_ns(0), 5_000_000, "too few were measured");
        manager.widened.latencies[0].completions += 1;
        manager.forget_what_is_old(699 * S);
        assert_eq!(manager.unexplained_ns(0), 5_000_000, "too soon");
        manager.forget_what_is_old(700 * S);
        assert_eq!(manager.unexplained_ns(0), 0);
    }

    #[test]
    fn an_excess_on_top_of_what_the_plan_has_adds_to_it() {
        let mut manager = manager();
        manager.widen(0, 5, S);
        manager.widened.planned();
        manager.widen(0, 3, 2 * S);
        assert_eq!(manager.unexplained_ns(0), 8);
    }

    #[test]
    fn overruns_widen_once_for_each_plan() {
        let mut manager = manager();
        (0..50).for_each(|k| manager.overrun(7, k));
        assert_eq!(manager.widened.overruns[&7].quarters, 1);
        manager.widened.planned();
        (0..50).for_each(|k| manager.overrun(7, k));
        assert_eq!(manager.widened.overruns[&7].quarters, 2);
        for _ in 0..50 {
            manager.widened.planned();
            manager.overrun(7, 100);
        }
        assert_eq!(manager.widened.overruns[&7].quarters, MAX_QUARTERS);
        manager.forget_what_is_old(601 * S);
        assert!(!manager.widened.overruns.is_empty(), "nothing was measured since");
        manager.measured(0, EVIDENCE, 1000, 601 * S);
        manager.forget_what_is_old(601 * S);
        assert!(manager.widened.overruns.is_empty());
    }
}
