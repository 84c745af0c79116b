//! The controller's cycle, locked to the reference clock of the distributed clocks.
//!
//! Each cycle's frame carries the reference clock's time to all other devices (FRMW of 0x0910), and
//! brings it back here. From that and the time at which the frame was sent, the lock estimates how
//! the reference clock runs against ours: an offset and a drift, as a second-order loop. Then it
//! shows by how much the next release must be moved so that frames pass the reference clock at
//! whole multiples of the cycle in its time. The effect of the wake-up's lateness on a frame is not
//! mistaken for drift: the estimate is of clocks, and lateness changes neither.

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, within};

/// Lock of the cycle on the reference clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockConfig {
    /// Whether the cycle follows the reference clock. True: drives that act at Sync0 want their
    /// outputs in the same phase of each cycle, and two quartzes drift through a cycle of 1 ms
    /// within seconds. Without effect where no device has a clock.
    pub follow: bool,
    /// The cycle, nanoseconds; 1000000, 1 ms, when absent. The humanoid's is that of its `rate_hz`:
    /// another one given here is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_ns: Option<u32>,
    /// Most that a release is moved by, nanoseconds a cycle. 10000: 1 % of 1 ms, which drives'
    /// interpolation does not feel, and a hundred times what quartzes drift.
    pub max_shift_ns: u32,
}

impl Default for ClockConfig {
    fn default() -> Self {
        Self { follow: true, cycle_ns: None, max_shift_ns: 10_000 }
    }
}

impl ClockConfig {
    /// The cycle, nanoseconds.
    pub fn period_ns(&self) -> u32 {
        self.cycle_ns.unwrap_or(1_000_000)
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let cycle_ns = self.period_ns();
        within("clock.cycle_ns", cycle_ns as f64, 50_000.0, 1e9)?;
        let most = cycle_ns / 10;
        if !(1..=most).contains(&self.max_shift_ns) {
            let accepted = format!("accepted are 1 to {most}, a tenth of the cycle");
            return Err(SettingError::value("clock.max_shift_ns", self.max_shift_ns, accepted));
        }
        Ok(())
    }
}

/// Sync0 of a device: it takes its outputs and samples its inputs at this pulse, and not when a
/// frame passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sync0 {
    /// Time between pulses, microseconds; 0: the cycle.
    pub cycle_us: u32,
    /// Time from the frame to the pulse, microseconds; half a cycle when absent: as far as can be
    /// from both frames.
    pub shift_us: Option<u32>,
}

/// Phase of the cycle against the reference clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Phase {
    /// When the frame passed the reference clock, from the nearest whole cycle of its time; the
    /// lateness of the wake-up included.
    pub frame_ns: i32,
    /// The same for the planned release, as estimated.
    pub release_ns: i32,
    /// Whether the releases have been within [`LOCKED_NS`] for [`LOCKED_CYCLES`], and the reference
    /// clock bears them out: it has answered within `SILENT_CYCLES`, and at most `MAX_FAR` of its
    /// last 64 answers lie far from the estimate.
    pub locked: bool,
}

/// Totals of the lock since the bring-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ClockTotals {
    /// Answers of the reference clock.
    pub answers: u64,
    /// Cycles planned while locked.
    pub locked_cycles: u64,
    /// Times that the lock was lost.
    pub unlocked: u64,
    /// Farthest that a release was planned from its phase while locked, nanoseconds.
    pub farthest_release_ns: u32,
    /// Farthest that a frame passed from its phase while locked.
    pub farthest_frame_ns: u32,
    /// Excess of the reference clock's rate over CLOCK_MONOTONIC, in parts per 10⁹.
    pub drift_ppb: i64,
}

/// Farthest that a release of a locked cycle is from its phase.
pub const LOCKED_NS: u32 = 20_000;
/// Cycles in a row within [`LOCKED_NS`] before the cycle counts as locked.
pub const LOCKED_CYCLES: u32 = 50;
/// Answers before releases are moved: fewer say nothing of the drift.
const MIN_ANSWERS: u64 = 8;
/// Cycles without an answer of the reference clock after which the estimate is nobody's word but
/// our own. 64: at 100 ppm the clocks part by 6 us meanwhile, well within [`LOCKED_NS`].
pub const SILENT_CYCLES: u32 = 64;
/// Most of the last 64 answers that may be far while the cycle counts as locked. 8: frames that are
/// held up on a busy host, and not a clock that says something else.
pub const MAX_FAR: u32 = 8;
/// An answer that is farther off was held up on its way, or is wrong, and does not move the
/// estimate.
const MAX_INNOVATION_NS: f64 = 20_000.0;
/// So many of them in a row that agree with each other, and it is the clock that has jumped.
const JUMP_AFTER: usize = 64;

