//! Interpretation of one frame: the order of the stages, tracks, people. [`Stages`] does all pixel
//! work, on the CPU or on a device.

use nalgebra::{Isometry3, Point3};
use takt_link_camera::Intrinsics;
use takt_rt::clock::monotonic_ns;

use crate::config::{FARTHEST_M, PerceptionConfig};
use crate::detector::{DetectionSet, DetectorHandle};
use crate::error::PerceptionError;
use crate::health::{self, GreySums};
use crate::measure::{Claim, Item, Question};
use crate::mount::FramePose;
use crate::occupancy::{Blob, DepthCounts, NONE, Scene};
use crate::overlay::Overlay;
use crate::result::{Detections, FrameHealth, MAX_OBJECTS, StageTimes};
use crate::track::Tracks;
use crate::unseen::{Places, Sees, Unseen};
use crate::view::FrameView;

/// Most people measured as such in one frame; more are still measured, as unexplained.
pub(crate) const MAX_PEOPLE: usize = 32;

/// Source of a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaskSource {
    /// The segmenter, on a crop around the box.
    Crop,
    /// The own detector's mask of that detection.
    Detection(usize),
}

/// A mask that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MaskRequest {
    pub(crate) source: MaskSource,
    pub(crate) box_px: [f32; 4],
    /// Share of the box that the mask covers, once it is there.
    pub(crate) coverage: Option<f32>,
}

/// Everything that touches pixels, in the order of its calls for each frame.
pub(crate) trait Stages {
    /// The stages' error.
    type Error;

    /// Takes a frame in and samples its depth.
    fn look(&mut self, question: &Question) -> Result<DepthCounts, Self::Error>;
    /// Grey values of the samples.
    fn grey(&mut self, frame: &FrameView) -> GreySums;
    /// Connected foreground, in order of the first cells; labels are places in the list, from 1.
    /// Only those that are big need be in it.
    fn label(&mut self, question: &Question);
    /// Blobs that [`label`](Self::label) found.
    fn blobs(&self) -> &[Blob];
    /// Runs the own detector, if there is one.
    fn detect(&mut self, frame: &FrameView, set: &mut DetectionSet) -> Result<bool, Self::Error>;
    /// Whether the own detector gives masks.
    fn detector_has_masks(&self) -> bool;
    fn has_segmenter(&self) -> bool;
    /// Least squared distance of foreground in each box.
    fn nearest_in(
        &mut self,
        question: &Question,
        boxes: &[[f32; 4]],
        nearest2: &mut [f32],
    ) -> Result<(), Self::Error>;
    /// Makes masks and says what they cover.
    fn masks(&mut self, question: &Question, wanted: &mut [MaskRequest]) -> Result<(), Self::Error>;
    /// Measures people (the first items, in order) and what no one explains.
    fn measure(
        &mut self,
        question: &Question,
        tracks: &Tracks,
        people: &[Claim],
        overlay: Option<&mut Overlay>,
    ) -> Result<(), Self::Error>;
    /// The measurements. For people without a box, the share of depth is that of
    /// [`valid_share`](Self::valid_share).
    fn items(&mut self) -> &mut [Item];
    /// Share of a box with depth, foreground or not, of that person.
    fn valid_share(&self, question: &Question, person: usize, box_px: &[f32; 4]) -> f32;
}

/// A person to be measured.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    track: u32,
    /// Squared distance, for the order.
    nearest2: f32,
    mask: Option<usize>,
}

/// State of one camera from frame to frame.
pub(crate) struct Judge {
    config: PerceptionConfig,
    camera: u32,
    intrinsics: Intrinsics,
    handle: Option<DetectorHandle>,
    /// Every how many frames people are segmented.
    segment_every: u64,
    detector_failed: bool,
    scene: Scene,
    unseen: Unseen,
    tracks: Tracks,
    /// Track of each detection of the last set.
    placed: Vec<Option<u32>>,
    /// People of this frame, nearest first.
    people: Vec<Candidate>,
    /// Boxes of people without a blob, and what is nearest in them.
    boxes: Vec<[f32; 4]>,
    nearest2: Vec<f32>,
    wanted: Vec<MaskRequest>,
    /// Person of each wanted mask.
    wanted_by: Vec<usize>,
    claims: Vec<Claim>,
    order: Vec<usize>,
}

