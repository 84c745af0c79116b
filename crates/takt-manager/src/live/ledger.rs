//! How each chain stood over the whole run: a small state machine for each, fed by plans, by events
//! that break an assumption and by what is measured.
//!
//! A plan says what *can* be kept. The word "guaranteed" is said here, and only while every
//! [`Assumption`] is observed to hold.

use std::collections::BTreeSet;

use takt_model::{Breach, Broken, ChainStats, Exceeded, Range};

use super::assumption::{Assumption, Interval, Standing, State};
use super::evidence::{Evidence, Observed, times};
use super::jitter::Jitter;
use super::observations::{
    Breaches, Budgets, Complete, Delivery, Latency, MAX_LISTED, Measured, Network, Planned, Reserved, Running,
};
use crate::manager::Grounds;
use crate::plan::{ChainState, Plan};
use crate::words::ms;

/// How often the beginning of a plan may be waited out: latencies above the bound that began just
/// after it was enacted come from the backlog of before, but not time and again.
const SETTLES: u32 = 20;
/// Intervals kept; of a chain whose state changes more often, the shortest neighbours are put
/// together.
const INTERVALS: usize = 128;
/// Processes of one system end one after another, and ROS 2's launch gives them some seconds for
/// it.
pub(super) const ALL_END_NS: u64 = 2_000_000_000;
/// The chains of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub chains: Vec<Chain>,
    /// Nothing is enacted.
    pub observes: bool,
    pub started_ns: u64,
    /// How long after a loss of events nothing is guaranteed.
    pub forgive_ns: u64,
    /// Processes whose middleware has no thread at real-time priority.
    uncarried: BTreeSet<u32>,
}

/// What was counted of a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub completions: u64,
    pub late: u64,
    pub in_doubt: u64,
    pub skipped: u64,
}

/// What was counted of a chain, and when.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// At the last look.
    seen: Tally,
    looked_ns: u64,
    /// In the present interval.
    in_interval: Tally,
    /// Longest latency in it.
    worst_ns: Option<u64>,
    /// While the chain was not given up.
    pub counted: Tally,
    /// While it was.
    pub given_up: Tally,
    pub given_up_ns: u64,
    pub guaranteed_ns: u64,
}

/// Assumptions that were seen broken, in words.
#[derive(Debug, Default)]
pub(super) struct Refutations {
    /// The oldest first.
    pub list: Vec<(u64, String)>,
    pub times: u64,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub name: String,
    goal_ns: u64,
    pub state: State,
    pub why: String,
    since_ns: u64,
    pub intervals: Vec<Interval>,
    pub given_up_why: String,
    pub counts: Counts,
    pub refutations: Refutations,
    pub planned: Planned,
    /// When an assumption was last seen broken. Curves grow piece by piece: after a change, first
    /// one activation is longer than ever, then two in a row.
    broken_ns: Option<u64>,
    running: Running,
    reserved: Reserved,
    budgets: Budgets,
    breaches: Breaches,
    delivery: Delivery,
    complete: Complete,
    pub network: Network,
    measured: Measured,
    /// Against its jitter goal.
    pub jitter: Jitter,
    pub latency: Latency,
}

/// When, and with what at stake, chains are judged.
#[derive(Debug, Clone, Copy)]
struct Moment {
    now_ns: u64,
    started_ns: u64,
    /// How long after a loss of events nothing is guaranteed.
    forgive_ns: u64,
    /// Nothing is enacted.
    observes: bool,
}

/// What must be done about what was seen.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// State changes: chain, words.
    pub changes: Vec<(String, State, String)>,
    /// The model has changed: plan anew at once.
    pub replan: bool,
    /// A bound became shorter.
    pub lowered: bool,
    /// Latencies that no broken assumption explains, by chain: this much above the bound.
    pub unexplained: Vec<(usize, u64)>,
    /// Latencies below the best case, by chain.
    pub short: Vec<(usize, u64)>,
    /// Instances that ended since the last look, and the longest of their latencies, by chain.
    pub measured: Vec<(usize, u64, u64)>,
}