/// The lock. Pure: given answers, asked for moves.
#[derive(Debug, Clone)]
pub(super) struct ClockLock {
    period_ns: i64,
    max_shift_ns: i64,
    /// The reference clock at the last answer, and our clock at its sending.
    reference_ns: u64,
    local_ns: u64,
    /// Reference less local clock, beyond `base_ns`.
    base_ns: i64,
    offset_ns: f64,
    drift: f64,
    /// From the planned release to the sending, usually.
    lead_ns: f64,
    /// By how much the answers were off that have been far in a row.
    far_ns: [f64; JUMP_AFTER],
    far: usize,
    /// The last 64 answers, the newest in bit 0; 1: far.
    lately_far: u64,
    /// Cycles planned since the last answer.
    silent: u32,
    near: u32,
    phase: Phase,
    totals: ClockTotals,
}

impl ClockLock {
    pub fn new(config: &ClockConfig) -> Self {
        Self {
            period_ns: i64::from(config.period_ns()),
            max_shift_ns: config.max_shift_ns.into(),
            reference_ns: 0,
            local_ns: 0,
            base_ns: 0,
            offset_ns: 0.0,
            drift: 0.0,
            lead_ns: 0.0,
            far_ns: [0.0; JUMP_AFTER],
            far: 0,
            lately_far: 0,
            silent: 0,
            near: 0,
            phase: Phase::default(),
            totals: ClockTotals::default(),
        }
    }

    /// The reference clock showed `reference_ns` to a frame that was sent at `sent_ns` of our
    /// clock.
    pub fn answer(&mut self, sent_ns: u64, reference_ns: u64) {
        let totals = &mut self.totals;
        totals.answers += 1;
        if totals.answers == 1 {
            self.base_ns = reference_ns.wrapping_sub(sent_ns) as i64;
            (self.reference_ns, self.local_ns) = (reference_ns, sent_ns);
            self.silent = 0;
            return;
        }
        let elapsed_ns = sent_ns.wrapping_sub(self.local_ns) as i64;
        if elapsed_ns <= 0 {
            // An answer that came late: a newer one has been taken.
            return;
        }
        let expected = self.offset_ns + self.drift * elapsed_ns as f64;
        // Clocks of 32 bits begin anew every 4.3 s: the low half is taken as near to what is
        // expected as it can be.
        let expected_ns = sent_ns.wrapping_add_signed(self.base_ns).wrapping_add_signed(expected as i64);
        let off = (reference_ns as u32).wrapping_sub(expected_ns as u32) as i32;
        self.reference_ns = expected_ns.wrapping_add_signed(off.into());
        self.local_ns = sent_ns;
        self.silent = 0;
        let innovation = f64::from(off);
        let first = totals.answers <= 2 * MIN_ANSWERS;
        let far = innovation.abs() > MAX_INNOVATION_NS && !first;
        self.lately_far = self.lately_far << 1 | u64::from(far);
        if far {
            // The estimate goes on as it was: many wrong answers would drag it along, however
            // little each of them may.
            self.offset_ns = expected;
            self.far_ns[self.far] = innovation;
            self.far += 1;
            if self.far == JUMP_AFTER {
                self.far = 0;
                if let Some(jump_ns) = agreed(&mut self.far_ns) {
                    (self.offset_ns, self.drift) = (expected + jump_ns, 0.0);
                }
            }
            self.passed();
            return;
        }
        self.far = 0;
        // Fast at first, then slow enough to average the way of single frames; critically damped.
        let gain = (2.0 / totals.answers as f64).max(1.0 / 16.0);
        self.offset_ns = expected + gain * innovation;
        self.drift += gain * gain / 4.0 * innovation / (elapsed_ns as f64).max(self.period_ns as f64);
        self.drift = self.drift.clamp(-0.001, 0.001);
        totals.drift_ppb = (self.drift * 1e9) as i64;
        self.passed();
    }

