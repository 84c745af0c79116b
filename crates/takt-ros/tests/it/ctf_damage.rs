//! Traces of which every byte is known: stamps that wrap, losses, and everything that can be
//! broken.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use support::{Header, Packet, id, metadata, write};
use takt_ros::ctf::{Error, Live, MetadataProblem, PacketProblem, Recording, Records, Unusable};
use takt_ros::{Event, Kind, Source};

fn read(folder: &Path) -> (Vec<Event>, Recording) {
    let mut recording = Recording::open(folder).expect("a recording");
    let mut events = Vec::new();
    while !recording.ended() {
        recording.poll(&mut |event| events.push(event)).expect("events");
    }
    (events, recording)
}

/// Times, and what happened then.
type Times = Vec<(u64, u64)>;

/// Callbacks that started; losses with their counts.
fn starts(events: &[Event]) -> (Times, Times) {
    let mut starts = Vec::new();
    let mut losses = Vec::new();
    for event in events {
        match event.kind {
            Kind::CallbackStart { callback, .. } => starts.push((event.at_ns, callback)),
            Kind::Lost { count } => losses.push((event.at_ns, count)),
            _ => {}
        }
    }
    (starts, losses)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn short_stamps_wrap_and_long_ones_follow_long_silence() {
    for header in [Header::Compact, Header::Large] {
        let bits = if header == Header::Compact { 27 } else { 32 };
        let scratch = scratch();
        // Just before the short stamp wraps.
        let begin = (5_u64 << bits) - 10;
        let times = [
            begin,
            begin + 9,
            begin + 10,
            begin + 11,
            begin + (1 << bits) - 1,
            begin + (3 << bits),
            begin + (3 << bits),
        ];
        let mut packet = Packet::new(header, 0, begin);
        for (callback, at) in times.iter().enumerate() {
            packet.callback_start(*at, 7, callback as u64);
        }
        write(scratch.path(), &metadata(header), &[("c_0", packet.bytes(4096))]);
        let (events, recording) = read(scratch.path());
        assert_eq!(recording.damages(), []);
        let expected: Vec<_> =
            times.iter().enumerate().map(|(callback, at)| (*at, callback as u64)).collect();
        assert_eq!(starts(&events), (expected, vec![]));
    }
}

#[test]
fn streams_are_merged_by_time() {
    let scratch = scratch();
    let mut streams = Vec::new();
    for stream in 0..5_u64 {
        let mut file = Vec::new();
        for packet in 0..4 {
            let mut open =
                Packet { sequence: packet, ..Packet::new(Header::Large, stream, 1000 + packet * 500) };
            for event in 0..50 {
                let at = 1000 + packet * 500 + event * 10 + stream * 3 % 7;
                open.callback_start(at, stream as u32, at);
            }
            file.extend(open.bytes(8192));
        }
        streams.push((format!("c_{stream}"), file));
    }
    let streams: Vec<_> = streams.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    write(scratch.path(), &metadata(Header::Large), &streams);
    let (events, _) = read(scratch.path());
    let (starts, losses) = starts(&events);
    assert_eq!((starts.len(), losses.len()), (1000, 0));
    assert!(starts.is_sorted());
    assert!(starts.iter().all(|(at, callback)| at == callback));
}

#[test]
fn losses_stand_where_they_happened() {
    let scratch = scratch();
    let packet = |sequence, discarded, begin| {
        let mut packet = Packet { sequence, discarded, ..Packet::new(Header::Large, 3, begin) };
        packet.callback_start(begin + 5, 1, sequence);
        packet.bytes(4096)
    };
    let file = [
        packet(0, 2, 1000),
        packet(1, 2, 2000),
        packet(2, 9, 3000),
        // Not counted: LTTng leaves the counter at zero now and then.
        packet(3, 0, 3500),
        packet(4, 12, 3600),
        // Packets 5 and 6 were overwritten.
        packet(7, 12, 4000),
    ];
    write(scratch.path(), &metadata(Header::Large), &[("c_0", file.concat())]);
    let (starts, losses) = starts(&read(scratch.path()).0);
    assert_eq!(starts, [(1005, 0), (2005, 1), (3005, 2), (3505, 3), (3605, 4), (4005, 7)]);
    assert_eq!(losses, [(1000, 2), (3000, 7), (3600, 3), (4000, 0)]);
}

#[test]
fn threads_are_named_once_and_again_when_renamed() {
    let scratch = scratch();
    let mut packet = Packet::new(Header::Large, 0, 10);
    for (at, tid, name) in [
        (10, 1, "one"),
        (11, 1, "one"),
        (12, 2, "two"),
        (13, 1, "one"),
        (14, 1, "uno"),
        (15, 2, "two"),
        (16, 1, "uno"),
    ] {
        packet.stamp(id::CALLBACK_END, at).context(5, tid, name).u64(1);
    }
    write(scratch.path(), &metadata(Header::Large), &[("c_0", packet.bytes(0))]);
    let names: Vec<_> = read(scratch.path())
        .0
        .into_iter()
        .filter_map(|event| match event.kind {
            Kind::ThreadName { name } => Some((event.at_ns, event.tid, name.to_string())),
            _ => None,
        })
        .collect();
    assert_eq!(names, [(10, 1, "one".into()), (12, 2, "two".into()), (14, 1, "uno".into())]);
}

#[test]
fn a_file_cut_anywhere_gives_what_it_holds_and_says_so() {
    let whole: Vec<Vec<u8>> = (0..3_u64)
        .map(|sequence| {
            let mut packet = Packet { sequence, ..Packet::new(Header::Large, 0, 1000 + sequence * 100) };
            for event in 0..5 {
                packet.callback_start(1000 + sequence * 100 + event, 1, event);
            }
            packet.bytes(1024)
        })
        .collect();
    let whole = whole.concat();
    for length in (0..whole.len()).step_by(7).chain([whole.len()]) {
        let scratch = scratch();
        write(scratch.path(), &metadata(Header::Large), &[("c_0", whole[..length].to_vec())]);
        let opened = Recording::open(scratch.path());
        if (1..84).contains(&length) {
            // Not even one packet's header.
            assert!(
                matches!(opened, Err(Error::Stream { problem: PacketProblem::Header { .. }, .. })),
                "{length}"
            );
            continue;
        }
        let (events, recording) = read(scratch.path());
        let (starts, losses) = starts(&events);
        assert!(starts.is_sorted() && starts.len() <= 15);
        // All of the whole packets.
        assert!(starts.len() >= length / 1024 * 5, "{length}: {starts:?}");
        let torn = length % 1024 != 0;
        assert_eq!(losses.is_empty(), !torn, "{length}");
        assert_eq!(recording.damages().is_empty(), !torn, "{length}");
    }
}

#[test]
fn a_damaged_packet_costs_only_itself() {
    let scratch = scratch();
    let packet = |sequence: u64| {
        let mut packet = Packet { sequence, ..Packet::new(Header::Large, 0, 1000 * (sequence + 1)) };
        packet.callback_start(1000 * (sequence + 1) + 5, 1, sequence);
        packet
    };
    let mut unknown = packet(1);
    unknown.stamp(500, 2100).context(1, 1, "x");
    let mut long = packet(2);
    long.stamp(id::NODE_INIT, 3100).context(1, 1, "x").u64(1).u64(2);
    long.body.extend(b"a name that never ends");
    let file = [packet(0).bytes(512), unknown.bytes(512), long.bytes(512), packet(3).bytes(512)].concat();
    write(scratch.path(), &metadata(Header::Large), &[("c_0", file)]);
    let (events, recording) = read(scratch.path());
    let (starts, losses) = starts(&events);
    assert_eq!(starts, [(1005, 0), (2005, 1), (3005, 2), (4005, 3)]);
    assert_eq!(losses.len(), 2);
    let problems: Vec<_> = recording.damages().iter().map(|damage| (damage.at, &damage.problem)).collect();
    assert!(
        matches!(
            problems.as_slice(),
            [(512, PacketProblem::EventId { id: 500, .. }), (1024, PacketProblem::Event { .. })]
        ),
        "{problems:?}"
    );
}

#[test]
fn foreign_streams_are_refused() {
    let scratch = scratch();
    let good = Packet::new(Header::Large, 0, 10).bytes(4096);
    let mut magic = good.clone();
    magic[0] ^= 1;
    let mut uuid = good.clone();
    uuid[7] ^= 1;
    let mut class = good.clone();
    class[20] = 9;
    let mut size = good.clone();
    // More content than packet.
    size[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
    for (bytes, expected) in
        [(magic, "magic"), (uuid, "another trace"), (class, "stream 9"), (size, "content")]
    {
        write(scratch.path(), &metadata(Header::Large), &[("c_0", bytes)]);
        let error = Recording::open(scratch.path()).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("c_0"), "{error}");
    }
    // An absurd packet size that the file has not: nothing is allocated for it.
    let mut huge = good;
    huge[48..56].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    huge[56..64].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    write(scratch.path(), &metadata(Header::Large), &[("c_0", huge)]);
    let (_, recording) = read(scratch.path());
    assert!(matches!(recording.damages()[0].problem, PacketProblem::Size { left_bytes: 4096, .. }));
}

#[test]
fn folders_without_a_trace_say_what_to_give() {
    let scratch = scratch();
    let error = Recording::open(scratch.path()).expect_err("empty");
    assert!(matches!(error, Error::NoTrace { .. }) && error.to_string().contains("ros2 trace"));
    let error = Recording::open(scratch.path().join("nowhere")).expect_err("nowhere");
    assert!(matches!(error, Error::Io { .. }));
    for (metadata, expected) in [
        (&b"\x7fELF\x02\x01"[..], "this is not a CTF trace"),
        (b"\x1e{\"type\":\"preamble\"}", "CTF 2"),
        (b"/* CTF 1.8 */ trace { major = 1; minor", "line 1"),
        (b"", "no trace block"),
        (b"\x57\x1d\xd1\x75 and too short", "cut off"),
    ] {
        fs::write(scratch.path().join("metadata"), metadata).expect("metadata");
        let error = Recording::open(scratch.path()).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("metadata"), "{error}");
    }
    let mut packed = vec![0x57, 0x1d, 0xd1, 0x75];
    packed.resize(64, 0);
    packed[35..37].copy_from_slice(&[2, 0]);
    fs::write(scratch.path().join("metadata"), packed).expect("metadata");
    assert!(matches!(
        Recording::open(scratch.path()),
        Err(Error::MetadataFile { problem: MetadataProblem::Version { major: 2, minor: 0 }, .. })
    ));
}

