use super::*;
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
