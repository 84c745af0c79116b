//! Self-suspension: activations that were off the CPU by themselves, because they slept, waited for
//! a lock, a device or a reply.
//!
//! Each voluntary switch, however short, can cost a thread with a reservation the wait for its next
//! budget, so their number is kept apart from their length. An activation that gave the CPU up, or
//! whose wall time is more than [`OFF_CPU_NS`] above its CPU time, is one of
//! - **preemption**: the source counted that the thread never gave the CPU up by itself. Nothing is
//!   learnt from it;
//! - **suspension**: it did, so often, and for how long it was ready all the same is known. The
//!   rest counts;
//! - **undecided**: the source cannot tell, did not count from the activation's start, or knows
//!   that the thread gave the CPU up but not for how long it was ready again. All of it counts as
//!   suspension, until another activation of the same callback that was off the CPU for at least
//!   half as long has been decided (and suspended itself, if that one did), until [`SPOKEN`]
//!   activations have passed of which the source would have reported, or until the horizon has
//!   passed: a callback that suspends itself does so again, and is then seen to.
//!
//! **Yields** (`sched_yield`) are no voluntary switches for the kernel; under `SCHED_DEADLINE` they
//! give the rest of the budget away, and are counted.
//!
//! Where execution times are wall times (no CPU clock) they contain suspension, but how often
//! cannot be known; the same is so of activations that were off the CPU where the source never
//! shows why, and of yields that it does not see. Such a callback is **blind**.
//!
//! **Start-up** is kept apart, as arrivals are ([`super::startup`]): the first message of a topic
//! waits for discovery, for pages of libraries, for locks of the middleware, once. What was seen in
//! it counts until the callback has been activated [`STEADY`] times in [`STEADY_NS`] afterwards,
//! and is forgotten then.

use takt_ros::event::OFF_CPU_NS;

use crate::guard::{Beyond, Breach, CostLimit, Noticed};
use crate::{CostCurve, CostRecorder, GreatestRecorder};

/// What the source says of an activation that was off the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OffCpu {
    /// How often by itself.
    pub switches: Option<u64>,
    /// For how long it was ready.
    pub ready_ns: Option<u64>,
    /// How often it yielded.
    pub yields: Option<u64>,
    /// For how long it may have been so before its start.
    pub early_ns: u64,
}

/// Suspensions of one callback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspensions {
    /// From the first activation on that suspended itself.
    decided: Option<Box<Decided>>,
    most: GreatestRecorder,
    /// How often it yielded, from the first time on.
    yields: Option<Box<CostRecorder>>,
    /// Activations of which nobody knows.
    undecided: Option<Undecided>,
    /// When the source last could not report.
    blind_ns: Option<u64>,
    /// What a plan assumed.
    limit: Option<Box<Limits>>,
    /// While its process was starting.
    apart: Option<Box<Apart>>,
}

/// What was seen in start-up.
#[derive(Debug, Clone, Default)]
struct Apart {
    suspensions: Suspensions,
    /// When last.
    at_ns: u64,
    /// Activations since then.
    steady: u64,
}

#[derive(Debug, Clone)]
struct Decided {
    lengths: CostRecorder,
    times: CostRecorder,
}

#[derive(Debug, Clone)]
struct Undecided {
    /// From the first of them on.
    windows: Box<CostRecorder>,
    counts: Box<CostRecorder>,
    /// When the last of them was, and its number.
    at_ns: u64,
    number: u64,
    most_ns: u64,
    /// How often the thread gave the CPU up, if it is known to have done so.
    times: u64,
}

/// What a plan assumed: lengths, numbers, yields.
#[derive(Debug, Clone)]
struct Limits {
    lengths: CostLimit,
    times: CostLimit,
    yields: CostLimit,
}

/// What is known of the suspensions of a callback. All empty: there were none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Suspended {
    /// How long, by activations in a row.
    pub curve: CostCurve,
    /// How often in one activation.
    pub most: u64,
    /// How often in so many activations in a row.
    pub times: Vec<u64>,
    /// Yields in so many activations in a row.
    pub yields: Vec<u64>,
    /// It cannot be known.
    pub blind: bool,
}

