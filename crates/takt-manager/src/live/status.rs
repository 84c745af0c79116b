//! Status of the manager and the chains while it runs: for screens, for metrics, for programs.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use takt_model::{Gaps, Model};

#[cfg(doc)]
use super::assumption::State;
use super::assumption::{Interval, Standing};
use crate::manager::Slack;

/// Upper bounds of the latency histograms: from a quarter of a millisecond to four seconds,
/// doubling. Goals lie in between, and each chain's own goal is added, so that violations can be
/// read from the histogram alone.
pub const BUCKETS_NS: [u64; 15] = {
    let mut bounds = [250_000; 15];
    let mut i = 1;
    while i < 15 {
        bounds[i] = bounds[i - 1] * 2;
        i += 1;
    }
    bounds
};

/// The state of everything at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Running time of the manager.
    pub running_ns: u64,
    /// It only observes.
    pub observes: bool,
    /// Binding of reservations to cores; `None`: it observes.
    pub mode: Option<String>,
    /// Plans made.
    pub plans: u64,
    /// Of those, repeated without analysis.
    pub cached: u64,
    /// The chains, in the order of the goals file.
    pub chains: Vec<ChainStatus>,
    /// Reservations that hold, as read back.
    pub reservations: Vec<ReservationStatus>,
    /// Threads at best effort, and helper threads on the system core.
    pub best_effort: usize,
    pub helpers: usize,
    /// Differences between the kernel's state and the requested one.
    pub differences: Vec<String>,
    /// Whether all reservations of the last plan hold.
    pub holds: bool,
    /// The manager's own cost.
    pub cost: Cost,
    /// Events read.
    pub events: u64,
    /// Events lost before they could be read.
    pub lost: u64,
    /// Processes observed that are alive.
    pub processes: usize,
    /// Callbacks known.
    pub callbacks: usize,
    /// Greatest share of a core that reservations may take.
    #[serde(default)]
    pub most_bandwidth: f64,
    /// Margin of the bounds' assumptions beyond the measurements; `None`: only the usual margins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "room")]
    pub slack: Option<Slack>,
    /// The last lines of the log, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<String>,
    /// Parts that were not recorded, if a recording is followed.
    #[serde(default, skip_serializing_if = "is_whole")]
    pub gaps: Gaps,
}

