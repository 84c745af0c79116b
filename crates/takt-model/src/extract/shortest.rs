//! The shortest times that callbacks were seen to take, from their start to each message and to
//! their end: what a best case rests on.
//!
//! Wall time and not CPU time, since a latency is made of it. What starts up does less than what
//! runs, and does not count.

use std::collections::BTreeMap;

use super::Extractor;
use super::state::Origin;
use crate::{CallbackId, Model, Shortest, TopicId};

/// Topics remembered of one callback; to others it sends as soon as it starts, as far as is known.
const MAX_TOPICS: usize = 256;

/// Those of one callback.
#[derive(Debug, Default)]
pub(crate) struct ShortestTimes {
    end_ns: Option<u64>,
    /// By the topic's slot.
    sent: Vec<(usize, u64)>,
}

impl ShortestTimes {
    /// An activation took so long.
    pub(crate) fn ended(&mut self, took_ns: u64) {
        self.end_ns = Some(self.end_ns.map_or(took_ns, |known_ns| known_ns.min(took_ns)));
    }

    /// A message was sent so long after the start.
    pub(crate) fn sent(&mut self, topic: usize, after_ns: u64) {
        if let Some((_, known_ns)) = self.sent.iter_mut().find(|(known, _)| *known == topic) {
            *known_ns = (*known_ns).min(after_ns);
        } else if self.sent.len() < MAX_TOPICS {
            self.sent.push((topic, after_ns));
        }
    }
}

/// Puts them into the model.
pub(super) fn fill(
    extractor: &Extractor,
    ids: &BTreeMap<usize, CallbackId>,
    topics: &BTreeMap<usize, TopicId>,
    model: &mut Model,
) {
    let tables = &extractor.tables;
    for (&slot, &callback) in ids {
        let state = &tables.callbacks[slot];
        // A source's activation begins when it publishes.
        if matches!(state.origin, Origin::Source { .. }) {
            continue;
        }
        let end = state.shortest.end_ns.map(|ns| Shortest { callback, towards: None, ns });
        model.shortest.extend(end);
        let first = model.shortest.len();
        for &(topic, ns) in &state.shortest.sent {
            let Some(&topic) = topics.get(&tables.topic(topic)) else { continue };
            // Two that turned out to be one.
            match model.shortest[first..].iter_mut().find(|known| known.towards == Some(topic)) {
                Some(known) => known.ns = known.ns.min(ns),
                None => model.shortest.push(Shortest { callback, towards: Some(topic), ns }),
            }
        }
    }
}
