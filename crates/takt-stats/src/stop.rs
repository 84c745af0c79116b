//! When a test ends: the DAQ paper's two criteria.
//!
//! *Threshold* (its sections 4.1 to 4.4): the first latency above X ends the test, and that value,
//! which can lie far above X, is remembered. *Trend* (section 4.5): the maximum grew by less than X
//! over the last period P, so that measuring on is not expected to change it. The paper gives no
//! number for "negligible"; X and P are asked for.

use serde::{Deserialize, Serialize};

/// The trend end: the maximum grew by less than `grew_less_than_ns` over the last `period_s`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrendStop {
    /// Growth of the maximum, nanoseconds, below which it counts as settled. 1 asks for no growth
    /// at all.
    pub grew_less_than_ns: u64,
    /// Length of the period, seconds, over which it must not have grown more. No test ends before
    /// its first period is over.
    pub period_s: f64,
}

/// When a test ends, besides its planned duration. Neither criterion by default: an end that nobody
/// asked for would shorten a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopConfig {
    /// The first latency above this ends the test.
    pub threshold_ns: Option<u64>,
    /// A maximum that has settled ends the test.
    pub trend: Option<TrendStop>,
}

/// Reason why a configuration was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StopError {
    /// The period is not a time.
    #[error(
        "stop.trend.period_s is {period_s}; a number of seconds above 0 and at most 31536000 (a year) is needed"
    )]
    Period {
        /// The requested period.
        period_s: f64,
    },
    /// A maximum never grows by less than nothing.
    #[error(
        "stop.trend.grew_less_than_ns is 0, which never comes true. Fix: use 1 for \"did not grow at all\", or more"
    )]
    Growth,
}

impl StopConfig {
    /// Refuses what cannot be meant.
    pub fn validate(&self) -> Result<(), StopError> {
        let Some(trend) = self.trend else { return Ok(()) };
        if !(trend.period_s > 0.0 && trend.period_s <= 31_536_000.0) {
            return Err(StopError::Period { period_s: trend.period_s });
        }
        if trend.grew_less_than_ns == 0 {
            return Err(StopError::Growth);
        }
        Ok(())
    }
}

/// Reason and time of a test's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "criterion")]
pub enum Stopped {
    /// A latency above the threshold.
    Threshold {
        /// The first value above it.
        value_ns: u64,
        /// The threshold.
        threshold_ns: u64,
        /// Number of values up to and with it.
        count: u64,
        /// Time since the start of the run.
        elapsed_ns: u64,
    },
    /// The maximum has settled.
    Trend {
        /// The maximum.
        max_ns: u64,
        /// By how much it grew over the last period.
        grew_ns: u64,
        /// Number of values seen.
        count: u64,
        /// Time since the start of the run.
        elapsed_ns: u64,
    },
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        match *self {
            Self::Threshold { value_ns, threshold_ns, count, .. } => {
                write!(
                    f,
                    "value {count} was {:.3} us, above the threshold of {:.3} us",
                    us(value_ns),
                    us(threshold_ns)
                )
            }
            Self::Trend { max_ns, grew_ns, count, .. } => write!(
                f,
                "the maximum of {count} values, {:.3} us, grew by {:.3} us over the last period",
                us(max_ns),
                us(grew_ns)
            ),
        }
    }
}

/// Parts that a period is cut into: the growth is known to the last 64th of a period.
const SLICES: usize = 64;

/// Watches a series for its end. Small and of fixed size, so that it can be written with every
/// checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    config: StopConfig,
    count: u64,
    max_ns: u64,
    /// Slices of a period that are over.
    slices: u64,
    /// Maxima at the ends of the last slices, oldest first; at most SLICES + 1.
    maxima_ns: Vec<u64>,
    stopped: Option<Stopped>,
}

impl Stop {
    /// A watch that has seen nothing.
    pub fn new(config: StopConfig) -> Result<Self, StopError> {
        config.validate()?;
        Ok(Self {
            config,
            count: 0,
            max_ns: 0,
            slices: 0,
            maxima_ns: Vec::with_capacity(SLICES + 2),
            stopped: None,
        })
    }

    /// Takes the next value, and says once the test is over, from then on always the same.
    pub fn push(&mut self, elapsed_ns: u64, value_ns: u64) -> Option<Stopped> {
        if self.stopped.is_some() {
            return self.stopped;
        }
        if let Some(trend) = self.config.trend {
            self.watch_trend(trend, elapsed_ns);
        }
        self.count = self.count.saturating_add(1);
        self.max_ns = self.max_ns.max(value_ns);
        if let Some(threshold_ns) = self.config.threshold_ns.filter(|&t| value_ns > t) {
            self.stopped = Some(Stopped::Threshold { value_ns, threshold_ns, count: self.count, elapsed_ns });
        }
        self.stopped
    }

