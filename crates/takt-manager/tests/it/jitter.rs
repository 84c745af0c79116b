//! Jitter: no random system's latencies are ever further apart than its bound, nor below its best
//! case; and plans keep jitter goals.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::{EXACT, paths};
use takt_manager::analysis::{Analysis, Enforcement, best_case};
use takt_manager::plan::{ChainState, Plan, Platform};
use takt_manager::simulate::{Features, Machine, Supply, System, Trigger, random_with, simulate_on};
use takt_manager::workload::Workload;
use takt_manager::{Goals, Manager};
use takt_model::{CallbackId, Model};
use takt_rt::random::SplitMix64;

const SECOND_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Numbers of comparisons.
#[derive(Debug, Default, Clone, Copy)]
struct Checked {
    /// Paths with a best case above nothing that completed.
    paths: u64,
    completions: u64,
    /// Greatest share of a best case that a shortest latency was, percent: 100 means that it was
    /// met.
    closest_percent: u64,
}

/// One system on reservations against best cases and jitter bounds; with a model of what takes how
/// long at least.
fn check(seed: u64, model_of: impl Fn(&System) -> Model) -> Result<Checked, String> {
    let mut system = random_with(seed, Features::ALL);
    system.steady = true;
    let mut random = SplitMix64::new(seed ^ 0xbeef);
    system.early_messages = random.one_in(3);
    let machine =
        Machine { capacity_percent: 95, dispatch_ns: 100_000, sleeping_hogs: true, ..Machine::default() };
    let period_ns = 5 * MS;
    let mut supplies = Vec::new();
    for executor in 0..system.executors.len() {
        let budget_ns = period_ns * random.within(30, 90) / 100;
        for _ in 0..system.threads_of(executor) {
            supplies.push(Supply { budget_ns, period_ns, core: supplies.len() });
        }
    }
    let mut budgets = Vec::new();
    let mut slot = 0;
    for executor in 0..system.executors.len() {
        budgets.push(supplies[slot].budget_ns);
        slot += system.threads_of(executor);
    }
    let model = model_of(&system);
    let workload = Workload::new(&model, &EXACT);
    let enforcement = Enforcement { granularity_ns: 0, neighbours: 3 };
    let mut analysis = Analysis::new(&workload, period_ns, 2 * SECOND_NS, 0).enforced(enforcement);
    let all: Vec<usize> = (0..system.executors.len()).collect();
    let solution = analysis.solve(&budgets, &all);
    let paths = paths(&system);
    let mut checked = Checked::default();
    for run in 0..2 {
        let seen = simulate_on(machine, &system, &supplies, &paths, SECOND_NS / 2, seed * 31 + run).0;
        for (number, path) in paths.iter().enumerate() {
            let Some(shortest_ns) = seen.shortest[number] else { continue };
            let best_ns = best_case(&model, path);
            if shortest_ns < best_ns {
                return Err(format!("seed {seed}, path {path:?}: {shortest_ns} ns, best case {best_ns}"));
            }
            let (longest_ns, count) = seen.latencies[number];
            if let Some((bound_ns, _)) = analysis.latency(path, &budgets, &solution)
                && longest_ns - shortest_ns > bound_ns - best_ns
            {
                let jitter_ns = longest_ns - shortest_ns;
                return Err(format!(
                    "seed {seed}, path {path:?}: jitter {jitter_ns} ns, {bound_ns} - {best_ns}"
                ));
            }
            checked.paths += u64::from(best_ns > 0);
            checked.completions += count;
            checked.closest_percent = checked.closest_percent.max(best_ns * 100 / shortest_ns.max(1));
        }
    }
    Ok(checked)
}

#[test]
fn no_system_is_quicker_than_its_best_case_nor_its_jitter_above_the_bound() {
    let mut sum = Checked::default();
    for seed in 0..300 {
        let one = check(seed, System::exact_model).unwrap();
        sum.paths += one.paths;
        sum.completions += one.completions;
        sum.closest_percent = sum.closest_percent.max(one.closest_percent);
    }
    println!("{sum:?}");
    // The comparison is about something, and nothing better would be sound.
    assert!(sum.paths > 300 && sum.completions > 10_000 && sum.closest_percent == 100, "{sum:?}");
}

/// Best cases that are wrong are seen: of the longest activations instead of the shortest, and of
/// messages that are all taken to be sent at the end.
#[test]
fn wrong_best_cases_are_refuted() {
    let longest = |system: &System| {
        let mut model = system.exact_model();
        for one in &mut model.shortest {
            let CallbackId(number) = one.callback;
            one.ns = system.callbacks[number].costs_ns.iter().copied().max().unwrap();
        }
        model
    };
    let at_the_end = |system: &System| System { early_messages: false, ..system.clone() }.exact_model();
    let refuted =
        |model_of: &dyn Fn(&System) -> Model| (0..300).filter(|seed| check(*seed, model_of).is_err()).count();
    let (of_longest, of_ends) = (refuted(&longest), refuted(&at_the_end));
    println!("refuted: {of_longest} of 300 with the longest activations, {of_ends} with messages at the end");
    assert!(of_longest > 20 && of_ends > 5, "{of_longest}, {of_ends}");
}

