//! The person detector: a whole frame in, boxes of people out.

mod layout;
mod nanodet;
mod service;
mod table;

use std::fmt;

pub use layout::DetectorLayout;
pub(crate) use layout::Reading;
pub use service::{DetectorHandle, DetectorService};
pub(crate) use table::{BoxForm, Column, Table};

use crate::config::DetectorConfig;
use crate::engine::{Engine, EngineError, Facts, LoadedNetwork, Tensor};
use crate::image::Letterbox;
use crate::proof;
use crate::segmenter::MaskCrop;
use table::SCORE_TOLERANCE;

/// Most detections of one frame; the best ones are kept.
pub const MAX_DETECTIONS: usize = 32;

/// A person's box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Detection {
    /// Left, top, right, bottom in pixels of the frame.
    pub box_px: [f32; 4],
    /// Score, 0..1.
    pub score: f32,
}

/// The people found in one frame: a fixed-size value, made for an exchange buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectionSet {
    /// Sequence number of the frame; 0 before the first.
    pub frame_sequence: u64,
    /// When the frame was captured, CLOCK_MONOTONIC nanoseconds.
    pub capture_ns: u64,
    /// Whether the inference failed; then there are no detections.
    pub failed: bool,
    detections: [Detection; MAX_DETECTIONS],
    count: usize,
}

impl Default for DetectionSet {
    fn default() -> Self {
        Self {
            frame_sequence: 0,
            capture_ns: 0,
            failed: false,
            detections: [Detection::default(); MAX_DETECTIONS],
            count: 0,
        }
    }
}

impl DetectionSet {
    /// An empty set for a frame of that sequence number, captured then (CLOCK_MONOTONIC
    /// nanoseconds).
    pub fn of_frame(frame_sequence: u64, capture_ns: u64) -> Self {
        Self { frame_sequence, capture_ns, ..Self::default() }
    }

    /// The detections, best first.
    pub fn detections(&self) -> &[Detection] {
        &self.detections[..self.count]
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.count = 0;
        self.failed = false;
    }

    /// Adds a detection; what does not fit is dropped.
    pub fn push(&mut self, detection: Detection) {
        if let Some(slot) = self.detections.get_mut(self.count) {
            *slot = detection;
            self.count += 1;
        }
    }
}

/// A box of the network before overlapping ones are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Left, top, right, bottom in pixels of the network's input.
    pub(crate) box_px: [f32; 4],
    pub(crate) score: f32,
    /// Column of the output it came from.
    pub(crate) index: usize,
}

/// Runs a network on one input.
pub(crate) type Infer<'a, E> = dyn FnMut(&[f32]) -> Result<Vec<Tensor>, E> + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each network, and it is copied only at the start"
)]
pub(crate) enum Decoder {
    Nanodet(nanodet::Heads),
    /// A YOLO or an RT-DETR.
    Table(Table),
}

impl Decoder {
    /// 0 where it is not known.
    pub(crate) fn classes(&self) -> usize {
        match self {
            Self::Nanodet(heads) => heads.classes,
            Self::Table(table) => table.classes,
        }
    }

    /// Height and width of the masks, where the network gives any.
    pub(crate) fn mask_size(&self) -> Option<[usize; 2]> {
        match self {
            Self::Table(Table { masks: Some(masks), .. }) => Some([masks.height, masks.width]),
            _ => None,
        }
    }

    /// Adds the boxes of a class with at least that score, in pixels of the input, and those whose
    /// score is no score. `input` is height and width of the network's input.
    pub(crate) fn decode(
        &self,
        outputs: &[Tensor],
        input: [usize; 2],
        class: usize,
        threshold: f32,
        out: &mut Vec<Candidate>,
    ) {
        match self {
            Self::Nanodet(heads) => heads.decode(outputs, class, threshold, out),
            Self::Table(table) => table.decode(outputs, input, class, threshold, out),
        }
    }

