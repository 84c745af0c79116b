//! What a chain remembers about each assumption behind its bound, one type for each that remembers
//! something; the others are read off the plan ([`Planned`]).

use std::collections::BTreeSet;

use takt_model::{Breach, Broken, Exceeded};

use super::assumption::{Assumption, State};
use super::evidence::{Evidence, Observed};
use crate::manager::ChainGrounds;
use crate::plan::ChainState;

/// Instances that must have begun before it is said that none is seen to end.
const BEGUN: u64 = 10;
/// Nothing is said about a chain that is silent for less than this: the first of three reasons to
/// wait, with ten goals and ten times the longest time between two ends.
const QUIET_NS: u64 = 3_000_000_000;
/// Broken assumptions kept in words.
pub(super) const MAX_LISTED: usize = 16;

/// The plan, as far as it is about one chain.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// What it says of the chain; `None`: there is no plan yet.
    pub state: Option<ChainState>,
    /// What its bound rests on.
    pub grounds: ChainGrounds,
    pub bound_ns: Option<u64>,
    /// A shorter bound that is reported from then on.
    pub shorter: Option<(u64, u64)>,
    /// From when on its bound counts.
    pub from_ns: u64,
    /// How often its beginning was waited out.
    pub settles: u32,
    /// Whether an instance was seen to begin and end since then.
    pub is_measured: bool,
}

impl Planned {
    /// Something is said that could be refuted.
    pub fn is_guaranteed(&self) -> bool {
        self.state == Some(ChainState::Guaranteed)
    }

    /// A plan has a shorter bound, and moved nothing: the longer one stays until all that began
    /// under it has ended.
    pub fn lower_later(&mut self, now_ns: u64, bound_ns: Option<u64>) -> bool {
        let (Some(bound_ns), Some(longer_ns)) = (bound_ns, self.bound_ns) else { return false };
        if self.shorter.is_none_or(|(_, known_ns)| known_ns != bound_ns) {
            self.shorter = Some((now_ns.saturating_add(longer_ns), bound_ns));
        }
        true
    }

    /// [`Assumption::Bounded`].
    pub fn bounded(&self, goal_ns: u64) -> Observed<'_> {
        match (&self.state, self.bound_ns) {
            (Some(ChainState::Guaranteed), _) => Observed::Holds,
            (None, _) => Observed::Unknown,
            (_, Some(bound_ns)) if bound_ns > goal_ns => Observed::Broken(Evidence::Bound { bound_ns }),
            _ => Observed::Broken(Evidence::NoBound),
        }
    }

    /// [`Assumption::Started`].
    pub fn started(&self) -> Observed<'_> {
        match (self.grounds.starting.as_slice(), self.grounds.not_run.as_slice()) {
            ([], []) => self.known(),
            ([], timers) => Observed::Broken(Evidence::NotRun(timers)),
            (pids, _) => Observed::Broken(Evidence::Starting(pids)),
        }
    }

    /// [`Assumption::Observed`].
    pub fn observed(&self) -> Observed<'_> {
        match self.grounds.unobserved.as_slice() {
            [] => self.known(),
            topics => Observed::Broken(Evidence::Unobserved(topics)),
        }
    }

    /// Nothing was seen against what holds from the first plan on.
    fn known<'a>(&self) -> Observed<'a> {
        Observed::if_known(self.state.is_some())
    }

    /// Nothing was seen against what a bound rests on.
    fn has_bound<'a>(&self) -> Observed<'a> {
        Observed::if_known(self.bound_ns.is_some())
    }

    /// Nothing was seen against what only a measurement shows.
    pub fn measured<'a>(&self) -> Observed<'a> {
        Observed::if_known(self.is_measured)
    }
}

/// [`Assumption::Running`].
#[derive(Debug, Default)]
pub(super) struct Running {
    /// When something on the chain's way ended, and how the chain stood before.
    pub ended: Option<(u64, State)>,
}

