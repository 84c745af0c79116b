//! Composition of a segment.

use serde::{Deserialize, Serialize};

use super::drive::JointConfig;
use super::objects::{DeviceKind, VENDOR};
use super::sii::{Identity, MAX_NAME};

/// Most devices of one segment. EtherCAT allows 65535; masters give up far earlier, and a frame has
/// room for few hundred.
pub const MAX_DEVICES: usize = 512;
/// Branches below one device: ports 3, 1 and 2.
pub(super) const MAX_CHILDREN: usize = 3;

/// A configuration that no segment can be built from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No device, or too many.
    #[error("a segment has 1 to {MAX_DEVICES} devices, but the configuration lists {found}")]
    Count {
        /// Devices listed.
        found: usize,
    },
    /// Two devices with one name.
    #[error("devices {first} and {second} are both named \"{name}\"; give every device its own name")]
    DuplicateName {
        /// The name.
        name: String,
        /// Place of the first.
        first: usize,
        /// Place of the second.
        second: usize,
    },
    /// A name that does not fit into the EEPROM.
    #[error("device {device}: name \"{name}\" is not 1 to {MAX_NAME} ASCII characters")]
    Name {
        /// The device's place.
        device: usize,
        /// The name given.
        name: String,
    },
    /// The parent is not among the devices before it.
    #[error("device \"{device}\": parent \"{parent}\" is not listed before it")]
    UnknownParent {
        /// The device.
        device: String,
        /// The parent asked for.
        parent: String,
    },
    /// More branches than ports.
    #[error(
        "device \"{device}\" has {found} devices connected behind it, but an ESC has ports for {MAX_CHILDREN}; connect some of them behind \
         others"
    )]
    TooManyChildren {
        /// The device.
        device: String,
        /// Devices connected.
        found: usize,
    },
    /// Frames pass the devices branch by branch; the list is in another order.
    #[error(
        "device \"{device}\" is listed after the end of its branch of \"{parent}\"; list the devices in the order in which a frame passes \
         them"
    )]
    Order {
        /// The device.
        device: String,
        /// Its parent.
        parent: String,
    },
    /// A value that makes no sense.
    #[error("device \"{device}\": joint.{key} = {found}, expected {expected}")]
    Joint {
        /// The device.
        device: String,
        /// The key in its table.
        key: &'static str,
        /// The value given.
        found: f64,
        /// The accepted values.
        expected: &'static str,
    },
    /// A value that makes no sense.
    #[error("{key} = {found}, expected {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value given.
        found: i64,
        /// The accepted values.
        expected: &'static str,
    },
}

/// When the micro-controllers run: fetch outputs, act, sample, put inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "mode", deny_unknown_fields)]
pub enum Update {
    /// So long after the frame has passed (the ESC's interrupt starts it). With 500 µs at 1 kHz:
    /// the paper's half cycle.
    AfterFrame {
        /// From the frame to the new inputs.
        delay_us: u32,
    },
    /// By their own clock, each with another phase.
    FreeRunning {
        /// Period.
        period_us: u32,
    },
}

/// One device. Devices are listed in the order in which a frame passes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// Name, at most 32 ASCII characters; in the EEPROM and in object 0x1008.
    pub name: String,
    /// Its kind. Default a drive.
    pub kind: DeviceKind,
    /// Name of the device it is connected behind. Default the one before it in the list: a daisy
    /// chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Vendor. Default "TAKT" in ASCII, which no vendor has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<u32>,
    /// Product code. Default that of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<u32>,
    /// Revision. Default 0x00010000.
    pub revision: u32,
    /// Serial number. Default the place in the list, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// Station alias. Default 0: none.
    pub alias: u16,
    /// The joint behind a drive; other kinds have none.
    pub joint: JointConfig,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: DeviceKind::default(),
            parent: None,
            vendor: None,
            product: None,
            revision: 0x0001_0000,
            serial: None,
            alias: 0,
            joint: JointConfig::default(),
        }
    }
}

impl DeviceConfig {
    /// A device behind the one listed before it.
    pub fn new(name: impl Into<String>, kind: DeviceKind) -> Self {
        Self { name: name.into(), kind, ..Self::default() }
    }

    /// Identity that the device reports, at place `index` of the list.
    pub fn identity(&self, index: usize) -> Identity {
        Identity {
            vendor: self.vendor.unwrap_or(VENDOR),
            product: self.product.unwrap_or(self.kind.profile().product),
            revision: self.revision,
            serial: self.serial.unwrap_or(index as u32 + 1),
        }
    }
}

