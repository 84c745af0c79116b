//! The log, once for people and once for programs.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::State;
use crate::enact::Overrun;
use crate::plan::{ChainPlan, ChainState, Decision, Plan, Step};

/// One thing that happened.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum Record<'a> {
    /// Something to know.
    Note { words: &'a str },
    /// A plan. Repeated ones are only counted.
    Plan { number: u64, plan: &'a Plan, chains: &'a [ChainPlan], decisions: &'a [Decision] },
    /// A chain stands otherwise than before.
    Chain { chain: &'a str, state: super::State, why: &'a str },
    /// Actions taken.
    Enacted { number: u64, enacted: &'a crate::enact::Enacted },
    /// Budgets that did not suffice, over one period.
    Overruns { threads: &'a [(Overrun, u64)] },
    /// The state, once in a period.
    Status { status: &'a super::Status },
}

#[derive(Serialize)]
struct Line<'a> {
    /// CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// Seconds since 1970, for people who compare with other logs.
    wall_s: f64,
    #[serde(flatten)]
    record: &'a Record<'a>,
}

/// Lines kept for screens.
const RECENT: usize = 40;

/// A change of what is promised of a chain, for whoever operates the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The chain is guaranteed.
    Guaranteed {
        /// Its name.
        chain: String,
    },
    /// The chain was guaranteed and is not any more.
    GuaranteeLost {
        /// Its name.
        chain: String,
        /// What was seen.
        why: String,
    },
    /// The chain goes on at best effort, in the declared order.
    Degraded {
        /// Its name.
        chain: String,
        /// What did not fit.
        why: String,
    },
    /// The kernel has something else than asked.
    NotAsAsked {
        /// What.
        difference: String,
    },
}

/// Who is told of changes.
pub type Listener = Box<dyn FnMut(u64, Change) + Send>;

/// Destination of the log.
#[derive(Default)]
pub struct Log {
    listener: Option<Listener>,
    /// How each chain stood when it was last told.
    stood: Vec<(String, State)>,
    /// Differences that were told.
    differed: Vec<String>,
    text: Option<Box<dyn Write + Send>>,
    json: Option<Box<dyn Write + Send>>,
    /// Last message on each chain: repeated only when it changes.
    logged: Vec<(String, String)>,
    /// The last lines for people.
    recent: VecDeque<String>,
    broken: bool,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (text, json) = (self.text.is_some(), self.json.is_some());
        f.debug_struct("Log").field("text", &text).field("json", &json).finish_non_exhaustive()
    }
}

impl Log {
    /// Lines for people to `text`, JSON lines to `json`.
    #[must_use]
    pub fn new(text: Option<Box<dyn Write + Send>>, json: Option<Box<dyn Write + Send>>) -> Self {
        Self { text, json, ..Self::default() }
    }

    /// Also tells `tell` of changes of what is promised, with their time (CLOCK_MONOTONIC).
    #[must_use]
    pub fn informing(self, listener: Listener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// The changes in a record.
    fn changes(&mut self, record: &Record<'_>) -> Vec<Change> {
        match record {
            Record::Chain { chain, state, why } => self.stands(chain, *state, why).into_iter().collect(),
            Record::Enacted { enacted, .. } => {
                let now: Vec<String> = enacted.differences.iter().map(ToString::to_string).collect();
                let new = now.iter().filter(|one| !self.differed.contains(one)).cloned();
                let changes = new.map(|difference| Change::NotAsAsked { difference }).collect();
                self.differed = now;
                changes
            }
            _ => Vec::new(),
        }
    }

    fn stands(&mut self, chain: &str, state: State, why: &str) -> Option<Change> {
        let before = match self.stood.iter_mut().find(|(name, _)| name == chain) {
            Some((_, stood)) => std::mem::replace(stood, state),
            None => {
                self.stood.push((chain.to_owned(), state));
                State::Learning
            }
        };
        let (chain, why) = (chain.to_owned(), why.to_owned());
        match state {
            _ if state == before => None,
            State::Guaranteed => Some(Change::Guaranteed { chain }),
            State::Degraded => Some(Change::Degraded { chain, why }),
            _ if before == State::Guaranteed => {
                let why = if why.is_empty() { state.words().to_owned() } else { format!("{state}: {why}") };
                Some(Change::GuaranteeLost { chain, why })
            }
            _ => None,
        }
    }

    pub(super) fn record(&mut self, at_ns: u64, record: &Record<'_>) {
        if self.listener.is_some() {
            let changes = self.changes(record);
            if let Some(listener) = &mut self.listener {
                changes.into_iter().for_each(|change| listener(at_ns, change));
            }
        }
        let wall_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64());
        let day_s = wall_s as u64 % 86_400;
        let stamp = format!("{:02}:{:02}:{:02}", day_s / 3600, day_s / 60 % 60, day_s % 60);
        let lines: Vec<String> =
            self.words(record).into_iter().map(|line| format!("{stamp} {line}")).collect();
        for line in &lines {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(line.clone());
        }
        if self.broken {
            return;
        }
        let outcome = (|| {
            if let Some(json) = &mut self.json {
                let mut line = serde_json::to_vec(&Line { at_ns, wall_s, record })?;
                line.push(b'\n');
                json.write_all(&line)?;
                json.flush()?;
            }
            if let Some(text) = &mut self.text {
                for line in lines {
                    writeln!(text, "{line}")?;
                }
                text.flush()?;
            }
            Ok::<_, std::io::Error>(())
        })();
        if let Err(error) = outcome {
            // A full disk must not end the manager; it is said once where it can be.
            self.broken = true;
            let _ = writeln!(std::io::stderr(), "takt manage: the log stops here: {error}");
        }
    }

    /// The last lines for people, the oldest first.
    pub(super) fn recent(&self) -> Vec<String> {
        self.recent.iter().cloned().collect()
    }

    fn words(&mut self, record: &Record<'_>) -> Vec<String> {
        match record {
            Record::Note { words } => words.lines().map(str::to_owned).collect(),
            Record::Plan { number, plan, chains, decisions } => {
                let mut lines = Vec::new();
                for chain in *chains {
                    let words = logged_of(chain);
                    let known = self.logged.iter_mut().find(|(name, _)| *name == chain.name);
                    match known {
                        Some((_, before)) if *before == words => continue,
                        Some((_, before)) => before.clone_from(&words),
                        None => self.logged.push((chain.name.clone(), words.clone())),
                    }
                    lines.push(format!("  {}: {words}", chain.name));
                }
                if !plan.cached && !lines.is_empty() {
                    let why = decisions.iter().filter(|decision| decision.step != Step::Unchanged);
                    lines.extend(why.map(|decision| match &decision.chain {
                        Some(chain) => format!("  {chain}: {}", decision.words),
                        None => format!("  {}", decision.words),
                    }));
                }
                if !lines.is_empty() {
                    let kept = chains.iter().filter(|chain| chain.state == ChainState::Guaranteed).count();
                    lines.insert(
                        0,
                        format!(
                            "plan {number}: {kept} of {} goals can be met, {} reservations, analysis {:.1} ms",
                            chains.len(),
                            plan.reservations.len(),
                            plan.analysis_ns as f64 / 1e6
                        ),
                    );
                }
                lines
            }
            Record::Chain { chain, state, why } => {
                vec![format!("chain {chain}: {state}{}{why}", if why.is_empty() { "" } else { ": " })]
            }
            Record::Enacted { enacted, .. } => {
                let mut lines = Vec::new();
                if enacted.changes > 0 {
                    let share: f64 =
                        enacted.reserved.iter().map(|one| one.budget_ns as f64 / one.period_ns.max(1) as f64).sum();
                    lines.push(format!(
                        "enacted: {} changes; {} reservations of {:.0} % of a CPU in all, {} threads at best effort, {} helpers, {} of them messengers at real-time priority",
                        enacted.changes,
                        enacted.reserved.len(),
                        share * 100.0,
                        enacted.best_effort,
                        enacted.helpers,
                        enacted.raised
                    ));
                }
                lines.extend(enacted.differences.iter().map(|difference| format!("NOT AS ASKED: {difference}")));
                lines
            }
            Record::Overruns { threads } => threads
                .iter()
                .map(|(overrun, count)| {
                    let Overrun { tid, name, budget_ns, period_ns, released, .. } = overrun;
                    let (budget_us, period_us) = (budget_ns / 1000, period_ns / 1000);
                    let fate = if *released { "; it continues at best effort until it has caught up" } else { "" };
                    format!("thread {tid} `{name}`: with {budget_us} us in {period_us} us it did not catch up within its goal, {count} \
                         times{fate}")
                })
                .collect(),
            Record::Status { .. } => Vec::new(),
        }
    }
}

fn logged_of(chain: &ChainPlan) -> String {
    let goal_ms = chain.goal_ns as f64 / 1e6;
    match &chain.state {
        ChainState::Guaranteed => {
            // In steps of a tenth of the goal: a bound that moves a little is no news.
            let tenths = chain.bound_ns.map_or(0, |bound| (bound * 10).div_ceil(chain.goal_ns.max(1)));
            format!("to be kept within {} % of its goal of {goal_ms} ms ({})", tenths * 10, chain.bound_by)
        }
        ChainState::Degraded { why } => format!("DEGRADED to best effort (goal {goal_ms} ms): {why}"),
        ChainState::NotAnalysable { why } => format!("NOT ANALYSABLE, best effort: {why}"),
        ChainState::NotFound { why, near_misses } if near_misses.is_empty() => format!("NOT FOUND: {why}"),
        ChainState::NotFound { why, near_misses } => {
            format!("NOT FOUND: {why}; there are: {}", near_misses.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn changes_of_a_promise_are_told_once() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&reported);
        let mut log = Log::default()
            .informing(Box::new(move |at_ns, change| kept.lock().unwrap().push((at_ns, change))));
        let states = [
            (State::Learning, ""),
            (State::Guaranteed, ""),
            (State::Guaranteed, ""),
            (State::Refuted, "an execution time above its curve"),
            (State::Guaranteed, ""),
            (State::Ended, ""),
            (State::Learning, ""),
            (State::Degraded, "CPU 1 is full"),
            (State::Degraded, "CPU 1 is full"),
            (State::Learning, ""),
        ];
        for (at_ns, (state, why)) in states.into_iter().enumerate() {
            log.record(at_ns as u64, &Record::Chain { chain: "a", state, why });
        }
        let chain = || "a".to_owned();
        let lost = |why: &str| Change::GuaranteeLost { chain: chain(), why: why.to_owned() };
        let expected = [
            (1, Change::Guaranteed { chain: chain() }),
            (3, lost("REFUTED: an execution time above its curve")),
            (4, Change::Guaranteed { chain: chain() }),
            (5, lost("ended")),
            (7, Change::Degraded { chain: chain(), why: "CPU 1 is full".to_owned() }),
        ];
        assert_eq!(*reported.lock().unwrap(), expected);
    }
}
