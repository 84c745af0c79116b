//! The mailbox and CoE: SDO upload and download, expedited, normal and segmented (ETG.1000.6,
//! 5.6.2).

use super::device::{AlState, Device};
use super::esc::SyncManager;
use super::objects::Pdo;
use super::registers::SYNC_MANAGER;
use super::sii::MAILBOX;
use super::wire::{put, u16_at, u32_at};

/// Length of the longest object (0x2000, calibration).
pub(super) const TABLE: usize = 512;
/// Mailbox, CoE and SDO header.
const HEADERS: usize = 12;
const MAILBOX_LENGTH: usize = MAILBOX as usize;
/// Data that fit behind the size of a normal transfer, and behind a segment's byte.
const NORMAL: usize = MAILBOX_LENGTH - HEADERS - 4;
const SEGMENT: usize = MAILBOX_LENGTH - 9;
/// Segments carry at least this many bytes, padded.
const MIN_SEGMENT: usize = 7;

const COE: u8 = 3;
const SDO_REQUEST: u16 = 2;
const SDO_RESPONSE: u16 = 3;
const SDO_INFORMATION: u16 = 8;

/// SDO abort codes.
mod abort {
    pub(super) const TOGGLE: u32 = 0x0503_0000;
    pub(super) const COMMAND: u32 = 0x0504_0001;
    pub(super) const MEMORY: u32 = 0x0504_0005;
    pub(super) const UNSUPPORTED: u32 = 0x0601_0000;
    pub(super) const READ_ONLY: u32 = 0x0601_0002;
    pub(super) const COMPLETE_ACCESS: u32 = 0x0601_0004;
    pub(super) const NO_OBJECT: u32 = 0x0602_0000;
    pub(super) const NOT_MAPPABLE: u32 = 0x0604_0041;
    pub(super) const LENGTH: u32 = 0x0607_0010;
    pub(super) const NO_SUBINDEX: u32 = 0x0609_0011;
    pub(super) const VALUE: u32 = 0x0609_0030;
    pub(super) const STATE: u32 = 0x0800_0022;
}

/// A segmented transfer under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    None,
    Upload { length: usize, done: usize, toggle: bool },
    Download { index: u16, sub: u8, length: usize, done: usize, toggle: bool },
}

/// The mailbox's state.
#[derive(Debug)]
pub(super) struct Coe {
    transfer: Transfer,
    buffer: Box<[u8; TABLE]>,
    calibration: Box<[u8; TABLE]>,
    last: [u8; MAILBOX_LENGTH],
    /// Counter of the responses, 1 to 7.
    counter: u8,
    /// Assignment being changed: number of PDOs.
    rx_cleared: bool,
    tx_cleared: bool,
}

impl Default for Coe {
    fn default() -> Self {
        // A ramp, so that a lost or repeated segment shows.
        let calibration = Box::new(std::array::from_fn(|at| at as u8));
        Self {
            transfer: Transfer::None,
            buffer: Box::new([0; TABLE]),
            calibration,
            last: [0; MAILBOX_LENGTH],
            counter: 0,
            rx_cleared: false,
            tx_cleared: false,
        }
    }
}

impl Coe {
    pub(super) fn reset(&mut self) {
        self.transfer = Transfer::None;
        self.counter = 0;
        self.rx_cleared = false;
        self.tx_cleared = false;
    }
}

/// The SDO part of a response: command byte and what follows.
struct Reply {
    service: u16,
    /// From the SDO command byte on.
    bytes: [u8; MAILBOX_LENGTH - 8],
    length: usize,
}

impl Reply {
    fn new(service: u16, command: u8, index: u16, sub: u8) -> Self {
        let mut bytes = [0; MAILBOX_LENGTH - 8];
        bytes[0] = command;
        put(&mut bytes, 1, &index.to_le_bytes());
        bytes[3] = sub;
        Self { service, bytes, length: 8 }
    }

    fn abort(index: u16, sub: u8, code: u32) -> Self {
        let mut reply = Self::new(SDO_REQUEST, 0x80, index, sub);
        put(&mut reply.bytes, 4, &code.to_le_bytes());
        reply
    }
}

impl Device {
    /// Takes the request in sync manager 0, if there is one and the last response has been fetched.
    pub(super) fn serve_mailbox(&mut self) {
        if self.state < AlState::PreOp || !self.profile.coe || !self.esc.is_full(0) || self.esc.is_full(1) {
            return;
        }
        let SyncManager { start, length, .. } = self.esc.sync_managers[0];
        let (from, count) = (usize::from(start), usize::from(length).min(MAILBOX_LENGTH));
        let mut request = [0; MAILBOX_LENGTH];
        // The master may have moved the sync manager since it wrote.
        let Some(written) = self.esc.memory.get(from..from + count) else { return };
        request[..count].copy_from_slice(written);
        self.esc.set_full(0, false);
        self.answer(&request);
    }

