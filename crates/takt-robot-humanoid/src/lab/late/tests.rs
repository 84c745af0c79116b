use super::*;
use takt_link_ethercat::analyse::{LateWay, Usual};
use takt_link_ethercat::control::{
    ControlConfig, ExchangeMode, LateAnswer, Link, Port, SimulatedTime, Wire, bring_up, in_simulated_time,
};
use takt_link_ethercat::segment::{Segment, SegmentConfig, Stay, Truth};
use takt_rt::ring::Consumer;

use crate::run::CycleRecord;

mod planted;

const MS: u64 = 1_000_000;
const US: u64 = 1000;

/// A loop of exchanges in simulated time, reported to the joiner as the collector does.
struct Bench {
    time: SimulatedTime,
    port: Port,
    late: Consumer<LateAnswer>,
    truth: Consumer<Truth>,
    joiner: LateJoiner,
    planned_ns: u64,
    index: u64,
    rows: Vec<LateRow>,
    late_frames: u64,
}

impl Bench {
    /// `home_us` says how long the way back takes for each frame, by its number.
    fn new(mode: ExchangeMode, home_us: impl Fn(u64) -> u64 + Send + 'static) -> Self {
        let time = SimulatedTime::new(MS);
        let config = SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(4) };
        let mut segment = Segment::new(&config).unwrap();
        let truth = segment.truth(1 << 16);
        let wire = in_simulated_time(segment, time.clone(), move |frame| Some(home_us(frame) * US));
        Self::over(mode, wire, time, truth)
    }

    fn over(mode: ExchangeMode, wire: Box<dyn Wire>, time: SimulatedTime, truth: Consumer<Truth>) -> Self {
        let config = ControlConfig { mode, bring_up_ms: 60_000, ..ControlConfig::default() };
        let Link { port, late, .. } = bring_up(wire, &config, &mut |_| {}).unwrap();
        let planned_ns = time.now_ns() + MS;
        let joiner = LateJoiner::new(mode, true);
        Self { time, port, late, truth, joiner, planned_ns, index: 0, rows: Vec::new(), late_frames: 0 }
    }

    /// A cycle whose thread wakes up so late.
    fn cycle(&mut self, late_us: u64) {
        self.time.go_to(self.planned_ns + late_us * US);
        let wake_ns = self.time.now_ns();
        let exchanged = self.port.exchange(self.planned_ns + MS);
        let exchanged_ns = self.time.now_ns();
        let (planned_ns, begun_ns, sent_ns) = (self.planned_ns, exchanged.begun_at_ns, exchanged.sent_at_ns);
        let late = exchanged.late as u16;
        let record = CycleRecord {
            index: self.index,
            planned_ns,
            wake_ns,
            begun_ns,
            sent_ns,
            handed_ns: exchanged.handed_at_ns,
            exchanged_ns,
            exchange_ns: exchanged.fetch_ns + exchanged.send_ns,
            late,
            ..CycleRecord::default()
        };
        self.planned_ns += MS;
        self.index += 1;
        let mut truths = Vec::new();
        self.truth.take_into(&mut truths, 1 << 12);
        for truth in truths {
            if let Truth::Passed { cycle: Some(cycle), address, stay } = truth {
                self.joiner.passed((cycle, address), stay);
            }
        }
        let mut late = Vec::new();
        self.late.take_into(&mut late, 64);
        late.into_iter().for_each(|answer| self.joiner.answer(answer));
        self.late_frames += u64::from(record.late);
        self.joiner.cycle(&record, true);
        let rows = &mut self.rows;
        self.joiner.take(false, |row| rows.push(row));
    }

    fn causes(&self) -> LateCauses {
        causes(&self.rows, &Threads::default(), Err("no trace"))
    }
}

#[test]
fn with_nothing_planted_nothing_is_late_and_nothing_guessed() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let mut bench = Bench::new(mode, |_| 120);
        (0..200).for_each(|cycle| bench.cycle(10 + cycle % 7));
        assert_eq!((bench.late_frames, bench.causes().frames), (0, 0));
    }
}

#[test]
fn a_delay_on_the_way_back_is_named_for_every_frame_that_it_made_late() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        // Bring-up takes some hundred frames; every 50th of those after it is slow.
        let mut bench = Bench::new(mode, |frame| if frame > 3000 && frame % 50 == 0 { 1700 } else { 100 });
        (0..6000).for_each(|_| bench.cycle(15));
        assert!(bench.late_frames > 30, "{}", bench.late_frames);
        let causes = bench.causes();
        assert_eq!(causes.frames, bench.late_frames, "each has its row");
        assert_eq!((causes.causes.len(), causes.causes[0].place), (1, LatePlace::Homeward), "{causes:?}");
        assert!(causes.each.iter().all(|frame| (frame.excess_us - 1600.0).abs() < 1.0), "{mode:?}");
    }
}

