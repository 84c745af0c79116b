//! The first task of the paper, its Algorithm 1: read until the level arrives, run the controller,
//! sleep, write the other level.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_link_daq::Link;
use takt_rt::clock::{monotonic_ns, realtime_ns, sleep_realtime, sleep_until};
use takt_rt::ring::Producer;
use takt_rt::{memory, proof};

use crate::config::{PulseClock, PulseConfig, Stamp, Writes};
use crate::control::Controller;
use crate::error_meter::ErrorMeter;
use crate::plant::{Reference, Wiring};
use crate::record::{EdgeRecord, Ended, SteadyState, Totals, Tracking};

/// A controller and how it is wired to what it steers.
pub(crate) struct Steering {
    pub controller: Box<dyn Controller>,
    pub wiring: Wiring,
    pub reference: Reference,
    pub period_s: f64,
    /// Tracking error at the sensors.
    pub error: ErrorMeter,
    /// When the plant's time began, and when the turn before was.
    pub times_ns: Option<(u64, u64)>,
}

/// Longest turn that a controller is informed of: what adds up in it would jump after a gap.
const MAX_TURN_S: f64 = 0.1;

/// State of acquisition; everything is allocated before it begins.
pub(crate) struct Acquisition {
    pub link: Box<dyn Link>,
    pub pulse: PulseConfig,
    pub steering: Option<Steering>,
    /// To whoever reads the records.
    pub records: Producer<EdgeRecord>,
    /// To the saving task, where it runs.
    pub saving: Option<Producer<EdgeRecord>>,
    pub stop: Arc<AtomicBool>,
    pub duration_ns: Option<u64>,
    pub edges: Option<u64>,
    pub totals: Totals,
    /// Counters of the thread when its start was over.
    pub begun: Option<SteadyState>,
}

/// Edges after which the start is over: caches and stacks have been touched.
const START_EDGES: u64 = 100;

/// The counters of the calling thread since it started.
fn counters() -> SteadyState {
    let faults = memory::thread_faults();
    SteadyState {
        minor_faults: faults.minor,
        major_faults: faults.major,
        preemptions: memory::thread_switches().involuntary,
        allocations: proof::allocations() + proof::frees(),
    }
}

/// State left at its end.
pub(crate) struct Left {
    pub ended: Ended,
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub ended_ns: u64,
    pub totals: Totals,
    pub tracking: Option<Tracking>,
    pub records_lost: u64,
    /// None where the loop ended in its start.
    pub steady: Option<SteadyState>,
    /// Dropped elsewhere: closing a link waits for its echo thread.
    pub link: Box<dyn Link>,
}

/// A moment on CLOCK_MONOTONIC, and on the clock that latencies are counted by.
#[derive(Clone, Copy)]
struct Moment {
    at_ns: u64,
    clock_ns: u64,
}

impl Moment {
    fn now(clock: PulseClock) -> Self {
        match clock {
            PulseClock::Monotonic => {
                let at_ns = monotonic_ns();
                Self { at_ns, clock_ns: at_ns }
            }
            PulseClock::Realtime => {
                let clock_ns = realtime_ns();
                Self { at_ns: monotonic_ns(), clock_ns }
            }
        }
    }

    /// The latency since another moment, and whether the clock was set in between.
    fn since(self, since: Self) -> (u64, bool) {
        let passed_ns = self.at_ns.saturating_sub(since.at_ns);
        let latency_ns = self.clock_ns.saturating_sub(since.clock_ns);
        (latency_ns, passed_ns.abs_diff(latency_ns) > CLOCK_STEP_NS + passed_ns / 1000)
    }
}

/// The clock of the day is slewed by half a thousandth at most; what is beyond that, and beyond an
/// interrupt between two readings, is a step.
const CLOCK_STEP_NS: u64 = 10_000_000;

/// Result of waiting for a level.
enum Seen {
    At(Moment),
    TimedOut(Moment),
    Asked,
}

