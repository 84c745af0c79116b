//! The structure of an ONNX file (onnx.proto of ONNX 1.19), read with bounds and without its
//! weights: those stay where they are in the file's bytes.

use super::limits::{
    MAX_ATTRIBUTES, MAX_CONNECTIONS, MAX_DECLARED, MAX_METADATA, MAX_METADATA_BYTES, MAX_NAME_BYTES,
    MAX_NESTING, MAX_NODES, MAX_RANK, MAX_SUBGRAPHS, MAX_TENSORS,
};
use super::wire::{Field, WireError, fields};
use super::{OnnxError, short};

/// Types of elements (`TensorProto.DataType`).
pub(crate) const FLOAT: i64 = 1;
pub(crate) const INT64: i64 = 7;
const STRING: i64 = 8;
pub(crate) const FLOAT16: i64 = 10;

/// Field numbers of the messages that are also written.
pub(crate) mod number {
    pub(crate) const MODEL_GRAPH: u32 = 7;
    pub(crate) const GRAPH_NODE: u32 = 1;
    pub(crate) const GRAPH_INITIALIZER: u32 = 5;
    pub(crate) const GRAPH_INPUT: u32 = 11;
    pub(crate) const GRAPH_OUTPUT: u32 = 12;
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model<'a> {
    pub(crate) metadata: Vec<(&'a str, &'a str)>,
    /// Version of the default operator set.
    pub(crate) opset: i64,
    pub(crate) graph: Graph<'a>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    pub(crate) initializers: Vec<TensorInfo<'a>>,
    /// Without those that an initializer gives a value.
    pub(crate) inputs: Vec<Declared<'a>>,
    pub(crate) outputs: Vec<Declared<'a>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Node<'a> {
    pub(crate) op: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) name: &'a str,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) attributes: Vec<Attribute<'a>>,
}

impl<'a> Node<'a> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(|attribute| attribute.int).unwrap_or(default)
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a [u8]> {
        self.attribute(name).and_then(|attribute| attribute.text)
    }

    /// For errors: its operator and its name.
    pub(crate) fn title(&self) -> String {
        let name = if self.name.is_empty() { self.outputs.first().copied() } else { Some(self.name) };
        format!("{} `{}`", short(self.op), short(name.unwrap_or_default()))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a str,
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f32>,
    pub(crate) text: Option<&'a [u8]>,
    pub(crate) ints: Vec<i64>,
    pub(crate) floats: Vec<f32>,
    pub(crate) tensor: Option<TensorInfo<'a>>,
    pub(crate) graphs: Vec<Graph<'a>>,
}

/// A constant tensor: its shape, and where its values are.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorInfo<'a> {
    pub(crate) name: &'a str,
    pub(crate) dims: Vec<u64>,
    pub(crate) kind: i64,
    raw: Option<&'a [u8]>,
    /// Fields with typed values.
    typed: Vec<Field<'a>>,
}

/// A declared input or output; open dimensions are `None`. Without a shape where it has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: i64,
    pub(crate) dims: Option<Vec<Option<u64>>>,
}

/// Remaining limits for reading.
struct Counts {
    nodes: usize,
    tensors: usize,
    connections: usize,
    attributes: usize,
    declared: usize,
    subgraphs: usize,
}

/// Takes `some` of what is left.
fn take(left: &mut usize, some: usize, what: &'static str, accepted: usize) -> Result<(), OnnxError> {
    match left.checked_sub(some) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err(OnnxError::Limit {
            what: what.into(),
            found: format!("more than {accepted}"),
            accepted: format!("{accepted}"),
        }),
    }
}

fn text<'a>(field: &Field<'a>) -> Result<&'a str, OnnxError> {
    let bytes = field.bytes()?;
    if bytes.len() > MAX_NAME_BYTES {
        return Err(OnnxError::Limit {
            what: "bytes of a name".into(),
            found: bytes.len().to_string(),
            accepted: MAX_NAME_BYTES.to_string(),
        });
    }
    std::str::from_utf8(bytes).map_err(|_| OnnxError::Structure("a name that is not UTF-8".into()))
}

