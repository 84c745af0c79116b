//! Message filters: several subscriptions of a node of which only the last one to get its message publishes (*ROS-Llama*, section
//! VII.A.a).
//!
//! Each of them keeps its edge, since each may be the last, and so its cost and what it activates are covered. What is not covered is how long
//! the first waits for the others: that no analysis at hand bounds. So a chain may end at such a subscription or begin behind
//! the filter, but not pass through.

use std::collections::BTreeMap;

use super::Extractor;
use super::state::Origin;
use crate::{CallbackId, Model, Unanalysable};

/// Activations of each subscription before a pattern is believed.
const ENOUGH: u64 = 10;

/// A subscription: its activations, and how many of them published.
type Member = (CallbackId, u64, u64);

/// Names the filters among the callbacks (`ids`: from slots to the model).
pub(super) fn find(
    extractor: &Extractor,
    ids: &BTreeMap<usize, CallbackId>,
    topics: &BTreeMap<usize, crate::TopicId>,
    model: &mut Model,
) {
    // By node and topic: the subscriptions that publish to it.
    let mut groups: BTreeMap<(usize, usize), Vec<Member>> = BTreeMap::new();
    for (&slot, &id) in ids {
        let callback = &extractor.tables.callbacks[slot];
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
