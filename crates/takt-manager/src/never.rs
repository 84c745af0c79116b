//! Chains on whose way something did not run, although it was released.
//!
//! Chains are found by what ran: a callback that never ran leads nowhere, and its chain is "not
//! found". If the callback was released, and its executor ran others in the meantime, each of its
//! releases is late nevertheless. The continuation of the chain is known by the topics on which its
//! node can publish and never did.
//!
//! A chain whose first callback ran and then stopped has no instance that could be late. Messages
//! that nobody took are late. A timer may have been cancelled, which no event shows: then nobody
//! knows whether it was starved.

use takt_model::{Callback, Model, PassedOver, Topic};

use crate::chains::PathSearch;
use crate::goals::{Chain, Goals};
use crate::infrastructure::is_infrastructure;
use crate::plan::{ChainPlan, ChainState, Plan};
use crate::words::ms;

/// A callback that keeps a chain from running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DidNotRun {
    /// Its name.
    pub callback: String,
    /// It never ran; else it ran before.
    pub never: bool,
    /// Releases that were late, by the chain's goal.
    pub late: u64,
    /// Whether these are missed for certain: a timer that ran before may have been cancelled.
    pub counts: bool,
    pub words: String,
}

/// Callbacks that did not run on the path of each chain; the plan states those that were not found.
pub(crate) fn look(model: &Model, goals: &Goals, plan: &mut Plan) -> Vec<Option<DidNotRun>> {
    let found = find(model, goals, plan);
    for (found, planned) in found.iter().zip(&mut plan.chains) {
        if let (Some(found), ChainState::NotFound { why, .. }) = (found, &mut planned.state) {
            why.clone_from(&found.words);
        }
    }
    found
}

/// The same, and the plan stays as it is.
pub(crate) fn find(model: &Model, goals: &Goals, plan: &Plan) -> Vec<Option<DidNotRun>> {
    if model.never_ran.is_empty() && model.stopped.is_empty() {
        return vec![None; goals.chains.len()];
    }
    let search = PathSearch::new(model);
    let chains = goals.chains.iter().zip(&plan.chains);
    chains
        .map(|(chain, planned)| {
            let never = || culprit(model, &search, chain).and_then(|it| did_not_run(model, it, true, chain));
            let stopped = || begins(model, planned).and_then(|it| did_not_run(model, it, false, chain));
            never().or_else(stopped)
        })
        .collect()
}

/// The first callback of a chain that was found, where it ran before and no longer does.
fn begins<'m>(model: &'m Model, planned: &ChainPlan) -> Option<&'m PassedOver> {
    let first = planned.path_names.first()?;
    let is_first = |it: &&PassedOver| model.callbacks.get(it.callback.0).is_some_and(|c| c.name == *first);
    model.stopped.iter().find(is_first)
}

fn did_not_run(model: &Model, it: &PassedOver, never: bool, chain: &Chain) -> Option<DidNotRun> {
    let callback = model.callbacks.get(it.callback.0)?;
    let late = late(it, chain.goal_ns);
    if late == 0 {
        return None;
    }
    let counts = never || it.period_ns.is_none();
    let words = format!("{} {}", callback.name, words(it, never, late));
    Some(DidNotRun { callback: callback.name.clone(), never, late, counts, words })
}

fn words(it: &PassedOver, never: bool, late: u64) -> String {
    let others = match it.others_ran {
        1 => "its executor ran other callbacks once".to_owned(),
        times => format!("its executor ran other callbacks {times} times"),
    };
    match it.period_ns {
        Some(period_ns) if never => format!(
            "has a period of {} ms but never ran, while {others}: {late} of its releases count as missed. (Its node may cancel or reset it \
             before it is due, which leaves no event; if so, begin the chain elsewhere)",
            ms(period_ns)
        ),
        Some(period_ns) => format!(
            "has a period of {} ms but no longer runs, while its executor ran other callbacks: it was due {late} times since it last ran. \
             (It was starved, or its node has cancelled it, which leaves no event)",
            ms(period_ns)
        ),
        None => format!(
            "had {} messages published for it {}, while {others}: {late} of them count as missed. (No message reaches it if the QoS \
             settings of publisher and subscription do not match)",
            it.releases,
            if never { "and never ran" } else { "since it last ran" }
        ),
    }
}

