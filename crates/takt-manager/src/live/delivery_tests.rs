//! Delivery by the middleware, over two processes.

use super::*;

/// A timer every 50 ms in process 10 whose message process 20 takes, received `after_ns(step)`
/// after its stamp.
fn two(from_ns: u64, after_ns: impl Fn(u64) -> u64) -> Script {
    let mut events = Vec::new();
    let mut push = |pid: u32, at_ns: u64, cpu_ns: u64, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid, tid: pid, kind });
    };
    driver(from_ns, &mut |at_ns, cpu_ns, kind| push(10, at_ns, cpu_ns, kind));
    let depth = 10;
    let (publisher, rmw_publisher) = (4, 5);
    let topic: Arc<str> = "/t".into();
    push(
        10,
        from_ns,
        0,
        Kind::PublisherInit { publisher, node: 1, rmw_publisher, topic: topic.clone(), depth },
    );
    push(20, from_ns, 0, Kind::ThreadName { name: "sink".into() });
    push(20, from_ns, 0, Kind::NodeInit { node: 1, name: "sink".into(), namespace: "/".into() });
    let (subscription, rmw_subscription) = (6, 7);
    push(20, from_ns, 0, Kind::SubscriptionInit { subscription, node: 1, rmw_subscription, topic, depth });
    push(20, from_ns, 0, Kind::SubscriptionObject { subscription, object: 8 });
    push(20, from_ns, 0, Kind::SubscriptionCallback { object: 8, callback: 9 });
    let mut cpu_ns = 0;
    for step in 1..800 {
        let at_ns = from_ns + step * 50 * MS;
        push(10, at_ns - 1000, cpu_ns, Kind::ExecutorWait { timeout_ns: -1 });
        push(10, at_ns, cpu_ns, Kind::CallbackStart { callback: 3, intra_process: false });
        cpu_ns += 2 * MS;
        let source_ns = (1_700_000_000_000_000_000 + at_ns) as i64;
        let sent_ns = at_ns + 3 * MS;
        push(10, sent_ns, cpu_ns, Kind::RclPublish { publisher, message: 1 });
        push(10, sent_ns, cpu_ns, Kind::RmwPublish { rmw_publisher, message: 1, source_ns: Some(source_ns) });
        push(10, sent_ns, cpu_ns, PREEMPTED);
        push(10, sent_ns, cpu_ns, Kind::CallbackEnd { callback: 3 });
        let after_ns = after_ns(step);
        let taken_ns = sent_ns + after_ns + MS / 10;
        push(20, taken_ns, cpu_ns, Kind::MessageReceived { after_ns: after_ns as i64 });
        push(20, taken_ns, cpu_ns, Kind::RmwTake { rmw_subscription, message: 1, source_ns, taken: true });
        push(20, taken_ns, cpu_ns, Kind::CallbackStart { callback: 9, intra_process: false });
        push(20, taken_ns + MS, cpu_ns + MS, PREEMPTED);
        push(20, taken_ns + MS, cpu_ns + MS, Kind::CallbackEnd { callback: 9 });
        push(20, taken_ns + MS, cpu_ns + MS, Kind::ExecutorWait { timeout_ns: -1 });
    }
    events.sort_by_key(|event| event.at_ns);
    Script { events: events.into(), now_ns: 0, ..Script::default() }
}

#[test]
fn a_late_delivery_takes_the_word_back_and_the_next_bound_has_it() {
    let goals = Goals::parse(
        "degradation_order = [\"way\"]\n[[chain]]\nname = \"way\"\nstart = \"/driver\"\nend = \"/sink\"\ngoal = \"200 ms\"\n",
        "test",
    );
    // From step 200 on, at 10 s, threads of the middleware are late by 8 ms now and then.
    let after_ns = |step: u64| if step >= 200 && step.is_multiple_of(8) { 8 * MS } else { MS / 5 };
    let mut setup = setup_with(narrow(goals.unwrap()), false, |from_ns| two(from_ns, after_ns));
    setup.pass(0.0, 9.5);
    let state =
        |setup: &Setup, at_s: f64| setup.live.status(setup.from_ns + (at_s * 1e9) as u64).chains[0].clone();
    let before = state(&setup, 9.5);
    assert_eq!(before.state, "guaranteed", "{before:#?}");
    let parts = setup.live.plan().unwrap().chains[0].bound_parts.clone();
    // 0.2 ms seen, a quarter and 0.3 ms more.
    assert_eq!(parts.iter().map(|part| part.transport_ns).collect::<Vec<_>>(), [0, 550_000]);
    setup.pass(10.0, 10.5);
    let after = state(&setup, 10.5);
    assert_ne!(after.state, "guaranteed");
    let reported = &after.run.refutations[0].1;
    assert!(
        reported.contains("/sink subscription /t: a message was received 8.000 ms after it was sent"),
        "{reported}"
    );
    assert_eq!(after.run.false_guarantees, 0, "{after:#?}");
    setup.pass(11.0, 20.0);
    let again = state(&setup, 20.0);
    assert_eq!(again.state, "guaranteed", "{again:#?}");
    assert_eq!(setup.live.plan().unwrap().chains[0].bound_parts[1].transport_ns, 10_300_000);
    assert!(again.bound_ns.unwrap() >= before.bound_ns.unwrap() + 8 * MS);
}

