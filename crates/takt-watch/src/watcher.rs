//! The parts of a trace, one after the other, to what is known of every watched thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::JobRecord;
use takt_rt::procfs::Stat;
use takt_rt::{placement, policy::Policy};
use takt_stats::Recorder;
use takt_trace::analysis::{CauseTable, Late, keep_worst};
use takt_trace::follow::{Activation, Follower, Source};
use takt_trace::{Cause, Event, Kind, Trace};

use crate::cycles::Cycles;
use crate::error::WatchError;
use crate::go::Gos;
use crate::history::History;
use crate::link::{Endpoint, Exchange, Link};
use crate::period;
use crate::recur::Judged;
use crate::spinning::Spinning;
use crate::target::{Target, Watched};

mod reported;

pub(crate) use reported::MAX_THREADS;

/// Thresholds of lateness, and the user's knowledge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The period, where the user reported it.
    pub period_ns: Option<f64>,
    /// A wake-up more than this after its release is late. None: a tenth of the period, at least
    /// 100 us and at most 1 ms; 1 ms where there is no period.
    pub late_ns: Option<u64>,
    /// An end more than this after the release is late. None: the period.
    pub deadline_ns: Option<u64>,
    /// Late cycles of each thread that are reported one by one, the worst: 20. All are in the
    /// tables of causes.
    pub windows: usize,
    /// The follower of the threads.
    pub follow: FollowBy,
    /// Links whose packets are followed.
    pub links: [Option<Endpoint>; 4],
    /// Whether breakpoints may be set where a watched program in Python collects its garbage. Off:
    /// nothing is added to a watched program unless it is asked for.
    pub probes: bool,
    /// Whether a report is made after every part, for somebody who looks on.
    pub live: bool,
    /// Whether reports have the histograms of each thread, for telemetry.
    pub histograms: bool,
    /// Whether the records of declared loops are taken: one session at a time does.
    pub declared: bool,
}

/// The component that follows the watched threads from wake-up to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowBy {
    /// The kernel, where it takes programs for that (BPF), else [`Self::Events`].
    #[default]
    Auto,
    /// The kernel: one record for each cycle is read, and the events round late cycles. The
    /// cheapest.
    Kernel,
    /// This program, from all events of the machine: it needs no right to load programs into the
    /// kernel.
    Events,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period_ns: None,
            late_ns: None,
            deadline_ns: None,
            windows: 20,
            follow: FollowBy::Auto,
            links: [None; 4],
            probes: false,
            live: true,
            histograms: false,
            declared: false,
        }
    }
}

/// Known properties of one thread before the watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Its period.
    pub period_ns: f64,
    /// An end more than this after the release is late.
    pub deadline_ns: u64,
}

impl Settings {
    /// The same of a thread of which more is known.
    fn of(self, expected: Option<&Expected>) -> Self {
        let Some(expected) = expected else { return self };
        Self { period_ns: Some(expected.period_ns), deadline_ns: Some(expected.deadline_ns), ..self }
    }

    /// Limit for a wake-up.
    pub fn late_ns(&self, period_ns: Option<f64>) -> u64 {
        const MIN_NS: f64 = 100_000.0;
        const MAX_NS: f64 = 1_000_000.0;
        let usual = period_ns.map_or(MAX_NS, |period_ns| (period_ns / 10.0).clamp(MIN_NS, MAX_NS));
        self.late_ns.unwrap_or(usual as u64)
    }

    /// Limit for a cycle, if there is one.
    pub fn deadline_ns(&self, period_ns: Option<f64>) -> Option<u64> {
        self.deadline_ns.or(period_ns.map(|period_ns| period_ns as u64))
    }
}

/// A packet's answer is judged when so much more was seen.
const LINK_NS: u64 = 10_000_000;
/// A late cycle is judged when so much more was seen.
const RIPE_NS: u64 = 1_100_000_000;
/// Threads that have ended and are remembered.
const MAX_ENDED: usize = 2048;
/// Threads that kept one from running and are distinguished.
const MAX_KEPT_BY: usize = 256;
/// Names that lateness of one thread is put down to.
const MAX_NAMES: usize = 256;
const MAX_NOTES: usize = 64;
/// Late cycles of one thread whose times are kept.
const MAX_LATE: usize = 2048;

