//! How each chain stood over the whole run: a small state machine for each, fed by plans, by events
//! that break an assumption and by what is measured.
//!
//! A plan says what *can* be kept. The word "guaranteed" is said here, and only while every
//! [`Assumption`] is observed to hold.

use std::collections::BTreeSet;

use takt_model::{Breach, Broken, ChainStats, Exceeded, Range};

use super::assumption::{Assumption, Interval, Standing, State};
use super::jitter::Jitter;
use crate::manager::{ChainGrounds, Grounds};
use crate::plan::{ChainState, Plan};
use crate::words::ms;

/// Instances that must have begun before it is said that none is seen to end.
const BEGUN: u64 = 10;
/// Nothing is said about a chain that is silent for less than this: the first of three reasons to
/// wait, with ten goals and ten times the longest time between two ends.
const QUIET_NS: u64 = 3_000_000_000;
/// How often the beginning of a plan may be waited out: latencies above the bound that began just
/// after it was enacted come from the backlog of before, but not time and again.
const SETTLES: u32 = 20;
/// Intervals kept; of a chain whose state changes more often, the shortest neighbours are put
/// together.
const INTERVALS: usize = 128;
/// Processes of one system end one after another, and ROS 2's launch gives them some seconds for
/// it.
pub(super) const ALL_END_NS: u64 = 2_000_000_000;
/// Broken assumptions kept in words.
const MAX_LISTED: usize = 16;

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

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub name: String,
    goal_ns: u64,
    pub state: State,
    pub why: String,
    since_ns: u64,
    pub intervals: Vec<Interval>,
    planned: Option<ChainState>,
    pub bound_ns: Option<u64>,
    grounds: ChainGrounds,
    /// A shorter bound that is reported from then on.
    shorter: Option<(u64, u64)>,
    /// From when on the plan's bound counts.
    in_force_ns: u64,
    settles: u32,
    broken: Vec<Broken>,
    /// When an assumption was last seen broken. Curves grow piece by piece: after a change, first
    /// one activation is longer than ever, then two in a row.
    broken_ns: Option<u64>,
    exceeded: Option<Exceeded>,
    overrun: Option<String>,
    lost: Option<(u64, u64)>,
    difference: Option<String>,
    /// When something on its way ended, what, and how it stood before.
    ended: Option<(u64, State)>,
    /// At the last look.
    seen: Tally,
    began: u64,
    began_in_force: u64,
    ended_in_force: bool,
    /// Longest latency in the present interval.
    worst_ns: Option<u64>,
    in_interval: Tally,
    /// While it was not given up.
    pub counted: Tally,
    /// While it was.
    pub given_up: Tally,
    pub given_up_ns: u64,
    pub given_up_why: String,
    pub guaranteed_ns: u64,
    looked_ns: u64,
    /// Latencies above a bound while it was called guaranteed.
    pub false_guarantees: u64,
    pub worst_false: Option<Exceeded>,
    /// Assumptions that were seen broken, in words, the oldest first; and how many.
    pub refutations: Vec<(u64, String)>,
    pub refuted_times: u64,
    /// Why the way from another machine keeps it from being guaranteed.
    pub network: Option<String>,
    /// Against its jitter goal.
    pub jitter: Jitter,
    /// Completions are quiet for.
    silent_ns: Option<u64>,
    /// Why it cannot be measured here at all.
    unmeasurable: Option<String>,
    /// Processes on its way whose middleware nothing carries.
    uncarried: Vec<u32>,
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
            looked_ns: now_ns,
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
            self.chains.iter_mut().for_each(|chain| chain.carry(&self.uncarried));
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
            if chain.ended.is_some() && gone {
                // Without what has ended there is no chain, which is no news.
                continue;
            }
            chain.ended = None;
            if !plan.cached {
                chain.broken.clear();
                chain.overrun = None;
            }
            let was = chain.planned.replace(planned.state.clone());
            let moved = moved.iter().any(|tid| of_chain.threads.contains(tid));
            // What began under a longer bound may still take as long.
            let shorter = planned.bound_ns < chain.bound_ns;
            let stays = shorter
                && !moved
                && chain.state == State::Guaranteed
                && planned.state == ChainState::Guaranteed;
            if !(stays && chain.lower_later(now_ns, planned.bound_ns)) {
                (chain.bound_ns, chain.shorter) = (planned.bound_ns, None);
            }
            let difference = differences.iter().find(|(tid, _)| *tid == 0 || of_chain.threads.contains(tid));
            let differed = chain.difference.is_some();
            chain.difference = difference.map(|(_, words)| words.clone());
            let repaired = differed && chain.difference.is_none();
            let fresh = was != Some(ChainState::Guaranteed) || repaired;
            if fresh || (shorter && !stays) || moved {
                chain.begin(now_ns);
            }
            chain.grounds = of_chain;
            chain.carry(&self.uncarried);
            if chain.jitter.planned(planned) {
                chain.begin(now_ns);
            }
            if let (Some(exceeded), Some(bound_ns)) = (&chain.exceeded, chain.bound_ns)
                && exceeded.latency_ns() <= bound_ns
            {
                chain.exceeded = None;
                chain.begin(now_ns);
            }
            // What was broken explained the latency, and the plan that covers that does not reach
            // it.
            if let (Some(exceeded), Some(bound_ns), false) = (&chain.exceeded, chain.bound_ns, plan.cached) {
                too_short.push((index, exceeded.latency_ns().saturating_sub(bound_ns)));
            }
        }
        too_short
    }

    /// These processes are starting, or have just done so: whoever began that after the plan is no
    /// longer in the steady state of its bounds.
    pub fn starting(&mut self, pids: &[u32]) {
        for grounds in self.chains.iter_mut().map(|chain| &mut chain.grounds) {
            for pid in pids.iter().filter(|pid| grounds.processes.contains(pid)) {
                if !grounds.starting.contains(pid) {
                    grounds.starting.push(*pid);
                }
            }
        }
    }

    /// What a chain is promised now, for its measurement.
    pub fn promise(&self, index: usize) -> Option<u64> {
        let chain = self.chains.get(index)?;
        chain.bound_ns.filter(|_| chain.planned == Some(ChainState::Guaranteed))
    }

    /// Events were lost.
    pub fn lost(&mut self, now_ns: u64, count: u64) {
        for chain in &mut self.chains {
            let before =
                chain.lost.filter(|(at_ns, _)| now_ns - at_ns < self.forgive_ns).map_or(0, |(_, n)| n);
            chain.lost = Some((now_ns, before + count));
        }
    }

    /// A reservation was found exhausted for as long as a goal that it serves: the next plan gives
    /// it more.
    pub fn overrun(&mut self, now_ns: u64, tid: u32, words: &str, findings: &mut Findings) {
        for chain in self.chains.iter_mut().filter(|chain| chain.grounds.threads.contains(&tid)) {
            if !chain.stands() {
                continue;
            }
            findings.replan = true;
            // As after any broken assumption, the next plan has to hold for a while first, and
            // without another overrun.
            chain.broken_ns = chain.broken_ns.max(Some(now_ns));
            if chain.overrun.is_none() {
                chain.refute(now_ns, words.to_owned());
                chain.overrun = Some(words.to_owned());
            }
        }
    }

    /// A reservation was read back and is not what it was made. The next plan makes it so again.
    pub fn differs(&mut self, now_ns: u64, tid: u32, words: &str, findings: &mut Findings) {
        for chain in self.chains.iter_mut().filter(|chain| chain.grounds.threads.contains(&tid)) {
            if !chain.stands() {
                continue;
            }
            findings.replan = true;
            chain.broken_ns = chain.broken_ns.max(Some(now_ns));
            if chain.difference.is_none() {
                chain.refute(now_ns, format!("not as asked: {words}"));
                chain.difference = Some(words.to_owned());
            }
        }
    }

    /// Why a chain cannot be measured, if it cannot.
    pub fn unmeasurable(&mut self, index: usize, why: Option<String>) {
        if let Some(chain) = self.chains.get_mut(index) {
            chain.unmeasurable = why;
        }
    }

    /// An assumption about a callback was seen broken.
    pub fn broken(&mut self, broken: &Broken, findings: &mut Findings) {
        for chain in &mut self.chains {
            if broken.what == Breach::Ended {
                if chain.grounds.path.contains(&broken.callback) && chain.ended.is_none() {
                    chain.ended = Some((broken.at_ns, chain.state));
                }
                continue;
            }
            let concerns = match broken.what {
                Breach::Unplanned { tid } => chain.grounds.threads.contains(&tid),
                _ => chain.grounds.callbacks.contains(&broken.callback),
            };
            if !concerns || !chain.stands() {
                continue;
            }
            if chain.state != State::Learning {
                chain.refute(broken.at_ns, broken.to_string());
            }
            chain.broken_ns = chain.broken_ns.max(Some(broken.at_ns));
            if chain.broken.len() < MAX_LISTED {
                chain.broken.push(broken.clone());
            }
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
        let (observes, started_ns, forgive_ns) = (self.observes, self.started_ns, self.forgive_ns);
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
            chain.worst_ns = chain.worst_ns.max(recent_ns);
            chain.ended_in_force |= stats.last_began_ns.is_some_and(|ns| ns >= chain.in_force_ns);
            if let Some(fresh) = stats.take_exceeded() {
                exceeded = Some(match exceeded {
                    Some(known) if known.latency_ns() >= fresh.latency_ns() => known,
                    _ => fresh,
                });
            }
        }
        if chain.state != State::Degraded || observes {
            Range::widen(&mut chain.jitter.counted, seen);
        }
        if let Some(worst_ns) = recent_worst_ns {
            let fresh = now.completions.saturating_sub(chain.seen.completions);
            findings.measured.push((index, fresh, worst_ns));
        }
        chain.count(now_ns, now, began, observes);
        if let Some(below) = below {
            let words = chain.jitter.broken(below);
            chain.refute(below.instance.ended_ns, words);
            findings.short.push((index, below.latency_ns()));
            findings.replan = true;
        }
        if let Some(exceeded) = exceeded {
            chain.exceeded(exceeded, index, findings);
        }
        chain.silence(now_ns, last_end_ns, longest_gap_ns);
        if let Some((_, bound_ns)) = chain.shorter.take_if(|(from_ns, _)| now_ns >= *from_ns) {
            if chain.worst_ns > Some(bound_ns) {
                // That was under the longer one.
                chain.turn(now_ns, started_ns, chain.state, chain.why.clone());
            }
            chain.bound_ns = Some(bound_ns);
            findings.lowered = true;
        }
        let (state, why) = chain.judge(now_ns, started_ns, forgive_ns, observes);
        if state != chain.state {
            let words = match (state, chain.bound_ns) {
                (State::Guaranteed, Some(bound_ns)) => {
                    format!("at most {} ms, goal {} ms", ms(bound_ns), ms(chain.goal_ns))
                }
                _ => why.clone(),
            };
            findings.changes.push((chain.name.clone(), state, words));
            chain.turn(now_ns, started_ns, state, why);
        } else {
            chain.why = why;
        }
    }

    /// Whether a part of a chain has ended so shortly before that the others may be about to.
    pub(crate) fn is_ending(&self, now_ns: u64) -> bool {
        let ended = self.chains.iter().filter_map(|chain| chain.ended);
        ended.into_iter().any(|(at_ns, _)| now_ns.saturating_sub(at_ns) < ALL_END_NS)
    }

    /// The run is over, and so is all that was managed: what ended with it stood to the end as it
    /// stood before.
    pub(crate) fn all_over(&mut self, now_ns: u64) {
        let last_ns = self.chains.iter().filter_map(|chain| chain.ended).map(|(at_ns, _)| at_ns).max();
        for chain in &mut self.chains {
            let with_all = |at_ns: u64| last_ns.is_some_and(|last_ns| last_ns - at_ns < ALL_END_NS);
            if let Some((at_ns, before)) = chain.ended.filter(|(at_ns, _)| with_all(*at_ns)) {
                let end_s = at_ns.saturating_sub(self.started_ns) as f64 / 1e9;
                let why = match before {
                    State::Guaranteed | State::Keepable => format!("until all ended after {end_s:.1} s"),
                    _ => chain.intervals.last().map_or_else(String::new, |interval| interval.why.clone()),
                };
                if chain.state == State::Ended {
                    chain.turn(now_ns, self.started_ns, before, why);
                }
            }
        }
    }

    /// Assumptions of a chain as they stand.
    pub(crate) fn standings(&self, index: usize, now_ns: u64) -> Vec<Standing> {
        let Some(chain) = self.chains.get(index) else { return Vec::new() };
        Assumption::ALL
            .iter()
            .map(|&assumption| {
                let (holds, observed) = chain.holds(assumption, now_ns, self.forgive_ns, self.observes);
                let assumed = assumption.words().to_owned();
                Standing { assumption, assumed, holds, observed }
            })
            .collect()
    }

    /// The intervals of a chain, the present one included.
    pub fn intervals(&self, index: usize, now_ns: u64) -> Vec<Interval> {
        let Some(chain) = self.chains.get(index) else { return Vec::new() };
        let mut all = chain.intervals.clone();
        all.push(chain.interval(now_ns, self.started_ns));
        all
    }
}

