//! Recognition of a detector's layout.
//!
//! Shapes alone do not say: [1, 300, 6] is an end-to-end export (corners, score, class), an RT-DETR
//! of two classes or a YOLO of one. So all layouts are listed that the outputs' shapes, the grid of
//! the input's size and the file's own words (task, names, end2end) allow, the likeliest first, and
//! the proof on pictures decides ([`super::proof`]).

use serde::{Deserialize, Serialize};

use super::table::{BoxForm, COEFFICIENTS, Column, Masks, Table};
use super::{Decoder, nanodet};
use crate::engine::{Facts, Task};
use crate::image::Normalisation;

/// Layout of a detector's outputs (`perception.detector.layout`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DetectorLayout {
    /// Found by shapes, the file's metadata and the proof on pictures.
    #[default]
    Auto,
    /// NanoDet: scores and boxes for each stride.
    Nanodet,
    /// YOLOv8, YOLO11, YOLOv9: [1, 4 + classes, N].
    Yolov8,
    /// YOLOv5, YOLOv7: [1, N, 5 + classes], three anchors a cell.
    Yolov5,
    /// YOLOX, and YOLOv6: [1, N, 5 + classes], one anchor a cell.
    Yolox,
    /// YOLOv10, YOLO26 and exports with non-maximum suppression: [1, N, 6], final boxes.
    EndToEnd,
    /// RT-DETR and its kind: [1, N, 4 + classes] with shares of the picture, or boxes and scores in
    /// outputs of their own.
    RtDetr,
}

impl DetectorLayout {
    /// The name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Nanodet => "nanodet",
            Self::Yolov8 => "yolov8",
            Self::Yolov5 => "yolov5",
            Self::Yolox => "yolox",
            Self::EndToEnd => "end-to-end",
            Self::RtDetr => "rt-detr",
        }
    }
}

/// R G B in 0..1, padded with the grey that the training pads with.
pub(super) const PLAIN: Normalisation =
    Normalisation { order: [0, 1, 2], mean: [0.0; 3], scale: [1.0 / 255.0; 3], padding: 114.0 };
/// YOLOX's: B G R in 0..255.
pub(super) const BYTES: Normalisation =
    Normalisation { order: [2, 1, 0], mean: [0.0; 3], scale: [1.0; 3], padding: 114.0 };
/// ImageNet's mean and deviation of R G B.
pub(super) const IMAGENET: Normalisation = Normalisation {
    order: [0, 1, 2],
    mean: [123.675, 116.28, 103.53],
    scale: [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375],
    padding: 114.0,
};

/// One way to read a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) layout: DetectorLayout,
    pub(crate) decoder: Decoder,
    pub(crate) normalisation: &'static Normalisation,
}

/// Required form of an output, for errors.
pub(super) const EXPECTED: &str = "NanoDet (for strides 8, 16, 32: [1, N, classes] and [1, N, 44]), YOLOv8/YOLO11 \
     ([1, 4 + classes, N]), YOLOv5/v7 and YOLOX ([1, N, 5 + classes]), YOLOv10/YOLO26 end-to-end ([1, N, 6]) or RT-DETR \
     ([1, N, 4 + classes]); with masks 32 numbers more for each box and [1, 32, h, w]. N must be the number of cells of \
     the input's grid";

/// Most boxes of a network that gives final ones.
const MAX_FINAL: usize = 1000;

/// Most classes of a table whose rows are no grid's: LVIS has 1203.
const MAX_CLASSES: usize = 1300;

/// First stride and number of levels of the grids that detectors have; strides double.
const GRIDS: [(u32, u32); 5] = [(8, 3), (8, 4), (4, 4), (4, 5), (16, 2)];

fn cells([height, width]: [usize; 2], (first, levels): (u32, u32)) -> usize {
    let strides = (0..levels).map(|level| (first << level) as usize);
    strides.map(|stride| height.div_ceil(stride) * width.div_ceil(stride)).sum()
}

/// A table's output, with what goes with it.
struct Shape {
    output: usize,
    rows: usize,
    columns: usize,
    masks: Option<(usize, usize, usize)>,
}

impl Shape {
    /// Coefficients of masks in each box.
    fn extra(&self) -> usize {
        if self.masks.is_some() { COEFFICIENTS } else { 0 }
    }

    /// A table whose boxes follow each other; the first numbers of each are the box.
    fn along(&self, form: BoxForm, score: usize) -> Table {
        let column = |start: usize| Column { output: self.output, start, step: self.columns };
        let classes = self.columns - score - self.extra();
        Table {
            rows: self.rows,
            sides: [column(0), column(1), column(2), column(3)],
            form,
            shares: false,
            score: column(score),
            class_step: 1,
            logits: false,
            objectness: None,
            label: None,
            classes,
            masks: self.masks(column(score + classes), 1),
        }
    }

