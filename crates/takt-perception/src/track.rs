//! Carries people from frame to frame: blobs of depth continue a track, detections say what it is.
//!
//! Every blob is a candidate from the frame it appears in; a detection that fits where it was when
//! the detector's frame was captured makes it a person. Tracks only name things: whatever stands in
//! the volume is reported with or without one.

use crate::config::TrackingConfig;
use crate::detector::{Detection, DetectionSet};
use crate::image::{area, intersection, iou};
use crate::occupancy::{Blob, NONE};

/// Most tracks of one camera; blobs beyond stay unexplained.
const MAX_TRACKS: usize = 48;
/// Past boxes of a track, one each frame: how old a detection may be and still be placed (2 s at 30
/// FPS).
const HISTORY: usize = 64;
/// A person with more than this share of their box in another's blob may be part of that blob.
const MAX_SHARED: f32 = 0.15;

#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// Unique within the camera; from 1.
    pub(crate) id: u32,
    /// Confirmed by the detector.
    pub(crate) person: bool,
    pub(crate) confidence: f32,
    /// Present place of the person or the blob.
    pub(crate) box_px: [f32; 4],
    /// The blob of this frame that continues the track; [`NONE`] without.
    pub(crate) label: u32,
    /// Masks in a row that covered too little.
    pub(crate) rejected: u32,
    blob_box: Option<[f32; 4]>,
    velocity_px_s: [f32; 2],
    last_support_ns: u64,
    last_detection_ns: u64,
    /// When a detector frame was last asked for because of this candidate.
    asked_ns: u64,
    asked: u32,
    history: [(u64, [f32; 4]); HISTORY],
    newest: usize,
}

impl Track {
    /// Its box at a frame, or the oldest known one if the track is younger or the frame too old.
    fn box_at(&self, frame_sequence: u64) -> [f32; 4] {
        let mut best = None;
        for &(sequence, box_px) in &self.history {
            let distance = sequence.abs_diff(frame_sequence);
            if sequence != 0 && best.is_none_or(|(nearest, _)| distance < nearest) {
                best = Some((distance, box_px));
            }
        }
        best.map_or(self.box_px, |(_, box_px)| box_px)
    }

    fn shift(&mut self, by: [f32; 4]) {
        for (side, by) in self.box_px.iter_mut().zip(by) {
            *side += by;
        }
        // Sides move on their own; keep them in order.
        if self.box_px[2] < self.box_px[0] + 1.0 {
            self.box_px[2] = self.box_px[0] + 1.0;
        }
        if self.box_px[3] < self.box_px[1] + 1.0 {
            self.box_px[3] = self.box_px[1] + 1.0;
        }
    }
}

/// The tracks of one camera.
pub(crate) struct Tracks {
    config: TrackingConfig,
    tracks: Vec<Track>,
    next_id: u32,
    last_ns: u64,
    /// Scratch: (overlap, track, blob).
    pairs: Vec<(f32, usize, usize)>,
    blob_taken: Vec<bool>,
}

impl Tracks {
    pub(crate) fn new(config: &TrackingConfig, cells: usize) -> Self {
        Self {
            config: config.clone(),
            tracks: Vec::with_capacity(MAX_TRACKS),
            next_id: 1,
            last_ns: 0,
            pairs: Vec::with_capacity(MAX_TRACKS * 64),
            blob_taken: Vec::with_capacity(cells),
        }
    }

    pub(crate) fn all(&self) -> &[Track] {
        &self.tracks
    }

