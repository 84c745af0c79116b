use crate::event::{Softirq, Vector};

use super::*;

const TIMER: u64 = 0x1000;

fn event(time_ns: u64, tid: i32, kind: Kind) -> Event {
    Event { time_ns, tid, cpu: 0, kind }
}

fn switch(time_ns: u64, prev_tid: i32, prev_state: State, next_tid: i32) -> Event {
    let kind = Kind::Switch { prev_tid, prev_prio: 120, prev_state, next_tid, next_prio: 120 };
    event(time_ns, prev_tid, kind)
}

fn followed(events: &[Event]) -> Follower {
    let mut follower = Follower::default();
    follower.threads.insert(7, Followed::default());
    events.iter().for_each(|event| follower.see(event));
    follower
}

fn waking(time_ns: u64, by: i32) -> Event {
    event(time_ns, by, Kind::Waking { tid: 7, prio: 120, target_cpu: 0 })
}

#[test]
fn a_timer_s_activation_is_planned_for_what_the_timer_was_set_to() {
    let follower = followed(&[
        switch(100, 0, State::Runnable, 7),
        event(110, 7, Kind::TimerStart { timer: TIMER, function: 1, expires_ns: 1000, slack_ns: 0 }),
        switch(120, 7, State::Sleeping, 0),
        event(1010, 0, Kind::VectorEntry(Vector::LocalTimer)),
        event(1020, 0, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: 1015 }),
        waking(1030, 0),
        event(1040, 0, Kind::TimerExpireExit { timer: TIMER }),
        event(1050, 0, Kind::VectorExit(Vector::LocalTimer)),
        switch(1060, 0, State::Runnable, 7),
        switch(1100, 7, State::Runnable, 9),
        switch(1300, 9, State::Sleeping, 7),
        event(1310, 7, Kind::TimerStart { timer: TIMER, function: 1, expires_ns: 2000, slack_ns: 0 }),
        switch(1350, 7, State::Sleeping, 0),
    ]);
    let thread = &follower.threads[&7];
    let expected = Activation {
        source: Source::Timer(TIMER),
        planned_ns: 1000,
        awake_ns: 1060,
        end_ns: 1350,
        cpu_ns: 90,
        state: State::Sleeping,
        slept_on: Some(TIMER),
        cpu: 0,
    };
    assert_eq!(thread.activations, [expected]);
    assert_eq!(thread.preempted, 1);
    assert_eq!(thread.kept_by, BTreeMap::from([(0, 30), (9, 200)]));
}

#[test]
fn a_timer_of_another_clock_is_as_late_there_as_here() {
    const AHEAD_NS: u64 = 1_700_000_000_000_000_000;
    let expires_ns = AHEAD_NS + 1000;
    let follower = followed(&[
        switch(100, 0, State::Runnable, 7),
        event(110, 7, Kind::TimerStart { timer: TIMER, function: 1, expires_ns, slack_ns: 0 }),
        switch(120, 7, State::Sleeping, 0),
        event(1020, 0, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: AHEAD_NS + 1015 }),
        waking(1030, 0),
        switch(1060, 0, State::Runnable, 7),
        switch(1100, 7, State::Sleeping, 0),
    ]);
    assert_eq!(follower.threads[&7].activations[0].planned_ns, 1005);
}

#[test]
fn whoever_wakes_is_reported_by_what_the_cpu_does() {
    for (before, by, source) in [
        (None, 9, Source::Thread(9)),
        (Some(Kind::SoftirqEntry(Softirq(3))), 9, Source::Softirq(3)),
        (Some(Kind::IrqEntry { irq: 24 }), 0, Source::Interrupt(24)),
        (None, 0, Source::Other),
    ] {
        let mut events = vec![switch(100, 0, State::Runnable, 7), switch(120, 7, State::Sleeping, by)];
        events.extend(before.map(|kind| event(200, by, kind)));
        events.extend([
            waking(210, by),
            switch(220, by, State::Runnable, 7),
            switch(230, 7, State::Sleeping, 0),
        ]);
        let follower = followed(&events);
        let found = &follower.threads[&7].activations;
        assert_eq!(found.iter().map(|one| one.source).collect::<Vec<_>>(), [source]);
    }
}

#[test]
fn a_wake_up_that_nobody_reported_was_the_timer_that_was_due() {
    let events = [
        switch(100, 0, State::Runnable, 7),
        event(110, 7, Kind::TimerStart { timer: TIMER, function: 1, expires_ns: 1000, slack_ns: 0 }),
        switch(120, 7, State::Sleeping, 0),
        switch(1060, 0, State::Runnable, 7),
        switch(1100, 7, State::Sleeping, 0),
    ];
    let follower = followed(&events);
    let found = follower.threads[&7].activations[0];
    assert_eq!((found.source, found.planned_ns), (Source::Timer(TIMER), 1000));
}

#[test]
fn a_sleep_until_a_time_that_has_passed_begins_a_cycle_without_a_sleep() {
    let events = [
        switch(100, 0, State::Runnable, 7),
        switch(120, 7, State::Sleeping, 0),
        waking(5000, 9),
        switch(5010, 0, State::Runnable, 7),
        event(5020, 7, Kind::TimerStart { timer: TIMER, function: 1, expires_ns: 1000, slack_ns: 0 }),
        event(5030, 7, Kind::VectorEntry(Vector::LocalTimer)),
        event(5040, 7, Kind::TimerExpireEntry { timer: TIMER, function: 1, now_ns: 5040 }),
        event(5050, 7, Kind::TimerExpireExit { timer: TIMER }),
        event(5060, 7, Kind::VectorExit(Vector::LocalTimer)),
        switch(5100, 7, State::Sleeping, 0),
    ];
    let follower = followed(&events);
    let found = &follower.threads[&7].activations;
    let ends: Vec<(u64, u64, u64)> =
        found.iter().map(|one| (one.planned_ns, one.awake_ns, one.end_ns)).collect();
    assert_eq!(ends, [(5000, 5010, 5040), (1000, 5040, 5100)]);
    assert_eq!((found[0].slept_on, found[1].source), (Some(TIMER), Source::Timer(TIMER)));
}

#[test]
fn timers_at_ever_new_places_are_one_kind_and_a_lasting_few_are_not() {
    let mut thread = Followed::default();
    assert_eq!([10, 20, 10].map(|timer| thread.timer_id(timer, 1)), [10, 20, 10]);
    let found: Vec<u64> = (0..9).map(|place| thread.timer_id(100 + place, 2)).collect();
    assert_eq!(found[4..], [2; 5]);
    assert_eq!(thread.timer_id(10, 1), 10);
}

#[test]
fn after_a_loss_nothing_is_made_up() {
    let mut events = vec![
        switch(100, 0, State::Runnable, 7),
        switch(120, 7, State::Sleeping, 0),
        waking(200, 0),
        switch(210, 0, State::Runnable, 7),
    ];
    events.push(event(300, 0, Kind::Lost { count: 5 }));
    events.push(switch(400, 7, State::Sleeping, 0));
    assert_eq!(followed(&events).threads[&7].activations, []);
}
