//! Chains that a model shows, those worth a goal first.
//!
//! A chain runs from a callback that nothing observed activates (a timer, a source, a subscription
//! whose publishers are not observed) to one that activates nothing. Parts of every ROS 2 node
//! (parameter services and events, log, simulated time, life cycle) belong to none of them.

use std::collections::{BTreeMap, BTreeSet};

use takt_model::{Callback, Model};

use crate::chains;
use crate::infrastructure::{activating, is_brought_along, is_infrastructure};

/// Pairs of ends that are looked at for each chain that is wanted: enough to choose from, and a
/// bound on a dense graph's cost.
const LOOKED_AT: usize = 4;

/// A chain by its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// From the names of its nodes, unique among the candidates.
    pub name: String,
    /// The name of its first callback, as a goals file takes it.
    pub start: String,
    /// The name of its last callback.
    pub end: String,
    /// All ways between them, the longest first.
    pub paths: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selected {
    /// At most as many as were asked for.
    pub chains: Vec<Candidate>,
    /// Pairs of ends that were left out.
    pub left_out: usize,
}

/// The chains of `model`, at most `most`: those first that cross most executors, then those with
/// most callbacks, then those that are activated most often.
#[must_use]
pub fn select(model: &Model, most: usize) -> Selected {
    let count = model.callbacks.len();
    let counts: Vec<bool> = model.callbacks.iter().map(|callback| is_work(model, callback)).collect();
    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
    let mut activated = vec![false; count];
    for topic in model.topics.iter().filter(|topic| !is_infrastructure(&topic.name)) {
        let alive = |id: &takt_model::CallbackId| counts.get(id.0) == Some(&true);
        let subscribers: Vec<usize> =
            topic.subscribers.iter().filter(|id| alive(id)).map(|id| id.0).collect();
        for publisher in topic.publishers.iter().filter(|id| alive(id)) {
            after[publisher.0].extend(&subscribers);
            subscribers.iter().for_each(|to| activated[*to] = true);
        }
    }
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    for root in (0..count).filter(|&c| counts[c] && !activated[c]) {
        pairs.extend(sinks(&after, root).into_iter().map(|(sink, hops)| (root, sink, hops)));
    }
    let seen = |c: usize| model.callbacks[c].arrivals.seen;
    pairs.sort_by_key(|&(root, sink, hops)| {
        (std::cmp::Reverse(hops), std::cmp::Reverse(seen(root).min(seen(sink))), root, sink)
    });
    let all = pairs.len();
    let mut found: Vec<(usize, usize, Candidate)> = pairs
        .into_iter()
        .take(most.saturating_mul(LOOKED_AT))
        .filter_map(|(root, sink, _)| Some((root, sink, candidate(model, root, sink)?)))
        .collect();
    found.sort_by_key(|(root, sink, chain)| {
        let longest = chain.paths.first().map_or(&[][..], Vec::as_slice);
        let executors: BTreeSet<_> = longest.iter().map(|c| model.callbacks[*c].executor).collect();
        (
            std::cmp::Reverse(executors.len()),
            std::cmp::Reverse(longest.len()),
            std::cmp::Reverse(seen(*root).min(seen(*sink))),
            chain.start.clone(),
            chain.end.clone(),
        )
    });
    found.truncate(most);
    let left_out = all - found.len();
    let mut chains: Vec<Candidate> = Vec::with_capacity(found.len());
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (root, sink, mut chain) in found {
        chain.name = unique(&mut names, name_of(model, root, sink));
        chains.push(chain);
    }
    Selected { chains, left_out }
}

/// It ran, and does what this node alone does.
fn is_work(model: &Model, callback: &Callback) -> bool {
    if callback.arrivals.seen == 0 && callback.cost.seen == 0 {
        return false;
    }
    !is_brought_along(model, callback)
}

/// Callbacks without successors that are reached from `root`, and in how many steps at least.
fn sinks(after: &[BTreeSet<usize>], root: usize) -> Vec<(usize, usize)> {
    let mut hops = BTreeMap::from([(root, 0_usize)]);
    let mut open = std::collections::VecDeque::from([root]);
    let mut found = Vec::new();
    while let Some(at) = open.pop_front() {
        let distance = hops[&at];
        if after[at].is_empty() {
            found.push((at, distance));
        }
        for &next in &after[at] {
            hops.entry(next).or_insert_with(|| {
                open.push_back(next);
                distance + 1
            });
        }
    }
    found
}

/// The chain, if a goals file that names its two callbacks finds it and nothing else.
fn candidate(model: &Model, root: usize, sink: usize) -> Option<Candidate> {
    let [start, end] = [root, sink].map(|c| model.callbacks[c].name.clone());
    let paths = chains::paths(model, &start, &end).ok()?;
    let fits = paths.iter().all(|path| path.first() == Some(&root) && path.last() == Some(&sink));
    fits.then_some(Candidate { name: String::new(), start, end, paths })
}

fn name_of(model: &Model, root: usize, sink: usize) -> String {
    let short = |c: usize| {
        let callback = &model.callbacks[c];
        let node = callback.node.and_then(|node| model.nodes.get(node.0)).map(|node| node.name.as_str());
        let text = node.unwrap_or_else(|| callback.name.split(' ').next_back().unwrap_or(&callback.name));
        plain(text.rsplit('/').find(|part| !part.is_empty()).unwrap_or(text))
    };
    let topic = |c: usize| {
        let callback = &model.callbacks[c];
        let text = activating(model, callback).or_else(|| callback.name.split(' ').next_back());
        plain(text.and_then(|text| text.rsplit('/').find(|part| !part.is_empty())).unwrap_or("work"))
    };
    if root == sink {
        format!("{}-{}", short(root), topic(root))
    } else {
        format!("{}-to-{}", short(root), short(sink))
    }
}

/// Letters, digits and `_` as they are, everything else `-`.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "chain".to_owned() } else { text.to_owned() }
}

fn unique(names: &mut BTreeMap<String, usize>, name: String) -> String {
    let mut chosen = name.clone();
    while names.contains_key(&chosen) {
        let count = names.entry(name.clone()).or_insert(1);
        *count += 1;
        chosen = format!("{name}-{count}");
    }
    names.insert(chosen.clone(), 1);
    chosen
}
