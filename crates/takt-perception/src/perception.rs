//! One camera's perception on the CPU: a frame and the poses of its capture in, [`Detections`] out.

use nalgebra::Point3;
use takt_link_camera::{Frame, Intrinsics};

use crate::config::{DetectorSchedule, PerceptionConfig};
use crate::detector::{DetectionSet, Detector, DetectorHandle};
use crate::engine::{Engine, EngineError};
use crate::error::PerceptionError;
use crate::health::GreySums;
use crate::judge::{Judge, MAX_PEOPLE, MaskRequest, MaskSource, Stages};
use crate::measure::{Claim, Item, Measurement, Question, View};
use crate::mount::FramePose;
use crate::occupancy::{Blob, DepthCounts, Grid, NONE, Scene};
use crate::overlay::Overlay;
use crate::result::Detections;
use crate::segmenter::{MaskCrop, Segmenter};
use crate::track::Tracks;
use crate::view::FrameView;

/// Perception of one camera on the CPU. One thread owns it and calls [`process`](Self::process) for
/// each frame.
///
/// After the first frames the code of this crate allocates nothing in `process`; the inference
/// engine may.
pub struct Perception {
    judge: Judge,
    stages: CpuStages,
}

impl Perception {
    /// Prepares perception of one camera. `detector` is its handle of the shared detector; without
    /// one, and unless the configuration runs the detector on every frame, everything stays
    /// unexplained (and still counts).
    ///
    /// # Errors
    /// Settings out of range, unusable intrinsics, a network that cannot be loaded.
    pub fn new(
        config: &PerceptionConfig,
        camera: u32,
        intrinsics: Intrinsics,
        engine: &Engine,
        detector: Option<DetectorHandle>,
    ) -> Result<Self, PerceptionError> {
        let segment_every = match config.segmenter.every_frames {
            Some(frames) => u64::from(frames.max(1)),
            None if engine.is_embedded() => 3,
            None => 1,
        };
        let judge = Judge::new(config, camera, intrinsics, detector, segment_every)?;
        let own = config.detector.enabled && config.detector.schedule == DetectorSchedule::EveryFrame;
        let own = own.then(|| Detector::new(engine, &config.detector)).transpose()?;
        // A detector that segments on every frame makes the segmenter idle.
        let segments = config.segmenter.enabled && !own.as_ref().is_some_and(Detector::has_masks);
        let segmenter = segments.then(|| Segmenter::new(engine, &config.segmenter)).transpose()?;
        let grid = Grid::new(config.occupancy.step_px, intrinsics.width, intrinsics.height);
        let cells = grid.cells();
        let stages = CpuStages {
            detector: own,
            segmenter,
            labels: vec![NONE; cells],
            blobs: Vec::with_capacity(cells),
            measurement: Measurement::new(cells),
            masks: Vec::with_capacity(MAX_PEOPLE),
            grid,
        };
        Ok(Self { judge, stages })
    }

    /// Index of the camera.
    pub fn camera(&self) -> u32 {
        self.judge.camera()
    }

    /// Judges one frame.
    ///
    /// `pose` is camera and tool at capture time, `None` where the robot's pose then is not known.
    /// `start_ns` is when the thread began to work on the frame. The whole of `out` is filled; a
    /// frame that cannot be judged has a health other than
    /// [`FrameHealth::Ok`](crate::FrameHealth::Ok) and no objects.
    pub fn process(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) {
        self.process_view(&frame.into(), pose, start_ns, out, overlay);
    }

    /// [`process`](Self::process) for a frame that lies somewhere else, for example in shared
    /// memory.
    pub fn process_view(
        &mut self,
        frame: &FrameView,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) {
        let detections = self.judge.take_detections();
        self.run(frame, pose, start_ns, detections.as_ref(), out, overlay);
    }

    /// [`process`](Self::process) with given detections (of this frame or an older one) in place of
    /// what the shared detector found meanwhile: the deterministic way, for tests and replays.
    pub fn process_with_detections(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) {
        self.run(&frame.into(), pose, start_ns, detections, out, overlay);
    }

    fn run(
        &mut self,
        frame: &FrameView,
        pose: Option<&FramePose>,
        start_ns: u64,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) {
        // A failed inference is in the health of `out`; what it was is of no use to the camera.
        let _ = self.judge.process(&mut self.stages, frame, pose, start_ns, detections, out, overlay);
    }
}

impl std::fmt::Debug for Perception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Perception")
            .field("camera", &self.judge.camera())
            .field("intrinsics", self.judge.intrinsics())
            .field("segmenter", &self.stages.segmenter)
            .finish_non_exhaustive()
    }
}

struct CpuStages {
    detector: Option<Detector>,
    segmenter: Option<Segmenter>,
    grid: Grid,
    labels: Vec<u32>,
    blobs: Vec<Blob>,
    measurement: Measurement,
    masks: Vec<MaskCrop>,
}

