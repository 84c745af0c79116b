//! When a timer was released: its starts are late, its releases are not.
//!
//! `rcl_timer_call` moves the next call on by the period, and where that has passed already, by as many periods as bring it into the
//! future. Releases are a grid with holes, and its phase is what the least late start shows.

/// How many starts the least lateness is looked for in, before the phase may move later (a timer that was reset). Many, because an overload
/// makes all starts late for a while, and that must not be taken for a new phase.
const STARTS: u32 = 512;

#[derive(Debug, Clone)]
pub(crate) struct TimerGrid {
    period_ns: u64,
    next_ns: Option<u64>,
    least_late_ns: u64,
    starts: u32,
}

impl TimerGrid {
    pub(crate) fn new(period_ns: u64) -> Self {
        Self { period_ns: period_ns.max(1), next_ns: None, least_late_ns: u64::MAX, starts: 0 }
    }

    /// A start: returns when it was released.
    pub(crate) fn start(&mut self, at_ns: u64) -> u64 {
        let mut release = self.next_ns.unwrap_or(at_ns);
        let late = match at_ns.checked_sub(release) {
            Some(late) => late,
            None => {
                // Earlier than the grid allows: the phase was too late.
                (self.least_late_ns, self.starts) = (0, 0);
                release = at_ns;
                0
            }
        };
        self.least_late_ns = self.least_late_ns.min(late);
        self.starts += 1;
        let mut next = release.saturating_add(self.period_ns);
        if next < at_ns {
            next =
                next.saturating_add((at_ns - next).div_ceil(self.period_ns).saturating_mul(self.period_ns));
        }
        if self.starts == STARTS {
            // Never less late than this: the grid has moved.
            next = next.saturating_add(self.least_late_ns);
            (self.least_late_ns, self.starts) = (u64::MAX, 0);
        }
        self.next_ns = Some(next);
        release
    }

    /// Releases are unknown from here on.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.period_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_starts_keep_their_releases() {
        let mut grid = TimerGrid::new(100);
        let starts = [1005, 1100, 1230, 1300, 1400];
        let releases: Vec<u64> = starts.map(|at| grid.start(at)).to_vec();
        // The phase is learnt at the second start.
        assert_eq!(releases, [1005, 1100, 1200, 1300, 1400]);
    }

    #[test]
    fn skipped_periods_keep_the_first_release() {
        let mut grid = TimerGrid::new(100);
        assert_eq!(grid.start(1000), 1000);
        // Released at 1100, called at 1350: 1200 and 1300 are skipped.
        assert_eq!(grid.start(1350), 1100);
        assert_eq!(grid.start(1400), 1400);
    }

    #[test]
    fn a_reset_timer_is_found_again() {
        let mut grid = TimerGrid::new(100);
        grid.start(1000);
        let mut last = 0;
        for k in 1..2000 {
            last = 1030 + 100 * k - grid.start(1030 + 100 * k);
        }
        assert_eq!(last, 0);
        let mut grid = TimerGrid::new(u64::MAX);
        grid.start(u64::MAX);
        grid.start(0);
    }
}
