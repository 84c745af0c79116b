//! The semantics of `rclcpp`'s single-threaded executor, as Casini et al. (ECRTS 2019) describe
//! them: a wait set is filled at polling points only; timers come before subscriptions, each in the
//! order of registration; a callback runs to its end; each ready subscription is served once for
//! each polling point.

use crate::tracepoints::trace;
use takt_rt::clock::monotonic_ns;

/// Callbacks of an executor.
pub trait Served {
    /// Waits until something is there or the time has come, and says which subscriptions have a
    /// message.
    fn wait(&mut self, until_ns: u64, ready: &mut Vec<bool>);
    /// Runs a timer's callback for a release.
    fn timer(&mut self, index: usize, release_ns: u64);
    /// Takes a message of a subscription and runs its callback.
    fn subscription(&mut self, index: usize);
}

/// A timer on its own grid, as `rcl_timer_t` keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The next release.
    pub next_ns: u64,
    pub period_ns: u64,
}

impl Timer {
    /// A timer made at one moment whose executor serves it from another on: its first release is
    /// the first on its grid from there.
    #[must_use]
    pub fn on_grid(made_ns: u64, period_ns: u64, from_ns: u64) -> Self {
        let period_ns = period_ns.max(1);
        let periods = from_ns.saturating_sub(made_ns).div_ceil(period_ns).max(1);
        Self { next_ns: made_ns + periods * period_ns, period_ns }
    }

    /// The release that is due, if any; then it moves on: by one period, or to the first release
    /// after now when it has fallen behind by more than one (as `rcl_timer_call` does).
    pub fn call(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            return None;
        }
        let release_ns = self.next_ns;
        self.next_ns += self.period_ns;
        if self.next_ns < now_ns {
            let behind = (now_ns - self.next_ns).div_ceil(self.period_ns.max(1));
            self.next_ns += behind * self.period_ns;
        }
        Some(release_ns)
    }
}

/// Next callback to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// And its release.
    Timer(usize, u64),
    Subscription(usize),
}

/// The executor of one thread.
#[derive(Debug)]
pub struct Executor {
    timers: Vec<Timer>,
    /// The wait set's answer at the last polling point, less what was served since.
    ready: Vec<bool>,
}

impl Executor {
    /// An executor of these timers; subscriptions are known by their index.
    #[must_use]
    pub fn new(timers: Vec<Timer>) -> Self {
        Self { timers, ready: Vec::new() }
    }

    /// Serves until `end_ns`. A callback that runs then is finished.
    pub fn spin(&mut self, served: &mut dyn Served, end_ns: u64) {
        while monotonic_ns() < end_ns {
            trace().rclcpp_executor_get_next_ready();
            match self.next(monotonic_ns()) {
                Some(Next::Timer(index, release_ns)) => served.timer(index, release_ns),
                Some(Next::Subscription(index)) => served.subscription(index),
                None => {
                    let due_ns = self.timers.iter().map(|timer| timer.next_ns).min().unwrap_or(u64::MAX);
                    let until_ns = due_ns.min(end_ns);
                    trace().rclcpp_executor_wait_for_work(
                        i64::try_from(until_ns.saturating_sub(monotonic_ns())).unwrap_or(i64::MAX),
                    );
                    served.wait(until_ns, &mut self.ready);
                }
            }
        }
    }

    fn next(&mut self, now_ns: u64) -> Option<Next> {
        let mut timers = self.timers.iter_mut().enumerate();
        if let Some((index, release_ns)) =
            timers.find_map(|(index, timer)| Some((index, timer.call(now_ns)?)))
        {
            return Some(Next::Timer(index, release_ns));
        }
        let index = self.ready.iter().position(|ready| *ready)?;
        if let Some(ready) = self.ready.get_mut(index) {
            *ready = false;
        }
        Some(Next::Subscription(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_fell_behind_skips_and_keeps_its_grid() {
        let mut timer = Timer { next_ns: 100, period_ns: 10 };
        assert_eq!(timer.call(99), None);
        assert_eq!(timer.call(100), Some(100));
        assert_eq!(timer.next_ns, 110);
        assert_eq!(timer.call(145), Some(110));
        assert_eq!(timer.next_ns, 150, "120 to 140 are skipped");
        assert_eq!(timer.call(150), Some(150), "a release at this very moment is due");
    }

    #[test]
    fn releases_lie_on_the_grid_from_the_timers_making() {
        assert_eq!(Timer::on_grid(100, 10, 100).next_ns, 110, "a period after it was made at the earliest");
        assert_eq!(Timer::on_grid(100, 10, 135).next_ns, 140);
        assert_eq!(Timer::on_grid(100, 10, 140).next_ns, 140);
    }

    #[test]
    fn timers_come_first_and_a_message_waits_for_the_next_polling_point() {
        let mut executor =
            Executor::new(vec![Timer { next_ns: 50, period_ns: 100 }, Timer { next_ns: 10, period_ns: 100 }]);
        executor.ready = vec![true, false, true];
        assert_eq!(executor.next(0), Some(Next::Subscription(0)));
        assert_eq!(executor.next(60), Some(Next::Timer(0, 50)), "registered first");
        assert_eq!(executor.next(60), Some(Next::Timer(1, 10)));
        assert_eq!(executor.next(60), Some(Next::Subscription(2)));
        assert_eq!(executor.next(60), None, "whatever came since is seen at the next polling point");
    }
}
