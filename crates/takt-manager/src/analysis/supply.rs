//! Supply of the kernel's SCHED_DEADLINE to one thread, with budgets enforced exactly or at ticks.
//!
//! **Anchor.** When a thread wakes up, the kernel (`update_dl_entity`) gives it a full budget `Q`
//! and a deadline one period `P` from now, or keeps what is left, `q` until `d`, if that does not
//! exceed its bandwidth: `q <= (d - t) Q / P`. Let `r` be the last wake-up of the first kind. From
//! then on deadlines lie on a grid, and by `r + n P` a thread that always wanted more has received
//! `n Q`, so that work `x` is done at the latest by
//!
//! ```text
//! T(x) = x + (P - Q) ceil(x / Q)            after r
//! ```
//!
//! A wake-up at `t` that keeps the budget has used `A >= (t - r) Q / P` since `r`, hence
//! `t <= r + T(A)`: it lies in the busy window that begins at `r`, as the analysis sees it, so a
//! response-time analysis that looks at all offsets in busy windows from `r` on covers it. The
//! periodic resource of Shin and Lee (RTSS 2003), which is for intervals that begin anywhere, has
//! `P - Q` more: [`Supply::time_anywhere`].
//!
//! **Enforcement at ticks.** Without `HRTICK_DL` the kernel looks at budgets when the tick comes,
//! so that a thread runs on for up to a tick `e`. It is then throttled until its deadline, where
//! `replenish_dl_entity` adds budgets *and periods* until the debt `o <= e` is paid: `k` of them,
//! the least with `k Q > o`, so nothing is owed at the deadlines that it skips, and by `r + n P` it
//! still has had `n Q` (what it ran too much came early). A wake-up that keeps a budget has used
//! its share of the time since `r` as before. So its own overruns cost a thread nothing beyond `T`,
//! long as it may be away: 0.5 ms in 10 ms was seen to run 3.9 ms and to be away for 79, and by
//! then had had no less than was due. From any moment on, where the debt may be a tick, twice
//! `floor(e / Q)` periods can pass:
//!
//! ```text
//! T'(x) = x + e + (P - Q) (1 + floor(e / Q) + ceil((x + e) / Q))
//! ```
//!
//! **Neighbours.** On the same core others run on for up to a tick each. Their excess run time is
//! at most their debts, each at most `e`, so work due by a deadline is complete by `D` later,
//! `D = e` times the number of others (earliest deadline first: the demand of each in any interval
//! grows by at most its debt). The grid of deadlines stays as long as `D < P`; for more there is no
//! bound.
//!
//! **Self-suspension** (a sleep, a lock, a device inside of a callback). Each of its wake-ups may
//! be a new anchor: work `x` from there takes `T(x) + D`. As
//! `ceil(a) + ceil(b) <= ceil(a + b) + 1`, work `x` in parts with `m` suspensions between, of
//! length `s` together, takes at most
//!
//! ```text
//! T(x) + D + s + m (P - Q + D)
//! ```
//!
//! **Yields.** `sched_yield` of a thread with a reservation throws away what is left of its budget:
//! it goes on at its deadline with a full one (`yield_task_dl`; 9.97 of 10 ms away were measured).
//! A part of work `x` from an anchor that ends in a yield is over, wait included, after at most
//! `P max(1, ceil(x / Q)) <= P + x + (P - Q) floor(x / Q)`, and what follows begins at an anchor,
//! so that `k` yields cost at most `k (P + D)`.
//!
//! This is suspension-oblivious analysis (Chen and others, "Many suspensions, many problems",
//! Real-Time Systems 55, 2019) but for one thing: the time of suspension is not taken from the
//! budget, so it is added as time and not as demand.

use super::Load;
use super::demand::CoreDemand;

/// A reservation as the kernel keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply<'a> {
    budget_ns: u64,
    period_ns: u64,
    /// Granularity of enforcement.
    tick_ns: u64,
    /// By how much others on the core may delay what is due.
    delay_ns: u64,
    /// Response times beyond count as unbounded.
    pub limit_ns: u64,
    /// The budget is never used up, and what else the core has to do is this; `None`: others take
    /// all that is not reserved.
    beside: Option<&'a CoreDemand>,
}

