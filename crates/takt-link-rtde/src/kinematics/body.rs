//! Places of the links: a capsule for each, driven by the joint angles.

use std::ops::Range;

use nalgebra::{Isometry3, Matrix3, Point3, Rotation3, Translation3, UnitQuaternion, Vector3};

use super::{Arm, Model};

/// Links that a [`Body`] distinguishes.
pub const LINKS: usize = 8;

/// One link's capsule in the robot base frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCapsule {
    /// One end of its axis, metres.
    pub from_m: Point3<f64>,
    /// Other end, metres.
    pub to_m: Point3<f64>,
    /// Radius, metres.
    pub radius_m: f64,
}

/// One link's shape: two places along an axis that belongs to the link (see [`Body`]), and a
/// radius.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkShape {
    /// Begin of the capsule's axis, metres.
    pub begin_m: f64,
    /// Its end, metres.
    pub end_m: f64,
    /// Radius, metres.
    pub radius_m: f64,
}

/// An arm's links: where they are at given joint angles, and how far they can be from there.
///
/// | link | its capsule's axis | joints that move it |
/// |---|---|---|
/// | base | joint 1's axis, from the mounting face | none |
/// | shoulder | joint 2's axis | 1 |
/// | upper-arm | beside the line from joint 2 to joint 3 | 1, 2 |
/// | elbow | joint 3's axis | 1, 2 |
/// | forearm | beside the line from joint 3 to joint 4 | 1 to 3 |
/// | wrist-1 | joint 4's axis | 1 to 3 |
/// | wrist-2 | joint 5's axis | 1 to 4 |
/// | wrist-3 | joint 6's axis, to the flange | 1 to 5 |
///
/// A housing is round about its joint's axis, so its own joint does not move its capsule.
#[derive(Clone, Debug)]
pub struct Body {
    arm: Arm,
    shapes: [LinkShape; LINKS],
    shoulder_offset_m: f64,
    elbow_offset_m: f64,
    /// The maker's frame of each joint (before its own rotation), as seen from the frame of the
    /// arm's own parameters.
    ///
    /// A calibration describes axes. Those of joints 2 to 4 are so nearly parallel that the
    /// parameters' origins may lie metres off along them. Housings do not: they are where the
    /// nominal arm has them, on the calibrated axes.
    frames: [Isometry3<f64>; 6],
}

/// The links at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// Capsules, base to wrist 3.
    pub capsules: [LinkCapsule; LINKS],
    /// The flange in the base frame.
    pub flange: Isometry3<f64>,
    /// A point of each joint's axis, metres.
    origins_m: [Point3<f64>; 6],
    /// Direction of each joint's axis.
    axes: [Vector3<f64>; 6],
}

impl Body {
    /// Names of the links.
    pub const NAMES: [&str; LINKS] =
        ["base", "shoulder", "upper-arm", "elbow", "forearm", "wrist-1", "wrist-2", "wrist-3"];

    /// Number of joints, from the base on, that move each link.
    pub const MOVED_BY: [usize; LINKS] = [0, 1, 2, 2, 3, 3, 4, 5];

    /// The links of a model that is calibrated as `arm` says; [`Model::arm`] where that is not
    /// known.
    pub fn new(model: Model, arm: &Arm) -> Self {
        let (shoulder_offset_m, elbow_offset_m) = model.offsets_m();
        let (nominal, real) = (joint_frames(&model.arm(), &[0.0; 6]), joint_frames(arm, &[0.0; 6]));
        let frames =
            std::array::from_fn(|joint| real[joint].inverse() * anchor(&nominal[joint], &real[joint]));
        Self { arm: *arm, shapes: model.shapes(), shoulder_offset_m, elbow_offset_m, frames }
    }

    /// The arm's parameters.
    pub const fn arm(&self) -> &Arm {
        &self.arm
    }

