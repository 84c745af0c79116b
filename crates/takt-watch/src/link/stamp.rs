//! A time stamp of the robot's own clock in its packets, found and not reported: a float of seconds
//! (RTDE's `timestamp`, big-endian) that grows as time does. From it: drift of that clock against
//! ours, and the phase of packets and answers in the robot's own cycle.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use takt_stats::{Recorder, RecorderError};

/// Results from the robot's own clock, if its packets carry timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RobotClock {
    /// Offset of the timestamp in the data (a 64-bit float of seconds), bytes.
    pub offset: usize,
    /// The robot's clock against ours, parts per million; positive where it is fast.
    pub drift_ppm: f64,
    /// Delay of packets after their timestamps, beyond the fastest of the packets around them:
    /// median, P99 and worst, microseconds.
    pub behind_us: [f64; 3],
    /// When answers left, in the robot's cycle by its own clock, from when the fastest packet would
    /// have come: median, P99 and worst, microseconds; zeros without answers.
    pub phase_us: [f64; 3],
    /// Margin by which answers could have left later before the robot's next packet is due by its
    /// own clock: minimum, and in 99 % of cycles, microseconds; negative if they left too late.
    /// Null without a period or answers.
    pub margin_us: Option<[f64; 2]>,
    /// Late packets that the robot stamped late as well: it is slow.
    pub slow_robot: u64,
    /// Late packets that it had stamped in time: the network was slow.
    pub slow_network: u64,
}

/// Packets before a place is taken for a stamp.
const ENOUGH: u64 = 50;
/// Packets that may not fit, of so many: sent again by TCP when their acknowledgement is late, or
/// of another kind.
const FITTING: u64 = 20;
/// And so many beside, of which the first packets may be.
const MISFITS: u64 = 2;
/// Times that the search begins anew, where the packet that it began with was of another kind.
const BEGINNINGS: u32 = 8;
/// Packets about one that show how fast the network can be. Clocks that drift by 100 ppm come apart
/// by 13 us in so many of 2 ms.
const ABOUT: usize = 64;

/// One place in the data.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    offset: usize,
    big_endian: bool,
    last: f64,
    /// From the value before, seconds.
    step_s: f64,
    /// Packets in which it was none.
    misfits: u64,
    first: (f64, u64),
    now_ns: u64,
}

/// All places that may hold a stamp, and what the one that does has shown.
#[derive(Debug)]
pub(super) struct Stamps {
    candidates: Vec<Candidate>,
    /// Since the search began.
    seen: u64,
    beginnings: u32,
    /// The place whose packets are in `ahead_ns`.
    place: Option<(usize, bool)>,
    /// Lead of our clock over the timestamps of the newest packets, counted from their first one.
    ahead_ns: VecDeque<f64>,
    behind: Recorder,
    phases: Recorder,
    slow_robot: u64,
    slow_network: u64,
}

fn value(data: &[u8], offset: usize, big_endian: bool) -> Option<f64> {
    let bytes: [u8; 8] = data.get(offset..offset + 8)?.try_into().ok()?;
    let value = if big_endian { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) };
    (value.is_finite() && value > 1e-3 && value < 1e11).then_some(value)
}

impl Stamps {
    /// None is known yet.
    ///
    /// # Errors
    /// No memory for figures.
    pub(super) fn new() -> Result<Self, RecorderError> {
        Ok(Self {
            candidates: Vec::new(),
            seen: 0,
            beginnings: 0,
            place: None,
            ahead_ns: VecDeque::with_capacity(ABOUT),
            behind: Recorder::compact(None)?,
            phases: Recorder::compact(None)?,
            slow_robot: 0,
            slow_network: 0,
        })
    }

