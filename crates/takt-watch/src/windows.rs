//! Follows threads in the kernel itself: cycles come from its records, and events are read only
//! around late cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use takt_rt::clock::{monotonic_ns, thread_cpu_ns};
use takt_rt::jobs::JobRecord;
use takt_trace::bpf::KernelFollower;
use takt_trace::event::Span;
use takt_trace::{Cause, Trace, TraceError, TraceOptions, Tracer};

use crate::allowance::Allowance;
use crate::link::Exchange;
use crate::watcher::{Pending, Watcher};

/// Records are taken so often, and windows read: the rings hold a second of a busy CPU, and few
/// windows of a tenth.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Time after the end of a late cycle at which all of its events are in the ring.
const AFTER_NS: u64 = 5_000_000;
/// Looked at before the cycle before a late one, and after a late one.
const LEAD_NS: u64 = 3_000_000;
/// Cycles before a late one that report what is usual: so many, as far as they lie within this
/// time, and at least the fewest.
const USUAL: usize = 16;
const USUAL_NS: u64 = 50_000_000;
const FEWEST: usize = 3;
/// Time round packets whose events may be read at once, and what may be read of each second from
/// then on.
const BURST_NS: u64 = 3_000_000_000;
const SHARE: u64 = 20;
/// The counters of stolen time are read so often, where nothing is late.
const COUNTERS_NS: u64 = 1_000_000_000;
/// A late cycle is judged so long after its events were read: the counter of stolen time speaks a
/// while later.
const RIPE_NS: u64 = 1_100_000_000;
/// Read round a packet and its answer.
const AROUND_NS: u64 = 1_000_000;
/// Stretches that wait to be judged, at most.
const MAX_BATCHES: usize = 64;

/// Late cycles whose events were read, and that wait for counters.
#[derive(Debug)]
struct Batch {
    windows: Trace,
    /// Of each thread its cycles in the windows, and the late ones among them.
    threads: BTreeMap<i32, (Vec<JobRecord>, Vec<Pending>)>,
    /// Answers that came late, by the place of their link, with some that did not.
    answers: Vec<(usize, Exchange, Vec<Exchange>)>,
    ripe_ns: u64,
    /// CPU time that was set aside for the threads' part of it, what reading it took of that, and
    /// the time that it is about.
    set_aside_ns: f64,
    read_ns: u64,
    length_ns: u64,
    /// The threads' part, 0 to 1.
    share: f64,
}

/// Open kernel resources, and the data read from them.
#[derive(Debug)]
pub(crate) struct Windows {
    follower: Followed,
    tracer: Tracer,
    batches: VecDeque<Batch>,
    allowance: Allowance,
    link_allowance_ns: u64,
    filled_ns: u64,
    counters_ns: u64,
    stacks: Vec<i32>,
}

/// Threads that the kernel follows.
#[derive(Debug)]
pub(crate) struct Followed {
    kernel: KernelFollower,
    lost: u64,
    /// Threads of the records of one time; kept for its memory.
    awake: BTreeSet<i32>,
}

impl Followed {
    /// Loads the kernel's programs.
    ///
    /// # Errors
    /// [`TraceError`].
    pub(crate) fn start() -> Result<Self, TraceError> {
        Ok(Self { kernel: KernelFollower::start()?, lost: 0, awake: BTreeSet::new() })
    }
}

impl Windows {
    /// Loads the kernel's programs and starts to record.
    ///
    /// # Errors
    /// [`TraceError`].
    pub(crate) fn start(options: &TraceOptions) -> Result<Self, TraceError> {
        let follower = Followed::start()?;
        // Stacks cost each wake-up a microsecond or two: they are taken of threads that need them.
        let options = TraceOptions { windows_only: true, stacks: false, period: TICK, ..options.clone() };
        let tracer = Tracer::start(&options)?;
        let now_ns = monotonic_ns();
        let allowance = Allowance::new(now_ns, thread_cpu_ns() + tracer.reader_cpu_ns());
        Ok(Self {
            follower,
            tracer,
            batches: VecDeque::new(),
            allowance,
            link_allowance_ns: BURST_NS,
            filled_ns: now_ns,
            counters_ns: now_ns,
            stacks: Vec::new(),
        })
    }

