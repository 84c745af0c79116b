//! Poses of the tool out of the robot's recent states, which the receiver of the robot's packets
//! publishes itself: no task of the cell stands between the robot and perception.

use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};
use takt_link_rtde::client::StateHistory;

use crate::ssm::is_within_reach;

/// Times of measurement and TCP poses in the base frame, oldest first. A pose that no arm reaches
/// is none.
pub(crate) fn tool_poses(
    history: &StateHistory,
) -> impl DoubleEndedIterator<Item = (u64, Isometry3<f64>)> + '_ {
    let possible = history.iter().filter(|sample| is_within_reach(&sample.tcp_pose[..3]));
    possible.map(|sample| (sample.measured_ns, isometry(sample.tcp_pose)))
}

/// A Universal Robots pose (position in metres, rotation vector in radians) as an isometry.
pub fn isometry([x, y, z, rx, ry, rz]: [f64; 6]) -> Isometry3<f64> {
    Isometry3::from_parts(
        Translation3::new(x, y, z),
        UnitQuaternion::from_scaled_axis(Vector3::new(rx, ry, rz)),
    )
}