    fn answer(&mut self, request: &[u8; MAILBOX_LENGTH]) {
        let length = usize::from(u16_at(request, 0));
        let kind = request[5] & 0x0F;
        if kind != COE || !(10..=MAILBOX_LENGTH - 6).contains(&length) {
            // Mailbox error: 2 unsupported protocol, 8 invalid size.
            let detail: u16 = if kind == COE { 8 } else { 2 };
            let mut error = [1, 0, 0, 0];
            put(&mut error, 2, &detail.to_le_bytes());
            return self.respond(0, &error);
        }
        let service = u16_at(request, 6) >> 12;
        let (index, sub) = (u16_at(request, 9), request[11]);
        let reply = match service {
            SDO_REQUEST => self.sdo(&request[8..6 + length], index, sub),
            SDO_INFORMATION => {
                // SDO information error (opcode 7): the service is not there.
                let mut reply = Reply::new(SDO_INFORMATION, 7, 0, 0);
                put(&mut reply.bytes, 4, &abort::UNSUPPORTED.to_le_bytes());
                reply
            }
            _ => Reply::abort(index, sub, abort::COMMAND),
        };
        let mut body = [0; MAILBOX_LENGTH - 6];
        put(&mut body, 0, &(reply.service << 12).to_le_bytes());
        body[2..2 + reply.length].copy_from_slice(&reply.bytes[..reply.length]);
        self.respond(COE, &body[..2 + reply.length]);
    }

    /// Puts a message into sync manager 1.
    fn respond(&mut self, kind: u8, body: &[u8]) {
        self.coe.counter = self.coe.counter % 7 + 1;
        let mut message = [0; MAILBOX_LENGTH];
        put(&mut message, 0, &(body.len() as u16).to_le_bytes());
        message[5] = kind | self.coe.counter << 4;
        put(&mut message, 6, body);
        self.coe.last = message;
        self.esc.set(self.esc.sync_managers[1].start, &message);
        self.esc.set_full(1, true);
    }

    /// The master has not got the last response and asks for it again.
    pub(super) fn repeat_response(&mut self) {
        let at = SYNC_MANAGER + 8;
        let asked = self.esc.memory[usize::from(at) + 6] & 2;
        let acknowledged = self.esc.memory[usize::from(at) + 7] & 2;
        if asked == acknowledged || self.state < AlState::PreOp || !self.profile.coe {
            return;
        }
        let last = self.coe.last;
        self.esc.set(self.esc.sync_managers[1].start, &last);
        self.esc.set_full(1, true);
        let byte = self.esc.memory[usize::from(at) + 7] ^ 2;
        self.esc.set(at + 7, &[byte]);
    }

    /// `sdo` starts at the command byte.
    fn sdo(&mut self, sdo: &[u8], index: u16, sub: u8) -> Reply {
        let command = sdo[0];
        let outcome = match command >> 5 {
            // Only what starts a transfer has an index.
            1 | 2 if command & 0x10 != 0 => Err(abort::COMPLETE_ACCESS),
            1 => self.start_download(sdo, index, sub),
            2 => self.start_upload(index, sub),
            0 => self.download_segment(sdo),
            3 => self.upload_segment(command),
            4 => {
                self.coe.transfer = Transfer::None;
                Err(abort::COMMAND)
            }
            _ => Err(abort::COMMAND),
        };
        outcome.unwrap_or_else(|code| {
            self.coe.transfer = Transfer::None;
            Reply::abort(index, sub, code)
        })
    }

    fn start_upload(&mut self, index: u16, sub: u8) -> Result<Reply, u32> {
        let mut data = [0; TABLE];
        let length = self.read_object(index, sub, &mut data)?;
        self.coe.transfer = Transfer::None;
        if (1..=4).contains(&length) {
            let mut reply = Reply::new(SDO_RESPONSE, 0x43 | ((4 - length as u8) << 2), index, sub);
            put(&mut reply.bytes, 4, &data[..length]);
            return Ok(reply);
        }
        let now = length.min(NORMAL);
        let mut reply = Reply::new(SDO_RESPONSE, 0x41, index, sub);
        put(&mut reply.bytes, 4, &(length as u32).to_le_bytes());
        put(&mut reply.bytes, 8, &data[..now]);
        reply.length = 8 + now;
        if now < length {
            self.coe.buffer[..length].copy_from_slice(&data[..length]);
            self.coe.transfer = Transfer::Upload { length, done: now, toggle: false };
        }
        Ok(reply)
    }

