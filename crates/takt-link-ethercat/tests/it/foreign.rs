//! Captures that other hardware and other programs made: a probe on the wire, frames in pairs,
//! tags, UDP, packed and cut files. The truth is `tshark`'s, which shares nothing with Takt.
//!
//! Without `tshark` the comparisons say SKIPPED, unless `TAKT_REQUIRE_OUTSIDE=1` makes that a
//! failure; the rest runs everywhere.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use takt_link_ethercat::analyse::{Blame, FindingKind, Limits, Pattern, Report, Traffic, analyse};
use takt_link_ethercat::capture::{CaptureFacts, read_from};

/// A probe ET2000: 499 answers after 100 us, one after 700 us, one lost, one sent 400 us late.
const PROBE: &[u8] = include_bytes!("../data/et2000.pcap.gz");
/// A master whose frames leave 900 and 100 us apart.
const PAIRS: &[u8] = include_bytes!("../data/alternating.pcap.gz");
const ESL: usize = 16;

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

/// A packet: seconds and nanoseconds as the file has them, and its bytes.
#[derive(Clone)]
struct Raw {
    time: [u32; 2],
    bytes: Vec<u8>,
}

/// The packets of a pcap file in this machine's order of bytes.
fn packets(file: &[u8]) -> Vec<Raw> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        let bytes = file[at + 16..at + 16 + length].to_vec();
        packets.push(Raw { time: [word(at), word(at + 4)], bytes });
        at += 16 + length;
    }
    packets
}

/// A pcap file with stamps in nanoseconds, of which `kept` bytes of each packet are kept.
fn pcap(packets: &[Raw], link: u32, kept: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    words(&mut file, &[0xA1B2_3C4D, 4 << 16 | 2, 0, 0, 262_144, link]);
    for packet in packets {
        let bytes = &packet.bytes[..packet.bytes.len().min(kept)];
        let (length, whole) = (bytes.len() as u32, packet.bytes.len() as u32);
        words(&mut file, &[packet.time[0], packet.time[1], length, whole]);
        file.extend(bytes);
    }
    file
}

