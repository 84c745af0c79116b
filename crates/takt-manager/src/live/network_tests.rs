//! Chains that begin on another machine, whose clock is planted.

use super::*;
use crate::clocks::roundtrip::Responder;

/// A subscription that gets a message every 50 ms from a publisher that is not observed: on its way
/// for 1 ms, by a clock that is ahead by so much; its callback takes 2 ms, and once 30.
fn listening(from_ns: u64, ahead_ns: i64, way_ns: u64) -> Script {
    // The test's own clock may be set.
    let offset_ns = crate::live::network::ahead_ns() + ahead_ns;
    stamped(from_ns, |_| way_ns, |_| offset_ns)
}

/// The same with the distance of the sender's clock at any time.
fn stamped(from_ns: u64, way_ns: impl Fn(u64) -> u64, offset_ns: impl Fn(u64) -> i64) -> Script {
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
    for step in 1..800 {
        let at_ns = from_ns + step * 50 * MS;
        let sent_ns = at_ns - way_ns(at_ns);
        let source_ns = sent_ns as i64 + offset_ns(sent_ns);
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
fn latencies_from_another_machine_are_reported_with_their_error_and_never_guaranteed_without_a_bound() {
    // 4 ms ahead, as is stated: messages seem to come from the future, and their releases are no
    // later than their takes.
    let status = run("50 ms", "[network]\nclock_error = \"5 ms\"\n", -4_000_000, MS);
    let chain = &status.chains[0];
    assert!(near(chain.worst_ms, 7.0), "{chain:#?}");
    assert_eq!((chain.clock_error_ms, chain.state.as_str()), (Some(5.0), "not_analysable"), "{chain:#?}");
    assert!(chain.why.contains("[network] bound"), "{}", chain.why);
    assert_eq!((chain.violations, chain.run.guaranteed_s), (0, 0.0));
    let text = status.text();
    assert!(text.contains("begins on another machine: its latencies are accurate to 5.000 ms"), "{text}");
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
    let reported = report.reasons.join("; ");
    assert!(
        reported
            .contains(&format!("{} of its latencies were within 6.000 ms of the goal", chain.run.counted)),
        "{reported}"
    );
    // A goal beyond the doubt is met.
    let status = run("50 ms");
    assert_eq!(status.chains[0].run.in_doubt, 0);
}

#[test]
fn the_first_promise_allows_for_the_clocks() {
    // The sender's clock is 80 ms behind, and 100 are stated: its latencies seem that much longer.
    let network = "[network]\nbound = \"3 ms\"\nclock_error = \"100 ms\"\n";
    let chain = &run("50 ms", network, -80_000_000, MS).chains[0];
    // By the clocks alone every one of them is above its bound.
    assert!(chain.worst_ms > chain.bound_ms && near(chain.worst_ms, 83.0), "{chain:#?}");
    assert_eq!((chain.state.as_str(), chain.run.false_guarantees), ("guaranteed", 0), "{chain:#?}");
    assert!(chain.run.refutations.is_empty(), "{:?}", chain.run.refutations);
}

#[test]
fn the_greatest_error_of_the_run_is_reported() {
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
    let reported = crate::live::network::lines(&status.chains);
    assert!(
        reported.contains(
            "accurate to 80.000 ms (the greatest error in this run; now: stated in the goals file)"
        ),
        "{reported}"
    );
}

#[test]
fn a_clock_that_was_set_while_the_manager_slept_is_noticed_before_stamps_are_read() {
    let mut setup = setup_with(goals("50 ms", ""), false, |from_ns| listening(from_ns, 0, MS));
    setup.pass(0.0, 10.0);
    // The last look was of a clock whose distance was off by 50 ms, two seconds before: by it
    // stamps of now seem 50 ms too old.
    let before_ns = crate::live::network::ahead_ns() + 50_000_000;
    setup.live.extractor.clock(setup.from_ns + 10_000 * MS, before_ns);
    setup.live.clock_offset_ns -= 10_000_000_000;
    setup.pass(12.0, 25.0);
    let chain = &setup.live.status(setup.from_ns + 25_000 * MS).chains[0];
    assert!(near(chain.worst_ms, 3.0), "{chain:#?}");
    let log = setup.text.text();
    assert!(log.contains("the wall clock was changed by 10.0") && log.contains("not measured"), "{log}");
}

/// The day's clock is set by so much, 10.2 s after the start; messages are under way for `way_ns`,
/// those taken at 13.5 s for 3.5 s. The clock is looked at each half second; `held_up`: not from 10
/// to 13 s, and it is set after 12.7 s.
fn set_by(by_ns: i64, way_ns: u64, held_up: bool) -> Setup {
    use crate::live::network::{ahead_ns, planted::SET_BY_NS};
    let set_at_ns = if held_up { 12_700 * MS } else { 10_200 * MS };
    SET_BY_NS.set(0);
    let mut setup = setup_with(goals("50 ms", ""), false, |from_ns| {
        let before_ns = ahead_ns();
        let waited = |at_ns| at_ns == from_ns + 13_500 * MS;
        let way_ns = |at_ns| if waited(at_ns) { 3_500 * MS } else { way_ns };
        stamped(from_ns, way_ns, |at_ns| before_ns + if at_ns >= from_ns + set_at_ns { by_ns } else { 0 })
    });
    setup.pass(0.0, 10.0);
    SET_BY_NS.set(by_ns);
    setup.pass(if held_up { 13.0 } else { 10.5 }, 30.0);
    SET_BY_NS.set(0);
    setup
}

#[test]
fn a_clock_that_is_set_makes_no_false_latencies_and_no_false_guarantees() {
    for by_ns in [2_000_000_000, -2_000_000_000, 40 * MS as i64, -40 * (MS as i64)] {
        for (way_ns, held_up) in [(MS, false), (MS, true), (10 * MS, false), (10 * MS, true)] {
            let setup = set_by(by_ns, way_ns, held_up);
            let chain = &setup.live.status(setup.from_ns + 30_000 * MS).chains[0];
            let what = format!("set by {by_ns} ns, {way_ns} ns under way, held up: {held_up}: {chain:#?}");
            // Neither longer than it was nor shorter: what waited from before it was set until
            // after is not measured.
            assert!(near(chain.worst_ms, way_ns as f64 / 1e6 + 2.0), "{what}");
            assert!(near(chain.median_ns.map(|ns| ns as f64 / 1e6), way_ns as f64 / 1e6 + 2.0), "{what}");
            assert_eq!(
                (chain.violations, chain.run.false_guarantees, chain.run.missing),
                (0, 0, 0),
                "{what}"
            );
            assert_eq!(chain.state, "guaranteed", "{what}");
            assert!(chain.completions > 330 && chain.completions < 470, "{what}");
        }
    }
}

/// Examines a recording of `listening`, in whose process a node publishes every 50 ms as well,
/// which shows how far the clocks are apart.
fn examined(
    network: &str,
    goal: &str,
    way_ns: u64,
    step_ns: i64,
) -> Result<crate::recorded::Recorded, crate::recorded::Error<io::Error>> {
    let from_ns = 1_000_000_000_000;
    let offset_ns = move |at_ns: u64| 5_000_000_000 + if at_ns > from_ns + 20_000 * MS { step_ns } else { 0 };
    let open = || {
        let mut script = stamped(from_ns, |_| way_ns, offset_ns);
        let event = |at_ns: u64, kind: Kind| Event { at_ns, cpu_ns: Some(0), pid: 20, tid: 20, kind };
        let topic = "/own".into();
        let mut own = vec![
            event(from_ns, Kind::NodeInit { node: 1, name: "sink".into(), namespace: "/".into() }),
            event(from_ns, Kind::PublisherInit { publisher: 3, node: 1, rmw_publisher: 2, topic, depth: 1 }),
        ];
        for step in 1..1600 {
            // On both sides of the clock's step at once.
            let at_ns = from_ns + step * 25 * MS + 1000;
            let source_ns = Some(at_ns as i64 + offset_ns(at_ns));
            own.push(event(at_ns, Kind::RmwPublish { rmw_publisher: 2, message: 4, source_ns }));
        }
        script.events.extend(own);
        script.events.make_contiguous().sort_by_key(|event| event.at_ns);
        Ok(Script { now_ns: u64::MAX, ended: true, ..script })
    };
    let platform = Platform::new(vec![0, 1], 0, 0.9);
    crate::recorded::examine(open, &goals(goal, network), &platform, &Default::default())
}

#[test]
fn a_recording_honours_the_network_of_the_goals() {
    use crate::plan::ChainState;
    use takt_stats::Verdict;
    // 1 ms under way and 2 of work for a goal of 4.
    let sure = examined("[network]\nclock_error = \"100 us\"\nbound = \"2 ms\"\n", "4 ms", MS, 0).unwrap();
    let chain = &sure.measured()[0];
    assert_eq!((chain.in_doubt, chain.clock_error_ns, chain.violations), (0, 100_000, 0));
    assert!(chain.completions > 700 && chain.worst_ns.abs_diff(3 * MS) < MS / 2, "{chain:?}");
    // Clocks that may be 2 ms apart leave it open.
    let open = examined("[network]\nclock_error = \"2 ms\"\nbound = \"2 ms\"\n", "4 ms", MS, 0).unwrap();
    assert_eq!((open.measured()[0].in_doubt, open.measured()[0].violations), (chain.completions, 0));
    let verdict = open.verdict();
    assert_ne!(verdict.verdict, Verdict::Pass, "{verdict:?}");
    assert!(verdict.reasons.join("; ").contains("difference between the machines' clocks"), "{verdict:?}");
    // The bound is part of the chain's, and nothing is kept without one, or where messages took
    // longer.
    let alone = examined("", "50 ms", MS, 0).unwrap().plan.chains[0].bound_ns.unwrap();
    let kept = examined("[network]\nclock_error = \"1 ms\"\nbound = \"3 ms\"\n", "50 ms", MS, 0).unwrap();
    assert_eq!(kept.plan.chains[0].state, ChainState::Guaranteed);
    assert_eq!(kept.plan.chains[0].bound_ns, Some(alone + 3 * MS));
    for (network, way_ns, words) in [
        ("[network]\nclock_error = \"1 ms\"\n", MS, "the network has no declared bound"),
        ("[network]\nclock_error = \"1 ms\"\nbound = \"3 ms\"\n", 10 * MS, "above the network's bound"),
        ("[network]\nbound = \"3 ms\"\n", MS, "cannot be known"),
    ] {
        let seen = examined(network, "50 ms", way_ns, 0).unwrap();
        let ChainState::NotAnalysable { why } = &seen.plan.chains[0].state else {
            panic!("{network}: {:?}", seen.plan.chains[0])
        };
        assert!(why.contains(words), "{network}: {why}");
    }
    let error = examined("[network]\npeers = [\"10.0.0.2\"]\n", "50 ms", MS, 0).unwrap_err().to_string();
    assert!(error.contains("peers") && error.contains("clock_error = "), "{error}");
}

#[test]
fn a_clock_that_was_set_during_a_recording_makes_no_false_latencies() {
    for step_ns in [2_000_000_000, -2_000_000_000] {
        let seen = examined("", "50 ms", MS, step_ns).unwrap();
        let chain = &seen.measured()[0];
        assert!(chain.worst_ns.abs_diff(3 * MS) < MS / 2, "{step_ns}: {chain:?}");
        assert!(chain.completions > 700, "{step_ns}: {chain:?}");
    }
}