#[test]
fn a_controller_that_woke_late_is_named_itself() {
    let mut bench = Bench::new(ExchangeMode::Pipelined, |_| 700);
    for cycle in 0..500 {
        // Then the next one in time: the answer, usually there after 700 us, is beyond what the
        // grace, grown by 500, waits for.
        bench.cycle(if cycle % 100 == 99 { 990 } else { 15 });
    }
    let causes = bench.causes();
    assert!(causes.frames >= 4 && causes.frames == bench.late_frames, "{causes:?}");
    assert_eq!((causes.causes.len(), causes.causes[0].place), (1, LatePlace::WakeUp), "{causes:?}");
    // The cycle after it waited for its answer, and sent late for that.
    assert!(causes.each.iter().any(|frame| frame.inherited), "{causes:?}");
    // Only the kernel knows the reason of the thread's lateness.
    let threads = Threads { controller: Some(1), segment: None };
    let asked = super::causes(&bench.rows, &threads, Err("no trace"));
    assert_eq!((causes.unexplained, asked.unexplained), (causes.frames, asked.frames));
    assert!(asked.causes[0].why.contains("is unexplained"), "{}", asked.causes[0].why);
    assert!(causes.causes[0].why.contains("own wake-up late"), "{}", causes.causes[0].why);
}

/// A late answer to the frame of cycle 1, which arrived at `arrived_ns`, with `records` of the
/// cycles.
fn answered(mode: ExchangeMode, arrived_ns: u64, records: &[CycleRecord]) -> LateRow {
    let mut joiner = LateJoiner::new(mode, false);
    let taken_ns = records.last().unwrap().sent_ns;
    let answer =
        LateAnswer { sent_ns: MS, cycles: 1, cycle: 7, address: 0, arrived_ns: Some(arrived_ns), taken_ns };
    joiner.answer(answer);
    records.iter().for_each(|record| joiner.cycle(record, true));
    let mut rows = Vec::new();
    joiner.take(true, |row| rows.push(row));
    rows[0]
}

fn cycle_of(index: u64, skipped: u32) -> CycleRecord {
    let at_ns = index * MS;
    let stamps = CycleRecord { planned_ns: at_ns, wake_ns: at_ns, begun_ns: at_ns, ..CycleRecord::default() };
    let stamps = CycleRecord { sent_ns: at_ns, handed_ns: at_ns + 5, ..stamps };
    CycleRecord { index, skipped, exchanged_ns: at_ns + 10, exchange_ns: 10, ..stamps }
}

#[test]
fn behind_a_lost_record_nobody_says_that_an_answer_was_here_and_not_taken() {
    let judged = |records: &[CycleRecord]| {
        let row = answered(ExchangeMode::Pipelined, 2 * MS + 200 * US, records);
        (row.way.gave_up_ns, row.way.judge(&row.usual).place)
    };
    // The record of cycle 2, which gave the answer up, was lost.
    assert_eq!(judged(&[cycle_of(1, 0), cycle_of(3, 0)]), (0, LatePlace::Unexplained));
    // Cycle 2 was passed over: cycle 3 could have taken the answer.
    assert_eq!(judged(&[cycle_of(1, 0), cycle_of(3, 1)]), (3 * MS, LatePlace::Untaken));
}

#[test]
fn a_late_wake_up_is_not_to_blame_where_the_wait_begins_with_sending() {
    // 900 us late, and the answer took 600 of the 500 us that were waited for it.
    let own = CycleRecord { planned_ns: MS - 900 * US, exchange_ns: 500 * US, ..cycle_of(1, 0) };
    let own = CycleRecord { exchanged_ns: MS + 500 * US, ..own };
    let row = answered(ExchangeMode::Waiting, MS + 600 * US, &[own, cycle_of(2, 0), cycle_of(3, 0)]);
    let cause = row.way.judge(&row.usual);
    assert_eq!((cause.place, cause.missed_by_ns), (LatePlace::Beyond, 100 * US));
}

