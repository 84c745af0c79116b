//! Shapes of outputs from those of inputs, for the operators that detectors and segmenters are made
//! of (ONNX operator specifications, operator sets 7 to 24).
//!
//! Exports compute shapes in the network itself (`Shape`, `Gather`, `Concat`, `Resize`), so small
//! tensors of numbers are computed here too. The output shape of an unknown operator is unknown;
//! that is an error only if the size of a value of unbounded size depends on it.

mod parts;
mod window;
mod work;

use parts::{concat, constant, elementwise, gather, reduce, reshape, slice, split, squeeze};
use window::{convolved, convolved_sides, transposed};

use super::model::{Node, TensorInfo};
use super::sizes::{Values, elements, too_large};
use super::{OnnxError, limits};

/// Most numbers of a tensor whose values are followed.
const MAX_NUMBERS: usize = 64;

/// Facts about a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Known {
    pub(super) shape: Option<Vec<u64>>,
    /// Its values, where it is small and they follow.
    pub(super) numbers: Option<Vec<f64>>,
}

impl Known {
    fn shaped(shape: Option<Vec<u64>>) -> Self {
        Self { shape, numbers: None }
    }

    fn numbers(shape: Vec<u64>, numbers: Option<Vec<f64>>) -> Self {
        let numbers = numbers
            .filter(|numbers| numbers.len() <= MAX_NUMBERS && numbers.len() as u64 == elements(&shape));
        Self { shape: Some(shape), numbers }
    }

    pub(super) fn of_tensor(tensor: &TensorInfo) -> Self {
        Self { shape: Some(tensor.dims.clone()), numbers: tensor.numbers(MAX_NUMBERS) }
    }
}

/// Output and cost of a node.
pub(super) struct Outcome {
    pub(super) outputs: Vec<Known>,
    pub(super) multiplications: u64,
}

/// A node with what is known of its inputs.
struct Call<'v, 'a> {
    node: &'v Node<'a>,
    values: &'v Values<'a>,
    opset: i64,
}

impl Call<'_, '_> {
    fn input(&self, index: usize) -> Option<&Known> {
        let name = self.node.inputs.get(index).filter(|name| !name.is_empty())?;
        self.values.get(name)
    }

    fn has(&self, index: usize) -> bool {
        self.node.inputs.get(index).is_some_and(|name| !name.is_empty())
    }

    fn shape(&self, index: usize) -> Option<&[u64]> {
        self.input(index)?.shape.as_deref()
    }

    fn numbers(&self, index: usize) -> Option<&[f64]> {
        self.input(index)?.numbers.as_deref()
    }

    /// Whole numbers of an input, or of the attribute that older operator sets have instead.
    fn whole(&self, index: usize, attribute: &str) -> Option<Vec<i64>> {
        if let Some(values) = self.node.ints(attribute) {
            return Some(values.to_vec());
        }
        Some(self.numbers(index)?.iter().map(|&value| value as i64).collect())
    }

    fn axis(&self, default: i64, rank: usize) -> Option<usize> {
        position(self.node.int("axis", default), rank)
    }
}

/// An axis that may count from the end.
fn position(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}

/// The outputs of a node.
///
/// # Errors
/// The size of an output is unbounded and does not follow.
pub(super) fn infer(node: &Node, values: &Values, opset: i64) -> Result<Outcome, OnnxError> {
    let call = Call { node, values, opset };
    let outputs = outputs(&call)?;
    let multiplications = work::of(&call, &outputs);
    Ok(Outcome { outputs, multiplications })
}

fn outputs(call: &Call) -> Result<Vec<Known>, OnnxError> {
    let node = call.node;
    if !matches!(node.domain, "" | "ai.onnx") {
        return Ok(vec![Known::default(); node.outputs.len()]);
    }
    if let Some((wanted, there)) = beyond(call) {
        return Err(OnnxError::Size {
            node: node.title(),
            found: format!("the first {wanted} of {there} values"),
            accepted: "as many as there are".into(),
        });
    }
    if let Some(first) = free(call) {
        let Some(first) = first else {
            return Err(OnnxError::Size {
                node: node.title(),
                found: "a value whose size is not known before the network runs".into(),
                accepted: format!(
                    "{} elements, known from the file and the input's size",
                    limits::MAX_VALUE_ELEMENTS
                ),
            });
        };
        let shape = first.shape.as_deref().unwrap_or_default();
        if elements(shape) > limits::MAX_VALUE_ELEMENTS {
            return Err(too_large(node, shape));
        }
        return Ok(vec![first]);
    }
    let mut outputs = bound(call).unwrap_or_default();
    outputs.resize(node.outputs.len(), Known::default());
    Ok(outputs)
}

