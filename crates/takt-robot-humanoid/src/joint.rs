//! A joint as its drive shows it: encoder, gear, direction, units, and the mode that it is driven
//! in.

#![deny(missing_docs)]

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within};

use crate::positive::positive;

/// Direction in which the drive counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Up when the joint turns in its positive direction.
    #[default]
    Positive,
    /// Down: positions, speeds and torques have the other sign.
    Negative,
}

/// Cyclic modes of CiA 402 (object 0x6060).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveMode {
    /// Cyclic synchronous position: the drive closes the position loop.
    #[default]
    Csp,
    /// Cyclic synchronous velocity: the position loop is closed here.
    Csv,
    /// Cyclic synchronous torque: position and speed are closed here.
    Cst,
}

impl DriveMode {
    /// Its number in 0x6060 and 0x6061.
    pub fn code(self) -> u8 {
        match self {
            Self::Csp => 8,
            Self::Csv => 9,
            Self::Cst => 10,
        }
    }
}

/// Scale of a joint's drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Encoder increments per turn of the encoder.
    pub counts_per_turn: u32,
    /// Turns of the encoder per turn of the joint.
    pub gear: f64,
    /// Reading of the encoder when the joint is at 0 rad.
    pub zero_counts: i32,
    /// Direction in which it counts.
    pub direction: Direction,
    /// Units of 0x60FF and 0x606C per increment a second.
    pub velocity_units: f64,
    /// Unit of 0x6071 and 0x6077: a thousandth of this.
    pub rated_torque_nm: f64,
}

impl Scale {
    /// Increments per radian of the joint, with their sign.
    pub fn counts_per_rad(&self) -> f64 {
        let sign = if self.direction == Direction::Negative { -1.0 } else { 1.0 };
        sign * f64::from(self.counts_per_turn) * self.gear / TAU
    }

    /// Position of the joint. An encoder that passes its largest number continues at its smallest.
    pub fn position_rad(&self, counts: i32) -> f64 {
        f64::from(counts.wrapping_sub(self.zero_counts)) / self.counts_per_rad()
    }

    /// Reading of the encoder there.
    pub fn counts(&self, position_rad: f64) -> i32 {
        self.zero_counts.wrapping_add((position_rad * self.counts_per_rad()).round() as i32)
    }

    /// A speed in the drive's units.
    pub fn velocity(&self, rad_s: f64) -> i32 {
        (rad_s * self.counts_per_rad() * self.velocity_units).round() as i32
    }

    /// The drive's units as a speed.
    pub fn velocity_rad_s(&self, units: i32) -> f64 {
        f64::from(units) / (self.counts_per_rad() * self.velocity_units)
    }

    /// A torque in thousandths of the rated one.
    pub fn torque(&self, torque_nm: f64) -> i16 {
        (torque_nm * self.counts_per_rad().signum() / self.rated_torque_nm * 1000.0).round() as i16
    }

    /// Refuses what no drive has.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self, range_rad: f64) -> Result<(), SettingError> {
        if self.counts_per_turn == 0 {
            return Err(SettingError::value("counts_per_turn", 0, "accepted are numbers from 1"));
        }
        for (key, value) in [
            ("gear", self.gear),
            ("velocity_units", self.velocity_units),
            ("rated_torque_nm", self.rated_torque_nm),
        ] {
            positive(key, value)?;
        }
        // Half of 32 bits each way, so that no position within the range is taken for another one.
        if range_rad * self.counts_per_rad().abs() >= f64::from(i32::MAX) {
            return Err(SettingError::conflict(
                format!("counts_per_turn = {}, gear = {}", self.counts_per_turn, self.gear),
                "the joint's range does not fit 32 bits; lower one of them or the limits",
            ));
        }
        Ok(())
    }
}

/// Gains of the loops that are closed here, for CSV and CST.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gains {
    /// CSV: speed per position error, 1/s. 20: a bandwidth of 3 Hz, a tenth of what the two cycles
    /// of latency allow.
    pub position_per_s: f64,
    /// CST: torque per position error. 20 N m/rad: 3 Hz for a forearm of 0.05 kg m².
    pub stiffness_nm_per_rad: f64,
    /// CST: torque per speed error. 2 N m s/rad: critical damping for the same.
    pub damping_nm_s_per_rad: f64,
}

impl Default for Gains {
    fn default() -> Self {
        Self { position_per_s: 20.0, stiffness_nm_per_rad: 20.0, damping_nm_s_per_rad: 2.0 }
    }
}

impl Gains {
    /// Refuses gains that push a joint away from its target.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        all_within(
            "gains.",
            &[
                ("position_per_s", self.position_per_s, 0.0, 1e6),
                ("stiffness_nm_per_rad", self.stiffness_nm_per_rad, 0.0, 1e6),
                ("damping_nm_s_per_rad", self.damping_nm_s_per_rad, 0.0, 1e6),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_survive_any_encoder(
            counts_per_turn in 100_u32..2_000_000,
            gear in 0.5..100.0_f64,
            zero_counts in any::<i32>(),
            negative in any::<bool>(),
            position_rad in -3.0..3.0_f64,
        ) {
            let direction = if negative { Direction::Negative } else { Direction::Positive };
            let scale = Scale {
                counts_per_turn, gear, zero_counts, direction, velocity_units: 1.0, rated_torque_nm: 10.0,
            };
            let resolution_rad = 1.0 / scale.counts_per_rad().abs();
            let counts = scale.counts(position_rad);
            prop_assert!((scale.position_rad(counts) - position_rad).abs() <= resolution_rad);
            // The drive's own number comes back as it was.
            prop_assert_eq!(scale.counts(scale.position_rad(counts)), counts);
            prop_assert_eq!(scale.counts(0.0), zero_counts);
            let faster = scale.velocity(1.0);
            prop_assert_eq!(faster > 0, !negative);
            prop_assert!((scale.velocity_rad_s(faster) - 1.0).abs() <= resolution_rad);
            prop_assert_eq!(scale.torque(1.0), if negative { -100 } else { 100 });
        }
    }
}
