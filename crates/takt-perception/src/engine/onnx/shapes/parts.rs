//! Operators that compute with values, take parts of them, and join them.

use super::{Call, Known, broadcast, elements, position, whole_shape};

pub(super) fn constant(call: &Call) -> Option<Known> {
    let attribute = call.node.attributes.first()?;
    match attribute.name {
        "value" => Some(Known::of_tensor(attribute.tensor.as_ref()?)),
        "value_int" => Some(Known::numbers(vec![], Some(vec![attribute.int? as f64]))),
        "value_float" => Some(Known::numbers(vec![], Some(vec![f64::from(attribute.float?)]))),
        "value_ints" => {
            let numbers: Vec<f64> = attribute.ints.iter().map(|&value| value as f64).collect();
            Some(Known::numbers(vec![numbers.len() as u64], Some(numbers)))
        }
        "value_floats" => {
            let numbers: Vec<f64> = attribute.floats.iter().map(|&value| f64::from(value)).collect();
            Some(Known::numbers(vec![numbers.len() as u64], Some(numbers)))
        }
        _ => None,
    }
}

pub(super) fn elementwise(call: &Call) -> Option<Known> {
    let count = call.node.inputs.len();
    let mut shape: Vec<u64> = Vec::new();
    for index in 0..count {
        shape = broadcast(&shape, call.shape(index)?)?;
    }
    let all: Option<Vec<&[f64]>> = (0..count).map(|index| call.numbers(index)).collect();
    let numbers = all.filter(|all| {
        all.iter().all(|numbers| matches!(numbers.len() as u64, n if n == 1 || n == elements(&shape)))
    });
    let numbers = numbers.and_then(|all| {
        let at = |which: usize, index: usize| all.get(which).map(|n| n[if n.len() == 1 { 0 } else { index }]);
        let whole = |a: f64, b: f64| a.fract() == 0.0 && b.fract() == 0.0;
        (0..elements(&shape) as usize)
            .map(|index| {
                let (a, b) = (at(0, index)?, at(1, index)?);
                Some(match call.node.op {
                    "Add" => a + b,
                    "Sub" => a - b,
                    "Mul" => a * b,
                    // Of whole numbers it is their quotient; of fractions that happen to be whole,
                    // the result differs by less than one, and `Floor` follows them.
                    "Div" if whole(a, b) && b != 0.0 => (a / b).trunc(),
                    "Div" => a / b,
                    "Max" => a.max(b),
                    "Min" => a.min(b),
                    "Mod" if b != 0.0 => a.rem_euclid(b),
                    "Equal" => f64::from(a == b),
                    "Greater" => f64::from(a > b),
                    "Less" => f64::from(a < b),
                    "Where" if count == 3 => {
                        if a != 0.0 {
                            b
                        } else {
                            at(2, index)?
                        }
                    }
                    _ => return None,
                })
            })
            .collect()
    });
    Some(Known::numbers(shape, numbers))
}

pub(super) fn concat(call: &Call) -> Option<Known> {
    let first = call.shape(0)?;
    let axis = call.axis(0, first.len())?;
    let mut shape = first.to_vec();
    shape[axis] = 0;
    let mut numbers = Some(Vec::new());
    for index in 0..call.node.inputs.len() {
        shape[axis] = shape[axis].saturating_add(*call.shape(index)?.get(axis)?);
        match (call.numbers(index), &mut numbers) {
            (Some(more), Some(numbers)) => numbers.extend_from_slice(more),
            _ => numbers = None,
        }
    }
    let flat = first.len() == 1;
    Some(Known::numbers(shape, numbers.filter(|_| flat)))
}

pub(super) fn split(call: &Call) -> Option<Vec<Known>> {
    let shape = call.shape(0)?;
    let axis = call.axis(0, shape.len())?;
    let parts = call.node.outputs.len().max(1) as u64;
    let sizes = match call.whole(1, "split") {
        Some(sizes) => whole_shape(&sizes.iter().map(|&size| size as f64).collect::<Vec<_>>())?,
        None if call.has(1) => return None,
        None => vec![shape[axis].div_ceil(parts); parts as usize],
    };
    let of = |size: u64| {
        let mut part = shape.to_vec();
        part[axis] = size.min(shape[axis]);
        Known::shaped(Some(part))
    };
    Some(sizes.into_iter().map(of).collect())
}

