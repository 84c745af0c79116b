//! Holding what happens against the plan in force, at every look at the events.

use std::collections::BTreeSet;

use takt_model::ChainStats;
use takt_ros::Source;

use super::ledger::Findings;
use super::log::Record;
use super::{ChainStatus, Live, Run};
use crate::enact::{Overrun, Reserved};
use crate::plan::Plan;
use crate::system::Kernel;

/// An observation against the plan is answered with another one at the earliest so long after the
/// last one: what is noticed together is answered together.
const TOGETHER_NS: u64 = 250_000_000;
/// Plans made because of observations take at most one part in so many of a CPU.
const PLANS_SHARE: u64 = 100;

/// Meaning of an exhausted budget, with figures.
pub(super) fn overrun_words(overrun: &Overrun) -> String {
    let Overrun { tid, name, budget_ns, period_ns, used_ns, passed_ns, .. } = overrun;
    format!(
        "budget overrun: thread {tid} `{name}` has {} us in {} us, but wanted more for as long as its goal (it ran {} us in the last {} us)",
        budget_ns / 1000,
        period_ns / 1000,
        used_ns / 1000,
        passed_ns / 1000
    )
}

impl<S: Source, K: Kernel> Live<S, K> {
    /// Handles the observations since the last call: refuted chains lose their guarantee at once,
    /// and the next plan is made at once.
    pub(super) fn follow(&mut self, now_ns: u64) {
        let mut findings: Findings = std::mem::take(&mut self.found);
        let lost = self.extractor.counters().lost_events;
        if lost > self.lost {
            self.ledger.lost(now_ns, lost - self.lost);
            self.lost = lost;
        }
        self.ledger.starting(&self.extractor.starting());
        let replan = std::mem::take(&mut findings.replan);
        for broken in self.extractor.broken() {
            self.ledger.broken(&broken, &mut findings);
        }
        if findings.replan {
            self.manager.broken();
        }
        findings.replan |= replan;
        for (&index, paths) in &self.watched {
            let why = paths.last().and_then(|watched| self.extractor.unmeasurable(&watched.path));
            self.ledger.unmeasurable(index, why);
        }
        self.look_at_clocks();
        for index in 0..self.ledger.chains.len() {
            self.ledger.chains[index].network.against = self.network_against(index);
            let ids: Vec<_> = self.watched.get(&index).into_iter().flatten().map(|w| w.id).collect();
            let mut stats: Vec<&mut ChainStats> = self.extractor.watched_many(&ids);
            self.ledger.look(now_ns, index, stats.iter_mut().map(|stats| &mut **stats), &mut findings);
        }
        if findings.lowered {
            self.promise(now_ns);
        }
        for (chain, state, why) in &findings.changes {
            self.options.log.record(now_ns, &Record::Chain { chain, state: *state, why });
        }
        for (chain, excess_ns) in &findings.unexplained {
            self.manager.widen(*chain, *excess_ns, now_ns);
        }
        for (chain, completions, worst_ns) in &findings.measured {
            self.manager.measured(*chain, *completions, *worst_ns, now_ns);
        }
        for (chain, latency_ns) in &findings.short {
            self.manager.shortest_seen(*chain, *latency_ns);
        }
        // The paper's manager plans periodically, and for no other reason (section IV).
        let answers = self.manager.goals().options.policy == crate::Policy::Takt;
        if findings.replan
            && answers
            && let Some((planned_ns, took_ns)) = self.planned
        {
            let earliest_ns = planned_ns + TOGETHER_NS.max(took_ns.saturating_mul(PLANS_SHARE));
            let due_ns = self.next_plan_ns.unwrap_or(u64::MAX);
            self.next_plan_ns = Some(due_ns.min(earliest_ns.max(now_ns)));
        }
    }

