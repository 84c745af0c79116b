//! The built-in motions, and the trait for one's own.

#![deny(missing_docs)]

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use takt_rt::config::{SettingError, within};

use crate::limits::LimitsConfig;

/// Target of the arm. Called once a cycle on the real-time thread: it must not allocate, lock or
/// wait.
pub trait Targets: Send + 'static {
    /// Joint targets (rad) `time_s` after the stream began, for an arm that stood at `start_rad`
    /// then.
    ///
    /// Time goes on by the controller's clock, also over cycles that were passed over. A target
    /// that is too far from the one before it is not sent: it stops the arm.
    fn at(&mut self, time_s: f64, start_rad: &[f64; 6]) -> [f64; 6];
}

/// The built-in motions (`[motion]`), around or from where the arm stands when the stream begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MotionConfig {
    /// Every joint swings.
    Sine {
        /// Half the way, rad.
        amplitude_rad: [f64; 6],
        /// Frequency, per second.
        frequency_hz: f64,
        /// Time in which the swing grows to its amplitude, so that it begins at rest.
        ramp_s: f64,
    },
    /// From one place to the next, at rest in each, as fast as the limits allow; after the last one
    /// the first again.
    Waypoints {
        /// The places, rad from where the arm stood.
        offsets_rad: Vec<[f64; 6]>,
        /// Time in each of them, seconds.
        dwell_s: f64,
    },
    /// It stays where it is.
    Hold,
}

impl Default for MotionConfig {
    /// The four joints that move the tool most, by some ten degrees every two seconds: seen by eye,
    /// and far from every limit.
    fn default() -> Self {
        Self::Sine { amplitude_rad: [0.2, 0.1, 0.15, 0.2, 0.0, 0.0], frequency_hz: 0.5, ramp_s: 2.0 }
    }
}

/// Most waypoints of a motion.
const MAX_WAYPOINTS: usize = 1000;

/// Peak speed and acceleration of a quintic from rest to rest over way and time 1.
const PEAK_SPEED: f64 = 1.875;
const PEAK_ACCELERATION: f64 = 5.773_502_691_896_258;

/// One move from rest to rest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Leg {
    begins_s: f64,
    lasts_s: f64,
    from_rad: [f64; 6],
    way_rad: [f64; 6],
}

/// A built-in motion, ready to be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    motion: MotionConfig,
    legs: Vec<Leg>,
    round_s: f64,
}

/// From 0 to 1 over `x` from 0 to 1, at rest at both ends, with steady acceleration.
fn smooth(x: f64) -> f64 {
    let x = x.clamp(0.0, 1.0);
    x * x * x * (10.0 + x * (6.0 * x - 15.0))
}

impl Trajectory {
    /// Plans a motion within the limits.
    ///
    /// # Errors
    /// [`SettingError`] for a motion that is none, or that exceeds `limits` when sampled at
    /// `rate_hz`.
    pub fn new(motion: &MotionConfig, limits: &LimitsConfig, rate_hz: f64) -> Result<Self, SettingError> {
        let refuse = |key: &str, received: String, accepted: &str| {
            Err(SettingError::value(key, received, format!("accepted: {accepted}")))
        };
        let angles = |values: &[f64; 6]| values.iter().all(|angle| (-TAU..=TAU).contains(angle));
        let (mut legs, mut round_s) = (Vec::new(), 0.0);
        match motion {
            MotionConfig::Hold => {}
            MotionConfig::Sine { amplitude_rad, frequency_hz, ramp_s } => {
                if !angles(amplitude_rad) {
                    return refuse(
                        "motion.amplitude_rad",
                        format!("{amplitude_rad:?}"),
                        "six angles of -6.2832 to 6.2832",
                    );
                }
                within("motion.frequency_hz", *frequency_hz, 0.001, 10.0)?;
                within("motion.ramp_s", *ramp_s, 0.0, 60.0)?;
                round_s = ramp_s + 2.0 / frequency_hz;
            }
            MotionConfig::Waypoints { offsets_rad, dwell_s } => {
                if offsets_rad.is_empty() || offsets_rad.len() > MAX_WAYPOINTS {
                    let received = format!("{} of them", offsets_rad.len());
                    return refuse("motion.offsets_rad", received, "1 to 1000 positions of six angles");
                }
                if let Some(place) = offsets_rad.iter().find(|place| !angles(place)) {
                    return refuse(
                        "motion.offsets_rad",
                        format!("{place:?}"),
                        "six angles of -6.2832 to 6.2832",
                    );
                }
                within("motion.dwell_s", *dwell_s, 0.0, 3600.0)?;
                // First from where the arm stands; the round then begins anew from the last place.
                let mut from_rad = [0.0; 6];
                for to_rad in offsets_rad.iter().chain(offsets_rad.first()) {
                    let leg = Leg::new(from_rad, *to_rad, round_s, limits);
                    round_s += leg.lasts_s + dwell_s;
                    from_rad = *to_rad;
                    legs.push(leg);
                }
            }
        }
        let trajectory = Self { motion: motion.clone(), legs, round_s };
        trajectory.check(limits, rate_hz)?;
        Ok(trajectory)
    }

