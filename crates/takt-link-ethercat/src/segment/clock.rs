//! A device's distributed clock: local time, system time and its control, Sync0 (ET1100 data sheet,
//! section 9).

use super::config::SegmentConfig;
use super::device::{AlState, Device};
use super::fault::ClockView;
use super::registers::{
    DC_ACTIVATION, DC_DELAY, DC_DIFFERENCE, DC_OFFSET, DC_SYNC_START, DC_SYNC0_CYCLE, DC_SYSTEM_TIME,
    WATCHDOG_EXPIRED,
};
use super::truth::Log;
use super::wire::u32_at;

/// A device's own clock against the one that reports `now_ns`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// Its reading when the other showed 0.
    start_ns: u64,
    /// Excess of its rate.
    drift_ppb: i64,
    /// Period in which the drift swings; 0: it stays.
    swing_ns: u64,
    /// Correction that the control loop of the distributed clock has added.
    correction_ns: i64,
}

impl Clock {
    pub(super) fn new(index: usize, segment: &SegmentConfig) -> Self {
        Self {
            // Clocks start when their device gets power: some microseconds apart and at no common
            // zero.
            start_ns: 1_000_000 + 37_013 * index as u64,
            drift_ppb: segment.clock_drift_ppb * ((index as i64 * 7) % 11 - 5) / 5,
            swing_ns: u64::from(segment.clock_swing_s) * 1_000_000_000,
            correction_ns: 0,
        }
    }

    pub(super) fn restart(&mut self) {
        self.correction_ns = 0;
    }

    fn local_ns(&self, now_ns: u64) -> u64 {
        let drift = if self.swing_ns == 0 {
            (i128::from(now_ns) * i128::from(self.drift_ppb) / 1_000_000_000) as i64
        } else {
            // The integral of a drift that swings as a cosine.
            let turn = std::f64::consts::TAU * (now_ns % self.swing_ns) as f64 / self.swing_ns as f64;
            let most = self.drift_ppb as f64 * 1e-9 * self.swing_ns as f64 / std::f64::consts::TAU;
            (most * turn.sin()) as i64
        };
        self.start_ns.wrapping_add(now_ns).wrapping_add_signed(drift)
    }
}

/// The cyclic unit's Sync0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sync0 {
    /// System time of the next pulse; `None` while it is off, or when its start had passed as it
    /// was switched on.
    next: Option<u64>,
    cycle_ns: u64,
    on: bool,
    last_ns: u64,
    pulses: u64,
    starved: u64,
    /// When outputs came last, and whether since the last pulse.
    outputs_ns: u64,
    fresh: bool,
}

impl Sync0 {
    pub(super) fn is_dead(&self) -> bool {
        self.on && self.next.is_none()
    }

    pub(super) fn outputs_came(&mut self, at_ns: u64) {
        self.outputs_ns = at_ns;
        self.fresh = true;
    }
}

/// Pulses made up for after a silence; more have been, but nobody could tell.
const MAX_BEHIND: u64 = 50;

impl Device {
    /// System time as the device would report it.
    fn system_time_ns(&self, now_ns: u64) -> u64 {
        self.clock
            .local_ns(now_ns)
            .wrapping_add(self.esc.u64(DC_OFFSET))
            .wrapping_add_signed(self.clock.correction_ns)
    }

    pub(super) fn local_time_ns(&self, now_ns: u64) -> u64 {
        self.clock.local_ns(now_ns)
    }

    /// Puts the clock's time where a read will find it.
    pub(super) fn show_system_time(&mut self, now_ns: u64) {
        let time = self.system_time_ns(now_ns);
        self.esc.set(DC_SYSTEM_TIME, &time.to_le_bytes());
    }

