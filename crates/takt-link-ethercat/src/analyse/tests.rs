//! Findings on captures made by hand, with something wrong at each place.

use super::*;
use crate::capture::{Packet, Side};
use crate::frame::{FrameBuilder, command};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const US: u64 = 1000;
const OFFSET: i64 = 1_000_000_000;

/// A frame of cycle `index`; as an answer with working counter `counter`.
fn frame(index: u8, counter: Option<u16>, source: u8) -> Vec<u8> {
    let mut frame = FrameBuilder::new([source, 1, 1, 1, 1, 1]);
    frame.push(command::LRW, index, 0x1000, 20).unwrap().fill(3);
    frame.push(command::BRD, index, 0x0130_0000, 2).unwrap().fill(0);
    let mut bytes = frame.finish().to_vec();
    if let Some(counter) = counter {
        bytes[6] |= 2;
        bytes[16 + 30..16 + 32].copy_from_slice(&counter.to_le_bytes());
        // The device half is counted up on the way.
        bytes[48 + 2] = 9;
    }
    bytes
}

/// The stamps of a cycle: sent by the application, at the interface, at and from the segment, back,
/// taken. Zero: never.
#[derive(Clone, Copy)]
struct Cycle {
    planned: u64,
    wake: u64,
    stamps: [u64; 6],
    counter: u16,
}

/// A hundred cycles of 1 ms, with nothing wrong.
fn well() -> Vec<Cycle> {
    let cycle = |at: u64| {
        let planned = 10 * MS + at * MS;
        let sent = planned + 15 * US;
        let stamps = [0, 5, 10, 30, 35, 60].map(|us| sent + us * US);
        Cycle { planned, wake: planned + 10 * US, stamps, counter: 30 }
    };
    (0..100).map(cycle).collect()
}

fn traffic(cycles: &[Cycle], points: &[usize], source: u8) -> Traffic {
    let mut traffic = Traffic::default();
    let mut number = 0;
    for (index, cycle) in cycles.iter().enumerate() {
        for &point in points {
            let time = cycle.stamps[point];
            if time == 0 {
                continue;
            }
            number += 1;
            let passed = (point > 2).then_some(cycle.counter);
            let side = if point == 1 || point == 4 { Side::Master } else { Side::Segment };
            // Sixteen indices in turn, as SOEM has them.
            let frame = frame((index % 16) as u8, passed, source);
            let time_ns = time.saturating_add_signed(OFFSET);
            traffic.add(&Packet {
                number,
                time_ns,
                side,
                interface: 0,
                outgoing: None,
                probe: None,
                frame: &frame,
            });
        }
    }
    traffic
}

fn log(cycles: &[Cycle]) -> AppLog {
    let column = |of: fn(&Cycle) -> u64| Some(cycles.iter().map(of).collect::<Vec<u64>>());
    AppLog::from_columns(
        &mut |name| match name {
            "planned_ns" => column(|cycle| cycle.planned),
            "wake_ns" => column(|cycle| cycle.wake),
            "sent_ns" => column(|cycle| cycle.stamps[0]),
            _ => column(|cycle| cycle.stamps[5]),
        },
        OFFSET,
    )
    .unwrap()
}

const BOTH: [usize; 4] = [1, 2, 3, 4];
const MASTER: [usize; 2] = [1, 4];

fn reported(report: &Report) -> Vec<(FindingKind, Blame)> {
    report.findings.iter().map(|finding| (finding.kind, finding.blame)).collect()
}

fn judged(cycles: &[Cycle], points: &[usize], app: bool) -> Report {
    let log = log(cycles);
    analyse(&traffic(cycles, points, 1), app.then_some(&log), &Limits::default())
}

/// Moves the stamps from `point` on.
fn delay(cycle: &mut Cycle, point: usize, by: u64) {
    cycle.stamps[point..].iter_mut().for_each(|stamp| *stamp += by);
}

