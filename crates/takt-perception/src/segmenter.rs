//! The person segmenter: a crop around one person in, a mask out.

use std::fmt;
use std::ops::Range;

use crate::config::SegmenterConfig;
use crate::engine::{Engine, EngineError, LoadedNetwork};
use crate::image::{Normalisation, Resampler};
use crate::proof;

/// R G B in 0..1 (MediaPipe Selfie Segmentation model card); outside the image is black.
pub(crate) const NORMALISATION: Normalisation =
    Normalisation { order: [0, 1, 2], mean: [0.0; 3], scale: [1.0 / 255.0; 3], padding: 0.0 };

/// A mask of part of the frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaskCrop {
    pub(crate) values: Vec<f32>,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Mask pixels for each frame pixel, per axis.
    pub(crate) scale: [f32; 2],
    /// Mask coordinate of the frame's corner, per axis.
    pub(crate) offset: [f32; 2],
}

impl MaskCrop {
    /// Says where a mask of that size (width, height) lies: its corner in the frame, frame pixels
    /// for each of its own.
    pub(crate) fn place(&mut self, [width, height]: [usize; 2], origin: [f32; 2], scale: f32) {
        (self.width, self.height) = (width, height);
        self.scale = [1.0 / scale; 2];
        self.offset = [-origin[0] / scale, -origin[1] / scale];
    }

    /// The mask value at the centre of a frame pixel; 0 outside of the crop.
    pub(crate) fn at(&self, u: u32, v: u32) -> f32 {
        let x = (u as f32 + 0.5) * self.scale[0] + self.offset[0];
        let y = (v as f32 + 0.5) * self.scale[1] + self.offset[1];
        if x < 0.0 || y < 0.0 {
            return 0.0;
        }
        let (x, y) = (x as usize, y as usize);
        if x < self.width && y < self.height { self.values[y * self.width + x] } else { 0.0 }
    }

    /// Columns and rows of mask pixels in a box (frame pixels).
    pub(crate) fn lattice(&self, box_px: &[f32; 4]) -> [Range<usize>; 2] {
        let index = |value: f32, axis: usize, end: usize| {
            ((value * self.scale[axis] + self.offset[axis]).max(0.0) as usize).min(end)
        };
        [
            index(box_px[0], 0, self.width)..index(box_px[2], 0, self.width),
            index(box_px[1], 1, self.height)..index(box_px[3], 1, self.height),
        ]
    }

    /// The share of a box (frame pixels) where the mask is at least `threshold`, on a lattice of
    /// mask pixels.
    pub(crate) fn coverage(&self, box_px: &[f32; 4], threshold: f32) -> f32 {
        let [columns, rows] = self.lattice(box_px);
        let all = columns.len() * rows.len();
        if all == 0 {
            return 0.0;
        }
        let covered: usize = rows
            .map(|y| {
                let line = &self.values[y * self.width..][columns.clone()];
                line.iter().filter(|&&value| value >= threshold).count()
            })
            .sum();
        covered as f32 / all as f32
    }
}

/// Height and width of a segmenter's input, or what was expected of its shapes.
pub(crate) fn input_of(input: &[usize], outputs: &[(String, Vec<usize>)]) -> Result<[usize; 2], String> {
    let &[_, _, height, width] = input else { return Err("input [1, 3, height, width]".into()) };
    match outputs {
        [(_, shape)]
            if shape.iter().product::<usize>() == height * width && shape.ends_with(&[height, width]) =>
        {
            Ok([height, width])
        }
        _ => Err(format!("one output [1, 1, {height}, {width}], the mask")),
    }
}

/// The crop around a box: its corner in the frame, and frame pixels for each pixel of an input of
/// `size` (width, height). It has the input's aspect ratio and holds the box `factor` times.
pub(crate) fn crop_of(box_px: &[f32; 4], size: [usize; 2], factor: f32) -> ([f32; 2], f32) {
    let size = size.map(|side| side as f32);
    let (box_width, box_height) = ((box_px[2] - box_px[0]).max(1.0), (box_px[3] - box_px[1]).max(1.0));
    let scale = (box_width / size[0]).max(box_height / size[1]) * factor;
    let origin =
        std::array::from_fn(|axis| (box_px[axis] + box_px[axis + 2]) / 2.0 - size[axis] * scale / 2.0);
    (origin, scale)
}

/// A loaded segmenter.
pub(crate) struct Segmenter {
    network: LoadedNetwork,
    width: usize,
    height: usize,
    crop_factor: f32,
    input: Vec<f32>,
    resampler: Resampler,
}