/// A late cycle, with what counted as late when it ended: a period that was found since may say
/// otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) job: JobRecord,
    late_ns: u64,
    deadline_ns: Option<u64>,
}

/// A late cycle behind which others waited.
#[derive(Debug)]
struct Backlog {
    cause: Cause,
    who: String,
    first: u64,
    last: u64,
}

/// One watched thread.
#[derive(Debug, Default)]
pub(crate) struct Known {
    cycles: Cycles,
    /// A runtime lends it to several loops by turns.
    shared: bool,
    /// Those of the time that events are kept of.
    pub(crate) jobs: VecDeque<JobRecord>,
    /// Late ones whose cause is not known yet.
    pub(crate) pending: Vec<Pending>,
    /// Late ones whose events were not looked at, because there were too many.
    pub(crate) unjudged: u64,
    /// When the newest late ones were planned, and those of which a cause is known.
    late_at: VecDeque<u64>,
    judged: VecDeque<Judged>,
    /// The late one that a backlog began with, and the last one that waited behind it.
    backlog: Option<Backlog>,
    recorders: Option<(Recorder, Recorder)>,
    releases: u64,
    late: u64,
    causes: CauseTable,
    totals: BTreeMap<(Cause, String), (u64, u64)>,
    windows: Vec<Late>,
    policy: String,
    cpus: String,
    timer_slack_us: Option<f64>,
    faults_before: Option<u64>,
    /// Since when its cycles are what they are now; None for the whole time.
    since_ns: Option<u64>,
}

/// Takes the parts of a trace.
#[derive(Debug)]
pub struct Watcher {
    pub watched: Watched,
    machine: bool,
    settings: Settings,
    /// Known properties of single threads.
    pub(crate) expected: BTreeMap<i32, Expected>,
    pub(crate) follower: Follower,
    pub(crate) known: BTreeMap<i32, Known>,
    pub(crate) history: History,
    /// Events that are newer than what is known of all CPUs.
    rest: Vec<Event>,
    pub(crate) events: u64,
    pub(crate) lost_events: u64,
    /// The time that was seen, CLOCK_MONOTONIC.
    pub(crate) span_ns: Option<(u64, u64)>,
    pub(crate) kept_awake: Vec<u16>,
    pub(crate) notes: BTreeSet<String>,
    /// Notes that found no room.
    notes_left_out: u64,
    pub(crate) links: Vec<Link>,
    /// The kernel follows the threads, and does not count their page faults.
    pub(crate) in_kernel: bool,
    looked: Instant,
    forgotten: BTreeSet<i32>,
    gos: Gos,
    /// Threads that may be loops without sleeping.
    pub(crate) spinning: Spinning,
}

impl Watcher {
    /// Nothing is known yet.
    pub fn new(target: Target, settings: Settings) -> Self {
        Self {
            machine: target == Target::Machine,
            watched: Watched::new(target),
            settings,
            expected: BTreeMap::new(),
            follower: Follower::default(),
            known: BTreeMap::new(),
            history: History::default(),
            rest: Vec::new(),
            events: 0,
            lost_events: 0,
            span_ns: None,
            kept_awake: Vec::new(),
            notes: BTreeSet::new(),
            notes_left_out: 0,
            links: Vec::new(),
            in_kernel: false,
            looked: Instant::now(),
            forgotten: BTreeSet::new(),
            gos: Gos::default(),
            spinning: Spinning::default(),
        }
    }

    /// Something that a reader of the report should know.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// Those of a part of the trace, which may have figures in them, and so be ever new ones.
    pub(crate) fn take_notes(&mut self, notes: &[String]) {
        for note in notes {
            if self.notes.len() < MAX_NOTES {
                self.notes.insert(note.clone());
            } else if !self.notes.contains(note) {
                self.notes_left_out += 1;
            }
        }
    }

    /// Whether the targets were looked for longer than `every` ago.
    pub(crate) fn is_time_to_look(&mut self, every: Duration) -> bool {
        let is = self.looked.elapsed() >= every;
        if is {
            self.looked = Instant::now();
        }
        is
    }

