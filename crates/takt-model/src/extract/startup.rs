//! Start-up and steady state.
//!
//! What nodes do when they come into being is not what they do afterwards: every parameter is
//! announced on `/parameter_events` (about a hundred messages within milliseconds for six processes
//! of default nodes), latched topics are handed to late subscribers, queues are worked off after
//! discovery. Kept in arrival curves, that burst would be expected to come again at any moment.
//!
//! # The rule
//! - **Evidence** is the registration of objects. A process is *starting* from `rcl_node_init`
//!   until nothing was registered (nodes, publishers, subscriptions, services, clients, timers) for
//!   [`SETTLED_NS`], and for [`LONGEST_NS`] at most.
//! - A process that makes a node later (a component is loaded) is starting again. Whoever goes on
//!   making nodes is at work and not starting: only the first [`MAX_STARTS`] count, and only nodes
//!   begin one, so that a callback that makes a publisher at each call hides nothing.
//! - Messages that a starting process publishes, activations by them anywhere, and all activations
//!   in a starting process are kept **apart**, and so are activations by messages of unknown origin
//!   while some process is starting. Curves of the steady state are made of what came before and
//!   after; no window of theirs reaches across.
//! - What was kept apart is all that is known where nothing has come since, and is used until the
//!   process was not starting for [`SHOWN_NS`]. From then on it is **forgotten**; of a callback
//!   that was activated in start-up alone, one activation in all the time since then is assumed.
//!   The same burst later, without a start, counts in full and for as long as everything else.
//! - Suspensions in a starting process count until the callback has run several times afterwards
//!   (`super::suspend`).
//! - Execution times of callbacks are never forgotten for this: a first activation may be slow, but
//!   so may a rare one. What a thread without callbacks does between two messages that it sends
//!   while its process is starting is no turn of its loop, and not among its execution times: it
//!   loads libraries and makes nodes (half a second in Python). It is held against what is assumed
//!   all the same.
//!
//! # What that means for a guarantee
//! A chain is guaranteed for the steady state. While a process is starting, and until [`SHOWN_NS`]
//! after, it is listed in [`Model::starting`](crate::Model::starting): what reaches its callbacks,
//! or those that take its messages, may be more than the model says, and a node that is restarted
//! starts anew. Processes whose registrations were not seen (attached late) are never starting: all
//! that is seen of them counts.

use rustc_hash::FxHashMap;

use crate::guard::{Excess, SpanLimit};
use crate::{ArrivalCurve, ArrivalRecorder};

/// After so long without a registration a process has started. One second: discovery of DDS is
/// through within a few hundred milliseconds on one machine, and announcements of parameters come
/// with the registrations.
pub const SETTLED_NS: u64 = 1_000_000_000;
/// A start takes no longer. Half a minute: loading a neural network between two registrations has
/// ended by then.
pub const LONGEST_NS: u64 = 30_000_000_000;
/// Starts of one process that count as such. 32: more components than a container loads, if each is
/// loaded for itself.
pub const MAX_STARTS: u32 = 32;
/// After so long the steady state has shown itself. Three seconds: several periods of what is slow
/// in robots, and less than the time to the first plan.
pub const SHOWN_NS: u64 = 3_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Start {
    began_ns: u64,
    /// It is starting before this.
    until_ns: u64,
    starts: u32,
}

/// Which processes are starting.
#[derive(Debug, Default)]
pub(crate) struct Startups {
    of: FxHashMap<u32, Start>,
    /// After this none is.
    last_ns: u64,
}

impl Startups {
    /// A process registered something, a node or another object.
    pub(crate) fn registered(&mut self, pid: u32, at_ns: u64, is_node: bool) {
        let until_ns = at_ns.saturating_add(SETTLED_NS);
        let Some(start) = self.of.get_mut(&pid) else {
            if is_node {
                self.of.insert(pid, Start { began_ns: at_ns, until_ns, starts: 1 });
                self.last_ns = self.last_ns.max(until_ns);
            }
            return;
        };
        if at_ns < start.until_ns {
            start.until_ns = until_ns.min(start.began_ns.saturating_add(LONGEST_NS));
        } else if is_node && start.starts < MAX_STARTS {
            *start = Start { began_ns: at_ns, until_ns, starts: start.starts + 1 };
        }
        self.last_ns = self.last_ns.max(start.until_ns);
    }