    /// Places of the links at `joints_rad`.
    pub fn at(&self, joints_rad: &[f64; 6]) -> Links {
        let own = joint_frames(&self.arm, joints_rad);
        let frames: [Isometry3<f64>; 6] = std::array::from_fn(|joint| own[joint] * self.frames[joint]);
        let turned = |joint: usize| {
            frames[joint] * UnitQuaternion::from_axis_angle(&Vector3::z_axis(), joints_rad[joint])
        };
        let along_z = |frame: &Isometry3<f64>, shape: &LinkShape| {
            [shape.begin_m, shape.end_m].map(|z| frame * Point3::new(0.0, 0.0, z))
        };
        let along_x = |frame: &Isometry3<f64>, z: f64, shape: &LinkShape| {
            [shape.begin_m, shape.end_m].map(|x| frame * Point3::new(x, 0.0, z))
        };
        let s = &self.shapes;
        let ends = [
            along_z(&frames[0], &s[0]),
            along_z(&frames[1], &s[1]),
            along_x(&turned(1), self.shoulder_offset_m, &s[2]),
            along_z(&frames[2], &s[3]),
            along_x(&turned(2), self.elbow_offset_m, &s[4]),
            along_z(&frames[3], &s[5]),
            along_z(&frames[4], &s[6]),
            along_z(&frames[5], &s[7]),
        ];
        Links {
            capsules: std::array::from_fn(|link| LinkCapsule {
                from_m: ends[link][0],
                to_m: ends[link][1],
                radius_m: s[link].radius_m,
            }),
            flange: self.arm.forward(joints_rad, &Isometry3::identity()),
            origins_m: frames.map(|frame| Point3::from(frame.translation.vector)),
            axes: frames.map(|frame| frame.rotation * Vector3::z()),
        }
    }
}

impl Links {
    /// Direction of a joint's axis; joints count from 0. The last one's where there is no such
    /// joint.
    pub fn axis(&self, joint: usize) -> Vector3<f64> {
        self.axes[joint.min(5)]
    }

    /// Largest distance of a point that these joints (from 0) move from its apparent place, when
    /// each joint's angle is wrong by `errors_rad` at most: to first order, the sum over the joints
    /// of angle times lever.
    pub fn displacement_m(&self, point: &Point3<f64>, joints: Range<usize>, errors_rad: &[f64; 6]) -> f64 {
        (joints.start..joints.end.min(6))
            .map(|joint| {
                let lever = self.axes[joint].cross(&(point - self.origins_m[joint])).norm();
                lever * errors_rad[joint].abs()
            })
            .sum()
    }

    /// [`displacement_m`](Self::displacement_m) of a whole link: that of the end that moves more.
    pub fn link_displacement_m(&self, link: usize, errors_rad: &[f64; 6]) -> f64 {
        let capsule = &self.capsules[link];
        let of = |end| self.displacement_m(end, 0..Body::MOVED_BY[link], errors_rad);
        of(&capsule.from_m).max(of(&capsule.to_m))
    }
}

/// The frame of each joint before the joint's own rotation, in the base frame.
fn joint_frames(arm: &Arm, joints_rad: &[f64; 6]) -> [Isometry3<f64>; 6] {
    let mut pose = Isometry3::identity();
    std::array::from_fn(|joint| {
        let before = pose;
        pose *= arm.link(joint, joints_rad[joint]);
        before
    })
}

/// The nominal frame, moved onto the real axis: z along that axis, the origin at its point nearest
/// to the nominal origin, x as near to the nominal x as it can be.
fn anchor(nominal: &Isometry3<f64>, real: &Isometry3<f64>) -> Isometry3<f64> {
    let z = real.rotation * Vector3::z();
    let off = nominal.translation.vector - real.translation.vector;
    let origin = real.translation.vector + z * z.dot(&off);
    let wish = nominal.rotation * Vector3::x();
    let Some(x) = (wish - z * z.dot(&wish)).try_normalize(1e-6) else { return *real };
    let rotation = Rotation3::from_matrix_unchecked(Matrix3::from_columns(&[x, z.cross(&x), z]));
    Isometry3::from_parts(Translation3::from(origin), UnitQuaternion::from_rotation_matrix(&rotation))
}

#[cfg(test)]
mod tests;
