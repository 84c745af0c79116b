//! Simulations that refute the bounds of shared cores: random systems whose reservations are all
//! there is on their cores.
//!
//! `cargo test -p takt-manager --test shared -- --ignored --nocapture` checks 10,000 systems,
//! others with `TAKT_SHARED_FROM=20000`.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Checked, EXACT, compare, paths};
use takt_manager::analysis::{Analysis, Disturbance, Method};
use takt_manager::simulate::{Features, Machine, Supply, random_with, simulate_on};
use takt_manager::workload::Workload;
use takt_rt::random::SplitMix64;

const FEATURES: Features = Features { threads: false, ..Features::ALL };

/// What is left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Budgets are half of what never runs out.
    HalfOfTheBudgets,
    /// Suspensions are not known.
    Suspensions,
    /// What the neighbours do is not known.
    Neighbours,
    /// What callbacks take beyond their curves now and then is not known.
    Disturbances,
    /// Messages are there at once.
    Transits,
}

/// From rare and much to often and little; runs are half a second long.
fn disturbance(random: &mut SplitMix64) -> Disturbance {
    let (most_ms, window_ms) =
        [(20, 1_000), (8, 300), (3, 100)][usize::try_from(random.within(0, 2)).unwrap()];
    Disturbance { most_ns: random.within(1, most_ms) * 1_000_000, window_ns: window_ms * 1_000_000 }
}

fn check(seed: u64, without: Without) -> Result<Checked, String> {
    let mut system = random_with(seed, FEATURES);
    let mut random = SplitMix64::new(seed ^ 0x0c0de);
    // Light enough for several on one core.
    let lighter = random.within(2, 8);
    system.callbacks.iter_mut().flat_map(|c| &mut c.costs_ns).for_each(|ns| *ns = 1 + *ns / lighter);
    let tick_ns = [0, 1_000_000, 4_000_000][usize::try_from(random.within(0, 2)).unwrap()];
    let model = system.exact_model();
    let mut workload = Workload::new(&model, &EXACT);
    if without == Without::Suspensions {
        workload.callbacks.iter_mut().for_each(|callback| callback.suspension = None);
    }
    let cores = random.within(1, 2);
    let place: Vec<usize> =
        (0..system.executors.len()).map(|_| usize::try_from(random.within(0, cores - 1)).unwrap()).collect();
    let known: Vec<Option<usize>> = match without {
        Without::Neighbours => (0..place.len()).map(Some).collect(),
        _ => place.iter().copied().map(Some).collect(),
    };
    let transit_ns = if seed % 3 == 1 { random.within(1, 4_000_000) } else { 0 };
    let known_transit_ns = if without == Without::Transits { 0 } else { transit_ns };
    let mut analysis = Analysis::new(&workload, 10_000_000, 2_000_000_000, known_transit_ns)
        .joining_hops(!seed.is_multiple_of(5));
    let paths = paths(&system);
    let disturbance = if seed % 2 == 1 { disturbance(&mut random) } else { Disturbance::default() };
    if without != Without::Disturbances {
        analysis = analysis.disturbed(disturbance);
    }
    let solution = analysis.share(&known);
    let mut checked = Checked::default();
    let all = system.callbacks.len() as u64;
    if !solution.diverged.is_empty() {
        return Ok(Checked { unbounded: all, ..checked });
    }
    let budgets = |period_ns: u64| -> Option<Vec<u64>> {
        let of = |server| analysis.ample_budget_ns(server, period_ns, &solution);
        let budgets: Vec<u64> = (0..place.len()).map(of).collect::<Option<_>>()?;
        let on =
            |core| -> u64 { place.iter().zip(&budgets).filter(|(p, _)| **p == core).map(|(_, b)| b).sum() };
        (0..2).all(|core| on(core) <= period_ns * 95 / 100).then_some(budgets)
    };
    let mut period_ns = 5_000_000;
    let mut budgets_ns = budgets(period_ns);
    while budgets_ns.is_none() && period_ns < 1_000_000_000 {
        period_ns *= 2;
        budgets_ns = budgets(period_ns);
    }
    let Some(mut budgets_ns) = budgets_ns else { return Ok(Checked { unbounded: all, ..checked }) };
    if without == Without::HalfOfTheBudgets {
        budgets_ns.iter_mut().for_each(|ns| *ns = (*ns / 2).max(1));
    }
    let supplies: Vec<Supply> = place
        .iter()
        .zip(&budgets_ns)
        .map(|(core, budget_ns)| Supply { budget_ns: *budget_ns, period_ns, core: *core })
        .collect();
    let mut bounds: Vec<Option<u64>> = Vec::new();
    for path in &paths {
        let bound = analysis.latency(path, &budgets_ns, &solution);
        let hop_by_hop = path.iter().map(|c| solution.responses[*c].map(|b| b.ns)).sum::<Option<u64>>();
        if let (Some((ns, by)), Some(sum)) = (&bound, hop_by_hop) {
            checked.joint += u64::from(by.contains(&Method::Joint));
            checked.saved_percent += 100 - (*ns * 100 / sum.max(1)).min(100);
        }
        bounds.push(bound.map(|b| b.0));
    }
    // Nothing but the reservations: no others that take what is left.
    let machine = Machine {
        capacity_percent: 0,
        tick_ns,
        disturbed_ns: disturbance.most_ns,
        disturbed_window_ns: disturbance.window_ns,
        transit_ns,
        ..Machine::default()
    };
    for run in 0..2 {
        let of_run = seed.wrapping_mul(31) + run;
        let seen = simulate_on(machine, &system, &supplies, &paths, 500_000_000, of_run).0;
        for (number, (worst, count)) in seen.responses.iter().enumerate() {
            let bound = solution.responses[number].map(|b| b.ns);
            compare(&mut checked, bound, *worst, *count)
                .map_err(|e| format!("seed {seed}, tick {tick_ns}, callback {number}: {e}"))?;
        }
        for (path, (bound, (worst, count))) in paths.iter().zip(bounds.iter().zip(&seen.latencies)) {
            compare(&mut checked, *bound, *worst, *count)
                .map_err(|e| format!("seed {seed}, tick {tick_ns}, path {path:?}: {e}"))?;
        }
    }
    Ok(checked)
}