fn with_bytes(packets: &[Raw], change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<Raw> {
    packets.iter().map(|packet| Raw { bytes: change(&packet.bytes), ..packet.clone() }).collect()
}

fn judged(file: &[u8], limits: &Limits) -> (CaptureFacts, Report) {
    let mut traffic = Traffic::default();
    let facts = read_from(file, &mut |packet| traffic.add(&packet)).unwrap();
    (facts, analyse(&traffic, None, limits))
}

fn found(report: &Report) -> Vec<(FindingKind, Blame, u64)> {
    let of = |finding: &takt_link_ethercat::analyse::Finding| (finding.kind, finding.blame, finding.frame);
    report.findings.iter().map(of).collect()
}

/// Fields of `file` as `tshark` reads them, a line for each packet that `filter` lets through;
/// `None` without `tshark`.
fn tshark(file: &[u8], filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus.pcap");
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["--enable-heuristic", "esl_eth", "-T", "fields", "-Y", filter]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = command.output() else {
        let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
        assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but tshark is not installed");
        takt_witness::skip!("tshark is not installed (apt-get install tshark)");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Least, median and greatest.
fn three(mut values: Vec<u64>) -> (f64, f64, f64) {
    values.sort_unstable();
    let us = |at: usize| values[at] as f64 / 1e3;
    (us(0), us((values.len() - 1) / 2), us(values.len() - 1))
}

/// The findings that the capture of the probe was made with.
fn probed(report: &Report, what: &str) {
    let kinds: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.blame)).collect();
    let planted = [
        (FindingKind::Slow, Blame::Device),
        (FindingKind::Missing, Blame::Device),
        (FindingKind::SentLate, Blame::Application),
    ];
    for one in planted {
        assert_eq!(kinds.iter().filter(|kind| **kind == one).count(), 1, "{what}: {:?}", report.findings);
    }
    assert_eq!(kinds.len(), 3, "{what}: {:?}", report.findings);
    let trip = report.round_trip.unwrap();
    assert_eq!((trip.min_us, trip.median_us, trip.max_us), (100.0, 100.0, 700.0), "{what}");
    assert!(report.notes.iter().any(|note| note.contains("probe on the wire")), "{:?}", report.notes);
    assert!(!report.text(9, false).contains("wire, NIC or device"), "{}", report.text(9, false));
}

#[test]
fn a_probe_on_the_wire_is_judged_by_its_own_stamps() {
    let plain = unpacked(PROBE);
    let packets = packets(&plain);
    let (_, report) = judged(PROBE, &Limits::default());
    probed(&report, "packed, as a trailer");
    let ports: Vec<_> = report.probe_ports.iter().map(|port| (port.port, port.crc_errors)).collect();
    assert_eq!(ports, [(0, 0), (1, 0)]);
    // Every other place of the sixteen bytes, other ports, tags, and other times of the recording
    // computer.
    let turned = |bytes: &[u8]| {
        let (frame, link) = bytes.split_at(bytes.len() - ESL);
        [link, frame].concat()
    };
    let tagged = |bytes: &[u8]| [&bytes[..12], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 7], &bytes[12..]].concat();
    let other_ports = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - ESL + 6;
        // Ports 0 and 1 are bits 7 and 6; 9 and 8 are bits 14 and 15.
        let bits: u16 = if bytes[at] == 0x80 { 1 << 14 } else { 1 << 15 };
        bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
        bytes
    };
    let checksum = |bytes: &[u8]| [bytes, &[1, 2, 3, 4]].concat();
    let variants: [(&str, Vec<Raw>); 5] = [
        ("as a prefix", with_bytes(&packets, turned)),
        ("a prefix before tags", with_bytes(&with_bytes(&packets, tagged), turned)),
        ("tagged", with_bytes(&packets, tagged)),
        ("at ports 9 and 8", with_bytes(&packets, other_ports)),
        ("with a checksum", with_bytes(&packets, checksum)),
    ];
    for (what, packets) in &variants {
        probed(&judged(&pcap(packets, 1, usize::MAX), &Limits::default()).1, what);
    }
    let mut at_once = packets.clone();
    at_once.iter_mut().for_each(|packet| packet.time = [1_700_000_000, 0]);
    probed(&judged(&pcap(&at_once, 1, usize::MAX), &Limits::default()).1, "all recorded at once");

    // What tshark reads of the same stamps, before and behind frames.
    for file in [&plain, &pcap(&variants[0].1, 1, usize::MAX)] {
        let Some(lines) = tshark(file, "esl", &["esl.port", "esl.timestamp"]) else { return };
        assert_eq!(lines.len(), packets.len());
        let stamp = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let stamps: Vec<(u8, u64)> =
            lines.iter().map(|line| (line[0].parse().unwrap(), stamp(&line[1]))).collect();
        let trips: Vec<u64> = stamps
            .windows(2)
            .filter(|two| (two[0].0, two[1].0) == (0, 1))
            .map(|two| two[1].1 - two[0].1)
            .collect();
        let trip = report.round_trip.unwrap();
        assert_eq!((trip.n, (trip.min_us, trip.median_us, trip.max_us)), (trips.len(), three(trips)));
        let sent: Vec<u64> = stamps.iter().filter(|stamp| stamp.0 == 0).map(|stamp| stamp.1).collect();
        let gaps = sent.windows(2).map(|two| two[1] - two[0]).collect();
        let intervals = report.send_interval_us.as_ref().unwrap();
        assert_eq!((intervals.min, intervals.median, intervals.max), three(gaps));
    }
}

