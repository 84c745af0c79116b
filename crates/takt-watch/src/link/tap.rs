//! Packets of a link as they pass the interface: a packet socket with a filter in the kernel, and
//! the kernel's own time stamps (packet(7)).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use takt_rt::packet::{EVERY_PROTOCOL, Layer, PacketSocket};

use super::Endpoint;

/// A packet with data, or the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    /// When it passed the interface, CLOCK_MONOTONIC.
    pub(super) time_ns: u64,
    /// From the robot; else to it.
    pub(super) incoming: bool,
    /// The peer. For UDP this is the robot's address and port; for TCP, if known, this end's, which
    /// differs for each connection.
    pub(super) peer: (IpAddr, u16),
    /// Its length from the network header on.
    pub(super) bytes: u32,
    /// The begin of its data.
    pub(super) data: [u8; DATA_BYTES],
    /// So much of that is there.
    pub(super) data_bytes: usize,
    /// A connection of TCP ends with it.
    pub(super) closes: bool,
}

/// Length of the examined part of a packet's data: a robot's timestamp is among the first bytes.
pub(super) const DATA_BYTES: usize = 64;
/// Longest headers of IPv4 and TCP.
const HEADER_BYTES: usize = 120;
/// Packets that wait, some thousands.
const BUFFER_BYTES: i32 = 4 << 20;

const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;
/// The header of IPv6 without extensions.
const IPV6_BYTES: usize = 40;
/// A packet passes an interface that lies on another (VLAN, bond, bridge) and that other one within
/// this time.
const STACKED_NS: u64 = 20_000_000;

/// An open tap.
#[derive(Debug)]
pub(super) struct Tap {
    socket: PacketSocket,
    endpoint: Endpoint,
    /// Packets that the kernel had no room for.
    pub(super) lost: u64,
    /// Interfaces that were seen, and whether each lies on another.
    stacked: BTreeMap<i32, bool>,
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
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 9, ETH_P_IP),
        one(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 9),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 15, protocol),
        // The ports are in the first fragment alone.
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 6),
        one(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 13, 0, 0x1fff),
        one(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 0),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 9, 0, port),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 2),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 7, 8, port),
        // Of IPv6 those whose header has no extensions, as all but fragments have.
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 7, ETH_P_IPV6),
        one(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 6),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 5, protocol),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, IPV6_BYTES as u32),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, port),
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, IPV6_BYTES as u32 + 2),
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
        Ok(Self { socket, endpoint: *endpoint, lost: 0, stacked: BTreeMap::new() })
    }

    /// Every packet with data that waits, oldest first, each once.
    pub(super) fn drain(&mut self) -> Vec<Packet> {
        let mut packets: Vec<(Packet, bool)> = Vec::new();
        let ahead_ns = crate::history::ahead_ns();
        let mut bytes = [0_u8; HEADER_BYTES + DATA_BYTES];
        // An interface that has gone down is reported once: packets come again when it is up.
        while let Ok(Some(taken)) = self.socket.take(&mut bytes) {
            let Some(time_ns) = taken.time_ns else { continue };
            if let Some(packet) = parsed(&bytes[..taken.length], &self.endpoint, taken.outgoing) {
                let stacked =
                    *self.stacked.entry(taken.interface).or_insert_with(|| lies_on(taken.interface));
                packets.push((Packet { time_ns: time_ns.saturating_sub(ahead_ns), ..packet }, stacked));
            }
        }
        self.lost += self.socket.dropped();
        once(packets)
    }
}

/// Whether an interface lies on another one.
fn lies_on(interface: i32) -> bool {
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let is_it = |path: &std::path::Path| {
        let index = std::fs::read_to_string(path.join("ifindex")).unwrap_or_default();
        index.trim().parse() == Ok(interface)
    };
    let Some(found) = interfaces.map(|entry| entry.path()).find(|path| is_it(path)) else { return false };
    let entries = std::fs::read_dir(found).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| name.starts_with("lower_"))
}

/// The packets in the order of time. A packet that passed an interface on top of another one passes
/// the other as well, where the wire is: that one counts.
fn once(mut packets: Vec<(Packet, bool)>) -> Vec<Packet> {
    // The two ways are two queues of the kernel.
    packets.sort_by_key(|(packet, _)| packet.time_ns);
    let is_seen_below = |at: usize| {
        let (of, stacked) = packets[at];
        let is_it = |&(other, other_stacked): &(Packet, bool)| {
            !other_stacked && Packet { time_ns: of.time_ns, ..other } == of
        };
        let near = |other: &&(Packet, bool)| other.0.time_ns.abs_diff(of.time_ns) <= STACKED_NS;
        stacked
            && (packets[at..].iter().take_while(near).any(is_it)
                || packets[..at].iter().rev().take_while(near).any(is_it))
    };
    (0..packets.len()).filter(|&at| !is_seen_below(at)).map(|at| packets[at].0).collect()
}