    fn upload_segment(&mut self, command: u8) -> Result<Reply, u32> {
        let Transfer::Upload { length, done, toggle } = self.coe.transfer else {
            return Err(abort::COMMAND);
        };
        if (command & 0x10 != 0) != toggle {
            return Err(abort::TOGGLE);
        }
        let now = (length - done).min(SEGMENT);
        let last = done + now == length;
        let unused = MIN_SEGMENT.saturating_sub(now);
        let mut reply = Reply::new(SDO_RESPONSE, 0, 0, 0);
        reply.bytes[0] = u8::from(toggle) << 4 | (unused as u8) << 1 | u8::from(last);
        reply.bytes[1..4].fill(0);
        put(&mut reply.bytes, 1, &self.coe.buffer[done..done + now]);
        reply.length = 1 + now + unused;
        self.coe.transfer = if last {
            Transfer::None
        } else {
            Transfer::Upload { length, done: done + now, toggle: !toggle }
        };
        Ok(reply)
    }

    fn start_download(&mut self, sdo: &[u8], index: u16, sub: u8) -> Result<Reply, u32> {
        let command = sdo[0];
        self.coe.transfer = Transfer::None;
        let reply = Reply::new(SDO_RESPONSE, 0x60, index, sub);
        if command & 2 != 0 {
            let length = if command & 1 != 0 { 4 - usize::from(command >> 2 & 3) } else { 4 };
            let data = sdo.get(4..4 + length).ok_or(abort::LENGTH)?;
            self.write_object(index, sub, data)?;
            return Ok(reply);
        }
        let length = u32_at(sdo, 4) as usize;
        if length > TABLE {
            return Err(abort::MEMORY);
        }
        let data = sdo.get(8..).ok_or(abort::LENGTH)?;
        let now = data.len().min(length);
        if now == length {
            self.write_object(index, sub, &data[..length])?;
        } else {
            self.coe.buffer[..now].copy_from_slice(&data[..now]);
            self.coe.transfer = Transfer::Download { index, sub, length, done: now, toggle: false };
        }
        Ok(reply)
    }

    fn download_segment(&mut self, sdo: &[u8]) -> Result<Reply, u32> {
        let Transfer::Download { index, sub, length, done, toggle } = self.coe.transfer else {
            return Err(abort::COMMAND);
        };
        let command = sdo[0];
        if (command & 0x10 != 0) != toggle {
            return Err(abort::TOGGLE);
        }
        let mut now = sdo.len() - 1;
        if now <= MIN_SEGMENT {
            now = now.saturating_sub(usize::from(command >> 1 & 7));
        }
        if done + now > length {
            return Err(abort::LENGTH);
        }
        self.coe.buffer[done..done + now].copy_from_slice(&sdo[1..1 + now]);
        if command & 1 != 0 {
            if done + now != length {
                return Err(abort::LENGTH);
            }
            let data = *self.coe.buffer;
            self.write_object(index, sub, &data[..length])?;
            self.coe.transfer = Transfer::None;
        } else {
            self.coe.transfer = Transfer::Download { index, sub, length, done: done + now, toggle: !toggle };
        }
        let mut reply = Reply::new(SDO_RESPONSE, 0x20 | u8::from(toggle) << 4, 0, 0);
        reply.length = 8;
        Ok(reply)
    }

