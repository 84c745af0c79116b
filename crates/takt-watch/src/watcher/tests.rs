//! Memory over a long time: hours of a machine on which threads come and go, in a stream of events.

use takt_trace::event::{Span, State};

use super::*;

const LOOP: i32 = 1_000_000;

fn switch(time_ns: u64, prev_tid: i32, prev_state: State, next_tid: i32) -> Event {
    let kind = Kind::Switch { prev_tid, prev_prio: 120, prev_state, next_tid, next_prio: 120 };
    Event { time_ns, tid: prev_tid, cpu: 0, kind }
}

/// A second in which the watched loop wakes, and a stranger keeps it from running; and another
/// watched thread is born and wakes.
fn second(number: u64) -> Trace {
    let begin_ns = (number + 1) * 1_000_000_000;
    let (stranger, born) = (LOOP + 1 + 2 * number as i32, LOOP + 2 + 2 * number as i32);
    let mut events = Vec::new();
    for (cycle, tid) in [LOOP, LOOP, born].into_iter().enumerate() {
        let at_ns = begin_ns + cycle as u64 * 300_000_000;
        let waking = Kind::Waking { tid, prio: 120, target_cpu: 0 };
        events.extend([
            Event { time_ns: at_ns, tid: 0, cpu: 0, kind: waking },
            switch(at_ns + 10_000, 0, State::Runnable, stranger),
            switch(at_ns + 20_000_000, stranger, State::Runnable, tid),
            switch(at_ns + 25_000_000, tid, State::Sleeping, 0),
        ]);
    }
    let threads = [stranger, born].map(|tid| (tid, takt_trace::event::Thread::default()));
    let spans = vec![Span { from_ns: begin_ns, to_ns: begin_ns + 999_999_999 }];
    let notes = vec![format!("a note with the figure {number}")];
    Trace { events, threads: threads.into(), spans, notes, ..Trace::default() }
}

#[test]
fn memory_stays_bounded_while_threads_come_and_go() {
    let mut watcher = Watcher::new(Target::Process(-1), Settings::default());
    let seconds = 3 * MOST_ENDED as u64;
    for number in 0..seconds {
        for tid in [LOOP, LOOP + 2 + 2 * number as i32] {
            watcher.watched.threads.entry(tid).or_default().pid = 7;
            watcher.follower.threads.entry(tid).or_default();
        }
        watcher.feed(second(number), false, &mut |_, _| {});
        if number % 64 == 0 {
            watcher.refresh();
        }
    }
    watcher.refresh();
    let looped = &watcher.known[&LOOP];
    assert_eq!(looped.releases + 1, 2 * seconds, "the loop that did most is not forgotten");
    assert!(looped.late > seconds && looped.totals.len() <= MOST_NAMES + 1, "{}", looped.totals.len());
    assert!(looped.windows.len() <= 20 && looped.pending.len() < 16 && looped.jobs.len() < 64);
    assert!(watcher.follower.threads[&LOOP].kept_by.len() <= MOST_KEPT_BY + 64);
    for (what, length) in [
        ("known", watcher.known.len()),
        ("followed", watcher.follower.threads.len()),
        ("watched", watcher.watched.threads.len()),
    ] {
        assert!(length <= 2 * MOST_ENDED + 64, "{length} {what}");
    }
    let trace = &watcher.history.trace;
    assert!(trace.events.len() < 100 && trace.spans.len() == 1 && trace.threads.len() < 1 << 17);
    assert!(watcher.notes.len() <= MOST_NOTES + 1, "{}", watcher.notes.len());
}