/// Number of late releases at the time when its executor last ran another callback.
fn late(it: &PassedOver, goal_ns: u64) -> u64 {
    // A release is late once its goal has passed while others ran.
    let Some(judged_ns) = it.until_ns.checked_sub(goal_ns) else { return 0 };
    if judged_ns < it.first_release_ns {
        return 0;
    }
    let on_time = match it.period_ns {
        Some(period_ns) => (it.until_ns - judged_ns) / period_ns.max(1),
        None => {
            let on_time = it.newest_ns.iter().filter(|ns| **ns > judged_ns).count();
            // Of older ones nothing is known.
            let all = on_time > 0 && on_time == it.newest_ns.len();
            if all { it.releases } else { on_time as u64 }
        }
    };
    it.releases.saturating_sub(on_time)
}

/// The callback that never ran on a way from the chain's start to its end, where such a way would
/// be.
fn culprit<'m>(model: &'m Model, search: &PathSearch<'m>, chain: &Chain) -> Option<&'m PassedOver> {
    let unrun = |callback: usize| model.never_ran.iter().find(|it| it.callback.0 == callback);
    let mut starts = search.starts(&chain.start);
    // Of a callback that is named alone there is no doubt.
    if let [only] = starts[..]
        && let Some(it) = unrun(only)
    {
        return Some(it);
    }
    let publishes = |callback: usize, asked: &str| could_publish(model, callback, asked);
    let could_begin = model.never_ran.iter().map(|it| it.callback.0).filter(|c| publishes(*c, &chain.start));
    starts.extend(could_begin);
    let ends = search.ends(&chain.end);
    let mut seen = vec![[false; 2]; model.callbacks.len()];
    let mut open: Vec<(usize, Option<&PassedOver>)> = starts.iter().map(|start| (*start, None)).collect();
    let mut found: Option<&PassedOver> = None;
    while let Some((at, before)) = open.pop() {
        let culprit = before.or_else(|| unrun(at));
        if std::mem::replace(&mut seen[at][usize::from(culprit.is_some())], true) {
            continue;
        }
        if culprit.is_some() && (ends.contains(&at) || publishes(at, &chain.end)) {
            found = [found, culprit].into_iter().flatten().max_by_key(|it| it.releases);
        }
        open.extend(search.after(at).iter().map(|next| (*next, culprit)));
        let topics = silent(model, at).flat_map(|topic| &topic.subscribers);
        open.extend(topics.map(|next| (next.0, culprit)).filter(|(next, _)| *next < seen.len()));
    }
    found
}

/// Topics that a callback that never ran could publish: those that its node can publish and never
/// did.
fn silent(model: &Model, callback: usize) -> impl Iterator<Item = &Topic> {
    let unrun = model.callbacks.get(callback).filter(|callback| callback.cost.seen == 0);
    let node = unrun.and_then(|callback| callback.node);
    let of_node = model.silent.iter().filter(move |silent| Some(silent.node) == node);
    let topics = of_node.flat_map(|silent| &silent.topics).filter_map(|id| model.topics.get(id.0));
    topics.filter(|topic| !topic.hidden && !is_infrastructure(&topic.name))
}

/// Whether `asked`, a topic or `node:topic`, names something that the callback could publish.
fn could_publish(model: &Model, callback: usize, asked: &str) -> bool {
    let named = |name: &str| name.trim_start_matches('/').to_lowercase();
    let (owner, what) = match asked.split_once(':') {
        Some((owner, what)) => (Some(named(owner)), named(what)),
        None => (None, named(asked)),
    };
    let node = model.callbacks.get(callback).and_then(|callback: &Callback| callback.node);
    let node = node.and_then(|id| model.nodes.get(id.0)).map(|node| named(&node.name)).unwrap_or_default();
    let is_owner = owner.is_none_or(|owner| node == owner || node.ends_with(&format!("/{owner}")));
    is_owner && silent(model, callback).any(|topic| named(&topic.name) == what)
}
