//! The room that goals leave, given to the assumptions.
//!
//! Curves are extremes over the past, and records come: among `n` samples the next one is the
//! longest with a probability of one in `n + 1`, so that with dozens of callbacks some curve is
//! left every few seconds, and with it the word "guaranteed". Room between a bound and its goal is
//! of no use to others. So the plan is made for a workload that does more than was ever seen: as
//! much more as all chains bear that are kept for what was seen. Bounds, budgets and grounds are
//! those of this workload. Execution within it changes nothing; execution beyond it withdraws the
//! guarantee, as before.
//!
//! The margin is a rung of [`ladder`], the same for all callbacks. It consists of a share of the
//! observed time and a fixed time, because an interrupt, a page fault or a cold cache adds more to
//! a callback of 20 us than a share of these 20 us. On shared cores that time is one for all
//! callbacks of a core together, in any window: whatever hits them hits them one at a time
//! ([`Disturbance`]).

use std::sync::Arc;
use takt_model::Model;

use super::grounds::declared;
use super::present::Held;
use super::shared::Given;
use super::{Attempt, Manager};
use crate::analysis::Disturbance;
use crate::budget::{ChainBound, Request};
use crate::curves::{Cost, Counts};
use crate::plan::Slack;
use crate::words::ms;
use crate::workload::{Activity, Suspension, Workload};

/// For reservations of each executor's own, from wide to narrow: times, and nanoseconds more. The
/// narrowest is worth having only if it is more than the margin of costs (10 % unless declared).
const OWN: [(f64, u64); 7] = [
    (4.0, 4_000_000),
    (3.0, 2_000_000),
    (2.0, 2_000_000),
    (2.0, 1_000_000),
    (1.5, 1_000_000),
    (1.5, 500_000),
    (1.25, 250_000),
];
/// For shared cores: times, and nanoseconds that all callbacks of a core together may take beyond.
/// As records come one at a time, this costs a bound a tenth of what the same time for each
/// callback does.
const SHARED: [(f64, u64); 9] = [
    (3.0, 32_000_000),
    (2.0, 20_000_000),
    (1.5, 16_000_000),
    (1.25, 16_000_000),
    (1.25, 8_000_000),
    (1.1, 12_000_000),
    (1.1, 8_000_000),
    (1.1, 4_000_000),
    (1.1, 2_000_000),
];

/// From wide to narrow.
pub(super) fn ladder(shared: bool) -> &'static [(f64, u64)] {
    if shared { &SHARED } else { &OWN }
}

/// More analyses than this are not made for a plan.
const TRIALS: usize = 3;
/// Of so many activations in a row, one more may take [`Slack::more_ns`]: what disturbs from
/// outside comes at some rate, and not with each.
pub const SPREAD: u64 = 16;
/// Suspensions more for each activation, where budgets do not suffer from them.
const SUSPENSIONS: u64 = 2;
/// Additional suspension as a fraction of additional execution: locks are held for shorter than
/// callbacks run, and an executor that sleeps more than a quarter of its work is analysed less
/// exactly.
const SUSPENDED_PART: u64 = 5;

/// A callback that is activated no more often than this is disturbed no more often, so a fraction
/// of [`Slack::more_ns`] is enough: callbacks of `/parameter_events`, of which default nodes have
/// one each.
const RARE_NS: u64 = 10_000_000_000;
/// The fraction.
const RARE_PART: u64 = 8;

/// Messages and arrivals vary by this fraction of what all callbacks of a core may take.
const DISTURBED_PART: u64 = 8;
/// And by this at least: wake-ups of the middleware's threads on a busy machine.
const VARIES_NS: u64 = 1_000_000;
/// Spans between arrivals from outside are shortened to this share.
const DENSER: f64 = 0.9;
/// Window over which execution beyond the curves is counted: twice the longest response time that
/// is allowed with it, which is long compared with goals.
pub const WINDOW_NS: u64 = 1_000_000_000;

impl Slack {
    fn of(rung: usize, shared: bool) -> Option<Self> {
        let &(times, more_ns) = ladder(shared).get(rung)?;
        // After each suspension a reservation of its own may be without budget for most of a
        // period, so that none is given away.
        Some(match shared {
            true => Self { times, more_ns: 0, disturbance_ns: more_ns, suspensions: SUSPENSIONS },
            false => Self { times, more_ns, disturbance_ns: 0, suspensions: 0 },
        })
    }

