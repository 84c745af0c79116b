//! What the kernel's SCHED_DEADLINE supplies to one thread, budgets enforced exactly or at ticks.
//!
//! **Exact enforcement** (`HRTICK_DL`). A reservation of budget `Q` and period `P` is the periodic resource of Shin and Lee (RTSS 2003):
//! work `x` of a thread that stays ready takes at most
//!
//! ```text
//! T(x) = x + (P - Q) (1 + ceil(x / Q))
//! ```
//!
//! **Enforcement at ticks.** Without `HRTICK_DL` the kernel looks at the budget when the tick comes, so that a thread runs on for up to a tick
//! `e`. It is then throttled until its deadline, where `replenish_dl_entity` adds budgets *and periods* until the debt is paid.
//! Let `d0` be the deadline that a throttled thread waits for and `o <= e` its debt. By the deadline `d0 + n P` of each later period it has received at least
//! `n Q - o`: a replenishment of `k` budgets postpones the deadline by `k` periods, `k` being the least with `k Q > o`, so
//! nothing is owed at the deadlines that it skips, and what it ran too much counts as received early. So `x` is done by
//! `d0 + n (P - Q) + x + o` with `n = ceil((x + o) / Q)`. The wait for `d0` is longest when the debt before was a whole tick and
//! everything was received at once: `k (P - Q) + e - o` with `k <= floor(e / Q) + 1`. Together
//!
//! ```text
//! T(x) = x + e + (P - Q) (1 + floor(e / Q) + ceil((x + e) / Q))
//! ```
//!
//! With 0.5 ms in 10 ms and ticks of 4 ms that is 175 ms for the first nanosecond, where the formula without ticks says 19: a budget below a
//! tick is worth little, and one above it costs no more than a tick of work.
//!
//! **Neighbours.** On the same core others run on for up to a tick each. What they run too much is at most their debts, each at most
//! `e`, so that a budget that is due by a deadline comes by `D` later, `D = e` times the number of others (earliest deadline first: the
//! demand of each in any interval grows by at most its debt). The kernel's grid of deadlines stays as long as `D < P`; for more there is no bound.
//!
//! **Self-suspension** (a sleep, a lock, a device inside of a callback). At each wake-up the kernel keeps budget and deadline, or postpones the deadline to a period
//! from now with a full budget, if the rest would exceed the bandwidth. While they are kept, the argument above goes on as if
//! nothing had happened. Each postponement begins anew: work `x` from there takes at most `x + (P - Q) ceil(x / Q) + D`. As
//! `ceil(a) + ceil(b) <= ceil(a + b) + 1`, work `x` in several parts with `m` suspensions between, of length `s` together, takes at most
//!
//! ```text
//! T(x) + s + m (P - Q + D)
//! ```
//!
//! This is suspension-oblivious analysis (Chen and others, "Many suspensions, many problems", Real-Time Systems 55, 2019) but for one thing:
//! the time of suspension is not taken from the budget, so it is added as time and not as demand.

use super::Load;

/// A reservation as the kernel keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply {
    budget_ns: u64,
    period_ns: u64,
    /// Granularity of enforcement.
    tick_ns: u64,
    /// By how much others on the core may delay what is due.
    delay_ns: u64,
    /// Response times beyond count as unbounded.
    pub limit_ns: u64,
}

/// How exactly budgets are enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// A thread runs on for up to so long after its budget; 0: exact.
    pub granularity_ns: u64,
    /// Reservations on one core at most, other than the one looked at.
    pub neighbours: u64,
}

impl Supply {
    /// `None`: too little to be of use, or no bound is known.
    pub fn new(budget_ns: u64, period_ns: u64, enforcement: Enforcement, limit_ns: u64) -> Option<Self> {
        let budget_ns = budget_ns.min(period_ns);
        let tick_ns = enforcement.granularity_ns;
        let delay_ns = tick_ns.saturating_mul(enforcement.neighbours);
        // Below a ten-thousandth of the period nothing useful is supplied, and products of times could overflow.
        let useful = budget_ns > 0 && budget_ns >= period_ns / 10_000;
        (useful && (delay_ns == 0 || delay_ns < period_ns)).then_some(Self {
            budget_ns,
            period_ns,
            tick_ns,
            delay_ns,
            limit_ns,
        })
    }

    /// The longest time in which so much work is done.
    pub fn time(&self, work_ns: u64) -> u64 {
        if work_ns == 0 {
            return 0;
        }
        let work = work_ns.saturating_add(self.tick_ns);
        let periods = 1 + self.tick_ns / self.budget_ns + work.div_ceil(self.budget_ns);
        work.saturating_add((self.period_ns - self.budget_ns).saturating_mul(periods))
            .saturating_add(self.delay_ns)
    }

    /// What one suspension costs beside its length.
    fn wake_up_ns(&self) -> u64 {
        self.period_ns - self.budget_ns + self.delay_ns
    }

    /// The longest time in which a load is done.
    pub fn done(&self, load: Load) -> u64 {
        if load.suspensions == 0 {
            return self.time(load.work_ns);
        }
        self.time(load.work_ns.max(1))
            .saturating_add(load.suspended_ns)
            .saturating_add(self.wake_up_ns().saturating_mul(load.suspensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use response_time_analysis::supply::{Periodic, SupplyBound};
    use response_time_analysis::time::{Duration, Service};

    #[test]
    fn exact_enforcement_is_the_periodic_resource() {
        for (budget, period) in [(1, 10), (3, 5), (7, 7), (4, 9)] {
            let ours = Supply::new(budget, period, Enforcement::default(), 1000).unwrap();
            let theirs = Periodic::new(Service::from(budget), Duration::from(period));
            for work in 0..60 {
                assert_eq!(Duration::from(ours.time(work)), theirs.service_time(Service::from(work)));
            }
        }
    }

    #[test]
    fn a_tick_costs_its_length_and_small_budgets_much_more() {
        let (ms, tick) = (1_000_000, Enforcement { granularity_ns: 4_000_000, neighbours: 0 });
        let time = |budget, period, enforcement| {
            Supply::new(budget, period, enforcement, u64::MAX).unwrap().time(1) / ms
        };
        assert_eq!(time(ms / 2, 10 * ms, Enforcement::default()), 19);
        assert_eq!(time(ms / 2, 10 * ms, tick), 4 + 171, "seen on Linux 6.18: 79, alone on its core");
        assert_eq!(time(5 * ms, 10 * ms, tick), 4 + 10);
        let two = Enforcement { neighbours: 2, ..tick };
        assert_eq!(time(5 * ms, 10 * ms, two), 4 + 10 + 8);
        let many = Enforcement { neighbours: 3, ..tick };
        assert!(Supply::new(5 * ms, 10 * ms, many, u64::MAX).is_none(), "deadlines would move");
    }
}
