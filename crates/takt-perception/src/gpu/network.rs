//! Networks whose inputs and outputs lie in the device's memory.

use std::fmt;

use takt_gpu::{DeviceBuffer, Event, Gpu, Pinned, Stream, Wait, Waited};

use super::{GpuPerceptionError, settle};
use crate::engine::{Bound, EngineError, Facts, LoadedNetwork, Tensor};

/// Time limit and method of waiting for the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// CLOCK_MONOTONIC nanoseconds.
    pub(super) deadline_ns: u64,
    pub(super) wait: Wait,
}

impl Budget {
    /// Waits until all work before `event` has ended.
    pub(super) fn wait(&self, event: &Event, stage: &'static str) -> Result<(), GpuPerceptionError> {
        match event.wait(self.deadline_ns, self.wait)? {
            Waited::Done => Ok(()),
            Waited::Overrun => Err(GpuPerceptionError::Overrun { stage }),
        }
    }
}

/// A network with several sets of inputs and outputs (slots) on the device.
pub(super) trait DeviceNetwork: Send + fmt::Debug {
    /// The model, as configured.
    fn model(&self) -> &str;
    fn input_shape(&self) -> &[usize];
    /// Names and shapes of the outputs.
    fn outputs(&self) -> &[(String, Vec<usize>)];
    /// Facts from its file.
    fn facts(&self) -> &Facts;
    /// Inputs and outputs.
    fn slots(&self) -> &[Slot];
    /// Device address of a slot's input.
    fn input(&self, slot: usize) -> u64;
    /// Device address of an output of a slot.
    fn output(&self, slot: usize, index: usize) -> u64;
    /// Puts an inference on `stream`, behind what fills the slot's input; what is put there next
    /// sees the outputs.
    fn run(&mut self, slot: usize, stream: &Stream, budget: &Budget) -> Result<(), GpuPerceptionError>;
}

/// The error of a model whose interface is not the expected one.
pub(super) fn misfit(network: &dyn DeviceNetwork, expected: String) -> EngineError {
    EngineError::misfit(network.model(), network.input_shape(), network.outputs(), expected)
}

/// Runs a network once in its first slot and waits for the answer: for its proof, before the first
/// frame.
pub(super) fn ask(
    gpu: &Gpu,
    stream: &Stream,
    network: &mut dyn DeviceNetwork,
    input: &[f32],
) -> Result<Vec<Tensor>, GpuPerceptionError> {
    let Some(slot) = network.slots().first() else { return Ok(Vec::new()) };
    let mut up = gpu.pinned::<f32>(input.len())?;
    up.write()?.copy_from_slice(input);
    stream.upload(&up, &slot.input)?;
    settle(stream)?;
    let ran = network.run(0, stream, &Budget { deadline_ns: u64::MAX, wait: Wait::Block });
    settle(stream)?;
    ran?;
    let mut answers = Vec::new();
    for (output, (name, shape)) in network.slots()[0].outputs.iter().zip(network.outputs()) {
        let down = gpu.pinned::<f32>(shape.iter().product())?;
        stream.download(output, &down)?;
        settle(stream)?;
        answers.push(Tensor { name: name.clone(), shape: shape.clone(), data: down.read()?.to_vec() });
    }
    Ok(answers)
}

/// A network whose inferences can be put on a stream without waiting for them, so that they can be
/// captured.
///
/// # Safety
/// Work that [`submit`](Self::submit) puts on the stream uses memory that stays in place until the
/// network is dropped, and that no other code uses while the stream is at work.
pub(super) unsafe trait Submits: DeviceNetwork {
    /// Puts an inference on `stream`. Behind a [`run`](DeviceNetwork::run) of the same slot by the
    /// same thread.
    fn submit(&mut self, slot: usize, stream: &Stream) -> Result<(), GpuPerceptionError>;
}

/// A set of inputs and outputs.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) input: DeviceBuffer<f32>,
    pub(super) outputs: Vec<DeviceBuffer<f32>>,
}

pub(super) fn slots(
    gpu: &Gpu,
    count: usize,
    input: &[usize],
    outputs: &[(String, Vec<usize>)],
) -> Result<Vec<Slot>, GpuPerceptionError> {
    let slot = |_| {
        let outputs = outputs.iter().map(|(_, shape)| gpu.buffer(shape.iter().product()));
        Ok(Slot { input: gpu.buffer(input.iter().product())?, outputs: outputs.collect::<Result<_, _>>()? })
    };
    (0..count).map(slot).collect()
}

/// A network that runs on the CPU: copied out, run, copied in. For the emulated device, and where
/// the inference library has no build for this GPU.
pub(super) struct HostNetwork {
    network: LoadedNetwork,
    slots: Vec<Slot>,
    down: Pinned<f32>,
    up: Vec<Pinned<f32>>,
    arrived: Event,
}

