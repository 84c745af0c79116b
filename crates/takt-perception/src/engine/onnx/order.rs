//! The order in which nodes can run, and the operators that are not accepted.

use std::collections::{HashMap, HashSet};

use super::model::{Graph, Node};
use super::{OnnxError, short};

/// The indices of a graph's nodes in an order in which every node follows those that it needs.
/// Nearly always 0, 1, 2 …, as ONNX demands.
///
/// # Errors
/// There is no such order, two nodes give the same value, or the graph contains a loop.
pub(super) fn sorted(graph: &Graph) -> Result<Vec<usize>, OnnxError> {
    sorted_in(graph, &HashSet::new())
}

/// The same for a subgraph of a graph that was found to have an order.
pub(super) fn sorted_inner(graph: &Graph) -> Vec<usize> {
    let own: HashSet<&str> = graph.nodes.iter().flat_map(|node| node.outputs.iter().copied()).collect();
    let outer = graph.nodes.iter().flat_map(needs).filter(|value| !own.contains(value)).collect();
    sorted_in(graph, &outer).unwrap_or_default()
}

fn sorted_in(graph: &Graph, outer: &HashSet<&str>) -> Result<Vec<usize>, OnnxError> {
    let mut known: HashSet<&str> = outer.clone();
    known.extend(graph.inputs.iter().map(|input| input.name));
    known.extend(graph.initializers.iter().map(|tensor| tensor.name));
    known.insert("");
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        refuse_loops(node)?;
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            if known.contains(output) || makers.insert(output, index).is_some() {
                let what = format!("two sources of the value `{}`", short(output));
                return Err(OnnxError::Structure(what));
            }
        }
    }
    let needs: Vec<HashSet<&str>> = graph.nodes.iter().map(needs).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut missing: Vec<usize> = vec![0; graph.nodes.len()];
    for (index, needed) in needs.iter().enumerate() {
        for value in needed.iter().filter(|value| !known.contains(**value)) {
            let Some(&maker) = makers.get(value) else {
                let node = graph.nodes[index].title();
                return Err(OnnxError::Order { node, input: short(value) });
            };
            users[maker].push(index);
            missing[index] += 1;
        }
    }
    // The least index first keeps the file's own order where it is one.
    let mut ready: std::collections::BTreeSet<usize> =
        (0..graph.nodes.len()).filter(|&index| missing[index] == 0).collect();
    let mut order = Vec::with_capacity(graph.nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &user in &users[index] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.insert(user);
            }
        }
    }
    if order.len() < graph.nodes.len() {
        let stuck = missing.iter().position(|&missing| missing > 0).unwrap_or_default();
        let input = needs[stuck].iter().find(|value| makers.contains_key(**value)).copied();
        let node = graph.nodes[stuck].title();
        return Err(OnnxError::Order { node, input: short(input.unwrap_or_default()) });
    }
    known.extend(makers.keys());
    for node in &graph.nodes {
        for inner in node.attributes.iter().flat_map(|attribute| &attribute.graphs) {
            sorted_in(inner, &known)?;
        }
    }
    Ok(order)
}

/// Values that a node needs from its own graph or from those around it; those that its subgraphs
/// need included.
pub(super) fn needs<'a>(node: &Node<'a>) -> HashSet<&'a str> {
    let mut all: HashSet<&str> = node.inputs.iter().copied().collect();
    for inner in node.attributes.iter().flat_map(|attribute| &attribute.graphs) {
        let mut own: HashSet<&str> = inner.inputs.iter().map(|input| input.name).collect();
        own.extend(inner.initializers.iter().map(|tensor| tensor.name));
        own.extend(inner.nodes.iter().flat_map(|node| node.outputs.iter().copied()));
        for value in inner.nodes.iter().flat_map(needs) {
            if !own.contains(value) {
                all.insert(value);
            }
        }
    }
    all.remove("");
    all
}

/// A loop's time has no bound that could be known here, and a frame's time must have one.
fn refuse_loops(node: &Node) -> Result<(), OnnxError> {
    if matches!(node.domain, "" | "ai.onnx") && matches!(node.op, "Loop" | "Scan" | "SequenceMap") {
        return Err(OnnxError::Refused {
            found: format!("a loop, {}", node.title()),
            accepted:
                "networks without loops, whose time is bounded; export without post-processing in loops"
                    .into(),
        });
    }
    Ok(())
}
