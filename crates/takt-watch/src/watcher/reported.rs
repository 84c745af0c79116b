//! The report of a watcher's present knowledge.

use std::collections::{BTreeMap, BTreeSet};

use takt_otlp::Exponential;
use takt_rt::placement;
use takt_stats::{Recorder, Summary};
use takt_trace::Cause;
use takt_trace::follow::{Followed, Source};

use super::{FollowBy, Known, Watcher};
use crate::advice::is_of;
use crate::cycles::Intervals;
use crate::link::Link;
use crate::naming::{self, Rank};
use crate::recur::{self, Judged, Recurrence};
use crate::report::{IntervalReport, LoopKind, LoopReport, Report, Share, Total};
use crate::rundir::{FEWEST_CYCLES, is_judged, is_own};
use crate::screen::time;

/// Threads and interrupts that are named in a list.
const MAX_SHARES: usize = 8;
pub(crate) const MAX_THREADS: usize = 64;
/// A loop that has begun no cycle for so long, and for longer than a few periods, has stopped.
const STOPPED_NS: u64 = 1_000_000_000;

impl Watcher {
    /// Everything that is known now.
    pub fn report(&self) -> Report {
        let seconds = self.span_ns.map_or(0.0, |(from_ns, to_ns)| to_ns.saturating_sub(from_ns) as f64 / 1e9);
        let mut threads: Vec<LoopReport> = self
            .known
            .iter()
            .filter(|(tid, known)| known.releases > 0 && !self.gos.monitors.contains_key(tid))
            .filter_map(|(&tid, known)| self.thread(tid, known, seconds))
            .collect();
        threads.sort_by(|a, b| {
            (a.kind, b.rate_hz).partial_cmp(&(b.kind, a.rate_hz)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let ranks: BTreeMap<i32, Rank> = threads.iter().map(|thread| (thread.tid, rank(thread))).collect();
        let rank = |tid: i32| ranks.get(&tid).copied().unwrap_or(Rank::Other);
        let mut names = naming::names(&self.watched.threads, &rank);
        for thread in &mut threads {
            thread.label = names.remove(&thread.tid).unwrap_or_default();
        }
        let mut notes: Vec<String> = self.notes.iter().cloned().collect();
        notes.extend(uneven(&threads).take(MAX_SHARES));
        if self.notes_left_out > 0 {
            notes.push(format!("{} more notes about single moments are left out", self.notes_left_out));
        }
        notes.extend(self.stopped().take(MAX_SHARES));
        notes.extend(self.changed().take(MAX_SHARES));
        let doubts = self.contradictions(&threads);
        notes.splice(0..0, doubts.iter().cloned());
        notes.extend(self.links.iter().flat_map(Link::notes));
        let unjudged: u64 = self.known.values().map(|known| known.unjudged).sum();
        if unjudged > 0 {
            let late: u64 = self.known.values().map(|known| known.late).sum();
            notes.push(format!(
                "causes come from {} of {late} late cycles, the worst of each tenth of a second. Analysing the other {unjudged} would cost \
                 too much CPU time; --all-events analyses them too",
                late.saturating_sub(unjudged)
            ));
        }
        if threads.len() > MAX_THREADS {
            notes
                .push(format!("{} more threads were seen but are not reported", threads.len() - MAX_THREADS));
            threads.truncate(MAX_THREADS);
        }
        let mut all: BTreeMap<(Cause, String), (u64, u64)> = BTreeMap::new();
        for known in self.known.values() {
            for (key, &(ns, cycles)) in &known.totals {
                let sum = all.entry(key.clone()).or_default();
                *sum = (sum.0 + ns, sum.1 + cycles);
            }
        }
        Report {
            target: String::new(),
            seconds,
            threads,
            declared: Vec::new(),
            links: self.links.iter().map(Link::report).collect(),
            totals: totals(&all),
            followed_by: FollowBy::Events,
            events: self.events,
            lost_events: self.lost_events,
            watcher_cpu_percent: 0.0,
            watcher_lateness_us: 0.0,
            watcher_lateness_share: None,
            kept_awake: self.kept_awake.clone(),
            python: Vec::new(),
            proposals: Vec::new(),
            untraced: None,
            notes,
            doubts,
            exit_status: None,
            exit_signal: None,
            ended_by_itself: None,
            verdict: None,
            verdict_sentence: None,
            run_dir: None,
        }
    }

    /// Time without a new cycle of a living thread that has a period, and the number of cycles that
    /// it has missed.
    fn silence(&self, tid: i32, known: &Known) -> Option<(u64, u64)> {
        let until_ns = self.span_ns.filter(|_| self.watched.threads_now().contains(&tid))?.1;
        known.cycles.silence(known.period_ns()?, until_ns)
    }

    /// Loops that have stopped.
    fn stopped(&self) -> impl Iterator<Item = String> {
        self.known.iter().filter_map(|(&tid, known)| {
            let silent_ns = self.silence(tid, known)?.0;
            let name = &self.watched.threads.get(&tid)?.name;
            (silent_ns > STOPPED_NS).then(|| {
                format!(
                    "{name} (tid {tid}) is alive but began no cycle in the last {:.1} s",
                    silent_ns as f64 / 1e9
                )
            })
        })
    }

    /// Loops that have changed their period.
    fn changed(&self) -> impl Iterator<Item = String> {
        self.known.iter().filter_map(|(&tid, known)| {
            let change = known.cycles.change?;
            let name = &self.watched.threads.get(&tid)?.name;
            let after_s = change.seen_ns.saturating_sub(self.span_ns?.0) as f64 / 1e9;
            let others = match change.times {
                1 => String::new(),
                times => format!("; it has changed it {times} times"),
            };
            Some(format!(
                "{name} (tid {tid}) changed its period from {:.3} ms to {:.3} ms, seen {after_s:.1} s after the start{others}; its rate \
                 covers both periods",
                change.from_ns / 1e6,
                change.to_ns / 1e6
            ))
        })
    }

    /// Judged loops whose cycles contradict the period that the user passed: a deadline of that
    /// period says nothing of them. Only what the user passed for all threads counts; what an
    /// experiment expects of its own loop is its own matter.
    fn contradictions(&self, threads: &[LoopReport]) -> Vec<String> {
        let any_own = threads.iter().any(|thread| is_own(thread.kind));
        let judged = |thread: &&LoopReport| {
            is_judged(thread.kind, any_own) && !self.expected.contains_key(&thread.tid)
        };
        let passed_ns = self.settings.period_ns;
        let cycles = |thread: &LoopReport| self.known.get(&thread.tid).map(|known| &known.cycles);
        let agrees = |thread: &LoopReport| {
            let cycles = cycles(thread).filter(|cycles| cycles.takes_passed());
            cycles.zip(passed_ns).is_some_and(|(cycles, ns)| cycles.contradicts(ns).is_none())
        };
        let any_agrees = threads.iter().filter(judged).any(agrees);
        let sentence = |thread: &LoopReport| {
            let (cycles, passed_ns) = (cycles(thread)?, passed_ns?);
            let came_ns = cycles.contradicts(passed_ns)?;
            // If the period is another thread's, a thread that wakes up more seldom has its own,
            // and one without a rhythm of its own may wake up as it likes.
            if any_agrees && !(cycles.takes_passed() && cycles.has_own_period()) {
                return None;
            }
            Some(contradiction(thread, passed_ns, came_ns, cycles.takes_passed()))
        };
        threads.iter().filter(judged).filter_map(sentence).take(MAX_SHARES).collect()
    }

    fn thread(&self, tid: i32, known: &Known, seconds: f64) -> Option<LoopReport> {
        let followed = self.follower.threads.get(&tid)?;
        let named = self.watched.threads.get(&tid).cloned().unwrap_or_default();
        let settings = self.settings.of(self.expected.get(&tid));
        let period_ns = known.period_ns();
        let source = known.cycles.rhythm.and_then(|rhythm| rhythm.source);
        let mostly = known.cycles.wakers().first().map(|waker| waker.0);
        let kind = match (period_ns, source.or(mostly)) {
            (Some(_), Some(Source::Timer(_))) => LoopKind::Periodic,
            (Some(_), Some(Source::Call { .. })) => LoopKind::Spinning,
            (Some(_), _) => LoopKind::Driven,
            (None, _) => LoopKind::Irregular,
        };
        let span_s = known.cycles.span_ns.map_or(0.0, |(from_ns, to_ns)| (to_ns - from_ns) as f64 / 1e9);
        let summary = |pick: fn(&(Recorder, Recorder)) -> &Recorder| {
            known
                .recorders
                .as_ref()
                .map_or_else(|| Summary::of(&mut []), |both| pick(both).summary().over(1e3))
        };
        let histograms = known.recorders.as_ref().filter(|_| self.settings.histograms);
        let histograms = histograms
            .map(|(lateness, response)| Box::new([Exponential::of(lateness), Exponential::of(response)]));
        Some(LoopReport {
            since_ns: known.since_ns,
            histograms,
            name: named.name,
            label: String::new(),
            pid: named.pid,
            tid,
            process: named.process,
            kind,
            period_us: period_ns.map(|ns| ns / 1e3),
            rate_hz: if span_s > 0.0 { (known.releases.saturating_sub(1)) as f64 / span_s } else { 0.0 },
            jitter_us: period_ns.and_then(|_| known.jitter_us()),
            release_interval_us: period_ns
                .and_then(|_| known.cycles.intervals())
                .map(|found| intervals(&found)),
            releases: known.releases,
            missed: known.cycles.missed + self.silence(tid, known).map_or(0, |silent| silent.1),
            late: known.late,
            unjudged: known.unjudged,
            late_beyond_us: settings.late_ns(period_ns) as f64 / 1e3,
            deadline_us: settings.deadline_ns(period_ns).map(|ns| ns as f64 / 1e3),
            lateness_us: summary(|both| &both.0),
            response_us: summary(|both| &both.1),
            cpu_percent: match self.spinning.cpu_share(tid).filter(|_| kind == LoopKind::Spinning) {
                Some(share) => 100.0 * share,
                None => 100.0 * followed.cpu_ns as f64 / 1e9 / seconds.max(1e-3),
            },
            policy: known.policy.clone(),
            cpus: known.cpus.clone(),
            ran_on: ran_on(followed),
            timer_slack_us: known.timer_slack_us,
            preempted: followed.preempted,
            page_faults: followed.faults,
            woken_by: self.wakers(known),
            kept_by: self.kept_by(tid, followed),
            causes: known.causes.rows(),
            totals: totals(&known.totals),
            recurs: self.recurrences(known, period_ns),
            windows: known.windows.clone(),
        })
    }

    /// Late cycles that come again with a period.
    fn recurrences(&self, known: &Known, period_ns: Option<f64>) -> Vec<Recurrence> {
        let mut late: Vec<u64> = known.late_at.iter().copied().collect();
        late.sort_unstable();
        let judged: Vec<Judged> = known.judged.iter().cloned().collect();
        period_ns.map_or_else(Vec::new, |period_ns| recur::find(&late, &judged, period_ns))
    }

    /// Of all lateness, how much the threads in `own` caused, nanoseconds, and how much there was.
    pub(crate) fn lateness_by(&self, own: &BTreeSet<i32>) -> (u64, u64) {
        let all = self.known.values().flat_map(|known| &known.totals);
        all.fold((0, 0), |(by_own_ns, all_ns), ((_, who), &(ns, _))| {
            (by_own_ns + if is_of(who, own) { ns } else { 0 }, all_ns + ns)
        })
    }

    fn wakers(&self, known: &Known) -> Vec<Share> {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (source, count) in known.cycles.wakers() {
            *by_name.entry(self.history.source(source)).or_default() += count;
        }
        let mut shares: Vec<Share> =
            by_name.into_iter().map(|(who, count)| Share { who, count, us: 0.0 }).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.count));
        shares.truncate(MAX_SHARES);
        shares
    }

    fn kept_by(&self, tid: i32, followed: &Followed) -> Vec<Share> {
        let mut shares: Vec<Share> = followed
            .kept_by
            .iter()
            .map(|(&who, &ns)| {
                let name = match who {
                    0 => "no thread: interrupt, idle exit or switch".to_owned(),
                    _ if who == tid => "itself: the switch".to_owned(),
                    _ => self.history.trace.name_and_id(who),
                };
                Share { who: name, count: 0, us: ns as f64 / 1e3 }
            })
            .collect();
        shares.sort_by(|a, b| b.us.total_cmp(&a.us));
        shares.truncate(MAX_SHARES);
        shares
    }
}

/// Says that the cycles of `thread` contradict the period that the user passed. `is_applied`: the
/// thread was judged by it all the same.
fn contradiction(thread: &LoopReport, passed_ns: f64, came_ns: f64, is_applied: bool) -> String {
    let (name, tid) = (&thread.name, thread.tid);
    let [passed, came] = [passed_ns, came_ns].map(|ns| time(ns / 1e3));
    let rest = if passed_ns > came_ns {
        "A deadline of that length shows nothing for these cycles".to_owned()
    } else if is_applied {
        "Only distances of one and a half periods or more count as missed releases".to_owned()
    } else {
        let left_out = 100.0 * (1.0 - passed_ns / came_ns);
        format!(
            "The period that you passed does not apply, and nothing counts as missed by it. If the loop has that period, it left out \
             {left_out:.0} % of its cycles"
        )
    };
    format!("You passed --period {passed}, but the cycles of {name} (tid {tid}) came every {came}. {rest}")
}

/// Of which kind the measures of a thread are, if it has any.
fn rank(thread: &LoopReport) -> Rank {
    match thread.kind {
        LoopKind::Periodic | LoopKind::Spinning => Rank::Loop,
        LoopKind::Driven => Rank::Driven,
        LoopKind::Irregular if thread.releases >= FEWEST_CYCLES => Rank::Busy,
        LoopKind::Irregular => Rank::Other,
    }
}

/// Distances of releases for people: microseconds.
fn intervals(found: &Intervals) -> IntervalReport {
    let all = &found.sorted_ns;
    let us = |share: f64| {
        let place = (share * all.len().saturating_sub(1) as f64).round() as usize;
        all.get(place).map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    let pattern = found.group.iter().flat_map(|group| group.distances_ns()).map(|ns| ns / 1e3).collect();
    IntervalReport {
        min: us(0.0),
        median: us(0.5),
        p99: us(0.99),
        max: us(1.0),
        uneven: found.group.is_some(),
        pattern,
        one_cycle: found.group.is_some_and(|group| group.is_one_cycle),
    }
}

/// Loops whose releases come in groups.
fn uneven(threads: &[LoopReport]) -> impl Iterator<Item = String> {
    threads.iter().filter_map(|thread| {
        let intervals = thread.release_interval_us.as_ref().filter(|intervals| intervals.uneven)?;
        let (name, tid) = (&thread.name, thread.tid);
        let apart = intervals.pattern.iter().map(|&us| time(us)).collect::<Vec<_>>().join(", ");
        let period = thread.period_us.map_or(String::new(), time);
        let times = intervals.pattern.len();
        let whole = format!("{:.0}us", intervals.pattern.iter().sum::<f64>());
        Some(match (intervals.one_cycle, times) {
            (true, _) => format!(
                "{name} (tid {tid}) wakes {times} times in each cycle, {apart} apart, and does different work each time; its period is the \
                 cycle's, {period}"
            ),
            (false, 2) => format!(
                "the cycles of {name} (tid {tid}) come in pairs, alternately {apart} apart, so its rhythm is irregular and its period is \
                 the mean, {period}. If it sleeps twice in one cycle, pass --period {whole}"
            ),
            (false, _) => format!(
                "the cycles of {name} (tid {tid}) come in groups of {times}, alternately {apart} apart, so its rhythm is irregular and its \
                 period is the mean, {period}. If each group is one cycle, pass --period {whole}"
            ),
        })
    })
}

fn ran_on(followed: &Followed) -> String {
    let set = placement::CpuSet::from_cpus(followed.ran_on.keys().map(|&cpu| usize::from(cpu)));
    set.map_or(String::new(), |set| set.to_string())
}

/// A table of totals by cause, each with whoever took most of it.
fn totals(all: &BTreeMap<(Cause, String), (u64, u64)>) -> Vec<Total> {
    let sum_ns: u64 = all.values().map(|entry| entry.0).sum();
    let mut rows: BTreeMap<Cause, (Total, u64)> = BTreeMap::new();
    for ((cause, who), &(ns, cycles)) in all {
        let (row, most_ns) = rows.entry(*cause).or_insert_with(|| {
            (Total { cause: *cause, who: String::new(), us: 0.0, share: 0.0, cycles: 0 }, 0)
        });
        row.us += ns as f64 / 1e3;
        row.share += ns as f64 / sum_ns.max(1) as f64;
        row.cycles += cycles;
        if ns > *most_ns {
            *most_ns = ns;
            row.who.clone_from(who);
        }
    }
    let mut rows: Vec<Total> = rows.into_values().map(|row| row.0).collect();
    rows.sort_by(|a, b| b.us.total_cmp(&a.us));
    rows
}
