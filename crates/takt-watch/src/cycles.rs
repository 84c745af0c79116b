//! Activations to cycles: which wake-ups of a thread begin a cycle of its loop, and which only go
//! on with one.

use std::collections::{BTreeMap, VecDeque};

use takt_rt::jobs::JobRecord;
use takt_trace::event::State;
use takt_trace::follow::{Activation, Source};

use crate::period::{self, Done, Group, Period};

/// Times that are kept of each kind of wake-up: as many as the period is determined from.
const MAX_TIMES: usize = period::MOST;
/// Kinds of wake-ups of one thread that are distinguished; a thread that makes a new timer for each
/// wait has ever new ones.
const MAX_SOURCES: usize = 64;

/// A kind of wake-up must be one of so many to begin the cycles.
const MIN_PART: u64 = 20;

/// A reported period is not that of a thread whose wake-ups lie further apart than so many of it.
const MAX_APART: f64 = 2.0;
/// Newest wake-ups that this is determined from.
const NEWEST: usize = 64;

/// So many periods without a release are silence, and not one that is under way.
const SILENT: f64 = 4.0;

/// So many newest wake-ups in a row that agree on another period: the loop has changed it.
const CHANGED: usize = 32;
/// Periods without a wake-up of the kind that began the cycles, while others went on as often as
/// that: something else begins them now.
const FORSAKEN: f64 = 8.0;

/// Largest scatter of distances for a thread that sleeps until a time. A thread that sleeps *for* a
/// time exceeds it; a timer that is set to a time arrives to the nanosecond.
const DRIFTS_NS: u64 = 1_000;
/// Sleeps that a loop could poll with are shorter.
const POLLS_NS: f64 = 1e6;
/// The cycles of a loop that polls are so many times longer than its sleeps.
const POLLS_PER_CYCLE: f64 = 1.8;

/// The mean distance of cycles may differ by so much from a period that the user reported. A thread
/// that sleeps *for* its period exceeds it by its own work; more than this is another period.
const PASSED_TOLERANCE: f64 = 0.05;

/// More cycles in a period, on average, are no cycles of it.
const MAX_PER_PERIOD: f64 = 1.5;

/// The kind of wake-up that begins the cycles of a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rhythm {
    /// The wake-ups that begin a cycle; None: every wake-up does.
    pub source: Option<Source>,
    pub period: Option<Period>,
}

/// One kind of wake-ups.
#[derive(Debug, Default)]
struct Series {
    times: VecDeque<u64>,
    /// The thread's actions after each of them.
    done: VecDeque<Done>,
    count: u64,
    /// The search costs milliseconds where there is no period, so it is made anew only when there
    /// is much more to see.
    try_at: u64,
    period: Option<Period>,
}

impl Series {
    fn extend(&mut self, activations: &[Activation]) {
        self.times.extend(activations.iter().map(|one| one.planned_ns));
        self.done.extend(activations.iter().map(|one| Done { end_ns: one.end_ns, cpu_ns: one.cpu_ns }));
        self.forget(MAX_TIMES);
        self.count += activations.len() as u64;
    }

    /// Forgets all times but the newest.
    fn forget(&mut self, newest: usize) {
        self.times.drain(..self.times.len().saturating_sub(newest));
        self.done.drain(..self.done.len().saturating_sub(newest));
    }

    /// Forgets all times but the newest, and searches anew.
    fn keep(&mut self, newest: usize) {
        self.forget(newest);
        self.try_at = 0;
        self.period = None;
    }

    /// Whether it wakes up about as often as a loop of this period, or more often.
    fn is_as_frequent(&self, period_ns: f64) -> bool {
        let newest = self.times.iter().rev().take(NEWEST + 1);
        let mut distances: Vec<u64> =
            newest.clone().zip(newest.skip(1)).map(|(later, before)| later.saturating_sub(*before)).collect();
        distances.sort_unstable();
        let middle = distances.get(distances.len() / 2);
        middle.is_none_or(|&distance_ns| distance_ns as f64 <= MAX_APART * period_ns)
    }

    /// Distances of the newest times from their median, in the median.
    fn drifts(&self) -> bool {
        let newest = self.times.iter().rev().take(NEWEST + 1);
        let mut distances: Vec<u64> =
            newest.clone().zip(newest.skip(1)).map(|(later, before)| later.saturating_sub(*before)).collect();
        let middle = distances.len() / 2;
        if distances.is_empty() {
            return false;
        }
        let median = *distances.select_nth_unstable(middle).1;
        distances.iter_mut().for_each(|distance| *distance = distance.abs_diff(median));
        *distances.select_nth_unstable(middle).1 > DRIFTS_NS
    }

