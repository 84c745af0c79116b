//! A real recording: nodes of ROS 2 Galactic, recorded by LTTng with CARET's tracepoints, and the
//! architecture file that CARET made of them. What the extractor finds must be what CARET found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use takt_model::{CallbackKind, ExecutorKind, Extractor, Model, Options, Reorder};
use takt_ros::ctf::Recording;
use takt_ros::event::Source as _;

fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../takt-ros/tests/data/caret-end-to-end")
}

fn model() -> (Model, takt_model::Counters) {
    let mut recording = Recording::open(data()).expect("the recording is part of the repository");
    let mut extractor = Extractor::new(Options { keep_ended: true, ..Options::default() });
    let (mut reorder, mut last_ns) = (Reorder::default(), 0);
    while !recording.ended() {
        recording
            .poll(&mut |event| {
                last_ns = last_ns.max(event.at_ns);
                reorder.push(event);
            })
            .expect("a sound recording");
    }
    reorder.finish(|event| extractor.event(event));
    (extractor.snapshot(last_ns), extractor.counters())
}

/// Callbacks of the architecture file: by node, what activates them. And which topics each node
/// publishes, with whether CARET knew the callback.
#[derive(Debug, Default, PartialEq, Eq)]
struct Architecture {
    callbacks: BTreeMap<String, BTreeSet<String>>,
    publishes: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the lines of the file that matter here; it is not a reader of YAML.
fn architecture() -> Architecture {
    let text = std::fs::read_to_string(data().join("architecture.yaml")).expect("beside the recording");
    let nodes = &text[text.find("\nnodes:").expect("a list of nodes")..];
    let mut found = Architecture::default();
    let (mut node, mut list) = (String::new(), String::new());
    for line in nodes.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("- ").unwrap_or(line);
        let Some((key, value)) = line.split_once(": ").or_else(|| line.split_once(':')) else { continue };
        let value = value.trim();
        match (key, list.as_str()) {
            ("node_name", _) => {
                node = value.to_owned();
                found.callbacks.entry(node.clone()).or_default();
            }
            (
                "callbacks" | "publishes" | "subscribes" | "message_contexts" | "callback_groups"
                | "variable_passings",
                _,
            ) => {
                list = key.to_owned();
            }
            ("period_ns", "callbacks") => {
                found.callbacks.entry(node.clone()).or_default().insert(format!("timer {value}"));
            }
            ("topic_name", "callbacks") => {
                found.callbacks.entry(node.clone()).or_default().insert(format!("subscription {value}"));
            }
            ("topic_name", "publishes") => {
                found.publishes.entry(node.clone()).or_default().insert(value.to_owned());
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_architecture_of_a_real_recording_is_found() {
    let (model, counters) = model();
    println!("{}\n{counters:?}", model.to_text());
    let expected = architecture();
    assert_eq!(expected.callbacks.len(), 6, "{expected:?}");

    let mut found = Architecture::default();
    for node in &model.nodes {
        if expected.callbacks.contains_key(&node.name) {
            found.callbacks.entry(node.name.clone()).or_default();
        }
    }
    // CARET leaves out what every node brings.
    let own = |callback: &&takt_model::Callback| {
        callback.cost.seen > 0 && !callback.name.ends_with(" /parameter_events")
    };
    for callback in model.callbacks.iter().filter(own) {
        let Some(node) = callback.node.map(|id| model.nodes[id.0].name.clone()) else {
            panic!("{} has no node", callback.name)
        };
        let what = match callback.kind {
            CallbackKind::Timer { period_ns } => format!("timer {period_ns}"),
            CallbackKind::Subscription { topic } => format!("subscription {}", model.topics[topic.0].name),
            other => panic!("{}: {other:?}", callback.name),
        };
        found.callbacks.entry(node.clone()).or_default().insert(what);
        for topic in &callback.publishes {
            found.publishes.entry(node.clone()).or_default().insert(model.topics[topic.0].name.clone());
        }
    }
    assert_eq!(found, expected);

    // One multi-threaded executor serves all, and is said not to be analysable.
    let executors: Vec<_> = model
        .executors
        .iter()
        .filter(|executor| executor.callbacks.iter().any(|id| model.callbacks[id.0].cost.seen > 0))
        .collect();
    assert_eq!(executors.len(), 1, "{executors:?}");
    assert_eq!(executors[0].kind, ExecutorKind::MultiThreaded);
    assert!(
        model.unanalysable.iter().any(|u| u.reason.contains("multi-threaded")),
        "{:?}",
        model.unanalysable
    );

    // Wall time, and said to be so.
    assert!(model.callbacks.iter().all(|callback| !callback.cost.cpu_time));
    assert_eq!((counters.refused, counters.clock_steps), (0, 0));
}