impl Segmenter {
    pub(crate) fn new(engine: &Engine, config: &SegmenterConfig) -> Result<Self, EngineError> {
        let mut network = engine.load(&config.model, None)?;
        let size = input_of(network.network.input_shape(), &network.outputs)
            .map_err(|expected| network.misfit(&expected))?;
        let [height, width] = size;
        let key = format!("{:x} {engine:?} {config:?}", network.identity);
        proof::once(key, || {
            let LoadedNetwork { model, network, .. } = &mut network;
            let name = model.clone();
            let mut infer = |values: &[f32]| {
                let answer = network.run(values).map_err(|error: EngineError| error.of_model(&name))?;
                Ok::<_, EngineError>(answer.to_vec())
            };
            proof::prove_segmenter(size, config, model, &mut infer).map(|()| None)
        })?;
        Ok(Self {
            input: vec![0.0; 3 * height * width],
            resampler: Resampler::default(),
            crop_factor: config.crop_factor,
            network,
            width,
            height,
        })
    }

    /// Segments the person in `box_px`.
    pub(crate) fn segment(
        &mut self,
        rgb: &[u8],
        width: u32,
        height: u32,
        box_px: &[f32; 4],
        out: &mut MaskCrop,
    ) -> Result<(), EngineError> {
        let (origin, scale) = crop_of(box_px, [self.width, self.height], self.crop_factor);
        self.resampler.prepare([self.width, self.height], origin, [scale; 2], [width, height]);
        self.resampler.fill(rgb, width, &NORMALISATION, &mut self.input);
        let mask = self.network.network.run(&self.input)?.first().map_or(&[][..], |tensor| &tensor.data);
        out.values.clear();
        out.values.extend_from_slice(mask);
        out.place([self.width, self.height], origin, scale);
        Ok(())
    }
}

impl fmt::Debug for Segmenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segmenter").field("network", &self.network).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> MaskCrop {
        // A 4×2 mask of the frame window from (10, 20) to (18, 24): two frame pixels for each mask
        // pixel.
        MaskCrop {
            values: vec![1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
            width: 4,
            height: 2,
            scale: [0.5, 0.5],
            offset: [-5.0, -10.0],
        }
    }

    #[test]
    fn a_mask_is_looked_up_in_frame_pixels() {
        let mask = half();
        assert_eq!(mask.at(10, 20), 1.0);
        assert_eq!(mask.at(13, 23), 1.0);
        assert_eq!(mask.at(14, 20), 0.0);
        assert_eq!(mask.at(9, 20), 0.0);
        assert_eq!(mask.at(10, 24), 0.0);
    }

    #[test]
    fn coverage_is_the_masked_share_of_the_box() {
        assert_eq!(half().coverage(&[10.0, 20.0, 18.0, 24.0], 0.5), 0.5);
        assert_eq!(half().coverage(&[14.0, 20.0, 18.0, 24.0], 0.5), 0.0);
        assert_eq!(half().coverage(&[50.0, 50.0, 60.0, 60.0], 0.5), 0.0);
    }

    /// The two best boxes of the reference picture and its false positive; mean of the whole mask
    /// and covered share of the box by ONNX Runtime and NumPy (`tests/data/reference.py`).
    const BOXES: [[f32; 4]; 3] =
        [[308.08, 132.12, 325.49, 184.45], [109.07, 95.08, 125.40, 133.19], [81.28, 93.44, 90.31, 103.72]];
    const SQUARE: [(f32, f32); 3] = [(0.12703, 0.5855), (0.12607, 0.4564), (0.0, 0.0)];
    const LANDSCAPE: [(f32, f32); 3] = [(0.14182, 0.5605), (0.07404, 0.4760), (0.0, 0.0)];

    #[test]
    fn masks_are_those_of_the_reference() {
        use crate::engine::{Backend, EngineConfig, ModelSource};
        use crate::testing::{PICTURE, picture};
        let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
        let engine = Engine::open(&engine).unwrap();
        for (model, expected) in
            [("builtin:selfie_square_256", SQUARE), ("builtin:selfie_landscape_144x256", LANDSCAPE)]
        {
            let config = SegmenterConfig { model: ModelSource::from(model), ..SegmenterConfig::default() };
            let mut segmenter = Segmenter::new(&engine, &config).unwrap();
            let mut mask = MaskCrop::default();
            for (box_px, (mean, coverage)) in BOXES.iter().zip(expected) {
                segmenter.segment(&picture(), PICTURE.0, PICTURE.1, box_px, &mut mask).unwrap();
                let found = mask.values.iter().sum::<f32>() / mask.values.len() as f32;
                assert!((found - mean).abs() < 2e-3, "{model} {box_px:?}: mean {found}, expected {mean}");
                let found = mask.coverage(box_px, 0.5);
                assert!((found - coverage).abs() < 0.02, "{model} {box_px:?}: {found}, expected {coverage}");
            }
        }
    }

    #[test]
    fn a_model_that_gives_no_mask_is_refused_with_its_shapes() {
        use crate::engine::{Backend, EngineConfig, ModelSource};
        let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
        let config = SegmenterConfig {
            model: ModelSource::from("builtin:nanodet_g_416"),
            ..SegmenterConfig::default()
        };
        let error = Segmenter::new(&Engine::open(&engine).unwrap(), &config).unwrap_err().to_string();
        assert!(error.contains("the mask") && error.contains("[1, 3, 416, 416]"), "{error}");
    }
}
