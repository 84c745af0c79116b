//! Systems held against their bounds.

#![allow(clippy::unwrap_used)]
#![allow(dead_code)]

pub mod turtlebot;

use takt_manager::analysis::Analysis;
use takt_manager::simulate::{Observed, Random, Supply, System, random_system, simulate};
use takt_manager::workload::{Reading, Workload};

pub const EXACT: Reading = Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None };

/// What a check compared.
#[derive(Debug, Default, Clone, Copy)]
pub struct Checked {
    /// Callbacks and paths that have a bound.
    pub bounded: u64,
    /// Those without.
    pub unbounded: u64,
    /// Completions that were compared.
    pub completions: u64,
    /// Greatest share of a bound that was seen, percent.
    pub closest_percent: u64,
}

/// Budgets from scarce to plenty, spread over cores that keep their capacity.
fn supplies(system: &System, random: &mut Random) -> Vec<Supply> {
    let period_ns = [5_000_000, 10_000_000][usize::try_from(random.within(0, 1)).unwrap()];
    let mut used: Vec<u64> = Vec::new();
    let capacity = period_ns * 95 / 100;
    (0..system.executors.len())
        .map(|_| {
            let budget_ns = period_ns * random.within(20, 90) / 100;
            let core = used.iter().position(|u| u + budget_ns <= capacity).unwrap_or(used.len());
            if core == used.len() {
                used.push(0);
            }
            used[core] += budget_ns;
            Supply { budget_ns, period_ns, core }
        })
        .collect()
}

/// Simple paths of the system, a few.
pub fn paths(system: &System) -> Vec<Vec<usize>> {
    let model = system.exact_model();
    let mut paths = Vec::new();
    for (number, callback) in model.callbacks.iter().enumerate() {
        let mut path = vec![number];
        let mut at = callback;
        while let Some(next) = at.publishes.iter().flat_map(|t| &model.topics[t.0].subscribers).last() {
            path.push(next.0);
            at = &model.callbacks[next.0];
            paths.push(path.clone());
        }
    }
    paths.truncate(12);
    paths
}

/// Compares one random system with its bounds.
pub fn check(seed: u64, length_ns: u64) -> Result<Checked, String> {
    let system = random_system(seed);
    let mut random = Random::new(seed ^ 0xdead_beef);
    let supplies = supplies(&system, &mut random);
    let period_ns = supplies.first().map_or(10_000_000, |s| s.period_ns);
    let model = system.exact_model();
    let workload = Workload::new(&model, &EXACT);
    assert!(workload.assumptions.is_empty(), "seed {seed}: {:?}", workload.assumptions);
    let mut analysis = Analysis::new(&workload, period_ns, 2_000_000_000, 0);
    let budgets: Vec<u64> = supplies.iter().map(|s| s.budget_ns).collect();
    let all: Vec<usize> = (0..system.executors.len()).collect();
    let solution = analysis.solve(&budgets, &all);
    let paths = paths(&system);
    let bounds: Vec<Option<u64>> =
        paths.iter().map(|p| analysis.latency(p, &budgets, &solution).map(|b| b.0)).collect();
    let mut checked = Checked::default();
    for run in 0..2 {
        let seen: Observed = simulate(&system, &supplies, &paths, length_ns, 95, seed.wrapping_mul(31) + run);
        for (number, (worst, count)) in seen.responses.iter().enumerate() {
            let bound = solution.responses[number].map(|b| b.ns);
            let by = solution.responses[number].map(|b| b.by);
            compare(&mut checked, bound, *worst, *count)
                .map_err(|e| format!("seed {seed}, callback {number} {by:?}: {e}"))?;
        }
        for (path, (bound, (worst, count))) in paths.iter().zip(bounds.iter().zip(&seen.latencies)) {
            compare(&mut checked, *bound, *worst, *count)
                .map_err(|e| format!("seed {seed}, path {path:?}: {e}"))?;
        }
    }
    Ok(checked)
}

fn compare(checked: &mut Checked, bound: Option<u64>, worst: u64, count: u64) -> Result<(), String> {
    let Some(bound) = bound else {
        checked.unbounded += 1;
        return Ok(());
    };
    checked.bounded += 1;
    checked.completions += count;
    if worst > bound {
        return Err(format!("{worst} ns seen, bound {bound} ns"));
    }
    checked.closest_percent = checked.closest_percent.max(worst * 100 / bound.max(1));
    Ok(())
}
