//! Recordings with some kinds of events only.

use super::*;

/// A kind of event that a recording has or has not.
const KINDS: [fn(Kind) -> bool; 4] = [
    |kind| matches!(kind, Kind::TimerStart { .. }),
    |kind| matches!(kind, Kind::TimerExpireEntry { .. } | Kind::TimerExpireExit { .. }),
    |kind| {
        matches!(
            kind,
            Kind::VectorEntry(_) | Kind::VectorExit(_) | Kind::IrqEntry { .. } | Kind::IrqExit { .. }
        )
    },
    |kind| matches!(kind, Kind::SoftirqRaise(_)),
];
const SOFTIRQS: fn(Kind) -> bool = |kind| matches!(kind, Kind::SoftirqEntry(_) | Kind::SoftirqExit(_));

/// The trace as if only some of these kinds had been recorded, a bit for each.
fn with(trace: &Trace, kinds: usize) -> Trace {
    let is_in = |event: &Event| {
        let all = KINDS.iter().chain([&SOFTIRQS]).enumerate();
        { all }.all(|(bit, is_of)| kinds & 1 << bit != 0 || !is_of(event.kind))
    };
    Trace { events: trace.events.iter().copied().filter(is_in).collect(), ..trace.clone() }
}

/// Twenty releases of 1 ms.
fn jobs() -> Vec<JobRecord> {
    (1..21).map(|n| job(n * 1000, n * 1000 + 120, n * 1000 + 121, n * 1000 + 160)).collect()
}

fn direct(device: bool) -> Trace {
    let mut story = Story::new().sleep(170, 1000);
    for n in 1..21 {
        let at = n * 1000;
        if device {
            // A disk's interrupt, as `irq:*` records it on x86, in which no timer expires.
            story = story.at(at - 500, BUSY, Kind::IrqEntry { irq: 30 }).at(
                at - 490,
                BUSY,
                Kind::IrqExit { irq: 30 },
            );
        }
        story = story.wake(at, BUSY).switch(at + 100, BUSY, 120, State::Runnable, TASK, PRIO);
        story = story.sleep(at + 170, at + 1000);
    }
    story.end(21_900)
}

/// As on PREEMPT_RT, with the tick's timer on the direct way.
fn deferred() -> Trace {
    let hrtimer = Softirq::HRTIMER;
    let mut story = Story::new().sleep(170, 1000);
    for n in 1..21 {
        let at = n * 1000;
        story = story
            .at(at, BUSY, Kind::VectorEntry(Vector::LocalTimer))
            .at(at + 1, BUSY, Kind::TimerExpireEntry { timer: 1, function: 2, now_ns: at * 1000 })
            .at(at + 2, BUSY, Kind::TimerExpireExit { timer: 1 })
            .at(at + 5, BUSY, Kind::SoftirqRaise(hrtimer))
            .at(at + 16, BUSY, Kind::Waking { tid: KTIMERS, prio: 98, target_cpu: 0 })
            .at(at + 18, BUSY, Kind::VectorExit(Vector::LocalTimer))
            .switch(at + 54, BUSY, 120, State::Runnable, KTIMERS, 98)
            .at(at + 60, KTIMERS, Kind::SoftirqEntry(hrtimer))
            .at(
                at + 92,
                KTIMERS,
                Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: (at + 92) * 1000 },
            )
            .at(at + 93, KTIMERS, Kind::Waking { tid: TASK, prio: PRIO, target_cpu: 0 })
            .at(at + 95, KTIMERS, Kind::TimerExpireExit { timer: TIMER })
            .at(at + 96, KTIMERS, Kind::SoftirqExit(hrtimer))
            .switch(at + 110, KTIMERS, 98, State::Sleeping, TASK, PRIO)
            .sleep(at + 170, at + 1000);
    }
    story.end(21_900)
}

#[test]
fn a_recording_with_more_kinds_of_events_never_explains_fewer_releases() {
    for (name, trace) in
        [("direct", direct(false)), ("direct beside a disk", direct(true)), ("deferred", deferred())]
    {
        for kinds in 0..32 {
            let report = analyse(&with(&trace, kinds), TASK, &jobs()).unwrap();
            assert_eq!((report.releases, report.matched), (20, 20), "{name}, kinds {kinds:#b}: {report:#?}");
        }
    }
}

#[test]
fn the_step_that_is_missing_is_named() {
    let lacks = |trace: Trace| {
        let report = analyse(&trace, TASK, &jobs()).unwrap();
        assert_eq!(report.missing_steps.values().sum::<u64>(), 20 - report.matched);
        report.missing_steps
    };
    assert_eq!(lacks(direct(false)), BTreeMap::new());
    // One interrupt's entry, one programming that are not there although the others are.
    let without = |is_it: fn(Kind) -> bool| {
        let mut trace = direct(true);
        let at = trace.events.iter().rposition(|event| is_it(event.kind)).unwrap();
        trace.events.remove(at);
        // The very last programming is that of the sleep after the last release.
        if let Some(at) = trace.events[..at].iter().rposition(|event| is_it(event.kind)) {
            trace.events.remove(at);
        }
        lacks(trace)
    };
    let vector = without(|kind| matches!(kind, Kind::VectorEntry(Vector::LocalTimer)));
    assert_eq!(vector, BTreeMap::from([(MissingStep::Interrupt, 2)]));
    let mut trace = direct(true);
    // A timer of another address: its programming was not recorded, that of the others was.
    for event in trace.events.iter_mut().filter(|event| event.time_ns > 20_000_000) {
        if let Kind::TimerExpireEntry { timer, .. } | Kind::TimerExpireExit { timer } = &mut event.kind {
            *timer = 77;
        }
    }
    assert_eq!(lacks(trace), BTreeMap::from([(MissingStep::TimerProgrammed, 1)]));
}

#[test]
fn steps_without_events_are_in_a_note() {
    let note = |kinds: usize| {
        let notes = analyse(&with(&direct(true), kinds), TASK, &jobs()).unwrap().notes;
        notes.into_iter().filter(|note| note.contains("has no events of")).collect::<Vec<_>>()
    };
    assert_eq!(note(0b11111), <[String; 0]>::default());
    assert_eq!(note(0b11101), <[String; 0]>::default(), "nothing is known of a timer");
    assert!(note(0b11011)[0].contains("irq_vectors:local_timer_*"));
    assert!(note(0b11010)[0].contains("hrtimer_start"));
}
