//! Assumptions held against every event: what an analysis took from measured curves, watched while the system goes on.
//!
//! A curve is an extreme over the past. Whoever builds a bound on one assumes that the future stays within it; a limit here says at once
//! when it does not. It keeps a tail of its own, so that what the recorder forgets or leaves out of its curve changes nothing
//! here, and allocates nothing after it was set.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// A curve that was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// Consecutive events in which it was left.
    pub events: u64,
    /// What was assumed of so many: the most execution time, or the shortest span; `None`: that there are none.
    pub assumed_ns: Option<u64>,
    /// What was seen.
    pub seen_ns: u64,
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
}

/// The last values of a growing quantity, as many as the curve has entries.
#[derive(Debug, Clone)]
struct Recent {
    values: Vec<u64>,
    entries: usize,
}

impl Recent {
    fn new(entries: usize) -> Self {
        let entries = entries.max(1);
        Self { values: Vec::with_capacity(2 * entries), entries }
    }

    fn push(&mut self, value: u64) {
        if self.values.len() == 2 * self.entries {
            self.values.copy_within(self.entries + 1.., 0);
            self.values.truncate(self.entries - 1);
        }
        self.values.push(value);
    }

    /// The newest first.
    fn last(&self) -> impl Iterator<Item = u64> + '_ {
        self.values.iter().rev().take(self.entries).copied()
    }
}

/// Spans between arrivals that must not become shorter.
#[derive(Debug, Clone)]
pub struct SpanLimit {
    /// Entry `i`: the shortest span of `i + 2` events. Empty: there are no events.
    least_ns: Vec<u64>,
    recent: Recent,
    excess: Option<Excess>,
}

impl SpanLimit {
    /// Entry `i` of `least_ns`: the shortest span of `i + 2` consecutive events; empty: none ever come.
    #[must_use]
    pub fn new(least_ns: Vec<u64>) -> Self {
        Self { recent: Recent::new(least_ns.len()), least_ns, excess: None }
    }

    /// One event.
    #[inline]
    pub fn see(&mut self, at_ns: u64) {
        if self.excess.is_none() {
            let spans = self.recent.last().map(|before| at_ns.saturating_sub(before));
            let left = spans.zip(&self.least_ns).position(|(span, least)| span < *least);
            if let Some(index) = left {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| at_ns.saturating_sub(before));
                let assumed_ns = self.least_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 2, assumed_ns, seen_ns, at_ns });
            } else if self.least_ns.is_empty() {
                self.excess = Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns });
            }
        }
        self.recent.push(at_ns);
    }

    /// Events may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// What activations may take beyond their curves, all callbacks of one account together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowance {
    /// So much at most,
    pub most_ns: u64,
    /// in any interval of this length.
    pub window_ns: u64,
}

/// What was taken beyond curves of late.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    allowance: Allowance,
    /// By time.
    recent: VecDeque<Taken>,
}

/// What one activation took beyond its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The callback, in execution or suspended.
    pub callback: usize,
    /// See there.
    pub suspended: bool,
    /// See there.
    pub beyond: Beyond,
}

/// More are not kept: whoever leaves curves so often has used up any allowance.
const MOST_TAKEN: usize = 1024;
/// Events of different threads are read in turns, so that one may come late by this many windows.
const LATE_WINDOWS: u64 = 2;