/// The longest time from one poll to the next.
#[derive(Clone, Copy, Default)]
struct Stall {
    from_ns: u64,
    ns: u64,
}

impl Acquisition {
    pub fn run(mut self) -> Left {
        let ended = self.edges();
        let ended_ns = monotonic_ns();
        let now = counters();
        let steady = self.begun.map(|begun| SteadyState {
            minor_faults: now.minor_faults - begun.minor_faults,
            major_faults: now.major_faults - begun.major_faults,
            preemptions: now.preemptions - begun.preemptions,
            allocations: now.allocations - begun.allocations,
        });
        let tracking = self.steering.as_ref().map(|steering| steering.error.tracking());
        let Self { totals, records, link, .. } = self;
        Left { ended, ended_ns, totals, tracking, records_lost: records.lost(), steady, link }
    }

    fn edges(&mut self) -> Ended {
        let begin_ns = monotonic_ns();
        let mut high = match self.bring_low() {
            Ok(()) => true,
            Err(ended) => return ended,
        };
        let wait_ns = self.pulse.wait.as_nanos() as u64;
        let clock = self.pulse.clock;
        let mut received = Moment::now(clock);
        let mut index = 0;
        let mut lost_in_a_row = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ended::Asked;
            }
            if self.edges.is_some_and(|edges| index >= edges) {
                return Ended::Edges;
            }
            // Algorithm 1 and section 4.3: input, controller, sleep, output.
            let controller_ns = match self.steer() {
                Ok(controller_ns) => controller_ns,
                Err(ended) => return ended,
            };
            match clock {
                _ if wait_ns == 0 => {}
                PulseClock::Monotonic => sleep_until(monotonic_ns() + wait_ns),
                PulseClock::Realtime => sleep_realtime(wait_ns),
            }
            let now_ns = monotonic_ns();
            if self.duration_ns.is_some_and(|duration_ns| now_ns - begin_ns >= duration_ns) {
                return Ended::Duration;
            }
            let level_v = if high { self.pulse.high_v } else { self.pulse.low_v };
            let resent = self.link.counts().resent;
            let sent = Moment::now(clock);
            let since = match self.pulse.stamp {
                Stamp::Receive => received,
                Stamp::Write => sent,
            };
            let (seen, stall) = match self.send_and_await(level_v, high) {
                Ok(seen) => seen,
                Err(ended) => return ended,
            };
            let arrived = match seen {
                Seen::At(moment) => {
                    received = moment;
                    true
                }
                Seen::TimedOut(moment) => {
                    received = moment;
                    false
                }
                // An edge under way when the loop is stopped is none.
                Seen::Asked => return Ended::Asked,
            };
            let (latency_ns, stepped) = received.since(since);
            self.totals.clock_steps += u64::from(stepped);
            let edge = EdgeRecord {
                index,
                sent_ns: sent.at_ns,
                received_ns: received.at_ns,
                latency_ns,
                controller_ns,
                level_v: level_v as f32,
                resends: u32::try_from(self.link.counts().resent - resent).unwrap_or(u32::MAX),
                stall_ns: stall.ns,
                stall_from_ns: stall.from_ns,
                arrived,
            };
            self.totals.add(&edge);
            self.records.push(edge);
            if let Some(saving) = &mut self.saving {
                saving.push(edge);
            }
            index += 1;
            if index == START_EDGES {
                self.begun = Some(counters());
            }
            if arrived {
                lost_in_a_row = 0;
                high = !high;
                continue;
            }
            lost_in_a_row += 1;
            if lost_in_a_row >= self.pulse.lost_in_a_row {
                return self.no_answer(lost_in_a_row);
            }
            // The input may still show the old level or show the lost one late: begin anew from
            // below.
            high = match self.bring_low() {
                Ok(()) => true,
                Err(ended) => return ended,
            };
            received = Moment::now(clock);
        }
    }

    /// Sends the low level and waits until it is there.
    fn bring_low(&mut self) -> Result<(), Ended> {
        for _ in 0..self.pulse.lost_in_a_row {
            match self.send_and_await(self.pulse.low_v, false)?.0 {
                Seen::At(_) => return Ok(()),
                Seen::Asked => return Err(Ended::Asked),
                Seen::TimedOut(_) => {}
            }
        }
        Err(self.no_answer(self.pulse.lost_in_a_row))
    }

    fn no_answer(&self, times: u32) -> Ended {
        let timeout = takt_rt::duration::format(self.pulse.timeout);
        let link = &self.link.facts().description;
        Ended::NoAnswer(format!(
            "{times} edges in a row did not return within {timeout} ({link}); check the wire from output to input, the channels and the \
             ranges, or raise pulse.timeout"
        ))
    }

    /// Writes a level and reads until it is there, as fast as the link lets it. If each iteration
    /// writes, the same level goes out after every read that does not show it.
    fn send_and_await(&mut self, level_v: f64, high: bool) -> Result<(Seen, Stall), Ended> {
        let broken = |error: takt_link_daq::LinkError| Ended::Link(error.to_string());
        let clock = self.pulse.clock;
        let mut polled_ns = monotonic_ns();
        let give_up_ns = polled_ns + self.pulse.timeout.as_nanos() as u64;
        let mut stall = Stall::default();
        self.link.write_v(level_v).map_err(broken)?;
        loop {
            let input_v = self.link.read_v().map_err(broken)?;
            let now = Moment::now(clock);
            let since_poll_ns = now.at_ns.saturating_sub(polled_ns);
            if since_poll_ns > stall.ns {
                stall = Stall { from_ns: polled_ns, ns: since_poll_ns };
            }
            polled_ns = now.at_ns;
            if (input_v >= self.pulse.threshold_v) == high {
                return Ok((Seen::At(now), stall));
            }
            if now.at_ns >= give_up_ns {
                return Ok((Seen::TimedOut(now), stall));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok((Seen::Asked, stall));
            }
            if self.pulse.write == Writes::Turn {
                self.link.again_v(level_v).map_err(broken)?;
            }
        }
    }

    /// One turn of the controller: sensors in, drive out. Returns the execution time of the
    /// controller alone.
    fn steer(&mut self) -> Result<u64, Ended> {
        let Some(steering) = &mut self.steering else { return Ok(0) };
        let broken = |error: takt_link_daq::LinkError| Ended::Link(error.to_string());
        let state = steering.wiring.state(self.link.sense_v().map_err(broken)?);
        let start_ns = monotonic_ns();
        let (first_ns, before_ns) = steering.times_ns.unwrap_or((start_ns, start_ns));
        let t_s = (start_ns - first_ns) as f64 / 1e9;
        let dt_s = match start_ns - before_ns {
            0 => steering.period_s,
            turn_ns => (turn_ns as f64 / 1e9).min(MAX_TURN_S),
        };
        steering.times_ns = Some((first_ns, start_ns));
        steering.error.push(state[0] - steering.reference.at(t_s).x);
        let input = steering.controller.control(t_s, dt_s, state);
        let controller_ns = monotonic_ns() - start_ns;
        self.link.drive_v(steering.wiring.drive_v(input)).map_err(broken)?;
        Ok(controller_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_shows_and_one_that_is_slewed_does_not() {
        let moment =
            |at_ms: u64, clock_ms: u64| Moment { at_ns: at_ms * 1_000_000, clock_ns: clock_ms * 1_000_000 };
        assert_eq!(moment(1100, 9100).since(moment(1000, 9000)), (100_000_000, false));
        // Half a thousandth faster for a minute.
        let slewed = Moment { at_ns: 60_000_000_000, clock_ns: 60_030_000_000 };
        assert!(!slewed.since(moment(0, 0)).1);
        // An hour ahead, and an hour back: a latency cannot be less than nothing.
        assert_eq!(moment(1001, 3_600_001).since(moment(1000, 0)), (3_600_001_000_000, true));
        assert_eq!(moment(1050, 0).since(moment(1000, 3_600_000)), (0, true));
    }
}
