//! Delays planted at each place of a frame's way, at random, and what is said of the frames that
//! they made late.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use takt_link_ethercat::segment::{Outcome, Segment, When, WireFault};
use takt_trace::event::{Event, Kind, State, Thread, Vector};

use super::*;

/// Fate of the next frame.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// The place where it is held up, and for how long, microseconds.
    delay: Option<(LatePlace, u64)>,
    /// A second copy goes out so much later.
    again_us: Option<u64>,
    /// It does not come back.
    is_lost: bool,
}

type Next = Arc<Mutex<Fate>>;

/// A wire in simulated time with a fate for each frame. Frames come to the segment in their order.
struct Planted {
    segment: Segment,
    time: SimulatedTime,
    next: Next,
    home_us: u64,
    at_segment_ns: u64,
    under_way: Vec<(u64, Vec<u8>)>,
    arrived_ns: Option<u64>,
}

impl Planted {
    fn pass(&mut self, mut bytes: Vec<u8>, outward_ns: u64, [within_ns, home_ns]: [u64; 2], is_lost: bool) {
        let at_ns = (self.time.now_ns() + 10 * US + outward_ns).max(self.at_segment_ns);
        self.at_segment_ns = at_ns;
        if let Outcome::Return { .. } = self.segment.process(&mut bytes, at_ns) {
            let left_ns = at_ns + 5 * US + within_ns;
            let stay = Stay { left_ns, held_ns: within_ns, ..Stay::held(at_ns, 0) };
            self.segment.passed(&bytes, stay);
            if !is_lost {
                self.under_way.push((left_ns + self.home_us * US + home_ns, bytes));
            }
        }
    }
}

impl Wire for Planted {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let Fate { delay, again_us, is_lost } = std::mem::take(&mut *self.next.lock().unwrap());
        let at = |place| delay.filter(|delay| delay.0 == place).map_or(0, |delay| delay.1 * US);
        self.time.go_to(self.time.now_ns() + at(LatePlace::Handing));
        let way = [at(LatePlace::Segment), at(LatePlace::Homeward)];
        self.pass(frame.to_vec(), at(LatePlace::Outward), way, is_lost);
        if let Some(us) = again_us {
            self.pass(frame.to_vec(), us * US, [0, 0], false);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let now_ns = self.time.now_ns();
        let first = (0..self.under_way.len()).min_by_key(|&at| self.under_way[at].0);
        let Some(at) = first.filter(|&at| self.under_way[at].0 <= now_ns) else { return Ok(None) };
        let (due_ns, bytes) = self.under_way.remove(at);
        self.arrived_ns = Some(due_ns);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(Some(bytes.len()))
    }

    fn wait(&mut self, deadline_ns: u64) {
        let due_ns = self.under_way.iter().map(|frame| frame.0).min().unwrap_or(u64::MAX);
        self.time.go_to(deadline_ns.min(due_ns));
    }

    fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns
    }

    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn sleep_until(&mut self, at_ns: u64) {
        self.time.go_to(at_ns);
    }
}

fn bench(mode: ExchangeMode, home_us: u64) -> (Bench, Next) {
    let time = SimulatedTime::new(MS);
    let config = SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(4) };
    let mut segment = Segment::new(&config).unwrap();
    let truth = segment.truth(1 << 16);
    let next = Next::default();
    let wire = Planted {
        segment,
        time: time.clone(),
        next: Arc::clone(&next),
        home_us,
        at_segment_ns: 0,
        under_way: Vec::new(),
        arrived_ns: None,
    };
    (Bench::over(mode, Box::new(wire), time, truth), next)
}