/// Precision of budget enforcement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// A thread runs on for up to so long after its budget; 0: exact.
    pub granularity_ns: u64,
    /// Reservations on one core at most, other than the one looked at.
    pub neighbours: u64,
}

impl<'a> Supply<'a> {
    /// `None`: too little to be of use, or no bound is known.
    pub fn new(budget_ns: u64, period_ns: u64, enforcement: Enforcement, limit_ns: u64) -> Option<Self> {
        let budget_ns = budget_ns.min(period_ns);
        let tick_ns = enforcement.granularity_ns;
        let delay_ns = tick_ns.saturating_mul(enforcement.neighbours);
        // Below a ten-thousandth of the period nothing useful is supplied, and products of times
        // could overflow.
        let useful = budget_ns > 0 && budget_ns >= period_ns / 10_000;
        (useful && (delay_ns == 0 || delay_ns < period_ns)).then_some(Self {
            budget_ns,
            period_ns,
            tick_ns,
            delay_ns,
            limit_ns,
            beside: None,
        })
    }

    /// On a core that others use so, with a budget that never runs out.
    pub fn beside(self, beside: Option<&'a CoreDemand>) -> Self {
        Self { beside, ..self }
    }

    /// As if a busy window could begin anywhere in a period, as for the periodic resource of Shin
    /// and Lee, which ECRTS'19 takes: one wait for a budget more.
    pub fn begun_at_any_moment(self) -> Self {
        Self { delay_ns: self.delay_ns.saturating_add(self.period_ns - self.budget_ns), ..self }
    }

    /// The longest time in which so much work is done in a busy window.
    pub fn time(&self, work_ns: u64) -> u64 {
        if work_ns == 0 {
            return 0;
        }
        let periods = work_ns.div_ceil(self.budget_ns);
        work_ns
            .saturating_add((self.period_ns - self.budget_ns).saturating_mul(periods))
            .saturating_add(self.delay_ns)
    }

    /// The longest time in which so much work is done from any moment on.
    pub fn time_anywhere(&self, work_ns: u64) -> u64 {
        if work_ns == 0 {
            return 0;
        }
        let work = work_ns.saturating_add(self.tick_ns);
        let periods = 1 + self.tick_ns / self.budget_ns + work.div_ceil(self.budget_ns);
        work.saturating_add((self.period_ns - self.budget_ns).saturating_mul(periods))
            .saturating_add(self.delay_ns)
    }

    /// Cost of one suspension besides its length.
    fn wake_up_ns(&self) -> u64 {
        self.period_ns - self.budget_ns + self.delay_ns
    }

    /// The longest time in which a load is done in a busy window.
    pub fn done(&self, load: Load) -> u64 {
        if let Some(beside) = self.beside {
            return beside.done_before(load.length()).unwrap_or(u64::MAX);
        }
        if load.suspensions == 0 && load.yields == 0 {
            return self.time(load.work_ns);
        }
        self.time(load.work_ns.max(1)).saturating_add(self.waits(load))
    }

    /// Time of a load's suspensions and yields, their wake-ups included.
    pub fn waits(&self, load: Load) -> u64 {
        let wake_ups_ns = self.wake_up_ns().saturating_mul(load.suspensions);
        let yields_ns = self.period_ns.saturating_add(self.delay_ns).saturating_mul(load.yields);
        load.suspended_ns.saturating_add(wake_ups_ns).saturating_add(yields_ns)
    }

