//! NanoDet: anchor-free, boxes as distributions over eleven distances (Generalized Focal Loss, Li
//! et al. 2020, section 3.2). Normalisation and strides: NanoDet's `nanodet-g` configuration.

use super::{Candidate, table::SCORE_TOLERANCE};
use crate::engine::Tensor;
use crate::image::Normalisation;

/// B G R, in units of the training set's standard deviation; padding is black. A wrong order still
/// yields boxes, only worse ones, so tests hold this against reference numbers.
pub(super) const NORMALISATION: Normalisation = Normalisation {
    order: [2, 1, 0],
    mean: [103.53, 116.28, 123.675],
    scale: [1.0 / 57.375, 1.0 / 57.12, 1.0 / 58.395],
    padding: 0.0,
};

const BINS: usize = 11;
const STRIDES: [usize; 3] = [8, 16, 32];

/// Outputs with scores and outputs with boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) classes: usize,
    /// Per stride: output index of the scores and of the boxes, columns of the grid.
    pub(crate) heads: [(usize, usize, usize); 3],
}

impl Heads {
    /// Finds the six outputs by their shapes, because engines rename and reorder them.
    pub(super) fn find(shapes: &[&[usize]], [height, width]: [usize; 2]) -> Option<Self> {
        let mut heads = [(0, 0, 0); 3];
        let mut classes = None;
        for (head, stride) in heads.iter_mut().zip(STRIDES) {
            let cells = height.div_ceil(stride) * width.div_ceil(stride);
            let with = |boxes: bool| {
                shapes
                    .iter()
                    .position(|shape| matches!(shape, [1, n, c] if *n == cells && (*c == 4 * BINS) == boxes))
            };
            let (scores, boxes) = (with(false)?, with(true)?);
            let found = shapes[scores][2];
            if *classes.get_or_insert(found) != found {
                return None;
            }
            *head = (scores, boxes, width.div_ceil(stride));
        }
        Some(Self { classes: classes?, heads })
    }

    pub(super) fn decode(&self, outputs: &[Tensor], class: usize, threshold: f32, out: &mut Vec<Candidate>) {
        let mut index = 0;
        for (&(scores, boxes, columns), stride) in self.heads.iter().zip(STRIDES) {
            let cells = outputs[scores].shape[1];
            let scores = outputs[scores].data.chunks_exact(self.classes);
            let boxes = outputs[boxes].data.chunks_exact(4 * BINS);
            for (cell, (scores, sides)) in scores.zip(boxes).enumerate() {
                let score = scores[class];
                // Written so that a score that is none becomes a candidate, which is then refused.
                if !(-SCORE_TOLERANCE..threshold).contains(&score) {
                    let stride = stride as f32;
                    let x = ((cell % columns) as f32 + 0.5) * stride;
                    let y = ((cell / columns) as f32 + 0.5) * stride;
                    let side = |i: usize| expectation(&sides[i * BINS..(i + 1) * BINS]) * stride;
                    let box_px = [x - side(0), y - side(1), x + side(2), y + side(3)];
                    out.push(Candidate { box_px, score, index: index + cell });
                }
            }
            index += cells;
        }
    }
}

impl Heads {
    /// Whether every score is one; else what was found.
    pub(super) fn check_scores(&self, outputs: &[Tensor]) -> Result<(), String> {
        let scores = self.heads.iter().flat_map(|&(scores, ..)| &outputs[scores].data);
        let inside = |value: &f32| (-SCORE_TOLERANCE..=1.0 + SCORE_TOLERANCE).contains(value);
        match scores.into_iter().find(|value| !inside(value)) {
            Some(value) => Err(format!("a score of {value}")),
            None => Ok(()),
        }
    }
}

/// Mean of the distribution softmax(bins) over 0, 1, … 10.
fn expectation(bins: &[f32]) -> f32 {
    let max = bins.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for (i, bin) in bins.iter().enumerate() {
        let e = (bin - max).exp();
        sum += e;
        weighted += e * i as f32;
    }
    weighted / sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: [usize; 3]) -> Tensor {
        Tensor { name: String::new(), shape: shape.to_vec(), data: vec![0.0; shape.iter().product()] }
    }

    #[test]
    fn one_cell_decodes_to_its_box() {
        // A 64×64 input: grids of 8×8, 4×4, 2×2; outputs in an order of the engine's liking.
        let mut outputs = vec![
            tensor([1, 4, 2]),
            tensor([1, 4, 44]),
            tensor([1, 16, 44]),
            tensor([1, 64, 2]),
            tensor([1, 16, 2]),
            tensor([1, 64, 44]),
        ];
        let shapes: Vec<&[usize]> = outputs.iter().map(|o| o.shape.as_slice()).collect();
        let heads = Heads::find(&shapes, [64, 64]).unwrap();
        assert_eq!(heads.classes, 2);
        // Stride 16, column 2, row 1: centre (40, 24). Sides: bins 1, 2, 3, 4 with certainty.
        let cell = 4 + 2;
        outputs[4].data[cell * 2 + 1] = 0.9;
        for side in 0..4 {
            outputs[2].data[cell * 44 + side * 11 + side + 1] = 100.0;
        }
        let mut out = Vec::new();
        heads.decode(&outputs, 1, 0.5, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].box_px, [40.0 - 16.0, 24.0 - 32.0, 40.0 + 48.0, 24.0 + 64.0]);
        assert_eq!(out[0].score, 0.9);
        out.clear();
        heads.decode(&outputs, 0, 0.5, &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn an_even_distribution_means_its_middle() {
        assert!((expectation(&[0.0; 11]) - 5.0).abs() < 1e-6);
    }

    #[test]
    fn other_outputs_are_not_taken_for_nanodet() {
        let shapes: [&[usize]; 2] = [&[1, 116, 8400], &[1, 32, 160, 160]];
        assert_eq!(Heads::find(&shapes, [640, 640]), None);
    }
}
