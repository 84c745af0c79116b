//! When a timer was released: its starts are late, its releases are not.
//!
//! `rcl_timer_init` sets the first call one period ahead, `rcl_timer_call` moves the next call on
//! by the period, and where that has passed already, by as many periods as bring it into the
//! future. Releases are a grid with holes. Its phase comes from the timer's creation; where that
//! was missed, from the least late start.

/// After so many starts straight out of waiting, all late by some time, the grid has moved by that
/// time: the timer was reset. Only such starts count, since others may be late because of other
/// callbacks, and many of them, because an overload makes all late for a while. And all of them
/// equally late, within [`SAME_NS`]: what else holds a thread up after its wake-up (a neighbour on
/// its CPU) is never twice the same.
const STARTS: u32 = 256;
/// How far wake-ups out of nothing lie apart: some timer slack and interrupts.
const SAME_NS: u64 = 200_000;

#[derive(Debug, Clone)]
pub(crate) struct TimerGrid {
    period_ns: u64,
    next_ns: Option<u64>,
    least_late_ns: u64,
    most_late_ns: u64,
    starts: u32,
    /// Releases passed over by the last start, that are reported once the next start shows that the
    /// grid has stayed.
    open: Option<Passed>,
    /// Releases that never ran, and are known to have been due.
    passed_over: Option<Passed>,
    /// Releases before a gap that had not run when it began, and the gap's beginning.
    before_gap: Option<(Passed, u64)>,
    /// The same, known to have been due.
    passed_before: Option<(Passed, u64)>,
    /// The end of a gap after which nothing has started yet.
    resumed_ns: Option<u64>,
}

/// Releases of the grid that no start belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub first_ns: u64,
    pub count: u64,
    /// The start that came after them.
    started_ns: u64,
}

impl TimerGrid {
    pub(crate) fn new(period_ns: u64, created_ns: Option<u64>) -> Self {
        let next_ns = created_ns.map(|created_ns| created_ns.saturating_add(period_ns));
        Self {
            period_ns: period_ns.max(1),
            next_ns,
            least_late_ns: u64::MAX,
            most_late_ns: 0,
            starts: 0,
            open: None,
            passed_over: None,
            before_gap: None,
            passed_before: None,
            resumed_ns: None,
        }
    }

    /// Nothing was recorded from `from_ns` to `to_ns`. The grid goes on: what a timer does in
    /// between seldom changes its phase, and the first start afterwards shows whether it did.
    pub(crate) fn gap(&mut self, from_ns: u64, to_ns: u64) {
        let first_gap = self.resumed_ns.replace(to_ns).is_none();
        (self.least_late_ns, self.most_late_ns, self.starts) = (u64::MAX, 0, 0);
        let Some(next_ns) = self.next_ns else { return };
        if next_ns < from_ns && first_gap {
            let count = (from_ns - next_ns).div_ceil(self.period_ns);
            self.before_gap = Some((Passed { first_ns: next_ns, count, started_ns: 0 }, from_ns));
        }
        if next_ns < to_ns {
            let periods = (to_ns - next_ns).div_ceil(self.period_ns);
            self.next_ns = Some(next_ns.saturating_add(periods.saturating_mul(self.period_ns)));
        }
    }

    /// The first start after a gap: whether its release is known. It is one of before the end of
    /// the gap, or the thread may have been busy with one, unless the thread has waited since.
    fn resume(&mut self, at_ns: u64, waited: bool) -> bool {
        let Some(next_ns) = self.next_ns else { return waited };
        let before_gap = self.before_gap.take();
        let tolerance_ns = (self.period_ns / 8).min(1_000_000);
        let since_ns = next_ns.saturating_sub(self.period_ns);
        let late_ns = at_ns.saturating_sub(since_ns) % self.period_ns;
        if !waited {
            // The grid stays where it was until starts say otherwise.
            if next_ns <= at_ns {
                let periods = (at_ns - next_ns) / self.period_ns + 1;
                self.next_ns = Some(next_ns.saturating_add(periods.saturating_mul(self.period_ns)));
            }
            return false;
        }
        if late_ns > tolerance_ns {
            // Reset meanwhile, so that nothing is known of the releases before either.
            self.forget();
            return true;
        }
        self.passed_before = before_gap;
        at_ns >= next_ns
    }

    /// A start: returns when it was released; `None`: nobody knows, because nothing was recorded
    /// then. `waited_ns` is when the thread last began to wait, if it has not run anything since.
    pub(crate) fn start(&mut self, at_ns: u64, waited_ns: Option<u64>) -> Option<u64> {
        if self.resumed_ns.take().is_some() && !self.resume(at_ns, waited_ns.is_some()) {
            return None;
        }
        Some(self.release(at_ns, waited_ns))
    }