impl Ledger {
    pub fn new(goals: &crate::Goals, observes: bool, now_ns: u64) -> Self {
        let chain = |goal: &crate::goals::Chain| Chain {
            name: goal.name.clone(),
            goal_ns: goal.goal_ns,
            jitter: Jitter::new(goal.jitter_ns),
            why: "there is no plan yet".to_owned(),
            since_ns: now_ns,
            counts: Counts { looked_ns: now_ns, ..Counts::default() },
            ..Chain::default()
        };
        let forgive_ns = (goals.options.update_period_s * 1e9) as u64;
        let chains = goals.chains.iter().map(chain).collect();
        Self { chains, observes, started_ns: now_ns, forgive_ns, uncarried: BTreeSet::new() }
    }

    /// In these processes helpers work, and none of them at the priority of messengers.
    pub(crate) fn uncarried(&mut self, pids: BTreeSet<u32>) {
        if self.uncarried != pids {
            self.uncarried = pids;
            for Chain { delivery, planned, .. } in &mut self.chains {
                delivery.carry(planned, &self.uncarried);
            }
        }
    }

    /// A plan was made and, unless it is only looked, enacted. `moved`: threads whose reservation
    /// was changed by it. Returns chains of which a latency was measured that the new bound does
    /// not reach, and by how much.
    pub fn planned(
        &mut self,
        now_ns: u64,
        plan: &Plan,
        grounds: &Grounds,
        differences: &[(u32, String)],
        moved: &[u32],
    ) -> Vec<(usize, u64)> {
        let mut too_short = Vec::new();
        for (index, chain) in self.chains.iter_mut().enumerate() {
            let Some(planned) = plan.chains.get(index) else { continue };
            let of_chain = grounds.chains.get(index).cloned().unwrap_or_default();
            let gone =
                matches!(planned.state, ChainState::NotFound { .. } | ChainState::NotAnalysable { .. });
            if chain.running.ended.is_some() && gone {
                // Without what has ended there is no chain, which is no news.
                continue;
            }
            chain.running.ended = None;
            if !plan.cached {
                chain.breaches.clear();
                chain.budgets.overrun = None;
            }
            let was = chain.planned.state.replace(planned.state.clone());
            let moved = moved.iter().any(|tid| of_chain.threads.contains(tid));
            // What began under a longer bound may still take as long.
            let shorter = planned.bound_ns < chain.planned.bound_ns;
            let stays = shorter
                && !moved
                && chain.state == State::Guaranteed
                && planned.state == ChainState::Guaranteed;
            if !(stays && chain.planned.lower_later(now_ns, planned.bound_ns)) {
                (chain.planned.bound_ns, chain.planned.shorter) = (planned.bound_ns, None);
            }
            let difference = differences.iter().find(|(tid, _)| *tid == 0 || of_chain.threads.contains(tid));
            let difference = difference.map(|(_, words)| words.clone());
            let repaired = chain.reserved.difference.is_some() && difference.is_none();
            chain.reserved.difference = difference;
            let fresh = was != Some(ChainState::Guaranteed) || repaired;
            if fresh || (shorter && !stays) || moved {
                chain.begin(now_ns);
            }
            chain.planned.grounds = of_chain;
            chain.delivery.carry(&chain.planned, &self.uncarried);
            if chain.jitter.planned(planned) {
                chain.begin(now_ns);
            }
            let Some(bound_ns) = chain.planned.bound_ns else { continue };
            let longest_ns = chain.latency.exceeded.map(|exceeded| exceeded.latency_ns());
            if longest_ns.is_some_and(|longest_ns| longest_ns <= bound_ns) {
                chain.latency.exceeded = None;
                chain.begin(now_ns);
            } else if let Some(longest_ns) = longest_ns.filter(|_| !plan.cached) {
                // What was broken explained the latency, and the plan that covers that does not
                // reach it.
                too_short.push((index, longest_ns.saturating_sub(bound_ns)));
            }
        }
        too_short
    }

    /// These processes are starting, or have just done so: whoever began that after the plan is no
    /// longer in the steady state of its bounds.
    pub fn starting(&mut self, pids: &[u32]) {
        for grounds in self.chains.iter_mut().map(|chain| &mut chain.planned.grounds) {
            for pid in pids.iter().filter(|pid| grounds.processes.contains(pid)) {
                if !grounds.starting.contains(pid) {
                    grounds.starting.push(*pid);
                }
            }
        }
    }

    /// What a chain is promised now, for its measurement.
    pub fn promise(&self, index: usize) -> Option<u64> {
        let planned = &self.chains.get(index)?.planned;
        planned.bound_ns.filter(|_| planned.is_guaranteed())
    }