    /// A table with a row for each number; boxes are its columns.
    fn across(&self) -> Table {
        let column = |row: usize| Column { output: self.output, start: row * self.columns, step: 1 };
        let classes = self.rows - 4 - self.extra();
        Table {
            rows: self.columns,
            sides: [column(0), column(1), column(2), column(3)],
            form: BoxForm::CentreSize,
            shares: false,
            score: column(4),
            class_step: self.columns,
            logits: false,
            objectness: None,
            label: None,
            classes,
            masks: self.masks(column(4 + classes), self.columns),
        }
    }

    fn masks(&self, first: Column, step: usize) -> Option<Masks> {
        let (prototypes, height, width) = self.masks?;
        Some(Masks { prototypes, height, width, first, step })
    }
}

/// All readings that shapes, metadata and configuration allow, the likeliest first.
///
/// # Errors
/// The expected form.
pub(super) fn readings(
    input: [usize; 2],
    outputs: &[(String, Vec<usize>)],
    facts: &Facts,
    asked: DetectorLayout,
    person_class: usize,
) -> Result<Vec<Reading>, String> {
    if facts.task == Task::Other {
        return Err(format!("task \"detect\" or \"segment\"; the file says task \"{}\"", facts.task_name));
    }
    let mut all = Vec::new();
    let shapes: Vec<&[usize]> = outputs.iter().map(|(_, shape)| shape.as_slice()).collect();
    if let Some(heads) = nanodet::Heads::find(&shapes, input) {
        let decoder = Decoder::Nanodet(heads);
        let normalisation = &nanodet::NORMALISATION;
        all.push(Reading { layout: DetectorLayout::Nanodet, decoder, normalisation });
    }
    if let Some(shape) = single(&shapes) {
        of_one_table(&shape, input, asked, &mut all);
    }
    of_several(outputs, &mut all);
    let in_file = |reading: &Reading| match (reading.layout, facts.end2end) {
        // Suppression in the export gives final boxes as well.
        (DetectorLayout::EndToEnd, Some(false)) => facts.nms,
        (DetectorLayout::EndToEnd, _) => true,
        (_, Some(true)) => false,
        _ => !facts.nms,
    };
    all.retain(|reading| asked == DetectorLayout::Auto || reading.layout == asked);
    if asked == DetectorLayout::Auto {
        all.retain(in_file);
    }
    if all.is_empty() {
        return Err(EXPECTED.into());
    }
    if facts.task == Task::Segment {
        all.retain(|reading| reading.decoder.mask_size().is_some());
        if all.is_empty() {
            return Err("masks, because the file says task \"segment\"".into());
        }
    }
    agree_with_names(&mut all, facts, person_class)?;
    Ok(all)
}

/// Keeps the readings whose classes are those of the file's names.
fn agree_with_names(all: &mut Vec<Reading>, facts: &Facts, person_class: usize) -> Result<(), String> {
    let found: Vec<usize> = all.iter().map(|reading| reading.decoder.classes()).collect();
    if let Some(names) = &facts.names {
        let count = names.last_key_value().map_or(0, |(last, _)| last + 1);
        for reading in all.iter_mut() {
            if let Decoder::Table(table) = &mut reading.decoder
                && table.label.is_some()
            {
                table.classes = count;
            }
        }
        all.retain(|reading| reading.decoder.classes() == count);
        if all.is_empty() {
            return Err(format!("{count} classes, as the file names them; its outputs have {found:?}"));
        }
        if let Some(person) = facts.person()
            && person != person_class
        {
            let name = names.get(&person_class).map_or("no class", String::as_str);
            return Err(format!(
                "person_class = {person}, which the file calls a person; person_class = {person_class} is {name}"
            ));
        }
    }
    all.retain(|reading| matches!(reading.decoder.classes(), 0) || person_class < reading.decoder.classes());
    if all.is_empty() {
        return Err(format!("more than person_class = {person_class} classes"));
    }
    Ok(())
}

/// The one table of a network, with its prototypes; outputs of five dimensions are the raw heads
/// that YOLOv5 and YOLOv7 give beside it.
fn single(shapes: &[&[usize]]) -> Option<Shape> {
    let mut tables = shapes.iter().enumerate().filter(|(_, shape)| shape.len() == 3);
    let (output, &&[1, rows, columns]) = tables.next()? else { return None };
    if tables.next().is_some() || rows == 0 || columns == 0 {
        return None;
    }
    let mut masks = None;
    for (index, shape) in shapes.iter().enumerate().filter(|&(index, _)| index != output) {
        match **shape {
            [1, COEFFICIENTS, height, width] if masks.is_none() => masks = Some((index, height, width)),
            [1, _, _, _, _] => {}
            _ => return None,
        }
    }
    Some(Shape { output, rows, columns, masks })
}

