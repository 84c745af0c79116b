//! The arm's shape in the cell's file (`[robot.shape]`).

#![deny(missing_docs)]

use std::fmt::Display;

use nalgebra::{Isometry3, Point3, Vector3};
use serde::{Deserialize, Serialize};
use takt_link_rtde::kinematics::{LINKS, Model};
use takt_link_rtde::primary::PRIMARY_PORT;
use takt_perception::{Capsule, CapsuleFrame, MAX_ROBOT_CAPSULES, box_capsules};
use takt_rt::config::{SettingError, all_within, within};

/// Source of the arm's kinematics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KinematicsSource {
    /// From the controller's own calibration; the maker's nominal values with a warning where it
    /// does not report them.
    #[default]
    Controller,
    /// The maker's nominal values: for controllers before 3.6 (CB), which do not report theirs.
    Nominal,
}

/// Frame with which a configured part moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartFrame {
    /// The tool centre point as the controller has it.
    #[default]
    Tcp,
    /// The flange.
    Flange,
}

/// A part of the tool: a capsule or a box, in the frame of the TCP or of the flange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartShape {
    /// Its name, for people.
    pub name: String,
    /// Frame with which it moves. Default the TCP.
    #[serde(default)]
    pub frame: PartFrame,
    /// All points within a radius of a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capsule: Option<PartCapsule>,
    /// A box. It is covered by capsules along its longest side, which stand out beside it by 15 mm
    /// where four of them can do that (a square bar: by a fifth of its side), and beyond its ends
    /// by their radius. Several flat boxes or capsules are tighter than one thick box.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub cuboid: Option<PartBox>,
}

/// A capsule of a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartCapsule {
    /// One end, metres.
    pub from_m: [f64; 3],
    /// Other end, metres.
    pub to_m: [f64; 3],
    /// Radius, metres.
    pub radius_m: f64,
}

/// A box of a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartBox {
    /// Its middle, metres.
    pub centre_m: [f64; 3],
    /// Its orientation as a rotation vector, radians. Default none.
    #[serde(default)]
    pub rotation_rad: [f64; 3],
    /// Full lengths of its sides, metres.
    pub sides_m: [f64; 3],
}

/// When the held part is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldWhen {
    /// While the output that holds it is on.
    #[default]
    Output,
    /// Always: for grippers without an output. Anything in its place is then never seen, part or
    /// not.
    Always,
}

/// Part held by the gripper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Held {
    /// When it is there. Default while `output` is on.
    pub when: HeldWhen,
    /// The digital output that holds it, as a bit of `actual_digital_output_bits`: 0 to 7 standard,
    /// 8 to 15 configurable, 16 and 17 the tool's. Unset: 16, tool output 0, the suction gripper of
    /// the shipped mission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u8>,
    /// Its shapes. Default none.
    pub parts: Vec<PartShape>,
}

/// The robot's own shape (`[robot.shape]`): samples inside are the robot. Without, only
/// `perception.occupancy.robot` is, and an arm in a camera's view stops itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeConfig {
    /// The arm: `ur3`, `ur5`, `ur10`, `ur3e`, `ur5e`, `ur10e`, `ur16e`, `ur20` or `ur30`. There is
    /// no default: a wrong arm would hide people where the real one is not.
    pub model: Model,
    /// Source of its kinematics. Default the controller.
    #[serde(default)]
    pub kinematics: KinematicsSource,
    /// Port of the controller's primary client interface. Default 30001, fixed on a real robot;
    /// with a simulator it is the simulator's.
    #[serde(default = "default_port")]
    pub primary_port: u16,
    /// Growth of every capsule, metres. Default 0.025: 10 mm for the calibration of arm and camera,
    /// 10 mm for cables and labels, 5 mm for the smear of depth at edges. A hand nearer to a link
    /// than this (and the growth with speed) is the robot.
    #[serde(default = "default_margin")]
    pub margin_m: f64,
    /// Standard deviation of the depth at one metre, metres; it grows with the square of the
    /// distance. Three of them are added. Default 0.002: a D435 at 848×480 with a disparity noise
    /// of 0.05 pixels.
    #[serde(default = "default_noise")]
    pub depth_noise_m: f64,
    /// Most that a frame's capture time and the time of the robot's state may be wrong against each
    /// other, ms. Default 15: half an exposure of 16 ms, 2 ms for a cycle of the controller, 5 ms
    /// for the clocks.
    #[serde(default = "default_time_error")]
    pub time_error_ms: f64,
    /// Most that a joint accelerates, rad/s². Default 10: programs use 1.4 (URScript's default) to
    /// 5; protective stops brake harder, but from a speed that is known.
    #[serde(default = "default_acceleration")]
    pub joint_acceleration_rad_s2: f64,
    /// Parts of the gripper. Default none.
    #[serde(default)]
    pub gripper: Vec<PartShape>,
    /// Part held by the gripper. Default nothing.
    #[serde(default)]
    pub held: Held,
}

