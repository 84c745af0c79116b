use super::*;
use crate::event::{
    Event, Firmware, Kind, SmiReading, Softirq, Span, State, StealReading, Thread, Vector, WakeStack,
};

mod steps;

/// The thread under test, at FIFO 50.
const TASK: i32 = 100;
const PRIO: i16 = 49;
/// A busy fair thread, and its CPU's software interrupt thread.
const BUSY: i32 = 7;
const KTIMERS: i32 = 16;
const TIMER: u64 = 0xf00;

/// Builds a trace of CPU 0, microseconds.
struct Story(Vec<Event>);

impl Story {
    fn new() -> Self {
        Self(Vec::new()).switch(0, BUSY, 120, State::Runnable, TASK, PRIO)
    }

    fn at(mut self, us: u64, tid: i32, kind: Kind) -> Self {
        self.0.push(Event { time_ns: us * 1000, tid, cpu: 0, kind });
        self
    }

    fn switch(self, us: u64, prev: i32, prev_prio: i16, state: State, next: i32, next_prio: i16) -> Self {
        let kind = Kind::Switch { prev_tid: prev, prev_prio, prev_state: state, next_tid: next, next_prio };
        self.at(us, prev, kind)
    }

    /// The task arms its timer for `expires` and sleeps.
    fn sleep(self, us: u64, expires: u64) -> Self {
        let start = Kind::TimerStart { timer: TIMER, function: 1, expires_ns: expires * 1000, slack_ns: 0 };
        self.at(us, TASK, start).switch(us + 1, TASK, PRIO, State::Sleeping, BUSY, 120)
    }

    /// Its timer expires directly in the interrupt.
    fn wake(self, us: u64, running: i32) -> Self {
        self.at(us, running, Kind::VectorEntry(Vector::LocalTimer))
            .at(us + 1, running, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: us * 1000 })
            .at(us + 2, running, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
            .at(us + 3, running, Kind::Wakeup { tid: TASK, prio: PRIO, target_cpu: 0 })
            .at(us + 4, running, Kind::TimerExpireExit { timer: TIMER })
            .at(us + 5, running, Kind::VectorExit(Vector::LocalTimer))
    }

    fn end(self, us: u64) -> Trace {
        let events = self.at(us, BUSY, Kind::CpuIdle { state: None }).0;
        let mut trace = Trace { events, ..Trace::default() };
        for (tid, name, pid) in
            [(TASK, "fcs", 100), (BUSY, "busy", 7), (KTIMERS, "ktimers/0", 16), (101, "helper", 100)]
        {
            trace.threads.insert(tid, Thread { name: name.to_owned(), pid: Some(pid) });
        }
        trace
    }
}

fn job(planned: u64, wake: u64, start: u64, end: u64) -> JobRecord {
    JobRecord {
        index: planned / 1000,
        planned_ns: planned * 1000,
        wake_ns: wake * 1000,
        start_ns: start * 1000,
        end_ns: end * 1000,
        ..JobRecord::default()
    }
}

fn segment(report: &TraceReport, name: &str) -> f64 {
    report
        .segments_us
        .iter()
        .find(|segment| segment.name == name)
        .map_or(f64::NAN, |segment| segment.summary.median)
}

#[test]
fn the_direct_path_is_reported_step_by_step() {
    let story = Story::new().sleep(10, 1000).wake(1003, BUSY);
    let trace = story.switch(1020, BUSY, 120, State::Runnable, TASK, PRIO).sleep(1100, 2000).end(1200);
    let report = analyse(&trace, TASK, &[job(1000, 1024, 1030, 1090)]).unwrap();
    assert_eq!((report.releases, report.matched, report.late), (1, 1, 0));
    assert_eq!(report.activations["timer"], 1);
    assert_eq!(report.switches[&1], 1);
    for (name, us) in [
        ("slack", 0.0),
        ("timer", 3.0),
        ("expiry", 1.0),
        ("wakeup", 1.0),
        ("switch", 15.0),
        ("resume", 4.0),
        ("inputs", 6.0),
        ("execution", 60.0),
    ] {
        assert_eq!(segment(&report, name), us, "{name}");
    }
    let table = table(["direct", "none"], [&report.sequence, &[]]);
    assert!(table.contains("| 17.0 | sched_switch (to fcs) | - | - |"), "{table}");
}

