//! One camera's perception: a frame and the poses of its capture in, [`Detections`] out.

use nalgebra::{Isometry3, Point3};
use takt_link_camera::{Frame, Intrinsics};
use takt_rt::clock::monotonic_ns;

use crate::config::{ConfigError, DetectorSchedule, PerceptionConfig};
use crate::detector::{DetectionSet, Detector, DetectorHandle};
use crate::engine::{Engine, EngineError};
use crate::health;
use crate::measure::{Item, Measurement, View};
use crate::mount::FramePose;
use crate::occupancy::{Blob, Grid, NONE, Scene};
use crate::overlay::Overlay;
use crate::result::{Detections, FrameHealth, MAX_OBJECTS};
use crate::segmenter::{MaskCrop, Segmenter};
use crate::track::Tracks;

/// Most people measured as such in one frame; more are still measured, as unexplained.
const MAX_PEOPLE: usize = 32;

/// Why perception cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PerceptionError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A network cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The intrinsics make no sense.
    #[error(
        "camera {camera}: intrinsics {intrinsics:?} are unusable; accepted: width and height above 0 and finite \
         fx, fy above 0, cx, cy"
    )]
    Intrinsics {
        /// Index of the camera.
        camera: u32,
        /// What was given.
        intrinsics: Intrinsics,
    },
}

/// Perception of one camera. One thread owns it and calls [`process`](Self::process) for each frame.
///
/// After the first frames the code of this crate allocates nothing in `process`; the inference engine may.
pub struct Perception {
    config: PerceptionConfig,
    camera: u32,
    intrinsics: Intrinsics,
    handle: Option<DetectorHandle>,
    detector: Option<Detector>,
    segmenter: Option<Segmenter>,
    /// Every how many frames people are segmented.
    segment_every: u64,
    detector_failed: bool,
    scene: Scene,
    grid: Grid,
    labels: Vec<u32>,
    blobs: Vec<Blob>,
    tracks: Tracks,
    measurement: Measurement,
    masks: Vec<MaskCrop>,
    /// Track of each detection of the last set.
    placed: Vec<Option<u32>>,
    /// People of this frame, nearest first.
    people: Vec<Candidate>,
    /// Index of a person's track, and whether the person's blob is theirs alone; those with masks first.
    measured: Vec<(usize, bool)>,
}

/// A person to be measured.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    track: u32,
    /// Squared distance, for the order.
    nearest2: f32,
    mask: Option<usize>,
}