    /// Page faults of these processes are recorded from now on.
    pub(crate) fn follow_faults(&self, processes: Vec<i32>) {
        self.tracer.follow(processes);
    }

    /// Threads for whose wake-ups the kernel's stacks are worth their cost: something could not be
    /// interrupted.
    fn stacks_of(&mut self, tid: i32) {
        const MOST: usize = 16;
        if self.stacks.len() < MOST && !self.stacks.contains(&tid) {
            self.stacks.push(tid);
            self.tracer.stacks_of(self.stacks.clone());
        }
    }

    /// CPU time of the two threads that watch, this one and the one that reads events.
    fn taken_ns(&self) -> u64 {
        thread_cpu_ns() + self.tracer.reader_cpu_ns()
    }

    fn refill(&mut self, now_ns: u64) {
        self.allowance.refill(now_ns, self.taken_ns());
        let new_ns = now_ns.saturating_sub(self.filled_ns) / SHARE;
        self.link_allowance_ns = (self.link_allowance_ns + new_ns).min(BURST_NS);
        self.filled_ns = now_ns;
    }
}

/// The part of the thread's cycles that is needed to judge the one at `index`, and its time.
fn around(jobs: &[JobRecord], index: usize) -> (std::ops::Range<usize>, Span) {
    let late = &jobs[index];
    let mut first = index;
    while first > 0 {
        let before = &jobs[first - 1];
        let (count, back_ns) = (index - first, late.planned_ns.saturating_sub(before.planned_ns));
        if count >= FEWEST && (count >= USUAL || back_ns > USUAL_NS) {
            break;
        }
        first -= 1;
    }
    let after = (index + 2).min(jobs.len());
    let begin = &jobs[first];
    let before_ns =
        first.checked_sub(1).map_or(begin.planned_ns, |before| jobs[before].end_ns.min(begin.planned_ns));
    let end_ns = late.end_ns.max(jobs[after - 1].end_ns.min(late.end_ns + LEAD_NS));
    (first..after, Span { from_ns: before_ns.saturating_sub(LEAD_NS), to_ns: end_ns + LEAD_NS })
}

fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.to_ns - span.from_ns).sum()
}

/// Joins spans that touch; they come in any order.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from_ns);
    let mut all: Vec<Span> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if last.to_ns >= span.from_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => all.push(span),
        }
    }
    all
}

impl Watcher {
    /// Takes what the kernel has followed since the last time, reads the events round late cycles
    /// and judges those that are ripe; `last` where no other time follows. Finished cycles are
    /// reported to `sink` by thread.
    ///
    /// # Errors
    /// [`TraceError::Ended`].
    pub(crate) fn take(
        &mut self,
        windows: &mut Windows,
        last: bool,
        sink: &mut dyn FnMut(i32, &[JobRecord]),
    ) -> Result<(), TraceError> {
        let now_ns = self.take_cycles_of(&mut windows.follower, last, sink);
        self.take_packets(last);
        windows.refill(now_ns);
        self.read(windows, now_ns, last)?;
        let ripe_ns = if last { u64::MAX } else { now_ns };
        while windows.batches.front().is_some_and(|batch| batch.ripe_ns <= ripe_ns) {
            let Some(batch) = windows.batches.pop_front() else { break };
            self.judge_batch(windows, batch);
        }
        Ok(())
    }

