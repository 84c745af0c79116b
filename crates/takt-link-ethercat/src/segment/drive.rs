//! A servo drive: the state machine and objects of CiA 402 (IEC 61800-7-201), and the joint behind
//! it.

use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// The joint behind a drive and the drive's limits. All on the joint's side of the gear.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JointConfig {
    /// Moment of inertia. Default 0.05 kg m²: a forearm.
    pub inertia_kg_m2: f64,
    /// Viscous friction. Default 0.2 N m s/rad: a harmonic drive of that size.
    pub viscous_nm_s_per_rad: f64,
    /// Coulomb friction. Default 0.3 N m, for the same reason.
    pub coulomb_nm: f64,
    /// Greatest gravity torque, when the link is horizontal (position ±90°). Default 0: links are
    /// balanced.
    pub gravity_nm: f64,
    /// Rated torque, the unit of 0x6071 and 0x6077 (per mille). Default 30 N m.
    pub rated_torque_nm: f64,
    /// Greatest torque. Default 90 N m: three times the rated one, as servo drives allow for
    /// seconds.
    pub max_torque_nm: f64,
    /// Greatest speed. Default 12 rad/s.
    pub max_velocity_rad_s: f64,
    /// Lower end stop. Default -2.8 rad.
    pub min_position_rad: f64,
    /// Upper end stop. Default 2.8 rad.
    pub max_position_rad: f64,
    /// Encoder increments per turn of the encoder. Default 131072 (17 bit).
    pub counts_per_turn: u32,
    /// Turns of the encoder per turn of the joint. Default 1: the encoder sits on the joint.
    pub gear: f64,
    /// Reading of the encoder when the joint is at 0 rad. Default 0; absolute encoders show what
    /// they were mounted at.
    pub encoder_zero_counts: i32,
    /// Whether the encoder counts down when the joint turns in its positive direction. Torque and
    /// speed are reversed with it.
    pub encoder_reversed: bool,
    /// Position of the joint at power-on. Default 0 rad.
    pub start_rad: f64,
    /// Bandwidth of the position control. Default 25 Hz.
    pub bandwidth_hz: f64,
    /// Greatest following error (0x6065). Default 0.35 rad: far beyond any lag of a sound
    /// reference.
    pub following_error_rad: f64,
    /// Its longest duration (0x6066). Default 50 ms.
    pub following_error_ms: u32,
    /// Deceleration of a quick stop (0x6085). Default 60 rad/s².
    pub quick_stop_rad_s2: f64,
}

impl Default for JointConfig {
    fn default() -> Self {
        Self {
            inertia_kg_m2: 0.05,
            viscous_nm_s_per_rad: 0.2,
            coulomb_nm: 0.3,
            gravity_nm: 0.0,
            rated_torque_nm: 30.0,
            max_torque_nm: 90.0,
            max_velocity_rad_s: 12.0,
            min_position_rad: -2.8,
            max_position_rad: 2.8,
            counts_per_turn: 131_072,
            gear: 1.0,
            encoder_zero_counts: 0,
            encoder_reversed: false,
            start_rad: 0.0,
            bandwidth_hz: 25.0,
            following_error_rad: 0.35,
            following_error_ms: 50,
            quick_stop_rad_s2: 60.0,
        }
    }
}