/// A whole segment. As TOML:
///
/// ```toml
/// watchdog_ms = 100
/// update = { mode = "after-frame", delay_us = 500 }
///
/// [[devices]]
/// name = "left-knee"
/// kind = "drive"
/// joint = { max_velocity_rad_s = 8.0 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentConfig {
    /// The devices in the order in which a frame passes them. Default the humanoid's 59.
    pub devices: Vec<DeviceConfig>,
    /// When the micro-controllers run. Default 500 µs after the frame: half a cycle at 1 kHz, as in
    /// the paper.
    pub update: Update,
    /// Process-data watchdog. Default 100 ms, as an ESC has it after power-on.
    pub watchdog_ms: u32,
    /// Whether devices have distributed clocks. Default true, as an ET1100.
    pub distributed_clocks: bool,
    /// Difference of rate between the fastest and the slowest device's clock, in parts per 10⁹.
    /// Default 20000 (20 ppm): common quartzes.
    pub clock_drift_ppb: i64,
    /// Period in which each clock's drift swings between its greatest and the opposite, seconds; 0:
    /// it stays. Default 0. Quartzes drift with their temperature, which changes in minutes.
    pub clock_swing_s: u32,
    /// Time of a frame through one device. Default 300 ns: MII ports, ET1100 data sheet.
    pub hop_ns: u32,
    /// Between two events at an event probe; 0: only events that are asked for. Default 7.3 ms: not
    /// a multiple of a usual cycle, so that events fall on all phases of it.
    pub event_period_us: u32,
    /// Start of the pseudo-random faults. Default 1.
    pub seed: u64,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            devices: humanoid_devices(),
            update: Update::AfterFrame { delay_us: 500 },
            watchdog_ms: 100,
            distributed_clocks: true,
            clock_drift_ppb: 20_000,
            clock_swing_s: 0,
            hop_ns: 300,
            event_period_us: 7_300,
            seed: 1,
        }
    }
}

impl SegmentConfig {
    /// The humanoid with its first `devices` devices; above 59, digital I/O is appended to the
    /// last.
    pub fn humanoid(devices: usize) -> Self {
        let mut list = humanoid_devices();
        list.truncate(devices);
        for extra in list.len()..devices {
            list.push(DeviceConfig::new(format!("extra-{}", extra + 1), DeviceKind::DigitalIo));
        }
        Self { devices: list, ..Self::default() }
    }

    /// Length of all outputs as the devices assign them at power-on.
    pub fn output_bytes(&self) -> usize {
        self.devices.iter().map(|device| device.kind.output_bytes()).sum()
    }

    /// Length of all inputs as the devices assign them at power-on.
    pub fn input_bytes(&self) -> usize {
        self.devices.iter().map(|device| device.kind.input_bytes()).sum()
    }

    /// Working counter of one LRW over all process data: 1 for every device with inputs, 2 for
    /// outputs.
    pub fn working_counter(&self) -> u16 {
        let count = |device: &DeviceConfig| {
            u16::from(device.kind.input_bytes() > 0) + 2 * u16::from(device.kind.output_bytes() > 0)
        };
        self.devices.iter().map(count).sum()
    }

    /// Checks everything; the topology as `parents`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.parents()?;
        for device in self.devices.iter().filter(|device| device.kind == DeviceKind::Drive) {
            if let Some((key, found, expected)) = device.joint.fault() {
                return Err(ConfigError::Joint { device: device.name.clone(), key, found, expected });
            }
        }
        let period = match self.update {
            Update::AfterFrame { delay_us } => delay_us.max(1),
            Update::FreeRunning { period_us } => period_us,
        };
        let value = |key, found: i64, range: std::ops::RangeInclusive<i64>, expected| {
            if range.contains(&found) { Ok(()) } else { Err(ConfigError::Value { key, found, expected }) }
        };
        value("update", i64::from(period), 1..=1_000_000, "1 to 1000000 us")?;
        value("watchdog_ms", i64::from(self.watchdog_ms), 0..=6553, "0 (off) to 6553 ms")?;
        value("clock_drift_ppb", self.clock_drift_ppb, -1_000_000..=1_000_000, "-1000000 to 1000000")?;
        value("clock_swing_s", i64::from(self.clock_swing_s), 0..=1_000_000, "0 (off) to 1000000 s")?;
        value("hop_ns", i64::from(self.hop_ns), 0..=100_000, "0 to 100000 ns")
    }

    /// Every device's parent, by place.
    ///
    /// # Errors
    /// [`ConfigError`] when the list is no tree in a frame's order.
    pub(super) fn parents(&self) -> Result<Vec<Option<usize>>, ConfigError> {
        let found = self.devices.len();
        if !(1..=MAX_DEVICES).contains(&found) {
            return Err(ConfigError::Count { found });
        }
        let mut parents = Vec::with_capacity(found);
        let mut children = vec![0; found];
        for (index, device) in self.devices.iter().enumerate() {
            let name = &device.name;
            if name.is_empty() || name.len() > MAX_NAME || !name.is_ascii() {
                return Err(ConfigError::Name { device: index + 1, name: name.clone() });
            }
            if let Some(first) = self.devices[..index].iter().position(|other| other.name == *name) {
                let (first, second) = (first + 1, index + 1);
                return Err(ConfigError::DuplicateName { name: name.clone(), first, second });
            }
            let parent = match (&device.parent, index) {
                (None, 0) => None,
                (None, index) => Some(index - 1),
                (Some(parent), index) => {
                    let place = self.devices[..index].iter().position(|other| other.name == *parent);
                    let unknown =
                        || ConfigError::UnknownParent { device: name.clone(), parent: parent.clone() };
                    Some(place.ok_or_else(unknown)?)
                }
            };
            if let Some(parent) = parent {
                // A frame leaves a branch for good: the parent must be on the way back from the
                // last device.
                let mut way = index.checked_sub(1);
                while way.is_some_and(|at| at != parent) {
                    way = way.and_then(|at| parents.get(at).copied().flatten());
                }
                let parent_name = self.devices[parent].name.clone();
                if way.is_none() {
                    return Err(ConfigError::Order { device: name.clone(), parent: parent_name });
                }
                children[parent] += 1;
                if children[parent] > MAX_CHILDREN {
                    return Err(ConfigError::TooManyChildren {
                        device: parent_name,
                        found: children[parent],
                    });
                }
            }
            parents.push(parent);
        }
        Ok(parents)
    }
}

