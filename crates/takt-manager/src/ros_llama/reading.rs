//! Knowledge of the paper's analysis about a snapshot.
//!
//! Snapshots are Takt's, and so are the curves that are measured. Parts that the paper lacks are
//! removed: margins, self-suspension, the middleware's delivery (section VII.A.c: "we elided DDS
//! message propagation delay"), and messages counted over several activations.

use std::sync::Arc;

use takt_model::Model;

use crate::curves::Counts;
use crate::workload::{Order, Reading, Workload, measured_root};

/// Curves as they were measured (sections V.b and V.c): no margins, the worst seen.
pub const AS_MEASURED: Reading = Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None };

/// Reason why a chain through an executor of another kind has no bound.
const OTHER_EXECUTOR: &str =
    "its executor is not rclcpp's default one, the only one that ROS-Llama's analysis covers";

/// Whether the analysis covers executors of this order.
#[must_use]
pub fn covers(order: &Order) -> bool {
    matches!(order, Order::Alone | Order::WaitSet { .. })
}

/// Brings a model to the form of the analysis, with what the paper's analysis knows of it.
#[must_use]
pub fn workload(model: &Model) -> Workload {
    let mut workload = Workload::new(model, &AS_MEASURED);
    for callback in &mut workload.callbacks {
        callback.suspension = None;
        callback.undelivered |= callback.delivery_ns.is_some() || callback.own_delivery_ns.is_some();
        (callback.delivery_ns, callback.own_delivery_ns) = (None, None);
        // Each activation of a publisher activates its subscribers ([6]): as often as it ever
        // published in one activation.
        for (_, counts) in &mut callback.inputs {
            *counts = Arc::new(Counts::each(counts.of(1)));
        }
        let order = workload.executors.get(callback.server).map(|server| &server.order);
        if order.is_some_and(|order| !covers(order)) {
            callback.trouble.get_or_insert_with(|| OTHER_EXECUTOR.to_owned());
        }
    }
    // Section VII.A.a: what comes behind a message filter is a chain of its own, so that its
    // beginning is known by its measured arrivals. Filters are within a node.
    let filtered: Vec<usize> = workload
        .broken
        .iter()
        .filter_map(|(from, topic, _)| Some((from, model.topics.get(*topic)?)))
        .flat_map(|(from, topic)| topic.subscribers.iter().map(move |to| (*from, to.0)))
        .filter(|(from, to)| {
            let [from_there, here] = [from, to].map(|number| workload.callbacks.get(*number));
            from_there.zip(here).is_some_and(|(publisher, callback)| {
                publisher.server == callback.server && callback.inputs.iter().any(|(input, _)| input == from)
            })
        })
        .map(|(_, to)| to)
        .collect();
    for number in filtered {
        measured_root(&mut workload.callbacks[number], &model.callbacks[number], &AS_MEASURED);
    }
    workload
}