#[test]
fn contexts_that_are_missing_are_named() {
    let scratch = scratch();
    let text = metadata(Header::Large).replace("_vtid", "_other");
    write(scratch.path(), &text, &[]);
    let error = Recording::open(scratch.path()).expect_err("no thread");
    assert!(
        matches!(error, Error::Unusable { problem: Unusable::NoContext { context: "vtid", .. }, .. }),
        "{error}"
    );
    // Without them the events can still be looked at.
    let mut packet = Packet::new(Header::Large, 0, 10);
    packet.callback_start(10, 5, 6);
    write(scratch.path(), &text, &[("c_0", packet.bytes(0))]);
    let record = Records::open(scratch.path()).expect("records").next().expect("one");
    assert_eq!(record.name, "ros2:callback_start");
    assert_eq!(record.fields.and_then(|fields| fields.field("callback")?.bits()), Some(6));

    // All of one process: the process is in the environment.
    let text =
        metadata(Header::Large).replace("_vpid", "_other").replace("hostname", "vpid = 4711; hostname");
    write(scratch.path(), &text, &[("c_0", packet.bytes(0))]);
    assert!(read(scratch.path()).0.iter().all(|event| event.pid == 4711));
}

#[test]
fn recordings_of_two_boots_are_not_mixed() {
    let scratch = scratch();
    write(&scratch.path().join("a"), &metadata(Header::Large), &[]);
    write(&scratch.path().join("b"), &metadata(Header::Large).replace("f734e23f", "00000000"), &[]);
    let error = Recording::open(scratch.path()).expect_err("two clocks");
    assert!(matches!(error, Error::SeveralClocks { .. }) && error.to_string().contains("one by one"));
}

