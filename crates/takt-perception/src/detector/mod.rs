//! The person detector: a whole frame in, boxes of people out.

mod nanodet;
mod service;
mod yolo;

use std::fmt;

pub use service::{DetectorHandle, DetectorService};

use crate::config::DetectorConfig;
use crate::engine::{Engine, EngineError, LoadedNetwork};
use crate::image::{Letterbox, Normalisation};
use crate::segmenter::MaskCrop;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoder {
    Nanodet(nanodet::Heads),
    /// YOLOv8 or YOLO11.
    Yolo(yolo::Layout),
}

impl Decoder {
    /// Finds out which kind a network is, or says what was expected of its shapes.
    pub(crate) fn find(
        input: &[usize],
        outputs: &[(String, Vec<usize>)],
        person_class: usize,
    ) -> Result<(Self, [usize; 2]), String> {
        let &[_, _, height, width] = input else { return Err("input [1, 3, height, width]".into()) };
        let shapes: Vec<&[usize]> = outputs.iter().map(|(_, shape)| shape.as_slice()).collect();
        let decoder = if let Some(heads) = nanodet::Heads::find(&shapes, [height, width]) {
            Self::Nanodet(heads)
        } else if let Some(layout) = yolo::Layout::find(&shapes) {
            Self::Yolo(layout)
        } else {
            return Err("NanoDet (for strides 8, 16, 32: [1, N, classes] and [1, N, 44]) or YOLOv8/YOLO11 \
                        ([1, 4 + classes (+ 32), N] and, with masks, [1, 32, h, w])"
                .into());
        };
        if person_class >= decoder.classes() {
            return Err(format!("more than person_class = {person_class} classes"));
        }
        Ok((decoder, [height, width]))
    }

    pub(crate) fn classes(&self) -> usize {
        match self {
            Self::Nanodet(heads) => heads.classes,
            Self::Yolo(layout) => layout.classes,
        }
    }

    /// Height and width of the masks, where the network gives any.
    pub(crate) fn mask_size(&self) -> Option<[usize; 2]> {
        match self {
            Self::Yolo(yolo::Layout { masks: Some((_, height, width)), .. }) => Some([*height, *width]),
            _ => None,
        }
    }

    pub(crate) fn normalisation(&self) -> &'static Normalisation {
        match self {
            Self::Nanodet(_) => &nanodet::NORMALISATION,
            Self::Yolo(_) => &yolo::NORMALISATION,
        }
    }
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

/// Where a mask of a detector lies in the frame. `input` is height and width of the network's
/// input.
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
    decoder: Decoder,
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
    /// Loads the configured model and finds out by its outputs which kind it is.
    ///
    /// # Errors
    /// Where the model cannot be read or loaded, or is neither NanoDet nor YOLOv8/YOLO11.
    pub fn new(engine: &Engine, config: &DetectorConfig) -> Result<Self, EngineError> {
        let network = engine.load(&config.model, config.input_size)?;
        let (decoder, [height, width]) =
            Decoder::find(network.network.input_shape(), &network.outputs, config.person_class)
                .map_err(|expected| network.misfit(&expected))?;
        Ok(Self {
            input: vec![0.0; 3 * height * width],
            letterbox: Letterbox::new(width, height),
            letterbox_size: [height, width],
            masks: Vec::new(),
            network,
            decoder,
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
        self.letterbox.fill(rgb, width, height, self.decoder.normalisation(), &mut self.input);
        let outputs = self.network.network.run(&self.input)?;
        self.candidates.clear();
        match &self.decoder {
            Decoder::Nanodet(heads) => {
                heads.decode(outputs, self.person_class, self.threshold, &mut self.candidates);
            }
            Decoder::Yolo(layout) => {
                layout.decode(
                    &outputs[layout.boxes],
                    self.person_class,
                    self.threshold,
                    &mut self.candidates,
                );
            }
        }
        let size = [width, height];
        conclude(&mut self.candidates, &mut self.kept, self.nms_iou, &self.letterbox, size, out);
        if let Decoder::Yolo(layout) = &self.decoder {
            layout.compute_masks(outputs, &self.kept, self.letterbox_size, &mut self.masks);
        }
        out.failed = false;
        Ok(())
    }

    /// Whether the network also segments.
    pub(crate) fn has_masks(&self) -> bool {
        self.decoder.mask_size().is_some()
    }

    /// The mask of detection `index` of the last [`detect`](Self::detect); false where there is
    /// none.
    pub(crate) fn mask(&self, index: usize, out: &mut MaskCrop) -> bool {
        let Some([height, width]) = self.decoder.mask_size() else { return false };
        let Some(values) = self.masks.chunks_exact(height * width).nth(index) else { return false };
        out.values.clear();
        out.values.extend_from_slice(values);
        place_mask(&self.letterbox, [height, width], self.letterbox_size, out);
        true
    }
}

impl fmt::Debug for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detector").field("network", &self.network).field("decoder", &self.decoder).finish()
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