/// The right column of the paper's Table 6.
#[test]
fn the_deferred_path_counts_its_switches() {
    let hrtimer = Softirq::HRTIMER;
    let trace = Story::new()
        .sleep(10, 1000)
        .at(1000, BUSY, Kind::VectorEntry(Vector::LocalTimer))
        .at(1005, BUSY, Kind::SoftirqRaise(hrtimer))
        .at(1016, BUSY, Kind::Waking { tid: KTIMERS, prio: 98, target_cpu: 0 })
        .at(1017, BUSY, Kind::Wakeup { tid: KTIMERS, prio: 98, target_cpu: 0 })
        .at(1018, BUSY, Kind::VectorExit(Vector::LocalTimer))
        .switch(1054, BUSY, 120, State::Runnable, KTIMERS, 98)
        .at(1060, KTIMERS, Kind::SoftirqEntry(hrtimer))
        .at(1092, KTIMERS, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: 1_092_000 })
        .at(1093, KTIMERS, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(1094, KTIMERS, Kind::Wakeup { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(1095, KTIMERS, Kind::TimerExpireExit { timer: TIMER })
        .at(1096, KTIMERS, Kind::SoftirqExit(hrtimer))
        .switch(1110, KTIMERS, 98, State::Runnable, TASK, PRIO)
        .end(1300);
    let report = analyse(&trace, TASK, &[job(1000, 1116, 1117, 1168)]).unwrap();
    assert_eq!(report.activations["deferred_timer"], 1);
    assert_eq!(report.switches[&2], 1);
    let events: Vec<(&str, f64)> =
        report.sequence.iter().map(|step| (step.event.as_str(), step.median_us)).collect();
    assert_eq!(
        events,
        [
            ("interrupt entry", 0.0),
            ("softirq_raise (HRTIMER)", 5.0),
            ("sched_waking (ktimers/0)", 16.0),
            ("sched_switch (to ktimers/0)", 54.0),
            ("hrtimer_expire_entry", 92.0),
            ("sched_waking (fcs)", 93.0),
            ("sched_switch (to fcs)", 110.0),
            ("task execution begins", 117.0),
            ("task execution ends", 168.0),
        ]
    );
    // 116 us late: most of it by the software interrupt and its thread.
    let late = &report.windows[0];
    assert_eq!(late.cause, Cause::Softirq, "{late:#?}");
}

/// A thread that had the CPU already is not switched to, whoever was woken for it.
#[test]
fn a_software_interrupt_in_the_thread_that_has_the_cpu_has_no_switch() {
    let hrtimer = Softirq::HRTIMER;
    let trace = Story::new()
        .sleep(10, 1000)
        .at(1000, BUSY, Kind::VectorEntry(Vector::LocalTimer))
        .at(1005, BUSY, Kind::SoftirqRaise(hrtimer))
        .at(1016, BUSY, Kind::Waking { tid: KTIMERS, prio: 98, target_cpu: 0 })
        .at(1018, BUSY, Kind::VectorExit(Vector::LocalTimer))
        .at(1060, BUSY, Kind::SoftirqEntry(hrtimer))
        .at(1092, BUSY, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: 1_092_000 })
        .at(1093, BUSY, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(1095, BUSY, Kind::TimerExpireExit { timer: TIMER })
        .at(1096, BUSY, Kind::SoftirqExit(hrtimer))
        .switch(1110, BUSY, 120, State::Runnable, TASK, PRIO)
        .end(1300);
    let report = analyse(&trace, TASK, &[job(1000, 1116, 1117, 1168)]).unwrap();
    assert_eq!(report.activations["deferred_timer"], 1);
    let events: Vec<&str> = report.sequence.iter().map(|step| step.event.as_str()).collect();
    assert!(events.contains(&"softirq_raise (HRTIMER)"), "{events:?}");
    assert!(!events.iter().any(|event| event.contains("ktimers") || event.contains("busy")), "{events:?}");
}

/// On PREEMPT_RT the software interrupt is a thread: whoever comes into its midst takes the direct
/// path still, keeps its own time, and leaves the other timers where they were.
#[test]
fn an_interrupt_within_the_software_interrupt_takes_the_direct_path() {
    const OTHER: u64 = 0xf10;
    let hrtimer = Softirq::HRTIMER;
    let trace = Story::new()
        .sleep(10, 1000)
        .at(990, BUSY, Kind::VectorEntry(Vector::LocalTimer))
        .at(991, BUSY, Kind::SoftirqRaise(hrtimer))
        .at(992, BUSY, Kind::VectorExit(Vector::LocalTimer))
        .switch(993, BUSY, 120, State::Runnable, KTIMERS, 98)
        .at(994, KTIMERS, Kind::SoftirqEntry(hrtimer))
        .at(995, KTIMERS, Kind::TimerExpireEntry { timer: OTHER, function: 1, now_ns: 995_000 })
        .wake(1003, KTIMERS)
        .switch(1020, KTIMERS, 98, State::Runnable, TASK, PRIO)
        .sleep(1100, 2000)
        .switch(1102, BUSY, 120, State::Runnable, KTIMERS, 98)
        .at(1103, KTIMERS, Kind::TimerExpireExit { timer: OTHER })
        .at(1104, KTIMERS, Kind::SoftirqExit(hrtimer))
        .end(1200);
    let report = analyse(&trace, TASK, &[job(1000, 1024, 1030, 1090)]).unwrap();
    assert_eq!(report.activations, BTreeMap::from([("timer".to_owned(), 1)]));
    assert_eq!(segment(&report, "execution_on_cpu"), 60.0);
}

/// And a timer that waits in it is still on the deferred path after another expired on top of it.
#[test]
fn a_deferred_timer_stays_so_after_an_interrupt_on_top_of_it() {
    let hrtimer = Softirq::HRTIMER;
    let inner = Kind::TimerExpireEntry { timer: 0xf10, function: 1, now_ns: 1_062_000 };
    let trace = Story::new()
        .sleep(10, 1000)
        .at(1000, BUSY, Kind::VectorEntry(Vector::LocalTimer))
        .at(1005, BUSY, Kind::SoftirqRaise(hrtimer))
        .at(1018, BUSY, Kind::VectorExit(Vector::LocalTimer))
        .switch(1054, BUSY, 120, State::Runnable, KTIMERS, 98)
        .at(1055, KTIMERS, Kind::SoftirqEntry(hrtimer))
        .at(1060, KTIMERS, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: 1_060_000 })
        .at(1061, KTIMERS, Kind::VectorEntry(Vector::LocalTimer))
        .at(1062, KTIMERS, inner)
        .at(1063, KTIMERS, Kind::TimerExpireExit { timer: 0xf10 })
        .at(1064, KTIMERS, Kind::SoftirqRaise(hrtimer))
        .at(1065, KTIMERS, Kind::VectorExit(Vector::LocalTimer))
        .at(1093, KTIMERS, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(1094, KTIMERS, Kind::Wakeup { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(1095, KTIMERS, Kind::TimerExpireExit { timer: TIMER })
        .at(1096, KTIMERS, Kind::SoftirqExit(hrtimer))
        .switch(1110, KTIMERS, 98, State::Runnable, TASK, PRIO)
        .sleep(1200, 2000)
        .end(1300);
    let report = analyse(&trace, TASK, &[job(1000, 1116, 1117, 1168)]).unwrap();
    assert_eq!(report.activations, BTreeMap::from([("deferred_timer".to_owned(), 1)]));
    assert_eq!(segment(&report, "softirq"), 55.0);
    // The kernel's own view of the jobs finds the programmed release, too.
    assert_eq!(observed_jobs(&trace, TASK)[0].planned_ns, 1_000_000);
}

#[test]
fn a_helper_is_distinguished_from_a_stranger() {
    let story = |hog: i32| {
        let trace = Story::new()
            .sleep(10, 1000)
            .switch(900, BUSY, 120, State::Runnable, hog, 9)
            .wake(1001, hog)
            .switch(1500, hog, 9, State::Sleeping, TASK, PRIO)
            .end(2000);
        let report = analyse(&trace, TASK, &[job(1000, 1504, 1505, 1510)]).unwrap();
        (report.causes[0].cause, report.causes[0].who.clone())
    };
    assert_eq!(story(101), (Cause::OwnThread, "helper (rt 90, tid 101)".into()));
    assert_eq!(story(55), (Cause::HigherPriority, "tid 55 (rt 90, tid 55)".into()));
}

#[test]
fn a_late_interrupt_is_no_hypervisors_fault_without_a_hypervisor() {
    let story = |guest: bool| {
        let trace = Story::new().sleep(10, 1000).wake(1400, BUSY);
        let trace = trace.switch(1420, BUSY, 120, State::Runnable, TASK, PRIO).end(2000);
        let report = analyse(&Trace { guest, ..trace }, TASK, &[job(1000, 1424, 1425, 1430)]).unwrap();
        report.causes[0].cause
    };
    assert_eq!(story(false), Cause::InterruptsOff);
    assert_eq!(story(true), Cause::TimerLate);
}

#[test]
fn time_that_nobody_was_charged_for_is_steal() {
    // The busy thread runs from 900 to 1600 and is charged for 100: the timer's interrupt waits for
    // the hypervisor.
    let trace = Story::new()
        .sleep(10, 1000)
        .at(900, BUSY, Kind::Runtime { tid: BUSY, runtime_ns: 889_000 })
        .wake(1600, BUSY)
        .at(1606, BUSY, Kind::Runtime { tid: BUSY, runtime_ns: 100_000 })
        .switch(1610, BUSY, 120, State::Runnable, TASK, PRIO)
        .end(2000);
    let reading = |us: u64, stolen_ms: u64| StealReading {
        cpu: 0,
        time_ns: us * 1000,
        stolen_ns: stolen_ms * 1_000_000,
    };
    let cause = |steal: Vec<StealReading>| {
        let trace = Trace { guest: true, steal, ..trace.clone() };
        let report = analyse(&trace, TASK, &[job(1000, 1612, 1613, 1620)]).unwrap();
        assert!(report.windows[0].share > 0.9);
        report.causes[0].cause
    };
    // The counter must say so too; else it is a gap that nobody explains.
    assert_eq!(cause(vec![reading(0, 50), reading(50_000, 60)]), Cause::Steal);
    assert_eq!(cause(vec![reading(0, 50), reading(50_000, 50)]), Cause::Gap);
    assert_eq!(cause(Vec::new()), Cause::Gap);
}

/// A wake-up of 26 ms: the CPU was idle, and did not answer the wake-up.
#[test]
fn a_halted_virtual_cpu_that_is_not_run_is_no_deep_sleep() {
    const OTHER: i32 = 9;
    let mut trace = Story::new()
        .at(
            100,
            TASK,
            Kind::Switch {
                prev_tid: TASK,
                prev_prio: PRIO,
                prev_state: State::Sleeping,
                next_tid: 0,
                next_prio: 120,
            },
        )
        .at(27_000, 0, Kind::Wakeup { tid: TASK, prio: PRIO, target_cpu: 0 })
        .switch(27_010, 0, 120, State::Runnable, TASK, PRIO)
        .end(28_000);
    let waking = Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 };
    trace.events.push(Event { time_ns: 1_001_000, tid: OTHER, cpu: 1, kind: waking });
    trace.sort();
    let reported = |guest: bool, steal: Vec<StealReading>| {
        let trace = Trace { guest, steal, ..trace.clone() };
        let report = analyse(&trace, TASK, &[job(1000, 27_012, 27_013, 27_100)]).unwrap();
        let late = &report.windows[0];
        assert!(late.share > 0.99, "{late:#?}");
        (late.cause, late.who.clone())
    };
    let reading = |ms: u64, stolen_ms: u64| StealReading {
        cpu: 0,
        time_ns: ms * 1_000_000,
        stolen_ns: stolen_ms * 1_000_000,
    };
    assert_eq!(reported(false, Vec::new()), (Cause::IdleExit, String::new()));
    let (cause, who) = reported(true, Vec::new());
    assert!(cause == Cause::IdleExit && who.contains("hypervisor did not run"), "{who}");
    let (cause, who) = reported(true, vec![reading(0, 10), reading(90, 40)]);
    assert!(cause == Cause::Steal && who.contains("halted"), "{who}");
    // The counter has moved by less than a tick of its own.
    assert_eq!(reported(true, vec![reading(0, 10), reading(90, 10)]).0, Cause::IdleExit);
}

#[test]
fn a_keeper_has_no_interrupts_off() {
    let story = |guest: bool| {
        let trace = Story::new().sleep(10, 1000).wake(1400, BUSY);
        let mut trace = trace.switch(1420, BUSY, 120, State::Runnable, TASK, PRIO).end(2000);
        trace.kept_awake = vec![0];
        trace.guest = guest;
        trace.threads.get_mut(&BUSY).unwrap().name = "takt-awake/0".to_owned();
        let report = analyse(&trace, TASK, &[job(1000, 1424, 1425, 1430)]).unwrap();
        assert!(report.notes[0].starts_with("MEASURED WITHOUT IDLE TIME on CPU 0"), "{:?}", report.notes);
        assert_eq!(report.kept_awake, [0]);
        report.causes[0].cause
    };
    assert_eq!(story(false), Cause::Gap);
    assert_eq!(story(true), Cause::TimerLate);
}

#[test]
fn idle_time_without_events_is_distinguished_from_a_lost_wakeup() {
    let idle = |us: u64| (us, TASK, PRIO, State::Sleeping, 0, 120);
    let story = |hidden: bool| {
        let mut story = Story::new();
        let mut jobs = Vec::new();
        for release in 1..4 {
            let us = release * 1000;
            let (at, prev, prio, state, next, next_prio) = idle(us - 400);
            story = story.switch(at, prev, prio, state, next, next_prio);
            if !hidden {
                story = story.switch(us + 10, 0, 120, State::Runnable, TASK, PRIO);
            }
            // The first event of its own.
            story = story.at(us + 20, TASK, Kind::PageFault { address: 0, ip: 0, user: true });
            jobs.push(job(us, us + 12, us + 13, us + 30));
        }
        let report = analyse(&story.end(9000), TASK, &jobs).unwrap();
        assert_eq!(report.matched, 0);
        assert_eq!(report.notes.iter().any(|note| note.contains("idle of CPU 0 (3 times)")), hidden);
        report.unmatched
    };
    assert_eq!(story(true), BTreeMap::from([(Unmatched::LeftOut, 3)]));
    assert_eq!(story(false), BTreeMap::from([(Unmatched::NoWakeup, 3)]));
}

#[test]
fn a_fair_thread_that_took_over_while_this_one_slept_means_throttling_too() {
    let story = |hog: State| {
        let trace = Story::new()
            .switch(100, BUSY, 120, State::Runnable, 55, 59)
            .switch(200, 55, 59, hog, TASK, PRIO)
            .sleep(210, 1000)
            .wake(1001, BUSY)
            .switch(1900, BUSY, 120, State::Runnable, TASK, PRIO)
            .end(9000);
        analyse(&trace, TASK, &[job(1000, 1901, 1902, 1910)]).unwrap().windows[0].cause
    };
    assert_eq!(story(State::Runnable), Cause::Throttled);
    assert_eq!(story(State::Sleeping), Cause::Unpreemptible);
}

/// Events while some thread has the CPU may be left out, the wake-up too. The next interrupt of the
/// timer proves that the thread is ready: it would have run what was due.
#[test]
fn a_wakeup_that_was_left_out_is_inferred_from_the_next_interrupt() {
    let story = |tick: bool, wakeup: bool| {
        let mut story = Story::new()
            .sleep(10, 1000)
            .wake(1001, BUSY)
            .switch(1010, BUSY, 120, State::Runnable, TASK, PRIO)
            .sleep(1100, 2000)
            .switch(1200, BUSY, 120, State::Runnable, 55, 59)
            .switch(1900, 55, 59, State::Runnable, BUSY, 120);
        if tick {
            story = story.at(2400, BUSY, Kind::VectorEntry(Vector::LocalTimer));
            story = story.at(2405, BUSY, Kind::VectorExit(Vector::LocalTimer));
        }
        if wakeup {
            story = story.wake(6800, BUSY);
        }
        let trace = story.switch(6900, BUSY, 120, State::Runnable, TASK, PRIO).end(9000);
        let jobs = [job(1000, 1011, 1012, 1020), job(2000, 6901, 6902, 6910)];
        let report = analyse(&trace, TASK, &jobs).unwrap();
        (report.windows[0].cause, report.matched)
    };
    assert_eq!(story(true, false), (Cause::Throttled, 1));
    // Nothing else came: a section with interrupts off would look the same.
    assert_eq!(story(false, false), (Cause::InterruptsOff, 1));
    // A wake-up that does come counts, whatever was inferred.
    assert_eq!(story(true, true).1, 2);
}

#[test]
fn only_the_wakeup_counts_where_the_job_made_good_for_it() {
    // 400 us late by an interrupt; then 500 us behind another thread, and still in time.
    let trace = Story::new()
        .sleep(10, 1000)
        .at(990, BUSY, Kind::IrqEntry { irq: 9 })
        .at(1390, BUSY, Kind::IrqExit { irq: 9 })
        .wake(1391, BUSY)
        .switch(1400, BUSY, 120, State::Runnable, TASK, PRIO)
        .switch(1450, TASK, PRIO, State::Runnable, 55, 9)
        .switch(1950, 55, 9, State::Sleeping, TASK, PRIO)
        .end(9000);
    let jobs = [job(1000, 1402, 1403, 1960)];
    let report = |response_ns| {
        let thresholds = Thresholds { response_ns: Some(response_ns), ..Thresholds::default() };
        analyse_with(&trace, TASK, &jobs, &thresholds).unwrap().windows.remove(0)
    };
    let late = report(2_000_000);
    assert_eq!(late.cause, Cause::Interrupt, "{late:#?}");
    let late = report(500_000);
    assert_eq!(late.cause, Cause::HigherPriority, "{late:#?}");
    assert!(late.parts.is_sorted_by_key(|part| std::cmp::Reverse(part.ns)), "{late:#?}");
    let shares: f64 = late.parts.iter().map(|part| part.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{late:#?}");
}

#[test]
fn a_backlog_is_its_first_releases_though_much_happens_meanwhile() {
    // A thread before it takes 4 ms; meanwhile and while the jobs run, events come all the time.
    let event = Kind::SignalGenerate { signal: 0, tid: 0 };
    let mut story = Story::new().sleep(10, 1000).wake(1001, BUSY);
    for at in (1050..5000).step_by(50) {
        story = story.at(at, BUSY, event);
    }
    story = story.switch(5000, BUSY, 0, State::Sleeping, TASK, PRIO);
    for at in (5005..5300).step_by(5) {
        story = story.at(at, TASK, event);
    }
    let trace = story.sleep(8000, 9000).end(9000);
    let jobs = [
        job(1000, 5001, 5001, 5100),
        job(2000, 5101, 5101, 5200),
        job(3000, 5201, 5201, 5300),
        job(9000, 9001, 9001, 9010),
    ];
    let report = analyse(&trace, TASK, &jobs).unwrap();
    let mut windows = report.windows.clone();
    windows.sort_by_key(|late| late.planned_ns);
    let first = windows[0].cause;
    for (late, waited_us) in windows[1..3].iter().zip([3100, 2200]) {
        assert_eq!((late.cause, late.backlog_of), (first, Some(windows[0].index)), "{late:?}");
        let part = late.parts.iter().find(|part| part.cause == Cause::PreviousJob).unwrap();
        assert_eq!(part.ns, waited_us * 1000, "{late:?}");
    }
}

#[test]
fn a_backlog_is_its_first_releases() {
    // One job is stopped for 4 ms; the next releases, 1 ms each of 1.6, never find the CPU free in
    // time.
    let trace = Story::new()
        .sleep(10, 1000)
        .wake(1001, BUSY)
        .switch(1010, BUSY, 120, State::Runnable, TASK, PRIO)
        .switch(1100, TASK, PRIO, State::Stopped, BUSY, 120)
        .at(4900, BUSY, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
        .switch(4902, BUSY, 120, State::Runnable, TASK, PRIO)
        .sleep(8000, 9000)
        .end(9000);
    let jobs = [
        job(1000, 1012, 1013, 5000),
        job(2000, 5001, 5001, 5100),
        job(3000, 5101, 5101, 5200),
        job(4000, 5201, 5201, 5300),
        job(5000, 5301, 5301, 5310),
        // On its own again.
        job(6000, 6700, 6701, 6710),
    ];
    let report = analyse(&trace, TASK, &jobs).unwrap();
    let mut windows = report.windows.clone();
    windows.sort_by_key(|late| late.planned_ns);
    let reported: Vec<_> = windows.iter().map(|late| (late.index, late.cause, late.backlog_of)).collect();
    assert_eq!(reported[..5], [1, 2, 3, 4, 5].map(|index| (index, Cause::Stopped, (index > 1).then_some(1))));
    assert_eq!((reported[5].0, reported[5].2), (6, None));
}

#[test]
fn a_stop_names_its_sender_and_the_releases_that_never_ran() {
    // Stopped while it sleeps: it runs once more, up to the stop; another process's stop is none of
    // it.
    let story = |to: i32, state: State| {
        Story::new()
            .sleep(10, 1000)
            .at(500, BUSY, Kind::SignalGenerate { signal: libc::SIGSTOP, tid: to })
            .at(501, BUSY, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
            .switch(502, BUSY, 120, State::Runnable, TASK, PRIO)
            .switch(505, TASK, PRIO, state, BUSY, 120)
            .at(4500, BUSY, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
            .switch(4502, BUSY, 120, State::Runnable, TASK, PRIO)
            .sleep(4600, 5000)
            .end(6000)
    };
    let next = JobRecord { skipped: 3, ..job(5000, 5010, 5011, 5020) };
    let jobs = [job(1000, 4510, 4511, 4590), next, job(6000, 6010, 6011, 6020), job(7000, 7010, 7011, 7020)];
    let reported = |to, state| {
        let report = analyse(&story(to, state), TASK, &jobs).unwrap();
        let row = report.causes.iter().find(|row| row.cause == Cause::Stopped).unwrap().clone();
        (row.who, row.count, row.never_ran)
    };
    let (who, count, never_ran) = reported(TASK, State::Stopped);
    assert!(who.starts_with("SIGSTOP of ") && who.ends_with(&format!("(tid {BUSY})")), "{who}");
    assert_eq!((count, never_ran), (1, 3));
    assert_eq!(reported(TASK + 1000, State::Stopped), (String::new(), 1, 3));
    assert_eq!(reported(TASK, State::Traced), (String::new(), 1, 3), "a debugger");
}

#[test]
fn nothing_is_stitched_across_a_hole() {
    // The timer is armed, then events are lost, then a timer of the same address expires:
    // programmed by whom?
    let story = |lost: bool| {
        let mut story = Story::new().sleep(10, 5000);
        if lost {
            story = story.at(500, BUSY, Kind::Lost { count: 7 });
        }
        let trace = story
            .wake(5003, BUSY)
            .switch(5020, BUSY, 120, State::Runnable, TASK, PRIO)
            .sleep(5100, 6000)
            .end(6200);
        analyse(&trace, TASK, &[job(5000, 5024, 5030, 5090)]).unwrap()
    };
    assert_eq!(story(false).matched, 1);
    let holed = story(true);
    assert_eq!((holed.releases, holed.matched), (1, 0));
    assert_eq!(holed.unmatched, BTreeMap::from([(Unmatched::StepMissing, 1)]));
    // A thread that may have slept in the hole is not called awake.
    let trace = Story::new()
        .sleep(10, 1000)
        .wake(1001, BUSY)
        .switch(1010, BUSY, 120, State::Runnable, TASK, PRIO)
        .at(2500, TASK, Kind::Lost { count: 7 })
        .at(3500, TASK, Kind::PageFault { address: 0, ip: 0, user: true })
        .sleep(3600, 5000)
        .end(6000);
    let report = analyse(&trace, TASK, &[job(1000, 1012, 1013, 1050), job(3501, 3502, 3503, 3550)]).unwrap();
    assert_eq!(report.activations.get("awake"), None, "{report:#?}");
    // Nor does a slice of a picture run through it.
    let slices = timeline(&trace, 900_000, 4_000_000);
    assert!(!slices.iter().any(|slice| slice.from_ns < 2_400_000 && slice.to_ns > 2_400_000), "{slices:?}");
}

#[test]
fn the_next_job_inherits_the_cause() {
    let trace = Story::new()
        .sleep(10, 1000)
        .wake(1001, BUSY)
        .switch(1010, BUSY, 120, State::Runnable, TASK, PRIO)
        .switch(1100, TASK, PRIO, State::Stopped, BUSY, 120)
        .at(2900, BUSY, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
        .at(2901, BUSY, Kind::Wakeup { tid: TASK, prio: PRIO, target_cpu: 0 })
        .switch(2902, BUSY, 120, State::Runnable, TASK, PRIO)
        .sleep(3100, 4000)
        .end(4000);
    let jobs = [job(1000, 1012, 1013, 2950), job(2000, 2951, 2952, 2990)];
    let report = analyse(&trace, TASK, &jobs).unwrap();
    assert_eq!(report.late, 2);
    assert_eq!(
        report.causes,
        [CauseRow {
            cause: Cause::Stopped,
            who: String::new(),
            count: 2,
            never_ran: 0,
            worst_us: 1950.0,
            total_us: 2901.0
        }]
    );
    assert_eq!(report.activations["awake"], 1);
    assert!(report.windows.iter().any(|late| late.inherited && late.index == 2));
}

/// The thread's request counts, not the kernel's version of it: slack is lateness, and named.
#[test]
fn the_kernel_s_slack_is_lateness() {
    let set = Kind::TimerStart { timer: TIMER, function: 1, expires_ns: 1_200_000, slack_ns: 200_000 };
    let trace = Story::new()
        .at(10, TASK, set)
        .switch(11, TASK, PRIO, State::Sleeping, BUSY, 120)
        .wake(1201, BUSY)
        .switch(1210, BUSY, 120, State::Runnable, TASK, PRIO)
        .sleep(1300, 2000)
        .end(1400);
    let jobs = observed_jobs(&trace, TASK);
    assert_eq!(jobs, [JobRecord { index: 0, ..job(1000, 1210, 1210, 1301) }]);
    let thresholds = Thresholds { lateness_ns: 100_000, ..Thresholds::default() };
    let report = analyse_with(&trace, TASK, &jobs, &thresholds).unwrap();
    assert_eq!((report.windows[0].cause, report.windows[0].who.as_str()), (Cause::TimerLate, "timer slack"));
}

#[test]
fn holes_are_not_guessed_over() {
    let trace = Story::new()
        .sleep(10, 1000)
        .wake(1001, BUSY)
        .switch(1500, BUSY, 120, State::Runnable, TASK, PRIO)
        .at(1600, TASK, Kind::Lost { count: 3 })
        .sleep(1700, 2000)
        .end(1800);
    let jobs = [job(1000, 1504, 1505, 1650), job(9000, 9500, 9501, 9502)];
    let report = analyse(&Trace { lost_events: 3, ..trace }, TASK, &jobs).unwrap();
    assert_eq!((report.releases, report.matched, report.lost_events), (1, 0, 3));
    let causes: Vec<Cause> = report.causes.iter().map(|row| row.cause).collect();
    assert!(causes.contains(&Cause::EventsLost) && causes.contains(&Cause::NotRecorded), "{causes:?}");
}

#[test]
fn threads_without_records_have_jobs_too() {
    let trace = Story::new()
        .sleep(10, 1000)
        .wake(1003, BUSY)
        .switch(1020, BUSY, 120, State::Runnable, TASK, PRIO)
        .switch(1030, TASK, PRIO, State::Runnable, KTIMERS, 98)
        .switch(1040, KTIMERS, 98, State::Sleeping, TASK, PRIO)
        .sleep(1100, 2000)
        .end(1200);
    assert_eq!(observed_jobs(&trace, TASK), [JobRecord { index: 0, ..job(1000, 1020, 1020, 1101) }]);
    let slices = timeline(&trace, 900_000, 1_150_000);
    let reported: Vec<(&str, u64, u64)> =
        slices.iter().map(|slice| (slice.what.as_str(), slice.from_ns / 1000, slice.to_ns / 1000)).collect();
    assert_eq!(
        reported,
        [
            ("busy", 900, 1020),
            ("local_timer", 1003, 1008),
            ("fcs", 1020, 1030),
            ("ktimers/0", 1030, 1040),
            ("fcs", 1040, 1101),
            ("busy", 1101, 1150),
        ]
    );
}

/// Its cause and the parts in microseconds of a job of 20 ms with `faults` page faults, `apart_ns`
/// apart.
fn of_faults(guest: bool, faults: u64, apart_ns: u64) -> (Cause, Vec<(Cause, u64)>) {
    let mut story = Story::new().sleep(10, 1000).wake(1001, BUSY);
    story = story.switch(1010, BUSY, 120, State::Runnable, TASK, PRIO);
    for fault in 0..faults {
        let kind = Kind::PageFault { address: 0x7f00_0000 + fault * 4096, ip: 1, user: true };
        let time_ns = 1_020_000 + fault * apart_ns;
        story.0.push(Event { time_ns, tid: TASK, cpu: 0, kind });
        // Events elsewhere in the meantime do not end a fault.
        let switch = Kind::Switch {
            prev_tid: 0,
            prev_prio: 120,
            prev_state: State::Runnable,
            next_tid: 9,
            next_prio: 120,
        };
        story.0.push(Event { time_ns: time_ns + apart_ns / 2, tid: 0, cpu: 1, kind: switch });
    }
    let mut trace = Trace { guest, ..story.sleep(21_030, 22_000).end(21_050) };
    // Somebody watched the hardware, and it left no gaps.
    trace.firmware.watched = vec![Span { from_ns: 0, to_ns: 30_000_000 }];
    let report = analyse(&trace, TASK, &[job(1000, 1015, 1016, 21_016), job(0, 1, 2, 3)]).unwrap();
    let late = &report.windows[0];
    (late.cause, late.parts.iter().map(|part| (part.cause, part.ns / 1000)).collect())
}

/// 8192 faults of 2.7 us each were once reported as "the job itself", because a fault was taken to
/// cost no more than 2.5 us.
#[test]
fn faults_are_charged_what_followed_them_on_slow_and_fast_machines() {
    for (guest, faults, apart_ns) in [
        (false, 40_000, 490),
        (false, 8192, 2_440),
        (true, 8192, 2_440),
        (true, 1600, 12_400),
        (true, 900, 22_000),
    ] {
        let (cause, parts) = of_faults(guest, faults, apart_ns);
        assert_eq!(cause, Cause::PageFault, "{faults} faults {apart_ns} ns apart: {parts:?}");
    }
    // The time between two of them, and at most 5 us after the last one.
    assert_eq!(of_faults(false, 5000, 2000).1[0], (Cause::PageFault, 4999 * 2 + 5));
}

#[test]
fn few_faults_in_a_long_computation_are_the_computation() {
    for (guest, faults, apart_ns) in
        [(false, 10, 100_000), (true, 100, 150_000), (true, 600, 33_000), (false, 1, 1)]
    {
        let (cause, parts) = of_faults(guest, faults, apart_ns);
        assert_eq!(cause, Cause::Execution, "{faults} faults {apart_ns} ns apart: {parts:?}");
    }
    // The rest is still named.
    let (_, parts) = of_faults(true, 100, 150_000);
    assert_eq!(
        parts.iter().find(|part| part.0 == Cause::PageFault),
        Some(&(Cause::PageFault, 1500)),
        "{parts:?}"
    );
}

/// An SMI is charged to whatever ran: 4 ms in a job that takes 0.1 ms otherwise.
#[test]
fn time_of_the_firmware_is_not_the_job_itself() {
    let story = |guest: bool, firmware: Firmware| {
        let story = Story::new().sleep(10, 1000).wake(1001, BUSY);
        let story = story.switch(1010, BUSY, 120, State::Runnable, TASK, PRIO).sleep(5110, 6000);
        let trace = Trace { guest, firmware, ..story.end(5200) };
        let report = analyse(&trace, TASK, &[job(1000, 1012, 1013, 5100), job(0, 1, 2, 3)]).unwrap();
        report.windows[0].clone()
    };
    let counts = |count: u64| {
        let readings = [(0, 70), (10_000_000, count)].map(|(time_ns, count)| SmiReading { time_ns, count });
        Firmware { readings: readings.into(), ..Firmware::default() }
    };
    let span = |from: u64, to: u64| Span { from_ns: from * 1000, to_ns: to * 1000 };
    // Nobody watched: nothing is claimed.
    let late = story(false, Firmware::default());
    assert_eq!(late.cause, Cause::ExecutionOrFirmware);
    assert!(late.cause.title().contains("cannot be distinguished here"));
    // Nor in a guest whose hypervisor has never reported steal, which may not report.
    let reading = |stolen_ns| StealReading { cpu: 0, time_ns: 0, stolen_ns };
    for (steal, cause) in [
        (vec![reading(0)], Cause::ExecutionOrFirmware),
        (vec![reading(0), reading(10_000_000)], Cause::Execution),
    ] {
        let story = Story::new().sleep(10, 1000).wake(1001, BUSY);
        let story = story.switch(1010, BUSY, 120, State::Runnable, TASK, PRIO).sleep(5110, 6000);
        let trace = Trace { guest: true, steal, ..story.end(5200) };
        let report = analyse(&trace, TASK, &[job(1000, 1012, 1013, 5100), job(0, 1, 2, 3)]).unwrap();
        assert_eq!(report.windows[0].cause, cause);
    }
    // The count says that there was one, or that there was none.
    let late = story(false, counts(75));
    assert_eq!((late.cause, late.who.as_str()), (Cause::Gap, "SMI: 5 counted within 10 ms around it"));
    // One SMI at any time between two readings does not excuse a job that overran by 4 ms.
    let late = story(false, counts(71));
    assert_eq!(late.cause, Cause::ExecutionOrFirmware, "{late:#?}");
    let gap_ns = late.parts.iter().find(|part| part.cause == Cause::Gap).map(|part| part.ns);
    assert_eq!(gap_ns, Some(1_000_000), "{late:#?}");
    assert_eq!(story(false, counts(70)).cause, Cause::Execution);
    // A thread on another CPU saw the hardware stand still; or saw all of the time, and it did not.
    let watched = vec![span(0, 6000)];
    let late = story(
        false,
        Firmware { gaps: vec![span(2000, 5000)], watched: watched.clone(), ..Firmware::default() },
    );
    assert_eq!((late.cause, late.parts[0].ns), (Cause::Gap, 3_000_000), "{late:#?}");
    assert_eq!(
        story(false, Firmware { watched: watched.clone(), ..Firmware::default() }).cause,
        Cause::Execution
    );
    // A gap caused by lost events of the witness's CPU is none.
    let lost = {
        let story = Story::new().sleep(10, 1000).wake(1001, BUSY);
        let story = story.switch(1010, BUSY, 120, State::Runnable, TASK, PRIO).sleep(5110, 6000);
        let mut trace = story.end(5200);
        let event = |time_ns, kind| Event { time_ns, tid: 0, cpu: 1, kind };
        trace.events.push(event(1_500_000, Kind::CpuIdle { state: None }));
        trace.events.push(event(5_150_000, Kind::Lost { count: 3 }));
        trace.sort();
        trace.firmware =
            Firmware { gaps: vec![span(2000, 5000)], watched: watched.clone(), ..Firmware::default() };
        analyse(&trace, TASK, &[job(1000, 1012, 1013, 5100), job(0, 1, 2, 3)]).unwrap().windows[0].clone()
    };
    assert_eq!(lost.cause, Cause::EventsLost, "{lost:#?}");
    // Seen for a part of the time only.
    let part = Firmware { watched: vec![span(0, 3000)], ..Firmware::default() };
    assert_eq!(story(false, part).cause, Cause::ExecutionOrFirmware);
    // A guest's hypervisor takes time in other ways.
    assert_eq!(story(true, Firmware::default()).cause, Cause::Execution);
}

#[test]
fn interrupts_off_and_no_preemption_name_the_place() {
    let place = |trace: &mut Trace, time_ns: u64| {
        trace.stacks = vec![vec![], ["_raw_spin_unlock_irqrestore", "slow_write"].map(String::from).into()];
        let stack = |time_ns, tid, stack| WakeStack { time_ns, cpu: 0, tid, stack };
        // Another thread's wake-up, the right one, and one of later.
        trace.wake_stacks =
            vec![stack(time_ns, 55, 0), stack(time_ns + 300, TASK, 1), stack(time_ns + 40_000, TASK, 0)];
    };
    // The timer's interrupt comes 400 us late.
    let story = |guest: bool| {
        let mut trace = Story::new()
            .sleep(10, 1000)
            .wake(1400, BUSY)
            .switch(1420, BUSY, 120, State::Runnable, TASK, PRIO)
            .end(2000);
        trace.guest = guest;
        place(&mut trace, 1_402_000);
        analyse(&trace, TASK, &[job(1000, 1424, 1425, 1430)]).unwrap().windows[0].clone()
    };
    let late = story(false);
    assert_eq!(late.cause, Cause::InterruptsOff);
    assert_eq!(late.who, "busy (tid 7) in _raw_spin_unlock_irqrestore < slow_write");
    assert_eq!(story(true).who, "while busy ran in _raw_spin_unlock_irqrestore < slow_write");
    // It is woken in time, and the thread that has the CPU cannot be preempted for 500 us.
    let mut trace = Story::new()
        .sleep(10, 1000)
        .wake(1001, BUSY)
        .switch(1500, BUSY, 120, State::Runnable, TASK, PRIO)
        .end(2000);
    place(&mut trace, 1_003_000);
    let report = analyse(&trace, TASK, &[job(1000, 1504, 1505, 1510)]).unwrap();
    assert_eq!(report.windows[0].cause, Cause::Unpreemptible);
    assert_eq!(report.windows[0].who, "busy (tid 7) in _raw_spin_unlock_irqrestore < slow_write");
}

#[test]
fn another_clock_is_refused() {
    let trace = Trace { clock: Clock::Other("local".into()), ..Trace::default() };
    let error = analyse(&trace, TASK, &[]).unwrap_err().to_string();
    assert!(error.contains("`local`") && error.contains("-C mono"), "{error}");
}

#[test]
fn dilation_compares_medians() {
    let report = |us: u64| {
        let trace = Story::new()
            .sleep(10, 1000)
            .wake(1001, BUSY)
            .switch(1010, BUSY, 120, State::Runnable, TASK, PRIO)
            .sleep(1700, 2000)
            .end(1800);
        analyse(&trace, TASK, &[job(1000, 1012, 1013, 1013 + us)]).unwrap()
    };
    assert_eq!(report(51).dilation(&report(17)), Some(3.0));
}

proptest::proptest! {
    /// Whatever comes in whatever order: no panic, and no more matched than there are.
    #[test]
    fn nonsense_is_survived(
        events in proptest::collection::vec((0u64..5000, 0i32..4, 0u16..3, 0u8..20, 0i32..4), 0..200),
        jobs in proptest::collection::vec((0u64..5000, 0u64..500, 0u64..500, 0u64..500), 0..20),
    ) {
        let kind = |code: u8, tid: i32| match code {
            0 | 1 => Kind::Switch { prev_tid: tid, prev_prio: 20, prev_state: State::Runnable, next_tid: 1, next_prio: 49 },
            2 | 3 => Kind::Switch { prev_tid: 1, prev_prio: 49, prev_state: State::Sleeping, next_tid: tid, next_prio: 120 },
            4 => Kind::Waking { tid: 1, prio: 49, target_cpu: 9 },
            5 => Kind::Wakeup { tid: 1, prio: 49, target_cpu: 1 },
            6 => Kind::TimerStart { timer: 1, function: 0, expires_ns: u64::MAX, slack_ns: u32::MAX },
            7 => Kind::TimerExpireEntry { timer: 1, function: 0, now_ns: 0 },
            8 => Kind::TimerExpireExit { timer: 1 },
            9 => Kind::VectorEntry(Vector::LocalTimer),
            10 => Kind::VectorExit(Vector::LocalTimer),
            11 => Kind::SoftirqRaise(Softirq::HRTIMER),
            12 => Kind::SoftirqEntry(Softirq::HRTIMER),
            13 => Kind::SoftirqExit(Softirq(3)),
            14 => Kind::Lost { count: 1 },
            15 => Kind::PiSetprio { tid, old_prio: 120, new_prio: 49 },
            16 => Kind::Migrate { tid: 1, from_cpu: 0, to_cpu: 77 },
            17 => Kind::Runtime { tid, runtime_ns: u64::MAX },
            18 => Kind::IrqEntry { irq: 3 },
            _ => Kind::PageFault { address: 0, ip: 0, user: true },
        };
        let events = events.into_iter().map(|(us, tid, cpu, code, other)| Event {
            time_ns: us * 1000, tid, cpu, kind: kind(code, other),
        });
        let mut trace = Trace { events: events.collect(), ..Trace::default() };
        trace.sort();
        let jobs: Vec<JobRecord> =
            jobs.into_iter().map(|(p, w, s, e)| job(p, p + w, p + w + s, p + w + s + e)).collect();
        let report = analyse(&trace, 1, &jobs).unwrap();
        proptest::prop_assert!(report.matched <= report.releases && report.releases <= jobs.len() as u64);
        let late: u64 = report.causes.iter().map(|row| row.count).sum();
        proptest::prop_assert_eq!(late, report.late);
        for late in &report.windows {
            let sum: u64 = late.parts.iter().map(|part| part.ns).sum();
            proptest::prop_assert!(sum <= late.end_ns - late.planned_ns);
        }
    }
}

#[test]
fn what_held_a_thread_up_is_reported_for_any_span() {
    // Ready from 1002 on, and BUSY's CPU is another thread's of higher priority until 1800.
    let trace = Story::new()
        .sleep(500, 1000)
        .wake(1000, BUSY)
        .switch(1010, BUSY, 120, State::Runnable, 101, 20)
        .switch(1800, 101, 20, State::Sleeping, TASK, PRIO)
        .switch(1900, TASK, PRIO, State::Sleeping, BUSY, 120)
        .end(3000);
    let span = |from: u64, to: u64| Span { from_ns: from * 1000, to_ns: to * 1000 };
    // Out of order, overlapping, empty, and beyond the trace.
    let spans = [span(1000, 1800), span(1810, 1890), span(900, 1700), span(5, 5), span(9000, 9999)];
    let found = held_up(&trace, TASK, &spans).unwrap();
    let cause = |at: usize| found[at].as_ref().map(|late| late.cause);
    assert_eq!((cause(0), cause(2)), (Some(Cause::OwnThread), Some(Cause::OwnThread)));
    assert!(found[0].as_ref().unwrap().who.contains("helper"), "{:?}", found[0]);
    let own = Some(Cause::ExecutionOrFirmware);
    assert_eq!((cause(1), cause(3), cause(4)), (own, None, Some(Cause::NotRecorded)));
    assert!(held_up(&trace, TASK, &[]).unwrap().is_empty());
}

#[test]
fn each_of_two_spans_that_overlap_has_its_own_cause() {
    let trace = Story::new()
        .sleep(500, 1000)
        .wake(1000, BUSY)
        .switch(1010, BUSY, 120, State::Runnable, 101, 20)
        .switch(1800, 101, 20, State::Sleeping, KTIMERS, 30)
        .switch(4000, KTIMERS, 30, State::Sleeping, TASK, PRIO)
        .switch(4100, TASK, PRIO, State::Sleeping, BUSY, 120)
        .end(5000);
    let span = |from: u64, to: u64| Span { from_ns: from * 1000, to_ns: to * 1000 };
    // The last one says the same as the first.
    let spans = [span(1010, 1900), span(1700, 3900), span(1000, 4000), span(1010, 1900)];
    let found = held_up(&trace, TASK, &spans).unwrap();
    let who: Vec<&str> = found.iter().map(|late| late.as_ref().unwrap().who.as_str()).collect();
    for (who, name) in who.iter().zip(["helper", "ktimers/0", "ktimers/0", "helper"]) {
        assert!(who.starts_with(name), "{who}, expected {name}");
    }
    let parts: u64 = found[0].as_ref().unwrap().parts.iter().map(|part| part.ns).sum();
    assert_eq!(parts, 890_000, "its own time alone");
}

#[test]
fn a_thread_that_sleeps_until_its_own_timer_waits_and_the_timer_is_not_late() {
    let trace = Story::new()
        .sleep(500, 3000)
        .wake(3000, BUSY)
        .switch(3010, BUSY, 120, State::Runnable, TASK, PRIO)
        .end(5000);
    let spans =
        [Span { from_ns: 1_000_000, to_ns: 2_990_000 }, Span { from_ns: 1_000_000, to_ns: 3_010_000 }];
    for late in held_up(&trace, TASK, &spans).unwrap() {
        let late = late.unwrap();
        assert_eq!((late.cause, late.who.as_str()), (Cause::Waited, "a timer of its own"), "{late:?}");
    }
    // A release was planned for then, and its timer set to later.
    for late in woken_late(&trace, TASK, &spans).unwrap() {
        assert_eq!(late.unwrap().cause, Cause::TimerLate);
    }
}

#[test]
fn many_spans_take_no_time_that_grows_with_their_square() {
    let trace = Story::new().sleep(500, 900_000_000).end(1_000_000_000);
    let spans: Vec<Span> = (0..100_000)
        .map(|at| Span { from_ns: 1_000_000 + 10 * at, to_ns: 1_000_000 + 10 * at + 25 })
        .collect();
    let found = held_up(&trace, TASK, &spans).unwrap();
    assert!(found.iter().all(Option::is_some));
    // As many at one moment as nobody looks at.
    let nested: Vec<Span> =
        (0..200).map(|at| Span { from_ns: 1_000_000 + at, to_ns: 2_000_000 + at }).collect();
    let found = held_up(&trace, TASK, &nested).unwrap();
    assert_eq!(found.iter().flatten().count(), 64);
}
