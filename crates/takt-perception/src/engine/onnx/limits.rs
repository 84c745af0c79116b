//! The limits of an ONNX file, all in this place. They are far above every detector and segmenter
//! that could answer within a frame's time, and far below what endangers the machine.

/// Most bytes of a file. The largest YOLO export of full precision (YOLOv8x, 68 million weights)
/// has 273 MB.
pub(crate) const MAX_FILE_BYTES: u64 = 512 << 20;

/// Most nodes, those of subgraphs included. YOLO exports have 200 to 1,000, RT-DETR's 2,500; ONNX
/// Runtime takes about 22 kB for a node.
pub(crate) const MAX_NODES: usize = 10_000;

/// Most constant tensors: initializers and attributes of nodes.
pub(crate) const MAX_TENSORS: usize = 20_000;

/// Deepest nesting of subgraphs (`If`): the engines recurse into them.
pub(crate) const MAX_NESTING: usize = 4;

/// Most subgraphs in all: two for an `If`.
pub(crate) const MAX_SUBGRAPHS: usize = 256;

/// Most names of inputs and outputs of all nodes together.
pub(crate) const MAX_CONNECTIONS: usize = 100_000;

/// Most attributes of all nodes, and most numbers and strings in them, together.
pub(crate) const MAX_ATTRIBUTES: usize = 200_000;

/// Most declared inputs, outputs and intermediate values of a graph.
pub(crate) const MAX_DECLARED: usize = 40_000;

/// Longest name of a node, a value or an operator, bytes.
pub(crate) const MAX_NAME_BYTES: usize = 4096;

/// Most dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 16;

/// Most entries of the file's metadata, and most bytes of one. The names of 1,200 classes are
/// 30 kB.
pub(crate) const MAX_METADATA: usize = 1024;
pub(crate) const MAX_METADATA_BYTES: usize = 1 << 20;

/// Largest height and width of an input, pixels.
pub(crate) const MAX_INPUT_SIDE: u64 = 4096;

/// Most elements of one value: 256 MiB of float32. YOLOv8x at 1280×1280 has values of 33 million.
pub(crate) const MAX_VALUE_ELEMENTS: u64 = 1 << 26;

/// Most elements of all values that are needed at the same time: 1 GiB of float32.
pub(crate) const MAX_LIVE_ELEMENTS: u64 = 1 << 28;

/// Most multiplications of one inference. YOLOv8x at 1280×1280 needs 5·10¹¹, which takes a CPU
/// core half a minute.
pub(crate) const MAX_MULTIPLICATIONS: u64 = 600_000_000_000;
