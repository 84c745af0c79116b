//! Chains that begin on another machine, whose clock is planted.

use super::*;
use crate::clocks::roundtrip::Responder;

/// A subscription that gets a message every 50 ms from a publisher that is not observed: on its way for 1 ms, by a clock that is ahead by
/// so much; its callback takes 2 ms, and once 30.
fn listening(from_ns: u64, ahead_ns: i64, way_ns: u64) -> Script {
    let mut events = Vec::new();
    let mut cpu_ns = 0;
    let mut push = |at_ns: u64, cpu_ns: u64, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid: 10, tid: 10, kind });
    };
    push(from_ns, 0, Kind::ThreadName { name: "driver".into() });
    push(from_ns, 0, Kind::NodeInit { node: 1, name: "driver".into(), namespace: "/".into() });
    let topic = "/cmd".into();
    let subscribed =
        Kind::SubscriptionInit { subscription: 5, node: 1, rmw_subscription: 6, topic, depth: 10 };
    push(from_ns, 0, subscribed);
    push(from_ns, 0, Kind::SubscriptionObject { subscription: 5, object: 7 });
    push(from_ns, 0, Kind::SubscriptionCallback { object: 7, callback: 3 });
    let offset_ns = crate::live::network::ahead_ns() + ahead_ns;
    for step in 1..800 {
        let at_ns = from_ns + step * 50 * MS;
        let source_ns = (at_ns - way_ns) as i64 + offset_ns;
        push(at_ns - 1000, cpu_ns, Kind::ExecutorWait { timeout_ns: -1 });
        push(at_ns, cpu_ns, Kind::RmwTake { rmw_subscription: 6, message: 9, source_ns, taken: true });
        push(at_ns, cpu_ns, Kind::CallbackStart { callback: 3, intra_process: false });
        cpu_ns += 2 * MS;
        push(at_ns + 2 * MS, cpu_ns, Kind::CallbackEnd { callback: 3 });
    }
    Script { events: events.into(), now_ns: 0, ..Script::default() }
}

fn goals(goal: &str, network: &str) -> Goals {
    let text = format!(
        "[[chain]]\nname = \"beat\"\nstart = \"/cmd\"\nend = \"/driver\"\ngoal = \"{goal}\"\n{network}"
    );
    narrow(Goals::parse(&text, "test").unwrap())
}

fn run(goal: &str, network: &str, ahead_ns: i64, way_ns: u64) -> Status {
    let goals = goals(goal, network);
    let mut setup = setup_with(goals, false, |from_ns| listening(from_ns, ahead_ns, way_ns));
    setup.pass(0.0, 15.0);
    setup.live.status(setup.from_ns + 15_000_000_000)
}

fn near(ms: Option<f64>, wanted_ms: f64) -> bool {
    // The two clocks of this machine are not read at the same moment.
    ms.is_some_and(|ms| (ms - wanted_ms).abs() < 0.5)
}

#[test]
fn latencies_from_another_machine_are_told_with_their_error_and_never_guaranteed_without_a_bound() {
    // 4 ms ahead, as is stated: messages seem to come from the future, and their releases are no later than their takes.
    let status = run("50 ms", "[network]\nclock_error = \"5 ms\"\n", -4_000_000, MS);
    let chain = &status.chains[0];
    assert!(near(chain.worst_ms, 7.0), "{chain:#?}");
    assert_eq!((chain.clock_error_ms, chain.state.as_str()), (Some(5.0), "not_analysable"), "{chain:#?}");
    assert!(chain.why.contains("[network] bound"), "{}", chain.why);
    assert_eq!((chain.violations, chain.run.guaranteed_s), (0, 0.0));
    let text = status.text();
    assert!(text.contains("begins on another machine: its latencies are true to 5.000 ms"), "{text}");
}

#[test]
fn an_instance_is_late_only_beyond_the_error() {
    // 7 ms by the clocks; 2 ms of goal and 6 of error leave room for doubt, 4 do not.
    let late = |error: &str| {
        run("2 ms", &format!("[network]\nclock_error = \"{error}\"\n"), -4_000_000, MS).chains[0].violations
    };
    assert_eq!(late("6 ms"), 0);
    assert!(late("4 ms") > 100);
}

#[test]
fn clocks_that_are_further_apart_than_stated_or_not_known_cannot_be_known() {
    // From the future by far more than the clocks' error.
    for network in ["[network]\nclock_error = \"50 us\"\n", "[network]\n"] {
        let chain = &run("50 ms", network, 80_000_000, MS).chains[0];
        assert_eq!(chain.completions, 0, "{network}: {chain:#?}");
        assert!(matches!(chain.state.as_str(), "not_analysable" | "not_measurable"), "{network}: {chain:#?}");
        assert!(chain.why.contains("cannot be known"), "{network}: {chain:#?}");
    }
    // Without a word on the network the publishers are this machine's, and the offset is nobody's.
    let chain = &run("50 ms", "", 0, MS).chains[0];
    assert!(near(chain.worst_ms, 3.0) && chain.clock_error_by.is_empty(), "{chain:#?}");
    assert_eq!(chain.state, "guaranteed", "{chain:#?}");
}

