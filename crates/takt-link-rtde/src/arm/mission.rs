//! A mission: steps that the arm repeats, checked against its limits before any of them is moved.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::RtdeError;

/// Fastest joint of any UR arm, rad/s: 180 degrees/s (data sheet UR10e).
const MAX_SPEED_RAD_S: f64 = std::f64::consts::PI;
/// Highest joint acceleration that is accepted, rad/s²; the controller limits further.
const MAX_ACCELERATION_RAD_S2: f64 = 40.0;
/// Joint range of a UR10e, degrees.
const JOINT_RANGE_DEG: f64 = 360.0;
const MAX_DWELL_S: f64 = 3600.0;

/// A list of steps that the arm repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mission {
    /// Name for people.
    pub name: String,
    /// Speed of the leading joint in rad/s, where a step says none. Default 1.05, URScript's own.
    #[serde(default = "default_speed")]
    pub speed_rad_s: f64,
    /// Acceleration of the leading joint in rad/s², where a step says none. Default 1.4, URScript's
    /// own.
    #[serde(default = "default_acceleration")]
    pub acceleration_rad_s2: f64,
    /// Joint angles in degrees, base to wrist 3, by name.
    #[serde(default)]
    pub waypoints_deg: BTreeMap<String, [f64; 6]>,
    /// Steps in order; after the last step it begins again.
    pub steps: Vec<Step>,
}

const fn default_speed() -> f64 {
    1.05
}

const fn default_acceleration() -> f64 {
    1.4
}

/// One step of a mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Move all joints to a target (`movej`).
    Move {
        /// Destination.
        to: Target,
        /// Speed of the leading joint in rad/s; the mission's when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        speed_rad_s: Option<f64>,
        /// Acceleration of the leading joint in rad/s²; the mission's when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acceleration_rad_s2: Option<f64>,
    },
    /// Switch the suction gripper.
    Suction {
        /// On or off.
        on: bool,
    },
    /// Wait.
    Dwell {
        /// Duration, in seconds.
        seconds: f64,
    },
}

/// Destination of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Target {
    /// A name from `waypoints_deg`.
    Named(String),
    /// Joint angles in degrees.
    JointsDeg([f64; 6]),
}

impl Mission {
    /// Reads and judges a mission in TOML.
    ///
    /// # Errors
    /// Syntax, unknown keys (with line and column), or values out of range (with the step).
    pub fn from_toml(text: &str) -> Result<Self, RtdeError> {
        let mission: Self = toml::from_str(text)?;
        mission.check()?;
        Ok(mission)
    }

    /// The mission that is shipped: pick a box on one side, place it on the other.
    ///
    /// # Errors
    /// None in practice: the text is part of the crate and tested.
    pub fn pick_and_place() -> Result<Self, RtdeError> {
        Self::from_toml(include_str!("../../missions/pick_and_place.toml"))
    }

    /// Judges the values.
    ///
    /// # Errors
    /// [`RtdeError::Mission`] names the step and what is accepted.
    pub fn check(&self) -> Result<(), RtdeError> {
        let refuse = |step, problem| Err(RtdeError::Mission { step, problem });
        if self.steps.is_empty() {
            return refuse(0, String::from("the mission has no steps; it needs at least one"));
        }
        // Also where no step uses them.
        for name in self.waypoints_deg.keys() {
            if let Err(problem) = self.joints_rad(&Target::Named(name.clone())) {
                return refuse(0, format!("waypoints_deg.{name}: {problem}"));
            }
        }
        for (key, value, most) in [
            ("speed_rad_s", self.speed_rad_s, MAX_SPEED_RAD_S),
            ("acceleration_rad_s2", self.acceleration_rad_s2, MAX_ACCELERATION_RAD_S2),
        ] {
            if !(value > 0.0 && value <= most) {
                return refuse(0, format!("{key} is {value}, accepted: above 0 to {most:.3}"));
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            if let Err(problem) = self.check_step(step) {
                return refuse(index + 1, problem);
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Move { to, speed_rad_s, acceleration_rad_s2 } => {
                self.joints_rad(to)?;
                let speed = speed_rad_s.unwrap_or(self.speed_rad_s);
                if !(speed > 0.0 && speed <= MAX_SPEED_RAD_S) {
                    return Err(format!("speed_rad_s is {speed}, accepted: above 0 to {MAX_SPEED_RAD_S:.3}"));
                }
                let acceleration = acceleration_rad_s2.unwrap_or(self.acceleration_rad_s2);
                if !(acceleration > 0.0 && acceleration <= MAX_ACCELERATION_RAD_S2) {
                    return Err(format!(
                        "acceleration_rad_s2 is {acceleration}, accepted: above 0 to {MAX_ACCELERATION_RAD_S2}"
                    ));
                }
                Ok(())
            }
            Step::Dwell { seconds } if !(0.0..=MAX_DWELL_S).contains(seconds) => {
                Err(format!("seconds is {seconds}, accepted: 0 to {MAX_DWELL_S}"))
            }
            Step::Dwell { .. } | Step::Suction { .. } => Ok(()),
        }
    }

    /// Joint angles of a target, in radians.
    pub(crate) fn joints_rad(&self, target: &Target) -> Result<[f64; 6], String> {
        let degrees = match target {
            Target::JointsDeg(angles) => angles,
            Target::Named(name) => self.waypoints_deg.get(name).ok_or_else(|| {
                let known: Vec<_> = self.waypoints_deg.keys().map(String::as_str).collect();
                format!("waypoint '{name}' is unknown; [waypoints_deg] has: {}", known.join(", "))
            })?,
        };
        if let Some(angle) =
            degrees.iter().find(|angle| !(-JOINT_RANGE_DEG..=JOINT_RANGE_DEG).contains(*angle))
        {
            return Err(format!(
                "joint angle {angle} degrees, accepted: -{JOINT_RANGE_DEG} to {JOINT_RANGE_DEG}"
            ));
        }
        Ok(degrees.map(f64::to_radians))
    }
}
