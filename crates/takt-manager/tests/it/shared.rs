//! Simulations that refute the bounds of shared cores: random systems whose reservations are all
//! there is on their cores.
//!
//! `cargo test -p takt-manager --test it shared:: -- --ignored --nocapture` checks 10,000 systems,
//! others with `TAKT_SHARED_FROM=20000`.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Checked, EXACT, compare, paths};
use takt_manager::analysis::{Ahead, Analysis, Disturbance, Method, Solution};
use takt_manager::plan::{ChainState, Platform};
use takt_manager::simulate::{Features, Machine, Supply, System, Trigger, random_with, simulate_on};
use takt_manager::workload::Workload;
use takt_manager::{Goals, Manager};
use takt_rt::random::SplitMix64;

const FEATURES: Features = Features { threads: false, ..Features::ALL };

/// Knowledge that is left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Budgets are half of what never runs out.
    HalfOfTheBudgets,
    /// Suspensions are not known.
    Suspensions,
    /// The neighbours' demand is unknown.
    Neighbours,
    /// Occasional executions of callbacks beyond their curves are unknown.
    Disturbances,
    /// Messages are there at once.
    Transits,
    /// Executors are taken to be in an order, and have one period.
    Periods,
    /// Periods differ by less than the executors of a core want to run without a break.
    Gaps,
}

/// If a core has more work within the horizon than is counted, nothing is bounded: the bound was as
/// if each executor had the core alone.
#[test]
fn what_is_too_much_to_be_counted_has_no_bound() {
    let mut system = System::default();
    let (executors, cost_ns) = (8, 50_000);
    for number in 0..executors {
        let executor = system.executor(&format!("at 1 kHz {number}"), false);
        let trigger = Trigger::Periodic { period_ns: 1_000_000, jitter_ns: 0 };
        system.callback(executor, &format!("/node{number} timer 1ms"), trigger, vec![cost_ns], vec![]);
    }
    let workload = Workload::new(&system.exact_model(), &EXACT);
    let bounds = |limit_ns| -> Vec<Option<u64>> {
        let mut analysis = Analysis::new(&workload, 10_000_000, limit_ns, 0);
        let solution = analysis.share(&vec![Some(0); executors]);
        solution.responses.iter().map(|bound| bound.map(|bound| bound.ns)).collect()
    };
    let all_ns = executors as u64 * cost_ns;
    let short = bounds(1_000_000_000);
    assert!(short.iter().all(|bound| bound.is_some_and(|ns| ns >= all_ns)), "{short:?}");
    assert_eq!(bounds(10_000_000_000), vec![None; executors], "64,000 activations within the horizon");
}

/// Three in four systems have an order among the executors of a core.
fn random_ranks(seed: u64, executors: usize) -> Option<Vec<usize>> {
    let mut random = SplitMix64::new(seed ^ 0x0a4b);
    let ranks: Vec<usize> = (0..executors).map(|_| usize::try_from(random.within(0, 3)).unwrap()).collect();
    (!seed.is_multiple_of(4)).then_some(ranks)
}

/// Periods of this order, and budgets with which it is kept, as scarce as may be.
fn ranked_supplies(
    analysis: &Analysis<'_>,
    place: &[usize],
    ranks: &[usize],
    shortest_ns: u64,
    wide: u64,
    solution: &Solution,
    without: Without,
) -> Option<Vec<Supply>> {
    if !solution.diverged.is_empty() {
        return None;
    }
    let up_to =
        |core: usize, rank: usize| move |server: usize| place[server] == core && ranks[server] <= rank;
    let mut periods_ns = vec![shortest_ns];
    for rank in 1..=3 {
        let pending: Option<Vec<u64>> =
            (0..2).map(|core| analysis.pending_ns(&up_to(core, rank), solution)).collect();
        let longest_ns = pending?.into_iter().max().unwrap();
        let gap_ns = if without == Without::Gaps { longest_ns / 8 } else { longest_ns * wide / 8 };
        periods_ns.push(periods_ns[rank - 1] + gap_ns);
    }
    if without == Without::Periods {
        periods_ns = vec![periods_ns[3]; 4];
    }
    let supply = |server: usize| {
        let (core, rank, period_ns) = (place[server], ranks[server], periods_ns[ranks[server]]);
        let ahead = match rank {
            0 => None,
            _ => Some(Ahead {
                period_ns: periods_ns[rank - 1],
                pending_ns: analysis.pending_ns(&up_to(core, rank), solution)?,
            }),
        };
        let knows = !matches!(without, Without::Periods | Without::Gaps);
        let ahead = ahead.filter(|_| knows);
        let budget_ns = analysis.ranked_budget_ns(server, period_ns, ahead, solution)?;
        Some(Supply { budget_ns, period_ns, core })
    };
    let supplies: Vec<Supply> = (0..place.len()).map(supply).collect::<Option<_>>()?;
    let share = |s: &Supply| s.budget_ns as f64 / s.period_ns as f64;
    let on = |core| supplies.iter().filter(|s| s.core == core).map(share).sum::<f64>();
    (0..2).all(|core| on(core) <= 0.95).then_some(supplies)
}

