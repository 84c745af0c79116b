//! The robot's own shape in a camera's frame, for perception to leave out.

use std::ops::Range;

use nalgebra::{Isometry3, Point3};
use takt_link_rtde::kinematics::{Body, Links};
use takt_perception::{Capsule, CapsuleFrame, RobotShape};

use super::config::{HeldWhen, PartFrame, PartShape, ShapeConfig};
use super::joints::JointsAt;
use crate::ssm::MAX_TOOL_M;

/// Frame with which the camera moves, as far as its place follows from the robot's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewpoint {
    /// It stands still, or its place is known otherwise: links move against it with the joints
    /// before them.
    Base,
    /// The tool: links move against it with the joints after them, and a gripper does not move at
    /// all.
    Tcp,
}

/// Standard deviations of the depth noise that a capsule grows by: a sample in a thousand lies
/// beyond, and it takes several neighbours to make a thing that counts.
const NOISE_DEVIATIONS: f64 = 3.0;

/// The robot's own shape, ready for every frame.
#[derive(Clone, Debug)]
pub struct ArmShape {
    body: Body,
    gripper: Vec<(PartFrame, Capsule)>,
    held: Vec<(PartFrame, Capsule)>,
    held_when: HeldWhen,
    held_bit: u64,
    margin_m: f64,
    depth_noise_m: f64,
    time_error_s: f64,
    acceleration_rad_s2: f64,
}

impl ArmShape {
    /// The shape that is configured, on an arm with these links.
    pub fn new(config: &ShapeConfig, body: Body) -> Self {
        let capsules = |parts: &[PartShape]| {
            let each = parts.iter().flat_map(|part| part.capsules().into_iter().map(|c| (part.frame, c)));
            each.collect::<Vec<_>>()
        };
        Self {
            body,
            gripper: capsules(&config.gripper),
            held: capsules(&config.held.parts),
            held_when: config.held.when,
            held_bit: config.held_bit(),
            margin_m: config.margin_m,
            depth_noise_m: config.depth_noise_m,
            time_error_s: config.time_error_ms / 1e3,
            acceleration_rad_s2: config.joint_acceleration_rad_s2,
        }
    }

    /// Its links.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Space of the robot for a camera at `camera_in_base`; none if its links turn too fast to
    /// report, or the tool is not at their end. Allocates nothing.
    pub fn at(
        &self,
        joints: &JointsAt,
        tcp_in_base: &Isometry3<f64>,
        camera_in_base: &Isometry3<f64>,
        viewpoint: Viewpoint,
    ) -> Option<RobotShape> {
        let links = self.body.at(&joints.joints_rad);
        // A tool that is not where its joints place it: one of the two is wrong.
        let tool_m = (links.flange.translation.vector - tcp_in_base.translation.vector).norm();
        if tool_m.is_nan() || tool_m > MAX_TOOL_M {
            return None;
        }
        let errors_rad = joints.errors_rad(self.time_error_s, self.acceleration_rad_s2);
        let grow = Grow { shape: self, links: &links, errors_rad, camera: camera_in_base, viewpoint };
        let mut robot = RobotShape::default();
        for (link, capsule) in links.capsules.iter().enumerate() {
            let capsule = Capsule {
                frame: CapsuleFrame::Base,
                from_m: capsule.from_m.cast(),
                to_m: capsule.to_m.cast(),
                radius_m: capsule.radius_m as f32,
            };
            robot.push(grow.grown(&capsule, Body::MOVED_BY[link])?);
        }
        let holds = self.held_when == HeldWhen::Always || joints.outputs & self.held_bit != 0;
        let held = self.held.iter().filter(|_| holds);
        for (frame, capsule) in self.gripper.iter().chain(held) {
            let frame = match frame {
                PartFrame::Tcp => tcp_in_base,
                PartFrame::Flange => &links.flange,
            };
            robot.push(grow.grown(&capsule.placed(frame, 0.0), 6)?);
        }
        Some(robot)
    }
}

/// Motion of a link beyond which the robot's shape is unknown: half a metre of robot would hide
/// anybody next to it. The noise of depth, which grows with the distance alone, is bounded by its
/// key.
const MAX_GROWTH_M: f64 = 0.5;

/// By how much capsules grow in one frame.
struct Grow<'a> {
    shape: &'a ArmShape,
    links: &'a Links,
    errors_rad: [f64; 6],
    camera: &'a Isometry3<f64>,
    viewpoint: Viewpoint,
}