impl JointConfig {
    /// The first value that no joint can have: its key and what is asked of it.
    pub(super) fn fault(&self) -> Option<(&'static str, f64, &'static str)> {
        let positive = |key, value: f64| {
            (!(value.is_finite() && value > 0.0)).then_some((key, value, "a number above 0"))
        };
        let not_negative = |key, value: f64| {
            (!(value.is_finite() && value >= 0.0)).then_some((key, value, "a number of at least 0"))
        };
        positive("inertia_kg_m2", self.inertia_kg_m2)
            .or_else(|| not_negative("viscous_nm_s_per_rad", self.viscous_nm_s_per_rad))
            .or_else(|| not_negative("coulomb_nm", self.coulomb_nm))
            .or_else(|| not_negative("gravity_nm", self.gravity_nm))
            .or_else(|| positive("rated_torque_nm", self.rated_torque_nm))
            .or_else(|| positive("max_torque_nm", self.max_torque_nm))
            .or_else(|| positive("max_velocity_rad_s", self.max_velocity_rad_s))
            .or_else(|| positive("following_error_rad", self.following_error_rad))
            .or_else(|| positive("quick_stop_rad_s2", self.quick_stop_rad_s2))
            .or_else(|| positive("counts_per_turn", f64::from(self.counts_per_turn)))
            .or_else(|| positive("gear", self.gear))
            .or_else(|| {
                let inside = (self.min_position_rad..=self.max_position_rad).contains(&self.start_rad);
                (!inside).then_some(("start_rad", self.start_rad, "min_position_rad to max_position_rad"))
            })
            .or_else(|| {
                let range = self.bandwidth_hz.is_finite() && (0.1..=100.0).contains(&self.bandwidth_hz);
                (!range).then_some(("bandwidth_hz", self.bandwidth_hz, "0.1 to 100"))
            })
            .or_else(|| {
                let span = self.max_position_rad - self.min_position_rad;
                // Positions must fit the 32 bits of 0x6064.
                let counts = self.counts_per_rad();
                let most = self.max_position_rad.abs().max(self.min_position_rad.abs()) * counts;
                (!(span > 0.0 && most < f64::from(i32::MAX))).then_some((
                    "max_position_rad",
                    self.max_position_rad,
                    "more than min_position_rad",
                ))
            })
    }

    /// Encoder increments per radian of the joint.
    pub fn counts_per_rad(&self) -> f64 {
        f64::from(self.counts_per_turn) * self.gear / TAU
    }
}

/// States of CiA 402, with the statusword's pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// Power stage off; waits for "shutdown".
    SwitchOnDisabled,
    /// Waits for "switch on".
    ReadyToSwitchOn,
    /// Power stage on, no torque.
    SwitchedOn,
    /// Follows its targets.
    OperationEnabled,
    /// Slows down to a standstill.
    QuickStopActive,
    /// No torque; waits for "fault reset".
    Fault,
}

impl DriveState {
    fn pattern(self) -> u16 {
        match self {
            Self::SwitchOnDisabled => 0x0040,
            Self::ReadyToSwitchOn => 0x0021,
            Self::SwitchedOn => 0x0023,
            Self::OperationEnabled => 0x0027,
            Self::QuickStopActive => 0x0007,
            Self::Fault => 0x0008,
        }
    }
}

/// Error codes of 0x603F.
pub(super) mod error_code {
    /// Following error.
    pub(crate) const FOLLOWING: u16 = 0x8611;
    /// Communication: the outputs dried up.
    pub(crate) const COMMUNICATION: u16 = 0x7500;
    /// Set from outside.
    pub(crate) const INJECTED: u16 = 0xFF01;
}

/// Cyclic synchronous position, velocity, torque (0x6060).
const POSITION: i8 = 8;
const VELOCITY: i8 = 9;
const TORQUE: i8 = 10;

/// One drive and its joint.
#[derive(Debug, Clone)]
pub(super) struct Drive {
    joint: JointConfig,
    counts_per_rad: f64,
    state: DriveState,
    controlword: u16,
    error: u16,
    mode: i8,
    target_position: i32,
    target_velocity: i32,
    target_torque: i16,
    position_rad: f64,
    velocity_rad_s: f64,
    torque_nm: f64,
    /// The reference that the position control follows, and its speed.
    reference_rad: f64,
    reference_rad_s: f64,
    /// Time for which the following error has been too large.
    lagging_s: f64,
    limited: bool,
}

