//! YOLOv8 and YOLO11 exports (Ultralytics, `format="onnx"`), detection or segmentation.
//!
//! Output 0 is [1, 4 + classes (+ 32), N]: centre x, centre y, width, height in pixels of the
//! input, class scores after the sigmoid, and with masks 32 coefficients. Output 1 is [1, 32, h/4,
//! w/4]: prototypes; a mask is the sigmoid of the prototypes weighted by the coefficients, cropped
//! to the box (YOLACT, Bolya et al. 2019, section 3).

use super::{Candidate, MAX_DETECTIONS};
use crate::engine::Tensor;
use crate::image::Normalisation;

/// R G B in 0..1, padded with the grey that the training pads with.
pub(super) const NORMALISATION: Normalisation =
    Normalisation { order: [0, 1, 2], mean: [0.0; 3], scale: [1.0 / 255.0; 3], padding: 114.0 };

const BOX: usize = 4;
const COEFFICIENTS: usize = 32;

/// Which outputs are what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) classes: usize,
    /// Output index of boxes and scores.
    pub(crate) boxes: usize,
    /// Output index, height and width of the prototypes.
    pub(crate) masks: Option<(usize, usize, usize)>,
}

impl Layout {
    pub(super) fn find(shapes: &[&[usize]]) -> Option<Self> {
        let boxes = shapes.iter().position(|shape| shape.len() == 3)?;
        let &[1, rows, _] = shapes[boxes] else { return None };
        let (masks, extra) = match shapes.len() {
            1 => (None, 0),
            2 => match *shapes[1 - boxes] {
                [1, COEFFICIENTS, height, width] => (Some((1 - boxes, height, width)), COEFFICIENTS),
                _ => return None,
            },
            _ => return None,
        };
        let classes = rows.checked_sub(BOX + extra).filter(|&classes| classes > 0)?;
        Some(Self { classes, boxes, masks })
    }

    pub(super) fn decode(&self, output: &Tensor, class: usize, threshold: f32, out: &mut Vec<Candidate>) {
        let columns = output.shape[2];
        let row = |r: usize| &output.data[r * columns..(r + 1) * columns];
        let (x, y, width, height) = (row(0), row(1), row(2), row(3));
        for (index, &score) in row(BOX + class).iter().enumerate() {
            if score >= threshold {
                let (half_width, half_height) = (width[index] / 2.0, height[index] / 2.0);
                let box_px = [
                    x[index] - half_width,
                    y[index] - half_height,
                    x[index] + half_width,
                    y[index] + half_height,
                ];
                if box_px.iter().all(|side| side.is_finite()) {
                    out.push(Candidate { box_px, score, index });
                }
            }
        }
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
        let Some((prototypes, height, width)) = self.masks else { return };
        let plane = height * width;
        planes.clear();
        planes.resize(kept.len().min(MAX_DETECTIONS) * plane, 0.0);
        let (boxes, prototypes) = (&outputs[self.boxes], &outputs[prototypes].data);
        let columns = boxes.shape[2];
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
                    let weight = boxes.data[(BOX + self.classes + k) * columns + candidate.index];
                    let source = &prototypes[k * plane + y * width..][columns_of.clone()];
                    for (value, prototype) in line.iter_mut().zip(source) {
                        *value += weight * prototype;
                    }
                }
                for value in line {
                    *value = 1.0 / (1.0 + (-*value).exp());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_distinguished_by_their_shapes() {
        let segment = Layout::find(&[&[1, 116, 8400], &[1, 32, 160, 160]]).unwrap();
        assert_eq!(segment, Layout { classes: 80, boxes: 0, masks: Some((1, 160, 160)) });
        let swapped = Layout::find(&[&[1, 32, 160, 160], &[1, 37, 2100]]).unwrap();
        assert_eq!(swapped, Layout { classes: 1, boxes: 1, masks: Some((0, 160, 160)) });
        let detect = Layout::find(&[&[1, 84, 8400]]).unwrap();
        assert_eq!(detect, Layout { classes: 80, boxes: 0, masks: None });
        assert_eq!(Layout::find(&[&[1, 4, 10]]), None);
        assert_eq!(Layout::find(&[&[1, 1000]]), None);
        assert_eq!(Layout::find(&[&[1, 116, 8400], &[1, 16, 160, 160]]), None);
    }

    /// Two candidates, one class, prototypes of 4×4 for an input of 16×16.
    fn outputs() -> (Layout, Vec<Tensor>) {
        let layout = Layout::find(&[&[1, 37, 2], &[1, 32, 4, 4]]).unwrap();
        let mut boxes = vec![0.0; 37 * 2];
        for (row, value) in [8.0, 8.0, 8.0, 12.0, 0.8].into_iter().enumerate() {
            boxes[row * 2] = value;
        }
        boxes[4 * 2 + 1] = 0.1;
        boxes[(5 + 3) * 2] = 10.0; // coefficient of prototype 3
        let mut prototypes = vec![0.0; 32 * 16];
        for y in 0..4 {
            for x in 0..4 {
                prototypes[3 * 16 + y * 4 + x] = if x < 2 { 1.0 } else { -1.0 };
            }
        }
        let tensor = |shape: Vec<usize>, data| Tensor { name: String::new(), shape, data };
        (layout, vec![tensor(vec![1, 37, 2], boxes), tensor(vec![1, 32, 4, 4], prototypes)])
    }

    #[test]
    fn boxes_are_decoded_from_centre_and_size() {
        let (layout, outputs) = outputs();
        let mut out = Vec::new();
        layout.decode(&outputs[0], 0, 0.5, &mut out);
        assert_eq!(out, [Candidate { box_px: [4.0, 2.0, 12.0, 14.0], score: 0.8, index: 0 }]);
    }

    #[test]
    fn a_mask_is_the_weighted_prototypes_inside_the_box() {
        let (layout, outputs) = outputs();
        let mut kept = Vec::new();
        layout.decode(&outputs[0], 0, 0.5, &mut kept);
        let mut planes = Vec::new();
        layout.compute_masks(&outputs, &kept, [16, 16], &mut planes);
        assert_eq!(planes.len(), 16);
        for y in 0..4 {
            // Box columns 1 and 2 of 4; the prototype is positive in columns 0 and 1.
            assert_eq!(planes[y * 4], 0.0);
            assert!(planes[y * 4 + 1] > 0.99);
            assert!(planes[y * 4 + 2] < 0.01);
            assert_eq!(planes[y * 4 + 3], 0.0);
        }
    }
}