/// The same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn what_is_said_is_what_was_planted() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let waiting = mode == ExchangeMode::Waiting;
        let (mut bench, next) = bench(mode, if waiting { 150 } else { 700 });
        let mut random = Random(14);
        let mut planted: Vec<(u64, LatePlace)> = Vec::new();
        for cycle in 0..12_000 {
            let mut late_us = 5 + random.below(20);
            if cycle % 50 == 20 {
                let places = [
                    LatePlace::WakeUp,
                    LatePlace::Handing,
                    LatePlace::Outward,
                    LatePlace::Segment,
                    LatePlace::Homeward,
                ];
                let place = places[random.below(5) as usize];
                let us = 1200 + random.below(1600);
                planted.push((cycle, place));
                match place {
                    // More, and the answer is there when the next cycle, which is late likewise,
                    // looks for it.
                    LatePlace::WakeUp => late_us = 960 + random.below(40),
                    _ => next.lock().unwrap().delay = Some((place, us)),
                }
            }
            bench.cycle(late_us);
        }
        let reported = bench.causes();
        assert_eq!(
            (reported.frames, reported.frames),
            (bench.late_frames, bench.rows.len() as u64),
            "{mode:?}"
        );
        let mut seen: BTreeMap<LatePlace, u64> = BTreeMap::new();
        for frame in &reported.each {
            let index = frame.stamps.index;
            let (cycle, place) = *planted.iter().rev().find(|planted| planted.0 <= index).unwrap();
            assert!(index < cycle + 16, "{mode:?}: nothing was planted: {frame:?}");
            // A thread that takes long to hand over is late for the next release.
            let follows = place == LatePlace::Handing && frame.place == LatePlace::WakeUp;
            assert!(frame.place == place || follows, "{mode:?}: {place:?} was planted: {frame:?}");
            *seen.entry(place).or_default() += 1;
        }
        // A waiting exchange waits from sending on: neither its wake-up nor what handing over took
        // makes an answer late, but by its wait.
        let least = |place| if waiting && place == LatePlace::WakeUp { 0 } else { 10 };
        for place in [
            LatePlace::WakeUp,
            LatePlace::Handing,
            LatePlace::Outward,
            LatePlace::Segment,
            LatePlace::Homeward,
        ] {
            let seen = seen.get(&place).copied().unwrap_or(0);
            assert!(seen >= least(place), "{mode:?}: {place:?} {seen}");
        }
        assert!(!waiting || !seen.contains_key(&LatePlace::WakeUp));
    }
}

#[test]
fn doubled_and_lost_frames_change_nothing_of_what_is_said() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let (mut bench, next) = bench(mode, 150);
        let mut random = Random(3);
        let (mut doubled, mut lost) = (0, 0);
        for cycle in 0..6000 {
            let mut fate = Fate::default();
            if cycle % 30 == 7 {
                // The first copy is slow on its way back, and the second goes out meanwhile, to
                // come after it.
                fate.delay = Some((LatePlace::Homeward, 1200 + random.below(300)));
                fate.again_us = Some(1600 + random.below(200));
                doubled += 1;
            }
            if cycle % 30 == 22 {
                fate.is_lost = true;
                lost += 1;
            }
            *next.lock().unwrap() = fate;
            bench.cycle(5);
        }
        let reported = bench.causes();
        assert!(
            reported.frames >= doubled && reported.frames == bench.late_frames,
            "{mode:?}: {} {doubled}",
            reported.frames
        );
        // The frames behind a second copy queue behind it.
        let right = reported.each.iter().filter(|frame| frame.stamps.index % 30 == 7);
        assert!(right.clone().count() as u64 >= doubled);
        for frame in right {
            assert_eq!(frame.place, LatePlace::Homeward, "{mode:?}: {frame:?}");
        }
        let totals = bench.port.totals();
        assert!(totals.lost_frames.abs_diff(lost) <= 1, "{mode:?}: {totals:?}, {lost} lost");
        assert!(totals.strays.twice.abs_diff(doubled) <= 1, "{mode:?}: {totals:?}, {doubled} doubled");
    }
}