    /// Events were lost.
    pub fn lost(&mut self, now_ns: u64, count: u64) {
        let forgive_ns = self.forgive_ns;
        self.chains.iter_mut().for_each(|chain| chain.complete.lost(now_ns, forgive_ns, count));
    }

    /// A reservation was found exhausted for as long as a goal that it serves: the next plan gives
    /// it more.
    pub fn overrun(&mut self, now_ns: u64, tid: u32, words: &str, findings: &mut Findings) {
        for chain in self.chains.iter_mut().filter(|chain| chain.planned.grounds.threads.contains(&tid)) {
            if !chain.planned.is_guaranteed() {
                continue;
            }
            findings.replan = true;
            // As after any broken assumption, the next plan has to hold for a while first, and
            // without another overrun.
            chain.broken_ns = chain.broken_ns.max(Some(now_ns));
            if chain.budgets.overrun.is_none() {
                chain.refutations.push(now_ns, Evidence::Overrun(words).to_string());
                chain.budgets.overrun = Some(words.to_owned());
            }
        }
    }

    /// A reservation was read back and is not what it was made. The next plan makes it so again.
    pub fn differs(&mut self, now_ns: u64, tid: u32, words: &str, findings: &mut Findings) {
        for chain in self.chains.iter_mut().filter(|chain| chain.planned.grounds.threads.contains(&tid)) {
            if !chain.planned.is_guaranteed() {
                continue;
            }
            findings.replan = true;
            chain.broken_ns = chain.broken_ns.max(Some(now_ns));
            if chain.reserved.difference.is_none() {
                chain.refutations.push(now_ns, Evidence::Differs(words).to_string());
                chain.reserved.difference = Some(words.to_owned());
            }
        }
    }

    /// Why a chain cannot be measured, if it cannot.
    pub fn unmeasurable(&mut self, index: usize, why: Option<String>) {
        if let Some(chain) = self.chains.get_mut(index) {
            chain.measured.unmeasurable = why;
        }
    }

    /// An assumption about a callback was seen broken.
    pub fn broken(&mut self, broken: &Broken, findings: &mut Findings) {
        for chain in &mut self.chains {
            if broken.what == Breach::Ended {
                if chain.planned.grounds.path.contains(&broken.callback) && chain.running.ended.is_none() {
                    chain.running.ended = Some((broken.at_ns, chain.state));
                }
                continue;
            }
            let concerns = match broken.what {
                Breach::Unplanned { tid } => chain.planned.grounds.threads.contains(&tid),
                _ => chain.planned.grounds.callbacks.contains(&broken.callback),
            };
            if !concerns || !chain.planned.is_guaranteed() {
                continue;
            }
            if chain.state != State::Learning {
                chain.refutations.push(broken.at_ns, broken.to_string());
            }
            chain.broken_ns = chain.broken_ns.max(Some(broken.at_ns));
            chain.breaches.push(broken.clone());
            findings.replan = true;
        }
    }

