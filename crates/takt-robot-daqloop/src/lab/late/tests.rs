//! Delays planted between polls and at the far end, and what is said of the edges that they made
//! late.

use takt_trace::event::{Event, Firmware, Kind, State as Left, StealReading, Thread, Vector};

use super::*;

/// The loop at FIFO 99 on CPU 0, its far end at FIFO 98 on CPU 1, and a thread at FIFO 99.
const LOOP: i32 = 100;
const FAR: i32 = 101;
const HOG: i32 = 7;
const THREADS_OF_RUN: Threads = Threads { acquisition: Some(LOOP), far_end: Some(FAR), wait_ns: 1000 };

/// Builds a trace, microseconds.
struct Story(Vec<Event>);

impl Story {
    /// The loop polls from the beginning, and its far end waits.
    fn new() -> Self {
        Self(Vec::new()).switch(0, 0, (0, Left::Runnable), (LOOP, 0)).switch(
            0,
            1,
            (FAR, Left::Sleeping),
            (0, 120),
        )
    }

    fn at(mut self, us: u64, cpu: u16, tid: i32, kind: Kind) -> Self {
        self.0.push(Event { time_ns: us * 1000, tid, cpu, kind });
        self
    }

    fn switch(
        self,
        us: u64,
        cpu: u16,
        (prev_tid, prev_state): (i32, Left),
        (next_tid, next_prio): (i32, i16),
    ) -> Self {
        let prev_prio = if prev_tid == FAR { 1 } else { 0 };
        self.at(us, cpu, prev_tid, Kind::Switch { prev_tid, prev_prio, prev_state, next_tid, next_prio })
    }

    fn end(self) -> Trace {
        let idle = Kind::CpuIdle { state: None };
        let mut trace = Trace { events: self.at(20_000, 1, 0, idle).0, ..Trace::default() };
        trace.sort();
        for (tid, name) in [(LOOP, "daq-acquire"), (FAR, "daq-echo"), (HOG, "takt-hog")] {
            trace.threads.insert(tid, Thread { name: name.to_owned(), pid: Some(tid) });
        }
        trace
    }
}

/// An edge that was written at 950 us and came at `received` us, with its longest time between two
/// polls.
fn edge(received: u64, [stall_from, stall]: [u64; 2]) -> EdgeRecord {
    EdgeRecord {
        sent_ns: 950_000,
        received_ns: received * 1000,
        latency_ns: (received - 940) * 1000,
        stall_from_ns: stall_from * 1000,
        stall_ns: stall * 1000,
        arrived: true,
        ..EdgeRecord::default()
    }
}

fn kept(text: &str) -> LateKept {
    LateKept::new(&toml::from_str(text).unwrap())
}

fn of(edge: EdgeRecord, trace: Result<&Trace, &str>) -> ExplainedEdge {
    let mut late = kept("deadline_us = 1000");
    late.push(7, &edge).expect("it is late");
    let mut found = causes(&late, &THREADS_OF_RUN, trace);
    assert_eq!((found.edges, found.each.len(), found.causes.len()), (1, 1, 1));
    assert_eq!(found.unexplained, u64::from(!found.each[0].explained));
    found.each.remove(0)
}

#[test]
fn a_thread_that_takes_the_loops_cpu_between_two_polls_is_named() {
    let hogged = Story::new()
        .switch(1000, 0, (LOOP, Left::Runnable), (HOG, 0))
        .switch(3500, 0, (HOG, Left::Sleeping), (LOOP, 0))
        .end();
    let held = edge(3510, [995, 2510]);
    let found = of(held, Ok(&hogged));
    assert_eq!(
        (found.place, found.cause),
        (EdgePlace::BetweenPolls, Some(Cause::HigherPriority)),
        "{found:#?}"
    );
    assert!(found.explained && found.share > 0.9 && found.who.contains("takt-hog"), "{found:#?}");
    assert!(found.why.contains("between two polls") && found.why.contains("takt-hog"), "{}", found.why);
    // Without the hog nobody is blamed, and without a trace nothing is known.
    let alone = of(held, Ok(&Story::new().end()));
    assert!(alone.cause != Some(Cause::HigherPriority) && !alone.why.contains("takt-hog"), "{alone:#?}");
    let untraced = of(held, Err("no permission"));
    assert!(untraced.cause.is_none() && !untraced.explained, "{untraced:#?}");
    assert!(untraced.why.contains("was not traced"), "{}", untraced.why);
    // A trace of another time says so.
    let elsewhere = EdgeRecord {
        sent_ns: 90_000_000,
        received_ns: 93_000_000,
        stall_from_ns: 90_000_000,
        stall_ns: 2_990_000,
        latency_ns: 3_000_000,
        arrived: true,
        ..EdgeRecord::default()
    };
    assert_eq!(of(elsewhere, Ok(&hogged)).cause, Some(Cause::NotRecorded));
}

