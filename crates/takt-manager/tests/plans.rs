//! Whole plans: Table I's chains on the workload generator's robot.

mod common;

use common::turtlebot::{goals, system};
use takt_manager::plan::{ChainState, Plan, Platform, Step};
use takt_manager::simulate::{Supply, System, simulate};
use takt_manager::{Goals, Manager};

fn platform(cores: usize) -> Platform {
    Platform { cores: (1..=cores).collect(), system_core: 0, most_bandwidth: 0.95 }
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

#[test]
fn every_chain_of_the_paper_is_kept_without_load_and_the_tracker_goes_first_under_load() {
    for phase in 0..3 {
        let plan = plan(&system(phase), &goals(), 2);
        println!("phase {phase}");
        print(&plan);
        assert_eq!(plan.chains.len(), 7);
        let kept = guaranteed(&plan);
        let expected = if phase < 2 { 7 } else { 6 };
        assert_eq!(kept.len(), expected, "{kept:?}");
        let tracker = plan.chains.iter().find(|c| c.name == "tracker").unwrap();
        assert_eq!(tracker.path_names, ["/camera source /rgb", "/tracker subscription /rgb"]);
        if phase == 2 {
            assert!(matches!(tracker.state, ChainState::Degraded { .. }));
            assert!(plan.best_effort.iter().any(|b| b.name == "tracker"));
            assert!(plan.decisions.iter().any(
                |d| matches!(d.step, Step::Degraded { .. }) && d.chain.as_deref() == Some("tracker")
            ));
        }
    }
}

/// Under the plan's reservations, with hogs on all cores, no guaranteed chain is ever later than its bound, nor than its goal.
#[test]
fn plans_keep_what_they_promise() {
    for phase in 0..3 {
        let system = system(phase);
        let plan = plan(&system, &goals(), 2);
        // Best-effort executors get what the simulation's lowest server gets: a core of their own, so that they
        // publish as much as they can.
        let mut supplies: Vec<Supply> = (0..system.executors.len())
            .map(|e| Supply { budget_ns: 10_000_000, period_ns: 10_000_000, core: 10 + e })
            .collect();
        for r in &plan.reservations {
            supplies[r.executor.0] = Supply { budget_ns: r.budget_ns, period_ns: r.period_ns, core: r.core };
        }
        let paths: Vec<Vec<usize>> =
            plan.chains.iter().map(|c| c.path.iter().map(|p| p.0).collect()).collect();
        for seed in 0..20 {
            let seen = simulate(&system, &supplies, &paths, 10_000_000_000, 95, seed);
            for (chain, (worst, count)) in plan.chains.iter().zip(&seen.latencies) {
                assert!(*count > 0, "{} never completed", chain.name);
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
    }
}
