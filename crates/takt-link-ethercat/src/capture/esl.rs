//! EtherCAT Switch Link (ESL): 16 bytes that probes and port multipliers on the wire (Beckhoff
//! ET2000, CU25xx) put behind or before each frame: the port it came in at, receive errors, and the
//! time on the wire. Layout as in Wireshark's `packet-esl.c`, which the tests ask.

use crate::frame;

/// Bytes of the link.
const LENGTH: usize = 16;
/// The first bytes, of which the fourth is 0x10 or 0x11: the address that switches keep for
/// themselves.
const COOKIE: [u8; 3] = [0x01, 0x01, 0x05];
/// The checksum of the frame on the wire to the recording computer, which some drivers hand on.
const CHECKSUM: usize = 4;

/// Record of a frame from a probe on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeStamp {
    /// Port of the probe at which the frame came in.
    pub port: u8,
    /// When its first bit was there, nanoseconds of the probe's own clock.
    pub time_ns: u64,
    /// The frame's checksum was wrong.
    pub crc_error: bool,
    /// The frame did not end at a whole byte.
    pub alignment_error: bool,
}

/// The frame without the link, and what the link says; the bytes as they are where there is none.
pub(super) fn unwrap(bytes: &[u8]) -> (&[u8], Option<ProbeStamp>) {
    if let Some(stamp) = parse(bytes)
        && let Some(inner) = bytes.get(LENGTH..).filter(|inner| frame::is_ethercat(inner))
    {
        return (inner, Some(stamp));
    }
    // Behind the datagrams: process data may hold anything.
    let Some(end) = frame::ethercat_end(bytes) else { return (bytes, None) };
    for behind in [0, CHECKSUM] {
        let Some(at) = bytes.len().checked_sub(LENGTH + behind).filter(|&at| at >= end) else { continue };
        if let Some(stamp) = parse(&bytes[at..]) {
            return (&bytes[..at], Some(stamp));
        }
    }
    (bytes, None)
}

fn parse(bytes: &[u8]) -> Option<ProbeStamp> {
    let link: &[u8; LENGTH] = bytes.first_chunk()?;
    if link[..3] != COOKIE || !matches!(link[3], 0x10 | 0x11) || link[4..6] != [0, 0] {
        return None;
    }
    let flags = u16::from_le_bytes([link[6], link[7]]);
    let time_ns = link[8..].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some(ProbeStamp {
        port: port(flags),
        time_ns,
        crc_error: flags & CRC_ERROR != 0,
        alignment_error: flags & ALIGNMENT_ERROR != 0,
    })
}

const ALIGNMENT_ERROR: u16 = 1 << 11;
const CRC_ERROR: u16 = 1 << 12;
/// Bit of the flags for each port, ports 0 to 11.
const PORT_BITS: [u8; 12] = [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 10, 9];

/// The port of `flags`; 255 where none is set.
fn port(flags: u16) -> u8 {
    PORT_BITS.iter().position(|bit| flags & 1 << bit != 0).map_or(u8::MAX, |port| port as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameBuilder, command};

    fn link(flags: u16, time_ns: u64) -> Vec<u8> {
        [&[1, 1, 5, 0x10, 0, 0][..], &flags.to_le_bytes(), &time_ns.to_le_bytes()].concat()
    }

    fn plain(data: &[u8]) -> Vec<u8> {
        let mut frame = FrameBuilder::new([0x10; 6]);
        frame.push(command::LRW, 3, 0, data.len()).unwrap().copy_from_slice(data);
        frame.finish().to_vec()
    }

    #[test]
    fn a_link_is_read_behind_and_before_a_frame() {
        let (frame, link) = (plain(&[9; 40]), link(0x0040 | CRC_ERROR, 0x0102_0304_0506_0708));
        let stamp =
            ProbeStamp { port: 1, time_ns: 0x0102_0304_0506_0708, crc_error: true, alignment_error: false };
        for bytes in [
            [&frame[..], &link].concat(),
            [&link[..], &frame].concat(),
            // With the checksum of the wire to the recording computer.
            [&frame[..], &link, &[1, 2, 3, 4]].concat(),
        ] {
            let (inner, read) = unwrap(&bytes);
            assert_eq!((inner, read), (&frame[..], Some(stamp)));
        }
        assert_eq!(unwrap(&frame), (&frame[..], None));
        assert_eq!(unwrap(&link), (&link[..], None));
    }

    #[test]
    fn process_data_that_look_like_a_link_are_none() {
        let frame = plain(&[&[0; 30][..], &link(0x80, 5)].concat());
        // The working counter behind them moves the link by two bytes; without it, too.
        assert_eq!(unwrap(&frame).1, None);
        assert_eq!(unwrap(&frame[..frame.len() - 2]).1, None);
    }
}