    /// Whether candidates can be what a network answers: scores of 0 to 1, and boxes that are in
    /// the picture. Else what was found: such an answer is a failure of the inference, and an
    /// inference that fails must not look like a picture without people.
    pub(crate) fn plausible(&self, candidates: &[Candidate], input: [usize; 2]) -> Result<(), String> {
        let [height, width] = input.map(|side| side as f32);
        for Candidate { box_px, score, .. } in candidates {
            if !(0.0..=1.0 + SCORE_TOLERANCE).contains(score) {
                return Err(format!("the score {score}; scores are 0 to 1"));
            }
            let [left, top, right, bottom] = *box_px;
            // A box may reach over the border; written so that NaN is outside.
            let along = |from: f32, to: f32, side: f32| {
                from < side && to > 0.0 && to >= from && to - from <= 2.0 * side
            };
            if !(along(left, right, width) && along(top, bottom, height)) {
                return Err(format!("the box {box_px:?}; the picture is {width} by {height}"));
            }
        }
        Ok(())
    }

    /// Whether every number that is a score or a class can be one; else what was found.
    pub(crate) fn check_scores(&self, outputs: &[Tensor]) -> Result<(), String> {
        match self {
            Self::Nanodet(heads) => heads.check_scores(outputs),
            Self::Table(table) => table.check_scores(outputs),
        }
    }
}

/// Finds out how a network is to be read: by its shapes, by what its file says, and by what it
/// finds in pictures. Returns the reading, and height and width of the input.
pub(crate) fn understand<E: From<EngineError>>(
    facts: &Facts,
    input: &[usize],
    outputs: &[(String, Vec<usize>)],
    config: &DetectorConfig,
    model: &str,
    infer: &mut Infer<'_, E>,
) -> Result<(Reading, [usize; 2]), E> {
    let misfit = |expected: String| EngineError::misfit(model, input, outputs, expected);
    let &[_, _, height, width] = input else {
        return Err(misfit("input [1, 3, height, width]".into()).into());
    };
    let size = [height, width];
    let readings =
        layout::readings(size, outputs, facts, config.layout, config.person_class).map_err(misfit)?;
    Ok((proof::choose(&readings, size, config, model, infer)?, size))
}

/// Turns candidates into detections of the frame: suppresses, undoes the letterbox.
pub(crate) fn conclude(
    candidates: &mut [Candidate],
    kept: &mut Vec<Candidate>,
    iou: f32,
    letterbox: &Letterbox,
    [width, height]: [u32; 2],
    out: &mut DetectionSet,
) {
    suppress(candidates, iou, kept);
    for candidate in kept {
        let [left, top, right, bottom] = letterbox.undo(candidate.box_px);
        out.push(Detection {
            box_px: [
                left.clamp(0.0, width as f32),
                top.clamp(0.0, height as f32),
                right.clamp(0.0, width as f32),
                bottom.clamp(0.0, height as f32),
            ],
            score: candidate.score,
        });
    }
}

/// Place of a detector's mask in the frame. `input` is height and width of the network's input.
pub(crate) fn place_mask(
    letterbox: &Letterbox,
    [height, width]: [usize; 2],
    input: [usize; 2],
    out: &mut MaskCrop,
) {
    (out.width, out.height) = (width, height);
    let (scale, offset) = letterbox.forward();
    let to_mask = [width as f32 / input[1] as f32, height as f32 / input[0] as f32];
    out.scale = to_mask.map(|factor| factor * scale);
    out.offset = [offset[0] * to_mask[0], offset[1] * to_mask[1]];
}

/// A loaded detector.
pub struct Detector {
    network: LoadedNetwork,
    reading: Reading,
    letterbox: Letterbox,
    /// Height and width of the network's input.
    letterbox_size: [usize; 2],
    /// Masks of the last detections, one plane after the other.
    masks: Vec<f32>,
    input: Vec<f32>,
    candidates: Vec<Candidate>,
    kept: Vec<Candidate>,
    threshold: f32,
    nms_iou: f32,
    person_class: usize,
}

