//! Carriers of EtherCAT in an Ethernet frame: the frame itself, VLAN tags, or UDP (ETG.1000.4,
//! section 5.3).

use super::ETHERCAT;

/// UDP port of EtherCAT: the same number as its EtherType.
const UDP_PORT: u16 = ETHERCAT;
/// EtherTypes of VLAN tags: 802.1Q, 802.1ad, and what switches used for stacked tags before it.
const TAGS: [u16; 4] = [0x8100, 0x88A8, 0x9100, 0x9200];
/// Tags that are followed. Two are in use (QinQ); frames of a fuzzer may be tags throughout.
pub(crate) const MAX_TAGS: usize = 4;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const UDP: u8 = 17;

/// Place of EtherCAT in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Offset of the EtherCAT header.
    pub at: usize,
    /// Source and destination port, where UDP carries it.
    pub ports: Option<(u16, u16)>,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

/// Place of EtherCAT in the Ethernet frame `frame`; `None` for another protocol.
pub(crate) fn find(frame: &[u8]) -> Option<Carried> {
    let mut at = 12;
    for _ in 0..=MAX_TAGS {
        match be16(frame, at)? {
            ETHERCAT => return Some(Carried { at: at + 2, ports: None }),
            IPV4 => return over_ipv4(frame, at + 2),
            IPV6 => return over_ipv6(frame, at + 2),
            tag if TAGS.contains(&tag) => at += 4,
            _ => return None,
        }
    }
    None
}

/// Whether `frame` has more tags than are followed: what it carries is not known.
pub(crate) fn has_more_tags(frame: &[u8]) -> bool {
    (0..=MAX_TAGS).all(|tag| be16(frame, 12 + 4 * tag).is_some_and(|kind| TAGS.contains(&kind)))
}

fn over_ipv4(frame: &[u8], at: usize) -> Option<Carried> {
    let first = *frame.get(at)?;
    let header = usize::from(first & 0x0F) * 4;
    let is_fragment = be16(frame, at + 6)? & 0x3FFF != 0;
    if first >> 4 != 4 || header < 20 || is_fragment || *frame.get(at + 9)? != UDP {
        return None;
    }
    over_udp(frame, at + header)
}

fn over_ipv6(frame: &[u8], at: usize) -> Option<Carried> {
    // Extension headers are not followed: no master sends them.
    (*frame.get(at)? >> 4 == 6 && *frame.get(at + 6)? == UDP).then(|| over_udp(frame, at + 40))?
}

fn over_udp(frame: &[u8], at: usize) -> Option<Carried> {
    let ports = (be16(frame, at)?, be16(frame, at + 2)?);
    (ports.0 == UDP_PORT || ports.1 == UDP_PORT).then_some(Carried { at: at + 8, ports: Some(ports) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kinds: &[u16]) -> Vec<u8> {
        let mut frame = vec![0xFF; 12];
        for (place, kind) in kinds.iter().enumerate() {
            if place > 0 {
                frame.extend([0, 7]);
            }
            frame.extend(kind.to_be_bytes());
        }
        frame
    }

    #[test]
    fn stacked_tags_are_followed() {
        let at = |kinds: &[u16]| find(&frame(kinds)).map(|carried| carried.at);
        assert_eq!(at(&[ETHERCAT]), Some(14));
        assert_eq!(at(&[0x8100, ETHERCAT]), Some(18));
        assert_eq!(at(&[0x88A8, 0x8100, ETHERCAT]), Some(22));
        assert_eq!(at(&[0x9100, 0x8100, ETHERCAT]), Some(22));
        assert_eq!(at(&[0x8100; 9]), None);
        // Four at most; with more of them nothing is known.
        let tagged = |tags: usize| frame(&[&vec![0x8100; tags][..], &[ETHERCAT]].concat());
        for tags in 0..=6 {
            let found = (find(&tagged(tags)).is_some(), has_more_tags(&tagged(tags)));
            assert_eq!(found, (tags <= MAX_TAGS, tags > MAX_TAGS), "{tags}");
        }
        assert_eq!(at(&[0x0806]), None);
        assert_eq!(at(&[0x8100]), None);
    }

    #[test]
    fn udp_carries_ethercat_at_its_port_alone() {
        let packet = |protocol: u8, fragment: u16, to: u16| {
            let mut frame = frame(&[0x8100, IPV4]);
            frame.extend([0x46, 0, 0, 60, 0, 0]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, protocol]);
            frame.extend([0; 14]);
            frame.extend(5000_u16.to_be_bytes());
            frame.extend(to.to_be_bytes());
            frame.extend([0; 4]);
            find(&frame)
        };
        let expected = Carried { at: 18 + 24 + 8, ports: Some((5000, UDP_PORT)) };
        assert_eq!(packet(UDP, 0x4000, UDP_PORT), Some(expected));
        assert_eq!(packet(6, 0, UDP_PORT), None);
        assert_eq!(packet(UDP, 0x2000, UDP_PORT), None);
        assert_eq!(packet(UDP, 3, UDP_PORT), None);
        assert_eq!(packet(UDP, 0, 53), None);
        let mut six = frame(&[IPV6]);
        six.extend([0x60, 0, 0, 0, 0, 40, UDP, 64]);
        six.extend([0; 32]);
        six.extend(UDP_PORT.to_be_bytes());
        six.extend(UDP_PORT.to_be_bytes());
        assert_eq!(find(&six), Some(Carried { at: 62, ports: Some((UDP_PORT, UDP_PORT)) }));
    }

    proptest! {
        #[test]
        fn no_frame_is_read_beyond_its_end(frame in proptest::collection::vec(any::<u8>(), 0..80), kind in 0_usize..4) {
            let mut frame = frame;
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&[IPV4, IPV6, TAGS[0], ETHERCAT][kind].to_be_bytes());
            }
            let _ = find(&frame);
        }
    }
}