impl Chain {
    /// Whether any instance of it was seen to begin.
    pub(super) fn has_begun(&self) -> bool {
        self.began > 0
    }

    /// The plan's bound counts from now on.
    fn begin(&mut self, now_ns: u64) {
        (self.in_force_ns, self.settles) = (now_ns, 0);
        (self.began_in_force, self.ended_in_force) = (self.began, false);
    }

    /// A plan has a shorter bound, and moved nothing: the longer one stays until all that began
    /// under it has ended.
    fn lower_later(&mut self, now_ns: u64, bound_ns: Option<u64>) -> bool {
        let (Some(bound_ns), Some(longer_ns)) = (bound_ns, self.bound_ns) else { return false };
        if self.shorter.is_none_or(|(_, known_ns)| known_ns != bound_ns) {
            self.shorter = Some((now_ns.saturating_add(longer_ns), bound_ns));
        }
        true
    }

    /// Takes note of the processes whose middleware nothing carries.
    fn carry(&mut self, uncarried: &BTreeSet<u32>) {
        self.uncarried = self.grounds.receivers.intersection(uncarried).copied().collect();
    }

    /// Something is said that could be refuted.
    fn stands(&self) -> bool {
        self.planned == Some(ChainState::Guaranteed)
    }

    fn refute(&mut self, at_ns: u64, words: String) {
        self.refuted_times += 1;
        if self.refutations.len() == MAX_LISTED {
            // The first ones report how it began, the last ones how it goes.
            self.refutations.remove(MAX_LISTED / 2);
        }
        self.refutations.push((at_ns, words));
    }