    /// Continues the tracks with the blobs of a frame.
    pub(crate) fn advance(
        &mut self,
        frame_sequence: u64,
        now_ns: u64,
        blobs: &[Blob],
        width: u32,
        height: u32,
    ) {
        let dt_s = if self.last_ns == 0 { 0.0 } else { now_ns.saturating_sub(self.last_ns) as f32 * 1e-9 };
        self.last_ns = now_ns;
        self.match_blobs(blobs, dt_s);
        for track in &mut self.tracks {
            let by = match (track.label, track.blob_box) {
                (NONE, _) => {
                    let [x, y] = track.velocity_px_s.map(|v| v * dt_s);
                    // A blob that is gone must not be measured against one much later.
                    track.blob_box = None;
                    [x, y, x, y]
                }
                (label, last) => {
                    let blob = &blobs[label as usize - 1];
                    track.last_support_ns = now_ns;
                    track.blob_box = Some(blob.box_px);
                    let Some(last) = last else { continue };
                    let by: [f32; 4] = std::array::from_fn(|i| blob.box_px[i] - last[i]);
                    if dt_s > 0.0 {
                        for axis in 0..2 {
                            let v = (by[axis] + by[axis + 2]) / 2.0 / dt_s;
                            let velocity = &mut track.velocity_px_s[axis];
                            *velocity += (v - *velocity) * self.config.velocity_gain;
                        }
                    }
                    by
                }
            };
            if track.person || track.label == NONE {
                track.shift(by);
            }
            if !track.person && track.label != NONE {
                track.box_px = blobs[track.label as usize - 1].box_px;
            }
        }
        self.start_candidates(now_ns, blobs);
        let (timeout_ns, confirm_ns) = (ms(self.config.timeout_ms), ms(self.config.confirm_timeout_ms));
        let (width, height) = (width as f32, height as f32);
        self.tracks.retain_mut(|track| {
            if track.person && now_ns.saturating_sub(track.last_detection_ns) > confirm_ns {
                track.person = false;
                track.confidence = 0.0;
            }
            let inside = intersection(&track.box_px, &[0.0, 0.0, width, height]) > 0.0;
            // A candidate is its blob; a person outlives a gap.
            let timeout_ns = if track.person { timeout_ns } else { timeout_ns / 4 };
            inside && now_ns.saturating_sub(track.last_support_ns) <= timeout_ns
        });
        for track in &mut self.tracks {
            track.newest = (track.newest + 1) % HISTORY;
            track.history[track.newest] = (frame_sequence, track.box_px);
        }
    }

    /// Each blob continues the track whose last blob, moved on, it overlaps most.
    fn match_blobs(&mut self, blobs: &[Blob], dt_s: f32) {
        self.pairs.clear();
        for (t, track) in self.tracks.iter_mut().enumerate() {
            track.label = NONE;
            let reference = match track.blob_box {
                Some([left, top, right, bottom]) => {
                    let [x, y] = track.velocity_px_s.map(|v| v * dt_s);
                    [left + x, top + y, right + x, bottom + y]
                }
                None => track.box_px,
            };
            for (b, blob) in blobs.iter().enumerate().filter(|(_, blob)| blob.big) {
                let overlap = iou(&reference, &blob.box_px);
                if overlap >= self.config.min_iou && self.pairs.len() < self.pairs.capacity() {
                    self.pairs.push((overlap, t, b));
                }
            }
        }
        self.pairs.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        self.blob_taken.clear();
        self.blob_taken.resize(blobs.len(), false);
        for &(_, t, b) in &self.pairs {
            if self.tracks[t].label == NONE && !self.blob_taken[b] {
                self.tracks[t].label = blobs[b].label;
                self.blob_taken[b] = true;
            }
        }
    }

    /// Big blobs that continue nothing and are no fragment of a person become candidates.
    fn start_candidates(&mut self, now_ns: u64, blobs: &[Blob]) {
        for (b, blob) in blobs.iter().enumerate().filter(|(_, blob)| blob.big) {
            if self.blob_taken[b] {
                continue;
            }
            let inside =
                |track: &Track| contained(&blob.box_px, &track.box_px) >= self.config.min_containment;
            if let Some(person) = self.tracks.iter_mut().find(|track| track.person && inside(track)) {
                person.last_support_ns = now_ns;
                continue;
            }
            self.start(blob.box_px, blob.label, Some(blob.box_px), now_ns);
        }
    }

    fn start(
        &mut self,
        box_px: [f32; 4],
        label: u32,
        blob_box: Option<[f32; 4]>,
        now_ns: u64,
    ) -> Option<usize> {
        if self.tracks.len() == MAX_TRACKS {
            return None;
        }
        let id = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.tracks.push(Track {
            id,
            person: false,
            confidence: 0.0,
            box_px,
            label,
            rejected: 0,
            blob_box,
            velocity_px_s: [0.0; 2],
            last_support_ns: now_ns,
            last_detection_ns: 0,
            asked_ns: 0,
            asked: 0,
            history: [(0, [0.0; 4]); HISTORY],
            newest: 0,
        });
        Some(self.tracks.len() - 1)
    }