    /// The frame of the last answer, against its phase.
    fn passed(&mut self) {
        self.phase.frame_ns = self.off_grid(self.reference_ns);
        if self.phase.locked {
            let farthest = &mut self.totals.farthest_frame_ns;
            *farthest = (*farthest).max(self.phase.frame_ns.unsigned_abs());
        }
    }

    /// A frame was sent `after_ns` after its planned release.
    pub fn sent(&mut self, after_ns: u64) {
        // A single delay of a frame says nothing about the next one.
        let after_ns = (after_ns as f64).min(self.period_ns as f64 / 4.0);
        self.lead_ns += (after_ns - self.lead_ns).clamp(-1000.0, 1000.0) / 64.0;
    }

    /// Reading of the reference clock when a frame of the release planned for `local_ns` passes.
    fn at(&self, local_ns: u64) -> u64 {
        let elapsed_ns = local_ns.wrapping_sub(self.local_ns) as i64 as f64;
        let beyond = self.offset_ns + self.drift * elapsed_ns + self.lead_ns;
        local_ns.wrapping_add_signed(self.base_ns).wrapping_add_signed(beyond as i64)
    }

    /// Distance of a reference clock's time from the nearest whole cycle.
    fn off_grid(&self, reference_ns: u64) -> i32 {
        let phase = (reference_ns % self.period_ns as u64) as i64;
        (if phase > self.period_ns / 2 { phase - self.period_ns } else { phase }) as i32
    }

    /// By how much the release planned for `next_ns` is to be moved.
    pub fn shift(&mut self, next_ns: u64) -> i64 {
        if self.totals.answers < MIN_ANSWERS {
            return 0;
        }
        let phase = i64::from(self.off_grid(self.at(next_ns)));
        let shift = (-phase).clamp(-self.max_shift_ns, self.max_shift_ns);
        let left = phase + shift;
        self.phase.release_ns = left as i32;
        self.silent = self.silent.saturating_add(1);
        let borne_out = self.silent <= SILENT_CYCLES && self.lately_far.count_ones() <= MAX_FAR;
        let within = left.unsigned_abs() <= u64::from(LOCKED_NS) && borne_out;
        self.near = if within { self.near.saturating_add(1) } else { 0 };
        if self.phase.locked && !within {
            self.totals.unlocked += 1;
        }
        self.phase.locked = within && (self.phase.locked || self.near >= LOCKED_CYCLES);
        if self.phase.locked {
            self.totals.locked_cycles += 1;
            self.totals.farthest_release_ns = self.totals.farthest_release_ns.max(left.unsigned_abs() as u32);
        }
        shift
    }

    /// The first release at or after `from_ns` that is in phase; `from_ns` while nothing is known.
    pub fn align(&self, from_ns: u64) -> u64 {
        if self.totals.answers < MIN_ANSWERS {
            return from_ns;
        }
        let phase = i64::from(self.off_grid(self.at(from_ns)));
        let left = if phase > 0 { self.period_ns - phase } else { -phase };
        from_ns.saturating_add_signed(left)
    }

    pub fn phase(&self) -> Option<Phase> {
        (self.totals.answers >= MIN_ANSWERS).then_some(self.phase)
    }

    pub fn totals(&self) -> ClockTotals {
        self.totals
    }

    /// Forgets what was counted, and nothing of the clocks.
    pub(crate) fn begin_counting(&mut self) {
        let ClockTotals { answers, drift_ppb, .. } = self.totals;
        self.totals = ClockTotals { answers, drift_ppb, ..ClockTotals::default() };
    }
}