    fn period(&mut self) -> Option<Period> {
        if self.count >= self.try_at.max(period::FEWEST as u64) {
            self.period = period::find_by_work(self.times.make_contiguous(), self.done.make_contiguous());
            self.try_at = self.count + self.count.clamp(period::FEWEST as u64, 8 * MAX_TIMES as u64);
        }
        self.period
    }
}

/// A loop that goes on with another period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When that was seen, CLOCK_MONOTONIC.
    pub seen_ns: u64,
    /// The periods before and since, nanoseconds.
    pub from_ns: f64,
    pub to_ns: f64,
    /// Number of changes so far.
    pub times: u64,
}

/// A cycle under way.
#[derive(Debug, Clone, Copy)]
struct Open {
    job: JobRecord,
    cpu_ns: u64,
    last: Activation,
}

/// Number of releases missing in the distance between two, and the difference from the expected
/// distance, nanoseconds.
fn missed(distance: f64, period: &Period) -> (u64, u64) {
    let Some(group) = period.group.filter(|group| !group.is_one_cycle) else {
        let periods = (distance / period.ns).round();
        return ((periods as u64).saturating_sub(1), (distance - periods.max(1.0) * period.ns).abs() as u64);
    };
    // Time beyond the group's longest pause.
    let beyond = ((distance - group.longest_ns()) / period.ns).round();
    let off = group.distances_ns().iter().map(|expected| (distance - expected).abs());
    (beyond as u64, off.fold(f64::INFINITY, f64::min) as u64)
}

/// Cycles held against a reported period: the time that they took, how many of them were due in it,
/// and how many came.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    sum_ns: f64,
    due: u64,
    came: u64,
}

/// Distances between the newest releases of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    /// In order of length, nanoseconds.
    pub sorted_ns: Vec<u64>,
    /// Pattern of their repetition, if they are not equal.
    pub group: Option<Group>,
}

/// The cycles of one thread.
#[derive(Debug, Default)]
pub struct Cycles {
    sources: BTreeMap<Source, Series>,
    all: Series,
    /// The kind of wake-up that begins its cycles, as far as it is known.
    pub rhythm: Option<Rhythm>,
    /// The period was reported by the user.
    is_reported: bool,
    /// Its wake-ups have a period of their own, whatever the user reported.
    has_own: bool,
    /// Its cycles, held against that period.
    held: Held,
    open: Option<Open>,
    next: u64,
    /// Releases that did not come.
    pub missed: u64,
    /// Number of missing cycles before each of the newest ones, and the times of those.
    newest_missed: VecDeque<(u64, u64)>,
    /// The newest change of the period.
    pub change: Option<Change>,
    last_planned_ns: Option<u64>,
    /// Distances of releases from a whole number of periods, nanoseconds.
    pub jitter_ns: VecDeque<u64>,
    /// Since when it counts, where it has begun anew and nobody has asked since.
    pub(crate) anew_ns: Option<u64>,
    /// The first release and the last, CLOCK_MONOTONIC.
    pub span_ns: Option<(u64, u64)>,
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(value);
}

impl Cycles {
    /// Takes the activations of one stretch of time; `given` is a period that the user gave, and
    /// `own_process` shows whether a thread is of the same process. Returns the finished cycles.
    pub fn add(
        &mut self,
        activations: &[Activation],
        given: Option<f64>,
        own_process: &dyn Fn(i32) -> bool,
    ) -> Vec<JobRecord> {
        self.all.extend(activations);
        for part in activations.chunk_by(|a, b| a.source == b.source) {
            let one = &part[0];
            self.sources.entry(one.source).or_default().extend(part);
            if self.sources.len() > MAX_SOURCES {
                let others = self.sources.iter().filter(|entry| *entry.0 != one.source);
                let rarest = others.min_by_key(|entry| entry.1.count).map(|entry| *entry.0);
                rarest.map(|rarest| self.sources.remove(&rarest));
            }
        }
        // Of a program with several loops it is the period of one; a thread that wakes up more
        // seldom has its own, or none.
        let given = given.filter(|&given| self.all.is_as_frequent(given));
        if given.is_none() {
            self.follow_change();
        }
        let is_of_calls = self.is_of_calls();
        self.find_rhythm(given);
        if self.is_of_calls() != is_of_calls {
            self.begin_anew(activations.first());
        }
        self.is_reported = given.is_some();
        let mut finished = Vec::new();
        for one in activations {
            self.take(one, own_process, &mut finished);
        }
        finished
    }

