//! Properties of bounds and plans that hold for every system.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::EXACT;
use proptest::prelude::*;
use takt_manager::analysis::Analysis;
use takt_manager::plan::{ChainState, Plan, Platform};
use takt_manager::simulate::{Supply, System, random_system, simulate};
use takt_manager::workload::Workload;
use takt_manager::{Goals, Manager};
use takt_rt::random::SplitMix64;

/// Chains from every timer and source as far as it leads, in random degradation order, with goals
/// from hopeless to easy.
fn goals(system: &System, random: &mut SplitMix64, leave_out: Option<usize>) -> Option<Goals> {
    let model = system.exact_model();
    let mut names = Vec::new();
    let mut text = String::new();
    for (number, path) in common::paths(system).into_iter().enumerate() {
        let goal = random.within(5, 300);
        let name = format!("c{number}");
        if leave_out.is_some_and(|out| number < out) {
            continue;
        }
        let callback = |c: Option<&usize>| model.callbacks[*c.unwrap()].name.clone();
        text += &format!(
            "[[chain]]\nname = \"{name}\"\nstart = \"{}\"\nend = \"{}\"\ngoal_ms = {goal}\n",
            callback(path.first()),
            callback(path.last())
        );
        names.push(format!("\"{name}\""));
    }
    let options = "[options]\ncost_margin_percent = 0\narrival_margin_percent = 0\nadapt_period = false\n";
    let text = format!("degradation_order = [{}]\n{text}{options}", names.join(","));
    (!names.is_empty()).then(|| Goals::parse(&text, "random").unwrap())
}

fn plan(system: &System, goals: &Goals) -> Plan {
    let platform = Platform::new(vec![1, 2], 0, 0.95);
    Manager::new(goals.clone(), platform).plan(&system.exact_model())
}

fn keeps(plan: &Plan) -> Vec<(String, bool)> {
    plan.chains.iter().map(|c| (c.name.clone(), c.state == ChainState::Guaranteed)).collect()
}