#[test]
fn a_way_that_is_always_too_slow_is_named() {
    for (place, us) in [(LatePlace::Segment, 1400), (LatePlace::Homeward, 1400), (LatePlace::Outward, 1400)] {
        let (mut bench, next) = bench(ExchangeMode::Pipelined, 100);
        for _ in 0..400 {
            next.lock().unwrap().delay = Some((place, us));
            bench.cycle(5);
        }
        let reported = bench.causes();
        assert!(
            reported.frames > 300 && reported.frames == bench.late_frames,
            "{place:?}: {}",
            reported.frames
        );
        let named: u64 = reported.causes.iter().filter(|row| row.place == place).map(|row| row.frames).sum();
        assert!(named * 10 > reported.frames * 9, "{place:?}: {:?}", reported.causes);
    }
}

const CONTROLLER: i32 = 10;
const SEGMENT: i32 = 11;

/// A trace of both threads, each on a CPU of its own: the controller gets the events of `own`, the
/// segment's thread sleeps from the beginning until a frame comes.
fn trace(own: &[(u64, Kind)]) -> Trace {
    let mut trace = Trace::default();
    let switch = |prev_tid, prev_state, next_tid, next_prio| Kind::Switch {
        prev_tid,
        prev_prio: 10,
        prev_state,
        next_tid,
        next_prio,
    };
    let mut at =
        |cpu: u16, time_ns: u64, tid: i32, kind: Kind| trace.events.push(Event { time_ns, tid, cpu, kind });
    at(0, 1, 0, switch(0, State::Runnable, CONTROLLER, 10));
    at(1, 1, 0, switch(0, State::Runnable, SEGMENT, 10));
    at(1, 2, SEGMENT, switch(SEGMENT, State::Sleeping, 0, 120));
    for &(time_ns, kind) in own {
        let tid = match kind {
            Kind::Switch { prev_tid, .. } => prev_tid,
            _ => CONTROLLER,
        };
        at(0, time_ns, tid, kind);
    }
    at(0, 100 * MS, CONTROLLER, Kind::CpuIdle { state: None });
    at(1, 100 * MS, 0, Kind::CpuIdle { state: None });
    trace.sort();
    for (tid, name) in [(CONTROLLER, "humanoid"), (SEGMENT, "segment"), (12, "busy")] {
        trace.threads.insert(tid, Thread { name: name.to_owned(), pid: Some(tid) });
    }
    trace
}

#[test]
fn a_controller_that_is_preempted_while_it_waits_for_the_frame_before_was_not_made_late_by_that() {
    let threads = Threads { controller: Some(CONTROLLER), segment: Some(SEGMENT) };
    let switch = |prev_tid, prev_state, next_tid| Kind::Switch {
        prev_tid,
        prev_prio: if prev_tid == 12 { 0 } else { 10 },
        prev_state,
        next_tid,
        next_prio: if next_tid == 12 { 0 } else { 10 },
    };
    // From 10 to 11 ms it waits for the frame before, which comes late itself, as the wire held it
    // up.
    let preempted = [
        (10 * MS + 50 * US, switch(CONTROLLER, State::Runnable, 12)),
        (10 * MS + 990 * US, switch(12, State::Sleeping, CONTROLLER)),
    ];
    let before = LateWay { planned_ns: 9 * MS, wake_ns: 9 * MS, begun_ns: 9 * MS, ..LateWay::default() };
    let before = LateWay { sent_ns: 9 * MS, handed_ns: 9 * MS, gave_up_ns: 11 * MS, ..before };
    let before = LateWay { at_segment_ns: 9 * MS, left_segment_ns: 9 * MS, arrived_ns: 12 * MS, ..before };
    let before = LateRow { way: LateWay { taken_ns: 12 * MS, ..before }, ..waited() };
    for rows in [vec![waited()], vec![before, waited()]] {
        let reported = causes(&rows, &threads, Ok(&trace(&preempted)));
        let own = reported.each.last().unwrap();
        assert_eq!(
            (own.place, own.cause, own.inherited),
            (LatePlace::Before, Some(Cause::HigherPriority), false)
        );
        assert_eq!((own.blame, own.holder), (Some(Blame::HostStack), Some(Holder::Controller)));
        assert!(own.who.contains("busy") && own.why.contains("the controller lost to"), "{}", own.why);
    }
    // Asleep until the answer comes, or for as long as it waits for it: that is the frame before.
    let timer = Kind::TimerStart { timer: 1, function: 1, expires_ns: 11 * MS, slack_ns: 0 };
    let slept = [
        (10 * MS + 5 * US, timer),
        (10 * MS + 10 * US, switch(CONTROLLER, State::Sleeping, 12)),
        (11 * MS - 5 * US, Kind::Waking { tid: CONTROLLER, prio: 10, target_cpu: 0 }),
        (11 * MS - 4 * US, switch(12, State::Runnable, CONTROLLER)),
    ];
    let reported = causes(&[waited()], &threads, Ok(&trace(&slept)));
    let own = &reported.each[0];
    assert_eq!((own.place, own.blame, reported.unexplained), (LatePlace::Before, None, 1), "{own:?}");
    let reported = causes(&[before, waited()], &threads, Ok(&trace(&slept)));
    assert!(
        reported.each[1].inherited && reported.each[1].place == LatePlace::Homeward,
        "{:?}",
        reported.each[1]
    );
}

