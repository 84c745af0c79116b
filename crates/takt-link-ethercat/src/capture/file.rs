//! Capture files: pcapng written, pcapng and pcap of any program read.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};

use super::error::CaptureError;
use super::esl::ProbeStamp;

/// Words before the clock's offset in the section's comment.
pub(super) const OFFSET: &str = "CLOCK_REALTIME less CLOCK_MONOTONIC, ns: ";
/// Description of an interface.
const MASTER: &str = "takt: at the master";
pub(super) const SEGMENT: &str = "takt: at the segment";

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
    /// Its end of the wire. A file that does not report was taken at the master.
    pub side: Side,
    /// Link type of its packets. Packets of other types are not read.
    pub link_type: String,
    /// EtherCAT frames.
    pub frames: u64,
    /// Packets that were not read, as they are no Ethernet frames.
    pub foreign_packets: u64,
    /// Frames that the capturing program lost; `None` where the file does not report.
    pub dropped: Option<u64>,
}

/// Facts about a file besides its frames.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct CaptureFacts {
    /// Its interfaces.
    pub interfaces: Vec<InterfaceFacts>,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC at the capture's start, where it was recorded by Takt.
    pub clock_offset_ns: Option<i64>,
    /// Packets of other protocols, or of other link types than Ethernet.
    pub other_packets: u64,
    /// Packets of these with more VLAN tags than [`MAX_TAGS`](Self::MAX_TAGS): they may be
    /// EtherCAT.
    pub deep_tagged_packets: u64,
    /// EtherCAT frames of which the capture kept the beginning alone (a snap length): working
    /// counters are not in them.
    pub cut_packets: u64,
    /// The most bytes that it kept of such a frame; 0 where none is cut.
    pub cut_to_bytes: u64,
    /// EtherCAT frames that are whole and were cut behind their datagrams, where a probe on the
    /// wire puts its stamps.
    pub cut_behind_packets: u64,
    /// Packets without a time stamp, which say nothing of when.
    pub unstamped_packets: u64,
    /// Packets of which the file's own description is damaged.
    pub damaged_packets: u64,
    /// Reason why reading ended before the end of the file.
    pub cut: Option<String>,
}

impl CaptureFacts {
    /// VLAN tags of a frame that are followed.
    pub const MAX_TAGS: usize = crate::frame::MAX_TAGS;
}

/// An EtherCAT frame of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Its number in the file, from 1, as Wireshark shows it.
    pub number: u64,
    /// Since 1970, nanoseconds.
    pub time_ns: u64,
    /// Side at which it was seen.
    pub side: Side,
    /// The interface's number in the file.
    pub interface: u16,
    /// Whether that host sent it, where the file reports.
    pub outgoing: Option<bool>,
    /// Record from a probe on the wire.
    pub probe: Option<ProbeStamp>,
    /// From the destination address on, without what a probe added; shorter than on the wire where
    /// the capture was instructed to cut.
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

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.file.into_inner()
    }
}
