//! Jitter goals on a running system: measured, promised, refuted and judged.

use super::*;
use takt_stats::Verdict;

/// One timer of 50 ms in a thread; `took` says how long each of 800 activations takes.
fn beating(from_ns: u64, took: impl Fn(u64) -> u64) -> Script {
    let mut events = Vec::new();
    let mut cpu_ns = 0;
    let mut push = |at_ns: u64, cpu_ns: u64, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid: 10, tid: 10, kind });
    };
    driver(from_ns, &mut push);
    for step in 1..800 {
        let at_ns = from_ns + step * 50 * MS;
        push(at_ns - 1000, cpu_ns, Kind::ExecutorWait { timeout_ns: -1 });
        push(at_ns, cpu_ns, Kind::CallbackStart { callback: 3, intra_process: false });
        cpu_ns += took(step);
        push(at_ns + took(step), cpu_ns, Kind::CallbackEnd { callback: 3 });
    }
    Script { events: events.into(), now_ns: 0, ..Script::default() }
}

fn goals(jitter: &str) -> Goals {
    let text = format!(
        "[[chain]]\nname = \"beat\"\nstart = \"/driver\"\nend = \"/driver\"\ngoal = \"50 ms\"\n{jitter}\n"
    );
    Goals::parse(&text, "test").unwrap()
}

fn at(setup: &Setup, at_s: f64) -> Status {
    setup.live.status(setup.from_ns + (at_s * 1e9) as u64)
}

#[test]
fn jitter_is_measured_promised_and_judged() {
    let took = |step: u64| if step.is_multiple_of(2) { 3 * MS } else { 2 * MS };
    let mut setup = setup_with(goals("jitter = \"6 ms\""), false, |from_ns| beating(from_ns, took));
    setup.pass(0.0, 10.0);
    let status = at(&setup, 10.0);
    let chain = &status.chains[0];
    assert_eq!(chain.state, "guaranteed", "{chain:#?}");
    assert_eq!((chain.jitter_goal_ms, chain.best_ms), (Some(6.0), Some(2.0)));
    assert_eq!((chain.jitter_ms, chain.run.jitter_ms), (Some(1.0), Some(1.0)));
    // One from short to long, one from long to short.
    assert_eq!(chain.period_jitter_ms, Some(2.0));
    assert_eq!(chain.best_case_ms, Some(1.8), "the shortest, less the margin of a tenth");
    let bound_ms = chain.jitter_bound_ms.unwrap();
    assert!((1.0..=6.0).contains(&bound_ms), "{bound_ms}");
    assert!((chain.bound_ms.unwrap() - 1.8 - bound_ms).abs() < 1e-6);
    assert!(status.text().contains("jitter of beat: goal 6.000 ms, bound "), "{}", status.text());
    assert_ne!(status.verdict().verdict, Verdict::Fail, "{:?}", status.verdict());
}

#[test]
fn a_latency_below_the_best_case_takes_the_word_back_until_a_plan_has_it() {
    // One activation in all is quicker than any before.
    let took = |step: u64| if step == 200 { MS / 2 } else { 2 * MS };
    let mut setup = setup_with(goals("jitter = \"6 ms\""), false, |from_ns| beating(from_ns, took));
    setup.pass(0.0, 9.5);
    assert_eq!(at(&setup, 9.5).chains[0].state, "guaranteed");
    let plans = setup.live.plans();
    setup.pass(10.0, 10.5);
    assert_eq!(setup.live.plans(), plans + 1, "a new plan at once");
    let chain = &at(&setup, 10.5).chains[0];
    assert!(
        chain.run.refutations[0].1.contains("0.500 ms was measured, below the best case of 1.8 ms"),
        "{chain:#?}"
    );
    setup.pass(11.0, 30.0);
    let chain = &at(&setup, 30.0).chains[0];
    assert_eq!((chain.state.as_str(), chain.best_case_ms), ("guaranteed", Some(0.45)), "{chain:#?}");
    assert_eq!(chain.run.intervals.iter().filter(|one| one.state == State::Refuted).count(), 1, "{chain:#?}");
}

/// The latency goal is kept all the time: jitter alone fails the run. Without a goal for it nothing
/// is said.
#[test]
fn a_missed_jitter_goal_fails_the_run() {
    let took = |step: u64| if step == 300 { 20 * MS } else { 2 * MS };
    let mut setup = setup_with(goals("jitter = \"6 ms\""), true, |from_ns| beating(from_ns, took));
    setup.pass(0.0, 20.0);
    let status = at(&setup, 20.0);
    assert_eq!((status.chains[0].violations, status.chains[0].jitter_ms), (0, Some(18.0)));
    let report = status.verdict();
    assert_eq!(report.verdict, Verdict::Fail, "{report:?}");
    let reported = report.reasons.join("; ");
    assert!(reported.contains("18.000 ms apart, the jitter goal is 6.000 ms"), "{reported}");
    let mut setup = setup_with(goals(""), true, |from_ns| beating(from_ns, took));
    setup.pass(0.0, 20.0);
    let status = at(&setup, 20.0);
    assert_eq!((status.chains[0].jitter_ms, status.chains[0].jitter_bound_ms), (Some(18.0), None));
    assert_ne!(status.verdict().verdict, Verdict::Fail);
}
