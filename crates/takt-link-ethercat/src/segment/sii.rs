//! The SII EEPROM (ETG.2010): its image, built from the device's description, and the ESC's access
//! to it.

use super::esc::Esc;
use super::objects::{Pdo, Profile};
use super::registers::{ALIAS, SII_ADDRESS, SII_CONFIG, SII_CONTROL, SII_DATA};
use super::wire::{put, u16_at, u32_at};

/// Address of the master's requests (sync manager 0). Low in the 8 KiB of memory, as in the sample
/// code of the ETG.
pub(super) const REQUEST: u16 = 0x1000;
/// Address of the device's responses (sync manager 1).
pub(super) const RESPONSE: u16 = 0x1080;
/// Length of both mailboxes: room for an SDO of more than 100 bytes, and small enough that a
/// bring-up of many devices stays short.
pub(super) const MAILBOX: u16 = 128;
/// Outputs (sync manager 2).
pub(super) const OUTPUTS: u16 = 0x1100;
/// Inputs (sync manager 3); what lies between is room for three buffers of outputs.
pub(super) const INPUTS: u16 = 0x1400;

/// Size of the EEPROM: 16 kbit, as on most boards with an ET1100.
const BYTES: usize = 2048;

/// Identity that a device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Vendor, as the ETG assigns it.
    pub vendor: u32,
    /// Product code.
    pub product: u32,
    /// Revision.
    pub revision: u32,
    /// Serial number.
    pub serial: u32,
}

/// Defect of an EEPROM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiiDefect {
    /// The checksum over the first seven words is wrong: the ESC loads no configuration from it.
    Checksum,
    /// The first category claims 65534 words.
    HugeCategory,
    /// Mailboxes of 65535 bytes at 0xFFFF.
    HugeMailbox,
    /// A string longer than its category.
    LongString,
    /// Sync managers that claim 65535 bytes each.
    HugeSyncManagers,
    /// Nothing ever written: every byte 0xFF.
    Blank,
    /// Every byte zero.
    Zero,
}

/// The EEPROM of one device.
#[derive(Debug, Clone)]
pub(super) struct Sii {
    image: Vec<u8>,
}

/// CRC-8 of the configuration area: polynomial x^8 + x^2 + x + 1, start 0xFF (ETG.1000.6, 5.4).
pub(super) fn checksum(words: &[u8]) -> u8 {
    words.iter().fold(0xFF, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 })
    })
}

impl Sii {
    /// The image of a device with `identity` and `profile`.
    pub(super) fn build(identity: Identity, alias: u16, name: &str, profile: &Profile) -> Self {
        let mut image = vec![0; 0x80];
        // PDI: SPI slave, as on most boards; no synchronisation outputs configured.
        put(&mut image, 0, &[0x05, 0x0E, 0x00, 0x66]);
        put(&mut image, 8, &alias.to_le_bytes());
        let crc = checksum(&image[..14]);
        put(&mut image, 14, &u16::from(crc).to_le_bytes());
        for (at, value) in
            [identity.vendor, identity.product, identity.revision, identity.serial].iter().enumerate()
        {
            put(&mut image, 16 + 4 * at, &value.to_le_bytes());
        }
        if profile.coe {
            // Request offset and size, response offset and size, protocols: CoE.
            for (at, value) in [REQUEST, MAILBOX, RESPONSE, MAILBOX, 0x0004].iter().enumerate() {
                put(&mut image, 0x30 + 2 * at, &value.to_le_bytes());
            }
        }
        put(&mut image, 0x7C, &((BYTES / 128 - 1) as u16).to_le_bytes());
        put(&mut image, 0x7E, &1_u16.to_le_bytes());
        category(&mut image, 10, &strings(&["Takt", profile.order, name, "inputs", "outputs", "value"]));
        category(&mut image, 30, &general(profile));
        category(&mut image, 40, &[1, 2, 3, 0xFF]);
        category(&mut image, 41, &sync_managers(profile));
        category(&mut image, 50, &pdos(profile.tx.first(), 3, 4));
        category(&mut image, 51, &pdos(profile.rx.first(), 2, 5));
        image.extend([0xFF, 0xFF]);
        image.resize(BYTES.max(image.len()), 0xFF);
        Self { image }
    }

    /// Breaks the image.
    pub(super) fn spoil(&mut self, defect: SiiDefect) {
        let first = 0x80;
        match defect {
            SiiDefect::Checksum => self.image[14] ^= 0x5A,
            SiiDefect::HugeCategory => put(&mut self.image, first + 2, &0xFFFE_u16.to_le_bytes()),
            SiiDefect::HugeMailbox => {
                let huge = [0xFFFF_u16; 4].map(u16::to_le_bytes).concat();
                put(&mut self.image, 0x30, &huge);
            }
            SiiDefect::LongString => self.image[first + 5] = 0xFF,
            SiiDefect::HugeSyncManagers => {
                if let Some(at) = self.find(41) {
                    (0..4).for_each(|index| put(&mut self.image, at + 8 * index + 2, &[0xFF, 0xFF]));
                }
            }
            SiiDefect::Blank => self.image.fill(0xFF),
            SiiDefect::Zero => self.image.fill(0),
        }
    }