    /// Takes what was measured since the last look, and says what has changed. `paths`: the
    /// measurements of each chain.
    pub fn look<'a>(
        &mut self,
        now_ns: u64,
        index: usize,
        paths: impl Iterator<Item = &'a mut ChainStats>,
        findings: &mut Findings,
    ) {
        let moment = self.moment(now_ns);
        let Some(chain) = self.chains.get_mut(index) else { return };
        let (mut now, mut began, mut last_end_ns, mut longest_gap_ns) = (Tally::default(), 0, None, 0);
        let mut exceeded: Option<Exceeded> = None;
        let (mut seen, mut below) = (None, None);
        let mut recent_worst_ns = None;
        for stats in paths {
            Range::widen(&mut seen, stats.spread.take_recent());
            below = stats.spread.take_below().or(below);
            now.completions += stats.completions;
            now.late += stats.violations;
            now.in_doubt += stats.in_doubt;
            now.skipped += stats.skipped;
            began += stats.began;
            last_end_ns = last_end_ns.max(stats.last_ended_ns);
            longest_gap_ns = longest_gap_ns.max(stats.longest_gap_ns);
            let recent_ns = stats.take_recent();
            recent_worst_ns = recent_worst_ns.max(recent_ns);
            chain.counts.worst_ns = chain.counts.worst_ns.max(recent_ns);
            chain.planned.is_measured |= stats.last_began_ns.is_some_and(|ns| ns >= chain.planned.from_ns);
            if let Some(fresh) = stats.take_exceeded() {
                exceeded = Some(match exceeded {
                    Some(known) if known.latency_ns() >= fresh.latency_ns() => known,
                    _ => fresh,
                });
            }
        }
        if chain.state != State::Degraded || moment.observes {
            Range::widen(&mut chain.jitter.counted, seen);
        }
        if let Some(worst_ns) = recent_worst_ns {
            let fresh = now.completions.saturating_sub(chain.counts.seen.completions);
            findings.measured.push((index, fresh, worst_ns));
        }
        chain.counts.add(&moment, now, chain.state);
        chain.measured.began = began;
        if let Some(below) = below {
            chain.refutations.push(below.instance.ended_ns, Evidence::Below(below).to_string());
            chain.jitter.keep(below);
            findings.short.push((index, below.latency_ns()));
            findings.replan = true;
        }
        if let Some(exceeded) = exceeded {
            chain.exceeded(exceeded, index, findings);
        }
        chain.measured.listen(now_ns, chain.planned.from_ns, chain.goal_ns, last_end_ns, longest_gap_ns);
        if let Some((_, bound_ns)) = chain.planned.shorter.take_if(|(from_ns, _)| now_ns >= *from_ns) {
            if chain.counts.worst_ns > Some(bound_ns) {
                // That was under the longer one.
                chain.turn(&moment, chain.state, chain.why.clone());
            }
            chain.planned.bound_ns = Some(bound_ns);
            findings.lowered = true;
        }
        let (state, why) = chain.judge(&moment);
        if state != chain.state {
            let words = match (state, chain.planned.bound_ns) {
                (State::Guaranteed, Some(bound_ns)) => {
                    format!("at most {} ms, goal {} ms", ms(bound_ns), ms(chain.goal_ns))
                }
                _ => why.clone(),
            };
            findings.changes.push((chain.name.clone(), state, words));
            chain.turn(&moment, state, why);
        } else {
            chain.why = why;
        }
    }

    /// Whether a part of a chain has ended so shortly before that the others may be about to.
    pub(crate) fn is_ending(&self, now_ns: u64) -> bool {
        let ended = self.chains.iter().filter_map(|chain| chain.running.ended);
        ended.into_iter().any(|(at_ns, _)| now_ns.saturating_sub(at_ns) < ALL_END_NS)
    }

    /// The run is over, and so is all that was managed: what ended with it stood to the end as it
    /// stood before.
    pub(crate) fn all_over(&mut self, now_ns: u64) {
        let moment = self.moment(now_ns);
        let ended = self.chains.iter().filter_map(|chain| chain.running.ended);
        let last_ns = ended.map(|(at_ns, _)| at_ns).max();
        for chain in &mut self.chains {
            let with_all = |at_ns: u64| last_ns.is_some_and(|last_ns| last_ns - at_ns < ALL_END_NS);
            if let Some((at_ns, before)) = chain.running.ended.filter(|(at_ns, _)| with_all(*at_ns)) {
                let end_s = at_ns.saturating_sub(self.started_ns) as f64 / 1e9;
                let why = match before {
                    State::Guaranteed | State::Keepable => format!("until all ended after {end_s:.1} s"),
                    _ => chain.intervals.last().map_or_else(String::new, |interval| interval.why.clone()),
                };
                if chain.state == State::Ended {
                    chain.turn(&moment, before, why);
                }
            }
        }
    }

    /// Assumptions of a chain as they stand.
    pub(crate) fn standings(&self, index: usize, now_ns: u64) -> Vec<Standing> {
        let Some(chain) = self.chains.get(index) else { return Vec::new() };
        let moment = self.moment(now_ns);
        let standing = |assumption: Assumption| {
            let observed = chain.observed(assumption, &moment);
            Standing {
                assumption,
                assumed: assumption.words().to_owned(),
                holds: observed.holds(),
                observed: observed.words(),
            }
        };
        Assumption::ALL.into_iter().map(standing).collect()
    }

    fn moment(&self, now_ns: u64) -> Moment {
        let Self { started_ns, forgive_ns, observes, .. } = *self;
        Moment { now_ns, started_ns, forgive_ns, observes }
    }

    /// The intervals of a chain, the present one included.
    pub fn intervals(&self, index: usize, now_ns: u64) -> Vec<Interval> {
        let Some(chain) = self.chains.get(index) else { return Vec::new() };
        let mut all = chain.intervals.clone();
        all.push(chain.interval(&self.moment(now_ns)));
        all
    }
}