#[test]
fn a_part_deleted_before_it_was_read_is_a_loss() {
    let scratch = scratch();
    let part = |number: u64, sequence: u64| -> PathBuf {
        let name = format!("20261121T223455+0000-20261121T223456+0000-{number}");
        let mut packet = Packet { sequence, ..Packet::new(Header::Large, 0, 1000 * (number + 1)) };
        packet.callback_start(1000 * (number + 1) + 5, 1, number);
        write(
            &scratch.path().join("archives").join(name).join("ust"),
            &metadata(Header::Large),
            &[("c_0", packet.bytes(512))],
        )
    };
    fs::create_dir(scratch.path().join("current-9")).expect("the part under way");
    part(0, 0);
    part(1, 1);
    let mut live = Live::open(scratch.path()).expect("a session");
    let mut events = Vec::new();
    live.poll(&mut |event| events.push(event)).expect("parts");
    assert_eq!(starts(&events), (vec![(1005, 0), (2005, 1)], vec![]));
    part(4, 7);
    live.poll(&mut |event| events.push(event)).expect("parts");
    assert_eq!(starts(&events).0.len(), 3);
    assert!(!starts(&events).1.is_empty());
    // A part that is broken from its beginning is one more.
    let broken = part(5, 8);
    fs::write(broken.join("metadata"), "nonsense").expect("metadata");
    let before = starts(&events).1.len();
    live.poll(&mut |event| events.push(event)).expect("the session goes on");
    assert_eq!((starts(&events).1.len(), live.failed_parts().len()), (before + 1, 1));
    assert!(!live.ended());
    fs::remove_dir(scratch.path().join("current-9")).expect("the session ends");
    live.poll(&mut |event| events.push(event)).expect("the end");
    assert!(live.ended());
}

