//! Findings of a watch: the figures of every watched thread, and of all lateness together.

use serde::{Deserialize, Serialize};
use takt_otlp::Exponential;
use takt_stats::{Summary, Verdict};
use takt_trace::Cause;
use takt_trace::analysis::{CauseRow, Late};

pub use crate::recur::Recurrence;

/// Whether a thread's cycles have a rhythm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// Its own timer begins its cycles, with a period.
    Periodic,
    /// It never sleeps, and sends or writes with a period.
    Spinning,
    /// Something else begins them, with a period: a robot's packets, another thread.
    Driven,
    /// It is woken again and again, and no period was found.
    Irregular,
}

impl LoopKind {
    /// For tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Spinning => "spinning",
            Self::Driven => "driven",
            Self::Irregular => "no period",
        }
    }
}

/// Somebody, and how often or how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// A thread, an interrupt, or words.
    pub who: String,
    /// Number of occurrences; 0 if the entry is a time.
    pub count: u64,
    /// Total time, microseconds; 0 if the entry is a count.
    pub us: f64,
}

/// Part of all lateness with one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Its cause.
    pub cause: Cause,
    /// The thread or device that took most of it; empty if there is none.
    pub who: String,
    /// Its amount, microseconds.
    pub us: f64,
    /// Its share of all lateness, 0 to 1.
    pub share: f64,
    /// Late cycles in which it has a part.
    pub cycles: u64,
}

/// Distances between the newest releases of a loop, at most 1024 of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// The shortest, microseconds.
    pub min: f64,
    pub median: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Releases come in groups: pairs, say.
    pub uneven: bool,
    /// Distances within one group if they are uneven, microseconds, the longest last; otherwise
    /// empty.
    pub pattern: Vec<f64>,
    /// A group is one cycle, in which the thread sleeps several times and does something else each
    /// time.
    pub one_cycle: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopReport {
    pub name: String,
    /// Name in measures, the same in another watch of the same programs.
    #[serde(default)]
    pub label: String,
    /// Its process.
    pub pid: i32,
    /// Its own id.
    pub tid: i32,
    /// The name of its process.
    pub process: String,
    /// Whether its cycles have a rhythm.
    pub kind: LoopKind,
    /// Its period; null where none was found: it is not guessed.
    pub period_us: Option<f64>,
    /// Cycles a second, as they came.
    pub rate_hz: f64,
    /// Median and worst of how far releases are off a whole number of periods; null without a
    /// period.
    pub jitter_us: Option<[f64; 2]>,
    /// Distances between its releases; null without a period.
    #[serde(default)]
    pub release_interval_us: Option<IntervalReport>,
    /// Cycles that were seen.
    pub releases: u64,
    /// Releases that should have come, by the period, and did not.
    pub missed: u64,
    /// Cycles that were late.
    pub late: u64,
    /// Late cycles whose causes were not looked for, because there were too many.
    #[serde(default)]
    pub unjudged: u64,
    /// A wake-up counted as late beyond this.
    pub late_beyond_us: f64,
    /// An end counted as late beyond this after the release; null where nothing says when it should
    /// be over.
    pub deadline_us: Option<f64>,
    /// From the release to the CPU.
    pub lateness_us: Summary,
    /// From the release to the sleep after the cycle.
    pub response_us: Summary,
    /// CPU time, percent of one CPU.
    pub cpu_percent: f64,
    /// Scheduling policy; empty where the thread had ended before it was asked.
    pub policy: String,
    /// CPUs that it may run on.
    pub cpus: String,
    /// CPUs that it ran on.
    pub ran_on: String,
    /// Timer slack, by which the kernel may delay its wake-ups from a sleep; null for real-time
    /// threads.
    pub timer_slack_us: Option<f64>,
    /// So often did it lose its CPU in a cycle.
    pub preempted: u64,
    pub page_faults: u64,
    /// Its wakers, the most frequent first.
    pub woken_by: Vec<Share>,
    /// Threads that ran while it was ready, the longest first; over all cycles, not only late ones.
    pub kept_by: Vec<Share>,
    /// Causes of its late cycles, the most frequent first.
    pub causes: Vec<CauseRow>,
    /// Causes of all its late cycles' lost time, greatest first.
    pub totals: Vec<Total>,
    /// Its late cycles that come again with a period.
    #[serde(default)]
    pub recurs: Vec<Recurrence>,
    /// Its worst late cycles.
    pub windows: Vec<Late>,
    /// Since when its cycles are what they are, CLOCK_MONOTONIC; None for the whole time. Not in
    /// files.
    #[serde(skip)]
    pub since_ns: Option<u64>,
    /// Lateness and response of all its cycles, where they were asked for; not in files.
    #[serde(skip)]
    pub histograms: Option<Box<[Exponential; 2]>>,
}