    fn release(&mut self, at_ns: u64, waited_ns: Option<u64>) -> u64 {
        self.confirm(at_ns, waited_ns.is_some());
        let expected_ns = self.next_ns.unwrap_or(at_ns);
        let mut release = expected_ns;
        // What was due when the thread began to wait would not have let it wait. So a release in
        // between is the one, whatever the grid says: a call that skipped periods close to a
        // boundary can leave it a period behind.
        let tolerance_ns = (self.period_ns / 8).min(1_000_000);
        if let Some(waited_ns) = waited_ns.map(|waited_ns| waited_ns.saturating_sub(tolerance_ns))
            && expected_ns < waited_ns
        {
            let periods = (waited_ns - expected_ns).div_ceil(self.period_ns);
            let after_wait_ns = expected_ns.saturating_add(periods.saturating_mul(self.period_ns));
            if after_wait_ns <= at_ns.saturating_add(tolerance_ns) {
                release = after_wait_ns;
            }
        }
        let late = match at_ns.checked_sub(release) {
            Some(late) => late,
            None => {
                // Earlier than the grid allows: the phase was too late.
                (self.least_late_ns, self.most_late_ns, self.starts) = (0, 0, 0);
                release = at_ns;
                0
            }
        };
        if waited_ns.is_some() {
            self.least_late_ns = self.least_late_ns.min(late);
            self.most_late_ns = self.most_late_ns.max(late);
            self.starts += 1;
        }
        let mut next = release.saturating_add(self.period_ns);
        if next < at_ns {
            let count = (at_ns - next).div_ceil(self.period_ns);
            self.open = Some(Passed { first_ns: next, count, started_ns: at_ns });
            next = next.saturating_add(count.saturating_mul(self.period_ns));
        }
        if self.starts == STARTS {
            // Never less late than this: the grid has moved.
            if self.most_late_ns - self.least_late_ns <= SAME_NS {
                next = next.saturating_add(self.least_late_ns);
            }
            (self.least_late_ns, self.most_late_ns, self.starts) = (u64::MAX, 0, 0);
        }
        self.next_ns = Some(next);
        release
    }

    /// Decides about releases that the last start passed over. Of a timer that was cancelled and
    /// started again, or reset, none was due: its next start comes a period after that start, and
    /// not where the grid has it. Only a start straight out of waiting says so: where the executor
    /// has more to do than it can, starts a period apart are chance.
    fn confirm(&mut self, at_ns: u64, waited: bool) {
        let (Some(passed), Some(expected_ns)) = (self.open.take(), self.next_ns) else { return };
        let tolerance_ns = (self.period_ns / 8).min(1_000_000);
        let again_ns = passed.started_ns.saturating_add(self.period_ns);
        let phase_ns = at_ns.abs_diff(expected_ns) % self.period_ns;
        let on_grid = phase_ns.min(self.period_ns - phase_ns) <= tolerance_ns;
        let moved = waited && at_ns.abs_diff(again_ns) <= tolerance_ns && !on_grid;
        if moved {
            self.next_ns = Some(again_ns);
        } else {
            self.passed_over = Some(passed);
        }
    }

    /// Releases that never ran, known since the last call. With a time, nothing was recorded from
    /// then on: the first of them may have run after it.
    pub(crate) fn passed(&mut self) -> impl Iterator<Item = (Passed, Option<u64>)> + use<> {
        let before = self.passed_before.take().map(|(passed, until_ns)| (passed, Some(until_ns)));
        before.into_iter().chain(self.passed_over.take().map(|passed| (passed, None)))
    }