/// After so many activations that were decided or ordinary, what was undecided before says nothing.
/// 100: a minute of an ordinary callback, in which whatever it waits for has been waited for again.
const SPOKEN: u64 = 100;
/// So many activations after its process has started show what a callback does, as many as decide
/// about what was undecided,
const STEADY: u64 = SPOKEN;
/// in so much time at least.
const STEADY_NS: u64 = 10_000_000_000;

/// An activation that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// From one on.
    pub number: u64,
    pub at_ns: u64,
    /// How long it was off the CPU.
    pub off_ns: u64,
    /// What the source says of that.
    pub known: Option<OffCpu>,
    /// The source is one that reports.
    pub reports: bool,
}

/// How curves are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub activations: usize,
    pub horizon_ns: Option<u64>,
}

/// A recorder for the `number`th activation; none of those before suspended itself.
fn recorder(number: u64, at_ns: u64, keep: Keep) -> CostRecorder {
    let mut recorder = CostRecorder::new(keep.activations, keep.horizon_ns, at_ns);
    let before = number.saturating_sub(1).min(keep.activations as u64);
    (0..before).for_each(|_| recorder.record(at_ns, 0, true));
    recorder
}

impl Suspensions {
    /// One activation; `starting`: of a process that is starting.
    #[inline]
    pub(crate) fn record(&mut self, ended: Ended, keep: Keep, starting: bool) {
        if starting || self.apart.is_some() {
            self.record_start(ended, keep, starting);
        }
        if starting {
            return;
        }
        // Most activations of most callbacks have the CPU all the time, and never were without.
        let none = self.decided.is_none() && self.undecided.is_none() && self.yields.is_none();
        if none
            && self.limit.is_none()
            && self.blind_ns.is_none()
            && ended.known.is_none()
            && ended.off_ns <= OFF_CPU_NS
        {
            return;
        }
        self.follow(ended, keep);
    }

    /// One activation that says nothing about others: it is held against the limits, and is no part
    /// of the curves.
    #[cold]
    pub(crate) fn record_apart(&mut self, ended: Ended, keep: Keep) {
        let mut aside = Self { limit: self.limit.take(), ..Self::default() };
        self.gap();
        aside.follow(ended, keep);
        self.limit = aside.limit;
    }

    #[cold]
    fn record_start(&mut self, ended: Ended, keep: Keep, starting: bool) {
        if starting {
            let mut apart = self.apart.take().unwrap_or_default();
            // Windows of the steady state do not reach across. What a plan assumed is held against
            // these, too.
            apart.suspensions.limit = self.limit.take();
            self.gap();
            apart.suspensions.record(ended, keep, false);
            self.limit = apart.suspensions.limit.take();
            (apart.at_ns, apart.steady) = (ended.at_ns, 0);
            self.apart = Some(apart);
        } else if let Some(apart) = &mut self.apart {
            apart.steady += 1;
            if apart.steady >= STEADY && ended.at_ns.saturating_sub(apart.at_ns) >= STEADY_NS {
                self.apart = None;
            }
        }
    }

