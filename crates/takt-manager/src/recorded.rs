//! A recording instead of running processes: the model that it shows, the bounds, what the manager
//! would have decided at its end, and what its chains really took.
//!
//! A recording is read twice: chains can be followed only once it is known which callbacks they go
//! through.

use serde::Serialize;
use takt_model::{ChainSpec, ChainStats, Extractor, Gap, Gaps, Model, OptionsError};
use takt_ros::ctf::Host;
use takt_ros::{Event, GapCause, Source};
use takt_stats::{Longer, Part, SeriesEvidence, VerdictReport, judge_series, overall};

use crate::goals::Goals;
use crate::manager::{Manager, against, outside_topic};
use crate::never::{self, DidNotRun};
use crate::plan::{ChainPlan, ChainState, Plan, Platform};
use crate::words::ms;

/// Result of examining a recording.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The model at its end.
    pub model: Model,
    /// Plan that the manager would have made.
    pub plan: Plan,
    /// Chains that were found, as measured.
    pub chains: Vec<ChainStats>,
    /// Callbacks that did not run on the paths of chains, by the place of the chain in the goals.
    pub never: Vec<Option<DidNotRun>>,
    /// Callbacks that ran and whose registration was not recorded: the recording began after their
    /// nodes.
    pub unregistered: usize,
    /// Times in which nothing was recorded.
    pub gaps: Gaps,
    /// Events read.
    pub events: u64,
    /// Time of the first of them.
    pub began_ns: u64,
    /// Time of the last of them, CLOCK_MONOTONIC nanoseconds.
    pub ended_ns: u64,
}

/// Latencies of a chain, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The chain.
    pub name: String,
    /// Times that it came to its end.
    pub completions: u64,
    /// Of these, later than the goal.
    pub violations: u64,
    /// Ends so close to the goal that the clocks' error leaves open whether they were late.
    pub in_doubt: u64,
    /// Accuracy of its latencies if it begins on another machine, nanoseconds.
    pub clock_error_ns: u64,
    /// Instances that a later one passed.
    pub dropped: u64,
    /// Instances that are not judged, because of them too little was recorded.
    pub unjudged: u64,
    /// Median latency, nanoseconds.
    pub median_ns: Option<u64>,
    /// The longest.
    pub worst_ns: u64,
}

/// A time in which nothing was recorded, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NotRecorded {
    /// From the first event on; 0 where the gap is before it.
    pub from_s: f64,
    pub to_s: f64,
    pub length_s: f64,
    /// CLOCK_MONOTONIC.
    pub from_ns: u64,
    pub to_ns: u64,
    pub why: &'static str,
}

/// Parts that were not recorded, for a verdict; `None`: there are none.
pub(crate) fn gaps_in_words(gaps: &Gaps) -> Option<String> {
    let longest = gaps.listed.iter().max_by_key(|gap| gap.length_ns())?;
    let length = match gaps.count {
        1 => format!("{} ms were not recorded", ms(gaps.total_ns)),
        count => {
            format!(
                "{} ms in {count} gaps were not recorded, the longest {} ms",
                ms(gaps.total_ns),
                ms(gaps.longest_ns)
            )
        }
    };
    let starts = matches!(longest.why, GapCause::Paused | GapCause::NotYet);
    let after = if starts { ", and in the first 100 ms after the recording resumes," } else { "" };
    Some(format!(
        "{length} ({}): releases in that time{after} are neither judged nor counted",
        longest.why.words()
    ))
}

/// Reason why a recording cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error> {
    /// It cannot be opened or read.
    #[error(transparent)]
    Source(E),
    /// The goals request something that can only be measured while the system runs.
    #[error(
        "[network] peers of the goals file: in a recording, the clock error of other machines cannot be measured. State it instead: \
         clock_error = \"50 us\""
    )]
    Peers,
    #[error("model: {0}")]
    Model(#[from] OptionsError),
    /// Nothing in it.
    #[error(
        "the recording has no event of ROS 2's tracepoints: were they enabled (ros2 trace, provider `ros2`)?"
    )]
    Empty,
}