#[test]
fn two_channels_of_a_probe_separate_the_wire_from_the_devices() {
    // The second channel sits at the devices' end of the cable: 5 us later on the way out, and as
    // much earlier on the way back. One frame is late in the cable, one in the devices.
    let mut both = Vec::new();
    for (at, packet) in packets(&unpacked(PROBE)).into_iter().enumerate() {
        let length = packet.bytes.len();
        let stamp = |bytes: &[u8]| u64::from_le_bytes(bytes[length - 8..].try_into().unwrap());
        let returns = packet.bytes[length - ESL + 6] == 0x40;
        let mut second = packet.clone();
        let near_ns: u64 = if at / 2 == 30 { 600_000 } else { 5000 };
        let time_ns = if returns { stamp(&packet.bytes) - 5000 } else { stamp(&packet.bytes) + near_ns };
        second.bytes[length - 8..].copy_from_slice(&time_ns.to_le_bytes());
        // Port 3 on the way out, 2 on the way back: the other way round than the first channel.
        second.bytes[length - ESL + 6] = if returns { 1 << 5 } else { 1 << 4 };
        let mut first = packet;
        if returns && at / 2 == 60 {
            // The devices keep it 700 us longer.
            for bytes in [&mut first.bytes, &mut second.bytes] {
                let late_ns = stamp(bytes) + 700_000;
                bytes[length - 8..].copy_from_slice(&late_ns.to_le_bytes());
            }
        }
        if returns && at / 2 == 30 {
            // What was late in the cable is late at the devices, and back.
            for bytes in [&mut first.bytes, &mut second.bytes] {
                let late_ns = stamp(bytes) + 595_000;
                bytes[length - 8..].copy_from_slice(&late_ns.to_le_bytes());
            }
        }
        both.extend([first, second]);
    }
    let (_, report) = judged(&pcap(&both, 1, usize::MAX), &Limits::default());
    let kinds: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.blame)).collect();
    assert!(kinds.contains(&(FindingKind::Slow, Blame::Wire)), "{:?}", report.findings);
    assert!(kinds.contains(&(FindingKind::Slow, Blame::Device)), "{:?}", report.findings);
    assert_eq!(report.outward.map(|part| part.median_us), Some(5.0));
    assert_eq!(report.in_segment.map(|part| part.median_us), Some(90.0));
    assert_eq!(report.homeward.map(|part| part.median_us), Some(5.0));
    assert_eq!(report.probe_ports.len(), 4);
}

#[test]
fn a_frame_that_the_probe_saw_damaged_is_the_wires_fault() {
    let mut packets = packets(&unpacked(PROBE));
    let at = packets[41].bytes.len() - ESL + 7;
    packets[41].bytes[at] |= 0x10;
    let file = pcap(&packets, 1, usize::MAX);
    let (_, report) = judged(&file, &Limits::default());
    assert!(found(&report).contains(&(FindingKind::Damaged, Blame::Wire, 41)), "{:?}", report.findings);
    assert_eq!(report.probe_ports.iter().map(|port| port.crc_errors).sum::<u64>(), 1);
    let Some(lines) = tshark(&file, "esl.crcerror == 1", &["frame.number"]) else { return };
    assert_eq!(lines, [["42"]]);
}

#[test]
fn frames_that_leave_in_pairs_are_no_period() {
    let (_, report) = judged(PAIRS, &Limits::default());
    let intervals = report.send_interval_us.as_ref().unwrap();
    assert_eq!((intervals.uneven, intervals.pattern), (true, Some(Pattern::Pairs)));
    // As frames over time, and not the 900 us that would be 556 frames.
    assert!((report.period_us.unwrap() - 500.0).abs() < 1.0, "{:?}", report.period_us);
    let text = report.text(9, false);
    assert!(text.contains("does not send periodically") && text.contains("in pairs"), "{text}");
    assert!(!text.contains("nothing slow, late or missing"), "{text}");
    // Held against what was meant, every second frame is late and the others early.
    let asked = Limits { period_ns: Some(500_000), ..Limits::default() };
    let (_, held) = judged(PAIRS, &asked);
    assert!(held.kinds.get(&FindingKind::SentLate) > Some(&400), "{:?}", held.kinds);
    let (_, held) = judged(PAIRS, &Limits { period_ns: Some(1_000_000), ..Limits::default() });
    assert!(
        held.notes.iter().any(|note| note.contains("not 1000.0 µs as given with --period")),
        "{:?}",
        held.notes
    );
    let filter = "ecat.cnt == 0";
    let Some(lines) = tshark(&unpacked(PAIRS), filter, &["frame.time_delta_displayed"]) else { return };
    let ns = |line: &Vec<String>| (line[0].parse::<f64>().unwrap() * 1e9).round() as u64;
    let gaps: Vec<u64> = lines.iter().skip(1).map(ns).collect();
    let (n, spread) = (gaps.len(), three(gaps));
    assert_eq!((intervals.n, (intervals.min, intervals.median, intervals.max)), (n, spread));
}

