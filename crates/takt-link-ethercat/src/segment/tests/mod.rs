//! Registers and commands against the fact sheet, without any master.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bringup;
mod clocks;
mod fuzz;
mod mailbox;
mod rules;

use super::{Outcome, Segment, SegmentConfig};

pub(super) const APRD: u8 = 1;
pub(super) const APWR: u8 = 2;
pub(super) const FPRD: u8 = 4;
pub(super) const FPWR: u8 = 5;
pub(super) const FPRW: u8 = 6;
pub(super) const BRD: u8 = 7;
pub(super) const BWR: u8 = 8;
pub(super) const LRD: u8 = 10;
pub(super) const LWR: u8 = 11;
pub(super) const LRW: u8 = 12;
pub(super) const FRMW: u8 = 14;

pub(super) const MS: u64 = 1_000_000;

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Datagram {
    command: u8,
    address: u32,
    data: Vec<u8>,
}

pub(super) fn physical(command: u8, address: u16, offset: u16, data: &[u8]) -> Datagram {
    Datagram { command, address: u32::from(address) | u32::from(offset) << 16, data: data.to_vec() }
}

pub(super) fn logical(command: u8, address: u32, data: &[u8]) -> Datagram {
    Datagram { command, address, data: data.to_vec() }
}

/// Returned datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) address: u32,
    pub(super) data: Vec<u8>,
    pub(super) counter: u16,
}

pub(super) fn frame(datagrams: &[Datagram]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, datagram) in datagrams.iter().enumerate() {
        let more = if at + 1 < datagrams.len() { 0x8000 } else { 0 };
        body.extend([datagram.command, at as u8]);
        body.extend(datagram.address.to_le_bytes());
        body.extend((datagram.data.len() as u16 | more).to_le_bytes());
        body.extend([0, 0]);
        body.extend(&datagram.data);
        body.extend([0, 0]);
    }
    let mut frame = vec![0xFF; 6];
    frame.extend([0x10; 6]);
    frame.extend([0x88, 0xA4]);
    frame.extend((body.len() as u16 | 0x1000).to_le_bytes());
    frame.extend(body);
    frame
}

pub(super) fn answers(frame: &[u8]) -> Vec<Answer> {
    let mut at = 16;
    let mut answers = Vec::new();
    loop {
        let word = u16::from_le_bytes([frame[at + 6], frame[at + 7]]);
        let length = usize::from(word & 0x7FF);
        let data = frame[at + 10..at + 10 + length].to_vec();
        let address = u32::from_le_bytes(frame[at + 2..at + 6].try_into().unwrap());
        let counter = u16::from_le_bytes(frame[at + 10 + length..at + 12 + length].try_into().unwrap());
        answers.push(Answer { address, data, counter });
        if word & 0x8000 == 0 {
            return answers;
        }
        at += 12 + length;
    }
}

/// A segment and the time.
pub(super) struct Bench {
    pub(super) segment: Segment,
    pub(super) now_ns: u64,
}

impl Bench {
    pub(super) fn new(config: &SegmentConfig) -> Self {
        Self { segment: Segment::new(config).unwrap(), now_ns: 1_000_000_000 }
    }

    pub(super) fn humanoid(devices: usize) -> Self {
        Self::new(&SegmentConfig::humanoid(devices))
    }

    /// Sends datagrams in one frame, a microsecond after the last.
    pub(super) fn send(&mut self, datagrams: &[Datagram]) -> Vec<Answer> {
        let mut frame = frame(datagrams);
        self.now_ns += 1000;
        let outcome = self.segment.process(&mut frame, self.now_ns);
        assert_eq!(outcome, Outcome::Return { copies: 1, delay_ns: 0 });
        assert_eq!(frame[6], 0x12, "the frame is marked as passed");
        answers(&frame)
    }

    pub(super) fn one(&mut self, datagram: Datagram) -> Answer {
        self.send(&[datagram]).pop().unwrap()
    }

    pub(super) fn read(&mut self, station: u16, offset: u16, length: usize) -> Vec<u8> {
        let answer = self.one(physical(FPRD, station, offset, &vec![0; length]));
        assert_eq!(answer.counter, 1, "device {station:#x} gives {offset:#x}");
        answer.data
    }

    pub(super) fn write(&mut self, station: u16, offset: u16, data: &[u8]) {
        let answer = self.one(physical(FPWR, station, offset, data));
        assert_eq!(answer.counter, 1, "device {station:#x} takes {offset:#x}");
    }

    /// Gives every device its station address: 0x1000 and up.
    pub(super) fn address(&mut self, devices: u16) {
        for place in 0..devices {
            let station = 0x1000 + place;
            let answer = self.one(physical(APWR, place.wrapping_neg(), 0x0010, &station.to_le_bytes()));
            assert_eq!(answer.counter, 1);
        }
    }

    /// Asks for an AL state; what the device says then: state with error bit, status code.
    pub(super) fn request(&mut self, station: u16, state: u8) -> (u8, u16) {
        self.write(station, 0x0120, &[state, 0]);
        let status = self.read(station, 0x0130, 6);
        (status[0], u16::from_le_bytes([status[4], status[5]]))
    }

    pub(super) fn sync_manager(&mut self, station: u16, index: u16, start: u16, length: u16, control: u8) {
        let mut block = Vec::new();
        block.extend(start.to_le_bytes());
        block.extend(length.to_le_bytes());
        block.extend([control, 0, u8::from(length > 0), 0]);
        self.write(station, 0x0800 + 8 * index, &block);
    }

    pub(super) fn fmmu(
        &mut self,
        station: u16,
        index: u16,
        logical: u32,
        length: u16,
        physical: u16,
        kind: u8,
    ) {
        let mut block = Vec::new();
        block.extend(logical.to_le_bytes());
        block.extend(length.to_le_bytes());
        block.extend([0, 7]);
        block.extend(physical.to_le_bytes());
        block.extend([0, kind, 1, 0, 0, 0]);
        self.write(station, 0x0600 + 16 * index, &block);
    }

    pub(super) fn mailboxes(&mut self, station: u16) {
        self.sync_manager(station, 0, 0x1000, 128, 0x26);
        self.sync_manager(station, 1, 0x1080, 128, 0x22);
    }

    /// To OP with outputs at logical 0 and inputs behind them.
    pub(super) fn bring_to_op(&mut self, station: u16, mailbox: bool, outputs: u16, inputs: u16) {
        if mailbox {
            self.mailboxes(station);
        }
        assert_eq!(self.request(station, 0x02), (0x02, 0));
        self.sync_manager(station, 2, 0x1100, outputs, 0x64);
        self.sync_manager(station, 3, 0x1400, inputs, 0x20);
        self.fmmu(station, 0, 0, outputs, 0x1100, 2);
        self.fmmu(station, 1, u32::from(outputs), inputs, 0x1400, 1);
        assert_eq!(self.request(station, 0x04), (0x04, 0));
        assert_eq!(self.request(station, 0x08), (0x08, 0));
    }
}