#[test]
fn where_nothing_is_wrong_nothing_is_reported() {
    for (points, app) in [(&BOTH[..], true), (&BOTH[..], false), (&MASTER[..], true), (&MASTER[..], false)] {
        let report = judged(&well(), points, app);
        assert_eq!(reported(&report), []);
        assert_eq!((report.frames, report.cyclic_frames, report.unasked), (100, 100, 0));
        assert_eq!(report.period_us, Some(1000.0));
        assert_eq!(report.round_trip.map(|trip| trip.median_us), Some(30.0));
        assert_eq!(report.in_segment.map(|part| part.median_us), (points.len() == 4).then_some(20.0));
        assert_eq!(report.cycles_found, app.then_some(100));
    }
}

#[test]
fn a_capture_without_cyclic_frames_is_not_called_clean() {
    let nothing = analyse(&Traffic::default(), None, &Limits::default());
    for cut in [false, true] {
        let text = nothing.text(10, cut);
        assert!(!nothing.judges() && text.contains("nothing to judge: no cyclic EtherCAT frame"), "{text}");
        assert!(!text.contains("nothing slow"), "{text}");
    }
    let clean = judged(&well(), &BOTH, true);
    assert!(clean.judges() && clean.text(10, false).contains("nothing slow, late or missing\n"));
    let text = clean.text(10, true);
    assert!(
        text.contains("missing in the 100 cyclic frames of 0.099 s before the file ends abruptly"),
        "{text}"
    );
}

/// Requests of a bring-up, each answered `trips` later; none: never.
fn requests(trips: &[Option<u64>]) -> Traffic {
    let mut traffic = Traffic::default();
    let mut number = 0;
    for (index, trip) in trips.iter().enumerate() {
        let mut frame = FrameBuilder::new([1; 6]);
        frame.push(command::FPRD, index as u8, 0x0130_0000, 2).unwrap().fill(0);
        let mut bytes = frame.finish().to_vec();
        let sent_ns = OFFSET as u64 + index as u64 * 2 * MS;
        let mut add = |time_ns: u64, frame: &[u8]| {
            number += 1;
            traffic.add(&Packet {
                number,
                time_ns,
                side: Side::Master,
                interface: 0,
                outgoing: None,
                probe: None,
                frame,
            });
        };
        add(sent_ns, &bytes);
        bytes[6] |= 2;
        trip.iter().for_each(|trip| add(sent_ns + trip, &bytes));
    }
    traffic
}

/// As captures of real masters have them (SOEM on a USB card: 570 us each way and nothing wrong).
#[test]
fn of_a_bring_up_alone_slow_is_what_takes_longer_than_most() {
    let mut trips = [Some(570 * US); 100];
    let judged = |trips: &[Option<u64>]| analyse(&requests(trips), None, &Limits::default());
    assert_eq!(reported(&judged(&trips)), []);
    trips[40] = Some(1300 * US);
    trips[50] = None;
    let report = judged(&trips);
    let beyond = Blame::WireOrDevice;
    assert_eq!(reported(&report), [(FindingKind::Slow, beyond), (FindingKind::Missing, beyond)]);
    assert!(!report.judges() && report.notes[0].contains("lost by the capture itself"), "{:?}", report.notes);
    // Fast ones have the limit of a cycle of a millisecond, and a limit that is given holds.
    assert_eq!(reported(&judged(&[Some(400 * US), Some(50 * US), Some(50 * US)])), []);
    let limits = Limits { slow_ns: Some(500 * US), ..Limits::default() };
    assert_eq!(analyse(&requests(&[Some(570 * US); 3]), None, &limits).findings.len(), 3);
}

#[test]
fn answers_alone_last_no_longer_than_they_were_seen() {
    let mut traffic = Traffic::default();
    for (number, time_ns) in [(1, OFFSET as u64 + MS), (2, OFFSET as u64 + 3 * MS)] {
        let frame = frame(number as u8, Some(30), 1);
        traffic.add(&Packet {
            number,
            time_ns,
            side: Side::Master,
            interface: 0,
            outgoing: None,
            probe: None,
            frame: &frame,
        });
    }
    let report = analyse(&traffic, None, &Limits::default());
    assert_eq!((report.frames, report.unasked, report.length_s), (0, 2, 0.002));
}

