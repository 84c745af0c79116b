//! Unknown states: timers that have not run, the end of running activations, threads that have
//! ended.

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

/// The driver of `script`, and in its executor a slow timer: it runs `runs` times from 12 s on,
/// each 20 s, and takes 10 ms.
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
    assert!(log.contains("it has not run yet, so its execution time is unknown"), "{log}");
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
fn what_never_ran_is_counted_until_its_process_ends() {
    // A timer of 50 ms that never runs beside the driver's, which runs for the last time after
    // 15.95 s; then the process ends. Plans are made every six seconds.
    let starved = |from_ns| {
        let mut script = script(from_ns, 16);
        let event = |at_ns: u64, kind: Kind| Event { at_ns, cpu_ns: Some(640 * MS), pid: 10, tid: 10, kind };
        let first = |kind| Event { cpu_ns: Some(0), ..event(from_ns, kind) };
        script.events.extend(beside(50_000_000).map(first));
        script.events.push_back(event(from_ns + 16_000 * MS, Kind::ThreadEnd));
        script.events.make_contiguous().sort_by_key(|event| event.at_ns);
        script
    };
    let goals = "[[chain]]\nname = \"slow\"\nstart = \"/slow\"\nend = \"/slow\"\ngoal = \"100 ms\"\n";
    let mut setup = setup_with(Goals::parse(goals, "test").unwrap(), false, starved);
    setup.pass(0.0, 17.5);
    let finished = setup.live.finish().unwrap();
    let chain = &finished.status.chains[0];
    // Due from 50 ms on, 319 times until 15.95 s; of the last two the goal had not passed.
    assert_eq!((chain.run.missing, chain.completions), (317, 0), "{chain:#?}");
    let verdict = finished.status.verdict();
    assert_eq!(verdict.verdict, takt_stats::Verdict::Fail, "{verdict:?}");
    let sentence = verdict.sentence();
    let words = "/slow timer 50ms has a period of 50.0 ms but never ran, while its executor ran other callbacks 319 times: 317 of its";
    assert!(sentence.contains(words), "{sentence}");
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
    assert_eq!((chain.overdue, chain.run.missing, chain.violations), (0, 0, 0), "{chain:#?}");
    // A message that really never comes is reported when that is known.
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
    let reported: Vec<&String> = status.chains[0].run.refutations.iter().map(|(_, words)| words).collect();
    assert!(reported.iter().all(|words| !words.contains("not as asked")), "{reported:?}");
    // The next plan enacts what is left, and has nothing against it.
    setup.pass(11.5, 14.0);
    let status = setup.live.status(setup.from_ns + 14_000 * MS);
    assert!(status.differences.is_empty(), "{:?}", status.differences);
}

