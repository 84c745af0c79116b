//! EtherCAT frames as bytes (ETG.1000.4, section 5): building those of a cycle, and reading
//! anybody's.
//!
//! The master `ethercrab` sends one datagram a frame through its public interface; a cycle wants
//! several in one. Nothing here allocates, and nothing panics on any bytes.

mod carried;

/// EtherType of EtherCAT.
pub const ETHERCAT: u16 = 0x88A4;
/// Longest Ethernet frame, without tag and checksum: 14 bytes of header and 1500 of data.
pub const MAX_FRAME: usize = 1514;
/// Ethernet header (14 bytes) and EtherCAT header (2).
pub const FRAME_HEADERS: usize = 16;
/// Bytes of a datagram besides its data: a header of 10 bytes and the working counter.
pub const DATAGRAM_OVERHEAD: usize = 12;
/// Most data of a frame's only datagram.
pub const MAX_DATA: usize = MAX_FRAME - FRAME_HEADERS - DATAGRAM_OVERHEAD;
/// Shortest Ethernet frame without its checksum; shorter ones are padded.
const MIN_FRAME: usize = 60;

/// Commands of datagrams.
pub mod command {
    /// No operation.
    pub const NOP: u8 = 0;
    /// Read one device by its place.
    pub const APRD: u8 = 1;
    /// Write one device by its place.
    pub const APWR: u8 = 2;
    /// Read and write one device by its place.
    pub const APRW: u8 = 3;
    /// Read one device by its station address.
    pub const FPRD: u8 = 4;
    /// Write one device by its station address.
    pub const FPWR: u8 = 5;
    /// Read and write one device by its station address.
    pub const FPRW: u8 = 6;
    /// Read all devices; what they say is ORed.
    pub const BRD: u8 = 7;
    /// Write all devices.
    pub const BWR: u8 = 8;
    /// Read and write all devices.
    pub const BRW: u8 = 9;
    /// Read process data.
    pub const LRD: u8 = 10;
    /// Write process data.
    pub const LWR: u8 = 11;
    /// Read and write process data.
    pub const LRW: u8 = 12;
    /// The device at a place reads, all others write.
    pub const ARMW: u8 = 13;
    /// The device with a station address reads, all others write.
    pub const FRMW: u8 = 14;

    /// A command's name; `"?"` for none.
    pub fn name(command: u8) -> &'static str {
        const NAMES: [&str; 15] = [
            "NOP", "APRD", "APWR", "APRW", "FPRD", "FPWR", "FPRW", "BRD", "BWR", "BRW", "LRD", "LWR", "LRW",
            "ARMW", "FRMW",
        ];
        NAMES.get(usize::from(command)).copied().unwrap_or("?")
    }

    /// Whether process data are moved.
    pub fn is_logical(command: u8) -> bool {
        (LRD..=LRW).contains(&command)
    }
}

/// A 32-bit address: of process data, or of a device (low half) and a register in it (high half).
pub fn address(device: u16, register: u16) -> u32 {
    u32::from(device) | u32::from(register) << 16
}

/// A datagram of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// One of [`command`].
    pub command: u8,
    /// The master's own mark; devices leave it as it is.
    pub index: u8,
    /// See [`address`].
    pub address: u32,
    /// Data.
    pub data: &'a [u8],
    /// Number of devices that took part; a device that is written and read by one datagram
    /// counts 3.
    pub working_counter: u16,
}

impl Datagram<'_> {
    /// The device half of the address.
    pub fn device(&self) -> u16 {
        self.address as u16
    }

    /// The register half of the address.
    pub fn register(&self) -> u16 {
        (self.address >> 16) as u16
    }

    /// The address without what each device counts up.
    pub(crate) fn lasting_address(&self) -> u32 {
        lasting(self.command, self.address)
    }
}

