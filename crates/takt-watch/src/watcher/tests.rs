//! Memory over a long time: hours of a machine on which threads come and go, in a stream of events.
//! Causes that others inherit, and those of a loop that never sleeps.

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
    let seconds = 3 * MAX_ENDED as u64;
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
    assert!(looped.late > seconds && looped.totals.len() <= MAX_NAMES + 1, "{}", looped.totals.len());
    assert!(looped.windows.len() <= 20 && looped.pending.len() < 16 && looped.jobs.len() < 64);
    assert!(watcher.follower.threads[&LOOP].kept_by.len() <= MAX_KEPT_BY + 64);
    for (what, length) in [
        ("known", watcher.known.len()),
        ("followed", watcher.follower.threads.len()),
        ("watched", watcher.watched.threads.len()),
    ] {
        assert!(length <= 2 * MAX_ENDED + 64, "{length} {what}");
    }
    let trace = &watcher.history.trace;
    assert!(trace.events.len() < 100 && trace.spans.len() == 1 && trace.threads.len() < 1 << 17);
    assert!(watcher.notes.len() <= MAX_NOTES + 1, "{}", watcher.notes.len());
}

fn job(index: u64, planned_ns: u64, end_ns: u64) -> JobRecord {
    JobRecord { index, planned_ns, wake_ns: planned_ns, start_ns: planned_ns, end_ns, ..JobRecord::default() }
}

/// A late cycle with parts: cause, who, nanoseconds.
fn late(job: &JobRecord, parts: &[(Cause, &str, u64)]) -> Late {
    let all_ns: u64 = parts.iter().map(|part| part.2).sum();
    let part = |&(cause, who, ns): &(Cause, &str, u64)| takt_trace::analysis::Part {
        cause,
        who: who.to_owned(),
        ns,
        share: ns as f64 / all_ns as f64,
    };
    let mut late = Late::of(job, parts[0].0, parts.iter().map(part).collect());
    late.who = parts[0].1.to_owned();
    late
}

#[test]
fn what_waits_behind_a_late_cycle_has_its_cause_also_in_another_window() {
    const MS: u64 = 1_000_000;
    // One that is blocked for 11 of its 2 ms, and five behind it; then one that comes in time.
    let mut jobs = vec![job(10, 0, 11 * MS)];
    jobs.extend((1..6).map(|at| job(10 + at, at * 2 * MS, 11 * MS + at * MS / 10)));
    jobs.push(job(16, 20 * MS, 25 * MS));
    let mut known = Known::default();
    let first = known.inherit(late(&jobs[0], &[(Cause::Lock, "hog", 9 * MS)]), &jobs);
    assert_eq!((first.cause, first.inherited), (Cause::Lock, false));
    for job in &jobs[1..6] {
        let behind = late(job, &[(Cause::PreviousJob, "", 8 * MS), (Cause::Softirq, "net_rx", MS)]);
        let behind = known.inherit(behind, &jobs);
        assert_eq!((behind.cause, behind.who.as_str(), behind.backlog_of), (Cause::Lock, "hog", Some(10)));
        assert!(behind.inherited);
        known.add(behind, 100_000, 20);
    }
    let causes: Vec<Cause> = known.totals.keys().map(|key| key.0).collect();
    assert_eq!(causes, [Cause::Softirq, Cause::Lock], "its time is the lock's, and no job's before it");
    // It waits for one that nobody knows the cause of: nothing is inherited over the gap.
    let other = known.inherit(late(&jobs[6], &[(Cause::PreviousJob, "", MS)]), &jobs);
    assert_eq!((other.cause, other.inherited), (Cause::PreviousJob, false));
    // Its own code took most; what it waited is the lock's all the same.
    let mut known = Known::default();
    known.inherit(late(&jobs[0], &[(Cause::Lock, "hog", 9 * MS)]), &jobs);
    let mixed =
        known.inherit(late(&jobs[1], &[(Cause::Execution, "", 9 * MS), (Cause::PreviousJob, "", MS)]), &jobs);
    assert_eq!(
        (mixed.cause, mixed.parts[1].cause, mixed.parts[1].who.as_str()),
        (Cause::Execution, Cause::Lock, "hog")
    );
}