/// A TopK that wants more values than there are: engines make room for all that it wants.
fn beyond(call: &Call) -> Option<(i64, u64)> {
    if call.node.op != "TopK" {
        return None;
    }
    let shape = call.shape(0)?;
    let there = *shape.get(call.axis(-1, shape.len())?)?;
    let wanted = call.whole(1, "k").and_then(|wanted| wanted.first().copied())?;
    u64::try_from(wanted).map_or(true, |wanted| wanted > there).then_some((wanted, there))
}

/// Operators whose output can be of any size: what follows of it. The outer `None` is for all other
/// operators.
fn free(call: &Call) -> Option<Option<Known>> {
    let shape = match call.node.op {
        "ConstantOfShape" | "Expand" => target(call),
        "Tile" => tiled(call),
        "Resize" | "Upsample" => resized(call),
        "Pad" => padded(call),
        "Range" => return Some(range(call)),
        "OneHot" => one_hot(call),
        "RandomNormal" | "RandomUniform" => call
            .node
            .ints("shape")
            .and_then(|shape| shape.iter().map(|&dim| u64::try_from(dim).ok()).collect()),
        "EyeLike" | "RandomNormalLike" | "RandomUniformLike" | "Bernoulli" => {
            call.shape(0).map(<[_]>::to_vec)
        }
        "MaxUnpool" | "Multinomial" | "HannWindow" | "HammingWindow" | "BlackmanWindow"
        | "MelWeightMatrix" | "DFT" | "STFT" | "Col2Im" | "CenterCropPad" | "Einsum" | "ConvTranspose"
        | "AffineGrid" => {
            return Some(rare(call));
        }
        _ => return None,
    };
    Some(shape.map(|shape| {
        let numbers = match (call.node.op, call.numbers(0)) {
            ("ConstantOfShape", _) => {
                let value = call.node.attribute("value").and_then(|value| value.tensor.as_ref());
                let value = value.map_or(Some(vec![0.0]), |tensor| tensor.numbers(1));
                let count = elements(&shape).min(MAX_NUMBERS as u64 + 1) as usize;
                value.and_then(|value| value.first().map(|&value| vec![value; count]))
            }
            // A single number stays what it is.
            ("Expand", Some([one])) => {
                Some(vec![*one; elements(&shape).min(MAX_NUMBERS as u64 + 1) as usize])
            }
            _ => None,
        };
        Known::numbers(shape, numbers)
    }))
}

/// Of those that detectors hardly have: a bound, where one is easy.
fn rare(call: &Call) -> Option<Known> {
    match call.node.op {
        "ConvTranspose" => transposed(call).map(|shape| Known::shaped(Some(shape))),
        "Einsum" => einsum(call).map(|shape| Known::shaped(Some(shape))),
        _ => None,
    }
}

fn whole_shape(values: &[f64]) -> Option<Vec<u64>> {
    values.iter().map(|&value| (value >= 0.0 && value <= 2f64.powi(53)).then_some(value as u64)).collect()
}

fn target(call: &Call) -> Option<Vec<u64>> {
    if call.node.op == "ConstantOfShape" {
        return whole_shape(call.numbers(0)?);
    }
    broadcast(call.shape(0)?, &whole_shape(call.numbers(1)?)?)
}

fn tiled(call: &Call) -> Option<Vec<u64>> {
    let repeats = whole_shape(call.numbers(1)?)?;
    let shape = call.shape(0)?;
    (shape.len() == repeats.len())
        .then(|| shape.iter().zip(repeats).map(|(&dim, times)| dim.saturating_mul(times)).collect())
}

