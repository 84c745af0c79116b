//! ONNX files, read and bounded before an engine sees them.
//!
//! The engines trust a file: a few hundred bytes make them take gigabytes (a `ConstantOfShape` of
//! 10⁹ elements is folded while the file is loaded), follow paths to other files, or recurse until
//! the stack ends, and running out of memory ends the process that stops the robot. So every file
//! is read here first, with the limits of [`limits`]: its structure ([`model`]), the order of its
//! nodes ([`order`]), the size of every value and the work of an inference ([`sizes`]). Exporters'
//! metadata of the network (classes, task, layout) is in [`facts`]; [`rewrite`] turns interfaces of
//! half precision into the float32 that everything else here uses.

mod facts;
pub(crate) mod limits;
mod model;
mod order;
mod rewrite;
mod shapes;
mod sizes;
#[cfg(test)]
pub(crate) mod testing;
mod wire;

use std::borrow::Cow;

pub(crate) use facts::{Facts, Task};
use model::{FLOAT, FLOAT16, Model};
use wire::WireError;

/// Reason why a file is not passed to an engine.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The bytes are no Protocol Buffers message.
    #[error("it is not an ONNX file, or is damaged: {0}")]
    Wire(#[from] WireError),
    /// A message that is not as onnx.proto says.
    #[error("it is not a valid ONNX file: it has {0}")]
    Structure(String),
    /// A limit is exceeded.
    #[error("it has {found} {what}; accepted: at most {accepted}. {SMALLER}")]
    Limit {
        /// The counted thing.
        what: String,
        found: String,
        accepted: String,
    },
    /// Something that is not accepted at all.
    #[error("it has {found}; accepted: {accepted}")]
    Refused { found: String, accepted: String },
    /// The shape of a constant promises other values than there are.
    #[error(
        "its tensor `{name}` of shape {dims:?} has {found}: the file is damaged or was made by hand; export it again"
    )]
    Values { name: String, dims: Vec<u64>, found: String },
    /// Nodes need each other's outputs.
    #[error(
        "its node {node} needs `{input}`, which neither an earlier node nor an input provides (a cycle, or a missing node); export it again"
    )]
    Order { node: String, input: String },
    /// A value is too large, or its size is not known before the network runs.
    #[error("its node {node} gives {found}; accepted: at most {accepted}. {SMALLER}")]
    Size { node: String, found: String, accepted: String },
}

const SMALLER: &str = "Export the network with a fixed and smaller input (`dynamic=False`, `imgsz=640`)";

/// A name of a file's, cut to what can be read.
pub(crate) fn short(name: &str) -> String {
    let cut: String = name.chars().take(60).collect();
    if cut.len() == name.len() { cut } else { format!("{cut}…") }
}

/// A file that is within the limits, as it is handed to an engine.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    /// The file, rewritten where its interface needs that.
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) facts: Facts,
}

/// Reads a file, and checks it for an input of that height and width where it leaves them open.
///
/// # Errors
/// [`OnnxError`]: what was found, what is accepted, and the way out.
pub(crate) fn check(bytes: &[u8], size: Option<[usize; 2]>) -> Result<Checked<'_>, OnnxError> {
    if bytes.len() as u64 > limits::MAX_FILE_BYTES {
        return Err(OnnxError::Limit {
            what: "bytes".into(),
            found: bytes.len().to_string(),
            accepted: limits::MAX_FILE_BYTES.to_string(),
        });
    }
    let model = model::parse(bytes)?;
    let order = order::sorted(&model.graph)?;
    let facts = Facts::of(&model);
    let size = size.or(facts.size);
    sizes::check(&model, &order, size)?;
    Ok(Checked { bytes: rewrite::to_float32(bytes, &model, size)?, facts })
}

/// The picture's input: the first of four dimensions, or the first at all.
fn picture<'m, 'a>(model: &'m Model<'a>) -> Option<&'m model::Declared<'a>> {
    let inputs = &model.graph.inputs;
    let four = |input: &&model::Declared| input.dims.as_ref().is_some_and(|dims| dims.len() == 4);
    inputs.iter().find(four).or(inputs.first())
}

/// The second input of RT-DETR's own exports: width and height of the picture that boxes are scaled
/// to.
fn picture_size<'m, 'a>(model: &'m Model<'a>) -> Option<&'m model::Declared<'a>> {
    let two = |input: &&model::Declared| {
        let dims = input.dims.as_deref();
        input.kind == model::INT64 && matches!(dims, Some([None | Some(1), None | Some(2)]))
    };
    model.graph.inputs.iter().find(two)
}

/// Whether values of that type become float32.
fn is_half(kind: i64) -> bool {
    kind == FLOAT16
}

/// Whether values of that type are read.
fn is_float(kind: i64) -> bool {
    matches!(kind, FLOAT | FLOAT16)
}

#[cfg(test)]
mod tests;
