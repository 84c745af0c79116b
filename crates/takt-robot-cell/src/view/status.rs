//! Status of a running cell for the views, apart from the pictures: one plain value for an exchange
//! buffer.
//!
//! A best-effort collector fills it from job records and from the newest values of the safety job
//! and the robot link. It is `Copy` and holds no pointers, so that it can be published through
//! [`takt_rt::exchange`].

use std::cmp::Ordering;

use serde::{Serialize, Serializer};
use takt_link_rtde::{RobotMode, SafetyMode};
use takt_perception::FrameHealth;

use crate::ssm::{Light, MAX_CAMERAS};
use crate::view::histogram::ReactionHistogram;

/// A short text of fixed size. Longer texts are cut at a character boundary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    bytes: [u8; Label::CAPACITY],
    len: u8,
}

impl Label {
    /// Most bytes (UTF-8) that a label holds.
    pub const CAPACITY: usize = 95;

    /// A label with as much of `text` as fits.
    pub fn new(text: &str) -> Self {
        let mut end = text.len().min(Self::CAPACITY);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; Self::CAPACITY];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Self { bytes, len: end as u8 }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or_default()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Label {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One camera in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct CameraStatus {
    /// Least distance from the TCP to an object that this camera sees, metres; `None` while it sees
    /// nobody.
    pub separation_m: Option<f32>,
    /// Whether the newest frame could be judged.
    pub health: FrameHealth,
    /// Objects in the newest result.
    pub objects: u32,
    /// Frames that arrived.
    pub frames: u64,
    /// Frames that were lost: gaps in the sequence of the source and frames overwritten before
    /// perception read them.
    pub dropped: u64,
    /// Frames that perception took up and could not judge: no pose, no depth, failed inference.
    pub unjudged: u64,
    /// Reaction time of the newest frame, milliseconds; `None` before the first.
    pub last_reaction_ms: Option<f32>,
    /// Worst reaction time so far, milliseconds; `None` before the first.
    pub worst_reaction_ms: Option<f32>,
}

/// The cameras, at most [`MAX_CAMERAS`]; a slice otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct CameraList {
    cameras: [CameraStatus; MAX_CAMERAS],
    count: u32,
}

impl CameraList {
    /// `count` cameras that have said nothing yet; more than [`MAX_CAMERAS`] are not shown.
    pub fn new(count: usize) -> Self {
        Self { count: count.min(MAX_CAMERAS) as u32, ..Self::default() }
    }
}

impl std::ops::Deref for CameraList {
    type Target = [CameraStatus];

    fn deref(&self) -> &Self::Target {
        &self.cameras[..self.count as usize]
    }
}

impl std::ops::DerefMut for CameraList {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.cameras[..self.count as usize]
    }
}

/// The robot as its controller reports it.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct RobotStatus {
    /// Whether the link is up.
    pub connected: bool,
    pub robot_mode: RobotMode,
    pub safety_mode: SafetyMode,
    /// Speed fraction that the controller follows, 0..1.
    pub speed_fraction: f32,
    /// TCP position in metres and rotation vector in radians, base frame.
    pub tcp_pose: [f64; 6],
    pub tcp_speed_m_s: f32,
}

/// Reaction times: frame arrival to completion of the first SSM job that processed the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReactionStatus {
    /// Deadline of the critical path, milliseconds.
    pub deadline_ms: f32,
    /// Newest reaction time, milliseconds.
    pub last_ms: f32,
    /// Mean over the whole run, milliseconds.
    pub mean_ms: f32,
    /// Worst of the whole run, milliseconds.
    pub worst_ms: f32,
    /// Reactions measured. While 0 the times above mean nothing.
    pub count: u64,
    /// Reactions later than the deadline.
    pub misses: u64,
    /// All reactions of the run.
    pub histogram: ReactionHistogram,
}

impl Default for ReactionStatus {
    /// No reaction yet, with the deadline of the paper's critical path (SentryRT-1, Table I).
    fn default() -> Self {
        Self {
            deadline_ms: 37.3,
            last_ms: 0.0,
            mean_ms: 0.0,
            worst_ms: 0.0,
            count: 0,
            misses: 0,
            histogram: ReactionHistogram::default(),
        }
    }
}

impl ReactionStatus {
    /// Takes in one reaction time, milliseconds, and keeps last, mean, worst, misses and histogram
    /// in step.
    pub fn record(&mut self, reaction_ms: f32) {
        self.count += 1;
        self.last_ms = reaction_ms;
        // The running mean in double precision: single precision would stall after some million
        // frames.
        let mean = f64::from(self.mean_ms);
        self.mean_ms = (mean + (f64::from(reaction_ms) - mean) / self.count as f64) as f32;
        self.worst_ms = self.worst_ms.max(reaction_ms);
        self.misses += u64::from(reaction_ms > self.deadline_ms);
        self.histogram.record(reaction_ms);
    }
}