    /// The period, nanoseconds; none where cycles come in bursts. `shared` says that the thread
    /// works for others by turns, so that not even one kind of its wake-ups is one loop's.
    pub fn period_ns(&self, shared: bool) -> Option<f64> {
        let rhythm = self.rhythm?;
        let ns = rhythm.period?.ns;
        let by_turns = shared || rhythm.source.is_none();
        let per_period = self.span_ns.map_or(0.0, |(from_ns, to_ns)| {
            ns * self.next.saturating_sub(1) as f64 / to_ns.saturating_sub(from_ns).max(1) as f64
        });
        (self.is_reported || !by_turns || per_period <= MAX_PER_PERIOD).then_some(ns)
    }

    /// Distances of the newest releases; None where nothing is known to begin the cycles with a
    /// period.
    pub fn intervals(&self) -> Option<Intervals> {
        let rhythm = self.rhythm?;
        let series = match rhythm.source {
            Some(source) => self.sources.get(&source)?,
            None => &self.all,
        };
        let later = series.times.iter().skip(1);
        let mut sorted_ns: Vec<u64> =
            series.times.iter().zip(later).map(|(before, later)| later.saturating_sub(*before)).collect();
        sorted_ns.sort_unstable();
        Some(Intervals { sorted_ns, group: rhythm.period?.group })
    }

    /// Time without a new cycle until `until_ns`, and the number of cycles due in it by its period;
    /// None if the last one may still be running.
    pub fn silence(&self, period_ns: f64, until_ns: u64) -> Option<(u64, u64)> {
        let silent_ns = until_ns.saturating_sub(self.last_planned_ns?);
        let periods = silent_ns as f64 / period_ns;
        (periods > SILENT).then_some((silent_ns, periods as u64))
    }

    /// Whether the period that the user reported applies to this thread.
    pub(crate) fn takes_passed(&self) -> bool {
        self.is_reported
    }

    /// Whether its wake-ups have a period of their own, whatever the user reported.
    pub(crate) fn has_own_period(&self) -> bool {
        self.has_own
    }

    /// Mean distance of its cycles, nanoseconds, if it contradicts the period `passed_ns` that the
    /// user reported. Releases that were counted as missing contradict nothing.
    pub(crate) fn contradicts(&self, passed_ns: f64) -> Option<f64> {
        if !self.is_reported {
            // It wakes up more seldom than a loop of that period.
            let (from_ns, to_ns) = self.span_ns?;
            let came = self.next.checked_sub(1).filter(|&came| came >= period::FEWEST as u64)?;
            return Some(to_ns.saturating_sub(from_ns) as f64 / came as f64);
        }
        let Held { sum_ns, due, came } = self.held;
        if came < period::FEWEST as u64 {
            return None;
        }
        let is_near = |ns: f64| (ns / passed_ns - 1.0).abs() <= PASSED_TOLERANCE;
        let came_ns = sum_ns / came as f64;
        // Of groups that repeat the user may mean the whole.
        let group = self.rhythm.and_then(|rhythm| rhythm.period?.group);
        let is_group = group.is_some_and(|group| is_near(came_ns * group.count as f64));
        (!is_near(sum_ns / due as f64) && !is_group).then_some(came_ns)
    }

    /// Wake-ups by what caused them, the most frequent first.
    pub fn wakers(&self) -> Vec<(Source, u64)> {
        let mut wakers: Vec<(Source, u64)> =
            self.sources.iter().map(|(&source, series)| (source, series.count)).collect();
        wakers.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        wakers
    }