impl Account {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, ..Self::default() }
    }

    /// What was taken so. More than is allowed in any window that holds it: the sum and the allowance.
    pub(crate) fn take(&mut self, taken: Taken) -> Option<(u64, Allowance)> {
        self.keep(taken);
        let window_ns = self.allowance.window_ns;
        let at_ns = taken.beyond.excess.at_ns;
        let time = |one: &Taken| one.beyond.excess.at_ns;
        // Each window of interest ends with one of them.
        let ends = self.recent.iter().map(time).filter(|end_ns| at_ns <= *end_ns);
        let ends = ends.take_while(|end_ns| *end_ns <= at_ns.saturating_add(window_ns));
        let sum_until = |end_ns: u64| {
            let from = self.recent.partition_point(|one| time(one).saturating_add(window_ns) < end_ns);
            let held = self.recent.iter().skip(from).take_while(|one| time(one) <= end_ns);
            held.map(|one| one.beyond.more_ns).fold(0, u64::saturating_add)
        };
        let sum_ns = ends.map(sum_until).max()?;
        (sum_ns > self.allowance.most_ns || self.recent.len() == MOST_TAKEN)
            .then_some((sum_ns, self.allowance))
    }

    /// It counts, but nobody asks yet.
    pub(crate) fn keep(&mut self, taken: Taken) {
        let time = |one: &Taken| one.beyond.excess.at_ns;
        let last_ns = self.recent.back().map_or(0, time).max(time(&taken));
        let kept_ns = self.allowance.window_ns.saturating_mul(1 + LATE_WINDOWS);
        while self.recent.front().is_some_and(|one| time(one).saturating_add(kept_ns) < last_ns)
            || self.recent.len() >= MOST_TAKEN
        {
            self.recent.pop_front();
        }
        let place = self.recent.partition_point(|one| time(one) <= time(&taken));
        self.recent.insert(place, taken);
    }

    /// All that is kept.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Taken> + '_ {
        self.recent.iter().copied()
    }
}

impl Taken {
    /// The same held against another curve; `None`: it is within that.
    pub(crate) fn against(mut self, most_ns: &[u64]) -> Option<Self> {
        let excess = self.beyond.excess;
        let index = usize::try_from(excess.events.saturating_sub(1)).unwrap_or(usize::MAX);
        let allowed_ns = most_ns.get(index).copied().unwrap_or(0);
        self.beyond.more_ns = self.beyond.more_ns.min(excess.seen_ns.saturating_sub(allowed_ns));
        (self.beyond.more_ns > 0).then_some(self)
    }
}

/// What an activation took beyond its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub excess: Excess,
    /// The least by which the activation must have been shorter, so that its curve was not left.
    pub more_ns: u64,
}

/// More is not kept between two looks: whoever leaves a curve so often leaves it for good.
const MOST_BEYOND: usize = 256;

/// Execution times of consecutive activations that must not become longer.
#[derive(Debug, Clone)]
pub struct CostLimit {
    /// Entry `i`: of `i + 1` activations.
    most_ns: Vec<u64>,
    recent: Recent,
    total_ns: u64,
    excess: Option<Excess>,
    /// Goes to an account instead; what is beyond the curve is left out of what later activations are held against.
    beyond: Option<Vec<Beyond>>,
}

impl CostLimit {
    /// Entry `i` of `most_ns`: the most that `i + 1` consecutive activations take together.
    #[must_use]
    pub fn new(most_ns: Vec<u64>) -> Self {
        let mut limit =
            Self { recent: Recent::new(most_ns.len()), most_ns, total_ns: 0, excess: None, beyond: None };
        limit.gap();
        limit
    }

    /// What is beyond the curve is told by [`Self::take_beyond`] instead.
    pub(crate) fn with_account(mut self) -> Self {
        self.beyond = Some(Vec::new());
        self
    }