/// From rare and much to often and little; runs are half a second long.
fn disturbance(random: &mut SplitMix64) -> Disturbance {
    let (most_ms, window_ms) =
        [(20, 1_000), (8, 300), (3, 100)][usize::try_from(random.within(0, 2)).unwrap()];
    Disturbance { most_ns: random.within(1, most_ms) * 1_000_000, window_ns: window_ms * 1_000_000 }
}

/// One period for all, the shortest at which budgets that never run out fit.
fn supplies(analysis: &Analysis<'_>, place: &[usize], solution: &Solution) -> Option<Vec<Supply>> {
    if !solution.diverged.is_empty() {
        return None;
    }
    let of_period = |period_ns: u64| -> Option<Vec<Supply>> {
        let supply = |server: usize| {
            let budget_ns = analysis.ample_budget_ns(server, period_ns, solution)?;
            Some(Supply { budget_ns, period_ns, core: place[server] })
        };
        let all: Vec<Supply> = (0..place.len()).map(supply).collect::<Option<_>>()?;
        let on = |core| -> u64 { all.iter().filter(|s| s.core == core).map(|s| s.budget_ns).sum() };
        (0..2).all(|core| on(core) <= period_ns * 95 / 100).then_some(all)
    };
    (0..8).find_map(|doubled| of_period(5_000_000 << doubled))
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
    let mut checked = Checked::default();
    let all = system.callbacks.len() as u64;
    let mut found = None;
    if let Some(ranks) = random_ranks(seed, place.len())
        && without != Without::Neighbours
    {
        let solution = analysis.share_ranked(&known, &ranks);
        let wide = random.within(9, 40);
        let supplies = [5_u64, 10, 20, 40, 80, 160, 320, 640].into_iter().find_map(|ms| {
            ranked_supplies(&analysis, &place, &ranks, ms * 1_000_000, wide, &solution, without)
        });
        checked.ranked = u64::from(supplies.is_some());
        found = supplies.map(|supplies| (solution, supplies));
    }
    if found.is_none() {
        let solution = analysis.share(&known);
        let supplies = supplies(&analysis, &place, &solution);
        found = supplies.map(|supplies| (solution, supplies));
    }
    let Some((solution, mut supplies)) = found else { return Ok(Checked { unbounded: all, ..checked }) };
    if without == Without::HalfOfTheBudgets {
        supplies.iter_mut().for_each(|supply| supply.budget_ns = (supply.budget_ns / 2).max(1));
    }
    let budgets_ns: Vec<u64> = supplies.iter().map(|supply| supply.budget_ns).collect();
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
                sum.ranked += one.ranked;
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
    assert!(sum.ranked > 100, "executors are in an order: {sum:?}");
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
        Without::Periods,
        Without::Gaps,
    ] {
        assert!(!all(0..500, without).1.is_empty(), "{without:?}");
    }
}

/// A thread that has run much lately keeps its deadline when it wakes up, and comes before shorter
/// ones in the end, unless its budget is above its run time until then.
#[test]
fn a_budget_that_never_runs_out_is_not_enough_for_an_order() {
    let mut system = System { steady: true, ..System::default() };
    let mut timer = |name: &str, period_ns: u64, costs_ns: Vec<u64>| {
        let executor = system.executor(name, false);
        system.callback(executor, name, Trigger::Periodic { period_ns, jitter_ns: 0 }, costs_ns, vec![]);
    };
    timer("short", 7_100_000, vec![200_000]);
    let mut costs_ns = vec![1_000_000; 60];
    costs_ns[0] = 5_000_000;
    timer("steady", 5_000_000, costs_ns);
    let model = system.exact_model();
    let workload = Workload::new(&model, &EXACT);
    let mut analysis = Analysis::new(&workload, 10_000_000, 2_000_000_000, 0);
    let solution = analysis.share_ranked(&[Some(0), Some(0)], &[0, 1]);
    let bound_ns = solution.responses[0].unwrap().ns;
    let (short_ns, long_ns) = (10_000_000, 100_000_000);
    let pending_ns = analysis.pending_ns(&|_| true, &solution).unwrap();
    let worst_ns = |ahead: Option<Ahead>| {
        let budget = |server, period_ns, ahead| {
            let budget_ns = analysis.ranked_budget_ns(server, period_ns, ahead, &solution).unwrap();
            Supply { budget_ns, period_ns, core: 0 }
        };
        let supplies = [budget(0, short_ns, None), budget(1, long_ns, ahead)];
        let seen = |seed| {
            let machine = Machine::default();
            simulate_on(machine, &system, &supplies, &[], 2_000_000_000, seed).0.responses[0].0
        };
        (0..20).map(seen).max().unwrap()
    };
    assert!(worst_ns(None) > bound_ns, "an order is promised, and not kept");
    assert!(worst_ns(Some(Ahead { period_ns: short_ns, pending_ns })) <= bound_ns);
}