impl LoopReport {
    /// Share of the cycles that were late, 0 to 1.
    pub fn late_share(&self) -> f64 {
        if self.releases == 0 { 0.0 } else { self.late as f64 / self.releases as f64 }
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The target of the watch.
    pub target: String,
    /// For how long, seconds.
    pub seconds: f64,
    /// The threads: periodic ones first, then those that somebody drives, then the others; the most
    /// frequent first.
    pub threads: Vec<LoopReport>,
    /// Loops that the watched programs declare.
    #[serde(default)]
    pub declared: Vec<crate::declared::DeclaredReport>,
    /// The links that were asked for.
    pub links: Vec<crate::link::LinkReport>,
    /// Causes of the lost time of all late cycles of all threads, greatest first.
    pub totals: Vec<Total>,
    /// The follower of the threads: the kernel itself, or this program with the kernel's events.
    #[serde(default)]
    pub followed_by: crate::watcher::FollowBy,
    /// Kernel events and records that were read.
    pub events: u64,
    /// Kernel events that were lost: nothing is said about the cycles that they belong to.
    pub lost_events: u64,
    /// CPU time of the watching program, percent of one CPU; the cost of the kernel's tracepoints
    /// comes on top.
    pub watcher_cpu_percent: f64,
    /// Lateness that it caused: time of late cycles in which its own threads had the CPU,
    /// microseconds.
    #[serde(default)]
    pub watcher_lateness_us: f64,
    /// Its share of all lateness, 0 to 1; null if nothing was late.
    #[serde(default)]
    pub watcher_lateness_share: Option<f64>,
    /// CPUs that were kept out of idle, because their idle time leaves no events.
    pub kept_awake: Vec<u16>,
    /// Reason why kernel events were not available, with the way out; null if they were. Without
    /// them there are neither periods nor causes.
    pub untraced: Option<String>,
    /// The watched programs in Python.
    #[serde(default)]
    pub python: Vec<crate::python::PythonReport>,
    /// Proposals from the findings, each with the lateness that it is about.
    #[serde(default)]
    pub proposals: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Those of them that prevent a PASS: what was judged is not what the cycles show. They are in
    /// the run's header, so not in this file.
    #[serde(skip)]
    pub doubts: Vec<String>,
    /// Exit status of the command that was run, 128 and the number of the signal that ended it;
    /// null where none was.
    pub exit_status: Option<i32>,
    /// The signal that ended it; null where none did.
    #[serde(default)]
    pub exit_signal: Option<i32>,
    /// Whether it ended before it was asked to; null where none was run.
    #[serde(default)]
    pub ended_by_itself: Option<bool>,
    /// The verdict on the loops' deadlines; null where nobody asked for it.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// It in a sentence, with its reasons.
    #[serde(default)]
    pub verdict_sentence: Option<String>,
    /// The run directory; null where none was asked for.
    pub run_dir: Option<std::path::PathBuf>,
}

impl Report {
    /// How it stands, in a line.
    pub fn summary(&self) -> String {
        let late: u64 = self.threads.iter().map(|thread| thread.late).sum();
        let cycles: u64 = self.threads.iter().map(|thread| thread.releases).sum();
        let lost =
            if self.lost_events > 0 { format!(", {} events lost", self.lost_events) } else { String::new() };
        format!("{}: {} threads, {late} of {cycles} cycles late{lost}", self.target, self.threads.len())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A loop of 2 ms with some late cycles.
    pub(crate) fn thread() -> LoopReport {
        LoopReport {
            since_ns: None,
            histograms: None,
            name: "control".to_owned(),
            label: "robot.control".to_owned(),
            pid: 7,
            tid: 8,
            process: "robot".to_owned(),
            kind: LoopKind::Periodic,
            period_us: Some(2000.0),
            rate_hz: 499.5,
            jitter_us: None,
            release_interval_us: None,
            releases: 1000,
            missed: 3,
            unjudged: 0,
            late: 12,
            late_beyond_us: 200.0,
            deadline_us: Some(2000.0),
            lateness_us: Summary::of(&mut [1.0, 1500.0]),
            response_us: Summary::of(&mut [5.0]),
            cpu_percent: 2.5,
            policy: "fifo:80".to_owned(),
            cpus: "1".to_owned(),
            ran_on: "1".to_owned(),
            timer_slack_us: None,
            preempted: 0,
            page_faults: 0,
            woken_by: Vec::new(),
            kept_by: Vec::new(),
            causes: Vec::new(),
            totals: Vec::new(),
            recurs: Vec::new(),
            windows: Vec::new(),
        }
    }
}