impl Running {
    pub fn observed(&self, planned: &Planned) -> Observed<'_> {
        match self.ended {
            Some(_) => Observed::Broken(Evidence::PartEnded),
            None => planned.known(),
        }
    }
}

/// [`Assumption::Reserved`].
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// What was read back instead of a reservation.
    pub difference: Option<String>,
}

impl Reserved {
    pub fn observed(&self, planned: &Planned, observes: bool) -> Observed<'_> {
        match &self.difference {
            _ if observes => Observed::Broken(Evidence::NothingReserved),
            Some(words) => Observed::Broken(Evidence::Differs(words)),
            None => planned.has_bound(),
        }
    }
}

/// [`Assumption::Budgets`].
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// The reservation that was exhausted.
    pub overrun: Option<String>,
}

impl Budgets {
    pub fn observed(&self, planned: &Planned, observes: bool) -> Observed<'_> {
        match &self.overrun {
            _ if observes => Observed::Unknown,
            Some(words) => Observed::Broken(Evidence::Overrun(words)),
            None => planned.has_bound(),
        }
    }
}

/// What callbacks did beyond what was assumed of them: [`Assumption::Costs`], `Arrivals`,
/// `Outputs`, `Suspensions`, `Delivery` and `Graph`, which share one list of bounded length.
#[derive(Debug, Default)]
pub(super) struct Breaches(Vec<Broken>);

impl Breaches {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn push(&mut self, broken: Broken) {
        if self.0.len() < MAX_LISTED {
            self.0.push(broken);
        }
    }

    /// Those against that assumption.
    pub fn observed(&self, assumption: Assumption, planned: &Planned) -> Observed<'_> {
        let mut against = self.0.iter().filter(|broken| contradicted(&broken.what) == Some(assumption));
        match against.next() {
            Some(first) => Observed::Broken(Evidence::Breaches { first, more: against.count() }),
            None => planned.has_bound(),
        }
    }

    /// [`Assumption::Suspensions`].
    pub fn suspensions<'a>(&'a self, planned: &'a Planned) -> Observed<'a> {
        match planned.grounds.unseen.as_slice() {
            [] => self.observed(Assumption::Suspensions, planned),
            callbacks => Observed::Broken(Evidence::Unseen(callbacks)),
        }
    }
}

/// The assumption that a breach is against; `None`: that something runs.
fn contradicted(breach: &Breach) -> Option<Assumption> {
    match breach {
        Breach::Cost(_) | Breach::Beyond { suspended: false, .. } => Some(Assumption::Costs),
        Breach::Arrivals(_) => Some(Assumption::Arrivals),
        Breach::Output(_) | Breach::Sender => Some(Assumption::Outputs),
        Breach::Suspension(_)
        | Breach::Suspensions(_)
        | Breach::Yields(_)
        | Breach::Beyond { suspended: true, .. } => Some(Assumption::Suspensions),
        Breach::Delivery(_) => Some(Assumption::Delivery),
        Breach::Unplanned { .. } => Some(Assumption::Graph),
        Breach::Ended => None,
    }
}

/// [`Assumption::Delivery`].
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Processes on the chain's way whose middleware nothing carries.
    uncarried: Vec<u32>,
}

impl Delivery {
    /// Takes note of the processes whose middleware nothing carries.
    pub fn carry(&mut self, planned: &Planned, uncarried: &BTreeSet<u32>) {
        self.uncarried = planned.grounds.receivers.intersection(uncarried).copied().collect();
    }

    pub fn observed<'a>(&'a self, planned: &'a Planned, breaches: &'a Breaches) -> Observed<'a> {
        let ChainGrounds { delayed, undelivered, .. } = &planned.grounds;
        if !self.uncarried.is_empty() {
            Observed::Broken(Evidence::Uncarried(&self.uncarried))
        } else if !delayed.is_empty() {
            Observed::Broken(Evidence::Delayed(delayed))
        } else if !undelivered.is_empty() {
            Observed::Unshown(undelivered)
        } else {
            breaches.observed(Assumption::Delivery, planned)
        }
    }
}

