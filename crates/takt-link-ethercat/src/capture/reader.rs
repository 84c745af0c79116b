//! Reading captures of any program: pcap and pcapng, as they are or packed by gzip.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapReader, PcapTsResolution};

use super::error::CaptureError;
use super::file::{CaptureFacts, InterfaceFacts, OFFSET, Packet, SEGMENT, Side};
use super::pcapng::{Block, Blocks};
use super::{esl, link};
use crate::frame;

/// Most packets read from one file: hours of a bus at 1 kHz. Their analysis takes about 100 bytes
/// each.
pub const MAX_PACKETS: u64 = 20_000_000;
/// Most bytes that a packed file is unpacked to: a gzip of 16 MB may hold so much. The packets of
/// hours at 1 kHz are less.
pub const MAX_UNPACKED_BYTES: u64 = 16 << 30;
/// A file's interfaces beyond which it is not believed.
const MAX_INTERFACES: usize = 256;

const SECOND_NS: u64 = 1_000_000_000;

/// Begin of a file that is not a capture in its present form.
enum Magic {
    Gzip,
    Packed { how: &'static str, command: &'static str },
    Foreign(&'static str),
    Pcapng,
    Pcap,
    Unknown,
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
            [0xA1, 0xB2, 0xCD, 0x34, ..] | [0x34, 0xCD, 0xB2, 0xA1, ..] => {
                Self::Foreign("a pcap file of a patched libpcap (Kuznetsov's)")
            }
            [b'L', b'O', b'G', b'G', ..] => Self::Foreign("a log of Vector's tools (BLF)"),
            [0x0A, 0x0D, 0x0D, 0x0A, ..] => Self::Pcapng,
            [0xA1, 0xB2, 0xC3, 0xD4]
            | [0xD4, 0xC3, 0xB2, 0xA1]
            | [0xA1, 0xB2, 0x3C, 0x4D]
            | [0x4D, 0x3C, 0xB2, 0xA1] => Self::Pcap,
            _ => Self::Unknown,
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
        Magic::Gzip => unpacked(whole, MAX_UNPACKED_BYTES, each),
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
        Magic::Unknown => Err(unknown(whole)),
        Magic::Gzip => Err(no_capture(&"gzip within gzip")),
        Magic::Packed { how, command } => Err(CaptureError::Packed { path: PathBuf::new(), how, command }),
        Magic::Foreign(format) => Err(CaptureError::Foreign { path: PathBuf::new(), format }),
    }
}

/// Content packed in `whole`, up to `most_bytes` of it.
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
            facts.cut = Some(format!("only the first {gib:.1} GiB of the gzip's content are read"));
        }
        facts
    })
}

/// Nothing that is known: what it begins with, and who may know more.
fn unknown(whole: impl Read) -> CaptureError {
    let mut start = Vec::new();
    let read = whole.take(8).read_to_end(&mut start);
    no_capture(&match (read, start.is_empty()) {
        (Err(error), _) => error.to_string(),
        (_, true) => "it is empty".to_owned(),
        _ => format!(
            "it begins with `{}`, which is not a known capture format; `editcap -F pcapng FILE bus.pcapng` of Wireshark converts most others",
            start.escape_ascii()
        ),
    })
}

fn no_capture(error: &dyn std::fmt::Display) -> CaptureError {
    CaptureError::Format { path: PathBuf::new(), reason: error.to_string() }
}

