use std::collections::BTreeMap;

use super::*;
use crate::detector::Candidate;
use crate::engine::Tensor;

/// Height and width of the input.
const INPUT: [usize; 2] = [320, 320];
/// The person of all answers here, as pixels and score.
const PERSON: ([f32; 4], f32) = ([100.0, 60.0, 220.0, 300.0], 0.9);

/// Answers with the person in box 7, and a dog of a higher score in box 9.
struct Answer {
    outputs: Vec<Tensor>,
}

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    Tensor { name: name.into(), shape: shape.to_vec(), data: vec![0.0; shape.iter().product()] }
}

fn centre([left, top, right, bottom]: [f32; 4]) -> [f32; 4] {
    [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top]
}

const DOG: [f32; 4] = [20.0, 20.0, 60.0, 60.0];

impl Answer {
    /// A table whose boxes follow each other.
    fn along(shape: [usize; 2], fill: impl Fn(&mut [f32], usize)) -> Self {
        let mut output = tensor("output0", &[1, shape[0], shape[1]]);
        for (row, values) in output.data.chunks_exact_mut(shape[1]).enumerate() {
            fill(values, row);
        }
        Self { outputs: vec![output] }
    }

    fn yolov8(extra: usize) -> Self {
        let along = Self::along([2100, 84 + extra], |values, row| {
            let (box_px, class, score) = match row {
                7 => (PERSON.0, 0, PERSON.1),
                9 => (DOG, 16, 0.95),
                _ => return,
            };
            values[..4].copy_from_slice(&centre(box_px));
            values[4 + class] = score;
            values[84..].iter_mut().take(1).for_each(|coefficient| *coefficient = 8.0);
        });
        let mut output = tensor("output0", &[1, 84 + extra, 2100]);
        for (row, values) in along.outputs[0].data.chunks_exact(84 + extra).enumerate() {
            for (number, value) in values.iter().enumerate() {
                output.data[number * 2100 + row] = *value;
            }
        }
        Self { outputs: vec![output] }.prototypes(extra)
    }

    fn yolov5(extra: usize) -> Self {
        Self::along([6300, 85 + extra], |values, row| {
            let (box_px, class) = match row {
                7 => (PERSON.0, 0),
                9 => (DOG, 16),
                _ => return,
            };
            values[..4].copy_from_slice(&centre(box_px));
            (values[4], values[5 + class]) = (0.9, 1.0);
            values[85..].iter_mut().take(1).for_each(|coefficient| *coefficient = 8.0);
        })
        .prototypes(extra)
    }

    fn end_to_end(extra: usize) -> Self {
        Self::along([300, 6 + extra], |values, row| {
            let (box_px, class, score) = match row {
                7 => (PERSON.0, 0.0, PERSON.1),
                9 => (DOG, 16.0, 0.95),
                _ => return,
            };
            values[..4].copy_from_slice(&box_px);
            (values[4], values[5]) = (score, class);
            values[6..].iter_mut().take(1).for_each(|coefficient| *coefficient = 8.0);
        })
        .prototypes(extra)
    }

    /// YOLOX as its exporter leaves it: offsets in cells, sizes as logarithms. Box 7 is of the
    /// finest grid.
    fn yolox() -> Self {
        Self::along([2100, 85], |values, row| {
            let (box_px, class) = match row {
                7 => (PERSON.0, 0),
                9 => (DOG, 16),
                // The coarsest grid's last cell, column 9 and row 9: the same person again.
                2099 => (PERSON.0, 0),
                _ => return,
            };
            let (column, line, stride) = if row == 2099 { (9.0, 9.0, 32.0) } else { (row as f32, 0.0, 8.0) };
            let [x, y, width, height] = centre(box_px);
            values[..4].copy_from_slice(&[
                x / stride - column,
                y / stride - line,
                (width / stride).ln(),
                (height / stride).ln(),
            ]);
            (values[4], values[5 + class]) = (0.9, 1.0);
        })
    }

    fn rt_detr() -> Self {
        Self::along([300, 84], |values, row| {
            let (box_px, class, score) = match row {
                7 => (PERSON.0, 0, PERSON.1),
                9 => (DOG, 16, 0.95),
                _ => return,
            };
            values[..4].copy_from_slice(&centre(box_px).map(|side| side / 320.0));
            values[4 + class] = score;
        })
    }