#[test]
fn each_place_is_blamed_for_its_delay() {
    for (point, blame) in [(2, Blame::Wire), (3, Blame::Device), (4, Blame::Wire)] {
        let mut cycles = well();
        delay(&mut cycles[50], point, 700 * US);
        for app in [false, true] {
            let report = judged(&cycles, &BOTH, app);
            assert_eq!(reported(&report), [(FindingKind::Slow, blame)], "{point}");
            assert_eq!(report.findings[0].round_trip_us, Some(730.0));
            assert_eq!(report.findings[0].working_counters[0].got, 30);
            // At one end it cannot be reported.
            assert_eq!(reported(&judged(&cycles, &MASTER, app)), [(FindingKind::Slow, Blame::WireOrDevice)]);
        }
    }
    // In the host's stack on the way out, and on the way in.
    let mut cycles = well();
    delay(&mut cycles[50], 1, 700 * US);
    for points in [&BOTH[..], &MASTER] {
        assert_eq!(reported(&judged(&cycles, points, true)), [(FindingKind::SentLate, Blame::HostStack)]);
        // Without the application's word it seems to have sent late.
        assert_eq!(reported(&judged(&cycles, points, false)), [(FindingKind::SentLate, Blame::Application)]);
    }
    let mut cycles = well();
    delay(&mut cycles[50], 5, 700 * US);
    assert_eq!(reported(&judged(&cycles, &BOTH, true)), [(FindingKind::TakenLate, Blame::HostStack)]);
    cycles[50].stamps[5] = 0;
    assert_eq!(reported(&judged(&cycles, &BOTH, true)), [(FindingKind::TakenLate, Blame::HostStack)]);
}

#[test]
fn the_application_is_blamed_for_its_own_lateness() {
    let mut cycles = well();
    delay(&mut cycles[50], 0, 600 * US);
    for points in [&BOTH[..], &MASTER] {
        for app in [false, true] {
            let report = judged(&cycles, points, app);
            assert_eq!(reported(&report), [(FindingKind::SentLate, Blame::Application)]);
        }
    }
    assert!(judged(&cycles, &BOTH, true).findings[0].why.contains("wake-up to sending"));
    cycles[50].wake += 600 * US;
    assert!(judged(&cycles, &BOTH, true).findings[0].why.contains("woke 610"));
}

#[test]
fn what_never_came_is_charged_to_where_it_was_seen_last() {
    for (last, blame) in [(1, Blame::Wire), (2, Blame::Device), (3, Blame::Wire)] {
        let mut cycles = well();
        cycles[50].stamps[last + 1..].fill(0);
        let report = judged(&cycles, &BOTH, false);
        assert_eq!(reported(&report), [(FindingKind::Missing, blame)], "{last}");
        assert_eq!(report.findings[0].round_trip_us, None);
        assert_eq!(reported(&judged(&cycles, &MASTER, false)), [(FindingKind::Missing, Blame::WireOrDevice)]);
    }
}

#[test]
fn what_never_left_the_host_is_charged_to_its_stack() {
    // A queue of the interface dropped it: the application sent it, and no tap has seen it.
    for waiting in [false, true] {
        let mut cycles = well();
        cycles[50].stamps[1..].fill(0);
        if waiting {
            // Until its time is over, so that the next cycle is late.
            for cycle in &mut cycles[51..] {
                delay(cycle, 0, 3 * MS);
                cycle.wake += 3 * MS;
            }
        }
        for points in [&BOTH[..], &MASTER] {
            let report = judged(&cycles, points, true);
            assert_eq!(
                reported(&report),
                [(FindingKind::Missing, Blame::HostStack)],
                "{:?}",
                report.findings
            );
            assert_eq!((report.findings[0].frame, report.held_up), (0, u64::from(waiting)));
            assert!(report.text(5, false).contains("        -   0.0"), "{}", report.text(5, false));
            // Without the application's word nobody knows that there was one, and the report says
            // so.
            let report = judged(&cycles, points, false);
            assert!(report.notes.iter().any(|note| note.contains("dropped there")), "{:?}", report.notes);
        }
        // An answer that was taken shows that the capture has the hole.
        cycles[50].stamps[5] = cycles[50].stamps[0] + 60 * US;
        let late = [(FindingKind::SentLate, Blame::Application)];
        assert_eq!(reported(&judged(&cycles, &MASTER, true)), late[..usize::from(waiting)]);
    }
}