/// A message that a field may give once. Readers of Protocol Buffers merge several, so that what
/// was checked would not be what is used.
fn once<T>(slot: &mut Option<T>, value: T, what: &'static str) -> Result<(), OnnxError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(OnnxError::Structure(format!("{what} more than once"))),
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Model<'_>, OnnxError> {
    let mut left = Counts {
        nodes: MAX_NODES,
        tensors: MAX_TENSORS,
        connections: MAX_CONNECTIONS,
        attributes: MAX_ATTRIBUTES,
        declared: MAX_DECLARED,
        subgraphs: MAX_SUBGRAPHS,
    };
    let mut model = Model::default();
    let mut graph = None;
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            number::MODEL_GRAPH => once(&mut graph, field.bytes()?, "a graph")?,
            8 => {
                let (mut domain, mut version) = ("", 0);
                for part in fields(field.bytes()?) {
                    let part = part?;
                    match part.number {
                        1 => domain = text(&part)?,
                        2 => version = part.int()?,
                        _ => {}
                    }
                }
                if matches!(domain, "" | "ai.onnx") {
                    model.opset = version;
                }
            }
            14 => {
                if model.metadata.len() == MAX_METADATA {
                    let found = format!("more than {MAX_METADATA}");
                    let accepted = MAX_METADATA.to_string();
                    return Err(OnnxError::Limit { what: "entries of metadata".into(), found, accepted });
                }
                model.metadata.push(metadata(field.bytes()?)?);
            }
            25 => {
                return Err(OnnxError::Refused {
                    found: "functions of the model's own".into(),
                    accepted: "operators of ONNX; inline them with `onnx.inliner.inline_local_functions`"
                        .into(),
                });
            }
            _ => {}
        }
    }
    let Some(graph) = graph else { return Err(OnnxError::Structure("no graph".into())) };
    model.graph = read_graph(graph, 0, &mut left)?;
    Ok(model)
}

fn metadata(bytes: &[u8]) -> Result<(&str, &str), OnnxError> {
    let (mut key, mut value) = ("", "");
    for part in fields(bytes) {
        let part = part?;
        let bytes = part.bytes()?;
        if bytes.len() > MAX_METADATA_BYTES {
            let (found, accepted) = (bytes.len().to_string(), MAX_METADATA_BYTES.to_string());
            return Err(OnnxError::Limit { what: "bytes of an entry of metadata".into(), found, accepted });
        }
        // Somebody's text of another encoding says nothing here, and harms nothing.
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        match part.number {
            1 => key = text,
            2 => value = text,
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_graph<'a>(bytes: &'a [u8], depth: usize, left: &mut Counts) -> Result<Graph<'a>, OnnxError> {
    if depth > MAX_NESTING {
        return Err(OnnxError::Limit {
            what: "levels of nested graphs".into(),
            found: format!("more than {MAX_NESTING}"),
            accepted: MAX_NESTING.to_string(),
        });
    }
    let mut graph = Graph::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            number::GRAPH_NODE => {
                take(&mut left.nodes, 1, "nodes", MAX_NODES)?;
                graph.nodes.push(read_node(field.bytes()?, depth, left)?);
            }
            number::GRAPH_INITIALIZER => graph.initializers.push(read_tensor(field.bytes()?, left)?),
            number::GRAPH_INPUT => graph.inputs.push(read_declared(field.bytes()?, left)?),
            number::GRAPH_OUTPUT => graph.outputs.push(read_declared(field.bytes()?, left)?),
            // Notes of exporters about intermediate values; the engines read them, too.
            13 => drop(read_declared(field.bytes()?, left)?),
            15 => return Err(sparse()),
            _ => {}
        }
    }
    let given: std::collections::HashSet<&str> =
        graph.initializers.iter().map(|tensor| tensor.name).collect();
    graph.inputs.retain(|input| !given.contains(input.name));
    Ok(graph)
}

fn sparse() -> OnnxError {
    OnnxError::Refused { found: "sparse tensors".into(), accepted: "dense tensors".into() }
}

fn read_node<'a>(bytes: &'a [u8], depth: usize, left: &mut Counts) -> Result<Node<'a>, OnnxError> {
    let mut node = Node::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 | 2 => {
                take(&mut left.connections, 1, "inputs and outputs of nodes", MAX_CONNECTIONS)?;
                let to = if field.number == 1 { &mut node.inputs } else { &mut node.outputs };
                to.push(text(&field)?);
            }
            3 => node.name = text(&field)?,
            4 => node.op = text(&field)?,
            7 => node.domain = text(&field)?,
            5 => {
                take(&mut left.attributes, 1, "attributes", MAX_ATTRIBUTES)?;
                node.attributes.push(read_attribute(field.bytes()?, depth, left)?);
            }
            _ => {}
        }
    }
    Ok(node)
}

