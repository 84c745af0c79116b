//! Inferences captured as CUDA graphs: the library's own work on the host is done once, at the
//! start; a frame costs one launch, waits for nothing and allocates nothing.

use takt_gpu::{Gpu, GpuError, Graph, Stream, Wait};

use super::network::{Budget, DeviceNetwork, Slot, Submits};
use super::probe::Probe;
use super::{GpuPerceptionError, settle};
use crate::engine::Facts;

/// A network that is launched as a graph.
#[derive(Debug)]
pub(super) struct CapturedNetwork<N> {
    // Before the network whose memory they use.
    graphs: Vec<Graph>,
    network: N,
}

/// Most that an answer of a graph may differ from the library's own, as a part of 1 + its size:
/// the same kernels in the same order, of which some may add up in another one.
const TOLERANCE: f32 = 1e-3;

impl<N: Submits> CapturedNetwork<N> {
    /// Captures an inference of every slot, and compares each graph's answers to two pictures with
    /// the library's: a graph repeats addresses and arguments of the one run that was captured, and
    /// would go wrong silently where a library reuses the memory behind them, or reads a value back
    /// while it is captured. So a third picture is seen by the capture.
    ///
    /// # Errors
    /// [`GpuPerceptionError::Graph`] where answers differ, or where they could not: a network that
    /// answers alike to the two pictures. An error of the device or the library.
    pub(super) fn new(gpu: &Gpu, stream: &Stream, network: N) -> Result<Self, GpuPerceptionError> {
        let mut captured = Self { graphs: Vec::new(), network };
        let made = captured.capture(gpu, stream);
        // Work launched by an aborted comparison still uses the network's memory.
        let settled = settle(stream);
        made?;
        settled?;
        Ok(captured)
    }

    fn capture(&mut self, gpu: &Gpu, stream: &Stream) -> Result<(), GpuPerceptionError> {
        let wrong = |model: &str, reason| GpuPerceptionError::Graph { model: model.to_owned(), reason };
        let budget = Budget { deadline_ns: u64::MAX, wait: Wait::Block };
        let mut probe = Probe::new(gpu, self.network.input_shape(), self.network.outputs())?;
        let slots = self.network.slots().len();
        let mut expected = Vec::new();
        for slot in 0..slots {
            let mut answers = Vec::new();
            for picture in [2 * slot, 2 * slot + 1] {
                probe.ask(stream, &self.network.slots()[slot], picture)?;
                self.network.run(slot, stream, &budget)?;
                answers.push(probe.answer(stream, &self.network.slots()[slot])?);
            }
            if difference(&answers[0], &answers[1]).is_none() {
                let reason = "its answers to two pictures are equal, so graphs cannot be compared";
                return Err(wrong(self.model(), reason.to_owned()));
            }
            expected.push(answers);
        }
        // All are captured before any is compared: one capture could spoil another.
        for slot in 0..slots {
            probe.ask(stream, &self.network.slots()[slot], 2 * slots + slot)?;
            let network = &mut self.network;
            // SAFETY: as the network promises; the graphs are dropped before it, and `new` and the
            // rig wait for the stream before either is.
            let graph = unsafe { stream.capture_foreign(|| network.submit(slot, stream))? };
            self.graphs.push(graph);
        }
        // Twice: a launch must leave what the next one needs.
        for picture in [0, 1, 0, 1] {
            for (slot, expected) in expected.iter().enumerate() {
                probe.ask(stream, &self.network.slots()[slot], 2 * slot + picture)?;
                self.run(slot, stream, &budget)?;
                let answer = probe.answer(stream, &self.network.slots()[slot])?;
                if let Some(reason) = difference(&expected[picture], &answer) {
                    return Err(wrong(self.model(), reason));
                }
            }
        }
        Ok(())
    }
}

impl<N: DeviceNetwork> DeviceNetwork for CapturedNetwork<N> {
    fn model(&self) -> &str {
        self.network.model()
    }

    fn input_shape(&self) -> &[usize] {
        self.network.input_shape()
    }

    fn outputs(&self) -> &[(String, Vec<usize>)] {
        self.network.outputs()
    }

    fn facts(&self) -> &Facts {
        self.network.facts()
    }

    fn slots(&self) -> &[Slot] {
        self.network.slots()
    }

    fn input(&self, slot: usize) -> u64 {
        self.network.input(slot)
    }

    fn output(&self, slot: usize, index: usize) -> u64 {
        self.network.output(slot, index)
    }

    fn run(&mut self, slot: usize, stream: &Stream, _: &Budget) -> Result<(), GpuPerceptionError> {
        let Some(graph) = self.graphs.get(slot) else {
            return Err(GpuPerceptionError::Gpu(GpuError::Invalid {
                what: "slot of a network",
                expected: format!("below {}", self.graphs.len()),
                received: slot.to_string(),
            }));
        };
        Ok(stream.launch_graph(graph)?)
    }
}

/// The first value that differs too much.
pub(super) fn difference(expected: &[Vec<f32>], found: &[Vec<f32>]) -> Option<String> {
    let pairs = expected.iter().zip(found).enumerate();
    pairs.flat_map(|(output, (a, b))| a.iter().zip(b).map(move |pair| (output, pair))).find_map(
        |(output, (&a, &b))| {
            // Not "is above": what is no number differs.
            let close = (a - b).abs() <= TOLERANCE * (1.0 + a.abs());
            (!close).then(|| format!("a value of output {output} is {b}, but the library has {a}"))
        },
    )
}

#[cfg(test)]
mod tests {
    use takt_gpu::{Arg, Function, Grid, Source, testing};

