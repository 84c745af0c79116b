//! While somebody moves threads.
//!
//! Whoever changes policies, CPUs and budgets of running threads holds them up: caches are cold, a
//! thread waits for the CPU that it is moved to, and the middleware's threads with it. What is seen
//! then says nothing about what follows. So execution times, suspensions and deliveries of that
//! time are held against what was assumed, as all others are, but are no part of the model, except
//! where nothing else is known.

use rustc_hash::FxHashSet;

use super::Extractor;
use super::state::{CallbackState, ThreadState};
use super::suspend::{Ended, Keep};

/// Most threads of the middleware run within this after they were moved, and have worked off what
/// had come meanwhile.
const AFTER_NS: u64 = 50_000_000;
/// At most one part in so many of the time: most of what happens must be seen.
const SHARE: u64 = 10;

/// When threads were last moved.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    from_ns: u64,
    until_ns: u64,
    /// Moved threads that have not run since.
    threads: FxHashSet<usize>,
}

impl Unsettled {
    /// Whether something that lasted from then until then falls into it.
    #[inline]
    pub(super) fn holds(&self, from_ns: u64, to_ns: u64) -> bool {
        from_ns < self.until_ns && to_ns >= self.from_ns
    }

    /// The same of an activation on this thread, or it is the first one since.
    #[inline]
    pub(super) fn runs(&mut self, thread: usize, from_ns: u64, to_ns: u64) -> bool {
        if self.holds(from_ns, to_ns) {
            return true;
        }
        from_ns >= self.until_ns && !self.threads.is_empty() && self.threads.remove(&thread)
    }
}

impl Extractor {
    /// Threads were moved between these moments: others, or their reservations changed. `tids`:
    /// those that are known.
    pub fn moved(&mut self, from_ns: u64, to_ns: u64, tids: &[u32]) {
        let before = &self.unsettled;
        let took_ns = before.until_ns.saturating_sub(before.from_ns);
        if from_ns < before.until_ns.saturating_add(took_ns.saturating_mul(SHARE)) {
            return;
        }
        let of = |(slot, thread): (usize, &ThreadState)| tids.contains(&thread.tid).then_some(slot);
        let threads = self.tables.threads.iter().filter_map(of).collect();
        self.unsettled = Unsettled { from_ns, until_ns: to_ns.saturating_add(AFTER_NS), threads };
    }
}

impl CallbackState {
    /// An activation took so long.
    #[inline]
    pub(super) fn costs(&mut self, at_ns: u64, took_ns: u64, cpu_time: bool, unsettled: bool) {
        match (unsettled, &mut self.probable) {
            (false, Some(probable)) => probable.record(took_ns),
            (true, Some(probable)) => probable.gap(),
            (_, None) => {}
        }
        match unsettled {
            false => self.cost.record(at_ns, took_ns, cpu_time),
            true => self.cost.record_apart(at_ns, took_ns, cpu_time),
        }
    }

    /// It was off the CPU.
    #[inline]
    pub(super) fn suspends(&mut self, ended: Ended, keep: Keep, starting: bool, unsettled: bool) {
        // Of the first one nothing else is known.
        match unsettled && !starting && ended.number > 1 {
            false => self.suspensions.record(ended, keep, starting),
            true => self.suspensions.record_apart(ended, keep),
        }
    }
}
