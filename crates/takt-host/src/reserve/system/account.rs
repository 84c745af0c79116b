//! The kernel's account of reserved bandwidth, one sum for each root domain, and how it is kept
//! right.
//!
//! A reserved thread's share leaves the sum when its reservation ends, but not at once
//! (`kernel/sched/deadline.c`):
//!
//! - Of one that **runs or waits** it leaves by a timer at the zero-lag time, up to a period later
//!   and more where it was in debt. When the domains are built anew meanwhile (since 6.17 also by
//!   every write of `sched_rt_runtime_us`), the sum is counted anew from the threads that have a
//!   reservation now, and then the timer takes away what is not in it: the sum becomes negative,
//!   which as an unsigned number is so great that every reservation is refused (EBUSY) until it is
//!   counted anew. Measured on 6.18: -0.8 CPUs.
//! - Of one that **sleeps** and whose zero-lag time has passed it never leaves (measured on 6.18:
//!   0.2 CPUs for good).
//!
//! A reservation that changes is taken out and put in at once, however. So that of a sleeper is
//! changed to one that weighs nothing before it ends ([`weightless`]): what stays is nothing. A
//! thread that runs is left to its timer, and so is one that dies with its reservation; undoing
//! waits until their zero-lag time has passed ([`Account::longest`]) before it does what has the
//! kernel count anew.

use std::io;
use std::time::Duration;

use super::Attributes;

/// The least budget that is accepted in a period so long that the kernel's unit of bandwidth, 2^-20
/// CPUs, rounds it down to nothing: longer than 1.074 s, and shorter than the greatest that is
/// accepted (`sched_deadline_period_max_us`, 4.19 s by default).
pub(super) fn weightless() -> Attributes {
    Attributes::reservation(crate::reserve::MIN_BUDGET_NS, 1_100_000_000, false)
}

/// Zero-lag time of a thread of another process, of which nothing is known: a manager that was
/// killed had fillers, of 100 ms.
const UNKNOWN: Duration = Duration::from_millis(200);
/// Longer than this nobody waits for an account.
const LONGEST: Duration = Duration::from_secs(1);

/// Knowledge about the reservations given.
#[derive(Debug, Default)]
pub(super) struct Account {
    longest: Option<Duration>,
    leaving: bool,
    wrong: bool,
}

impl Account {
    pub fn given(&mut self, reservation: &Attributes, tick_ns: u64) {
        // On ticks a thread gets into debt by up to a tick, which it pays back out of its budgets.
        let periods = 1.0 + tick_ns as f64 / reservation.runtime_ns.max(1) as f64;
        let span = Duration::from_secs_f64((periods * reservation.period_ns as f64 / 1e9).clamp(0.0, 1e3));
        self.longest = self.longest.max(Some(span));
    }

    /// A reservation ends whose thread runs.
    pub fn leaves(&mut self) {
        self.leaving = true;
    }

    /// Whether one has ended so; asked once.
    pub(crate) fn take_leaving(&mut self) -> bool {
        std::mem::take(&mut self.leaving)
    }

    /// A reservation was made weightless, or that was refused.
    pub fn emptied(&mut self, outcome: io::Result<()>) {
        self.wrong |= outcome.is_err();
    }

    /// After this a thread that died just now is out of the account.
    pub fn longest(&self) -> Duration {
        self.longest.unwrap_or(UNKNOWN).min(LONGEST)
    }

    /// Whether something may have stayed in the account; asked once.
    pub(crate) fn take_wrong(&mut self) -> bool {
        std::mem::take(&mut self.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserve::system::ratio;

    #[test]
    fn what_ends_a_reservation_weighs_nothing() {
        let weightless = weightless();
        assert_eq!(ratio(weightless.runtime_ns, weightless.period_ns), 0);
    }

    #[test]
    fn debts_are_waited_for_but_not_for_ever() {
        let mut account = Account::default();
        account.given(&Attributes::reservation(500_000, 10_000_000, false), 4_000_000);
        assert_eq!(account.longest(), Duration::from_millis(90));
        account.given(&Attributes::reservation(1024, 100_000_000, false), 4_000_000);
        assert_eq!(account.longest(), LONGEST);
    }
}
