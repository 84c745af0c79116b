//! Forward kinematics of Universal Robots arms and the speed of their tool.
//!
//! Source of the numbers: Universal Robots, "DH Parameters for calculations of kinematics and
//! dynamics" (standard Denavit-Hartenberg convention). A real arm's calibration differs from them
//! by millimetres and can be read from its controller ([`crate::primary`]). The tool's pose comes
//! from the controller (`actual_TCP_pose`); these are for the simulator, and for where the links
//! are ([`Body`]).

mod body;
mod models;

pub use body::{Body, LINKS, LinkCapsule, LinkShape, Links};
pub use models::Model;

use nalgebra::{Isometry3, Matrix6, Translation3, UnitQuaternion, Vector3, Vector6};
use std::f64::consts::FRAC_PI_2;

/// One arm's Denavit-Hartenberg parameters, base to flange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// Link lengths in metres.
    pub a_m: [f64; 6],
    /// Link offsets in metres.
    pub d_m: [f64; 6],
    /// Link twists in radians.
    pub alpha_rad: [f64; 6],
    /// Addends to the joint angles, radians: 0 except for a calibrated arm.
    pub theta_rad: [f64; 6],
    /// Largest joint speeds in rad/s.
    pub joint_speed_max_rad_s: [f64; 6],
    /// Largest angle of every joint, either way, in radians.
    pub joint_range_rad: f64,
}

/// Twists of every UR arm.
const TWISTS_RAD: [f64; 6] = [FRAC_PI_2, 0.0, 0.0, FRAC_PI_2, -FRAC_PI_2, 0.0];

/// The UR10e, the simulator's arm where nothing else is asked.
pub const UR10E: Arm = Model::Ur10e.arm();

impl Arm {
    fn link(&self, joint: usize, angle_rad: f64) -> Isometry3<f64> {
        let about_z = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), angle_rad + self.theta_rad[joint]);
        let along_z = Translation3::new(0.0, 0.0, self.d_m[joint]);
        let along_x = Translation3::new(self.a_m[joint], 0.0, 0.0);
        let about_x = UnitQuaternion::from_axis_angle(&Vector3::x_axis(), self.alpha_rad[joint]);
        about_z * along_z * along_x * about_x
    }

    /// Pose of the tool centre point in the base frame.
    ///
    /// `joints_rad` are the six joint angles, `tcp` is the tool centre point in the flange frame.
    pub fn forward(&self, joints_rad: &[f64; 6], tcp: &Isometry3<f64>) -> Isometry3<f64> {
        let flange =
            (0..6).fold(Isometry3::identity(), |pose, joint| pose * self.link(joint, joints_rad[joint]));
        flange * tcp
    }

    /// Geometric Jacobian at the tool centre point: rows 0..3 linear (m/rad), rows 3..6 angular,
    /// base frame.
    pub(crate) fn jacobian(&self, joints_rad: &[f64; 6], tcp: &Isometry3<f64>) -> Matrix6<f64> {
        let tool = self.forward(joints_rad, tcp).translation.vector;
        let mut jacobian = Matrix6::zeros();
        let mut pose = Isometry3::identity();
        for (joint, angle_rad) in joints_rad.iter().enumerate() {
            let axis = pose.rotation * Vector3::z();
            let lever = tool - pose.translation.vector;
            jacobian.fixed_view_mut::<3, 1>(0, joint).copy_from(&axis.cross(&lever));
            jacobian.fixed_view_mut::<3, 1>(3, joint).copy_from(&axis);
            pose *= self.link(joint, *angle_rad);
        }
        jacobian
    }

    /// Speed of the tool centre point, m/s and rad/s in the base frame, at joint speeds in rad/s.
    pub fn tcp_speed(
        &self,
        joints_rad: &[f64; 6],
        speeds_rad_s: &[f64; 6],
        tcp: &Isometry3<f64>,
    ) -> [f64; 6] {
        (self.jacobian(joints_rad, tcp) * Vector6::from(*speeds_rad_s)).into()
    }
}

