//! Outputs that are tables of boxes: the YOLO families and RT-DETR.
//!
//! Exports differ in where a box's numbers are, and in what they mean: centre and size or two
//! corners, pixels or shares of the picture, one score for each class or a score and a class
//! number. A [`Table`] says all of that as columns of numbers, so that one decoder on the CPU and
//! one kernel on a GPU serve all of them.
//!
//! Masks are those of YOLACT (Bolya et al. 2019, section 3): 32 prototypes, weighted by a box's
//! coefficients, through the sigmoid, cropped to the box.

use super::{Candidate, MAX_DETECTIONS};
use crate::engine::Tensor;

pub(crate) const COEFFICIENTS: usize = 32;

/// Farthest that a score may lie outside of 0…1: half precision rounds.
pub(super) const SCORE_TOLERANCE: f32 = 2e-3;

/// Numbers of an output, one for each box: every `step`-th from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) output: usize,
    pub(crate) start: usize,
    pub(crate) step: usize,
}

impl Column {
    fn at(self, outputs: &[Tensor], row: usize) -> f32 {
        outputs[self.output].data[self.start + row * self.step]
    }
}

/// Meaning of a box's four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxForm {
    /// Centre x, centre y, width, height.
    CentreSize,
    /// Left, top, right, bottom.
    Corners,
    /// YOLOX without decoding: the centre from its cell's corner in strides, and the logarithm of
    /// the size in strides. Strides double from the first one, and there are so many.
    Grid { first_stride: u32, levels: u32 },
}

/// Prototypes and coefficients of masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masks {
    /// Output index, height and width of the prototypes.
    pub(crate) prototypes: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// The first coefficient, and how far the next one is.
    pub(crate) first: Column,
    pub(crate) step: usize,
}

/// Place and meaning of a network's boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) rows: usize,
    pub(crate) sides: [Column; 4],
    pub(crate) form: BoxForm,
    /// Whether the numbers are shares of the input's width and height, not pixels.
    pub(crate) shares: bool,
    /// The score of class 0, and how far that of the next class is.
    pub(crate) score: Column,
    pub(crate) class_step: usize,
    /// Whether the scores still have to go through the sigmoid.
    pub(crate) logits: bool,
    /// A second factor of the score.
    pub(crate) objectness: Option<Column>,
    /// The class, where there is one score only.
    pub(crate) label: Option<Column>,
    /// 0 where it is not known.
    pub(crate) classes: usize,
    pub(crate) masks: Option<Masks>,
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

impl Table {
    /// The score column of a class.
    pub(crate) fn score_of(&self, class: usize) -> Column {
        Column { start: self.score.start + class * self.class_step, ..self.score }
    }

    fn score_at(&self, outputs: &[Tensor], score: Column, row: usize) -> f32 {
        let value = score.at(outputs, row);
        let value = if self.logits { sigmoid(value) } else { value };
        self.objectness.map_or(value, |objectness| value * objectness.at(outputs, row))
    }

    /// Adds the boxes of a class with at least that score, and those whose score is no score:
    /// [`super::Decoder::plausible`] finds them. `input` is height and width of the network's
    /// input.
    pub(super) fn decode(
        &self,
        outputs: &[Tensor],
        input: [usize; 2],
        class: usize,
        threshold: f32,
        out: &mut Vec<Candidate>,
    ) {
        let column = self.score_of(class);
        for row in 0..self.rows {
            let score = self.score_at(outputs, column, row);
            if (-SCORE_TOLERANCE..threshold).contains(&score) {
                continue;
            }
            // Half precision keeps whole numbers up to 2048 exactly.
            if self.label.is_some_and(|label| label.at(outputs, row).round() != class as f32) {
                continue;
            }
            let sides = self.sides.map(|side| side.at(outputs, row));
            out.push(Candidate { box_px: self.box_of(sides, row, input), score, index: row });
        }
    }