#[test]
fn the_frame_before_may_come_after_the_one_that_was_sent_late_for_it() {
    let way = LateWay { planned_ns: 9 * MS, wake_ns: 9 * MS, begun_ns: 9 * MS, ..LateWay::default() };
    let way = LateWay { sent_ns: 9 * MS, handed_ns: 9 * MS, gave_up_ns: 11 * MS, ..way };
    let way = LateWay { at_segment_ns: 9 * MS, left_segment_ns: 13 * MS, arrived_ns: 13 * MS, ..way };
    let before = LateRow { way: LateWay { taken_ns: 13 * MS, ..way }, ..waited() };
    // Its answer was taken first, and reported first.
    let reported = causes(&[waited(), before], &Threads::default(), Err("no trace"));
    assert_eq!(
        (reported.each[0].inherited, reported.each[0].place),
        (true, LatePlace::Segment),
        "{:?}",
        reported.each[0]
    );
}

#[test]
fn what_explains_one_frame_does_not_explain_others_of_its_place() {
    let threads = Threads { controller: None, segment: Some(SEGMENT) };
    let frame = causes(&[waited()], &threads, Err("no trace")).each.remove(0);
    let in_segment = LateFrame { place: LatePlace::Segment, blame: Some(Blame::Device), ..frame };
    let frame = |kept| LateFrame { kept, ..in_segment.clone() };
    let reported = attribute(vec![frame(true), frame(false), frame(true)], &threads, None);
    let rows: Vec<_> = reported.causes.iter().map(|row| (row.frames, row.explained)).collect();
    assert_eq!((rows, reported.unexplained), (vec![(2, true), (1, false)], 1));
}

#[test]
fn a_segment_that_works_or_is_in_the_firmware_cannot_be_instructed_to_keep_frames() {
    let threads = Threads { controller: None, segment: Some(SEGMENT) };
    let frame = causes(&[waited()], &threads, Err("no trace")).each.remove(0);
    for place in [LatePlace::Segment, LatePlace::Outward, LatePlace::Homeward] {
        let mut frame = LateFrame { place, blame: place.blame(), ..frame.clone() };
        let late = Late {
            index: 0,
            planned_ns: 0,
            end_ns: 0,
            lateness_us: 0.0,
            response_us: 0.0,
            cause: Cause::ExecutionOrFirmware,
            who: String::new(),
            share: 1.0,
            inherited: false,
            backlog_of: None,
            never_ran: 0,
            parts: Vec::new(),
        };
        frame.held_up_by(late);
        assert_eq!(
            (frame.kept, frame.cause, frame.blame),
            (false, Some(Cause::ExecutionOrFirmware), None),
            "{place:?}"
        );
    }
}