impl Drive {
    pub(super) fn new(joint: JointConfig) -> Self {
        let start = joint.start_rad;
        // Reversed encoders count down: all that leaves or enters the drive has the other sign.
        let counts_per_rad = joint.counts_per_rad() * if joint.encoder_reversed { -1.0 } else { 1.0 };
        let target_position = joint.encoder_zero_counts.wrapping_add((start * counts_per_rad).round() as i32);
        Self {
            joint,
            counts_per_rad,
            state: DriveState::SwitchOnDisabled,
            controlword: 0,
            error: 0,
            mode: POSITION,
            target_position,
            target_velocity: 0,
            target_torque: 0,
            position_rad: start,
            velocity_rad_s: 0.0,
            torque_nm: 0.0,
            reference_rad: start,
            reference_rad_s: 0.0,
            lagging_s: 0.0,
            limited: false,
        }
    }

    pub(super) fn state(&self) -> DriveState {
        self.state
    }

    pub(super) fn position_rad(&self) -> f64 {
        self.position_rad
    }

    pub(super) fn velocity_rad_s(&self) -> f64 {
        self.velocity_rad_s
    }

    pub(super) fn torque_nm(&self) -> f64 {
        self.torque_nm
    }

    /// Torque off until a fault reset.
    pub(super) fn fail(&mut self, error: u16) {
        self.state = DriveState::Fault;
        self.error = error;
    }

    /// The master's outputs are no longer valid (watchdog, or the segment has left OP): safe state.
    pub(super) fn lose_master(&mut self) {
        if matches!(self.state, DriveState::OperationEnabled | DriveState::QuickStopActive) {
            self.fail(error_code::COMMUNICATION);
        } else if self.state != DriveState::Fault {
            self.state = DriveState::SwitchOnDisabled;
        }
    }

    /// Lets `dt_s` pass, in steps short enough for the position control.
    pub(super) fn advance(&mut self, dt_s: f64) {
        let steps = (dt_s / 0.001).ceil().clamp(1.0, 250.0);
        let step = (dt_s / steps).min(0.002);
        for _ in 0..steps as u32 {
            self.step(step);
        }
    }

    fn step(&mut self, dt: f64) {
        let joint = &self.joint;
        let wanted = match self.state {
            DriveState::OperationEnabled => match self.mode {
                VELOCITY => {
                    let target = f64::from(self.target_velocity) / self.counts_per_rad;
                    joint.inertia_kg_m2 * TAU * joint.bandwidth_hz * (target - self.velocity_rad_s)
                        + joint.viscous_nm_s_per_rad * target
                }
                TORQUE => {
                    f64::from(self.target_torque) / 1000.0
                        * joint.rated_torque_nm
                        * self.counts_per_rad.signum()
                }
                _ => {
                    let omega = TAU * joint.bandwidth_hz;
                    let lag = self.reference_rad - self.position_rad;
                    let rate = self.reference_rad_s - self.velocity_rad_s;
                    joint.inertia_kg_m2 * (omega * omega * lag + 2.0 * omega * rate)
                        + joint.viscous_nm_s_per_rad * self.reference_rad_s
                        + joint.gravity_nm * self.position_rad.sin()
                }
            },
            DriveState::QuickStopActive => {
                let most = joint.quick_stop_rad_s2 * joint.inertia_kg_m2;
                (-self.velocity_rad_s * joint.inertia_kg_m2 / dt).clamp(-most, most)
            }
            _ => 0.0,
        };
        self.torque_nm = wanted.clamp(-joint.max_torque_nm, joint.max_torque_nm);
        self.limited = self.torque_nm != wanted;
        let drive = self.torque_nm - joint.gravity_nm * self.position_rad.sin();
        let mut velocity = self.velocity_rad_s + drive / joint.inertia_kg_m2 * dt;
        // Implicit viscous friction is stable at any step; Coulomb friction may stop the joint but
        // not turn it.
        velocity /= 1.0 + joint.viscous_nm_s_per_rad / joint.inertia_kg_m2 * dt;
        let dry = joint.coulomb_nm / joint.inertia_kg_m2 * dt;
        velocity = if velocity.abs() <= dry { 0.0 } else { velocity - dry * velocity.signum() };
        self.velocity_rad_s = velocity.clamp(-joint.max_velocity_rad_s, joint.max_velocity_rad_s);
        self.position_rad += self.velocity_rad_s * dt;
        if self.position_rad < joint.min_position_rad || self.position_rad > joint.max_position_rad {
            self.position_rad = self.position_rad.clamp(joint.min_position_rad, joint.max_position_rad);
            self.velocity_rad_s = 0.0;
            self.limited = true;
        }
        if self.state == DriveState::QuickStopActive && self.velocity_rad_s == 0.0 {
            self.state = DriveState::SwitchOnDisabled;
        }
        self.watch_following_error(dt);
    }