#[test]
fn a_declared_bound_of_the_network_is_part_of_the_chains_and_is_watched() {
    let kept = "[network]\nclock_error = \"1 ms\"\nbound = \"3 ms\"\n";
    let status = run("50 ms", kept, 0, MS);
    let (chain, alone) = (&status.chains[0], run("50 ms", "", 0, MS).chains[0].bound_ms.unwrap());
    assert_eq!(chain.state, "guaranteed", "{chain:#?}");
    assert!((chain.bound_ms.unwrap() - alone - 3.0).abs() < 0.001, "{alone}: {chain:#?}");
    // The messages take 10 ms.
    let chain = &run("50 ms", kept, 0, 10 * MS).chains[0];
    assert_eq!(chain.state, "not_analysable", "{chain:#?}");
    assert!(chain.why.contains("above the network's bound of 3.0 ms"), "{}", chain.why);
}

#[test]
fn a_peers_clock_is_measured_beside_the_run() {
    let responder =
        Responder::start(([127, 0, 0, 1], 0).into(), || crate::clocks::roundtrip::realtime_ns() + 3_000_000)
            .unwrap();
    let goals = goals("50 ms", &format!("[network]\npeers = [\"{}\"]\n", responder.address()));
    let mut setup = setup_with(goals, true, |from_ns| listening(from_ns, 0, MS));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while setup.live.clocks.as_ref().unwrap().error().error_ns.is_none() && std::time::Instant::now() < until
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    setup.pass(0.0, 10.0);
    let chain = setup.live.status(setup.from_ns + 10_000_000_000).chains[0].clone();
    assert!(chain.clock_error_ms.unwrap() >= 3.0, "{chain:#?}");
    assert!(chain.clock_error_by.contains("by round trips"), "{}", chain.clock_error_by);
}

#[test]
fn what_the_clocks_leave_open_is_no_pass() {
    use takt_stats::Verdict;
    let run = |goal: &str| {
        let goals = goals(goal, "[network]\nclock_error = \"6 ms\"\n");
        let mut setup = setup_with(goals, false, |from_ns| listening(from_ns, 0, 4 * MS));
        setup.pass(0.0, 25.0);
        setup.live.status(setup.from_ns + 25_000 * MS)
    };
    // 6 ms for a goal of 5: late, but for an error of 6 ms, with which nobody can tell.
    let status = run("5 ms");
    let (chain, report) = (&status.chains[0], status.verdict());
    assert_eq!((chain.violations, chain.run.in_doubt), (0, chain.run.counted), "{chain:#?}");
    assert_ne!(report.verdict, Verdict::Pass, "{report:?}");
    let told = report.reasons.join("; ");
    assert!(
        told.contains(&format!("{} of its latencies were within 6.000 ms of the goal", chain.run.counted)),
        "{told}"
    );
    // A goal beyond the doubt is met.
    let status = run("50 ms");
    assert_eq!(status.chains[0].run.in_doubt, 0);
}

#[test]
fn the_first_promise_allows_for_the_clocks() {
    // The sender's clock is 30 ms behind, and 40 are stated: its latencies seem that much longer.
    let network = "[network]\nbound = \"3 ms\"\nclock_error = \"40 ms\"\n";
    let chain = &run("200 ms", network, -30_000_000, MS).chains[0];
    assert_eq!((chain.state.as_str(), chain.run.false_guarantees), ("guaranteed", 0), "{chain:#?}");
    assert!(chain.run.refutations.is_empty(), "{:?}", chain.run.refutations);
}

#[test]
fn the_greatest_error_of_the_run_is_told() {
    let mut setup = setup_with(goals("50 ms", "[network]\nclock_error = \"1 ms\"\n"), false, |from_ns| {
        listening(from_ns, 0, MS)
    });
    setup.pass(0.0, 8.0);
    for id in setup.live.watch_ids(0).collect::<Vec<_>>() {
        // As a peer's answer said for a while.
        setup.live.extractor.watched_mut(id).unwrap().most_clock_error_ns = 80 * MS;
    }
    setup.pass(8.5, 12.0);
    let status = setup.live.status(setup.from_ns + 12_000 * MS);
    assert_eq!(status.chains[0].clock_error_ms, Some(80.0));
    let told = crate::live::network::lines(&status.chains);
    assert!(
        told.contains("true to 80.000 ms (the most in this run; now: stated in the goals file)"),
        "{told}"
    );
}

#[test]
fn a_clock_that_was_set_while_the_manager_slept_is_noticed_before_stamps_are_read() {
    let mut setup = setup_with(goals("50 ms", ""), false, |from_ns| listening(from_ns, 0, MS));
    setup.pass(0.0, 10.0);
    // The last look was of a clock that was 10 s behind, two seconds before.
    let before_ns = crate::live::network::ahead_ns() - 10_000_000_000;
    setup.live.extractor.clock(before_ns);
    setup.live.clock_offset_ns -= 10_000_000_000;
    setup.pass(12.0, 25.0);
    let chain = &setup.live.status(setup.from_ns + 25_000 * MS).chains[0];
    assert!(near(chain.worst_ms, 3.0), "{chain:#?}");
    let log = setup.text.text();
    assert!(log.contains("the wall clock was set by 10.0") && log.contains("not measured"), "{log}");
}
