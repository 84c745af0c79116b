//! Whole plans: Table I's chains on the workload generator's robot.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::turtlebot::{goals, system};
use takt_manager::plan::{ChainState, Plan, Platform, Step};
use takt_manager::simulate::{Supply, System, simulate};
use takt_manager::{Goals, Manager};

fn platform(cores: usize) -> Platform {
    Platform::new((1..=cores).collect(), 0, 0.95)
}

fn plan(system: &System, goals: &Goals, cores: usize) -> Plan {
    Manager::new(goals.clone(), platform(cores)).plan(&system.exact_model())
}

fn guaranteed(plan: &Plan) -> Vec<&str> {
    plan.chains.iter().filter(|c| c.state == ChainState::Guaranteed).map(|c| c.name.as_str()).collect()
}

fn print(plan: &Plan) {
    for chain in &plan.chains {
        println!(
            "{:14} goal {:>4} ms, bound {:>8.1?} ms by {:18} {:?}",
            chain.name,
            chain.goal_ns / 1_000_000,
            chain.bound_ns.map(|b| b as f64 / 1e6),
            chain.bound_by,
            chain.state
        );
    }
    for r in &plan.reservations {
        println!("{} on core {}: {:.1} %", r.name, r.core, r.bandwidth() * 100.0);
    }
    for decision in &plan.decisions {
        println!("  {}", decision.words);
    }
    println!("analysis {:?}", plan.analysis_time());
}

/// The paper's robot on two and on three cores: high load leaves no room for the tracker beside the
/// rest.
#[test]
fn the_tracker_and_nothing_else_goes_under_load() {
    for (cores, phase, expected) in [(2, 0, 7), (2, 2, 6), (3, 0, 7), (3, 1, 7), (3, 2, 6)] {
        let plan = plan(&system(phase), &goals(), cores);
        println!("{cores} cores, phase {phase}");
        print(&plan);
        assert_eq!(plan.chains.len(), 7);
        assert_eq!(guaranteed(&plan).len(), expected, "{:?}", guaranteed(&plan));
        let tracker = plan.chains.iter().find(|c| c.name == "tracker").unwrap();
        assert_eq!(tracker.path_names, ["/camera source /rgb", "/tracker subscription /rgb"]);
        for core in 1..=cores {
            assert!(plan.bandwidth_on(core) <= 0.95 + 1e-9);
        }
        if expected == 6 {
            assert!(matches!(tracker.state, ChainState::Degraded { .. }));
            assert!(plan.best_effort.iter().any(|b| b.name == "tracker"));
            assert!(!plan.reservations.iter().any(|r| r.name == "tracker"));
            assert!(
                plan.decisions.iter().any(
                    |d| matches!(d.step, Step::Degraded { .. }) && d.chain.as_deref() == Some("tracker")
                )
            );
        }
    }
}