    /// Forgets a rhythm that the thread has left behind: a search among all of its times would find
    /// it for as long as they are the most, and miss a release of it at every place.
    fn follow_change(&mut self) {
        let Some(Rhythm { source, period: Some(Period { ns, .. }) }) = self.rhythm else { return };
        let is_near = |distance: f64, ns: f64| (distance / ns - 1.0).abs() < 0.25;
        let of = |series: &Series, newest: usize| -> Vec<f64> {
            let newest = series.times.range(series.times.len().saturating_sub(newest + 1)..);
            newest.clone().zip(newest.skip(1)).map(|(a, b)| b.saturating_sub(*a) as f64).collect()
        };
        if let Some(source) = source {
            let last_ns = self.sources.get(&source).and_then(|series| series.times.back().copied());
            let (Some(last_ns), Some(&newest_ns)) = (last_ns, self.all.times.back()) else { return };
            let since = self.all.times.len() - self.all.times.partition_point(|&time_ns| time_ns <= last_ns);
            if since >= CHANGED && newest_ns.saturating_sub(last_ns) as f64 > FORSAKEN * ns {
                self.sources.remove(&source);
                self.all.keep(since);
                self.rhythm = None;
                self.last_planned_ns = None;
                self.jitter_ns.clear();
                return;
            }
        }
        let Some(series) = source.and_then(|source| self.sources.get_mut(&source)) else { return };
        // A steady continuation costs no more than this.
        if of(series, 2).iter().any(|&distance| is_near(distance, ns)) {
            return;
        }
        let distances = of(series, MAX_TIMES);
        let newest = &distances[distances.len().saturating_sub(CHANGED)..];
        let Some(now_ns) = period::steady(newest) else { return };
        let agreeing = distances.iter().rev().take_while(|&&distance| is_near(distance, now_ns)).count();
        // A burst of wake-ups is no period either.
        if agreeing < CHANGED || agreeing as f64 * now_ns <= SILENT * ns {
            return;
        }
        let ratio = now_ns / ns;
        // Every second release, say, is no other period: the loop may have lost the others.
        if ratio.round() >= 1.0 && (ratio - ratio.round()).abs() < 0.1 {
            return;
        }
        series.keep(agreeing + 1);
        let [since_ns, seen_ns] =
            [series.times.front(), series.times.back()].map(|one| one.copied().unwrap_or(0));
        self.all.keep(agreeing + 1);
        // They were missed by a period that was none any more.
        let since = self.newest_missed.iter().filter(|(planned_ns, _)| *planned_ns > since_ns);
        self.missed = self.missed.saturating_sub(since.map(|(_, missed)| missed).sum());
        self.newest_missed.clear();
        self.jitter_ns.clear();
        self.rhythm = None;
        let times = self.change.map_or(0, |change| change.times) + 1;
        self.change = Some(Change { seen_ns, from_ns: ns, to_ns: now_ns, times });
    }

    /// Finds the wake-ups that begin the cycles: the most frequent kind that has a period, or that
    /// has the given one; otherwise all of them together.
    fn find_rhythm(&mut self, given: Option<f64>) {
        // A source that rarely wakes it begins none of its cycles, and each search costs time.
        let least = self.all.count / MIN_PART;
        let mut periodic: Vec<(Source, Period, u64)> = self
            .sources
            .iter_mut()
            // A thread that polls with short sleeps is woken much more often than it hands anything
            // out.
            .filter(|(source, series)| series.count >= least || matches!(source, Source::Call { .. }))
            .filter_map(|(&source, series)| Some((source, series.period()?, series.count)))
            .collect();
        if let Some(given) = given {
            self.has_own = !periodic.is_empty();
            // Of groups that repeat the user may mean one release, or the whole.
            let group_ns = |period: &Period| period.group.map_or(period.ns, |group| group.ns());
            periodic
                .retain(|one| [one.1.ns, group_ns(&one.1)].iter().any(|ns| (ns / given - 1.0).abs() < 0.25));
        }
        periodic.sort_by_key(|one| std::cmp::Reverse(one.2));
        let polls =
            periodic.first().is_some_and(|&(source, period, _)| self.may_poll_with(source, period.ns));
        let is_of_calls = |one: &&(Source, Period, u64)| {
            let [least_ns, ns] = [periodic[0].1.ns, one.1.ns];
            matches!(one.0, Source::Call { .. }) && ns > POLLS_PER_CYCLE * least_ns
        };
        let of_calls = periodic.iter().find(is_of_calls).filter(|_| polls && given.is_none());
        let found = match of_calls.or(periodic.first()) {
            Some(&(source, period, _)) => Some(Rhythm { source: Some(source), period: Some(period) }),
            None if self.all.times.len() >= period::FEWEST => {
                let near_given =
                    |period: &Period| given.is_none_or(|given| (period.ns / given - 1.0).abs() < 0.25);
                let period = self.all.period().filter(near_given);
                // A period that the wake-ups have only together: by turns from several threads,
                // say.
                Some(Rhythm { source: None, period })
            }
            None => None,
        };
        // A loop that once had a rhythm keeps it through a disturbance: the newest times alone may
        // be too few or too late.
        let keep = matches!(
            (self.rhythm, found),
            (Some(Rhythm { period: Some(_), .. }), Some(Rhythm { period: None, .. }) | None)
        );
        if !keep {
            self.rhythm = found;
        }
        if let (Some(given), Some(rhythm)) = (given, &mut self.rhythm) {
            // The user knows better; how regular it is stays as found.
            let unknown = Period { ns: given, coherence: 0.0, filled: 0.0, group: None };
            let before = rhythm.period.unwrap_or(unknown);
            rhythm.period = Some(Period { ns: given, ..before });
        }
    }

