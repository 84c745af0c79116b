//! Message filters: several subscriptions of a node of which only the last one to get its message
//! publishes (*ROS-Llama*, section VII.A.a).
//!
//! Each of them keeps its edge, since each may be the last, and so its cost and what it activates
//! are covered. What is not covered is how long the first waits for the others: that no analysis at
//! hand bounds. So a chain may end at such a subscription or begin behind the filter, but not pass
//! through.

//!
//! Where their symbols say that subscriptions are entrances to a filter, none of that is inferred
//! from counts, and a chain may pass through the entrance that **leads**: what all others wait for
//! comes to it by a longer way from where their own messages come from (an image and what was
//! detected in it), and no joint message was ever published by another.

use std::collections::{BTreeMap, BTreeSet};

use super::Extractor;
use super::join::is_entrance;
use super::state::Origin;
use crate::{CallbackId, CallbackKind, Model, TopicId, Unanalysable};

/// Activations of each subscription before a pattern is believed.
const ENOUGH: u64 = 10;

/// A subscription: its activations, and how many of them published.
type Member = (CallbackId, u64, u64);

/// The entrances to message filters, by node, where there are several.
fn entrances(extractor: &Extractor, ids: &BTreeMap<usize, CallbackId>) -> BTreeMap<usize, Vec<usize>> {
    let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &slot in ids.keys() {
        let callback = &extractor.tables.callbacks[slot];
        if is_entrance(callback)
            && let Some(node) = extractor.tables.node_of_callback(callback)
        {
            all.entry(node).or_default().push(slot);
        }
    }
    all.retain(|_, members| members.len() > 1);
    all
}

/// Each entrance to a filter may be the one whose message comes last: it publishes what any of them
/// was seen to publish.
pub(super) fn spread(extractor: &Extractor, ids: &BTreeMap<usize, CallbackId>, model: &mut Model) {
    for members in entrances(extractor, ids).values() {
        let joint: BTreeSet<TopicId> =
            members.iter().flat_map(|slot| model.callbacks[ids[slot].0].publishes.clone()).collect();
        for slot in members {
            let publishes = &mut model.callbacks[ids[slot].0].publishes;
            let more: Vec<TopicId> =
                joint.iter().filter(|topic| !publishes.contains(topic)).copied().collect();
            publishes.extend(more);
        }
    }
}

/// All callbacks that lead to those that publish to `topic`, they included.
fn before(model: &Model, topic: TopicId) -> BTreeSet<CallbackId> {
    let mut found = BTreeSet::new();
    let mut open = model.topics[topic.0].publishers.clone();
    while let Some(callback) = open.pop() {
        if !found.insert(callback) {
            continue;
        }
        if let CallbackKind::Subscription { topic }
        | CallbackKind::Service { requests: topic }
        | CallbackKind::Client { responses: topic } = model.callbacks[callback.0].kind
        {
            open.extend(&model.topics[topic.0].publishers);
        }
    }
    found
}

/// The entrance whose message always comes last, and has to.
fn leader(
    extractor: &Extractor,
    ids: &BTreeMap<usize, CallbackId>,
    members: &[usize],
    model: &Model,
) -> Option<usize> {
    let published = |slot: &usize| {
        let edges = &extractor.tables.callbacks[*slot].publishes;
        edges.iter().fold(0_u64, |sum, edge| sum.saturating_add(edge.publications))
    };
    let mut publish = members.iter().filter(|slot| published(slot) > 0);
    let leader = publish.next().filter(|slot| published(slot) >= ENOUGH)?;
    if publish.next().is_some() {
        return None;
    }
    let input = |slot: &usize| match model.callbacks[ids[slot].0].kind {
        CallbackKind::Subscription { topic } => Some(topic),
        _ => None,
    };
    let topic = input(leader)?;
    let before_it = before(model, topic);
    let publishers = &model.topics[topic.0].publishers;
    // The others' messages are published before the leader's are, on their way to it.
    let earlier = |slot: &usize| {
        let theirs = input(slot).map(|topic| &model.topics[topic.0].publishers);
        theirs.is_some_and(|theirs| {
            !theirs.is_empty() && theirs.iter().all(|p| before_it.contains(p) && !publishers.contains(p))
        })
    };
    members.iter().filter(|slot| *slot != leader).all(earlier).then_some(*leader)
}