/// Under the plan's reservations, with hogs on all cores, no guaranteed chain is ever later than
/// its bound, nor than its goal.
#[test]
fn plans_keep_what_they_promise() {
    for phase in 0..3 {
        let system = system(phase);
        let plan = plan(&system, &goals(), 2);
        // Best-effort executors get what the simulation's lowest server gets: a core of their own,
        // so that they publish as much as they can.
        let mut supplies: Vec<Supply> = (0..system.executors.len())
            .map(|e| Supply { budget_ns: 10_000_000, period_ns: 10_000_000, core: 10 + e })
            .collect();
        for r in &plan.reservations {
            supplies[r.executor.0] = Supply { budget_ns: r.budget_ns, period_ns: r.period_ns, core: r.core };
        }
        let paths: Vec<Vec<usize>> =
            plan.chains.iter().map(|c| c.path.iter().map(|p| p.0).collect()).collect();
        let mut worst_seen = vec![0; plan.chains.len()];
        for chain in plan.chains.iter().filter(|c| c.state == ChainState::Guaranteed) {
            let parts = chain.bound_parts.iter();
            let sum: u64 = parts
                .map(|p| p.transport_ns + p.own_ns + p.executor_ns + p.supply_ns + p.disturbance_ns)
                .sum();
            assert_eq!(chain.bound_ns, Some(sum), "{}", chain.name);
            println!("{}: {:?}", chain.name, chain.bound_parts);
        }
        for seed in 0..20 {
            let seen = simulate(&system, &supplies, &paths, 10_000_000_000, 95, seed);
            for (chain, (worst, count)) in plan.chains.iter().zip(&seen.latencies) {
                assert!(*count > 0, "{} never completed", chain.name);
                let most = &mut worst_seen[plan.chains.iter().position(|c| c.name == chain.name).unwrap()];
                *most = (*worst).max(*most);
                if chain.state == ChainState::Guaranteed {
                    assert!(
                        Some(*worst) <= chain.bound_ns,
                        "{} took {worst} ns, {:?}",
                        chain.name,
                        chain.bound_ns
                    );
                    assert!(*worst <= chain.goal_ns);
                }
            }
        }
        for (chain, worst) in plan.chains.iter().zip(&worst_seen) {
            println!("phase {phase}, {}: bound {:?} ns, worst {worst} ns", chain.name, chain.bound_ns);
        }
    }
}

/// On a machine without a core to spare, what the middleware is to have is not reserved.
#[test]
fn the_system_core_keeps_its_share() {
    let platform = Platform { max_system_bandwidth: 0.5, ..Platform::new(vec![0, 1], 0, 0.95) };
    for phase in 0..3 {
        let plan = Manager::new(goals(), platform.clone()).plan(&system(phase).exact_model());
        assert!(plan.bandwidth_on(0) <= 0.5 + 1e-9 && plan.bandwidth_on(1) <= 0.95 + 1e-9, "phase {phase}");
        assert!(plan.bandwidth_on(0) > 0.0, "phase {phase}");
        let whole =
            Manager::new(goals(), Platform::new(vec![0, 1], 0, 0.95)).plan(&system(phase).exact_model());
        assert!(guaranteed(&plan).len() <= guaranteed(&whole).len());
    }
}

#[test]
fn an_unchanged_system_is_not_analysed_again() {
    let mut manager = Manager::new(goals(), platform(3));
    let model = system(1).exact_model();
    let first = manager.plan(&model);
    assert!(!first.cached && manager.work().executors > 0);
    let second = manager.plan(&model);
    assert!(second.cached && manager.work().executors == 0);
    assert!(first.same_enactment(&second));
    // A little more than ever: within the margin.
    let mut more = model.clone();
    for callback in &mut more.callbacks {
        for ns in &mut callback.cost.most_ns {
            *ns += *ns / 20;
        }
    }
    assert!(manager.plan(&more).cached);
    let mut much_more = model.clone();
    much_more.callbacks[0].cost.most_ns.iter_mut().for_each(|ns| *ns *= 2);
    assert!(!manager.plan(&much_more).cached);
}

#[test]
fn a_plan_is_only_given_up_for_one_that_keeps_more() {
    let mut goals = goals();
    // Room takes what is given back.
    goals.options.widen_assumptions = false;
    let mut manager = Manager::new(goals, platform(3));
    let loaded = manager.plan(&system(1).exact_model());
    assert_eq!(guaranteed(&loaded).len(), 7);
    // Half the load and no objects: the same chains are kept, so nothing moves, until that has
    // lasted.
    let mut stayed = 0_u32;
    let mut light = system(0).exact_model();
    light.callbacks.iter_mut().for_each(|c| c.cost.most_ns.iter_mut().for_each(|ns| *ns /= 2));
    let shrunk = loop {
        let plan = manager.plan(&light);
        assert_eq!(guaranteed(&plan).len(), 7);
        if !plan.same_enactment(&loaded) {
            break plan;
        }
        stayed += 1;
        assert!(stayed < 100, "budgets are never given back");
    };
    assert!(stayed >= 4, "after {stayed} plans");
    let total = |p: &Plan| p.reservations.iter().map(|r| r.bandwidth()).sum::<f64>();
    assert!(total(&shrunk) < 0.8 * total(&loaded));
    // More load than can be kept: the tracker goes at once, and whatever else moves, moves for it.
    let heavy = manager.plan(&system(2).exact_model());
    assert_eq!(guaranteed(&heavy).len(), 6);
    assert!(heavy.reservations.iter().all(|r| r.name != "tracker"), "it is degraded: no reservation is left");
}

