//! Perception's report to the safety module: a fixed-size value without pointers, made for an
//! exchange buffer.

use nalgebra::{Point3, Vector3};
use serde::{Deserialize, Serialize};
use takt_link_camera::Frame;

use crate::unseen::Places;

/// Most objects one camera reports; the nearest ones are kept.
pub const MAX_OBJECTS: usize = 16;

/// Reason why an object is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// Confirmed by the detector, and still tracked.
    Person,
    /// Something stands in the monitored volume that no detection explains yet. Safety treats it as
    /// a person.
    Unexplained,
    /// A hole in the depth image in which somebody could be: no surface was measured, so the
    /// distance is the least that the lines of sight allow. Safety treats it as a person.
    Unseen,
}

/// A person, or something that may be one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Object {
    /// Track number, unique within one camera; 0 for an unexplained object.
    pub track: u32,
    pub kind: ObjectKind,
    /// Detector confidence 0..1 of the last detection of this track; 0 for an unexplained object.
    pub confidence: f32,
    /// Image box: left, top, right, bottom in pixels of the frame.
    pub box_px: [f32; 4],
    /// Whether the network's mask of this very frame chose the points (else: foreground depth
    /// inside the box).
    pub segmented: bool,
    /// Number of depth points used.
    pub points: u32,
    /// Median of the points, robot base frame, metres.
    pub position_m: Point3<f32>,
    /// The point nearest to the TCP, robot base frame, metres.
    pub nearest_m: Point3<f32>,
    /// Least distance to the TCP, metres. NaN must never be sent; the reader treats it as a fault.
    pub distance_m: f32,
}

impl Default for Object {
    fn default() -> Self {
        Self {
            track: 0,
            kind: ObjectKind::Unexplained,
            confidence: 0.0,
            box_px: [0.0; 4],
            segmented: false,
            points: 0,
            position_m: Point3::origin(),
            nearest_m: Point3::origin(),
            distance_m: 0.0,
        }
    }
}

/// Whether a frame could be judged at all. Everything but `Ok` means that the camera is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameHealth {
    /// The frame was judged.
    Ok,
    /// No frame was processed yet.
    #[default]
    NoFrame,
    /// The colour image is uniform (lens covered, no exposure).
    EmptyColour,
    /// Too few depth pixels are valid.
    EmptyDepth,
    /// Too many depths are impossible (nearer or farther than the sensor can measure).
    ImpossibleDepth,
    /// Size differs from the configured intrinsics.
    WrongSize,
    /// The pose of the camera at capture time is unknown.
    NoPose,
    InferenceFailed,
    /// A part of the image shows the very same samples for longer than a living sensor can.
    Frozen,
    /// A stamp lies in the future.
    FutureStamp,
    /// A stamp does not lie after that of the image before.
    StampBackwards,
    /// The number of the image before, on another image.
    SequenceRepeated,
    /// A number below that of the image before.
    SequenceBackwards,
    /// Colour and depth were captured too far apart.
    StreamsApart,
    /// Too much of the monitored volume lies in holes of the depth image.
    Unseen,
    /// Depth goes through the floor, a fixture or the arm by one factor: the scale is wrong.
    WrongScale,
}

/// Times of the stages of one frame, CLOCK_MONOTONIC nanoseconds. Stages follow each other in this
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StageTimes {
    /// The frame was complete in memory ([`takt_link_camera::Frame::arrival_ns`]).
    pub arrival_ns: u64,
    /// The perception thread began to work on it.
    pub start_ns: u64,
    /// All inference on this frame was done.
    pub inferred_ns: u64,
    /// Points were projected and distances known.
    pub projected_ns: u64,
    /// The result was ready to publish.
    pub published_ns: u64,
}

