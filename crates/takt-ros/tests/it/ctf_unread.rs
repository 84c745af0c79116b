//! A stream of which a part cannot be read while others go on: a gap with its length, in which
//! nothing that happened is handed out.

#![allow(clippy::single_range_in_vec_init, reason = "a list of gaps may have one")]

use std::fs;
use std::path::Path;

use takt_ros::ctf::{PacketProblem, Recording};
use takt_ros::{Event, GapCause, Kind, Source};

use crate::support::{Header, Packet, metadata, write};

const MS: u64 = 1_000_000;
/// Content of a packet before its first event.
const HEAD_BYTES: usize = 84;
const PACKET_BYTES: usize = 16_384;

/// A packet of one callback each millisecond, of as many milliseconds.
fn packet(cpu: u64, sequence: u64, from_ms: u64, count: u64) -> Packet {
    let mut packet = Packet { sequence, ..Packet::new(Header::Large, cpu, from_ms * MS) };
    for ms in from_ms..from_ms + count {
        packet.callback_start(ms * MS, 7 + cpu as u32, ms);
    }
    packet
}

/// Two CPUs, of which the second one has nothing wrong: 0 to 300 ms in packets of 100 ms.
fn file(cpu: u64) -> Vec<u8> {
    (0..3).flat_map(|part| packet(cpu, part, 1000 + part * 100, 100).bytes(PACKET_BYTES)).collect()
}

struct Read {
    /// Milliseconds of callbacks, by thread.
    starts: [Vec<u64>; 2],
    /// From, to, in microseconds.
    gaps: Vec<(u64, u64)>,
    problems: Vec<PacketProblem>,
}

fn read(folder: &Path) -> Read {
    let mut recording = Recording::open(folder).unwrap();
    let mut events: Vec<Event> = Vec::new();
    while !recording.ended() {
        recording.poll(&mut |event| events.push(event)).unwrap();
    }
    let back = events.windows(2).find(|pair| pair[0].at_ns > pair[1].at_ns);
    assert_eq!(back, None, "{:?}", recording.damages());
    let of = |tid: u32| {
        let starts = events.iter().filter(|event| event.tid == tid);
        let starts = starts.filter(|event| matches!(event.kind, Kind::CallbackStart { .. }));
        starts.map(|event| event.at_ns / MS).collect::<Vec<_>>()
    };
    let gaps = events.iter().filter_map(|event| match event.kind {
        Kind::Gap { from_ns, why: GapCause::Unreadable } => Some((from_ns / 1000, event.at_ns / 1000)),
        _ => None,
    });
    Read {
        starts: [of(7), of(8)],
        gaps: gaps.collect(),
        problems: recording.damages().iter().map(|damage| damage.problem.clone()).collect(),
    }
}

fn read_files(files: [Vec<u8>; 2]) -> Read {
    let scratch = tempfile::tempdir().unwrap();
    let [first, second] = files;
    write(scratch.path(), &metadata(Header::Large), &[("c_0", first), ("c_1", second)]);
    read(scratch.path())
}

/// Milliseconds of the recording.
fn all(ranges: &[std::ops::Range<u64>]) -> Vec<u64> {
    ranges.iter().cloned().flatten().collect()
}

#[test]
fn a_recording_that_is_whole_has_no_gap() {
    let read = read_files([file(0), file(1)]);
    assert_eq!((read.gaps, read.problems), (vec![], vec![]));
    assert_eq!(read.starts, [all(&[1000..1300]), all(&[1000..1300])]);
}

#[test]
fn what_is_behind_an_unreadable_head_is_a_gap_to_the_end() {
    let offsets: [(usize, [u8; 8]); 3] = [
        (0, [0; 8]),
        // Another trace's identity.
        (4, [0xee; 8]),
        // A size that cannot be.
        (56, [0xff; 8]),
    ];
    for (offset, bytes) in offsets {
        let mut first = file(0);
        first[PACKET_BYTES + offset..][..8].copy_from_slice(&bytes);
        let read = read_files([first, file(1)]);
        assert_eq!(read.gaps, [(1_099_000, 1_299_000)], "at byte {offset}");
        assert_eq!(read.problems.len(), 1);
        // The last stamp of the first packet is that of its last event.
        assert_eq!(read.starts, [all(&[1000..1100]), all(&[1000..1100, 1299..1300])], "at byte {offset}");
    }
}