/// A node of Python that comes 4 s later: for half a second each it loads libraries between what
/// its node announces, ten messages at once at last, and then says something every 100 ms.
fn with_python(from_ns: u64) -> Script {
    let mut script = script(from_ns, 40);
    let event = |pid: u32, at_ns: u64, cpu_ns: u64, kind: Kind| Event {
        at_ns,
        cpu_ns: Some(cpu_ns),
        pid,
        tid: pid,
        kind,
    };
    let topic = || std::sync::Arc::from("/parameter_events");
    // The driver subscribes, as every node does.
    let subscribed =
        Kind::SubscriptionInit { subscription: 5, node: 1, rmw_subscription: 6, topic: topic(), depth: 10 };
    for kind in [
        subscribed,
        Kind::SubscriptionObject { subscription: 5, object: 7 },
        Kind::SubscriptionCallback { object: 7, callback: 13 },
    ] {
        script.events.push_back(event(10, from_ns, 0, kind));
    }
    let (mut at_ns, mut cpu_ns) = (from_ns + 4_000 * MS, 500 * MS);
    let node = Kind::NodeInit { node: 1, name: "talker".into(), namespace: "/".into() };
    for kind in [
        Kind::Python,
        node,
        Kind::PublisherInit { publisher: 3, node: 1, rmw_publisher: 4, topic: topic(), depth: 10 },
        Kind::PublisherInit { publisher: 8, node: 1, rmw_publisher: 9, topic: "/said".into(), depth: 10 },
    ] {
        script.events.push_back(event(30, at_ns, cpu_ns, kind));
    }
    let publish = |script: &mut Script, at_ns: u64, cpu_ns: u64, rmw_publisher: u64| {
        let source_ns = Some(at_ns as i64 + crate::live::network::ahead_ns());
        script.events.push_back(event(
            30,
            at_ns,
            cpu_ns,
            Kind::RmwPublish { rmw_publisher, message: 1, source_ns },
        ));
    };
    for announced in 0..14 {
        let loads_ns = if announced < 4 { 400 * MS } else { 0 };
        (at_ns, cpu_ns) = (at_ns + loads_ns + MS, cpu_ns + loads_ns + MS / 2);
        publish(&mut script, at_ns, cpu_ns, 4);
        // As long as something is registered it is starting.
        let kind = Kind::TimerInit { timer: 100 + announced, period_ns: 100_000_000 };
        script.events.push_back(event(30, at_ns, cpu_ns, kind));
    }
    for _ in 0..300 {
        (at_ns, cpu_ns) = (at_ns + 100 * MS, cpu_ns + MS);
        publish(&mut script, at_ns, cpu_ns, 9);
    }
    script.events.make_contiguous().sort_by_key(|event| event.at_ns);
    script
}

#[test]
fn who_is_still_starting_takes_nobody_s_first_plan() {
    let mut setup = setup_with(two(), true, with_python);
    setup.pass(0.0, 6.5);
    assert_eq!(setup.live.plans(), 1);
    assert_eq!(setup.live.model().starting, [30], "it is starting at the first plan");
    let log = setup.text.text();
    assert!(!log.contains("more work than a core can do"), "{log}");
    let beat = setup.live.plan().unwrap().chains[0].clone();
    assert_eq!(beat.state, crate::plan::ChainState::Guaranteed, "{beat:?}\n{log}");
    // Its earlier behaviour does not count as cost of the present one: half a millisecond to one
    // each time.
    setup.pass(7.0, 20.0);
    let found = setup.live.model().callbacks.iter().find(|callback| callback.name.contains("/said")).unwrap();
    assert!(found.cost.seen > 50 && found.cost.most_ns[0] <= 2 * MS, "{found:#?}");
}

#[test]
fn who_only_looks_makes_no_plan_for_what_ends_together() {
    let mut setup = setup_with(two(), true, with_python);
    setup.pass(0.0, 17.0);
    let plans = setup.live.plans();
    // One process ends just before the next plan is due, the other one after it.
    let end = |pid: u32, at_ms: u64| Event {
        at_ns: setup.from_ns + at_ms * MS,
        cpu_ns: None,
        pid,
        tid: pid,
        kind: Kind::ThreadEnd,
    };
    let ends = [(10, 17_400), (30, 18_300)].map(|(pid, at_ms)| end(pid, at_ms));
    let gone_ns = ends[0].at_ns;
    let script = &mut setup.live.source;
    script
        .events
        .retain(|event| event.at_ns < gone_ns || event.pid == 30 && event.at_ns < gone_ns + 900 * MS);
    script.events.extend(ends);
    script.events.make_contiguous().sort_by_key(|event| event.at_ns);
    setup.pass(17.5, 18.5);
    assert_eq!(setup.live.plans(), plans);
    setup.live.source.ended = true;
    let finished = setup.live.finish().unwrap();
    assert_eq!(finished.plan.unwrap().chains[0].state, crate::plan::ChainState::Guaranteed);
}

/// Chains of the driver and of Python.
fn two() -> Goals {
    let chain = |name: &str, start: &str, end: &str| {
        format!("[[chain]]\nname = \"{name}\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal = \"100 ms\"\n")
    };
    let text = "degradation_order = [\"said\", \"beat\"]\n".to_owned()
        + &chain("beat", "/driver", "/driver timer 50ms")
        + &chain("said", "/said", "/said");
    Goals::parse(&text, "test").unwrap()
}
