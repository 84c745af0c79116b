//! Why a capture cannot be recorded or read.

use std::io;
use std::path::{Path, PathBuf};

use crate::segment::raw::InterfaceError;

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
    /// The file is packed in a way that is not unpacked here.
    #[error("{}: packed by {how}. Unpack it first: `{command}`; accepted are pcap and pcapng files as they are or packed by gzip", path.display())]
    Packed {
        /// Where it is.
        path: PathBuf,
        /// What packed it.
        how: &'static str,
        /// What unpacks it.
        command: &'static str,
    },
    /// A file of another capturing program.
    #[error("{}: {format}. Accepted are pcap and pcapng; Wireshark converts it: `editcap -F pcapng FILE bus.pcapng`", path.display())]
    Foreign {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        format: &'static str,
    },
    /// Captured where packets are not Ethernet frames.
    #[error("{}: captured as link type {link}; expected Ethernet (ETHERNET, 1). Capture at one interface of the bus (`tcpdump -i eth1`), not at \"any\"", path.display())]
    LinkType {
        /// Where it is.
        path: PathBuf,
        /// The link type, its name and number.
        link: String,
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
    pub(super) fn in_file(mut self, file: &Path) -> Self {
        match &mut self {
            Self::File { path, .. }
            | Self::Format { path, .. }
            | Self::Packed { path, .. }
            | Self::Foreign { path, .. }
            | Self::LinkType { path, .. }
                if path.as_os_str().is_empty() =>
            {
                file.clone_into(path);
            }
            _ => {}
        }
        self
    }
}