impl Perception {
    /// Prepares perception of one camera. `detector` is its handle of the shared detector; without one, and
    /// unless the configuration runs the detector on every frame, everything stays unexplained (and still
    /// counts).
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
        config.check()?;
        let Intrinsics { fx, fy, cx, cy, .. } = intrinsics;
        let finite = [fx, fy, cx, cy].iter().all(|value| value.is_finite());
        if intrinsics.pixels() == 0 || !finite || fx <= 0.0 || fy <= 0.0 {
            return Err(PerceptionError::Intrinsics { camera, intrinsics });
        }
        let own = config.detector.enabled && config.detector.schedule == DetectorSchedule::EveryFrame;
        let own = own.then(|| Detector::new(engine, &config.detector)).transpose()?;
        // A detector that segments on every frame makes the segmenter idle.
        let segments = config.segmenter.enabled && !own.as_ref().is_some_and(Detector::has_masks);
        let segmenter = segments.then(|| Segmenter::new(engine, &config.segmenter)).transpose()?;
        let grid = Grid::new(config.occupancy.step_px, intrinsics.width, intrinsics.height);
        let cells = grid.cells();
        let (near, far) = (config.health.min_depth_mm, config.health.max_depth_mm);
        Ok(Self {
            camera,
            intrinsics,
            handle: detector,
            detector: own,
            segmenter,
            segment_every: match config.segmenter.every_frames {
                Some(frames) => u64::from(frames.max(1)),
                None if engine.is_embedded() => 3,
                None => 1,
            },
            detector_failed: false,
            scene: Scene::new(&config.occupancy, &intrinsics, near, far),
            labels: vec![NONE; cells],
            blobs: Vec::with_capacity(cells),
            tracks: Tracks::new(&config.tracking, cells),
            measurement: Measurement::new(cells),
            masks: Vec::with_capacity(MAX_PEOPLE),
            placed: Vec::with_capacity(crate::MAX_DETECTIONS),
            people: Vec::with_capacity(MAX_PEOPLE),
            measured: Vec::with_capacity(MAX_PEOPLE),
            grid,
            config: config.clone(),
        })
    }

    /// Judges one frame.
    ///
    /// `pose` is camera and tool at capture time, `None` where the robot's pose then is not known. `start_ns`
    /// is when the thread began to work on the frame. The whole of `out` is filled; a frame that cannot be
    /// judged has a health other than [`FrameHealth::Ok`] and no objects.
    pub fn process(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) {
        let detections = self.handle.as_mut().and_then(DetectorHandle::take);
        self.process_with_detections(frame, pose, start_ns, detections.as_ref(), out, overlay);
    }

    /// [`process`](Self::process) with given detections (of this frame or an older one) in place of what the
    /// shared detector found meanwhile: the deterministic way, for tests and replays.
    pub fn process_with_detections(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        mut overlay: Option<&mut Overlay>,
    ) {
        if let Some(overlay) = overlay.as_deref_mut() {
            overlay.reset(frame.sequence, frame.width, frame.height);
        }
        out.clear();
        out.camera = self.camera;
        out.frame_sequence = frame.sequence;
        out.capture_ns = frame.capture_ns;
        out.valid_depth = 0.0;
        out.times.arrival_ns = frame.arrival_ns;
        out.times.start_ns = start_ns;
        if let Some(pose) = pose {
            out.tcp_m = pose.tcp_in_base.translation.vector.cast();
        }
        out.health = match pose {
            _ if frame.sequence == 0 => FrameHealth::NoFrame,
            _ if !self.fits(frame) => FrameHealth::WrongSize,
            Some(pose) if is_finite(&pose.camera_in_base) && is_finite(&pose.tcp_in_base) => {
                self.judge(frame, pose, detections, out, overlay)
            }
            _ => FrameHealth::NoPose,
        };
        let now_ns = monotonic_ns();
        if out.health != FrameHealth::Ok {
            out.clear();
            out.times.inferred_ns = now_ns;
            out.times.projected_ns = now_ns;
        }
        out.times.published_ns = now_ns;
    }

    fn fits(&self, frame: &Frame) -> bool {
        (frame.width, frame.height) == (self.intrinsics.width, self.intrinsics.height)
            && frame.depth_mm.len() == self.intrinsics.pixels()
            && frame.rgb.len() == self.intrinsics.pixels() * 3
    }

    fn judge(
        &mut self,
        frame: &Frame,
        pose: &FramePose,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        mut overlay: Option<&mut Overlay>,
    ) -> FrameHealth {
        let (width, height) = (frame.width, frame.height);
        let tcp = Point3::from(out.tcp_m);
        self.scene.place(&pose.camera_in_base, &pose.tcp_in_base);
        let counts = self.grid.sample(&self.scene, &frame.depth_mm, width, height);
        out.valid_depth = counts.valid as f32 / counts.samples.max(1) as f32;
        let health = health::judge(&self.config.health, frame, &self.grid, counts);
        if health != FrameHealth::Ok {
            return health;
        }

        let occupancy = &self.config.occupancy;
        self.grid.label(&self.scene, occupancy, |_| true, &tcp, &mut self.labels, &mut self.blobs);
        self.tracks.advance(frame.sequence, frame.capture_ns, &self.blobs, width, height);
        if !self.detect(frame, detections) {
            return FrameHealth::InferenceFailed;
        }
        self.choose_people(frame, &tcp);
        if self.segment(frame).is_err() {
            return FrameHealth::InferenceFailed;
        }
        out.times.inferred_ns = monotonic_ns();

        self.measure(frame, tcp, overlay.as_deref_mut());
        self.report(out, overlay);
        out.times.projected_ns = monotonic_ns();
        FrameHealth::Ok
    }

    /// Brings detections in and asks for new ones. False when the detector fails.
    fn detect(&mut self, frame: &Frame, detections: Option<&DetectionSet>) -> bool {
        let now_ns = frame.capture_ns;
        self.placed.clear();
        if let Some(detector) = &mut self.detector {
            let mut set = DetectionSet::default();
            set.frame_sequence = frame.sequence;
            set.capture_ns = frame.capture_ns;
            if detector.detect(&frame.rgb, frame.width, frame.height, &mut set).is_err() {
                return false;
            }
            self.tracks.confirm(&set, now_ns, &mut self.placed);
            return true;
        }
        if let Some(set) = detections {
            self.detector_failed = set.failed;
            if !set.failed {
                self.tracks.confirm(set, now_ns, &mut self.placed);
            }
        }
        if let Some(handle) = &mut self.handle {
            let now_ns = monotonic_ns();
            let ms = |value: u32| u64::from(value) * 1_000_000;
            let config = &self.config.detector;
            let since_ns = handle.asked_ns().map_or(u64::MAX, |asked| now_ns.saturating_sub(asked));
            let urgent_ns = ms(config.urgent_interval_ms);
            let urgent = since_ns >= urgent_ns && self.tracks.is_urgent(now_ns, urgent_ns);
            if urgent || (since_ns >= ms(config.interval_ms) && !handle.is_waiting()) {
                handle.post(frame, now_ns, urgent);
                self.tracks.asked(now_ns);
            }
        }
        !self.detector_failed
    }

    /// The people of this frame, nearest first by their blobs or, without, by what lies in their boxes.
    fn choose_people(&mut self, frame: &Frame, tcp: &Point3<f32>) {
        self.people.clear();
        for track in self.tracks.all().iter().filter(|track| track.person).take(MAX_PEOPLE) {
            let nearest2 = match track.label {
                NONE => nearest_in(&self.grid, &track.box_px, frame, tcp),
                label => self.blobs[label as usize - 1].nearest2,
            };
            self.people.push(Candidate { track: track.id, nearest2, mask: None });
        }
        self.people.sort_unstable_by(|a, b| a.nearest2.total_cmp(&b.nearest2).then(a.track.cmp(&b.track)));
    }

    /// Masks for the nearest people; people whom masks deny again and again are dropped.
    fn segment(&mut self, frame: &Frame) -> Result<(), EngineError> {
        let config = &self.config.segmenter;
        // Cameras take turns, so that the load is even.
        let turn = (frame.sequence + u64::from(self.camera)).is_multiple_of(self.segment_every);
        let mut used = 0;
        for person in &mut self.people {
            let Some(track) = self.tracks.get_mut(person.track) else { continue };
            if self.masks.len() == used {
                self.masks.push(MaskCrop::default());
            }
            let mask = &mut self.masks[used];
            if let Some(detector) = self.detector.as_ref().filter(|detector| detector.has_masks()) {
                let detection = self.placed.iter().position(|placed| *placed == Some(track.id));
                if !detection.is_some_and(|detection| detector.mask(detection, mask)) {
                    continue;
                }
            } else if let Some(segmenter) = &mut self.segmenter
                && turn
                && used < config.max_per_frame
            {
                segmenter.segment(&frame.rgb, frame.width, frame.height, &track.box_px, mask)?;
            } else {
                break;
            }
            if mask.coverage(&track.box_px, config.threshold) < config.min_coverage {
                track.rejected += 1;
            } else {
                track.rejected = 0;
                person.mask = Some(used);
            }
            used += 1;
        }
        if config.reject_after > 0 {
            self.tracks.reject(config.reject_after);
        }
        Ok(())
    }

    fn measure(&mut self, frame: &Frame, tcp: Point3<f32>, overlay: Option<&mut Overlay>) {
        let measurement = &mut self.measurement;
        measurement.items.clear();
        self.measured.clear();
        // Those with a mask claim their depth first.
        for masked in [true, false] {
            for person in self.people.iter().filter(|person| person.mask.is_some() == masked) {
                let Some(index) = self.tracks.index_of(person.track) else { continue };
                let track = &self.tracks.all()[index];
                if track.person {
                    measurement.items.push(Item::person(track, person.mask));
                    self.measured.push((index, self.tracks.is_alone(index, &self.blobs)));
                }
            }
        }
        let view = View {
            scene: &self.scene,
            config: &self.config.occupancy,
            intrinsics: &self.intrinsics,
            frame,
            tcp,
            labels: &self.labels,
            blobs: &self.blobs,
            masks: &self.masks,
            mask_threshold: self.config.segmenter.threshold,
            min_agreement: self.config.segmenter.min_agreement,
            box_margin: self.config.tracking.box_margin,
        };
        measurement.assign(&view, &mut self.grid, self.tracks.all(), &self.measured);
        measurement.measure(&view, &self.grid, overlay);
        let min_depth = self.config.tracking.min_person_depth;
        for item in &mut measurement.items[..self.measured.len()] {
            if !item.has_depth()
                && valid_share(&self.scene, &self.grid, &item.object.box_px, frame) < min_depth
            {
                item.assume_nearest(&view);
            }
        }
    }

    fn report(&mut self, out: &mut Detections, overlay: Option<&mut Overlay>) {
        let mut place = [0u8; 256];
        let mut next = 0u8;
        let (order, items) = self.measurement.by_distance();
        for &index in order {
            out.insert(items[index].object);
            next = next.saturating_add(1);
            if usize::from(next) <= MAX_OBJECTS && index < 255 {
                place[index + 1] = next;
            }
        }
        if let Some(overlay) = overlay {
            overlay.relabel(&place);
        }
    }
}

