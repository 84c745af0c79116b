//! Link types of captures: what a packet's bytes begin with.

use pcap_file::DataLink;

/// Ethernet, in the words of [`name`].
pub(super) const ETHERNET: &str = "Ethernet (ETHERNET, 1)";
/// Hilscher's capture card puts four bytes of its own before each frame.
const NETANALYZER: &str = "Hilscher netANALYZER (NETANALYZER, 240)";
const NETANALYZER_BYTES: usize = 4;

/// Common name of a link type, its name in `pcap-linktype(7)`, and its number.
pub(super) fn name(link: DataLink) -> String {
    let number = u32::from(link);
    let known = match number {
        0 | 108 => "loopback of BSD",
        1 => return ETHERNET.to_owned(),
        12 | 14 | 101 => "raw IP (a tunnel, without Ethernet frames)",
        105 => "Wi-Fi",
        113 => "Linux cooked capture",
        127 => "Wi-Fi with radiotap headers",
        189 | 220 => "USB of Linux",
        197 => "Endace ERF",
        227 => "CAN of Linux",
        228 => "raw IPv4",
        229 => "raw IPv6",
        240 => return NETANALYZER.to_owned(),
        241 => "Hilscher netANALYZER in transparent mode",
        276 => return "Linux cooked capture, version 2 (LINUX_SLL2, 276)".to_owned(),
        _ => "not known here",
    };
    match link {
        DataLink::Unknown(_) => format!("{known} ({number})"),
        named => format!("{known} ({named:?}, {number})"),
    }
}

/// Whether packets of `link_type` hold Ethernet frames.
pub(super) fn is_read(link_type: &str) -> bool {
    [ETHERNET, NETANALYZER].contains(&link_type)
}

/// The Ethernet frame in a packet of `link_type`; `None` where it holds none.
pub(super) fn ethernet<'a>(link_type: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    match link_type {
        ETHERNET => Some(bytes),
        NETANALYZER => Some(bytes.get(NETANALYZER_BYTES..).unwrap_or_default()),
        _ => None,
    }
}