/// A master with a frame at each of `sent_us`, each answered after 80 us.
fn master(sent_us: &[u64]) -> Vec<Raw> {
    let template = packets(&unpacked(PAIRS));
    let [frame, answer] = [&template[0], &template[1]];
    let mut packets = Vec::new();
    for (index, sent_us) in sent_us.iter().enumerate() {
        for (one, us) in [(frame, *sent_us), (answer, sent_us + 80)] {
            let mut bytes = one.bytes.clone();
            bytes[17] = index as u8;
            packets.push(Raw {
                time: [1_700_000_000 + (us / 1_000_000) as u32, (us % 1_000_000 * 1000) as u32],
                bytes,
            });
        }
    }
    packets
}

#[test]
fn bursts_and_early_sends_are_reported_and_a_steady_master_is_not() {
    let judged = |sent_us: &[u64]| judged(&pcap(&master(sent_us), 1, usize::MAX), &Limits::default()).1;
    let steady: Vec<u64> = (0..600).map(|at| at * 1000).collect();
    let report = judged(&steady);
    assert_eq!((report.findings.len(), report.period_us), (0, Some(1000.0)));
    assert_eq!(report.send_interval_us.as_ref().map(|intervals| intervals.uneven), Some(false));
    // Four frames each 4 ms.
    let bursts: Vec<u64> = (0..600).map(|at| at / 4 * 4000 + at % 4 * 120).collect();
    let report = judged(&bursts);
    let intervals = report.send_interval_us.as_ref().unwrap();
    assert_eq!((intervals.uneven, intervals.pattern), (true, Some(Pattern::Bursts)), "{intervals:?}");
    assert!((report.period_us.unwrap() - 1000.0).abs() < 10.0);
    // One frame in 40 leaves 400 us before its time: the one after it is not late.
    let early: Vec<u64> = (0..600).map(|at| at * 1000 - if at % 40 == 7 { 400 } else { 0 }).collect();
    let report = judged(&early);
    let intervals = report.send_interval_us.as_ref().unwrap();
    assert_eq!((intervals.uneven, intervals.pattern), (true, Some(Pattern::Early)), "{intervals:?}");
    assert_eq!(report.kinds.iter().collect::<Vec<_>>(), [(&FindingKind::SentEarly, &15)]);
    // Who was held up and catches up is late once, and never early.
    let held: Vec<u64> =
        (0..600_u64).map(|at| (at * 1000).max(if at >= 300 { 305_500 + at % 300 * 60 } else { 0 })).collect();
    let report = judged(&held);
    assert_eq!(
        report.kinds.iter().collect::<Vec<_>>(),
        [(&FindingKind::SentLate, &1)],
        "{:?}",
        report.findings
    );
}