fn all(seeds: std::ops::Range<u64>, without: Without) -> (Checked, Vec<String>) {
    let mut sum = Checked::default();
    let mut failures = Vec::new();
    for seed in seeds {
        match check(seed, without) {
            Ok(one) => {
                sum.bounded += one.bounded;
                sum.unbounded += one.unbounded;
                sum.completions += one.completions;
                sum.joint += one.joint;
                sum.saved_percent += one.saved_percent;
                sum.closest_percent = sum.closest_percent.max(one.closest_percent);
            }
            Err(why) => failures.push(why),
        }
    }
    println!("{without:?}: {sum:?}, {} systems exceed their bounds", failures.len());
    (sum, failures)
}

fn holds(seeds: std::ops::Range<u64>) {
    let (sum, failures) = all(seeds, Without::Nothing);
    assert!(failures.is_empty(), "{}: {:#?}", failures.len(), &failures[..failures.len().min(10)]);
    assert!(sum.bounded > sum.unbounded && sum.completions > 1000 && sum.closest_percent > 60, "{sum:?}");
    assert!(sum.joint > 100, "hops are put together: {sum:?}");
}

#[test]
fn no_system_on_shared_cores_exceeds_its_bounds() {
    holds(0..500);
}

/// Each part of the argument is needed.
#[test]
fn without_any_part_of_it_the_bounds_are_refuted() {
    for without in [
        Without::HalfOfTheBudgets,
        Without::Suspensions,
        Without::Neighbours,
        Without::Disturbances,
        Without::Transits,
    ] {
        assert!(!all(0..500, without).1.is_empty(), "{without:?}");
    }
}

#[test]
#[ignore = "minutes"]
fn ten_thousand_systems_on_shared_cores_never_exceed_their_bounds() {
    let from = std::env::var("TAKT_SHARED_FROM").map_or(10_000, |from| from.parse().unwrap());
    holds(from..from + 10_000);
}