impl Refutations {
    fn push(&mut self, at_ns: u64, words: String) {
        self.times += 1;
        if self.list.len() == MAX_LISTED {
            // The first ones report how it began, the last ones how it goes.
            self.list.remove(MAX_LISTED / 2);
        }
        self.list.push((at_ns, words));
    }
}

impl Counts {
    /// Takes what was counted until now, for a chain in that state.
    fn add(&mut self, moment: &Moment, now: Tally, state: State) {
        let fresh = Tally {
            completions: now.completions.saturating_sub(self.seen.completions),
            late: now.late.saturating_sub(self.seen.late),
            in_doubt: now.in_doubt.saturating_sub(self.seen.in_doubt),
            skipped: now.skipped.saturating_sub(self.seen.skipped),
        };
        let passed_ns = moment.now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, moment.now_ns));
        let add = |to: &mut Tally| {
            to.completions += fresh.completions;
            to.late += fresh.late;
            to.in_doubt += fresh.in_doubt;
            to.skipped += fresh.skipped;
        };
        add(&mut self.in_interval);
        // What a plan gives up on paper alone is nobody's excuse.
        if state == State::Degraded && !moment.observes {
            self.given_up_ns += passed_ns;
            add(&mut self.given_up);
        } else {
            add(&mut self.counted);
        }
        if state == State::Guaranteed {
            self.guaranteed_ns += passed_ns;
        }
        self.seen = now;
    }
}

impl Chain {
    /// Whether any instance of it was seen to begin.
    pub(super) fn has_begun(&self) -> bool {
        self.measured.began > 0
    }

    /// The plan's bound counts from now on.
    fn begin(&mut self, now_ns: u64) {
        (self.planned.from_ns, self.planned.settles, self.planned.is_measured) = (now_ns, 0, false);
        self.measured.began_before = self.measured.began;
    }

    fn exceeded(&mut self, exceeded: Exceeded, index: usize, findings: &mut Findings) {
        let claimed = matches!(self.state, State::Guaranteed | State::Keepable);
        let Exceeded { bound_ns, instance, .. } = exceeded;
        let latency_ns = exceeded.latency_ns();
        if self.state == State::Guaranteed {
            self.latency.belied(exceeded);
        }
        // A broken assumption explains it, and the backlog of before a plan does so for its first
        // instances.
        let explained =
            !self.breaches.is_empty() || self.budgets.overrun.is_some() || self.reserved.difference.is_some();
        let settling = !claimed && instance.began_ns < self.planned.from_ns.saturating_add(bound_ns);
        if settling && !explained && self.planned.settles < SETTLES {
            let settles = self.planned.settles + 1;
            self.begin(instance.ended_ns);
            self.planned.settles = settles;
            return;
        }
        if claimed || !explained {
            let words = format!(
                "a latency of {} ms was measured, above the bound of {} ms{}",
                ms(latency_ns),
                ms(bound_ns),
                times(exceeded.times)
            );
            self.refutations.push(instance.ended_ns, words);
            // The word comes back with a bound above it, and not before.
            self.latency.keep(exceeded);
        }
        if !explained {
            findings.unexplained.push((index, latency_ns - bound_ns));
            findings.replan = true;
        }
    }