#[test]
fn a_loop_that_never_sleeps_is_late_by_whoever_took_its_cpu() {
    const MS: u64 = 1_000_000;
    const HOG: i32 = 77;
    let mut watcher = Watcher::new(Target::Process(-1), Settings::default());
    watcher.watched.threads.entry(LOOP).or_default().pid = LOOP;
    let begin_ns = 1_000_000_000;
    let at = |ms: u64| begin_ns + ms * MS;
    let mut events = vec![switch(begin_ns - MS, 0, State::Runnable, LOOP)];
    let mut calls = Vec::new();
    for cycle in 0..300 {
        // Another program takes 5 ms in the middle of one cycle.
        if cycle == 200 {
            events.push(switch(at(600) + MS / 2, LOOP, State::Runnable, HOG));
            events.push(switch(at(605) + MS / 2, HOG, State::Sleeping, LOOP));
        }
        let late_ns = if cycle > 200 { 5 * MS } else { 0 };
        calls.push(at(3 * cycle) + late_ns);
        let tick = Kind::SignalGenerate { signal: 0, tid: 0 };
        events.push(Event { time_ns: at(3 * cycle) + late_ns, tid: LOOP, cpu: 0, kind: tick });
    }
    let source = Source::Call { number: 1, file: 3 };
    let followed = watcher.follower.threads.entry(LOOP).or_default();
    followed.activations = calls
        .iter()
        .map(|&ns| Activation {
            source,
            planned_ns: ns,
            awake_ns: ns,
            end_ns: ns,
            cpu_ns: 0,
            state: State::Sleeping,
            slept_on: None,
            cpu: 0,
        })
        .collect();
    let spans = vec![Span { from_ns: begin_ns - MS, to_ns: at(1000) }];
    let threads = [(HOG, takt_trace::event::Thread { name: "hog".to_owned(), pid: Some(HOG) })];
    let trace = Trace { events, spans, threads: threads.into(), ..Trace::default() };
    let mut rows = Vec::new();
    watcher.feed(trace, true, &mut |_, jobs| rows.extend_from_slice(jobs));
    let report = watcher.report();
    let thread = &report.threads[0];
    assert_eq!((thread.kind, thread.late, thread.missed), (crate::LoopKind::Spinning, 1, 2), "{thread:?}");
    assert!(thread.period_us.is_some_and(|us| (us / 3000.0 - 1.0).abs() < 0.01), "{thread:?}");
    let late = &thread.windows[0];
    assert_eq!(late.cause, Cause::HigherPriority, "{late:?}");
    assert!(late.who.contains("hog") && (late.lateness_us / 5000.0 - 1.0).abs() < 0.01, "{late:?}");
    // Rows report how late each call was.
    let lateness: Vec<u64> = rows.iter().map(JobRecord::lateness_ns).filter(|&ns| ns > MS).collect();
    assert_eq!(lateness.len(), 1, "{lateness:?}");
}

/// A watch of loops that a timer wakes, each so many microseconds apart, with the period that the
/// user passed.
fn passed(loops_us: &[u64], period_us: f64) -> crate::Report {
    const US: u64 = 1000;
    let settings = Settings { period_ns: Some(period_us * 1e3), ..Settings::default() };
    let mut watcher = Watcher::new(Target::Process(-1), settings);
    let begin_ns = 1_000_000_000;
    for (number, us) in loops_us.iter().enumerate() {
        let tid = LOOP + number as i32;
        let thread = watcher.watched.threads.entry(tid).or_default();
        (thread.pid, thread.name) = (LOOP, format!("loop{number}"));
        let one = |cycle: u64| Activation {
            source: Source::Timer(1 + number as u64),
            planned_ns: begin_ns + cycle * us * US,
            awake_ns: begin_ns + cycle * us * US + 5 * US,
            end_ns: begin_ns + cycle * us * US + 50 * US,
            cpu_ns: 45 * US,
            state: State::Sleeping,
            slept_on: None,
            cpu: 0,
        };
        watcher.follower.threads.entry(tid).or_default().activations = (0..4_000_000 / us).map(one).collect();
    }
    let spans = vec![Span { from_ns: begin_ns, to_ns: begin_ns + 4_000_000 * US }];
    watcher.feed(Trace { spans, ..Trace::default() }, true, &mut |_, _| {});
    watcher.report()
}

#[test]
fn a_passed_period_that_the_cycles_contradict_is_a_doubt() {
    let doubts = |loops_us: &[u64], period_us: f64| {
        let report = passed(loops_us, period_us);
        assert!(report.doubts.iter().all(|doubt| report.notes.contains(doubt)), "{report:?}");
        report.doubts
    };
    let of = |doubts: Vec<String>| doubts.into_iter().next().unwrap_or_default();
    let long = of(doubts(&[5000], 1e6));
    assert!(
        long.starts_with(
            "You passed --period 1.00 s, but the cycles of loop0 (tid 1000000) came every 5.000 ms. A"
        ),
        "{long}"
    );
    assert!(of(doubts(&[5000], 50_000.0)).contains("--period 50.000 ms, but"));
    // A shorter one is not held against the loop, and the doubt says by how much.
    let short = of(doubts(&[5000], 1000.0));
    assert!(short.contains("came every 5.000 ms. The period") && short.contains("left out 80 %"), "{short}");
    assert_eq!(doubts(&[5000], 5000.0), [""; 0]);
    // It is one loop's, and a heartbeat beside that has its own.
    assert_eq!(doubts(&[2000, 100_000], 2000.0), [""; 0]);
    // A faster one has its own as well, and was judged by this one.
    let two = doubts(&[2000, 100_000], 100_000.0);
    assert!(two.len() == 1 && two[0].contains("loop0"), "{two:?}");
    assert_eq!(doubts(&[2000, 3000], 1e6).len(), 2);
}