const fn default_port() -> u16 {
    PRIMARY_PORT
}

const fn default_margin() -> f64 {
    0.025
}

const fn default_noise() -> f64 {
    0.002
}

const fn default_time_error() -> f64 {
    15.0
}

const fn default_acceleration() -> f64 {
    10.0
}

/// Bit of tool output 0.
const SUCTION: u8 = 16;

/// Longest distance of a part from its frame, metres.
const MAX_PART_M: f64 = 2.0;

/// Longest side of a box, metres: the space of a part counts as the robot, so that a person within
/// it is not seen. Longer parts are made of several boxes.
const MAX_SIDE_M: f64 = 1.2;

/// The second-longest side of a box and twice the radius of a capsule, metres: a part as thick as a
/// person is tall and wide hides one.
const MAX_THICKNESS_M: f64 = 0.6;

impl ShapeConfig {
    /// The defaults, for an arm.
    pub fn of(model: Model) -> Self {
        Self {
            model,
            kinematics: KinematicsSource::default(),
            primary_port: default_port(),
            margin_m: default_margin(),
            depth_noise_m: default_noise(),
            time_error_ms: default_time_error(),
            joint_acceleration_rad_s2: default_acceleration(),
            gripper: Vec::new(),
            held: Held::default(),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let value = |key: &str, received: &dyn Display, expected: &str| {
            Err(SettingError::value(format!("robot.shape.{key}"), received, expected))
        };
        if !(0.0..=0.1).contains(&self.margin_m) {
            return value(
                "margin_m",
                &self.margin_m,
                "accepted are 0 to 0.1, because people are not seen within it",
            );
        }
        all_within(
            "robot.shape.",
            &[
                ("depth_noise_m", self.depth_noise_m, 0.0, 0.01),
                ("time_error_ms", self.time_error_ms, 0.0, 100.0),
                ("joint_acceleration_rad_s2", self.joint_acceleration_rad_s2, 0.0, 40.0),
                ("held.output", f64::from(self.held.output.unwrap_or_default()), 0.0, 17.0),
            ],
        )?;
        if self.primary_port == 0 {
            return value("primary_port", &0, "accepted are 1 to 65535; a robot uses 30001");
        }
        let mut capsules = LINKS;
        for (list, parts) in [("gripper", &self.gripper), ("held.parts", &self.held.parts)] {
            for part in parts {
                let within = |error: SettingError| {
                    error.within_section(&format!("robot.shape.{list} \"{}\": ", part.name))
                };
                part.check().map_err(within)?;
                capsules += part.capsules().len();
            }
        }
        if capsules > MAX_ROBOT_CAPSULES {
            return Err(SettingError::conflict(
                format!("robot.shape: {LINKS} links, gripper and held part make {capsules} capsules"),
                format!("at most {MAX_ROBOT_CAPSULES} are accepted; a box counts as up to four"),
            ));
        }
        Ok(())
    }

    /// The bit of the output that holds the part.
    pub(crate) fn held_bit(&self) -> u64 {
        1 << self.held.output.unwrap_or(SUCTION).min(63)
    }
}

impl PartShape {
    fn check(&self) -> Result<(), SettingError> {
        let near = |values: &[f64]| values.iter().all(|value| value.abs() <= MAX_PART_M);
        match (&self.capsule, &self.cuboid) {
            (Some(capsule), None) => {
                if !(near(&capsule.from_m) && near(&capsule.to_m)) {
                    let ends = format!("ends {:?}, {:?}", capsule.from_m, capsule.to_m);
                    return Err(SettingError::conflict(ends, "accepted within ±2 m"));
                }
                within("radius_m", capsule.radius_m, 0.001, MAX_THICKNESS_M / 2.0)?;
            }
            (None, Some(cuboid)) => {
                if !near(&cuboid.centre_m) || !cuboid.rotation_rad.iter().all(|v| v.abs() <= 10.0) {
                    let place =
                        format!("centre_m {:?}, rotation_rad {:?}", cuboid.centre_m, cuboid.rotation_rad);
                    return Err(SettingError::conflict(place, "accepted within ±2 m and ±10 rad"));
                }
                let is_thick = cuboid.sides_m.iter().filter(|side| **side > MAX_THICKNESS_M).count() > 1;
                if is_thick || !cuboid.sides_m.iter().all(|side| (0.001..=MAX_SIDE_M).contains(side)) {
                    let sides = format!("{:?}", cuboid.sides_m);
                    let expected = "expected 0.001 to 1.2 m, and at most one side above 0.6 m: a person in the \
                                    space of a part is not seen";
                    return Err(SettingError::value("sides_m", sides, expected));
                }
            }
            _ => return Err(SettingError::conflict("capsule and box", "it needs one of them")),
        }
        Ok(())
    }