fn is_whole(gaps: &Gaps) -> bool {
    gaps.count == 0
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChainStatus {
    pub name: String,
    pub goal_ns: u64,
    /// Its callbacks, as last planned.
    #[serde(default)]
    pub path: Vec<String>,
    /// Its present state, [`State::name`].
    pub state: String,
    /// The reason, for all but guaranteed ones.
    pub why: String,
    /// Bound on its latency.
    pub bound_ns: Option<u64>,
    /// The analysis that gave it.
    pub bound_by: String,
    /// Times it came to its end.
    pub completions: u64,
    /// Of those, later than the goal.
    pub violations: u64,
    /// Instances that a later one passed.
    pub dropped: u64,
    /// Instances under way for longer than the goal.
    pub overdue: usize,
    /// Longest measured latency.
    pub worst_ns: u64,
    pub last_ns: Option<u64>,
    /// Half were shorter.
    pub median_ns: Option<u64>,
    /// All but one in a hundred were shorter.
    pub p99_ns: Option<u64>,
    pub mean_ns: Option<f64>,
    /// Upper bounds and how many latencies were no longer.
    pub histogram: Vec<(u64, u64)>,
    /// Releases of its first callback's timer that never ran.
    #[serde(default)]
    pub skipped: u64,
    #[serde(default)]
    pub bound_ms: Option<f64>,
    /// The longest measured latency, in milliseconds; `None`: nothing was measured.
    #[serde(default)]
    pub worst_ms: Option<f64>,
    /// Its jitter goal, in milliseconds: how far its longest and its shortest latency may be apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_goal_ms: Option<f64>,
    /// The longest less the shortest measured latency, in milliseconds; `None`: nothing was
    /// measured.
    #[serde(default)]
    pub jitter_ms: Option<f64>,
    /// Bound on it, where it has a goal.
    #[serde(default)]
    pub jitter_bound_ms: Option<f64>,
    /// The longest less the shortest time between two consecutive ends.
    #[serde(default)]
    pub period_jitter_ms: Option<f64>,
    /// The shortest measured latency.
    #[serde(default)]
    pub best_ms: Option<f64>,
    /// The plan's best case, where it has a jitter goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_case_ms: Option<f64>,
    /// Parts of its bound; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_parts: Option<BoundSum>,
    /// The bound for what was measured alone, in milliseconds, where its assumptions reach further
    /// ([`Status::slack`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bound_ms: Option<f64>,
    /// It begins on another machine: its latencies are true to so much, in milliseconds; the
    /// greatest error of the run while it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ms: Option<f64>,
    /// Source of the clock error, or the reason why it is missing; empty: the chain begins here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub clock_error_by: String,
    /// Present state of the assumptions behind the word "guaranteed".
    #[serde(default)]
    pub assumptions: Vec<Standing>,
    /// Its record over the whole run.
    #[serde(default)]
    pub run: Run,
}

/// Parts of a chain's bound, over all executors on its path, in milliseconds. Their sum is the
/// bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct BoundSum {
    /// Execution and self-suspension of the chain's own activations.
    pub own_ms: f64,
    /// The same of all that the executors run before: other callbacks, and what arrives in bursts
    /// because of jitter.
    pub executor_ms: f64,
    /// Waiting for reservations; on shared cores for their other executors.
    pub supply_ms: f64,
    /// Allowance on shared cores for execution beyond the curves of callbacks ([`Status::slack`]).
    #[serde(default)]
    pub allowance_ms: f64,
    /// Delivery by the middleware.
    pub delivery_ms: f64,
    /// Latencies that were measured above the bound and that nothing explained.
    pub unexplained_ms: f64,
    /// Of how many worst cases it is the sum, in each of which the chain waits for all that runs
    /// before it anew.
    #[serde(default)]
    pub waits: usize,
}

impl BoundSum {
    pub(super) fn of(chain: &crate::plan::ChainPlan) -> Option<Self> {
        let bound_ns = chain.bound_ns.filter(|_| !chain.bound_parts.is_empty())?;
        let sum = |part: fn(&crate::plan::BoundPart) -> u64| {
            chain.bound_parts.iter().map(part).fold(0, u64::saturating_add)
        };
        let parts_ns = [
            sum(|p| p.own_ns),
            sum(|p| p.executor_ns),
            sum(|p| p.supply_ns),
            sum(|p| p.disturbance_ns),
            sum(|p| p.transport_ns),
        ];
        let known_ns = parts_ns.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let [own_ms, executor_ms, supply_ms, allowance_ms, delivery_ms] = parts_ns.map(|ns| ns as f64 / 1e6);
        let unexplained_ns = bound_ns.saturating_sub(known_ns);
        let unexplained_ms = unexplained_ns as f64 / 1e6;
        let waits = chain.bound_parts.iter().map(|part| part.waits).sum();
        Some(Self { own_ms, executor_ms, supply_ms, allowance_ms, delivery_ms, unexplained_ms, waits })
    }
}

