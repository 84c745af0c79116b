//! What things are called. Names are all that stays from one snapshot to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use takt_rt::duration;

use super::Extractor;
use super::state::{CallbackState, Origin};

/// What a person calls a callback, not yet unique.
pub(super) fn label(extractor: &Extractor, callback: &CallbackState) -> String {
    if let Some(name) = &callback.dead {
        return name.clone();
    }
    let tables = &extractor.tables;
    let pid = callback.pid;
    let node = |node: Option<usize>| match node.and_then(|node| tables.nodes.get(node)) {
        Some(node) => node.name.to_string(),
        None => format!("?{pid}"),
    };
    let client = |client: usize| {
        tables.clients.get(client).map(|client| format!("{} client {}", node(client.node), client.name))
    };
    let known = match &callback.origin {
        Origin::Timer { timer } => tables.timers.get(*timer).map(|timer| match timer.period_ns {
            Some(period_ns) => {
                format!("{} timer {}", node(timer.node), duration::format(Duration::from_nanos(period_ns)))
            }
            None => format!("{} timer", node(timer.node)),
        }),
        Origin::Subscription { subscription } => {
            tables.subscriptions.get(*subscription).map(|subscription| {
                format!(
                    "{} subscription {}",
                    node(subscription.node),
                    topic_name(extractor, subscription.topic)
                )
            })
        }
        Origin::Service { service } => tables
            .services
            .get(*service)
            .map(|service| format!("{} service {}", node(service.node), service.name)),
        Origin::Client { client: index } => client(*index),
        Origin::Untraced { thread } => only_client(extractor, *thread).and_then(client).or_else(|| {
            let tid = tables.threads.get(*thread)?.tid;
            Some(format!("?{pid} work without events of thread {tid}"))
        }),
        Origin::Source { .. } => {
            let topics = || callback.publishes.iter().map(|edge| topic_name(extractor, edge.topic));
            // Every node publishes to these, Python's from the thread that does all.
            let own = |name: &String| {
                !name.starts_with('?') && !["/rosout", "/parameter_events"].contains(&name.as_str())
            };
            let topic = topics().find(own).or_else(|| topics().next());
            Some(format!("{} source {}", node(callback.source_node), topic.unwrap_or_default()))
        }
        Origin::Task { name, .. } => Some(format!("task {name}")),
        Origin::Unknown { handle, intra, executed } => {
            let what = match (intra, executed) {
                (true, _) => "subscription within the process",
                (false, true) => "timer",
                (false, false) => "callback",
            };
            Some(format!("?{pid} {what} {handle:#x}"))
        }
    };
    known.unwrap_or_else(|| format!("?{pid} callback {}", callback.order))
}

pub(super) fn topic_name(extractor: &Extractor, topic: usize) -> String {
    let topic = extractor.tables.topic(topic);
    match &extractor.tables.topics[topic].name {
        Some(name) => name.to_string(),
        None => format!("?topic {topic}"),
    }
}

/// All callbacks that have not ended, in the order of their registration, with unique names.
pub(super) fn names(extractor: &Extractor) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, &CallbackState)> =
        extractor.tables.callbacks.iter().filter(|(_, c)| c.dead.is_none()).collect();
    all.sort_unstable_by_key(|(_, callback)| callback.order);
    let mut duplicates: BTreeMap<String, usize> = BTreeMap::new();
    all.into_iter()
        .map(|(index, callback)| {
            let name = label(extractor, callback);
            let count = duplicates.entry(name.clone()).or_default();
            *count += 1;
            let name = if *count == 1 { name } else { format!("{name} ({count})") };
            (index, name)
        })
        .collect()
}

/// The client that a thread's work without events must be: the only one of the nodes that the
/// thread serves.
pub(super) fn only_client(extractor: &Extractor, thread: usize) -> Option<usize> {
    let tables = &extractor.tables;
    let nodes: Vec<usize> = tables
        .callbacks
        .iter()
        .filter(|(_, c)| c.dead.is_none() && c.threads.iter().any(|&(ran, _)| ran == thread))
        .filter_map(|(_, c)| tables.node_of_callback(c))
        .collect();
    // Where steps of service calls are reported, clients have their own callbacks.
    let pid = tables.threads.get(thread)?.pid;
    if tables.callbacks.iter().any(|(_, c)| c.pid == pid && c.dead.is_none() && c.eventless) {
        return None;
    }
    let mut clients =
        tables.clients.iter().filter(|(_, client)| client.node.is_some_and(|node| nodes.contains(&node)));
    let (only, _) = clients.next()?;
    clients.next().is_none().then_some(only)
}
