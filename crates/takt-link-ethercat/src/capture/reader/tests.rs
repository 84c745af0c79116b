use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::capture::Writer;
use crate::frame::{FrameBuilder, command};
use proptest::prelude::*;

fn frame() -> Vec<u8> {
    let mut frame = FrameBuilder::new([0x10; 6]);
    frame.push(command::LRW, 3, 0, 8).unwrap().fill(0);
    frame.finish().to_vec()
}

fn file() -> Vec<u8> {
    let interfaces = [("eth0", Side::Master), ("eth1", Side::Segment)];
    let mut writer = Writer::new(Vec::new(), &interfaces).unwrap();
    for at in 0..10_u64 {
        let time_ns = 1_700_000_000_000_000_000 + at * 123_457;
        writer.packet(usize::from(at % 2 == 1), time_ns, Some(at % 2 == 0), &frame()).unwrap();
    }
    writer.statistics(1, 3).unwrap();
    writer.into_inner()
}

#[test]
fn what_is_written_is_read_to_the_nanosecond() {
    let mut seen = Vec::new();
    let facts = read_from(&file()[..], &mut |packet| {
        assert_eq!(packet.frame, frame());
        seen.push((packet.number, packet.time_ns, packet.side, packet.outgoing));
    })
    .unwrap();
    assert_eq!(seen.len(), 10);
    assert_eq!(seen[3], (4, 1_700_000_000_000_370_371, Side::Segment, Some(false)));
    assert_eq!(facts.cut, None);
    let names: Vec<_> =
        facts.interfaces.iter().map(|i| (i.name.as_str(), i.side, i.frames, i.dropped)).collect();
    assert_eq!(names, [("eth0", Side::Master, 5, None), ("eth1", Side::Segment, 5, Some(3))]);
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let monotonic = takt_rt::clock::monotonic_ns() as i64;
    assert!((facts.clock_offset_ns.unwrap() - (real - monotonic)).abs() < 1_000_000_000);
}

#[test]
fn a_file_that_breaks_off_is_read_that_far() {
    let whole = file();
    let mut frames = 0;
    let facts = read_from(&whole[..whole.len() * 3 / 4], &mut |_| frames += 1).unwrap();
    assert!((3..10).contains(&frames) && facts.cut.is_some(), "{frames} {:?}", facts.cut);
    for what in [&b""[..], b"\x0A\x0D\x0D\x0A", b"no capture at all, but long enough for a header"] {
        let error = read_from(what, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("pcapng"), "{error}");
    }
    assert!(read(Path::new("/dev/zero"), &mut |_| {}).unwrap_err().to_string().contains("/dev/zero"));
}

