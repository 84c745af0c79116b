//! Nodes of Python in chains: what they publish is seen, what they compute is not.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::turtlebot::system;
use takt_manager::plan::{ChainPlan, ChainState, Platform};
use takt_manager::{Goals, Manager};
use takt_model::{Model, NodeId, Subscribed};

fn plan(model: &Model, start: &str, end: &str) -> ChainPlan {
    let text = format!("[[chain]]\nname = \"it\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal = \"900 ms\"\n");
    let goals = Goals::parse(&text, "goals").unwrap();
    let mut plan = Manager::new(goals, Platform::new(vec![1, 2], 0, 0.95)).plan(model);
    plan.chains.remove(0)
}

fn node(model: &Model, name: &str) -> NodeId {
    NodeId(model.nodes.iter().position(|node| node.name == name).unwrap())
}

#[test]
fn a_chain_begins_at_a_node_of_python_and_ends_before_one() {
    let mut model = system(0).exact_model();
    let ends_there = |model: &Model, start: &str, end: &str| {
        let ChainState::NotAnalysable { why } = plan(model, start, end).state else { return false };
        assert!(why.starts_with("ends in Python: "), "{why}");
        true
    };
    for end in ["/camera:/rgb", "/camera", "/rgb"] {
        assert!(!ends_there(&model, "/camera:/rgb", end), "{end}");
    }
    model.python.nodes.push(node(&model, "/camera"));
    assert_eq!(plan(&model, "/camera:/rgb", "/tracker").state, ChainState::Guaranteed);
    for end in ["/camera:/rgb", "/camera", "/rgb", "camera:what it has not"] {
        assert!(ends_there(&model, "/camera:/rgb", end), "{end}");
    }

    // The tracker is of Python instead: nothing of it is seen but that it subscribes.
    let mut model = system(0).exact_model();
    let rgb = model.topics.iter().position(|topic| topic.name == "/rgb").unwrap();
    let tracker = node(&model, "/tracker");
    model.topics[rgb].subscribers.retain(|id| model.callbacks[id.0].node != Some(tracker));
    let unconnected = plan(&model, "/camera:/rgb", "/tracker").state;
    assert!(matches!(unconnected, ChainState::NotFound { .. }), "{unconnected:?}");
    model.python.nodes.push(tracker);
    model.python.subscribed.push(Subscribed { topic: takt_model::TopicId(rgb), nodes: vec![tracker] });
    assert!(ends_there(&model, "/camera:/rgb", "/tracker"));
    // On the way to another one's.
    let other = model.callbacks.iter().find(|callback| callback.node != Some(tracker)).unwrap().name.clone();
    let beyond = plan(&model, "/camera:/rgb", &other);
    if let ChainState::NotAnalysable { why } = &beyond.state {
        assert!(why.contains("/tracker on /rgb"), "{why}");
    } else {
        // It is the source itself.
        assert_eq!(beyond.path_names.len(), 1, "{beyond:?}");
    }
}