#[test]
fn a_waiting_exchange_gives_up_before_it_publishes() {
    // Waits for 500 us, and for a reader of the cache for 200 more.
    let own = CycleRecord { exchange_ns: 500 * US, exchanged_ns: MS + 700 * US, ..cycle_of(1, 0) };
    let row = answered(ExchangeMode::Waiting, MS + 600 * US, &[own, cycle_of(2, 0)]);
    let cause = row.way.judge(&row.usual);
    assert_eq!((row.way.gave_up_ns, cause.missed_by_ns), (MS + 500 * US, 100 * US));
    assert_eq!(cause.place, LatePlace::Beyond);
}

#[test]
fn the_segments_word_is_waited_for_and_done_without() {
    let mut joiner = LateJoiner::new(ExchangeMode::Pipelined, true);
    for cycle in 1..=3 {
        let at_ns = cycle * MS;
        let record =
            CycleRecord { index: cycle, planned_ns: at_ns, wake_ns: at_ns + 1, ..CycleRecord::default() };
        let record = CycleRecord { sent_ns: at_ns + 2, handed_ns: at_ns + 5, ..record };
        let record = CycleRecord { exchanged_ns: at_ns + 9, ..record };
        if cycle == 3 {
            let sent_ns = MS + 2;
            let answer = LateAnswer {
                sent_ns,
                cycles: 1,
                cycle: 7,
                address: 0,
                arrived_ns: None,
                taken_ns: 3 * MS + 2,
            };
            joiner.answer(answer);
        }
        joiner.cycle(&record, true);
    }
    let mut rows = Vec::new();
    joiner.take(false, |row| rows.push(row));
    assert!(rows.is_empty(), "its word may still come");
    joiner.passed((8, 0), Stay::held(MS + 5, 1));
    joiner.passed((7, 0), Stay::held(MS + 7, MS + 493));
    joiner.take(false, |row| rows.push(row));
    let row = rows[0];
    assert_eq!((row.index, row.way.at_segment_ns, row.way.gave_up_ns), (1, MS + 7, 2 * MS + 2));
    let reported = causes(&rows, &Threads::default(), Err("no trace"));
    assert_eq!((reported.causes[0].place, reported.unexplained), (LatePlace::Segment, 0), "{reported:?}");
    // One that it did not keep on purpose: only the kernel shows what held its thread up.
    let threads = Threads { controller: None, segment: Some(1) };
    let not_kept = rows.iter().map(|row| LateRow { held_ns: 0, ..*row }).collect::<Vec<_>>();
    let mut reported = causes(&not_kept, &threads, Err("no trace"));
    assert_eq!(reported.unexplained, 1, "{reported:?}");
    assert!(!reported.causes[0].why.contains("held it back"), "{reported:?}");
    // Frames that were counted but have no row are counted here, too.
    reported.without_stamps(5);
    let sum: u64 = reported.causes.iter().map(|cause| cause.frames).sum();
    assert_eq!((reported.frames, reported.unexplained, sum), (6, 6, 6));
    // Beyond this host nobody knows who it was.
    let way = LateWay { at_segment_ns: 0, left_segment_ns: 0, arrived_ns: row.way.taken_ns, ..row.way };
    let beyond = LateRow { way, usual: Usual { beyond_ns: 10, ..row.usual }, ..row };
    let reported = causes(&[beyond], &Threads::default(), Err("no trace"));
    let cause = &reported.causes[0];
    assert_eq!(
        (cause.place, cause.blame, reported.unexplained),
        (LatePlace::Beyond, None, 1),
        "{reported:?}"
    );
}

/// A cycle of two frames, of which the second is late at the segment and the first in the segment.
#[test]
fn a_frame_gets_its_own_stamps_and_not_those_of_its_sibling() {
    let mut joiner = LateJoiner::new(ExchangeMode::Pipelined, true);
    let cycle = u32::MAX;
    joiner.passed((cycle, 0x000), Stay::held(2 * MS + 10, MS - 10));
    joiner.passed((cycle, 0x5A0), Stay::held(3 * MS + 10, 10));
    // The same place in another cycle with the same low 8 bits.
    joiner.passed((cycle - 256, 0x000), Stay::held(3 * MS + 30, 10));
    for at in [2, 3, 4] {
        let at_ns = at * MS;
        let stamps = CycleRecord { index: at, planned_ns: at_ns, wake_ns: at_ns, ..CycleRecord::default() };
        if at == 4 {
            for address in [0x000, 0x5A0] {
                let (sent_ns, taken_ns) = (2 * MS + 2, 4 * MS + 1);
                joiner.answer(LateAnswer { sent_ns, cycles: 2, cycle, address, arrived_ns: None, taken_ns });
            }
        }
        let stamps = CycleRecord { handed_ns: at_ns + 4, ..stamps };
        joiner.cycle(&CycleRecord { sent_ns: at_ns + 2, exchanged_ns: at_ns + 9, ..stamps }, true);
    }
    let mut rows = Vec::new();
    joiner.take(true, |row| rows.push(row));
    let stamps: Vec<_> = rows.iter().map(|row| (row.way.at_segment_ns, row.way.left_segment_ns)).collect();
    assert_eq!(stamps, [(2 * MS + 10, 3 * MS), (3 * MS + 10, 3 * MS + 20)]);
    let reported = causes(&rows, &Threads::default(), Err("no trace"));
    assert_eq!(
        reported.each.iter().map(|frame| frame.place).collect::<Vec<_>>(),
        [LatePlace::Segment, LatePlace::Outward]
    );
}

