//! The periodic loop: absolute releases on a grid that no overrun moves, and two ways to sleep to
//! them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{clock, policy};

/// Method by which a loop waits for its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SleepStrategy {
    /// `clock_nanosleep` to the release: the CPU is free meanwhile, and the wake-up adds its
    /// latency.
    #[default]
    Kernel,
    /// Sleeps until `margin` before the release and spins the rest: lateness falls to the clock's
    /// reading time as long as wake-ups take less than the margin, at the price of a CPU busy for
    /// the margin per cycle.
    Spin {
        /// Time between the end of the sleep and the release.
        #[serde(with = "crate::duration", default = "default_margin")]
        margin: Duration,
    },
}

/// Margin of the spinning sleep unless set or [calibrated](calibrate_margin): 50 µs, several times
/// the usual wake-up latency of a tuned machine.
pub const DEFAULT_MARGIN: Duration = Duration::from_micros(50);

fn default_margin() -> Duration {
    DEFAULT_MARGIN
}

impl SleepStrategy {
    /// The spinning sleep with [`DEFAULT_MARGIN`].
    pub fn spin() -> Self {
        Self::Spin { margin: DEFAULT_MARGIN }
    }

    /// Waits until `deadline_ns` of CLOCK_MONOTONIC and returns the time then. When the deadline
    /// has passed and the thread runs under SCHED_FIFO or SCHED_RR it lets others of its priority
    /// run first ([`policy::yield_to_equals`]), so that a loop that is always late cannot starve
    /// them; under the other policies it goes on at once, as a plain `clock_nanosleep` loop does.
    pub fn sleep_until(self, deadline_ns: u64) -> u64 {
        let margin_ns = match self {
            Self::Kernel => 0,
            Self::Spin { margin } => u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX),
        };
        let wake_ns = deadline_ns.saturating_sub(margin_ns);
        let mut now_ns = clock::monotonic_ns();
        if now_ns < wake_ns {
            clock::sleep_until(wake_ns);
            now_ns = clock::monotonic_ns();
        } else {
            policy::yield_to_equals();
            now_ns = clock::monotonic_ns().max(now_ns);
        }
        while now_ns < deadline_ns {
            std::hint::spin_loop();
            now_ns = clock::monotonic_ns();
        }
        now_ns
    }
}

/// One release of a periodic loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Number of this release on the grid, from 0; skipped ones count.
    pub index: u64,
    /// When it was planned: `first + index * period`, exactly, but for what [`Periodic::shift`]
    /// moved.
    pub planned_ns: u64,
    /// When the loop was awake for it.
    pub wake_ns: u64,
    /// Releases passed over since the one before, because the job before overran them.
    pub skipped: u64,
}

impl Release {
    /// Lateness of the wake-up.
    pub fn lateness_ns(&self) -> u64 {
        self.wake_ns.saturating_sub(self.planned_ns)
    }
}

/// A grid of releases, and the place of a loop on it.
///
/// ```
/// # use std::time::Duration;
/// # use takt_rt::periodic::{Periodic, SleepStrategy};
/// let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel)?;
/// for _ in 0..3 {
///     let release = periodic.next();
///     // the job; `release.planned_ns` is the base of its lateness and response time
/// }
/// # Ok::<(), takt_rt::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Periodic {
    first_ns: u64,
    period_ns: u64,
    /// Index of the next release.
    next: u64,
    sleep: SleepStrategy,
    skipped: u64,
    overruns: u64,
}

impl Periodic {
    /// A grid whose release 0 is at `first_release_ns` of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`Error::InvalidPeriod`] for a period of zero or beyond 292 years.
    pub fn new(first_release_ns: u64, period: Duration, sleep: SleepStrategy) -> Result<Self, Error> {
        match u64::try_from(period.as_nanos()) {
            Ok(period_ns @ 1..) if period_ns <= i64::MAX as u64 => {
                Ok(Self { first_ns: first_release_ns, period_ns, next: 0, sleep, skipped: 0, overruns: 0 })
            }
            _ => Err(Error::InvalidPeriod { period }),
        }
    }

