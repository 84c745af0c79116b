//! Goals from what was measured.

use takt_model::Model;

use super::LearntChain;
use crate::goals::{Chain, GOAL_RANGE_NS, Goals, Options};
use crate::manager::Manager;
use crate::plan::{ChainState, Plan, Platform};

/// A proposed goal over the longest latency that was measured. The worst so far is not the worst to
/// come, and a goal at the edge of what is measured says nothing about need; half as much again is
/// room without being another requirement.
pub const GOAL_FACTOR: f64 = 1.5;
/// Largest factor by which a goal is relaxed if the analysis cannot guarantee the proposal. It may
/// also be relaxed up to the mean time between two activations of the chain's start, which is its
/// implicit deadline: beyond both it is another requirement.
const MAX_RELAXED: u64 = 16;
/// Rounds of relaxing.
const ROUNDS: usize = 4;
/// Digits of goals: what a person would write.
const STEPS: [u64; 12] = [100, 120, 150, 200, 250, 300, 400, 500, 600, 700, 800, 900];

/// Proposes a goal for each measured chain, and fills in what a plan for all of them says. The
/// first to be given up is what cannot be analysed or kept, then the chain with the longest goal.
pub(super) fn propose(
    model: &Model,
    chains: &mut [LearntChain],
    platform: &Platform,
) -> (Option<Goals>, Option<Plan>) {
    for chain in chains.iter_mut() {
        chain.goal_ns = chain.worst_ns.map(|worst_ns| goal(worst_ns as f64 * GOAL_FACTOR));
    }
    let first: Vec<Option<u64>> = chains.iter().map(|chain| chain.goal_ns).collect();
    let mut plan = None;
    for round in 0..=ROUNDS {
        let Some(goals) = goals_of(chains) else { return (None, None) };
        let made = Manager::new(goals, platform.clone()).plan(model);
        chains.iter_mut().for_each(|chain| describe(chain, &made));
        plan = Some(made);
        if round == ROUNDS || !relax(chains, &first, model) {
            break;
        }
    }
    for (chain, first_ns) in chains.iter_mut().zip(&first) {
        if chain.state == "degraded" {
            // Relaxing did not help: what was measured is the better begin.
            chain.goal_ns = *first_ns;
        }
    }
    let goals = goals_of(chains);
    if let Some(goals) = &goals {
        let made = Manager::new(goals.clone(), platform.clone()).plan(model);
        chains.iter_mut().for_each(|chain| describe(chain, &made));
        plan = Some(made);
    }
    (goals, plan)
}

fn describe(chain: &mut LearntChain, plan: &Plan) {
    let Some(planned) = plan.chains.iter().find(|planned| planned.name == chain.name) else { return };
    let (state, why) = match &planned.state {
        ChainState::Guaranteed => ("could_be_kept", ""),
        ChainState::Degraded { why } => ("degraded", why.as_str()),
        ChainState::NotAnalysable { why } => ("not_analysable", why.as_str()),
        ChainState::NotFound { why, .. } => ("not_found", why.as_str()),
    };
    chain.bound_ns = planned.bound_ns;
    (chain.state, chain.why) = (state.to_owned(), why.to_owned());
}

/// Raises the goals that were given up to what could be promised; whether there was one.
fn relax(chains: &mut [LearntChain], first: &[Option<u64>], model: &Model) -> bool {
    let mut changed = false;
    for (chain, first_ns) in chains.iter_mut().zip(first) {
        let (Some(goal_ns), Some(first_ns)) = (chain.goal_ns, first_ns) else { continue };
        // At least to the next step.
        let wanted_ns = chain.bound_ns.unwrap_or(goal_ns.saturating_mul(2)).max(goal_ns.saturating_add(1));
        let wanted_ns = goal(wanted_ns as f64);
        let most_ns = first_ns.saturating_mul(MAX_RELAXED).max(interval_ns(model, &chain.start));
        if chain.state == "degraded" && wanted_ns <= most_ns {
            chain.goal_ns = Some(wanted_ns);
            changed = true;
        }
    }
    changed
}

/// Mean time between two activations of a callback.
fn interval_ns(model: &Model, callback: &str) -> u64 {
    let start = model.callbacks.iter().find(|one| one.name == callback);
    start.and_then(|one| one.arrivals.observed_ns.checked_div(one.arrivals.seen)).unwrap_or(0)
}

/// The goals of all chains that have one.
fn goals_of(chains: &[LearntChain]) -> Option<Goals> {
    let goals: Vec<Chain> = chains
        .iter()
        .filter_map(|chain| {
            let (name, start, end) = (chain.name.clone(), chain.start.clone(), chain.end.clone());
            Some(Chain { name, start, end, goal_ns: chain.goal_ns?, jitter_ns: None })
        })
        .collect();
    let state =
        |chain: &Chain| chains.iter().find(|seen| seen.name == chain.name).map(|seen| seen.state.as_str());
    let mut order: Vec<usize> = (0..goals.len()).collect();
    order.sort_by_key(|&index| {
        let kept = !matches!(state(&goals[index]), Some("not_analysable" | "not_found" | "degraded"));
        (kept, std::cmp::Reverse(goals[index].goal_ns), index)
    });
    (!goals.is_empty()).then(|| Goals {
        chains: goals,
        degradation_order: order,
        options: Options::default(),
        network: None,
    })
}

/// Rounded up to a number that a person would write, within the range of goals.
fn goal(ns: f64) -> u64 {
    let ns = (ns.max(1.0) as u64).clamp(*GOAL_RANGE_NS.start(), *GOAL_RANGE_NS.end());
    let mut decade = 1;
    while ns > 1000 * decade {
        decade *= 10;
    }
    let step = STEPS.iter().map(|step| step * decade).find(|step| *step >= ns);
    step.unwrap_or(1000 * decade).min(*GOAL_RANGE_NS.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_round_and_never_shorter_than_asked() {
        for (asked, given) in [
            (0.0, 100_000),
            (100_000.0, 100_000),
            (100_001.0, 120_000),
            (41_000_000.0, 50_000_000),
            (90_000_001.0, 100_000_000),
            (100_000_000.0, 100_000_000),
            (f64::INFINITY, *GOAL_RANGE_NS.end()),
        ] {
            assert_eq!(goal(asked), given, "{asked}");
        }
        let mut ns = 100_000.0_f64;
        while ns < 3.0e12 {
            assert!(goal(ns) as f64 >= ns && (goal(ns) as f64) < ns * 1.34, "{ns}: {}", goal(ns));
            ns *= 1.07;
        }
    }
}