    /// The reference clock's time has come by (ARMW, FRMW): report the difference, and close an
    /// eighth of it, as the filter of a real clock does over some rounds.
    pub(super) fn compare_system_time(&mut self, now_ns: u64) {
        let delay = u64::from(u32_at(&self.esc.memory, usize::from(DC_DELAY)));
        // 32 bits are compared: a master may write no more.
        let reported = (self.esc.u64(DC_SYSTEM_TIME) as u32).wrapping_add(delay as u32);
        let difference = (self.system_time_ns(now_ns) as u32).wrapping_sub(reported) as i32;
        let magnitude = difference.unsigned_abs().min(0x7FFF_FFFF);
        let register = magnitude | u32::from(difference > 0) << 31;
        self.esc.set(DC_DIFFERENCE, &register.to_le_bytes());
        let step = i64::from(difference) / 8;
        let step = if step == 0 { i64::from(difference.signum()) } else { step };
        self.clock.correction_ns -= step;
    }

    /// Whether the micro-controller runs by Sync0, and not by frames or a clock of its own.
    pub(super) fn has_sync0(&self) -> bool {
        self.sync0.next.is_some()
    }

    /// The cyclic unit has been switched on or off.
    pub(super) fn switch_sync0(&mut self, now_ns: u64) {
        let on = self.esc.memory[usize::from(DC_ACTIVATION)] & 3 == 3;
        let start = self.esc.u64(DC_SYNC_START);
        let cycle_ns = u64::from(u32_at(&self.esc.memory, usize::from(DC_SYNC0_CYCLE)));
        let ahead = start.wrapping_sub(self.system_time_ns(now_ns)) as i64;
        self.sync0 = Sync0 { on, cycle_ns, outputs_ns: self.sync0.outputs_ns, ..Sync0::default() };
        self.tick_ns = None;
        // Cycle time 0 is one pulse that waits to be acknowledged, which no drive uses.
        if on && ahead > 0 && cycle_ns > 0 {
            self.sync0.next = Some(start);
            self.await_pulse(now_ns);
        }
    }

    /// Sets the micro-controller's alarm to the next pulse.
    fn await_pulse(&mut self, now_ns: u64) {
        let Some(next) = self.sync0.next else { return };
        let mut at_ns = now_ns;
        // The second step takes in the drift.
        for _ in 0..2 {
            let left = next.wrapping_sub(self.system_time_ns(at_ns)) as i64;
            at_ns = at_ns.saturating_add_signed(left).max(now_ns);
        }
        self.tick_ns = Some(at_ns);
    }

    /// The alarm at `tick_ns` rings: a pulse, if the clock has not been set back meanwhile.
    pub(super) fn pulse(&mut self, tick_ns: u64, now_ns: u64, log: &mut Log, index: u16) {
        let Some(next) = self.sync0.next else {
            self.tick_ns = None;
            return;
        };
        let left = next.wrapping_sub(self.system_time_ns(tick_ns)) as i64;
        if left > 1 {
            self.tick_ns = Some(tick_ns.saturating_add_signed(left));
            return;
        }
        self.sync0.pulses += 1;
        self.sync0.last_ns = tick_ns;
        self.sync0.starved += u64::from(!self.sync0.fresh && self.state == AlState::Op);
        self.sync0.fresh = false;
        self.run(tick_ns, log, index);
        // In the clock's own time: a master that sets it forward sets off no flood of pulses.
        let behind =
            (self.system_time_ns(now_ns).wrapping_sub(next) as i64).max(0) as u64 / self.sync0.cycle_ns;
        let next = next.wrapping_add(self.sync0.cycle_ns * behind.saturating_sub(MAX_BEHIND).max(1));
        self.sync0.next = Some(next);
        self.esc.set(DC_SYNC_START, &next.to_le_bytes());
        self.await_pulse(tick_ns);
    }

    pub(super) fn clock_view(&self) -> ClockView {
        ClockView {
            sync0_ns: self.sync0.last_ns,
            pulses: self.sync0.pulses,
            starved: self.sync0.starved,
            outputs_ns: self.sync0.outputs_ns,
            pass_ns: self.pass_ns,
            written_delay_ns: u32_at(&self.esc.memory, usize::from(DC_DELAY)),
            expired: self.esc.memory[usize::from(WATCHDOG_EXPIRED)],
        }
    }
}