fn lasting(command: u8, address: u32) -> u32 {
    match command {
        command::APRD
        | command::APWR
        | command::APRW
        | command::BRD
        | command::BWR
        | command::BRW
        | command::ARMW => address & 0xFFFF_0000,
        _ => address,
    }
}

/// Identity of a frame on its way to the devices and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Equal for a frame and its answer, and for few others that are near: indices repeat.
    pub key: u64,
    /// Equal for the same frame of each cycle.
    pub kind: u64,
    /// Whether it carries process data.
    pub cyclic: bool,
}

/// Identity of a frame; `None` if it has no datagrams.
pub fn identity(bytes: &[u8]) -> Option<Identity> {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let (mut key, mut kind) = (DefaultHasher::new(), DefaultHasher::new());
    let (mut count, mut cyclic) = (0, false);
    for datagram in datagrams(bytes) {
        let what = (datagram.command, datagram.lasting_address(), datagram.data.len());
        (datagram.index, what).hash(&mut key);
        what.hash(&mut kind);
        cyclic |= command::is_logical(datagram.command);
        count += 1;
    }
    (count > 0).then(|| Identity { key: key.finish(), kind: kind.finish(), cyclic })
}

/// The datagrams of an Ethernet frame, with any number of VLAN tags or in UDP, in their order;
/// stops before one that reaches beyond the end.
#[derive(Debug, Clone)]
pub struct Datagrams<'a> {
    rest: &'a [u8],
    more: bool,
}

/// Reads the datagrams of an Ethernet frame; none where it is not EtherCAT.
pub fn datagrams(frame: &[u8]) -> Datagrams<'_> {
    let none = Datagrams { rest: &[], more: false };
    let Some((at, length)) = payload(frame) else { return none };
    let rest = frame.get(at..).unwrap_or_default();
    Datagrams { rest: &rest[..length.min(rest.len())], more: true }
}

/// Begin of a frame's datagrams, and their length according to its EtherCAT header; `None` if it
/// has none.
fn payload(frame: &[u8]) -> Option<(usize, usize)> {
    let at = carried::find(frame)?.at;
    let header = u16_at(frame, at)?;
    // Type 1: datagrams. Others are mailbox gateways and network variables.
    (header >> 12 == 1).then(|| (at + 2, usize::from(header & 0x07FF)))
}

/// End of a frame's datagrams according to its EtherCAT header, which may be beyond the existing
/// bytes.
pub(crate) fn ethercat_end(frame: &[u8]) -> Option<usize> {
    payload(frame).map(|(at, length)| at + length)
}

/// A datagram's head, which is there even where a capture cut its data off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub command: u8,
    pub index: u8,
    /// Without what each device counts up.
    pub lasting_address: u32,
    /// Of its data.
    pub length: u16,
    /// `None` where the frame ends before it.
    pub working_counter: Option<u16>,
}

/// The heads of a frame's datagrams, of one that a capture cut as far as they are there.
pub(crate) fn heads(frame: &[u8], each: &mut dyn FnMut(Head)) {
    let Some((start, length)) = payload(frame) else { return };
    let end = (start + length).min(frame.len());
    let mut rest = frame.get(start..end).unwrap_or_default();
    while let Some(head) = rest.first_chunk::<10>() {
        let word = u16::from_le_bytes([head[6], head[7]]);
        let length = word & 0x07FF;
        let whole = DATAGRAM_OVERHEAD + usize::from(length);
        let address = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
        each(Head {
            command: head[0],
            index: head[1],
            lasting_address: lasting(head[0], address),
            length,
            working_counter: u16_at(rest, whole - 2),
        });
        rest = if word & 0x8000 != 0 { rest.get(whole..).unwrap_or_default() } else { &[] };
    }
}