    fn follow(&mut self, ended: Ended, keep: Keep) {
        let Ended { number, at_ns, off_ns, known, reports } = ended;
        let spoken = |undecided: &Undecided| reports && number.saturating_sub(undecided.number) >= SPOKEN;
        if self.undecided.as_ref().is_some_and(spoken) {
            self.undecided = None;
        }
        // What it slept and how often; or what is left open, and how often at least.
        let (slept_ns, open_ns, times) = match known {
            None if off_ns <= OFF_CPU_NS => (0, 0, 0),
            None => (0, off_ns, 0),
            Some(OffCpu { switches: Some(0), .. }) => (0, 0, 0),
            Some(OffCpu { switches: Some(times), ready_ns: Some(ready_ns), early_ns, .. }) => {
                (off_ns.saturating_sub(ready_ns).saturating_add(early_ns), 0, times)
            }
            // At least one nanosecond, as it is known to have been away.
            Some(OffCpu { switches: Some(times), early_ns, .. }) => {
                (0, off_ns.saturating_add(early_ns).max(1), times)
            }
            Some(_) => (0, off_ns, 0),
        };
        let yields = known.map_or(Some(0), |known| known.yields);
        if yields.is_none() || (known.is_none() && open_ns > 0 && !reports) {
            self.blind_ns = Some(at_ns);
        } else if reports || known.is_some_and(|known| known.switches.is_some()) {
            self.blind_ns = None;
        }
        let decides = |open: &Undecided| off_ns >= open.most_ns / 2 && (open.times == 0 || times > 0);
        let was_off = off_ns > OFF_CPU_NS;
        if open_ns == 0 && was_off && self.undecided.as_ref().is_some_and(decides) {
            self.undecided = None;
        }
        if open_ns > 0 {
            let open = self.undecided.get_or_insert_with(|| Undecided {
                windows: Box::new(recorder(number, at_ns, keep)),
                counts: Box::new(recorder(number, at_ns, keep)),
                at_ns,
                number,
                most_ns: 0,
                times: 0,
            });
            (open.at_ns, open.number) = (at_ns, number);
            open.most_ns = open.most_ns.max(open_ns);
            open.times = open.times.max(times);
        } else if times > 0 {
            self.decided.get_or_insert_with(|| {
                let empty = recorder(number, at_ns, keep);
                Box::new(Decided { lengths: empty.clone(), times: empty })
            });
        }
        let open_times = if open_ns > 0 { times.max(1) } else { 0 };
        if let Some(open) = &mut self.undecided {
            open.windows.record(at_ns, open_ns, true);
            open.counts.record(at_ns, open_times, true);
        }
        let decided_times = if open_ns > 0 { 0 } else { times };
        if let Some(decided) = &mut self.decided {
            decided.lengths.record(at_ns, slept_ns, true);
            decided.times.record(at_ns, decided_times, true);
            self.most.record(at_ns, decided_times, keep.horizon_ns);
        }
        let yields = yields.unwrap_or(0);
        if yields > 0 {
            self.yields.get_or_insert_with(|| Box::new(recorder(number, at_ns, keep)));
        }
        if let Some(recorder) = &mut self.yields {
            recorder.record(at_ns, yields, true);
        }
        if let Some(limit) = &mut self.limit {
            // What nobody knows counts in the plan, too.
            limit.lengths.see(at_ns, slept_ns.max(open_ns));
            limit.times.see(at_ns, decided_times.max(open_times));
            limit.yields.see(at_ns, yields);
        }
    }

    /// An activation whose execution time is wall time.
    pub(crate) fn wall_time(&mut self, at_ns: u64) {
        self.blind_ns = Some(at_ns);
    }

    /// Holds every activation from now on against these suspensions: lengths, numbers and yields of
    /// 1, 2, 3 ... activations in a row, those before it included, empty where there are none;
    /// `None`: no longer. `account`: what is longer than that goes to an account.
    pub(crate) fn limit(&mut self, limits: Option<[Vec<u64>; 3]>, account: bool, noticed: &Noticed) {
        let before = self.limit.take();
        let limit = |mut most: Vec<u64>, account: bool, before: Option<&CostLimit>| {
            if most.is_empty() {
                most.push(0);
            }
            let limit = CostLimit::new(most);
            let limit = if account { limit.with_account() } else { limit };
            match before {
                Some(before) => limit.after(before),
                None => limit,
            }
            .noticed_by(noticed)
        };
        self.limit = limits.map(|[lengths, times, yields]| {
            let before = before.as_deref();
            Box::new(Limits {
                lengths: limit(lengths, account, before.map(|before| &before.lengths)),
                times: limit(times, false, before.map(|before| &before.times)),
                yields: limit(yields, false, before.map(|before| &before.yields)),
            })
        });
    }

