//! Pose of a camera: its mounting, and the robot's pose at capture time.

#![deny(missing_docs)]

use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};
use serde::{Deserialize, Serialize};

use crate::robot_shape::RobotShape;

/// Poses of one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FramePose {
    /// The camera's optical frame (x right, y down, z forward) in the robot base frame, at capture.
    pub camera_in_base: Isometry3<f64>,
    /// The tool centre point in the robot base frame, at capture.
    pub tcp_in_base: Isometry3<f64>,
    /// Space of the robot at capture. Empty if it is unknown: all visible parts then count.
    pub robot: RobotShape,
}

impl FramePose {
    /// Camera and tool; nothing is known of the robot.
    pub fn new(camera_in_base: Isometry3<f64>, tcp_in_base: Isometry3<f64>) -> Self {
        Self { camera_in_base, tcp_in_base, robot: RobotShape::default() }
    }
}

/// Frame to which the camera is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountFrame {
    /// The tool centre point: the camera rides on the robot.
    Tcp,
    /// The robot base: the camera stands still.
    Base,
}

/// Mounting of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Frame to which the camera is fixed.
    pub frame: MountFrame,
    /// Position of the optical frame in that frame, metres.
    pub position_m: [f64; 3],
    /// Orientation of the optical frame in that frame as a rotation vector (axis times angle),
    /// radians: what Universal Robots and hand-eye calibrations write.
    #[serde(default)]
    pub rotation_rad: [f64; 3],
}

impl Mount {
    /// The camera in the frame it is fixed to.
    pub fn isometry(&self) -> Isometry3<f64> {
        Isometry3::from_parts(
            Translation3::from(Vector3::from(self.position_m)),
            UnitQuaternion::from_scaled_axis(Vector3::from(self.rotation_rad)),
        )
    }

    /// The poses of a frame captured while the tool was at `tcp_in_base`.
    pub fn at(&self, tcp_in_base: &Isometry3<f64>) -> FramePose {
        let camera_in_base = match self.frame {
            MountFrame::Tcp => tcp_in_base * self.isometry(),
            MountFrame::Base => self.isometry(),
        };
        FramePose::new(camera_in_base, *tcp_in_base)
    }
}

/// The robot's recent poses, to find the one at a capture time. A ring: nothing is allocated after
/// creation.
#[derive(Clone, Debug)]
pub struct PoseHistory {
    /// Times strictly rise from the oldest (at `start`) to the newest.
    ring: Vec<(u64, Isometry3<f64>)>,
    start: usize,
    capacity: usize,
    max_age_ns: u64,
    max_gap_ns: u64,
}

impl PoseHistory {
    /// Keeps `capacity` poses (at least 2).
    ///
    /// A capture up to `max_age_ns` newer than the newest pose gets the newest pose: it is held,
    /// not extrapolated, which at speed v is wrong by at most v · `max_age_ns`. Between two poses
    /// more than `max_gap_ns` apart nothing is interpolated.
    pub fn new(capacity: usize, max_age_ns: u64, max_gap_ns: u64) -> Self {
        let capacity = capacity.max(2);
        Self { ring: Vec::with_capacity(capacity), start: 0, capacity, max_age_ns, max_gap_ns }
    }

    /// Adds a pose. One that is not newer than the newest, or not finite, is passed over (false).
    pub fn push(&mut self, t_ns: u64, pose: &Isometry3<f64>) -> bool {
        let finite = pose.translation.vector.iter().chain(pose.rotation.coords.iter()).all(|v| v.is_finite());
        if !finite || self.newest_ns().is_some_and(|newest| t_ns <= newest) {
            return false;
        }
        if self.ring.len() < self.capacity {
            self.ring.push((t_ns, *pose));
        } else {
            self.ring[self.start] = (t_ns, *pose);
            self.start = (self.start + 1) % self.capacity;
        }
        true
    }

    /// Time of the newest pose.
    pub fn newest_ns(&self) -> Option<u64> {
        (!self.ring.is_empty()).then(|| self.entry(self.ring.len() - 1).0)
    }