    /// Takes the cycles that the kernel has followed since the last time, and reports until when.
    pub(crate) fn take_cycles_of(
        &mut self,
        followed: &mut Followed,
        last: bool,
        sink: &mut dyn FnMut(i32, &[JobRecord]),
    ) -> u64 {
        let now_ns = monotonic_ns();
        let wanted = self.watched.threads_now();
        if let Err(error) = followed.kernel.follow(wanted) {
            self.notes.insert(format!("not all threads are followed: {error}"));
        }
        let (threads, seen, events) = (&mut self.follower.threads, &mut followed.awake, &mut self.events);
        seen.clear();
        // A record is 150 bytes: each goes to its thread at once, instead of being sorted by it.
        let mut newest = 0;
        followed.kernel.drain(&mut |awake| {
            *events += 1;
            if awake.tid != newest {
                newest = awake.tid;
                seen.insert(newest);
            }
            let thread = threads.entry(awake.tid).or_default();
            let activation = thread.take(&awake);
            thread.activations.push(activation);
        });
        let (called, lost_calls) = self.spinning.take(threads);
        seen.extend(called);
        self.lost_events += lost_calls;
        let lost = followed.kernel.lost();
        self.lost_events += lost.saturating_sub(followed.lost);
        followed.lost = lost;
        let from_ns = self.span_ns.map_or(now_ns, |span| span.0);
        self.span_ns = Some((from_ns, now_ns));
        if last {
            seen.extend(self.follower.threads.keys());
        }
        for tid in std::mem::take(seen) {
            let Some(thread) = self.follower.threads.get_mut(&tid) else { continue };
            let mut activations = std::mem::take(&mut thread.activations);
            let finished = self.finish_cycles(tid, &activations, last);
            activations.clear();
            if let Some(thread) = self.follower.threads.get_mut(&tid) {
                thread.activations = activations;
            }
            if let Some(known) = self.known.get_mut(&tid) {
                known.forget_jobs(now_ns.saturating_sub(10 * USUAL_NS), 2 * USUAL);
            }
            if !finished.is_empty() {
                sink(tid, &finished);
            }
        }
        now_ns
    }

    /// Reads the events round late cycles.
    fn read(&mut self, windows: &mut Windows, now_ns: u64, last: bool) -> Result<(), TraceError> {
        let before_ns = windows.taken_ns();
        let until_ns = if last { u64::MAX } else { now_ns.saturating_sub(AFTER_NS) };
        let mut late: Vec<(i32, Pending)> = Vec::new();
        for (&tid, known) in &mut self.known {
            late.extend(known.pending.extract_if(.., |one| one.job.end_ns <= until_ns).map(|one| (tid, one)));
        }
        // The worst first: where all is late, not all can be looked at.
        late.sort_by_key(|(_, one)| std::cmp::Reverse(one.job.lateness_ns().max(one.job.response_ns())));
        let mut spans: Vec<Span> = Vec::new();
        let mut threads: BTreeMap<i32, (Vec<JobRecord>, Vec<Pending>)> = BTreeMap::new();
        let mut ranges: BTreeMap<i32, Vec<std::ops::Range<usize>>> = BTreeMap::new();
        let mut set_aside_ns = 0.0;
        for (tid, one) in late {
            let Some(known) = self.known.get_mut(&tid) else { continue };
            let late_ns = one.job.lateness_ns().max(one.job.response_ns());
            if !windows.allowance.may_take(late_ns) {
                known.unjudged += 1;
                continue;
            }
            let jobs = known.jobs.make_contiguous();
            let Ok(index) = jobs.binary_search_by_key(&one.job.index, |job| job.index) else {
                known.unjudged += 1;
                continue;
            };
            let (range, span) = around(jobs, index);
            let mut with = spans.clone();
            with.push(span);
            let with = joined(with);
            let more_ns = length(&with).saturating_sub(length(&spans));
            let taken = if windows.batches.len() < MAX_BATCHES {
                windows.allowance.take(more_ns, late_ns)
            } else {
                None
            };
            let Some(taken_ns) = taken else {
                known.unjudged += 1;
                continue;
            };
            set_aside_ns += taken_ns;
            spans = with;
            threads.entry(tid).or_default().1.push(one);
            ranges.entry(tid).or_default().push(range);
        }
        let of_threads_ns = length(&spans);
        let mut answers = Vec::new();
        for (index, link) in self.links.iter_mut().enumerate() {
            let late: Vec<Exchange> = link.pending.extract_if(.., |one| one.end_ns() <= until_ns).collect();
            for one in late {
                let usual = link.usual(one.arrived_ns);
                let around = |one: &Exchange| Span {
                    from_ns: one.begin_ns().saturating_sub(AROUND_NS),
                    to_ns: one.end_ns() + AROUND_NS,
                };
                let mut with = spans.clone();
                with.extend(usual.iter().chain([&one]).map(around));
                // A send is late by what happened since the one before: when its timer was set,
                // say.
                if let Some(before) = usual.first().filter(|_| one.is_late_send()) {
                    with.push(Span { from_ns: before.arrived_ns, to_ns: one.arrived_ns });
                }
                let with = joined(with);
                let more_ns = length(&with).saturating_sub(length(&spans));
                // Of its own: late cycles of threads must not leave links without, whose windows
                // are short.
                if more_ns <= windows.link_allowance_ns {
                    windows.link_allowance_ns -= more_ns;
                    spans = with;
                }
                // Without its events the place is reported to be unknown.
                answers.push((index, one, usual));
            }
        }
        if spans.is_empty()
            && answers.is_empty()
            && now_ns.saturating_sub(windows.counters_ns) < COUNTERS_NS
            && !last
        {
            return Ok(());
        }
        windows.counters_ns = now_ns;
        for (tid, ranges) in ranges {
            let (Some(known), Some(thread)) = (self.known.get_mut(&tid), threads.get_mut(&tid)) else {
                continue;
            };
            let mut places: Vec<usize> = ranges.into_iter().flatten().collect();
            places.sort_unstable();
            places.dedup();
            let jobs = known.jobs.make_contiguous();
            thread.0 = places.into_iter().map(|place| jobs[place]).collect();
        }
        let share = of_threads_ns as f64 / length(&spans).max(1) as f64;
        let mut part = windows.tracer.windows(spans)?;
        self.events += part.events.len() as u64;
        self.lost_events += part.lost_events;
        self.kept_awake.clone_from(&part.kept_awake);
        self.take_notes(&part.notes);
        self.history.take_counters(&mut part, &self.watched.threads);
        if !threads.is_empty() || !answers.is_empty() {
            let read_ns = ((windows.taken_ns() - before_ns) as f64 * share) as u64;
            windows.allowance.spent(read_ns);
            windows.batches.push_back(Batch {
                windows: part,
                threads,
                answers,
                ripe_ns: now_ns + RIPE_NS,
                set_aside_ns,
                read_ns,
                length_ns: of_threads_ns,
                share,
            });
        }
        Ok(())
    }