#[test]
fn interrupts_between_two_polls_are_named() {
    let irq = Story::new().at(1000, 0, LOOP, Kind::IrqEntry { irq: 11 }).at(
        2600,
        0,
        LOOP,
        Kind::IrqExit { irq: 11 },
    );
    let mut trace = irq.end();
    trace.irqs.insert(11, "nvme0q1".to_owned());
    let found = of(edge(2610, [995, 1610]), Ok(&trace));
    assert_eq!((found.cause, found.who.as_str()), (Some(Cause::Interrupt), "nvme0q1"), "{found:#?}");
    let vector = Story::new()
        .at(1000, 0, LOOP, Kind::VectorEntry(Vector::CallFunction))
        .at(2600, 0, LOOP, Kind::VectorExit(Vector::CallFunction))
        .end();
    let found = of(edge(2610, [995, 1610]), Ok(&vector));
    assert_eq!((found.cause, found.who.as_str()), (Some(Cause::Interrupt), "call_function"), "{found:#?}");
}

#[test]
fn stolen_time_and_the_firmwares_are_distinguished() {
    // From 900 to 3100 the loop has the CPU, and is charged for 100 us of it.
    let trace = Story::new()
        .at(900, 0, LOOP, Kind::Runtime { tid: LOOP, runtime_ns: 900_000 })
        .at(3100, 0, LOOP, Kind::VectorEntry(Vector::LocalTimer))
        .at(3102, 0, LOOP, Kind::Runtime { tid: LOOP, runtime_ns: 100_000 })
        .at(3103, 0, LOOP, Kind::VectorExit(Vector::LocalTimer))
        .end();
    let reading = |us: u64, stolen_ms: u64| StealReading {
        cpu: 0,
        time_ns: us * 1000,
        stolen_ns: stolen_ms * 1_000_000,
    };
    let held = edge(3110, [990, 2115]);
    let cause = |steal: Vec<StealReading>| {
        let found = of(held, Ok(&Trace { guest: true, steal, ..trace.clone() }));
        assert!(found.explained, "{found:#?}");
        found.cause
    };
    assert_eq!(cause(vec![reading(0, 50), reading(50_000, 60)]), Some(Cause::Steal));
    assert_eq!(cause(vec![reading(0, 50), reading(50_000, 50)]), Some(Cause::Gap));
    // On bare metal: a gap of the hardware that a witness saw.
    let smi = Span { from_ns: 1_000_000, to_ns: 3_000_000 };
    let firmware = Firmware {
        gaps: vec![smi],
        watched: vec![Span { from_ns: 0, to_ns: 20_000_000 }],
        ..Firmware::default()
    };
    let found = of(held, Ok(&Trace { firmware, ..Story::new().end() }));
    assert_eq!(found.cause, Some(Cause::Gap), "{found:#?}");
    assert!(found.explained && found.why.contains("SMI"), "{}", found.why);
}