    fn count(&mut self, now_ns: u64, now: Tally, began: u64, observes: bool) {
        let fresh = Tally {
            completions: now.completions.saturating_sub(self.seen.completions),
            late: now.late.saturating_sub(self.seen.late),
            in_doubt: now.in_doubt.saturating_sub(self.seen.in_doubt),
            skipped: now.skipped.saturating_sub(self.seen.skipped),
        };
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        let add = |to: &mut Tally| {
            to.completions += fresh.completions;
            to.late += fresh.late;
            to.in_doubt += fresh.in_doubt;
            to.skipped += fresh.skipped;
        };
        add(&mut self.in_interval);
        // What a plan gives up on paper alone is nobody's excuse.
        if self.state == State::Degraded && !observes {
            self.given_up_ns += passed_ns;
            add(&mut self.given_up);
        } else {
            add(&mut self.counted);
        }
        if self.state == State::Guaranteed {
            self.guaranteed_ns += passed_ns;
        }
        (self.seen, self.began) = (now, began);
    }

    fn exceeded(&mut self, exceeded: Exceeded, index: usize, findings: &mut Findings) {
        let claimed = matches!(self.state, State::Guaranteed | State::Keepable);
        let Exceeded { bound_ns, instance, .. } = exceeded;
        let latency_ns = exceeded.latency_ns();
        if self.state == State::Guaranteed {
            self.false_guarantees += exceeded.times;
            if self.worst_false.is_none_or(|known| known.latency_ns() < latency_ns) {
                self.worst_false = Some(exceeded);
            }
        }
        // A broken assumption explains it, and the backlog of before a plan does so for its first
        // instances.
        let explained = !self.broken.is_empty() || self.overrun.is_some() || self.difference.is_some();
        let settling = !claimed && instance.began_ns < self.in_force_ns.saturating_add(bound_ns);
        if settling && !explained && self.settles < SETTLES {
            let settles = self.settles + 1;
            self.begin(instance.ended_ns);
            self.settles = settles;
            return;
        }
        if claimed || !explained {
            let words = format!(
                "a latency of {} ms was measured, above the bound of {} ms{}",
                ms(latency_ns),
                ms(bound_ns),
                if exceeded.times > 1 { format!(" ({} times)", exceeded.times) } else { String::new() }
            );
            self.refute(instance.ended_ns, words);
        }
        if !explained {
            findings.unexplained.push((index, latency_ns - bound_ns));
            findings.replan = true;
        }
        // Explained or not: the word comes back with a bound above it, and not before.
        if (claimed || !explained) && self.exceeded.is_none_or(|known| known.latency_ns() < latency_ns) {
            self.exceeded = Some(exceeded);
        }
    }

