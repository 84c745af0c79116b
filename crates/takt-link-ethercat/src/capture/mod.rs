//! Captures of EtherCAT traffic: recording at both ends of a wire with the kernel's time stamps
//! ([`Recorder`]), and reading any program's pcapng or pcap file ([`read`]).
//!
//! A frame is seen up to four times: leaving the master's host, reaching the segment, leaving it,
//! and back at the master's host. One host can take all four only at a simulated segment; at real
//! devices the capture has the first and the last.

mod error;
mod esl;
mod file;
mod link;
mod pcapng;
mod reader;
mod recorder;
mod tap;

pub use error::CaptureError;
pub use esl::ProbeStamp;
pub use file::{CaptureFacts, InterfaceFacts, Packet, Side, Writer};
pub use reader::{MAX_PACKETS, MAX_UNPACKED_BYTES, read, read_from};
pub use recorder::Recorder;
pub use tap::{Sighted, Tap};

/// CLOCK_REALTIME less CLOCK_MONOTONIC now, nanoseconds: captures use the one, run directories the
/// other. The best of some bracketed readings.
pub fn clock_offset_ns() -> i64 {
    let once = || {
        let before = takt_rt::clock::monotonic_ns();
        let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let after = takt_rt::clock::monotonic_ns();
        (after - before, real.as_nanos() as i64 - (before + (after - before) / 2) as i64)
    };
    (0..16).map(|_| once()).min().map_or(0, |(_, offset_ns)| offset_ns)
}