/// The low 32 bits of the number of the cycle that a frame of ours belongs to: the data of a
/// datagram without effect at its end, which devices pass on as it is. `None` where its datagrams
/// do not say, as those of other masters, or contradict each other.
pub fn cycle(bytes: &[u8]) -> Option<u32> {
    let mut first = None;
    for datagram in datagrams(bytes) {
        let index = *first.get_or_insert(datagram.index);
        if let (command::NOP, &[a, b, c, d]) = (datagram.command, datagram.data) {
            return (a == index && a == datagram.index).then(|| u32::from_le_bytes([a, b, c, d]));
        }
    }
    None
}

/// Address of a frame's first process data in the logical address space, which distinguishes it
/// from the other frames of its cycle; `None` for one without process data.
pub(crate) fn logical_address(bytes: &[u8]) -> Option<u32> {
    let first = datagrams(bytes).find(|datagram| command::is_logical(datagram.command));
    first.map(|datagram| datagram.address)
}

pub(crate) fn is_ethercat(frame: &[u8]) -> bool {
    carried::find(frame).is_some()
}

/// VLAN tags that are followed.
pub(crate) use carried::MAX_TAGS;

/// Whether a frame has more VLAN tags than are followed, so that its content is not known.
pub(crate) fn has_more_tags(frame: &[u8]) -> bool {
    carried::has_more_tags(frame)
}

/// Bit of the first source byte ("locally administered") that the first device sets: masters take a
/// frame with their own address for one of their own that never went round.
pub(crate) const PASSED: u8 = 0x02;

/// Whether a frame has been through the devices.
pub(crate) fn has_passed(frame: &[u8]) -> bool {
    frame.get(6).is_some_and(|byte| byte & PASSED != 0) || is_udp_answer(frame)
}

/// Over UDP an answer may come from a gateway, which sends it from EtherCAT's port to the master's.
fn is_udp_answer(frame: &[u8]) -> bool {
    let ports = carried::find(frame).and_then(|carried| carried.ports);
    ports.is_some_and(|(from, to)| from == ETHERCAT && to != ETHERCAT)
}

/// Identity of a master in a network: the frame's source address without the bit of the first
/// device. Over UDP both ends in either order, as a gateway answers from an address of its own.
pub(crate) fn source(frame: &[u8]) -> u64 {
    let number = |bytes: &[u8]| {
        let place = |(at, byte): (usize, &u8)| u64::from(if at == 0 { byte & !PASSED } else { *byte });
        bytes.iter().enumerate().map(place).fold(0, |sum, byte| sum << 8 | byte)
    };
    let address = |range| frame.get(range).map_or(0, number);
    let udp = carried::find(frame).is_some_and(|carried| carried.ports.is_some());
    if udp { address(6..12) ^ address(0..6) } else { address(6..12) }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    fn next(&mut self) -> Option<Datagram<'a>> {
        if !self.more {
            return None;
        }
        self.more = false;
        let head = self.rest.first_chunk::<10>()?;
        let word = u16::from_le_bytes([head[6], head[7]]);
        let length = usize::from(word & 0x07FF);
        let data = self.rest.get(10..10 + length)?;
        let working_counter = u16_at(self.rest, 10 + length)?;
        let datagram = Datagram {
            command: head[0],
            index: head[1],
            address: u32::from_le_bytes([head[2], head[3], head[4], head[5]]),
            data,
            working_counter,
        };
        self.rest = &self.rest[DATAGRAM_OVERHEAD + length..];
        self.more = word & 0x8000 != 0;
        Some(datagram)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_le_bytes(*pair))
}

/// A frame under construction, in memory of its own.
#[derive(Debug, Clone)]
pub struct FrameBuilder {
    bytes: [u8; MAX_FRAME],
    length: usize,
    /// Begin of the last datagram.
    last: Option<usize>,
}

impl FrameBuilder {
    /// A frame from station `source` to everybody.
    pub fn new(source: [u8; 6]) -> Self {
        let mut bytes = [0; MAX_FRAME];
        bytes[..6].fill(0xFF);
        bytes[6..12].copy_from_slice(&source);
        bytes[12..14].copy_from_slice(&ETHERCAT.to_be_bytes());
        Self { bytes, length: FRAME_HEADERS, last: None }
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        (self.length, self.last) = (FRAME_HEADERS, None);
    }