/// A core with little and much to do, where nothing but an order keeps the short goal.
#[test]
fn what_is_short_and_urgent_does_not_wait_for_what_is_long() {
    let mut system = System::default();
    for (name, period_ms, cost_ms) in [("short", 50, 1), ("long", 200, 40)] {
        let executor = system.executor(name, false);
        let trigger = Trigger::Periodic { period_ns: period_ms * 1_000_000, jitter_ns: 0 };
        system.callback(executor, &format!("/{name} timer"), trigger, vec![cost_ms * 1_000_000], vec![]);
    }
    let plans = |options: &str| {
        let text = format!(
            "degradation_order = [\"long\", \"short\"]
             [[chain]]\nname = \"short\"\nstart = \"/short timer\"\nend = \"/short timer\"\ngoal = \"6 ms\"
             [[chain]]\nname = \"long\"\nstart = \"/long timer\"\nend = \"/long timer\"\ngoal = \"300 ms\"
             [options]\n{options}"
        );
        let mut platform = Platform::new(vec![1], 0, 0.95);
        platform.enforcement_ns = 4_000_000;
        let mut manager = Manager::new(Goals::parse(&text, "order").unwrap(), platform);
        let first = manager.plan(&system.exact_model());
        manager.broken();
        (first, manager.plan(&system.exact_model()))
    };
    let (plan, again) = plans("order_executors = true");
    assert!(plan.chains.iter().all(|chain| chain.state == ChainState::Guaranteed), "{plan:#?}");
    assert!(plan.shared && plan.reservations[0].period_ns < plan.reservations[1].period_ns, "{plan:#?}");
    assert!(plan.same_enactment(&again), "the order stays: {again:#?}");
    let alike = plans("").0;
    assert!(alike.chains.iter().any(|chain| chain.state != ChainState::Guaranteed), "{alike:#?}");
}

#[test]
#[ignore = "minutes"]
fn campaign_ten_thousand_systems_on_shared_cores_never_exceed_their_bounds() {
    let from = std::env::var("TAKT_SHARED_FROM").map_or(10_000, |from| from.parse().unwrap());
    holds(from..from + 10_000);
}

/// A placement that was asked about before is answered from memory, and what is asked then is about
/// that one.
#[test]
fn placements_that_are_gone_back_to_are_as_they_were() {
    let (mut bounded, mut different) = (0, 0);
    for seed in 0..60 {
        let system = random_with(seed, FEATURES);
        let model = system.exact_model();
        let workload = Workload::new(&model, &EXACT);
        let mut random = SplitMix64::new(seed);
        let mut cores = || -> Vec<Option<usize>> {
            (0..workload.executors.len()).map(|_| usize::try_from(random.within(0, 1)).ok()).collect()
        };
        let (first, second) = (cores(), cores());
        let new = || Analysis::new(&workload, 10_000_000, 2_000_000_000, 0).joining_hops(true);
        let mut answers = |analysis: &mut Analysis<'_>, cores: &[Option<usize>]| {
            let solution = analysis.share(cores);
            let budgets_ns = vec![0; cores.len()];
            let latencies: Vec<_> =
                paths(&system).iter().map(|path| analysis.latency(path, &budgets_ns, &solution)).collect();
            let needs: Vec<Option<u64>> =
                (0..cores.len()).map(|s| analysis.ample_budget_ns(s, 40_000_000, &solution)).collect();
            bounded += latencies.iter().flatten().count();
            (solution.responses, latencies, needs)
        };
        let mut analysis = new();
        let one = answers(&mut analysis, &first);
        let other = answers(&mut analysis, &second);
        different += usize::from(one != other);
        let done = analysis.work.executors;
        assert_eq!(answers(&mut analysis, &first), one, "seed {seed}");
        assert!(analysis.work.executors - done <= paths(&system).len() as u64, "not from memory");
        assert_eq!(answers(&mut new(), &second), other, "seed {seed}");
        assert_eq!(answers(&mut new(), &first), one, "seed {seed}");
    }
    assert!(bounded > 100 && different > 10, "{bounded} bounded, {different} differ");
}