    fn box_of(&self, sides: [f32; 4], row: usize, input: [usize; 2]) -> [f32; 4] {
        let around = |[x, y, width, height]: [f32; 4]| {
            let (half_width, half_height) = (width / 2.0, height / 2.0);
            [x - half_width, y - half_height, x + half_width, y + half_height]
        };
        let corners = match self.form {
            BoxForm::CentreSize => around(sides),
            BoxForm::Corners => sides,
            BoxForm::Grid { first_stride, levels } => {
                let (mut row, mut stride) = (row, first_stride as usize);
                for _ in 1..levels {
                    let cells = input[0].div_ceil(stride) * input[1].div_ceil(stride);
                    if row < cells {
                        break;
                    }
                    row -= cells;
                    stride *= 2;
                }
                let columns = input[1].div_ceil(stride);
                let (column, line, stride) = ((row % columns) as f32, (row / columns) as f32, stride as f32);
                let [x, y, width, height] = sides;
                around([
                    (x + column) * stride,
                    (y + line) * stride,
                    width.exp() * stride,
                    height.exp() * stride,
                ])
            }
        };
        if !self.shares {
            return corners;
        }
        let [height, width] = input.map(|side| side as f32);
        [corners[0] * width, corners[1] * height, corners[2] * width, corners[3] * height]
    }

    /// Whether every score of every class is one, and every class number a class; else what was
    /// found.
    pub(super) fn check_scores(&self, outputs: &[Tensor]) -> Result<(), String> {
        let inside = |value: f32| (-SCORE_TOLERANCE..=1.0 + SCORE_TOLERANCE).contains(&value);
        let classes = if self.label.is_some() { 1 } else { self.classes };
        for row in 0..self.rows {
            if let Some(objectness) = self.objectness.map(|column| column.at(outputs, row))
                && !inside(objectness)
            {
                return Err(format!("an objectness of {objectness}"));
            }
            for class in 0..classes {
                let score = self.score_at(outputs, self.score_of(class), row);
                if !inside(score) {
                    return Err(format!("a score of {score} for class {class}"));
                }
            }
            if let Some(label) = self.label.map(|column| column.at(outputs, row)) {
                let last = if self.classes == 0 { 1e6 } else { self.classes as f32 - 1.0 };
                // An empty row may have the class -1.
                if !(-1.0..=last).contains(&label) || (label - label.round()).abs() > 1e-3 {
                    return Err(format!("the class number {label}"));
                }
            }
        }
        Ok(())
    }

    /// Computes the masks of the kept candidates, 0..1, zero outside their boxes, one plane after
    /// the other. `input` is height and width of the network's input.
    pub(super) fn compute_masks(
        &self,
        outputs: &[Tensor],
        kept: &[Candidate],
        input: [usize; 2],
        planes: &mut Vec<f32>,
    ) {
        let Some(Masks { prototypes, height, width, first, step }) = self.masks else { return };
        let plane = height * width;
        planes.clear();
        planes.resize(kept.len().min(MAX_DETECTIONS) * plane, 0.0);
        let prototypes = &outputs[prototypes].data;
        let to_mask = [width as f32 / input[1] as f32, height as f32 / input[0] as f32];
        for (candidate, mask) in kept.iter().zip(planes.chunks_exact_mut(plane)) {
            let [left, top, right, bottom] = candidate.box_px;
            let columns_of = (left * to_mask[0]).floor().max(0.0) as usize
                ..((right * to_mask[0]).ceil().max(0.0) as usize).min(width);
            let rows_of = (top * to_mask[1]).floor().max(0.0) as usize
                ..((bottom * to_mask[1]).ceil().max(0.0) as usize).min(height);
            if columns_of.is_empty() {
                continue;
            }
            for y in rows_of {
                let line = &mut mask[y * width..][columns_of.clone()];
                for k in 0..COEFFICIENTS {
                    let weight =
                        Column { start: first.start + k * step, ..first }.at(outputs, candidate.index);
                    let source = &prototypes[k * plane + y * width..][columns_of.clone()];
                    for (value, prototype) in line.iter_mut().zip(source) {
                        *value += weight * prototype;
                    }
                }
                for value in line {
                    *value = sigmoid(*value);
                }
            }
        }
    }
}
