//! Capture files: pcapng written, pcapng and pcap of any program read.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::block_common::Block;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgReader, PcapNgWriter};

use crate::segment::raw::InterfaceError;

/// Most packets read from one file: hours of a bus at 1 kHz. Their analysis takes about 100 bytes
/// each.
pub const MOST_PACKETS: u64 = 20_000_000;

/// Words before the clock's offset in the section's comment.
const OFFSET: &str = "CLOCK_REALTIME less CLOCK_MONOTONIC, ns: ";
/// What an interface is said to be, in its description.
const MASTER: &str = "takt: at the master";
const SEGMENT: &str = "takt: at the segment";

/// Why a capture cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is none.
    #[error("{}: {reason}. Accepted are pcapng and pcap files of Ethernet frames, as takt, tcpdump and Wireshark write them", path.display())]
    Format {
        /// Where it is.
        path: PathBuf,
        /// What the reader says.
        reason: String,
    },
    /// An interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The recording thread.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
}

impl CaptureError {
    /// The same, naming `file` where none is named.
    pub(super) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::File { path, source } if path.as_os_str().is_empty() => {
                Self::File { path: file.to_owned(), source }
            }
            Self::Format { path, reason } if path.as_os_str().is_empty() => {
                Self::Format { path: file.to_owned(), reason }
            }
            other => other,
        }
    }
}

/// At which end of the wire a capture was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// At the master's host.
    Master,
    /// At the devices.
    Segment,
}

/// An interface of a capture.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct InterfaceFacts {
    /// Its name; empty where the file does not report.
    pub name: String,
    /// Which end of the wire it is. A file that does not report was taken at the master.
    pub side: Side,
    /// EtherCAT frames.
    pub frames: u64,
    /// Frames that the capturing program lost; `None` where the file does not report.
    pub dropped: Option<u64>,
}

/// What a file reports beside its frames.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct CaptureFacts {
    /// Its interfaces.
    pub interfaces: Vec<InterfaceFacts>,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC at the capture's start, where it was recorded by Takt.
    pub clock_offset_ns: Option<i64>,
    /// Packets of other protocols, link types, or without a time stamp.
    pub other_packets: u64,
    /// Why reading ended before the end of the file.
    pub cut: Option<String>,
}

/// An EtherCAT frame of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Its number in the file, from 1, as Wireshark shows it.
    pub number: u64,
    /// Since 1970, nanoseconds.
    pub time_ns: u64,
    /// Where it was seen.
    pub side: Side,
    /// Whether that host sent it, where the file reports.
    pub outgoing: Option<bool>,
    /// From the destination address on; shorter than on the wire where the capture was instructed
    /// to cut.
    pub frame: &'a [u8],
}

/// Writes a pcapng file.
pub struct Writer<W: Write> {
    file: PcapNgWriter<W>,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer<BufWriter<File>> {
    /// A new file at `path`, which must not exist: a capture is evidence, and is not followed
    /// through a link of somebody else's.
    ///
    /// # Errors
    /// [`CaptureError::File`].
    pub fn create(path: &Path, interfaces: &[(&str, Side)]) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::File { path: path.to_owned(), source };
        let file = File::create_new(path).map_err(failed)?;
        Self::new(BufWriter::new(file), interfaces).map_err(|error| error.in_file(path))
    }
}

fn written<T>(outcome: Result<T, impl std::fmt::Display>) -> Result<(), CaptureError> {
    outcome.map(drop).map_err(|error| CaptureError::File {
        path: PathBuf::new(),
        source: io::Error::other(error.to_string()),
    })
}