/// Threads of the middleware that wait for a CPU that long have no bound: the longest wait so far
/// is none.
#[test]
fn where_the_middleware_waits_for_a_cpu_nothing_is_guaranteed() {
    for (held_ms, expected) in [(20, "guaranteed"), (30, "not_analysable")] {
        let goals = Goals::parse(
            "degradation_order = [\"way\"]\n[[chain]]\nname = \"way\"\nstart = \"/driver\"\nend = \"/sink\"\ngoal = \"200 ms\"\n",
            "test",
        );
        let after_ns = |step: u64| if step.is_multiple_of(8) { held_ms * MS } else { MS / 5 };
        let mut setup = setup_with(narrow(goals.unwrap()), false, |from_ns| two(from_ns, after_ns));
        setup.pass(0.0, 20.0);
        let chain = setup.live.status(setup.from_ns + 20_000 * MS).chains[0].clone();
        assert_eq!(chain.state, expected, "{chain:#?}");
        // Its reservations stay: it is served as well as it can be.
        assert!(
            chain.bound_ns.unwrap() > held_ms * MS && !setup.live.plan().unwrap().reservations.is_empty()
        );
        if expected != "guaranteed" {
            assert!(chain.why.contains("after 30.0 ms to /sink subscription /t"), "{}", chain.why);
            assert_eq!(chain.run.guaranteed_s, 0.0);
        }
    }
}

/// A guarantee does not rest on how idle the machine happens to be.
#[test]
fn where_no_thread_of_the_middleware_is_raised_nothing_is_guaranteed() {
    for (nice, expected) in [(0, "guaranteed"), (7, "not_analysable")] {
        let goals = Goals::parse(
            "degradation_order = [\"way\"]\n[[chain]]\nname = \"way\"\nstart = \"/driver\"\nend = \"/sink\"\ngoal = \"200 ms\"\n",
            "test",
        );
        let mut setup = setup_with(narrow(goals.unwrap()), false, |from_ns| two(from_ns, |_| MS / 5));
        let kernel = setup.live.enactor.as_mut().unwrap().kernel_mut();
        kernel.spawn(20, 21, "dds");
        kernel.threads.get_mut(&21).unwrap().attributes = crate::system::Attributes::other(nice);
        for half_s in 0..40 {
            let at_s = f64::from(half_s) / 2.0;
            let dds = setup.live.enactor.as_mut().unwrap().kernel_mut().threads.get_mut(&21).unwrap();
            (dds.turns, dds.run_ns) = (dds.turns + 50, dds.run_ns + MS);
            setup.pass(at_s, at_s);
        }
        let chain = setup.live.status(setup.from_ns + 20_000 * MS).chains[0].clone();
        assert_eq!(chain.state, expected, "{chain:#?}");
        assert_eq!(
            chain.why.contains("no thread of the middleware of process 20"),
            nice != 0,
            "{}",
            chain.why
        );
    }
}

/// Holding the middleware's threads up by moving them says nothing about how long they take.
#[test]
fn a_delivery_that_is_late_while_threads_are_moved_takes_the_word_and_widens_nothing() {
    let goals = Goals::parse(
        "degradation_order = [\"way\"]\n[[chain]]\nname = \"way\"\nstart = \"/driver\"\nend = \"/sink\"\ngoal = \"200 ms\"\n",
        "test",
    );
    // The first plan is enacted at 6 s, and that is step 120.
    let after_ns = |step: u64| if step == 120 { 8 * MS } else { MS / 5 };
    let mut setup = setup_with(narrow(goals.unwrap()), false, |from_ns| two(from_ns, after_ns));
    let state =
        |setup: &Setup, at_s: f64| setup.live.status(setup.from_ns + (at_s * 1e9) as u64).chains[0].clone();
    setup.pass(0.0, 6.5);
    let moved = state(&setup, 6.5);
    assert!(moved.state == "learning" && moved.why.contains("last seen broken"), "{moved:#?}");
    setup.pass(7.0, 20.0);
    let after = state(&setup, 20.0);
    assert_eq!((after.state.as_str(), after.run.false_guarantees), ("guaranteed", 0), "{after:#?}");
    let parts = &setup.live.plan().unwrap().chains[0].bound_parts;
    assert_eq!(parts.iter().map(|part| part.transport_ns).collect::<Vec<_>>(), [0, 550_000]);
}

/// Before Jazzy messages carry no stamp when they are published: nothing shows which one a callback
/// works on.
#[test]
fn without_stamps_of_publications_a_chain_over_two_processes_is_not_measurable() {
    let goals = Goals::parse(
        "degradation_order = [\"way\"]\n[[chain]]\nname = \"way\"\nstart = \"/driver\"\nend = \"/sink\"\ngoal = \"200 ms\"\n",
        "test",
    );
    let mut setup = setup_with(goals.unwrap(), false, |from_ns| {
        let mut script = two(from_ns, |_| MS / 5);
        for event in &mut script.events {
            if let Kind::RmwPublish { rmw_publisher, source_ns, .. } = &mut event.kind {
                (*rmw_publisher, *source_ns) = (0, None);
            }
        }
        script
    });
    setup.pass(0.0, 12.0);
    let chain = setup.live.status(setup.from_ns + 12_000 * MS).chains[0].clone();
    assert_eq!(chain.state, "not_measurable", "{chain:#?}");
    assert!(chain.why.contains("no time stamp when they are published (before Jazzy)"), "{}", chain.why);
}