/// A timer of 20 ms that drives an actuator in another process, and something heavier beside it.
fn robot() -> System {
    let mut system = System { steady: true, ..System::default() };
    let (control, drive) = (system.executor("control", false), system.executor("drive", false));
    let vision = system.executor("vision", false);
    let (command, image) = (system.topic("/command"), system.topic("/image"));
    let every = |ms: u64| Trigger::Periodic { period_ns: ms * MS, jitter_ns: 0 };
    system.callback(control, "/control timer", every(20), vec![MS, 1_200_000], vec![command]);
    system.callback(drive, "/drive subscription /command", Trigger::Topic(command), vec![400_000], vec![]);
    system.callback(vision, "/vision timer", every(100), vec![20 * MS, 25 * MS], vec![image]);
    system
}

fn goals(jitter: &str) -> Goals {
    let text = format!(
        "degradation_order = [\"seen\", \"driven\"]\n[[chain]]\nname = \"seen\"\nstart = \"/vision\"\nend = \"/vision\"\ngoal = \"100 ms\"\n\
         [[chain]]\nname = \"driven\"\nstart = \"/control\"\nend = \"/drive\"\ngoal = \"60 ms\"\n{jitter}\n"
    );
    Goals::parse(&text, "test").unwrap()
}

fn plan_with(jitter: &str) -> (System, Plan) {
    let system = robot();
    let plan = Manager::new(goals(jitter), Platform::new(vec![1, 2], 0, 0.95)).plan(&system.exact_model());
    (system, plan)
}

/// Longest less shortest latency of the chain under the plan, with hogs beside it.
fn measured(system: &System, plan: &Plan) -> u64 {
    let supplies: Vec<Supply> = (0..system.executors.len())
        .map(|number| {
            let one = plan.reservations.iter().find(|r| r.executor.0 == number).unwrap();
            Supply { budget_ns: one.budget_ns, period_ns: one.period_ns, core: one.core }
        })
        .collect();
    let machine = Machine { capacity_percent: 95, sleeping_hogs: true, ..Machine::default() };
    let runs = (0..20).map(|seed| {
        let seen = simulate_on(machine, system, &supplies, &[vec![0, 1]], 2 * SECOND_NS, seed).0;
        (seen.shortest[0].unwrap(), seen.latencies[0].0)
    });
    let (shortest, longest) = runs.fold((u64::MAX, 0), |(s, l), (a, b)| (s.min(a), l.max(b)));
    longest - shortest
}

#[test]
fn plans_keep_jitter_goals_by_budgets_and_periods() {
    let (system, without) = plan_with("");
    assert!(without.chains[1].jitter.is_none());
    let before_ns = measured(&system, &without);
    let (_, with) = plan_with("jitter = \"4 ms\"");
    let chain = &with.chains[1];
    let jitter = chain.jitter.clone().unwrap();
    assert_eq!(chain.state, ChainState::Guaranteed, "{with:#?}");
    // 1.4 ms, less the margin of a tenth.
    assert_eq!((jitter.goal_ns, jitter.best_ns), (4 * MS, 1_260_000));
    assert_eq!(jitter.bound_ns.unwrap(), chain.bound_ns.unwrap() - jitter.best_ns);
    assert!(jitter.bound_ns.unwrap() <= jitter.goal_ns);
    assert!(with.chains.iter().all(|chain| chain.state == ChainState::Guaranteed), "{with:#?}");
    let after_ns = measured(&system, &with);
    println!(
        "jitter {before_ns} ns without a goal for it, {after_ns} with one, at most {:?}",
        jitter.bound_ns
    );
    assert!(before_ns > 4 * MS && after_ns <= jitter.bound_ns.unwrap(), "{before_ns}, {after_ns}");
}

/// Goals that cannot be met are degraded with the reason, less important chains first.
#[test]
fn jitter_goals_that_cannot_be_kept_are_given_up_in_order() {
    let (_, plan) = plan_with("jitter = \"50 us\"");
    let ChainState::Degraded { why } = &plan.chains[1].state else { panic!("{plan:#?}") };
    assert!(why.contains("jitter goal of 0.050 ms") && why.contains("its best case is 1.3 ms"), "{why}");
    assert_eq!(plan.chains[0].state, ChainState::Guaranteed, "{plan:#?}");
}