impl<W: Write> Writer<W> {
    /// Begins a file with its interfaces.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(output: W, interfaces: &[(&str, Side)]) -> Result<Self, CaptureError> {
        let program = concat!("takt ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            options: vec![
                SectionHeaderOption::UserApplication(Cow::Borrowed(program)),
                SectionHeaderOption::Common(CommonOption::Comment(Cow::Owned(format!(
                    "{OFFSET}{}",
                    super::clock_offset_ns()
                )))),
            ],
            ..SectionHeaderBlock::default()
        };
        let mut file = match PcapNgWriter::with_section_header(output, section) {
            Ok(file) => file,
            Err(error) => {
                let source = io::Error::other(error.to_string());
                return Err(CaptureError::File { path: PathBuf::new(), source });
            }
        };
        for (name, side) in interfaces {
            let what = if *side == Side::Master { MASTER } else { SEGMENT };
            let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
            block.options.push(InterfaceDescriptionOption::IfName(Cow::Borrowed(name)));
            block.options.push(InterfaceDescriptionOption::IfDescription(Cow::Borrowed(what)));
            if let Ok(nanoseconds) = InterfaceTsResolution::from_u8(9) {
                block.options.push(InterfaceDescriptionOption::IfTsResol(nanoseconds));
            }
            written(file.write_pcapng_block(block))?;
        }
        Ok(Self { file })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn packet(
        &mut self,
        interface: usize,
        time_ns: u64,
        outgoing: Option<bool>,
        frame: &[u8],
    ) -> Result<(), CaptureError> {
        let mut block = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(time_ns),
            original_len: frame.len() as u32,
            data: Cow::Borrowed(frame),
            options: Vec::new(),
        };
        if let Some(outgoing) = outgoing {
            // Direction, bits 0 and 1 of the flags: 1 inbound, 2 outbound.
            block.options.push(EnhancedPacketOption::Flags(1 + u32::from(outgoing)));
        }
        written(self.file.write_pcapng_block(block))
    }

    /// Reports how many frames a tap lost.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn statistics(&mut self, interface: usize, dropped: u64) -> Result<(), CaptureError> {
        written(self.file.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: interface as u32,
            timestamp: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            options: vec![InterfaceStatisticsOption::IsbIfDrop(dropped)],
        }))
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        written(self.file.get_mut().flush())
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.file.into_inner()
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
pub fn read_from(
    mut source: impl Read,
    each: &mut dyn FnMut(Packet<'_>),
) -> Result<CaptureFacts, CaptureError> {
    let mut magic = Vec::with_capacity(4);
    (&mut source)
        .take(4)
        .read_to_end(&mut magic)
        .map_err(|source| CaptureError::File { path: PathBuf::new(), source })?;
    let is_pcapng = magic == [0x0A, 0x0D, 0x0D, 0x0A];
    let whole = io::Cursor::new(magic).chain(source);
    if is_pcapng { read_pcapng(whole, each) } else { read_pcap(whole, each) }
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

fn read_pcap(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let mut reader = PcapReader::new(source).map_err(|error| no_capture(&error))?;
    let link = reader.header().datalink;
    if link != DataLink::ETHERNET {
        return Err(no_capture(&format!(
            "captured as link type {link:?}; expected Ethernet (capture at one interface, not at \"any\")"
        )));
    }
    let mut interface = InterfaceFacts { name: String::new(), side: Side::Master, frames: 0, dropped: None };
    let mut facts = CaptureFacts::default();
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
        if !crate::frame::is_ethercat(packet.data()) {
            facts.other_packets += 1;
            continue;
        }
        interface.frames += 1;
        let time_ns = nanoseconds(packet.timestamp());
        each(Packet { number, time_ns, side: Side::Master, outgoing: None, frame: packet.data() });
    }
    facts.interfaces.push(interface);
    Ok(facts)
}

/// A file's interfaces beyond which it is not believed.
const MOST_INTERFACES: usize = 256;

fn read_pcapng(source: impl Read, each: &mut dyn FnMut(Packet<'_>)) -> Result<CaptureFacts, CaptureError> {
    let mut reader = PcapNgReader::new(source).map_err(|error| no_capture(&error))?;
    let mut facts = CaptureFacts { clock_offset_ns: offset(reader.section()), ..CaptureFacts::default() };
    // A new section numbers its interfaces from 0 again.
    let mut first = 0;
    let mut ethernet: Vec<bool> = Vec::new();
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
                ethernet.push(interface.linktype == DataLink::ETHERNET);
                facts.interfaces.push(described(&interface));
            }
            Block::EnhancedPacket(packet) => {
                number += 1;
                if let Some(reason) = too_many(number) {
                    facts.cut = Some(reason);
                    break;
                }
                let at = first + packet.interface_id as usize;
                let known = facts.interfaces.get_mut(at).filter(|_| ethernet.get(at) == Some(&true));
                let Some(interface) = known.filter(|_| crate::frame::is_ethercat(&packet.data)) else {
                    facts.other_packets += 1;
                    continue;
                };
                interface.frames += 1;
                let outgoing = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => match flags & 3 {
                        1 => Some(false),
                        2 => Some(true),
                        _ => None,
                    },
                    _ => None,
                });
                let time_ns = nanoseconds(packet.timestamp);
                each(Packet { number, time_ns, side: interface.side, outgoing, frame: &packet.data });
            }
            Block::SimplePacket(_) | Block::Packet(_) => {
                number += 1;
                facts.other_packets += 1;
            }
            Block::InterfaceStatistics(statistics) => {
                let at = first + statistics.interface_id as usize;
                let lost = statistics.options.iter().find_map(|option| match option {
                    InterfaceStatisticsOption::IsbIfDrop(lost)
                    | InterfaceStatisticsOption::IsbOsDrop(lost) => Some(*lost),
                    _ => None,
                });
                if let (Some(interface), Some(lost)) = (facts.interfaces.get_mut(at), lost) {
                    interface.dropped = Some(lost);
                }
            }
            _ => {}
        }
    }
    Ok(facts)
}

fn offset(section: &SectionHeaderBlock<'_>) -> Option<i64> {
    section.options.iter().find_map(|option| match option {
        SectionHeaderOption::Common(CommonOption::Comment(text)) => {
            text.strip_prefix(OFFSET)?.trim().parse().ok()
        }
        _ => None,
    })
}

fn described(interface: &InterfaceDescriptionBlock<'_>) -> InterfaceFacts {
    let mut facts = InterfaceFacts { name: String::new(), side: Side::Master, frames: 0, dropped: None };
    for option in &interface.options {
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