    use super::super::network::slots;
    use super::*;

    const LENGTH: usize = 1000;
    const KERNEL: Source = Source {
        name: "scale",
        text: "extern \"C\" __global__ void scale(const float* from, float* to, float factor, int n) {\n\
               int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
               if (i < n) to[i] = factor * from[i] + 1.0f;\n}\n",
        options: &[],
    };

    /// Kind of fault.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        /// Nothing of it is on the stream.
        OnTheHost,
        /// The submitted work differs from the work that runs.
        Stale,
        /// Each capture reads the first slot's input.
        Mixed,
        /// The input at the capture became part of it.
        Baked,
        /// It answers alike to every input.
        Deaf,
        /// It refuses to be submitted.
        Refused,
    }

    #[derive(Debug)]
    struct Scaling {
        scale: Function,
        slots: Vec<Slot>,
        /// The input of each slot when it was captured.
        kept: Vec<Slot>,
        outputs: Vec<(String, Vec<usize>)>,
        facts: Facts,
        fault: Fault,
    }

    impl Scaling {
        fn new(gpu: &Gpu, fault: Fault) -> Self {
            let scale = gpu.module(&KERNEL).unwrap().function("scale").unwrap();
            let outputs = vec![("scaled".to_owned(), vec![1, LENGTH])];
            let [slots, kept] = [(); 2].map(|()| slots(gpu, 3, &[1, LENGTH], &outputs).unwrap());
            Self { scale, slots, kept, outputs, facts: Facts::default(), fault }
        }

        fn launch(&self, stream: &Stream, from: usize, to: usize, factor: f32) {
            self.launch_from(stream, &self.slots[from], to, factor);
        }

        fn launch_from(&self, stream: &Stream, from: &Slot, to: usize, factor: f32) {
            let arguments = [
                Arg::buffer(&from.input),
                Arg::buffer(&self.slots[to].outputs[0]),
                Arg::value(factor),
                Arg::value(LENGTH as i32),
            ];
            // SAFETY: as the kernel is declared, with as many elements.
            unsafe { stream.launch(&self.scale, Grid::over(LENGTH, 128), &arguments) }.unwrap();
        }
    }

    impl DeviceNetwork for Scaling {
        fn model(&self) -> &str {
            "scaling"
        }

        fn input_shape(&self) -> &[usize] {
            &[1, LENGTH]
        }

        fn outputs(&self) -> &[(String, Vec<usize>)] {
            &self.outputs
        }

        fn facts(&self) -> &Facts {
            &self.facts
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

        fn run(&mut self, slot: usize, stream: &Stream, _: &Budget) -> Result<(), GpuPerceptionError> {
            // As a library that reads its input back when it is captured, and never again.
            stream.copy(&self.slots[slot].input, &self.kept[slot].input)?;
            self.launch(stream, slot, slot, if self.fault == Fault::Deaf { 0.0 } else { 2.0 });
            Ok(())
        }
    }

    // SAFETY: its memory is its slots'.
    unsafe impl Submits for Scaling {
        fn submit(&mut self, slot: usize, stream: &Stream) -> Result<(), GpuPerceptionError> {
            match self.fault {
                Fault::None | Fault::Deaf => self.launch(stream, slot, slot, 2.0),
                Fault::OnTheHost => {}
                Fault::Stale => self.launch(stream, slot, slot, 2.01),
                Fault::Mixed => self.launch(stream, 0, slot, 2.0),
                Fault::Baked => self.launch_from(stream, &self.kept[slot], slot, 2.0),
                Fault::Refused => return Err(crate::engine::EngineError::Run("no".to_owned()).into()),
            }
            Ok(())
        }
    }

    #[test]
    fn a_graph_answers_as_the_network_did_and_one_that_does_not_is_refused() {
        let Some((gpu, _)) = testing::open() else { return };
        let stream = gpu.stream(takt_gpu::Priority::Normal).unwrap();
        let made = |stream: &Stream, fault| CapturedNetwork::new(&gpu, stream, Scaling::new(&gpu, fault));
        let mut right = made(&stream, Fault::None).unwrap();
        // Another input than that of the comparison, from another thread than the capture's.
        let mut probe = Probe::new(&gpu, right.input_shape(), right.outputs()).unwrap();
        let used = std::thread::spawn(move || {
            let budget = Budget { deadline_ns: u64::MAX, wait: Wait::Block };
            probe.ask(&stream, &right.network.slots[1], 17).unwrap();
            right.run(1, &stream, &budget).unwrap();
            assert!(right.run(3, &stream, &budget).unwrap_err().to_string().contains("below 3"));
            let answer = probe.answer(&stream, &right.network.slots[1]).unwrap();
            (stream, probe, answer)
        });
        let (stream, probe, answer) = used.join().unwrap();
        let input = probe.up.read().unwrap();
        assert!(answer[0].iter().zip(&*input).all(|(to, from)| *to == 2.0 * from + 1.0));
        for fault in [Fault::OnTheHost, Fault::Stale, Fault::Mixed, Fault::Baked, Fault::Deaf] {
            let error = made(&stream, fault).unwrap_err();
            assert!(matches!(error, GpuPerceptionError::Graph { .. }), "{fault:?}: {error}");
            assert!(error.to_string().contains("scaling"), "{error}");
        }
        assert!(matches!(made(&stream, Fault::Refused).unwrap_err(), GpuPerceptionError::Engine(_)));
        // The stream is not left capturing.
        made(&stream, Fault::None).unwrap();
    }
}
