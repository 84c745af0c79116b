//! Callbacks that were released and did not run.
//!
//! Nodes that were there before the observer have timers that were never seen to run: a timer of a
//! minute, seen for ten seconds. Its execution time is not zero but unknown, and its first run
//! would break every bound that was built on zero. So it is reported in
//! [`Model::not_run`](crate::Model::not_run), and nothing is guaranteed beside it until it ran.
//!
//! Only timers: they come whatever else happens. A subscription or a service without a message so
//! far was assumed to get none, which is watched like any other arrival (default nodes have half a
//! dozen parameter services each that nobody ever calls).
//!
//! A timer can be **cancelled**, and then never runs; no event shows. One that did not run for
//! [`PERIODS`] of its periods, and for [`MIN_NS`], while its executor ran other callbacks, is
//! taken to stand still. Should it run after all, that is an execution time above its curve.
//!
//! # Passed over
//!
//! A callback that was released and did not run while its executor ran others may be starved: two
//! timers in one exclusive group that take longer than their periods (one of them runs, always the
//! same), a subscription beside a timer that is always due. For a chain through it every release is
//! late, from the first on. It stands in [`Model::never_ran`](crate::Model::never_ran), or, if it
//! ran before, in [`Model::stopped`](crate::Model::stopped). Its chain cannot be known by what was
//! published, so [`Model::silent`](crate::Model::silent) has what its node could publish.
//!
//! A message releases the callbacks of its topic [`DISCOVERED_NS`] after these were made. Whether
//! the middleware delivered it is not known: qualities of service that do not match look the same.

use std::collections::BTreeMap;

use super::Extractor;
use super::startup::SETTLED_NS;
use super::state::{CallbackState, Origin, Unheard};
use crate::{CallbackId, Executor, ExecutorId, Model, NodeId, PassedOver, Silent, TopicId};

/// So many periods without a run: ten, since a timer behind others in a crowded executor misses
/// some, and not that many in a row.
const PERIODS: u64 = 10;
/// And so long, whatever its period is: ten seconds, in which any executor gets round.
const MIN_NS: u64 = 10_000_000_000;
/// Messages to a subscription that was just made may come before its publisher knows of it.
const DISCOVERED_NS: u64 = SETTLED_NS;
/// Messages whose times are kept: more wait in no queue within a goal.
const MAX_NEWEST: usize = 1024;

impl Unheard {
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.newest_ns.clear();
    }

    fn comes(&mut self, at_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        }
        self.count += 1;
        if self.newest_ns.len() == MAX_NEWEST {
            self.newest_ns.pop_front();
        }
        self.newest_ns.push_back(at_ns);
    }
}

impl Extractor {
    /// Messages on `topic` release the callback `index`.
    pub(super) fn is_released_by(&mut self, topic: usize, index: usize) {
        let topic = self.tables.topic(topic);
        let callback = &mut self.tables.callbacks[index];
        if callback.unheard.is_none() {
            callback.unheard = Some(Box::default());
            self.tables.topics[topic].releases.push((index, callback.order));
        }
    }

    /// A message was published on `topic`.
    pub(super) fn comes(&mut self, topic: usize, at_ns: u64) {
        let callbacks = &mut self.tables.callbacks;
        self.tables.topics[topic].releases.retain(|&(index, order)| {
            let Some(callback) = callbacks.get_mut(index).filter(|callback| callback.order == order) else {
                return false;
            };
            let made_ns = callback.known_ns;
            match callback.unheard.as_mut().filter(|_| callback.dead.is_none()) {
                Some(unheard) if at_ns.saturating_sub(made_ns) >= DISCOVERED_NS => unheard.comes(at_ns),
                Some(_) => {}
                None => return false,
            }
            true
        });
    }

    /// Whether a callback of the process was released and never ran: what is known of it goes with
    /// its threads.
    pub(super) fn has_unrun(&self, pid: u32, at_ns: u64) -> bool {
        self.tables.callbacks.iter().any(|(_, callback)| {
            let due = callback.grid.as_ref().and_then(|grid| grid.next_ns());
            let is_due = due.is_some_and(|due_ns| due_ns < at_ns);
            let is_waited_for = callback.unheard.as_ref().is_some_and(|unheard| unheard.count > 0);
            callback.pid == pid && callback.dead.is_none() && (is_due || is_waited_for)
        })
    }
}

/// Puts them into the model.
pub(super) fn fill(
    extractor: &Extractor,
    now_ns: u64,
    ids: &BTreeMap<usize, CallbackId>,
    (nodes, topics): (&BTreeMap<usize, NodeId>, &BTreeMap<usize, TopicId>),
    model: &mut Model,
) {
    let tables = &extractor.tables;
    let until: Vec<Option<u64>> =
        model.executors.iter().map(|executor| busy_until(extractor, executor, now_ns, model)).collect();
    let mut unrun_nodes = Vec::new();
    for (&slot, &id) in ids {
        let callback = &tables.callbacks[slot];
        let executor = model.callbacks[id.0].executor;
        let never = callback.activations == 0 && callback.cost.seen() == 0;
        if never {
            unrun_nodes.extend(tables.node_of_callback(callback));
        }
        let passed_over = match callback.origin {
            Origin::Timer { timer } => {
                let Some(timer) = tables.timers.get(timer) else { continue };
                let Some(period_ns) = timer.period_ns else { continue };
                if never && !stands_still(callback, period_ns, executor, now_ns, model) {
                    model.not_run.push(id);
                }
                // Of one that was there before the observer nobody knows when it was due.
                let due_ns = callback.grid.as_ref().and_then(|grid| match never {
                    true => timer.created_ns.checked_add(period_ns),
                    false => grid.next_ns(),
                });
                due_ns.and_then(|due_ns| timer_passed_over(extractor, period_ns, due_ns, until[executor.0]))
            }
            _ => messages_passed_over(callback, until[executor.0]),
        };
        let Some(passed_over) = passed_over else { continue };
        let others_ran = others_ran(extractor, &model.executors[executor.0], model);
        let passed_over = PassedOver { callback: id, others_ran, ..passed_over };
        if never {
            model.never_ran.push(passed_over);
        } else if passed_over.releases >= PERIODS {
            model.stopped.push(passed_over);
        }
    }
    if model.never_ran.is_empty() {
        return;
    }
    unrun_nodes.sort_unstable();
    unrun_nodes.dedup();
    model.silent = silent(extractor, &unrun_nodes, nodes, topics);
}