/// The row of a frame that was sent late because the controller waited for the one before.
fn waited() -> LateRow {
    let way = LateWay { planned_ns: 10 * MS, wake_ns: 10 * MS, begun_ns: 10 * MS, ..LateWay::default() };
    let way = LateWay { sent_ns: 11 * MS, handed_ns: 11 * MS, gave_up_ns: 11 * MS, taken_ns: 12 * MS, ..way };
    let way = LateWay { at_segment_ns: 11 * MS, left_segment_ns: 11 * MS, arrived_ns: 11 * MS + 10, ..way };
    LateRow { index: 10, late_cycles: 1, way, usual: Usual::default(), held_ns: 0, ran_ns: 0, still_ns: 0 }
}

#[test]
fn waiting_for_the_frame_before_has_its_cause_though_siblings_lie_between() {
    let own = waited();
    let before = |late_segment: bool| {
        let way = LateWay { planned_ns: 9 * MS, wake_ns: 9 * MS, begun_ns: 9 * MS, ..LateWay::default() };
        let way = LateWay { sent_ns: 9 * MS, handed_ns: 9 * MS, gave_up_ns: 11 * MS, ..way };
        let left_segment_ns = 9 * MS + if late_segment { 3 * MS } else { 10 };
        let way = LateWay { at_segment_ns: 9 * MS, left_segment_ns, arrived_ns: 12 * MS + 10, ..way };
        let way = LateWay { taken_ns: 13 * MS, ..way };
        LateRow { index: 9, late_cycles: 2, way, usual: Usual::default(), held_ns: 0, ran_ns: 0, still_ns: 0 }
    };
    let stranger = LateRow { way: LateWay { gave_up_ns: 11 * MS + 1, ..before(false).way }, ..before(false) };
    let reported = causes(&[before(true), stranger, own], &Threads::default(), Err("no trace"));
    let last = &reported.each[2];
    assert_eq!((last.inherited, last.place), (true, LatePlace::Segment), "{last:?}");
    // One that came within the grace has no row: waiting for it is reported as what it was, and
    // whose doing it was nobody knows.
    let reported = causes(&[own], &Threads::default(), Err("no trace"));
    let alone = &reported.each[0];
    assert_eq!(
        (alone.inherited, alone.place, reported.unexplained),
        (false, LatePlace::Before, 1),
        "{alone:?}"
    );
    assert_eq!(alone.blame, None);
}

#[test]
fn a_late_timer_of_the_segments_thread_is_this_hosts() {
    let threads = Threads { controller: Some(1), segment: Some(2) };
    let late = |cause| Late {
        index: 0,
        planned_ns: 0,
        end_ns: 0,
        lateness_us: 0.0,
        response_us: 0.0,
        cause,
        who: "busy (tid 7)".to_owned(),
        share: 1.0,
        inherited: false,
        backlog_of: None,
        never_ran: 0,
        parts: Vec::new(),
    };
    let in_segment = || {
        let way = LateWay { begun_ns: 0, left_segment_ns: 13 * MS, arrived_ns: 13 * MS, ..waited().way };
        let way = LateWay { wake_ns: 10 * MS, sent_ns: 10 * MS, handed_ns: 10 * MS, ..way };
        let rows = [LateRow { way: LateWay { at_segment_ns: 10 * MS, ..way }, ..waited() }];
        causes(&rows, &threads, Err("no trace")).each.remove(0)
    };
    let judged = |cause| {
        let mut frame = in_segment();
        assert_eq!((frame.place, frame.blame), (LatePlace::Segment, Some(Blame::Device)));
        frame.held_up_by(late(cause));
        let reported = attribute(vec![frame], &threads, None);
        (reported.causes[0].cause, reported.causes[0].blame, reported.unexplained)
    };
    assert_eq!(judged(Cause::TimerLate), (Some(Cause::TimerLate), Some(Blame::HostStack), 0));
    assert_eq!(judged(Cause::Steal), (Some(Cause::Steal), Some(Blame::HostStack), 0));
    // Asleep with a frame in its hands, and not on purpose: nobody says why.
    assert_eq!(judged(Cause::Waited), (Some(Cause::Waited), None, 1));
    assert_eq!(judged(Cause::Unknown), (Some(Cause::Unknown), None, 1));
    // Outside the segment its thread sleeps because no frame is there: nothing is said, and nobody
    // blamed.
    let beside = |place: LatePlace, cause| {
        let mut frame = LateFrame { place, blame: place.blame(), ..in_segment() };
        frame.held_up_by(late(cause));
        let reported = attribute(vec![frame], &threads, None);
        (reported.causes[0].blame, reported.unexplained)
    };
    for place in [LatePlace::Before, LatePlace::Outward, LatePlace::Homeward] {
        assert_eq!(beside(place, Cause::Waited), (None, 1));
        assert_eq!(beside(place, Cause::Unknown), (None, 1));
        assert_eq!(beside(place, Cause::TimerLate), (Some(Blame::HostStack), 0));
    }
}