    fn entry(&self, age_rank: usize) -> &(u64, Isometry3<f64>) {
        &self.ring[(self.start + age_rank) % self.ring.len()]
    }

    /// The pose at a time: interpolated (position linearly, orientation along the great circle),
    /// held for `max_age_ns` after the newest, else `None`.
    pub fn at(&self, t_ns: u64) -> Option<Isometry3<f64>> {
        let (newest_ns, newest) = *self.entry_checked(self.ring.len().checked_sub(1)?)?;
        if t_ns >= newest_ns {
            return (t_ns - newest_ns <= self.max_age_ns).then_some(newest);
        }
        // The first entry that is newer than the time.
        let (mut low, mut high) = (0, self.ring.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.entry(middle).0 <= t_ns {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (before_ns, before) = *self.entry(low.checked_sub(1)?);
        let (after_ns, after) = *self.entry(low);
        let gap_ns = after_ns - before_ns;
        if gap_ns > self.max_gap_ns && t_ns != before_ns {
            return None;
        }
        let share = (t_ns - before_ns) as f64 / gap_ns as f64;
        // Opposite orientations have no shortest way between them.
        before.try_lerp_slerp(&after, share, 1e-9)
    }

    fn entry_checked(&self, age_rank: usize) -> Option<&(u64, Isometry3<f64>)> {
        (age_rank < self.ring.len()).then(|| self.entry(age_rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::FRAC_PI_2;

    fn pose(x: f64, angle: f64) -> Isometry3<f64> {
        Isometry3::new(Vector3::new(x, 0.0, 0.0), Vector3::new(0.0, 0.0, angle))
    }

    #[test]
    fn poses_are_interpolated_at_the_capture_time() {
        let mut history = PoseHistory::new(4, 10, 100);
        for i in 0..10u64 {
            assert!(history.push(i * 10, &pose(i as f64, i as f64 * 0.1)));
        }
        let at = history.at(75).unwrap();
        assert!((at.translation.x - 7.5).abs() < 1e-9);
        assert!((at.rotation.angle() - 0.75).abs() < 1e-9);
        let exact = history.at(80).unwrap();
        assert!((exact.translation.x - 8.0).abs() < 1e-9 && (exact.rotation.angle() - 0.8).abs() < 1e-9);
        assert_eq!(history.at(59), None, "older than the ring");
        assert!(history.at(60).is_some());
    }

    #[test]
    fn the_newest_pose_is_held_for_the_configured_age_only() {
        let mut history = PoseHistory::new(8, 10, 100);
        assert_eq!(history.at(5), None);
        history.push(100, &pose(1.0, 0.0));
        assert_eq!(history.at(110), Some(pose(1.0, 0.0)));
        assert_eq!(history.at(111), None);
        assert_eq!(history.at(99), None);
    }

    #[test]
    fn gaps_disorder_and_nan_are_refused() {
        let mut history = PoseHistory::new(8, 10, 100);
        history.push(100, &pose(0.0, 0.0));
        assert!(!history.push(100, &pose(1.0, 0.0)));
        assert!(!history.push(150, &pose(f64::NAN, 0.0)));
        history.push(300, &pose(1.0, 0.0));
        assert_eq!(history.at(200), None, "200 ns without a pose");
        assert!(history.at(100).is_some());
    }

    #[test]
    fn a_camera_on_the_tool_moves_with_it_and_one_on_the_base_does_not() {
        let tcp = pose(1.0, FRAC_PI_2);
        let mut mount = Mount { frame: MountFrame::Tcp, position_m: [0.1, 0.0, 0.0], rotation_rad: [0.0; 3] };
        let camera = mount.at(&tcp).camera_in_base.translation.vector;
        assert!((camera - Vector3::new(1.0, 0.1, 0.0)).norm() < 1e-12);
        mount.frame = MountFrame::Base;
        assert_eq!(mount.at(&tcp).camera_in_base.translation.vector, Vector3::new(0.1, 0.0, 0.0));
    }
}