    /// What was beyond the curve since the last call.
    pub(crate) fn take_beyond(&mut self) -> Vec<Beyond> {
        self.beyond.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn see_beyond(&mut self, at_ns: u64) {
        let total_ns = self.total_ns;
        let over = |(index, (before, most)): (usize, (u64, &u64))| {
            let sum_ns = total_ns.saturating_sub(before);
            sum_ns.checked_sub(*most).filter(|over| *over > 0).map(|over| (over, index, sum_ns, *most))
        };
        // Of equal ones the shortest row.
        let worst = self.recent.last().zip(&self.most_ns).enumerate().filter_map(over);
        let worst = worst.max_by_key(|(over, index, ..)| (*over, std::cmp::Reverse(*index)));
        let Some((more_ns, index, seen_ns, most_ns)) = worst else { return };
        let excess = Excess { events: index as u64 + 1, assumed_ns: Some(most_ns), seen_ns, at_ns };
        self.total_ns = total_ns.saturating_sub(more_ns);
        match &mut self.beyond {
            Some(beyond) if beyond.len() < MOST_BEYOND => beyond.push(Beyond { excess, more_ns }),
            _ => self.excess = self.excess.or(Some(excess)),
        }
    }

    /// One activation that ended at `at_ns`.
    #[inline]
    pub fn see(&mut self, at_ns: u64, took_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(took_ns);
        if self.beyond.is_some() {
            self.see_beyond(at_ns);
        } else if self.excess.is_none() {
            let total_ns = self.total_ns;
            let sums = self.recent.last().map(|before| total_ns - before);
            if let Some(index) = sums.zip(&self.most_ns).position(|(sum, most)| sum > *most) {
                let seen_ns = self.recent.last().nth(index).map_or(0, |before| total_ns - before);
                let assumed_ns = self.most_ns.get(index).copied();
                self.excess = Some(Excess { events: index as u64 + 1, assumed_ns, seen_ns, at_ns });
            }
        }
        self.recent.push(self.total_ns);
    }

    /// Activations may be missing here.
    pub fn gap(&mut self) {
        self.recent.values.clear();
        self.recent.push(self.total_ns);
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// Messages of consecutive activations, to one topic, that must not become more.
#[derive(Debug, Clone)]
pub struct CountLimit {
    /// Entry `i`: of `i + 1` activations.
    most: Vec<u64>,
    /// Activations that sent any, with the messages before each.
    recent: VecDeque<(u64, u64)>,
    total: u64,
    excess: Option<Excess>,
}

impl CountLimit {
    /// Entry `i` of `most`: the most messages that `i + 1` consecutive activations send together; empty: none ever come.
    #[must_use]
    pub fn new(mut most: Vec<u64>) -> Self {
        if most.is_empty() {
            most.push(0);
        }
        Self { recent: VecDeque::with_capacity(most.len() + 1), most, total: 0, excess: None }
    }

    /// One message of the activation of this number.
    #[inline]
    pub fn see(&mut self, at_ns: u64, activation: u64) {
        if self.recent.back().is_none_or(|(last, _)| *last != activation) {
            self.recent.push_back((activation, self.total));
        }
        self.total += 1;
        let entries = self.most.len() as u64;
        while self.recent.front().is_some_and(|(first, _)| activation.wrapping_sub(*first) >= entries) {
            self.recent.pop_front();
        }
        if self.excess.is_some() {
            return;
        }
        for &(first, before) in self.recent.iter().rev() {
            let events = activation.wrapping_sub(first) + 1;
            let most = usize::try_from(events - 1).ok().and_then(|index| self.most.get(index));
            let sent = self.total - before;
            if let Some(&most) = most.filter(|most| sent > **most) {
                self.excess = Some(Excess { events, assumed_ns: Some(most), seen_ns: sent, at_ns });
                return;
            }
        }
    }

    /// Messages may be missing here.
    pub fn gap(&mut self) {
        self.recent.clear();
    }

    /// Where the limit was first left since the last call.
    pub fn take(&mut self) -> Option<Excess> {
        self.excess.take()
    }
}

/// What was assumed of one callback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assumed {
    /// Its name in the model.
    pub callback: String,
    /// The most execution time of 1, 2, 3 ... consecutive activations; `None`: nothing was assumed.
    pub cost_ns: Option<Vec<u64>>,
    /// The least spans of 2, 3, 4 ... consecutive arrivals, empty where it was assumed never to be activated; `None`: nothing was assumed.
    pub spans_ns: Option<Vec<u64>>,
    /// The longest that 1, 2, 3 ... consecutive activations suspended themselves, empty: not at all; `None`: nothing was assumed.
    pub suspension_ns: Option<Vec<u64>>,
    /// The longest that the middleware takes with a message to it; `None`: nothing was assumed.
    pub delivery_ns: Option<u64>,
    /// The same with a message that its own thread sent.
    pub own_delivery_ns: Option<u64>,
    /// How often they did at most, and how often they yielded; counts where `suspension_ns` is something.
    pub suspensions: Vec<u64>,
    /// See there.
    pub yields: Vec<u64>,
    /// Topics by name, and how many messages 1, 2, 3 ... consecutive activations send there at most. Topics that are not named are not looked at.
    pub outputs: Vec<(String, Vec<u64>)>,
    /// Topics by name that it is activated by, to which nobody sends but who has them among its `outputs`.
    pub senders: Vec<String>,
    /// The account, by its place among those of the plan, that takes what is beyond its execution times and the lengths of its suspensions.
    pub account: Option<usize>,
    /// Its executor is planned for: callbacks that are not among those assumed must not run there.
    pub closed: bool,
}

/// An assumption that no longer holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The callback.
    pub callback: String,
    /// Which assumption.
    pub what: Breach,
    /// When it was seen, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
}

/// Which assumption about a callback no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "breach")]
pub enum Breach {
    /// It took longer than its curve.
    Cost(Excess),
    /// It, with others of its account, took more beyond their curves than is allowed for.
    Beyond {
        /// What it took last.
        excess: Excess,
        /// It was suspended for so long, and did not execute.
        suspended: bool,
        /// What all of them took beyond their curves.
        sum_ns: u64,
        /// What is allowed for.
        allowance: Allowance,
    },
    /// It was activated more densely than its curve.
    Arrivals(Excess),
    /// It suspended itself for longer than was known.
    Suspension(Excess),
    /// The middleware took longer to deliver a message to it.
    Delivery(Excess),
    /// It suspended itself more often than was known: times, where others have nanoseconds.
    Suspensions(Excess),
    /// It called `sched_yield` more often than was known: times, where others have nanoseconds.
    Yields(Excess),
    /// It sent more messages to a topic than was known: messages, where others have nanoseconds.
    Output(Excess),
    /// It gets messages of a sender that the plan did not know.
    Sender,
    /// It runs in an executor whose plan did not know it.
    Unplanned {
        /// The executor's thread.
        tid: u32,
    },
    /// It is gone, with its thread or process.
    Ended,
}

impl Breach {
    /// What was left, where it is a curve.
    #[must_use]
    pub fn excess(&self) -> Option<Excess> {
        match *self {
            Self::Cost(excess)
            | Self::Beyond { excess, .. }
            | Self::Arrivals(excess)
            | Self::Suspension(excess)
            | Self::Suspensions(excess)
            | Self::Yields(excess)
            | Self::Delivery(excess)
            | Self::Output(excess) => Some(excess),
            Self::Sender | Self::Unplanned { .. } | Self::Ended => None,
        }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
        let name = &self.callback;
        let of = |events: u64, one: &str, many: &str| match events {
            1 => format!("one {one}"),
            n => format!("{n} {many} in a row"),
        };
        match &self.what {
            Breach::Beyond { excess, suspended, sum_ns, allowance } => {
                let (excess, Allowance { most_ns, window_ns }) = (*excess, *allowance);
                let alone = if *suspended { Breach::Suspension(excess) } else { Breach::Cost(excess) };
                let one = Self { callback: name.clone(), what: alone, at_ns: self.at_ns };
                write!(
                    f,
                    "{one}; with it, callbacks of its core took {} beyond what is assumed within {}, and {} are allowed for",
                    ms(*sum_ns),
                    ms(window_ns),
                    ms(most_ns)
                )
            }
            Breach::Cost(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = ms(assumed_ns.unwrap_or(0));
                write!(
                    f,
                    "{name}: {activations} took {} of execution time, assumed were at most {assumed}",
                    ms(seen_ns)
                )
            }
            Breach::Arrivals(Excess { assumed_ns: None, .. }) => {
                write!(f, "{name}: it was activated, assumed was that it never is")
            }
            Breach::Arrivals(Excess { events, assumed_ns: Some(assumed_ns), seen_ns, .. }) => {
                let (seen, assumed) = (ms(*seen_ns), ms(*assumed_ns));
                write!(
                    f,
                    "{name}: {events} activations came within {seen}, assumed was that they take {assumed} or longer"
                )
            }
            Breach::Suspension(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = ms(assumed_ns.unwrap_or(0));
                write!(
                    f,
                    "{name}: {activations} suspended themselves for {} (sleep, lock, device), assumed were at most {assumed}",
                    ms(seen_ns)
                )
            }
            Breach::Delivery(excess) => write!(
                f,
                "{name}: a message was received {} after it had left, assumed were at most {}: threads of the middleware or the network held it up",
                ms(excess.seen_ns),
                ms(excess.assumed_ns.unwrap_or(0))
            ),
            Breach::Suspensions(excess) | Breach::Yields(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = assumed_ns.unwrap_or(0);
                let (did, how) = match self.what {
                    Breach::Yields(_) => ("yielded the CPU", "sched_yield"),
                    _ => ("suspended themselves", "sleep, lock, device"),
                };
                write!(
                    f,
                    "{name}: {activations} {did} {seen_ns} times ({how}), assumed were at most {assumed}"
                )
            }
            Breach::Output(excess) => {
                let Excess { events, assumed_ns, seen_ns, .. } = *excess;
                let activations = of(events, "activation", "activations");
                let assumed = assumed_ns.unwrap_or(0);
                write!(
                    f,
                    "{name}: {activations} sent {seen_ns} messages to a topic, assumed were at most {assumed}"
                )
            }
            Breach::Sender => {
                write!(f, "{name}: it gets messages of a callback that the plan did not know to send any")
            }
            Breach::Unplanned { .. } => {
                write!(f, "{name}: it runs in an executor whose plan did not know it")
            }
            Breach::Ended => write!(f, "{name}: it has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_curve_is_told_from_what_is_within() {
        let mut limit = CostLimit::new(vec![10, 15]).with_account();
        for (at, took) in [(1, 10), (2, 5), (3, 30), (4, 5), (5, 11), (6, 4)] {
            limit.see(at, took);
        }
        // 20 beyond one of 10; then 5 fit beside 10; 11 after 5 are 1 beyond both; 4 fit.
        let beyond: Vec<(u64, u64, u64)> =
            limit.take_beyond().iter().map(|b| (b.excess.at_ns, b.excess.events, b.more_ns)).collect();
        assert_eq!(beyond, [(3, 1, 20), (5, 1, 1)]);
        assert!(limit.take_beyond().is_empty() && limit.take().is_none());
        // Whatever is told apart, the rest is within the curve: so often that it is no disturbance, it is a broken curve.
        for at in 0..2 * MOST_BEYOND as u64 {
            limit.see(at + 10, 11);
        }
        assert!(limit.take().is_some());
    }

    fn taken(at_ns: u64, more_ns: u64) -> Taken {
        let excess = Excess { events: 1, assumed_ns: Some(10), seen_ns: 10 + more_ns, at_ns };
        Taken { callback: 0, suspended: false, beyond: Beyond { excess, more_ns } }
    }

    #[test]
    fn an_account_counts_over_a_window_and_no_longer() {
        let mut account = Account::new(Allowance { most_ns: 10, window_ns: 100 });
        let mut take = |at_ns, more_ns| account.take(taken(at_ns, more_ns)).map(|(sum, _)| sum);
        assert_eq!(take(0, 6), None);
        assert_eq!(take(50, 4), None);
        // The first is a window away, and counts still.
        assert_eq!(take(100, 1), Some(11));
        assert_eq!(take(101, 5), None);
        assert_eq!(take(151, 5), Some(11));
    }

    #[test]
    fn what_is_read_late_counts_in_its_own_window() {
        let mut account = Account::new(Allowance { most_ns: 10, window_ns: 100 });
        let mut take = |at_ns, more_ns| account.take(taken(at_ns, more_ns)).map(|(sum, _)| sum);
        assert_eq!((take(0, 6), take(190, 6)), (None, None));
        // Of another thread, read after what came later.
        assert_eq!(take(95, 3), None);
        assert_eq!(take(99, 2), Some(11));
    }

    #[test]
    fn what_was_taken_is_carried_over_as_far_as_the_next_curve_does_not_have_it() {
        assert_eq!(taken(0, 6).against(&[16, 20]), None);
        assert_eq!(taken(0, 6).against(&[13]).map(|one| one.beyond.more_ns), Some(3));
        // A curve that became narrower makes no more of it than was told.
        assert_eq!(taken(0, 6).against(&[1]).map(|one| one.beyond.more_ns), Some(6));
    }

    proptest::proptest! {
        /// What is left of the activations is within the curve in every window, and nothing is told that need not be left out.
        #[test]
        fn the_rest_is_within_the_curve(costs in proptest::collection::vec(0u64..30, 1..120), limits in proptest::collection::vec(5u64..15, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CostLimit::new(most.clone()).with_account();
            costs.iter().zip(0..).for_each(|(took, at)| limit.see(at, *took));
            let mut rest = costs.clone();
            for one in limit.take_beyond() {
                let at = usize::try_from(one.excess.at_ns).unwrap();
                proptest::prop_assert!(one.more_ns <= costs[at]);
                rest[at] -= one.more_ns;
            }
            for (at, n) in (0..rest.len()).flat_map(|at| (1..=most.len().min(at + 1)).map(move |n| (at, n))) {
                proptest::prop_assert!(rest[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]);
            }
            let within = (0..costs.len()).all(|at| (1..=most.len().min(at + 1)).all(|n| costs[at + 1 - n..=at].iter().sum::<u64>() <= most[n - 1]));
            proptest::prop_assert_eq!(within, rest == costs);
        }

        /// In any order in which they are read, some window is too full exactly where one is.
        #[test]
        fn an_account_equals_brute_force(mut all in proptest::collection::vec((0u64..150, 1u64..8), 1..30), turns in 0usize..30) {
            let allowance = Allowance { most_ns: 20, window_ns: 60 };
            all.sort_unstable();
            let full = all.iter().any(|(end, _)| all.iter().filter(|(at, _)| at <= end && at + 60 >= *end).map(|(_, more)| more).sum::<u64>() > 20);
            let middle = turns.min(all.len());
            all.rotate_left(middle);
            let mut account = Account::new(allowance);
            let told = all.iter().filter(|(at, more)| account.take(taken(*at, *more)).is_some()).count() > 0;
            proptest::prop_assert_eq!(told, full);
        }
    }

    #[test]
    fn spans_are_held_against_every_event() {
        let mut limit = SpanLimit::new(vec![90, 190]);
        for at in [100, 200, 300, 390] {
            limit.see(at);
        }
        assert_eq!(limit.take(), None);
        // 80 ns after the one before, and three in 170.
        limit.see(470);
        let excess = Excess { events: 2, assumed_ns: Some(90), seen_ns: 80, at_ns: 470 };
        assert_eq!((limit.take(), limit.take()), (Some(excess), None));
        // Each pair is far enough apart, three together are not.
        let mut limit = SpanLimit::new(vec![90, 190]);
        [0, 92, 184].into_iter().for_each(|at| limit.see(at));
        let excess = limit.take().unwrap();
        assert_eq!((excess.events, excess.seen_ns, excess.assumed_ns), (3, 184, Some(190)));
        // No window across a gap.
        limit.gap();
        limit.see(185);
        assert_eq!(limit.take(), None);
    }

    #[test]
    fn what_should_never_come_is_told_when_it_does() {
        let mut limit = SpanLimit::new(Vec::new());
        assert_eq!(limit.take(), None);
        limit.see(7);
        assert_eq!(limit.take(), Some(Excess { events: 1, assumed_ns: None, seen_ns: 0, at_ns: 7 }));
    }

    #[test]
    fn costs_are_held_against_every_activation() {
        let mut limit = CostLimit::new(vec![10, 15, 18]);
        for (at, took) in [(1, 10), (2, 5), (3, 3), (4, 2), (5, 10)] {
            limit.see(at, took);
        }
        assert_eq!(limit.take(), None);
        limit.see(6, 6);
        let excess = Excess { events: 2, assumed_ns: Some(15), seen_ns: 16, at_ns: 6 };
        assert_eq!(limit.take(), Some(excess));
        limit.gap();
        limit.see(7, 10);
        assert_eq!(limit.take(), None);
        limit.see(8, 11);
        assert_eq!(limit.take().map(|e| (e.events, e.seen_ns)), Some((1, 11)));
    }

    #[test]
    fn messages_are_held_against_every_window() {
        // Two at a time, three in two, three in three.
        let mut limit = CountLimit::new(vec![2, 3, 3]);
        for (at, activation) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 4), (6, 7)] {
            limit.see(at, activation);
        }
        assert_eq!(limit.take(), None);
        limit.see(7, 8);
        limit.see(8, 9);
        assert_eq!(limit.take(), None);
        limit.see(9, 9);
        assert_eq!(limit.take(), Some(Excess { events: 3, assumed_ns: Some(3), seen_ns: 4, at_ns: 9 }));
        limit.gap();
        limit.see(10, 10);
        limit.see(11, 10);
        assert_eq!(limit.take(), None);
        limit.see(12, 10);
        assert_eq!(limit.take().map(|excess| (excess.events, excess.seen_ns)), Some((1, 3)));
        let mut never = CountLimit::new(Vec::new());
        never.see(1, 5);
        assert_eq!(never.take().map(|excess| excess.assumed_ns), Some(Some(0)));
    }

    proptest::proptest! {
        /// Found exactly where brute force finds it.
        #[test]
        fn counts_equal_brute_force(sent in proptest::collection::vec(0u64..4, 1..80), limits in proptest::collection::vec(0u64..4, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CountLimit::new(most.clone());
            let mut first = None;
            for (activation, &count) in sent.iter().enumerate() {
                (0..count).for_each(|_| limit.see(activation as u64, activation as u64));
                let left = (1..=most.len().min(activation + 1)).any(|n| sent[activation + 1 - n..=activation].iter().sum::<u64>() > most[n - 1]);
                if first.is_none() && left {
                    first = Some(activation as u64);
                }
            }
            proptest::prop_assert_eq!(limit.take().map(|e| e.at_ns), first);
        }

        /// Found exactly where brute force finds it, with tails moved down many times.
        #[test]
        fn equals_brute_force(costs in proptest::collection::vec(0u64..20, 1..200), limits in proptest::collection::vec(5u64..15, 1..6)) {
            let most: Vec<u64> = limits.iter().scan(0, |sum, l| { *sum += l; Some(*sum) }).collect();
            let mut limit = CostLimit::new(most.clone());
            let mut first = None;
            for (at, &took) in costs.iter().enumerate() {
                limit.see(at as u64, took);
                let left = (1..=most.len().min(at + 1)).find(|n| costs[at + 1 - n..=at].iter().sum::<u64>() > most[n - 1]);
                if let (None, Some(n)) = (first, left) {
                    first = Some((n as u64, at as u64));
                }
            }
            proptest::prop_assert_eq!(limit.take().map(|e| (e.events, e.at_ns)), first);
        }
    }
}