#[test]
fn a_master_that_waited_for_an_answer_is_not_blamed() {
    // SOEM: the next cycle begins when the answer has come.
    let mut cycles = well();
    delay(&mut cycles[50], 3, 3 * MS);
    for cycle in &mut cycles[51..] {
        delay(cycle, 0, 3 * MS);
        cycle.wake += 3 * MS;
    }
    for app in [false, true] {
        let report = judged(&cycles, &BOTH, app);
        assert_eq!(reported(&report), [(FindingKind::Slow, Blame::Device)]);
        assert_eq!(report.held_up, 1);
    }
}

#[test]
fn other_working_counters_are_reported_with_the_usual_ones() {
    let mut cycles = well();
    cycles[50].counter = 27;
    let report = judged(&cycles, &MASTER, false);
    assert_eq!(reported(&report), [(FindingKind::Counter, Blame::Device)]);
    let counter = &report.findings[0].working_counters[0];
    assert_eq!((counter.command, counter.address, counter.got, counter.usual), ("LRW", 0x1000, 27, 30));
    assert!(report.text(10, false).contains("LRW 27/30"), "{}", report.text(10, false));
}

#[test]
fn a_master_whose_address_has_the_mark_is_read_by_its_counters() {
    let report = analyse(&traffic(&well(), &BOTH, 0x02), None, &Limits::default());
    assert_eq!((reported(&report), report.cyclic_frames), (vec![], 100));
}

#[test]
fn a_log_of_another_time_is_said_to_be() {
    let cycles = well();
    let mut log = log(&cycles);
    log.clock_offset_ns += 3600 * 1_000_000_000;
    let report = analyse(&traffic(&cycles, &BOTH, 1), Some(&log), &Limits::default());
    assert_eq!(report.cycles_found, Some(0));
    assert!(report.notes.iter().any(|note| note.contains("another")), "{:?}", report.notes);
    assert_eq!(analyse(&Traffic::default(), Some(&log), &Limits::default()).frames, 0);
}

proptest! {
    #[test]
    fn no_traffic_makes_it_panic(
        frames in proptest::collection::vec((0_u64..50, 0_u8..4, any::<bool>(), 0_u16..4, any::<bool>()), 0..80),
        offset in any::<i64>(),
    ) {
        let mut traffic = Traffic::default();
        for (number, (time, index, passed, counter, segment)) in frames.iter().enumerate() {
            let bytes = frame(*index, passed.then_some(*counter), 1);
            let side = if *segment { Side::Segment } else { Side::Master };
            let time_ns = time * 100 * US;
            traffic.add(&Packet { number: number as u64, time_ns, side, interface: 0, outgoing: None, probe: None, frame: &bytes });
        }
        let mut log = log(&well());
        log.clock_offset_ns = offset;
        let limits = Limits { slow_ns: Some(0), late_ns: Some(0), period_ns: None };
        let report = analyse(&traffic, Some(&log), &limits);
        prop_assert!(report.frames <= frames.len());
        let _ = report.text(5, true);
    }
}

