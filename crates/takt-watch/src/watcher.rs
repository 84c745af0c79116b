//! The parts of a trace, one after the other, to what is known of every watched thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use takt_rt::jobs::JobRecord;
use takt_rt::{placement, policy::Policy};
use takt_stats::{Recorder, Summary};
use takt_trace::analysis::{CauseRow, Late};
use takt_trace::{Cause, Event, Kind as EventKind, Trace};

use crate::cycles::Cycles;
use crate::follow::{Followed, Follower, Source};
use crate::history::History;
use crate::period;
use crate::report::{Kind, Report, Share, ThreadReport, Total};
use crate::target::{Target, Watched};

/// What counts as late, and what the user knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The period, where the user told it.
    pub period_ns: Option<f64>,
    /// A wake-up more than this after its release is late. None: a tenth of the period, at least 100 us and at most 1 ms; 1 ms where
    /// there is no period.
    pub late_ns: Option<u64>,
    /// An end more than this after the release is late. None: the period.
    pub deadline_ns: Option<u64>,
    /// Late cycles of each thread that are told one by one, the worst: 20. All are in the tables of causes.
    pub windows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { period_ns: None, late_ns: None, deadline_ns: None, windows: 20 }
    }
}

impl Settings {
    /// What a wake-up may take.
    pub fn late_ns(&self, period_ns: Option<f64>) -> u64 {
        const LEAST_NS: f64 = 100_000.0;
        const MOST_NS: f64 = 1_000_000.0;
        let usual = period_ns.map_or(MOST_NS, |period_ns| (period_ns / 10.0).clamp(LEAST_NS, MOST_NS));
        self.late_ns.unwrap_or(usual as u64)
    }

    /// What a cycle may take, where anything says so.
    pub fn deadline_ns(&self, period_ns: Option<f64>) -> Option<u64> {
        self.deadline_ns.or(period_ns.map(|period_ns| period_ns as u64))
    }
}

/// Threads and interrupts that are named in a list.
const MOST_SHARES: usize = 8;
/// A late cycle is judged when so much more was seen.
const RIPE_NS: u64 = 1_100_000_000;
/// Threads in a report.
pub const MOST_THREADS: usize = 64;

/// A late cycle, with what counted as late when it ended: a period that was found since may say otherwise.
#[derive(Debug, Clone, Copy)]
struct Pending {
    job: JobRecord,
    late_ns: u64,
    deadline_ns: Option<u64>,
}

/// One watched thread.
#[derive(Debug, Default)]
struct Known {
    cycles: Cycles,
    /// Those of the time that events are kept of.
    jobs: VecDeque<JobRecord>,
    /// Late ones whose cause is not known yet.
    pending: Vec<Pending>,
    recorders: Option<(Recorder, Recorder)>,
    releases: u64,
    late: u64,
    causes: BTreeMap<Cause, (CauseRow, BTreeMap<String, u64>)>,
    totals: BTreeMap<(Cause, String), (u64, u64)>,
    windows: Vec<Late>,
    policy: String,
    cpus: String,
    timer_slack_us: Option<f64>,
}

/// Takes the parts of a trace.
#[derive(Debug)]
pub struct Watcher {
    /// What is watched.
    pub watched: Watched,
    machine: bool,
    settings: Settings,
    follower: Follower,
    known: BTreeMap<i32, Known>,
    history: History,
    /// Events that are newer than what is known of all CPUs.
    rest: Vec<Event>,
    events: u64,
    lost_events: u64,
    /// The time that was seen, CLOCK_MONOTONIC.
    span_ns: Option<(u64, u64)>,
    kept_awake: Vec<u16>,
    notes: BTreeSet<String>,
}