    /// The longest time, in sum, of `parts` pieces of work that begin at any moment each: `T'` of
    /// each, with `ceil(a) + ceil(b) <= floor(a + b) + 2`.
    pub(crate) fn time_of_parts(&self, work_ns: u64, parts: u64) -> u64 {
        let each = self.tick_ns.saturating_add(self.delay_ns);
        let work = work_ns.saturating_add(self.tick_ns.saturating_mul(parts));
        let periods =
            (2 + self.tick_ns / self.budget_ns).saturating_mul(parts).saturating_add(work / self.budget_ns);
        work_ns
            .saturating_add(each.saturating_mul(parts))
            .saturating_add((self.period_ns - self.budget_ns).saturating_mul(periods))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, Strategy};
    use response_time_analysis::supply::{Periodic, SupplyBound};
    use response_time_analysis::time::{Duration, Service};

    #[test]
    fn exact_enforcement_is_the_periodic_resource() {
        for (budget, period) in [(1, 10), (3, 5), (7, 7), (4, 9)] {
            let ours = Supply::new(budget, period, Enforcement::default(), 1000).unwrap();
            let theirs = Periodic::new(Service::from(budget), Duration::from(period));
            for work in 0..60 {
                let anywhere = theirs.service_time(Service::from(work));
                assert_eq!(Duration::from(ours.time_anywhere(work)), anywhere);
                let since = if work == 0 { 0 } else { period - budget };
                assert_eq!(Duration::from(ours.time(work) + since), anywhere);
                assert_eq!(Duration::from(ours.begun_at_any_moment().time(work)), anywhere);
            }
        }
    }

    /// When work in parts is done, of which all but the last end in a yield, and the budget of each
    /// period comes at its begin or at its end.
    fn done_with_yields(budget: u64, period: u64, parts: &[u64], early: &[bool]) -> u64 {
        let (mut number, mut left, mut done) = (0, budget, 0);
        for (index, &part) in parts.iter().enumerate() {
            let mut part = part;
            while part > 0 {
                if left == 0 {
                    (number, left) = (number + 1, budget);
                }
                let served = part.min(left);
                let from = if early[number as usize % early.len()] { 0 } else { period - budget };
                done = number * period + from + (budget - left) + served;
                (part, left) = (part - served, left - served);
            }
            if index + 1 < parts.len() {
                (number, left) = (number + 1, budget);
                done = number * period;
            }
        }
        done
    }

    proptest::proptest! {
        #[test]
        fn each_yield_costs_a_period_at_most(
            (period, budget) in (2u64..30).prop_flat_map(|period| (Just(period), 1..=period)),
            mut parts in proptest::collection::vec(0u64..40, 1..6),
            early in proptest::collection::vec(proptest::bool::ANY, 1..9),
        ) {
            *parts.last_mut().unwrap() += 1;
            let supply = Supply::new(budget, period, Enforcement::default(), u64::MAX).unwrap();
            let (work_ns, yields) = (parts.iter().sum(), parts.len() as u64 - 1);
            let load = Load { work_ns, suspended_ns: 0, suspensions: 0, yields };
            let done = done_with_yields(budget, period, &parts, &early);
            proptest::prop_assert!(done <= supply.done(load), "{done} > {}", supply.done(load));
        }
    }

    #[test]
    fn a_tick_is_paid_back_and_neighbours_pay_too() {
        let (ms, tick) = (1_000_000, Enforcement { granularity_ns: 4_000_000, neighbours: 0 });
        let supply = |budget, enforcement| Supply::new(budget, 10 * ms, enforcement, u64::MAX).unwrap();
        let anywhere = |budget, enforcement| supply(budget, enforcement).time_anywhere(1) / ms;
        assert_eq!(anywhere(ms / 2, Enforcement::default()), 19);
        assert_eq!(anywhere(ms / 2, tick), 4 + 171, "seen on Linux 6.18: 79, alone on its core");
        assert_eq!(anywhere(5 * ms, tick), 4 + 10);
        assert_eq!(supply(ms / 2, tick).time(1) / ms, 9, "the debt was time that came early");
        let two = Enforcement { neighbours: 2, ..tick };
        assert_eq!(supply(5 * ms, two).time(1) / ms, 5 + 8, "what neighbours overrun is lost");
        let many = Enforcement { neighbours: 3, ..tick };
        assert!(Supply::new(5 * ms, 10 * ms, many, u64::MAX).is_none(), "deadlines would move");
    }
}
