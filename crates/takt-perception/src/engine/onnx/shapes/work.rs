//! Cost of a node, in multiplications of a matrix product or as much time.
//!
//! Products are what honest networks spend their time on. A file can spend it on anything: ten
//! thousand additions of the largest values, a pooling over the whole picture, the suppression of
//! boxes that do not overlap. So every operator costs at least what its inputs and outputs take to
//! be read and written.

use std::collections::HashMap;

use super::super::sizes::elements;
use super::{Call, Known, convolved, gemm, product};

/// Reading or writing a value takes as long as so many multiplications of a product, which are done
/// sixteen at a time and on values that are near.
const VALUE: u64 = 16;
/// A comparison of two boxes.
const BOXES: u64 = 8;
/// A step of a sort, or of a product that an engine has no fast way for.
const SLOW: u64 = 4;

pub(super) fn of(call: &Call, outputs: &[Known]) -> u64 {
    let sizes = outputs.iter().filter_map(|known| known.shape.as_deref()).map(elements);
    let inputs = (0..call.node.inputs.len()).filter_map(|index| call.shape(index)).map(elements);
    let values = sizes.chain(inputs).fold(0, u64::saturating_add);
    values.saturating_mul(VALUE).saturating_add(own(call, outputs).unwrap_or_default())
}

/// Of the operators that cost more than their values.
fn own(call: &Call, outputs: &[Known]) -> Option<u64> {
    let size = |index: usize| call.shape(index).map(elements);
    let out = || outputs.first()?.shape.as_deref().map(elements);
    match call.node.op {
        "Conv" => Some(elements(&convolved(call)?).saturating_mul(elements(call.shape(1)?.get(1..)?))),
        // Of these the place of the output is another one; strides make it less.
        "ConvInteger" | "DeformConv" => Some(size(0)?.saturating_mul(elements(call.shape(1)?.get(1..)?))),
        "QLinearConv" => Some(size(0)?.saturating_mul(elements(call.shape(3)?.get(1..)?))),
        "ConvTranspose" => Some(size(0)?.saturating_mul(elements(call.shape(1)?.get(1..)?))),
        "MatMul" | "Gemm" | "MatMulInteger" => {
            let left = call.shape(0)?;
            let out = if call.node.op == "Gemm" { gemm(call)? } else { product(left, call.shape(1)?)? };
            let inner = if call.node.int("transA", 0) != 0 { left.first() } else { left.last() };
            Some(elements(&out).saturating_mul(*inner?))
        }
        "QLinearMatMul" => {
            let left = call.shape(0)?;
            Some(elements(&product(left, call.shape(3)?)?).saturating_mul(*left.last()?))
        }
        "Einsum" => {
            Some(all_letters(call).or_else(|| Some(size(0)?.saturating_mul(size(1)?)))?.saturating_mul(SLOW))
        }
        "MaxPool" | "AveragePool" | "LpPool" | "LRN" => {
            let kernel = call.node.ints("kernel_shape").unwrap_or_default();
            let kernel =
                kernel.iter().map(|&side| u64::try_from(side).unwrap_or(0)).fold(1, u64::saturating_mul);
            let wide = u64::try_from(call.node.int("size", 1)).unwrap_or(1);
            Some(out().or(size(0))?.saturating_mul(kernel).saturating_mul(wide).saturating_mul(SLOW))
        }
        "NonMaxSuppression" => {
            let (boxes, scores) = (call.shape(0)?, call.shape(1)?);
            let pairs = boxes.get(1)?.saturating_mul(*boxes.get(1)?);
            Some(pairs.saturating_mul(elements(scores.get(..2)?)).saturating_mul(BOXES))
        }
        "TopK" | "Unique" | "CumSum" => {
            let size = size(0)?;
            Some(size.saturating_mul(u64::from(64 - size.leading_zeros())).saturating_mul(SLOW))
        }
        // For each step of each row all weights.
        "LSTM" | "GRU" | "RNN" => {
            let weights = size(1)?.saturating_add(size(2)?);
            Some(elements(call.shape(0)?.get(..2)?).saturating_mul(weights))
        }
        _ => None,
    }
}

/// The sizes of all letters of an Einsum, multiplied.
fn all_letters(call: &Call) -> Option<u64> {
    let equation = std::str::from_utf8(call.node.text("equation")?).ok()?;
    let left = equation.split("->").next()?;
    let mut sizes: HashMap<char, u64> = HashMap::new();
    for (index, letters) in left.split(',').enumerate() {
        let letters = letters.chars().filter(|letter| letter.is_alphabetic());
        sizes.extend(letters.zip(call.shape(index)?.iter().copied()));
    }
    (!left.contains('.')).then(|| sizes.values().copied().fold(1, u64::saturating_mul))
}
