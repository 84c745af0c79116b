//! Reading captures of any program: pcap and pcapng, as they are or packed by gzip.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::block_common::Block;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};

use super::error::CaptureError;
use super::file::{CaptureFacts, InterfaceFacts, OFFSET, Packet, SEGMENT, Side};
use super::{esl, link};
use crate::frame;

/// Most packets read from one file: hours of a bus at 1 kHz. Their analysis takes about 100 bytes
/// each.
pub const MOST_PACKETS: u64 = 20_000_000;
/// Most bytes that a packed file is unpacked to: a gzip of 16 MB may hold so much. The packets of
/// hours at 1 kHz are less.
pub const MOST_UNPACKED_BYTES: u64 = 16 << 30;
/// A file's interfaces beyond which it is not believed.
const MOST_INTERFACES: usize = 256;

/// What a file begins with that is no capture as it is.
enum Magic {
    Gzip,
    Packed { how: &'static str, command: &'static str },
    Foreign(&'static str),
    Pcapng,
    Pcap,
}

impl Magic {
    fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Self::Packed { how: "zstd", command: "zstd -d FILE" },
            [0x04, 0x22, 0x4D, 0x18, ..] => Self::Packed { how: "lz4", command: "lz4 -d FILE" },
            [0xFD, b'7', b'z', b'X', ..] => Self::Packed { how: "xz", command: "xz -d FILE" },
            [b'B', b'Z', b'h', ..] => Self::Packed { how: "bzip2", command: "bzip2 -d FILE" },
            [b'P', b'K', 3, 4, ..] => Self::Packed { how: "zip", command: "unzip FILE" },
            [b'R', b'T', b'S', b'S', ..] | [b'G', b'M', b'B', b'U', ..] => {
                Self::Foreign("a capture of Microsoft's Network Monitor")
            }
            [b's', b'n', b'o', b'o', ..] => Self::Foreign("a capture of snoop"),
            [b'X', b'C', b'P', 0, ..] => Self::Foreign("a capture of NetXRay or Sniffer"),
            [b'L', b'O', b'G', b'G', ..] => Self::Foreign("a log of Vector's tools (BLF)"),
            [0x0A, 0x0D, 0x0D, 0x0A, ..] => Self::Pcapng,
            _ => Self::Pcap,
        }
    }
}

/// Reads the capture at `path`, whoever wrote it; `each` gets its EtherCAT frames.
///
/// # Errors
/// [`CaptureError`] when it is no capture at all. A file that breaks off later is read that far,
/// and its [`cut`](CaptureFacts::cut) says so.
pub fn read(path: &Path, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let failed = |source| CaptureError::File { path: path.to_owned(), source };
    let file = BufReader::new(takt_files::open(path).map_err(failed)?);
    read_from(file, each).map_err(|error| error.in_file(path))
}

/// As [`read`], from any source.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let (magic, whole) = sniffed(source)?;
    match magic {
        Magic::Gzip => unpacked(whole, MOST_UNPACKED_BYTES, each),
        other => read_plain(&other, whole, each),
    }
}

fn sniffed(mut source: impl Read) -> Result<(Magic, impl Read), CaptureError> {
    let mut bytes = Vec::with_capacity(4);
    (&mut source)
        .take(4)
        .read_to_end(&mut bytes)
        .map_err(|source| CaptureError::File { path: PathBuf::new(), source })?;
    Ok((Magic::of(&bytes), io::Cursor::new(bytes).chain(source)))
}