    /// Copies the object's value; its length.
    fn read_object(&self, index: u16, sub: u8, out: &mut [u8; TABLE]) -> Result<usize, u32> {
        let mut bytes = |data: &[u8]| {
            let length = data.len().min(TABLE);
            out[..length].copy_from_slice(&data[..length]);
            Ok(length)
        };
        match (index, sub) {
            // Servo drive after profile 402; else no profile.
            (0x1000, 0) => {
                let drive = matches!(self.app, super::app::App::Drive(_));
                bytes(&(if drive { 0x0002_0192_u32 } else { 0 }).to_le_bytes())
            }
            (0x1001, 0) => bytes(&[u8::from(self.app.get(0x603F, 0).is_some_and(|(code, _)| code != 0))]),
            (0x1008, 0) => bytes(self.name.as_bytes()),
            (0x1009 | 0x100A, 0) => bytes(b"1.0"),
            (0x1018, 0) => bytes(&[4]),
            (0x1018, 1) => bytes(&self.identity.vendor.to_le_bytes()),
            (0x1018, 2) => bytes(&self.identity.product.to_le_bytes()),
            (0x1018, 3) => bytes(&self.identity.revision.to_le_bytes()),
            (0x1018, 4) => bytes(&self.identity.serial.to_le_bytes()),
            // Sync managers: requests, responses, outputs, inputs.
            (0x1C00, 0) => bytes(&[4]),
            (0x1C00, 1..=4) => bytes(&[sub]),
            (0x1C12, _) => assignment(self.rx, sub)
                .map_or(Err(abort::NO_SUBINDEX), |(value, length)| bytes(&value.to_le_bytes()[..length])),
            (0x1C13, _) => assignment(self.tx, sub)
                .map_or(Err(abort::NO_SUBINDEX), |(value, length)| bytes(&value.to_le_bytes()[..length])),
            (0x2000, 0) => bytes(&*self.coe.calibration),
            (0x1600..=0x17FF | 0x1A00..=0x1BFF, _) => {
                let pdo = self.pdo(index).ok_or(abort::NO_OBJECT)?;
                match usize::from(sub).checked_sub(1) {
                    None => bytes(&[pdo.entries.len() as u8]),
                    Some(at) => {
                        let entry = pdo.entries.get(at).ok_or(abort::NO_SUBINDEX)?;
                        let word =
                            u32::from(entry.index) << 16 | u32::from(entry.sub) << 8 | u32::from(entry.bits);
                        bytes(&word.to_le_bytes())
                    }
                }
            }
            _ => match self.app.get(index, sub) {
                Some((value, length)) => bytes(&value.to_le_bytes()[..usize::from(length)]),
                None if self.app.get(index, 0).is_some() => Err(abort::NO_SUBINDEX),
                None => Err(abort::NO_OBJECT),
            },
        }
    }

    fn pdo(&self, index: u16) -> Option<&'static Pdo> {
        self.profile.rx.iter().chain(self.profile.tx).find(|pdo| pdo.index == index)
    }

    fn write_object(&mut self, index: u16, sub: u8, data: &[u8]) -> Result<(), u32> {
        if index == 0x1C12 || index == 0x1C13 {
            return self.assign(index, sub, data);
        }
        if (index, sub) == (0x2000, 0) {
            if data.len() != TABLE {
                return Err(abort::LENGTH);
            }
            self.coe.calibration.copy_from_slice(data);
            return Ok(());
        }
        let mut old = [0; TABLE];
        let length = self.read_object(index, sub, &mut old)?;
        if length > 4 {
            return Err(abort::READ_ONLY);
        }
        if data.len() != length {
            return Err(abort::LENGTH);
        }
        let value = data.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        match self.app.set(index, sub, value) {
            Some(true) => Ok(()),
            Some(false) => Err(abort::VALUE),
            None => Err(abort::READ_ONLY),
        }
    }

    /// PDO assignment: number to 0, the PDO's index, number to 1.
    fn assign(&mut self, index: u16, sub: u8, data: &[u8]) -> Result<(), u32> {
        if self.state != AlState::PreOp {
            return Err(abort::STATE);
        }
        let rx = index == 0x1C12;
        let known = if rx { self.profile.rx } else { self.profile.tx };
        let cleared = if rx { self.coe.rx_cleared } else { self.coe.tx_cleared };
        let current = if rx { self.rx } else { self.tx };
        let new = match (sub, data) {
            (0, [0]) | (0, [0, 0]) => (None, true),
            (0, [1]) | (0, [1, 0]) if current.is_some() => (current, false),
            (0, [_]) => return Err(abort::VALUE),
            (1, [low, high]) if cleared => {
                let wanted = u16::from_le_bytes([*low, *high]);
                let pdo = known.iter().find(|pdo| pdo.index == wanted).ok_or(abort::NOT_MAPPABLE)?;
                (Some(pdo), true)
            }
            (1, [_, _]) => return Err(abort::UNSUPPORTED),
            (0 | 1, _) => return Err(abort::LENGTH),
            _ => return Err(abort::NO_SUBINDEX),
        };
        let (slot, flag) = if rx {
            (&mut self.rx, &mut self.coe.rx_cleared)
        } else {
            (&mut self.tx, &mut self.coe.tx_cleared)
        };
        (*slot, *flag) = new;
        Ok(())
    }
}

/// Value and length of 0x1C12 or 0x1C13.
fn assignment(pdo: Option<&Pdo>, sub: u8) -> Option<(u16, usize)> {
    match (sub, pdo) {
        (0, pdo) => Some((u16::from(pdo.is_some()), 1)),
        (1, Some(pdo)) => Some((pdo.index, 2)),
        _ => None,
    }
}