    /// A grid whose release 0 is now.
    ///
    /// # Errors
    /// As [`Periodic::new`].
    pub fn start_now(period: Duration, sleep: SleepStrategy) -> Result<Self, Error> {
        Self::new(clock::monotonic_ns(), period, sleep)
    }

    /// Waits for the next release.
    ///
    /// When the job before has overrun it, the newest release that has passed is returned at once,
    /// late; the ones before that are skipped and counted. The grid stays.
    #[expect(
        clippy::should_implement_trait,
        reason = "the releases never end, and `next` is the field's word"
    )]
    pub fn next(&mut self) -> Release {
        let (index, skipped) = self.take(clock::monotonic_ns());
        let planned_ns = self.planned_ns(index);
        let wake_ns = self.sleep.sleep_until(planned_ns);
        crate::ran_on::mark();
        Release { index, planned_ns, wake_ns, skipped }
    }

    /// Decides on the release to wait for at `now_ns`, and counts.
    fn take(&mut self, now_ns: u64) -> (u64, u64) {
        let due_ns = self.planned_ns(self.next);
        let skipped = match now_ns.checked_sub(due_ns) {
            // Release 0 of a grid that starts in the past or now is late without an overrun.
            Some(late_ns) if self.next > 0 => {
                self.overruns += 1;
                late_ns / self.period_ns
            }
            Some(late_ns) => late_ns / self.period_ns,
            None => 0,
        };
        self.skipped += skipped;
        let index = self.next + skipped;
        self.next = index + 1;
        (index, skipped)
    }

    /// Moves all releases to come by `by_ns`: for a loop that follows another clock, as the
    /// reference clock of a field bus. At most a period at once, so that no release is passed over
    /// or comes twice; what was granted is returned. Releases that have been keep their times in
    /// their [`Release`]s, and overruns still move nothing.
    pub fn shift(&mut self, by_ns: i64) -> i64 {
        let most = self.period_ns.min(i64::MAX as u64) as i64;
        let moved = self.first_ns.saturating_add_signed(by_ns.clamp(-most, most));
        let by_ns = moved.wrapping_sub(self.first_ns) as i64;
        self.first_ns = moved;
        by_ns
    }

    /// When release `index` is planned.
    pub fn planned_ns(&self, index: u64) -> u64 {
        self.first_ns.saturating_add(index.saturating_mul(self.period_ns))
    }

    /// The period in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Releases skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Calls of [`next`](Self::next) so far that came when the release was due already: the job
    /// before finished after the end of its period.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }
}

/// Result of [`calibrate_margin`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// Number of sleeps.
    pub sleeps: usize,
    /// Length of each.
    #[serde(with = "crate::duration")]
    pub interval: Duration,
    /// Quantile of the wake-up lateness that the margin must cover.
    pub quantile: f64,
    /// Least margin.
    #[serde(with = "crate::duration")]
    pub min: Duration,
    /// Greatest margin.
    #[serde(with = "crate::duration")]
    pub max: Duration,
}

impl Default for Calibration {
    /// The 99.9 % quantile of 4000 sleeps of 250 µs (one second), clamped to 5 µs to 500 µs.
    fn default() -> Self {
        Self {
            sleeps: 4000,
            interval: Duration::from_micros(250),
            quantile: 0.999,
            min: Duration::from_micros(5),
            max: Duration::from_micros(500),
        }
    }
}

/// The outcome of a calibration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Margin {
    /// The margin to use in [`SleepStrategy::Spin`].
    #[serde(with = "crate::duration")]
    pub margin: Duration,
    /// The measured quantile before clamping.
    pub quantile_ns: u64,
    /// Median lateness.
    pub median_ns: u64,
    /// Greatest lateness.
    pub max_ns: u64,
}

/// Measures how late short sleeps of the calling thread end, with the policy and placement it has,
/// and derives the spinning sleep's margin from the tail. Run it in the thread that will use it,
/// before its loop.
pub fn calibrate_margin(calibration: &Calibration) -> Margin {
    let interval_ns = u64::try_from(calibration.interval.as_nanos()).unwrap_or(u64::MAX / 2);
    let mut lateness: Vec<u64> = (0..calibration.sleeps.max(1))
        .map(|_| {
            let deadline_ns = clock::monotonic_ns().saturating_add(interval_ns);
            clock::sleep_until(deadline_ns);
            clock::monotonic_ns() - deadline_ns
        })
        .collect();
    margin_of(&mut lateness, calibration)
}