    /// The process has ended; another may get its number.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    #[inline]
    pub(crate) fn is_starting(&self, pid: u32, at_ns: u64) -> bool {
        at_ns < self.last_ns && self.of.get(&pid).is_some_and(|start| at_ns < start.until_ns)
    }

    /// Whether some process is starting.
    pub(crate) fn is_any_starting(&self, at_ns: u64) -> bool {
        at_ns < self.last_ns && self.of.values().any(|start| at_ns < start.until_ns)
    }

    /// Processes that are starting or have not shown their steady state yet.
    pub(crate) fn not_shown(&self, now_ns: u64) -> Vec<u32> {
        let shown = |start: &Start| now_ns >= start.until_ns.saturating_add(SHOWN_NS);
        let mut pids: Vec<u32> =
            self.of.iter().filter(|(_, start)| !shown(start)).map(|(&pid, _)| pid).collect();
        pids.sort_unstable();
        pids
    }
}

/// Arrivals of the steady state, and those of start-up apart.
#[derive(Debug, Clone)]
pub(crate) struct Arrivals {
    steady: ArrivalRecorder,
    apart: Option<Apart>,
}

#[derive(Debug, Clone)]
struct Apart {
    recorder: Box<ArrivalRecorder>,
    /// The last one was one of start-up.
    now: bool,
}

impl Arrivals {
    pub(crate) fn new(recorder: ArrivalRecorder) -> Self {
        Self { steady: recorder, apart: None }
    }

    /// One event, in start-up or not.
    #[inline]
    pub(crate) fn record(&mut self, at_ns: u64, starting: bool) {
        if starting {
            return self.record_apart(at_ns);
        }
        if let Some(apart) = &mut self.apart
            && std::mem::replace(&mut apart.now, false)
        {
            self.steady.gap();
            apart.recorder.gap();
        }
        self.steady.record(at_ns);
    }

    #[cold]
    fn record_apart(&mut self, at_ns: u64) {
        let steady = &mut self.steady;
        let apart =
            self.apart.get_or_insert_with(|| Apart { recorder: Box::new(steady.empty()), now: false });
        apart.now = true;
        apart.recorder.record(at_ns);
        // What is no part of the curve breaks what was built on it all the same.
        steady.hold_against(at_ns);
        // Of the steady state nothing was observed before.
        steady.observed_from(at_ns);
    }

    /// Events may be missing here.
    pub(crate) fn gap(&mut self) {
        self.steady.gap();
        if let Some(apart) = &mut self.apart {
            apart.recorder.gap();
        }
    }

    /// Nothing was observed before; without effect once something was seen.
    pub(crate) fn observed_from(&mut self, at_ns: u64) {
        self.steady.observed_from(at_ns);
    }

    /// Holds every event from now on against these spans, in start-up too; `None`: no longer.
    pub(crate) fn limit(&mut self, limit: Option<SpanLimit>) {
        self.steady.limit(limit);
    }

    /// Where the limit was first left since the last call.
    pub(crate) fn excess(&mut self) -> Option<Excess> {
        self.steady.excess()
    }

    /// Events seen, in start-up too.
    pub(crate) fn seen(&self) -> u64 {
        self.steady.seen() + self.apart.as_ref().map_or(0, |apart| apart.recorder.seen())
    }

    /// Whether the last event that was seen in start-up is what there is to go by at `now_ns`.
    fn is_apart(&self, apart: &Apart, now_ns: u64) -> bool {
        let last_ns = apart.recorder.last_ns().unwrap_or(0);
        self.steady.seen() == 0 && now_ns < last_ns.saturating_add(SETTLED_NS + SHOWN_NS)
    }

    /// The median time between the last events.
    pub(crate) fn median_gap_ns(&self) -> Option<u64> {
        let apart = self.apart.as_ref();
        self.steady.median_gap_ns().or_else(|| apart.and_then(|apart| apart.recorder.median_gap_ns()))
    }

    /// Of the steady state alone at `now_ns`, with the number of all: without a span where all came
    /// in start-up, however shortly before.
    pub(crate) fn steady_curve(&self, now_ns: u64) -> ArrivalCurve {
        ArrivalCurve { seen: self.seen(), ..self.steady.curve(now_ns) }
    }

