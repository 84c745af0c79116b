//! Carries librealsense's time stamps over to CLOCK_MONOTONIC, each domain with a stated error.
//!
//! | domain | what the stamp is | carried over by | error |
//! |---|---|---|---|
//! | global time | exposure, on the host's wall clock by the library's fit of the device's clock | offset of the two clocks | 5 ms |
//! | system time | arrival at the host, wall clock | offset of the two clocks, less the latency | the latency, unless configured |
//! | hardware clock | exposure, on a clock of the device's own | least delay seen until arrival, less the latency | 1 ms of drift, and the latency unless configured |
//!
//! A stamp is never made to look better than it is: one of the future stays in the future, an old
//! one stays old.

use std::ffi::c_int;

use takt_rt::clock::{monotonic_ns, realtime_ns};

use super::sys;
use crate::StreamStamp;

/// The library fits the device's clock to the host's by requests over USB that take up to some
/// milliseconds.
const GLOBAL_ERROR_NS: u64 = 5_000_000;

/// The device's clock drifts by at most 50 ppm against ours: 1 ms in the 20 s that the least delay
/// is kept.
const DRIFT_ERROR_NS: u64 = 1_000_000;

/// Half of the time that the least delay is kept.
const WINDOW_NS: u64 = 10_000_000_000;

/// The device's clock counts microseconds in 32 bits: it starts again after 71.6 minutes.
const WRAP_NS: i128 = (1 << 32) * 1000;

/// Delays do not shrink by more than this from one frame to the next; the device's clock has
/// jumped.
const JUMP_NS: i128 = 100_000_000;

/// Both of our clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, nanoseconds.
    pub realtime_ns: u64,
    /// How far apart they may have been read.
    pub error_ns: u64,
}

impl Clocks {
    /// Reads both: the closest of some tries, for a thread may lose its processor in between.
    pub fn now() -> Self {
        let read = || {
            let before_ns = monotonic_ns();
            let realtime_ns = realtime_ns();
            let half_ns = (monotonic_ns() - before_ns) / 2;
            Self { monotonic_ns: before_ns + half_ns, realtime_ns, error_ns: half_ns }
        };
        let mut best = read();
        for _ in 0..4 {
            if best.error_ns < 5_000 {
                break;
            }
            let again = read();
            if again.error_ns < best.error_ns {
                best = again;
            }
        }
        best
    }
}

/// What the library says of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawStamp {
    /// The device's number of the image.
    pub number: u64,
    /// Milliseconds of the domain's clock.
    pub stamp_ms: f64,
    /// `rs2_timestamp_domain`.
    pub domain: c_int,
}

/// The stamps of one sensor.
#[derive(Clone, Debug)]
pub struct SensorClock {
    /// Configured latency, and that of one frame period.
    latency_ns: Option<u64>,
    period_ns: u64,
    device: DeviceClock,
    first_number: Option<u64>,
    last: Option<(RawStamp, StreamStamp)>,
}

impl SensorClock {
    /// A sensor that has delivered nothing.
    pub fn new(latency_offset_ms: Option<f64>, rate_fps: u32) -> Self {
        Self {
            latency_ns: latency_offset_ms.map(|ms| (ms * 1e6) as u64),
            period_ns: 1_000_000_000 / u64::from(rate_fps.max(1)),
            device: DeviceClock::default(),
            first_number: None,
            last: None,
        }
    }

    /// Number (from 1) and capture of an image that arrived at `arrival_ns`.
    ///
    /// # Errors
    /// A stamp that is no time, or a domain that is not known.
    pub(super) fn convert(
        &mut self,
        raw: RawStamp,
        arrival_ns: u64,
        clocks: &Clocks,
    ) -> Result<StreamStamp, String> {
        // The library hands an image out again when its sensor missed a frame.
        if let Some((last, stamp)) = self.last
            && last == raw
        {
            return Ok(stamp);
        }
        // Up to the year 2262: beyond, nanoseconds do not fit.
        if !(0.0..9.2e12).contains(&raw.stamp_ms) {
            return Err(format!("the time stamp of an image is {} ms, expected 0 to 9.2e12", raw.stamp_ms));
        }
        let stamp_ns = (raw.stamp_ms * 1e6) as i128;
        let wall_ns = stamp_ns + i128::from(clocks.monotonic_ns) - i128::from(clocks.realtime_ns);
        let assumed_ns = self.latency_ns.unwrap_or(self.period_ns);
        let unknown_ns = if self.latency_ns.is_some() { 0 } else { self.period_ns };
        let (capture_ns, latency_ns, error_ns) = match raw.domain {
            sys::DOMAIN_GLOBAL_TIME => {
                (wall_ns, self.latency_ns.unwrap_or(0), GLOBAL_ERROR_NS + clocks.error_ns)
            }
            sys::DOMAIN_SYSTEM_TIME => (wall_ns, assumed_ns, unknown_ns + clocks.error_ns),
            sys::DOMAIN_HARDWARE_CLOCK => {
                let capture_ns = self.device.convert(stamp_ns, i128::from(arrival_ns));
                (capture_ns, assumed_ns, unknown_ns + DRIFT_ERROR_NS)
            }
            other => {
                return Err(format!(
                    "time stamps of the unknown domain {other}, expected 0 (hardware), 1 (system) or 2 (global)"
                ));
            }
        };
        // A device that starts counting again does not count from below its first number for ever.
        let first = *self.first_number.get_or_insert(raw.number);
        if raw.number < first {
            self.first_number = Some(raw.number);
        }
        let number = (raw.number - first.min(raw.number)).saturating_add(1);
        let capture_ns = (capture_ns - i128::from(latency_ns)).clamp(0, i128::from(u64::MAX)) as u64;
        let stamp = StreamStamp { number, capture_ns, error_ns };
        self.last = Some((raw, stamp));
        Ok(stamp)
    }
}

