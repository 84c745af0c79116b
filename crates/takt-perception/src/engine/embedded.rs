//! The embedded engine: `rten`, pure Rust with SIMD kernels, needs nothing installed.
//!
//! Chosen over `tract-onnx` 0.23 by measurement: the detector takes a fifth less processor time,
//! masks take the same, results agree with ONNX Runtime as well, and it brings 24 crates instead
//! of 116. ONNX Runtime itself is four to five times as fast, so it is used where it is installed.
//!
//! An inference runs in a helper thread of the library (`rten-0`), one for each network: give it
//! the fallback policy of helper threads, or a real-time camera thread waits for a thread without a
//! policy.

use std::sync::Arc;

use rten::{Dimension, Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::NdTensorView;
use rten_tensor::prelude::*;

use super::{EngineError, Network, Tensor, check_length, fix_shape};

pub(super) const NAME: &str = "embedded engine (rten)";

pub(super) struct Embedded {
    model: Model,
    input: NodeId,
    shape: [usize; 4],
    output_ids: Vec<NodeId>,
    outputs: Vec<Tensor>,
    /// One helper thread, in which the inference runs: the library offers no way to run in the
    /// caller's.
    pool: Arc<ThreadPool>,
}

impl Embedded {
    pub(super) fn load(
        name: &str,
        bytes: &[u8],
        size: Option<[usize; 2]>,
        threads: usize,
    ) -> Result<Self, EngineError> {
        let mut options = ModelOptions::with_all_ops();
        options.prepack_weights(true);
        let refuse = |reason: String| EngineError::Load { model: name.into(), engine: NAME, reason };
        // Folds constants, and so runs operators, which may panic on what no exporter writes.
        let model = caught(|| options.load(bytes.to_vec()).map_err(|error| error.to_string()))
            .and_then(|loaded| loaded)
            .map_err(refuse)?;
        let declared = match model.input_ids() {
            [_] => model.input_shape(0).unwrap_or_default(),
            _ => Vec::new(),
        };
        let declared: Vec<Option<usize>> = declared
            .iter()
            .map(|dimension| match dimension {
                Dimension::Fixed(size) => Some(*size),
                Dimension::Symbolic(_) => None,
            })
            .collect();
        let shape = fix_shape(name, &declared, size)?;
        let input = model.input_ids()[0];
        let output_ids = model.output_ids().to_vec();
        let name_of = |id: &NodeId| {
            let info = model.node_info(*id);
            info.and_then(|info| info.name().map(str::to_string)).unwrap_or_default()
        };
        let outputs = output_ids.iter().map(|id| Tensor { name: name_of(id), ..Tensor::default() }).collect();
        let pool = Arc::new(ThreadPool::with_num_threads(threads.max(1)));
        Ok(Self { model, input, shape, output_ids, outputs, pool })
    }
}

/// Result of `work`, or its panic: a library's panic on a file must not end the process that stops
/// the robot. The hook of this program still reports it.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Half-changed state is dropped by the caller, which refuses the network or the frame.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        format!("it panicked: {}", text.unwrap_or_default())
    })
}

impl Network for Embedded {
    fn input_shape(&self) -> &[usize] {
        &self.shape
    }

    fn run(&mut self, input: &[f32]) -> Result<&[Tensor], EngineError> {
        check_length(&self.shape, input)?;
        let view = NdTensorView::<f32, 4>::from_data(self.shape, input);
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
        let (model, ids, input) = (&self.model, &self.output_ids, self.input);
        let results = caught(|| {
            model.run(vec![(input, view.into())], ids, Some(options)).map_err(|error| error.to_string())
        })
        .and_then(|results| results)
        .map_err(EngineError::Run)?;
        for (output, value) in self.outputs.iter_mut().zip(&results) {
            let Value::FloatTensor(tensor) = value else {
                return Err(EngineError::Run(format!("output {} is not float32", output.name)));
            };
            output.shape.clear();
            output.shape.extend_from_slice(tensor.shape());
            output.data.clear();
            match tensor.data() {
                Some(data) => output.data.extend_from_slice(data),
                None => output.data.extend(tensor.iter()),
            }
        }
        Ok(&self.outputs)
    }
}
