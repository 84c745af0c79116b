//! A joint's reference within its limits: never beyond its range, its speed or its acceleration,
//! whatever is asked.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_rt::config::SettingError;

use crate::positive::positive;

/// Limits of a joint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Lower end of the range.
    pub min_rad: f64,
    /// Upper end of the range.
    pub max_rad: f64,
    /// Greatest speed.
    pub max_rad_s: f64,
    /// Greatest acceleration.
    pub max_rad_s2: f64,
}

impl Default for Limits {
    /// A slow adult's joint: ±2.6 rad (short of the drives' end stops), 6 rad/s, 60 rad/s².
    fn default() -> Self {
        Self { min_rad: -2.6, max_rad: 2.6, max_rad_s: 6.0, max_rad_s2: 60.0 }
    }
}

impl Limits {
    /// Refuses limits that no joint can have.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let Self { min_rad, max_rad, max_rad_s, max_rad_s2 } = *self;
        if !(min_rad.is_finite() && max_rad.is_finite() && min_rad < max_rad) {
            let keys = format!("min_rad = {min_rad}, max_rad = {max_rad}");
            return Err(SettingError::conflict(keys, "the first must be less than the second"));
        }
        positive("max_rad_s", max_rad_s)?;
        positive("max_rad_s2", max_rad_s2)
    }
}

/// The reference of one joint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    limits: Limits,
    position_rad: f64,
    velocity_rad_s: f64,
}

impl Reference {
    /// At rest at 0, or at the nearest end of the range.
    pub fn new(limits: Limits) -> Self {
        let position_rad = 0.0_f64.max(limits.min_rad).min(limits.max_rad);
        Self { limits, position_rad, velocity_rad_s: 0.0 }
    }

    /// Its position.
    pub fn position_rad(&self) -> f64 {
        self.position_rad
    }

    /// Its velocity.
    pub fn velocity_rad_s(&self) -> f64 {
        self.velocity_rad_s
    }

    /// At rest where the joint is. Before torque comes on, so that nothing jumps; a joint outside
    /// its range is led back at the limits.
    pub fn reset(&mut self, position_rad: f64) {
        if position_rad.is_finite() {
            self.position_rad = position_rad;
        }
        self.velocity_rad_s = 0.0;
    }

    /// One step towards `target_rad`, which itself moves at `target_rad_s`.
    pub fn step(&mut self, target_rad: f64, target_rad_s: f64, dt_s: f64) -> f64 {
        let Limits { min_rad, max_rad, max_rad_s, max_rad_s2 } = self.limits;
        let target =
            if target_rad.is_finite() { target_rad.clamp(min_rad, max_rad) } else { self.position_rad };
        let rate = if target_rad_s.is_finite() { target_rad_s.clamp(-max_rad_s, max_rad_s) } else { 0.0 };
        let change = max_rad_s2 * dt_s;
        // The speed that can still be brought to zero within `distance`, in steps of `dt_s`.
        let brake = |distance: f64| {
            let half = change / 2.0;
            -half + (half * half + 2.0 * max_rad_s2 * distance.max(0.0)).sqrt()
        };
        let off = target - self.position_rad;
        let exact = off / dt_s;
        let wanted = if (exact - rate).abs() <= change && (exact - self.velocity_rad_s).abs() <= change {
            // Within reach: on the target, and at its speed.
            exact
        } else {
            rate + off.signum() * brake(off.abs())
        };
        let wanted = wanted.clamp(-max_rad_s, max_rad_s);
        let (down, up) = (brake(self.position_rad - min_rad), brake(max_rad - self.position_rad));
        // Outside its range a joint may only move inwards.
        let wanted = wanted.clamp(-down, up.max(-down));
        self.velocity_rad_s += (wanted - self.velocity_rad_s).clamp(-change, change);
        self.position_rad += self.velocity_rad_s * dt_s;
        self.position_rad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DT: f64 = 0.001;

    #[test]
    fn a_far_target_is_reached_and_held() {
        let mut reference = Reference::new(Limits::default());
        for _ in 0..2000 {
            reference.step(1.5, 0.0, DT);
        }
        assert!((reference.position_rad() - 1.5).abs() < 1e-9);
        assert_eq!(reference.velocity_rad_s(), 0.0);
    }

    #[test]
    fn a_moving_target_within_the_limits_is_followed_exactly() {
        let mut reference = Reference::new(Limits::default());
        let (amplitude, rate) = (0.3, 2.0 * std::f64::consts::PI);
        for step in 0..4000 {
            let phase = rate * f64::from(step) * DT;
            let position = reference.step(amplitude * phase.sin(), amplitude * rate * phase.cos(), DT);
            if step > 1000 {
                assert!((position - amplitude * phase.sin()).abs() < 1e-9, "step {step}");
            }
        }
    }

    #[test]
    fn a_joint_outside_its_range_comes_back() {
        let mut reference = Reference::new(Limits::default());
        reference.reset(3.0);
        for _ in 0..3000 {
            reference.step(0.0, 0.0, DT);
        }
        assert!(reference.position_rad().abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_limits_hold_whatever_is_asked(
            targets in proptest::collection::vec((-10.0..10.0f64, -20.0..20.0f64), 1..40),
            max_rad_s in 0.5..10.0f64,
            max_rad_s2 in 5.0..200.0f64,
        ) {
            let limits = Limits { min_rad: -1.0, max_rad: 2.0, max_rad_s, max_rad_s2 };
            let mut reference = Reference::new(limits);
            let mut before = 0.0;
            for (target, rate) in targets {
                for _ in 0..60 {
                    reference.step(target, rate, DT);
                    let velocity = reference.velocity_rad_s();
                    prop_assert!(velocity.abs() <= max_rad_s * (1.0 + 1e-12));
                    prop_assert!((velocity - before).abs() <= max_rad_s2 * DT * (1.0 + 1e-9));
                    // Braking in steps overshoots by less than one step's worth of acceleration.
                    let slack = max_rad_s2 * DT * DT;
                    let position = reference.position_rad();
                    prop_assert!(position >= limits.min_rad - slack && position <= limits.max_rad + slack);
                    before = velocity;
                }
            }
        }

        #[test]
        fn nonsense_moves_nothing_far(target in any::<f64>(), rate in any::<f64>()) {
            let mut reference = Reference::new(Limits::default());
            for _ in 0..50 {
                prop_assert!(reference.step(target, rate, DT).is_finite());
            }
        }
    }
}
