//! Configuration of the control interface: the devices on the wire, and the way to communicate with
//! them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::clock::{ClockConfig, Sync0};
use super::sdo::MAX_OBJECT;
use takt_rt::config::{SettingError, all_within};

/// Most devices on a segment. The master's tables have this size.
pub const MAX_DEVICES: usize = 128;

/// Identity of a device (words 8 to 15 of its EEPROM). Zero accepts any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    /// Vendor number.
    pub vendor: u32,
    /// Product code.
    pub product: u32,
    /// Revision.
    pub revision: u32,
    /// Serial number.
    pub serial: u32,
}

impl Identity {
    /// Whether a device with identity `found` is the one meant.
    pub(crate) fn accepts(&self, found: &Self) -> bool {
        let same = |expected: u32, found: u32| expected == 0 || expected == found;
        same(self.vendor, found.vendor)
            && same(self.product, found.product)
            && same(self.revision, found.revision)
            && same(self.serial, found.serial)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vendor {:#x}, product {:#x}, revision {:#x}, serial {:#x}",
            self.vendor, self.product, self.revision, self.serial
        )
    }
}

/// A write to a device's object dictionary before it leaves PRE-OP: a number (`bytes`, `value`) or
/// `data` of any length.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectWrite {
    /// Object index.
    pub index: u16,
    /// Sub-index.
    #[serde(default)]
    pub sub: u8,
    /// Width in bytes: 1, 2 or 4; 0 with `data`.
    #[serde(default)]
    pub bytes: u8,
    /// The value.
    #[serde(default)]
    pub value: u32,
    /// Instead of a number, the object's bytes, 1 to 1 MiB: longer ones than a mailbox go in
    /// segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Vec<u8>>,
    /// Whether the object is read back and must hold what was written. Off: some objects are write
    /// only.
    #[serde(default)]
    pub verify: bool,
}

impl ObjectWrite {
    /// The bytes that go to the device.
    pub fn payload(&self) -> Vec<u8> {
        match &self.data {
            Some(data) => data.clone(),
            None => self.value.to_le_bytes()[..usize::from(self.bytes.min(4))].to_vec(),
        }
    }

    fn validate(&self) -> Result<(), SettingError> {
        let key = |key: &str| format!("object {:#06x}:{:02x}: {key}", self.index, self.sub);
        match &self.data {
            None if !matches!(self.bytes, 1 | 2 | 4) => {
                Err(SettingError::value(key("bytes"), self.bytes, "accepted are 1, 2 and 4, or `data`"))
            }
            Some(_) if self.bytes != 0 || self.value != 0 => {
                let keys = format!("`data` and bytes = {}, value = {}", self.bytes, self.value);
                Err(SettingError::conflict(key(&keys), "give one"))
            }
            Some(data) if !(1..=MAX_OBJECT).contains(&data.len()) => {
                let accepted = format!("accepted are 1 to {MAX_OBJECT} bytes");
                Err(SettingError::value(key("data"), format!("{} bytes", data.len()), accepted))
            }
            _ => Ok(()),
        }
    }
}

/// A device that is expected on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// Name for people.
    pub name: String,
    /// Required identity.
    pub identity: Identity,
    /// Bytes of process data from it, when they must be so many.
    pub input_bytes: Option<usize>,
    /// Bytes of process data to it, when they must be so many.
    pub output_bytes: Option<usize>,
    /// Objects written in PRE-OP, in order.
    pub startup: Vec<ObjectWrite>,
    /// Sync0, for devices that act by their distributed clock. Absent: by frames.
    pub sync0: Option<Sync0>,
}

/// When the answer of a frame is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeMode {
    /// The frame sent in a cycle is fetched in the next: the controller never waits for the wire
    /// (the paper's way).
    #[default]
    Pipelined,
    /// The frame is waited for: data are a cycle fresher, and the wire's time is part of the cycle.
    Waiting,
}

/// Commands that carry process data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessCommands {
    /// One logical read-write of the whole image: the least bytes on the wire.
    #[default]
    Lrw,
    /// A logical read of the inputs and a logical write of the outputs, in one frame where they
    /// fit: for devices that cannot do LRW (those with two separate process data interfaces, and
    /// some gateways).
    LrdLwr,
}