fn resized(call: &Call) -> Option<Vec<u64>> {
    let shape = call.shape(0)?;
    let scaled = |scales: &[f64]| {
        let scaled = shape.iter().zip(scales).map(|(&dim, &scale)| (dim as f64 * scale).floor());
        let scaled: Vec<f64> = scaled.collect();
        (scales.len() == shape.len()).then(|| whole_shape(&scaled)).flatten()
    };
    if let Some(attribute) = call.node.attribute("scales") {
        return scaled(&attribute.floats.iter().map(|&scale| f64::from(scale)).collect::<Vec<_>>());
    }
    if call.node.op == "Upsample" || call.opset < 11 {
        return scaled(call.numbers(1)?);
    }
    let axes = match call.node.ints("axes") {
        Some(axes) => axes.iter().map(|&axis| position(axis, shape.len())).collect::<Option<Vec<_>>>()?,
        None => (0..shape.len()).collect(),
    };
    let spread = |values: &[f64], others: &dyn Fn(usize) -> f64| {
        let mut all: Vec<f64> = (0..shape.len()).map(others).collect();
        for (&axis, &value) in axes.iter().zip(values) {
            all[axis] = value;
        }
        (values.len() == axes.len()).then_some(all)
    };
    if call.has(3) {
        return whole_shape(&spread(call.numbers(3)?, &|axis| shape[axis] as f64)?);
    }
    scaled(&spread(call.numbers(2)?, &|_| 1.0)?)
}

fn padded(call: &Call) -> Option<Vec<u64>> {
    let shape = call.shape(0)?;
    let pads = call.whole(1, "pads")?;
    let axes: Vec<usize> = match (call.has(3), call.numbers(3)) {
        (true, Some(axes)) => {
            axes.iter().map(|&axis| position(axis as i64, shape.len())).collect::<Option<_>>()?
        }
        (true, None) => return None,
        _ => (0..shape.len()).collect(),
    };
    let mut out = shape.to_vec();
    let (begin, end) = pads.split_at_checked(axes.len())?;
    for ((&axis, &begin), &end) in axes.iter().zip(begin).zip(end) {
        out[axis] = u64::try_from((out[axis] as i64).saturating_add(begin).saturating_add(end)).ok()?;
    }
    (end.len() == axes.len()).then_some(out)
}

fn range(call: &Call) -> Option<Known> {
    let one = |index: usize| call.numbers(index)?.first().copied();
    let (start, limit, delta) = (one(0)?, one(1)?, one(2)?);
    let count = ((limit - start) / delta).ceil().max(0.0);
    let count = whole_shape(&[count])?[0];
    let numbers =
        (count <= MAX_NUMBERS as u64).then(|| (0..count).map(|i| start + i as f64 * delta).collect());
    Some(Known::numbers(vec![count], numbers))
}

fn one_hot(call: &Call) -> Option<Vec<u64>> {
    let mut out = call.shape(0)?.to_vec();
    let depth = whole_shape(call.numbers(1)?)?.first().copied()?;
    let axis = position(call.node.int("axis", -1), out.len() + 1)?;
    out.insert(axis, depth);
    Some(out)
}

fn einsum(call: &Call) -> Option<Vec<u64>> {
    let equation = std::str::from_utf8(call.node.text("equation")?).ok()?;
    let (left, right) = equation.split_once("->")?;
    let mut sizes = std::collections::HashMap::new();
    for (index, letters) in left.split(',').enumerate() {
        let shape = call.shape(index)?;
        let letters: Vec<char> = letters.chars().filter(|c| !c.is_whitespace()).collect();
        if letters.len() != shape.len() || letters.contains(&'.') {
            return None;
        }
        sizes.extend(letters.into_iter().zip(shape.iter().copied()));
    }
    right.chars().filter(|c| !c.is_whitespace()).map(|letter| sizes.get(&letter).copied()).collect()
}

fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let side =
        |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (side(a, axis), side(b, axis)) {
            (a, b) if a == b => Some(a),
            (1, other) | (other, 1) => Some(other),
            _ => None,
        })
        .collect()
}

