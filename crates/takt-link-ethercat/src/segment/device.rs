//! One sub-device: its ESC, EEPROM, state machine and the micro-controller behind it.

use super::app::App;
use super::clock::{Clock, Sync0};
use super::coe::Coe;
use super::config::{DeviceConfig, SegmentConfig};
use super::esc::{Esc, Events};
use super::fault::Refusal;
use super::objects::{DeviceKind, Pdo, Profile};
use super::registers::{
    AL_CONTROL, AL_STATUS, AL_STATUS_CODE, PDI_CONTROL, WATCHDOG_DIVIDER, WATCHDOG_EXPIRED,
    WATCHDOG_PROCESS_DATA, WATCHDOG_STATUS,
};
use super::sii::{INPUTS, Identity, MAILBOX, OUTPUTS, REQUEST, RESPONSE, Sii};
use super::truth::Log;

/// States of the AL state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlState {
    /// No communication but registers.
    Init = 1,
    /// Mailbox.
    PreOp = 2,
    /// Mailbox and inputs.
    SafeOp = 4,
    /// Mailbox, inputs and outputs.
    Op = 8,
}

impl AlState {
    fn decode(nibble: u8) -> Option<Self> {
        match nibble {
            1 => Some(Self::Init),
            2 => Some(Self::PreOp),
            4 => Some(Self::SafeOp),
            8 => Some(Self::Op),
            _ => None,
        }
    }
}

/// AL status codes (ETG.1020, table 11).
pub mod status_code {
    /// Invalid requested state change.
    pub const INVALID_CHANGE: u16 = 0x0011;
    /// Unknown requested state.
    pub const UNKNOWN_STATE: u16 = 0x0012;
    /// Bootstrap not supported.
    pub const NO_BOOTSTRAP: u16 = 0x0013;
    /// Invalid mailbox configuration in PREOP.
    pub const MAILBOX: u16 = 0x0016;
    /// Sync manager watchdog.
    pub const WATCHDOG: u16 = 0x001B;
    /// Invalid output configuration.
    pub const OUTPUTS: u16 = 0x001D;
    /// Invalid input configuration.
    pub const INPUTS: u16 = 0x001E;
    /// No Sync0 pulse comes though it is switched on.
    pub const NO_SYNC: u16 = 0x002D;
    /// Set from outside: "no valid outputs".
    pub const NO_VALID_OUTPUTS: u16 = 0x001C;
}

/// One simulated device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: DeviceKind,
    pub(super) identity: Identity,
    pub(super) profile: &'static Profile,
    pub(super) esc: Esc,
    pub(super) sii: Sii,
    pub(super) state: AlState,
    pub(super) error: bool,
    pub(super) rx: Option<&'static Pdo>,
    pub(super) tx: Option<&'static Pdo>,
    pub(super) coe: Coe,
    pub(super) app: App,
    /// Reachable by frames; unplugged devices and all behind them are not.
    pub(super) present: bool,
    pub(super) refusal: Option<Refusal>,
    pub(super) clock: Clock,
    pub(super) sync0: Sync0,
    /// When a frame passes here, after the time at which it comes to the segment.
    pub(super) pass_ns: u64,
    /// When the micro-controller runs next.
    pub(super) tick_ns: Option<u64>,
    ran_ns: Option<u64>,
    pub(super) outputs_ns: u64,
}

impl Device {
    pub(super) fn new(config: &DeviceConfig, index: usize, segment: &SegmentConfig) -> Self {
        let profile = config.kind.profile();
        let identity = config.identity(index);
        let sii = Sii::build(identity, config.alias, &config.name, profile);
        let mut device = Self {
            name: config.name.clone(),
            kind: config.kind,
            identity,
            profile,
            esc: Esc::new(segment.distributed_clocks),
            sii,
            state: AlState::Init,
            error: false,
            rx: profile.rx.first(),
            tx: profile.tx.first(),
            coe: Coe::default(),
            app: App::new(config, segment, index),
            present: true,
            refusal: None,
            clock: Clock::new(index, segment),
            sync0: Sync0::default(),
            pass_ns: 0,
            tick_ns: None,
            ran_ns: None,
            outputs_ns: 0,
        };
        device.power_on(segment.watchdog_ms);
        device
    }

    fn power_on(&mut self, watchdog_ms: u32) {
        // Units of 100 us: (2498 + 2) ticks of 25 MHz.
        self.esc.set(WATCHDOG_DIVIDER, &2498_u16.to_le_bytes());
        let units = u16::try_from(u64::from(watchdog_ms) * 10).unwrap_or(u16::MAX);
        self.esc.set(WATCHDOG_PROCESS_DATA, &units.to_le_bytes());
        self.esc.set(WATCHDOG_STATUS, &1_u16.to_le_bytes());
        self.esc.set(PDI_CONTROL, &[0x05]);
        self.sii.load(&mut self.esc);
        self.show_state(0);
    }

