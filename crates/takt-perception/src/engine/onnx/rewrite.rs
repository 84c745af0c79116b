//! Interfaces of other element types, turned into float32 by nodes that are added to the file.
//!
//! Half-precision exports (`half=True`) take and give float16, some of them for a part of their
//! outputs only (YOLO26's masks). The pictures and answers of this crate are float32 on the CPU and
//! in a device's memory alike, so a `Cast` goes in front of the input and behind each such output;
//! the network in between stays as precise, and as fast, as it was exported. Class numbers of int64
//! (RT-DETR's `labels`) are turned in the same way, and its second input, the size of the picture,
//! becomes a constant.

use std::borrow::Cow;
use std::collections::HashSet;

use super::model::{Declared, FLOAT, FLOAT16, INT64, Model, number};
use super::wire::{fields, put_bytes, put_int};
use super::{OnnxError, is_half, picture, picture_size};

/// First version of the operator set whose `Cast` is written with a number.
const CAST_OPSET: i64 = 6;

/// The file with a float32 interface; itself, where it has one.
pub(super) fn to_float32<'a>(
    bytes: &'a [u8],
    model: &Model,
    size: Option<[usize; 2]>,
) -> Result<Cow<'a, [u8]>, OnnxError> {
    // Float16, int64, int32, float64.
    let other = |kind: i64| matches!(kind, FLOAT16 | INT64 | 6 | 11);
    let input = picture(model).filter(|input| is_half(input.kind));
    let outputs: Vec<&Declared> = model.graph.outputs.iter().filter(|output| other(output.kind)).collect();
    let constant = picture_size(model).filter(|_| model.graph.inputs.len() == 2);
    if input.is_none() && outputs.is_empty() && constant.is_none() {
        return Ok(Cow::Borrowed(bytes));
    }
    if model.opset < CAST_OPSET {
        return Err(OnnxError::Refused {
            found: format!("a half-precision interface with operator set {}", model.opset),
            accepted: format!("operator set {CAST_OPSET} or newer; export again with `opset=17`"),
        });
    }
    let mut used: HashSet<String> =
        model.graph.nodes.iter().flat_map(|node| &node.outputs).map(|&n| n.into()).collect();
    used.extend(model.graph.inputs.iter().chain(&model.graph.outputs).map(|value| value.name.to_owned()));
    let mut fresh = |name: &str| {
        let mut fresh = format!("{name}_float32");
        while !used.insert(fresh.clone()) {
            fresh.push('_');
        }
        fresh
    };
    let mut graph = Vec::with_capacity(bytes.len() + 1024);
    let input = input.map(|input| (input, fresh(input.name)));
    if let Some((input, name)) = &input {
        put_bytes(&mut graph, number::GRAPH_NODE, &cast(name, input.name, FLOAT16));
    }
    let outputs: Vec<(&Declared, String)> =
        outputs.iter().map(|output| (*output, fresh(output.name))).collect();
    let whole = fields(bytes).find_map(|field| match field {
        Ok(field) if field.number == number::MODEL_GRAPH => field.bytes().ok(),
        _ => None,
    });
    for field in fields(whole.unwrap_or_default()) {
        let field = field?;
        let replaced = match field.number {
            number::GRAPH_INPUT | number::GRAPH_OUTPUT => {
                let name = name_of(field.bytes()?)?;
                if constant.is_some_and(|constant| constant.name == name)
                    && field.number == number::GRAPH_INPUT
                {
                    continue;
                }
                let input = input.iter().filter(|_| field.number == number::GRAPH_INPUT);
                let of_outputs = outputs.iter().filter(|_| field.number == number::GRAPH_OUTPUT);
                input.chain(of_outputs).find(|(declared, _)| declared.name == name)
            }
            _ => None,
        };
        match replaced {
            Some((declared, name)) => put_bytes(&mut graph, field.number, &declaration(name, declared)),
            None => graph.extend_from_slice(field.raw),
        }
    }
    for (output, name) in &outputs {
        put_bytes(&mut graph, number::GRAPH_NODE, &cast(output.name, name, FLOAT));
    }
    if let Some(constant) = constant {
        let side = |axis: usize| {
            let dims = picture(model)
                .and_then(|input| input.dims.as_ref())
                .and_then(|dims| dims.get(2 + axis).copied());
            dims.flatten().or(size.map(|size| size[axis] as u64)).unwrap_or_default() as i64
        };
        put_bytes(&mut graph, number::GRAPH_INITIALIZER, &pair(constant.name, [side(1), side(0)]));
    }
    let mut out = Vec::with_capacity(graph.len() + 4096);
    for field in fields(bytes) {
        let field = field?;
        if field.number == number::MODEL_GRAPH {
            put_bytes(&mut out, field.number, &graph);
        } else {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(Cow::Owned(out))
}

/// The name of a declared value.
fn name_of(bytes: &[u8]) -> Result<&str, OnnxError> {
    let mut name = "";
    for field in fields(bytes) {
        let field = field?;
        if field.number == 1 {
            name = std::str::from_utf8(field.bytes()?).unwrap_or_default();
        }
    }
    Ok(name)
}

/// A node `Cast`.
fn cast(from: &str, to: &str, kind: i64) -> Vec<u8> {
    let mut attribute = Vec::new();
    put_bytes(&mut attribute, 1, b"to");
    put_int(&mut attribute, 3, kind);
    // Type of the attribute: an integer.
    put_int(&mut attribute, 20, 2);
    let mut node = Vec::new();
    put_bytes(&mut node, 1, from.as_bytes());
    put_bytes(&mut node, 2, to.as_bytes());
    put_bytes(&mut node, 3, format!("takt_{to}").as_bytes());
    put_bytes(&mut node, 4, b"Cast");
    put_bytes(&mut node, 5, &attribute);
    node
}

/// A declared value of float32 with the shape of another.
fn declaration(name: &str, like: &Declared) -> Vec<u8> {
    let mut tensor = Vec::new();
    put_int(&mut tensor, 1, FLOAT);
    if let Some(dims) = &like.dims {
        let mut shape = Vec::new();
        for dim in dims {
            let mut size = Vec::new();
            if let Some(dim) = dim {
                put_int(&mut size, 1, *dim as i64);
            }
            put_bytes(&mut shape, 1, &size);
        }
        put_bytes(&mut tensor, 2, &shape);
    }
    let mut kind = Vec::new();
    put_bytes(&mut kind, 1, &tensor);
    let mut value = Vec::new();
    put_bytes(&mut value, 1, name.as_bytes());
    put_bytes(&mut value, 2, &kind);
    value
}

/// A constant of two integers, [1, 2].
fn pair(name: &str, values: [i64; 2]) -> Vec<u8> {
    let mut tensor = Vec::new();
    put_int(&mut tensor, 1, 1);
    put_int(&mut tensor, 1, 2);
    put_int(&mut tensor, 2, INT64);
    put_bytes(&mut tensor, 8, name.as_bytes());
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    put_bytes(&mut tensor, 9, &raw);
    tensor
}