#[test]
fn a_device_kept_what_its_own_stamps_say_and_nothing_else() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let time = SimulatedTime::new(MS);
        let config = SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(4) };
        let mut segment = Segment::new(&config).unwrap();
        let (truth, control) = (segment.truth(1 << 16), segment.control());
        let wire = in_simulated_time(segment, time.clone(), |_| Some(120 * US));
        let mut bench = Bench::over(mode, wire, time, truth);
        (0..200).for_each(|_| bench.cycle(10));
        control.wire(WireFault::Delay(Duration::from_micros(1700)), When::Every(50));
        (0..1000).for_each(|_| bench.cycle(10));
        // Whatever else is known: nobody asks the kernel of these.
        let threads = Threads { controller: Some(CONTROLLER), segment: Some(SEGMENT) };
        for trace in [Ok(&trace(&[])), Err("no trace")] {
            let reported = causes(&bench.rows, &threads, trace);
            let kept =
                reported.each.iter().filter(|frame| frame.kept && frame.place == LatePlace::Segment).count();
            assert!(kept >= 19 && reported.frames == bench.late_frames, "{mode:?}: {kept} {reported:?}");
            assert_eq!(reported.unexplained, reported.frames - kept as u64, "{mode:?}: {reported:?}");
            assert!(reported.causes[0].why.contains("the device held it back on purpose"), "{reported:?}");
            // As long there, and not on purpose; and on purpose for less than half of it.
            for held_ns in [0, 800 * US] {
                let rows: Vec<_> = bench.rows.iter().map(|row| LateRow { held_ns, ..*row }).collect();
                let reported = causes(&rows, &threads, trace);
                assert!(reported.each.iter().all(|frame| !frame.kept), "{held_ns}: {reported:?}");
                assert_eq!(reported.unexplained, reported.frames, "{held_ns}: {reported:?}");
            }
        }
    }
}

/// The row of a frame that was in the segment for 3 ms from 10 ms on, while its thread ran for
/// `ran_ns`.
fn in_segment(ran_ns: u64) -> LateRow {
    let way = LateWay { begun_ns: 0, left_segment_ns: 13 * MS, arrived_ns: 13 * MS, ..waited().way };
    let way = LateWay { wake_ns: 10 * MS, sent_ns: 10 * MS, handed_ns: 10 * MS, ..way };
    LateRow { way: LateWay { at_segment_ns: 10 * MS, ..way }, ran_ns, ..waited() }
}

/// A trace in which the segment's thread is woken at 9.9 ms and has its CPU from then on, but for
/// what `others` took of it.
fn segments_trace(others: &[(u64, u64, i32)]) -> Trace {
    let mut trace = trace(&[]);
    let switch = |prev_tid, prev_state, next_tid| Kind::Switch {
        prev_tid,
        prev_prio: if prev_tid == SEGMENT { 10 } else { 5 },
        prev_state,
        next_tid,
        next_prio: if next_tid == SEGMENT { 10 } else { 5 },
    };
    let mut at = |time_ns: u64, tid: i32, kind: Kind| trace.events.push(Event { time_ns, tid, cpu: 1, kind });
    at(9_900 * US, 0, Kind::Waking { tid: SEGMENT, prio: 10, target_cpu: 1 });
    at(9_901 * US, 0, switch(0, State::Runnable, SEGMENT));
    for &(from_us, to_us, tid) in others {
        at(from_us * US, SEGMENT, switch(SEGMENT, State::Runnable, tid));
        at(to_us * US, tid, switch(tid, State::Sleeping, SEGMENT));
    }
    at(14 * MS, SEGMENT, switch(SEGMENT, State::Sleeping, 0));
    trace.sort();
    trace
}