    /// Looks the watched threads up anew, with their policies and placements.
    pub fn refresh(&mut self) {
        self.watched.refresh();
        self.leave_monitors_out();
        self.forget_ended();
        self.forget_who_kept_least();
        if self.in_kernel {
            self.name_the_others();
        }
        for &tid in self.watched.threads.keys() {
            self.follower.threads.entry(tid).or_default();
        }
        for (&tid, known) in &mut self.known {
            // A thread that has ended keeps the last values read.
            if let Ok(policy) = Policy::read(tid) {
                known.policy = policy.to_string();
                let slack = std::fs::read_to_string(format!("/proc/{tid}/timerslack_ns")).ok();
                let slack = slack.and_then(|text| text.trim().parse::<f64>().ok()).filter(|&ns| ns > 0.0);
                known.timer_slack_us = slack.filter(|_| !policy.is_real_time()).map(|ns| ns / 1e3);
            }
            if let Ok(cpus) = placement::affinity(tid) {
                known.cpus = cpus.to_string();
            }
            let pid = self.watched.threads.get(&tid).map(|thread| thread.pid);
            known.shared |= pid.is_some_and(|pid| self.gos.is_go(pid));
            if self.in_kernel
                && let Some(faults) = pid.and_then(|pid| page_faults(pid, tid))
                && let Some(thread) = self.follower.threads.get_mut(&tid)
            {
                let before = *known.faults_before.get_or_insert(faults);
                thread.faults = faults.saturating_sub(before);
            }
        }
    }

    /// Looks for threads that spin.
    pub(crate) fn look_for_spinning(&mut self) {
        let known = &self.known;
        let has_period = |tid: i32| {
            let known = known.get(&tid)?;
            // Sleeps with which a loop polls have a period, too, and it is not the loop's.
            known.period_ns().filter(|_| !known.cycles.may_poll()).map(|_| known.is_of_calls())
        };
        if let Some(note) = self.spinning.refresh(&self.watched, &has_period) {
            self.take_notes(&[note]);
        }
    }

    /// Takes the calls of those that spin; returns them.
    pub(crate) fn take_calls(&mut self) -> Vec<i32> {
        let (called, lost) = self.spinning.take(&mut self.follower.threads);
        self.lost_events += lost;
        called
    }

    /// Leaves out the monitor thread of a Go program, which has a period but is not a loop of the
    /// program.
    fn leave_monitors_out(&mut self) {
        self.gos.refresh(&self.watched.processes);
        let mut notes = Vec::new();
        for tid in self.gos.monitors.keys() {
            self.known.remove(tid);
            self.follower.threads.remove(tid);
            if let Some(thread) = self.watched.threads.get(tid) {
                let name = &thread.name;
                notes.push(format!("thread {tid} of {name} is the monitor of Go's runtime: left out"));
            }
        }
        self.take_notes(&notes);
        self.watched.leave_out(&self.gos.monitors.keys().copied().collect());
    }

    /// In days a thread meets ever new ones that keep it from running.
    fn forget_who_kept_least(&mut self) {
        let many = self.follower.threads.values_mut().filter(|thread| thread.kept_by.len() > MAX_KEPT_BY);
        for followed in many {
            let mut all: Vec<(i32, u64)> = followed.kept_by.iter().map(|(&who, &ns)| (who, ns)).collect();
            all.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
            all.truncate(MAX_KEPT_BY / 2);
            followed.kept_by = all.into_iter().collect();
        }
    }

    /// Looks up the names of threads that wake the watched ones or keep them from running: if the
    /// kernel follows the threads, no event brings these names.
    fn name_the_others(&mut self) {
        for (tid, known) in &self.known {
            let Some(followed) = self.follower.threads.get(tid) else { continue };
            let wakers = known.cycles.wakers().into_iter().map(|(source, _)| source);
            let others = followed.kept_by.keys().map(|&tid| Source::Thread(tid));
            for source in wakers.chain(others) {
                self.history.look_up(source);
            }
        }
    }

    /// Memory is bounded, for days: of threads that have ended, those that did least are forgotten
    /// first.
    fn forget_ended(&mut self) {
        let known = &self.known;
        for threads in [
            self.follower.threads.keys().copied().collect::<Vec<i32>>(),
            self.watched.threads.keys().copied().collect(),
        ] {
            if threads.len() <= 2 * MAX_ENDED {
                continue;
            }
            let mut ended: Vec<i32> =
                threads.into_iter().filter(|tid| !self.watched.threads_now().contains(tid)).collect();
            ended.sort_by_key(|tid| known.get(tid).map_or((0, 0), |known| (known.late, known.releases)));
            ended.truncate(ended.len().saturating_sub(MAX_ENDED));
            self.forgotten.extend(ended);
        }
        for tid in std::mem::take(&mut self.forgotten) {
            self.known.remove(&tid);
            self.follower.threads.remove(&tid);
            self.watched.threads.remove(&tid);
            self.notes.insert("the least active threads that ended long ago are dropped".to_owned());
        }
    }

