//! The device's clock on CLOCK_MONOTONIC, with its error.
//!
//! A device reports times between its events, not the time. An event that is recorded and awaited
//! between two readings of the host's clock happened between them; of several such brackets the
//! tightest is the base that other events are measured from. The base is renewed now and then: the
//! clocks drift, and times between events are single precision of milliseconds.

use serde::{Deserialize, Serialize};
use takt_load::gpu::Priority;
use takt_rt::clock::monotonic_ns;

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::stream::{Event, Stream};
use crate::wait::{Wait, Waited};

/// Resolution of events according to CUDA.
const RESOLUTION_NS: u64 = 500;

/// Brackets of the first base. Of 20, at least one meets neither an interrupt nor other work.
const FIRST_BRACKETS: u32 = 20;

/// Longest time for the first base.
const FIRST_LIMIT_NS: u64 = 1_000_000_000;

/// Shorter times report nothing of a drift that is parts in a million.
const MIN_DRIFT_NS: u64 = 100_000_000;

/// No oscillator is worse; more is a base that went wrong.
const MAX_DRIFT: f64 = 1e-3;

/// Relation of the device's clock to ours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// CLOCK_MONOTONIC at the base event, nanoseconds.
    pub offset_ns: u64,
    /// At most so far off: half of the tightest bracket.
    pub error_ns: u64,
    /// Excess of the host's time over the device's, as a share; 0 until there have been two bases.
    pub drift: f64,
    /// At most so far off is `drift`; until it is measured, what is allowed of any clock.
    pub drift_error: f64,
}

/// A moment on the device as CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The time, nanoseconds.
    pub at_ns: u64,
    /// At most so far off.
    pub error_ns: u64,
}

/// The device's clock, for one thread.
#[derive(Debug)]
pub struct Clock {
    stream: Stream,
    base: Event,
    /// Events for the brackets of the next base.
    best: Event,
    next: Event,
    mapping: Mapping,
}

impl Clock {
    /// Looks where the clock of `gpu` stands, by a stream of its own of the greatest priority.
    ///
    /// # Errors
    /// [`GpuError::System`] when the device answers nothing within a second, or what the driver
    /// refuses.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let stream = gpu.stream(Priority::Critical)?;
        let (base, best, next) = (stream.event(true)?, stream.event(true)?, stream.event(true)?);
        // Allowed of a computer's clock against another, unmeasured: 100 parts in a million.
        let mapping = Mapping { offset_ns: 0, error_ns: 0, drift: 0.0, drift_error: 1e-4 };
        let mut clock = Self { stream, base, best, next, mapping };
        match clock.bracket(FIRST_BRACKETS, monotonic_ns() + FIRST_LIMIT_NS)? {
            Some((offset_ns, error_ns)) => {
                std::mem::swap(&mut clock.base, &mut clock.best);
                clock.mapping = Mapping { offset_ns, error_ns, ..clock.mapping };
                Ok(clock)
            }
            None => Err(GpuError::System {
                what: "the device's clock",
                reason: "no event was reached within 1 s: the device is hung or overloaded".to_owned(),
            }),
        }
    }

    /// The present mapping.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Whether the base is older than `age_ns`.
    pub fn is_older(&self, age_ns: u64) -> bool {
        monotonic_ns().saturating_sub(self.mapping.offset_ns) > age_ns
    }

    /// Takes a new base from `brackets` tries (some 10 us each), which reports the drift too.
    /// `false`, and nothing changed, when none was done by `deadline_ns`. Once a second is enough.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn renew(&mut self, brackets: u32, deadline_ns: u64) -> Result<bool, GpuError> {
        let Some((offset_ns, error_ns)) = self.bracket(brackets, deadline_ns)? else { return Ok(false) };
        let device_ns = u64::try_from(self.best.since(&self.base)?).unwrap_or(0);
        let old = self.mapping;
        self.mapping = Mapping { offset_ns, error_ns, ..old };
        if device_ns >= MIN_DRIFT_NS {
            let host_ns = offset_ns.saturating_sub(old.offset_ns);
            let (host, device) = (host_ns as f64, device_ns as f64);
            let unsure = (old.error_ns + error_ns + RESOLUTION_NS + rounding_ns(device_ns)) as f64;
            let (drift, drift_error) = (host / device - 1.0, unsure / device);
            if drift.abs() <= MAX_DRIFT {
                (self.mapping.drift, self.mapping.drift_error) = (drift, drift_error);
            }
        }
        std::mem::swap(&mut self.base, &mut self.best);
        Ok(true)
    }

    /// When `event`, timed and reached, was.
    ///
    /// # Errors
    /// [`GpuError::InFlight`] before it is reached, or what the driver refuses.
    pub fn stamp(&self, event: &Event) -> Result<Stamp, GpuError> {
        Ok(self.mapping.stamp(event.since(&self.base)?))
    }

    /// Tries `brackets` times; the tightest is left in `best`. The middle of it and half its width.
    fn bracket(&mut self, brackets: u32, deadline_ns: u64) -> Result<Option<(u64, u64)>, GpuError> {
        let mut tightest: Option<(u64, u64)> = None;
        for _ in 0..brackets {
            let before_ns = monotonic_ns();
            self.stream.record(&self.next)?;
            if self.next.wait(deadline_ns, Wait::Spin)? == Waited::Overrun {
                break;
            }
            let half_ns = (monotonic_ns() - before_ns).div_ceil(2);
            if tightest.is_none_or(|(_, known)| half_ns < known) {
                tightest = Some((before_ns + half_ns, half_ns));
                std::mem::swap(&mut self.best, &mut self.next);
            }
        }
        Ok(tightest)
    }
}

