//! An order among the executors of a core, kept by the periods of their reservations.
//!
//! The deadline of a thread with a reservation is its period after the last wake-up that gave it a
//! full budget, since where no budget runs out ([`super::shared`]) nothing else moves it. So one of
//! period `p` that wants to run has a deadline within `p` from now. Another one of period `P > p`
//! runs before it only on a deadline that is older than `g = P - p`. There is none such if
//!
//! - it never wants to run for as long as `g` without a break: no longer than `S`, the longest busy
//!   window of the core's executors up to its rank, with `S < g`, and
//! - no wake-up at an age of `t >= g - S` keeps the deadline. The kernel (`update_dl_entity`) keeps
//!   deadline and budget only if at least `t Q / P` of the budget was used since, which it is not
//!   where `Q` is above `P / t` times the longest that the thread runs within `t`
//!   ([`Analysis::most_work_ns`]). From the age `P` on the deadline is over, and none is kept.
//!   Reclaiming makes budgets last longer, so that fewer are kept.
//!
//! (Whoever runs at an age above `g` woke up last at an age of at least `g - S`, which began a new
//! deadline, or at an age of 0, at most `S` ago.) Then no executor of a higher rank runs while one
//! of a lower rank wants to, and all of [`super::shared`] and [`super::joint`] holds for a core
//! without those of higher ranks: `r` is the last moment at which nothing of `A` up to that rank is
//! pending, and from there on only these run.
//!
//! Ranks, not deadlines, are what bounds are made of: within a rank nothing is known of the order,
//! and deadlines may be missed. A rank costs bandwidth: a budget that suffices for a short period,
//! or never keeps a deadline, is a greater share of a core than what a long period needs.

use super::demand::CoreDemand;
use super::shared::Known;
use super::{Analysis, Solution};

/// The kernel compares budgets and deadlines in units of 1024 ns, and its clock is read a little
/// later than a thread wakes up.
const MARGIN_NS: u64 = 20_000;

/// Those that an executor must not run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Their longest period.
    pub period_ns: u64,
    /// The longest busy window of all up to its own rank ([`Analysis::pending_ns`]).
    pub pending_ns: u64,
}

impl Analysis<'_> {
    /// The longest time for which these executors of one core, which nobody else of it runs before,
    /// have something to do without a break; after [`Self::share`]. `None`: that is not known.
    #[must_use]
    pub fn pending_ns(&self, counts: &dyn Fn(usize) -> bool, solution: &Solution) -> Option<u64> {
        let known =
            Known { responses: &solution.responses, inside: &solution.arrivals, full: &self.shared_full };
        let (first_ns, more) = self.demand(known, counts, &[])?;
        CoreDemand::new(first_ns, more, self.horizon_ns).done_by(0)
    }

    /// The least budget per period that an executor's thread never uses up, and with which it does
    /// not run while one that is `ahead` wants to; `None`: there is none.
    #[must_use]
    pub fn ranked_budget_ns(
        &self,
        server: usize,
        period_ns: u64,
        ahead: Option<Ahead>,
        solution: &Solution,
    ) -> Option<u64> {
        let mut most = self.ample_budget_ns(server, period_ns, solution)?;
        if let Some(ahead) = ahead {
            let gap_ns = period_ns.checked_sub(ahead.period_ns)?;
            let mut age_ns = gap_ns.checked_sub(ahead.pending_ns).filter(|ns| *ns > MARGIN_NS)?;
            while age_ns < period_ns {
                let next_ns = (age_ns + age_ns / 8 + 1).min(period_ns);
                let work_ns = self.most_work_ns(server, next_ns, solution)?.saturating_add(MARGIN_NS);
                let budget = u128::from(work_ns) * u128::from(period_ns) / u128::from(age_ns) + 1;
                most = most.max(u64::try_from(budget).unwrap_or(u64::MAX));
                age_ns = next_ns;
            }
        }
        (most <= period_ns).then_some(most)
    }
}