    /// Its capsules, in its own frame (which they do not name: a part's frame is not perception's).
    pub(super) fn capsules(&self) -> Vec<Capsule> {
        let frame = CapsuleFrame::Base;
        let point = |p: [f64; 3]| Point3::from(p).cast::<f32>();
        if let Some(PartCapsule { from_m, to_m, radius_m }) = self.capsule {
            return vec![Capsule {
                frame,
                from_m: point(from_m),
                to_m: point(to_m),
                radius_m: radius_m as f32,
            }];
        }
        let Some(PartBox { centre_m, rotation_rad, sides_m }) = self.cuboid else { return Vec::new() };
        let centre = Isometry3::new(Vector3::from(centre_m), Vector3::from(rotation_rad));
        box_capsules(frame, &centre, sides_m).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_s_form_is_read_and_hostile_values_are_refused() {
        let text = r#"
            model = "ur10e"
            margin_m = 0.02
            [[gripper]]
            name = "suction"
            frame = "flange"
            capsule = { from_m = [0.0, 0.0, 0.0], to_m = [0.0, 0.0, 0.2], radius_m = 0.05 }
            [held]
            parts = [{ name = "carton", box = { centre_m = [0.0, 0.0, 0.1], sides_m = [0.3, 0.2, 0.2] } }]
        "#;
        let config: ShapeConfig = toml::from_str(text).unwrap();
        config.validate().unwrap();
        assert_eq!((config.kinematics, config.held.when), (KinematicsSource::Controller, HeldWhen::Output));
        let again: ShapeConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        for (from, to, names) in [
            ("margin_m = 0.02", "margin_m = nan", "margin_m"),
            ("margin_m = 0.02", "margin_m = 3.0", "not seen within it"),
            ("margin_m = 0.02", "time_error_ms = inf", "time_error_ms"),
            ("margin_m = 0.02", "primary_port = 0", "primary_port"),
            ("radius_m = 0.05", "radius_m = 1e300", "radius_m"),
            ("sides_m = [0.3, 0.2, 0.2]", "sides_m = [0.3, nan, 0.2]", "carton"),
            ("[held]", "[held]\noutput = 64", "held.output"),
        ] {
            let config: ShapeConfig = toml::from_str(&text.replace(from, to)).unwrap();
            let problem = config.validate().unwrap_err().to_string();
            assert!(problem.contains(names), "{problem}");
        }
        let many: ShapeConfig =
            ShapeConfig { gripper: vec![config.gripper[0].clone(); 30], ..config.clone() };
        assert!(many.validate().unwrap_err().to_string().contains("at most 24 are accepted"));
        let neither = PartShape { capsule: None, ..config.gripper[0].clone() };
        assert!(neither.check().is_err());
        assert!(toml::from_str::<ShapeConfig>("margin_m = 0.02").unwrap_err().to_string().contains("model"));
    }
}