    fn watch_following_error(&mut self, dt: f64) {
        let watched = self.state == DriveState::OperationEnabled && self.mode == POSITION;
        if watched && (self.reference_rad - self.position_rad).abs() > self.joint.following_error_rad {
            self.lagging_s += dt;
            if self.lagging_s * 1000.0 > f64::from(self.joint.following_error_ms) {
                self.fail(error_code::FOLLOWING);
            }
        } else {
            self.lagging_s = 0.0;
        }
    }

    /// Takes over the outputs that [`set`](Self::set) has written; `dt_s` since the last time.
    pub(super) fn apply(&mut self, dt_s: f64) {
        // An absolute encoder may show any number, and pass its greatest one.
        let counts = self.target_position.wrapping_sub(self.joint.encoder_zero_counts);
        let target = f64::from(counts) / self.counts_per_rad;
        let target = target.clamp(self.joint.min_position_rad, self.joint.max_position_rad);
        if self.state == DriveState::OperationEnabled && dt_s > 0.0 {
            let most = self.joint.max_velocity_rad_s;
            self.reference_rad_s = ((target - self.reference_rad) / dt_s).clamp(-most, most);
            self.reference_rad = target;
        } else {
            // Nothing jumps when torque comes on.
            self.reference_rad = self.position_rad;
            self.reference_rad_s = 0.0;
        }
    }

    fn control(&mut self, word: u16) {
        use DriveState::{
            Fault, OperationEnabled, QuickStopActive, ReadyToSwitchOn, SwitchOnDisabled, SwitchedOn,
        };
        let reset = word & 0x80 != 0 && self.controlword & 0x80 == 0;
        self.controlword = word;
        let (on, voltage, no_quick_stop, enable) =
            (word & 1 != 0, word & 2 != 0, word & 4 != 0, word & 8 != 0);
        self.state = match self.state {
            Fault if reset => {
                self.error = 0;
                SwitchOnDisabled
            }
            Fault => Fault,
            // "Disable voltage" holds in every state.
            _ if !voltage => SwitchOnDisabled,
            OperationEnabled if !no_quick_stop => QuickStopActive,
            QuickStopActive => QuickStopActive,
            _ if !no_quick_stop => SwitchOnDisabled,
            SwitchOnDisabled if !on => ReadyToSwitchOn,
            SwitchOnDisabled => SwitchOnDisabled,
            _ if !on => ReadyToSwitchOn,
            ReadyToSwitchOn => SwitchedOn,
            SwitchedOn if enable => OperationEnabled,
            OperationEnabled if !enable => SwitchedOn,
            same => same,
        };
    }

    fn statusword(&self) -> u16 {
        let mut word = self.state.pattern() | 0x0210;
        if self.limited {
            word |= 0x0800;
        }
        if self.state == DriveState::OperationEnabled {
            word |= 0x1000;
        }
        if self.lagging_s > 0.0 {
            word |= 0x2000;
        }
        word
    }

