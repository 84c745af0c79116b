//! Activation cycles, cut with virtual topics (*ROS-Llama*, section V.a).
//!
//! A callback that publishes to its own topic (the transform library's `/tf`) does not activate
//! itself, or it would never stop. It is given a virtual topic instead, with all subscribers of the
//! real one but itself. The same holds for several callbacks that all publish to the one topic that
//! they all subscribe to: none of them activates another of them.
//!
//! Any other cycle (`a` activates `b` by one topic and `b` activates `a` by another) also ends
//! somewhere, or the robot would stand still, but nobody can distinguish where from outside. It is
//! cut too, so that all others can be analysed, and its callbacks are named as not analysable.

use std::collections::{BTreeMap, BTreeSet};

use crate::components::components;
use crate::{CallbackId, Model, Outside, Topic, TopicId, Unanalysable};

/// Cuts all cycles of callbacks over topics.
pub(super) fn cut(model: &mut Model) {
    let mut removed: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
    for (callback, c) in model.callbacks.iter().enumerate() {
        for topic in &c.publishes {
            if model.topics[topic.0].subscribers.contains(&CallbackId(callback)) {
                removed.insert((callback, topic.0, callback));
            }
        }
    }
    let next: Vec<Vec<usize>> = (0..model.callbacks.len())
        .map(|from| {
            let kept = edges(model, from).filter(|&(topic, to)| !removed.contains(&(from, topic, to)));
            kept.map(|(_, to)| to).collect::<BTreeSet<_>>().into_iter().collect()
        })
        .collect();
    for members in components(&next).into_iter().filter(|members| members.len() > 1) {
        let inside: Vec<(usize, usize, usize)> = members
            .iter()
            .flat_map(|&from| edges(model, from).map(move |(topic, to)| (from, topic, to)))
            .filter(|edge| members.contains(&edge.2) && !removed.contains(edge))
            .collect();
        let topics: BTreeSet<usize> = inside.iter().map(|edge| edge.1).collect();
        let callbacks: Vec<CallbackId> = members.iter().map(|&c| CallbackId(c)).collect();
        let names: Vec<&str> = members.iter().map(|&c| model.callbacks[c].name.as_str()).collect();
        let names = names.join(", ");
        let over: Vec<&str> = topics.iter().map(|&t| model.topics[t].name.as_str()).collect();
        let over = over.join(", ");
        if let [only] = topics.iter().copied().collect::<Vec<_>>()[..] {
            removed.extend(inside);
            model.unanalysable.push(Unanalysable {
                callbacks,
                towards: Some(TopicId(only)),
                reason: format!(
                    "{names} all subscribe and publish to {over}; they are taken not to activate each other by it, or they would \
                     never stop"
                ),
            });
        } else {
            removed.extend(back_edges(&members, &inside));
            model.unanalysable.push(Unanalysable {
                callbacks,
                towards: None,
                reason: format!(
                    "{names} activate each other in a circle over {over}; what ends it cannot be seen. Split the chain there, or \
                     break the circle"
                ),
            });
        }
    }
    insert_virtual_topics(model, &removed);
}

fn edges(model: &Model, from: usize) -> impl Iterator<Item = (usize, usize)> {
    model.callbacks[from]
        .publishes
        .iter()
        .flat_map(|topic| model.topics[topic.0].subscribers.iter().map(move |to| (topic.0, to.0)))
}

/// Edges that lead back to where a depth-first walk through the members came from.
fn back_edges(members: &[usize], inside: &[(usize, usize, usize)]) -> Vec<(usize, usize, usize)> {
    let mut next: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for &(from, topic, to) in inside {
        next.entry(from).or_default().push((topic, to));
    }
    let (mut open, mut done, mut back) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for &root in members {
        if done.contains(&root) {
            continue;
        }
        let mut work = vec![(root, 0)];
        open.insert(root);
        while let Some(&mut (at, ref mut edge)) = work.last_mut() {
            let Some(&(topic, to)) = next.get(&at).and_then(|edges| edges.get(*edge)) else {
                work.pop();
                open.remove(&at);
                done.insert(at);
                continue;
            };
            *edge += 1;
            if open.contains(&to) {
                back.push((at, topic, to));
            } else if !done.contains(&to) {
                open.insert(to);
                work.push((to, 0));
            }
        }
    }
    back
}

/// Gives every callback of a removed edge a topic of its own, without the subscribers that it does
/// not activate.
fn insert_virtual_topics(model: &mut Model, removed: &BTreeSet<(usize, usize, usize)>) {
    let mut cut: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for &(from, topic, to) in removed {
        cut.entry((from, topic)).or_default().insert(to);
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    for ((from, topic), without) in cut {
        let number = numbers.entry(topic).or_default();
        *number += 1;
        let real = &mut model.topics[topic];
        real.publishers.retain(|publisher| publisher.0 != from);
        let virtual_topic = Topic {
            name: format!("{}#{number}", real.name),
            hidden: true,
            publishers: vec![CallbackId(from)],
            subscribers: real.subscribers.iter().filter(|s| !without.contains(&s.0)).copied().collect(),
            transport: real.transport,
            outside: Outside::None,
        };
        let id = TopicId(model.topics.len());
        model.topics.push(virtual_topic);
        let callback = &mut model.callbacks[from];
        let outputs = callback.outputs.iter_mut().map(|output| &mut output.topic);
        for published in callback.publishes.iter_mut().chain(outputs) {
            if published.0 == topic {
                *published = id;
            }
        }
    }
}