fn too_many(number: u64) -> Option<String> {
    (number > MAX_PACKETS).then(|| format!("only the first {MAX_PACKETS} packets are read"))
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
        facts.deep_tagged_packets += u64::from(frame::has_more_tags(frame));
        return;
    }
    interface.frames += 1;
    if raw.bytes.len() < raw.whole as usize {
        match frame::ethercat_end(frame).is_some_and(|end| end > frame.len()) {
            true => {
                facts.cut_packets += 1;
                facts.cut_to_bytes = facts.cut_to_bytes.max(raw.bytes.len() as u64);
            }
            false => facts.cut_behind_packets += u64::from(probe.is_none()),
        }
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
    let header = reader.header();
    let interface = described(header.datalink.into(), "", "");
    if !link::is_read(&interface.link_type) {
        return Err(CaptureError::LinkType { path: PathBuf::new(), link: interface.link_type });
    }
    let mut facts = CaptureFacts { interfaces: vec![interface], ..CaptureFacts::default() };
    let unit_ns = if header.ts_resolution == PcapTsResolution::NanoSecond { 1 } else { 1000 };
    let mut number = 0;
    // Raw: whether lengths agree with each other and with the file's snap length, and whether a
    // fraction is below a second, is no reason to read no further.
    while let Some(packet) = reader.next_raw_packet() {
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
        let fraction_ns = u64::from(packet.ts_frac) * unit_ns;
        if fraction_ns >= 2 * SECOND_NS {
            // Its packets have heads of another length than pcap's, as some programs write.
            facts.cut = Some(format!(
                "packet {number} has a timestamp of {} s and {} ns, which is impossible in pcap; `editcap -F pcapng FILE bus.pcapng` reads \
                 variants of pcap",
                packet.ts_sec, fraction_ns
            ));
            break;
        }
        let time_ns = u64::from(packet.ts_sec) * SECOND_NS + fraction_ns;
        let (whole, bytes) = (packet.orig_len, &packet.data);
        let raw = Raw { number, time_ns, interface: 0, outgoing: None, whole, bytes };
        count(&mut facts, &raw, each);
    }
    Ok(facts)
}

fn read_pcapng(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let mut blocks = Blocks::new(source);
    let mut facts = CaptureFacts::default();
    // A new section numbers its interfaces from 0 again.
    let mut first = 0;
    let mut number = 0;
    let mut begun = false;
    loop {
        let block = match blocks.next() {
            Ok(Some(block)) => block,
            Ok(None) => break,
            // Without a section it is no capture.
            Err(error) if !begun => return Err(no_capture(&error)),
            Err(error) => {
                facts.cut = Some(error.to_string());
                break;
            }
        };
        begun = true;
        if matches!(block, Block::Packet { .. } | Block::Unstamped | Block::Damaged) {
            number += 1;
            if let Some(reason) = too_many(number) {
                facts.cut = Some(reason);
                break;
            }
        }
        match block {
            Block::Section { comment } => {
                first = facts.interfaces.len();
                facts.clock_offset_ns = facts.clock_offset_ns.or(comment.as_deref().and_then(offset));
            }
            Block::Interface { link_type, name, description } => {
                if facts.interfaces.len() >= MAX_INTERFACES {
                    facts.cut = Some(format!("more than {MAX_INTERFACES} interfaces"));
                    break;
                }
                facts.interfaces.push(described(link_type.into(), &name, &description));
            }
            Block::Packet { interface, time_ns, whole, bytes, outgoing } => {
                let raw = Raw { number, time_ns, interface: first + interface, outgoing, whole, bytes };
                count(&mut facts, &raw, each);
            }
            Block::Unstamped => facts.unstamped_packets += 1,
            Block::Damaged => facts.damaged_packets += 1,
            Block::Lost { interface, packets } => {
                if let Some(interface) = facts.interfaces.get_mut(first.saturating_add(interface)) {
                    interface.dropped = Some(packets);
                }
            }
            Block::Other => {}
        }
    }
    Ok(facts)
}

fn offset(comment: &str) -> Option<i64> {
    comment.strip_prefix(OFFSET)?.trim().parse().ok()
}

/// Link types have 16 bits; those above say in a pcap file how long the checksum at the end of each
/// packet is.
const LINK_TYPE: u32 = 0xFFFF;

fn described(link_type: u32, name: &str, description: &str) -> InterfaceFacts {
    InterfaceFacts {
        // Names go to a terminal.
        name: name.chars().filter(|letter| !letter.is_control()).take(64).collect(),
        side: if description == SEGMENT { Side::Segment } else { Side::Master },
        link_type: link::name(DataLink::from(link_type & LINK_TYPE)),
        frames: 0,
        foreign_packets: 0,
        dropped: None,
    }
}

#[cfg(test)]
mod tests;
