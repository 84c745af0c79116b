//! The kinds of devices: what each calls itself and how its process data are laid out.

use serde::{Deserialize, Serialize};

/// Kind of a simulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A servo drive after CiA 402 with a joint behind it.
    #[default]
    Drive,
    /// Three rates and three accelerations.
    ImuSensor,
    /// Three forces and three torques.
    ForceTorqueSensor,
    /// Four pressures of a hand.
    TactileSensor,
    /// Eight inputs, eight outputs, no mailbox: configured from its EEPROM alone.
    DigitalIo,
    /// Counts physical events and takes a command number, so that latencies can be reported in
    /// cycles; no mailbox.
    EventProbe,
}

/// One entry of a PDO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Object index; 0 is padding.
    pub index: u16,
    /// Subindex.
    pub sub: u8,
    /// Length in bits.
    pub bits: u8,
}

/// A PDO with a fixed mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pdo {
    /// 0x16xx or 0x1Axx.
    pub index: u16,
    /// Its entries, in order.
    pub entries: &'static [Entry],
}

impl Pdo {
    /// Length in bytes; all entries are whole bytes.
    pub fn bytes(&self) -> u16 {
        self.entries.iter().map(|entry| u16::from(entry.bits) / 8).sum()
    }
}

/// Common properties of all devices of a kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Order name in the EEPROM; what ethercrab calls the device's name.
    pub order: &'static str,
    /// Product code.
    pub product: u32,
    /// CoE mailbox; without it a master takes the process data's layout from the EEPROM.
    pub coe: bool,
    /// RxPDOs (outputs of the master); the first is assigned at power-on, others by 0x1C12.
    pub rx: &'static [Pdo],
    /// TxPDOs (inputs of the master), likewise by 0x1C13.
    pub tx: &'static [Pdo],
}

const fn entry(index: u16, sub: u8, bits: u8) -> Entry {
    Entry { index, sub, bits }
}

/// Vendor of all simulated devices: "TAKT" in ASCII, a number that the ETG has not assigned.
pub const VENDOR: u32 = 0x5441_4B54;

/// Rates or forces, then accelerations or torques.
pub(super) const IMU: u16 = 0x3001;
pub(super) const FORCE_TORQUE: u16 = 0x3002;
pub(super) const TACTILE: u16 = 0x3003;
/// Counted events and the command last applied.
pub(super) const PROBE_STATUS: u16 = 0x3010;
/// Command number.
pub(super) const PROBE_COMMAND: u16 = 0x3011;
pub(super) const DIGITAL_IN: u16 = 0x6000;
pub(super) const DIGITAL_OUT: u16 = 0x7000;

const fn six(index: u16) -> [Entry; 6] {
    let mut entries = [entry(index, 1, 16); 6];
    let mut at = 0;
    while at < 6 {
        entries[at].sub = at as u8 + 1;
        at += 1;
    }
    entries
}

static DRIVE: Profile = Profile {
    order: "TAKT-DRIVE",
    product: 0x0402_0001,
    coe: true,
    rx: &[
        Pdo { index: 0x1600, entries: &[entry(0x6040, 0, 16), entry(0x607A, 0, 32)] },
        Pdo {
            index: 0x1601,
            entries: &[
                entry(0x6040, 0, 16),
                entry(0x607A, 0, 32),
                entry(0x60FF, 0, 32),
                entry(0x6071, 0, 16),
                entry(0x6060, 0, 8),
                entry(0, 0, 8),
            ],
        },
    ],
    tx: &[
        Pdo { index: 0x1A00, entries: &[entry(0x6041, 0, 16), entry(0x6064, 0, 32)] },
        Pdo {
            index: 0x1A01,
            entries: &[
                entry(0x6041, 0, 16),
                entry(0x6064, 0, 32),
                entry(0x606C, 0, 32),
                entry(0x6077, 0, 16),
                entry(0x6061, 0, 8),
                entry(0, 0, 8),
            ],
        },
    ],
};
static IMU_ENTRIES: [Entry; 6] = six(IMU);
static FORCE_TORQUE_ENTRIES: [Entry; 6] = six(FORCE_TORQUE);
static IMU_SENSOR: Profile = Profile {
    order: "TAKT-IMU",
    product: 0x0301_0001,
    coe: true,
    rx: &[],
    tx: &[Pdo { index: 0x1A00, entries: &IMU_ENTRIES }],
};
static FORCE_TORQUE_SENSOR: Profile = Profile {
    order: "TAKT-FT",
    product: 0x0302_0001,
    coe: true,
    rx: &[],
    tx: &[Pdo { index: 0x1A00, entries: &FORCE_TORQUE_ENTRIES }],
};
static TACTILE_SENSOR: Profile = Profile {
    order: "TAKT-TACTILE",
    product: 0x0303_0001,
    coe: true,
    rx: &[],
    tx: &[Pdo {
        index: 0x1A00,
        entries: &[
            entry(TACTILE, 1, 16),
            entry(TACTILE, 2, 16),
            entry(TACTILE, 3, 16),
            entry(TACTILE, 4, 16),
        ],
    }],
};
static DIGITAL_IO: Profile = Profile {
    order: "TAKT-DIO",
    product: 0x0700_0001,
    coe: false,
    rx: &[Pdo { index: 0x1600, entries: &[entry(DIGITAL_OUT, 1, 8)] }],
    tx: &[Pdo { index: 0x1A00, entries: &[entry(DIGITAL_IN, 1, 8)] }],
};
static EVENT_PROBE: Profile = Profile {
    order: "TAKT-PROBE",
    product: 0x0310_0001,
    coe: false,
    rx: &[Pdo { index: 0x1600, entries: &[entry(PROBE_COMMAND, 1, 16)] }],
    tx: &[Pdo { index: 0x1A00, entries: &[entry(PROBE_STATUS, 1, 16), entry(PROBE_STATUS, 2, 16)] }],
};

impl DeviceKind {
    /// Common properties of all devices of this kind.
    pub fn profile(self) -> &'static Profile {
        match self {
            Self::Drive => &DRIVE,
            Self::ImuSensor => &IMU_SENSOR,
            Self::ForceTorqueSensor => &FORCE_TORQUE_SENSOR,
            Self::TactileSensor => &TACTILE_SENSOR,
            Self::DigitalIo => &DIGITAL_IO,
            Self::EventProbe => &EVENT_PROBE,
        }
    }

    /// Length of the outputs as assigned at power-on.
    pub fn output_bytes(self) -> usize {
        self.profile().rx.first().map_or(0, |pdo| usize::from(pdo.bytes()))
    }

    /// Length of the inputs as assigned at power-on.
    pub fn input_bytes(self) -> usize {
        self.profile().tx.first().map_or(0, |pdo| usize::from(pdo.bytes()))
    }
}
