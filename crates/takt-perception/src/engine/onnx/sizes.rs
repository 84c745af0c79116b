//! Size of every value of a network, and the amount of computation of an inference.
//!
//! The input has a fixed size, so nearly every value has one that follows from it ([`shapes`]). A
//! node whose output could be of any size and whose size does not follow is refused: it would
//! depend on the picture, and the first picture that makes it large would end the process.

use std::collections::{HashMap, HashSet};

use super::limits::{MAX_INPUT_SIDE, MAX_LIVE_ELEMENTS, MAX_MULTIPLICATIONS, MAX_VALUE_ELEMENTS};
use super::model::{Declared, Graph, Model, Node};
use super::shapes::{Known, Outcome, infer};
use super::{OnnxError, is_float, picture, picture_size};

/// Facts about each value so far.
pub(super) type Values<'a> = HashMap<&'a str, Known>;

/// Checks every value of the network for an input of that size where it leaves it open.
pub(super) fn check(model: &Model, order: &[usize], size: Option<[usize; 2]>) -> Result<(), OnnxError> {
    let mut values = Values::new();
    let picture = picture(model);
    let pair = picture_size(model).map(|input| input.name);
    for input in &model.graph.inputs {
        let shape = input_shape(input, size)?;
        let mut known = Known { shape, numbers: None };
        if let (Some(picture), true) = (picture, Some(input.name) == pair) {
            let sides = input_shape(picture, size)?.filter(|shape| shape.len() == 4);
            known.numbers = sides.map(|shape| vec![shape[3] as f64, shape[2] as f64]);
        }
        values.insert(input.name, known);
    }
    let mut work = Work { live: 0, multiplications: 0 };
    walk(&model.graph, order, &mut values, &mut work, model.opset)
}

/// The shape of an input; `None` where a side is open and nobody says how long it is: the engine's
/// own check refuses that with what to configure.
fn input_shape(input: &Declared, size: Option<[usize; 2]>) -> Result<Option<Vec<u64>>, OnnxError> {
    let Some(dims) = &input.dims else { return Ok(None) };
    let four = dims.len() == 4 && is_float(input.kind);
    let sides = dims.iter().enumerate().map(|(axis, dim)| match (dim, axis, size) {
        (Some(dim), ..) => Some(*dim),
        (None, 0, _) => Some(1),
        (None, 1, _) if four => Some(3),
        (None, 2 | 3, Some(size)) if four => Some(size[axis - 2] as u64),
        _ => None,
    });
    let Some(shape) = sides.collect::<Option<Vec<u64>>>() else { return Ok(None) };
    let too_large = shape.iter().any(|&side| side > MAX_INPUT_SIDE) || elements(&shape) > MAX_VALUE_ELEMENTS;
    if too_large {
        return Err(OnnxError::Limit {
            what: "as the shape of its input".into(),
            found: format!("{shape:?}"),
            accepted: format!("{MAX_INPUT_SIDE} pixels a side and {MAX_VALUE_ELEMENTS} values"),
        });
    }
    Ok(Some(shape))
}

/// The product of a shape, at most `u64::MAX`.
pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1u64, |product, &dim| product.saturating_mul(dim))
}

struct Work {
    /// Elements of the values that are still needed.
    live: u64,
    multiplications: u64,
}

fn walk<'a>(
    graph: &Graph<'a>,
    order: &[usize],
    values: &mut Values<'a>,
    work: &mut Work,
    opset: i64,
) -> Result<(), OnnxError> {
    for tensor in &graph.initializers {
        // A side of zero hides what the others are.
        if tensor.dims.iter().any(|&side| side > MAX_VALUE_ELEMENTS) {
            return Err(OnnxError::Limit {
                what: "as a shape of a constant".into(),
                found: format!("{:?}", tensor.dims),
                accepted: format!("{MAX_VALUE_ELEMENTS} a side"),
            });
        }
        values.insert(tensor.name, Known::of_tensor(tensor));
    }
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (step, &index) in order.iter().enumerate() {
        last.extend(super::order::needs(&graph.nodes[index]).into_iter().map(|input| (input, step)));
    }
    let kept: HashSet<&str> = graph.outputs.iter().map(|output| output.name).collect();
    let made: HashSet<&str> = graph.nodes.iter().flat_map(|node| node.outputs.iter().copied()).collect();
    for (step, &index) in order.iter().enumerate() {
        let node = &graph.nodes[index];
        for inner in node.attributes.iter().flat_map(|attribute| &attribute.graphs) {
            let order = super::order::sorted_inner(inner);
            walk(inner, &order, values, work, opset)?;
        }
        let Outcome { outputs, multiplications } = infer(node, values, opset)?;
        work.multiplications = work.multiplications.saturating_add(multiplications);
        if work.multiplications > MAX_MULTIPLICATIONS {
            return Err(OnnxError::Size {
                node: node.title(),
                found: format!("more than {MAX_MULTIPLICATIONS} multiplications up to here"),
                accepted: format!("{MAX_MULTIPLICATIONS} for one inference"),
            });
        }
        for (name, known) in node.outputs.iter().zip(outputs) {
            let size = known.shape.as_deref().map_or(0, elements);
            let longest = known.shape.iter().flatten().copied().max().unwrap_or_default();
            if size.max(longest) > MAX_VALUE_ELEMENTS {
                return Err(too_large(node, known.shape.as_deref().unwrap_or_default()));
            }
            work.live = work.live.saturating_add(size);
            values.insert(name, known);
        }
        if work.live > MAX_LIVE_ELEMENTS {
            return Err(OnnxError::Size {
                node: node.title(),
                found: format!("the last of {} values that are needed at the same time", work.live),
                accepted: format!("{MAX_LIVE_ELEMENTS} values at the same time"),
            });
        }
        let used: HashSet<&str> = node.inputs.iter().chain(&node.outputs).copied().collect();
        let over = |name: &&str| last.get(*name).is_none_or(|&last| last == step);
        for name in used.into_iter().filter(|name| over(name) && made.contains(name) && !kept.contains(name))
        {
            let size = values.get(name).and_then(|known| known.shape.as_deref()).map_or(0, elements);
            work.live = work.live.saturating_sub(size);
        }
    }
    Ok(())
}

pub(super) fn too_large(node: &Node, shape: &[u64]) -> OnnxError {
    OnnxError::Size {
        node: node.title(),
        found: format!("a value of shape {shape:?}"),
        accepted: format!("{MAX_VALUE_ELEMENTS} elements"),
    }
}