    /// A new plan is in force: what it rests on is watched from now on.
    /// `enacting`: threads were moved for it between these moments.
    pub(super) fn ground(
        &mut self,
        now_ns: u64,
        plan: &Plan,
        held: &[Reserved],
        enacting: Option<(u64, u64)>,
    ) {
        let grounds = self.manager.grounds(&self.model);
        if !plan.cached {
            self.extractor.assume_with(&grounds.assumed, &grounds.allowances);
        }
        // One that grows where it is disturbs nobody: until its next replenishment the thread has
        // what the plan of before gave it, which was enough, and afterwards more. With budgets that
        // run out the period has to be the same; on shared cores they do not. Where executors are
        // ordered by their periods, a deadline of before counts until it is over.
        let alike =
            |plan: &Plan| plan.reservations.windows(2).all(|two| two[0].period_ns == two[1].period_ns);
        let longest_ns = held.iter().chain(&self.enacted.reserved).map(|one| one.period_ns).max();
        let orders_after_ns = longest_ns.filter(|_| !alike(plan));
        let both = (self.plan.as_ref())
            .is_some_and(|before| before.shared == plan.shared && alike(before) && alike(plan));
        let grown = |before: &Reserved, one: &Reserved| {
            both && before.budget_ns <= one.budget_ns
                && if plan.shared {
                    before.period_ns <= one.period_ns
                        && u128::from(before.budget_ns) * u128::from(one.period_ns)
                            <= u128::from(one.budget_ns) * u128::from(before.period_ns)
                } else {
                    before.period_ns == one.period_ns
                }
        };
        let same = |one: &&Reserved| {
            held.iter().any(|before| {
                (before.tid, &before.cpus) == (one.tid, &one.cpus)
                    && ((before.budget_ns, before.period_ns) == (one.budget_ns, one.period_ns)
                        || grown(before, one))
            })
        };
        let moved: Vec<u32> =
            self.enacted.reserved.iter().filter(|one| !same(one)).map(|one| one.tid).collect();
        if let Some((from_ns, to_ns)) = enacting {
            self.extractor.moved(from_ns, to_ns, &moved);
        }
        let differences = self.enacted.differences.iter().filter(|difference| difference.reservation);
        let differences: Vec<(u32, String)> = differences.map(|d| (d.tid, d.to_string())).collect();
        let from_ns = now_ns.saturating_add(orders_after_ns.filter(|_| !moved.is_empty()).unwrap_or(0));
        let too_short = self.ledger.planned(from_ns, plan, &grounds, &differences, &moved);
        self.found.replan |= !too_short.is_empty();
        self.found.unexplained.extend(too_short);
        self.promise(now_ns);
    }

    /// Up to when all events were read at `now_ns`: what is held back yet may be the end of an
    /// instance. A source that has ended holds nothing back.
    pub(super) fn read_until(&self, now_ns: u64) -> u64 {
        if self.source.ended() && self.order.held() == 0 {
            now_ns
        } else {
            now_ns.saturating_sub(takt_model::order::HOLD_NS)
        }
    }

    /// Fills in how a chain stands, and stood.
    pub(super) fn stand(&self, index: usize, status: &mut ChainStatus, now_ns: u64) {
        let Some(chain) = self.ledger.chains.get(index) else { return };
        let ms = |ns: u64| ns as f64 / 1e6;
        let s = |ns: u64| ns as f64 / 1e9;
        status.state = chain.state.name().to_owned();
        status.why.clone_from(&chain.why);
        status.bound_ns = chain.planned.bound_ns;
        status.bound_ms = chain.planned.bound_ns.map(ms);
        status.worst_ms = (status.worst_ns > 0).then(|| ms(status.worst_ns));
        status.assumptions = self.ledger.standings(index, now_ns);
        // Instances that pass each other are how some chains are; where each comes to its end, one
        // past its goal is late.
        let regular = status.dropped.saturating_mul(20) <= status.completions;
        let given_up = chain.state == super::State::Degraded && !self.ledger.observes;
        let overdue = if regular && !given_up { status.overdue as u64 } else { 0 };
        // A callback that never ran is late from its first release on.
        let began = chain.has_begun() || status.completions > 0;
        let never = self.never.get(index).and_then(Option::as_ref);
        let never = never.filter(|it| (!it.never || !began) && !given_up);
        let never_began = never.filter(|it| it.counts).map_or(0, |it| it.late);
        status.run.longest_late_run = status.run.longest_late_run.max(never_began);
        status.run = Run {
            intervals: self.ledger.intervals(index, now_ns),
            guaranteed_s: s(chain.counts.guaranteed_ns),
            counted: chain.counts.counted.completions,
            late: chain.counts.counted.late,
            in_doubt: chain.counts.counted.in_doubt,
            missing: chain.counts.counted.skipped.saturating_add(overdue).saturating_add(never_began),
            longest_late_run: status.run.longest_late_run,
            given_up_s: s(chain.counts.given_up_ns),
            given_up_completions: chain.counts.given_up.completions,
            given_up_why: chain.given_up_why.clone(),
            did_not_run: never.filter(|it| it.counts).map(|it| it.words.clone()),
            has_stopped: never.filter(|it| !it.counts).map(|it| it.words.clone()),
            false_guarantees: chain.latency.false_guarantees,
            worst_false_ms: chain
                .latency
                .worst_false
                .map(|worst| (ms(worst.latency_ns()), ms(worst.bound_ns))),
            refuted_times: chain.refutations.times,
            refutations: chain
                .refutations
                .list
                .iter()
                .map(|(at_ns, words)| (s(at_ns.saturating_sub(self.ledger.started_ns)), words.clone()))
                .collect(),
            ..Run::default()
        };
        chain.jitter.fill(status);
        self.report_clock(index, status);
    }

    /// Whether everything that was managed has ended.
    pub(super) fn is_over(&self) -> bool {
        let alive: BTreeSet<u32> =
            self.model.threads.iter().filter(|thread| !thread.ended).map(|thread| thread.pid).collect();
        self.source.ended() || (self.plans > 0 && !alive.iter().any(takt_rt::procfs::exists))
    }
}
