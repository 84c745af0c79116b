//! Errors of recording or reading a capture.

use std::io;
use std::path::{Path, PathBuf};

use crate::segment::raw::InterfaceError;

/// Error of writing or reading a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is none.
    #[error("{}: {reason}. Accepted are pcapng and pcap files of Ethernet frames, as written by takt, tcpdump and Wireshark", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// The reader's error.
        reason: String,
    },
    /// The file is packed in a way that is not unpacked here.
    #[error("{}: compressed with {how}. Unpack it first: `{command}`; accepted are pcap and pcapng files, plain or compressed with gzip", path.display())]
    Packed {
        /// Path of the file.
        path: PathBuf,
        /// Program that packed it.
        how: &'static str,
        /// Command that unpacks it.
        command: &'static str,
    },
    /// A file of another capturing program.
    #[error("{}: {format}. Accepted are pcap and pcapng; Wireshark converts it: `editcap -F pcapng FILE bus.pcapng`", path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
    },
    /// Captured where packets are not Ethernet frames.
    #[error("{}: captured with link type {link}; expected Ethernet (ETHERNET, 1). Capture at one interface of the bus (`tcpdump -i eth1`), \
         not at \"any\"", path.display())]
    LinkType {
        /// Path of the file.
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