    /// Takes a packet's data, which came at `time_ns`; `late` is how late it came, and the period.
    /// Returns its delay after its timestamp, nanoseconds; None without a timestamp, or if it is
    /// not known yet.
    pub(super) fn see(&mut self, data: &[u8], time_ns: u64, late: Option<(u64, f64)>) -> Option<u64> {
        self.seen += 1;
        if self.seen == 1 {
            self.begin(data, time_ns);
            return None;
        }
        let known = self.seen > ENOUGH;
        for one in &mut self.candidates {
            // It grows, and over all as fast as our clock does, but for drift.
            let ours_s = time_ns.saturating_sub(one.first.1) as f64 / 1e9;
            let fitting = value(data, one.offset, one.big_endian)
                .filter(|now| *now > one.last && (now - one.first.0 - ours_s).abs() <= 0.05 * ours_s + 0.2);
            match fitting {
                Some(now) => (one.step_s, one.last, one.now_ns) = (now - one.last, now, time_ns),
                None => one.misfits += 1,
            }
        }
        let bearable = MISFITS + self.seen / FITTING;
        self.candidates.retain(|one| one.misfits <= bearable);
        if self.candidates.is_empty() && self.beginnings < BEGINNINGS {
            self.beginnings += 1;
            self.seen = 0;
        }
        let step_s = self.candidates.first().filter(|one| known && one.now_ns == time_ns)?.step_s;
        if let Some((late_ns, period_ns)) = late {
            // A stamp that steps as far as the packet came late was made late.
            let is_stamped_late = step_s * 1e9 > period_ns + 0.5 * late_ns as f64;
            if is_stamped_late { self.slow_robot += 1 } else { self.slow_network += 1 }
        }
        let behind_ns = self.behind()?;
        self.behind.record(behind_ns);
        Some(behind_ns)
    }

    fn begin(&mut self, data: &[u8], time_ns: u64) {
        for offset in 0..data.len().saturating_sub(7) {
            for big_endian in [true, false] {
                let Some(first) = value(data, offset, big_endian) else { continue };
                self.candidates.push(Candidate {
                    offset,
                    big_endian,
                    last: first,
                    step_s: 0.0,
                    misfits: 0,
                    first: (first, time_ns),
                    now_ns: time_ns,
                });
            }
        }
    }

    /// Delay of the newest packet after its timestamp.
    fn behind(&mut self) -> Option<u64> {
        let one = self.candidates.first()?;
        let place = Some((one.offset, one.big_endian));
        if self.place != place {
            self.place = place;
            self.ahead_ns.clear();
        }
        let ours_ns = one.now_ns.saturating_sub(one.first.1) as f64;
        let ahead_ns = ours_ns - (one.last - one.first.0) * 1e9;
        if self.ahead_ns.len() >= ABOUT {
            self.ahead_ns.pop_front();
        }
        self.ahead_ns.push_back(ahead_ns);
        let fastest_ns = self.ahead_ns.iter().copied().fold(f64::INFINITY, f64::min);
        Some((ahead_ns - fastest_ns) as u64)
    }

    /// The answer to a packet that came so far behind its stamp left so long after it had come.
    pub(super) fn answered(&mut self, behind_ns: u64, response_ns: u64) {
        self.phases.record(behind_ns.saturating_add(response_ns));
    }