/// As `bytes`, an Ethernet frame, in UDP over IPv4 to EtherCAT's port.
fn over_udp(bytes: &[u8]) -> Vec<u8> {
    let payload = &bytes[14..];
    let length = |more: usize| ((payload.len() + more) as u16).to_be_bytes();
    let mut frame = [&bytes[..12], &[8, 0, 0x45, 0], &length(28), &[0, 0, 0x40, 0, 64, 17, 0, 0]].concat();
    frame.extend([192, 168, 1, 1, 255, 255, 255, 255, 0x88, 0xA4, 0x88, 0xA4]);
    frame.extend(length(8));
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

#[test]
fn tags_and_udp_carry_the_same_frames() {
    let packets = packets(&unpacked(PAIRS));
    let (_, plain) = judged(PAIRS, &Limits::default());
    let tags = |tags: &'static [u8]| move |bytes: &[u8]| [&bytes[..12], tags, &bytes[12..]].concat();
    let variants = [
        ("one tag", with_bytes(&packets, tags(&[0x81, 0, 0, 7]))),
        ("QinQ", with_bytes(&packets, tags(&[0x88, 0xA8, 0, 5, 0x81, 0, 0, 7]))),
        ("three tags", with_bytes(&packets, tags(&[0x91, 0, 0, 5, 0x88, 0xA8, 0, 5, 0x81, 0, 0, 7]))),
        ("UDP", with_bytes(&packets, over_udp)),
        ("UDP behind a tag", with_bytes(&with_bytes(&packets, over_udp), tags(&[0x81, 0, 0, 7]))),
    ];
    for (what, packets) in variants {
        let file = pcap(&packets, 1, usize::MAX);
        let (facts, report) = judged(&file, &Limits::default());
        assert_eq!(facts.other_packets, 0, "{what}");
        assert_eq!((report.frames, report.round_trip), (plain.frames, plain.round_trip), "{what}");
        assert_eq!(report.send_interval_us, plain.send_interval_us, "{what}");
        let Some(lines) = tshark(&file, "ecat", &["frame.number"]) else { return };
        assert_eq!(lines.len() as u64, facts.interfaces[0].frames, "{what}");
        assert_eq!(facts.deep_tagged_packets, 0, "{what}");
    }
    // Beyond the limit it is said that there are more tags, and not that it is another protocol.
    let five = pcap(
        &with_bytes(&packets, |bytes| [&bytes[..12], &[0x81, 0, 0, 7].repeat(5), &bytes[12..]].concat()),
        1,
        usize::MAX,
    );
    let (facts, report) = judged(&five, &Limits::default());
    assert_eq!((facts.deep_tagged_packets, report.frames), (packets.len() as u64, 0));
}

#[test]
fn cut_frames_are_judged_by_what_is_left_of_them() {
    let (_, whole) = judged(PAIRS, &Limits::default());
    let (facts, report) = judged(&pcap(&packets(&unpacked(PAIRS)), 1, 40), &Limits::default());
    assert_eq!((facts.cut_packets, facts.cut_to_bytes), (facts.interfaces[0].frames, 40));
    assert_eq!((report.frames, report.round_trip), (whole.frames, whole.round_trip));
    assert!(
        report.findings.iter().all(|finding| finding.kind != FindingKind::Counter),
        "{:?}",
        report.findings
    );
    // So short that nobody sees what it is.
    let (facts, report) = judged(&pcap(&packets(&unpacked(PAIRS)), 1, 12), &Limits::default());
    assert!(facts.other_packets > 0 && !report.judges());
}

#[test]
fn two_interfaces_that_saw_the_same_frames_are_the_two_ends_of_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let near = master(&(0..300).map(|at| at * 1000).collect::<Vec<u64>>());
    // The other card of a computer between master and devices: 20 us nearer to the devices.
    let far: Vec<Raw> = near
        .iter()
        .enumerate()
        .map(|(at, packet)| {
            let mut far = packet.clone();
            let us = if at % 2 == 0 { 20_000 } else { -20_000 };
            far.time[1] = far.time[1].checked_add_signed(us).unwrap();
            far
        })
        .collect();
    std::fs::write(path("far.pcap"), pcap(&far, 1, usize::MAX)).unwrap();
    std::fs::write(path("near.pcap"), pcap(&near, 1, usize::MAX)).unwrap();
    if !merged(&path("far.pcap"), &path("near.pcap"), &path("both.pcapng")) {
        return;
    }
    let mut file = std::fs::read(path("both.pcapng")).unwrap();
    let (facts, report) = judged(&file, &Limits::default());
    assert_eq!((facts.interfaces.len(), report.frames, report.unasked), (2, 300, 0));
    assert_eq!((report.findings.len(), report.period_us), (0, Some(1000.0)), "{:?}", report.findings);
    assert_eq!(report.outward.map(|part| part.median_us), Some(20.0));
    assert_eq!(report.in_segment.map(|part| part.median_us), Some(40.0));
    assert!(report.notes.iter().any(|note| note.contains("2 interfaces saw the same")), "{:?}", report.notes);
    // Packed.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&std::mem::take(&mut file)).unwrap();
    assert_eq!(judged(&packer.finish().unwrap(), &Limits::default()).1.frames, 300);
}

/// Both files as one with two interfaces, by Wireshark's `mergecap`.
fn merged(first: &Path, second: &Path, into: &Path) -> bool {
    let mut command = Command::new("mergecap");
    let merged = command.args(["-I", "none", "-F", "pcapng", "-w"]).args([into, first, second]).status();
    let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
    let done = merged.is_ok_and(|status| status.success());
    assert!(done || !required, "TAKT_REQUIRE_OUTSIDE=1, but mergecap did not merge the two");
    if !done {
        takt_witness::skip!("mergecap is not installed (apt-get install wireshark-common)");
    }
    done
}