#[test]
fn a_link_that_was_late_is_asked_at_its_far_end() {
    // The far end is woken by the loop's write, and a thread of higher priority has its CPU.
    let waking = Kind::Waking { tid: FAR, prio: 1, target_cpu: 1 };
    let wakeup = Kind::Wakeup { tid: FAR, prio: 1, target_cpu: 1 };
    let hogged = Story::new()
        .switch(900, 1, (0, Left::Runnable), (HOG, 0))
        .at(955, 0, LOOP, waking)
        .at(956, 0, LOOP, wakeup)
        .switch(3400, 1, (HOG, Left::Sleeping), (FAR, 1))
        .end();
    // The polls went on: 3 us at most.
    let held = edge(3450, [2000, 3]);
    let found = of(held, Ok(&hogged));
    assert_eq!((found.place, found.cause), (EdgePlace::Link, Some(Cause::HigherPriority)), "{found:#?}");
    assert!(found.explained && found.who.contains("takt-hog"), "{found:#?}");
    assert!(found.why.contains("the thread at the far end lost to"), "{}", found.why);
    // A far end that nobody wakes waits as it always does: that explains nothing.
    let asleep = of(held, Ok(&Story::new().end()));
    assert!(!asleep.explained && asleep.place == EdgePlace::Link, "{asleep:#?}");
    // A board has no thread here, and a level that was lost was.
    let board = Threads { far_end: None, ..THREADS_OF_RUN };
    let mut late = kept("deadline_us = 1000");
    late.push(0, &held);
    late.push(1, &EdgeRecord { resends: 1, ..held });
    let found = causes(&late, &board, Ok(&hogged));
    assert!(found.each[0].why.contains("not a thread of this host"), "{}", found.each[0].why);
    assert!(
        found.each[1].explained && found.each[1].why.contains("sent again 1 times"),
        "{}",
        found.each[1].why
    );
    assert_eq!((found.unexplained, found.causes.len()), (1, 2));
}

#[test]
fn what_was_late_before_the_write_is_the_controllers_or_the_sleeps() {
    let late_of = |controller_ns: u64, trace: &Trace| {
        let edge = EdgeRecord {
            sent_ns: 3_000_000,
            received_ns: 3_020_000,
            latency_ns: 2_020_000,
            controller_ns,
            stall_from_ns: 3_000_000,
            stall_ns: 20_000,
            arrived: true,
            ..EdgeRecord::default()
        };
        of(edge, Ok(trace))
    };
    let controller = late_of(1_900_000, &Story::new().end());
    assert_eq!(controller.place, EdgePlace::Controller, "{controller:#?}");
    assert!(controller.explained && controller.why.contains("execution took 1900 us"), "{}", controller.why);
    // It slept, was woken, and another thread had the CPU until 2990 us.
    let waking = Kind::Waking { tid: LOOP, prio: 0, target_cpu: 0 };
    let slept = Story::new()
        .switch(1000, 0, (LOOP, Left::Sleeping), (HOG, 0))
        .at(1002, 0, HOG, waking)
        .at(1003, 0, HOG, Kind::Wakeup { tid: LOOP, prio: 0, target_cpu: 0 })
        .switch(2990, 0, (HOG, Left::Sleeping), (LOOP, 0))
        .end();
    let pause = late_of(0, &slept);
    assert_eq!((pause.place, pause.cause), (EdgePlace::Pause, Some(Cause::HigherPriority)), "{pause:#?}");
    assert!(pause.explained && pause.why.contains("sleep between two edges"), "{}", pause.why);
}

#[test]
fn what_is_kept_is_bounded_and_without_a_deadline_the_latest() {
    let of = |index: u64, us: u64| {
        (
            index,
            EdgeRecord {
                received_ns: us * 1000,
                latency_ns: us * 1000,
                arrived: true,
                ..EdgeRecord::default()
            },
        )
    };
    let mut late = kept("deadline_us = 100");
    for (index, edge) in (0..2000).map(|index| of(index, 90 + 20 * (index % 2))) {
        assert_eq!(late.push(index, &edge).is_some(), index % 2 == 1);
    }
    assert_eq!((late.count, late.edges.len()), (1000, MAX_KEPT));
    let found = causes(&late, &THREADS_OF_RUN, Err("x"));
    assert_eq!((found.edges, found.unexplained), (1000, 1000));
    let mut latest = kept("");
    for (index, edge) in (0..1000).map(|index| of(index, index * 7 % 1000)) {
        latest.push(index, &edge);
    }
    let mut kept_us: Vec<u64> = latest.edges.iter().map(|edge| edge.latency_ns / 1000).collect();
    kept_us.sort_unstable();
    assert_eq!((latest.count, kept_us), (0, (980..1000).collect()));
    // One that never came is late whatever the deadline is.
    let lost = EdgeRecord { received_ns: 5, ..EdgeRecord::default() };
    assert!(late.push(2000, &lost).is_some());
    assert_eq!(late.count, 1001);
    assert_eq!(kept("stop.threshold_ns = 75_000").limit_ns, Some(75_000));
}