    /// What was longer than the curve since the last call, where that goes to an account.
    pub(crate) fn beyond(&mut self) -> Vec<Beyond> {
        self.limit.as_mut().map(|limit| limit.lengths.take_beyond()).unwrap_or_default()
    }

    /// Which limits were first left since the last call.
    pub(crate) fn breaches(&mut self) -> impl Iterator<Item = Breach> + use<> {
        let found = self.limit.as_mut().map_or([None; 3], |limit| {
            [
                limit.lengths.take().map(Breach::Suspension),
                limit.times.take().map(Breach::Suspensions),
                limit.yields.take().map(Breach::Yields),
            ]
        });
        found.into_iter().flatten()
    }

    /// Activations may be missing here.
    pub(crate) fn gap(&mut self) {
        if let Some(limit) = &mut self.limit {
            [&mut limit.lengths, &mut limit.times, &mut limit.yields].into_iter().for_each(CostLimit::gap);
        }
        if let Some(decided) = &mut self.decided {
            decided.lengths.gap();
            decided.times.gap();
        }
        if let Some(open) = &mut self.undecided {
            open.windows.gap();
            open.counts.gap();
        }
        if let Some(yields) = &mut self.yields {
            yields.gap();
        }
        if let Some(apart) = &mut self.apart {
            apart.suspensions.gap();
        }
    }

    pub(crate) fn known(&self, now_ns: u64, keep: Keep) -> Suspended {
        let forgotten =
            |at_ns: u64| keep.horizon_ns.is_some_and(|horizon_ns| now_ns.saturating_sub(at_ns) > horizon_ns);
        let some = |most: Vec<u64>| if most.last().is_some_and(|&most| most > 0) { most } else { Vec::new() };
        let mut known = Suspended {
            yields: self.yields.as_ref().map(|yields| some(yields.curve().most_ns)).unwrap_or_default(),
            blind: self.blind_ns.is_some_and(|at_ns| !forgotten(at_ns)),
            ..Suspended::default()
        };
        if let Some(decided) = &self.decided {
            known.times = some(decided.times.curve().most_ns);
            if !known.times.is_empty() {
                (known.curve, known.most) = (decided.lengths.curve(), self.most.most());
            }
        }
        if let Some(undecided) = self.undecided.as_ref().filter(|undecided| !forgotten(undecided.at_ns)) {
            let (open, counts) = (undecided.windows.curve(), undecided.counts.curve());
            known.curve.most_ns = both(&known.curve.most_ns, &open.most_ns);
            known.times = both(&known.times, &counts.most_ns);
            known.curve.seen = known.curve.seen.max(open.seen);
            known.curve.total_ns = known.curve.total_ns.saturating_add(open.total_ns);
            known.curve.cpu_time = true;
            known.most = known.most.max(undecided.times).max(1);
        }
        if let Some(apart) = &self.apart {
            let apart = apart.suspensions.known(now_ns, keep);
            known.curve.most_ns = both(&known.curve.most_ns, &apart.curve.most_ns);
            known.curve.seen = known.curve.seen.max(apart.curve.seen);
            known.curve.total_ns = known.curve.total_ns.saturating_add(apart.curve.total_ns);
            known.curve.cpu_time |= apart.curve.cpu_time;
            known.times = both(&known.times, &apart.times);
            known.yields = both(&known.yields, &apart.yields);
            known.most = known.most.max(apart.most);
            known.blind |= apart.blind;
        }
        known
    }
}

/// Of activations of two kinds, each of which is of one.
fn both(a: &[u64], b: &[u64]) -> Vec<u64> {
    let at = |curve: &[u64], i: usize| curve.get(i).or(curve.last()).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|i| match i {
            0 => at(a, 0).max(at(b, 0)),
            _ => at(a, i).saturating_add(at(b, i)),
        })
        .collect()
}

#[cfg(test)]
mod tests;
