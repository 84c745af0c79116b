//! Reference positions over time.

#![deny(missing_docs)]

use std::f64::consts::TAU;

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, within};

/// Target of the position controller at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setpoint {
    /// Position, m.
    pub position_m: Vector3<f64>,
    /// Velocity, m/s.
    pub velocity_m_s: Vector3<f64>,
    /// Acceleration, m/s²: fed forward.
    pub acceleration_m_s2: Vector3<f64>,
    /// Yaw, rad.
    pub yaw_rad: f64,
}

impl Default for Setpoint {
    fn default() -> Self {
        let zero = Vector3::zeros();
        Self { position_m: zero, velocity_m_s: zero, acceleration_m_s2: zero, yaw_rad: 0.0 }
    }
}

/// `[reference]`: what is flown. Positions are metres in the world, z upwards from the ground.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reference {
    /// Stays at a place.
    Hover {
        /// The place.
        at_m: [f64; 3],
    },
    /// Jumps between two places: hold at `from_m`, jump to `to_m`, hold, jump back, and so on.
    Step {
        /// Its start.
        from_m: [f64; 3],
        /// The position after the jump.
        to_m: [f64; 3],
        /// Time at each place, s.
        hold_s: f64,
    },
    /// Flies an eight (lemniscate of Gerono) with velocity and acceleration fed forward.
    FigureEight {
        /// Crossing point.
        center_m: [f64; 3],
        /// Half the length along x, and half the width along y.
        size_m: [f64; 2],
        /// Time of one eight, s.
        period_s: f64,
    },
}

impl Default for Reference {
    /// An eight of 4 m by 2 m in 6 s, 5 m above the ground: speeds up to 3 m/s and tilts of some 25
    /// degrees, brisk and still far from every limit.
    fn default() -> Self {
        Self::FigureEight { center_m: [0.0, 0.0, 5.0], size_m: [2.0, 1.0], period_s: 6.0 }
    }
}

impl Reference {
    /// A step that drives the default cascade to its acceleration limits and the rotors to theirs:
    /// 4 m sideways and 1 m up at once.
    pub fn aggressive_step() -> Self {
        Self::Step { from_m: [0.0, 0.0, 5.0], to_m: [4.0, 0.0, 6.0], hold_s: 4.0 }
    }

    /// The set point at `t_s` seconds from the start.
    pub fn at(&self, t_s: f64) -> Setpoint {
        match *self {
            Self::Hover { at_m } => Setpoint { position_m: at_m.into(), ..Setpoint::default() },
            Self::Step { from_m, to_m, hold_s } => {
                let jumped = (t_s / hold_s).floor().rem_euclid(2.0) >= 1.0;
                Setpoint { position_m: if jumped { to_m } else { from_m }.into(), ..Setpoint::default() }
            }
            Self::FigureEight { center_m, size_m: [a, b], period_s } => {
                let w = TAU / period_s;
                let ((s1, c1), (s2, c2)) = ((w * t_s).sin_cos(), (2.0 * w * t_s).sin_cos());
                Setpoint {
                    position_m: Vector3::from(center_m) + Vector3::new(a * s1, b * s2, 0.0),
                    velocity_m_s: Vector3::new(a * w * c1, 2.0 * b * w * c2, 0.0),
                    acceleration_m_s2: Vector3::new(-a * w * w * s1, -4.0 * b * w * w * s2, 0.0),
                    yaw_rad: 0.0,
                }
            }
        }
    }

    /// The set point at `t_s` with the acceleration of `lead_s` later.
    pub(crate) fn with_lead(&self, t_s: f64, lead_s: f64) -> Setpoint {
        Setpoint { acceleration_m_s2: self.at(t_s + lead_s).acceleration_m_s2, ..self.at(t_s) }
    }

    /// After how many seconds it repeats; `None` for one that never changes.
    pub fn period_s(&self) -> Option<f64> {
        match *self {
            Self::Hover { .. } => None,
            Self::Step { hold_s, .. } => Some(2.0 * hold_s),
            Self::FigureEight { period_s, .. } => Some(period_s),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let place = |key: &str, at: &[f64; 3]| {
            let inside = at[..2].iter().all(|x| x.abs() <= 1000.0) && (0.5..=1000.0).contains(&at[2]);
            if inside {
                return Ok(());
            }
            let accepted = "accepted are x and y within 1000 m and a height of 0.5 to 1000";
            Err(SettingError::value(format!("reference.{key}"), format!("{at:?}"), accepted))
        };
        let time = |key: &str, value: f64| within(&format!("reference.{key}"), value, 0.1, 3600.0);
        match self {
            Self::Hover { at_m } => place("at_m", at_m),
            Self::Step { from_m, to_m, hold_s } => {
                place("from_m", from_m)?;
                place("to_m", to_m)?;
                time("hold_s", *hold_s)
            }
            Self::FigureEight { center_m, size_m, period_s } => {
                place("center_m", center_m)?;
                time("period_s", *period_s)?;
                if size_m.iter().all(|size| (0.0..=500.0).contains(size)) {
                    return Ok(());
                }
                let accepted = "accepted are 0 to 500";
                Err(SettingError::value("reference.size_m", format!("{size_m:?}"), accepted))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_forward_is_the_derivative() {
        let eight = Reference::default();
        let h = 1e-5;
        for i in 0..60 {
            let t = 0.1 * f64::from(i);
            let (before, now, after) = (eight.at(t - h), eight.at(t), eight.at(t + h));
            let velocity = (after.position_m - before.position_m) / (2.0 * h);
            let acceleration = (after.velocity_m_s - before.velocity_m_s) / (2.0 * h);
            assert!((velocity - now.velocity_m_s).norm() < 1e-6);
            assert!((acceleration - now.acceleration_m_s2).norm() < 1e-6);
        }
        assert!((eight.at(6.0).position_m - eight.at(0.0).position_m).norm() < 1e-9);
    }

    #[test]
    fn steps_jump_and_come_back() {
        let step = Reference::Step { from_m: [0.0, 0.0, 1.0], to_m: [1.0, 0.0, 1.0], hold_s: 2.0 };
        let x = |t| step.at(t).position_m.x;
        assert_eq!([x(0.0), x(1.9), x(2.1), x(3.9), x(4.1)], [0.0, 0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn toml_names_what_is_wrong() {
        #[derive(Debug, Deserialize)]
        struct File {
            reference: Reference,
        }
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.reference);
        let eight =
            "reference = { kind = 'figure-eight', center_m = [0, 0, 2], size_m = [1, 1], period_s = 5 }";
        assert!(read(eight).unwrap().validate().is_ok());
        assert!(
            read("reference = { kind = 'hover', at = [0, 0, 1] }").unwrap_err().to_string().contains("at")
        );
        let low = Reference::Hover { at_m: [0.0, 0.0, 0.0] };
        assert!(low.validate().unwrap_err().to_string().contains("at_m"));
        let endless = Reference::Step { from_m: [0.0, 0.0, 1.0], to_m: [0.0, 0.0, 2.0], hold_s: f64::NAN };
        assert!(endless.validate().unwrap_err().to_string().contains("hold_s"));
    }
}