/// The packet in `bytes`, from the network header on; None where it has no data or is not of this
/// link.
fn parsed(bytes: &[u8], endpoint: &Endpoint, outgoing: bool) -> Option<Packet> {
    let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(four)))
    };
    let sixteen = |at: usize| {
        let sixteen: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(sixteen)))
    };
    let first = bytes.first()?;
    let (network, total, from, to) = match first >> 4 {
        4 => (usize::from(first & 0xf) * 4, usize::from(word(2)?), four(12)?, four(16)?),
        6 => (IPV6_BYTES, IPV6_BYTES + usize::from(word(4)?), sixteen(8)?, sixteen(24)?),
        _ => return None,
    };
    let (source, target) = (word(network)?, word(network + 2)?);
    let headers = match endpoint {
        Endpoint::Tcp { .. } => network + usize::from(bytes.get(network + 12)? >> 4) * 4,
        _ => network + 8,
    };
    // FIN or RST.
    let closes = matches!(endpoint, Endpoint::Tcp { .. }) && bytes.get(network + 13)? & 0x5 != 0;
    if headers >= total && !closes {
        // An acknowledgement alone.
        return None;
    }
    let (incoming, peer) = match *endpoint {
        // The program's own port.
        Endpoint::Udp { port } if target == port => (true, (from, source)),
        Endpoint::Udp { port } if source == port => (false, (to, target)),
        // The robot's.
        Endpoint::Tcp { host, port } if source == port && host == from => (true, (to, target)),
        Endpoint::Tcp { host, port } if target == port && host == to => (false, (from, source)),
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
    Some(Packet { time_ns: 0, incoming, peer, bytes: total as u32, data, data_bytes, closes })
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
    fn of_ipv6_too() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 13, 17, 64];
        bytes.extend([0xfd; 16]);
        bytes.extend([0xfe; 16]);
        bytes.extend(7_u16.to_be_bytes());
        bytes.extend(50002_u16.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(b"robot");
        let endpoint = Endpoint::Udp { port: 50002 };
        let packet = parsed(&bytes, &endpoint, false).unwrap();
        assert!(packet.incoming && packet.bytes == 53 && &packet.data[..packet.data_bytes] == b"robot");
        assert_eq!(packet.peer, (IpAddr::from([0xfd; 16]), 7));
        for length in 0..bytes.len() {
            let _ = parsed(&bytes[..length], &endpoint, false);
        }
    }

    /// By the kernel: the filter is its program.
    #[test]
    fn the_filter_lets_the_link_through_and_nothing_else() {
        use std::net::UdpSocket;
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(own) = UdpSocket::bind(address) else { continue };
            let endpoint = Endpoint::Udp { port: own.local_addr().unwrap().port() };
            let Ok(mut tap) = Tap::open(&endpoint) else { return takt_witness::skip!("no CAP_NET_RAW") };
            let robot = UdpSocket::bind(address).unwrap();
            let other = UdpSocket::bind(address).unwrap();
            robot.send_to(b"state", own.local_addr().unwrap()).unwrap();
            robot.send_to(b"another", other.local_addr().unwrap()).unwrap();
            own.send_to(b"answer", robot.local_addr().unwrap()).unwrap();
            let mut seen = Vec::new();
            for _ in 0..500 {
                seen.extend(tap.drain());
                if seen.len() >= 2 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let seen: Vec<(bool, &[u8])> =
                seen.iter().map(|one| (one.incoming, &one.data[..one.data_bytes])).collect();
            assert_eq!(seen, [(true, b"state".as_slice()), (false, b"answer")], "{address}");
        }
    }

    #[test]
    fn what_passes_two_interfaces_counts_once_where_the_wire_is() {
        let endpoint = Endpoint::Udp { port: 50002 };
        let at = |time_ns: u64, bytes: &[u8], outgoing: bool| Packet {
            time_ns,
            ..parsed(bytes, &endpoint, outgoing).unwrap()
        };
        let (state, answer) = (udp(7, 50002, b"state"), udp(50002, 7, b"answer"));
        // In: wire, then VLAN, by one stamp; out: VLAN, then wire. The same again a millisecond
        // later.
        let mut packets = Vec::new();
        for begin_ns in [0, 1_000_000] {
            packets.push((at(begin_ns, &state, false), false));
            packets.push((at(begin_ns, &state, false), true));
            packets.push((at(begin_ns + 500_000, &answer, true), true));
            packets.push((at(begin_ns + 510_000, &answer, true), false));
        }
        let times: Vec<u64> = once(packets.clone()).iter().map(|packet| packet.time_ns).collect();
        assert_eq!(times, [0, 510_000, 1_000_000, 1_510_000]);
        // If the wire shows nothing (its driver tags packets after the tap), the packet's content
        // has to do.
        packets.retain(|one| one.1);
        assert_eq!(once(packets).len(), 4);
    }

    #[test]
    fn acknowledgements_are_none_and_the_robot_s_address_counts() {
        let mut bytes = vec![0x45, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes.extend(30004_u16.to_be_bytes());
        bytes.extend([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let endpoint = |host: [u8; 4]| Endpoint::Tcp { host: IpAddr::from(host), port: 30004 };
        let packet = parsed(&bytes, &endpoint([10, 0, 0, 1]), false).unwrap();
        assert!(packet.incoming && packet.data[..packet.data_bytes] == [1, 2, 3, 4]);
        assert_eq!(parsed(&bytes, &endpoint([10, 0, 0, 9]), false), None);
        bytes[3] = 40;
        assert_eq!(parsed(&bytes[..40], &endpoint([10, 0, 0, 1]), false), None);
        bytes[33] = 0x11;
        let end = parsed(&bytes[..40], &endpoint([10, 0, 0, 1]), false).unwrap();
        assert!(end.closes && end.data_bytes == 0);
    }
}