    /// Logits and boxes apart.
    fn detr() -> Self {
        let whole = Self::rt_detr();
        let (mut boxes, mut logits) = (tensor("pred_boxes", &[1, 300, 4]), tensor("logits", &[1, 300, 80]));
        for (row, values) in whole.outputs[0].data.chunks_exact(84).enumerate() {
            boxes.data[row * 4..][..4].copy_from_slice(&values[..4]);
            for (to, &score) in logits.data[row * 80..][..80].iter_mut().zip(&values[4..]) {
                *to = if score > 0.0 { (score / (1.0 - score)).ln() } else { -9.0 };
            }
        }
        Self { outputs: vec![logits, boxes] }
    }

    /// RT-DETR's own export: labels, boxes in pixels, scores.
    fn triple() -> Self {
        let whole = Self::end_to_end(0);
        let mut outputs =
            vec![tensor("labels", &[1, 300]), tensor("boxes", &[1, 300, 4]), tensor("scores", &[1, 300])];
        for (row, values) in whole.outputs[0].data.chunks_exact(6).enumerate() {
            outputs[1].data[row * 4..][..4].copy_from_slice(&values[..4]);
            (outputs[2].data[row], outputs[0].data[row]) = (values[4], values[5]);
        }
        Self { outputs }
    }

    /// With prototypes of which the first covers everything.
    fn prototypes(mut self, extra: usize) -> Self {
        if extra > 0 {
            let mut prototypes = tensor("output1", &[1, COEFFICIENTS, 80, 80]);
            prototypes.data[..6400].fill(1.0);
            self.outputs.push(prototypes);
        }
        self
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.outputs.iter().map(|output| (output.name.clone(), output.shape.clone())).collect()
    }

    fn readings(&self, facts: &Facts) -> Result<Vec<Reading>, String> {
        readings(INPUT, &self.shapes(), facts, DetectorLayout::Auto, 0)
    }

    fn decode(&self, reading: &Reading) -> Vec<Candidate> {
        let mut out = Vec::new();
        reading.decoder.decode(&self.outputs, INPUT, 0, 0.35, &mut out);
        out
    }
}

fn is_person(candidate: &Candidate) -> bool {
    let near = candidate.box_px.iter().zip(PERSON.0).all(|(found, expected)| (found - expected).abs() < 0.01);
    near && (candidate.score - PERSON.1).abs() < 1e-4
}

fn coco() -> Facts {
    let names: BTreeMap<usize, String> = (0..80)
        .map(|class| (class, if class == 0 { "person".into() } else { format!("thing{class}") }))
        .collect();
    Facts { names: Some(names), ..Facts::default() }
}

#[test]
fn every_layout_gives_the_person_and_not_the_dog() {
    use DetectorLayout::{EndToEnd, RtDetr, Yolov5, Yolov8, Yolox};
    let cases = [
        (Yolov8, Answer::yolov8(0)),
        (Yolov8, Answer::yolov8(32)),
        (Yolov5, Answer::yolov5(0)),
        (Yolov5, Answer::yolov5(32)),
        (EndToEnd, Answer::end_to_end(0)),
        (EndToEnd, Answer::end_to_end(32)),
        (Yolox, Answer::yolox()),
        (RtDetr, Answer::rt_detr()),
        (RtDetr, Answer::detr()),
        (RtDetr, Answer::triple()),
    ];
    for (layout, answer) in cases {
        let shapes = answer.shapes();
        let readings =
            answer.readings(&coco()).unwrap_or_else(|error| panic!("{layout:?} {shapes:?}: {error}"));
        assert_eq!(readings[0].layout, layout, "{shapes:?}");
        let found = answer.decode(&readings[0]);
        assert!(!found.is_empty() && found.iter().all(is_person), "{layout:?} {shapes:?}: {found:?}");
        readings[0].decoder.check_scores(&answer.outputs).unwrap();
        assert_eq!(
            readings[0].decoder.mask_size(),
            (shapes.len() == 2 && shapes[1].1.len() == 4).then_some([80, 80])
        );
        if let Decoder::Table(table) = readings[0].decoder
            && table.masks.is_some()
        {
            let mut planes = Vec::new();
            table.compute_masks(&answer.outputs, &found, INPUT, &mut planes);
            let at = |x: usize, y: usize| planes[(y / 4) * 80 + x / 4];
            assert!(at(150, 200) > 0.99 && at(50, 200) == 0.0 && at(150, 20) == 0.0, "{layout:?}");
        }
    }
}