/// 64, or `PROPTEST_CASES`.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(64),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn more_budget_never_worsens_a_bound(seed in any::<u64>(), which in 0_usize..8, more in 1_u64..40) {
        let system = random_system(seed);
        let model = system.exact_model();
        let workload = Workload::new(&model, &EXACT);
        let period = 10_000_000;
        let mut random = SplitMix64::new(seed);
        let all: Vec<usize> = (0..system.executors.len()).collect();
        let less: Vec<u64> = all.iter().map(|_| period * random.within(20, 95) / 100).collect();
        let mut greater = less.clone();
        let which = which % all.len();
        greater[which] = (greater[which] + period * more / 100).min(period);
        let mut analysis = Analysis::new(&workload, period, 2_000_000_000, 0);
        let (before, after) = (analysis.solve(&less, &all), analysis.solve(&greater, &all));
        for (callback, (before, after)) in before.responses.iter().zip(&after.responses).enumerate() {
            if let Some(before) = before {
                let after = after.map(|b| b.ns);
                prop_assert!(after.is_some_and(|a| a <= before.ns), "{callback}: {before:?}, then {after:?}");
            }
        }
    }

    /// Chains before them in the degradation order never cost the others: the most important one
    /// whose fate they change is kept because of them. (What they are given may help it, and where
    /// executors are put for their sake, too; what is less important than that one may pay for it.)
    #[test]
    fn chains_earlier_in_the_order_never_matter(seed in any::<u64>(), out in 1_usize..6) {
        let system = random_system(seed);
        let (Some(all), Some(fewer)) = (
            goals(&system, &mut SplitMix64::new(seed), None),
            goals(&system, &mut SplitMix64::new(seed), Some(out)),
        ) else {
            return Ok(());
        };
        let (all, fewer) = (plan(&system, &all), plan(&system, &fewer));
        let (with, without) = (keeps(&all), keeps(&fewer));
        let with = &with[with.len() - without.len()..];
        prop_assert!(with.iter().zip(&without).all(|(with, without)| with.0 == without.0));
        // The most important are last.
        let changed = with.iter().zip(&without).rev().find(|(with, without)| with != without);
        prop_assert!(changed.is_none_or(|(with, _)| with.1), "{with:?}, {without:?}");
        // Where executors only have budgets, whatever is given helps.
        if !all.shared && !fewer.shared {
            let mut each = with.iter().zip(&without);
            prop_assert!(each.all(|(with, without)| with.1 >= without.1), "{with:?}, {without:?}");
        }
    }

    /// Plans fit their cores, guaranteed bounds keep their goals, and the simulation under the
    /// plan's reservations keeps the bounds.
    #[test]
    fn plans_are_sound(seed in any::<u64>()) {
        let system = random_system(seed);
        let Some(goals) = goals(&system, &mut SplitMix64::new(seed), None) else { return Ok(()) };
        let plan = plan(&system, &goals);
        for core in [1, 2] {
            prop_assert!(plan.bandwidth_on(core) <= 0.95 + 1e-9);
        }
        for r in &plan.reservations {
            prop_assert!(!plan.best_effort.iter().any(|b| b.tid == r.tid), "both reserved and not");
            prop_assert!([1, 2].contains(&r.core) && r.budget_ns <= r.period_ns);
        }
        let mut supplies: Vec<Supply> = (0..system.executors.len())
            .map(|e| Supply { budget_ns: 10_000_000, period_ns: 10_000_000, core: 10 + e })
            .collect();
        for r in &plan.reservations {
            supplies[r.executor.0] = Supply { budget_ns: r.budget_ns, period_ns: r.period_ns, core: r.core };
        }
        let paths: Vec<Vec<usize>> = plan.chains.iter().map(|c| c.path.iter().map(|p| p.0).collect()).collect();
        // Bounds of shared cores are those of cores that nobody else has reservations on.
        let capacity_percent = if plan.shared { 0 } else { 95 };
        let seen = simulate(&system, &supplies, &paths, 1_000_000_000, capacity_percent, seed);
        for (chain, (worst, _)) in plan.chains.iter().zip(&seen.latencies) {
            if chain.state == ChainState::Guaranteed {
                prop_assert!(chain.bound_ns.is_some_and(|b| b <= chain.goal_ns && *worst <= b), "{chain:?}: {worst}");
            }
        }
    }

    /// No model, however strange, makes the manager panic, and what it plans fits.
    #[test]
    fn strange_models_are_survived(seed in any::<u64>()) {
        let mut random = SplitMix64::new(seed);
        let system = random_system(seed);
        let goals = goals(&system, &mut SplitMix64::new(seed), None);
        let mut model = system.exact_model();
        let number = |random: &mut SplitMix64, below: usize| usize::try_from(random.within(0, below as u64)).unwrap();
        for _ in 0..12 {
            let count = model.callbacks.len();
            if count == 0 {
                break;
            }
            let callback = number(&mut random, count - 1);
            let any = random.bits() >> random.within(0, 63);
            match random.within(0, 11) {
                0 => model.callbacks[callback].cost.most_ns = vec![any, 3],
                1 => model.callbacks[callback].cost.most_ns.clear(),
                2 => model.callbacks[callback].arrivals.least_span_ns = vec![0; 5],
                3 => model.callbacks[callback].arrivals.least_span_ns = vec![any],
                4 => model.callbacks[callback].arrivals.least_span_ns.clear(),
                5 => model.callbacks[callback].arrivals.seen = any,
                6 => model.callbacks[callback].executor.0 = number(&mut random, 9),
                7 => {
                    // An edge from anywhere to anywhere: cycles too.
                    let topics = model.topics.len();
                    if topics > 0 {
                        let topic = number(&mut random, topics - 1);
                        model.topics[topic].publishers.push(takt_model::CallbackId(callback));
                        model.topics[topic].subscribers.push(takt_model::CallbackId(number(&mut random, count + 2)));
                    }
                }
                8 => model.threads.truncate(number(&mut random, model.threads.len())),
                9 => model.executors[0].kind = takt_model::ExecutorKind::MultiThreaded,
                10 => model.executors[0].callbacks.push(takt_model::CallbackId(number(&mut random, 99))),
                _ => model.callbacks[callback].arrivals.observed_ns = any,
            }
        }
        if let Some(goals) = goals {
            let platform = Platform::new(vec![1, 2], 0, 0.95);
            let mut manager = Manager::new(goals, platform);
            for _ in 0..2 {
                let plan = manager.plan(&model);
                prop_assert!(plan.bandwidth_on(1) <= 0.95 + 1e-9 && plan.bandwidth_on(2) <= 0.95 + 1e-9);
            }
        }
    }
}
