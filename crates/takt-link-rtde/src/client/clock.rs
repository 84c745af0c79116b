//! The controller's clock as seen from here: how old a state is by its content, not by its arrival.
//!
//! Every packet says when the controller measured it (`timestamp`, its own clock). Arrival minus
//! that stamp is the clocks' offset plus the packet's delay, and a delay is never negative: so the
//! least difference seen is the best knowledge of the offset (minimum-delay filter). Clocks drift,
//! so the estimate may rise again, but no faster than clocks drift ([`MAX_DRIFT_PPM`]); a delay
//! that creeps up faster than that shows as age. It cannot see a delay that was there from the
//! first packet on and never varied: the round trip of the heartbeat bounds that.

use serde::Serialize;

/// Fastest drift between two clocks that is believed, parts per million. Crystals differ by less
/// than 100 and time synchronisation slews by some more; a delay that creeps at 200 ppm needs half
/// a minute for 6 ms, and the round trip judges it, too.
pub const MAX_DRIFT_PPM: u64 = 200;

/// A leap of the controller's clock that is no jitter of delivery: beyond this, states before it
/// were older than believed, or the clock is none.
const LEAP_NS: i64 = 100_000_000;

/// A packet's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// A new measurement.
    #[default]
    New,
    /// The very packet before it, once more.
    Repeated,
    /// Other values under the same time stamp.
    ClockFrozen,
    /// An earlier time stamp than the packet before it, or none that is a number.
    ClockBackwards,
    /// A time stamp that leaps ahead of the time that passed here.
    ClockLeapt,
}

/// Follows the controller's clock over one connection.
#[derive(Clone, Debug, Default)]
pub struct ClockFollower {
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    controller_ns: i64,
    received_ns: i64,
    /// Offset of the clocks with the least delay seen, let rise by drift.
    offset_ns: i64,
    /// By how much drift alone has raised it since an arrival confirmed it.
    risen_ns: i64,
}

/// Knowledge about a packet's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The packet's own time.
    pub content: Content,
    /// When it was measured, CLOCK_MONOTONIC nanoseconds.
    pub measured_ns: u64,
    /// By how much the measurement may be older than that, beyond the least delay of the link.
    pub error_ns: u64,
}

impl ClockFollower {
    /// Takes a packet with the time stamp `controller_s`, received at `received_ns`; `same` says
    /// whether all of its values are those of the packet before.
    pub fn follow(&mut self, controller_s: f64, received_ns: u64, same: bool) -> Followed {
        let received = i64::try_from(received_ns).unwrap_or(i64::MAX);
        // A century of uptime: what is no such number is no time.
        let stamp = (controller_s.is_finite() && (0.0..=3.2e9).contains(&controller_s))
            .then_some((controller_s * 1e9) as i64);
        let Some(controller_ns) = stamp else {
            return self.old(received, Content::ClockBackwards);
        };
        let offset = received - controller_ns;
        let Some(last) = self.last else {
            self.anchor(controller_ns, received);
            return self.result(received, Content::New);
        };
        if controller_ns == last.controller_ns {
            let content = if same { Content::Repeated } else { Content::ClockFrozen };
            return self.old(received, content);
        }
        if controller_ns < last.controller_ns {
            // The new time is followed from here on: one fault, not a lock-out until the old time
            // comes again.
            self.anchor(controller_ns, received);
            return self.result(received, Content::ClockBackwards);
        }
        let passed_ns = (received - last.received_ns).max(0);
        let rise_ns = passed_ns / 1_000_000 * MAX_DRIFT_PPM as i64 + 1;
        let raised = last.offset_ns.saturating_add(rise_ns);
        let (offset_ns, risen_ns) =
            if offset <= raised { (offset, 0) } else { (raised, last.risen_ns.saturating_add(rise_ns)) };
        self.last = Some(Last { controller_ns, received_ns: received, offset_ns, risen_ns });
        let leapt = offset < last.offset_ns - LEAP_NS;
        self.result(received, if leapt { Content::ClockLeapt } else { Content::New })
    }

    fn anchor(&mut self, controller_ns: i64, received_ns: i64) {
        let offset_ns = received_ns - controller_ns;
        self.last = Some(Last { controller_ns, received_ns, offset_ns, risen_ns: 0 });
    }