#[test]
fn yolox_cells_of_every_grid_are_at_their_places() {
    let answer = Answer::yolox();
    let found = answer.decode(&answer.readings(&coco()).unwrap()[0]);
    assert_eq!(found.iter().map(|candidate| candidate.index).collect::<Vec<_>>(), [7, 2099]);
}

#[test]
fn the_file_s_own_words_decide() {
    // Six numbers a box: end to end, an RT-DETR of two classes, a YOLOX of one.
    let shape = [("output0".to_owned(), vec![1, 300, 6])];
    let all = |facts: &Facts| {
        let readings = readings(INPUT, &shape, facts, DetectorLayout::Auto, 0)?;
        Ok::<_, String>(readings.into_iter().map(|reading| reading.layout).collect::<Vec<_>>())
    };
    assert_eq!(all(&Facts::default()).unwrap(), [DetectorLayout::EndToEnd, DetectorLayout::RtDetr]);
    let end2end = |value| Facts { end2end: Some(value), ..Facts::default() };
    assert_eq!(all(&end2end(true)).unwrap(), [DetectorLayout::EndToEnd]);
    assert_eq!(all(&end2end(false)).unwrap(), [DetectorLayout::RtDetr]);
    let nms = Facts { nms: true, ..end2end(false) };
    assert_eq!(all(&nms).unwrap(), [DetectorLayout::EndToEnd]);
    let two = Facts { names: Some([(0, "person".into()), (1, "dog".into())].into()), ..Facts::default() };
    assert_eq!(all(&two).unwrap(), [DetectorLayout::EndToEnd, DetectorLayout::RtDetr]);
}

#[test]
fn classes_and_tasks_must_agree_with_the_file() {
    let answer = Answer::yolov8(0);
    let one = Facts { names: Some([(0, "person".into())].into()), ..Facts::default() };
    let error = answer.readings(&one).unwrap_err();
    assert!(error.contains("1 classes") && error.contains("[80]"), "{error}");
    let mut other = coco();
    other.names.as_mut().unwrap().extend([(0, "cat".to_owned()), (3, "Person".to_owned())]);
    let error = answer.readings(&other).unwrap_err();
    assert!(error.contains("person_class = 3") && error.contains("cat"), "{error}");
    let pose = Facts { task: Task::Other, task_name: "pose".into(), ..Facts::default() };
    assert!(answer.readings(&pose).unwrap_err().contains("\"pose\""));
    let segment = Facts { task: Task::Segment, ..coco() };
    assert!(answer.readings(&segment).unwrap_err().contains("masks"));
    assert!(Answer::yolov8(32).readings(&segment).is_ok());
}

#[test]
fn shapes_that_are_none_of_these_are_refused() {
    // YOLOX of one class at 416×416 (ddddocr's `common_det.onnx`) is no YOLOv8 of 3545 classes.
    let readings_of = |input: [usize; 2], shape: &[usize]| {
        readings(input, &[("o".to_owned(), shape.to_vec())], &Facts::default(), DetectorLayout::Auto, 0)
    };
    let layouts: Vec<_> =
        readings_of([416, 416], &[1, 3549, 6]).unwrap().iter().map(|reading| reading.layout).collect();
    assert!(!layouts.contains(&DetectorLayout::EndToEnd), "{layouts:?}");
    let found: Vec<usize> = readings_of([416, 416], &[1, 3549, 6])
        .unwrap()
        .iter()
        .map(|reading| reading.decoder.classes())
        .collect();
    assert!(found.iter().all(|&classes| classes <= 2), "{found:?}");
    for shape in [&[1, 84, 2101][..], &[1, 1000], &[2, 84, 2100], &[1, 0, 6], &[1, 4, 2100], &[1, 300, 5]] {
        let refused = readings_of(INPUT, shape);
        let none_of_80 = |readings: &Vec<Reading>| readings.iter().all(|r| r.decoder.classes() != 80);
        assert!(refused.as_ref().map_or(true, none_of_80), "{shape:?}: {refused:?}");
    }
    assert!(readings_of(INPUT, &[1, 84, 2101]).is_err());
    let swapped = [("p".to_owned(), vec![1, 32, 80, 80]), ("o".to_owned(), vec![1, 37, 2100])];
    let readings = readings(INPUT, &swapped, &Facts::default(), DetectorLayout::Auto, 0).unwrap();
    assert_eq!(readings[0].decoder.classes(), 1);
    let Decoder::Table(Table { masks: Some(masks), .. }) = readings[0].decoder else { panic!("no masks") };
    assert_eq!((masks.prototypes, masks.height, masks.width), (0, 80, 80));
}