    /// Whether these wake-ups may be those of a loop that polls: short sleeps for a time.
    fn may_poll_with(&self, source: Source, period_ns: f64) -> bool {
        let is_timer = matches!(source, Source::Timer(_));
        is_timer && period_ns < POLLS_NS && self.sources.get(&source).is_some_and(Series::drifts)
    }

    /// Whether its wake-ups may be those of a loop that polls.
    pub(crate) fn may_poll(&self) -> bool {
        let Some(Rhythm { source: Some(source), period: Some(period) }) = self.rhythm else { return false };
        self.may_poll_with(source, period.ns)
    }

    fn take(&mut self, one: &Activation, own_process: &dyn Fn(i32) -> bool, finished: &mut Vec<JobRecord>) {
        let source = self.rhythm.and_then(|rhythm| rhythm.source);
        if let Some(Source::Call { .. }) = source {
            if Some(one.source) == source {
                self.call(one, finished);
            }
            return;
        }
        let begins = source.is_none_or(|source| one.source == source);
        // Stopped, or for a page or a disk: it goes on where it was.
        let interrupted = self
            .open
            .is_some_and(|open| matches!(open.last.state, State::Blocked | State::Stopped | State::Traced));
        if interrupted && !(begins && source.is_some()) {
            self.extend(one);
            return;
        }
        if begins {
            self.finish(finished);
            self.begin(one);
            return;
        }
        let goes_on = match (source, self.open) {
            // Asleep on something else than its timer, which it has not even set again: in the
            // middle of a cycle.
            (Some(Source::Timer(timer)), Some(open)) => open.last.slept_on != Some(timer),
            // Woken by its own process in a cycle that an outside input began: a lock, or work that
            // it had given away.
            (Some(Source::Interrupt(_) | Source::Softirq(_) | Source::Other), Some(_)) => {
                matches!(one.source, Source::Thread(waker) if own_process(waker))
            }
            _ => false,
        };
        if goes_on {
            self.extend(one);
        } else {
            self.finish(finished);
        }
    }

    fn extend(&mut self, one: &Activation) {
        if let Some(open) = &mut self.open {
            open.job.end_ns = one.end_ns;
            open.cpu_ns += one.cpu_ns;
            open.last = *one;
        }
    }

    fn begin(&mut self, one: &Activation) {
        self.count_missed(one.planned_ns);
        let job = JobRecord {
            index: self.next,
            planned_ns: one.planned_ns,
            wake_ns: one.awake_ns,
            start_ns: one.awake_ns,
            end_ns: one.end_ns,
            ..JobRecord::default()
        };
        self.next += 1;
        self.open = Some(Open { job, cpu_ns: one.cpu_ns, last: *one });
    }

    /// Counts releases that did not come before this one.
    fn count_missed(&mut self, planned_ns: u64) {
        if let (Some(last_ns), Some(period)) =
            (self.last_planned_ns, self.rhythm.and_then(|rhythm| rhythm.period))
        {
            let distance = planned_ns.saturating_sub(last_ns) as f64;
            let (missed, off_ns) = missed(distance, &period);
            self.missed += missed;
            if missed > 0 {
                push(&mut self.newest_missed, (planned_ns, missed), 2 * CHANGED);
            }
            push(&mut self.jitter_ns, off_ns, MAX_TIMES);
            if self.is_reported {
                self.held.sum_ns += distance;
                self.held.due = self.held.due.saturating_add(missed).saturating_add(1);
                self.held.came += 1;
            }
        }
        self.last_planned_ns = Some(planned_ns);
        let first_ns = self.span_ns.map_or(planned_ns, |span| span.0);
        self.span_ns = Some((first_ns, planned_ns));
    }

    /// A cycle of a thread that does not sleep between them: it ends with a call, which should have
    /// come a period after the one before.
    fn call(&mut self, one: &Activation, finished: &mut Vec<JobRecord>) {
        self.finish(finished);
        let now_ns = one.planned_ns;
        let period = self.rhythm.and_then(|rhythm| rhythm.period);
        let longest_ns = period.map(|period| period.group.map_or(period.ns, |group| group.longest_ns()));
        let due_ns = self.last_planned_ns.zip(longest_ns).map(|(last_ns, ns)| last_ns + ns as u64);
        self.count_missed(now_ns);
        finished.push(JobRecord {
            index: self.next,
            planned_ns: due_ns.unwrap_or(now_ns).min(now_ns),
            wake_ns: now_ns,
            start_ns: now_ns,
            end_ns: now_ns,
            ..JobRecord::default()
        });
        self.next += 1;
    }