#[test]
fn what_two_programs_did_is_two_causes_and_none_is_blamed_for_the_other() {
    let threads = Threads { controller: Some(1), segment: Some(2) };
    let frame = |who: &str, missed_by_us: f64| {
        let mut frame = causes(&[waited()], &threads, Err("no trace")).each.remove(0);
        (frame.who, frame.missed_by_us) = (who.to_owned(), missed_by_us);
        frame.cause = Some(Cause::Unpreemptible);
        frame
    };
    let all = [("poller (tid 75)", 9.0), ("collector (tid 80)", 30.0), ("poller (tid 76)", 20.0)];
    let frames: Vec<_> = all.map(|(who, missed_by_us)| frame(who, missed_by_us)).into();
    let reported = attribute(frames, &threads, None);
    let rows: Vec<_> =
        reported.causes.iter().map(|row| (row.who.as_str(), row.frames, row.worst_us)).collect();
    assert_eq!(rows, [("poller (tid 76)", 2, 20.0), ("collector (tid 80)", 1, 30.0)]);
}

#[test]
fn a_row_is_the_same_in_every_format() {
    let row = LateRow { usual: Usual { before_ns: 77, ..Usual::default() }, ..waited() };
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "test").unwrap();
    let mut file = dir.samples(LATE).unwrap();
    file.push(&row).unwrap();
    file.push(&LateRow::default()).unwrap();
    file.flush().unwrap();
    let names = COLUMNS.map(|(name, _)| name);
    assert_eq!(rows_of(&dir.columns(LATE, &names).unwrap()), [row, LateRow::default()]);
    let reported = causes(&[row], &Threads::default(), Err("no trace"));
    let again: LateCauses = serde_json::from_str(&serde_json::to_string(&reported).unwrap()).unwrap();
    assert_eq!(again, reported);
}

#[test]
fn an_answers_own_cycle_is_found_though_a_thousand_come_at_once() {
    let mut joiner = LateJoiner::new(ExchangeMode::Pipelined, false);
    // The second answer's cycle was not recorded.
    for (sent_ns, taken_ns) in [(5 * MS + 2, 7 * MS + 2), (MS / 2, 9 * MS + 2)] {
        joiner.answer(LateAnswer { sent_ns, cycles: 1, cycle: 5, address: 0, arrived_ns: None, taken_ns });
    }
    for cycle in 1..=1000 {
        let at_ns = cycle * MS;
        let record =
            CycleRecord { index: cycle, planned_ns: at_ns, wake_ns: at_ns + 1, ..CycleRecord::default() };
        joiner.cycle(&CycleRecord { sent_ns: at_ns + 2, exchanged_ns: at_ns + 9, ..record }, true);
    }
    let mut rows = Vec::new();
    joiner.take(false, |row| rows.push(row));
    let stamps: Vec<_> = rows.iter().map(|row| (row.index, row.way.planned_ns, row.way.gave_up_ns)).collect();
    assert_eq!(stamps, [(5, 5 * MS, 6 * MS + 2), (0, 0, 0)]);
    let reported = causes(&rows, &Threads::default(), Err("no trace"));
    assert!(reported.causes.iter().all(|cause| cause.worst_us < 2000.0), "{reported:?}");
    assert_eq!((reported.frames, reported.unexplained), (2, 2));
}