    /// Offset from its start, rad.
    pub(crate) fn offset_rad(&self, time_s: f64) -> [f64; 6] {
        match &self.motion {
            MotionConfig::Hold => [0.0; 6],
            MotionConfig::Sine { amplitude_rad, frequency_hz, ramp_s } => {
                let grown = if *ramp_s > 0.0 { smooth(time_s / ramp_s) } else { 1.0 };
                let swing = grown * (TAU * frequency_hz * time_s).sin();
                amplitude_rad.map(|amplitude| amplitude * swing)
            }
            MotionConfig::Waypoints { .. } => self.on_leg(time_s),
        }
    }

    fn on_leg(&self, time_s: f64) -> [f64; 6] {
        let first_s = self.legs.get(1).map_or(0.0, |leg| leg.begins_s);
        // The leg from where the arm stood is not part of the round.
        let mut time_s = time_s;
        let round_s = self.round_s - first_s;
        if time_s >= self.round_s && round_s > 0.0 {
            time_s = first_s + (time_s - first_s) % round_s;
        }
        let after = self.legs.partition_point(|leg| leg.begins_s <= time_s);
        let Some(leg) = after.checked_sub(1).and_then(|index| self.legs.get(index)) else { return [0.0; 6] };
        let share = if leg.lasts_s > 0.0 { smooth((time_s - leg.begins_s) / leg.lasts_s) } else { 1.0 };
        std::array::from_fn(|joint| leg.from_rad[joint] + leg.way_rad[joint] * share)
    }

    /// Speeds and accelerations as the stream will have them, from cycle to cycle.
    fn check(&self, limits: &LimitsConfig, rate_hz: f64) -> Result<(), SettingError> {
        // At most ten minutes of it: what comes later is what came before.
        let cycles = ((self.round_s * rate_hz) as u64).clamp(2, (600.0 * rate_hz) as u64);
        let (mut fastest, mut hardest) = (0.0_f64, 0.0_f64);
        let mut before = [[0.0; 6]; 2];
        for cycle in 0..=cycles {
            let now = self.offset_rad(cycle as f64 / rate_hz);
            for joint in 0..6 {
                let speed = (now[joint] - before[0][joint]) * rate_hz;
                let speed_before = (before[0][joint] - before[1][joint]) * rate_hz;
                fastest = fastest.max(speed.abs());
                hardest = hardest.max((speed - speed_before).abs() * rate_hz);
            }
            before = [now, before[0]];
        }
        let excess = |what: &str, found: f64, key: &str, limit: f64| {
            Err(SettingError::value(
                "motion",
                format!("a motion of up to {found:.3} {what}"),
                format!(
                    "accepted: at most {limit} ({key}); make the motion smaller or slower, or raise that"
                ),
            ))
        };
        // A quintic sampled at cycles exceeds its own limits by rounding.
        if fastest > limits.speed_rad_s * 1.001 {
            return excess("rad/s", fastest, "limits.speed_rad_s", limits.speed_rad_s);
        }
        if hardest > limits.acceleration_rad_s2 * 1.01 {
            return excess("rad/s2", hardest, "limits.acceleration_rad_s2", limits.acceleration_rad_s2);
        }
        Ok(())
    }
}