/// The list of the humanoid's devices while it grows.
struct Body(Vec<DeviceConfig>);

impl Body {
    /// A device behind the last one.
    fn next(&mut self, name: impl Into<String>, kind: DeviceKind, joint: JointConfig) {
        self.0.push(DeviceConfig { joint, ..DeviceConfig::new(name, kind) });
    }

    /// A device behind `parent`: the first of a branch.
    fn branch(&mut self, parent: &str, name: impl Into<String>, kind: DeviceKind, joint: JointConfig) {
        self.next(name, kind, joint);
        if let Some(device) = self.0.last_mut() {
            device.parent = Some(parent.to_owned());
        }
    }

    /// Drives one behind the other, the first behind `parent`.
    fn drives(&mut self, parent: &str, side: &str, names: &[&str], joint: JointConfig) {
        for (at, name) in names.iter().enumerate() {
            let name = format!("{side}-{name}");
            match at {
                0 => self.branch(parent, name, DeviceKind::Drive, joint),
                _ => self.next(name, DeviceKind::Drive, joint),
            }
        }
    }

    fn arm(&mut self, parent: &str, side: &str) {
        let joints = [
            "shoulder-pitch",
            "shoulder-roll",
            "shoulder-yaw",
            "elbow",
            "wrist-yaw",
            "wrist-pitch",
            "wrist-roll",
        ];
        self.drives(parent, side, &joints, sized(0.05, 30.0));
        let none = JointConfig::default();
        self.next(format!("{side}-wrist-force"), DeviceKind::ForceTorqueSensor, none);
        for finger in ["thumb-turn", "thumb", "index", "middle", "ring", "little"] {
            self.next(format!("{side}-{finger}"), DeviceKind::Drive, sized(0.002, 2.0));
        }
        self.next(format!("{side}-palm"), DeviceKind::TactileSensor, none);
        self.next(format!("{side}-hand-board"), DeviceKind::DigitalIo, none);
    }

    fn leg(&mut self, parent: &str, side: &str) {
        let joints = ["hip-yaw", "hip-roll", "hip-pitch", "knee", "ankle-pitch", "ankle-roll"];
        self.drives(parent, side, &joints, sized(0.5, 80.0));
        self.next(format!("{side}-foot-force"), DeviceKind::ForceTorqueSensor, JointConfig::default());
        self.next(format!("{side}-foot-imu"), DeviceKind::ImuSensor, JointConfig::default());
    }
}

/// A joint of a limb's size; drives bear three times their rated torque for seconds.
fn sized(inertia_kg_m2: f64, rated_torque_nm: f64) -> JointConfig {
    JointConfig {
        inertia_kg_m2,
        rated_torque_nm,
        max_torque_nm: 3.0 * rated_torque_nm,
        ..JointConfig::default()
    }
}

/// 59 devices as the paper's robot has them: 43 drives and 16 sensors and boards in torso, head,
/// arms and legs. Three boards are the branches' hubs.
fn humanoid_devices() -> Vec<DeviceConfig> {
    use DeviceKind::{DigitalIo, Drive, EventProbe, ImuSensor};
    let mut body = Body(Vec::with_capacity(59));
    let none = JointConfig::default();
    body.next("torso-probe", EventProbe, none);
    body.next("torso-imu", ImuSensor, none);
    body.next("torso-hub", DigitalIo, none);
    for name in ["head-yaw", "head-pitch", "head-roll"] {
        body.next(name, Drive, sized(0.05, 30.0));
    }
    body.next("head-imu", ImuSensor, none);
    body.arm("torso-hub", "left");
    // The second hub carries the other arm and the waist with both legs.
    body.branch("torso-hub", "torso-power", DigitalIo, none);
    body.arm("torso-power", "right");
    body.branch("torso-power", "waist-yaw", Drive, sized(0.5, 80.0));
    body.next("waist-pitch", Drive, sized(0.5, 80.0));
    body.next("pelvis-board", DigitalIo, none);
    body.leg("pelvis-board", "left");
    body.leg("pelvis-board", "right");
    body.0
}