fn of_one_table(shape: &Shape, input: [usize; 2], asked: DetectorLayout, all: &mut Vec<Reading>) {
    let extra = shape.extra();
    let (rows, columns) = (shape.rows, shape.columns);
    let grid =
        |count: usize, anchors: usize| GRIDS.into_iter().find(|&grid| cells(input, grid) * anchors == count);
    // A layout that is asked for by name may have another grid.
    let fits = |count: usize, anchors: usize, layout: DetectorLayout| {
        asked == layout || grid(count, anchors).is_some()
    };
    let mut add = |layout, table: Table, normalisation| {
        all.push(Reading { layout, decoder: Decoder::Table(table), normalisation });
    };
    if rows > 4 + extra && fits(columns, 1, DetectorLayout::Yolov8) {
        add(DetectorLayout::Yolov8, shape.across(), &PLAIN);
    }
    if columns > 5 + extra && fits(rows, 3, DetectorLayout::Yolov5) {
        let objectness = Some(Column { output: shape.output, start: 4, step: columns });
        add(DetectorLayout::Yolov5, Table { objectness, ..shape.along(BoxForm::CentreSize, 5) }, &PLAIN);
    }
    if columns == 6 + extra && rows <= MAX_FINAL {
        let column = |start: usize| Column { output: shape.output, start, step: columns };
        let table = Table {
            label: Some(column(5)),
            class_step: 0,
            classes: 0,
            masks: shape.masks(column(6), 1),
            ..shape.along(BoxForm::Corners, 4)
        };
        add(DetectorLayout::EndToEnd, table, &PLAIN);
    }
    if columns > 5 + extra
        && let Some((first_stride, levels)) = grid(rows, 1)
    {
        let objectness = Some(Column { output: shape.output, start: 4, step: columns });
        let of = |form| Table { objectness, ..shape.along(form, 5) };
        add(DetectorLayout::Yolox, of(BoxForm::Grid { first_stride, levels }), &BYTES);
        // With `--decode_in_inference`; and YOLOv6.
        add(DetectorLayout::Yolox, of(BoxForm::CentreSize), &BYTES);
        add(DetectorLayout::Yolox, of(BoxForm::CentreSize), &PLAIN);
    }
    if (1..=MAX_CLASSES).contains(&columns.saturating_sub(4 + extra)) && rows <= MAX_FINAL {
        let table = Table { shares: true, ..shape.along(BoxForm::CentreSize, 4) };
        add(DetectorLayout::RtDetr, table, &PLAIN);
    }
    if columns > 4 + extra && grid(rows, 1).is_some() {
        // A YOLOv8 whose rows were exchanged with its columns.
        add(DetectorLayout::Yolov8, shape.along(BoxForm::CentreSize, 4), &PLAIN);
    }
}

/// DETR's outputs: boxes and scores apart.
fn of_several(outputs: &[(String, Vec<usize>)], all: &mut Vec<Reading>) {
    let column = |output: usize, start: usize, step: usize| Column { output, start, step };
    let boxes = |output: usize| std::array::from_fn(|side| column(output, side, 4));
    let Some(at) = outputs.iter().position(|(_, shape)| matches!(shape[..], [1, _, 4])) else { return };
    let rows = outputs[at].1[1];
    let plain = Table {
        rows,
        sides: boxes(at),
        form: BoxForm::CentreSize,
        shares: true,
        score: column(at, 0, 0),
        class_step: 1,
        logits: true,
        objectness: None,
        label: None,
        classes: 0,
        masks: None,
    };
    let mut add = |table: Table, normalisation| {
        all.push(Reading { layout: DetectorLayout::RtDetr, decoder: Decoder::Table(table), normalisation });
    };
    match outputs {
        [_, _] => {
            let other = 1 - at;
            let [1, found, classes] = outputs[other].1[..] else { return };
            if found == rows && classes > 0 && rows <= MAX_FINAL {
                let table = Table { score: column(other, 0, classes), classes, ..plain };
                add(table, &PLAIN);
                add(table, &IMAGENET);
            }
        }
        [_, _, _] => {
            let named = |word: &str| {
                outputs.iter().position(|(name, shape)| name.contains(word) && shape[..] == [1, rows])
            };
            if let (Some(scores), Some(labels)) = (named("score"), named("label")) {
                let table = Table {
                    form: BoxForm::Corners,
                    shares: false,
                    logits: false,
                    score: column(scores, 0, 1),
                    class_step: 0,
                    label: Some(column(labels, 0, 1)),
                    ..plain
                };
                add(table, &PLAIN);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
