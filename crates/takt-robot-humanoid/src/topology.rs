//! The devices of the humanoid, in the order of the wire.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_link_ethercat::control::{DeviceConfig, Identity, ObjectWrite, Sync0};
use takt_link_ethercat::segment::{self, DeviceKind, SegmentConfig};
use takt_rt::config::{SettingError, within};

use crate::joint::{Direction, DriveMode, Gains, Scale};
pub use crate::layout::DriveLayout;
use crate::positive::positive;
use crate::trajectory::Limits;

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceClass {
    /// A servo drive (CiA 402).
    #[default]
    Drive,
    /// An inertial sensor.
    Imu,
    /// A force and torque sensor.
    ForceTorque,
    /// A tactile sensor.
    Tactile,
    /// Digital inputs and outputs.
    DigitalIo,
    /// A counter of physical events and commands, to measure latencies in cycles.
    Probe,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Name, as `left-knee-pitch`.
    pub name: String,
    /// What it is.
    pub kind: DeviceClass,
    /// Who it must be; zeros accept any.
    pub identity: Identity,
    /// Limits of the joint; for drives, as all that follows.
    pub limits: Limits,
    /// Where its objects lie. Absent: as `layout` of the robot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<DriveLayout>,
    /// Mode that the drive works in. Cyclic synchronous position.
    pub mode: DriveMode,
    /// Encoder increments per turn of the encoder. 131072: 17 bits.
    pub counts_per_turn: u32,
    /// Turns of the encoder per turn of the joint. 1: the encoder sits on the joint.
    pub gear: f64,
    /// What the encoder shows when the joint stands at 0 rad. 0. An absolute encoder shows what it
    /// was mounted at: read 0x6064 with the joint held at its zero.
    pub zero_counts: i32,
    /// Which way the drive counts. Positive.
    pub direction: Direction,
    /// Units of velocity objects (0x60FF, 0x606C) per increment a second. 1, as CiA 402 has it by
    /// default.
    pub velocity_units: f64,
    /// Rated torque (0x6076), of which torque objects report thousandths. 30 N m.
    pub rated_torque_nm: f64,
    /// Greatest torque that CST asks for. 30 N m: the rated one.
    pub max_torque_nm: f64,
    /// Gains of what is controlled here in CSV and CST.
    pub gains: Gains,
    /// Sync0 of this device; absent: as `sync0` of the robot for drives, none for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync0: Option<Sync0>,
    /// Walking: amplitude around the middle position, radians; for drives. 0: the joint is held.
    pub swing_rad: f64,
    /// Walking: middle position.
    pub middle_rad: f64,
    /// Walking: place in the step's phase, in turns.
    pub phase_turns: f64,
    /// Swings per step: 1, or 2 for joints that bend with either leg.
    pub swings: u32,
    /// Objects written before SAFE-OP, after a drive's mode (0x6060) and PDO assignment.
    pub startup: Vec<ObjectWrite>,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: DeviceClass::Drive,
            identity: Identity::default(),
            limits: Limits::default(),
            layout: None,
            mode: DriveMode::Csp,
            counts_per_turn: 131_072,
            gear: 1.0,
            zero_counts: 0,
            direction: Direction::Positive,
            velocity_units: 1.0,
            rated_torque_nm: 30.0,
            max_torque_nm: 30.0,
            gains: Gains::default(),
            sync0: None,
            swing_rad: 0.0,
            middle_rad: 0.0,
            phase_turns: 0.0,
            swings: 1,
            startup: Vec::new(),
        }
    }
}

impl Device {
    /// What the control interface must know.
    pub fn link(&self, layout: &DriveLayout, sync0: Option<Sync0>) -> DeviceConfig {
        let mut startup = Vec::new();
        let layout = self.layout.as_ref().unwrap_or(layout);
        if self.kind == DeviceClass::Drive {
            startup.push(ObjectWrite {
                index: 0x6060,
                bytes: 1,
                value: self.mode.code().into(),
                ..ObjectWrite::default()
            });
            for (index, pdo) in [(0x1C12, layout.rx_pdo), (0x1C13, layout.tx_pdo)] {
                let Some(pdo) = pdo else { continue };
                // None assigned, this one, one assigned (ETG.1000.6, 5.6.7.4.7).
                startup.push(ObjectWrite { index, sub: 0, bytes: 1, value: 0, ..ObjectWrite::default() });
                startup.push(ObjectWrite {
                    index,
                    sub: 1,
                    bytes: 2,
                    value: pdo.into(),
                    ..ObjectWrite::default()
                });
                startup.push(ObjectWrite { index, sub: 0, bytes: 1, value: 1, ..ObjectWrite::default() });
            }
        }
        startup.extend(self.startup.iter().cloned());
        let (input_bytes, output_bytes) = match self.kind {
            DeviceClass::Drive => (Some(layout.input_bytes), Some(layout.output_bytes)),
            DeviceClass::Probe => (Some(4), Some(2)),
            // Nothing is read from the others here but whole images by readers.
            _ => (None, None),
        };
        DeviceConfig {
            name: self.name.clone(),
            identity: self.identity,
            input_bytes,
            output_bytes,
            startup,
            sync0: self.sync0.or(sync0.filter(|_| self.kind == DeviceClass::Drive)),
        }
    }

