//! Pictures that tell networks apart, and what they answer to them: for comparing an inference with
//! itself, however it is launched.

use takt_gpu::{Gpu, GpuError, Pinned, Stream};

use super::network::Slot;
use super::{GpuPerceptionError, settle};

/// Puts pictures into a network and reads its answers.
pub(super) struct Probe {
    pub(super) up: Pinned<f32>,
    down: Vec<Pinned<f32>>,
    shape: Vec<usize>,
}

impl Probe {
    pub(super) fn new(
        gpu: &Gpu,
        input: &[usize],
        outputs: &[(String, Vec<usize>)],
    ) -> Result<Self, GpuError> {
        let down = outputs.iter().map(|(_, shape)| gpu.pinned(shape.iter().product()));
        Ok(Self {
            up: gpu.pinned(input.iter().product())?,
            down: down.collect::<Result<_, _>>()?,
            shape: input.to_vec(),
        })
    }

    /// Fills a slot's input with a picture, and its outputs with what no network answers.
    pub(super) fn ask(
        &mut self,
        stream: &Stream,
        slot: &Slot,
        number: usize,
    ) -> Result<(), GpuPerceptionError> {
        draw(&mut self.up.write()?, &self.shape, number);
        stream.upload(&self.up, &slot.input)?;
        for output in &slot.outputs {
            stream.fill(output, 0xff)?;
        }
        settle(stream)
    }

    pub(super) fn answer(
        &mut self,
        stream: &Stream,
        slot: &Slot,
    ) -> Result<Vec<Vec<f32>>, GpuPerceptionError> {
        for (output, down) in slot.outputs.iter().zip(&self.down) {
            stream.download(output, down)?;
        }
        settle(stream)?;
        Ok(self.down.iter().map(|down| Ok(down.read()?.to_vec())).collect::<Result<_, GpuError>>()?)
    }
}

/// Draws somebody's head and shoulders before a plain wall, with some noise, each number at another
/// place and of another size. To noise alone a segmenter answers that nobody is there, whatever the
/// noise. `shape` ends with channels, rows and columns; what lacks is 1.
fn draw(values: &mut [f32], shape: &[usize], number: usize) {
    let side = |from_the_end: usize| shape.iter().rev().nth(from_the_end).copied().unwrap_or(1);
    let (width, height, channels) = (side(0).max(1), side(1).max(1), side(2).max(1));
    // Multiples of the golden ratio spread evenly.
    let part = |factor: f32| (number as f32 * factor).fract();
    let (middle, scale) = (0.3 + 0.4 * part(0.618_034), 0.7 + 0.5 * part(0.414_214));
    let colours = [(0.2, 0.6), (0.3, 0.35), (0.4, 0.2)];
    for (index, value) in values.iter_mut().enumerate() {
        let (x, y) = (index % width, index / width % height);
        let (x, y) = ((x as f32 + 0.5) / width as f32, (y as f32 + 0.5) / height as f32);
        let within = |centre: f32, across: f32, down: f32| {
            let (x, y) = ((x - middle) / (across * scale), (y - centre) / (down * scale));
            x * x + y * y < 1.0
        };
        let somebody = within(0.32, 0.12, 0.22) || within(1.0, 0.28, 0.45);
        let (wall, more) = colours[index / (width * height) % channels % colours.len()];
        let noise = ((index * 7919 + number * 104_729) % 1009) as f32 / 1009.0;
        *value = wall + if somebody { more } else { 0.0 } + 0.05 * noise;
    }
}

#[cfg(test)]
mod tests {
    use super::super::captured::difference;
    use super::*;
    use crate::engine::{Backend, Engine, EngineConfig, ModelSource};

    /// All of them by pairs, since slots are compared with one another's pictures, too.
    #[test]
    fn every_shipped_network_answers_otherwise_to_each_picture() {
        let engine =
            Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap();
        for name in ["nanodet_g_416", "selfie_landscape_144x256", "selfie_square_256"] {
            let model = ModelSource::from(format!("builtin:{name}").as_str());
            let mut network = engine.load(&model, None).unwrap();
            let shape = network.network.input_shape().to_vec();
            let mut input = vec![0.0f32; shape.iter().product()];
            let mut answers: Vec<Vec<Vec<f32>>> = Vec::new();
            for number in 0..6 {
                draw(&mut input, &shape, number);
                let outputs = network.network.run(&input).unwrap();
                answers.push(outputs.iter().map(|output| output.data.clone()).collect());
            }
            for (first, a) in answers.iter().enumerate() {
                for (second, b) in answers.iter().enumerate().filter(|(second, _)| *second != first) {
                    assert!(difference(a, b).is_some(), "{name}: {first} and {second} are alike");
                }
            }
        }
    }
}