/// Shape of a matrix product.
fn product(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    match (a, b) {
        ([], _) | (_, []) => None,
        ([_], [_]) => Some(vec![]),
        ([_], [batch @ .., _, columns]) => Some([batch, &[*columns]].concat()),
        ([rows @ .., _], [_]) => Some(rows.to_vec()),
        ([left @ .., rows, _], [right @ .., _, columns]) => {
            let mut out = broadcast(left, right)?;
            out.extend([*rows, *columns]);
            Some(out)
        }
    }
}

fn gemm(call: &Call) -> Option<Vec<u64>> {
    let (&[a0, a1], &[b0, b1]) = (call.shape(0)?, call.shape(1)?) else { return None };
    let rows = if call.node.int("transA", 0) != 0 { a1 } else { a0 };
    let columns = if call.node.int("transB", 0) != 0 { b0 } else { b1 };
    Some(vec![rows, columns])
}

/// Operators whose outputs are no larger than their inputs, or follow from them: what is known.
fn bound(call: &Call) -> Option<Vec<Known>> {
    numeric(call).or_else(|| layer(call)).or_else(|| rearranged(call))
}

/// Operators that shapes are computed with.
fn numeric(call: &Call) -> Option<Vec<Known>> {
    let node = call.node;
    match node.op {
        "Constant" => constant(call).map(|known| vec![known]),
        "Shape" => {
            let shape = call.shape(0)?;
            let rank = shape.len() as i64;
            let at = |value: i64| (if value < 0 { value + rank } else { value }).clamp(0, rank) as usize;
            let (start, end) = (at(node.int("start", 0)), at(node.int("end", rank)));
            let part: Vec<f64> = shape.get(start..end.max(start))?.iter().map(|&dim| dim as f64).collect();
            Some(vec![Known::numbers(vec![part.len() as u64], Some(part))])
        }
        "Size" => Some(vec![Known::numbers(vec![], Some(vec![elements(call.shape(0)?) as f64]))]),
        "Identity" | "Cast" | "CastLike" | "Dropout" => {
            let mut known = call.input(0)?.clone();
            let to_whole = node.op == "Cast" && matches!(node.int("to", 1), 2..=7 | 12 | 13);
            if let (true, Some(numbers)) = (to_whole, &mut known.numbers) {
                numbers.iter_mut().for_each(|number| *number = number.trunc());
            }
            Some(vec![known])
        }
        "Floor" | "Ceil" | "Round" | "Neg" | "Abs" | "Sqrt" => {
            let known = call.input(0)?;
            let apply = |value: &f64| match node.op {
                "Floor" => value.floor(),
                "Ceil" => value.ceil(),
                "Round" => value.round_ties_even(),
                "Neg" => -value,
                "Abs" => value.abs(),
                _ => value.sqrt(),
            };
            let numbers = known.numbers.as_ref().map(|numbers| numbers.iter().map(apply).collect());
            Some(vec![Known { shape: known.shape.clone(), numbers }])
        }
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Pow" | "Mod" | "Equal" | "Greater" | "Less"
        | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Xor" | "Mean" | "Sum" | "PRelu" | "Where"
        | "BitShift" => elementwise(call).map(|known| vec![known]),
        _ => None,
    }
}

/// Convolutions, pooling, products.
fn layer(call: &Call) -> Option<Vec<Known>> {
    let node = call.node;
    let one = |shape: Option<Vec<u64>>| Some(vec![Known::shaped(shape)]);
    match node.op {
        "Conv" | "ConvInteger" | "QLinearConv" => one(if node.op == "Conv" { convolved(call) } else { None }),
        "MaxPool" | "AveragePool" | "LpPool" => {
            let [batch, channels, sides @ ..] = call.shape(0)? else { return None };
            let shape = [vec![*batch, *channels], convolved_sides(call, sides)?].concat();
            Some(vec![Known::shaped(Some(shape)); node.outputs.len()])
        }
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let mut shape = call.shape(0)?.to_vec();
            shape.iter_mut().skip(2).for_each(|side| *side = 1);
            one(Some(shape))
        }
        "MatMul" => one(product(call.shape(0)?, call.shape(1)?)),
        "Gemm" => one(gemm(call)),
        _ => None,
    }
}