impl Judge {
    pub(crate) fn new(
        config: &PerceptionConfig,
        camera: u32,
        intrinsics: Intrinsics,
        handle: Option<DetectorHandle>,
        segment_every: u64,
    ) -> Result<Self, PerceptionError> {
        config.check()?;
        intrinsics.check().map_err(|source| PerceptionError::Intrinsics { camera, source })?;
        let step = config.occupancy.step_px;
        let cells = (intrinsics.width.div_ceil(step) * intrinsics.height.div_ceil(step)) as usize;
        let (near, far) = config.depth_range_mm(camera, &intrinsics);
        Ok(Self {
            camera,
            intrinsics,
            handle,
            segment_every,
            detector_failed: false,
            scene: Scene::new(&config.occupancy, &intrinsics, near, far),
            unseen: Unseen::new(config, camera, &intrinsics)?,
            tracks: Tracks::new(&config.tracking, cells),
            placed: Vec::with_capacity(crate::MAX_DETECTIONS),
            people: Vec::with_capacity(MAX_PEOPLE),
            boxes: Vec::with_capacity(MAX_PEOPLE),
            nearest2: Vec::with_capacity(MAX_PEOPLE),
            wanted: Vec::with_capacity(MAX_PEOPLE),
            wanted_by: Vec::with_capacity(MAX_PEOPLE),
            claims: Vec::with_capacity(MAX_PEOPLE),
            order: Vec::with_capacity(cells.min(256)),
            config: config.clone(),
        })
    }

    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Request that [`process`](Self::process) will send to the stages, ahead of it; `None` for a
    /// frame that it will not examine.
    pub(crate) fn preview<'a>(
        &'a mut self,
        frame: &'a FrameView<'a>,
        pose: Option<&FramePose>,
    ) -> Option<Question<'a>> {
        let pose = pose.filter(|pose| is_place(&pose.camera_in_base) && is_place(&pose.tcp_in_base))?;
        if frame.sequence == 0 || !self.fits(frame) {
            return None;
        }
        self.scene.place(pose);
        let tcp: nalgebra::Vector3<f32> = pose.tcp_in_base.translation.vector.cast();
        Some(self.question(frame, Point3::from(tcp)))
    }

    /// Fills `out` for a frame that the stages cannot take.
    pub(crate) fn give_up(&self, frame: &FrameView, start_ns: u64, out: &mut Detections) {
        out.clear();
        out.camera = self.camera;
        out.frame_sequence = frame.sequence;
        out.capture_ns = frame.capture_ns;
        (out.valid_depth, out.unseen) = (0.0, 0.0);
        out.places = Places::default();
        out.health = FrameHealth::InferenceFailed;
        let now_ns = monotonic_ns();
        out.times = StageTimes {
            arrival_ns: frame.arrival_ns,
            start_ns,
            inferred_ns: now_ns,
            projected_ns: now_ns,
            published_ns: now_ns,
        };
    }

    pub(crate) fn camera(&self) -> u32 {
        self.camera
    }

    pub(crate) fn intrinsics(&self) -> &Intrinsics {
        &self.intrinsics
    }

    /// Takes the shared detector's results since then.
    pub(crate) fn take_detections(&mut self) -> Option<DetectionSet> {
        self.handle.as_mut().and_then(DetectorHandle::take)
    }

    /// Judges one frame. `out` is filled whatever happens; after an error its health is
    /// [`FrameHealth::InferenceFailed`].
    #[allow(clippy::too_many_arguments, reason = "contents of one frame")]
    pub(crate) fn process<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        pose: Option<&FramePose>,
        start_ns: u64,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        mut overlay: Option<&mut Overlay>,
    ) -> Result<(), S::Error> {
        if let Some(overlay) = overlay.as_deref_mut() {
            overlay.reset(frame.sequence, frame.width, frame.height);
        }
        out.clear();
        out.camera = self.camera;
        out.frame_sequence = frame.sequence;
        out.capture_ns = frame.capture_ns;
        (out.valid_depth, out.unseen) = (0.0, 0.0);
        out.places = Places::default();
        out.times.arrival_ns = frame.arrival_ns;
        out.times.start_ns = start_ns;
        (out.detected, out.masks) = (false, 0);
        if let Some(pose) = pose {
            out.tcp_m = pose.tcp_in_base.translation.vector.cast();
        }
        let result = match pose {
            _ if frame.sequence == 0 => Ok(FrameHealth::NoFrame),
            _ if !self.fits(frame) => Ok(FrameHealth::WrongSize),
            Some(pose) if is_place(&pose.camera_in_base) && is_place(&pose.tcp_in_base) => {
                self.judge(stages, frame, pose, detections, out, overlay)
            }
            _ => Ok(FrameHealth::NoPose),
        };
        out.health = *result.as_ref().unwrap_or(&FrameHealth::InferenceFailed);
        let now_ns = monotonic_ns();
        if out.health != FrameHealth::Ok {
            out.clear();
            out.times.inferred_ns = now_ns;
            out.times.projected_ns = now_ns;
        }
        out.times.published_ns = now_ns;
        result.map(|_| ())
    }

    fn fits(&self, frame: &FrameView) -> bool {
        (frame.width, frame.height) == (self.intrinsics.width, self.intrinsics.height)
            && frame.depth_mm.len() == self.intrinsics.pixels()
            && frame.rgb.len() == self.intrinsics.pixels() * 3
    }

    fn judge<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        pose: &FramePose,
        detections: Option<&DetectionSet>,
        out: &mut Detections,
        mut overlay: Option<&mut Overlay>,
    ) -> Result<FrameHealth, S::Error> {
        let tcp = Point3::from(out.tcp_m);
        self.scene.place(pose);
        let counts = stages.look(&self.question(frame, tcp))?;
        out.valid_depth = counts.valid as f32 / counts.samples.max(1) as f32;
        let health = health::judge(&self.config.health, counts, || stages.grey(frame));
        if health != FrameHealth::Ok {
            return Ok(health);
        }
        let sees = self.unseen.look(&self.scene, frame, pose);
        out.unseen = self.unseen.share();
        match sees {
            Sees::Enough => out.places = *self.unseen.places(),
            Sees::TooLittle => return Ok(FrameHealth::Unseen),
            Sees::ThroughStructure => return Ok(FrameHealth::WrongScale),
        }
        stages.label(&self.question(frame, tcp));
        self.tracks.advance(frame.sequence, frame.capture_ns, stages.blobs(), frame.width, frame.height);
        if !self.detect(stages, frame, detections, &mut out.detected)? {
            return Ok(FrameHealth::InferenceFailed);
        }
        self.choose_people(stages, frame, tcp)?;
        self.segment(stages, frame, tcp)?;
        out.masks = self.wanted.iter().filter(|mask| mask.coverage.is_some()).count() as u32;
        out.times.inferred_ns = monotonic_ns();

        self.measure(stages, frame, tcp, overlay.as_deref_mut())?;
        self.report(stages.items(), out, overlay);
        out.times.projected_ns = monotonic_ns();
        Ok(FrameHealth::Ok)
    }

    fn question<'a>(&'a self, frame: &'a FrameView<'a>, tcp: Point3<f32>) -> Question<'a> {
        Question { scene: &self.scene, config: &self.config, intrinsics: &self.intrinsics, frame, tcp }
    }

    /// Brings detections in and asks for new ones. False when the shared detector fails.
    fn detect<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        detections: Option<&DetectionSet>,
        detected: &mut bool,
    ) -> Result<bool, S::Error> {
        let now_ns = frame.capture_ns;
        self.placed.clear();
        let mut own = DetectionSet::of_frame(frame.sequence, frame.capture_ns);
        if stages.detect(frame, &mut own)? {
            self.tracks.confirm(&own, now_ns, &mut self.placed);
            *detected = true;
            return Ok(true);
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
                handle.post_view(frame, now_ns, urgent);
                self.tracks.asked(now_ns);
            }
        }
        Ok(!self.detector_failed)
    }

    /// The people of this frame, nearest first by their blobs or, without, by what lies in their
    /// boxes.
    fn choose_people<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        tcp: Point3<f32>,
    ) -> Result<(), S::Error> {
        self.people.clear();
        self.boxes.clear();
        self.nearest2.clear();
        for track in self.tracks.all().iter().filter(|track| track.person).take(MAX_PEOPLE) {
            let nearest2 = match track.label {
                NONE => {
                    self.boxes.push(track.box_px);
                    f32::NAN
                }
                label => stages.blobs()[label as usize - 1].nearest2,
            };
            self.people.push(Candidate { track: track.id, nearest2, mask: None });
        }
        // One person needs no order.
        if !self.boxes.is_empty() && self.people.len() > 1 {
            self.nearest2.resize(self.boxes.len(), f32::INFINITY);
            let question = Question {
                scene: &self.scene,
                config: &self.config,
                intrinsics: &self.intrinsics,
                frame,
                tcp,
            };
            stages.nearest_in(&question, &self.boxes, &mut self.nearest2)?;
            let unknown = self.people.iter_mut().filter(|person| person.nearest2.is_nan());
            for (person, nearest2) in unknown.zip(&self.nearest2) {
                person.nearest2 = *nearest2;
            }
        }
        self.people.sort_unstable_by(|a, b| a.nearest2.total_cmp(&b.nearest2).then(a.track.cmp(&b.track)));
        Ok(())
    }

    /// Masks for the nearest people; people whom masks deny again and again are dropped.
    fn segment<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        tcp: Point3<f32>,
    ) -> Result<(), S::Error> {
        // Cameras take turns, so that the load is even.
        let turn = (frame.sequence + u64::from(self.camera)).is_multiple_of(self.segment_every);
        self.wanted.clear();
        self.wanted_by.clear();
        for (index, person) in self.people.iter().enumerate() {
            let Some(track) = self.tracks.index_of(person.track) else { continue };
            let source = if stages.detector_has_masks() {
                match self.placed.iter().position(|placed| *placed == Some(person.track)) {
                    Some(detection) => MaskSource::Detection(detection),
                    None => continue,
                }
            } else if stages.has_segmenter()
                && turn
                && self.wanted.len() < self.config.segmenter.max_per_frame
            {
                MaskSource::Crop
            } else {
                break;
            };
            let box_px = self.tracks.all()[track].box_px;
            self.wanted.push(MaskRequest { source, box_px, coverage: None });
            self.wanted_by.push(index);
        }
        let config = &self.config.segmenter;
        let segments = turn && stages.has_segmenter() && config.max_per_frame > 0;
        if config.empty_frames && self.people.is_empty() && segments {
            // Nobody's: it is made for its cost alone and explains nothing.
            let box_px = [0.0, 0.0, frame.width as f32, frame.height as f32];
            self.wanted.push(MaskRequest { source: MaskSource::Crop, box_px, coverage: None });
        }
        if !self.wanted.is_empty() {
            let question = Question {
                scene: &self.scene,
                config: &self.config,
                intrinsics: &self.intrinsics,
                frame,
                tcp,
            };
            stages.masks(&question, &mut self.wanted)?;
        }
        for (used, (mask, &index)) in self.wanted.iter().zip(&self.wanted_by).enumerate() {
            let person = &mut self.people[index];
            let (Some(track), Some(coverage)) = (self.tracks.get_mut(person.track), mask.coverage) else {
                continue;
            };
            if coverage < config.min_coverage {
                track.rejected += 1;
            } else {
                track.rejected = 0;
                person.mask = Some(used);
            }
        }
        if config.reject_after > 0 {
            self.tracks.reject(config.reject_after);
        }
        Ok(())
    }

    fn measure<S: Stages>(
        &mut self,
        stages: &mut S,
        frame: &FrameView,
        tcp: Point3<f32>,
        overlay: Option<&mut Overlay>,
    ) -> Result<(), S::Error> {
        self.claims.clear();
        // Those with a mask claim their depth first.
        for masked in [true, false] {
            for person in self.people.iter().filter(|person| person.mask.is_some() == masked) {
                let Some(track) = self.tracks.index_of(person.track) else { continue };
                if self.tracks.all()[track].person {
                    let alone = self.tracks.is_alone(track, stages.blobs());
                    self.claims.push(Claim { track, alone, mask: person.mask });
                }
            }
        }
        let question = self.question(frame, tcp);
        stages.measure(&question, &self.tracks, &self.claims, overlay)?;
        for person in 0..self.claims.len() {
            let item = &stages.items()[person];
            let box_px = item.object.box_px;
            if !item.has_depth()
                && stages.valid_share(&question, person, &box_px) < self.config.tracking.min_person_depth
            {
                stages.items()[person].assume_nearest(&question);
            }
        }
        Ok(())
    }

    fn report(&mut self, items: &[Item], out: &mut Detections, overlay: Option<&mut Overlay>) {
        self.order.clear();
        self.order.extend((0..items.len()).filter(|&index| items[index].report));
        self.order.sort_unstable_by(|&a, &b| {
            items[a].object.distance_m.total_cmp(&items[b].object.distance_m).then(a.cmp(&b))
        });
        let holes = self.unseen.objects();
        holes.iter().for_each(|hole| out.insert(*hole));
        let mut place = [0u8; 256];
        for (before, &index) in self.order.iter().enumerate() {
            let object = &items[index].object;
            out.insert(*object);
            // Its place in the list; holes are not drawn, but they are in the list, too.
            let holes = holes.iter().filter(|hole| hole.distance_m <= object.distance_m).count();
            let next = u8::try_from(before + holes + 1).unwrap_or(u8::MAX);
            if usize::from(next) <= MAX_OBJECTS && index < 255 {
                place[index + 1] = next;
            }
        }
        if let Some(overlay) = overlay {
            overlay.relabel(&place);
        }
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").field("camera", &self.camera).finish_non_exhaustive()
    }
}

/// Whether a pose is one of a cell: nothing of it lies farther from its robot than
/// [`FARTHEST_M`], and a rotation has unit length.
fn is_place(pose: &Isometry3<f64>) -> bool {
    let near = pose.translation.vector.iter().all(|value| value.abs() <= f64::from(FARTHEST_M));
    near && (pose.rotation.coords.norm() - 1.0).abs() <= 1e-3
}
