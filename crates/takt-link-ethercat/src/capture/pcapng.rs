//! Blocks of pcapng (draft-ietf-opsawg-pcapng), as far as they matter here.
//!
//! A fault in one block does not affect the next one: a comment that is not UTF-8, a length on the
//! wire below the captured one, an unknown option. Reading ends only at an impossible block length.
//! Timestamps may have any resolution of the format, down to picoseconds and beyond.

use std::io::{self, Read};

/// The first word of a section, in either byte order.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Longest block that is read: a packet of 256 KiB with its options is far shorter.
const MAX_BLOCK_BYTES: u32 = 8_000_000;
/// Type, and twice the length.
const FRAME_BYTES: u32 = 12;
/// Offset of a packet's data in its block.
const DATA_AT: usize = 20;

const NANOSECONDS: u128 = 1_000_000_000;

/// Resolution and offset of an interface's timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    /// Units in a second, as the file has it: a power of ten, or of two with the top bit set.
    resolution: u8,
    offset_s: i64,
}

impl Clock {
    /// Nanoseconds since 1970, rounded down; what cannot be is at the nearest end.
    fn ns(self, units: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7F);
        let units = u128::from(units);
        let ns = match self.resolution & 0x80 {
            0 => match 10_u128.checked_pow(exponent) {
                Some(per_second) => units * NANOSECONDS / per_second,
                None => 0,
            },
            // The product has 94 bits at most.
            _ => (units * NANOSECONDS).checked_shr(exponent).unwrap_or(0),
        };
        let offset_ns = i128::from(self.offset_s) * NANOSECONDS as i128;
        let ns = i128::try_from(ns).unwrap_or(i128::MAX).saturating_add(offset_ns);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// A block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    /// A section begins, and the numbers of interfaces with it.
    Section {
        comment: Option<String>,
    },
    Interface {
        link_type: u16,
        name: String,
        description: String,
    },
    Packet {
        /// Of its section.
        interface: usize,
        time_ns: u64,
        /// Its length on the wire.
        whole: u32,
        bytes: &'a [u8],
        /// Whether that host sent it, where the block says so.
        outgoing: Option<bool>,
    },
    /// A packet without a stamp.
    Unstamped,
    /// A packet whose block says nothing that can be.
    Damaged,
    /// Number of packets that an interface lost.
    Lost {
        interface: usize,
        packets: u64,
    },
    Other,
}

/// Reason why reading ended before the end of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Break {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it ends within a block")]
    End,
    #[error(
        "a block of {length} bytes at byte {at}, expected 12 to {MAX_BLOCK_BYTES}, a multiple of 4, and the same at its end"
    )]
    Length { at: u64, length: u32 },
    #[error("a section at byte {at} with byte order {found:#010x}, expected 0x1a2b3c4d in either order")]
    Order { at: u64, found: u32 },
}

/// Reads block after block.
pub(super) struct Blocks<R> {
    source: R,
    at: u64,
    big_endian: bool,
    /// Of the section's interfaces.
    clocks: Vec<Clock>,
    body: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, at: 0, big_endian: false, clocks: Vec::new(), body: Vec::new() }
    }

    /// The next block; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Block<'_>>, Break> {
        let mut head = Vec::with_capacity(8);
        (&mut self.source).take(8).read_to_end(&mut head)?;
        let Some(&[a, b, c, d, e, f, g, h]) = head.first_chunk::<8>() else {
            return if head.is_empty() { Ok(None) } else { Err(Break::End) };
        };
        self.body.clear();
        if u32::from_le_bytes([a, b, c, d]) == SECTION {
            // Its byte order is behind the length.
            self.fill(4)?;
            let found = self.body.first_chunk().copied().map_or(0, u32::from_be_bytes);
            self.big_endian = match found {
                0x1A2B_3C4D => true,
                0x4D3C_2B1A => false,
                found => return Err(Break::Order { at: self.at, found }),
            };
        }
        let kind = self.word([a, b, c, d]);
        let length = self.word([e, f, g, h]);
        let least = if kind == SECTION { FRAME_BYTES + 16 } else { FRAME_BYTES };
        let wrong = Break::Length { at: self.at, length };
        if !(least..=MAX_BLOCK_BYTES).contains(&length) || !length.is_multiple_of(4) {
            return Err(wrong);
        }
        self.fill((length - 8) as usize)?;
        if self.body.last_chunk().copied().map(|bytes| self.word(bytes)) != Some(length) {
            return Err(wrong);
        }
        self.body.truncate((length - FRAME_BYTES) as usize);
        self.at += u64::from(length);
        Ok(Some(self.block(kind)))
    }

    /// Reads on until `body` has so many bytes.
    fn fill(&mut self, length: usize) -> Result<(), Break> {
        let missing = length.saturating_sub(self.body.len()) as u64;
        let read = (&mut self.source).take(missing).read_to_end(&mut self.body)?;
        if (read as u64) < missing { Err(Break::End) } else { Ok(()) }
    }

    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn block(&mut self, kind: u32) -> Block<'_> {
        let fields = Fields { body: &self.body, big_endian: self.big_endian };
        match kind {
            SECTION => {
                let comment = fields.option(16, COMMENT).map(text);
                self.clocks.clear();
                Block::Section { comment }
            }
            INTERFACE => {
                let option = |code| fields.option(8, code);
                let resolution = option(RESOLUTION).and_then(|value| value.first().copied()).unwrap_or(6);
                let offset = option(OFFSET).and_then(|value| fields.signed(value)).unwrap_or(0);
                let (name, description) = (option(NAME).map(text), option(DESCRIPTION).map(text));
                let link_type = fields.half(0).unwrap_or(0);
                self.clocks.push(Clock { resolution, offset_s: offset });
                Block::Interface {
                    link_type,
                    name: name.unwrap_or_default(),
                    description: description.unwrap_or_default(),
                }
            }
            ENHANCED_PACKET | PACKET => packet(fields, kind, &self.clocks).unwrap_or(Block::Damaged),
            SIMPLE_PACKET => Block::Unstamped,
            STATISTICS => {
                let lost = [DROPPED, DROPPED_BY_SYSTEM].into_iter().find_map(|code| fields.option(12, code));
                let lost = lost.and_then(|value| fields.signed(value));
                match (fields.word(0), lost) {
                    (Some(interface), Some(packets)) => {
                        Block::Lost { interface: interface as usize, packets: packets.cast_unsigned() }
                    }
                    _ => Block::Other,
                }
            }
            _ => Block::Other,
        }
    }
}

