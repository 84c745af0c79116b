//! Delays planted at each place of a frame's way, at random, and what is said of the frames that
//! they made late.

use std::io;
use std::sync::{Arc, Mutex};

use takt_link_ethercat::segment::{Outcome, Segment};
use takt_trace::event::{Event, Kind, State, Thread};

use super::*;

/// What happens to the next frame.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// The place where it is held up, and for how long, microseconds.
    delay: Option<(Place, u64)>,
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
            self.segment.passed(&bytes, at_ns, left_ns);
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
        self.time.go_to(self.time.now_ns() + at(Place::Handing));
        let way = [at(Place::Segment), at(Place::Homeward)];
        self.pass(frame.to_vec(), at(Place::Outward), way, is_lost);
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
        let mut planted: Vec<(u64, Place)> = Vec::new();
        for cycle in 0..12_000 {
            let mut late_us = 5 + random.below(20);
            if cycle % 50 == 20 {
                let places = [Place::WakeUp, Place::Handing, Place::Outward, Place::Segment, Place::Homeward];
                let place = places[random.below(5) as usize];
                let us = 1200 + random.below(1600);
                planted.push((cycle, place));
                match place {
                    // More, and the answer is there when the next cycle, which is late likewise,
                    // looks for it.
                    Place::WakeUp => late_us = 960 + random.below(40),
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
        let mut seen: BTreeMap<Place, u64> = BTreeMap::new();
        for frame in &reported.each {
            let index = frame.stamps.index;
            let (cycle, place) = *planted.iter().rev().find(|planted| planted.0 <= index).unwrap();
            assert!(index < cycle + 16, "{mode:?}: nothing was planted: {frame:?}");
            // Who hands over for long is late for the next release.
            let follows = place == Place::Handing && frame.place == Place::WakeUp;
            assert!(frame.place == place || follows, "{mode:?}: {place:?} was planted: {frame:?}");
            *seen.entry(place).or_default() += 1;
        }
        // A waiting exchange waits from sending on: neither its wake-up nor what handing over took
        // makes an answer late, but by its wait.
        let least = |place| if waiting && place == Place::WakeUp { 0 } else { 10 };
        for place in [Place::WakeUp, Place::Handing, Place::Outward, Place::Segment, Place::Homeward] {
            let seen = seen.get(&place).copied().unwrap_or(0);
            assert!(seen >= least(place), "{mode:?}: {place:?} {seen}");
        }
        assert!(!waiting || !seen.contains_key(&Place::WakeUp));
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
                fate.delay = Some((Place::Homeward, 1200 + random.below(300)));
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
            assert_eq!(frame.place, Place::Homeward, "{mode:?}: {frame:?}");
        }
        let totals = bench.port.totals();
        assert!(totals.lost_frames.abs_diff(lost) <= 1, "{mode:?}: {totals:?}, {lost} lost");
        assert!(totals.strays.twice.abs_diff(doubled) <= 1, "{mode:?}: {totals:?}, {doubled} doubled");
    }
}

#[test]
fn a_way_that_is_always_too_slow_is_named() {
    for (place, us) in [(Place::Segment, 1400), (Place::Homeward, 1400), (Place::Outward, 1400)] {
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
            (Place::Before, Some(Cause::HigherPriority), false)
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
    assert_eq!((own.place, own.blame, reported.unexplained), (Place::Before, None, 1), "{own:?}");
    let reported = causes(&[before, waited()], &threads, Ok(&trace(&slept)));
    assert!(
        reported.each[1].inherited && reported.each[1].place == Place::Homeward,
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
        (true, Place::Segment),
        "{:?}",
        reported.each[0]
    );
}

#[test]
fn what_explains_one_frame_does_not_explain_others_of_its_place() {
    let threads = Threads { controller: None, segment: Some(SEGMENT) };
    let frame = causes(&[waited()], &threads, Err("no trace")).each.remove(0);
    let in_segment = LateFrame { place: Place::Segment, blame: Some(Blame::Device), ..frame };
    let reported = attribute(
        vec![in_segment.clone(), in_segment.clone(), in_segment],
        &threads,
        &[true, false, true],
        None,
    );
    let rows: Vec<_> = reported.causes.iter().map(|row| (row.frames, row.explained)).collect();
    assert_eq!((rows, reported.unexplained), (vec![(2, true), (1, false)], 1));
}

#[test]
fn a_segment_that_works_or_is_in_the_firmware_cannot_be_instructed_to_keep_frames() {
    let threads = Threads { controller: None, segment: Some(SEGMENT) };
    let frame = causes(&[waited()], &threads, Err("no trace")).each.remove(0);
    for place in [Place::Segment, Place::Outward, Place::Homeward] {
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
        assert!(!frame.held_up_by(late));
        assert_eq!((frame.cause, frame.blame), (Some(Cause::ExecutionOrFirmware), None), "{place:?}");
    }
}