    /// A device that comes back has lost all that it was reported.
    pub(super) fn restart(&mut self, watchdog_ms: u32) {
        self.esc = Esc::new(self.esc.clocks);
        self.state = AlState::Init;
        self.error = false;
        self.rx = self.profile.rx.first();
        self.tx = self.profile.tx.first();
        self.coe.reset();
        self.app.lose_master();
        self.tick_ns = None;
        self.sync0 = Sync0::default();
        self.power_on(watchdog_ms);
    }

    fn show_state(&mut self, code: u16) {
        let status = self.state as u16 | u16::from(self.error) << 4;
        self.esc.set(AL_STATUS, &status.to_le_bytes());
        self.esc.set(AL_STATUS_CODE, &code.to_le_bytes());
    }

    /// Runs what the access has set off. Returns whether the segment must look at the routing
    /// again.
    pub(super) fn handle(&mut self, events: Events, now_ns: u64) -> bool {
        if events.has(Events::CLOCK_RESET) {
            self.clock.restart();
        }
        if events.has(Events::SYSTEM_TIME) {
            self.compare_system_time(now_ns + self.pass_ns);
        }
        if events.has(Events::ACTIVATION) {
            self.switch_sync0(now_ns + self.pass_ns);
        }
        if events.has(Events::SII) {
            self.sii.command(&mut self.esc);
        }
        if events.has(Events::AL_CONTROL) {
            self.control(now_ns);
        }
        if events.has(Events::REPEAT) {
            self.repeat_response();
        }
        if events.has(Events::MAILBOX_WRITTEN) || events.has(Events::MAILBOX_READ) {
            self.serve_mailbox();
        }
        events.has(Events::ROUTING)
            || events.has(Events::AL_CONTROL)
            || events.has(Events::STATION)
            || events.has(Events::ACTIVATION)
    }

    /// The master has written AL control.
    fn control(&mut self, now_ns: u64) {
        let request = self.esc.memory[usize::from(AL_CONTROL)];
        let acknowledges = request & 0x10 != 0;
        if self.error {
            if !acknowledges {
                return;
            }
            self.error = false;
        }
        let wanted = match AlState::decode(request & 0x0F) {
            Some(wanted) => wanted,
            None if request & 0x0F == 3 => return self.refuse(status_code::NO_BOOTSTRAP),
            None => return self.refuse(status_code::UNKNOWN_STATE),
        };
        if let Some(refusal) = self.refusal.filter(|refusal| refusal.state == wanted && wanted > self.state) {
            return self.refuse(refusal.code);
        }
        match self.check(wanted) {
            Ok(()) => self.enter(wanted, now_ns),
            Err(code) => self.refuse(code),
        }
    }

    fn refuse(&mut self, code: u16) {
        self.error = true;
        self.show_state(code);
    }

    /// Whether the way from this state to `wanted` is open: upwards step by step, and only with
    /// what it needs.
    fn check(&self, wanted: AlState) -> Result<(), u16> {
        if wanted <= self.state {
            return Ok(());
        }
        match (self.state, wanted) {
            (AlState::Init, AlState::PreOp) if !self.mailbox_is_set_up() => Err(status_code::MAILBOX),
            (AlState::Init, AlState::PreOp) => Ok(()),
            (AlState::PreOp, AlState::SafeOp) if !self.is_set_up(2, OUTPUTS, self.rx, true) => {
                Err(status_code::OUTPUTS)
            }
            (AlState::PreOp, AlState::SafeOp) if !self.is_set_up(3, INPUTS, self.tx, false) => {
                Err(status_code::INPUTS)
            }
            // Switched on with a start time that had passed: no pulse ever comes.
            (AlState::SafeOp, AlState::Op) if self.sync0.is_dead() => Err(status_code::NO_SYNC),
            (AlState::PreOp, AlState::SafeOp) | (AlState::SafeOp, AlState::Op) => Ok(()),
            _ => Err(status_code::INVALID_CHANGE),
        }
    }

    fn mailbox_is_set_up(&self) -> bool {
        let fits = |index: usize, start: u16, writes: bool| {
            let manager = self.esc.sync_managers[index];
            manager.enabled
                && manager.mailbox
                && manager.master_writes == writes
                && manager.start == start
                && manager.length == MAILBOX
        };
        !self.profile.coe || (fits(0, REQUEST, true) && fits(1, RESPONSE, false))
    }

    fn is_set_up(&self, index: usize, start: u16, pdo: Option<&Pdo>, writes: bool) -> bool {
        let manager = self.esc.sync_managers[index];
        match pdo.map_or(0, Pdo::bytes) {
            0 => !manager.enabled,
            bytes => {
                manager.enabled
                    && !manager.mailbox
                    && manager.master_writes == writes
                    && manager.start == start
                    && manager.length == bytes
            }
        }
    }