impl Mapping {
    /// The moment `since_base_ns` after (or before) the base.
    fn stamp(&self, since_base_ns: i64) -> Stamp {
        let since = since_base_ns as f64;
        let at_ns = self.offset_ns as i128 + i128::from(since_base_ns) + (since * self.drift).round() as i128;
        let age_ns = since_base_ns.unsigned_abs();
        let drifted_ns = (age_ns as f64 * self.drift_error).ceil() as u64;
        Stamp {
            at_ns: u64::try_from(at_ns).unwrap_or(0),
            error_ns: self.error_ns + drifted_ns + RESOLUTION_NS + rounding_ns(age_ns),
        }
    }
}

/// Half a unit in the last place of `ns` as single precision of milliseconds.
fn rounding_ns(ns: u64) -> u64 {
    let ms = ns as f32 / 1e6;
    (f64::from(ms.next_up() - ms) * 1e6 / 2.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn single_precision_is_reported() {
        assert!(rounding_ns(0) <= 1);
        assert_eq!(rounding_ns(1_000_000_000), 31);
        assert_eq!(rounding_ns(600_000_000_000), 31_250);
    }

    proptest! {
        /// A device's clock that drifts: the true time is within the error whatever the drift is,
        /// if it is within what was said.
        #[test]
        fn the_true_time_is_within_the_error(
            since_ns in -1_000_000_000i64..20_000_000_000,
            drift in -5e-5f64..5e-5,
            off in -1.0f64..1.0,
            share in -1.0f64..1.0,
        ) {
            let drift_error = 1e-6;
            let mapping = Mapping { offset_ns: 1 << 50, error_ns: 700, drift, drift_error };
            let base_ns = (1u64 << 50) as f64 + off * 700.0;
            let true_ns = base_ns + since_ns as f64 * (1.0 + drift + share * drift_error);
            let reported_ms = (since_ns as f64 / 1e6) as f32;
            let stamp = mapping.stamp((f64::from(reported_ms) * 1e6).round() as i64);
            let difference = stamp.at_ns as f64 - true_ns;
            prop_assert!(difference.abs() <= stamp.error_ns as f64 + 1.0, "{difference} {stamp:?}");
        }
    }
}