    fn judge_batch(&mut self, windows: &mut Windows, batch: Batch) {
        let before_ns = windows.taken_ns();
        self.history.load(batch.windows);
        for (index, late, usual) in batch.answers {
            self.judge_link(index, &late, &usual);
        }
        for (tid, (jobs, late)) in batch.threads {
            let causes = self.judge(tid, &jobs, &late);
            // Stacks of the next ones show the place in the kernel.
            let blind = |cause: &Cause| matches!(cause, Cause::InterruptsOff | Cause::Unpreemptible);
            if causes.iter().any(blind) {
                windows.stacks_of(tid);
            }
        }
        let judged_ns = ((windows.taken_ns() - before_ns) as f64 * batch.share) as u64;
        windows.allowance.spent(judged_ns);
        windows.allowance.correct(batch.set_aside_ns, batch.read_ns + judged_ns, batch.length_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: u64, period_ns: u64) -> Vec<JobRecord> {
        let job = |index| JobRecord {
            index,
            planned_ns: 1_000_000_000 + index * period_ns,
            wake_ns: 1_000_000_000 + index * period_ns + 1000,
            end_ns: 1_000_000_000 + index * period_ns + 100_000,
            ..JobRecord::default()
        };
        (0..count).map(job).collect()
    }

    #[test]
    fn a_window_holds_what_is_usual_and_no_more() {
        let fast = jobs(100, 1_000_000);
        let (range, span) = around(&fast, 50);
        assert_eq!(range, 34..52);
        assert_eq!(span.from_ns, fast[33].end_ns - LEAD_NS);
        // Of a slow loop a few cycles do, or a window would be seconds long.
        let (range, _) = around(&jobs(100, 500_000_000), 50);
        assert_eq!(range, 47..52);
        // The very first, and the very last.
        assert_eq!(around(&fast, 0).0, 0..2);
        assert_eq!(around(&fast, 99).0, 83..100);
    }

    #[test]
    fn spans_that_touch_are_one() {
        let span = |from_ns, to_ns| Span { from_ns, to_ns };
        let all = joined(vec![span(30, 40), span(0, 10), span(5, 20), span(40, 41)]);
        assert_eq!(all, [span(0, 20), span(30, 41)]);
        assert_eq!(joined(Vec::new()), []);
    }
}