/// Examines the recording that `open` opens, each time from its beginning.
pub fn examine<S: Source>(
    mut open: impl FnMut() -> Result<S, S::Error>,
    goals: &Goals,
    platform: &Platform,
    options: &takt_model::Options,
) -> Result<Recorded, Error<S::Error>> {
    // At the end of a recording every process has ended.
    let options = takt_model::Options { keep_ended: true, ..goals.learning(options) };
    options.validate()?;
    let network = goals.network.as_ref();
    if network.is_some_and(|network| !network.peers.is_empty()) {
        return Err(Error::Peers);
    }
    let clock_error_ns = network.and_then(|network| network.clock_error_ns);
    let extractor_of = |options| {
        let mut extractor = Extractor::new(options);
        if network.is_some() {
            extractor.clock_error(clock_error_ns);
        }
        extractor
    };
    let mut extractor = extractor_of(options.clone());
    let (mut first_ns, mut last_ns, mut events) = (None, 0, 0);
    read(open().map_err(Error::Source)?, |event| {
        if first_ns.is_none() {
            extractor.begin(event.at_ns);
        }
        first_ns.get_or_insert(event.at_ns);
        last_ns = last_ns.max(event.at_ns);
        events += 1;
        extractor.event(&event);
    })?;
    let first_ns = first_ns.ok_or(Error::Empty)?;
    let model = extractor.snapshot(last_ns);
    let mut plan = Manager::new(goals.clone(), platform.clone()).plan(&model);
    let never = never::look(&model, goals, &mut plan);
    let begins_outside = |chain: &ChainPlan| {
        let first = network.and(chain.path.first())?;
        outside_topic(&model, first.0).map(|topic| topic.outside)
    };
    for chain in plan.chains.iter_mut().filter(|chain| chain.state == ChainState::Guaranteed) {
        let why = begins_outside(chain)
            .and_then(|outside| against(outside, network.and_then(|network| network.bound_ns)));
        if let Some(why) = why {
            chain.state = ChainState::NotAnalysable { why };
        }
    }

    let mut extractor = extractor_of(options);
    extractor.begin(first_ns);
    let mut watched = Vec::new();
    for chain in plan.chains.iter().filter(|chain| !chain.path_names.is_empty()) {
        let (name, path) = (chain.name.clone(), chain.path_names.clone());
        let id = extractor.watch(ChainSpec { name, path, goal_ns: Some(chain.goal_ns) });
        let apart = begins_outside(chain).is_some() || spans_hosts(&model, chain);
        if let (true, Some(stats)) = (apart, extractor.watched_mut(id)) {
            stats.clock_error_ns = clock_error_ns.unwrap_or(0);
        }
        watched.push(id);
    }
    read(open().map_err(Error::Source)?, |event| extractor.event(&event))?;
    let chains = watched.into_iter().filter_map(|id| extractor.watched(id).cloned()).collect();
    let gaps = extractor.gaps().clone();
    let unregistered = extractor.unregistered();
    Ok(Recorded {
        model,
        plan,
        chains,
        never,
        unregistered,
        gaps,
        events,
        began_ns: first_ns,
        ended_ns: last_ns,
    })
}

/// Whether a chain goes from one host to another, in a recording of several.
fn spans_hosts(model: &Model, chain: &ChainPlan) -> bool {
    let host = |callback: &takt_model::CallbackId| {
        let executor = model.executors.get(model.callbacks.get(callback.0)?.executor.0)?;
        let thread = model.threads.get(executor.threads.first()?.0)?;
        Some(Host::of_process(thread.pid))
    };
    let mut hosts = chain.path.iter().filter_map(host);
    let first = hosts.next();
    hosts.any(|other| Some(other) != first)
}