impl Watcher {
    /// Nothing is known yet.
    pub fn new(target: Target, settings: Settings) -> Self {
        Self {
            machine: target == Target::Machine,
            watched: Watched::new(target),
            settings,
            follower: Follower::default(),
            known: BTreeMap::new(),
            history: History::default(),
            rest: Vec::new(),
            events: 0,
            lost_events: 0,
            span_ns: None,
            kept_awake: Vec::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Looks the watched threads up anew, with their policies and placements.
    pub fn refresh(&mut self) {
        self.watched.refresh();
        for &tid in self.watched.threads.keys() {
            self.follower.threads.entry(tid).or_default();
        }
        for (&tid, known) in &mut self.known {
            // What has ended keeps what was read last.
            if let Ok(policy) = Policy::read(tid) {
                known.policy = policy.to_string();
                let slack = std::fs::read_to_string(format!("/proc/{tid}/timerslack_ns")).ok();
                let slack = slack.and_then(|text| text.trim().parse::<f64>().ok()).filter(|&ns| ns > 0.0);
                known.timer_slack_us = slack.filter(|_| !policy.is_real_time()).map(|ns| ns / 1e3);
            }
            if let Ok(cpus) = placement::affinity(tid) {
                known.cpus = cpus.to_string();
            }
        }
    }

    /// Takes the next part of the trace; `last` where no other follows. Finished cycles are told to `sink` by thread.
    pub fn feed(&mut self, mut part: Trace, last: bool, sink: &mut dyn FnMut(i32, &[JobRecord])) {
        let to_ns = part.spans.last().map_or(u64::MAX, |span| span.to_ns);
        if let Some(span) = part.spans.first() {
            let from_ns = self.span_ns.map_or(span.from_ns, |seen| seen.0);
            self.span_ns = Some((from_ns, to_ns));
        }
        let mut events = std::mem::take(&mut self.rest);
        events.append(&mut part.events);
        events.sort_by_key(|event| event.time_ns);
        if !last {
            let known = events.partition_point(|event| event.time_ns <= to_ns);
            self.rest = events.split_off(known);
        }
        self.events += events.len() as u64;
        self.lost_events += part.lost_events;
        self.kept_awake.clone_from(&part.kept_awake);
        self.notes.extend(part.notes.iter().cloned());
        if self.machine {
            self.watch_whoever_runs(&events);
        }
        for event in &events {
            self.follower.see(event);
        }
        let longest_ns = self.known.values().filter_map(Known::period_ns).fold(0.0, f64::max);
        self.history.add(events, part, &self.watched.threads, longest_ns);
        let tids: Vec<i32> = self.follower.threads.keys().copied().collect();
        for tid in tids {
            self.take_cycles(tid, last, sink);
        }
    }

    /// On the whole machine a thread is watched as soon as it is seen; what it is called is looked up later.
    fn watch_whoever_runs(&mut self, events: &[Event]) {
        let own = std::process::id() as i32;
        for event in events {
            if let EventKind::Switch { next_tid, .. } = event.kind
                && next_tid > 0
                && next_tid != own
                && self.watched.threads.contains_key(&next_tid)
            {
                self.follower.threads.entry(next_tid).or_default();
            }
        }
    }

    fn take_cycles(&mut self, tid: i32, last: bool, sink: &mut dyn FnMut(i32, &[JobRecord])) {
        let Some(followed) = self.follower.threads.get_mut(&tid) else { return };
        let activations = std::mem::take(&mut followed.activations);
        let waits = self.known.get(&tid).is_some_and(|known| last || !known.pending.is_empty());
        if activations.is_empty() && !waits {
            return;
        }
        let pid = self.watched.threads.get(&tid).map(|thread| thread.pid);
        let threads = &self.watched.threads;
        let own = |other: i32| pid.is_some() && threads.get(&other).map(|thread| thread.pid) == pid;
        let known = self.known.entry(tid).or_default();
        let mut finished = known.cycles.add(&activations, self.settings.period_ns, &own);
        if last {
            finished.extend(known.cycles.last());
        }
        let period_ns = known.period_ns();
        let late_ns = self.settings.late_ns(period_ns);
        let deadline_ns = self.settings.deadline_ns(period_ns);
        let is_late = |job: &JobRecord| {
            job.lateness_ns() > late_ns
                || deadline_ns.is_some_and(|deadline_ns| job.response_ns() > deadline_ns)
        };
        known.count(&finished);
        known.jobs.extend(&finished);
        let from_ns = self.history.begin_ns();
        while known.jobs.front().is_some_and(|job| job.end_ns < from_ns) {
            known.jobs.pop_front();
        }
        let before = known.pending.len();
        let late = finished.iter().filter(|job| is_late(job)).copied();
        known.pending.extend(late.map(|job| Pending { job, late_ns, deadline_ns }));
        known.late += (known.pending.len() - before) as u64;
        // The counter of stolen time speaks a while later.
        let ripe_ns = if last { u64::MAX } else { self.history.end_ns().saturating_sub(RIPE_NS) };
        let ripe: Vec<Pending> = known.pending.extract_if(.., |one| one.job.end_ns < ripe_ns).collect();
        let late: Vec<JobRecord> = ripe.iter().map(|one| one.job).collect();
        if !late.is_empty() {
            // The strictest of them, so that none of them is taken for one in time.
            let late_ns = ripe.iter().map(|one| one.late_ns).min().unwrap_or(late_ns);
            let deadline_ns = ripe.iter().filter_map(|one| one.deadline_ns).min();
            let judged = self.history.judge(tid, known.jobs.make_contiguous(), &late, (late_ns, deadline_ns));
            for one in judged {
                known.add(one, late_ns, self.settings.windows);
            }
        }
        if !finished.is_empty() {
            sink(tid, &finished);
        }
    }

    /// Everything that is known now.
    pub fn report(&self) -> Report {
        let seconds = self.span_ns.map_or(0.0, |(from_ns, to_ns)| to_ns.saturating_sub(from_ns) as f64 / 1e9);
        let mut threads: Vec<ThreadReport> = self
            .known
            .iter()
            .filter(|(_, known)| known.releases > 0)
            .filter_map(|(&tid, known)| self.thread(tid, known, seconds))
            .collect();
        threads.sort_by(|a, b| {
            (a.kind, b.rate_hz).partial_cmp(&(b.kind, a.rate_hz)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut notes: Vec<String> = self.notes.iter().cloned().collect();
        if threads.len() > MOST_THREADS {
            notes.push(format!("{} more threads were seen and are not told", threads.len() - MOST_THREADS));
            threads.truncate(MOST_THREADS);
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
            links: Vec::new(),
            totals: totals(&all),
            events: self.events,
            lost_events: self.lost_events,
            watcher_cpu_percent: 0.0,
            kept_awake: self.kept_awake.clone(),
            untraced: None,
            notes,
            exit_status: None,
            run_dir: None,
        }
    }

    fn thread(&self, tid: i32, known: &Known, seconds: f64) -> Option<ThreadReport> {
        let followed = self.follower.threads.get(&tid)?;
        let named = self.watched.threads.get(&tid).cloned().unwrap_or_default();
        let period_ns = known.period_ns();
        let source = known.cycles.rhythm.and_then(|rhythm| rhythm.source);
        let mostly = known.cycles.wakers().first().map(|waker| waker.0);
        let kind = match (period_ns, source.or(mostly)) {
            (Some(_), Some(Source::Timer(_))) => Kind::Periodic,
            (Some(_), _) => Kind::Driven,
            (None, _) => Kind::Irregular,
        };
        let span_s = known.cycles.span_ns.map_or(0.0, |(from_ns, to_ns)| (to_ns - from_ns) as f64 / 1e9);
        let summary = |pick: fn(&(Recorder, Recorder)) -> &Recorder| {
            known
                .recorders
                .as_ref()
                .map_or_else(|| Summary::of(&mut []), |both| pick(both).summary().over(1e3))
        };
        Some(ThreadReport {
            name: named.name,
            pid: named.pid,
            tid,
            process: named.process,
            kind,
            period_us: period_ns.map(|ns| ns / 1e3),
            rate_hz: if span_s > 0.0 { (known.releases.saturating_sub(1)) as f64 / span_s } else { 0.0 },
            jitter_us: period_ns.and_then(|_| known.jitter_us()),
            releases: known.releases,
            missed: known.cycles.missed,
            late: known.late,
            late_beyond_us: self.settings.late_ns(period_ns) as f64 / 1e3,
            deadline_us: self.settings.deadline_ns(period_ns).map(|ns| ns as f64 / 1e3),
            lateness_us: summary(|both| &both.0),
            response_us: summary(|both| &both.1),
            cpu_percent: 100.0 * followed.cpu_ns as f64 / 1e9 / seconds.max(1e-3),
            policy: known.policy.clone(),
            cpus: known.cpus.clone(),
            ran_on: ran_on(followed),
            timer_slack_us: known.timer_slack_us,
            preempted: followed.preempted,
            page_faults: followed.faults,
            woken_by: self.wakers(known),
            kept_by: self.kept_by(tid, followed),
            causes: known.causes(),
            totals: totals(&known.totals),
            windows: known.windows.clone(),
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
        shares.truncate(MOST_SHARES);
        shares
    }

    fn kept_by(&self, tid: i32, followed: &Followed) -> Vec<Share> {
        let mut shares: Vec<Share> = followed
            .kept_by
            .iter()
            .map(|(&who, &ns)| {
                let name = match who {
                    0 => "nobody: interrupt, idle exit or switch".to_owned(),
                    _ if who == tid => "itself: the switch".to_owned(),
                    _ => self.history.trace.name_and_id(who),
                };
                Share { who: name, count: 0, us: ns as f64 / 1e3 }
            })
            .collect();
        shares.sort_by(|a, b| b.us.total_cmp(&a.us));
        shares.truncate(MOST_SHARES);
        shares
    }

    /// The worst windows with the events about them, for a picture.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }
}

impl Known {
    fn period_ns(&self) -> Option<f64> {
        self.cycles.rhythm.and_then(|rhythm| rhythm.period).map(|period| period.ns)
    }

    fn count(&mut self, finished: &[JobRecord]) {
        self.releases += finished.len() as u64;
        // Each takes memory, which threads that are hardly ever awake are not worth.
        if self.recorders.is_none() && self.releases >= period::FEWEST as u64 / 2 {
            self.recorders = Recorder::compact(None).ok().zip(Recorder::compact(None).ok());
        }
        let Some((lateness, response)) = &mut self.recorders else { return };
        for job in finished {
            lateness.record(job.lateness_ns());
            response.record(job.response_ns());
        }
    }

    fn add(&mut self, late: Late, late_ns: u64, most: usize) {
        let us = if late.lateness_us * 1e3 > late_ns as f64 { late.lateness_us } else { late.response_us };
        let (row, names) = self.causes.entry(late.cause).or_insert_with(|| {
            let row = CauseRow {
                cause: late.cause,
                who: String::new(),
                count: 0,
                never_ran: 0,
                worst_us: 0.0,
                total_us: 0.0,
            };
            (row, BTreeMap::new())
        });
        row.count += 1;
        row.never_ran = row.never_ran.saturating_add(late.never_ran);
        row.worst_us = row.worst_us.max(us);
        row.total_us += us;
        *names.entry(late.who.clone()).or_default() += 1;
        for part in &late.parts {
            let (ns, cycles) = self.totals.entry((part.cause, part.who.clone())).or_default();
            *ns += part.ns;
            *cycles += 1;
        }
        if late.parts.is_empty() {
            let (ns, cycles) = self.totals.entry((late.cause, late.who.clone())).or_default();
            *ns += (us * 1e3) as u64;
            *cycles += 1;
        }
        self.windows.push(late);
        self.windows
            .sort_by(|a, b| b.response_us.max(b.lateness_us).total_cmp(&a.response_us.max(a.lateness_us)));
        self.windows.truncate(most);
    }

    fn causes(&self) -> Vec<CauseRow> {
        let named = |(row, names): &(CauseRow, BTreeMap<String, u64>)| {
            let who = names.iter().max_by_key(|entry| entry.1).map_or(String::new(), |entry| entry.0.clone());
            CauseRow { who, ..row.clone() }
        };
        let mut rows: Vec<CauseRow> = self.causes.values().map(named).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }

    fn jitter_us(&self) -> Option<[f64; 2]> {
        let mut jitter: Vec<u64> = self.cycles.jitter_ns.iter().copied().collect();
        jitter.sort_unstable();
        let median = *jitter.get(jitter.len() / 2)?;
        let worst = *jitter.last()?;
        Some([median as f64 / 1e3, worst as f64 / 1e3])
    }
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
