use takt_trace::event::Vector;

use super::*;

const TID: i32 = 7;
const MS: u64 = 1000;

/// A frame with one datagram of process data, of the size of the shortest frame.
fn lrw(index: u8, answered: bool) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([if answered { 0x12 } else { 0x10 }, 16, 16, 16, 16, 16, 0x88, 0xa4]);
    bytes.extend([16, 0x10, 12, index, 0, 0, 1, 0, 4, 0, 0, 0]);
    bytes.extend([u8::from(answered); 6]);
    bytes.resize(60, 0);
    bytes
}

#[test]
fn frames_are_known_again_and_the_lost_are_missed() {
    let mut frames = Frames::default();
    let mut seen = Vec::new();
    frames.see(&lrw(1, false), 1000, true, &mut seen);
    frames.see(&lrw(2, false), 5000, true, &mut seen);
    frames.see(&lrw(2, true), 5100, false, &mut seen);
    // Nobody asked for it; not of this protocol.
    frames.see(&lrw(9, true), 5200, false, &mut seen);
    frames.see(&[0; 60], 5300, true, &mut seen);
    let exchange = Exchange {
        arrived_ns: 5000,
        bytes: 46,
        late_ns: 0,
        answered_ns: Some(5100),
        answer_bytes: 46,
        behind_ns: None,
    };
    let sent = |time_ns, alone| Seen::Sent { time_ns, bytes: 46, alone };
    assert_eq!(seen, [sent(1000, false), sent(5000, true), Seen::Over(exchange)]);
    seen.clear();
    frames.give_up(LONGEST_NS, &mut seen);
    assert_eq!(seen, []);
    frames.give_up(LONGEST_NS + 2000, &mut seen);
    assert_eq!(seen, [Seen::Over(Exchange { arrived_ns: 1000, answered_ns: None, ..exchange })]);
    for length in 0..60 {
        frames.see(&lrw(1, false)[..length], 0, true, &mut seen);
    }
}

fn event(time_us: u64, tid: i32, kind: Kind) -> Event {
    Event { time_ns: time_us * 1000, tid, cpu: 0, kind }
}

fn switch(time_us: u64, prev_tid: i32, prev_state: State, next_tid: i32) -> Event {
    event(time_us, prev_tid, Kind::Switch { prev_tid, prev_prio: 120, prev_state, next_tid, next_prio: 120 })
}

fn queued(time_us: u64) -> Event {
    event(time_us, TID, Kind::Packet { step: PacketStep::Queued, buffer: 1, bytes: 60 })
}

fn waking(time_us: u64) -> Event {
    event(time_us, 0, Kind::Waking { tid: TID, prio: 120, target_cpu: 0 })
}

/// A frame that was due at 10 ms and left at `sent_us`, after one that came back at `back_us`.
fn judged(sent_us: u64, back_us: u64, events: Vec<Event>) -> Violation {
    let mut all = vec![switch(0, 0, State::Runnable, TID), switch(7 * MS, TID, State::Sleeping, 0)];
    all.extend(events);
    all.push(switch(sent_us + 100, TID, State::Sleeping, 0));
    let exchange = |sent_us: u64, back_us: u64| Exchange {
        arrived_ns: sent_us * 1000,
        bytes: 46,
        late_ns: 0,
        answered_ns: Some(back_us * 1000),
        answer_bytes: 46,
        behind_ns: None,
    };
    let others = [exchange(6 * MS, back_us), exchange(2 * MS, 2 * MS + 100), exchange(MS, MS + 100)];
    let late = Exchange { late_ns: (sent_us - 10 * MS) * 1000, ..exchange(sent_us, sent_us) };
    blamed(&Trace { events: all, ..Trace::default() }, &late, &others, &BTreeSet::from([TID]))
}

