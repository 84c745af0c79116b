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

use std::collections::BTreeMap;

use super::Extractor;
use super::state::Origin;
use crate::{CallbackId, Model};

/// So many periods without a run: ten, since a timer behind others in a crowded executor misses
/// some, and not that many in a row.
const PERIODS: u64 = 10;
/// And so long, whatever its period is: ten seconds, in which any executor gets round.
const LEAST_NS: u64 = 10_000_000_000;

/// Puts them into the model.
pub(super) fn fill(extractor: &Extractor, now_ns: u64, ids: &BTreeMap<usize, CallbackId>, model: &mut Model) {
    let tables = &extractor.tables;
    for (&slot, &id) in ids {
        let callback = &tables.callbacks[slot];
        let Origin::Timer { timer } = callback.origin else { continue };
        let period_ns = tables.timers.get(timer).and_then(|timer| timer.period_ns).unwrap_or(0);
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
    }
}