    /// How its drive counts.
    pub fn scale(&self) -> Scale {
        Scale {
            counts_per_turn: self.counts_per_turn,
            gear: self.gear,
            zero_counts: self.zero_counts,
            direction: self.direction,
            velocity_units: self.velocity_units,
            rated_torque_nm: self.rated_torque_nm,
        }
    }

    fn validate(&self, layout: &DriveLayout) -> Result<(), SettingError> {
        self.limits.validate()?;
        self.scale().validate(self.limits.min_rad.abs().max(self.limits.max_rad.abs()))?;
        self.gains.validate()?;
        positive("max_torque_nm", self.max_torque_nm)?;
        if self.kind == DeviceClass::Drive {
            let layout = self.layout.as_ref().unwrap_or(layout);
            layout.validate(Some(self.mode)).map_err(|error| error.within_section("layout."))?;
        }
        within("swing_rad", self.swing_rad, -10.0, 10.0)?;
        within("middle_rad", self.middle_rad, -10.0, 10.0)?;
        within("phase_turns", self.phase_turns, -10.0, 10.0)?;
        within("swings", self.swings.into(), 1.0, 4.0)
    }
}

/// Devices of the paper's robot.
pub const PAPER_DEVICES: usize = 59;

/// Checks a list of devices.
///
/// # Errors
/// [`SettingError`] names the device, the key, its value and what is accepted.
pub fn validate(devices: &[Device], layout: &DriveLayout) -> Result<(), SettingError> {
    layout.validate(None).map_err(|error| error.within_section("layout."))?;
    if devices.is_empty() {
        return Err(SettingError::conflict("devices", "none is listed; accepted are 1 to 128"));
    }
    for (place, device) in devices.iter().enumerate() {
        let section = format!("devices[{place}] ({}): ", device.name);
        device.validate(layout).map_err(|error| error.within_section(&section))?;
    }
    Ok(())
}

/// A humanoid of `count` devices: those of the simulated segment of that size, in its order.
///
/// The paper names 59 sensors and actuators in torso, arms, legs and head and no more; the
/// segment's are a plausible set.
pub fn humanoid(count: usize) -> Vec<Device> {
    let segment = SegmentConfig::humanoid(count);
    segment.devices.iter().enumerate().map(|(place, device)| simulated(place, device)).collect()
}

fn simulated(place: usize, device: &segment::DeviceConfig) -> Device {
    let segment::Identity { vendor, product, .. } = device.identity(place);
    let kind = match device.kind {
        DeviceKind::Drive => DeviceClass::Drive,
        DeviceKind::ImuSensor => DeviceClass::Imu,
        DeviceKind::ForceTorqueSensor => DeviceClass::ForceTorque,
        DeviceKind::TactileSensor => DeviceClass::Tactile,
        DeviceKind::DigitalIo => DeviceClass::DigitalIo,
        DeviceKind::EventProbe => DeviceClass::Probe,
    };
    let swing = if kind == DeviceClass::Drive { walk(&device.name) } else { Swing::default() };
    Device {
        name: device.name.clone(),
        kind,
        // Serial numbers and revisions change with a repair.
        identity: Identity { vendor, product, ..Identity::default() },
        counts_per_turn: device.joint.counts_per_turn,
        gear: device.joint.gear,
        zero_counts: device.joint.encoder_zero_counts,
        direction: if device.joint.encoder_reversed { Direction::Negative } else { Direction::Positive },
        rated_torque_nm: device.joint.rated_torque_nm,
        max_torque_nm: device.joint.rated_torque_nm,
        middle_rad: swing.middle_rad,
        swing_rad: swing.swing_rad,
        phase_turns: swing.phase_turns,
        swings: swing.swings,
        ..Device::default()
    }
}

/// A joint's part in the walk.
struct Swing {
    middle_rad: f64,
    swing_rad: f64,
    phase_turns: f64,
    swings: u32,
}

impl Default for Swing {
    fn default() -> Self {
        Self { middle_rad: 0.0, swing_rad: 0.0, phase_turns: 0.0, swings: 1 }
    }
}

