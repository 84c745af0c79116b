//! The room that goals leave: what happens within it is no news, what leaves it takes the word
//! back.

use super::refuted::{beating, nothing, state};
use super::*;

/// A timer of 50 ms whose callback runs for 2 ms, and from step 200 on, at 10 s, for `longest_ms`
/// now and then; with this goal.
fn run(goal_ms: u64, longest_ms: u64) -> (Setup, ChainStatus, u64) {
    let cost = move |step: u64| {
        let runs_ns = if step >= 200 && step.is_multiple_of(8) { longest_ms * MS } else { 2 * MS };
        (runs_ns, runs_ns + MS)
    };
    let mut setup = setup_of(goal_ms, false, |from_ns| beating(from_ns, cost, nothing));
    setup.pass(0.0, 9.5);
    let before = state(&setup, 9.5);
    assert_eq!(before.state, "guaranteed", "{before:#?}");
    let decided = setup.live.plans() - setup.live.cached;
    (setup, before, decided)
}

#[test]
fn a_record_within_the_room_keeps_word_and_plan() {
    // Three times the longest so far.
    let (mut setup, before, decided) = run(100, 6);
    let slack = setup.live.plan().unwrap().slack.unwrap();
    assert!(slack.times >= 3.0, "{slack:?}");
    let measured_ms = before.measured_bound_ms.unwrap();
    assert!(before.bound_ms.unwrap() > measured_ms && measured_ms > 2.0, "{before:#?}");
    setup.pass(10.0, 30.0);
    let after = state(&setup, 30.0);
    assert_eq!((after.state.as_str(), after.run.refuted_times), ("guaranteed", 0), "{after:#?}");
    assert_eq!(after.run.intervals.len(), 2, "the word was never taken: {:#?}", after.run);
    assert_eq!(setup.live.plans() - setup.live.cached, decided, "no new plan was made");
    assert!(setup.live.plans() > 3);
    let text = setup.live.status(setup.from_ns + 30_000 * MS).text();
    assert!(
        text.contains("as measured") && text.contains("bounds hold while execution times may be"),
        "{text}"
    );
    let log = setup.text.text();
    assert!(log.contains("assumed margin beyond observations: execution times may be"), "{log}");
}

#[test]
fn a_record_beyond_the_room_takes_the_word_back_and_the_next_plan_has_room_for_it() {
    let (mut setup, before, decided) = run(100, 16);
    setup.pass(10.0, 10.5);
    let broken = state(&setup, 10.5);
    assert_ne!(broken.state, "guaranteed");
    let reported = &broken.run.refutations[0].1;
    assert!(reported.contains("one activation took 16.000 ms of execution time"), "{reported}");
    assert_eq!(setup.live.plans() - setup.live.cached, decided + 1);
    setup.pass(11.0, 30.0);
    let after = state(&setup, 30.0);
    assert_eq!(after.state, "guaranteed", "{after:#?}");
    assert!(after.bound_ns > before.bound_ns && after.run.false_guarantees == 0, "{after:#?}");
}

/// A goal that the bound for what was measured just keeps: the margins are all there is, as before.
#[test]
fn a_goal_without_room_gets_the_narrow_reading() {
    let beat = |goal_us: u64| {
        let mut goals = goals(100);
        goals.chains[0].goal_ns = goal_us * 1000;
        goals
    };
    for goal_us in (2_200..10_000).rev().step_by(100) {
        let mut setup = setup_with(beat(goal_us), false, |from_ns| script(from_ns, 40));
        setup.pass(0.0, 9.5);
        let chain = state(&setup, 9.5);
        assert_eq!(chain.state, "guaranteed", "no goal without room was met: {chain:#?}");
        let slack = setup.live.plan().unwrap().slack;
        assert_eq!(slack.is_some(), chain.measured_bound_ms.is_some());
        assert!(chain.bound_ns.unwrap() <= goal_us * 1000, "{chain:#?}");
        if slack.is_none() {
            // Without room a cost 15 % above the longest is beyond what is assumed.
            let cost = |step| if step < 200 { (2 * MS, 3 * MS) } else { (2_300_000, 3_300_000) };
            let mut setup = setup_with(beat(goal_us), false, |from_ns| beating(from_ns, cost, nothing));
            setup.pass(0.0, 10.5);
            let reported = &state(&setup, 10.5).run.refutations[0].1;
            assert!(reported.contains("at most 2.200 ms was assumed"), "{reported}");
            return;
        }
    }
    panic!("every goal leaves room");
}