#[test]
fn a_cause_explains_at_least_half_of_a_delay() {
    let threads = Threads { controller: None, segment: Some(SEGMENT) };
    let judged = |ran_us: u64, others: &[(u64, u64, i32)]| {
        causes(&[in_segment(ran_us * US)], &threads, Ok(&segments_trace(others))).each.remove(0)
    };
    // Its clock stood still, on a CPU that it had by both accounts.
    let row = LateRow { still_ns: 2900 * US, ..in_segment(2990 * US) };
    let still = causes(&[row], &threads, Ok(&segments_trace(&[]))).each.remove(0);
    assert_eq!((still.cause, still.blame), (Some(Cause::Gap), Some(Blame::HostStack)), "{still:?}");
    assert!(still.why.contains("2900 µs between two readings"), "{}", still.why);
    // So did that of the frame behind it, which lay before the segment meanwhile.
    let way = LateWay { sent_ns: 10_100 * US, handed_ns: 10_100 * US, ..row.way };
    let way = LateWay { at_segment_ns: 13_001 * US, left_segment_ns: 13_010 * US, ..way };
    let behind = LateRow { way: LateWay { arrived_ns: 13_020 * US, ..way }, still_ns: 0, ran_ns: 0, ..row };
    let reported = causes(&[row, behind], &threads, Ok(&segments_trace(&[])));
    assert_eq!(
        (reported.each[1].place, reported.each[1].cause),
        (LatePlace::Outward, Some(Cause::Gap)),
        "{reported:?}"
    );
    // A timer of its CPU was due, and did not come.
    let mut trace = segments_trace(&[]);
    let timer = Kind::TimerStart { timer: 7, function: 1, expires_ns: 10_200 * US, slack_ns: 0 };
    let event = |time_ns, kind| Event { time_ns, tid: SEGMENT, cpu: 1, kind };
    trace.events.push(event(9_950 * US, timer));
    trace.events.push(event(12_900 * US, Kind::VectorEntry(Vector::LocalTimer)));
    trace.events.push(event(12_910 * US, Kind::VectorExit(Vector::LocalTimer)));
    trace.sort();
    let overdue = causes(&[in_segment(0)], &threads, Ok(&trace)).each.remove(0);
    assert_eq!(overdue.cause, Some(Cause::Gap), "{overdue:?}");
    assert!(overdue.share > 0.85 && overdue.who.contains("timers of its CPU"), "{overdue:?}");
    // It worked, by both accounts. Nothing here distinguishes firmware from it, so nobody is to
    // blame.
    let worked = judged(2990, &[]);
    assert_eq!((worked.cause, worked.kept), (Some(Cause::ExecutionOrFirmware), false), "{worked:?}");
    assert!(worked.blame.is_none() && worked.why.contains("cannot be distinguished"), "{}", worked.why);
    // Events that leave out who had the CPU charge its thread with it; its CPU time does not.
    let idle = judged(20, &[]);
    assert_eq!((idle.cause, idle.blame), (Some(Cause::Unknown), None), "{idle:?}");
    assert!(idle.why.contains("is unexplained") && idle.why.contains("CPU time"), "{}", idle.why);
    // Others had it for most of the time, or for no half of it each.
    let busy = judged(900, &[(10_100, 12_200, 12)]);
    assert_eq!(busy.cause, Some(Cause::HigherPriority), "{busy:?}");
    assert!(busy.share > 0.6 && !busy.why.contains("unexplained"), "{busy:?}");
    let causes_of = |frame: &LateFrame| frame.parts.iter().map(|part| part.cause).collect::<Vec<_>>();
    assert_eq!(causes_of(&busy), [Cause::HigherPriority, Cause::ExecutionOrFirmware]);
    let third = Part { cause: Cause::Steal, who: String::new(), ns: 1, share: 0.4 };
    let two = LateFrame { share: 0.45, parts: vec![busy.parts[0].clone(), third], ..busy.clone() };
    let reported = attribute(vec![two], &threads, None);
    assert!(
        reported.unexplained == 0 && reported.causes[0].why.contains("and 40 % to hypervisor steal"),
        "{reported:?}"
    );
    let part = LateFrame { share: 0.49, ..busy };
    let reported = attribute(vec![part], &threads, None);
    assert_eq!((reported.unexplained, reported.causes[0].explained), (1, false));
    assert!(reported.causes[0].why.contains("most of it, 49 %"), "{reported:?}");
}