#[test]
fn a_thread_that_died_is_planned_without() {
    let mut manager = Manager::new(goals(), platform(3));
    let mut model = system(0).exact_model();
    assert_eq!(guaranteed(&manager.plan(&model)).len(), 7);
    let amcl = model.threads.iter().position(|t| t.name == "amcl").unwrap();
    model.threads[amcl].ended = true;
    let plan = manager.plan(&model);
    assert_eq!(guaranteed(&plan), ["heartbeat", "pilot", "odometry-nav", "tracker"]);
    assert!(plan.reservations.iter().all(|r| r.name != "amcl"));
    let scan = plan.chains.iter().find(|c| c.name == "laser-scanner").unwrap();
    assert!(matches!(&scan.state, ChainState::NotAnalysable { why } if why.contains("ended")), "{scan:?}");
}

#[test]
fn what_cannot_be_kept_says_why() {
    let text = |start: &str, end: &str| {
        format!("[[chain]]\nname = \"x\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal = \"1 s\"")
    };
    let mut model = system(0).exact_model();
    let state = |model: &takt_model::Model, start: &str, end: &str| {
        let goals = Goals::parse(&text(start, end), "x.toml").unwrap();
        Manager::new(goals, platform(2)).plan(model).chains.remove(0).state
    };
    match state(&model, "/camera", "/trakcer") {
        ChainState::NotFound { near_misses, why } => {
            assert!(near_misses.iter().any(|n| n == "/tracker"), "{near_misses:?}");
            assert!(why.contains("/trakcer") && why.contains("end"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    match state(&model, "/camera", "/amcl") {
        ChainState::NotFound { why, .. } => assert!(why.contains("no message leads"), "{why}"),
        other => panic!("{other:?}"),
    }
    // A message filter: before and behind it can be analysed, the way through cannot.
    let filtered = model.topics.iter().position(|t| t.name == "/amcl/filtered").unwrap();
    let on_scan = model.topics[filtered].publishers[0];
    model.unanalysable.push(takt_model::Unanalysable {
        callbacks: vec![on_scan],
        towards: Some(takt_model::TopicId(filtered)),
        reason: "a message filter decides when it publishes".to_owned(),
    });
    let through = state(&model, "/laser_driver", "/amcl:/amcl/filtered");
    assert!(matches!(&through, ChainState::NotAnalysable { why } if why.contains("filter")), "{through:?}");
    assert_eq!(state(&model, "/laser_driver", "/amcl:/scan"), ChainState::Guaranteed);
    assert_eq!(state(&model, "/amcl:/amcl/filtered", "/amcl:/amcl/filtered"), ChainState::Guaranteed);
    // Several threads, one of which was seen, and groups that nobody knows.
    model.executors[0].kind = takt_model::ExecutorKind::MultiThreaded;
    let threads = state(&model, "/turtlebot_driver:/odom", "/controller_server:/odom");
    assert_eq!(threads, ChainState::Guaranteed);
    // Never seen to run.
    model.callbacks.iter_mut().for_each(|c| c.arrivals = takt_model::ArrivalCurve::default());
    let unseen = state(&model, "/camera", "/tracker");
    assert!(matches!(&unseen, ChainState::NotAnalysable { why } if why.contains("never")), "{unseen:?}");
    // Nothing at all.
    let nothing = state(&takt_model::Model::default(), "/camera", "/tracker");
    assert!(matches!(nothing, ChainState::NotFound { .. }));
}