    fn judge(&self, moment: &Moment) -> (State, String) {
        let &Moment { now_ns, started_ns, forgive_ns, observes } = moment;
        if let Some((at_ns, before)) = self.running.ended {
            let until = match before {
                State::Ended => return (State::Ended, self.why.clone()),
                State::Guaranteed => "guaranteed until then".to_owned(),
                other => format!("{other} until then"),
            };
            let after_s = at_ns.saturating_sub(started_ns) as f64 / 1e9;
            return (State::Ended, format!("ended after {after_s:.1} s, {until}"));
        }
        match &self.planned.state {
            None => return (State::Learning, self.why.clone()),
            Some(ChainState::Degraded { why }) => return (State::Degraded, why.clone()),
            Some(ChainState::NotAnalysable { why }) => return (State::NotAnalysable, why.clone()),
            Some(ChainState::NotFound { why, near_misses }) if near_misses.is_empty() => {
                return (State::NotFound, why.clone());
            }
            Some(ChainState::NotFound { why, near_misses }) => {
                return (State::NotFound, format!("{why}; there are: {}", near_misses.join(", ")));
            }
            Some(ChainState::Guaranteed) => {}
        }
        for assumption in Assumption::ALL {
            // What is only observed has no reservations, which its state says.
            if observes && matches!(assumption, Assumption::Reserved | Assumption::Budgets) {
                continue;
            }
            if let Observed::Broken(evidence) = self.observed(assumption, moment) {
                return (evidence.state(self.state == State::Learning), evidence.to_string());
            }
        }
        if let Some(at_ns) = self.broken_ns
            && now_ns.saturating_sub(at_ns) < forgive_ns
        {
            let why = format!(
                "an assumption was last seen broken {:.1} s ago; what is assumed since then must hold for {:.1} s first",
                now_ns.saturating_sub(at_ns) as f64 / 1e9,
                forgive_ns as f64 / 1e9
            );
            return (State::Learning, why);
        }
        let bound_ns = self.planned.bound_ns.unwrap_or(0);
        let settled = self.planned.is_measured && now_ns >= self.planned.from_ns.saturating_add(bound_ns);
        match (settled, observes) {
            (false, _) => (
                State::Learning,
                "no instance was yet seen to begin and end under the present plan".to_owned(),
            ),
            (true, true) => (State::Keepable, "only observed: nothing is reserved".to_owned()),
            (true, false) => (State::Guaranteed, String::new()),
        }
    }

    /// How an assumption stands.
    fn observed(&self, assumption: Assumption, moment: &Moment) -> Observed<'_> {
        let planned = &self.planned;
        match assumption {
            Assumption::Bounded => planned.bounded(self.goal_ns),
            Assumption::Running => self.running.observed(planned),
            Assumption::Started => planned.started(),
            Assumption::Reserved => self.reserved.observed(planned, moment.observes),
            Assumption::Budgets => self.budgets.observed(planned, moment.observes),
            Assumption::Costs | Assumption::Arrivals | Assumption::Outputs | Assumption::Graph => {
                self.breaches.observed(assumption, planned)
            }
            Assumption::Suspensions => self.breaches.suspensions(planned),
            Assumption::Delivery => self.delivery.observed(planned, &self.breaches),
            Assumption::Complete => self.complete.observed(moment.now_ns, moment.forgive_ns),
            Assumption::Observed => planned.observed(),
            Assumption::Network => self.network.observed(planned),
            Assumption::Measured => self.measured.observed(planned),
            Assumption::Shortest => self.jitter.observed(planned),
            Assumption::Latency => self.latency.observed(planned),
        }
    }

    fn interval(&self, moment: &Moment) -> Interval {
        let s = |at_ns: u64| at_ns.saturating_sub(moment.started_ns) as f64 / 1e9;
        let ms = |ns: u64| ns as f64 / 1e6;
        Interval {
            state: self.state,
            from_s: s(self.since_ns),
            to_s: s(moment.now_ns),
            bound_ms: self.planned.bound_ns.map(ms),
            worst_ms: self.counts.worst_ns.map(ms),
            completions: self.counts.in_interval.completions,
            late: self.counts.in_interval.late,
            why: self.why.clone(),
        }
    }

    fn turn(&mut self, moment: &Moment, state: State, why: String) {
        self.intervals.push(self.interval(moment));
        if self.intervals.len() > INTERVALS {
            thin(&mut self.intervals);
        }
        if state == State::Degraded {
            self.given_up_why.clone_from(&why);
        }
        (self.state, self.why, self.since_ns) = (state, why, moment.now_ns);
        (self.counts.worst_ns, self.counts.in_interval) = (None, Tally::default());
    }
}

/// Puts the shortest interval together with the one before it, so that nothing that was counted is
/// lost.
fn thin(intervals: &mut Vec<Interval>) {
    let length = |interval: &Interval| interval.to_s - interval.from_s;
    let shortest =
        (1..intervals.len()).min_by(|a, b| length(&intervals[*a]).total_cmp(&length(&intervals[*b])));
    let Some(shortest) = shortest else { return };
    let gone = intervals.remove(shortest);
    if let Some(before) = intervals.get_mut(shortest - 1) {
        before.to_s = gone.to_s;
        before.worst_ms = [before.worst_ms, gone.worst_ms].into_iter().flatten().reduce(f64::max);
        before.completions += gone.completions;
        before.late += gone.late;
    }
}