/// A frame sent and answered after 100 us each millisecond, changed by `change`.
fn each_ms(mut change: impl FnMut(u64, bool, &mut Packet<'_>)) -> Report {
    let mut traffic = Traffic::default();
    for at in 0..200_u64 {
        for passed in [false, true] {
            let frame = frame((at % 200) as u8, passed.then_some(3), 1);
            let mut packet = Packet {
                number: 2 * at + u64::from(passed) + 1,
                time_ns: (1000 + at) * MS + u64::from(passed) * 100 * US,
                side: Side::Master,
                interface: 0,
                outgoing: None,
                probe: None,
                frame: &frame,
            };
            change(at, passed, &mut packet);
            traffic.add(&packet);
        }
    }
    analyse(&traffic, None, &Limits::default())
}

#[test]
fn a_clock_that_is_set_back_is_reported_and_makes_no_master_uneven() {
    let report = each_ms(|at, _, packet| packet.time_ns -= if at >= 120 { 450 * MS } else { 0 });
    let intervals = report.send_interval_us.as_ref().unwrap();
    assert!(!intervals.uneven && intervals.n == 198, "{intervals:?}");
    assert_eq!(reported(&report), []);
    let note = report.notes.iter().find(|note| note.contains("set back")).unwrap();
    assert!(note.contains("once, by at most 449.1 ms, first before frame 241"), "{note}");
    // Two interfaces of one file see the same step, one after the other.
    let report = each_ms(|at, passed, packet| {
        packet.interface = u16::from(passed);
        packet.time_ns -= if at >= 120 { 450 * MS } else { 0 };
    });
    assert_eq!(report.round_trip.as_ref().unwrap().max_us, 100.0);
    assert!(report.notes.iter().any(|note| note.contains("once, by")), "{:?}", report.notes);
    // Frames from several queues of a card are not a step of the clock.
    let report = each_ms(|_, passed, packet| packet.time_ns -= if passed { 2 * MS } else { 0 });
    assert!(report.notes.iter().all(|note| !note.contains("set back")), "{:?}", report.notes);
}

#[test]
fn stamps_of_the_way_back_alone_judge_nothing() {
    use crate::capture::ProbeStamp;
    let stamp = |time_ns| Some(ProbeStamp { port: 2, time_ns, crc_error: false, alignment_error: false });
    // A multiplier of ports: what it sends has its head without a stamp, at the same port.
    let report = each_ms(|_, passed, packet| packet.probe = stamp(if passed { packet.time_ns } else { 0 }));
    assert_eq!((reported(&report), report.round_trip.as_ref().unwrap().median_us), (vec![], 100.0));
    // One port that sees both directions: they are told apart by the devices' marks.
    let report = each_ms(|_, _, packet| packet.probe = stamp(packet.time_ns + 7));
    let segment = report.in_segment.as_ref().or(report.round_trip.as_ref()).unwrap();
    assert_eq!((reported(&report), segment.median_us), (vec![], 100.0));
}

#[test]
fn a_period_that_is_held_against_the_sends_must_be_theirs() {
    let notes = |period_us: u64| {
        let limits = Limits { period_ns: Some(period_us * US), ..Limits::default() };
        analyse(&traffic(&well(), &MASTER, 1), None, &limits).notes
    };
    let is_refuted = |notes: Vec<String>| notes.iter().any(|note| note.contains("given with --period"));
    assert!(!is_refuted(notes(1000)) && !is_refuted(notes(1001)));
    // 1 % is no drift of a clock.
    assert!(is_refuted(notes(1010)) && is_refuted(notes(990)) && is_refuted(notes(2000)));
}

/// As [`each_ms`], by a probe with a port for each direction, whose clock is at `clock(ns)`;
/// without a stamp where that is none.
fn probed(mut clock: impl FnMut(u64, bool, u64) -> Option<u64>) -> Report {
    use crate::capture::ProbeStamp;
    let start_ns = 1000 * MS;
    each_ms(|at, passed, packet| {
        packet.probe = clock(at, passed, packet.time_ns - start_ns).map(|time_ns| ProbeStamp {
            port: u8::from(passed),
            time_ns,
            crc_error: false,
            alignment_error: false,
        });
        // The recording computer gets it up to 300 us later.
        packet.time_ns += packet.number * 7919 % 300 * US;
    })
}

#[test]
fn a_probe_s_clock_that_begins_anew_makes_nobody_late() {
    let second = 1_000_000_000;
    type Clock = (&'static str, fn(u64) -> u64);
    let clocks: [Clock; 4] = [
        ("switched on again", |ns| if ns < 120 * MS { 900_000_000_000 + ns } else { ns - 119 * MS }),
        ("64 bits full", |ns| (u64::MAX - 120 * MS + 1).wrapping_add(ns)),
        ("32 bits full", |ns| ((1 << 32) - 120 * MS + ns) & 0xFFFF_FFFF),
        ("set", |ns| if ns < 120 * MS { ns } else { ns + (1 << 60) }),
    ];
    for (what, clock) in clocks {
        let report = probed(|_, _, ns| Some(clock(ns)));
        assert_eq!(reported(&report), [], "{what}: {:?}", report.findings);
        let intervals = report.send_interval_us.as_ref().unwrap();
        assert_eq!((intervals.n, intervals.max, report.period_us), (198, 1000.0, Some(1000.0)), "{what}");
        assert!(report.length_s < 0.3 && report.unstamped == 0, "{what}: {}", report.length_s);
        let note = report.notes.iter().find(|note| note.contains("began anew once, first before frame 241"));
        assert!(note.is_some(), "{what}: {:?}", report.notes);
    }
    let steady = probed(|_, _, ns| Some(5 * second + ns));
    assert!(steady.notes.iter().all(|note| !note.contains("anew")), "{:?}", steady.notes);
}

#[test]
fn a_probe_s_clock_may_begin_at_zero() {
    let report = probed(|_, _, ns| Some(ns));
    assert_eq!((reported(&report), report.unstamped, report.frames), (vec![], 0, 200));
}

#[test]
fn what_a_probe_did_not_stamp_is_neither_missing_nor_makes_others_late() {
    type LeftOut = (&'static str, fn(u64, bool) -> bool, u64);
    let left_out: [LeftOut; 4] = [
        ("pairs", |at, _| (100..110).contains(&at), 20),
        ("one pair", |at, _| at == 100, 2),
        ("answers", |at, passed| passed && (100..110).contains(&at), 10),
        ("sends", |at, passed| !passed && at % 50 == 7, 4),
    ];
    for (what, is_out, count) in left_out {
        let stamp = |at, passed, ns| (!is_out(at, passed)).then_some(5_000 * MS + ns);
        let report = probed(stamp);
        assert_eq!((reported(&report), report.unstamped), (vec![], count), "{what}: {:?}", report.findings);
        // What is late elsewhere still is.
        let late = probed(|at, passed, ns| stamp(at, passed, ns + if at >= 150 { 400 * US } else { 0 }));
        assert_eq!(reported(&late), [(FindingKind::SentLate, Blame::Application)], "{what}");
    }
}

/// A master that sends at `at_us`, each answered after 30 us.
fn sends(at_us: impl IntoIterator<Item = u64>) -> Report {
    let cycle = |us: u64| {
        let sent = 10 * MS + us * US;
        Cycle {
            planned: sent,
            wake: sent,
            stamps: [0, 5, 10, 30, 35, 60].map(|us| sent + us * US),
            counter: 30,
        }
    };
    let cycles: Vec<Cycle> = at_us.into_iter().map(cycle).collect();
    judged(&cycles, &MASTER, false)
}

#[test]
fn frames_between_the_cycles_are_early_and_no_others() {
    let report = sends((0..1000).flat_map(|at| {
        let extra = (at % 50 == 25).then_some(at * 1000 + 20);
        [at * 1000].into_iter().chain(extra)
    }));
    assert_eq!(report.kinds.iter().collect::<Vec<_>>(), [(&FindingKind::SentEarly, &20)]);
    assert!(
        report.findings.iter().all(|finding| finding.excess_us == Some(980.0)),
        "{:?}",
        report.findings[0]
    );
    let note = report.notes.iter().find(|note| note.contains("apart on average")).unwrap();
    assert!(note.contains("also sends between its cycles") && !note.contains("missing"), "{note}");
    assert_eq!(report.judged_period_us, 1000.0);
}

#[test]
fn a_small_unevenness_has_the_mean_as_its_period_and_is_judged_by_it() {
    let report = sends((0..1000).map(|at| at * 1000 - if at % 2 == 1 { 100 } else { 0 }));
    let intervals = report.send_interval_us.as_ref().unwrap();
    assert_eq!((report.judged_period_us, intervals.pattern), (1000.0, Some(Pattern::Pairs)));
    assert!(report.notes.iter().all(|note| !note.contains("apart on average")), "{:?}", report.notes);
    let text = report.text(5, false);
    assert!(text.contains("leave in pairs") && text.contains("nothing slow, late or missing"), "{text}");
    // Without a period lateness cannot be judged, and the report says so.
    let text = sends((0..1000).map(|at| at * 1000 - if at % 2 == 1 { 400 } else { 0 })).text(5, false);
    assert!(text.contains("leave in pairs") && text.contains("lateness is not judged"), "{text}");
}