impl HostNetwork {
    pub(super) fn new(
        gpu: &Gpu,
        stream: &Stream,
        network: LoadedNetwork,
        count: usize,
    ) -> Result<Self, GpuPerceptionError> {
        let input = network.network.input_shape();
        let up = network.outputs.iter().map(|(_, shape)| gpu.pinned(shape.iter().product()));
        Ok(Self {
            slots: slots(gpu, count, input, &network.outputs)?,
            down: gpu.pinned(input.iter().product())?,
            up: up.collect::<Result<_, _>>()?,
            arrived: stream.event(false)?,
            network,
        })
    }
}

impl fmt::Debug for HostNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostNetwork").field("network", &self.network).finish_non_exhaustive()
    }
}

impl DeviceNetwork for HostNetwork {
    fn model(&self) -> &str {
        &self.network.model
    }

    fn input_shape(&self) -> &[usize] {
        self.network.network.input_shape()
    }

    fn outputs(&self) -> &[(String, Vec<usize>)] {
        &self.network.outputs
    }

    fn facts(&self) -> &Facts {
        &self.network.facts
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn input(&self, slot: usize) -> u64 {
        self.slots[slot].input.device_ptr()
    }

    fn output(&self, slot: usize, index: usize) -> u64 {
        self.slots[slot].outputs[index].device_ptr()
    }

    fn run(&mut self, slot: usize, stream: &Stream, budget: &Budget) -> Result<(), GpuPerceptionError> {
        let slot = &self.slots[slot];
        stream.download(&slot.input, &self.down)?;
        stream.record(&self.arrived)?;
        budget.wait(&self.arrived, "input of a network")?;
        let input = self.down.read()?;
        let outputs = self.network.network.run(&input)?;
        for ((output, up), to) in outputs.iter().zip(&mut self.up).zip(&slot.outputs) {
            if output.data.len() != up.len() {
                return Err(EngineError::Run(format!("{} changed its size", output.name)).into());
            }
            up.write()?.copy_from_slice(&output.data);
            stream.upload(up, to)?;
        }
        Ok(())
    }
}

/// A network in ONNX Runtime whose inputs and outputs are bound to the device's memory, on the same
/// stream.
#[derive(Debug)]
pub(super) struct BoundNetwork {
    // Before the memory that it is bound to.
    bound: Bound,
    slots: Vec<Slot>,
}

impl BoundNetwork {
    pub(super) fn new(gpu: &Gpu, mut bound: Bound, count: usize) -> Result<Self, GpuPerceptionError> {
        let slots = slots(gpu, count, bound.input_shape(), bound.outputs())?;
        for slot in &slots {
            let outputs: Vec<u64> = slot.outputs.iter().map(DeviceBuffer::device_ptr).collect();
            // SAFETY: of the shapes that the network has, and kept behind it in this struct.
            unsafe { bound.bind(slot.input.device_ptr(), &outputs)? };
        }
        Ok(Self { bound, slots })
    }
}

impl DeviceNetwork for BoundNetwork {
    fn model(&self) -> &str {
        self.bound.model()
    }

    fn input_shape(&self) -> &[usize] {
        self.bound.input_shape()
    }

    fn outputs(&self) -> &[(String, Vec<usize>)] {
        self.bound.outputs()
    }

    fn facts(&self) -> &Facts {
        self.bound.facts()
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn input(&self, slot: usize) -> u64 {
        self.slots[slot].input.device_ptr()
    }

    fn output(&self, slot: usize, index: usize) -> u64 {
        self.slots[slot].outputs[index].device_ptr()
    }

    fn run(&mut self, slot: usize, stream: &Stream, budget: &Budget) -> Result<(), GpuPerceptionError> {
        if self.bound.is_on_host() {
            // Memory of the emulated device, which the library reaches from this thread.
            if stream.drain(budget.deadline_ns, budget.wait)? == Waited::Overrun {
                return Err(GpuPerceptionError::Overrun { stage: "input of a network" });
            }
        }
        Ok(self.bound.run(slot)?)
    }
}

// SAFETY: the library keeps the memory of a session, and with `enable_cuda_graph` also the handles
// and workspaces of cuBLAS and cuDNN that the capturing thread had, until the session is dropped;
// runs of a session follow each other on its stream, and behind the capture there are none but
// launches.
unsafe impl Submits for BoundNetwork {
    fn submit(&mut self, slot: usize, _: &Stream) -> Result<(), GpuPerceptionError> {
        Ok(self.bound.submit(slot)?)
    }
}