/// Everything one camera says about one frame.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Detections {
    /// Index of the camera in the configuration.
    pub camera: u32,
    pub frame_sequence: u64,
    /// When the frame was captured, CLOCK_MONOTONIC nanoseconds.
    pub capture_ns: u64,
    pub times: StageTimes,
    /// Whether the frame could be judged.
    pub health: FrameHealth,
    /// Share of depth pixels that are valid, 0..1.
    pub valid_depth: f32,
    /// Share of depth samples that lie in holes which nothing explains, with the monitored volume
    /// behind, 0..1.
    pub unseen: f32,
    /// Visible and hidden places near the tool.
    #[serde(skip)]
    pub places: Places,
    /// TCP position used for the distances, robot base frame, metres.
    pub tcp_m: Vector3<f32>,
    /// Objects seen, nearest first; only the first `count` are meaningful.
    objects: [Object; MAX_OBJECTS],
    count: u32,
    /// Objects left out because more than [`MAX_OBJECTS`] were seen (the farthest ones).
    pub left_out: u32,
    /// Whether a detector ran on this very frame, before the result:
    /// [`crate::DetectorSchedule::EveryFrame`].
    pub detected: bool,
    /// Masks that a network made of this very frame.
    pub masks: u32,
}

impl Default for Detections {
    fn default() -> Self {
        Self {
            camera: 0,
            frame_sequence: 0,
            capture_ns: 0,
            times: StageTimes::default(),
            health: FrameHealth::NoFrame,
            valid_depth: 0.0,
            unseen: 0.0,
            places: Places::default(),
            tcp_m: Vector3::zeros(),
            objects: [Object::default(); MAX_OBJECTS],
            count: 0,
            left_out: 0,
            detected: false,
            masks: 0,
        }
    }
}

impl Detections {
    /// A camera's report for a frame that was not examined, because its `health` is not
    /// [`FrameHealth::Ok`].
    pub fn blind(camera: u32, frame: &Frame, health: FrameHealth, start_ns: u64, now_ns: u64) -> Self {
        let times = StageTimes {
            arrival_ns: frame.arrival_ns,
            start_ns,
            inferred_ns: now_ns,
            projected_ns: now_ns,
            published_ns: now_ns,
        };
        let (frame_sequence, capture_ns) = (frame.sequence, frame.capture_ns);
        Self { camera, frame_sequence, capture_ns, times, health, ..Self::default() }
    }

    /// The objects, nearest first.
    pub fn objects(&self) -> &[Object] {
        &self.objects[..self.count as usize]
    }

    pub fn nearest(&self) -> Option<&Object> {
        self.objects().first()
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.count = 0;
        self.left_out = 0;
    }

    /// Inserts an object so that the list stays sorted by distance; the farthest falls out when
    /// full. NaN distances sort as nearest, so that a fault cannot hide behind the limit.
    pub fn insert(&mut self, object: Object) {
        let key = |o: &Object| if o.distance_m.is_nan() { f32::NEG_INFINITY } else { o.distance_m };
        let count = self.count as usize;
        let at = self.objects[..count].iter().position(|o| key(&object) < key(o)).unwrap_or(count);
        if count == MAX_OBJECTS {
            self.left_out += 1;
            if at == count {
                return;
            }
        } else {
            self.count += 1;
        }
        let end = self.count as usize - 1;
        self.objects.copy_within(at..end, at + 1);
        self.objects[at] = object;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_objects_are_kept_in_order() {
        let mut detections = Detections::default();
        for distance in (0..MAX_OBJECTS as u32 + 4).rev() {
            detections.insert(Object { distance_m: distance as f32, ..Object::default() });
        }
        let kept: Vec<f32> = detections.objects().iter().map(|o| o.distance_m).collect();
        assert_eq!(kept, (0..MAX_OBJECTS).map(|d| d as f32).collect::<Vec<_>>());
        assert_eq!(detections.left_out, 4);
    }

    #[test]
    fn nan_is_first_and_survives_a_full_list() {
        let mut detections = Detections::default();
        for distance in 0..MAX_OBJECTS {
            detections.insert(Object { distance_m: distance as f32, ..Object::default() });
        }
        detections.insert(Object { distance_m: f32::NAN, ..Object::default() });
        assert!(detections.objects()[0].distance_m.is_nan());
    }
}