impl std::fmt::Debug for Perception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Perception")
            .field("camera", &self.camera)
            .field("intrinsics", &self.intrinsics)
            .field("segmenter", &self.segmenter)
            .finish_non_exhaustive()
    }
}

/// Cells whose sampled pixel lies in a box.
fn cells_in<'a>(
    grid: &'a Grid,
    box_px: &[f32; 4],
    frame: &'a Frame,
) -> impl Iterator<Item = (usize, u32, u32)> + 'a {
    let [left, top, right, bottom] = *box_px;
    (0..grid.cells()).filter_map(move |cell| {
        let (u, v) = grid.pixel(cell, frame.width, frame.height);
        let (x, y) = (u as f32, v as f32);
        (x >= left && x < right && y >= top && y < bottom).then_some((cell, u, v))
    })
}

/// Least squared distance of foreground in a box.
fn nearest_in(grid: &Grid, box_px: &[f32; 4], frame: &Frame, tcp: &Point3<f32>) -> f32 {
    cells_in(grid, box_px, frame)
        .filter(|&(cell, ..)| grid.depth[cell] != 0)
        .map(|(cell, ..)| (grid.points[cell] - tcp).norm_squared())
        .fold(f32::INFINITY, f32::min)
}

/// The share of a box with valid depth, foreground or not.
fn valid_share(scene: &Scene, grid: &Grid, box_px: &[f32; 4], frame: &Frame) -> f32 {
    let (mut valid, mut all) = (0u32, 0u32);
    for (_, u, v) in cells_in(grid, box_px, frame) {
        all += 1;
        valid += u32::from(scene.is_valid(frame.depth_mm[(v * frame.width + u) as usize]));
    }
    valid as f32 / all.max(1) as f32
}

fn is_finite(pose: &Isometry3<f64>) -> bool {
    pose.translation.vector.iter().chain(pose.rotation.coords.iter()).all(|value| value.is_finite())
}

#[cfg(test)]
mod tests;
