//! The frame on the wire: Ethernet header, EtherCAT header, datagrams (ETG.1000.4, section 5).

use crate::frame::PASSED;

/// EtherType of EtherCAT.
pub const ETHERTYPE: u16 = 0x88A4;
/// Longest frame that a segment takes: Ethernet header and 1500 bytes, without VLAN tag and
/// checksum.
pub const MAX_FRAME: usize = 1514;
/// Ethernet and EtherCAT header.
pub(super) const FIRST_DATAGRAM: usize = 16;
/// Datagram header: command, index, address, length, interrupt.
pub(super) const DATAGRAM_HEADER: usize = 10;
/// Datagram header and working counter.
pub(super) const DATAGRAM_OVERHEAD: usize = 12;

/// Reason why a frame was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its headers.
    #[error("frame of {found} bytes; an EtherCAT frame has at least {expected}")]
    TooShort {
        /// Bytes that are there.
        found: usize,
        /// Least number of bytes.
        expected: usize,
    },
    /// The EtherCAT header reports another protocol than datagrams (type 1).
    #[error("EtherCAT header of type {found}, expected 1 (datagrams)")]
    Type {
        /// The type found.
        found: u8,
    },
    /// The datagrams as the header counts them do not fit into the frame.
    #[error("EtherCAT header counts {claimed} bytes of datagrams, but the frame has room for {available}")]
    Length {
        /// Length in the header.
        claimed: usize,
        /// Existing bytes.
        available: usize,
    },
    /// A datagram reaches beyond the last byte.
    #[error("datagram at byte {at} with {claimed} bytes of data extends beyond the frame's end at {end}")]
    Datagram {
        /// Begin of the datagram.
        at: usize,
        /// Length in its header.
        claimed: usize,
        /// End of the datagrams.
        end: usize,
    },
}

/// The commands of a datagram. Values as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Nop,
    /// Auto-increment, configured or broadcast address.
    Physical(Addressing, Access),
    /// Logical address through the FMMUs.
    Logical(Access),
    /// ARMW, FRMW: the addressed device reads, all others write.
    ReadMultipleWrite(Addressing),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Addressing {
    AutoIncrement,
    Configured,
    Broadcast,
}

/// Kind of memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    pub(super) fn reads(self) -> bool {
        self != Self::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

impl Command {
    /// Unknown commands are passed on untouched, as a NOP.
    pub(super) fn decode(byte: u8) -> Self {
        use Access::{Read, ReadWrite, Write};
        use Addressing::{AutoIncrement, Broadcast, Configured};
        match byte {
            1 => Self::Physical(AutoIncrement, Read),
            2 => Self::Physical(AutoIncrement, Write),
            3 => Self::Physical(AutoIncrement, ReadWrite),
            4 => Self::Physical(Configured, Read),
            5 => Self::Physical(Configured, Write),
            6 => Self::Physical(Configured, ReadWrite),
            7 => Self::Physical(Broadcast, Read),
            8 => Self::Physical(Broadcast, Write),
            9 => Self::Physical(Broadcast, ReadWrite),
            10 => Self::Logical(Read),
            11 => Self::Logical(Write),
            12 => Self::Logical(ReadWrite),
            13 => Self::ReadMultipleWrite(AutoIncrement),
            14 => Self::ReadMultipleWrite(Configured),
            _ => Self::Nop,
        }
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_le_bytes([pair[0], pair[1]]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Writes as many of `value`'s bytes as there is room for.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(available) = bytes.get_mut(at..at + value.len()) {
        available.copy_from_slice(value);
    }
}

/// Without a tag (802.1Q): captures hold tagged frames, too, and these devices take none.
pub(super) fn is_untagged_ethercat(frame: &[u8]) -> bool {
    frame.get(12..14).is_some_and(|kind| kind == ETHERTYPE.to_be_bytes())
}

/// Marks the frame as one that has been round.
pub(super) fn mark_passed(frame: &mut [u8]) {
    if let Some(byte) = frame.get_mut(6) {
        *byte |= PASSED;
    }
}

/// Checks the whole frame, so that a bad one is not half executed; returns the end of its
/// datagrams.
pub(super) fn check(frame: &[u8]) -> Result<usize, Malformed> {
    let least = FIRST_DATAGRAM + DATAGRAM_OVERHEAD;
    if frame.len() < least {
        return Err(Malformed::TooShort { found: frame.len(), expected: least });
    }
    let header = u16_at(frame, 14);
    let kind = (header >> 12) as u8;
    if kind != 1 {
        return Err(Malformed::Type { found: kind });
    }
    let claimed = usize::from(header & 0x07FF);
    let available = frame.len() - FIRST_DATAGRAM;
    if claimed > available || claimed < DATAGRAM_OVERHEAD {
        return Err(Malformed::Length { claimed, available });
    }
    let end = FIRST_DATAGRAM + claimed;
    let mut at = FIRST_DATAGRAM;
    loop {
        if at + DATAGRAM_OVERHEAD > end {
            return Err(Malformed::Datagram { at, claimed: 0, end });
        }
        let word = u16_at(frame, at + 6);
        let claimed = usize::from(word & 0x07FF);
        if at + DATAGRAM_OVERHEAD + claimed > end {
            return Err(Malformed::Datagram { at, claimed, end });
        }
        at += DATAGRAM_OVERHEAD + claimed;
        if word & 0x8000 == 0 {
            return Ok(end);
        }
    }
}