    /// Whether no datagram is in it.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Whether a datagram of `length` bytes of data fits.
    pub fn fits(&self, length: usize) -> bool {
        self.length + DATAGRAM_OVERHEAD + length <= MAX_FRAME
    }

    /// Adds a datagram of `length` bytes; its data, to be filled in, are whatever the memory held.
    /// `None` where it does not fit.
    pub fn push(&mut self, command: u8, index: u8, address: u32, length: usize) -> Option<&mut [u8]> {
        if !self.fits(length) {
            return None;
        }
        if let Some(last) = self.last {
            self.bytes[last + 7] |= 0x80;
        }
        let at = self.length;
        self.bytes[at] = command;
        self.bytes[at + 1] = index;
        self.bytes[at + 2..at + 6].copy_from_slice(&address.to_le_bytes());
        self.bytes[at + 6..at + 8].copy_from_slice(&(length as u16).to_le_bytes());
        self.bytes[at + 8..at + 10].fill(0);
        self.bytes[at + 10 + length..at + 12 + length].fill(0);
        self.last = Some(at);
        self.length = at + DATAGRAM_OVERHEAD + length;
        Some(&mut self.bytes[at + 10..at + 10 + length])
    }

    /// The frame, padded to the least length of Ethernet.
    pub fn finish(&mut self) -> &[u8] {
        let header = (self.length - FRAME_HEADERS) as u16 | 0x1000;
        self.bytes[14..16].copy_from_slice(&header.to_le_bytes());
        if self.length < MIN_FRAME {
            self.bytes[self.length..MIN_FRAME].fill(0);
        }
        &self.bytes[..self.length.max(MIN_FRAME)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_read() {
        let mut frame = FrameBuilder::new([0x10; 6]);
        frame.push(command::LRW, 7, 0x100, 3).unwrap().copy_from_slice(&[1, 2, 3]);
        frame.push(command::BRD, 7, address(0, 0x0130), 2).unwrap().fill(0);
        let bytes = frame.finish().to_vec();
        assert_eq!(bytes.len(), 60);
        let read: Vec<Datagram<'_>> = datagrams(&bytes).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].command, read[0].index, read[0].address), (12, 7, 0x100));
        assert_eq!(read[0].data, [1, 2, 3]);
        assert_eq!((read[1].device(), read[1].register(), read[1].data), (0, 0x0130, &[0, 0][..]));
        assert!(!frame.fits(MAX_DATA));
        frame.clear();
        assert!(frame.fits(MAX_DATA) && !frame.fits(MAX_DATA + 1) && frame.is_empty());
    }

    #[test]
    fn tagged_frames_are_read_and_others_are_not() {
        let mut frame = FrameBuilder::new([0x10; 6]);
        frame.push(command::FPRD, 1, 5, 2).unwrap().fill(9);
        let plain = frame.finish().to_vec();
        let mut tagged = plain[..12].to_vec();
        tagged.extend([0x81, 0x00, 0x00, 0x01]);
        tagged.extend(&plain[12..]);
        assert_eq!(datagrams(&tagged).count(), 1);
        let mut other = plain;
        other[12] = 8;
        assert_eq!(datagrams(&other).count(), 0);
    }

    proptest! {
        #[test]
        fn no_frame_is_read_beyond_its_end(frame in proptest::collection::vec(any::<u8>(), 0..100), cut in 0_usize..60) {
            let _ = datagrams(&frame).count();
            let mut frame = FrameBuilder::new([0; 6]);
            frame.push(12, 0, 0, 20);
            frame.push(7, 0, 0, 4);
            let _ = datagrams(&frame.finish()[..cut]).count();
        }
    }
}
