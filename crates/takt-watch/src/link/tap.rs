//! Packets of a link as they pass the interface: a packet socket with a filter in the kernel, and
//! the kernel's own time stamps (packet(7)).

use std::io;
use std::net::Ipv4Addr;

use takt_rt::packet::{EVERY_PROTOCOL, Layer, PacketSocket};

use super::Endpoint;

/// A packet with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    /// When it passed the interface, CLOCK_MONOTONIC.
    pub(super) time_ns: u64,
    /// From the robot; else to it.
    pub(super) incoming: bool,
    /// Its length from the network header on.
    pub(super) bytes: u32,
    /// The begin of its data.
    pub(super) data: [u8; DATA_BYTES],
    /// So much of that is there.
    pub(super) data_bytes: usize,
}

/// What is looked at of a packet's data: a robot's time stamp is among the first.
pub(super) const DATA_BYTES: usize = 64;
/// Longest headers of IPv4 and TCP.
const HEADER_BYTES: usize = 120;
/// Packets that wait, some thousands.
const BUFFER_BYTES: i32 = 4 << 20;

const ETH_P_IP: u32 = 0x0800;

/// An open tap.
#[derive(Debug)]
pub(super) struct Tap {
    socket: PacketSocket,
    endpoint: Endpoint,
    /// Packets that the kernel had no room for.
    pub(super) lost: u64,
}

/// Ones as in classic BPF (linux/filter.h): code, jump if true, jump if false, constant.
fn filter(endpoint: &Endpoint) -> Vec<libc::sock_filter> {
    let one = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (protocol, port) = match endpoint {
        Endpoint::Udp { port } => (17, u32::from(*port)),
        Endpoint::Tcp { port, .. } => (6, u32::from(*port)),
        // Never asked for: its frames are taken whole.
        Endpoint::Ethercat { .. } => (0, 0),
    };
    // SKF_AD_OFF + SKF_AD_PROTOCOL: the packet's protocol, whatever its link.
    const PACKET_PROTOCOL: u32 = -0x1000_i32 as u32;
    vec![
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, PACKET_PROTOCOL),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 10, ETH_P_IP),
        one(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 9),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 8, protocol),
        // The ports are in the first fragment alone.
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 6),
        one(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 6, 0, 0x1fff),
        one(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 0),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, port),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 2),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, 0xffff),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

impl Tap {
    /// Opens it on all interfaces of this network namespace.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub(super) fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let socket = PacketSocket::open(Layer::Network, false)?;
        socket.filter(&filter(endpoint))?;
        socket.stamp()?;
        // The usual size does for some seconds as well.
        socket.enlarge_buffer(BUFFER_BYTES);
        socket.bind(0, EVERY_PROTOCOL)?;
        Ok(Self { socket, endpoint: *endpoint, lost: 0 })
    }

    /// Hands every packet with data that waits to `take`, oldest first.
    pub(super) fn drain(&mut self, take: &mut dyn FnMut(Packet)) {
        let ahead_ns = crate::history::ahead_ns();
        let mut bytes = [0_u8; HEADER_BYTES + DATA_BYTES];
        // An interface that has gone down is reported once: packets come again when it is up.
        while let Ok(Some(taken)) = self.socket.take(&mut bytes) {
            let Some(time_ns) = taken.time_ns else { continue };
            if let Some(packet) = parsed(&bytes[..taken.length], &self.endpoint, taken.outgoing) {
                take(Packet { time_ns: time_ns.saturating_sub(ahead_ns), ..packet });
            }
        }
        self.lost += self.socket.dropped();
    }
}

/// The packet in `bytes`, from the network header on; None where it has no data or is not of this
/// link.
fn parsed(bytes: &[u8], endpoint: &Endpoint, outgoing: bool) -> Option<Packet> {
    let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(four))
    };
    let network = usize::from(bytes.first()? & 0xf) * 4;
    let total = usize::from(word(2)?);
    let (source, target) = (word(network)?, word(network + 2)?);
    let headers = match endpoint {
        Endpoint::Tcp { .. } => network + usize::from(bytes.get(network + 12)? >> 4) * 4,
        _ => network + 8,
    };
    if headers >= total {
        // An acknowledgement alone.
        return None;
    }
    let incoming = match *endpoint {
        // The program's own port.
        Endpoint::Udp { port } if target == port => true,
        Endpoint::Udp { port } if source == port => false,
        // The robot's.
        Endpoint::Tcp { host, port } if source == port && host == address(12)? => true,
        Endpoint::Tcp { host, port } if target == port && host == address(16)? => false,
        _ => return None,
    };
    // On the loopback every packet passes twice.
    if incoming == outgoing {
        return None;
    }
    let mut data = [0; DATA_BYTES];
    let there = bytes.get(headers..total.min(bytes.len())).unwrap_or_default();
    let data_bytes = there.len().min(DATA_BYTES);
    data[..data_bytes].copy_from_slice(&there[..data_bytes]);
    Some(Packet { time_ns: 0, incoming, bytes: total as u32, data, data_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(source: u16, target: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, (28 + data.len()) as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(source.to_be_bytes());
        bytes.extend(target.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn the_way_of_a_packet_is_reported_by_the_port() {
        let endpoint = Endpoint::Udp { port: 50002 };
        let to_us = udp(7, 50002, b"robot");
        let packet = parsed(&to_us, &endpoint, false).unwrap();
        assert!(packet.incoming && packet.bytes == 33 && &packet.data[..packet.data_bytes] == b"robot");
        assert!(!parsed(&udp(50002, 7, b"us"), &endpoint, true).unwrap().incoming);
        // The same packet on its other pass over the loopback; others; no data.
        assert_eq!(parsed(&to_us, &endpoint, true), None);
        assert_eq!(parsed(&udp(7, 8, b"x"), &endpoint, false), None);
        assert_eq!(parsed(&udp(7, 50002, b""), &endpoint, false), None);
        for length in 0..to_us.len() {
            let _ = parsed(&to_us[..length], &endpoint, false);
        }
    }

    #[test]
    fn acknowledgements_are_none_and_the_robot_s_address_counts() {
        let mut bytes = vec![0x45, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes.extend(30004_u16.to_be_bytes());
        bytes.extend([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let endpoint = |host: [u8; 4]| Endpoint::Tcp { host: host.into(), port: 30004 };
        let packet = parsed(&bytes, &endpoint([10, 0, 0, 1]), false).unwrap();
        assert!(packet.incoming && packet.data[..packet.data_bytes] == [1, 2, 3, 4]);
        assert_eq!(parsed(&bytes, &endpoint([10, 0, 0, 9]), false), None);
        bytes[3] = 40;
        assert_eq!(parsed(&bytes[..40], &endpoint([10, 0, 0, 1]), false), None);
    }
}