/// The device's clock against ours, by the least delay from exposure to arrival.
#[derive(Clone, Debug, Default)]
struct DeviceClock {
    /// Stamp with wraps added, and arrival, of the last image.
    last: Option<(i128, i128)>,
    wraps_ns: i128,
    /// Least of arrival - stamp since `window_ns`, and in the window before.
    least_ns: i128,
    before_ns: Option<i128>,
    window_ns: i128,
}

impl DeviceClock {
    /// The time of exposure plus the least delay.
    fn convert(&mut self, stamp_ns: i128, arrival_ns: i128) -> i128 {
        let Some((last_ns, last_arrival_ns)) = self.last else {
            return self.start(stamp_ns, arrival_ns);
        };
        let mut unwrapped_ns = stamp_ns + self.wraps_ns;
        if last_ns - unwrapped_ns > WRAP_NS / 2 && stamp_ns < WRAP_NS {
            self.wraps_ns += WRAP_NS;
            unwrapped_ns += WRAP_NS;
        }
        let (advance_ns, waited_ns) = (unwrapped_ns - last_ns, arrival_ns - last_arrival_ns);
        if advance_ns <= 0 || advance_ns - waited_ns > JUMP_NS {
            // Backwards or ahead of time: dated by what was known, which shows the fault. What
            // follows is dated anew.
            let capture_ns = unwrapped_ns + self.offset_ns();
            self.start(stamp_ns, arrival_ns);
            return capture_ns;
        }
        self.last = Some((unwrapped_ns, arrival_ns));
        let delay_ns = arrival_ns - unwrapped_ns;
        if arrival_ns - self.window_ns > i128::from(WINDOW_NS) {
            self.before_ns = Some(self.least_ns);
            (self.least_ns, self.window_ns) = (delay_ns, arrival_ns);
        }
        self.least_ns = self.least_ns.min(delay_ns);
        unwrapped_ns + self.offset_ns()
    }

    fn offset_ns(&self) -> i128 {
        self.before_ns.map_or(self.least_ns, |before_ns| before_ns.min(self.least_ns))
    }

    fn start(&mut self, stamp_ns: i128, arrival_ns: i128) -> i128 {
        *self = Self {
            last: Some((stamp_ns, arrival_ns)),
            wraps_ns: 0,
            least_ns: arrival_ns - stamp_ns,
            before_ns: None,
            window_ns: arrival_ns,
        };
        arrival_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: Clocks =
        Clocks { monotonic_ns: 5_000_000 * MS, realtime_ns: 1_700_000_000_000 * MS, error_ns: 100 };

    fn raw(number: u64, stamp_ms: f64, domain: c_int) -> RawStamp {
        RawStamp { number, stamp_ms, domain }
    }

    fn capture_ms(clock: &mut SensorClock, raw: RawStamp, arrival_ms: u64) -> f64 {
        clock.convert(raw, arrival_ms * MS, &NOW).expect("a good stamp").capture_ns as f64 / 1e6
    }

    #[test]
    fn wall_clock_stamps_keep_their_age_however_old_or_new() {
        for age_ms in [12.0, 999.0, 1001.0, 4_000_000.0, -50.0] {
            let mut clock = SensorClock::new(None, 30);
            let stamp = raw(1, 1.7e12 - age_ms, sys::DOMAIN_GLOBAL_TIME);
            assert!((capture_ms(&mut clock, stamp, 5_000_000) - (5e6 - age_ms)).abs() < 0.001, "{age_ms}");
        }
        let mut clock = SensorClock::new(None, 30);
        let converted = clock.convert(raw(1, 1.7e12, sys::DOMAIN_GLOBAL_TIME), 0, &NOW);
        assert_eq!(converted.map(|s| s.error_ns), Ok(GLOBAL_ERROR_NS + 100));
        // Older than our clock itself.
        assert_eq!(capture_ms(&mut clock, raw(2, 1.0, sys::DOMAIN_GLOBAL_TIME), 0), 0.0);
    }

    #[test]
    fn the_latency_offset_dates_captures_back() {
        let at =
            |offset, domain| capture_ms(&mut SensorClock::new(offset, 25), raw(1, 1.7e12, domain), 5_000_000);
        assert_eq!(at(None, sys::DOMAIN_GLOBAL_TIME), 5e6);
        assert_eq!(at(Some(7.0), sys::DOMAIN_GLOBAL_TIME), 5e6 - 7.0);
        assert_eq!(at(None, sys::DOMAIN_SYSTEM_TIME), 5e6 - 40.0, "a period, where nobody measured it");
        assert_eq!(at(Some(12.0), sys::DOMAIN_SYSTEM_TIME), 5e6 - 12.0);
        assert_eq!(at(Some(12.0), sys::DOMAIN_HARDWARE_CLOCK), 5e6 - 12.0);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for stamp_ms in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e13, f64::MAX] {
            for domain in 0..=2 {
                let error = SensorClock::new(None, 30).convert(raw(1, stamp_ms, domain), 0, &NOW);
                assert!(error.is_err(), "{stamp_ms}");
            }
        }
        let error = SensorClock::new(None, 30).convert(raw(1, 1.0, 3), 0, &NOW).expect_err("unknown");
        assert!(error.contains("domain 3"), "{error}");
    }

