//! Convolutions and pooling: what a window that slides over a picture gives.

use super::Call;

/// Strides, dilations, kernel and pads of a window over so many axes.
pub(super) fn window(call: &Call, axes: usize) -> Option<[Vec<i64>; 4]> {
    let or = |name: &str, default: i64, count: usize| match call.node.ints(name) {
        Some(values) => (values.len() == count).then(|| values.to_vec()),
        None => Some(vec![default; count]),
    };
    let kernel = match call.node.ints("kernel_shape") {
        Some(kernel) => kernel.to_vec(),
        None => call.shape(1)?.get(2..)?.iter().map(|&side| side as i64).collect(),
    };
    (kernel.len() == axes).then_some(())?;
    Some([or("strides", 1, axes)?, or("dilations", 1, axes)?, kernel, or("pads", 0, 2 * axes)?])
}

/// Sides of a convolution's or a pooling's output.
pub(super) fn convolved_sides(call: &Call, sides: &[u64]) -> Option<Vec<u64>> {
    let [strides, dilations, kernel, pads] = window(call, sides.len())?;
    let same = call.node.text("auto_pad").is_some_and(|pad| pad.starts_with(b"SAME"));
    let up = call.node.int("ceil_mode", 0) != 0;
    (0..sides.len())
        .map(|axis| {
            let (side, stride) = (i64::try_from(sides[axis]).ok()?, strides[axis].max(1));
            if same {
                return u64::try_from(side.saturating_add(stride - 1) / stride).ok();
            }
            let pads = pads[axis].checked_add(pads[sides.len() + axis])?;
            let reach = dilations[axis].checked_mul(kernel[axis].checked_sub(1)?)?.checked_add(1)?;
            let free = side.checked_add(pads)?.checked_sub(reach)?;
            let free = if up { free.checked_add(stride - 1)? } else { free };
            u64::try_from(free.div_euclid(stride).checked_add(1)?).ok()
        })
        .collect()
}

pub(super) fn convolved(call: &Call) -> Option<Vec<u64>> {
    let [batch, _, sides @ ..] = call.shape(0)? else { return None };
    let mut out = vec![*batch, *call.shape(1)?.first()?];
    out.extend(convolved_sides(call, sides)?);
    Some(out)
}

pub(super) fn transposed(call: &Call) -> Option<Vec<u64>> {
    let [batch, _, sides @ ..] = call.shape(0)? else { return None };
    let channels = call.shape(1)?.get(1)?.checked_mul(u64::try_from(call.node.int("group", 1)).ok()?)?;
    let mut out = vec![*batch, channels];
    if let Some(given) = call.node.ints("output_shape") {
        out.extend(
            given.iter().rev().take(sides.len()).rev().map(|&side| u64::try_from(side).unwrap_or(u64::MAX)),
        );
        return Some(out);
    }
    let [strides, dilations, kernel, pads] = window(call, sides.len())?;
    let extra = call.node.ints("output_padding").unwrap_or_default();
    for (axis, &side) in sides.iter().enumerate() {
        let reach = dilations[axis].checked_mul(kernel[axis].checked_sub(1)?)?.checked_add(1)?;
        let moved = i64::try_from(side).ok()?.checked_sub(1)?.checked_mul(strides[axis])?;
        let all = moved.checked_add(reach)?.checked_add(extra.get(axis).copied().unwrap_or(0))?;
        out.push(u64::try_from(all.checked_sub(pads[axis])?.checked_sub(pads[sides.len() + axis])?).ok()?);
    }
    Some(out)
}