/// By how much the clock has jumped, when so many answers say the same: all in one direction, and
/// most of them as far, but for the drift meanwhile. A clock that stands still or says anything
/// does not agree with itself.
fn agreed(far_ns: &mut [f64; JUMP_AFTER]) -> Option<f64> {
    far_ns.sort_unstable_by(f64::total_cmp);
    let (least, median, most) = (far_ns[0], far_ns[JUMP_AFTER / 2], far_ns[JUMP_AFTER - 1]);
    let close = far_ns.iter().filter(|ns| (**ns - median).abs() <= MAX_INNOVATION_NS).count();
    ((least > 0.0 || most < 0.0) && close > JUMP_AFTER / 2).then_some(median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use takt_rt::random::SplitMix64;

    /// Runs a lock for `cycles` against a clock with `drift_ppm` and `start`; the farthest phase of
    /// a frame's passage after the first second, by the clock's own truth.
    fn farthest(drift_ppm: f64, start: u64, wide: bool, cycles: u64, jitter: &[u64]) -> i64 {
        let mut lock = ClockLock::new(&ClockConfig::default());
        let clock = |at_ns: u64| {
            let time =
                start.wrapping_add(at_ns).wrapping_add_signed((at_ns as f64 * drift_ppm * 1e-6) as i64);
            if wide { time } else { u64::from(time as u32) }
        };
        let full = |at_ns: u64| {
            start.wrapping_add(at_ns).wrapping_add_signed((at_ns as f64 * drift_ppm * 1e-6) as i64)
        };
        let mut planned_ns = 1_000_000_000_u64;
        let mut farthest = 0;
        for cycle in 0..cycles {
            let late = jitter[cycle as usize % jitter.len()];
            let sent_ns = planned_ns + late;
            let pass_ns = sent_ns + 3000;
            if cycle > 1000 {
                let phase = (full(pass_ns) % 1_000_000) as i64;
                let phase = if phase > 500_000 { phase - 1_000_000 } else { phase };
                farthest = farthest.max(phase.abs());
            }
            lock.sent(late);
            lock.answer(sent_ns, clock(pass_ns));
            planned_ns = (planned_ns + 1_000_000).wrapping_add_signed(lock.shift(planned_ns + 1_000_000));
        }
        assert!(lock.phase().unwrap().locked);
        farthest
    }

    #[test]
    fn the_phase_holds_at_the_ends_of_quartzes() {
        for drift_ppm in [-100.0, 0.0, 100.0] {
            let most = farthest(drift_ppm, 1 << 59, true, 60_000, &[2000, 0, 5000, 1000]);
            assert!(most < 10_000, "{drift_ppm} ppm: {most} ns");
        }
        // A clock of 32 bits begins anew every 4.3 s, which no whole number of cycles fits. Its
        // cycle is kept.
        let most = farthest(100.0, 12_345, false, 10_000, &[0]);
        assert!(most < 10_000, "{most} ns");
    }

    #[test]
    fn a_wake_up_that_was_late_once_moves_nothing() {
        let mut jitter = vec![1000; 997];
        jitter[500] = 700_000;
        let mut lock = ClockLock::new(&ClockConfig::default());
        let mut planned_ns = 1_000_000_000_u64;
        let mut most = 0;
        for cycle in 0..20_000_usize {
            let late = jitter[cycle % jitter.len()];
            lock.sent(late);
            lock.answer(planned_ns + late, (planned_ns + late + 3000) * 2 - planned_ns - late);
            let shift = lock.shift(planned_ns + 1_000_000);
            if cycle > 2000 {
                most = most.max(shift.abs());
            }
            planned_ns = (planned_ns + 1_000_000).wrapping_add_signed(shift);
        }
        assert!(most < 1000, "{most} ns a cycle");
    }

    /// Reading of a reference clock: the cycle's number and its true time; `None`: no reading.
    type Shows<'a> = &'a mut dyn FnMut(u64, u64) -> Option<u64>;

    /// Runs a lock against a clock at +50 ppm that is sound for 2000 cycles, and then `shows`
    /// something for 6000. Returns in how many of these the cycle counted as locked, and the
    /// farthest that a release was from its true phase.
    fn spoilt(shows: Shows<'_>) -> (u64, i64) {
        let mut lock = ClockLock::new(&ClockConfig::default());
        let truth = |at_ns: u64| at_ns + at_ns / 20_000;
        let mut planned_ns = 1_000_000_000_u64;
        let (mut locked, mut farthest) = (0, 0);
        for cycle in 0..8000 {
            let sent_ns = planned_ns + 1000 + cycle % 7 * 500;
            let time_ns = truth(sent_ns + 3000);
            lock.sent(sent_ns - planned_ns);
            let shown = if cycle < 2000 { Some(time_ns) } else { shows(cycle - 2000, time_ns) };
            if let Some(shown) = shown {
                lock.answer(sent_ns, shown);
            }
            let next_ns = planned_ns + 1_000_000;
            planned_ns = next_ns.wrapping_add_signed(lock.shift(next_ns));
            let phase = lock.phase().unwrap_or_default();
            assert!(cycle != 1999 || phase.locked);
            if cycle >= 2000 {
                locked += u64::from(phase.locked);
                farthest = farthest.max(i64::from(lock.off_grid(truth(planned_ns + 5500)).abs()));
            }
        }
        (locked, farthest)
    }

    #[test]
    fn a_clock_that_is_silent_is_not_followed_on_our_own_word() {
        let (locked, _) = spoilt(&mut |_, _| None);
        assert!(locked <= u64::from(SILENT_CYCLES), "{locked}");
        // One answer in each 50 cycles is enough.
        let (locked, farthest) = spoilt(&mut |cycle, time_ns| (cycle % 50 == 0).then_some(time_ns));
        assert!(locked == 6000 && farthest < 20_000, "{locked}, {farthest} ns");
    }

    #[test]
    fn a_clock_that_reports_no_time_is_no_lock() {
        let mut random = SplitMix64::new(1);
        let few = u64::from(MAX_FAR) + 1;
        for (name, shows) in [
            ("zero", &mut (|_, _| Some(0_u64)) as Shows<'_>),
            ("stuck", &mut |_, _| Some(3_000_123_456_u64)),
            ("random", &mut |_, _| Some(random.bits())),
        ] {
            let (locked, _) = spoilt(shows);
            assert!(locked <= few, "{name}: locked in {locked} of 6000 cycles");
        }
        // From the beginning.
        let mut lock = ClockLock::new(&ClockConfig::default());
        for cycle in 1..5000_u64 {
            lock.answer(cycle * 1_000_000, 77);
            lock.shift((cycle + 1) * 1_000_000);
        }
        assert_eq!(lock.totals().locked_cycles, 0);
    }

    #[test]
    fn wrong_answers_move_nothing_and_are_no_lock() {
        let few = u64::from(MAX_FAR) + 3;
        let (locked, farthest) =
            spoilt(&mut |cycle, time_ns| Some(if cycle % 64 == 63 { time_ns } else { time_ns + 300_000 }));
        assert!(locked <= few && farthest < 20_000, "63 of 64: locked {locked}, {farthest} ns off");
        let mut random = SplitMix64::new(1);
        let (locked, farthest) = spoilt(&mut |_, time_ns| {
            Some(if random.bits().is_multiple_of(2) { time_ns } else { time_ns + 400_000 })
        });
        assert!(locked <= 64 && farthest < 20_000, "half: locked {locked}, {farthest} ns off");
        // To either side: that is not a jump.
        let (locked, farthest) = spoilt(&mut |cycle, time_ns| {
            Some(if cycle % 2 == 0 { time_ns - 400_000 } else { time_ns + 400_000 })
        });
        assert!(locked <= few && farthest < 300_000, "both sides: locked {locked}, {farthest} ns off");
        // A frame that is held up now and then costs no lock.
        let (locked, farthest) =
            spoilt(&mut |cycle, time_ns| Some(if cycle % 20 == 0 { time_ns + 400_000 } else { time_ns }));
        assert!(locked == 6000 && farthest < 10_000, "one of 20: locked {locked}, {farthest} ns off");
    }

    #[test]
    fn a_clock_that_jumps_is_followed() {
        for jump_ns in [300_000, -300_000] {
            let mut lock = ClockLock::new(&ClockConfig::default());
            let mut planned_ns = 1_000_000_000_u64;
            for cycle in 0..2300_u64 {
                let shown_ns = planned_ns + 3000;
                let jumped_ns = if cycle < 2000 { 0 } else { jump_ns };
                lock.answer(planned_ns, shown_ns.wrapping_add_signed(jumped_ns));
                let next_ns = planned_ns + 1_000_000;
                planned_ns = next_ns.wrapping_add_signed(lock.shift(next_ns));
                assert!(!(2020..2064).contains(&cycle) || !lock.phase().unwrap().locked, "{cycle}");
            }
            assert!(lock.phase().unwrap().locked, "{:?}", lock.totals());
            let off = lock.off_grid((planned_ns + 3000).wrapping_add_signed(jump_ns));
            assert!(off.abs() < 5000 && lock.totals().unlocked == 1, "{off} ns, {:?}", lock.totals());
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_clock_says_breaks_the_lock(
            answers in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..200)
        ) {
            let mut lock = ClockLock::new(&ClockConfig::default());
            for (sent_ns, reference_ns, next_ns) in answers {
                lock.sent(next_ns);
                lock.answer(sent_ns, reference_ns);
                prop_assert!(lock.shift(next_ns).abs() <= 10_000);
                let _ = lock.align(next_ns);
            }
        }
    }
}