impl Grow<'_> {
    /// A capsule of the base frame that the first `moved_by` joints move, grown.
    /// Nothing where its place is too uncertain.
    fn grown(&self, capsule: &Capsule, moved_by: usize) -> Option<Capsule> {
        let joints: Range<usize> = match self.viewpoint {
            Viewpoint::Base => 0..moved_by,
            Viewpoint::Tcp => moved_by..6,
        };
        let ends: [Point3<f64>; 2] = [capsule.from_m.cast(), capsule.to_m.cast()];
        let most = |of: &dyn Fn(&Point3<f64>) -> f64| of(&ends[0]).max(of(&ends[1]));
        let moved_m = most(&|end| self.links.displacement_m(end, joints.clone(), &self.errors_rad));
        let far_m = most(&|end| (end.coords - self.camera.translation.vector).norm());
        let noise_m = NOISE_DEVIATIONS * self.shape.depth_noise_m * far_m * far_m;
        let grown_m = self.shape.margin_m + noise_m + moved_m;
        (moved_m <= MAX_GROWTH_M).then(|| capsule.placed(&Isometry3::identity(), grown_m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_link_rtde::kinematics::Model;

    fn joints(speed: f64) -> JointsAt {
        let half = std::f64::consts::FRAC_PI_2;
        JointsAt {
            joints_rad: [0.0, -half, -half, -half, half, 0.0],
            speeds_rad_s: [speed, 0.0, 0.0, 0.0, 0.0, 0.0],
            held_s: 0.0,
            gap_s: 0.002,
            outputs: 0,
        }
    }

    fn shape(config: &ShapeConfig) -> ArmShape {
        ArmShape::new(config, Body::new(config.model, &config.model.arm()))
    }

    fn radii(shape: &ArmShape, joints: &JointsAt, viewpoint: Viewpoint) -> Vec<f64> {
        let camera = Isometry3::translation(0.0, 0.0, 0.5);
        let tcp = Isometry3::identity();
        let robot = shape.at(joints, &tcp, &camera, viewpoint);
        robot.expect("known").capsules().iter().map(|c| f64::from(c.radius_m)).collect()
    }

    #[test]
    fn capsules_grow_with_speed_lever_and_the_camera_s_own_motion() {
        let mut config = ShapeConfig::of(Model::Ur10e);
        (config.depth_noise_m, config.joint_acceleration_rad_s2) = (0.0, 0.0);
        let shape = shape(&config);
        let bare: Vec<_> = shape.body().at(&joints(0.0).joints_rad).capsules.map(|c| c.radius_m).into();
        let grown = |speed, viewpoint| -> Vec<f64> {
            radii(&shape, &joints(speed), viewpoint).iter().zip(&bare).map(|(a, b)| a - b).collect()
        };
        let still = grown(0.0, Viewpoint::Base);
        assert!(still.iter().all(|g| (g - config.margin_m).abs() < 1e-6), "{still:?}");
        // 1 rad/s for 15 ms: 15 mrad times the distance from joint 1's axis. The base does not
        // move, the wrist does.
        let moving = grown(1.0, Viewpoint::Base);
        assert!((moving[0] - config.margin_m).abs() < 1e-6);
        let flange = Body::new(config.model, &config.model.arm()).at(&joints(0.0).joints_rad).flange;
        let lever = flange.translation.vector.xy().norm();
        assert!((moving[7] - config.margin_m - 0.015 * lever).abs() < 2e-3, "{moving:?}, lever {lever}");
        // A camera on the tool turns with joint 1, as all links but the base do.
        let riding = grown(1.0, Viewpoint::Tcp);
        assert!(riding[1..].iter().all(|g| (g - config.margin_m).abs() < 1e-6), "{riding:?}");
    }

    #[test]
    fn a_held_part_is_there_while_its_output_is_on() {
        let text = r#"
            model = "ur5e"
            [held]
            parts = [{ name = "carton", frame = "flange", box = { centre_m = [0, 0, 0.1], sides_m = [0.2, 0.2, 0.2] } }]
        "#;
        let mut config: ShapeConfig = toml::from_str(text).unwrap();
        let count = |config: &ShapeConfig, outputs| {
            radii(&shape(config), &JointsAt { outputs, ..joints(0.0) }, Viewpoint::Base).len()
        };
        assert_eq!((count(&config, 0xffff), count(&config, 1 << 16)), (8, 9));
        config.held.output = Some(3);
        assert_eq!((count(&config, 1 << 16), count(&config, 1 << 3)), (8, 9));
        config.held.when = HeldWhen::Always;
        assert_eq!(count(&config, 0), 9);
    }
}