    /// Of a difference, speed or acceleration.
    fn counts(&self, value: f64) -> i32 {
        (value * self.counts_per_rad).round() as i32
    }

    /// Reading of the encoder at a position.
    fn encoder(&self, position_rad: f64) -> i32 {
        self.joint.encoder_zero_counts.wrapping_add(self.counts(position_rad))
    }

    fn per_mille(&self, torque_nm: f64) -> i16 {
        (torque_nm * self.counts_per_rad.signum() / self.joint.rated_torque_nm * 1000.0).round() as i16
    }

    /// Position limits as the encoder shows them, the smaller first.
    fn limits(&self) -> [i32; 2] {
        let ends = [self.encoder(self.joint.min_position_rad), self.encoder(self.joint.max_position_rad)];
        if self.joint.encoder_reversed { [ends[1], ends[0]] } else { ends }
    }

    /// Value of an object, sign-extended, and its length in bytes.
    pub(super) fn get(&self, index: u16, sub: u8) -> Option<(u32, u8)> {
        let joint = &self.joint;
        let signed = |value: i32| (value as u32, 4);
        let short = |value: i16| (value as u16 as u32, 2);
        Some(match (index, sub) {
            (0x603F, 0) => (u32::from(self.error), 2),
            (0x6040, 0) => (u32::from(self.controlword), 2),
            (0x6041, 0) => (u32::from(self.statusword()), 2),
            // Quick stop: slow down, then switch on disabled.
            (0x605A, 0) => (2, 2),
            (0x6060 | 0x6061, 0) => (u32::from(self.mode as u8), 1),
            (0x6064, 0) => signed(self.encoder(self.position_rad)),
            (0x6065, 0) => (self.counts(joint.following_error_rad).unsigned_abs(), 4),
            (0x6066, 0) => (joint.following_error_ms.min(0xFFFF), 2),
            (0x606C, 0) => signed(self.counts(self.velocity_rad_s)),
            (0x6071, 0) => short(self.target_torque),
            (0x6072, 0) => (u32::from(self.per_mille(joint.max_torque_nm).unsigned_abs()), 2),
            (0x6076, 0) => ((joint.rated_torque_nm * 1000.0) as u32, 4),
            (0x6077, 0) => short(self.per_mille(self.torque_nm)),
            (0x607A, 0) => signed(self.target_position),
            (0x607D, 0) => (2, 1),
            (0x607D, 1) => signed(self.limits()[0]),
            (0x607D, 2) => signed(self.limits()[1]),
            (0x6080, 0) => (self.counts(joint.max_velocity_rad_s).unsigned_abs(), 4),
            (0x6085, 0) => (self.counts(joint.quick_stop_rad_s2).unsigned_abs(), 4),
            (0x608F, 0) => (2, 1),
            (0x608F, 1) => (joint.counts_per_turn, 4),
            (0x608F, 2) => (1, 4),
            (0x60F4, 0) => signed(self.counts(self.reference_rad - self.position_rad)),
            (0x60FF, 0) => signed(self.target_velocity),
            // CSP, CSV, CST: bits 7 to 9.
            (0x6502, 0) => (0x0000_0380, 4),
            _ => return None,
        })
    }

    /// Writes an object. `Some(false)`: the value is not one that the drive takes.
    pub(super) fn set(&mut self, index: u16, sub: u8, value: u32) -> Option<bool> {
        match (index, sub) {
            (0x6040, 0) => self.control(value as u16),
            (0x6060, 0) => match value as u8 as i8 {
                mode @ (POSITION | VELOCITY | TORQUE) => self.mode = mode,
                // "No change".
                0 => {}
                _ => return Some(false),
            },
            (0x6071, 0) => self.target_torque = value as u16 as i16,
            (0x607A, 0) => self.target_position = value as i32,
            (0x60FF, 0) => self.target_velocity = value as i32,
            _ => return None,
        }
        Some(true)
    }
}