/// The thread census in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ThreadSummary {
    /// Threads of the process.
    pub total: u32,
    /// Threads under FIFO, RR or DEADLINE.
    pub realtime: u32,
    /// Threads that libraries spawned and that run under the fallback policy.
    pub fallback: u32,
    /// Threads whose effective policy or placement is not what was asked.
    pub deviating: u32,
}

/// Everything that the views show besides pictures.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct CellStatus {
    /// Time since the run began, seconds.
    pub elapsed_s: f64,
    pub light: Light,
    /// Speed fraction that the safety job commands, 0..1.
    pub speed_fraction: f32,
    /// Whether the safety job holds the robot stopped.
    pub stop: bool,
    /// Reason of the stop, for the person in front of the cell ("camera 2: no frame for 130 ms");
    /// otherwise empty.
    pub stop_reason: Label,
    /// Least separation over all cameras, metres; `None` while nobody is seen.
    pub separation_m: Option<f32>,
    /// Protective separation distance now, metres: below it the robot stops.
    pub protective_distance_m: f32,
    /// Below this distance the robot slows down, metres.
    pub reduce_distance_m: f32,
    /// Source of the protective distance at full speed.
    pub protective: ProtectiveStatus,
    pub robot: RobotStatus,
    /// Reaction times over all cameras.
    pub reaction: ReactionStatus,
    /// Threads of the process.
    pub threads: ThreadSummary,
    /// Policies of main threads and subthreads, for instance `DL+RR`.
    pub policy: Label,
    /// The cameras, in the order of the configuration.
    pub cameras: CameraList,
}

/// Terms of the protective separation distance at full speed,
/// `v_h (T_r + T_s) + v_r (T_r + T_s) + C + Z`, with the values of the run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProtectiveStatus {
    /// Speed of the person v_h, m/s.
    pub human_speed_m_s: f32,
    /// Speed of the robot at full speed v_r, m/s.
    pub robot_speed_m_s: f32,
    /// Reaction time in use T_r, seconds.
    pub reaction_s: f32,
    /// The part that the monitor tolerates, seconds.
    pub tolerated_s: f32,
    /// The worst value measured in the run, seconds.
    pub measured_s: f32,
    /// Stopping time T_s, seconds.
    pub stopping_s: f32,
    /// Intrusion and uncertainties C + Z, metres.
    pub constants_m: f32,
    pub distance_m: f32,
}

impl CellStatus {
    /// Zone of a distance, by the two thresholds.
    pub fn zone(&self, distance_m: f32) -> Zone {
        // NaN is beyond nothing, so it lands in the stop zone.
        let beyond = |threshold_m| distance_m.partial_cmp(&threshold_m) == Some(Ordering::Greater);
        if !beyond(self.protective_distance_m) {
            Zone::Stop
        } else if !beyond(self.reduce_distance_m) {
            Zone::Reduce
        } else {
            Zone::Clear
        }
    }
}

/// Nearness of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// Beyond the reduce distance.
    Clear,
    /// Within the reduce distance.
    Reduce,
    /// Within the protective separation distance, or at an invalid distance.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_cut_at_a_character_boundary() {
        let long = "ä".repeat(60);
        let label = Label::new(&long);
        assert_eq!(label.as_str(), "ä".repeat(47));
        assert_eq!(Label::new("DL+RR").as_str(), "DL+RR");
        assert!(Label::default().is_empty());
    }

    #[test]
    fn an_invalid_distance_is_in_the_stop_zone() {
        let status =
            CellStatus { protective_distance_m: 0.8, reduce_distance_m: 1.5, ..CellStatus::default() };
        assert_eq!(status.zone(f32::NAN), Zone::Stop);
        assert_eq!(status.zone(0.8), Zone::Stop);
        assert_eq!(status.zone(1.2), Zone::Reduce);
        assert_eq!(status.zone(1.6), Zone::Clear);
    }

    #[test]
    fn more_cameras_than_fit_are_left_out() {
        assert_eq!(CameraList::new(MAX_CAMERAS + 3).len(), MAX_CAMERAS);
        assert_eq!(CameraList::new(5).len(), 5);
    }

    #[test]
    fn recording_keeps_all_numbers_in_step() {
        let mut reaction = ReactionStatus::default();
        for ms in [10.0, 20.0, 60.0] {
            reaction.record(ms);
        }
        assert_eq!((reaction.count, reaction.misses, reaction.last_ms), (3, 1, 60.0));
        assert_eq!((reaction.mean_ms, reaction.worst_ms), (30.0, 60.0));
        assert_eq!(reaction.histogram.counts().iter().sum::<u32>(), 3);
    }

    #[test]
    fn a_cell_that_said_nothing_yet_is_red() {
        assert_eq!(CellStatus::default().light, Light::Red);
    }
}