/// Derives the margin from a non-empty sample.
fn margin_of(lateness: &mut [u64], calibration: &Calibration) -> Margin {
    lateness.sort_unstable();
    let at = |quantile: f64| {
        // Nearest rank; a quantile beyond 0..=1 or NaN saturates in the cast and the clamp.
        let rank = (quantile * lateness.len() as f64).ceil() as usize;
        lateness[rank.clamp(1, lateness.len()) - 1]
    };
    let quantile_ns = at(calibration.quantile);
    let margin = Duration::from_nanos(quantile_ns).min(calibration.max).max(calibration.min);
    Margin { margin, quantile_ns, median_ns: at(0.5), max_ns: at(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use proptest::prelude::*;

    fn grid(first_ns: u64, period_ns: u64) -> Periodic {
        Periodic::new(first_ns, Duration::from_nanos(period_ns), SleepStrategy::Kernel).unwrap()
    }

    #[test]
    fn an_overrun_keeps_the_phase_and_is_counted() {
        let mut periodic = grid(1000, 100);
        assert_eq!(periodic.take(900), (0, 0));
        assert_eq!(periodic.take(1050), (1, 0));
        // The job of release 1 ran from 1100 to 1430: 2 and 3 have passed, 4 is late and runs.
        assert_eq!(periodic.take(1430), (4, 2));
        assert_eq!(periodic.planned_ns(4), 1400);
        assert_eq!(periodic.take(1440), (5, 0));
        assert_eq!((periodic.skipped(), periodic.overruns()), (2, 1));
        // Exactly at the release is late by nothing, and still an overrun of the job before.
        assert_eq!(periodic.take(1600), (6, 0));
        assert_eq!(periodic.overruns(), 2);
    }

    #[test]
    fn a_shift_moves_what_is_to_come_and_no_more_than_a_period() {
        let mut periodic = grid(1000, 100);
        assert_eq!(periodic.take(900), (0, 0));
        assert_eq!(periodic.shift(-30), -30);
        assert_eq!((periodic.planned_ns(1), periodic.take(1050)), (1070, (1, 0)));
        assert_eq!(periodic.shift(i64::MAX), 100);
        assert_eq!((periodic.planned_ns(2), periodic.take(1200)), (1270, (2, 0)));
        assert_eq!(periodic.shift(i64::MIN), -100);
        // An overrun after it is counted on the moved grid.
        assert_eq!(periodic.take(1571), (6, 3));
        let mut early = grid(10, 100);
        assert_eq!((early.shift(-50), early.planned_ns(0)), (-10, 0));
    }

    #[test]
    fn releases_are_on_the_grid_and_never_early() {
        for sleep in
            [SleepStrategy::Kernel, SleepStrategy::spin(), SleepStrategy::Spin { margin: Duration::MAX }]
        {
            let mut periodic = Periodic::start_now(Duration::from_micros(500), sleep).unwrap();
            let first = periodic.planned_ns(0);
            let mut last = None;
            for _ in 0..50 {
                let release = periodic.next();
                assert_eq!(release.planned_ns, first + release.index * 500_000);
                assert!(release.wake_ns >= release.planned_ns);
                assert_eq!(
                    release.index,
                    last.map_or(release.skipped, |last: u64| last + 1 + release.skipped)
                );
                last = Some(release.index);
            }
        }
    }

    /// System calls of two late cycles under `policy`, beyond asking for the policy: how many and
    /// the first. `None` where the machine does not let the test decide.
    fn calls_of_late_cycles(policy: Policy) -> Option<(u64, Option<i64>)> {
        if let Err(refusal) = std::thread::spawn(move || policy.apply(0)).join().unwrap() {
            takt_witness::skip!("{refusal}");
            return None;
        }
        let outcome = crate::proof::system_calls_beyond(&[libc::SYS_sched_getscheduler], move || {
            policy.apply(0).unwrap();
            || {
                for strategy in [SleepStrategy::Kernel, SleepStrategy::spin()] {
                    strategy.sleep_until(0);
                }
            }
        });
        match outcome {
            Ok(calls) => Some((calls.calls, calls.first)),
            Err(error) => {
                takt_witness::skip!("no seccomp filter: {error}");
                None
            }
        }
    }

    #[test]
    fn a_late_cycle_yields_where_equal_priorities_would_starve_and_nowhere_else() {
        let yields = Some((2, Some(libc::SYS_sched_yield)));
        for (policy, expected) in [
            ("other", Some((0, None))),
            ("other:5", Some((0, None))),
            ("deadline:2ms/100ms/100ms", Some((0, None))),
            ("fifo:3", yields),
            ("rr:3", yields),
        ] {
            let calls = calls_of_late_cycles(policy.parse().unwrap());
            assert!(calls.is_none() || calls == expected, "{policy}: {calls:?}");
        }
    }

    #[test]
    fn the_policy_of_the_moment_decides() {
        // Changed from outside while the loop runs, as a manager or chrt(1) does.
        let fifo = Policy::Fifo { priority: 3 };
        if let Err(refusal) = std::thread::spawn(move || fifo.apply(0)).join().unwrap() {
            return takt_witness::skip!("{refusal}");
        }
        std::thread::spawn(move || {
            assert!(!policy::yield_to_equals());
            fifo.apply(0).unwrap();
            assert!(policy::yield_to_equals());
            Policy::Other { nice: 0 }.apply(0).unwrap();
            assert!(!policy::yield_to_equals());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn impossible_periods_are_refused() {
        for period in [Duration::ZERO, Duration::MAX] {
            assert!(matches!(
                Periodic::start_now(period, SleepStrategy::Kernel),
                Err(Error::InvalidPeriod { .. })
            ));
        }
    }

    #[test]
    fn the_margin_is_the_tail_within_bounds() {
        let calibration = Calibration { quantile: 0.9, ..Default::default() };
        let mut sample: Vec<u64> = (1..=10).map(|n| n * 10_000).collect();
        let margin = margin_of(&mut sample, &calibration);
        assert_eq!((margin.quantile_ns, margin.median_ns, margin.max_ns), (90_000, 50_000, 100_000));
        assert_eq!(margin.margin, Duration::from_micros(90));
        assert_eq!(margin_of(&mut [1], &calibration).margin, calibration.min);
        assert_eq!(margin_of(&mut [u64::MAX], &calibration).margin, calibration.max);
        let odd = Calibration { quantile: f64::NAN, ..calibration };
        assert_eq!(margin_of(&mut [7, 8], &odd).quantile_ns, 7);
        let measured = calibrate_margin(&Calibration { sleeps: 50, ..Default::default() });
        assert!(measured.margin >= calibration.min && measured.margin <= calibration.max);
    }

    #[test]
    fn strategies_read_from_toml() {
        #[derive(Deserialize)]
        struct Config {
            sleep: SleepStrategy,
        }
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.sleep);
        assert_eq!(read("sleep = { kind = 'kernel' }").unwrap(), SleepStrategy::Kernel);
        assert_eq!(read("sleep = { kind = 'spin' }").unwrap(), SleepStrategy::spin());
        let margin = Duration::from_micros(30);
        assert_eq!(
            read("sleep = { kind = 'spin', margin = '30us' }").unwrap(),
            SleepStrategy::Spin { margin }
        );
        assert!(read("sleep = { kind = 'spin', margine = '30us' }").is_err());
    }

    proptest! {
        #[test]
        fn no_release_is_taken_twice_or_in_the_future_of_need(
            period in 1u64..1_000_000,
            steps in proptest::collection::vec(0u64..5_000_000, 1..50),
        ) {
            let mut periodic = grid(1_000, period);
            let mut now = 0;
            let mut last: Option<u64> = None;
            let mut total = 0;
            for step in steps {
                now += step;
                let (index, skipped) = periodic.take(now);
                let planned = periodic.planned_ns(index);
                prop_assert!(last.is_none_or(|last| index > last));
                // The newest passed release, or the first one to come.
                prop_assert!(now < planned + period);
                total += skipped;
                prop_assert_eq!(index, last.map_or(skipped, |last| last + 1 + skipped));
                now = now.max(planned);
                last = Some(index);
            }
            prop_assert_eq!(periodic.skipped(), total);
        }
    }
}