/// The real recording's metadata and first stream, to be broken.
fn real() -> (Vec<u8>, Vec<u8>) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/caret-end-to-end/ust/uid/1000/64-bit");
    (fs::read(folder.join("metadata")).expect("metadata"), fs::read(folder.join("ros2_2")).expect("a stream"))
}

/// Reads whatever it is to its end, both ways.
fn devour(metadata: &[u8], stream: &[u8]) {
    let scratch = scratch();
    fs::write(scratch.path().join("metadata"), metadata).expect("metadata");
    fs::write(scratch.path().join("c_0"), stream).expect("a stream");
    if let Ok(mut recording) = Recording::open(scratch.path()) {
        while !recording.ended() {
            recording.poll(&mut |_| {}).expect("no reason to fail");
        }
        for damage in recording.damages() {
            assert!(!damage.problem.to_string().is_empty());
        }
    }
    if let Ok(records) = Records::open(scratch.path()) {
        assert!(records.map(|record| record.to_string().len()).all(|length| length > 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_that_is_broken_breaks_the_reader(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let (metadata, mut stream) = real();
        for (at, byte) in flips {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        if let Some(cut) = cut {
            stream.truncate(cut.index(stream.len()));
        }
        devour(&metadata, &stream);
    }

    #[test]
    fn nothing_that_the_metadata_says_breaks_the_reader(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1_usize..40), 0..3),
    ) {
        let (_, stream) = real();
        let mut text = metadata(Header::Large).into_bytes();
        for (from, to, length) in swaps {
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            let piece: Vec<u8> = text.iter().skip(from).take(length).copied().collect();
            text.splice(to..to, piece);
        }
        for (at, byte) in flips {
            let at = at.index(text.len());
            text[at] = byte % 128;
        }
        devour(&text, &stream);
    }
}

/// The kernel's part of a recording.
fn kernel_metadata() -> String {
    let text = metadata(Header::Large).replace("\"ust\"", "\"kernel\"");
    let events = text.find("event {").expect("events");
    let context = text.find("event.context").expect("a context");
    let end = context + text[context..].find("};").expect("its end") + 2;
    const I: &str = "integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; }";
    format!(
        "{}{} event {{ name = \"sched_switch\"; id = 0; stream_id = 0;
            fields := struct {{ {I} _prev_tid; integer {{ size = 64; align = 8; signed = 1; }} _prev_state; {I} _next_tid; }}; }};",
        &text[..context],
        &text[end..events]
    )
}

#[test]
fn switches_of_the_kernel_give_cpu_time() {
    let scratch = scratch();
    // Another stream of the same processor.
    let mut kernel = Packet { cpu: 1, ..Packet::new(Header::Large, 5, 1000) };
    for (at, from, to) in [(1000, 0, 7), (1100, 7, 8), (1150, 8, 7), (1300, 7, 0)] {
        kernel.stamp(0, at).i32(from).u64(0).i32(to);
    }
    write(&scratch.path().join("kernel"), &kernel_metadata(), &[("k_0", kernel.bytes(4096))]);
    let mut user = Packet::new(Header::Large, 1, 900);
    for at in [900, 1010, 1090, 1160, 1290] {
        user.callback_start(at, 7, 1);
    }
    write(&scratch.path().join("ust"), &metadata(Header::Large), &[("c_0", user.bytes(4096))]);
    let (events, recording) = read(scratch.path());
    let used: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.kind, Kind::CallbackStart { .. }))
        .map(|event| event.cpu_ns)
        .collect();
    assert_eq!(used, [None, Some(10), Some(90), Some(110), Some(240)]);
    assert!(recording.seen().iter().any(|seen| seen.name == "sched_switch" && seen.count == 4 && seen.used));
    // Without switches the kernel's part is left out.
    write(&scratch.path().join("kernel"), &kernel_metadata().replace("sched_switch", "irq_entry"), &[]);
    let (events, recording) = read(scratch.path());
    assert_eq!(recording.kernel_traces().len(), 1);
    assert!(events.iter().all(|event| event.cpu_ns.is_none()));
}