#[test]
fn a_damaged_packet_is_a_gap_from_its_last_good_event_to_its_end() {
    for letters in [0xff_u8, 0x55, 0x00] {
        let mut first = file(0);
        let event_bytes = (packet(0, 0, 0, 100).body.len()) / 100;
        // From the fifty-first event of the second packet on; a name that is zeroed is still one.
        let at = PACKET_BYTES + HEAD_BYTES + 50 * event_bytes;
        first[at..at + 203].fill(letters);
        let read = read_files([first, file(1)]);
        // What was overwritten may look like an event or two of the same time.
        let [(from_us, to_us)] = read.gaps[..] else { panic!("{letters:#x}: {:?}", read.gaps) };
        assert!((1_149_000..1_156_000).contains(&from_us), "{letters:#x}: {from_us}");
        assert_eq!(to_us, 1_199_000);
        assert_eq!(read.problems.len(), 1, "{:?}", read.problems);
        let from_ms = from_us.div_ceil(1000);
        assert_eq!(read.starts[1], all(&[1000..from_ms + 1, 1199..1300]), "{letters:#x}");
        assert_eq!(read.starts[0][..150], all(&[1000..1150]), "{letters:#x}");
        assert_eq!(read.starts[0].iter().filter(|ms| **ms >= 1200).count(), 100, "{letters:#x}");
    }
}

#[test]
fn a_file_that_is_cut_off_is_a_gap_from_its_last_event_to_the_end() {
    let mut first = file(0);
    let event_bytes = (packet(0, 0, 0, 100).body.len()) / 100;
    first.truncate(PACKET_BYTES + HEAD_BYTES + 20 * event_bytes + 3);
    let read = read_files([first, file(1)]);
    assert_eq!(read.gaps, [(1_119_000, 1_299_000)]);
    assert_eq!(read.starts, [all(&[1000..1120]), all(&[1000..1120, 1299..1300])]);
}

/// An index as LTTng writes it, of packets of one size.
fn index(packets: u64) -> Vec<u8> {
    let mut index: Vec<u8> = [0xc1f1_dcc1_u32, 1, 1, 72].iter().flat_map(|word| word.to_be_bytes()).collect();
    for number in 0..packets {
        let bits = PACKET_BYTES as u64 * 8;
        for field in [number * PACKET_BYTES as u64, bits, bits, 0, 0, 0, 0, 0, number] {
            index.extend(field.to_be_bytes());
        }
    }
    index
}

#[test]
fn packets_that_only_the_index_knows_are_a_gap() {
    let gaps = |packets: usize, index: Vec<u8>| {
        let scratch = tempfile::tempdir().unwrap();
        let first = file(0)[..packets * PACKET_BYTES].to_vec();
        write(scratch.path(), &metadata(Header::Large), &[("c_0", first), ("c_1", file(1))]);
        fs::create_dir(scratch.path().join("index")).unwrap();
        fs::write(scratch.path().join("index/c_0.idx"), index).unwrap();
        let read = read(scratch.path());
        assert_eq!(read.problems, []);
        read.gaps
    };
    assert_eq!(gaps(1, index(3)), [(1_099_000, 1_299_000)]);
    assert_eq!(gaps(2, index(3)), [(1_199_000, 1_299_000)]);
    assert_eq!(gaps(3, index(3)), []);
    // A stream may have been quiet; and an index that is none says nothing.
    assert_eq!(gaps(1, index(1)), []);
    let mut other = index(3);
    other[0] = 0;
    assert_eq!(gaps(1, other), []);
    let mut holed = index(3);
    holed[16 + 72 + 7] = 1;
    assert_eq!(gaps(1, holed), []);
    assert_eq!(gaps(1, index(3)[..40].to_vec()), []);
}

/// Stamps of packets that say nothing (all zero), or contradict each other, hide no event.
#[test]
fn packets_without_times_of_their_own_are_read_whole() {
    let stamped = |begin: u64, end: u64| {
        let mut first = file(0);
        for part in 0..3 {
            let at = part * PACKET_BYTES + 32;
            first[at..at + 8].copy_from_slice(&begin.to_le_bytes());
            first[at + 8..at + 16].copy_from_slice(&end.to_le_bytes());
        }
        let scratch = tempfile::tempdir().unwrap();
        write(scratch.path(), &metadata(Header::Large), &[("c_0", first)]);
        let read = read(scratch.path());
        assert_eq!((read.gaps, read.problems), (vec![], vec![]), "{begin} {end}");
        read.starts[0].len()
    };
    assert_eq!(stamped(0, 0), 300);
    assert_eq!(stamped(0, 1), 300);
}

/// A packet whose end is wrong, and whose events are right, costs nothing.
#[test]
fn a_packet_that_can_be_read_whole_is_believed_whatever_its_end_says() {
    let mut first = Packet { sequence: 0, ..Packet::new(Header::Large, 0, 1000 * MS) };
    for ms in (1000..9000).step_by(100) {
        first.callback_start(ms * MS, 7, ms);
    }
    first.end = 1000 * MS;
    let next = packet(0, 1, 9000, 1).bytes(PACKET_BYTES);
    let read = read_files([[first.bytes(PACKET_BYTES), next].concat(), file(1)]);
    assert_eq!((read.gaps, read.problems), (vec![], vec![]));
    assert_eq!(read.starts[0].len(), 81);
}