    /// Byte offset of a category's data.
    fn find(&self, wanted: u16) -> Option<usize> {
        let mut at = 0x80;
        while at + 4 <= self.image.len() {
            let (kind, words) = (u16_at(&self.image, at), u16_at(&self.image, at + 2));
            if kind == wanted {
                return Some(at + 4);
            }
            if kind == 0xFFFF {
                return None;
            }
            at += 4 + 2 * usize::from(words);
        }
        None
    }

    pub(super) fn has_valid_checksum(&self) -> bool {
        self.image.len() >= 16 && u16_at(&self.image, 14) == u16::from(checksum(&self.image[..14]))
    }

    /// Loads the values that the ESC takes from it at power-on.
    pub(super) fn load(&self, esc: &mut Esc) {
        let alias = if self.has_valid_checksum() { u16_at(&self.image, 8) } else { 0 };
        esc.set(ALIAS, &alias.to_le_bytes());
        esc.set(SII_CONTROL, &self.status().to_le_bytes());
    }

    /// Idle, 8 bytes at a time, two address bytes; with a bad checksum the error bit.
    fn status(&self) -> u16 {
        if self.has_valid_checksum() { 0x00C0 } else { 0x08C0 }
    }

    /// Executes the command that the master has just written.
    pub(super) fn command(&mut self, esc: &mut Esc) {
        let control = esc.u16(SII_CONTROL);
        let at = u32_at(&esc.memory, usize::from(SII_ADDRESS)) as usize * 2;
        let mut status = self.status();
        // Handed to the micro-controller: the master's commands are not executed.
        if esc.memory[usize::from(SII_CONFIG)] & 1 == 0 {
            match control >> 8 & 7 {
                1 => {
                    let data: [u8; 8] =
                        std::array::from_fn(|byte| self.image.get(at + byte).copied().unwrap_or(0xFF));
                    esc.set(SII_DATA, &data);
                }
                2 if control & 1 == 0 => status |= 0x4000,
                2 if at + 2 > self.image.len() => status |= 0x2000,
                2 => {
                    let word = esc.u16(SII_DATA);
                    put(&mut self.image, at, &word.to_le_bytes());
                    status = self.status();
                }
                4 => self.load(esc),
                _ => {}
            }
        }
        esc.set(SII_CONTROL, &status.to_le_bytes());
    }
}

fn category(image: &mut Vec<u8>, kind: u16, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    image.extend(kind.to_le_bytes());
    image.extend((data.len().div_ceil(2) as u16).to_le_bytes());
    image.extend(data);
    if !data.len().is_multiple_of(2) {
        image.push(0);
    }
}

fn strings(texts: &[&str]) -> Vec<u8> {
    let mut data = vec![texts.len() as u8];
    for text in texts {
        let bytes = &text.as_bytes()[..text.len().min(MAX_NAME)];
        data.push(bytes.len() as u8);
        data.extend(bytes);
    }
    data
}

/// Longest name that goes into the EEPROM: masters keep 40 to 64 bytes.
pub(super) const MAX_NAME: usize = 32;

/// ETG.1000.6, table 21. String 1 is the group, 2 the order name, 3 the device's name.
fn general(profile: &Profile) -> Vec<u8> {
    let mut data = vec![0; 32];
    data[..4].copy_from_slice(&[1, 0, 2, 3]);
    // SDO, PDO assignment by SDO. No complete access.
    data[5] = if profile.coe { 0x01 | 0x04 } else { 0 };
    // Ports 0 to 3: MII.
    data[16..18].copy_from_slice(&[0x11, 0x11]);
    data
}

fn sync_managers(profile: &Profile) -> Vec<u8> {
    let mut data = Vec::new();
    let mut add = |start: u16, length: u16, control: u8, kind: u8| {
        data.extend(start.to_le_bytes());
        data.extend(length.to_le_bytes());
        data.extend([control, 0, u8::from(length > 0), kind]);
    };
    let mailbox = if profile.coe { MAILBOX } else { 0 };
    add(REQUEST, mailbox, 0x26, 1);
    add(RESPONSE, mailbox, 0x22, 2);
    // Three buffers, event to the micro-controller, the outputs' watchdog.
    add(OUTPUTS, profile.rx.first().map_or(0, Pdo::bytes), 0x64, 3);
    add(INPUTS, profile.tx.first().map_or(0, Pdo::bytes), 0x20, 4);
    data
}

/// ETG.1000.6, tables 25 and 26.
fn pdos(pdo: Option<&Pdo>, sync_manager: u8, name: u8) -> Vec<u8> {
    let Some(pdo) = pdo else { return Vec::new() };
    let mut data = Vec::new();
    data.extend(pdo.index.to_le_bytes());
    data.extend([pdo.entries.len() as u8, sync_manager, 0, name, 0, 0]);
    for entry in pdo.entries {
        data.extend(entry.index.to_le_bytes());
        data.extend([entry.sub, 6, 0, entry.bits, 0, 0]);
    }
    data
}