    fn enter(&mut self, state: AlState, now_ns: u64) {
        if self.state == AlState::Op && state != AlState::Op {
            self.app.lose_master();
        }
        if state == AlState::Op && self.state != AlState::Op {
            self.outputs_ns = now_ns;
            self.esc.set(WATCHDOG_STATUS, &1_u16.to_le_bytes());
        }
        if state == AlState::Init {
            self.coe.reset();
        }
        self.state = state;
        self.esc.process_data = state >= AlState::SafeOp;
        if self.esc.process_data {
            self.write_inputs();
        }
        self.show_state(0);
    }

    /// Falls to `state` by itself, with the error flag.
    pub(super) fn fall(&mut self, state: AlState, code: u16, now_ns: u64) {
        self.enter(state.min(self.state), now_ns);
        self.refuse(code);
    }

    /// Outputs have come (or, for a device without outputs, its inputs were fetched).
    pub(super) fn process_data_passed(&mut self, events: Events, now_ns: u64) {
        if events.has(Events::OUTPUTS) {
            self.outputs_ns = now_ns;
            self.sync0.outputs_came(now_ns + self.pass_ns);
        }
    }

    fn watchdog_ns(&self) -> Option<u64> {
        let manager = self.esc.sync_managers[2];
        let unit = (u64::from(self.esc.u16(WATCHDOG_DIVIDER)) + 2) * 40;
        let time = unit * u64::from(self.esc.u16(WATCHDOG_PROCESS_DATA));
        (self.state == AlState::Op && manager.enabled && manager.watchdog && time > 0).then_some(time)
    }

    /// When something is to happen next.
    pub(super) fn next_due_ns(&self) -> u64 {
        let expiry = self.watchdog_ns().map_or(u64::MAX, |time| self.outputs_ns.saturating_add(time));
        self.tick_ns.map_or(expiry, |tick| tick.min(expiry))
    }

    /// Lets the watchdog expire and the micro-controller run, if their time has come. Returns
    /// whether routing changed.
    pub(super) fn run_due(
        &mut self,
        now_ns: u64,
        free_period_ns: Option<u64>,
        log: &mut Log,
        index: u16,
    ) -> bool {
        let expired = self.watchdog_ns().is_some_and(|time| now_ns >= self.outputs_ns.saturating_add(time));
        if expired {
            let count = self.esc.memory[usize::from(WATCHDOG_EXPIRED)].saturating_add(1);
            self.esc.set(WATCHDOG_EXPIRED, &[count]);
            self.esc.set(WATCHDOG_STATUS, &0_u16.to_le_bytes());
            self.fall(AlState::SafeOp, status_code::WATCHDOG, now_ns);
        }
        while let Some(tick) = self.tick_ns.filter(|tick| *tick <= now_ns) {
            if self.has_sync0() {
                self.pulse(tick, now_ns, log, index);
                continue;
            }
            self.run(tick, log, index);
            self.tick_ns = free_period_ns.map(|period| {
                // Long silence: the micro-controller has run all the time, but nobody could tell.
                let behind = (now_ns - tick) / period;
                tick + period * behind.saturating_sub(50).max(1)
            });
        }
        expired
    }

    /// One round of the micro-controller: fetch outputs, act, sample, put inputs.
    pub(super) fn run(&mut self, tick_ns: u64, log: &mut Log, index: u16) {
        let dt_ns = self.ran_ns.map_or(0, |ran| tick_ns.saturating_sub(ran));
        self.ran_ns = Some(tick_ns);
        let dt_s = dt_ns as f64 * 1e-9;
        self.app.advance(tick_ns, dt_s, log, index);
        if self.state == AlState::Op
            && let Some(pdo) = self.rx
        {
            let mut at = usize::from(OUTPUTS);
            for entry in pdo.entries {
                let bytes = usize::from(entry.bits / 8);
                let value = super::wire::u32_at(&self.esc.memory, at) & (u32::MAX >> (32 - 8 * bytes));
                at += bytes;
                self.app.set(entry.index, entry.sub, value);
            }
            self.app.apply(tick_ns, dt_s, log, index);
        }
        if self.esc.process_data {
            self.write_inputs();
        }
    }

    fn write_inputs(&mut self) {
        let Some(pdo) = self.tx else { return };
        let mut at = INPUTS;
        for entry in pdo.entries {
            let bytes = u16::from(entry.bits / 8);
            let value = self.app.get(entry.index, entry.sub).map_or(0, |(value, _)| value);
            self.esc.set(at, &value.to_le_bytes()[..usize::from(bytes)]);
            at += bytes;
        }
    }
}