    /// Takes in detections of this frame or an older one. `placed` gets the track of each
    /// detection.
    pub(crate) fn confirm(&mut self, set: &DetectionSet, now_ns: u64, placed: &mut Vec<Option<u32>>) {
        placed.clear();
        for detection in set.detections() {
            // Fit in this order: a person already, the best overlap, the largest blob inside.
            let mut best: Option<(f32, usize)> = None;
            for (t, track) in self.tracks.iter().enumerate() {
                if placed.contains(&Some(track.id)) {
                    continue;
                }
                let then = track.box_at(set.frame_sequence);
                let overlap = iou(&then, &detection.box_px);
                let inside = contained(&then, &detection.box_px);
                if overlap < self.config.detection_iou
                    && (track.person || inside < self.config.min_containment)
                {
                    continue;
                }
                let fit = overlap + if track.person { 1.0 } else { 0.0 };
                if best.is_none_or(|(other, _)| fit > other) {
                    best = Some((fit, t));
                }
            }
            let index = match best {
                Some((_, t)) => Some(t),
                None => self.start(detection.box_px, NONE, None, now_ns),
            };
            placed.push(index.map(|t| self.place(t, detection, set, now_ns)));
        }
        self.absorb_fragments();
    }

    /// Moves a track by how far it was off when the detector's frame was captured.
    fn place(&mut self, t: usize, detection: &Detection, set: &DetectionSet, now_ns: u64) -> u32 {
        let track = &mut self.tracks[t];
        let then = track.box_at(set.frame_sequence);
        let by: [f32; 4] = std::array::from_fn(|i| detection.box_px[i] - then[i]);
        track.shift(by);
        for (_, past) in track.history.iter_mut().filter(|(sequence, _)| *sequence != 0) {
            for (side, by) in past.iter_mut().zip(by) {
                *side += by;
            }
        }
        if !track.person {
            track.rejected = 0;
        }
        track.person = true;
        track.confidence = detection.score;
        track.last_detection_ns = now_ns;
        track.last_support_ns = now_ns;
        track.asked = 0;
        track.id
    }

    /// Candidates inside a person's box are parts of the person.
    fn absorb_fragments(&mut self) {
        for t in (0..self.tracks.len()).rev() {
            let candidate = &self.tracks[t];
            if candidate.person {
                continue;
            }
            let part = |person: &Track| {
                person.person && contained(&candidate.box_px, &person.box_px) >= self.config.min_containment
            };
            if let Some(person) = self.tracks.iter().position(part) {
                // A person without a blob of their own takes the fragment's.
                let (label, blob_box) = (candidate.label, candidate.blob_box);
                let person = &mut self.tracks[person];
                if person.label == NONE && person.blob_box.is_none() {
                    (person.label, person.blob_box) = (label, blob_box);
                }
                self.tracks.swap_remove(t);
            }
        }
    }

    /// Drops people whom `after` masks in a row denied: they go back to what depth alone says.
    pub(crate) fn reject(&mut self, after: u32) {
        self.tracks.retain_mut(|track| {
            if track.rejected < after {
                return true;
            }
            track.person = false;
            track.confidence = 0.0;
            track.rejected = 0;
            track.label != NONE
        });
    }

    pub(crate) fn index_of(&self, id: u32) -> Option<usize> {
        self.tracks.iter().position(|track| track.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Track> {
        self.tracks.iter_mut().find(|track| track.id == id)
    }

    /// Whether the blob of a person is no other person's too.
    pub(crate) fn is_alone(&self, index: usize, blobs: &[Blob]) -> bool {
        let track = &self.tracks[index];
        if track.label == NONE {
            return false;
        }
        let blob = &blobs[track.label as usize - 1].box_px;
        let shares = |other: &Track| other.person && contained(&other.box_px, blob) > MAX_SHARED;
        !self.tracks.iter().enumerate().any(|(i, other)| i != index && shares(other))
    }

    /// Whether a candidate wants the detector now. Each one asks at once and then ever more rarely,
    /// so that a thing that is no person does not keep the detector busy.
    pub(crate) fn is_urgent(&mut self, now_ns: u64, interval_ns: u64) -> bool {
        let mut urgent = false;
        for track in self.tracks.iter_mut().filter(|track| !track.person && track.label != NONE) {
            let wait_ns = interval_ns.saturating_mul(1 << track.asked.min(6));
            if track.asked == 0 || now_ns.saturating_sub(track.asked_ns) >= wait_ns {
                urgent = true;
            }
        }
        urgent
    }

    /// Notes that a frame with all current candidates went to the detector.
    pub(crate) fn asked(&mut self, now_ns: u64) {
        for track in self.tracks.iter_mut().filter(|track| !track.person) {
            track.asked = track.asked.saturating_add(1);
            track.asked_ns = now_ns;
        }
    }
}

fn ms(value: u32) -> u64 {
    u64::from(value) * 1_000_000
}

/// The share of `inner` that lies in `outer`.
fn contained(inner: &[f32; 4], outer: &[f32; 4]) -> f32 {
    let all = area(inner);
    if all > 0.0 { intersection(inner, outer) / all } else { 0.0 }
}

#[cfg(test)]
mod tests;