    /// Report on the robot's clock; `period_ns` is the period of its packets.
    pub(super) fn report(&self, period_ns: Option<f64>) -> Option<RobotClock> {
        let one = self.candidates.first().filter(|_| self.seen > ENOUGH)?;
        let ours_s = one.now_ns.saturating_sub(one.first.1) as f64 / 1e9;
        let theirs_s = one.last - one.first.0;
        let us = |recorder: &Recorder| {
            let summary = recorder.summary().over(1e3);
            [summary.median, summary.p99, summary.worst]
        };
        let phase_us = us(&self.phases);
        let period_us = period_ns.filter(|_| self.phases.count() > 0).map(|ns| ns / 1e3);
        (ours_s > 0.0).then(|| RobotClock {
            offset: one.offset,
            drift_ppm: (theirs_s / ours_s - 1.0) * 1e6,
            behind_us: us(&self.behind),
            phase_us,
            margin_us: period_us.map(|period_us| [period_us - phase_us[2], period_us - phase_us[1]]),
            slow_robot: self.slow_robot,
            slow_network: self.slow_network,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size, type, recipe, stamp, a joint that moves.
    fn packet(stamp_s: f64, joint: f64) -> Vec<u8> {
        let mut data = vec![0, 55, 85, 1];
        data.extend(stamp_s.to_be_bytes());
        data.extend(joint.to_be_bytes());
        data
    }

    #[test]
    fn a_stamp_is_found_with_its_drift() {
        let mut stamps = Stamps::new().unwrap();
        let mut known = 0;
        for index in 0..200_u32 {
            let data =
                packet(1000.0 + 0.002_000_2 * f64::from(index), 1.5 + 0.1 * (f64::from(index) * 0.01).sin());
            let time_ns = 1_000_000_000 + 2_000_000 * u64::from(index);
            known += u32::from(stamps.see(&data, time_ns, None).is_some());
        }
        let clock = stamps.report(Some(2e6)).unwrap();
        assert!(clock.offset == 4 && (clock.drift_ppm - 100.0).abs() < 1.0, "{clock:?}");
        // Nobody answered.
        assert!(known > 140 && clock.margin_us.is_none(), "{known} {clock:?}");
    }

    /// The robot keeps its grid; the network takes 300 us, and 900 us for each tenth packet; each
    /// is answered 500 us later.
    #[test]
    fn the_phase_is_that_of_the_robot_s_clock_and_not_of_arrivals() {
        let mut stamps = Stamps::new().unwrap();
        for index in 0..500_u64 {
            let sent_ns = 1_000_000_000 + 2_000_000 * index;
            let network_ns = if index % 10 == 9 { 900_000 } else { 300_000 };
            let data = packet(sent_ns as f64 / 1e9 + 5e4, 0.0);
            let behind_ns = stamps.see(&data, sent_ns + network_ns, None);
            if let Some(behind_ns) = behind_ns {
                stamps.answered(behind_ns, 500_000);
            }
        }
        let clock = stamps.report(Some(2e6)).unwrap();
        for (found, expected) in clock.behind_us.into_iter().zip([0.0, 600.0, 600.0]) {
            assert!((found - expected).abs() < 2.0, "{clock:?}");
        }
        for (found, expected) in clock.phase_us.into_iter().zip([500.0, 1100.0, 1100.0]) {
            assert!((found - expected).abs() < 2.0, "{clock:?}");
        }
        assert!(clock.margin_us.is_some_and(|[least, _]| (least - 900.0).abs() < 2.0), "{clock:?}");
    }

    /// A packet that is late by 3 ms, stamped late by a slow robot, or in time.
    #[test]
    fn a_slow_robot_and_a_slow_network_are_distinguished() {
        for (stamped_late, expected) in [(true, (1, 0)), (false, (0, 1))] {
            let mut stamps = Stamps::new().unwrap();
            for index in 0..100_u64 {
                let is_late = index == 80;
                let sent_ns = 2_000_000 * index + if is_late && stamped_late { 3_000_000 } else { 0 };
                let came_ns = 1_000_000_000 + 2_000_000 * index + if is_late { 3_000_000 } else { 0 };
                let late = is_late.then_some((3_000_000, 2e6));
                // The next one's stamp must not lie before that of the late one.
                if stamped_late && index == 81 {
                    continue;
                }
                stamps.see(&packet(1.0 + sent_ns as f64 / 1e9, 0.0), came_ns, late);
            }
            let clock = stamps.report(Some(2e6)).unwrap();
            assert_eq!((clock.slow_robot, clock.slow_network), expected, "{clock:?}");
        }
    }

    /// TCP sends a packet again whose acknowledgement is late, and a robot has messages of other
    /// kinds, the first one among them.
    #[test]
    fn packets_that_come_twice_and_others_hide_no_stamp() {
        let mut stamps = Stamps::new().unwrap();
        let other = b"a message of another kind, 1234567890".to_vec();
        stamps.see(&other, 999_000_000, None);
        let mut twice = 0;
        for index in 0..500_u64 {
            let time_ns = 1_000_000_000 + 8_000_000 * index;
            let data = packet(50.0 + time_ns as f64 / 1e9, 0.5);
            stamps.see(&data, time_ns, None);
            if index % 50 == 10 {
                twice += u32::from(stamps.see(&data, time_ns + 2_000_000, None).is_some());
            }
            if index % 100 == 70 {
                stamps.see(&other, time_ns + 3_000_000, None);
            }
        }
        let clock = stamps.report(Some(8e6)).unwrap();
        assert!(clock.offset == 4 && clock.drift_ppm.abs() < 1.0, "{clock:?}");
        assert!(twice == 0 && clock.behind_us[2] < 1.0, "{clock:?}");
    }

    #[test]
    fn what_only_grows_is_no_stamp() {
        let mut stamps = Stamps::new().unwrap();
        for index in 0..200_u32 {
            let mut data = f64::from(index + 1).to_be_bytes().to_vec();
            data.extend(b"and text");
            stamps.see(&data, 1_000_000_000 + 2_000_000 * u64::from(index), None);
        }
        assert_eq!(stamps.report(Some(2e6)), None);
        // Packets of any length.
        for length in 0..16 {
            stamps.see(&vec![0xff; length], 0, None);
        }
    }
}