impl Leg {
    fn new(from_rad: [f64; 6], to_rad: [f64; 6], begins_s: f64, limits: &LimitsConfig) -> Self {
        let way_rad: [f64; 6] = std::array::from_fn(|joint| to_rad[joint] - from_rad[joint]);
        let longest = way_rad.iter().fold(0.0_f64, |longest, way| longest.max(way.abs()));
        let by_speed = PEAK_SPEED * longest / limits.speed_rad_s;
        let by_acceleration = (PEAK_ACCELERATION * longest / limits.acceleration_rad_s2).sqrt();
        Self { begins_s, lasts_s: by_speed.max(by_acceleration), from_rad, way_rad }
    }
}

impl Targets for Trajectory {
    fn at(&mut self, time_s: f64, start_rad: &[f64; 6]) -> [f64; 6] {
        let offset = self.offset_rad(time_s);
        std::array::from_fn(|joint| start_rad[joint] + offset[joint])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = [f64; 6]> {
        proptest::array::uniform6(-3.0..3.0_f64)
    }

    proptest! {
        #[test]
        fn waypoints_are_reached_within_the_limits_and_without_a_step(
            places in proptest::collection::vec(place(), 1..5),
            speed in 0.1..3.0_f64,
            acceleration in 0.2..20.0_f64,
            dwell_s in 0.0..0.5_f64,
        ) {
            let limits = LimitsConfig { speed_rad_s: speed, acceleration_rad_s2: acceleration, ..LimitsConfig::default() };
            let motion = MotionConfig::Waypoints { offsets_rad: places.clone(), dwell_s };
            // Its own check samples every cycle.
            let trajectory = Trajectory::new(&motion, &limits, 500.0).unwrap();
            for (leg, place) in trajectory.legs.iter().zip(&places) {
                let reached = trajectory.offset_rad(leg.begins_s + leg.lasts_s);
                prop_assert!(reached.iter().zip(place).all(|(a, b)| (a - b).abs() < 1e-6), "{reached:?} {place:?}");
            }
            let step = speed / 500.0 * 1.01 + 1e-9;
            let mut before = [0.0; 6];
            for cycle in 0..(trajectory.round_s * 1200.0) as u64 {
                let now = trajectory.offset_rad(cycle as f64 / 500.0);
                prop_assert!(now.iter().zip(&before).all(|(a, b)| (a - b).abs() <= step), "cycle {cycle}");
                before = now;
            }
        }
    }

    #[test]
    fn a_motion_beyond_the_limits_is_refused_by_the_key_that_allows_it() {
        let limits = LimitsConfig::default();
        let sine = |amplitude: f64, frequency_hz, ramp_s| MotionConfig::Sine {
            amplitude_rad: [amplitude; 6],
            frequency_hz,
            ramp_s,
        };
        for (motion, key) in [
            (sine(1.0, 0.5, 2.0), "limits.speed_rad_s"),
            (sine(0.05, 3.0, 2.0), "limits.acceleration_rad_s2"),
            (sine(0.1, 0.5, 0.0), "limits.acceleration_rad_s2"),
            (sine(f64::NAN, 0.5, 1.0), "motion.amplitude_rad"),
            (sine(0.1, 0.0, 1.0), "motion.frequency_hz"),
            (MotionConfig::Waypoints { offsets_rad: vec![], dwell_s: 0.0 }, "motion.offsets_rad"),
        ] {
            let error = Trajectory::new(&motion, &limits, 500.0).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        Trajectory::new(&MotionConfig::default(), &limits, 500.0).unwrap();
        Trajectory::new(&MotionConfig::default(), &limits, 125.0).unwrap();
    }
}