#[test]
fn a_late_send_is_put_down_to_whoever_held_it_up() {
    let back_us = 6 * MS + 100;
    let wake = |us: u64, from: i32| vec![waking(us), switch(us + 10, from, State::Runnable, TID)];
    // Ready, and another thread has the CPU.
    let kept = vec![
        switch(9 * MS, 0, State::Runnable, 9),
        waking(10 * MS),
        switch(13 * MS, 9, State::Runnable, TID),
    ];
    let found = judged(13 * MS + 20, back_us, [kept, vec![queued(13 * MS + 10)]].concat());
    assert_eq!(found.place, LinkPlace::WokenLate, "{found:?}");
    assert!(found.who.contains('9'), "{found:?}");
    // Its own code takes long; and it sleeps on purpose.
    let found = judged(13 * MS + 20, back_us, [wake(10 * MS, 0), vec![queued(13 * MS + 10)]].concat());
    assert_eq!(found.place, LinkPlace::UserCode, "{found:?}");
    let slept =
        [wake(10 * MS, 0), vec![switch(10 * MS + 50, TID, State::Sleeping, 0)], wake(13 * MS, 0)].concat();
    let found = judged(13 * MS + 20, back_us, [slept, vec![queued(13 * MS + 15)]].concat());
    assert_eq!(found.place, LinkPlace::UserCode, "{found:?}");
    // The queue before the interface.
    let found = judged(14 * MS, back_us, [wake(10 * MS, 0), vec![queued(10 * MS + 50)]].concat());
    assert_eq!(found.place, LinkPlace::SendPath, "{found:?}");
    // It waited for the frame before, asleep or polling.
    let waited = [wake(13 * MS, 0), vec![queued(13 * MS + 15)]].concat();
    let found = judged(13 * MS + 20, 13 * MS, waited);
    assert_eq!(found.place, LinkPlace::RobotOrNetwork, "{found:?}");
    let found = judged(13 * MS + 20, 13 * MS, [wake(9 * MS, 0), vec![queued(13 * MS + 10)]].concat());
    assert_eq!(found.place, LinkPlace::RobotOrNetwork, "{found:?}");
    // The previous frame returned before this one was due, but so late that all later steps were
    // late.
    let found = judged(12 * MS, 9 * MS, [wake(9 * MS, 0), vec![queued(12 * MS)]].concat());
    assert_eq!(found.place, LinkPlace::RobotOrNetwork, "{found:?}");
    // Nobody was seen to send.
    assert_eq!(judged(13 * MS, back_us, wake(10 * MS, 0)).place, LinkPlace::Unknown);
}

#[test]
fn a_timer_that_did_not_come_is_a_late_wake_up() {
    let start = Kind::TimerStart { timer: 0x100, function: 1, expires_ns: 10_000_000, slack_ns: 0 };
    let expire = Kind::TimerExpireEntry { timer: 0x100, function: 1, now_ns: 13_000_000 };
    let events = vec![
        switch(8 * MS, 0, State::Runnable, TID),
        event(8 * MS + 10, TID, start),
        switch(8 * MS + 20, TID, State::Sleeping, 0),
        event(13 * MS, 0, Kind::VectorEntry(Vector::LocalTimer)),
        event(13 * MS + 1, 0, expire),
        waking(13 * MS + 2),
        event(13 * MS + 3, 0, Kind::TimerExpireExit { timer: 0x100 }),
        event(13 * MS + 4, 0, Kind::VectorExit(Vector::LocalTimer)),
        switch(13 * MS + 10, 0, State::Runnable, TID),
        queued(13 * MS + 20),
    ];
    let found = judged(13 * MS + 30, 6 * MS + 100, events);
    assert_eq!(found.place, LinkPlace::WokenLate, "{found:?}");
}

#[test]
fn a_late_return_is_the_wire_s_or_the_receive_path_s() {
    let late = Exchange {
        arrived_ns: 10_000_000,
        bytes: 46,
        late_ns: 0,
        answered_ns: Some(14_000_000),
        answer_bytes: 46,
        behind_ns: None,
    };
    let received = event(14 * MS, 0, Kind::Packet { step: PacketStep::Received, buffer: 1, bytes: 46 });
    let found = |raised_us: u64| {
        let events = vec![
            switch(0, 0, State::Runnable, TID),
            event(raised_us, 0, Kind::SoftirqRaise(NET_RX)),
            received,
            switch(15 * MS, TID, State::Sleeping, 0),
        ];
        blamed(&Trace { events, ..Trace::default() }, &late, &[], &BTreeSet::new())
    };
    assert_eq!(found(14 * MS - 10).place, LinkPlace::RobotOrNetwork);
    assert_eq!(found(11 * MS).place, LinkPlace::Interrupt);
    assert_eq!(blamed(&Trace::default(), &late, &[], &BTreeSet::new()).place, LinkPlace::Unknown);
    assert_eq!(missing(&late).place, LinkPlace::RobotOrNetwork);
}