    fn finish(&mut self, finished: &mut Vec<JobRecord>) {
        finished.extend(self.open.take().map(|open| open.job));
    }

    /// Its cycles end with calls, and not with sleeps.
    pub(crate) fn is_of_calls(&self) -> bool {
        matches!(self.rhythm.and_then(|rhythm| rhythm.source), Some(Source::Call { .. }))
    }

    /// Counts from this activation on, because something else begins the cycles than was thought.
    fn begin_anew(&mut self, first: Option<&Activation>) {
        self.anew_ns = first.map(|first| first.planned_ns);
        self.open = None;
        self.last_planned_ns = None;
        self.missed = 0;
        self.newest_missed.clear();
        self.jitter_ns.clear();
        self.change = None;
        self.held = Held::default();
        self.span_ns = None;
        self.next = 0;
    }

    /// Hands out the last cycle, at the end.
    pub fn last(&mut self) -> Option<JobRecord> {
        self.open.take().map(|open| open.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(planned_ns: u64, source: Source) -> Activation {
        Activation {
            source,
            planned_ns,
            awake_ns: planned_ns + 5_000,
            end_ns: planned_ns + 50_000,
            cpu_ns: 45_000,
            state: State::Sleeping,
            slept_on: None,
            cpu: 0,
        }
    }

    /// `count` wake-ups at each of 200 releases of 25 ms, from ever other threads.
    fn in_bursts(count: u64) -> Cycles {
        let mut cycles = Cycles::default();
        for release in 0..200 {
            let one = |at: u64| {
                let waker = Source::Thread((1000 + release * count + at) as i32);
                woken(release * 25_000_000 + at * 700_000, waker)
            };
            cycles.add(&(0..count).map(one).collect::<Vec<_>>(), None, &|_| false);
        }
        cycles
    }

    #[test]
    fn a_period_of_bursts_is_nobodys() {
        // By turns from several threads, once in each period: a loop.
        let alone = in_bursts(1).period_ns(true);
        assert!(alone.is_some_and(|ns| (ns / 25e6 - 1.0).abs() < 0.01), "{alone:?}");
        // Workers of a garbage collector: nine wake-ups at each collection.
        let burst = in_bursts(9);
        assert!(burst.rhythm.is_some_and(|rhythm| rhythm.period.is_some()), "this test shows nothing");
        assert_eq!((burst.period_ns(true), burst.period_ns(false)), (None, None));
    }

    #[test]
    fn a_loop_with_two_sleeps_in_a_cycle_keeps_its_period_unless_its_thread_is_shared() {
        let mut cycles = Cycles::default();
        for release in 0..200 {
            let at = |ns: u64| woken(release * 10_000_000 + ns, Source::Timer(1));
            // It asks for something, and computes when that has come.
            let second = Activation { cpu_ns: 450_000, ..at(2_000_000) };
            cycles.add(&[at(0), second], None, &|_| false);
        }
        let own = cycles.period_ns(false);
        assert!(own.is_some_and(|ns| (ns / 10e6 - 1.0).abs() < 0.01), "{own:?}");
        assert_eq!(cycles.period_ns(true), None);
        assert_eq!(cycles.missed, 0);
    }

    /// 200 groups of wake-ups that do the same, so many nanoseconds behind the begin of each.
    fn in_groups(ns: u64, at: &[u64], end_ns: u64) -> Cycles {
        let mut cycles = Cycles::default();
        for group in 0..200 {
            let one = |at: &u64| {
                let planned_ns = 1_000_000_000 + group * ns + at;
                Activation { end_ns: planned_ns + end_ns, ..woken(planned_ns, Source::Timer(1)) }
            };
            cycles.add(&at.iter().map(one).collect::<Vec<_>>(), None, &|_| false);
        }
        cycles
    }

    #[test]
    fn cycles_in_pairs_have_their_mean_distance_as_period_and_are_found() {
        let cases: [(u64, &[u64], &[f64]); 8] = [
            // A fifth, a sixth and a third of the mean from it.
            (1_000_000, &[0, 400_000], &[400_000.0, 600_000.0]),
            (2_000_000, &[0, 850_000], &[850_000.0, 1_150_000.0]),
            (3_000_000, &[0, 800_000, 1_700_000], &[800_000.0, 900_000.0, 1_300_000.0]),
            (1_000_000, &[0, 900_000], &[100_000.0, 900_000.0]),
            (1_000_000, &[0, 100_000], &[100_000.0, 900_000.0]),
            // A loop that skips every third release, or two of four, would look the same.
            (1_500_000, &[0, 500_000], &[500_000.0, 1_000_000.0]),
            (4_000_000, &[0, 1_000_000], &[1_000_000.0, 3_000_000.0]),
            (6_000_000, &[0, 300_000, 700_000], &[300_000.0, 400_000.0, 5_300_000.0]),
        ];
        for (ns, at, distances) in cases {
            let cycles = in_groups(ns, at, 20_000);
            let mean = ns as f64 / at.len() as f64;
            let period = cycles.period_ns(false);
            assert!(period.is_some_and(|period| (period / mean - 1.0).abs() < 0.01), "{at:?}: {period:?}");
            let group = cycles.intervals().and_then(|intervals| intervals.group).unwrap();
            assert_eq!(group.distances_ns(), distances, "{at:?}");
            assert_eq!(cycles.missed, 0, "{at:?}");
        }
    }

    #[test]
    fn a_loop_that_is_at_work_at_every_third_release_misses_it() {
        let cycles = in_groups(1_500_000, &[0, 500_000], 600_000);
        let period = cycles.period_ns(false).unwrap();
        assert!((period / 500_000.0 - 1.0).abs() < 0.01, "{period}");
        assert!(cycles.missed > 150 && cycles.intervals().unwrap().group.is_none(), "{}", cycles.missed);
    }

    /// A loop of 2 ms that polls: it sleeps for 100 us and wakes up 15 to 25 us later, again and
    /// again, and then sends. `exactly`: its timer is set to a time, and each 16th wake-up sends.
    fn polling(exactly: bool) -> Cycles {
        let mut cycles = Cycles::default();
        let (mut at_ns, mut due_ns) = (1_000_000_000, 1_002_000_000);
        for turn in 0..20_000_u64 {
            at_ns += if exactly { 125_000 } else { 115_000 + turn * turn * 7919 % 10_000 };
            let mut part = vec![woken(at_ns, Source::Timer(1))];
            if at_ns >= due_ns {
                due_ns += 2_000_000;
                part.push(woken(at_ns + 5_000, Source::Call { number: 44, file: 3 }));
            }
            cycles.add(&part, None, &|_| false);
        }
        cycles
    }

    #[test]
    fn the_sleeps_of_a_loop_that_polls_are_not_its_cycles() {
        let polls = polling(false);
        assert!(polls.is_of_calls(), "{:?}", polls.rhythm);
        assert!(polls.period_ns(false).is_some_and(|ns| (ns / 2e6 - 1.0).abs() < 0.01), "{:?}", polls.rhythm);
        // A fast loop that sends now and then is one.
        let fast = polling(true);
        assert!(fast.period_ns(false).is_some_and(|ns| (ns / 125e3 - 1.0).abs() < 0.01), "{:?}", fast.rhythm);
        assert!(!fast.is_of_calls() && !fast.may_poll());
    }

    #[test]
    fn pairs_that_do_not_come_are_missed() {
        let mut cycles = in_groups(1_000_000, &[0, 100_000], 20_000);
        let next = woken(1_000_000_000 + 203 * 1_000_000, Source::Timer(1));
        cycles.add(&[next], None, &|_| false);
        // Three pairs of them.
        assert_eq!(cycles.missed, 6);
    }

    /// 200 wake-ups by a timer every so many milliseconds.
    fn every(ms: u64, given: Option<f64>) -> Cycles {
        let mut cycles = Cycles::default();
        for release in 0..200 {
            cycles.add(&[woken(release * ms * 1_000_000, Source::Timer(1))], given, &|_| false);
        }
        cycles
    }

    #[test]
    fn a_reported_period_is_not_that_of_a_thread_which_wakes_up_more_seldom() {
        let period_ms = |cycles: Cycles| cycles.period_ns(false).map(|ns| (ns / 1e6).round());
        assert_eq!(period_ms(every(2, Some(2e6))), Some(2.0));
        // A loop that sleeps four times in a cycle.
        assert_eq!(period_ms(every(2, Some(8e6))), Some(8.0));
        // The heartbeat beside it, and one without a period.
        assert_eq!(period_ms(every(100, Some(2e6))), Some(100.0));
        let mut seldom = Cycles::default();
        for release in 0..200_u64 {
            // Squares modulo a prime are spread as chance would have it.
            let at_ns = (release * 1009 + release * release % 997) * 1_000_000;
            seldom.add(&[woken(at_ns, Source::Thread(7))], Some(2e6), &|_| false);
        }
        assert_ne!(seldom.period_ns(false), Some(2e6));
    }

    /// 1000 wake-ups every `before` us and 400 every `after` us, of two kinds where `other`; twenty
    /// at a time.
    fn changed(before: u64, after: u64, other: bool) -> Cycles {
        let mut cycles = Cycles::default();
        let mut at_ns = 1_000_000_000;
        let mut all = Vec::new();
        for (count, us, source) in [(1000, before, 1), (400, after, if other { 2 } else { 1 })] {
            for _ in 0..count {
                at_ns += us * 1000;
                all.push(woken(at_ns, Source::Timer(source)));
            }
        }
        for part in all.chunks(20) {
            cycles.add(part, None, &|_| false);
        }
        cycles
    }

    #[test]
    fn a_loop_that_changes_its_period_misses_nothing_by_the_old_one() {
        for (before, after) in [(2000, 5000), (2000, 3000), (5000, 2000), (2000, 1000), (1000, 125)] {
            let cycles = changed(before, after, false);
            let period_us = cycles.period_ns(false).map(|ns| (ns / 1e3).round() as u64);
            assert_eq!(period_us, Some(after), "{before} to {after}");
            assert!(cycles.missed <= 2, "{before} to {after}: {} missed", cycles.missed);
            let change = cycles.change.unwrap();
            assert_eq!((change.times, (change.from_ns / 1e3).round() as u64), (1, before));
        }
    }

    #[test]
    fn a_loop_that_comes_to_every_second_release_misses_the_others() {
        let cycles = changed(2000, 4000, false);
        assert_eq!(cycles.period_ns(false).map(|ns| (ns / 1e5).round()), Some(20.0));
        assert!(cycles.missed >= 399 && cycles.change.is_none(), "{} missed", cycles.missed);
    }

    #[test]
    fn a_loop_that_something_else_wakes_from_now_on_goes_on() {
        let cycles = changed(2000, 3000, true);
        assert_eq!(cycles.rhythm.and_then(|rhythm| rhythm.source), Some(Source::Timer(2)));
        assert_eq!(cycles.period_ns(false).map(|ns| (ns / 1e5).round()), Some(30.0));
        assert!(cycles.missed <= 2, "{} missed", cycles.missed);
    }

    #[test]
    fn a_reported_period_that_the_cycles_contradict_is_found_out() {
        let came_ms = |ms: u64, given_ms: f64| {
            every(ms, Some(given_ms * 1e6)).contradicts(given_ms * 1e6).map(|ns| (ns / 1e6).round())
        };
        // Longer than they are apart, by much and by little.
        for given_ms in [1000.0, 50.0, 10.0, 5.4] {
            assert_eq!(came_ms(5, given_ms), Some(5.0), "{given_ms}");
        }
        // Shorter: not applied, or in part, and nothing is missed by it.
        for given_ms in [1.0, 2.0, 3.0, 3.4, 4.7] {
            assert_eq!(came_ms(5, given_ms), Some(5.0), "{given_ms}");
        }
        assert_eq!((came_ms(5, 5.0), came_ms(5, 4.9), came_ms(5, 5.2)), (None, None, None));
        // What is missed says it already.
        assert_eq!(came_ms(5, 2.5), None);
        assert!(every(5, Some(2.5e6)).missed > 150);
        // A slow start, before anything is known of it.
        let mut cycles = Cycles::default();
        for at_ms in [0, 700].into_iter().chain((0..200).map(|release| 1500 + 5 * release)) {
            cycles.add(&[woken(at_ms * 1_000_000, Source::Timer(1))], Some(5e6), &|_| false);
        }
        assert_eq!(cycles.contradicts(5e6), None);
        // Of pairs either is meant.
        let pairs = |given: f64| {
            let mut cycles = Cycles::default();
            for at in (0..200).flat_map(|pair| [pair * 2_000_000, pair * 2_000_000 + 500_000]) {
                cycles.add(&[woken(at, Source::Timer(1))], Some(given), &|_| false);
            }
            cycles.contradicts(given)
        };
        assert_eq!((pairs(1e6), pairs(2e6)), (None, None));
        assert!(pairs(4e6).is_some_and(|ns| (ns / 1e6 - 1.0).abs() < 0.01), "{:?}", pairs(4e6));
    }

    #[test]
    fn a_loop_that_has_stopped_misses_its_releases() {
        let cycles = every(2, None);
        let period_ns = cycles.period_ns(false).unwrap();
        let last_ns = 199 * 2_000_000;
        assert_eq!(cycles.silence(period_ns, last_ns + 3_000_000), None);
        let (silent_ns, missed) = cycles.silence(period_ns, last_ns + 1_001_000_000).unwrap();
        assert_eq!((silent_ns, missed), (1_001_000_000, 500));
    }
}