/// Names what filters leave without a bound, of those that are known by their callbacks' symbols.
fn by_symbol(extractor: &Extractor, ids: &BTreeMap<usize, CallbackId>, model: &mut Model) {
    for members in entrances(extractor, ids).values() {
        let name = |slot: &usize| model.callbacks[ids[slot].0].name.clone();
        let mut names: Vec<String> = members.iter().map(name).collect();
        // The order of registration is not the same in each run.
        names.sort_unstable();
        let leader = leader(extractor, ids, members, model);
        let waiting = members.iter().filter(|slot| Some(**slot) != leader).map(|slot| ids[slot]);
        let waiting: Vec<CallbackId> = waiting.collect();
        let publishes: Vec<TopicId> =
            waiting.first().map_or(Vec::new(), |c| model.callbacks[c.0].publishes.clone());
        for topic in publishes {
            let way_out = match &leader {
                Some(leader) => format!("Declare the chain over {}, for which the others wait", name(leader)),
                None => "Declare the parts before and after it as separate chains".to_owned(),
            };
            model.unanalysable.push(Unanalysable {
                callbacks: waiting.clone(),
                towards: Some(topic),
                reason: format!(
                    "{} are joined by a message filter on their way to {}: whichever comes last publishes, and how long one waits for the \
                     other has no bound. {way_out}",
                    names.join(", "),
                    model.topics[topic.0].name,
                ),
            });
        }
    }
}

/// Names the filters among the callbacks (`ids`: from slots to the model).
pub(super) fn find(
    extractor: &Extractor,
    ids: &BTreeMap<usize, CallbackId>,
    topics: &BTreeMap<usize, crate::TopicId>,
    model: &mut Model,
) {
    by_symbol(extractor, ids, model);
    // By node and topic: the subscriptions that publish to it.
    let mut groups: BTreeMap<(usize, usize), Vec<Member>> = BTreeMap::new();
    for (&slot, &id) in ids {
        let callback = &extractor.tables.callbacks[slot];
        if is_entrance(callback) {
            continue;
        }
        let (Origin::Subscription { .. }, Some(node)) =
            (&callback.origin, extractor.tables.node_of_callback(callback))
        else {
            continue;
        };
        for edge in &callback.publishes {
            let topic = extractor.tables.topic(edge.topic);
            groups.entry((node, topic)).or_default().push((id, callback.activations, edge.activations));
        }
    }
    for ((_, topic), members) in groups {
        let Some(&topic) = topics.get(&topic) else { continue };
        let least = members.iter().map(|m| m.1).min().unwrap_or(0);
        let published: u64 = members.iter().map(|m| m.2).sum();
        // One joint publication for one message of each, and none that always publishes.
        let joint = published <= least + least / 10;
        let in_turn = members.iter().all(|&(_, activations, published)| published * 10 < activations * 9);
        if members.len() < 2 || least < ENOUGH || !joint || !in_turn {
            continue;
        }
        let names: Vec<&str> = members.iter().map(|m| model.callbacks[m.0.0].name.as_str()).collect();
        let reason = format!(
            "{} publish to {} in turn, whichever comes last: a message filter joins them, and how long one waits for the \
             other has no bound. Declare the parts before and after it as separate chains",
            names.join(", "),
            model.topics[topic.0].name,
        );
        model.unanalysable.push(Unanalysable {
            callbacks: members.iter().map(|m| m.0).collect(),
            towards: Some(topic),
            reason,
        });
    }
}
