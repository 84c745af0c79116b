//! Writes small ONNX files for tests.

use super::model::number;
use super::wire::{put_bytes, put_int};

/// A message that is written field by field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        put_int(&mut self.0, field, value);
        self
    }

    pub(crate) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(crate) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        put_bytes(&mut self.0, field, bytes);
        self
    }

    pub(crate) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// A declared input or output; -1 is an open dimension.
pub(crate) fn declared(name: &str, kind: i64, dims: &[i64]) -> Message {
    let shape = dims.iter().fold(Message::default(), |shape, &dim| {
        shape.message(
            1,
            &if dim < 0 { Message::default().text(2, "n") } else { Message::default().int(1, dim) },
        )
    });
    let tensor = Message::default().int(1, kind).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A constant of integers.
pub(crate) fn integers(name: &str, dims: &[i64], values: &[i64]) -> Message {
    let tensor = dims.iter().fold(Message::default(), |tensor, &dim| tensor.int(1, dim));
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor.int(2, 7).text(8, name).bytes(9, &raw)
}

/// A constant of floats.
pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> Message {
    let tensor = dims.iter().fold(Message::default(), |tensor, &dim| tensor.int(1, dim));
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor.int(2, 1).text(8, name).bytes(9, &raw)
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    outputs.iter().fold(node, |node, output| node.text(2, output)).text(4, op)
}

/// A graph of nodes and constants.
pub(crate) fn graph(
    nodes: &[Message],
    initializers: &[Message],
    inputs: &[Message],
    outputs: &[Message],
) -> Message {
    let add = |graph: Message, field: u32, parts: &[Message]| {
        parts.iter().fold(graph, |graph, part| graph.message(field, part))
    };
    let graph = add(Message::default().text(2, "g"), number::GRAPH_NODE, nodes);
    let graph = add(graph, number::GRAPH_INITIALIZER, initializers);
    let graph = add(graph, number::GRAPH_INPUT, inputs);
    add(graph, number::GRAPH_OUTPUT, outputs)
}

/// A file of operator set 17.
pub(crate) fn file(graph: &Message) -> Vec<u8> {
    let opset = Message::default().text(1, "").int(2, 17);
    Message::default().int(1, 8).message(8, &opset).message(number::MODEL_GRAPH, graph).0
}