    /// For how long instances have begun and none was seen to end, if it is too long.
    fn silence(&mut self, now_ns: u64, last_end_ns: Option<u64>, longest_gap_ns: u64) {
        let since_ns = last_end_ns.unwrap_or(0).max(self.in_force_ns);
        let quiet_ns = now_ns.saturating_sub(since_ns);
        if last_end_ns.is_some_and(|end_ns| end_ns >= self.in_force_ns) && quiet_ns < QUIET_NS {
            self.began_in_force = self.began;
        }
        let patience_ns =
            QUIET_NS.max(self.goal_ns.saturating_mul(10)).max(longest_gap_ns.saturating_mul(10));
        let begun = self.began.saturating_sub(self.began_in_force);
        self.silent_ns = (quiet_ns > patience_ns && begun >= BEGUN).then_some(quiet_ns);
    }

    fn judge(&self, now_ns: u64, started_ns: u64, forgive_ns: u64, observes: bool) -> (State, String) {
        let after_s = |at_ns: u64| at_ns.saturating_sub(started_ns) as f64 / 1e9;
        if let Some((at_ns, before)) = self.ended {
            let until = match before {
                State::Ended => return (State::Ended, self.why.clone()),
                State::Guaranteed => "guaranteed until then".to_owned(),
                other => format!("{other} until then"),
            };
            return (State::Ended, format!("ended after {:.1} s, {until}", after_s(at_ns)));
        }
        match &self.planned {
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
            let (holds, words) = self.holds(assumption, now_ns, forgive_ns, observes);
            let state = match assumption {
                // Nothing was said yet that this could refute.
                Assumption::Suspensions if !self.grounds.unseen.is_empty() => State::NotMeasurable,
                Assumption::Delivery if !self.grounds.delayed.is_empty() || !self.uncarried.is_empty() => {
                    State::NotAnalysable
                }
                Assumption::Costs
                | Assumption::Arrivals
                | Assumption::Outputs
                | Assumption::Suspensions
                | Assumption::Delivery
                | Assumption::Graph
                    if self.state == State::Learning =>
                {
                    State::Learning
                }
                Assumption::Started => State::Learning,
                Assumption::Network => State::NotAnalysable,
                Assumption::Complete | Assumption::Observed | Assumption::Measured => State::NotMeasurable,
                _ => State::Refuted,
            };
            if holds == Some(false) {
                return (state, words);
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
        let settled =
            self.ended_in_force && now_ns >= self.in_force_ns.saturating_add(self.bound_ns.unwrap_or(0));
        match (settled, observes) {
            (false, _) => (
                State::Learning,
                "no instance was yet seen to begin and end under the present plan".to_owned(),
            ),
            (true, true) => (State::Keepable, "only observed: nothing is reserved".to_owned()),
            (true, false) => (State::Guaranteed, String::new()),
        }
    }

    /// Whether an assumption is observed to hold, and what was seen against it.
    fn holds(
        &self,
        assumption: Assumption,
        now_ns: u64,
        forgive_ns: u64,
        observes: bool,
    ) -> (Option<bool>, String) {
        let yes = (Some(true), String::new());
        let against = |words: String| (Some(false), words);
        let broken = |wanted: fn(&Breach) -> bool| {
            let all: Vec<&Broken> = self.broken.iter().filter(|broken| wanted(&broken.what)).collect();
            let bounded = self.bound_ns.map(|_| true);
            match all.as_slice() {
                [] => (bounded, String::new()),
                [one] => against(one.to_string()),
                [one, rest @ ..] => against(format!("{one}; and {} more", rest.len())),
            }
        };
        match assumption {
            Assumption::Bounded => match (&self.planned, self.bound_ns) {
                (Some(ChainState::Guaranteed), _) => yes,
                (None, _) => (None, String::new()),
                (_, Some(bound_ns)) if bound_ns > self.goal_ns => {
                    against(format!("the bound is {} ms", ms(bound_ns)))
                }
                _ => against("there is no bound that the plan keeps".to_owned()),
            },
            Assumption::Running if self.ended.is_some() => against("a part of it has ended".to_owned()),
            Assumption::Running => (self.planned.as_ref().map(|_| true), String::new()),
            Assumption::Started => {
                match (self.grounds.starting.as_slice(), self.grounds.not_run.as_slice()) {
                    ([], []) => (self.planned.as_ref().map(|_| true), String::new()),
                    ([], [timer, rest @ ..]) => against(format!(
                        "{timer}{} has not run yet: what it takes is not known",
                        if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) }
                    )),
                    (pids, _) => against(format!(
                        "process {} is starting, and has not shown what it does afterwards",
                        pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
                    )),
                }
            }
            Assumption::Reserved if observes => against("nothing is reserved: only observed".to_owned()),
            Assumption::Reserved => match &self.difference {
                Some(words) => against(format!("not as asked: {words}")),
                None => (self.bound_ns.map(|_| true), String::new()),
            },
            Assumption::Budgets if observes => (None, String::new()),
            Assumption::Budgets => match &self.overrun {
                Some(words) => against(words.clone()),
                None => (self.bound_ns.map(|_| true), String::new()),
            },
            Assumption::Costs => {
                broken(|what| matches!(what, Breach::Cost(_) | Breach::Beyond { suspended: false, .. }))
            }
            Assumption::Arrivals => broken(|what| matches!(what, Breach::Arrivals(_))),
            Assumption::Delivery if !self.uncarried.is_empty() => against(format!(
                "no thread of the middleware of process {} runs at real-time priority (they need more than helpers may have, or have a nice value of \
                 their own): how long messages wait there is up to everybody else on the machine",
                self.uncarried.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            )),
            Assumption::Delivery if !self.grounds.delayed.is_empty() => {
                let listed: Vec<String> = self
                    .grounds
                    .delayed
                    .iter()
                    .map(|(name, ns)| format!("{} ms to {name}", ms(*ns)))
                    .collect();
                against(format!(
                    "messages were delivered after {}: threads of the middleware, which have no reservations, waited for a CPU, and nothing bounds how \
                     long they do. Leave them more of the CPUs (max_bandwidth, max_system_bandwidth), or take work off them",
                    listed.join(", ")
                ))
            }
            Assumption::Delivery => match self.grounds.undelivered.as_slice() {
                [] => broken(|what| matches!(what, Breach::Delivery(_))),
                names => (
                    None,
                    format!(
                        "nothing shows how long the middleware takes with messages to {}",
                        names.join(", ")
                    ),
                ),
            },
            Assumption::Outputs => broken(|what| matches!(what, Breach::Output(_) | Breach::Sender)),
            Assumption::Suspensions => match self.grounds.unseen.as_slice() {
                [] => broken(|what| {
                    matches!(
                        what,
                        Breach::Suspension(_)
                            | Breach::Suspensions(_)
                            | Breach::Yields(_)
                            | Breach::Beyond { suspended: true, .. }
                    )
                }),
                [callback, rest @ ..] => against(format!(
                    "whether {callback}{} suspends itself or yields cannot be reported by what observes it",
                    if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) }
                )),
            },
            Assumption::Graph => broken(|what| matches!(what, Breach::Unplanned { .. })),
            Assumption::Complete => match self.lost {
                Some((at_ns, count)) if now_ns.saturating_sub(at_ns) < forgive_ns => against(format!(
                    "{count} events were lost, the last {:.1} s ago: what happened meanwhile cannot be known",
                    now_ns.saturating_sub(at_ns) as f64 / 1e9
                )),
                _ => yes,
            },
            Assumption::Observed => match self.grounds.unobserved.as_slice() {
                [] => (self.planned.as_ref().map(|_| true), String::new()),
                topics => against(format!(
                    "messages on {} come from publishers that are not observed: how long they waited cannot be known",
                    topics.join(", ")
                )),
            },
            Assumption::Measured if self.unmeasurable.is_some() => {
                against(self.unmeasurable.clone().unwrap_or_default())
            }
            Assumption::Measured => match self.silent_ns {
                Some(quiet_ns) => against(format!(
                    "not measured: {} instances began and none was seen to come to its end in {:.1} s",
                    self.began.saturating_sub(self.began_in_force),
                    quiet_ns as f64 / 1e9
                )),
                None => (self.ended_in_force.then_some(true), String::new()),
            },
            Assumption::Network => match &self.network {
                Some(words) => against(words.clone()),
                None => (self.planned.as_ref().map(|_| true), String::new()),
            },
            Assumption::Shortest => match self.jitter.against() {
                Some(words) => against(words),
                None => (self.ended_in_force.then_some(true), String::new()),
            },
            Assumption::Latency => match &self.exceeded {
                Some(exceeded) => against(format!(
                    "a latency of {} ms was measured, above the bound of {} ms, and no execution time or arrival above its curve explains it",
                    ms(exceeded.latency_ns()),
                    ms(exceeded.bound_ns)
                )),
                None => (self.ended_in_force.then_some(true), String::new()),
            },
        }
    }

    fn interval(&self, now_ns: u64, started_ns: u64) -> Interval {
        let s = |at_ns: u64| at_ns.saturating_sub(started_ns) as f64 / 1e9;
        let ms = |ns: u64| ns as f64 / 1e6;
        Interval {
            state: self.state,
            from_s: s(self.since_ns),
            to_s: s(now_ns),
            bound_ms: self.bound_ns.map(ms),
            worst_ms: self.worst_ns.map(ms),
            completions: self.in_interval.completions,
            late: self.in_interval.late,
            why: self.why.clone(),
        }
    }

    fn turn(&mut self, now_ns: u64, started_ns: u64, state: State, why: String) {
        self.intervals.push(self.interval(now_ns, started_ns));
        if self.intervals.len() > INTERVALS {
            thin(&mut self.intervals);
        }
        if state == State::Degraded {
            self.given_up_why.clone_from(&why);
        }
        (self.state, self.why, self.since_ns) = (state, why, now_ns);
        (self.worst_ns, self.in_interval) = (None, Tally::default());
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
