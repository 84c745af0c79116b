//! Chains whose beginning never ran.
//!
//! Chains are found by what ran: a timer that never ran leads nowhere, and its chain is "not
//! found". Where the timer was due, and its executor ran others meanwhile, each of its releases is
//! late all the same. Which timer a chain would begin with is known where the goals name it, or
//! name a topic on which its node can publish and never did.

use takt_model::{Callback, Model, NeverRan, Topic};

use crate::chains::resolved_start;
use crate::goals::Goals;
use crate::plan::{ChainState, Plan};
use crate::words::ms;

/// The beginning of a chain that never ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverBegan {
    /// Releases that were late, by the chain's goal.
    pub late: u64,
    pub words: String,
}

/// What never ran at the beginning of each chain of which nothing was found; the plan says so.
pub(crate) fn look(model: &Model, goals: &Goals, plan: &mut Plan) -> Vec<Option<NeverBegan>> {
    let chains = goals.chains.iter().zip(&mut plan.chains);
    chains
        .map(|(chain, planned)| {
            let never = never_began(model, &chain.start, &chain.end, chain.goal_ns)?;
            if let ChainState::NotFound { why, .. } = &mut planned.state {
                *why = format!("{}. {why}", never.words);
            }
            Some(never)
        })
        .collect()
}

/// What never ran at the beginning of a chain from `start` to `end`, of which no way was found.
#[must_use]
pub fn never_began(model: &Model, start: &str, end: &str, goal_ns: u64) -> Option<NeverBegan> {
    let starts = resolved_start(model, start);
    let never = model
        .never_ran
        .iter()
        .filter(|never| begins(model, never, &starts, start, end))
        .max_by_key(|n| n.releases)?;
    let callback = model.callbacks.get(never.callback.0)?;
    // A release is late once its goal has passed while others ran.
    let judged_ns = never.until_ns.saturating_sub(goal_ns);
    let on_time =
        never.until_ns.saturating_sub(never.first_release_ns.max(judged_ns)) / never.period_ns.max(1);
    let late = never.releases.saturating_sub(on_time.min(never.releases));
    if late == 0 || judged_ns < never.first_release_ns {
        return None;
    }
    let words = format!(
        "{} has a period of {} ms and never ran, while its executor ran other callbacks {} times: {late} of its releases count as missed. \
         (If its node cancels or resets it before it is due, no event shows that; then begin the chain elsewhere)",
        callback.name,
        ms(never.period_ns),
        never.others_ran
    );
    Some(NeverBegan { late, words })
}

fn begins(model: &Model, never: &NeverRan, starts: &[usize], start: &str, end: &str) -> bool {
    let named = |name: &str| name.trim_start_matches('/').to_lowercase();
    let silent = || never.silent.iter().filter_map(|id| model.topics.get(id.0)).filter(|topic| !topic.hidden);
    // Of a callback that is named alone there is no doubt.
    if starts == [never.callback.0] {
        return true;
    }
    let node = model.callbacks.get(never.callback.0).and_then(|callback: &Callback| callback.node);
    let node = node.and_then(|id| model.nodes.get(id.0)).map(|node| named(&node.name)).unwrap_or_default();
    let (owner, what) = match start.split_once(':') {
        Some((owner, what)) => (Some(named(owner)), named(what)),
        None => (None, named(start)),
    };
    let is_owner = owner.is_none_or(|owner| node == owner || node.ends_with(&format!("/{owner}")));
    if is_owner && silent().any(|topic| named(&topic.name) == what) {
        return true;
    }
    // A node: by what it could activate, at the end of the chain or on the way there.
    let ends = named(end.rsplit(':').next().unwrap_or(end));
    let activates = |topic: &Topic| named(&topic.name) == ends;
    starts.contains(&never.callback.0) && silent().any(activates)
}