/// If the cut is unknown, the result is at most the source.
pub(super) fn slice(call: &Call) -> Option<Known> {
    let mut shape = call.shape(0)?.to_vec();
    let (Some(starts), Some(ends)) = (call.whole(1, "starts"), call.whole(2, "ends")) else {
        return Some(Known::shaped(Some(shape)));
    };
    let axes = call.whole(3, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.whole(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    let flat = (shape.len() == 1).then(|| call.numbers(0)).flatten();
    let mut numbers = None;
    for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = position(axis, shape.len())?;
        let side = shape[axis] as i64;
        let at = |value: i64, low: i64, high: i64| {
            (if value < 0 { value.saturating_add(side) } else { value }).clamp(low, high)
        };
        let indices: Box<dyn Iterator<Item = i64>> = match step {
            1.. => Box::new((at(start, 0, side)..at(end, 0, side)).step_by(usize::try_from(step).ok()?)),
            0 => return None,
            _ => {
                let (from, to) = (at(start, -1, side - 1), at(end, -1, side - 1));
                Box::new((to + 1..=from).rev().step_by(usize::try_from(step.unsigned_abs()).ok()?))
            }
        };
        if let Some(flat) = flat {
            let picked: Vec<f64> =
                indices.filter_map(|index| flat.get(usize::try_from(index).ok()?).copied()).collect();
            shape[axis] = picked.len() as u64;
            numbers = Some(picked);
        } else {
            shape[axis] = indices.size_hint().0 as u64;
        }
    }
    Some(Known::numbers(shape, numbers))
}

pub(super) fn gather(call: &Call) -> Option<Known> {
    let (data, indices) = (call.shape(0)?, call.shape(1)?);
    let axis = call.axis(0, data.len())?;
    let shape = [&data[..axis], indices, &data[axis + 1..]].concat();
    let numbers = match (data.len(), call.numbers(0), call.numbers(1)) {
        (1, Some(values), Some(indices)) => indices
            .iter()
            .map(|&index| position(index as i64, values.len()).map(|index| values[index]))
            .collect::<Option<Vec<f64>>>(),
        _ => None,
    };
    Some(Known::numbers(shape, numbers))
}

pub(super) fn reshape(call: &Call) -> Option<Known> {
    let from = call.shape(0)?;
    let all = elements(from);
    let Some(wanted) = call.whole(1, "shape") else {
        // As many elements in any case.
        return None;
    };
    let keep_zero = call.node.int("allowzero", 0) != 0;
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (axis, &side) in wanted.iter().enumerate() {
        shape.push(match side {
            0 if !keep_zero => *from.get(axis)?,
            -1 => {
                open = Some(axis);
                1
            }
            side => u64::try_from(side).ok()?,
        });
    }
    if let Some(axis) = open {
        shape[axis] = all.checked_div(elements(&shape))?;
    }
    Some(Known::numbers(shape, call.numbers(0).map(<[_]>::to_vec)))
}

pub(super) fn squeeze(call: &Call) -> Option<Known> {
    let from = call.shape(0)?;
    let numbers = call.numbers(0).map(<[_]>::to_vec);
    let axes = call.whole(1, "axes");
    if call.node.op == "Squeeze" {
        let Some(axes) = axes else {
            return Some(Known::numbers(from.iter().copied().filter(|&side| side != 1).collect(), numbers));
        };
        let gone: Vec<usize> = axes.iter().map(|&axis| position(axis, from.len())).collect::<Option<_>>()?;
        let shape = from.iter().enumerate().filter(|(axis, _)| !gone.contains(axis)).map(|(_, &side)| side);
        return Some(Known::numbers(shape.collect(), numbers));
    }
    let axes = axes?;
    let rank = from.len() + axes.len();
    let mut new: Vec<usize> = axes.iter().map(|&axis| position(axis, rank)).collect::<Option<_>>()?;
    new.sort_unstable();
    let mut shape = from.to_vec();
    for axis in new {
        (axis <= shape.len()).then(|| shape.insert(axis, 1))?;
    }
    Some(Known::numbers(shape, numbers))
}

pub(super) fn reduce(call: &Call) -> Option<Known> {
    let shape = call.shape(0)?;
    let keep = call.node.int("keepdims", 1) != 0;
    let axes = if call.node.op.starts_with("Arg") {
        Some(vec![call.node.int("axis", 0)])
    } else if call.has(1) || call.node.ints("axes").is_some() {
        // Axes that are not known leave at most everything.
        let Some(axes) = call.whole(1, "axes") else { return Some(Known::shaped(Some(shape.to_vec()))) };
        Some(axes)
    } else {
        None
    };
    let gone: Vec<usize> = match axes {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| position(axis, shape.len())).collect::<Option<_>>()?
        }
        _ => (0..shape.len()).collect(),
    };
    let numbers = match (call.node.op, call.numbers(0)) {
        _ if shape.len() > 1 => None,
        ("ReduceProd", Some(numbers)) => Some(vec![numbers.iter().product()]),
        ("ReduceSum", Some(numbers)) => Some(vec![numbers.iter().sum()]),
        ("ReduceMax", Some(numbers)) => Some(vec![numbers.iter().copied().fold(f64::MIN, f64::max)]),
        ("ReduceMin", Some(numbers)) => Some(vec![numbers.iter().copied().fold(f64::MAX, f64::min)]),
        _ => None,
    };
    let sides = shape.iter().enumerate().filter_map(|(axis, &side)| match gone.contains(&axis) {
        false => Some(side),
        true => keep.then_some(1),
    });
    Some(Known::numbers(sides.collect(), numbers))
}