/// Whether a timer that never ran is taken for cancelled.
fn stands_still(
    callback: &CallbackState,
    period_ns: u64,
    executor: ExecutorId,
    now_ns: u64,
    model: &Model,
) -> bool {
    let spins = model.executors[executor.0].callbacks.iter().any(|c| model.callbacks[c.0].cost.seen > 0);
    let patience_ns = period_ns.saturating_mul(PERIODS).max(MIN_NS);
    spins && now_ns.saturating_sub(callback.known_ns) > patience_ns
}

/// When the executor last began to run a callback: what was released before was passed over. With
/// one thread, how long it was in one: nothing else could run.
fn busy_until(extractor: &Extractor, executor: &Executor, now_ns: u64, model: &Model) -> Option<u64> {
    let tables = &extractor.tables;
    let threads = executor.threads.iter().filter_map(|id| model.threads.get(id.0));
    let states = threads.filter_map(|thread| tables.thread_of.get(&(thread.pid, thread.tid)));
    let mut states = states.filter_map(|&thread| tables.threads.get(thread));
    if let [_] = executor.threads[..] {
        let only = states.next()?;
        let ended_ns = only.ends.iter().map(|(_, ended_ns)| *ended_ns).max();
        return if only.stack.is_empty() { ended_ns } else { Some(now_ns) };
    }
    states.flat_map(|thread| &thread.ends).map(|(started_ns, _)| *started_ns).max()
}

fn others_ran(extractor: &Extractor, executor: &Executor, model: &Model) -> u64 {
    let tables = &extractor.tables;
    let threads = executor.threads.iter().filter_map(|id| model.threads.get(id.0));
    let states = threads.filter_map(|thread| tables.thread_of.get(&(thread.pid, thread.tid)));
    let under_way =
        states.filter_map(|&thread| tables.threads.get(thread)).filter(|thread| !thread.stack.is_empty());
    let ended = executor.callbacks.iter().map(|other| model.callbacks[other.0].cost.seen);
    ended.fold(under_way.count() as u64, u64::saturating_add)
}

fn timer_passed_over(
    extractor: &Extractor,
    period_ns: u64,
    first_release_ns: u64,
    until_ns: Option<u64>,
) -> Option<PassedOver> {
    let until_ns = until_ns?;
    let due = until_ns.checked_sub(first_release_ns)? / period_ns + 1;
    // As many as fit into what was recorded, where something was not.
    let recorded_ns = extractor.gaps().recorded_ns(first_release_ns, until_ns);
    let releases = due.min(recorded_ns / period_ns + 1);
    let (period_ns, newest_ns) = (Some(period_ns), Vec::new());
    let (callback, others_ran) = (CallbackId(0), 0);
    Some(PassedOver { callback, period_ns, first_release_ns, until_ns, releases, newest_ns, others_ran })
}

fn messages_passed_over(callback: &CallbackState, until_ns: Option<u64>) -> Option<PassedOver> {
    let unheard = callback.unheard.as_ref().filter(|unheard| unheard.count > 0)?;
    let until_ns = until_ns?;
    let newest_ns: Vec<u64> = unheard.newest_ns.iter().copied().filter(|&ns| ns <= until_ns).collect();
    let after = (unheard.newest_ns.len() - newest_ns.len()) as u64;
    let releases = unheard.count.saturating_sub(after);
    let (first_release_ns, period_ns) = (unheard.first_ns, None);
    let (callback, others_ran) = (CallbackId(0), 0);
    let passed_over =
        PassedOver { callback, period_ns, first_release_ns, until_ns, releases, newest_ns, others_ran };
    (releases > 0).then_some(passed_over)
}

/// What these nodes can publish on and never did.
fn silent(
    extractor: &Extractor,
    unrun_nodes: &[usize],
    nodes: &BTreeMap<usize, NodeId>,
    topics: &BTreeMap<usize, TopicId>,
) -> Vec<Silent> {
    let tables = &extractor.tables;
    let one = |&node: &usize| {
        let pid = tables.nodes.get(node)?.pid;
        let published: Vec<usize> = tables
            .callbacks
            .iter()
            .filter(|(_, other)| other.pid == pid)
            .flat_map(|(_, other)| other.publishes.iter().map(|edge| tables.topic(edge.topic)))
            .collect();
        let silent = tables
            .publishers
            .iter()
            .filter(|(_, publisher)| publisher.node == Some(node))
            .map(|(_, publisher)| tables.topic(publisher.topic))
            .filter(|topic| !published.contains(topic))
            .filter_map(|topic| topics.get(&topic).copied());
        let mut silent: Vec<TopicId> = silent.collect();
        silent.sort_unstable();
        silent.dedup();
        let node = *nodes.get(&node)?;
        (!silent.is_empty()).then_some(Silent { node, topics: silent })
    };
    unrun_nodes.iter().filter_map(one).collect()
}