#[test]
fn old_captures_are_read_and_other_link_types_refused() {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    let bytes = frame();
    writer
        .write_packet(&PcapPacket::new(Duration::from_micros(5), bytes.len() as u32, &bytes).unwrap())
        .unwrap();
    let mut times = Vec::new();
    read_from(&writer.into_inner()[..], &mut |packet| times.push(packet.time_ns)).unwrap();
    assert_eq!(times, [5000]);
    let header = PcapHeader { datalink: DataLink::LINUX_SLL, ..PcapHeader::default() };
    let writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    let error = read_from(&writer.into_inner()[..], &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("any"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_from(&bytes[..], &mut |_| {});
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0_usize..2000, value in any::<u8>(), end in 0_usize..2000) {
        let mut bytes = file();
        let length = bytes.len();
        bytes[at % length] = value;
        bytes.truncate(length - end % 40);
        let _ = read_from(&bytes[..], &mut |_| {});
    }
}

/// An old capture of `packets` as `link`, each said to be `more` bytes longer on the wire.
fn old(link: DataLink, packets: &[&[u8]], more: u32) -> Vec<u8> {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    let header = PcapHeader { datalink: link, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (at, bytes) in packets.iter().enumerate() {
        let time = Duration::from_micros(at as u64);
        writer.write_packet(&PcapPacket::new(time, bytes.len() as u32 + more, *bytes).unwrap()).unwrap();
    }
    writer.into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn packed_captures_are_read_as_far_as_the_limit() {
    let plain = old(DataLink::ETHERNET, &[frame().as_slice(); 20], 0);
    let packed = gzip(&plain);
    let mut frames = 0;
    let facts = read_from(&packed[..], &mut |_| frames += 1).unwrap();
    assert_eq!((frames, facts.cut), (20, None));
    // Members one behind the other, as `cat a.gz b.gz` makes them, are one content.
    let (first, second) = plain.split_at(plain.len() / 2);
    let members = [gzip(first), gzip(second)].concat();
    let mut frames = 0;
    assert_eq!(read_from(&members[..], &mut |_| frames += 1).unwrap().cut, None);
    assert_eq!(frames, 20);
    // A pcapng file in it, and one that breaks off.
    let mut frames = 0;
    read_from(&gzip(&file())[..], &mut |_| frames += 1).unwrap();
    assert_eq!(frames, 10);
    let broken = &packed[..packed.len() - 12];
    assert!(read_from(broken, &mut |_| {}).map_or(true, |facts| facts.cut.is_some()));
    // A bomb.
    let facts = unpacked(&packed[..], 500, &mut |_| {}).unwrap();
    assert!(facts.cut.as_deref().is_some_and(|cut| cut.contains("only the first")), "{facts:?}");
    let twice = read_from(&gzip(&packed)[..], &mut |_| {}).unwrap_err().to_string();
    assert!(twice.contains("gzip within gzip"), "{twice}");
    assert!(read_from(&gzip(b"no capture, long enough for one")[..], &mut |_| {}).is_err());
    assert!(read_from(&[0x1F, 0x8B, 8, 0][..], &mut |_| {}).unwrap_err().to_string().contains("gzip"));
}

#[test]
fn what_is_packed_or_recorded_otherwise_is_named_with_the_way_out() {
    for (bytes, words) in [
        (&[0x28, 0xB5, 0x2F, 0xFD, 0, 0][..], ["zstd", "zstd -d"]),
        (&[0xFD, b'7', b'z', b'X', b'Z', 0], ["xz", "xz -d"]),
        (b"BZh91AY", ["bzip2", "bzip2 -d"]),
        (b"GMBU\x03\x01", ["Network Monitor", "editcap -F pcapng"]),
        (b"snoop\0\0\0", ["snoop", "editcap -F pcapng"]),
    ] {
        let error = read_from(bytes, &mut |_| {}).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn link_types_are_named() {
    for (link, words) in [
        (DataLink::LINUX_SLL, ["Linux cooked", "113"]),
        (DataLink::from(276), ["Linux cooked", "276"]),
        (DataLink::from(101), ["raw IP", "101"]),
        (DataLink::from(127), ["Wi-Fi", "127"]),
        (DataLink::from(60_000), ["not known here", "60000"]),
    ] {
        let error = read_from(&old(link, &[], 0)[..], &mut |_| {}).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(error.contains("expected Ethernet") && error.contains("any"), "{error}");
    }
    // The card's own four bytes before each frame.
    let wrapped = [&[0x40, 3, 0, 0][..], &frame()].concat();
    let mut frames = 0;
    let facts = read_from(&old(DataLink::from(240), &[&wrapped], 0)[..], &mut |packet| {
        assert_eq!(packet.frame, frame());
        frames += 1;
    });
    assert!(frames == 1 && facts.unwrap().interfaces[0].link_type.contains("netANALYZER"));
}

#[test]
fn an_interface_that_is_no_ethernet_does_not_hide_the_others() {
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::block_common::Block;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
    use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
    let bytes = frame();
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    for link in [DataLink::LINUX_SLL, DataLink::ETHERNET] {
        let block = Block::InterfaceDescription(InterfaceDescriptionBlock::new(link, 0));
        writer.write_block(&block).unwrap();
    }
    for interface_id in [0, 0, 1, 7] {
        let packet = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_micros(3),
            original_len: bytes.len() as u32,
            data: bytes.as_slice().into(),
            options: Vec::new(),
        };
        // A packet of an interface that the file does not describe: as damage may have it.
        let _ = writer.write_block(&Block::EnhancedPacket(packet));
    }
    let simple = SimplePacketBlock { original_len: bytes.len() as u32, data: bytes.as_slice().into() };
    writer.write_block(&Block::SimplePacket(simple)).unwrap();
    let mut frames = 0;
    let facts = read_from(&writer.into_inner()[..], &mut |packet| {
        assert_eq!(packet.interface, 1);
        frames += 1;
    })
    .unwrap();
    let seen: Vec<_> = facts.interfaces.iter().map(|one| (one.foreign_packets, one.frames)).collect();
    assert_eq!((frames, seen, facts.unstamped_packets), (1, vec![(2, 0), (0, 1)], 1), "{facts:?}");
}

#[test]
fn frames_that_the_capture_cut_are_counted() {
    let bytes = frame();
    let mut frames = 0;
    let cut = old(DataLink::ETHERNET, &[&bytes[..30], &bytes[..30], &bytes], 30);
    let facts = read_from(&cut[..], &mut |_| frames += 1).unwrap();
    // The last one lost padding alone.
    assert_eq!((frames, facts.cut_packets, facts.cut_to_bytes), (3, 2, 30));
}

/// A pcap file by its fields, as other programs fill them in.
fn pcap(magic: u32, snap: u32, link: u32, packets: &[(u32, u32, u32)]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[magic, 0x0004_0002, 0, 0, snap, link]);
    for &(seconds, fraction, whole) in packets {
        file.extend(words(&[seconds, fraction, frame().len() as u32, whole]));
        file.extend(frame());
    }
    file
}

fn stamps(file: &[u8]) -> (Vec<u64>, CaptureFacts) {
    let mut stamps = Vec::new();
    let facts = read_from(file, &mut |packet| {
        assert!(packet.frame.starts_with(&frame()));
        stamps.push(packet.time_ns);
    });
    (stamps, facts.unwrap())
}

#[test]
fn lengths_that_contradict_each_other_hide_no_packet() {
    let length = frame().len() as u32;
    let packets = [(3, 5, length), (3, 9, length)];
    let expected = vec![3_000_005_000, 3_000_009_000];
    // No snap length, one that is too short, and a length on the wire below the captured one.
    for (snap, packets) in [(0, packets), (40, packets), (65535, [(3, 5, length - 4), (3, 9, 0)])] {
        let (found, facts) = stamps(&pcap(0xA1B2_C3D4, snap, 1, &packets));
        assert_eq!((found, facts.cut), (expected.clone(), None), "{snap}");
    }
    // The link type with the length of the checksum in the bits above it: 2 halves of a word.
    let (found, _) = stamps(&pcap(0xA1B2_C3D4, 0, 0x2400_0001, &packets));
    assert_eq!(found, expected);
    // A fraction of a whole second, by a program that rounds.
    let (found, _) = stamps(&pcap(0xA1B2_C3D4, 0, 1, &[(3, 1_000_000, length)]));
    assert_eq!(found, [4_000_000_000]);
}

#[test]
fn files_that_are_no_pcap_say_what_may_read_them() {
    let refused = |bytes: &[u8]| read_from(bytes, &mut |_| {}).unwrap_err().to_string();
    for patched in [0xA1B2_CD34_u32, 0xA1B2_CD34_u32.swap_bytes()] {
        let error = refused(&pcap(patched, 0, 1, &[]));
        assert!(error.contains("Kuznetsov") && error.contains("editcap -F pcapng"), "{error}");
    }
    let error = refused(b"+---------+---------------");
    assert!(error.contains("`+-------`") && error.contains("editcap -F pcapng"), "{error}");
    assert!(refused(b"").contains("it is empty"));
    // Heads of 24 bytes, as Nokia writes them: the next one is read as a stamp of years.
    let mut variant = pcap(0xA1B2_C3D4, 65535, 1, &[(1_700_000_000, 5, 64)]);
    variant.splice(24 + 16..24 + 16, [0; 4]);
    variant.extend(pcap(0, 0, 0, &[(1_700_000_000, 5, 64)]).split_off(24));
    let (_, facts) = stamps(&variant[..24]);
    assert_eq!(facts.cut, None);
    let facts = read_from(&variant[..], &mut |_| {}).unwrap();
    assert!(facts.cut.unwrap().contains("which is impossible in pcap"));
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_be_bytes();
    [&kind.to_be_bytes()[..], &length, &body, &length].concat()
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = [code.to_be_bytes(), (value.len() as u16).to_be_bytes()].concat();
    option.extend(value);
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

/// A file of the other byte order with these options of its interface, and packets whose stamps are
/// `units`, each with options of its own.
fn other_order(interface: &[u8], packets: &[(u64, &[u8])]) -> Vec<u8> {
    let mut file = block(0x0A0D_0D0A, &[&[0x1A, 0x2B, 0x3C, 0x4D, 0, 1, 0, 0][..], &[0xFF; 8]].concat());
    file.extend(block(1, &[&[0, 1, 0, 0, 0, 0, 0, 0][..], interface].concat()));
    for (units, options) in packets {
        let length = (frame().len() as u32).to_be_bytes();
        file.extend(block(
            6,
            &[&[0; 4][..], &units.to_be_bytes(), &length, &length, &frame(), options].concat(),
        ));
    }
    file
}

#[test]
fn stamps_of_any_resolution_and_order_are_read() {
    for (resolution, units) in [
        (6, 3_000_000_u64),
        (9, 3_000_000_000),
        (12, 3_000_000_000_000),
        (0x80 | 32, 3 << 32),
        (0x80 | 20, 3 << 20),
    ] {
        let options = [option(9, &[resolution]), option(14, &100_i64.to_be_bytes())].concat();
        let (found, facts) = stamps(&other_order(&options, &[(units, &[])]));
        assert_eq!((found, facts.cut), (vec![103_000_000_000], None), "{resolution}");
    }
}

#[test]
fn what_is_wrong_in_one_block_hides_nothing_of_the_next() {
    // Latin-1, as older programs write names and comments; and an option that goes beyond its
    // block.
    let german = option(1, b"ger\xE4t");
    let beyond = [&[0, 1, 0xFF, 0xFF][..], &[0; 4]].concat();
    let name = [option(2, b"Netzwerkkarte f\xFCr EtherCAT"), option(9, &[9])].concat();
    let incoming = [german.clone(), option(2, &1_u32.to_be_bytes())].concat();
    let mut file = other_order(&name, &[(1, &german), (2, &beyond), (3, &incoming)]);
    // A packet of an interface that is not there, one that says it is longer than its block, and a
    // block of a kind that nobody knows.
    file.extend(block(6, &[[0, 0, 0, 9], [0; 4], [0; 4], [0; 4], [0; 4]].concat()));
    file.extend(block(6, &[[0; 4], [0; 4], [0; 4], [0xFF; 4], [0; 4]].concat()));
    file.extend(block(0x7777, b"what"));
    let length = (frame().len() as u32).to_be_bytes();
    file.extend(block(6, &[&[0; 8][..], &4_u32.to_be_bytes(), &length, &[0; 4], &frame()].concat()));
    // A section of the usual order behind it.
    file.extend(self::file());
    let mut directions = Vec::new();
    let facts = read_from(&file[..], &mut |packet| directions.push(packet.outgoing)).unwrap();
    assert_eq!(directions[..4], [None, None, Some(false), None]);
    assert_eq!((directions.len(), facts.damaged_packets, facts.cut), (14, 2, None));
    assert!(facts.interfaces[0].name.starts_with("Netzwerkkarte f"));
    // A block whose length cannot be is where reading ends.
    let mut broken = self::file();
    let end = broken.len();
    broken.extend([0, 0, 0, 6, 0, 0, 0, 13, 0, 0]);
    let facts = read_from(&broken[..], &mut |_| {}).unwrap();
    let cut = facts.cut.unwrap();
    assert!(cut.contains("a block of 13 bytes") && cut.contains(&end.to_string()), "{cut}");
}