/// Record of a chain over the whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// From state to state, in time.
    pub intervals: Vec<Interval>,
    /// For how long it was guaranteed.
    pub guaranteed_s: f64,
    /// Completions that the verdict is about: those while it was not given up in order.
    pub counted: u64,
    /// Of these, later than the goal.
    pub late: u64,
    /// Of these, so close to the goal that the clocks' error leaves open whether they were late.
    #[serde(default)]
    pub in_doubt: u64,
    /// Releases that never ran, and instances that were past the goal at the end, while it was not
    /// given up.
    #[serde(rename = "never")]
    pub missing: u64,
    /// The longest row of instances that were late or never came.
    pub longest_late_run: u64,
    /// For how long it was given up in the declared order.
    pub given_up_s: f64,
    /// Completions meanwhile.
    pub given_up_completions: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub given_up_why: String,
    /// A callback that did not run although it was released, whose releases are among `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did_not_run: Option<String>,
    /// Its first callback does not run any more, and may have been cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_stopped: Option<String>,
    /// Jitter of the completions that the verdict is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Latencies above a bound while it was called guaranteed.
    pub false_guarantees: u64,
    /// The longest of them, and the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_false_ms: Option<(f64, f64)>,
    /// Number of times that an assumption was seen broken.
    pub refuted_times: u64,
    /// The observations in words, with seconds since the manager began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refutations: Vec<(f64, String)>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReservationStatus {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Budget per period.
    pub budget_ns: u64,
    pub period_ns: u64,
    /// CPUs on which it may run.
    pub cpus: String,
    /// Times it was found without budget and wanting more.
    pub overruns: u64,
}

impl ReservationStatus {
    /// Budget per period.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.budget_ns as f64 / self.period_ns.max(1) as f64
    }
}

/// Cost of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Share of one CPU since the start, all threads of the process.
    pub cpu_share: f64,
    /// Share of one CPU since the start, the manager's loop alone.
    pub loop_share: f64,
    /// CPU time of the loop for reading events and keeping the model, since the start.
    pub extract_ns: u64,
    /// For snapshots of the model.
    pub model_ns: u64,
    /// For plans, of which the next three are parts.
    pub plan_ns: u64,
    /// For bringing snapshots to the form of the analysis. With `model_ns` it is what Table III of
    /// *ROS-Llama* calls model processing.
    #[serde(default)]
    pub reading_ns: u64,
    /// For choosing budgets (budget selection in that table).
    #[serde(default)]
    pub budgeting_ns: u64,
    /// For response times and demands (timing analysis).
    #[serde(default)]
    pub timing_ns: u64,
    /// For enacting them and watching budgets.
    pub enact_ns: u64,
    /// For the last plan that was no repetition.
    pub last_analysis_ns: u64,
    /// For the most expensive plan.
    pub worst_analysis_ns: u64,
    /// From begin to end of the plan that took longest, with all that ran between.
    #[serde(default)]
    pub worst_analysis_wall_ns: u64,
}

/// Holder of the newest status for all readers, and of the model on request.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Arc<Status>>>, Arc<Shown>);

/// A model is copied only if somebody looks at it.
#[derive(Debug, Default)]
struct Shown {
    wanted: AtomicBool,
    model: Mutex<Arc<Model>>,
}

impl Board {
    /// The newest.
    #[must_use]
    pub fn read(&self) -> Arc<Status> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The model of the last plan; an empty one before the first plan after the first call.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        self.1.wanted.store(true, Ordering::Relaxed);
        Arc::clone(&self.1.model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put_model(&self, model: &Model) {
        if self.1.wanted.load(Ordering::Relaxed) {
            *self.1.model.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(model.clone());
        }
    }

    /// Whether anybody has a copy of it to read.
    pub(super) fn is_shown(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(super) fn put(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }
}

fn ms(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e6)
}

impl Status {
    /// The status in a few words.
    #[must_use]
    pub fn line(&self) -> String {
        let count = |state: &str| self.chains.iter().filter(|chain| chain.state == state).count();
        let late = self.chains.iter().filter(|chain| chain.violations > 0);
        let late: Vec<&str> = late.map(|chain| chain.name.as_str()).collect();
        let late =
            if late.is_empty() { "none late".to_owned() } else { format!("late: {}", late.join(", ")) };
        format!("{} guaranteed, {} degraded, {late}", count("guaranteed"), count("degraded"))
    }