    pub(crate) fn curve(&self, now_ns: u64) -> ArrivalCurve {
        let Some(apart) = &self.apart else { return self.steady.curve(now_ns) };
        if self.is_apart(apart, now_ns) {
            return apart.recorder.curve(now_ns);
        }
        // The number is that of all: of what came in start-up alone, the next may come once in the
        // time since.
        ArrivalCurve { seen: self.seen(), ..self.steady.curve(now_ns) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_process_starts_until_it_registers_no_more() {
        let mut startups = Startups::default();
        startups.registered(1, 10 * S, false);
        assert!(!startups.is_starting(1, 10 * S), "attached late: its start was not seen");
        startups.registered(1, 20 * S, true);
        startups.registered(1, 20 * S + S / 2, false);
        assert!(startups.is_starting(1, 21 * S) && !startups.is_starting(2, 21 * S));
        assert!(!startups.is_starting(1, 21 * S + S / 2));
        assert_eq!(startups.not_shown(24 * S), [1]);
        assert!(startups.not_shown(25 * S).is_empty());
        // A publisher made at work is no start; a node is.
        startups.registered(1, 30 * S, false);
        assert!(!startups.is_starting(1, 30 * S));
        startups.registered(1, 40 * S, true);
        assert!(startups.is_starting(1, 40 * S));
        startups.ended(1);
        assert!(!startups.is_starting(1, 40 * S));
    }

    #[test]
    fn who_registers_for_ever_is_at_work() {
        let mut startups = Startups::default();
        let mut starting = 0;
        for tenth in 0..6000 {
            let at_ns = 100 * S + tenth * S / 10;
            startups.registered(1, at_ns, tenth == 0);
            starting += u64::from(startups.is_starting(1, at_ns));
        }
        assert_eq!(starting, LONGEST_NS / (S / 10));
        let mut startups = Startups::default();
        let starting = (0..1000).filter(|k| {
            startups.registered(1, k * 3 * S, true);
            startups.is_starting(1, k * 3 * S)
        });
        assert_eq!(starting.count() as u32, MAX_STARTS);
    }

    fn spans(stamps: &[u64], events: usize) -> Option<u64> {
        stamps.windows(events).map(|w| w[events - 1] - w[0]).min()
    }

    proptest! {
        /// Whatever came outside of start-up is in the curve, and nothing that came in it is once
        /// the steady state has shown itself.
        #[test]
        fn the_steady_state_is_covered(
            events in proptest::collection::vec((0u64..300_000_000, prop::bool::weighted(0.3)), 1..120),
        ) {
            let mut arrivals = Arrivals::new(ArrivalRecorder::new(8, None, 0));
            let (mut at_ns, mut runs, mut any) = (0, vec![vec![]], false);
            for &(gap_ns, starting) in &events {
                at_ns += gap_ns;
                arrivals.record(at_ns, starting);
                any |= starting;
                match starting {
                    true => runs.push(vec![]),
                    false => runs.last_mut().unwrap().push(at_ns),
                }
            }
            let curve = arrivals.curve(at_ns + SETTLED_NS + SHOWN_NS);
            prop_assert_eq!(curve.seen, events.len() as u64);
            for events in 2..=8 {
                let expected = runs.iter().filter_map(|run| spans(run, events)).min();
                let found = curve.least_span_ns.get(events - 2).copied();
                match (expected, found) {
                    (Some(expected), Some(found)) => prop_assert_eq!(found, expected, "{} events", events),
                    (Some(_), None) => prop_assert!(false, "{events} events are not covered"),
                    // One more than were ever seen: from the start of the steady state.
                    (None, found) => prop_assert!(found.is_none_or(|ns| ns > 0 || any || at_ns == 0)),
                }
            }
        }
    }

    #[test]
    fn a_burst_of_start_up_is_forgotten_and_one_at_work_is_not() {
        let mut arrivals = Arrivals::new(ArrivalRecorder::new(64, None, 0));
        (0..100).for_each(|k| arrivals.record(S + k * 1000, true));
        let fresh = arrivals.curve(2 * S);
        assert_eq!((fresh.least_span_ns[0], fresh.seen), (1000, 100));
        // Nothing since: one in all that time, at most.
        let later = arrivals.curve(100 * S);
        assert!(later.least_span_ns.is_empty());
        assert_eq!((later.seen, later.observed_ns / S), (100, 98));
        (0..5).for_each(|k| arrivals.record(200 * S + k * 1000, false));
        assert_eq!(arrivals.curve(201 * S).least_span_ns[..4], [1000, 2000, 3000, 4000]);
        // Started anew, and not forgotten for it.
        (0..100).for_each(|k| arrivals.record(300 * S + k, true));
        assert_eq!(arrivals.curve(301 * S).least_span_ns[..4], [1000, 2000, 3000, 4000]);
    }
}