    pub(super) fn disturbance(&self) -> Disturbance {
        let window_ns = if self.disturbance_ns > 0 { WINDOW_NS } else { 0 };
        Disturbance { most_ns: self.disturbance_ns, window_ns }
    }

    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "execution times may be {} times the longest seen{}{}{}",
            self.times,
            match self.more_ns {
                0 => String::new(),
                ns => format!(", plus {} ms", ms(ns)),
            },
            match self.disturbance_ns {
                0 => String::new(),
                ns => format!(
                    "; in addition, all callbacks of a core together may take {} ms more within any {} ms",
                    ms(ns),
                    ms(WINDOW_NS)
                ),
            },
            match self.suspensions {
                0 => String::new(),
                n => format!("; and activations may suspend themselves {n} more times"),
            }
        )
    }

    /// The workload with all assumptions this wide; `margin` is in its execution times already.
    fn widen(&self, workload: &Workload, model: &Model, margin: f64) -> Workload {
        let mut wide = workload.clone();
        let factor = (self.times / (1.0 + margin)).max(1.0);
        for (number, activity) in wide.callbacks.iter_mut().enumerate() {
            let is_declared = model.callbacks.get(number).is_some_and(declared);
            self.widen_one(activity, factor, is_declared);
        }
        for ns in wide.dispatch_ns.iter_mut().flatten() {
            *ns = scaled(*ns, factor);
        }
        wide
    }

    fn widen_one(&self, activity: &mut Activity, factor: f64, is_declared: bool) {
        let is_rare = activity
            .root
            .as_ref()
            .is_some_and(|root| root.spans_ns().first().is_none_or(|span_ns| *span_ns >= RARE_NS));
        if activity.cost.of(1) > 0 {
            let more_ns = if is_rare { self.more_ns / RARE_PART } else { self.more_ns };
            activity.cost = Arc::new(self.longer(&activity.cost, factor, more_ns));
            self.suspend(activity, factor, more_ns);
        }
        // Half of the share: the middleware's threads are not those whose execution times vary.
        let more_ns = self.more_ns.max(self.disturbance_ns / DISTURBED_PART).max(VARIES_NS);
        let later = |ns: u64| scaled(ns, 1.0 + (factor - 1.0) / 2.0).saturating_add(more_ns);
        activity.delivery_ns = activity.delivery_ns.map(later);
        activity.own_delivery_ns = activity.own_delivery_ns.map(|ns| if ns > 0 { later(ns) } else { 0 });
        if let Some(root) = &activity.root
            && !is_declared
        {
            // Timers come late, but not more often.
            let share = if activity.timer { 1.0 } else { DENSER };
            activity.root = Some(Arc::new(root.denser(share, more_ns, !activity.timer)));
        }
    }

    fn longer(&self, cost: &Cost, factor: f64, more_ns: u64) -> Cost {
        let longer =
            |(n, ns): (u64, &u64)| scaled(*ns, factor).saturating_add(more_ns + n * more_ns / SPREAD);
        let most_ns: Vec<u64> = (0..).zip(cost.most_ns()).map(longer).collect();
        Cost::new(&most_ns, 0.0)
    }

    fn suspend(&self, activity: &mut Activity, factor: f64, more_ns: u64) {
        let more_ns = if self.suspensions > 0 { more_ns / SUSPENDED_PART } else { 0 };
        let Some(known) = &activity.suspension else {
            if self.suspensions > 0 {
                let none = Cost::new(&vec![0; activity.cost.most_ns().len()], 0.0);
                activity.suspension = Some(Arc::new(Suspension {
                    most: self.longer(&none, 1.0, more_ns),
                    times: self.oftener(&Counts::each(0), activity.cost.most_ns().len()),
                    yields: Counts::each(0),
                }));
            }
            return;
        };
        activity.suspension = Some(Arc::new(Suspension {
            most: self.longer(&known.most, factor, more_ns),
            times: self.oftener(&known.times, known.times.entries().len()),
            yields: known.yields.clone(),
        }));
    }

    fn oftener(&self, counts: &Counts, entries: usize) -> Counts {
        if self.suspensions == 0 {
            return counts.clone();
        }
        let often = |n: u64| counts.of(n) + self.suspensions + (n - 1) * self.suspensions / SPREAD;
        let most: Vec<u64> = (1..=entries.max(1) as u64).map(often).collect();
        Counts::measured(&most, often(1))
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(ns: u64, factor: f64) -> u64 {
    (ns as f64 * factor).ceil() as u64
}

/// A plan with room.
pub(super) struct WithSlack {
    pub attempt: Attempt,
    pub workload: Workload,
    pub slack: Option<Slack>,
    /// A place in the [`ladder`], where the next plan begins; after the last one: there is no room.
    pub rung: Option<(bool, usize)>,
    /// Bounds for what was measured alone, where there is room.
    pub measured: Option<Vec<Option<ChainBound>>>,
}

impl Manager {
    /// The same chains kept with the widest assumptions that are found in a few trials. `quiet`:
    /// nothing was seen against the present plan, so that there is time to look whether there is
    /// room for more.
    pub(super) fn with_slack(
        &self,
        model: &Model,
        workload: Workload,
        requests: &[Option<Request<'_>>],
        held: Option<&Held>,
        narrow: Attempt,
        quiet: bool,
    ) -> WithSlack {
        let kept = self.kept(&narrow);
        let mut best: Option<(Attempt, Workload, usize)> = None;
        let mut found = self.rung;
        if self.goals.options.widen_assumptions && kept.iter().any(|kept| *kept) {
            let margin = self.reading().cost_margin;
            let mut work = narrow.work;
            let shared = narrow.shared.is_some();
            let all = ladder(shared).len();
            let last = self.rung.filter(|(was, _)| *was == shared).map(|(_, rung)| rung);
            let mut rungs = Rungs::new(last, all, quiet);
            while let Some(rung) = rungs.next() {
                let Some(slack) = Slack::of(rung, narrow.shared.is_some()) else { break };
                let wide = slack.widen(&workload, model, margin);
                let attempt = self.try_slack(&wide, &slack, requests, held, &narrow, &kept);
                let fits = attempt.is_some();
                if let Some(attempt) = attempt {
                    work = work + attempt.work;
                    best = Some((attempt, wide, rung));
                }
                rungs.tried(fits);
            }
            found = Some((shared, best.as_ref().map_or(all, |(_, _, rung)| *rung)));
            if let Some((attempt, _, _)) = &mut best {
                attempt.work = work;
            }
        }
        match best {
            Some((mut attempt, workload, rung)) => {
                // Chains whose goals are not met are reported as measured.
                for (chain, kept) in kept.iter().enumerate().filter(|(_, kept)| !**kept) {
                    debug_assert!(!kept);
                    attempt.bounds[chain].clone_from(&narrow.bounds[chain]);
                    attempt.fates[chain].clone_from(&narrow.fates[chain]);
                }
                let slack = Slack::of(rung, narrow.shared.is_some());
                let measured = Some(narrow.bounds);
                WithSlack { attempt, workload, slack, rung: found, measured }
            }
            None => WithSlack { attempt: narrow, workload, slack: None, rung: found, measured: None },
        }
    }

    /// The plan for a wider workload, if it keeps what is kept without.
    fn try_slack(
        &self,
        wide: &Workload,
        slack: &Slack,
        requests: &[Option<Request<'_>>],
        held: Option<&Held>,
        narrow: &Attempt,
        kept: &[bool],
    ) -> Option<Attempt> {
        let keeps =
            |attempt: &Attempt| kept.iter().zip(self.kept(attempt)).all(|(before, now)| now || !*before);
        let attempt = match &narrow.shared {
            Some(shared) => {
                let chains: Vec<usize> = (0..kept.len()).filter(|chain| kept[*chain]).collect();
                let given = Given {
                    places: Some(&shared.places),
                    periods_ns: shared.periods_ns.as_deref(),
                    disturbance: slack.disturbance(),
                };
                self.share_among(wide, requests, &chains, &shared.servers, held, &given)
            }
            None => {
                let fresh = self.attempt_to_keep(wide, requests, narrow.period_ns, kept);
                match held {
                    Some(held) => {
                        let (present, stays) = self.weigh(wide, requests, held, &fresh, &mut 0);
                        Some(if stays && keeps(&present) { present } else { fresh })
                    }
                    None => Some(fresh),
                }
            }
        };
        attempt.filter(keeps)
    }
}

/// Rungs to try: the last one first, and if it no longer fits, the others by halves.
#[derive(Debug)]
struct Rungs {
    /// Of those before this nothing is expected.
    from: usize,
    /// This one fits, or is the one that assumes nothing beyond the margins.
    to: usize,
    next: Option<usize>,
    left: usize,
}

impl Rungs {
    fn new(last: Option<usize>, all: usize, quiet: bool) -> Self {
        let (from, next) = match last {
            None => (0, all / 2),
            // There was no room; perhaps a little by now.
            Some(last) if last >= all => (all.saturating_sub(TRIALS), all - 1),
            // One wider at a time: what fits today by a hair does not tomorrow.
            Some(last) => (if quiet { last.saturating_sub(1) } else { last }, last),
        };
        Self { from, to: all, next: Some(next), left: TRIALS }
    }

    fn tried(&mut self, fits: bool) {
        let Some(rung) = self.next.take() else { return };
        if fits {
            self.to = rung;
        } else {
            self.from = rung + 1;
        }
        self.left -= 1;
        if self.from < self.to && self.left > 0 {
            self.next = Some(self.from + (self.to - self.from) / 2);
        }
    }

    fn next(&self) -> Option<usize> {
        self.next
    }
}
