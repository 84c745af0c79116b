//! What is not known yet: timers that have not run, the end of what is under way, threads that are no more.

use super::*;
use crate::system::Attributes;

/// Another node with a timer, in the same executor.
fn beside(period_ns: i64) -> [Kind; 4] {
    [
        Kind::NodeInit { node: 9, name: "slow".into(), namespace: "/".into() },
        Kind::TimerInit { timer: 7, period_ns },
        Kind::TimerCallback { timer: 7, callback: 8 },
        Kind::TimerNode { timer: 7, node: 9 },
    ]
}

/// The driver of `script`, and in its executor a slow timer: it runs `runs` times from 12 s on, each 20 s, and takes 10 ms.
fn with_a_slow_timer(from_ns: u64, runs: u64) -> Script {
    let mut script = script(from_ns, 40);
    let event =
        |at_ns: u64, cpu_ns: u64, kind: Kind| Event { at_ns, cpu_ns: Some(cpu_ns), pid: 10, tid: 10, kind };
    for kind in beside(20_000_000_000) {
        script.events.push_back(event(from_ns, 0, kind));
    }
    for run in 0..runs {
        let (at_ns, cpu_ns) = (from_ns + (12_010 + 20_000 * run) * MS, (2 * 240 + 400 * run) * MS);
        for (after_ns, kind) in [
            (0, Kind::CallbackStart { callback: 8, intra_process: false }),
            (10 * MS, PREEMPTED),
            (10 * MS, Kind::CallbackEnd { callback: 8 }),
        ] {
            script.events.push_back(event(at_ns + after_ns, cpu_ns + after_ns, kind));
        }
    }
    script.events.make_contiguous().sort_by_key(|event| event.at_ns);
    script
}

#[test]
fn beside_a_timer_that_has_not_run_yet_nothing_is_guaranteed() {
    let mut setup = setup_of(100, false, |from_ns| with_a_slow_timer(from_ns, 2));
    setup.pass(0.0, 11.5);
    let before = setup.live.status(setup.from_ns + 11_500 * MS).chains[0].clone();
    assert_eq!((before.state.as_str(), before.run.guaranteed_s), ("learning", 0.0), "{before:#?}");
    for word in ["/slow timer 20s", "has not run yet"] {
        assert!(before.why.contains(word), "{}", before.why);
    }
    setup.pass(12.0, 30.0);
    let after = setup.live.status(setup.from_ns + 30_000 * MS).chains[0].clone();
    assert_eq!(after.state, "guaranteed", "{after:#?}");
    // Nothing that had been said was taken back.
    assert_eq!((after.run.refuted_times, after.run.refutations.len()), (0, 0), "{after:#?}");
    let log = setup.text.text();
    assert!(log.contains("it has not run yet, so what it takes is not known"), "{log}");
}

#[test]
fn a_timer_that_stands_still_holds_nobody_up_for_ever() {
    // One of 500 ms that was cancelled.
    let cancelled = |from_ns| {
        let mut script = script(from_ns, 40);
        let event = |kind: Kind| Event { at_ns: from_ns, cpu_ns: Some(0), pid: 10, tid: 10, kind };
        script.events.extend(beside(500_000_000).map(event));
        script.events.make_contiguous().sort_by_key(|event| event.at_ns);
        script
    };
    let mut setup = setup_of(100, false, cancelled);
    setup.pass(0.0, 9.0);
    let status = setup.live.status(setup.from_ns + 9_000 * MS);
    assert_eq!(status.chains[0].state, "learning", "{:#?}", status.chains[0]);
    setup.pass(9.5, 25.0);
    assert_eq!(setup.live.status(setup.from_ns + 25_000 * MS).chains[0].state, "guaranteed");
}

#[test]
fn what_is_held_back_yet_has_not_failed_to_come() {
    // 15 ms from the release to the end, of a goal of 20 ms.
    let slow = |from_ns| {
        let mut script = script(from_ns, 40);
        for event in &mut script.events {
            if matches!(event.kind, Kind::CallbackEnd { .. } | Kind::OffCpu { .. }) {
                event.at_ns += 12 * MS;
            }
        }
        script
    };
    let mut setup = setup_of(20, false, slow);
    setup.pass(0.0, 20.0);
    // Between the release and the end, as events are read: 50 ms later.
    let now_ns = setup.from_ns + 20_055 * MS;
    setup.live.source.now_ns = now_ns;
    setup.live.step(now_ns).unwrap();
    let chain = &setup.live.status(now_ns).chains[0];
    assert_eq!((chain.overdue, chain.run.never, chain.violations), (0, 0, 0), "{chain:#?}");
    // What really never comes is told when that is known.
    setup.live.source.events.clear();
    let later_ns = setup.from_ns + 20_200 * MS;
    setup.live.source.now_ns = later_ns;
    setup.live.step(later_ns).unwrap();
    assert_eq!(setup.live.status(later_ns).chains[0].overdue, 1);
}

#[test]
fn a_thread_that_has_died_has_no_reservation_that_could_differ() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 8.0);
    assert_eq!(setup.live.status(setup.from_ns + 8_000 * MS).chains[0].state, "guaranteed");
    // Its number is there until it is reaped; the kernel has cleared what it reserved.
    let kernel = setup.live.enactor.as_mut().unwrap().kernel_mut();
    kernel.force(10, Attributes::reservation(0, 0, true), 0, false);
    setup.live.source.events.clear();
    setup.pass(8.5, 11.0);
    let status = setup.live.status(setup.from_ns + 11_000 * MS);
    let told: Vec<&String> = status.chains[0].run.refutations.iter().map(|(_, words)| words).collect();
    assert!(told.iter().all(|words| !words.contains("not as asked")), "{told:?}");
    // The next plan enacts what is left, and has nothing against it.
    setup.pass(11.5, 14.0);
    let status = setup.live.status(setup.from_ns + 14_000 * MS);
    assert!(status.differences.is_empty(), "{:?}", status.differences);
}