impl Recorded {
    /// The verdict on all chains of the goals, over the whole recording. FAIL: a goal was missed; a
    /// chain that was not found has nothing that was measured, and is no PASS.
    #[must_use]
    pub fn verdict(&self) -> VerdictReport {
        let judged: Vec<(&str, VerdictReport)> = self
            .plan
            .chains
            .iter()
            .enumerate()
            .map(|(index, chain)| {
                let mut evidence = SeriesEvidence {
                    unit: "completions".to_owned(),
                    deadline_ns: chain.goal_ns,
                    records_lost: self.model.lost_events,
                    measured_s: Some(self.gaps.recorded_ns(self.began_ns, self.ended_ns) as f64 / 1e9),
                    longer: Longer::Recording,
                    ..SeriesEvidence::default()
                };
                let stats = self.chains.iter().find(|stats| stats.spec().name == chain.name);
                if let Some(stats) = stats {
                    // If instances overtake each other, it is unknown which of them complete.
                    let regular = stats.dropped.saturating_mul(20) <= stats.completions;
                    let overdue = if regular { stats.overdue(self.ended_ns) as u64 } else { 0 };
                    // Latencies in doubt because of the clocks are no evidence for it.
                    evidence.samples = stats.completions.saturating_sub(stats.in_doubt);
                    evidence.misses = stats.violations;
                    evidence.longest_run = stats.longest_late_run;
                    evidence.worst_ns = stats.worst_ns;
                    let at_gaps = if regular { stats.late_at_gap } else { 0 };
                    let never_ended = stats.never_ended.saturating_add(at_gaps);
                    evidence.unfinished_late =
                        stats.skipped.saturating_add(overdue).saturating_add(never_ended);
                }
                let began = stats.is_some_and(|stats| stats.began > 0 || stats.completions > 0);
                let never = self.never.get(index).and_then(Option::as_ref).filter(|it| !it.never || !began);
                if let Some(never) = never.filter(|never| never.counts) {
                    evidence.unfinished_late = evidence.unfinished_late.saturating_add(never.late);
                    evidence.longest_run = evidence.longest_run.max(never.late);
                }
                let mut report = judge_series(&evidence);
                report = match never {
                    Some(never) if never.counts => {
                        report.reasons.push(never.words.clone());
                        report
                    }
                    Some(never) => report.concluded(&[], std::slice::from_ref(&never.words)),
                    None => report,
                };
                if never.is_none() && stats.is_none_or(|stats| stats.completions == 0) {
                    report.reasons.extend(chain.state.why().map(str::to_owned));
                }
                let unjudged = stats.map_or(0, |stats| stats.unjudged);
                if unjudged > 0 {
                    report
                        .reasons
                        .push(format!("{unjudged} more are not judged because their end was not recorded"));
                }
                (chain.name.as_str(), report)
            })
            .collect();
        let parts: Vec<Part<'_>> =
            judged.iter().map(|(name, report)| Part { name, report, excused: None }).collect();
        let doubts = self.chains.iter().filter(|stats| stats.in_doubt > 0).map(|stats| {
            format!(
                "{}: {} of its latencies were within {:.3} ms of the goal, the possible difference between the machines' clocks, so it is \
                 unknown whether they were late",
                stats.spec().name,
                stats.in_doubt,
                stats.most_clock_error_ns as f64 / 1e6
            )
        });
        let mut report = overall(&parts).concluded(&[], &doubts.collect::<Vec<_>>());
        report.reasons.extend(gaps_in_words(&self.gaps));
        report.reasons.extend(self.begins_late());
        report
    }

    /// A note that nodes existed before the recording, if a chain has no measurement because of
    /// that.
    fn begins_late(&self) -> Option<String> {
        let nothing = |chain: &ChainPlan| {
            !self.chains.iter().any(|it| it.spec().name == chain.name && it.completions > 0)
        };
        (self.unregistered > 0 && self.plan.chains.iter().any(nothing)).then(|| {
            format!(
                "{} callbacks ran whose names are not in the recording, because it began after their nodes. Start it before them, or use \
                 `ros2 trace --dual-session`",
                self.unregistered
            )
        })
    }