    /// Closes the slices that are over before `elapsed_ns`, and compares the maximum with the one a
    /// period ago.
    fn watch_trend(&mut self, trend: TrendStop, elapsed_ns: u64) {
        let slice_ns = (trend.period_s * 1e9 / SLICES as f64).max(1.0);
        let over = (elapsed_ns as f64 / slice_ns) as u64;
        // After a gap longer than a period only the last ones matter.
        let closing = over.saturating_sub(self.slices).min(SLICES as u64 + 1);
        for _ in 0..closing {
            if self.maxima_ns.len() > SLICES {
                self.maxima_ns.remove(0);
            }
            self.maxima_ns.push(self.max_ns);
        }
        self.slices = self.slices.max(over);
        if closing == 0 || self.maxima_ns.len() <= SLICES || self.count == 0 {
            return;
        }
        let grew_ns = self.max_ns.saturating_sub(self.maxima_ns[0]);
        if grew_ns < trend.grew_less_than_ns && self.maxima_ns[0] > 0 {
            self.stopped =
                Some(Stopped::Trend { max_ns: self.max_ns, grew_ns, count: self.count, elapsed_ns });
        }
    }

    /// Whether and why the test is over.
    pub fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn stop(text: &str) -> Stop {
        Stop::new(toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn threshold_remembers_the_first_value_above() {
        let mut s = stop("threshold_ns = 75000");
        assert_eq!((s.push(1, 75_000), s.push(2, 10)), (None, None));
        let end =
            Some(Stopped::Threshold { value_ns: 95_220, threshold_ns: 75_000, count: 3, elapsed_ns: 3 });
        assert_eq!((s.push(3, 95_220), s.push(4, 200_000), s.stopped()), (end, end, end));
        assert_eq!(
            s.stopped().unwrap().to_string(),
            "value 3 was 95.220 us, above the threshold of 75.000 us"
        );
    }

    #[test]
    fn trend_waits_for_a_whole_quiet_period() {
        // The maximum grows by 5 us each second for 20 s, then stays.
        let mut s = stop("trend = { grew_less_than_ns = 1000, period_s = 10.0 }");
        let mut end = None;
        for ms in 0..60_000u64 {
            end = s.push(ms * 1_000_000, 50_000 + (ms / 1000).min(20) * 5000);
            if end.is_some() {
                break;
            }
        }
        let Some(Stopped::Trend { max_ns, grew_ns, elapsed_ns, .. }) = end else { panic!("{end:?}") };
        assert_eq!((max_ns, grew_ns), (150_000, 0));
        // It last grew at 20 s: a period later, to a slice (10 s / 64).
        assert!((30 * SECOND..=30 * SECOND + SECOND / 3).contains(&elapsed_ns), "{elapsed_ns}");
    }

    #[test]
    fn trend_never_ends_in_the_first_period_or_without_values() {
        let mut s = stop("trend = { grew_less_than_ns = 1000, period_s = 10.0 }");
        assert!((0..9_990u64).all(|ms| s.push(ms * 1_000_000, 5).is_none()));
        let mut late = stop("trend = { grew_less_than_ns = 1000, period_s = 10.0 }");
        assert_eq!(late.push(100 * SECOND, 7), None);
        assert_eq!(late.push(101 * SECOND, 7), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, part) in [
            ("trend = { grew_less_than_ns = 1, period_s = 0.0 }", "period_s"),
            ("trend = { grew_less_than_ns = 1, period_s = nan }", "period_s"),
            ("trend = { grew_less_than_ns = 0, period_s = 1.0 }", "grew_less_than_ns"),
        ] {
            let error = Stop::new(toml::from_str(text).unwrap()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(toml::from_str::<StopConfig>("treshold_ns = 5").is_err());
        assert!(toml::from_str::<StopConfig>("trend = { period_s = 5.0 }").is_err());
    }

    proptest! {
        #[test]
        fn a_checkpoint_changes_nothing(
            values in proptest::collection::vec(0u64..1000, 1..300), at in 0usize..300, step in 1u64..50_000_000
        ) {
            let text = "threshold_ns = 995\ntrend = { grew_less_than_ns = 10, period_s = 1.0 }";
            let (mut plain, mut resumed) = (stop(text), stop(text));
            for (i, &v) in values.iter().enumerate() {
                if i == at {
                    resumed = serde_json::from_str(&serde_json::to_string(&resumed).unwrap()).unwrap();
                }
                let elapsed = i as u64 * step;
                prop_assert_eq!(plain.push(elapsed, v), resumed.push(elapsed, v));
            }
        }

        #[test]
        fn a_trend_end_means_what_it_says(
            values in proptest::collection::vec(1u64..100_000, 2..2000), growth in 1u64..50_000
        ) {
            // One value each 10 ms, a period of 1 s.
            let mut s = stop(&format!("trend = {{ grew_less_than_ns = {growth}, period_s = 1.0 }}"));
            for (i, &v) in values.iter().enumerate() {
                if let Some(Stopped::Trend { max_ns, .. }) = s.push(i as u64 * 10_000_000, v) {
                    // A period ago is known to one slice of 1.6 values.
                    let before = values[..i.saturating_sub(99)].iter().max().copied().unwrap_or(0);
                    prop_assert!(max_ns - before < growth, "{max_ns} {before}");
                    return Ok(());
                }
            }
        }
    }
}