    pub(crate) fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The next release; `None`: not known, or not since a gap.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next_ns.filter(|_| self.resumed_ns.is_none())
    }

    /// Releases are unknown from here on.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.period_ns, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_starts_keep_their_releases() {
        let mut grid = TimerGrid::new(100, None);
        let starts = [1005, 1100, 1230, 1300, 1400];
        let releases: Vec<u64> = starts.map(|at| grid.release(at, None)).to_vec();
        // The phase is learnt at the second start.
        assert_eq!(releases, [1005, 1100, 1200, 1300, 1400]);
    }

    #[test]
    fn skipped_periods_keep_the_first_release() {
        let mut grid = TimerGrid::new(100, None);
        assert_eq!(grid.release(1000, None), 1000);
        // Released at 1100, called at 1350: 1200 and 1300 are skipped.
        assert_eq!(grid.release(1350, None), 1100);
        assert_eq!(grid.release(1400, None), 1400);
    }

    #[test]
    fn releases_that_never_ran_are_reported_when_the_grid_has_stayed() {
        let mut grid = TimerGrid::new(100, Some(0));
        for at in [100, 200, 300] {
            grid.release(at, None);
        }
        // Frozen from 310 to 955: due at 400, called at 955; 500 to 900 never ran.
        assert_eq!((grid.release(955, Some(305)), grid.passed().next()), (400, None));
        assert_eq!(grid.release(1000, Some(960)), 1000);
        let (passed, _) = grid.passed().next().unwrap();
        assert_eq!((passed.first_ns, passed.count, grid.passed().next()), (500, 5, None));
        // Cancelled, and reset at 1855: the grid moves with it, and nothing was due.
        assert_eq!(grid.release(1955, Some(1300)), 1300);
        grid.release(2055, Some(1960));
        assert_eq!((grid.passed().next(), grid.release(2155, Some(2060))), (None, 2155));
    }

    #[test]
    fn the_creation_gives_the_phase_even_if_all_starts_are_late() {
        let mut grid = TimerGrid::new(100, Some(900));
        for k in 0..2000 {
            assert_eq!(grid.release(1040 + 100 * k, None), 1000 + 100 * k);
        }
    }

    #[test]
    fn starts_a_period_apart_are_chance_where_the_executor_never_waits() {
        let mut grid = TimerGrid::new(1000, Some(0));
        assert_eq!(grid.release(1000, None), 1000);
        // Released at 2000, called at 3300: 3000 never ran. The next call comes a period after that
        // one, and is that of 4000.
        assert_eq!(grid.release(3300, None), 2000);
        assert_eq!(grid.release(4300, None), 4000);
        assert_eq!(grid.passed().next().map(|(passed, _)| (passed.first_ns, passed.count)), Some((3000, 1)));
    }

    #[test]
    fn a_grid_a_period_behind_catches_up_when_the_thread_waits() {
        let mut grid = TimerGrid::new(100, Some(0));
        // Due at 100, called at 299.9, which to the timer was 300: 300 is skipped, and the grid
        // does not know it.
        assert_eq!(grid.release(299, None), 100);
        assert_eq!(grid.release(400, Some(330)), 400);
        // A release before the wait, and none in it: a callback of another came first.
        assert_eq!(grid.release(530, Some(520)), 500);
    }

    fn passed(grid: &mut TimerGrid) -> Vec<(u64, u64, Option<u64>)> {
        grid.passed().map(|(passed, until_ns)| (passed.first_ns, passed.count, until_ns)).collect()
    }

    #[test]
    fn nothing_is_passed_over_while_nothing_is_recorded() {
        let mut grid = TimerGrid::new(100, Some(0));
        assert_eq!(grid.start(100, Some(50)), Some(100));
        grid.gap(150, 2230);
        // Released at 2300, after the gap: the thread has waited since.
        assert_eq!((grid.start(2301, Some(2250)), passed(&mut grid)), (Some(2300), vec![]));
        assert_eq!(grid.start(2403, Some(2310)), Some(2400));
        // What was due at the gap's end is not known of.
        grid.gap(2450, 2795);
        assert_eq!((grid.start(2796, None), passed(&mut grid)), (None, vec![]));
        assert_eq!((grid.start(2890, None), passed(&mut grid)), (Some(2800), vec![]));
    }

    #[test]
    fn releases_that_passed_before_a_gap_are_known() {
        let mut grid = TimerGrid::new(100, Some(0));
        assert_eq!(grid.start(100, Some(50)), Some(100));
        // 200 to 900 were due before the recording stopped.
        grid.gap(950, 2230);
        assert_eq!(grid.start(2301, Some(2250)), Some(2300));
        assert_eq!(passed(&mut grid), [(200, 8, Some(950))]);
        // Reset during the second gap: then nothing is known of those before it either.
        grid.gap(2650, 3000);
        assert_eq!((grid.start(3044, Some(3010)), passed(&mut grid)), (Some(3044), vec![]));
        assert_eq!(grid.start(3145, Some(3100)), Some(3144));
    }

    #[test]
    fn a_timer_made_before_the_recording_begins_is_not_late() {
        let mut grid = TimerGrid::new(100, Some(40));
        grid.gap(0, 5000);
        assert_eq!((grid.start(5041, Some(5005)), passed(&mut grid)), (Some(5040), vec![]));
        grid = TimerGrid::new(100, Some(40));
        grid.gap(0, 5000);
        grid.gap(5010, 5100);
        assert_eq!((grid.start(5130, None), passed(&mut grid)), (None, vec![]));
    }

    #[test]
    fn a_reset_timer_is_found_again() {
        let mut grid = TimerGrid::new(100, None);
        grid.release(1000, None);
        let mut last = 0;
        for k in 1..2000 {
            last = 1030 + 100 * k - grid.release(1030 + 100 * k, Some(1025 + 100 * k));
        }
        assert_eq!(last, 0);
        let mut grid = TimerGrid::new(u64::MAX, Some(7));
        grid.release(u64::MAX, Some(3));
        grid.release(0, Some(u64::MAX));
    }
}