/// Operators that take parts of values, join and reorder them.
fn rearranged(call: &Call) -> Option<Vec<Known>> {
    let node = call.node;
    let one = |shape: Option<Vec<u64>>| Some(vec![Known::shaped(shape)]);
    match node.op {
        "Concat" => concat(call).map(|known| vec![known]),
        "Split" => split(call),
        "Slice" => slice(call).map(|known| vec![known]),
        "Gather" => gather(call).map(|known| vec![known]),
        "GatherElements" => one(call.shape(1).map(<[_]>::to_vec)),
        "GatherND" => {
            let (data, indices) = (call.shape(0)?, call.shape(1)?);
            let (&depth, rows) = indices.split_last()?;
            let skipped = usize::try_from(depth).ok()? + usize::try_from(node.int("batch_dims", 0)).ok()?;
            one(Some([rows, data.get(skipped..)?].concat()))
        }
        "Transpose" => {
            let shape = call.shape(0)?;
            let axes: Vec<i64> =
                node.ints("perm").map_or_else(|| (0..shape.len() as i64).rev().collect(), <[_]>::to_vec);
            one(axes.iter().map(|&axis| position(axis, shape.len()).map(|axis| shape[axis])).collect())
        }
        "Reshape" => reshape(call).map(|known| vec![known]),
        "Flatten" => {
            let shape = call.shape(0)?;
            let axis = position(node.int("axis", 1), shape.len() + 1)?;
            one(Some(vec![elements(&shape[..axis]), elements(&shape[axis..])]))
        }
        "Squeeze" | "Unsqueeze" => squeeze(call).map(|known| vec![known]),
        "TopK" => {
            let mut shape = call.shape(0)?.to_vec();
            let axis = call.axis(-1, shape.len())?;
            let wanted = call.whole(1, "k").or_else(|| Some(vec![node.int("k", -1)]))?;
            shape[axis] = u64::try_from(*wanted.first()?).ok()?.min(shape[axis]);
            Some(vec![Known::shaped(Some(shape)); 2])
        }
        "DepthToSpace" | "SpaceToDepth" => {
            let &[batch, channels, height, width] = call.shape(0)? else { return None };
            let block =
                u64::try_from(node.int("blocksize", 1)).ok().filter(|&block| (1..=4096).contains(&block))?;
            one(Some(if node.op == "DepthToSpace" {
                vec![batch, channels / (block * block), height.checked_mul(block)?, width.checked_mul(block)?]
            } else {
                vec![batch, channels.checked_mul(block * block)?, height / block, width / block]
            }))
        }
        "GridSample" => {
            let (&[batch, channels, ..], [_, sides @ .., _]) = (call.shape(0)?, call.shape(1)?) else {
                return None;
            };
            one(Some([&[batch, channels], sides].concat()))
        }
        op if op.starts_with("Reduce") || matches!(op, "ArgMax" | "ArgMin") => {
            reduce(call).map(|known| vec![known])
        }
        // As large as their first input.
        "Relu"
        | "LeakyRelu"
        | "Sigmoid"
        | "HardSigmoid"
        | "HardSwish"
        | "Swish"
        | "Mish"
        | "Elu"
        | "Selu"
        | "Celu"
        | "Tanh"
        | "Softplus"
        | "Softsign"
        | "Gelu"
        | "ThresholdedRelu"
        | "Exp"
        | "Log"
        | "Reciprocal"
        | "Erf"
        | "Sin"
        | "Cos"
        | "Tan"
        | "Atan"
        | "Asin"
        | "Acos"
        | "Clip"
        | "Sign"
        | "Not"
        | "IsNaN"
        | "IsInf"
        | "BatchNormalization"
        | "InstanceNormalization"
        | "LayerNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "LRN"
        | "Softmax"
        | "LogSoftmax"
        | "Hardmax"
        | "CumSum"
        | "ScatterND"
        | "ScatterElements"
        | "Scatter"
        | "Trilu"
        | "QuantizeLinear"
        | "DequantizeLinear"
        | "Shrink"
        | "ReverseSequence" => one(call.shape(0).map(<[_]>::to_vec)),
        _ => None,
    }
}
