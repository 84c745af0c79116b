//! Timers that have not run yet.
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
//! [`PERIODS`] of its periods, and for [`LEAST_NS`], while its executor ran other callbacks, is
//! taken to stand still. Should it run after all, that is an execution time above its curve.
//!
//! For a chain that begins with it, such a timer is late from its first release on: it may be
//! starved (two timers in one exclusive group that take longer than their periods: one of them
//! runs, always the same). It stands in [`Model::never_ran`](crate::Model::never_ran), with the
//! topics that its node never published on, by which the chain is known again.

use std::collections::BTreeMap;

use super::Extractor;
use super::state::{CallbackState, Origin, TimerState};
use crate::{CallbackId, Model, NeverRan, TopicId};

/// So many periods without a run: ten, since a timer behind others in a crowded executor misses
/// some, and not that many in a row.
const PERIODS: u64 = 10;
/// And so long, whatever its period is: ten seconds, in which any executor gets round.
const LEAST_NS: u64 = 10_000_000_000;

/// Puts them into the model.
pub(super) fn fill(
    extractor: &Extractor,
    now_ns: u64,
    ids: &BTreeMap<usize, CallbackId>,
    topics: &BTreeMap<usize, TopicId>,
    model: &mut Model,
) {
    let tables = &extractor.tables;
    for (&slot, &id) in ids {
        let callback = &tables.callbacks[slot];
        let Origin::Timer { timer } = callback.origin else { continue };
        let Some(timer) = tables.timers.get(timer) else { continue };
        let period_ns = timer.period_ns.unwrap_or(0);
        if callback.activations > 0 || callback.cost.seen() > 0 || period_ns == 0 {
            continue;
        }
        let executor = model.callbacks[id.0].executor;
        let spins = model.executors[executor.0].callbacks.iter().any(|c| model.callbacks[c.0].cost.seen > 0);
        let patience_ns = period_ns.saturating_mul(PERIODS).max(LEAST_NS);
        let stands_still = spins && now_ns.saturating_sub(callback.known_ns) > patience_ns;
        if !stands_still {
            model.not_run.push(id);
        }
        model.never_ran.extend(never_ran(extractor, callback, timer, (id, period_ns), topics, model));
    }
}

/// What its executor did instead, if it did anything once the timer was due.
fn never_ran(
    extractor: &Extractor,
    callback: &CallbackState,
    timer: &TimerState,
    (id, period_ns): (CallbackId, u64),
    topics: &BTreeMap<usize, TopicId>,
    model: &Model,
) -> Option<NeverRan> {
    // Of one that was there before the observer nobody knows when it was due.
    callback.grid.as_ref()?;
    let tables = &extractor.tables;
    let executor = &model.executors[model.callbacks[id.0].executor.0];
    let threads = executor.threads.iter().filter_map(|id| model.threads.get(id.0));
    let states = threads.filter_map(|thread| tables.thread_of.get(&(thread.pid, thread.tid)));
    let ends = || states.clone().filter_map(|&thread| tables.threads.get(thread)).flat_map(|it| &it.ends);
    // Of what began after the release: it was chosen in its place.
    let until_ns = ends().map(|(started_ns, _)| *started_ns).max()?;
    let first_release_ns = timer.created_ns.saturating_add(period_ns);
    let gaps = extractor.gaps();
    let due = until_ns.checked_sub(first_release_ns)? / period_ns + 1;
    // As many as fit into what was recorded, where something was not.
    let recorded_ns = gaps.recorded_ns(first_release_ns, until_ns);
    let releases = due.min(recorded_ns / period_ns + 1);
    let node = tables.node_of_callback(callback)?;
    let published: Vec<usize> = tables
        .callbacks
        .iter()
        .filter(|(_, other)| other.pid == callback.pid)
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
    let others = executor.callbacks.iter().map(|other| model.callbacks[other.0].cost.seen);
    Some(NeverRan {
        callback: id,
        period_ns,
        first_release_ns,
        until_ns,
        releases,
        others_ran: others.fold(0, u64::saturating_add),
        silent,
    })
}