impl Detector {
    /// Loads the configured model, finds out how its outputs are laid out, and proves it on
    /// pictures with people.
    ///
    /// # Errors
    /// The model cannot be read or loaded, has none of the known layouts, or does not find the
    /// people.
    pub fn new(engine: &Engine, config: &DetectorConfig) -> Result<Self, EngineError> {
        let mut network = engine.load(&config.model, config.input_size)?;
        let key = format!("{:x} {engine:?} {config:?}", network.identity);
        let known = proof::once(key, || {
            let LoadedNetwork { model, network, outputs, facts, .. } = &mut network;
            let input = network.input_shape().to_vec();
            let name = model.clone();
            let mut infer = |values: &[f32]| {
                let answer = network.run(values).map_err(|error: EngineError| error.of_model(&name))?;
                Ok(answer.to_vec())
            };
            let (reading, _) = understand::<EngineError>(facts, &input, outputs, config, model, &mut infer)?;
            Ok::<_, EngineError>(Some(reading))
        })?;
        let (Some(reading), &[_, _, height, width]) = (known, network.network.input_shape()) else {
            return Err(network.misfit("input [1, 3, height, width]"));
        };
        Ok(Self {
            input: vec![0.0; 3 * height * width],
            letterbox: Letterbox::new(width, height),
            letterbox_size: [height, width],
            masks: Vec::new(),
            network,
            reading,
            candidates: Vec::with_capacity(1024),
            kept: Vec::with_capacity(MAX_DETECTIONS),
            threshold: config.threshold,
            nms_iou: config.nms_iou,
            person_class: config.person_class,
        })
    }

    /// Finds people in an image of `width * height * 3` bytes R G B. Fills the detections; the
    /// frame's identity in `out` is the caller's.
    ///
    /// # Errors
    /// When the inference fails; `out` is then empty and marked.
    pub fn detect(
        &mut self,
        rgb: &[u8],
        width: u32,
        height: u32,
        out: &mut DetectionSet,
    ) -> Result<(), EngineError> {
        out.clear();
        out.failed = true;
        self.letterbox.fill(rgb, width, height, self.reading.normalisation, &mut self.input);
        let outputs = self.network.network.run(&self.input)?;
        for (output, (name, shape)) in outputs.iter().zip(&self.network.outputs) {
            if output.shape != *shape {
                let found = &output.shape;
                return Err(EngineError::Run(format!(
                    "output {name} is {found:?}, but was {shape:?} at the start"
                )));
            }
        }
        self.candidates.clear();
        let decoder = &self.reading.decoder;
        decoder.decode(outputs, self.letterbox_size, self.person_class, self.threshold, &mut self.candidates);
        decoder.plausible(&self.candidates, self.letterbox_size).map_err(EngineError::nonsense)?;
        let size = [width, height];
        conclude(&mut self.candidates, &mut self.kept, self.nms_iou, &self.letterbox, size, out);
        if let Decoder::Table(table) = decoder {
            table.compute_masks(outputs, &self.kept, self.letterbox_size, &mut self.masks);
        }
        out.failed = false;
        Ok(())
    }

    /// Layout of its outputs.
    pub fn layout(&self) -> DetectorLayout {
        self.reading.layout
    }

    /// Whether the network also segments.
    pub(crate) fn has_masks(&self) -> bool {
        self.reading.decoder.mask_size().is_some()
    }

    /// The mask of detection `index` of the last [`detect`](Self::detect); false where there is
    /// none.
    pub(crate) fn mask(&self, index: usize, out: &mut MaskCrop) -> bool {
        let Some([height, width]) = self.reading.decoder.mask_size() else { return false };
        let Some(values) = self.masks.chunks_exact(height * width).nth(index) else { return false };
        out.values.clear();
        out.values.extend_from_slice(values);
        place_mask(&self.letterbox, [height, width], self.letterbox_size, out);
        true
    }
}

impl fmt::Debug for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detector").field("network", &self.network).field("reading", &self.reading).finish()
    }
}

/// Greedy non-maximum suppression, best first.
fn suppress(candidates: &mut [Candidate], iou: f32, kept: &mut Vec<Candidate>) {
    kept.clear();
    candidates.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    for candidate in candidates {
        if kept.len() == MAX_DETECTIONS {
            break;
        }
        if kept.iter().all(|best| crate::image::iou(&best.box_px, &candidate.box_px) <= iou) {
            kept.push(*candidate);
        }
    }
}

#[cfg(test)]
mod tests;