/// A pose as RTDE writes it: x, y, z in metres, then the rotation vector (axis times angle) in
/// radians.
pub fn pose_to_vector(pose: &Isometry3<f64>) -> [f64; 6] {
    let (at, turn) = (pose.translation.vector, pose.rotation.scaled_axis());
    [at.x, at.y, at.z, turn.x, turn.y, turn.z]
}

/// The pose that six RTDE numbers mean; inverse of [`pose_to_vector`].
pub fn pose_from_vector(vector: &[f64; 6]) -> Isometry3<f64> {
    let [x, y, z, rx, ry, rz] = *vector;
    Isometry3::new(Vector3::new(x, y, z), Vector3::new(rx, ry, rz))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    fn close(left: &[f64], right: &[f64], tolerance: f64) {
        for (a, b) in left.iter().zip(right) {
            assert!((a - b).abs() <= tolerance, "{left:?} differs from {right:?}");
        }
    }

    /// By hand from the maker's drawing: arm stretched out along -x, wrist offsets along -y and -z.
    #[test]
    fn stretched_arm_reaches_as_drawn() {
        let pose = UR10E.forward(&[0.0; 6], &Isometry3::identity());
        close(
            pose.translation.vector.as_slice(),
            &[-(0.6127 + 0.57155), -(0.17415 + 0.11655), 0.1807 - 0.11985],
            1e-9,
        );
    }

    /// Upright: shoulder and wrist 1 at -90 degrees put all links above the base.
    #[test]
    fn upright_arm_reaches_as_drawn() {
        let pose = UR10E.forward(&[0.0, -FRAC_PI_2, 0.0, -FRAC_PI_2, 0.0, 0.0], &Isometry3::identity());
        close(
            pose.translation.vector.as_slice(),
            &[0.0, -(0.17415 + 0.11655), 0.1807 + 0.6127 + 0.57155 + 0.11985],
            1e-9,
        );
    }

    #[test]
    fn tool_points_down_and_the_base_turns_everything() {
        let down = [0.0, -FRAC_PI_2, -FRAC_PI_2, -FRAC_PI_2, FRAC_PI_2, 0.0];
        let pose = UR10E.forward(&down, &Isometry3::identity());
        close((pose.rotation * Vector3::z()).as_slice(), &[0.0, 0.0, -1.0], 1e-9);
        let mut turned = down;
        turned[0] = PI / 3.0;
        let other = UR10E.forward(&turned, &Isometry3::identity());
        let spin = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), PI / 3.0);
        close(other.translation.vector.as_slice(), (spin * pose.translation.vector).as_slice(), 1e-12);
    }

    #[test]
    fn speed_is_the_derivative_of_the_pose() {
        let tcp = Isometry3::new(Vector3::new(0.02, -0.01, 0.15), Vector3::new(0.1, 0.2, 0.3));
        let speeds = [0.3, -0.5, 0.7, -0.2, 0.4, 0.9];
        let step = 1e-6;
        for case in 0..20 {
            let joints: [f64; 6] = std::array::from_fn(|j| ((case * 7 + j * 13) % 31) as f64 * 0.2 - 3.0);
            let ahead = std::array::from_fn(|j| joints[j] + step * speeds[j]);
            let behind = std::array::from_fn(|j| joints[j] - step * speeds[j]);
            let (after, before) = (UR10E.forward(&ahead, &tcp), UR10E.forward(&behind, &tcp));
            let linear = (after.translation.vector - before.translation.vector) / (2.0 * step);
            let angular = (after.rotation * before.rotation.inverse()).scaled_axis() / (2.0 * step);
            let speed = UR10E.tcp_speed(&joints, &speeds, &tcp);
            close(&speed[..3], linear.as_slice(), 1e-6);
            close(&speed[3..], angular.as_slice(), 1e-6);
        }
    }

    #[test]
    fn pose_vector_round_trips() {
        let pose = Isometry3::new(Vector3::new(0.4, -0.2, 0.9), Vector3::new(1.0, -2.0, 0.5));
        let vector = pose_to_vector(&pose);
        close(&vector, &[0.4, -0.2, 0.9, 1.0, -2.0, 0.5], 1e-12);
        close(&pose_to_vector(&pose_from_vector(&vector)), &vector, 1e-12);
    }
}