/// Way in which other threads see the data of the last cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// A mutex with priority inheritance: the controller waits for at most one reader (the paper's
    /// way).
    #[default]
    PiMutex,
    /// A mutex without it, for comparison: a reader that is preempted holds the controller up
    /// without bound.
    PlainMutex,
    /// Takt's wait-free exchange: nobody waits.
    Exchange,
}

/// The control interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Devices in the order of the wire. Empty accepts any.
    pub devices: Vec<DeviceConfig>,
    /// When answers are fetched. Pipelined, as the paper.
    pub mode: ExchangeMode,
    /// Commands that carry process data. `lrw`; `lrd_lwr` for devices that cannot do LRW.
    pub process: ProcessCommands,
    /// Cycles from one status request to all devices to the next. 1: working counters do not report
    /// of a device in SAFE-OP, whose outputs nobody applies; the request is a broadcast read of 14
    /// bytes in the same frame.
    pub status_cycles: u32,
    /// Time that a cycle waits for a missing frame of the previous cycle, microseconds. 50: a tenth
    /// of the motion controller's budget; a frame on a wire of 59 devices takes about 150, long
    /// over by then.
    pub grace_us: u32,
    /// Time that a waiting exchange waits, microseconds: the cost of a lost frame. 500: half a
    /// period of 1 ms.
    pub timeout_us: u32,
    /// Silence during bring-up after which a frame counts as lost, milliseconds. 100: many times a
    /// round trip under load.
    pub silence_ms: u32,
    /// Time for all devices to reach OP, milliseconds. 5000: what is asked of 59 devices.
    pub bring_up_ms: u32,
    /// Tries of the search for devices when frames are lost in it, the first included: nobody on
    /// the wire is reported after as many times `silence_ms`. 3.
    pub attempts: u32,
    /// Frames of the static clock alignment. 200: enough for offsets; drift is followed later.
    pub clock_frames: u32,
    /// The cycle and the reference clock.
    pub clock: ClockConfig,
    /// Sharing of the last cycle between readers. A PI mutex, as the paper.
    pub cache: CacheKind,
    /// Delayed locking: a reader enters only when it will have left this many microseconds before
    /// the next release. Off when absent.
    pub delayed_locking_us: Option<u32>,
    /// Longest wait for a reader before the cycle goes on without publishing, microseconds. 200.
    pub max_lock_wait_us: u32,
    /// Readers of a wait-free cache. 8.
    pub readers: usize,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            mode: ExchangeMode::Pipelined,
            process: ProcessCommands::Lrw,
            status_cycles: 1,
            grace_us: 50,
            timeout_us: 500,
            silence_ms: 100,
            bring_up_ms: 5000,
            attempts: 3,
            clock_frames: 200,
            clock: ClockConfig::default(),
            cache: CacheKind::PiMutex,
            delayed_locking_us: None,
            max_lock_wait_us: 200,
            readers: 8,
        }
    }
}

impl ControlConfig {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        if self.devices.len() > MAX_DEVICES {
            let accepted = format!("{} are listed; at most {MAX_DEVICES} are accepted", self.devices.len());
            return Err(SettingError::conflict("devices", accepted));
        }
        for (position, device) in self.devices.iter().enumerate() {
            for write in &device.startup {
                let startup = format!("devices[{position}].startup: ");
                write.validate().map_err(|error| error.within_section(&startup))?;
            }
        }
        self.clock.validate()?;
        let readers = self.readers as f64;
        all_within(
            "",
            &[
                ("grace_us", self.grace_us.into(), 0.0, 100_000.0),
                ("status_cycles", self.status_cycles.into(), 1.0, 1e6),
                ("timeout_us", self.timeout_us.into(), 1.0, 1e6),
                ("silence_ms", self.silence_ms.into(), 1.0, 10_000.0),
                ("bring_up_ms", self.bring_up_ms.into(), 10.0, 600_000.0),
                ("attempts", self.attempts.into(), 1.0, 100.0),
                ("clock_frames", self.clock_frames.into(), 0.0, 100_000.0),
                ("max_lock_wait_us", self.max_lock_wait_us.into(), 1.0, 1e6),
                ("delayed_locking_us", self.delayed_locking_us.unwrap_or(1).into(), 1.0, 1e6),
                ("readers", readers, 1.0, takt_rt::exchange::MAX_READERS as f64),
            ],
        )
    }
}