    /// A device whose clock stands at `device_ms` when ours stands at 5 000 000 ms, and whose
    /// images take 20 ms and `jitter`.
    fn device(clock: &mut SensorClock, device_ms: f64, frame: u64, jitter_ms: u64) -> f64 {
        let at_ms = frame * 33;
        let stamp_ms = (device_ms + at_ms as f64) % (WRAP_NS as f64 / 1e6);
        let stamp = raw(frame + 1, stamp_ms, sys::DOMAIN_HARDWARE_CLOCK);
        capture_ms(clock, stamp, 5_000_000 + at_ms + 20 + jitter_ms) - 5e6 - at_ms as f64
    }

    #[test]
    fn the_devices_clock_is_followed_by_the_least_delay_and_over_its_wrap() {
        // It wraps after 30 s of the run.
        let start_ms = WRAP_NS as f64 / 1e6 - 30_000.0;
        let mut clock = SensorClock::new(Some(20.0), 30);
        for frame in 0..3000 {
            let off_ms = device(&mut clock, start_ms, frame, [0, 7, 30, 3][frame as usize % 4]);
            assert!(off_ms.abs() < 0.01, "frame {frame}: {off_ms} ms off");
        }
        // A late frame is old, not new.
        let off_ms = device(&mut clock, start_ms, 3000, 1500);
        assert!(off_ms.abs() < 0.01, "{off_ms} ms off");
    }

    #[test]
    fn a_jump_of_the_devices_clock_shows_and_costs_two_images() {
        for jump_ms in [3_600_000.0, 500.0, -500.0, -40_000.0] {
            let mut clock = SensorClock::new(Some(20.0), 30);
            for frame in 0..100 {
                device(&mut clock, 50_000.0, frame, 0);
            }
            let off_ms = device(&mut clock, 50_000.0 + jump_ms, 100, 0);
            assert!((off_ms - jump_ms).abs() < 0.01, "{jump_ms}: {off_ms} ms off");
            // It stays there.
            for frame in 101..200 {
                let off_ms = device(&mut clock, 50_000.0 + jump_ms, frame, 0);
                assert!(off_ms.abs() < 0.01, "{jump_ms}, frame {frame}: {off_ms} ms off");
            }
            // One wrong stamp, and back.
            device(&mut clock, 50_000.0, 200, 0);
            device(&mut clock, 50_000.0 + jump_ms, 201, 0);
            let off_ms = device(&mut clock, 50_000.0 + jump_ms, 202, 0);
            assert!(off_ms.abs() < 0.01, "{jump_ms}: {off_ms} ms off");
        }
    }

    #[test]
    fn an_image_handed_out_again_is_the_same_image_and_numbers_count_from_one() {
        let mut clock = SensorClock::new(None, 30);
        let again = |clock: &mut SensorClock, number, later_ms| {
            let clocks = Clocks { monotonic_ns: NOW.monotonic_ns + later_ms * MS, ..NOW };
            clock.convert(raw(number, 1.7e12, sys::DOMAIN_GLOBAL_TIME), 0, &clocks).expect("good")
        };
        let first = again(&mut clock, 4711, 0);
        assert_eq!((first.number, again(&mut clock, 4711, 3)), (1, first));
        // The same number on an image with another stamp is not the same image.
        let other = clock.convert(raw(4711, 1.7e12 + 1.0, sys::DOMAIN_GLOBAL_TIME), 0, &NOW).expect("good");
        assert_eq!((other.number, other.capture_ns == first.capture_ns), (1, false));
        assert_eq!(again(&mut clock, 4713, 0).number, 3);
        assert_eq!(again(&mut clock, u64::MAX, 0).number, u64::MAX - 4710);
        // The device counts from 1 again.
        assert_eq!((again(&mut clock, 1, 0).number, again(&mut clock, 2, 0).number), (1, 2));
    }
}