/// [`Assumption::Complete`].
#[derive(Debug, Default)]
pub(super) struct Complete {
    /// When events were last lost, and how many.
    lost: Option<(u64, u64)>,
}

impl Complete {
    /// Losses that follow each other within `forgive_ns` are one.
    pub fn lost(&mut self, now_ns: u64, forgive_ns: u64, count: u64) {
        let recent = self.lost.filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < forgive_ns);
        self.lost = Some((now_ns, recent.map_or(0, |(_, before)| before) + count));
    }

    pub fn observed(&self, now_ns: u64, forgive_ns: u64) -> Observed<'_> {
        match self.lost.map(|(at_ns, count)| (now_ns.saturating_sub(at_ns), count)) {
            Some((ago_ns, count)) if ago_ns < forgive_ns => {
                Observed::Broken(Evidence::Lost { count, ago_ns })
            }
            _ => Observed::Holds,
        }
    }
}

/// [`Assumption::Network`].
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Why the way from another machine keeps the chain from being guaranteed.
    pub against: Option<String>,
}

impl Network {
    pub fn observed(&self, planned: &Planned) -> Observed<'_> {
        match &self.against {
            Some(words) => Observed::Broken(Evidence::Network(words)),
            None => planned.known(),
        }
    }
}

/// [`Assumption::Measured`].
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Instances that began.
    pub began: u64,
    /// Those that had when the plan came into force.
    pub began_before: u64,
    /// Time since the last completion, where it is too long.
    silent_ns: Option<u64>,
    /// Why the chain cannot be measured here at all.
    pub unmeasurable: Option<String>,
}

impl Measured {
    /// For how long instances have begun and none was seen to end, if it is too long.
    pub fn listen(
        &mut self,
        now_ns: u64,
        from_ns: u64,
        goal_ns: u64,
        last_end_ns: Option<u64>,
        longest_gap_ns: u64,
    ) {
        let quiet_ns = now_ns.saturating_sub(last_end_ns.unwrap_or(0).max(from_ns));
        if last_end_ns.is_some_and(|end_ns| end_ns >= from_ns) && quiet_ns < QUIET_NS {
            self.began_before = self.began;
        }
        let patience_ns = QUIET_NS.max(goal_ns.saturating_mul(10)).max(longest_gap_ns.saturating_mul(10));
        self.silent_ns = (quiet_ns > patience_ns && self.begun() >= BEGUN).then_some(quiet_ns);
    }

    fn begun(&self) -> u64 {
        self.began.saturating_sub(self.began_before)
    }

    pub fn observed(&self, planned: &Planned) -> Observed<'_> {
        match (&self.unmeasurable, self.silent_ns) {
            (Some(words), _) => Observed::Broken(Evidence::Unmeasurable(words)),
            (None, Some(quiet_ns)) => Observed::Broken(Evidence::Silent { begun: self.begun(), quiet_ns }),
            (None, None) => planned.measured(),
        }
    }
}

/// [`Assumption::Latency`].
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// The longest latency above a bound that no later plan has taken in.
    pub exceeded: Option<Exceeded>,
    /// Latencies above a bound while it was called guaranteed.
    pub false_guarantees: u64,
    pub worst_false: Option<Exceeded>,
}

impl Latency {
    /// A latency was above a bound that was called guaranteed.
    pub fn belied(&mut self, exceeded: Exceeded) {
        self.false_guarantees += exceeded.times;
        if self.worst_false.is_none_or(|known| known.latency_ns() < exceeded.latency_ns()) {
            self.worst_false = Some(exceeded);
        }
    }

    /// The longest counts.
    pub fn keep(&mut self, exceeded: Exceeded) {
        if self.exceeded.is_none_or(|known| known.latency_ns() < exceeded.latency_ns()) {
            self.exceeded = Some(exceeded);
        }
    }

    pub fn observed(&self, planned: &Planned) -> Observed<'_> {
        match self.exceeded {
            Some(exceeded) => Observed::Broken(Evidence::Above(exceeded)),
            None => planned.measured(),
        }
    }
}