fn read_plain(
    magic: &Magic,
    whole: impl Read,
    each: &mut dyn FnMut(Packet<'_>),
) -> Result<CaptureFacts, CaptureError> {
    match *magic {
        Magic::Pcapng => read_pcapng(whole, each),
        Magic::Pcap => read_pcap(whole, each),
        Magic::Gzip => Err(no_capture(&"gzip within gzip")),
        Magic::Packed { how, command } => Err(CaptureError::Packed { path: PathBuf::new(), how, command }),
        Magic::Foreign(format) => Err(CaptureError::Foreign { path: PathBuf::new(), format }),
    }
}

/// What is packed in `whole`, up to `most_bytes` of it.
fn unpacked(
    whole: impl Read,
    most_bytes: u64,
    each: &mut dyn FnMut(Packet<'_>),
) -> Result<CaptureFacts, CaptureError> {
    let mut content = MultiGzDecoder::new(whole).take(most_bytes);
    let (magic, inner) = sniffed(&mut content).map_err(|error| match error {
        CaptureError::File { source, .. } => no_capture(&format!("gzip: {source}")),
        other => other,
    })?;
    let facts = read_plain(&magic, inner, each);
    let is_at_limit = content.limit() == 0;
    facts.map(|mut facts| {
        if is_at_limit {
            let gib = most_bytes as f64 / f64::from(1 << 30);
            facts.cut = Some(format!("only the first {gib:.1} GiB of what the gzip holds are read"));
        }
        facts
    })
}

fn no_capture(error: &dyn std::fmt::Display) -> CaptureError {
    CaptureError::Format { path: PathBuf::new(), reason: error.to_string() }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn too_many(number: u64) -> Option<String> {
    (number > MOST_PACKETS).then(|| format!("only the first {MOST_PACKETS} packets are read"))
}

/// A packet as the file has it.
struct Raw<'a> {
    number: u64,
    time_ns: u64,
    interface: usize,
    outgoing: Option<bool>,
    /// Its length on the wire.
    whole: u32,
    bytes: &'a [u8],
}

/// Hands `raw` on if it is EtherCAT, and counts it.
fn count(facts: &mut CaptureFacts, raw: &Raw<'_>, each: &mut dyn FnMut(Packet<'_>)) {
    let Some(interface) = facts.interfaces.get_mut(raw.interface) else {
        facts.other_packets += 1;
        return;
    };
    let Some(bytes) = link::ethernet(&interface.link_type, raw.bytes) else {
        interface.foreign_packets += 1;
        facts.other_packets += 1;
        return;
    };
    let (frame, probe) = esl::unwrap(bytes);
    if !frame::is_ethercat(frame) {
        facts.other_packets += 1;
        return;
    }
    interface.frames += 1;
    let is_short = frame::ethercat_end(frame).is_some_and(|end| end > frame.len());
    if is_short && raw.bytes.len() < raw.whole as usize {
        facts.cut_packets += 1;
        facts.cut_to_bytes = facts.cut_to_bytes.max(raw.bytes.len() as u64);
    }
    let (number, time_ns, side) = (raw.number, raw.time_ns, interface.side);
    each(Packet {
        number,
        time_ns,
        side,
        interface: raw.interface as u16,
        outgoing: raw.outgoing,
        probe,
        frame,
    });
}

fn read_pcap(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let mut reader = PcapReader::new(source).map_err(|error| no_capture(&error))?;
    let interface = described(reader.header().datalink, &[]);
    if !link::is_read(&interface.link_type) {
        return Err(CaptureError::LinkType { path: PathBuf::new(), link: interface.link_type });
    }
    let mut facts = CaptureFacts { interfaces: vec![interface], ..CaptureFacts::default() };
    let mut number = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                facts.cut = Some(error.to_string());
                break;
            }
        };
        number += 1;
        if let Some(reason) = too_many(number) {
            facts.cut = Some(reason);
            break;
        }
        let (time_ns, whole) = (nanoseconds(packet.timestamp()), packet.orig_len());
        let raw = Raw { number, time_ns, interface: 0, outgoing: None, whole, bytes: packet.data() };
        count(&mut facts, &raw, each);
    }
    Ok(facts)
}