    /// The gaps, for programs.
    #[must_use]
    pub fn gaps(&self) -> Vec<NotRecorded> {
        let s = |ns: u64| ns.saturating_sub(self.began_ns) as f64 / 1e9;
        let one = |gap: &Gap| NotRecorded {
            from_s: s(gap.from_ns),
            to_s: s(gap.to_ns),
            length_s: gap.length_ns() as f64 / 1e9,
            from_ns: gap.from_ns,
            to_ns: gap.to_ns,
            why: gap.why.words(),
        };
        self.gaps.listed.iter().map(one).collect()
    }

    /// The chains in numbers.
    #[must_use]
    pub fn measured(&self) -> Vec<Measured> {
        let one = |chain: &ChainStats| Measured {
            name: chain.spec().name.clone(),
            completions: chain.completions,
            violations: chain.violations,
            in_doubt: chain.in_doubt,
            clock_error_ns: chain.most_clock_error_ns,
            dropped: chain.dropped,
            unjudged: chain.unjudged,
            median_ns: chain.quantile_ns(0.5),
            worst_ns: chain.worst_ns,
        };
        self.chains.iter().map(one).collect()
    }
}

pub(crate) fn read<S: Source>(mut source: S, mut sink: impl FnMut(Event)) -> Result<(), Error<S::Error>> {
    while !source.ended() {
        // Portions come until the end; a recording never waits.
        source.poll(&mut sink).map_err(Error::Source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use takt_ros::ctf::Recording;

    use super::*;

    fn real() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../takt-ros/tests/data/caret-end-to-end")
    }

    #[test]
    fn a_real_recording_shows_its_nodes_and_a_chain() {
        let goals = Goals::parse(
            "degradation_order = [\"all\"]\n[[chain]]\nname = \"all\"\nstart = \"/topic3\"\nend = \"/drive\"\ngoal = \"500 ms\"\n",
            "goals",
        )
        .unwrap();
        let platform = Platform::new(vec![0, 1], 0, 0.9);
        let options = takt_model::Options::default();
        let seen = examine(|| Recording::open(real()), &goals, &platform, &options).unwrap();
        assert!(seen.events > 1000);
        assert!(seen.model.nodes.len() >= 5, "{:?}", seen.model.nodes);
        assert_eq!(seen.plan.chains.len(), 1);
        assert_eq!(seen.measured().len(), seen.chains.len());
        // The same bytes say the same.
        let again = examine(|| Recording::open(real()), &goals, &platform, &options).unwrap();
        assert_eq!((again.model, again.events), (seen.model, seen.events));
    }

    #[test]
    fn a_recording_in_which_a_goal_was_missed_fails() {
        use takt_stats::Verdict;
        let platform = Platform::new(vec![0, 1], 0, 0.9);
        let open = || Recording::open(real());
        let learnt = crate::learn::from_recording(open, &platform, &Default::default()).unwrap();
        let chain = learnt.chains.iter().find(|chain| chain.worst_ns > Some(200_000)).unwrap();
        let verdict = |end: &str, goal: &str| {
            let text = format!(
                "[[chain]]\nname = \"all\"\nstart = \"{}\"\nend = \"{end}\"\ngoal = \"{goal}\"\n",
                chain.start
            );
            let goals = Goals::parse(&text, "goals").unwrap();
            examine(open, &goals, &platform, &Default::default()).unwrap().verdict()
        };
        let missed = verdict(&chain.end, "100 us");
        assert_eq!(missed.verdict, Verdict::Fail, "{missed:?}");
        assert_ne!(verdict(&chain.end, "60 s").verdict, Verdict::Fail);
        let unknown = verdict("/nowhere", "500 ms");
        assert_eq!(unknown.verdict, Verdict::Inconclusive, "{unknown:?}");
    }

    #[test]
    fn a_folder_without_a_trace_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let goals = Goals::parse(
            "degradation_order = [\"a\"]\n[[chain]]\nname = \"a\"\nstart = \"/a\"\nend = \"/b\"\ngoal = \"5 ms\"\n",
            "goals",
        )
        .unwrap();
        let platform = Platform::new(vec![0], 0, 0.9);
        assert!(examine(|| Recording::open(folder.path()), &goals, &platform, &Default::default()).is_err());
    }
}