impl Stages for CpuStages {
    type Error = EngineError;

    fn look(&mut self, question: &Question) -> Result<DepthCounts, EngineError> {
        let frame = question.frame;
        Ok(self.grid.sample(question.scene, frame.depth_mm, frame.width, frame.height))
    }

    fn grey(&mut self, frame: &FrameView) -> GreySums {
        GreySums::of(frame, &self.grid)
    }

    fn label(&mut self, question: &Question) {
        let (labels, blobs) = (&mut self.labels, &mut self.blobs);
        let config = &question.config.occupancy;
        self.grid.label(question.scene, config, |_| true, &question.tcp, labels, blobs);
    }

    fn blobs(&self) -> &[Blob] {
        &self.blobs
    }

    fn detect(&mut self, frame: &FrameView, set: &mut DetectionSet) -> Result<bool, EngineError> {
        let Some(detector) = &mut self.detector else { return Ok(false) };
        detector.detect(frame.rgb, frame.width, frame.height, set)?;
        Ok(true)
    }

    fn detector_has_masks(&self) -> bool {
        self.detector.as_ref().is_some_and(Detector::has_masks)
    }

    fn has_segmenter(&self) -> bool {
        self.segmenter.is_some()
    }

    fn nearest_in(
        &mut self,
        question: &Question,
        boxes: &[[f32; 4]],
        nearest2: &mut [f32],
    ) -> Result<(), EngineError> {
        for (box_px, nearest2) in boxes.iter().zip(nearest2) {
            *nearest2 = nearest_in(&self.grid, box_px, question.frame, &question.tcp);
        }
        Ok(())
    }

    fn masks(&mut self, question: &Question, wanted: &mut [MaskRequest]) -> Result<(), EngineError> {
        let frame = question.frame;
        for (index, request) in wanted.iter_mut().enumerate() {
            if self.masks.len() == index {
                self.masks.push(MaskCrop::default());
            }
            let mask = &mut self.masks[index];
            let made = match (request.source, &self.detector, &mut self.segmenter) {
                (MaskSource::Detection(detection), Some(detector), _) => detector.mask(detection, mask),
                (MaskSource::Crop, _, Some(segmenter)) => {
                    segmenter.segment(frame.rgb, frame.width, frame.height, &request.box_px, mask)?;
                    true
                }
                _ => false,
            };
            request.coverage =
                made.then(|| mask.coverage(&request.box_px, question.config.segmenter.threshold));
        }
        Ok(())
    }

    fn measure(
        &mut self,
        question: &Question,
        tracks: &Tracks,
        people: &[Claim],
        overlay: Option<&mut Overlay>,
    ) -> Result<(), EngineError> {
        let measurement = &mut self.measurement;
        measurement.items.clear();
        for claim in people {
            measurement.items.push(Item::person(&tracks.all()[claim.track], claim.mask));
        }
        let view = View { question, labels: &self.labels, blobs: &self.blobs, masks: &self.masks };
        measurement.assign(&view, &mut self.grid, tracks.all(), people);
        measurement.measure(&view, &self.grid, overlay);
        Ok(())
    }

    fn items(&mut self) -> &mut [Item] {
        &mut self.measurement.items
    }

    fn valid_share(&self, question: &Question, _person: usize, box_px: &[f32; 4]) -> f32 {
        valid_share(question.scene, &self.grid, box_px, question.frame)
    }
}

/// Cells whose sampled pixel lies in a box.
fn cells_in<'a>(
    grid: &'a Grid,
    box_px: &[f32; 4],
    frame: &'a FrameView<'a>,
) -> impl Iterator<Item = (usize, u32, u32)> + 'a {
    let [left, top, right, bottom] = *box_px;
    (0..grid.cells()).filter_map(move |cell| {
        let (u, v) = grid.pixel(cell, frame.width, frame.height);
        let (x, y) = (u as f32, v as f32);
        (x >= left && x < right && y >= top && y < bottom).then_some((cell, u, v))
    })
}

/// Least squared distance of foreground in a box.
fn nearest_in(grid: &Grid, box_px: &[f32; 4], frame: &FrameView, tcp: &Point3<f32>) -> f32 {
    cells_in(grid, box_px, frame)
        .filter(|&(cell, ..)| grid.depth[cell] != 0)
        .map(|(cell, ..)| (grid.points[cell] - tcp).norm_squared())
        .fold(f32::INFINITY, f32::min)
}

/// The share of a box with valid depth, foreground or not.
fn valid_share(scene: &Scene, grid: &Grid, box_px: &[f32; 4], frame: &FrameView) -> f32 {
    let (mut valid, mut all) = (0u32, 0u32);
    for (_, u, v) in cells_in(grid, box_px, frame) {
        all += 1;
        valid += u32::from(scene.is_valid(frame.depth_mm[(v * frame.width + u) as usize]));
    }
    valid as f32 / all.max(1) as f32
}

#[cfg(test)]
mod tests;
