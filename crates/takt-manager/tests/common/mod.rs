//! Systems held against their bounds.

#![allow(clippy::unwrap_used)]
#![allow(dead_code)]

pub mod turtlebot;

use std::sync::Arc;

use takt_manager::analysis::{Analysis, Enforcement};
use takt_manager::curves::Counts;
use takt_manager::simulate::{Features, Machine, Observed, Supply, System, random_with, simulate_on};
use takt_manager::workload::{Order, Reading, Workload};
use takt_rt::random::SplitMix64;

pub const EXACT: Reading = Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None };

/// Numbers of comparisons in a check.
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
    /// Paths with hops that are bounded together.
    pub joint: u64,
    /// By how much the bounds of these are below the sums of their callbacks', percent, in sum.
    pub saved_percent: u64,
    /// Systems with an order among the executors of a core.
    pub ranked: u64,
}

/// Budgets from scarce to plenty, the same for all threads of an executor, spread over cores that
/// keep their capacity.
fn supplies(system: &System, random: &mut SplitMix64, tick_ns: u64) -> Vec<Supply> {
    let periods = if tick_ns == 0 { [5_000_000, 10_000_000] } else { [20_000_000, 40_000_000] };
    let period_ns = periods[usize::try_from(random.within(0, 1)).unwrap()];
    let mut used: Vec<u64> = Vec::new();
    let capacity = period_ns * 95 / 100;
    let mut supplies = Vec::new();
    for executor in 0..system.executors.len() {
        let budget_ns = period_ns * random.within(if tick_ns == 0 { 20 } else { 5 }, 90) / 100;
        for _ in 0..system.threads_of(executor) {
            let core = used.iter().position(|u| u + budget_ns <= capacity).unwrap_or(used.len());
            if core == used.len() {
                used.push(0);
            }
            used[core] += budget_ns;
            supplies.push(Supply { budget_ns, period_ns, core });
        }
    }
    supplies
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

/// A plain system under exact budgets.
pub fn check(seed: u64, length_ns: u64) -> Result<Checked, String> {
    check_with(seed, length_ns, Features::default(), false, Known::All)
}

/// Knowledge of the analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Its present knowledge.
    All,
    /// Its knowledge before messages per activation, suspension, other executors and ticks.
    Before,
    /// All but other executors: they are taken for single-threaded ones with a wait set.
    OneKind,
}

fn forget(workload: &mut Workload, known: Known) {
    for callback in workload.callbacks.iter_mut().filter(|_| known == Known::Before) {
        callback.suspension = None;
        callback.inputs.iter_mut().for_each(|(_, counts)| *counts = Arc::new(Counts::each(1)));
    }
    for executor in &mut workload.executors {
        if matches!(executor.order, Order::Fifo | Order::Any | Order::Threads { .. }) {
            executor.order = Order::WaitSet { timers_first: true };
        }
    }
}

/// Compares one random system with its bounds; with what the analysis knows.
pub fn check_with(
    seed: u64,
    length_ns: u64,
    features: Features,
    ticks: bool,
    known: Known,
) -> Result<Checked, String> {
    let mut system = random_with(seed, features);
    let before = known == Known::Before;
    if ticks {
        // Light enough for budgets about as small as a tick.
        system.callbacks.iter_mut().flat_map(|c| &mut c.costs_ns).for_each(|ns| *ns = 1 + *ns / 6);
    }
    let mut random = SplitMix64::new(seed ^ 0xdead_beef);
    let machine = Machine {
        capacity_percent: 95,
        tick_ns: if ticks { [1, 4][usize::try_from(random.within(0, 1)).unwrap()] * 1_000_000 } else { 0 },
        dispatch_ns: 100_000,
        sleeping_hogs: ticks || features != Features::default(),
        ..Machine::default()
    };
    let supplies = supplies(&system, &mut random, machine.tick_ns);
    let period_ns = supplies.first().map_or(10_000_000, |s| s.period_ns);
    let model = system.exact_model();
    let mut workload = Workload::new(&model, &EXACT);
    let mut neighbours = 0;
    if known != Known::All {
        forget(&mut workload, known);
    }
    if !before {
        let cores = supplies.iter().map(|s| s.core + 1).max().unwrap_or(0);
        let on = |core: usize| supplies.iter().filter(|s| s.core == core).count() as u64;
        // Two others take what is left of a core.
        neighbours = (0..cores).map(on).max().unwrap_or(1) - 1 + if machine.sleeping_hogs { 2 } else { 1 };
    }
    let enforcement = Enforcement { granularity_ns: if before { 0 } else { machine.tick_ns }, neighbours };
    let mut analysis = Analysis::new(&workload, period_ns, 2_000_000_000, 0).enforced(enforcement);
    let mut budgets = Vec::new();
    let mut slot = 0;
    for executor in 0..system.executors.len() {
        budgets.push(supplies[slot].budget_ns);
        slot += system.threads_of(executor);
    }
    let all: Vec<usize> = (0..system.executors.len()).collect();
    let solution = analysis.solve(&budgets, &all);
    let paths = paths(&system);
    let bounds: Vec<Option<u64>> =
        paths.iter().map(|p| analysis.latency(p, &budgets, &solution).map(|b| b.0)).collect();
    let mut checked = Checked::default();
    for run in 0..2 {
        let seed_of_run = seed.wrapping_mul(31) + run;
        let seen: Observed = simulate_on(machine, &system, &supplies, &paths, length_ns, seed_of_run).0;
        for (number, (worst, count)) in seen.responses.iter().enumerate() {
            let bound = solution.responses[number].map(|b| b.ns);
            let by = solution.responses[number].map(|b| b.by);
            compare(&mut checked, bound, *worst, *count).map_err(|e| {
                let server = &workload.executors[workload.callbacks[number].server];
                format!(
                    "seed {seed}, tick {}, callback {number} {by:?} {:?}: {e}",
                    machine.tick_ns, server.order
                )
            })?;
        }
        for (path, (bound, (worst, count))) in paths.iter().zip(bounds.iter().zip(&seen.latencies)) {
            compare(&mut checked, *bound, *worst, *count)
                .map_err(|e| format!("seed {seed}, tick {}, path {path:?}: {e}", machine.tick_ns))?;
        }
    }
    Ok(checked)
}

pub fn compare(checked: &mut Checked, bound: Option<u64>, worst: u64, count: u64) -> Result<(), String> {
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