fn packet<'a>(fields: Fields<'a>, kind: u32, clocks: &[Clock]) -> Option<Block<'a>> {
    let interface = if kind == PACKET { fields.half(0)?.into() } else { fields.word(0)? as usize };
    let (high, low, captured) = (fields.word(4)?, fields.word(8)?, fields.word(12)? as usize);
    let clock = clocks.get(interface)?;
    let bytes = fields.body.get(DATA_AT..)?.get(..captured)?;
    let flags = fields.option(DATA_AT + captured.next_multiple_of(4), FLAGS);
    let flags = flags.and_then(|value| Some(fields.order(*value.first_chunk()?)));
    let outgoing = match flags.unwrap_or(0) & 3 {
        1 => Some(false),
        2 => Some(true),
        _ => None,
    };
    let time_ns = clock.ns(u64::from(high) << 32 | u64::from(low));
    Some(Block::Packet { interface, time_ns, whole: fields.word(16)?, bytes, outgoing })
}

const COMMENT: u16 = 1;
/// Of an interface.
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;
/// Of a packet: its direction, in bits 0 and 1.
const FLAGS: u16 = 2;
/// Of statistics.
const DROPPED: u16 = 5;
const DROPPED_BY_SYSTEM: u16 = 7;

/// Text of whatever encoding: it is shown and nothing more.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Of a block's body.
#[derive(Clone, Copy)]
struct Fields<'a> {
    body: &'a [u8],
    big_endian: bool,
}

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.body.get(at..)?.first_chunk().copied()
    }

    fn order(self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(self, at: usize) -> Option<u16> {
        let bytes = self.bytes(at)?;
        Some(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn word(self, at: usize) -> Option<u32> {
        self.bytes(at).map(|bytes| self.order(bytes))
    }

    fn signed(self, value: &[u8]) -> Option<i64> {
        let bytes = *value.first_chunk()?;
        Some(if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
    }

    /// The first option of that code among those that begin at `at`, as far as they can be read.
    fn option(self, mut at: usize, wanted: u16) -> Option<&'a [u8]> {
        loop {
            let (code, length) = (self.half(at)?, usize::from(self.half(at + 2)?));
            let value = self.body.get(at + 4..)?.get(..length)?;
            match code {
                0 => return None,
                code if code == wanted => return Some(value),
                _ => at += 4 + length.next_multiple_of(4),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_every_resolution_are_nanoseconds() {
        let ns = |resolution, offset_s, units| Clock { resolution, offset_s }.ns(units);
        assert_eq!(ns(6, 0, 1_700_000_000_000_001), 1_700_000_000_000_001_000);
        assert_eq!(ns(9, 10, 5), 10_000_000_005);
        assert_eq!(ns(9, -10, 12_000_000_000), 2_000_000_000);
        assert_eq!(ns(12, 1, 1_999), 1_000_000_001);
        assert_eq!(ns(0x80 | 32, 0, 3 << 31), 1_500_000_000);
        assert_eq!(ns(0x80, 0, 7), 7_000_000_000);
        // Finer than anything is.
        assert_eq!((ns(127, 0, u64::MAX), ns(0xFF, 0, u64::MAX)), (0, 0));
        assert_eq!((ns(0, 0, u64::MAX), ns(9, i64::MIN, 5), ns(9, i64::MAX, 5)), (u64::MAX, 0, u64::MAX));
    }
}