/// The walk of a joint by its name. Legs swing half a step apart, arms against the legs; what has
/// no part in it is held.
fn walk(name: &str) -> Swing {
    let (half, joint) = match (name.strip_prefix("left-"), name.strip_prefix("right-")) {
        (Some(joint), _) => (0.0, joint),
        (_, Some(joint)) => (0.5, joint),
        _ => (0.0, name),
    };
    let (middle_rad, swing_rad, phase_turns, swings) = match joint {
        "hip-yaw" => (0.0, 0.05, half, 1),
        "hip-roll" => (0.0, 0.07, half + 0.25, 1),
        "hip-pitch" => (-0.30, 0.35, half, 1),
        "knee" => (0.60, 0.40, half + 0.15, 1),
        "ankle-pitch" => (-0.30, 0.20, half + 0.30, 1),
        "ankle-roll" => (0.0, 0.07, half + 0.75, 1),
        "shoulder-pitch" => (0.10, 0.30, half + 0.5, 1),
        "shoulder-roll" => (0.15, 0.03, half + 0.5, 1),
        "elbow" => (0.50, 0.20, half + 0.5, 1),
        "waist-yaw" => (0.0, 0.08, 0.25, 1),
        "waist-pitch" => (0.04, 0.02, 0.0, 2),
        "head-yaw" => (0.0, 0.05, 0.75, 1),
        "head-pitch" => (0.05, 0.02, 0.0, 2),
        "thumb" | "index" | "middle" | "ring" | "little" => (0.40, 0.0, 0.0, 1),
        _ => (0.0, 0.0, 0.0, 1),
    };
    Swing { middle_rad, swing_rad, phase_turns, swings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_59_devices() {
        let devices = humanoid(PAPER_DEVICES);
        assert_eq!(devices.len(), 59);
        validate(&devices, &DriveLayout::default()).unwrap();
        let mut names: Vec<_> = devices.iter().map(|device| &device.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 59);
        assert_eq!(devices.iter().filter(|device| device.kind == DeviceClass::Drive).count(), 43);
        assert_eq!(humanoid(3).len(), 3);
        assert_eq!(humanoid(100).len(), 100);
        // Legs, arms, waist and head take part in the walk.
        assert_eq!(devices.iter().filter(|device| device.swing_rad > 0.0).count(), 22);
    }

    #[test]
    fn nonsense_is_refused() {
        let layout = DriveLayout { target: 3, ..DriveLayout::default() };
        assert!(validate(&humanoid(5), &layout).unwrap_err().to_string().contains("target = 3"));
        let mut devices = humanoid(5);
        devices[4].limits.max_rad = -5.0;
        assert!(validate(&devices, &DriveLayout::default()).unwrap_err().to_string().contains("head-pitch"));
        assert!(validate(&[], &DriveLayout::default()).is_err());
        let far = DriveLayout { target: 6, ..DriveLayout::default() };
        assert!(validate(&humanoid(5), &far).unwrap_err().to_string().contains("target = 6"));
    }

    #[test]
    fn objects_that_share_bytes_are_refused_by_both_keys() {
        let all = DriveLayout::all_modes();
        for (layout, words) in [
            (DriveLayout { target: 0, ..DriveLayout::default() }, ["target = 0", "controlword = 0"]),
            (DriveLayout { position: 1, ..DriveLayout::default() }, ["position = 1", "statusword = 0"]),
            (DriveLayout { velocity: Some(3), ..all }, ["velocity = 3", "position = 2"]),
            (DriveLayout { mode_display: Some(9), ..all }, ["mode_display = 9", "velocity = 6"]),
            (DriveLayout { target_velocity: Some(5), ..all }, ["target_velocity = 5", "target = 2"]),
            (DriveLayout { mode: Some(11), ..all }, ["mode = 11", "target_torque = 10"]),
        ] {
            let message = validate(&humanoid(5), &layout).unwrap_err().to_string();
            assert!(
                words.iter().all(|word| message.contains(word)) && message.contains("overlap"),
                "{message}"
            );
        }
        // A drive in CSV or CST need not map the target position.
        let small = DriveLayout { target: 6, target_velocity: Some(2), ..DriveLayout::default() };
        let mut devices = humanoid(5);
        devices.iter_mut().for_each(|device| device.mode = DriveMode::Csv);
        validate(&devices, &small).unwrap();
        let message = validate(&devices, &DriveLayout { target: 2, ..small }).unwrap_err().to_string();
        assert!(message.contains("target = output_bytes"), "{message}");
        validate(&devices, &all).unwrap();
    }
}