    /// A packet that brings no newer measurement: the one before it stays the newest.
    fn old(&self, received_ns: i64, content: Content) -> Followed {
        let measured = self.result(received_ns, content);
        // Without any measurement yet it is as old as can be.
        if self.last.is_some() { measured } else { Followed { measured_ns: 0, ..measured } }
    }

    fn result(&self, received_ns: i64, content: Content) -> Followed {
        let (measured_ns, risen_ns) = self.last.map_or((received_ns, 0), |last| {
            (last.controller_ns.saturating_add(last.offset_ns).min(received_ns), last.risen_ns)
        });
        Followed {
            content,
            measured_ns: u64::try_from(measured_ns).unwrap_or(0),
            // It may have drifted the other way just as fast.
            error_ns: u64::try_from(risen_ns.saturating_mul(2)).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CYCLE_NS: u64 = 2_000_000;
    const BEGIN_NS: u64 = 5_000_000_000_000;

    /// Age in milliseconds of packet `i`, which is on its way for `delay_ns`.
    fn age_ms(follower: &mut ClockFollower, i: u64, delay_ns: u64, drift: f64) -> f64 {
        let sent_ns = BEGIN_NS + i * CYCLE_NS;
        let controller_s = 100.0 + (i * CYCLE_NS) as f64 * (1.0 + drift) / 1e9;
        let followed = follower.follow(controller_s, sent_ns + delay_ns, false);
        assert_eq!(followed.content, Content::New);
        (sent_ns + delay_ns - followed.measured_ns + followed.error_ns) as f64 / 1e6
    }

    #[test]
    fn jitter_shows_as_age_and_a_steady_link_has_none() {
        for drift in [-1e-4, 0.0, 1e-4] {
            let mut follower = ClockFollower::default();
            let mut worst = 0.0f64;
            for i in 0..500_000 {
                // Mostly 0.2 ms, now and then 3 ms.
                let delay_ns = if i % 97 == 0 && i > 0 { 3_000_000 } else { 200_000 };
                let age = age_ms(&mut follower, i, delay_ns, drift);
                if delay_ns == 200_000 {
                    worst = worst.max(age);
                } else {
                    assert!((2.7..3.1).contains(&age), "{age} ms at {i}");
                }
            }
            assert!(worst < 0.1, "{worst} ms of age on a steady link over 1000 s, drift {drift}");
        }
    }

    #[test]
    fn a_delay_that_creeps_becomes_age() {
        for seconds in [5u64, 60, 600] {
            let mut follower = ClockFollower::default();
            let packets = seconds * 500;
            let last = (0..=packets)
                .map(|i| age_ms(&mut follower, i, 200_000 + i * 500_000_000 / packets, 0.0))
                .last()
                .expect("packets");
            assert!(last > 300.0, "{last} ms of 500 ms seen after {seconds} s");
        }
    }

    #[test]
    fn what_is_no_new_measurement_stays_old() {
        let mut follower = ClockFollower::default();
        let first = follower.follow(7.0, BEGIN_NS, false);
        let again = follower.follow(7.0, BEGIN_NS + 50_000_000, true);
        assert_eq!((again.content, again.measured_ns), (Content::Repeated, first.measured_ns));
        let frozen = follower.follow(7.0, BEGIN_NS + 60_000_000, false);
        assert_eq!((frozen.content, frozen.measured_ns), (Content::ClockFrozen, first.measured_ns));
        let back = follower.follow(6.0, BEGIN_NS + 62_000_000, false);
        assert_eq!(back.content, Content::ClockBackwards);
        // From there on it is followed anew.
        assert_eq!(follower.follow(6.002, BEGIN_NS + 64_000_000, false).content, Content::New);
        assert_eq!(follower.follow(9.0, BEGIN_NS + 66_000_000, false).content, Content::ClockLeapt);
        assert_eq!(follower.follow(9.002, BEGIN_NS + 68_000_000, false).content, Content::New);
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(follower.follow(nonsense, BEGIN_NS, false).content, Content::ClockBackwards);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_measured_after_it_was_received(
            packets in prop::collection::vec((any::<f64>(), any::<u64>(), any::<bool>()), 1..50)
        ) {
            let mut follower = ClockFollower::default();
            for (controller_s, received_ns, same) in packets {
                let followed = follower.follow(controller_s, received_ns, same);
                prop_assert!(followed.measured_ns <= received_ns);
            }
        }
    }
}