fn read_attribute<'a>(bytes: &'a [u8], depth: usize, left: &mut Counts) -> Result<Attribute<'a>, OnnxError> {
    let mut attribute = Attribute::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => attribute.name = text(&field)?,
            2 => attribute.float = floats(&field)?.next(),
            3 => attribute.int = Some(field.int()?),
            4 => attribute.text = Some(field.bytes()?),
            5 => once(&mut attribute.tensor, read_tensor(field.bytes()?, left)?, "a tensor of an attribute")?,
            6 | 11 => {
                take(&mut left.subgraphs, 1, "nested graphs", MAX_SUBGRAPHS)?;
                attribute.graphs.push(read_graph(field.bytes()?, depth + 1, left)?);
            }
            7 => {
                for value in floats(&field)? {
                    take(&mut left.attributes, 1, "numbers in attributes", MAX_ATTRIBUTES)?;
                    attribute.floats.push(value);
                }
            }
            8 => {
                for value in field.ints() {
                    take(&mut left.attributes, 1, "numbers in attributes", MAX_ATTRIBUTES)?;
                    attribute.ints.push(value?);
                }
            }
            9 => take(&mut left.attributes, 1, "strings in attributes", MAX_ATTRIBUTES)?,
            10 => drop(read_tensor(field.bytes()?, left)?),
            22 | 23 => return Err(sparse()),
            14 | 15 => drop(read_type(field.bytes()?)?),
            _ => {}
        }
    }
    Ok(attribute)
}

fn floats<'a>(field: &Field<'a>) -> Result<impl Iterator<Item = f32> + use<'a>, OnnxError> {
    let bytes = match field.value {
        super::wire::Value::Fixed(bytes) | super::wire::Value::Bytes(bytes)
            if bytes.len().is_multiple_of(4) =>
        {
            bytes
        }
        _ => return Err(WireError::Type { field: field.number }.into()),
    };
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
}

fn read_tensor<'a>(bytes: &'a [u8], left: &mut Counts) -> Result<TensorInfo<'a>, OnnxError> {
    take(&mut left.tensors, 1, "constant tensors", MAX_TENSORS)?;
    let mut tensor = TensorInfo::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => {
                for dim in field.ints() {
                    let dim = dim?;
                    let Ok(dim) = u64::try_from(dim) else {
                        return Err(OnnxError::Structure(format!("a tensor with a dimension of {dim}")));
                    };
                    rank(tensor.dims.len() + 1)?;
                    tensor.dims.push(dim);
                }
            }
            2 => tensor.kind = field.int()?,
            8 => tensor.name = text(&field)?,
            9 => tensor.raw = Some(field.bytes()?),
            4..=7 | 10 | 11 => {
                // Unpacked values are a field each: they are no constants of an exporter's.
                take(&mut left.attributes, 1, "values written one by one", MAX_ATTRIBUTES)?;
                tensor.typed.push(field);
            }
            3 => {
                return Err(OnnxError::Refused {
                    found: "a tensor in segments".into(),
                    accepted: WHOLE.into(),
                });
            }
            13 | 14 if field.number == 13 || field.int()? != 0 => {
                return Err(OnnxError::Refused {
                    found: "weights in another file (external data)".into(),
                    accepted: WHOLE.into(),
                });
            }
            _ => {}
        }
    }
    tensor.check()?;
    Ok(tensor)
}

const WHOLE: &str = "all weights inside the file; `onnx.save(onnx.load(FILE), NEW, save_as_external_data=False)` \
                     writes such a file";

fn rank(found: usize) -> Result<(), OnnxError> {
    if found <= MAX_RANK {
        return Ok(());
    }
    Err(OnnxError::Limit {
        what: "dimensions of a tensor".into(),
        found: format!("more than {MAX_RANK}"),
        accepted: MAX_RANK.to_string(),
    })
}

