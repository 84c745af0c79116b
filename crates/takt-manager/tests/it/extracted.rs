//! The whole way: simulated run, events, extractor, analysis. The bounds of a model that was learnt
//! from a run hold for that run.

#![allow(clippy::unwrap_used)]

use crate::common;

use takt_manager::analysis::Analysis;
use takt_manager::simulate::{Supply, events, random_system, traced};
use takt_manager::workload::Workload;
use takt_model::{Extractor, Options};
use takt_rt::random::SplitMix64;

#[test]
fn bounds_of_learnt_models_hold_for_what_they_were_learnt_from() {
    let (mut compared, mut unbounded, mut systems) = (0_u64, 0_u64, 0);
    for seed in 0..400 {
        let system = random_system(seed);
        // A source's release cannot be seen from outside, so neither can its response time.
        if system.executors.iter().any(|e| e.source) {
            continue;
        }
        let mut random = SplitMix64::new(seed);
        let supplies: Vec<Supply> = (0..system.executors.len())
            .map(|core| Supply { budget_ns: random.within(30, 90) * 100_000, period_ns: 10_000_000, core })
            .collect();
        let (seen, trace) = traced(&system, &supplies, &[], 5_000_000_000, 95, seed);
        let mut extractor = Extractor::new(Options::default());
        for event in events(&system, &trace) {
            extractor.event(&event);
        }
        let model = extractor.snapshot(5_000_000_000);
        let workload = Workload::new(&model, &common::EXACT);
        let mut analysis = Analysis::new(&workload, 10_000_000, 2_000_000_000, 0);
        let budgets: Vec<u64> = model
            .executors
            .iter()
            .map(|e| supplies[model.threads[e.threads[0].0].tid as usize - 1000].budget_ns)
            .collect();
        let all: Vec<usize> = (0..budgets.len()).collect();
        let solution = analysis.solve(&budgets, &all);
        systems += 1;
        for (number, callback) in model.callbacks.iter().enumerate() {
            let symbol = callback.symbol.as_deref().unwrap_or_default();
            let Some(sim) = system.callbacks.iter().position(|c| c.name == symbol) else {
                panic!("seed {seed}: the extractor found {callback:?}");
            };
            let (worst, count) = seen.responses[sim];
            match solution.responses[number] {
                Some(bound) => {
                    assert!(
                        worst <= bound.ns,
                        "seed {seed}, {} ({}): {worst} ns seen, bound {bound:?}; {:?}",
                        callback.name,
                        symbol,
                        workload.assumptions
                    );
                    compared += count;
                }
                None => unbounded += 1,
            }
        }
    }
    println!("{systems} systems, {compared} completions, {unbounded} callbacks without bound");
    assert!(
        systems > 50 && compared > 50_000,
        "{systems} systems, {compared} completions, {unbounded} unbounded"
    );
}