    /// Parts of the bounds, which show where shorter ones can be gained.
    fn parts_text(&self, text: &mut String, width: usize) {
        let known = || self.chains.iter().filter_map(|chain| Some((chain, chain.bound_parts?)));
        if known().next().is_none() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:width$}  {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>11} {:>11} {:>5}",
            "bound of",
            "ms",
            "own cost",
            "executor",
            "supply",
            "allowance",
            "delivery",
            "unexplained",
            "as measured",
            "waits"
        );
        for (chain, parts) in known() {
            let BoundSum { own_ms, executor_ms, supply_ms, allowance_ms, delivery_ms, unexplained_ms, waits } =
                parts;
            let _ = writeln!(
                text,
                "{:width$}  {:>8} {own_ms:>8.1} {executor_ms:>8.1} {supply_ms:>8.1} {allowance_ms:>9.1} \
                 {delivery_ms:>8.1} {unexplained_ms:>11.1} {:>11} {waits:>5}",
                chain.name,
                chain.bound_ns.map_or_else(|| "-".to_owned(), ms),
                chain.measured_bound_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}")),
            );
        }
        if let Some(slack) = &self.slack {
            let _ = writeln!(text, "bounds hold while {}", slack.words());
        }
    }

    /// Mean cost of a plan, in the rows of Table III of *ROS-Llama*.
    fn cost_text(&self) -> String {
        if self.plans == 0 {
            return String::new();
        }
        let cost = &self.cost;
        let each = |ns: u64| ns as f64 / 1e6 / self.plans as f64;
        format!(
            "\nCPU time per plan, ms: model extractor {:.2}, model processing {:.2}, budget selection {:.2}, timing analysis {:.2}\n",
            each(cost.extract_ns),
            each(cost.model_ns + cost.reading_ns),
            each(cost.budgeting_ns),
            each(cost.timing_ns)
        )
    }

    /// A page of plain text, for a terminal of any kind.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mode = match (&self.mode, self.observes) {
            (_, true) => "observes only".to_owned(),
            (Some(mode), _) => mode.clone(),
            (None, _) => "nothing enacted".to_owned(),
        };
        let Cost { cpu_share, last_analysis_ns, .. } = self.cost;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{mode}; {} plans ({} repeated), last analysis {} ms; {} processes, {} callbacks, {} events ({} lost); own CPU {:.2} %",
            self.plans,
            self.cached,
            ms(last_analysis_ns),
            self.processes,
            self.callbacks,
            self.events,
            self.lost,
            cpu_share * 100.0
        );
        let width = self.chains.iter().map(|chain| chain.name.chars().count()).max().unwrap_or(0).max(5);
        let _ = writeln!(
            text,
            "\n{:width$}  {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6}  state",
            "chain", "goal ms", "bound", "worst", "p99", "last", "count", "late"
        );
        let optional = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), ms);
        for chain in &self.chains {
            let worst = if chain.completions == 0 { None } else { Some(chain.worst_ns) };
            // "ended after 24 s, guaranteed until then" has the state in it.
            let state = match chain.why.strip_prefix(&format!("{} ", chain.state)) {
                Some(rest) => format!("{} {rest}", chain.state),
                None if chain.why.is_empty() => chain.state.clone(),
                None => format!("{}: {}", chain.state, chain.why),
            };
            let _ = writeln!(
                text,
                "{:width$}  {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6}  {state}",
                chain.name,
                ms(chain.goal_ns),
                optional(chain.bound_ns),
                optional(worst),
                optional(chain.p99_ns),
                optional(chain.last_ns),
                chain.completions,
                chain.violations,
            );
        }
        self.parts_text(&mut text, width);
        text.push_str(&self.cost_text());
        text.push_str(&super::jitter::lines(&self.chains));
        text.push_str(&super::network::lines(&self.chains));
        if !self.reservations.is_empty() {
            let _ = writeln!(text, "\nreservation          thread    CPU    budget    share  overruns");
        }
        for one in &self.reservations {
            let _ = writeln!(
                text,
                "{:20} {:>6} {:>6} {:>6} us {:>6.1} % {:>9}",
                one.name,
                one.tid,
                one.cpus,
                one.budget_ns / 1000,
                one.bandwidth() * 100.0,
                one.overruns
            );
        }
        for difference in &self.differences {
            let _ = writeln!(text, "NOT AS ASKED: {difference}");
        }
        text
    }
}
