//! The loop under the paper's manager: the same observations, other answers to them.

use super::refuted::{beating, nothing, state};
use super::*;
use crate::Policy;

/// A timer of 50 ms whose callback runs for 2 ms, and from 10 s on for 16 ms now and then.
fn run(policy: Policy) -> Setup {
    let cost = |step: u64| {
        let runs_ns = if step >= 200 && step.is_multiple_of(8) { 16 * MS } else { 2 * MS };
        (runs_ns, runs_ns + MS)
    };
    let mut goals = narrow(goals(100));
    goals.options.policy = policy;
    setup_with(goals, false, |from_ns| beating(from_ns, cost, nothing))
}

#[test]
fn it_plans_every_six_seconds_and_for_no_other_reason() {
    let plans = Policy::ALL.map(|policy| {
        let mut setup = run(policy);
        setup.pass(0.0, 5.5);
        assert_eq!(setup.live.plans(), 0, "{policy}");
        setup.pass(6.0, 9.5);
        assert_eq!((setup.live.plans(), state(&setup, 9.5).state.as_str()), (1, "guaranteed"), "{policy}");
        // Contradictions of the plan are observed under both.
        setup.pass(10.0, 10.5);
        let broken = state(&setup, 10.5);
        assert_eq!(broken.run.refuted_times, 1, "{policy}: {broken:#?}");
        setup.pass(11.0, 30.5);
        assert_eq!(state(&setup, 30.5).state, "guaranteed", "{policy}");
        let log = setup.text.text();
        assert_eq!(log.contains("the paper's manager"), policy == Policy::RosLlama, "{log}");
        setup.live.plans()
    });
    // At 6, 12, 18, 24 and 30 s.
    assert_eq!(plans[1], 5);
    assert!(plans[0] > 5, "ours answers at once: {plans:?}");
}

#[test]
fn it_reserves_as_the_kernel_reclaims_and_confines_the_middleware() {
    let mut setup = run(Policy::RosLlama);
    setup.pass(0.0, 6.5);
    let reserved = setup.kernel().attributes(10).unwrap();
    assert!(reserved.is_deadline() && reserved.reclaims(), "{reserved}");
    assert_eq!(reserved.period_ns, 10 * MS);
    let middleware = setup.live.enactor.as_mut().unwrap().kernel_mut().threads.get_mut(&11).unwrap();
    (middleware.turns, middleware.run_ns) = (500, 10 * MS);
    setup.pass(7.0, 9.0);
    let middleware = setup.kernel().attributes(11).unwrap();
    assert_eq!((middleware.policy, middleware.priority), (libc::SCHED_RR as u32, 10));
    assert_eq!(setup.kernel().affinity(11).unwrap(), CpuSet::single(0).unwrap(), "the system core");
    let status = setup.live.status(setup.from_ns + 9_000 * MS);
    let text = status.text();
    assert!(text.contains("budget selection") && text.contains("timing analysis"), "{text}");
    let Cost { plan_ns, reading_ns, budgeting_ns, timing_ns, .. } = status.cost;
    assert!(reading_ns > 0 && budgeting_ns > 0 && timing_ns > 0, "{:?}", status.cost);
    assert!(reading_ns + budgeting_ns + timing_ns <= plan_ns, "{:?}", status.cost);
    assert!(setup.live.finish().unwrap().restored.unwrap().is_complete());
}