    /// Takes the next part of the trace; `last` where no other follows. Finished cycles are
    /// reported to `sink` by thread.
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
        self.take_notes(&part.notes);
        if self.machine {
            self.watch_whoever_runs(&events);
        }
        for event in &events {
            self.follower.see(event);
        }
        let longest_ns = self.known.values().filter_map(Known::period_ns).fold(0.0, f64::max);
        self.history.add(events, part, &self.watched.threads, longest_ns);
        self.take_calls();
        let tids: Vec<i32> = self.follower.threads.keys().copied().collect();
        for tid in tids {
            self.take_cycles(tid, last, sink);
        }
        let until_ns = if last { u64::MAX } else { self.history.end_ns().saturating_sub(LINK_NS) };
        self.take_packets(last);
        for index in 0..self.links.len() {
            let late: Vec<Exchange> =
                self.links[index].pending.extract_if(.., |one| one.end_ns() < until_ns).collect();
            for one in late {
                let usual = self.links[index].usual(one.arrived_ns);
                self.judge_link(index, &one, &usual);
            }
        }
    }

    /// Opens the links that the settings name.
    ///
    /// # Errors
    /// [`WatchError::Link`], [`WatchError::Interface`]; without the right to any, a note says so.
    pub(crate) fn open_links(&mut self) -> Result<(), WatchError> {
        for endpoint in self.settings.links.into_iter().flatten() {
            match Link::open(endpoint, self.settings) {
                Ok(link) => self.links.push(link),
                // The threads can be watched all the same.
                Err(error) if error.is_of_rights() => {
                    self.note(format!("missing: CAP_NET_RAW; {error}: that link is not watched"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the packets that have passed since the last time, at the end with what is missing.
    pub(crate) fn take_packets(&mut self, last: bool) {
        Link::take_all(&mut self.links, last);
        if last && self.watched.is_there() {
            self.links.iter_mut().for_each(|link| link.end(monotonic_ns()));
        }
    }

    /// Finds out where a packet's answer was held up, by the events that are there.
    pub(crate) fn judge_link(&mut self, index: usize, late: &Exchange, usual: &[Exchange]) {
        let threads: BTreeSet<i32> = self.watched.threads.keys().copied().collect();
        let violation = self.links[index].blamed(&self.history.trace, late, usual, &threads);
        self.links[index].blame(&violation);
    }

    /// On the whole machine a thread is watched as soon as it is seen; what it is called is looked
    /// up later.
    fn watch_whoever_runs(&mut self, events: &[Event]) {
        let own = std::process::id() as i32;
        for event in events {
            if let Kind::Switch { next_tid, .. } = event.kind
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
        let finished = self.finish_cycles(tid, &activations, last);
        let known = self.known.entry(tid).or_default();
        known.forget_jobs(self.history.begin_ns(), 0);
        // The counter of stolen time speaks a while later.
        let ripe_ns = if last { u64::MAX } else { self.history.end_ns().saturating_sub(RIPE_NS) };
        let ripe: Vec<Pending> = known.pending.extract_if(.., |one| one.job.end_ns < ripe_ns).collect();
        if !ripe.is_empty() {
            let jobs = std::mem::take(&mut known.jobs);
            let jobs = Vec::from(jobs);
            self.judge(tid, &jobs, &ripe);
            self.known.entry(tid).or_default().jobs = jobs.into();
        }
        if !finished.is_empty() {
            sink(tid, &finished);
        }
    }

    /// Makes cycles of a thread's activations, counts them, and keeps the late ones.
    pub(crate) fn finish_cycles(
        &mut self,
        tid: i32,
        activations: &[Activation],
        last: bool,
    ) -> Vec<JobRecord> {
        if activations.is_empty() && !last {
            return Vec::new();
        }
        let pid = self.watched.threads.get(&tid).map(|thread| thread.pid);
        let threads = &self.watched.threads;
        let own = |other: i32| pid.is_some() && threads.get(&other).map(|thread| thread.pid) == pid;
        let settings = self.settings.of(self.expected.get(&tid));
        let known = self.known.entry(tid).or_default();
        let mut finished = known.cycles.add(activations, settings.period_ns, &own);
        if last {
            finished.extend(known.cycles.last());
        }
        if let Some(since_ns) = known.cycles.anew_ns.take() {
            known.begin_anew(since_ns);
        }
        let period_ns = known.period_ns();
        let late_ns = settings.late_ns(period_ns);
        let deadline_ns = settings.deadline_ns(period_ns);
        let is_late = |job: &JobRecord| {
            job.lateness_ns() > late_ns
                || deadline_ns.is_some_and(|deadline_ns| job.response_ns() > deadline_ns)
        };
        known.count(&finished);
        known.jobs.extend(&finished);
        for &job in finished.iter().filter(|job| is_late(job)) {
            known.pending.push(Pending { job, late_ns, deadline_ns });
            known.late += 1;
            push(&mut known.late_at, job.planned_ns);
        }
        finished
    }

    /// Finds out why the cycles in `late` were late, of the thread's `jobs`, and counts their
    /// causes, which are the answer.
    pub(crate) fn judge(&mut self, tid: i32, jobs: &[JobRecord], late: &[Pending]) -> Vec<Cause> {
        let cycles: Vec<JobRecord> = late.iter().map(|one| one.job).collect();
        // The strictest of them, so that none of them is taken for one in time.
        let Some(late_ns) = late.iter().map(|one| one.late_ns).min() else { return Vec::new() };
        let deadline_ns = late.iter().filter_map(|one| one.deadline_ns).min();
        let known = self.known.entry(tid).or_default();
        let of_calls = known.period_ns().filter(|_| known.is_of_calls());
        let mut judged = match of_calls {
            Some(period_ns) => self.judge_calls(tid, jobs, &cycles, (period_ns, late_ns)),
            None => self.history.judge(tid, jobs, &cycles, (late_ns, deadline_ns)),
        };
        judged.sort_by_key(|late| late.index);
        let known = self.known.entry(tid).or_default();
        let causes = judged.iter().map(|one| one.cause).collect();
        for one in judged {
            let one = known.inherit(one, jobs);
            known.add(one, late_ns, self.settings.windows);
        }
        causes
    }

    /// As [`History::judge`], of a thread that does not sleep between its cycles: each lasts from
    /// one call to the next, and what it takes beyond a period has the cause.
    fn judge_calls(
        &mut self,
        tid: i32,
        jobs: &[JobRecord],
        late: &[JobRecord],
        (period_ns, late_ns): (f64, u64),
    ) -> Vec<Late> {
        let period_ns = period_ns as u64;
        let whole = |job: &JobRecord| {
            let from_ns = job.planned_ns.saturating_sub(period_ns);
            JobRecord { planned_ns: from_ns, wake_ns: from_ns, start_ns: from_ns, ..*job }
        };
        let [jobs, late] = [jobs, late].map(|jobs| jobs.iter().map(whole).collect::<Vec<JobRecord>>());
        let response_ns = period_ns.saturating_add(late_ns);
        let mut judged = self.history.judge(tid, &jobs, &late, (u64::MAX, Some(response_ns)));
        for one in &mut judged {
            one.planned_ns += period_ns;
            one.response_us = (one.response_us - period_ns as f64 / 1e3).max(0.0);
            one.lateness_us = one.response_us;
        }
        judged
    }

    /// The worst windows with the events about them, for a picture.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }
}

impl Known {
    fn period_ns(&self) -> Option<f64> {
        self.cycles.period_ns(self.shared)
    }

    /// Forgets what was counted of cycles that were none. Their rows are written, and are before
    /// the window of its measures.
    fn begin_anew(&mut self, since_ns: u64) {
        let Self { cycles, shared, policy, cpus, timer_slack_us, faults_before, .. } = std::mem::take(self);
        let since_ns = Some(since_ns);
        *self =
            Self { cycles, shared, policy, cpus, timer_slack_us, faults_before, since_ns, ..Self::default() };
    }

    /// Its cycles end with calls, and not with sleeps.
    fn is_of_calls(&self) -> bool {
        self.cycles.is_of_calls()
    }

    /// Forgets the cycles that ended before `from_ns`, but the newest `fewest`.
    pub(crate) fn forget_jobs(&mut self, from_ns: u64, fewest: usize) {
        let most = self.jobs.len().saturating_sub(fewest);
        let ended = self.jobs.iter().take(most).take_while(|job| job.end_ns < from_ns).count();
        self.jobs.drain(..ended);
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

    /// A cycle that waited behind another late one has that one's cause, for as much of its time as
    /// it waited: nobody looks for "the job before". It is judged by its own window, in which the
    /// first of a long backlog may not lie.
    fn inherit(&mut self, mut late: Late, jobs: &[JobRecord]) -> Late {
        let waited = |cause: Cause| cause == Cause::PreviousJob;
        let has_waited = late.parts.iter().any(|part| waited(part.cause));
        let is_known = !matches!(late.cause, Cause::NotRecorded | Cause::EventsLost | Cause::PreviousJob);
        if late.inherited || !has_waited {
            if is_known {
                let first = late.backlog_of.unwrap_or(late.index);
                let (cause, who) = (late.cause, late.who.clone());
                self.backlog = Some(Backlog { cause, who, first, last: late.index });
            }
        } else if let Some(backlog) = &mut self.backlog
            && is_row(jobs, backlog.last, late.index)
        {
            backlog.last = late.index;
            if waited(late.cause) {
                (late.cause, late.inherited) = (backlog.cause, true);
                late.who.clone_from(&backlog.who);
                late.backlog_of = Some(backlog.first);
            }
        } else {
            self.backlog = None;
        }
        if let Some(backlog) = self.backlog.as_ref().filter(|_| has_waited) {
            for part in late.parts.iter_mut().filter(|part| waited(part.cause)) {
                part.cause = backlog.cause;
                part.who.clone_from(&backlog.who);
            }
        }
        late
    }

    fn add(&mut self, late: Late, late_ns: u64, most: usize) {
        self.causes.add(&late, late_ns);
        let (cause, who) = (late.cause, late.who.clone());
        let ns = (late.late_us(late_ns) * 1e3) as u64;
        push(&mut self.judged, Judged { planned_ns: late.planned_ns, cause, who, late_ns: ns });
        let mut add = |cause: Cause, who: &str, part_ns: u64| {
            let known = self.totals.len() < MAX_NAMES || self.totals.contains_key(&(cause, who.to_owned()));
            let who = if known { who } else { "others" };
            let (ns, cycles) = self.totals.entry((cause, who.to_owned())).or_default();
            *ns += part_ns;
            *cycles += 1;
        };
        for part in &late.parts {
            add(part.cause, &part.who, part.ns);
        }
        if late.parts.is_empty() {
            add(late.cause, &late.who, (late.late_us(late_ns) * 1e3) as u64);
        }
        self.windows.push(late);
        keep_worst(&mut self.windows, most);
    }

    fn jitter_us(&self) -> Option<[f64; 2]> {
        let mut jitter: Vec<u64> = self.cycles.jitter_ns.iter().copied().collect();
        jitter.sort_unstable();
        let median = *jitter.get(jitter.len() / 2)?;
        let worst = *jitter.last()?;
        Some([median as f64 / 1e3, worst as f64 / 1e3])
    }
}

/// Whether each of the cycles from `first` to `last` was released before the one before it ended.
fn is_row(jobs: &[JobRecord], first: u64, last: u64) -> bool {
    let row: Vec<&JobRecord> = jobs.iter().filter(|job| (first..=last).contains(&job.index)).collect();
    row.len() as u64 == last.saturating_sub(first) + 1
        && row.windows(2).all(|pair| pair[1].planned_ns < pair[0].end_ns)
}

/// Appends a value, and forgets the oldest beyond [`MAX_LATE`].
fn push<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() >= MAX_LATE {
        queue.pop_front();
    }
    queue.push_back(value);
}

/// The page faults of a thread since it began, minor and major.
fn page_faults(pid: i32, tid: i32) -> Option<u64> {
    let stat = Stat::of_thread(pid, tid)?;
    Some(stat.number::<u64>(10)? + stat.number::<u64>(12)?)
}

#[cfg(test)]
mod tests;