fn read_pcapng(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let mut reader = PcapNgReader::new(source).map_err(|error| no_capture(&error))?;
    let mut facts = CaptureFacts { clock_offset_ns: offset(reader.section()), ..CaptureFacts::default() };
    // A new section numbers its interfaces from 0 again.
    let mut first = 0;
    let mut number = 0;
    while let Some(block) = reader.next_block() {
        let block = match block {
            Ok((block, _)) => block,
            Err(error) => {
                facts.cut = Some(error.to_string());
                break;
            }
        };
        match block {
            Block::SectionHeader(section) => {
                first = facts.interfaces.len();
                facts.clock_offset_ns = facts.clock_offset_ns.or(offset(&section));
            }
            Block::InterfaceDescription(interface) => {
                if facts.interfaces.len() >= MOST_INTERFACES {
                    facts.cut = Some(format!("more than {MOST_INTERFACES} interfaces"));
                    break;
                }
                facts.interfaces.push(described(interface.linktype, &interface.options));
            }
            Block::EnhancedPacket(packet) => {
                number += 1;
                if let Some(reason) = too_many(number) {
                    facts.cut = Some(reason);
                    break;
                }
                let raw = Raw {
                    number,
                    time_ns: nanoseconds(packet.timestamp),
                    interface: first + packet.interface_id as usize,
                    outgoing: outgoing(&packet),
                    whole: packet.original_len,
                    bytes: &packet.data,
                };
                count(&mut facts, &raw, each);
            }
            Block::Packet(packet) => {
                number += 1;
                let raw = Raw {
                    number,
                    time_ns: nanoseconds(packet.timestamp),
                    interface: first + usize::from(packet.interface_id),
                    outgoing: None,
                    whole: packet.original_len,
                    bytes: &packet.data,
                };
                count(&mut facts, &raw, each);
            }
            Block::SimplePacket(_) => {
                number += 1;
                facts.unstamped_packets += 1;
            }
            Block::InterfaceStatistics(statistics) => count_lost(&mut facts, first, &statistics),
            _ => {}
        }
    }
    Ok(facts)
}

fn outgoing(packet: &EnhancedPacketBlock<'_>) -> Option<bool> {
    packet.options.iter().find_map(|option| match option {
        EnhancedPacketOption::Flags(flags) => match flags & 3 {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        },
        _ => None,
    })
}

fn count_lost(facts: &mut CaptureFacts, first: usize, statistics: &InterfaceStatisticsBlock<'_>) {
    let at = first + statistics.interface_id as usize;
    let lost = statistics.options.iter().find_map(|option| match option {
        InterfaceStatisticsOption::IsbIfDrop(lost) | InterfaceStatisticsOption::IsbOsDrop(lost) => {
            Some(*lost)
        }
        _ => None,
    });
    if let (Some(interface), Some(lost)) = (facts.interfaces.get_mut(at), lost) {
        interface.dropped = Some(lost);
    }
}

fn offset(section: &SectionHeaderBlock<'_>) -> Option<i64> {
    section.options.iter().find_map(|option| match option {
        SectionHeaderOption::Common(CommonOption::Comment(text)) => {
            text.strip_prefix(OFFSET)?.trim().parse().ok()
        }
        _ => None,
    })
}

fn described(link: DataLink, options: &[InterfaceDescriptionOption<'_>]) -> InterfaceFacts {
    let mut facts = InterfaceFacts {
        name: String::new(),
        side: Side::Master,
        link_type: link::name(link),
        frames: 0,
        foreign_packets: 0,
        dropped: None,
    };
    for option in options {
        match option {
            // Names go to a terminal.
            InterfaceDescriptionOption::IfName(name) => {
                facts.name = name.chars().filter(|letter| !letter.is_control()).take(64).collect();
            }
            InterfaceDescriptionOption::IfDescription(what) if what == SEGMENT => facts.side = Side::Segment,
            _ => {}
        }
    }
    facts
}

#[cfg(test)]
mod tests;
