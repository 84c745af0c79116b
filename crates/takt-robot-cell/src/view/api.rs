//! JSON that the page fetches.

use serde::Serialize;
use takt_perception::{Detections, FrameHealth, ObjectKind};

use crate::ssm::Light;
use crate::view::histogram::ReactionHistogram;
use crate::view::status::{
    CameraStatus, CellStatus, Label, ProtectiveStatus, RobotStatus, ThreadSummary, Zone,
};

/// Answer to `/api/status`. An invalid number (NaN) becomes `null`.
#[derive(Serialize)]
pub(crate) struct StatusReply<'a> {
    title: &'a str,
    /// Counts published values; 0 means that the cell has published nothing yet.
    sequence: u64,
    /// Age of this value; a growing age means that its source has stopped.
    age_ms: u64,
    elapsed_s: f64,
    light: Light,
    speed_fraction: f32,
    stop: bool,
    stop_reason: Label,
    separation_m: Option<f32>,
    zone: Zone,
    protective_distance_m: f32,
    reduce_distance_m: f32,
    protective: ProtectiveStatus,
    robot: RobotStatus,
    reaction: ReactionReply<'a>,
    threads: ThreadSummary,
    policy: Label,
    cameras: Vec<CameraReply<'a>>,
}

#[derive(Serialize)]
struct ReactionReply<'a> {
    deadline_ms: f32,
    last_ms: f32,
    mean_ms: f32,
    worst_ms: f32,
    count: u64,
    misses: u64,
    /// One more edge than counts.
    edges_ms: Vec<f32>,
    counts: &'a [u32],
}

#[derive(Serialize)]
struct CameraReply<'a> {
    name: &'a str,
    zone: Zone,
    /// Pictures encoded so far.
    pictures: u64,
    #[serde(flatten)]
    status: CameraStatus,
}

impl<'a> StatusReply<'a> {
    /// `cameras` are the names and the numbers of pictures encoded.
    pub fn new(
        title: &'a str,
        cameras: impl Iterator<Item = (&'a str, u64)>,
        status: &'a CellStatus,
        sequence: u64,
        age_ns: u64,
    ) -> Self {
        let shown = status.reaction.histogram.shown(status.reaction.deadline_ms);
        let zone = |distance: Option<f32>| distance.map_or(Zone::Clear, |d| status.zone(d));
        let silent = CameraStatus::default();
        let cameras = cameras.enumerate().map(|(i, (name, pictures))| {
            let camera = *status.cameras.get(i).unwrap_or(&silent);
            CameraReply { name, zone: zone(camera.separation_m), pictures, status: camera }
        });
        Self {
            title,
            sequence,
            age_ms: age_ns / 1_000_000,
            elapsed_s: status.elapsed_s,
            light: status.light,
            speed_fraction: status.speed_fraction,
            stop: status.stop,
            stop_reason: status.stop_reason,
            separation_m: status.separation_m,
            zone: zone(status.separation_m),
            protective_distance_m: status.protective_distance_m,
            reduce_distance_m: status.reduce_distance_m,
            protective: status.protective,
            robot: status.robot,
            reaction: ReactionReply {
                deadline_ms: status.reaction.deadline_ms,
                last_ms: status.reaction.last_ms,
                mean_ms: status.reaction.mean_ms,
                worst_ms: status.reaction.worst_ms,
                count: status.reaction.count,
                misses: status.reaction.misses,
                edges_ms: (shown.start..=shown.end).map(ReactionHistogram::edge_ms).collect(),
                counts: &status.reaction.histogram.counts()[shown],
            },
            threads: status.threads,
            policy: status.policy,
            cameras: cameras.collect(),
        }
    }
}

/// Note on one picture: sent as a header with the JPEG, so that boxes and image belong to the same
/// frame.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PictureNote {
    /// Sequence number of the frame.
    pub frame: u64,
    /// Size of the frame in which the boxes are given, pixels.
    pub width: u32,
    pub height: u32,
    /// Age of the frame since its capture when this answer was made.
    pub age_ms: u64,
    /// Whether the objects were found in this very frame; else in the newest one that perception
    /// finished.
    pub same_frame: bool,
    pub health: FrameHealth,
    pub left_out: u32,
    pub objects: Vec<ObjectNote>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ObjectNote {
    pub kind: ObjectKind,
    pub track: u32,
    pub confidence: f32,
    pub box_px: [f32; 4],
    pub distance_m: f32,
    pub zone: Zone,
}

impl PictureNote {
    pub fn new(frame: u64, width: u32, height: u32, detections: &Detections, zones: &[Zone]) -> Self {
        let objects = detections.objects().iter().zip(zones).map(|(object, &zone)| ObjectNote {
            kind: object.kind,
            track: object.track,
            confidence: object.confidence,
            box_px: object.box_px,
            distance_m: object.distance_m,
            zone,
        });
        Self {
            frame,
            width,
            height,
            age_ms: 0,
            same_frame: detections.frame_sequence == frame,
            health: detections.health,
            left_out: detections.left_out,
            objects: objects.collect(),
        }
    }
}
