//! Message filters (`message_filters::TimeSynchronizer`, `ApproximateTime`): several subscriptions
//! of a node whose messages wait for one another. A chain goes on from each of them, whichever
//! comes last.
//!
//! Their callbacks are known by their symbols. Which messages a joint one was made of is reported
//! by how messages begin ([`Kind::MessageHead`]), which for messages with headers is their time
//! stamp: those that are closest to the one that the joint message repeats, or else to the one that
//! came last. Without that the newest of each count.
//!
//! [`Kind::MessageHead`]: takt_ros::event::Kind::MessageHead

use super::Extractor;
use super::state::{CallbackState, Joint, Origin, Tag, Waiting};

/// Messages that wait in one subscription's queue at most: what `message_filters` is given is ten
/// as a rule.
const MAX_WAITING: usize = 64;

/// Whether a callback is the entrance to a message filter.
pub(super) fn is_entrance(callback: &CallbackState) -> bool {
    matches!(callback.origin, Origin::Subscription { .. })
        && callback.symbol.as_ref().is_some_and(|symbol| symbol.starts_with("message_filters::"))
}

/// A header's time stamp as nanoseconds, or what stands for it.
fn stamp(head: u64) -> u64 {
    (head & 0xffff_ffff).saturating_mul(1_000_000_000).saturating_add(head >> 32)
}

fn place(waiting: &std::collections::VecDeque<Waiting>, reference: Option<u64>) -> Option<usize> {
    let newest = waiting.len().checked_sub(1);
    let Some(reference) = reference.map(stamp) else { return newest };
    let distance = |waiting: &Waiting| waiting.head.map_or(u64::MAX, |head| stamp(head).abs_diff(reference));
    // The newest of equals.
    waiting.iter().enumerate().rev().min_by_key(|(_, waiting)| distance(waiting)).map(|(i, _)| i).or(newest)
}

impl Extractor {
    /// An activation of an entrance begins: its message waits.
    pub(super) fn wait_for_partners(&mut self, index: usize, head: Option<u64>, tags: &[Tag]) {
        let callback = &mut self.tables.callbacks[index];
        if !is_entrance(callback) {
            return;
        }
        if callback.waiting.len() >= MAX_WAITING {
            callback.waiting.pop_front();
        }
        callback.waiting.push_back(Waiting { head, tags: tags.to_vec() });
    }

    /// The activation under way publishes a message that begins with `head`: if it is a filter's,
    /// finds what was joined.
    pub(super) fn join_messages(&mut self, thread: usize, head: Option<u64>) -> Option<()> {
        let frame = self.tables.threads[thread].stack.last()?;
        let (index, own) = (frame.callback, frame.head);
        let tables = &self.tables;
        let callback = tables.callbacks.get(index)?;
        if !is_entrance(callback) {
            return None;
        }
        let node = tables.node_of_callback(callback)?;
        let entrances: Vec<usize> = tables
            .callbacks
            .iter()
            .filter(|(_, c)| c.pid == callback.pid && c.dead.is_none() && is_entrance(c))
            .filter(|(_, c)| tables.node_of_callback(c) == Some(node))
            .map(|(slot, _)| slot)
            .collect();
        if entrances.len() < 2 {
            return None;
        }
        let ready = entrances.iter().filter(|&&slot| !tables.callbacks[slot].waiting.is_empty()).count();
        let again = frame.joint.as_ref().is_some_and(|joint| joint.head == head || ready < entrances.len());
        if !again {
            let waits = |head: u64| {
                let mut all = entrances.iter().flat_map(|&slot| &tables.callbacks[slot].waiting);
                all.any(|waiting| waiting.head == Some(head))
            };
            let reference = head.filter(|&head| waits(head)).or(own);
            let mut tags: Vec<Tag> = Vec::new();
            for slot in entrances {
                let waiting = &mut self.tables.callbacks[slot].waiting;
                if let Some(place) = place(waiting, reference) {
                    for joined in waiting.drain(..=place).skip(place) {
                        tags.extend(joined.tags);
                    }
                }
            }
            self.tables.threads[thread].stack.last_mut()?.joint = Some(Joint { head, tags });
        }
        Some(())
    }
}
