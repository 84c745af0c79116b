//! Waiting under a budget.

use serde::{Deserialize, Serialize};
use takt_rt::{clock, policy};

use crate::error::GpuError;

/// The driver's "not yet".
pub(crate) const NOT_READY: u32 = 600;

/// Between looks when waiting blocks. A look is a call of about 1 us: 2 % of a CPU, and at most 50
/// us late.
const STEP_NS: u64 = 50_000;

/// Waiting method of a thread for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Asks again and again: soonest, at the cost of a whole CPU. Under a real-time policy nothing
    /// else runs there meanwhile.
    Spin,
    /// As [`Wait::Spin`], but lets threads of the same priority run between (SCHED_FIFO, SCHED_RR).
    /// Under SCHED_DEADLINE it would give up the rest of the budget and under SCHED_OTHER its share
    /// of a whole rotation: there it spins.
    Yield,
    /// Sleeps between looks, 50 us each: costs next to nothing and comes up to 50 us late. A driver
    /// call that blocks knows no deadline, so this is no such call.
    #[default]
    Block,
}

/// Result of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after an overrun the work is still running"]
pub enum Waited {
    /// The work has ended.
    Done,
    /// The deadline came first. The work goes on: it cannot be cancelled, and what it uses stays
    /// taken until it ends.
    Overrun,
}

/// Asks `reached` until it is so or `deadline_ns` has passed; at least once, and once more after
/// the deadline, so that a thread that was kept from running does not take finished work for late.
pub(crate) fn until(
    deadline_ns: u64,
    wait: Wait,
    mut reached: impl FnMut() -> Result<bool, GpuError>,
) -> Result<Waited, GpuError> {
    let yields = wait == Wait::Yield && policy::by_fixed_priority();
    loop {
        let now_ns = clock::monotonic_ns();
        if reached()? {
            return Ok(Waited::Done);
        }
        if now_ns >= deadline_ns {
            return Ok(Waited::Overrun);
        }
        match wait {
            Wait::Block => clock::sleep_until(deadline_ns.min(now_ns + STEP_NS)),
            Wait::Yield if yields => std::thread::yield_now(),
            Wait::Spin | Wait::Yield => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_done_even_after_the_deadline() {
        for wait in [Wait::Spin, Wait::Yield, Wait::Block] {
            assert_eq!(until(0, wait, || Ok(true)), Ok(Waited::Done));
            assert_eq!(until(0, wait, || Ok(false)), Ok(Waited::Overrun));
            let mut looks = 0;
            let third = || {
                looks += 1;
                Ok(looks == 3)
            };
            assert_eq!(until(u64::MAX, wait, third), Ok(Waited::Done));
            assert_eq!(looks, 3);
        }
    }

    #[test]
    fn the_last_look_is_after_the_deadline() {
        let deadline_ns = clock::monotonic_ns() + 2_000_000;
        let mut last_ns = 0;
        let look = || {
            last_ns = clock::monotonic_ns();
            Ok(false)
        };
        assert_eq!(until(deadline_ns, Wait::Block, look), Ok(Waited::Overrun));
        assert!(last_ns >= deadline_ns);
    }

    #[test]
    fn a_failure_ends_waiting() {
        let lost = GpuError::Lost { code: 719, text: "launch failed" };
        assert_eq!(until(u64::MAX, Wait::Spin, || Err(lost.clone())), Err(lost.clone()));
    }
}