impl TensorInfo<'_> {
    /// Number of elements according to its shape.
    pub(crate) fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
    }

    /// Whether there are as many values as the shape says.
    fn check(&self) -> Result<(), OnnxError> {
        let mismatch =
            |found: String| OnnxError::Values { name: short(self.name), dims: self.dims.clone(), found };
        let Some(elements) = self.elements() else { return Err(mismatch("fewer".into())) };
        let bits: u64 = match self.kind {
            FLOAT | 6 | 12 => 32,
            INT64 | 11 | 13 | 14 => 64,
            15 => 128,
            2 | 3 | 9 | 17..=20 | 24 => 8,
            4 | 5 | FLOAT16 | 16 => 16,
            21..=23 => 4,
            25 | 26 => 2,
            STRING => 0,
            kind => return Err(OnnxError::Structure(format!("a tensor of the unknown type {kind}"))),
        };
        if let (Some(raw), true) = (self.raw, bits > 0) {
            let expected = elements.checked_mul(bits).map(|bits| bits.div_ceil(8));
            if expected != Some(raw.len() as u64) || !self.typed.is_empty() {
                return Err(mismatch(format!("{} bytes", raw.len())));
            }
            return Ok(());
        }
        let mut found = 0u64;
        for field in &self.typed {
            found += match (field.number, self.kind) {
                // Complex numbers are two.
                (4, FLOAT | 14) => field.fixed_count(4).ok_or(WireError::Type { field: 4 })? as u64,
                (10, 11 | 15) => field.fixed_count(8).ok_or(WireError::Type { field: 10 })? as u64,
                (5, 2..=6 | 9 | FLOAT16 | 16..=26) | (7, INT64) | (11, 12 | 13) => {
                    let mut count = 0;
                    for value in field.ints() {
                        value?;
                        count += 1;
                    }
                    count
                }
                (6, STRING) => 1,
                (number, kind) => {
                    let what = format!("a tensor of type {kind} with values in field {number}");
                    return Err(OnnxError::Structure(what));
                }
            };
        }
        let expected = match self.kind {
            14 | 15 => elements.saturating_mul(2),
            21..=23 => elements.div_ceil(2),
            25 | 26 => elements.div_ceil(4),
            _ => elements,
        };
        if expected == found { Ok(()) } else { Err(mismatch(format!("{found} values"))) }
    }

    /// Its values, where they are numbers that shapes are made of and there are at most `most`.
    pub(crate) fn numbers(&self, most: usize) -> Option<Vec<f64>> {
        let elements = self.elements().filter(|&elements| elements <= most as u64)? as usize;
        let mut values = Vec::with_capacity(elements);
        if let Some(raw) = self.raw {
            match self.kind {
                FLOAT => values.extend(raw.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(array(b))))),
                6 => values.extend(raw.chunks_exact(4).map(|b| f64::from(i32::from_le_bytes(array(b))))),
                INT64 => values.extend(raw.chunks_exact(8).map(|b| i64::from_le_bytes(array(b)) as f64)),
                11 => values.extend(raw.chunks_exact(8).map(|b| f64::from_le_bytes(array(b)))),
                9 => values.extend(raw.iter().map(|&b| f64::from(b))),
                _ => return None,
            }
        }
        for field in &self.typed {
            match self.kind {
                FLOAT => values.extend(floats(field).ok()?.map(f64::from)),
                6 | INT64 | 9 => values.extend(field.ints().map_while(Result::ok).map(|value| value as f64)),
                _ => return None,
            }
        }
        (values.len() == elements).then_some(values)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

fn read_declared<'a>(bytes: &'a [u8], left: &mut Counts) -> Result<Declared<'a>, OnnxError> {
    take(&mut left.declared, 1, "declared values", MAX_DECLARED)?;
    let mut declared = Declared::default();
    let mut kind = None;
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => declared.name = text(&field)?,
            2 => once(&mut kind, read_type(field.bytes()?)?, "a type")?,
            _ => {}
        }
    }
    if let Some(Some((kind, dims))) = kind {
        (declared.kind, declared.dims) = (kind, dims);
    }
    Ok(declared)
}

/// Type of the elements and the shape of a dense tensor's type; open dimensions are `None`.
type TensorType = (i64, Option<Vec<Option<u64>>>);

fn read_type(bytes: &[u8]) -> Result<Option<TensorType>, OnnxError> {
    let mut tensor = None;
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => once(&mut tensor, field.bytes()?, "a type of tensor")?,
            // Sequences, maps and optional values nest types without end.
            4 | 5 | 7 | 8 | 9 => {
                return Err(OnnxError::Refused {
                    found: "a value that is a sequence, a map or optional".into(),
                    accepted: "tensors".into(),
                });
            }
            _ => {}
        }
    }
    let Some(tensor) = tensor else { return Ok(None) };
    let (mut kind, mut shape) = (0, None);
    for field in fields(tensor) {
        let field = field?;
        match field.number {
            1 => kind = field.int()?,
            2 => once(&mut shape, field.bytes()?, "a shape")?,
            _ => {}
        }
    }
    let Some(shape) = shape else { return Ok(Some((kind, None))) };
    let mut dims = Vec::new();
    for field in fields(shape) {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        rank(dims.len() + 1)?;
        let mut size = None;
        for part in fields(field.bytes()?) {
            let part = part?;
            if part.number == 1 {
                size = u64::try_from(part.int()?).ok().filter(|&size| size > 0);
            }
        }
        dims.push(size);
    }
    Ok(Some((kind, Some(dims))))
}
